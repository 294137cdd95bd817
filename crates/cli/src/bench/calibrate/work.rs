//! What the clients ask for.

use super::meter::Samples;
use super::servers::Pair;
use crate::bench::on_threads;
use crate::connect::Connection;
use anyhow::{Context, Result};
use pando_client::file::{self, Place};
use pando_net::thread_cpu;
use pando_types::{Access, Birth, Cred, DirId, Errno, Name, Part, Perm, ServerId};
use pando_wire::{RenameMode, Request};
use std::sync::Barrier;
use std::time::Duration;

/// Clients that ask at once.
pub const CLIENTS: usize = 64;
/// Time for what goes on after an answer.
const SETTLED: Duration = Duration::from_millis(50);
const DIRS: fn() -> Perm = || Perm::new(0o755);

/// A kind of operation, one or two servers wide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    Null,
    Create,
    Stat,
    StatDir,
    Unlink,
    Mkdir { wide: bool },
    Rmdir { wide: bool },
    Rename { wide: bool },
    RenameDir,
}

/// All of them, each after what makes what it needs.
pub const TASKS: [Task; 12] = [
    Task::Null,
    Task::Create,
    Task::Stat,
    Task::StatDir,
    Task::Unlink,
    Task::Mkdir { wide: false },
    Task::Mkdir { wide: true },
    Task::Rmdir { wide: false },
    Task::Rmdir { wide: true },
    Task::Rename { wide: false },
    Task::Rename { wide: true },
    Task::RenameDir,
];

impl Task {
    pub fn name(self) -> &'static str {
        match self {
            Task::Null => "an empty request",
            Task::Create => "create",
            Task::Stat => "stat",
            Task::StatDir => "stat of a directory",
            Task::Unlink => "unlink",
            Task::Mkdir { wide: false } => "mkdir on one server",
            Task::Mkdir { wide: true } => "mkdir on two servers",
            Task::Rmdir { wide: false } => "rmdir on one server",
            Task::Rmdir { wide: true } => "rmdir on two servers",
            Task::Rename { wide: false } => "rename of a file on one server",
            Task::Rename { wide: true } => "rename of a file to another server",
            Task::RenameDir => "rename of a directory",
        }
    }

    /// Whether it is one round trip of a client to one server.
    pub fn is_simple(self) -> bool {
        matches!(self, Task::Create | Task::Stat | Task::Unlink)
    }
}

/// A client with two directories, one on each server.
struct Asker {
    conn: Connection,
    /// Their paths and IDs; the first is on the server of this client's number.
    dirs: [(Vec<u8>, DirId); 2],
}

fn below(path: &[u8], name: &str) -> Vec<u8> {
    [path, b"/", name.as_bytes()].concat()
}

impl Asker {
    fn new(pair: &Pair, label: String, number: usize) -> Result<Asker> {
        let conn = pair.connect()?;
        let servers: Vec<ServerId> = conn.client.map().servers.iter().map(|s| s.id).collect();
        let base = format!("/{label}").into_bytes();
        let made = conn
            .run(conn.client.mkdir(&Cred::root(), &base, DIRS()))
            .context("cannot make a directory")?;
        let parent = made.dir.context("not a directory")?.id;
        let mut dirs = Vec::new();
        for n in 0..2 {
            let name = born_at(&conn, parent, servers[(number + n) % servers.len()], "in", 0)?;
            let path = below(&base, &name);
            let made = conn
                .run(conn.client.mkdir(&Cred::root(), &path, DIRS()))
                .context("cannot make a directory")?;
            dirs.push((path, made.dir.context("not a directory")?.id));
        }
        for server in servers {
            conn.run(conn.client.greet(server, true));
        }
        let dirs = dirs.try_into().ok().context("two directories")?;
        Ok(Asker { conn, dirs })
    }

    /// The path of what a task concerns, the `n`th time.
    fn path(&self, task: Task, n: u64) -> Result<Vec<u8>> {
        let (here, id) = &self.dirs[0];
        Ok(match task {
            Task::Mkdir { wide } | Task::Rmdir { wide } => {
                let there = self.dirs[usize::from(wide)].1;
                let server = self.conn.client.map().owner(Part::whole(there).slot());
                let prefix = if wide { "wide" } else { "narrow" };
                below(here, &born_at(&self.conn, *id, server, prefix, n)?)
            }
            Task::RenameDir => below(here, &format!("moves{n}")),
            Task::Rename { wide } => below(here, &format!("file{wide}{n}")),
            _ => below(here, &format!("file{n}")),
        })
    }

    async fn create(&self, path: &[u8]) -> Result<(), Errno> {
        let client = &*self.conn.client;
        let (dir, name) = client.parent_of(&Cred::root(), path).await?;
        let (place, perm) = (Place { dir, name }, Perm::new(0o644));
        file::create(client, &Cred::root(), &place, perm, true, Access::WRITE)
            .await
            .map(|_| ())
    }

    /// Makes what the task needs.
    async fn before(&self, task: Task, path: &[u8]) -> Result<(), Errno> {
        match task {
            Task::Rename { .. } => self.create(path).await,
            Task::RenameDir => {
                let made = self.conn.client.mkdir(&Cred::root(), path, DIRS()).await;
                made.map(|_| ())
            }
            _ => Ok(()),
        }
    }

    async fn act(&self, task: Task, n: u64, path: &[u8]) -> Result<(), Errno> {
        let (client, cred) = (&*self.conn.client, Cred::root());
        match task {
            Task::Null => {
                let server = client.map().owner(Part::whole(self.dirs[0].1).slot());
                client.admin(server, Request::Null(false)).await.map(|_| ())
            }
            Task::Create => self.create(path).await,
            Task::Stat => client.stat(&cred, path, false).await.map(|_| ()),
            Task::StatDir => {
                let dir = client.dir(&cred, &self.dirs[0].0).await?;
                client.dir_stat(&cred, &dir).await.map(|_| ())
            }
            Task::Unlink => client.unlink(&cred, path).await,
            Task::Mkdir { .. } => client.mkdir(&cred, path, DIRS()).await.map(|_| ()),
            Task::Rmdir { .. } => client.rmdir(&cred, path).await,
            Task::Rename { wide } => {
                let to = below(&self.dirs[usize::from(wide)].0, &format!("to{wide}{n}"));
                client.rename(&cred, path, &to, RenameMode::NoReplace).await
            }
            Task::RenameDir => {
                let to = below(&self.dirs[1].0, &format!("moved{n}"));
                client.rename(&cred, path, &to, RenameMode::NoReplace).await
            }
        }
    }
}

/// A name under which a directory of `parent` will have its content on a server, if it is born as the `n`th.
fn born_at(conn: &Connection, parent: DirId, server: ServerId, prefix: &str, n: u64) -> Result<String> {
    let map = conn.client.map();
    for tries in 0..10_000 {
        let text = format!("{prefix}{n}-{tries}");
        let birth = Birth {
            parent,
            name: Name::new(text.as_bytes())?,
            version: 0,
        };
        if map.owner(Part::whole(map.widths().dir_id(&birth)).slot()) == server {
            return Ok(text);
        }
    }
    anyhow::bail!("server {server} owns no slots")
}

/// One client does one thing after the other: what the servers measured of each task, and the client's own
/// processor time for an operation.
pub fn alone(pair: &Pair, operations: u64) -> Result<Vec<(Task, Samples, f64)>> {
    // What it renames is not where the coordinator is.
    let asker = Asker::new(pair, "alone".into(), 1)?;
    let mut all = Vec::new();
    for task in TASKS {
        eprintln!("calibrating: {}", task.name());
        asker.prepare(task, operations)?;
        std::thread::sleep(SETTLED);
        pair.take();
        let began = thread_cpu();
        asker.repeat(task, operations)?;
        let us = thread_cpu().saturating_sub(began).as_secs_f64() * 1e6 / operations as f64;
        std::thread::sleep(SETTLED);
        all.push((task, pair.take(), us));
    }
    Ok(all)
}

/// Several clients do so at once, each on what is its own: what the servers measured.
pub fn together(pair: &Pair, operations: u64) -> Result<Vec<(Task, Samples)>> {
    let each = (operations / 4).max(50);
    let barrier = Barrier::new(CLIENTS);
    let parts = on_threads(CLIENTS, |number| {
        let asker = Asker::new(pair, format!("client{number}"), number);
        let mut failed = asker.as_ref().err().map(|e| format!("{e:#}"));
        let mut all = Vec::new();
        for task in TASKS {
            // All threads come to every barrier, also those that failed: the others wait for them.
            let mut step = |what: &dyn Fn(&Asker) -> Result<()>| {
                if let (Ok(asker), None) = (&asker, &failed) {
                    failed = what(asker).err().map(|e| format!("{e:#}"));
                }
                barrier.wait();
            };
            if number == 0 {
                eprintln!("calibrating: {}, {CLIENTS} clients", task.name());
            }
            step(&|asker| asker.prepare(task, each));
            if number == 0 {
                std::thread::sleep(SETTLED);
                pair.take();
            }
            barrier.wait();
            step(&|asker| asker.repeat(task, each));
            if number == 0 {
                std::thread::sleep(SETTLED);
                all.push((task, pair.take()));
            }
            barrier.wait();
        }
        match failed {
            None => Ok(all),
            Some(why) => anyhow::bail!(why),
        }
    })?;
    Ok(parts.into_iter().flatten().collect())
}

impl Asker {
    fn prepare(&self, task: Task, operations: u64) -> Result<()> {
        for n in 0..operations {
            let path = self.path(task, n)?;
            self.conn
                .run(self.before(task, &path))
                .with_context(|| format!("cannot prepare {}", task.name()))?;
        }
        Ok(())
    }

    fn repeat(&self, task: Task, operations: u64) -> Result<()> {
        for n in 0..operations {
            let path = self.path(task, n)?;
            self.conn
                .run(self.act(task, n, &path))
                .with_context(|| task.name())?;
        }
        Ok(())
    }
}
