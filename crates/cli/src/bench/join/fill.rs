//! The files that are there when a server joins.

use crate::bench::on_threads;
use crate::bench::own::OwnCluster;
use crate::connect::{Connection, Paths};
use crate::crew::Crew;
use crate::progress::{Progress, Unit};
use anyhow::{Context, Result};
use pando_client::Client;
use pando_types::{Access, Cred, Errno, Name, Part, Perm, Slot};
use pando_wire::{Op, Statement};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Clients that make them, and how many directories each fills at one time.
const CLIENTS: usize = 2;
const AT_ONCE: usize = 48;
/// Between two looks at how far they are.
const LOOK: Duration = Duration::from_millis(100);

/// How many there are.
#[derive(Clone, Copy)]
pub struct Amount {
    pub files: u64,
    pub per_directory: u64,
}

impl Amount {
    pub fn directories(self) -> u64 {
        self.files.div_ceil(self.per_directory)
    }

    /// Of directory `n`.
    fn files_of(self, n: u64) -> u64 {
        self.per_directory.min(self.files - n * self.per_directory)
    }
}

/// Makes them. The slots of the directories, and how many files are in each directory.
pub fn fill(cluster: &OwnCluster, amount: Amount) -> Result<Vec<(Slot, u64)>> {
    let first = cluster.connect(super::WAIT, Paths::default())?;
    first
        .run(first.client.mkdir(&Cred::root(), b"/files", Perm::new(0o755)))
        .context("cannot make the directory of the files")?;
    let (made, ended) = (AtomicU64::new(0), AtomicUsize::new(0));
    let parts = on_threads(CLIENTS + 1, |thread| {
        if thread == CLIENTS {
            watch(&made, &ended, amount.files);
            return Ok(Vec::new());
        }
        let part = fill_part(cluster, amount, thread as u64, &made);
        ended.fetch_add(1, Ordering::SeqCst);
        part
    })?;
    Ok(parts.concat())
}

fn watch(made: &AtomicU64, ended: &AtomicUsize, files: u64) {
    let progress = Progress::new("making files", Unit::Items, files);
    let mut shown = 0;
    while ended.load(Ordering::SeqCst) < CLIENTS {
        std::thread::sleep(LOOK);
        let now = made.load(Ordering::Relaxed);
        progress.add(now - shown);
        shown = now;
    }
    progress.finish();
}

/// What one client makes: every so many-th directory, and its files.
fn fill_part(
    cluster: &OwnCluster,
    amount: Amount,
    client: u64,
    made: &AtomicU64,
) -> Result<Vec<(Slot, u64)>> {
    let conn = cluster.connect(super::WAIT, Paths::default())?;
    let found = conn.run(conn.client.hold_path(&Cred::root(), b"/files", true))?;
    let above = found.entry.dir.context("not a directory")?;
    let mut next = client;
    let mut all = Vec::new();
    while next < amount.directories() {
        // Some at a time: how many were made is told in between.
        let crew = Crew::new(conn.reactor.clone(), AT_ONCE);
        let filled = Rc::new(RefCell::new(Vec::new()));
        for n in (next..amount.directories()).step_by(CLIENTS).take(4 * AT_ONCE) {
            let (client, above, filled) = (conn.client.clone(), above.clone(), filled.clone());
            crew.add(async move {
                let result = directory(&client, above, n, amount.files_of(n)).await;
                filled.borrow_mut().push(result);
            });
        }
        conn.run(crew.finished());
        for result in filled.take() {
            let (slot, files) = result.context("cannot make the files")?;
            made.fetch_add(files, Ordering::Relaxed);
            all.push((slot, files));
        }
        next += (4 * AT_ONCE * CLIENTS) as u64;
    }
    Ok(all)
}

async fn directory(client: &Client, above: Statement, n: u64, files: u64) -> Result<(Slot, u64), Errno> {
    let dir = make_directory(client, above, &format!("directory.{n}")).await?;
    let slot = Part::whole(dir.id).slot();
    for file in 0..files {
        make_file(client, &dir, &format!("file.{file}")).await?;
    }
    Ok((slot, files))
}

/// A directory in another, as it is used from then on.
pub async fn make_directory(client: &Client, above: Statement, name: &str) -> Result<Statement, Errno> {
    let op = Op::Mkdir {
        dir: above,
        name: Name::new(name.as_bytes())?,
        mode: Perm::new(0o755).into(),
    };
    match client.op(&Cred::root(), op).await? {
        pando_wire::Answer::Entry(entry) => entry.dir.ok_or(Errno::NotDir),
        _ => Err(Errno::Io),
    }
}

/// A file in a directory.
pub async fn make_file(client: &Client, dir: &Statement, name: &str) -> Result<(), Errno> {
    let op = Op::Create {
        dir: dir.clone(),
        name: Name::new(name.as_bytes())?,
        mode: Perm::new(0o644).into(),
        exclusive: true,
        want: Access::WRITE.0,
    };
    client.op(&Cred::root(), op).await.map(drop)
}

/// A directory whose path is known, made for what is measured.
pub fn base(conn: &Connection, path: &[u8]) -> Result<Statement> {
    conn.run(conn.client.mkdir_all(&Cred::root(), path, Perm::new(0o755)))
        .context("cannot make a directory")?;
    let found = conn.run(conn.client.hold_path(&Cred::root(), path, true))?;
    found.entry.dir.context("not a directory")
}
