//! Directories that `pando put -r` makes are filled by bulk insertion, where the filesystem has that.
//!
//! The whole tree below is made at the client and inserted in batches. What cannot be made so (large files,
//! set-id bits) is copied afterwards, file by file, and so is the rest if somebody else wants to come into
//! the directory.

use super::super::copy::set;
use super::super::{Why, below};
use super::{Copy, file_perm, mtime, perm};
use crate::crew::Join;
use pando_client::file::Place;
use pando_client::{Going, Localised};
use pando_format::codec::Blob;
use pando_types::{Attr, AttrChange, Errno, Name, Perm, TimeChange, Timestamp};
use pando_wire::{Answer, Content, EntryView, Handle, Object, Op, Statement};
use std::fs::{Metadata, ReadDir};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// When directories are filled by bulk insertion.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BulkArg {
    /// Never: file by file.
    Never,
    /// If the filesystem has it and there is enough to copy.
    Auto,
    /// Always; where it cannot be done that is an error.
    Always,
}

/// Entries of a directory from which on it pays.
const ENOUGH: usize = 8;

/// A directory that is being filled.
struct Frame {
    entries: ReadDir,
    local: PathBuf,
    dir: Statement,
    path: Vec<u8>,
    /// How it is found again; the first one is not this module's to change.
    own: Option<Own>,
    /// Something of it is made later, and changes its time.
    unfinished: bool,
}

struct Own {
    place: Place,
    attr: Attr,
    meta: Metadata,
}

/// What is copied file by file when the directory is given back.
struct Later {
    local: PathBuf,
    parent: Vec<u8>,
    name: Name,
}

/// A directory that gets its bits and time when all is in it.
struct Settle {
    path: Vec<u8>,
    parent: Vec<u8>,
    name: Name,
    meta: Metadata,
}

/// A tree that is being made.
struct Filling {
    tree: Localised,
    stack: Vec<Frame>,
    later: Vec<Later>,
    settle: Vec<Settle>,
    files: u64,
    bytes: u64,
    /// Others want to come in.
    over: bool,
    ok: bool,
}

impl Copy {
    /// Copies what is in a local directory into one that was made for it just now.
    pub(super) fn fill_new(self: &Rc<Self>, local: PathBuf, dir: Statement, path: Vec<u8>, all: Rc<Join>) {
        let wanted = match self.bulk.get() {
            BulkArg::Never => false,
            BulkArg::Auto => is_enough(&local) && self.fs.conn.blocks.is_there().is_ok(),
            BulkArg::Always => true,
        };
        if !wanted {
            return self.entries(local, dir, path, all);
        }
        let me = self.clone();
        self.crew.add(async move {
            let (client, fs) = (me.fs.client(), &me.fs);
            let tree = match client.localize(&fs.cred, &dir, fs.conn.blocks.clone()).await {
                Ok(tree) => tree,
                Err(_) if me.bulk.get() != BulkArg::Always => {
                    return me.entries(local, dir, path, all);
                }
                Err(e) => {
                    let ok = me.judge(&path, Err(cannot(e)));
                    return all.done(ok);
                }
            };
            match me.filled(tree, &local, &path, &all).await {
                Ok(ok) => all.done(ok),
                // What was not inserted is lost, and nobody has seen it: all is copied file by file.
                Err(_) => {
                    let shown = crate::text::printable(&path);
                    eprintln!("pando: {shown}: it is not ours alone any more; copying file by file");
                    me.entries(local, dir, path, all);
                }
            }
        });
    }

    /// Whether all went well. `Err`: the directory is not ours any more.
    async fn filled(
        self: &Rc<Self>,
        tree: Localised,
        local: &Path,
        path: &[u8],
        all: &Rc<Join>,
    ) -> Result<bool, Errno> {
        let entries = match std::fs::read_dir(local) {
            Ok(entries) => entries,
            Err(e) => {
                tree.give_back().await?;
                return Ok(self.judge(local.as_os_str().as_bytes(), Err(e.into())));
            }
        };
        let first = Frame {
            entries,
            local: local.to_path_buf(),
            dir: tree.dir().clone(),
            path: path.to_vec(),
            own: None,
            unfinished: false,
        };
        let mut at = Filling {
            tree,
            stack: vec![first],
            later: Vec::new(),
            settle: Vec::new(),
            files: 0,
            bytes: 0,
            over: false,
            ok: true,
        };
        while let Some(frame) = at.stack.last_mut() {
            let (entry, local) = (frame.entries.next(), frame.local.clone());
            match entry {
                None => at.leave(),
                Some(Err(e)) => at.ok &= self.judge(local.as_os_str().as_bytes(), Err(e.into())),
                Some(Ok(entry)) => {
                    let local = entry.path();
                    if let Err(why) = at.entry(self, &local) {
                        at.ok &= self.judge(local.as_os_str().as_bytes(), Err(why));
                    }
                }
            }
            at.over |= at.tree.tend().await? == Going::Over;
        }
        let Filling {
            tree,
            later,
            settle,
            files,
            bytes,
            ok,
            ..
        } = at;
        tree.give_back().await?;
        self.files.set(self.files.get() + files);
        self.inserted.set(self.inserted.get() + files);
        self.bytes.set(self.bytes.get() + bytes);
        self.one_by_one(later, settle, all);
        Ok(ok)
    }

    /// What is left.
    fn one_by_one(self: &Rc<Self>, later: Vec<Later>, settle: Vec<Settle>, above: &Rc<Join>) {
        if later.is_empty() && settle.is_empty() {
            return;
        }
        let me = self.clone();
        let all = Join::new(&self.crew, Some(above.clone()), move |ok| {
            Box::pin(async move {
                let mut ok = ok;
                // Those that are deeper are done first: they were left first.
                for dir in settle {
                    let done = me.settled(&dir).await;
                    ok &= me.judge(&dir.path, done);
                }
                ok
            })
        });
        for Later { local, parent, name } in later {
            let (me, joined) = (self.clone(), all.clone());
            all.more();
            self.crew.add(async move {
                let copied = async {
                    let dir = me.made(&parent).await?;
                    let meta = std::fs::symlink_metadata(&local)?;
                    let path = below(&parent, name.as_bytes());
                    me.copy(local.clone(), meta, dir, name, path, &joined).await
                };
                let copied = copied.await;
                let ok = me.judge(local.as_os_str().as_bytes(), copied);
                joined.done(ok);
            });
        }
        all.done(true);
    }

    /// A directory that was inserted.
    async fn made(&self, path: &[u8]) -> Result<Statement, Why> {
        let found = self.fs.client().hold_path(&self.fs.cred, path, true).await?;
        Ok(found.entry.dir.ok_or(Errno::NotDir)?)
    }

    async fn settled(&self, dir: &Settle) -> Result<(), Why> {
        let parent = self.made(&dir.parent).await?;
        let view = self.fs.client().lookup(&self.fs.cred, &parent, &dir.name).await?;
        let place = Place {
            dir: parent,
            name: dir.name.clone(),
        };
        let wanted = perm(&dir.meta);
        let change = AttrChange {
            perm: (wanted != view.attr.perm).then_some(wanted),
            mtime: Some(TimeChange::To(mtime(&dir.meta))),
            ..AttrChange::default()
        };
        set(&self.fs, &place, &view.attr, change).await?;
        Ok(())
    }
}

/// Why a directory cannot be localised, and what to do.
fn cannot(e: Errno) -> Why {
    match e {
        Errno::Unsupported => {
            "cannot be filled in bulk: the filesystem was not made with `--profile indexfs`, or the directory has a default access list; leave out `--bulk always`".into()
        }
        e => e.into(),
    }
}

/// Whether there is so much in a directory that it pays.
fn is_enough(local: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(local) else {
        return false;
    };
    let is_dir = |e: &std::fs::DirEntry| e.file_type().is_ok_and(|t| t.is_dir());
    let mut count = 0;
    for entry in entries.flatten() {
        count += 1;
        if count >= ENOUGH || is_dir(&entry) {
            return true;
        }
    }
    false
}

fn entry_of(answer: Answer) -> Result<EntryView, Errno> {
    match answer {
        Answer::Entry(entry) | Answer::Opened { entry, .. } => Ok(entry),
        _ => Err(Errno::Io),
    }
}

impl Filling {
    fn frame(&mut self) -> Result<&mut Frame, Errno> {
        self.stack.last_mut().ok_or(Errno::Io)
    }

    /// One entry of the directory that is being filled.
    fn entry(&mut self, copy: &Copy, local: &Path) -> Result<(), Why> {
        let meta = std::fs::symlink_metadata(local)?;
        let name = Name::new(local.file_name().unwrap_or_default().as_bytes())?;
        let limit = u64::from(copy.fs.client().map().inline_limit);
        let kind = meta.file_type();
        let set_ids = file_perm(&copy.fs, &meta).bits() & (Perm::SETUID | Perm::SETGID) != 0;
        let here = kind.is_dir() || kind.is_symlink() || kind.is_file() && meta.len() <= limit && !set_ids;
        if self.over || !here {
            return self.put_off(local, name);
        }
        let made = if kind.is_dir() {
            self.directory(local, &name, meta)
        } else if kind.is_symlink() {
            self.symlink(local, &name, mtime(&meta))
        } else {
            self.file(copy, local, &name, &meta, limit)
        };
        match made {
            // It has grown, or is one of those that are not made here.
            Err(Why::Errno(Errno::TooBig | Errno::Busy | Errno::Unsupported)) => self.put_off(local, name),
            made => made,
        }
    }

    fn put_off(&mut self, local: &Path, name: Name) -> Result<(), Why> {
        let frame = self.frame()?;
        frame.unfinished = true;
        let later = Later {
            local: local.to_path_buf(),
            parent: frame.path.clone(),
            name,
        };
        self.later.push(later);
        Ok(())
    }

    fn directory(&mut self, local: &Path, name: &Name, meta: Metadata) -> Result<(), Why> {
        let entries = std::fs::read_dir(local)?;
        let (dir, path) = (self.frame()?.dir.clone(), self.frame()?.path.clone());
        let op = Op::Mkdir {
            dir: dir.clone(),
            name: name.clone(),
            mode: Perm::new(perm(&meta).bits() & 0o1777 | 0o700).into(),
        };
        let made = entry_of(self.tree.carry_out(&op)?)?;
        let place = Place {
            dir,
            name: name.clone(),
        };
        self.stack.push(Frame {
            entries,
            local: local.to_path_buf(),
            dir: made.dir.ok_or(Errno::Io)?,
            path: below(&path, name.as_bytes()),
            own: Some(Own {
                place,
                attr: made.attr,
                meta,
            }),
            unfinished: false,
        });
        self.files += 1;
        Ok(())
    }

    fn symlink(&mut self, local: &Path, name: &Name, time: Timestamp) -> Result<(), Why> {
        let target = std::fs::read_link(local)?;
        let op = Op::Symlink {
            dir: self.frame()?.dir.clone(),
            name: name.clone(),
            target: Blob(target.as_os_str().as_bytes().to_vec()),
        };
        let made = entry_of(self.tree.carry_out(&op)?)?;
        self.files += 1;
        self.timed(name, &made.attr, time)
    }

    fn timed(&mut self, name: &Name, attr: &Attr, time: Timestamp) -> Result<(), Why> {
        let change = AttrChange {
            mtime: Some(TimeChange::To(time)),
            ..AttrChange::default()
        };
        let op = Op::SetAttr {
            object: Object::shown(self.frame()?.dir.clone(), name.clone(), attr),
            change,
            handle: None,
        };
        self.tree.carry_out(&op)?;
        Ok(())
    }

    fn file(
        &mut self,
        copy: &Copy,
        local: &Path,
        name: &Name,
        meta: &Metadata,
        limit: u64,
    ) -> Result<(), Why> {
        let mut data = Vec::with_capacity(meta.len() as usize);
        std::fs::File::open(local)?
            .take(limit + 1)
            .read_to_end(&mut data)?;
        let size = data.len() as u64;
        if size > limit {
            return Err(Errno::TooBig.into());
        }
        let dir = self.frame()?.dir.clone();
        let op = Op::Create {
            dir: dir.clone(),
            name: name.clone(),
            mode: file_perm(&copy.fs, meta).into(),
            exclusive: true,
            want: 0,
        };
        let made = entry_of(self.tree.carry_out(&op)?)?;
        if size == 0 {
            self.timed(name, &made.attr, mtime(meta))?;
        } else {
            let op = Op::Publish {
                object: Object::shown(dir, name.clone(), &made.attr),
                handle: Handle(0),
                content: Content::Inline(Blob(data)),
                size,
                mtime: Some(mtime(meta)),
                base: None,
            };
            self.tree.carry_out(&op)?;
        }
        self.files += 1;
        self.bytes += size;
        copy.progress.add(size);
        Ok(())
    }

    /// All entries of a directory were seen.
    fn leave(&mut self) {
        let Some(frame) = self.stack.pop() else {
            return;
        };
        let Some(own) = frame.own else {
            return;
        };
        self.tree.is_done(frame.dir.id);
        let wanted = perm(&own.meta);
        let plain = wanted.bits() & !0o1777 == 0;
        let change = AttrChange {
            perm: (wanted != own.attr.perm).then_some(wanted),
            mtime: Some(TimeChange::To(mtime(&own.meta))),
            ..AttrChange::default()
        };
        let op = Op::SetAttr {
            object: Object::shown(own.place.dir.clone(), own.place.name.clone(), &own.attr),
            change,
            handle: None,
        };
        // What is inserted is the server's to change, and what more comes into it changes its time.
        if frame.unfinished || !plain || self.tree.carry_out(&op).is_err() {
            let parent = self.stack.last().map(|above| above.path.clone());
            self.settle.push(Settle {
                path: frame.path,
                parent: parent.unwrap_or_default(),
                name: own.place.name,
                meta: own.meta,
            });
        }
    }
}
