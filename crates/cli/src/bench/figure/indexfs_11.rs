//! Figure 11 of IndexFS: what each idea contributes to making files. Clients make empty files, each in a
//! directory of its own. The bars accumulate.

use super::Real;
use crate::args::{Choices, Mode};
use crate::bench::lines::{Claim, Drawn, Line, median, round};
use crate::bench::own::OwnCluster;
use crate::bench::{crowd, on_threads};
use crate::connect::{Connection, Paths};
use crate::store_kinds::StoreKind;
use anyhow::{Context, Result, bail};
use pando_client::Going;
use pando_types::{Cred, Errno, Name, Perm};
use pando_wire::{Op, Statement};
use serde_json::json;
use std::sync::Barrier;
use std::time::Instant;

/// How often each is measured; the middle counts.
const REPEATS: usize = 3;
/// Requests of a client that are under way at a time, as of 16 processes of a machine in the paper.
const DEPTH: usize = 16;
/// After so many files a client looks at the clock.
const SOME: u64 = 64;
/// Bytes of a table before the last bar, where the client's own limit counts.
const SMALL_TABLE: usize = 64 << 10;

/// How files are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Making {
    /// One request each.
    OneByOne,
    /// In tables of this size; nothing: of the size that clients choose.
    Bulk(Option<usize>),
}

/// A bar.
struct Bar {
    name: &'static str,
    durability: Mode,
    store: StoreKind,
    making: Making,
    paper: &'static str,
}

const BARS: [Bar; 5] = [
    Bar {
        name: "sync",
        durability: Mode::Sync,
        store: StoreKind::Rocks,
        making: Making::OneByOne,
        paper: "1",
    },
    Bar {
        name: "+async",
        durability: Mode::Async,
        store: StoreKind::Rocks,
        making: Making::OneByOne,
        paper: "13 times",
    },
    Bar {
        name: "+bulk",
        durability: Mode::Async,
        store: StoreKind::Rocks,
        making: Making::Bulk(Some(SMALL_TABLE)),
        paper: "3 times more",
    },
    Bar {
        name: "+column",
        durability: Mode::Async,
        store: StoreKind::Column,
        making: Making::Bulk(Some(SMALL_TABLE)),
        paper: "helps",
    },
    Bar {
        name: "+larger tables",
        durability: Mode::Async,
        store: StoreKind::Column,
        making: Making::Bulk(None),
        paper: "increases sub-linearly",
    },
];

/// A new directory in the root.
pub(super) async fn new_dir(conn: &Connection, name: &str) -> Result<Statement, Errno> {
    let (cred, path) = (Cred::root(), format!("/{name}").into_bytes());
    conn.client.mkdir(&cred, &path, Perm::new(0o755)).await?;
    conn.client.dir(&cred, &path).await
}

/// The name of file number `n`.
pub(super) fn file_name(n: u64) -> Result<Name, Errno> {
    Name::new(format!("file-{n}").as_bytes()).map_err(|_| Errno::Invalid)
}

/// Makes file number `n` in a directory.
pub(super) fn create(dir: &Statement, n: u64) -> Result<Op, Errno> {
    Ok(Op::Create {
        dir: dir.clone(),
        name: file_name(n)?,
        mode: Perm::new(0o644).into(),
        exclusive: true,
        want: 0,
    })
}

/// Makes files until the time is over: how many.
fn one_by_one(bench: &Real, conn: &Connection, dir: &Statement, began: Instant) -> Result<u64> {
    let mut made = 0;
    while began.elapsed() < bench.span() {
        let (client, dir) = (conn.client.clone(), dir.clone());
        let make = move |n| {
            let (client, dir) = (client.clone(), dir.clone());
            async move { client.op(&Cred::root(), create(&dir, n)?).await.map(|_| ()) }
        };
        crowd(conn, DEPTH, made..made + SOME, make).context("cannot make what is measured")?;
        made += SOME;
    }
    Ok(made)
}

/// The same in a localised directory, which is given back within the time.
fn in_bulk(
    bench: &Real,
    conn: &Connection,
    (dir, table): (&Statement, Option<usize>),
    began: Instant,
) -> Result<u64> {
    let cred = Cred::root();
    let all = async {
        let mut local = conn.client.localize(&cred, dir, conn.blocks.clone()).await?;
        if let Some(bytes) = table {
            local.insert_after(bytes);
        }
        let mut made = 0;
        while began.elapsed() < bench.span() {
            for n in made..made + SOME {
                local.carry_out(&create(dir, n)?)?;
            }
            made += SOME;
            if local.tend().await? == Going::Over {
                return Err(Errno::Busy);
            }
        }
        local.give_back().await
    };
    conn.run(all).context("cannot make what is measured")
}

/// By all clients at once: so many a second.
fn throughput(bench: &Real, cluster: &OwnCluster, bar: &Bar, round: usize) -> Result<f64> {
    let start = Barrier::new(bench.clients);
    let rates = on_threads(bench.clients, |client| {
        let ready = cluster.connect(bench.waiting, Paths::default()).and_then(|conn| {
            let name = format!("{}-{round}-{client}", bar.name);
            let dir = conn
                .run(new_dir(&conn, &name))
                .context("cannot make a directory")?;
            Ok((conn, dir))
        });
        // All come here, also those that could not connect: the others wait for them.
        start.wait();
        let (conn, dir) = ready?;
        let began = Instant::now();
        let made = match bar.making {
            Making::OneByOne => one_by_one(bench, &conn, &dir, began)?,
            Making::Bulk(table) => in_bulk(bench, &conn, (&dir, table), began)?,
        };
        Ok(made as f64 / began.elapsed().as_secs_f64())
    })?;
    Ok(rates.iter().sum())
}

pub fn draw(bench: &Real) -> Result<Drawn> {
    let mut rates = Vec::new();
    // Each set of servers ends before the next begins.
    for bars in BARS.chunk_by(|a, b| (a.durability, a.store) == (b.durability, b.store)) {
        let (durability, store) = (bars[0].durability, bars[0].store);
        eprintln!("servers with {} and store {}", durability.word(), store.word());
        let choices = Choices {
            profile: "indexfs".into(),
            durability,
            store,
            ..Choices::default()
        };
        let cluster = OwnCluster::start(&bench.at, bench.servers, &choices, bench.rtt)?;
        let mut measured = vec![Vec::new(); bars.len()];
        for round in 0..REPEATS {
            for (bar, all) in bars.iter().zip(&mut measured) {
                all.push(throughput(bench, &cluster, bar, round)?);
            }
        }
        rates.extend(measured.iter().map(|all| median(all)));
    }
    let [sync, with_async, bulk, column, larger] = rates[..] else {
        bail!("there are five bars");
    };
    Ok(Drawn {
        bench: "figure",
        figure: Some("indexfs-11"),
        params: json!({
            "servers": bench.servers, "clients": bench.clients, "depth": DEPTH, "seconds": bench.seconds,
            "rtt_us": bench.rtt.as_micros() as u64, "waiting": bench.waiting.name(),
        }),
        lines: lines(&rates),
        claims: vec![
            Claim {
                about: "Answers before the log is on the device",
                paper: "13 times as many creates as with each of them synced",
                here: format!(
                    "{:.2} times: servers sync many creates at once, and acknowledge each after that",
                    with_async / sync
                ),
            },
            Claim {
                about: "Bulk insertion on top of that",
                paper: "3 times more",
                here: format!("{:.2} times", bulk / with_async),
            },
            Claim {
                about: "Column-style tables (the paper's at its clients, here at the servers)",
                paper: "help with creation and lookups",
                here: format!("{:.2} times", column / bulk),
            },
            Claim {
                about: "Larger batches (the paper's of its log, here of tables: 64 KiB to 4 MiB)",
                paper: "increase sub-linearly",
                here: format!("{:.2} times", larger / column),
            },
            Claim {
                about: "All of them",
                paper: "113 times the creates of PVFS on tmpfs, the slowest of what was compared",
                here: format!("{:.1} times `sync`", larger / sync),
            },
        ],
    })
}

fn lines(rates: &[f64]) -> Vec<Line> {
    let before = std::iter::once(None).chain(rates.iter().map(Some));
    let bars = BARS.iter().zip(rates).zip(before);
    bars.map(|((bar, rate), before)| {
        vec![
            ("bar", json!(bar.name)),
            ("files/s", json!(rate.round())),
            (
                "to the one before",
                before.map_or(json!(null), |b| round(rate / b)),
            ),
            ("to sync", round(rate / rates[0])),
            ("paper, to the one before", json!(bar.paper)),
        ]
    })
    .collect()
}
