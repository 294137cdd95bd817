//! `pando rm` and `pando rmdir`.

use super::pages::Pages;
use super::{CREW, Fs, absolute, base, below, nothing};
use crate::crew::{Crew, Join};
use crate::progress::{Progress, Unit};
use anyhow::Result;
use pando_env::sync::join_all;
use pando_types::{Errno, FileKind, Name};
use pando_wire::{Op, Statement, UNLINK_MAX};
use serde_json::{Value, json};
use std::cell::Cell;
use std::ffi::OsString;
use std::pin::Pin;
use std::rc::Rc;

/// Remove files, and with -r directories with all that is in them.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando rm /old.txt\n  pando rm -r /projects/old\n  pando rm -rf /tmp/a /tmp/b"
)]
pub struct RmArgs {
    /// Directories too, with all that is in them.
    #[arg(short, short_alias = 'R', long)]
    pub recursive: bool,
    /// What is not there is no error.
    #[arg(short, long)]
    pub force: bool,
    /// Empty directories too.
    #[arg(short = 'd')]
    pub empty: bool,
    /// What to remove.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
}

/// Remove empty directories.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  pando rmdir /projects/empty")]
pub struct RmdirArgs {
    /// What to remove.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
}

pub fn rmdir(fs: &Rc<Fs>, args: &RmdirArgs) -> Result<Value> {
    for path in &args.paths {
        let path = absolute(path);
        if let Err(e) = fs.conn.run(fs.client().rmdir(&fs.cred, &path)) {
            fs.fail(&path, e);
        }
    }
    Ok(nothing())
}

/// Removes some files; says whether all are gone.
type Removing<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// A removal under way.
struct Removal {
    fs: Rc<Fs>,
    crew: Rc<Crew>,
    progress: Rc<Progress>,
    removed: Cell<u64>,
}

/// A directory to remove with what is in it.
struct Doomed {
    parent: Statement,
    name: Name,
    dir: Statement,
    path: Vec<u8>,
}

pub fn run(fs: &Rc<Fs>, args: &RmArgs) -> Result<Value> {
    let progress = fs.show_progress(Progress::new("removed", Unit::Items, 0));
    let removal = Rc::new(Removal {
        fs: fs.clone(),
        crew: Crew::new(fs.world(), CREW),
        progress,
        removed: Cell::new(0),
    });
    for path in &args.paths {
        let path = absolute(path);
        match fs.conn.run(removal.clone().top(args, &path)) {
            Ok(()) => {}
            Err(Errno::NotFound | Errno::NotDir) if args.force => {}
            Err(Errno::Busy) => fs.fail(
                &path,
                "the root, `.` and `..` are not removed; name what is in it instead",
            ),
            Err(Errno::IsDir) => fs.fail(
                &path,
                "is a directory; use -r to remove it with what is in it, or -d if it is empty",
            ),
            Err(e) => fs.fail(&path, e),
        }
    }
    fs.conn.run(removal.crew.finished());
    Ok(json!({ "removed": removal.removed.get() }))
}

impl Removal {
    async fn top(self: Rc<Self>, args: &RmArgs, path: &[u8]) -> Result<(), Errno> {
        let client = self.fs.client();
        if base(path).is_empty() && !path.is_empty() {
            return Err(Errno::Busy);
        }
        let (parent, name) = client.hold_parent(&self.fs.cred, path).await?;
        let entry = client.lookup(&self.fs.cred, &parent, &name).await?;
        let Some(dir) = entry.dir else {
            if path.ends_with(b"/") {
                return Err(Errno::NotDir);
            }
            return self.unlink(parent, name).await;
        };
        if args.recursive {
            self.tree(
                Doomed {
                    parent,
                    name,
                    dir,
                    path: path.to_vec(),
                },
                None,
            );
            return Ok(());
        }
        if !args.empty {
            return Err(Errno::IsDir);
        }
        self.rmdir(parent, name).await
    }

    fn count(&self, removed: u64) {
        self.removed.set(self.removed.get() + removed);
        self.progress.add(removed);
    }

    async fn unlink(&self, dir: Statement, name: Name) -> Result<(), Errno> {
        let op = Op::Unlink {
            dir,
            name,
            held: false,
        };
        self.fs.client().op(&self.fs.cred, op).await?;
        self.count(1);
        Ok(())
    }

    async fn rmdir(&self, dir: Statement, name: Name) -> Result<(), Errno> {
        self.fs
            .client()
            .op(&self.fs.cred, Op::Rmdir { dir, name })
            .await?;
        self.count(1);
        Ok(())
    }

    /// Removes a directory's entries, and when all are gone the directory.
    fn tree(self: &Rc<Self>, doomed: Doomed, above: Option<Rc<Join>>) {
        let me = self.clone();
        let (parent, name, path) = (doomed.parent, doomed.name, doomed.path.clone());
        let all = Join::new(&self.crew, above, move |ok| {
            Box::pin(async move {
                // What could not be removed was reported; the directory stays with it.
                if !ok {
                    return false;
                }
                let result = me.rmdir(parent, name).await;
                me.judge(&path, result)
            })
        });
        let me = self.clone();
        // What waits is small: what runs has a place of its own.
        self.crew.add(async move {
            let result = Box::pin(me.entries(doomed.dir, &doomed.path, &all)).await;
            let ok = me.judge(&doomed.path, result);
            all.done(ok);
        });
    }

    /// Removes what is in a directory, page by page: the next is read while this one goes.
    async fn entries(self: &Rc<Self>, dir: Statement, path: &[u8], all: &Rc<Join>) -> Result<(), Errno> {
        let mut pages = Pages::of(&self.fs, dir.clone(), false);
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                return Ok(());
            }
            let (dirs, files): (Vec<_>, Vec<_>) =
                page.into_iter().partition(|e| e.kind == FileKind::Directory);
            let deeper = !dirs.is_empty();
            for e in dirs {
                let path = below(path, e.name.as_bytes());
                let (me, dir, all) = (self.clone(), dir.clone(), all.clone());
                all.more();
                self.crew.add(async move {
                    let result = Box::pin(me.descend(dir, e.name, path.clone(), &all)).await;
                    let ok = me.judge(&path, result);
                    all.done(ok);
                });
            }
            let names: Vec<Name> = files.into_iter().map(|e| e.name).collect();
            let some = names.chunks(UNLINK_MAX);
            let gone: Vec<Removing<'_>> = some.map(|n| Box::pin(self.files(&dir, path, n)) as _).collect();
            if join_all(gone).await.contains(&false) {
                all.more();
                all.done(false);
            }
            if deeper {
                self.crew.room().await;
            }
        }
    }

    /// Removes files of one directory.
    async fn files(&self, dir: &Statement, path: &[u8], names: &[Name]) -> bool {
        let fates = self.fs.client().unlink_many(&self.fs.cred, dir, names).await;
        self.count(fates.iter().filter(|fate| fate.is_ok()).count() as u64);
        let mut ok = true;
        for (name, fate) in names.iter().zip(fates) {
            if fate.is_err() {
                ok &= self.judge(&below(path, name.as_bytes()), fate);
            }
        }
        ok
    }

    async fn descend(
        self: &Rc<Self>,
        parent: Statement,
        name: Name,
        path: Vec<u8>,
        all: &Rc<Join>,
    ) -> Result<(), Errno> {
        let entry = self.fs.client().lookup(&self.fs.cred, &parent, &name).await?;
        match entry.dir {
            Some(dir) => {
                let doomed = Doomed {
                    parent,
                    name,
                    dir,
                    path,
                };
                self.tree(doomed, Some(all.clone()));
                Ok(())
            }
            None => self.unlink(parent, name).await,
        }
    }

    /// Reports what did not work. What is gone already is as good as removed.
    fn judge(&self, path: &[u8], result: Result<(), Errno>) -> bool {
        match result {
            Ok(()) | Err(Errno::NotFound) => true,
            Err(e) => {
                self.fs.fail(path, e);
                false
            }
        }
    }
}
