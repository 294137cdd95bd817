//! Space that the stores of servers need on the device that has the blocks.
//!
//! A server whose store is on the device of the folder of blocks says in it, in `stores/N`, how many bytes are to be left. Blocks that
//! grow leave as much as all of them say.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The folder in the folder of blocks.
const NAME: &str = "stores";
/// So long it is believed what was read.
const FRESH: Duration = Duration::from_secs(2);

/// What is to be left, as it was read last.
#[derive(Debug)]
pub(crate) struct Floor {
    dir: PathBuf,
    known: Mutex<Option<(Instant, u64)>>,
}

impl Floor {
    pub fn of(root: &Path) -> Floor {
        Floor {
            dir: root.join(NAME),
            known: Mutex::default(),
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

/// A server that says nothing that can be read needs nothing.
fn read(dir: &Path) -> u64 {
    let said = |entry: io::Result<fs::DirEntry>| -> Option<u64> {
        let path = entry.ok()?.path();
        path.file_name()?.to_str()?.parse::<u16>().ok()?;
        fs::read_to_string(&path).ok()?.trim().parse().ok()
    };
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(said).fold(0, u64::saturating_add)
}

/// What servers say in a folder of blocks.
#[derive(Debug)]
pub struct Stores(PathBuf);

impl Stores {
    /// Of the folder `root`.
    pub fn of(root: &Path) -> Stores {
        Stores(root.join(NAME))
    }

    /// This server needs so many bytes. Fails if it cannot be written; what it said before stands then.
    pub fn need(&self, server: u16, bytes: u64) -> io::Result<()> {
        match fs::create_dir(&self.0) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let unfinished = self.0.join(format!("{server}.new"));
        fs::write(&unfinished, format!("{bytes}\n"))?;
        fs::rename(&unfinished, self.0.join(server.to_string()))
    }

    /// Takes away what servers have said that are not there any more.
    pub fn keep(&self, there: impl Fn(u16) -> bool) -> io::Result<()> {
        let entries = match fs::read_dir(&self.0) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|n| n.parse().ok());
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
    fn all_that_servers_say_is_added_up() {
        let tmp = tempfile::tempdir().unwrap();
        assert_eq!(Floor::of(tmp.path()).bytes(), 0);
        let stores = Stores::of(tmp.path());
        stores.keep(|_| false).unwrap();
        stores.need(0, 100).unwrap();
        stores.need(3, 50).unwrap();
        stores.need(0, 70).unwrap();
        fs::write(tmp.path().join("stores/5"), "many").unwrap();
        fs::write(tmp.path().join("stores/7.new"), "9").unwrap();
        let floor = Floor::of(tmp.path());
        assert_eq!(floor.bytes(), 120);
        stores.keep(|n| n == 3).unwrap();
        assert_eq!(floor.bytes(), 120, "for two seconds");
        assert_eq!(Floor::of(tmp.path()).bytes(), 50);
    }
}
