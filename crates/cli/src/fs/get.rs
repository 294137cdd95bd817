//! `pando get`.

use super::copy::{drain, open, without_foreign_set_ids};
use super::{Fs, Why, absolute, base, below};
use crate::crew::{Crew, Join};
use crate::progress::{Progress, Unit};
use anyhow::{Result, bail};
use pando_client::file::Place;
use pando_types::{Attr, Errno, FileKind, Name, Timestamp};
use pando_wire::{EntryView, Statement};
use rustix::fs::{AtFlags, OFlags, Timespec, Timestamps, UTIME_OMIT};
use serde_json::{Value, json};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Files copied at once.
const FILES: usize = 24;

/// Copy files from the filesystem to this machine, with permission bits and modification times.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando get /home/me/notes.txt .       into a directory\n  pando get /home/me/notes.txt n.txt   under another name\n  pando get -r /project src            directories with all that is in them\n  pando get /backup.tar - | tar t      to a pipe"
)]
pub struct GetArgs {
    /// Directories too, with all that is in them.
    #[arg(short, short_alias = 'R', long)]
    pub recursive: bool,
    /// What to copy.
    #[arg(value_name = "PATH", required = true)]
    pub sources: Vec<OsString>,
    /// Where to; `-` is standard output.
    #[arg(value_name = "LOCAL")]
    pub target: OsString,
}

/// A copy under way.
struct Copy {
    fs: Rc<Fs>,
    crew: Rc<Crew>,
    progress: Rc<Progress>,
    files: Cell<u64>,
    bytes: Cell<u64>,
}

pub fn run(fs: &Rc<Fs>, args: &GetArgs) -> Result<Value> {
    if args.target == "-" {
        if fs.json {
            bail!("standard output is taken by --json; leave it out, or name a file");
        }
        for path in &args.sources {
            let path = absolute(path);
            if let Err(why) = fs.conn.run(super::cat::print(fs, &path)) {
                fs.fail(&path, why);
            }
        }
        return Ok(json!({}));
    }
    let target = PathBuf::from(&args.target);
    let into = target.is_dir();
    if args.sources.len() > 1 && !into {
        bail!(
            "{} is not a directory; several files are copied into a directory",
            target.display()
        );
    }
    let progress = fs.show_progress(Progress::new("copied", Unit::Bytes, 0));
    let copy = Rc::new(Copy {
        fs: fs.clone(),
        crew: Crew::new(fs.world(), FILES),
        progress,
        files: Cell::new(0),
        bytes: Cell::new(0),
    });
    for path in &args.sources {
        let path = absolute(path);
        if let Err(why) = fs.conn.run(copy.top(args.recursive, &path, &target, into)) {
            fs.fail(&path, why);
        }
    }
    fs.conn.run(copy.crew.finished());
    Ok(json!({ "files": copy.files.get(), "bytes": copy.bytes.get() }))
}

/// Sets the modification time, of a link itself too.
fn set_time(local: &Path, mtime: Timestamp) -> std::io::Result<()> {
    let omit = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT as _,
    };
    let times = Timestamps {
        last_access: omit,
        last_modification: Timespec {
            tv_sec: mtime.secs,
            tv_nsec: mtime.nanos.into(),
        },
    };
    rustix::fs::utimensat(rustix::fs::CWD, local, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

fn permissions(attr: &Attr) -> Permissions {
    let mine = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let perm = match attr.kind {
        FileKind::Regular => without_foreign_set_ids(attr.perm, (attr.uid, attr.gid), mine),
        _ => attr.perm,
    };
    Permissions::from_mode(perm.bits().into())
}

/// An entry to copy.
struct Item {
    dir: Statement,
    name: Name,
    view: EntryView,
    path: Vec<u8>,
    local: PathBuf,
    /// `local` is what was typed: if it is a link, what it leads to is meant.
    typed: bool,
}

impl Copy {
    async fn top(
        self: &Rc<Self>,
        recursive: bool,
        path: &[u8],
        target: &Path,
        into: bool,
    ) -> Result<(), Why> {
        let fs = &self.fs;
        let found = fs.client().hold_path(&fs.cred, path, !recursive).await?;
        if found.entry.dir.is_some() && !recursive {
            return Err("is a directory; use -r to copy it with all that is in it".into());
        }
        let name = base(path);
        let local = if into && !name.is_empty() && name != b"." && name != b".." {
            target.join(OsStr::from_bytes(name))
        } else {
            target.to_path_buf()
        };
        let all = Join::new(&self.crew, None, |ok| Box::pin(async move { ok }));
        let item = Item {
            dir: found.parent,
            name: found.name,
            view: found.entry,
            path: path.to_vec(),
            typed: local == target,
            local,
        };
        self.copy(item, &all).await?;
        all.done(true);
        Ok(())
    }

    fn moved(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
        self.progress.add(bytes);
    }

    fn count(&self) {
        self.files.set(self.files.get() + 1);
        self.progress.say(format!("{} files", self.files.get()));
    }

    async fn copy(self: &Rc<Self>, item: Item, all: &Rc<Join>) -> Result<(), Why> {
        let fs = &self.fs;
        match item.view.attr.kind {
            FileKind::Directory => return self.directory(item, all).await,
            FileKind::Regular => {}
            FileKind::Symlink => {
                let name = item.name.as_bytes();
                let target = super::stat::target(fs, &item.dir, name, &item.view).await?;
                let make = || std::os::unix::fs::symlink(OsStr::from_bytes(&target), &item.local);
                match make() {
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                        std::fs::remove_file(&item.local)?;
                        make()?;
                    }
                    other => other?,
                }
                set_time(&item.local, item.view.attr.mtime)?;
                self.count();
                return Ok(());
            }
            kind => {
                let kind = crate::text::kind_word(kind);
                return Err(Why::Text(format!("is a {kind}, which is not copied yet")));
            }
        }
        let place = Place {
            dir: item.dir,
            name: item.name,
        };
        let file = open(fs, place).await?;
        let mut local = writable(&item.local, item.typed)?;
        drain(fs, &file, &mut local, &|n| self.moved(n)).await?;
        let attr = file.attr();
        local.set_permissions(permissions(&attr))?;
        drop(local);
        set_time(&item.local, attr.mtime)?;
        self.count();
        Ok(())
    }

    async fn directory(self: &Rc<Self>, item: Item, above: &Rc<Join>) -> Result<(), Why> {
        let Some(dir) = item.view.dir.clone() else {
            return Err(pando_types::Errno::NotDir.into());
        };
        match std::fs::create_dir(&item.local) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && is_folder(&item) => {}
            other => other?,
        }
        let attr = self.fs.client().attr(&self.fs.cred, &item.view).await?;
        let (me, local, path) = (self.clone(), item.local.clone(), item.path.clone());
        let all = Join::new(&self.crew, Some(above.clone()), move |ok| {
            Box::pin(async move {
                // The entries changed its time, and it may not be writable: only now can both be set.
                let set = || {
                    std::fs::set_permissions(&local, permissions(&attr))?;
                    set_time(&local, attr.mtime)
                };
                me.judge(&path, set().map_err(Why::from)) && ok
            })
        });
        self.count();
        let me = self.clone();
        self.crew.add(async move {
            let result = me.each(&dir, &item.path, &item.local, &all).await;
            let ok = me.judge(&item.path, result);
            all.done(ok);
        });
        Ok(())
    }

    async fn each(
        self: &Rc<Self>,
        dir: &Statement,
        path: &[u8],
        local: &Path,
        all: &Rc<Join>,
    ) -> Result<(), Why> {
        let fs = self.fs.clone();
        let mut listing = fs.client().list(&fs.cred, dir.clone(), true);
        loop {
            self.crew.room().await;
            let page = listing.next_page().await?;
            if page.is_empty() {
                return Ok(());
            }
            for e in page {
                let view = e.view.ok_or(Errno::Access)?;
                let item = Item {
                    dir: dir.clone(),
                    view: *view,
                    path: below(path, e.name.as_bytes()),
                    local: local.join(OsStr::from_bytes(e.name.as_bytes())),
                    typed: false,
                    name: e.name,
                };
                let (me, all, path) = (self.clone(), all.clone(), item.path.clone());
                all.more();
                self.crew.add(async move {
                    let result = me.copy(item, &all).await;
                    let ok = me.judge(&path, result);
                    all.done(ok);
                });
            }
        }
    }

    fn judge(&self, path: &[u8], result: Result<(), Why>) -> bool {
        let ok = result.is_ok();
        if let Err(why) = result {
            self.fs.fail(path, why);
        }
        ok
    }
}

/// Whether there is a folder already. A link to one, which an earlier copy may have brought, is none.
fn is_folder(item: &Item) -> bool {
    match item.typed {
        true => item.local.is_dir(),
        false => std::fs::symlink_metadata(&item.local).is_ok_and(|m| m.is_dir()),
    }
}

/// Nobody else may read it before its own permissions are set. A link is replaced, not followed, unless it
/// was typed: an earlier copy may have brought it, and it may lead anywhere.
fn writable(local: &Path, typed: bool) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    if typed {
        return options.open(local);
    }
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    match options.open(local) {
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            std::fs::remove_file(local)?;
            options.open(local)
        }
        other => other,
    }
}
