//! One client of a mix: its files, and what it does to them.

use super::workload::Kind;
use crate::bench::crowd;
use crate::connect::{Connection, my_cred};
use crate::fs::below;
use anyhow::{Context, Result};
use pando_client::Client;
use pando_client::file::{self, Place};
use pando_env::rng::mix;
use pando_types::{Access, AttrChange, Cred, Errno, Generation, Ino, Name, Perm};
use pando_wire::{Object, Op, RenameMode, Statement};
use std::cell::RefCell;
use std::rc::Rc;

/// Requests in flight while files are made and removed.
const AT_ONCE: usize = 64;

/// A file of this client's.
#[derive(Clone, Copy)]
struct File {
    /// Which of its directories.
    dir: usize,
    number: u64,
    ino: Ino,
    generation: Generation,
}

impl File {
    fn name(self) -> Result<Name, Errno> {
        Name::new(format!("file.{}", self.number).as_bytes())
    }
}

/// What there is, as far as nobody is changing it just now.
#[derive(Default)]
struct State {
    files: Vec<File>,
    /// Directories without files, by where they are.
    empty: Vec<(usize, u64)>,
    next: u64,
    drawn: u64,
}

/// It, with its directories open.
pub struct Worker {
    client: Rc<Client>,
    cred: Cred,
    number: u64,
    root: Vec<u8>,
    dirs: Vec<Statement>,
    state: RefCell<State>,
}

fn dir_name(n: u64) -> String {
    format!("dir.{n}")
}

impl Worker {
    /// Makes so many files, spread over directories in a new one.
    pub fn prepare(
        conn: &Connection,
        root: Vec<u8>,
        number: u64,
        files: u64,
        per_directory: u64,
    ) -> Result<Rc<Worker>> {
        let cred = my_cred();
        let doing = || {
            let path = crate::text::printable(&root);
            format!("cannot make files in {path}; if they are there already, remove them or say another -d")
        };
        let client = &conn.client;
        conn.run(client.mkdir(&cred, &root, Perm::new(0o755)))
            .with_context(doing)?;
        let dirs = Rc::new(RefCell::new(Vec::new()));
        let (client_, cred_, dirs_, root_) = (client.clone(), cred.clone(), dirs.clone(), root.clone());
        crowd(conn, AT_ONCE, 0..files.div_ceil(per_directory).max(1), move |n| {
            let (client, cred, dirs) = (client_.clone(), cred_.clone(), dirs_.clone());
            let path = below(&root_, dir_name(n).as_bytes());
            async move {
                client.mkdir(&cred, &path, Perm::new(0o755)).await?;
                let found = client.hold_path(&cred, &path, true).await?;
                let dir = found.entry.dir.ok_or(Errno::NotDir)?;
                dirs.borrow_mut().push((n, dir));
                Ok(())
            }
        })
        .with_context(doing)?;
        let mut dirs = dirs.take();
        dirs.sort_unstable_by_key(|(n, _)| *n);
        let worker = Rc::new(Worker {
            client: client.clone(),
            cred,
            number,
            root: root.clone(),
            dirs: dirs.into_iter().map(|(_, dir)| dir).collect(),
            state: RefCell::default(),
        });
        let me = worker.clone();
        crowd(conn, AT_ONCE, 0..files, move |n| {
            let me = me.clone();
            // All directories get as many.
            async move { me.create((n % me.dirs.len() as u64) as usize).await }
        })
        .with_context(doing)?;
        Ok(worker)
    }

    /// A number below `most`, each as likely. The same in every run.
    pub fn draw(&self, most: usize) -> usize {
        let mut state = self.state.borrow_mut();
        state.drawn += 1;
        (mix(state.drawn ^ (self.number << 48)) % most.max(1) as u64) as usize
    }

    /// Takes a file out at random: nobody else does anything to it until it is put back.
    fn take(&self) -> Option<File> {
        let n = self.state.borrow().files.len();
        let which = self.draw(n);
        (n > 0).then(|| self.state.borrow_mut().files.swap_remove(which))
    }

    fn put(&self, file: File) {
        self.state.borrow_mut().files.push(file);
    }

    fn any_dir(&self) -> usize {
        self.draw(self.dirs.len())
    }

    /// One operation. Without a file, or an empty directory, that it could be done to, one is made. Tells
    /// what was done.
    pub async fn act(&self, kind: Kind) -> (Kind, Result<(), Errno>) {
        match kind {
            Kind::Create => (kind, self.create(self.any_dir()).await),
            Kind::StatDir => {
                let dir = &self.dirs[self.any_dir()];
                (kind, self.client.dir_stat(&self.cred, dir).await.map(|_| ()))
            }
            Kind::List => (kind, self.list(&self.dirs[self.any_dir()]).await),
            Kind::Mkdir => (kind, self.mkdir().await),
            Kind::Rmdir => {
                let taken = self.state.borrow_mut().empty.pop();
                match taken {
                    Some((dir, n)) => (kind, self.rmdir(dir, n).await),
                    None => (Kind::Mkdir, self.mkdir().await),
                }
            }
            Kind::Stat | Kind::Delete | Kind::Rename | Kind::Other => match self.take() {
                Some(file) => (kind, self.to_file(kind, file).await),
                None => (Kind::Create, self.create(self.any_dir()).await),
            },
        }
    }

    async fn to_file(&self, kind: Kind, file: File) -> Result<(), Errno> {
        let (dir, name) = (self.dirs[file.dir].clone(), file.name()?);
        let (op, now) = match kind {
            Kind::Delete => {
                let unlink = Op::Unlink {
                    dir,
                    name,
                    held: false,
                };
                (unlink, None)
            }
            Kind::Rename => {
                let into = self.any_dir();
                let rename = Op::Rename {
                    src: dir,
                    src_name: name.clone(),
                    dst: self.dirs[into].clone(),
                    dst_name: name,
                    mode: RenameMode::Replace,
                    held: false,
                };
                (rename, Some(File { dir: into, ..file }))
            }
            Kind::Other => {
                let bits = if self.draw(2) == 0 { 0o640 } else { 0o644 };
                let change = AttrChange {
                    perm: Some(Perm::new(bits)),
                    ..AttrChange::default()
                };
                let set = Op::SetAttr {
                    object: Object {
                        dir,
                        name,
                        ino: file.ino,
                        generation: file.generation,
                    },
                    change,
                    handle: None,
                };
                (set, Some(file))
            }
            _ => (Op::Lookup { dir, name }, Some(file)),
        };
        let done = self.client.op(&self.cred, op).await.map(|_| ());
        if let Some(file) = now.filter(|_| done.is_ok()) {
            self.put(file);
        }
        done
    }

    async fn create(&self, dir: usize) -> Result<(), Errno> {
        let number = self.next();
        let mut file = File {
            dir,
            number,
            ino: Ino(0),
            generation: Generation(0),
        };
        let place = Place {
            dir: self.dirs[dir].clone(),
            name: file.name()?,
        };
        let mode = Perm::new(0o644);
        let opened = file::create(&*self.client, &self.cred, &place, mode, true, Access::WRITE).await?;
        (file.ino, file.generation) = (opened.entry.attr.ino, opened.entry.attr.generation);
        self.put(file);
        Ok(())
    }

    fn next(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.next += 1;
        state.next
    }

    async fn mkdir(&self) -> Result<(), Errno> {
        let (dir, n) = (self.any_dir(), self.next());
        let op = Op::Mkdir {
            dir: self.dirs[dir].clone(),
            name: Name::new(dir_name(n).as_bytes())?,
            mode: Perm::new(0o755).into(),
        };
        self.client.op(&self.cred, op).await?;
        self.state.borrow_mut().empty.push((dir, n));
        Ok(())
    }

    async fn rmdir(&self, dir: usize, n: u64) -> Result<(), Errno> {
        let op = Op::Rmdir {
            dir: self.dirs[dir].clone(),
            name: Name::new(dir_name(n).as_bytes())?,
        };
        self.client.op(&self.cred, op).await.map(|_| ())
    }

    async fn list(&self, dir: &Statement) -> Result<(), Errno> {
        let mut listing = self.client.list(&self.cred, dir.clone(), false);
        while !listing.next_page().await?.is_empty() {}
        Ok(())
    }

    /// Removes all that it made.
    pub fn remove(self: &Rc<Self>, conn: &Connection) -> Result<()> {
        let (me, files) = (self.clone(), self.state.take());
        let (empty, dirs) = (files.empty, self.dirs.len() as u64);
        let count = files.files.len() as u64;
        let all = files.files;
        crowd(conn, AT_ONCE, 0..count, move |n| {
            let (me, file) = (me.clone(), all[n as usize]);
            async move { me.to_file(Kind::Delete, file).await }
        })?;
        let me = self.clone();
        crowd(conn, AT_ONCE, 0..empty.len() as u64, move |n| {
            let (me, (dir, n)) = (me.clone(), empty[n as usize]);
            async move { me.rmdir(dir, n).await }
        })?;
        let me = self.clone();
        crowd(conn, AT_ONCE, 0..dirs, move |n| {
            let me = me.clone();
            async move {
                let path = below(&me.root, dir_name(n).as_bytes());
                me.client.rmdir(&me.cred, &path).await
            }
        })?;
        Ok(conn.run(self.client.rmdir(&self.cred, &self.root))?)
    }
}
