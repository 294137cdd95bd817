//! Space that the stores of servers need on the device that has the blocks.
//!
//! A server whose store is on the device of the folder of blocks says in it, in `pando-needs-N`, how many
//! bytes are to be left. Blocks that grow leave as much as all of them say.
//! Many blocks grow at once: each counts what is reserved for the others and not written yet.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The files' names begin so; the server's number follows.
const NAME: &str = "pando-needs-";
/// So long it is believed what was read.
const FRESH: Duration = Duration::from_secs(2);

/// The bytes to be left, as they were read last, and those that are reserved for writes.
#[derive(Debug)]
pub(crate) struct Floor {
    dir: PathBuf,
    known: Mutex<Option<(Instant, u64)>>,
    reserved: AtomicU64,
}

/// Space for one write, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    floor: &'a Floor,
    len: u64,
    all: u64,
}

impl Reservation<'_> {
    /// Bytes reserved when this was made, its own among them.
    pub fn all(&self) -> u64 {
        self.all
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.floor.reserved.fetch_sub(self.len, Ordering::SeqCst);
    }
}

impl Floor {
    pub fn of(root: &Path) -> Floor {
        Floor {
            dir: root.to_owned(),
            known: Mutex::default(),
            reserved: AtomicU64::new(0),
        }
    }

    /// Counts `len` bytes as taken while the result lives.
    pub fn reserve(&self, len: u64) -> Reservation<'_> {
        let all = self.reserved.fetch_add(len, Ordering::SeqCst).saturating_add(len);
        Reservation {
            floor: self,
            len,
            all,
        }
    }

    /// Bytes that all servers say together.
    pub fn bytes(&self) -> u64 {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, bytes)) = *known
            && at.elapsed() < FRESH
        {
            return bytes;
        }
        let bytes = read(&self.dir);
        *known = Some((Instant::now(), bytes));
        bytes
    }
}

fn server(name: &str) -> Option<u16> {
    name.strip_prefix(NAME)?.parse().ok()
}

/// A server that says nothing that can be read needs nothing.
fn read(dir: &Path) -> u64 {
    let said = |entry: io::Result<fs::DirEntry>| -> Option<u64> {
        let path = entry.ok()?.path();
        server(path.file_name()?.to_str()?)?;
        fs::read_to_string(&path).ok()?.trim().parse().ok()
    };
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(said).fold(0, u64::saturating_add)
}

/// The notes of servers in a folder of blocks.
#[derive(Debug)]
pub struct Stores(PathBuf);

impl Stores {
    /// Of the folder `root`.
    pub fn of(root: &Path) -> Stores {
        Stores(root.to_owned())
    }

    /// This server needs so many bytes. Fails if it cannot be written; what it said before stands then.
    pub fn need(&self, server: u16, bytes: u64) -> io::Result<()> {
        let unfinished = self.0.join(format!("{NAME}{server}.new"));
        fs::write(&unfinished, format!("{bytes}\n"))?;
        fs::rename(&unfinished, self.0.join(format!("{NAME}{server}")))
    }

    /// Takes away what servers have said that are not there any more.
    pub fn keep(&self, there: impl Fn(u16) -> bool) -> io::Result<()> {
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(server);
            if number.is_some_and(|n| !there(n)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_counts_until_it_is_dropped() {
        let floor = Floor::of(Path::new("."));
        let first = floor.reserve(10);
        assert_eq!((first.all(), floor.reserve(5).all()), (10, 15));
        assert_eq!(floor.reserve(7).all(), 17);
        drop(first);
        assert_eq!(floor.reserve(7).all(), 7);
    }

    #[test]
    fn all_that_servers_say_is_added_up() {
        let tmp = tempfile::tempdir().unwrap();
        assert_eq!(Floor::of(tmp.path()).bytes(), 0);
        let stores = Stores::of(tmp.path());
        stores.keep(|_| false).unwrap();
        stores.need(0, 100).unwrap();
        stores.need(3, 50).unwrap();
        stores.need(0, 70).unwrap();
        fs::write(tmp.path().join("pando-needs-5"), "many").unwrap();
        fs::write(tmp.path().join("pando-needs-7.new"), "9").unwrap();
        let floor = Floor::of(tmp.path());
        assert_eq!(floor.bytes(), 120);
        stores.keep(|n| n == 3).unwrap();
        assert_eq!(floor.bytes(), 120, "for two seconds");
        assert_eq!(Floor::of(tmp.path()).bytes(), 50);
    }
}
