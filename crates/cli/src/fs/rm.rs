//! `pando rm` and `pando rmdir`.

use super::{CREW, Fs, absolute, base, below, nothing};
use crate::crew::{Crew, Join};
use crate::progress::{Progress, Unit};
use anyhow::Result;
use pando_types::{Errno, FileKind, Name};
use pando_wire::{Op, Statement};
use serde_json::{Value, json};
use std::cell::Cell;
use std::ffi::OsString;
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

    fn count(&self) {
        self.removed.set(self.removed.get() + 1);
        self.progress.add(1);
    }

    async fn unlink(&self, dir: Statement, name: Name) -> Result<(), Errno> {
        let op = Op::Unlink {
            dir,
            name,
            held: false,
        };
        self.fs.client().op(&self.fs.cred, op).await?;
        self.count();
        Ok(())
    }

    async fn rmdir(&self, dir: Statement, name: Name) -> Result<(), Errno> {
        self.fs
            .client()
            .op(&self.fs.cred, Op::Rmdir { dir, name })
            .await?;
        self.count();
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
        self.crew.add(async move {
            let result = me.entries(doomed.dir, &doomed.path, &all).await;
            let ok = me.judge(&doomed.path, result);
            all.done(ok);
        });
    }

    async fn entries(self: &Rc<Self>, dir: Statement, path: &[u8], all: &Rc<Join>) -> Result<(), Errno> {
        let fs = self.fs.clone();
        let mut listing = fs.client().list(&fs.cred, dir.clone(), false);
        loop {
            self.crew.room().await;
            let page = listing.next_page().await?;
            if page.is_empty() {
                return Ok(());
            }
            for e in page {
                let path = below(path, e.name.as_bytes());
                let (me, dir, all) = (self.clone(), dir.clone(), all.clone());
                all.more();
                self.crew.add(async move {
                    let result = if e.kind == FileKind::Directory {
                        me.descend(dir, e.name, path.clone(), &all).await
                    } else {
                        me.unlink(dir, e.name).await
                    };
                    let ok = me.judge(&path, result);
                    all.done(ok);
                });
            }
        }
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
