//! `pando put`.

mod bulk;

use super::copy::{create, fill, set, settle, without_foreign_set_ids};
use super::{Fs, Why, absolute, base, below, usual};
use crate::crew::{Crew, Join};
use crate::progress::{Progress, Unit};
use anyhow::{Result, bail};
use bulk::BulkArg;
use pando_client::file::Place;
use pando_types::{Errno, Name, Perm, TimeChange, Timestamp};
use pando_wire::{Answer, EntryView, Op, Statement};
use serde_json::{Value, json};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Files copied at once.
const FILES: usize = 24;

/// Copy files from this machine into the filesystem, with permission bits and modification times.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando put notes.txt /home/me/          into a directory\n  pando put notes.txt /home/me/n.txt     under another name\n  pando put -r src include /project      directories with all that is in them\n  tar c . | pando put - /backup.tar      from a pipe"
)]
pub struct PutArgs {
    /// Directories too, with all that is in them.
    #[arg(short, short_alias = 'R', long)]
    pub recursive: bool,
    /// Whether directories that are made are filled by bulk insertion (with `--profile indexfs`).
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = BulkArg::Auto)]
    pub bulk: BulkArg,
    /// What to copy; `-` is standard input.
    #[arg(value_name = "LOCAL", required = true)]
    pub sources: Vec<OsString>,
    /// Where to.
    #[arg(value_name = "PATH")]
    pub target: OsString,
}

/// A copy under way.
struct Copy {
    fs: Rc<Fs>,
    crew: Rc<Crew>,
    progress: Rc<Progress>,
    files: Cell<u64>,
    bytes: Cell<u64>,
    /// Of the files, those that were inserted in bulk.
    inserted: Cell<u64>,
    bulk: Cell<BulkArg>,
}

pub fn run(fs: &Rc<Fs>, args: &PutArgs) -> Result<Value> {
    let target = absolute(&args.target);
    let into = fs.conn.run(fs.client().hold_path(&fs.cred, &target, true));
    let into = match into {
        Ok(found) => found.entry.dir,
        // A server that is away must not look like a missing target.
        Err(Errno::NotFound | Errno::NotDir) => None,
        Err(e) => {
            fs.fail(&target, e);
            return Ok(json!({}));
        }
    };
    if args.sources.len() > 1 && into.is_none() {
        bail!(
            "{} is not a directory; several files are copied into a directory (`pando mkdir` makes one)",
            crate::text::printable(&target)
        );
    }
    let progress = fs.show_progress(Progress::new("copied", Unit::Bytes, 0));
    let copy = Rc::new(Copy {
        fs: fs.clone(),
        crew: Crew::new(fs.world(), FILES),
        progress,
        files: Cell::new(0),
        bytes: Cell::new(0),
        inserted: Cell::new(0),
        bulk: Cell::new(args.bulk),
    });
    for source in &args.sources {
        if let Err(why) = fs.conn.run(copy.top(args, source, &target, into.clone())) {
            fs.fail(source.as_bytes(), why);
        }
    }
    fs.conn.run(copy.crew.finished());
    Ok(json!({ "files": copy.files.get(), "bytes": copy.bytes.get(), "inserted": copy.inserted.get() }))
}

fn mtime(m: &Metadata) -> Timestamp {
    Timestamp {
        secs: m.mtime(),
        nanos: m.mtime_nsec() as u32,
    }
}

fn perm(m: &Metadata) -> Perm {
    Perm::new((m.mode() & 0o7777) as u16)
}

/// The bits that a copy of a file gets, which is the caller's.
fn file_perm(fs: &Fs, m: &Metadata) -> Perm {
    without_foreign_set_ids(perm(m), (m.uid(), m.gid()), (fs.cred.uid, fs.cred.gid))
}

impl Copy {
    async fn top(
        self: &Rc<Self>,
        args: &PutArgs,
        source: &OsStr,
        target: &[u8],
        into: Option<Statement>,
    ) -> Result<(), Why> {
        let (fs, client) = (&self.fs, self.fs.client());
        if source == "-" {
            if into.is_some() {
                return Err("standard input has no name; say which file in the directory".into());
            }
            let (dir, name) = client.hold_parent(&fs.cred, target).await?;
            let mut file = create(fs, Place { dir, name }, usual(0o666)).await?;
            let now = fs.world().now();
            fill(fs, &mut file, &mut std::io::stdin().lock(), now, &|n| {
                self.moved(n)
            })
            .await?;
            self.count();
            return Ok(());
        }
        let local = PathBuf::from(source);
        // As cp does: a link on the command line is followed, unless whole trees are copied.
        let meta = if args.recursive {
            std::fs::symlink_metadata(&local)?
        } else {
            std::fs::metadata(&local)?
        };
        if meta.is_dir() && !args.recursive {
            return Err("is a directory; use -r to copy it with all that is in it".into());
        }
        let name = base(source.as_bytes());
        let (dir, name, path) = match into {
            // `put -r . /x` and `put -r .. /x`: the entries, not the directory.
            Some(dir) if name.is_empty() || name == b"." || name == b".." => {
                let all = self.whole(&local, None);
                self.entries(local, dir, target.to_vec(), all);
                return Ok(());
            }
            Some(dir) => (dir, Name::new(name)?, below(target, name)),
            None => {
                let (dir, name) = client.hold_parent(&fs.cred, target).await?;
                (dir, name, target.to_vec())
            }
        };
        let all = self.whole(&local, None);
        self.copy(local, meta, dir, name, path, &all).await?;
        all.done(true);
        Ok(())
    }

    /// The work of one top-level source: nothing to do at its end.
    fn whole(self: &Rc<Self>, _of: &Path, above: Option<Rc<Join>>) -> Rc<Join> {
        Join::new(&self.crew, above, |ok| Box::pin(async move { ok }))
    }

    fn moved(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
        self.progress.add(bytes);
    }

    fn count(&self) {
        self.files.set(self.files.get() + 1);
        self.progress.say(format!("{} files", self.files.get()));
    }

    async fn copy(
        self: &Rc<Self>,
        local: PathBuf,
        meta: Metadata,
        dir: Statement,
        name: Name,
        path: Vec<u8>,
        all: &Rc<Join>,
    ) -> Result<(), Why> {
        let place = Place { dir, name };
        let kind = meta.file_type();
        if kind.is_dir() {
            return self.directory(local, meta, place, path, all).await;
        }
        if kind.is_symlink() {
            return self.symlink(&local, &meta, place).await;
        }
        if !kind.is_file() {
            return Err("is neither file, directory nor symbolic link; others are not supported yet".into());
        }
        let fs = &self.fs;
        if meta.len() > u64::from(fs.client().map().inline_limit) {
            // Before there is a file that has none.
            fs.conn.blocks.is_there().map_err(|e| e.to_string())?;
        }
        let mut source = File::open(&local)?;
        let mut file = create(fs, place.clone(), file_perm(fs, &meta)).await?;
        fill(fs, &mut file, &mut source, mtime(&meta), &|n| self.moved(n)).await?;
        settle(fs, &place, &file.attr(), Some(file_perm(fs, &meta)), mtime(&meta)).await?;
        self.count();
        Ok(())
    }

    async fn symlink(&self, local: &Path, meta: &Metadata, place: Place) -> Result<(), Why> {
        let (fs, client) = (&self.fs, self.fs.client());
        let target = std::fs::read_link(local)?;
        let op = Op::Symlink {
            dir: place.dir.clone(),
            name: place.name.clone(),
            target: pando_format::codec::Blob(target.as_os_str().as_bytes().to_vec()),
        };
        let mut answer = client.op(&fs.cred, op.clone()).await;
        if answer == Err(Errno::Exists) {
            let old = Op::Unlink {
                dir: place.dir.clone(),
                name: place.name.clone(),
                held: false,
            };
            client.op(&fs.cred, old).await?;
            answer = client.op(&fs.cred, op).await;
        }
        let Answer::Entry(view) = answer? else {
            return Err(Errno::Io.into());
        };
        settle(fs, &place, &view.attr, None, mtime(meta)).await?;
        self.count();
        Ok(())
    }

    async fn directory(
        self: &Rc<Self>,
        local: PathBuf,
        meta: Metadata,
        place: Place,
        path: Vec<u8>,
        above: &Rc<Join>,
    ) -> Result<(), Why> {
        let (fs, client) = (&self.fs, self.fs.client());
        // Until it is filled its owner must be able to write in it.
        let op = Op::Mkdir {
            dir: place.dir.clone(),
            name: place.name.clone(),
            mode: Perm::new(perm(&meta).bits() | 0o700).into(),
        };
        let mut made = false;
        let view: EntryView = match client.op(&fs.cred, op).await {
            Ok(Answer::Entry(view)) => {
                made = true;
                view
            }
            Ok(_) => return Err(Errno::Io.into()),
            Err(Errno::Exists) => client.lookup(&fs.cred, &place.dir, &place.name).await?,
            Err(e) => return Err(e.into()),
        };
        let Some(dir) = view.dir.clone() else {
            return Err("exists and is not a directory; remove it first".into());
        };
        let (me, shown) = (self.clone(), path.clone());
        let all = Join::new(&self.crew, Some(above.clone()), move |ok| {
            Box::pin(async move {
                // The entries changed its time: only now can it be set.
                let change = pando_types::AttrChange {
                    perm: (perm(&meta) != view.attr.perm).then_some(perm(&meta)),
                    mtime: Some(TimeChange::To(mtime(&meta))),
                    ..pando_types::AttrChange::default()
                };
                let done = set(&me.fs, &place, &view.attr, change).await;
                me.judge(&shown, done.map(|_| ()).map_err(Why::from)) && ok
            })
        });
        self.count();
        match made {
            true => self.fill_new(local, dir, path, all),
            false => self.entries(local, dir, path, all),
        }
        Ok(())
    }

    /// Copies what is in a local directory.
    fn entries(self: &Rc<Self>, local: PathBuf, dir: Statement, path: Vec<u8>, all: Rc<Join>) {
        let me = self.clone();
        self.crew.add(async move {
            let result = me.each(&local, &dir, &path, &all).await;
            let ok = me.judge(local.as_os_str().as_bytes(), result);
            all.done(ok);
        });
    }

    async fn each(
        self: &Rc<Self>,
        local: &Path,
        dir: &Statement,
        path: &[u8],
        all: &Rc<Join>,
    ) -> Result<(), Why> {
        for entry in std::fs::read_dir(local)? {
            let entry = entry?;
            self.crew.room().await;
            let (local, name) = (entry.path(), entry.file_name());
            let (me, dir, path, all) = (
                self.clone(),
                dir.clone(),
                below(path, name.as_bytes()),
                all.clone(),
            );
            all.more();
            self.crew.add(async move {
                let result = me.entry(local.clone(), dir, &name, path, &all).await;
                let ok = me.judge(local.as_os_str().as_bytes(), result);
                all.done(ok);
            });
        }
        Ok(())
    }

    async fn entry(
        self: &Rc<Self>,
        local: PathBuf,
        dir: Statement,
        name: &OsStr,
        path: Vec<u8>,
        all: &Rc<Join>,
    ) -> Result<(), Why> {
        let meta = std::fs::symlink_metadata(&local)?;
        self.copy(local, meta, dir, Name::new(name.as_bytes())?, path, all)
            .await
    }

    fn judge(&self, path: &[u8], result: Result<(), Why>) -> bool {
        let ok = result.is_ok();
        if let Err(why) = result {
            self.fs.fail(path, why);
        }
        ok
    }
}
