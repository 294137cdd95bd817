//! `cluster.json` as the place of the map, or as a copy of it.

use pando_cluster::{ClusterFile, ClusterMap, CoordError};
use pando_types::FsId;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The folder of a cluster, as far as coordination looks at it.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) fs: FsId,
}

impl Folder {
    fn file(&self) -> PathBuf {
        self.path.join("cluster.json")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    /// The file that whoever reads or writes anything here locks.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.run().join("coord.lock")
    }

    /// Waits for the lock, as whoever changes something.
    pub(crate) fn lock(&self) -> Result<File, CoordError> {
        let path = self.lock_file();
        let locked = || -> io::Result<File> {
            std::fs::create_dir_all(self.run())?;
            let file = open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        };
        locked().map_err(|e| away(&path, &e))
    }

    /// The file, and the map it is.
    pub(crate) fn read(&self) -> Result<(ClusterFile, ClusterMap), CoordError> {
        let path = self.file();
        let text = std::fs::read_to_string(&path)
            .map_err(|e| CoordError::NoMap(format!("{}: {e}; restore it from a copy", path.display())))?;
        parse(&text, &self.path, self.fs).map_err(|e| match e {
            CoordError::NoMap(why) => CoordError::NoMap(format!(
                "{} is damaged ({why}); restore it from a copy",
                path.display()
            )),
            other => other,
        })
    }

    /// Puts it in the place of the one that is there, whole or not at all; synced when this returns.
    pub(crate) fn write(&self, file: &ClusterFile) -> Result<(), CoordError> {
        let path = self.file();
        write_whole(&path, file.to_text().as_bytes()).map_err(|e| away(&path, &e))
    }
}

/// A map from text that somebody else wrote. Relative paths count from `dir`.
pub(crate) fn parse(text: &str, dir: &Path, fs: FsId) -> Result<(ClusterFile, ClusterMap), CoordError> {
    let file = ClusterFile::parse(text).map_err(|e| CoordError::NoMap(e.to_string()))?;
    let map = file.map(dir).map_err(|e| CoordError::NoMap(e.to_string()))?;
    if map.fs != fs {
        return Err(CoordError::Foreign(map.fs));
    }
    Ok((file, map))
}

/// What the operating system said about a file here.
pub(crate) fn away(path: &Path, e: &io::Error) -> CoordError {
    CoordError::Away(format!("{}: {e}", path.display()))
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("json.next");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Opens a file to read and write, which is made if need be.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
}
