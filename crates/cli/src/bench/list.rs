//! `pando bench list`: listing a large directory, and what a create in it costs.

use super::meter::{Measured, Meter};
use super::spent::Watch;
use super::{Figures, Wait, connect, crowd, on_threads};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, my_cred};
use crate::fs::{absolute, below};
use crate::text::printable;
use anyhow::{Context, Result, bail};
use pando_client::file::{self, Place};
use pando_types::{Access, Errno, Name, Perm};
use pando_wire::{Op, Statement};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::ffi::OsString;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

/// Clients that make and remove entries, and their requests in flight.
const CLIENTS: usize = 2;
const AT_ONCE: usize = 64;
/// Creates whose times are taken at each size.
const SAMPLES: u64 = 2000;

/// Listing a large directory: names and kinds as readdir has them, and with all attributes.
///
/// Each listing is by a client that has just connected and remembers nothing. What servers have in their
/// caches is as it is: `pando restart` before, with --keep, makes them cold too. Times are those of pages;
/// ops/s are entries. Growth is the most memory that a process had while listing, beyond what it had before
/// (servers on this machine only). With --create-cost creates are timed in a directory that has so many
/// entries already. Needs a running cluster.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando bench list --entries 1000000 --keep\n  pando restart && pando bench list --entries 1000000 --keep --json    cold\n  pando bench list --create-cost=1000,100000,1000000"
)]
pub struct ListArgs {
    /// Entries of the directory.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=99_999_999))]
    pub entries: u64,
    /// Listings of each kind.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub rounds: u64,
    /// What is asked for. The second kind of listing finds servers' caches warm from the first.
    #[arg(long, value_enum, default_value_t = Kinds::Both)]
    pub kinds: Kinds,
    /// Leave the directory; it is used again.
    #[arg(long)]
    pub keep: bool,
    /// Instead: what a create costs where there are so many entries.
    #[arg(long, value_name = "ENTRIES,...", num_args = 0..=1, require_equals = true, value_delimiter = ',', default_missing_value = "1000,100000,1000000")]
    pub create_cost: Option<Vec<u64>>,
    /// With --create-cost: requests in flight.
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    /// The directory in which it happens.
    #[arg(short = 'd', value_name = "PATH", default_value = "/pando-list")]
    pub base: OsString,
    /// How clients wait for answers.
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub waiting: Wait,
}

/// Kinds of listings.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kinds {
    /// Names and kinds.
    Names,
    /// All attributes too.
    Attributes,
    /// One after the other.
    Both,
}

impl Kinds {
    /// Whether attributes are asked for, of each listing.
    fn plus(self) -> &'static [bool] {
        match self {
            Kinds::Names => &[false],
            Kinds::Attributes => &[true],
            Kinds::Both => &[false, true],
        }
    }
}

/// Where entries are made and removed.
struct Site<'a> {
    args: &'a Args,
    bench: &'a ListArgs,
    dir: &'a ClusterDir,
    path: Vec<u8>,
}

pub fn run(args: &Args, bench: &ListArgs) -> Result<Figures> {
    let dir = ClusterDir::of(args)?;
    let file = dir.load()?;
    let watch = Watch::of(&dir, &file);
    let base = absolute(&bench.base);
    let name = match &bench.create_cost {
        None => format!("entries.{}", bench.entries),
        Some(_) => "growing".to_owned(),
    };
    let site = Site {
        args,
        bench,
        dir: &dir,
        path: below(&base, name.as_bytes()),
    };
    let results = match &bench.create_cost {
        None => site.list(&watch)?,
        Some(sizes) => site.grow(sizes)?,
    };
    if !bench.keep || bench.create_cost.is_some() {
        let conn = site.connect()?;
        let removed = conn.run(conn.client.rmdir(&my_cred(), &site.path));
        removed.with_context(|| format!("cannot remove {}", printable(&site.path)))?;
        // There may be others in it.
        let _ = conn.run(conn.client.rmdir(&my_cred(), &base));
    }
    Ok(Figures {
        bench: "list",
        profile: Some(file.profile.name),
        params: json!({
            "entries": bench.entries, "rounds": bench.rounds, "create_cost": bench.create_cost, "depth": bench.depth,
            "waiting": bench.waiting.name(), "servers": file.servers.len(), "durability": file.durability,
            "record_mib": watch.record_mib(),
        }),
        results,
    })
}

fn entry_name(n: u64) -> Result<Name, Errno> {
    Name::new(format!("entry.{n:08}").as_bytes())
}

impl Site<'_> {
    fn connect(&self) -> Result<Connection> {
        connect(self.dir, self.bench.waiting, self.args.paths)
    }

    fn open(&self, conn: &Connection) -> Result<Statement> {
        let found = conn.run(conn.client.hold_path(&my_cred(), &self.path, true));
        let found = found.with_context(|| format!("cannot open {}", printable(&self.path)))?;
        found.entry.dir.context("not a directory")
    }

    /// Makes the directory if it is not there. How many entries it has.
    fn make(&self) -> Result<u64> {
        let conn = self.connect()?;
        conn.run(conn.client.mkdir_all(&my_cred(), &self.path, Perm::new(0o755)))
            .with_context(|| format!("cannot make {}", printable(&self.path)))?;
        let stat = conn.run(conn.client.dir_stat(&my_cred(), &self.open(&conn)?))?;
        Ok(stat.entries)
    }

    /// Makes, or removes, the entries with these numbers.
    fn change(&self, entries: Range<u64>, makes: bool) -> Result<()> {
        let all = entries.end.saturating_sub(entries.start);
        let doing = if makes { "make" } else { "remove" };
        on_threads(CLIENTS, |client| {
            let conn = self.connect()?;
            let dir = self.open(&conn)?;
            let of = |c: usize| entries.start + all * c as u64 / CLIENTS as u64;
            let (asker, cred) = (conn.client.clone(), my_cred());
            let work = move |n| {
                let (client, cred, dir) = (asker.clone(), cred.clone(), dir.clone());
                async move {
                    let name = entry_name(n)?;
                    if makes {
                        let (place, mode) = (Place { dir, name }, Perm::new(0o644));
                        let made = file::create(&*client, &cred, &place, mode, false, Access::WRITE).await;
                        return made.map(|_| ());
                    }
                    let unlink = Op::Unlink {
                        dir,
                        name,
                        held: false,
                    };
                    client.op(&cred, unlink).await.map(|_| ())
                }
            };
            crowd(&conn, AT_ONCE, of(client)..of(client + 1), work)
                .with_context(|| format!("cannot {doing} entries of {}", printable(&self.path)))
        })?;
        Ok(())
    }

    fn list(&self, watch: &Watch) -> Result<Vec<Measured>> {
        let entries = self.bench.entries;
        let there = self.make()?;
        if there > entries {
            bail!(
                "{} has {there} entries, more than {entries}: somebody else uses it; say another -d",
                printable(&self.path)
            );
        }
        if there < entries {
            self.change(0..entries, true)?;
        }
        let mut results = Vec::new();
        for &plus in self.bench.kinds.plus() {
            for round in 1..=self.bench.rounds {
                results.push(self.listing(watch, plus, round)?);
            }
        }
        if !self.bench.keep {
            self.change(0..entries, false)?;
        }
        Ok(results)
    }

    fn listing(&self, watch: &Watch, plus: bool, round: u64) -> Result<Measured> {
        let conn = self.connect()?;
        let (dir, cred) = (self.open(&conn)?, my_cred());
        watch.forget_peaks();
        let (before, started) = (watch.memory("VmRSS:"), watch.before());
        let trips = conn.client.stats().round_trips;
        let mut meter = Meter::new()?;
        let (mut entries, mut pages) = (0, 0);
        let began = Instant::now();
        conn.run(async {
            let mut listing = conn.client.list(&cred, dir, plus);
            loop {
                let asked = Instant::now();
                let page = listing.next_page().await?;
                if page.is_empty() {
                    return Ok::<(), Errno>(());
                }
                meter.record(asked.elapsed());
                entries += page.len() as u64;
                pages += 1;
            }
        })?;
        let took = began.elapsed().as_secs_f64();
        let trips = conn.client.stats().round_trips - trips;
        let (ended, after) = (watch.after(), watch.memory("VmHWM:"));
        if entries != self.bench.entries {
            meter.failed(|| format!("{entries} of {} entries were listed", self.bench.entries));
        }
        meter.end(trips);
        let op = if plus { "readdirplus" } else { "readdir" };
        let measured = Meter::sum(format!("{op} {round}"), vec![meter], false)?;
        let growth = |n: usize| {
            let (before, after) = (before[n]?, after[n]?);
            Some(after.saturating_sub(before) >> 10)
        };
        let mut more = Map::new();
        let mut add = |name: &str, value: Value| more.insert(name.into(), value);
        add("seconds", took.into());
        add("pages", pages.into());
        add("client_growth_kib", growth(0).into());
        add("servers_growth_kib", growth(1).into());
        Ok(Measured {
            ops: entries,
            ops_per_s: entries as f64 / took.max(1e-9),
            round_trips: Some(trips as f64 / entries.max(1) as f64),
            spent: Some(ended.since(&started, entries).without_reads()),
            more,
            ..measured
        })
    }

    fn grow(&self, sizes: &[u64]) -> Result<Vec<Measured>> {
        let mut sizes = sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        if self.make()? > 0 {
            bail!(
                "{} is not empty; remove it, or say another -d",
                printable(&self.path)
            );
        }
        let mut results = Vec::new();
        let mut there = 0;
        for size in sizes {
            if size > there {
                self.change(there..size, true)?;
                there = size;
            }
            results.push(self.creates(there, size)?);
            there += SAMPLES;
        }
        self.change(0..there, false)?;
        Ok(results)
    }

    /// Times of creates where there are so many entries.
    fn creates(&self, there: u64, size: u64) -> Result<Measured> {
        let conn = self.connect()?;
        let (dir, client, cred) = (self.open(&conn)?, conn.client.clone(), my_cred());
        let before = conn.client.stats().round_trips;
        let meter = Rc::new(RefCell::new(Meter::new()?));
        let taken = meter.clone();
        let work = move |n| {
            let (client, cred, dir, taken) = (client.clone(), cred.clone(), dir.clone(), taken.clone());
            async move {
                let name = entry_name(n)?;
                let (place, mode) = (Place { dir, name }, Perm::new(0o644));
                let began = Instant::now();
                file::create(&*client, &cred, &place, mode, true, Access::WRITE).await?;
                taken.borrow_mut().record(began.elapsed());
                Ok(())
            }
        };
        crowd(&conn, self.bench.depth, there..there + SAMPLES, work).context("cannot make entries")?;
        meter.borrow_mut().end(conn.client.stats().round_trips - before);
        let meter = meter.replace(Meter::new()?);
        let mut measured = Meter::sum(format!("create at {size}"), vec![meter], true)?;
        measured.more.insert("entries".into(), size.into());
        Ok(measured)
    }
}
