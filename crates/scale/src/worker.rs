//! One client: what it does, and what it has made.

use crate::cluster::Program;
use crate::tree::{DIRS, parents_of};
use pando_client::Client;
use pando_client::file::{self, Place};
use pando_cluster::ClusterMap;
use pando_types::{Access, Birth, Cred, DirId, Errno, Name, Part, Perm};
use pando_wire::{Op, RenameMode};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// An operation that all clients do at the same time, each on what is its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// A directory.
    Mkdir,
    /// A directory whose content falls to another server than its parent's: with few servers that are the
    /// fewer, and what such a mkdir takes is more.
    MkdirWide,
    /// An empty file.
    Create,
    /// A file's attributes.
    Stat,
    /// A file into another directory.
    RenameFile,
    /// A directory into another directory.
    RenameDir,
    /// A file's end.
    Delete,
    /// A directory's end.
    Rmdir,
}

/// Where clients make their files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// In the directories that each has made.
    Own,
    /// All in one directory.
    Shared,
}

/// The directory of [`Files::Shared`].
pub(crate) const SHARED: &[u8] = b"/shared";

impl Phase {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Mkdir => "mkdir",
            Phase::MkdirWide => "mkdir on two servers",
            Phase::Create => "create",
            Phase::Stat => "stat",
            Phase::RenameFile => "file rename",
            Phase::RenameDir => "directory rename",
            Phase::Delete => "delete",
            Phase::Rmdir => "rmdir",
        }
    }
}

/// A client and what it has made.
pub(crate) struct Worker {
    client: RefCell<Rc<Client>>,
    pub number: usize,
    pub parents: Vec<Vec<u8>>,
    /// Where its files are.
    in_files: Files,
    /// Directories made, renamed and removed, from the first on.
    dirs: [Cell<u64>; 3],
    /// Files made, renamed and removed.
    files: [Cell<u64>; 3],
    looked: Cell<u64>,
    /// Directories made with their content on another server.
    wide: Cell<u64>,
}

/// A name under which a new directory's content is on another server than its parent's.
fn elsewhere(map: &ClusterMap, parent: DirId, prefix: &str) -> Result<Name, Errno> {
    let home = map.owner(Part::whole(parent).slot());
    for tries in 0..1_000 {
        let name = Name::new(format!("{prefix}-{tries}").as_bytes())?;
        let birth = Birth {
            parent,
            name: name.clone(),
            version: 0,
        };
        if map.owner(Part::whole(map.widths().dir_id(&birth)).slot()) != home {
            return Ok(name);
        }
    }
    // There is but one server.
    Err(Errno::Unsupported)
}

/// Makes an empty file.
pub(crate) async fn create(client: &Client, path: &[u8]) -> Result<(), Errno> {
    let cred = Cred::root();
    let (dir, name) = client.parent_of(&cred, path).await?;
    let (place, perm) = (Place { dir, name }, Perm::new(0o644));
    file::create(client, &cred, &place, perm, true, Access::WRITE)
        .await
        .map(|_| ())
}

const MADE: usize = 0;
const RENAMED: usize = 1;
const REMOVED: usize = 2;

fn take(next: &Cell<u64>) -> u64 {
    next.replace(next.get() + 1)
}

impl Worker {
    pub fn new(number: usize, clients: usize, program: &Program, in_files: Files) -> Worker {
        Worker {
            client: RefCell::new(program.client.borrow().clone()),
            number,
            parents: match in_files {
                Files::Own => parents_of(number, clients),
                Files::Shared => vec![SHARED.to_vec()],
            },
            in_files,
            dirs: Default::default(),
            files: Default::default(),
            looked: Cell::new(0),
            wide: Cell::new(0),
        }
    }

    pub fn client(&self) -> Rc<Client> {
        self.client.borrow().clone()
    }

    /// Another client in the place of this.
    pub fn renew(&self, program: &Program) {
        *self.client.borrow_mut() = program.client.borrow().clone();
    }

    /// Directories that it has made.
    pub fn dirs_made(&self) -> u64 {
        self.dirs[MADE].get()
    }

    /// The path of a directory that it makes, and where it is after it was renamed.
    fn dir(&self, n: u64, renamed: bool) -> Vec<u8> {
        let at = (n + u64::from(renamed)) as usize % self.parents.len();
        let name = format!("/{}{}-{n}", if renamed { "r" } else { "d" }, self.number);
        [&self.parents[at][..], name.as_bytes()].concat()
    }

    fn dir_now(&self, n: u64) -> Vec<u8> {
        self.dir(n, n < self.dirs[RENAMED].get())
    }

    /// The path of a file: one after the other they are in all its directories.
    fn file(&self, n: u64, renamed: bool) -> Vec<u8> {
        let kind = if renamed { "r" } else { "f" };
        match self.in_files {
            Files::Own => {
                let at = (n + u64::from(renamed)) % self.dirs[MADE].get().max(1);
                [&self.dir_now(at)[..], format!("/{kind}{n}").as_bytes()].concat()
            }
            Files::Shared => [SHARED, format!("/{kind}{}-{n}", self.number).as_bytes()].concat(),
        }
    }

    fn file_now(&self, n: u64) -> Vec<u8> {
        self.file(n, n < self.files[RENAMED].get())
    }

    /// Whether there is something left to do it to.
    pub fn can(&self, phase: Phase) -> bool {
        let (dirs, files) = (&self.dirs, &self.files);
        match phase {
            Phase::Mkdir | Phase::MkdirWide => true,
            Phase::Create => dirs[MADE].get() > 0 || self.in_files == Files::Shared,
            Phase::Stat => files[MADE].get() > files[REMOVED].get(),
            Phase::RenameFile => files[RENAMED].get() < files[MADE].get(),
            Phase::RenameDir => dirs[RENAMED].get() < dirs[MADE].get(),
            Phase::Delete => files[REMOVED].get() < files[MADE].get(),
            Phase::Rmdir => dirs[REMOVED].get() < dirs[MADE].get(),
        }
    }

    pub async fn act(&self, phase: Phase) -> Result<(), Errno> {
        let (client, cred) = (self.client(), Cred::root());
        let client = &*client;
        match phase {
            Phase::Mkdir => {
                let path = self.dir(self.dirs[MADE].get(), false);
                client.mkdir(&cred, &path, DIRS()).await?;
                take(&self.dirs[MADE]);
            }
            Phase::MkdirWide => {
                let n = take(&self.wide);
                let parent = &self.parents[n as usize % self.parents.len()];
                let dir = client.dir(&cred, parent).await?;
                let name = elsewhere(&client.map(), dir.id, &format!("w{}-{n}", self.number))?;
                client
                    .op(
                        &cred,
                        Op::Mkdir {
                            dir,
                            name,
                            mode: DIRS().into(),
                        },
                    )
                    .await?;
            }
            Phase::Create => {
                create(client, &self.file(self.files[MADE].get(), false)).await?;
                take(&self.files[MADE]);
            }
            Phase::Stat => {
                let (first, made) = (self.files[REMOVED].get(), self.files[MADE].get());
                // In no order, as if at random: a cache that has room for some has the right one now and
                // then.
                let n = first + pando_env::rng::mix(take(&self.looked)) % (made - first);
                client.stat(&cred, &self.file_now(n), false).await?;
            }
            Phase::RenameFile => {
                let n = self.files[RENAMED].get();
                let (from, to) = (self.file(n, false), self.file(n, true));
                client.rename(&cred, &from, &to, RenameMode::NoReplace).await?;
                take(&self.files[RENAMED]);
            }
            Phase::RenameDir => {
                let n = self.dirs[RENAMED].get();
                let (from, to) = (self.dir(n, false), self.dir(n, true));
                client.rename(&cred, &from, &to, RenameMode::NoReplace).await?;
                take(&self.dirs[RENAMED]);
            }
            Phase::Delete => {
                client
                    .unlink(&cred, &self.file_now(self.files[REMOVED].get()))
                    .await?;
                take(&self.files[REMOVED]);
            }
            Phase::Rmdir => {
                client
                    .rmdir(&cred, &self.dir_now(self.dirs[REMOVED].get()))
                    .await?;
                take(&self.dirs[REMOVED]);
            }
        }
        Ok(())
    }
}
