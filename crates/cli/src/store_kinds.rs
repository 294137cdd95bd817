//! Kinds of stores: which one a folder has, and how it is made, opened and repaired.
//!
//! One more kind is a variant of [`StoreKind`], with what its folders are known by, and one of [`Opened`] if
//! it is not RocksDB: the compiler names the rest. Nothing else in this program names the stores.

use pando_format::Superblock;
use pando_net::Reactor;
use pando_store::{Durability, Store, StoreError};
pub use pando_store_rocks::{CACHE_MIB, Compactions, RECORD_MIB, Salvaged, Watched};
use pando_store_rocks::{RocksOptions, RocksStore, Schema};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// A kind of store.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// Over RocksDB.
    #[value(name = "rocksdb")]
    Rocks,
    /// The same with columns: an index that is compacted, and rows of files that are not.
    #[value(name = "column")]
    Column,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// What durable means.
    pub durability: Durability,
    /// Bytes of its cache of blocks.
    pub cache_bytes: usize,
    /// Bytes of records that are kept in front of that; 0: none.
    pub record_bytes: usize,
    /// Bytes that are set aside on the device, to be given up when there is nothing else left; 0: none.
    pub ballast_bytes: u64,
    /// Whether somebody measures.
    pub watched: Watched,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        let rocks = RocksOptions::default();
        StoreOptions {
            durability: rocks.durability,
            cache_bytes: rocks.cache_bytes,
            record_bytes: rocks.record_bytes,
            ballast_bytes: rocks.ballast_bytes,
            watched: rocks.watched,
        }
    }
}

impl StoreOptions {
    fn of_rocks(&self) -> RocksOptions {
        RocksOptions {
            durability: self.durability,
            cache_bytes: self.cache_bytes,
            record_bytes: self.record_bytes,
            ballast_bytes: self.ballast_bytes,
            watched: self.watched,
            ..RocksOptions::default()
        }
    }
}

impl StoreKind {
    /// Those known by more come first.
    const ALL: [StoreKind; 2] = [StoreKind::Column, StoreKind::Rocks];

    /// The kind that is made where nobody says another.
    pub const NEW: StoreKind = StoreKind::Rocks;

    /// What only folders of this kind have.
    fn mark(self) -> &'static str {
        match self {
            StoreKind::Rocks => "db",
            StoreKind::Column => "columns",
        }
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            StoreKind::Rocks => "rocksdb",
            StoreKind::Column => "column",
        }
    }

    /// Fails if there is a store of another kind in a folder.
    pub fn suits(self, path: &Path) -> Result<(), StoreError> {
        let mut all = StoreKind::ALL.into_iter();
        match all.find(|kind| path.join(kind.mark()).exists()) {
            Some(kind) if kind != self => Err(StoreError::OtherKind {
                path: path.to_path_buf(),
                is: kind.word(),
                wanted: self.word(),
            }),
            _ => Ok(()),
        }
    }

    /// The kind of the store in a folder; where there is none, the one that is made.
    pub fn at(path: &Path) -> StoreKind {
        let mut all = StoreKind::ALL.into_iter();
        all.find(|kind| path.join(kind.mark()).exists())
            .unwrap_or(StoreKind::NEW)
    }

    /// Whether there is a store in a folder.
    pub fn is_at(path: &Path) -> bool {
        StoreKind::ALL.iter().any(|kind| path.join(kind.mark()).exists())
    }

    /// Makes a store that holds only its superblock. When this returns, a power cut does not undo it; if it
    /// is interrupted, it can be called again. It takes nothing away, and refuses a store with a superblock.
    pub fn create(self, path: &Path, superblock: Superblock) -> Result<(), StoreError> {
        match self {
            StoreKind::Rocks => RocksStore::create_as(path, superblock, Schema::Whole),
            StoreKind::Column => RocksStore::create_as(path, superblock, Schema::Columns),
        }
    }

    /// Opens a store. All its records are synced when this returns.
    pub fn open(self, path: &Path, options: &StoreOptions) -> Result<(Opened, Superblock), StoreError> {
        match self {
            StoreKind::Rocks | StoreKind::Column => {
                let (store, superblock) = RocksStore::open(path, options.of_rocks())?;
                Ok((Opened::Rocks(Rc::new(store)), superblock))
            }
        }
    }

    /// Makes a store anew without what is damaged in it, if anything is. No server may have it open.
    pub fn salvage(self, path: &Path) -> Result<Salvaged, StoreError> {
        match self {
            StoreKind::Rocks | StoreKind::Column => RocksStore::salvage(path),
        }
    }

    /// Whether there are records in the folder that opening or making a store there would take away.
    pub fn is_torn(self, path: &Path) -> bool {
        match self {
            StoreKind::Rocks | StoreKind::Column => rocks_is_torn(path),
        }
    }

    /// Threads that serve reads from the device.
    pub fn readers(self) -> usize {
        match self {
            StoreKind::Rocks | StoreKind::Column => RocksOptions::default().readers,
        }
    }
}

/// Whether it has tables or logs, but not the file that says which: RocksDB would begin anew and take them
/// away. One whose making was interrupted has that file before any log.
fn rocks_is_torn(path: &Path) -> bool {
    let database = path.join("db");
    let holds = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|e| {
            let name = e.file_name();
            let name = name.to_string_lossy();
            name.ends_with(".sst") || name.ends_with(".log")
        })
    };
    !database.join("CURRENT").exists()
        && std::fs::read_dir(&database).is_ok_and(|mut entries| entries.any(holds))
}

/// An open store, with what its shell does for it beside [`Store`].
#[derive(Clone)]
pub enum Opened {
    /// Over RocksDB.
    Rocks(Rc<RocksStore>),
}

impl Opened {
    /// It, as servers know it.
    pub fn store(&self) -> Rc<dyn Store> {
        match self {
            Opened::Rocks(store) => store.clone(),
        }
    }

    /// What it is.
    pub fn kind(&self) -> StoreKind {
        match self {
            Opened::Rocks(store) => match store.schema() {
                Schema::Whole => StoreKind::Rocks,
                Schema::Columns => StoreKind::Column,
            },
        }
    }

    /// What compactions did since it was opened, if it is watched.
    pub fn compactions(&self) -> Option<Compactions> {
        match self {
            Opened::Rocks(store) => store.compactions(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Opened::Rocks(store) => store.path(),
        }
    }

    /// Bytes of the device that it may need beside those it has.
    pub fn needs(&self) -> u64 {
        match self {
            Opened::Rocks(store) => store.needs(),
        }
    }

    /// Bytes of the device that its next log takes.
    pub fn next_log_needs(&self) -> u64 {
        match self {
            Opened::Rocks(store) => store.next_log_needs(),
        }
    }

    /// Sees to it that space of what was deleted comes back: to be called again and again. `low`: the device
    /// is short of space.
    pub fn make_room(&self, low: bool, now: Instant) -> Result<(), StoreError> {
        match self {
            Opened::Rocks(store) => store.make_room(low, now),
        }
    }

    /// Rewrites all of it without what was removed or replaced. It takes as long as reading and writing
    /// everything does.
    pub fn compact(&self) -> Result<(), StoreError> {
        match self {
            Opened::Rocks(store) => store.compact(),
        }
    }

    /// Writes what a server changes in a turn of its event loop in one go. A failure is kept by the store,
    /// and told to everybody who waits for what was not written.
    pub fn write_each_turn(&self, reactor: &Reactor) {
        match self {
            Opened::Rocks(store) => {
                store.gather();
                let store = store.clone();
                reactor.at_turn_end(Rc::new(move || _ = store.flush()));
            }
        }
    }
}
