//! Who goes on: for each server and each kind of operation a task that does it again and again, on
//! directories of that server alone, and says when. What is away shows as a gap of its lines and of nobody
//! else's.

use super::run::{REOPENS, say};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use anyhow::{Context, Result, bail};
use pando_client::Client;
use pando_env::Env;
use pando_net::{Reactor, Waiting};
use pando_types::{AttrChange, Cred, Errno, Generation, Ino, Name, Part, Perm, ServerId};
use pando_wire::{Object, Op, RenameMode, Statement};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two operations of a task, at least, and up to so many times as long: at any moment most do
/// nothing, and are in doubt of nothing when the coordinator is cut off.
const PAUSE: Duration = Duration::from_millis(50);
const TIMES: u64 = 10;
/// Names that are tried until one leads to a directory on a certain server.
const NAMES: u32 = 10_000;

/// Tasks of each kind that needs the coordinator. What it was doing when it was cut off is in doubt until it
/// is back, and locked: that says nothing of whether others go on.
const TASKS: u32 = 6;

/// What is done again and again.
#[derive(Clone, Copy)]
enum Kind {
    /// A file is made, then removed: the server of the directory alone.
    File,
    /// A directory is renamed and renamed back: the coordinator, and every server hears of it.
    Rename,
    /// A directory's permissions are changed, which others have seen: the same.
    Chmod,
}

struct Task {
    client: Rc<Client>,
    server: ServerId,
    kind: Kind,
    /// A directory on that server.
    dir: Statement,
    /// One in it, on that server too.
    child: (Ino, Generation),
    done: u64,
}

pub fn run(args: &Args, name: &str, stop: &AtomicBool) -> Result<()> {
    let dir = ClusterDir::of(args)?;
    let open = || Connection::open(&dir, Party::Client, Waiting::default(), Duration::from_secs(120));
    let (connection, other) = (open()?, open()?);
    let top = format!("/probe-{name}");
    let mut tasks = Vec::new();
    for server in connection.client.map().servers.iter().map(|s| s.id) {
        let (path, _) = directory_on(&connection, &format!("{top}/{server}"), server)?;
        for (kind, n) in [(Kind::File, 0)].into_iter().chain((0..TASKS).flat_map(changes)) {
            // Each has its own: they do not wait for each other, nor for what is in doubt. The names too are
            // on that server: after an election what is held must be asked for again where its name is.
            let (own, home) = directory_on(&connection, &format!("{path}/{}-{n}", kind.word()), server)?;
            let (below, child) = directory_on(&connection, &format!("{own}/child"), server)?;
            // Not its maker's alone any more, so that everybody must be told of what changes.
            other.run(other.client.hold_path(&Cred::root(), below.as_bytes(), true))?;
            let (_, name) = below.rsplit_once('/').context("a path")?;
            tasks.push((server, kind, home.0, child.1, name.to_owned()));
        }
    }
    drop(other);
    let failed = Rc::new(RefCell::new(None));
    for (server, kind, dir, child, name) in tasks {
        let task = Task {
            client: connection.client.clone(),
            server,
            kind,
            dir,
            child,
            done: 0,
        };
        let (reactor, failed) = (connection.reactor.clone(), failed.clone());
        connection.reactor.spawn(Box::pin(async move {
            if let Err(e) = task.go(&reactor, &name).await {
                *failed.borrow_mut() = Some(e);
            }
        }));
    }
    while !stop.load(Ordering::Relaxed) && failed.borrow().is_none() {
        connection.run(connection.reactor.sleep(PAUSE));
    }
    match failed.take() {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

/// A directory with its number and generation.
type Found = (Statement, (Ino, Generation));

/// Makes directories whose paths begin in this way until the content of one is on a server.
fn directory_on(connection: &Connection, begin: &str, server: ServerId) -> Result<(String, Found)> {
    let (client, cred) = (&connection.client, Cred::root());
    for n in 0..NAMES {
        let path = format!("{begin}-{n}");
        connection.run(client.mkdir_all(&cred, path.as_bytes(), Perm::new(0o755)))?;
        let found = connection.run(client.hold_path(&cred, path.as_bytes(), true))?;
        let dir = found.entry.dir.context("not a directory")?;
        if client.map().owner(Part::whole(dir.id).slot()) == server {
            let attr = found.entry.attr;
            return Ok((path, (dir, (attr.ino, attr.generation))));
        }
    }
    bail!("no directory came to be on server {server}")
}

fn changes(n: u32) -> [(Kind, u32); 2] {
    [(Kind::Rename, n), (Kind::Chmod, n)]
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Rename => "rename",
            Kind::Chmod => "chmod",
        }
    }
}

impl Task {
    async fn go(mut self, reactor: &Reactor, name: &str) -> Result<()> {
        loop {
            let mut outcome = self.client.op(&Cred::root(), self.next(name)?).await;
            for _ in 0..REOPENS {
                // Refused, not executed: what is known of the directory is older than the coordinator's log.
                if !matches!(outcome, Err(Errno::Stale)) {
                    break;
                }
                self.dir = self.client.reopen(&self.dir).await?.dir.ok_or(Errno::NotDir)?;
                outcome = self.client.op(&Cred::root(), self.next(name)?).await;
            }
            if let Err(e) = outcome {
                // These names are this task's alone: nothing may fail.
                say(&format!("X {} {}: {e}\n", self.server, self.kind.word()));
                bail!("server {}, {}: {e}", self.server, self.kind.word());
            }
            self.done += 1;
            let millis = reactor.now().as_nanos() / 1_000_000;
            say(&format!("P {} {} {millis}\n", self.server, self.kind.word()));
            let times = 1 + reactor.random() % TIMES;
            reactor.sleep(PAUSE * times as u32).await;
        }
    }

    fn next(&self, child: &str) -> Result<Op, Errno> {
        let (dir, back) = (self.dir.clone(), self.done % 2 == 1);
        let name = |text: &str| Name::new(text.as_bytes());
        Ok(match self.kind {
            Kind::File if back => Op::Unlink {
                dir,
                name: name("f")?,
                held: false,
            },
            Kind::File => Op::Create {
                dir,
                name: name("f")?,
                mode: Perm::new(0o644).into(),
                exclusive: true,
                want: 2,
            },
            Kind::Rename => {
                let there = format!("{child}-renamed");
                let (from, to) = if back {
                    (there.as_str(), child)
                } else {
                    (child, there.as_str())
                };
                Op::Rename {
                    src: dir.clone(),
                    src_name: name(from)?,
                    dst: dir,
                    dst_name: name(to)?,
                    mode: RenameMode::NoReplace,
                    held: false,
                }
            }
            Kind::Chmod => Op::SetAttr {
                object: Object {
                    dir,
                    name: name(child)?,
                    ino: self.child.0,
                    generation: self.child.1,
                },
                change: AttrChange {
                    perm: Some(Perm::new(if back { 0o755 } else { 0o750 })),
                    ..AttrChange::default()
                },
                handle: None,
            },
        })
    }
}
