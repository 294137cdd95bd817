//! `pando bench counted`: operations for programs that count instructions. `scripts/instructions.sh` runs it
//! under callgrind.

use super::inside::{How, Inside};
use crate::args::{Args, Choices, Mode};
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::{addresses, format};
use anyhow::{Context, Result, anyhow};
use pando_client::file::{self, Place};
use pando_net::{Stopper, Waiting};
use pando_server::Limits;
use pando_types::{Access, Cred, Errno, Name, Perm, ServerId};
use pando_wire::{Op, Request, Statement};
use std::hint::black_box;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const SERVER: ServerId = ServerId(0);
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than anybody counts. What a server does now and then would be the more for each operation the
/// slower those are.
const NEVER: Duration = Duration::from_secs(24 * 3600);
/// Before what is counted a fifth of it is done once.
const WARM: u64 = 5;
/// Clients, each with a directory, which take turns. How many keys are compared until the row of a session or
/// a directory is found in the store's memory is chance, and the same for a whole run: with one client counts
/// of creates differ by a tenth, with these by a hundredth.
const CLIENTS: usize = 16;

/// One operation at a time, for programs that count instructions.
///
/// Some clients take turns on this thread; one server is on another and does no work in the background; all
/// in a new filesystem in a temporary folder, `async`. Whoever waits sleeps. Before and after the operations
/// of each kind that is printed, each thread calls a function `counted::mark`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  valgrind --tool=callgrind --separate-threads=yes --dump-before='*counted*mark*' pando bench counted"
)]
pub struct CountedArgs {
    /// Operations of each kind; of a listing, entries.
    #[arg(short = 'n', default_value_t = 2000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub operations: u64,
}

/// Where a tool begins to count what the calling thread does, and where it ends. Tools are told its name.
#[inline(never)]
fn mark(whose: &str) {
    black_box(whose);
}

pub fn run(args: &Args, bench: &CountedArgs) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("pando-counted-").tempdir()?;
    let dir = ClusterDir {
        path: folder.path().join("cluster"),
        key: None,
    };
    let choices = Choices {
        durability: Mode::Async,
        ..Choices::default()
    };
    let servers = addresses::on_loopback(SERVER.0, 1, choices.auth.mode())?;
    format::make(&dir, servers, None, &choices)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        let server = std::thread::Builder::new()
            .name("counted-server".into())
            .spawn_scoped(scope, || serve(&dir, &over, tell))?;
        // If there is nothing to receive it ended instead, and says why.
        let done = told.recv().map_or(Ok(()), |stopper| {
            let done = ask(args, bench, &dir, &stopper, &told);
            over.store(true, Ordering::SeqCst);
            stopper.stop();
            done
        });
        let ended = server.join().map_err(|_| anyhow!("the server failed"))?;
        ended.and(done)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Serves until it is stopped; then it calls [`mark`], tells it, and goes on, until all is over.
fn serve(dir: &ClusterDir, over: &AtomicBool, tell: Sender<Stopper>) -> Result<()> {
    let how = How {
        waiting: Waiting::Blocking,
        cache_bytes: crate::store_kinds::StoreOptions::default().cache_bytes,
        secrets: std::convert::identity,
        limits: Limits {
            tick: NEVER,
            ..Limits::default()
        },
    };
    let inside = Inside::open(dir, SERVER, &how)?;
    inside.listen(inside.server.clone())?;
    while !over.load(Ordering::SeqCst) {
        tell.send(inside.reactor.stopper())?;
        inside.reactor.run();
        mark("server");
    }
    inside.reactor.shutdown();
    Ok(())
}

/// All kinds, one after the other.
fn ask(
    args: &Args,
    bench: &CountedArgs,
    dir: &ClusterDir,
    stopper: &Stopper,
    told: &Receiver<Stopper>,
) -> Result<()> {
    let clients: Vec<Asker> = (0..CLIENTS).map(|n| Asker::open(dir, n)).collect::<Result<_>>()?;
    let repeat = |kind: Kind, items: Range<u64>| -> Result<u64> {
        let (mut done, all) = (0, items.end - items.start);
        for item in items {
            if done >= all {
                break;
            }
            let client = &clients[item as usize % clients.len()];
            let acted = client.conn.run(client.act(kind, item));
            done += acted.with_context(|| format!("cannot {}", kind.name()))?;
        }
        Ok(done)
    };
    let server_marks = || -> Result<()> {
        stopper.stop();
        told.recv().map(|_| ()).context("the server ended")
    };
    for kind in Kind::ALL {
        let warm = bench.operations / WARM;
        repeat(kind, 0..warm)?;
        server_marks()?;
        mark("client");
        let counted = repeat(kind, warm..warm + bench.operations)?;
        mark("client");
        server_marks()?;
        if args.json {
            println!("{}", serde_json::json!({ "op": kind.name(), "ops": counted }));
        } else {
            println!("{} {counted}", kind.name());
        }
    }
    Ok(())
}

/// In the order in which each finds what the one before made.
#[derive(Clone, Copy)]
enum Kind {
    Null,
    Create,
    Stat,
    Readdir,
    Mkdir,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Null, Kind::Create, Kind::Stat, Kind::Readdir, Kind::Mkdir];

    fn name(self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Create => "create",
            Kind::Stat => "stat",
            Kind::Readdir => "readdir",
            Kind::Mkdir => "mkdir",
        }
    }
}

/// A client with a directory of its own.
struct Asker {
    conn: Connection,
    cred: Cred,
    dir: Statement,
}

impl Asker {
    fn open(dir: &ClusterDir, number: usize) -> Result<Asker> {
        let conn = Connection::open(dir, Party::Client, Waiting::Blocking, PATIENCE)?;
        let (cred, path) = (Cred::root(), format!("/counted.{number}").into_bytes());
        conn.run(conn.client.mkdir(&cred, &path, Perm::new(0o755)))?;
        let found = conn.run(conn.client.hold_path(&cred, &path, true))?;
        let dir = found.entry.dir.context("not a directory")?;
        Ok(Asker { conn, cred, dir })
    }

    /// Does it once. How many it was.
    async fn act(&self, kind: Kind, item: u64) -> Result<u64, Errno> {
        let (client, cred, dir) = (&*self.conn.client, &self.cred, self.dir.clone());
        match kind {
            Kind::Null => {
                client.admin(SERVER, Request::Null(false)).await?;
            }
            Kind::Create => {
                let name = Name::new(format!("file.{item}").as_bytes())?;
                let place = Place { dir, name };
                file::create(client, cred, &place, Perm::new(0o644), true, Access::WRITE).await?;
            }
            Kind::Stat => {
                let name = Name::new(format!("file.{item}").as_bytes())?;
                let entry = client.lookup(cred, &dir, &name).await?;
                client.attr(cred, &entry).await?;
            }
            Kind::Mkdir => {
                let name = Name::new(format!("dir.{item}").as_bytes())?;
                let mode = Perm::new(0o755).into();
                client.op(cred, Op::Mkdir { dir, name, mode }).await?;
            }
            Kind::Readdir => {
                let (mut listing, mut entries) = (client.list(cred, dir, false), 0);
                loop {
                    match listing.next_page().await?.len() as u64 {
                        0 => return Ok(entries),
                        more => entries += more,
                    }
                }
            }
        }
        Ok(1)
    }
}
