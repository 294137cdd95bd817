//! `pando dump`: a tree as one stream, while it is in use. What is promised of changes meanwhile:
//! `docs/dump.md`.

use super::copy::{CHUNK, data_sync};
use super::{Fs, Why, absolute, below, lists};
use crate::cluster_dir::is_special;
use crate::progress::{Progress, Unit};
use anyhow::{Context, Result, bail};
use pando_client::Listing;
use pando_client::file::{self, OpenFile, Place};
use pando_data::{Blocks, FileKey, StoredBlock};
use pando_dump::{Begin, EXTENTS_MAX, End, Entry, StreamError, Writer};
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use pando_format::Layout;
use pando_types::{Access, Attr, Errno, FileKind, Name};
use pando_wire::{Answer, DirEntry, EntryView, Object, Op, Statement};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Files that are opened at once, before they are written one after the other.
const AHEAD: usize = 32;
/// Data up to this size are fetched ahead.
const SMALL: u64 = 256 << 10;

/// Write a tree to a file or a pipe, in tar's format with checks, while it is in use; `pando load` reads it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando dump -o all.pando                     the whole filesystem\n  pando dump /home | zstd > home.pando.zst    a subtree, compressed\n  pando dump --metadata-only | wc -c          names and attributes alone\n  tar tvf all.pando                           any tar can read it"
)]
pub struct DumpArgs {
    /// The directory.
    #[arg(value_name = "PATH", default_value = "/")]
    pub path: OsString,
    /// Where to: a file, which is there when it is whole. [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Leave out what is in files; their sizes stay.
    #[arg(long)]
    pub metadata_only: bool,
}

/// A directory that is being dumped.
struct Level<'a> {
    dir: Statement,
    path: Vec<u8>,
    listing: Listing<'a>,
    /// Of the page that was read last.
    subdirs: VecDeque<Name>,
}

/// What is to be written of a name, but for its path.
struct Found {
    entry: Entry,
    attr: Attr,
    body: Body,
}

enum Body {
    Here(Vec<u8>),
    There(OpenFile),
}

struct Dump<'a, W> {
    fs: &'a Rc<Fs>,
    writer: Writer<W>,
    progress: Rc<Progress>,
    metadata_only: bool,
    /// Where the first name of each file with several is in the stream.
    firsts: BTreeMap<u64, Vec<u8>>,
    entries: u64,
    /// What was there when it was listed, and gone or something else when it was its turn.
    changed: u64,
    sockets: u64,
}

pub fn run(fs: &Rc<Fs>, args: &DumpArgs) -> Result<Value> {
    match args.output.as_deref().filter(|o| *o != Path::new("-")) {
        None => {
            if fs.json {
                bail!("standard output is taken by --json; leave it out, or name a file (-o)");
            }
            if std::io::stdout().is_terminal() {
                bail!("a dump is not for terminals: say -o FILE, or pipe it somewhere");
            }
            Ok(to(fs, args, std::io::stdout().lock())?.1)
        }
        Some(path) if is_special(path) => {
            let open = OpenOptions::new().write(true).truncate(true).open(path);
            let file = open.with_context(|| format!("cannot write {}", path.display()))?;
            Ok(to(fs, args, file)?.1)
        }
        Some(path) => {
            let mut new = path.as_os_str().to_owned();
            new.push(".part");
            let new = PathBuf::from(new);
            let file = File::create(&new).with_context(|| format!("cannot write {}", new.display()))?;
            let written = to(fs, args, file).and_then(|(file, told)| {
                file.sync_all()?;
                std::fs::rename(&new, path)?;
                Ok(told)
            });
            if written.is_err() {
                let _ = std::fs::remove_file(&new);
            }
            written.with_context(|| format!("{} was not written", path.display()))
        }
    }
}

fn to<W: Write>(fs: &Rc<Fs>, args: &DumpArgs, to: W) -> Result<(W, Value)> {
    let begin = Begin {
        fs: format!("{:032x}", fs.client().map().fs.0),
        metadata_only: args.metadata_only,
    };
    let dump = Dump {
        fs,
        writer: Writer::new(BufWriter::with_capacity(CHUNK as usize, to), &begin)?,
        progress: fs.show_progress(Progress::new("dumped", Unit::Bytes, 0)),
        metadata_only: args.metadata_only,
        firsts: BTreeMap::new(),
        entries: 0,
        changed: 0,
        sockets: 0,
    };
    let path = absolute(&args.path);
    let (out, end, size, changed, sockets) = fs.conn.run(dump.all(&path))?;
    let out = out.into_inner().map_err(|e| e.into_error())?;
    let told = json!({
        "entries": end.entries, "bytes": end.bytes, "size": size, "changed": changed, "sockets": sockets,
        "metadata_only": args.metadata_only, "filesystem": begin.fs,
    });
    if !fs.json {
        fs.complain(&format!(
            "pando: dumped {} entries, {} bytes of data",
            end.entries, end.bytes
        ));
        if changed > 0 {
            fs.complain(&format!(
                "pando: {changed} names were removed or replaced while it was their turn, and are not in it"
            ));
        }
        if sockets > 0 {
            fs.complain(&format!(
                "pando: {sockets} sockets are left out: no archive holds them"
            ));
        }
    }
    Ok((out, told))
}

/// Whether somebody else was faster.
fn is_gone(e: Errno) -> bool {
    matches!(e, Errno::NotFound | Errno::Stale | Errno::NotDir)
}

impl<W: Write> Dump<'_, W> {
    async fn all(mut self, path: &[u8]) -> Result<(W, End, u64, u64, u64)> {
        let (client, cred) = (self.fs.client().clone(), self.fs.cred.clone());
        let top = client.hold_path(&cred, path, true).await;
        let top = top.with_context(|| format!("cannot dump {}", crate::text::printable(path)))?;
        let Some(dir) = top.entry.dir.clone() else {
            bail!(
                "{} is not a directory; `pando get` copies files",
                crate::text::printable(path)
            );
        };
        let attr = client.attr(&cred, &top.entry).await?;
        let (above, name) = client.place_of(&top).await?;
        let place = Place { dir: above, name };
        let mut it = found(attr);
        it.entry.xattrs = xattrs(self.fs, &place, &top.entry).await?;
        self.write(Vec::new(), it).await?;
        let level = |dir: Statement, path| Level {
            listing: client.list(&cred, dir.clone(), true),
            dir,
            path,
            subdirs: VecDeque::new(),
        };
        let mut levels = vec![level(dir, Vec::new())];
        while let Some(here) = levels.last_mut() {
            if let Some(name) = here.subdirs.pop_front() {
                let path = inside(&here.path, &name);
                match enter(self.fs, &here.dir, &name).await {
                    Ok((dir, it)) => {
                        self.write(path.clone(), it).await?;
                        levels.push(level(dir, path));
                    }
                    Err(e) if is_gone(e) => self.changed += 1,
                    Err(e) => self.fs.fail(&below(b"/", &path), e),
                }
                continue;
            }
            match here.listing.next_page().await {
                Ok(page) if page.is_empty() => drop(levels.pop()),
                Ok(page) => {
                    let (subdirs, others): (Vec<DirEntry>, Vec<DirEntry>) =
                        page.into_iter().partition(|e| e.kind == FileKind::Directory);
                    here.subdirs.extend(subdirs.into_iter().map(|e| e.name));
                    let (dir, path) = (here.dir.clone(), here.path.clone());
                    self.files(&dir, &path, others).await?;
                }
                Err(e) => {
                    if is_gone(e) {
                        self.changed += 1;
                    } else {
                        self.fs.fail(&below(b"/", &here.path), e);
                    }
                    levels.pop();
                }
            }
        }
        let size = self.writer.at();
        let (out, end) = self.writer.end()?;
        Ok((out, end, size, self.changed, self.sockets))
    }

    /// What is not a directory, of one page.
    async fn files(
        &mut self,
        dir: &Statement,
        path: &[u8],
        entries: Vec<DirEntry>,
    ) -> Result<(), StreamError> {
        let mut entries = VecDeque::from(entries);
        while !entries.is_empty() {
            let some: Vec<DirEntry> = entries.drain(..entries.len().min(AHEAD)).collect();
            let names: Vec<Name> = some.iter().map(|e| e.name.clone()).collect();
            let asked = some.into_iter().map(|e| -> LocalFuture<Result<Found, Why>> {
                let (fs, dir, data) = (self.fs.clone(), dir.clone(), !self.metadata_only);
                Box::pin(async move {
                    match look(&fs, dir.clone(), e.clone(), data).await {
                        Err(Why::Errno(Errno::Stale)) => look(&fs, again(&fs, &dir).await?, e, data).await,
                        other => other,
                    }
                })
            });
            for (name, found) in names.iter().zip(join_all(asked.collect()).await) {
                let path = inside(path, name);
                match found {
                    Ok(found) if found.entry.kind == FileKind::Socket => self.sockets += 1,
                    Ok(found) => self.write(path, found).await?,
                    Err(Why::Errno(e)) if is_gone(e) => self.changed += 1,
                    Err(why) => self.fs.fail(&below(b"/", &path), why),
                }
            }
        }
        Ok(())
    }

    async fn write(&mut self, path: Vec<u8>, found: Found) -> Result<(), StreamError> {
        let Found {
            mut entry,
            attr,
            body,
        } = found;
        entry.path.clone_from(&path);
        if entry.kind != FileKind::Directory && attr.nlink > 1 {
            if let Some(first) = self.firsts.get(&attr.ino.0) {
                let mut second = Entry::new(path, FileKind::Regular);
                (second.link, second.target) = (true, first.clone());
                (second.ino, second.nlink) = (entry.ino, entry.nlink);
                (second.perm, second.uid, second.gid) = (entry.perm, entry.uid, entry.gid);
                (second.mtime, second.atime) = (entry.mtime, entry.atime);
                return self.count(&second);
            }
            self.firsts.insert(attr.ino.0, path.clone());
        }
        self.count(&entry)?;
        match body {
            Body::Here(bytes) if bytes.is_empty() => Ok(()),
            Body::Here(bytes) => self.data(&bytes),
            Body::There(file) => self.large(&path, &entry, &file).await,
        }
    }

    fn count(&mut self, entry: &Entry) -> Result<(), StreamError> {
        self.writer.entry(entry)?;
        self.entries += 1;
        self.progress.say(format!("{} entries", self.entries));
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        self.progress.add(bytes.len() as u64);
        self.writer.data(bytes)
    }

    /// Data that are fetched piece by piece. As many as were announced must follow, whatever comes.
    async fn large(&mut self, path: &[u8], entry: &Entry, file: &OpenFile) -> Result<(), StreamError> {
        let mut whole = true;
        for (at, len) in &entry.extents {
            let mut done = 0;
            while done < *len {
                let wanted = u64::from(CHUNK).min(len - done);
                let read = match whole {
                    true => file.read(&*self.fs.conn.blocks, at + done, wanted as u32).await,
                    false => Ok(Vec::new()),
                };
                let mut bytes = read.unwrap_or_else(|e| {
                    whole = false;
                    let why = format!("{e}; from byte {} on there are zeros in the dump", at + done);
                    self.fs.fail(&below(b"/", path), why);
                    Vec::new()
                });
                bytes.resize(wanted as usize, 0);
                self.data(&bytes)?;
                done += wanted;
            }
        }
        if whole && !is_there(self.fs, file).await {
            let why = "it was removed or replaced while it was read; there may be zeros in the dump where it had data";
            self.fs.fail(&below(b"/", path), why);
        }
        Ok(())
    }
}

/// Whether a file is still under its name. The blocks of one that is not may be gone, and read as zeros.
async fn is_there(fs: &Fs, file: &OpenFile) -> bool {
    let Place { dir, name } = file.location().get();
    let key = file.key();
    let found = fs.client().lookup(&fs.cred, &dir, &name).await;
    found.is_ok_and(|v| (v.attr.ino, v.attr.generation) == (key.ino, key.generation))
}

/// A path in the stream, one further down.
fn inside(path: &[u8], name: &Name) -> Vec<u8> {
    match path {
        [] => name.as_bytes().to_vec(),
        _ => below(path, name.as_bytes()),
    }
}

/// A directory that is still there, if what was known of it is not true any more: its permissions have
/// changed.
async fn again(fs: &Fs, dir: &Statement) -> Result<Statement, Errno> {
    fs.client().reopen(dir).await?.dir.ok_or(Errno::NotDir)
}

/// A directory, held, and all its attributes.
async fn enter(fs: &Fs, above: &Statement, name: &Name) -> Result<(Statement, Found), Errno> {
    let client = fs.client();
    let mut place = Place {
        dir: above.clone(),
        name: name.clone(),
    };
    let view = match client.lookup(&fs.cred, above, name).await {
        Err(Errno::Stale) => {
            place.dir = again(fs, above).await?;
            client.lookup(&fs.cred, &place.dir, name).await?
        }
        other => other?,
    };
    let mut it = found(client.attr(&fs.cred, &view).await?);
    it.entry.xattrs = xattrs(fs, &place, &view).await?;
    let dir = view.dir.ok_or(Errno::NotDir)?;
    Ok((client.hold(&dir).await?, it))
}

/// The extended attributes of what a name stands for, as far as the caller may see them, and its access
/// control lists.
async fn xattrs(fs: &Fs, place: &Place, view: &EntryView) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Errno> {
    let mut all = lists::attributes(view);
    if !view.xattrs {
        return Ok(all);
    }
    let (ino, generation) = (view.attr.ino, view.attr.generation);
    let (dir, name) = (place.dir.clone(), place.name.clone());
    let list = Op::ListXattr {
        object: Object {
            dir: dir.clone(),
            name: name.clone(),
            ino,
            generation,
        },
    };
    let Answer::Names(names) = fs.client().op(&fs.cred, list).await? else {
        return Err(Errno::Io);
    };
    for attr in names {
        let get = Op::GetXattr {
            object: Object {
                dir: dir.clone(),
                name: name.clone(),
                ino,
                generation,
            },
            attr: attr.clone(),
        };
        match fs.client().op(&fs.cred, get).await {
            Ok(Answer::Value(value)) => all.push((attr.as_bytes().to_vec(), value.0)),
            // Removed meanwhile, or not for this user to read.
            Err(Errno::NoData | Errno::Access | Errno::Perm) => {}
            Ok(_) => return Err(Errno::Io),
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// An entry without data.
fn found(attr: Attr) -> Found {
    let mut entry = Entry::new(Vec::new(), attr.kind);
    entry.perm = attr.perm.bits();
    (entry.uid, entry.gid) = (attr.uid, attr.gid);
    (entry.atime, entry.mtime) = (attr.atime, attr.mtime);
    (entry.ino, entry.nlink) = (attr.ino.0, attr.nlink);
    if matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice) {
        entry.device = (rustix::fs::major(attr.rdev), rustix::fs::minor(attr.rdev));
    }
    Found {
        entry,
        attr,
        body: Body::Here(Vec::new()),
    }
}

/// What a name stands for, with its data if there are few.
async fn look(fs: &Fs, dir: Statement, listed: DirEntry, data: bool) -> Result<Found, Why> {
    let view: EntryView = *listed.view.ok_or(Errno::Access)?;
    let name = listed.name;
    let place = Place { dir, name };
    let mut found = match view.attr.kind {
        FileKind::Regular if data => read(fs, place.clone()).await?,
        FileKind::Regular => {
            let mut found = found(view.attr);
            found.entry.size = view.attr.size;
            found.entry.has_data = false;
            found
        }
        FileKind::Symlink => {
            let mut found = found(view.attr);
            found.entry.target = super::stat::target(fs, &place.dir, place.name.as_bytes(), &view).await?;
            found
        }
        _ => found(view.attr),
    };
    found.entry.xattrs = xattrs(fs, &place, &view).await?;
    Ok(found)
}

async fn read(fs: &Fs, place: Place) -> Result<Found, Why> {
    let opened = file::open(&**fs.client(), &fs.cred, &place, Access::READ).await?;
    let (attr, layout) = (opened.entry.attr, opened.entry.layout.clone());
    let mut found = found(attr);
    found.entry.size = attr.size;
    found.entry.extents = match (&opened.entry.layout, &opened.data) {
        (Layout::Inline | Layout::SparseInline(_), Some(bytes)) => {
            match attr.size.min(bytes.0.len() as u64) {
                0 => Vec::new(),
                len => vec![(0, len)],
            }
        }
        (layout, _) => match layout.block_size() {
            Some(size) => extents(fs, &attr, u64::from(size)).await?,
            None => Vec::new(),
        },
    };
    let small = found.entry.stored() <= SMALL;
    let file = OpenFile::new(place, opened, data_sync(&fs.conn.file))?;
    found.body = if small {
        let mut bytes = Vec::new();
        for (at, len) in &found.entry.extents {
            let from = bytes.len();
            bytes.extend(file.read(&*fs.conn.blocks, *at, *len as u32).await?);
            bytes.resize(from + *len as usize, 0);
        }
        if layout.block_size().is_some() && !is_there(fs, &file).await {
            return Err(Errno::NotFound.into());
        }
        Body::Here(bytes)
    } else {
        Body::There(file)
    };
    Ok(found)
}

/// Where a large file has blocks.
async fn extents(fs: &Fs, attr: &Attr, block: u64) -> Result<Vec<(u64, u64)>, Why> {
    let block = block.max(1);
    let key = FileKey {
        ino: attr.ino,
        generation: attr.generation,
    };
    let there = fs.conn.blocks.stored(key, 0, attr.size.div_ceil(block)).await;
    let mut all: Vec<(u64, u64)> = Vec::new();
    for StoredBlock { number, bytes } in there.map_err(|e| e.to_string())? {
        let at = number * block;
        let len = block.min(attr.size - at).min(bytes.into());
        match all.last_mut() {
            _ if len == 0 => {}
            Some((start, end)) if *start + *end == at => *end += len,
            _ => all.push((at, len)),
        }
    }
    // More than a dump may name: the smallest holes between them become zeros.
    let mut hole = block;
    while all.len() > EXTENTS_MAX {
        all.dedup_by(|next, last| {
            let join = next.0 - (last.0 + last.1) <= hole;
            if join {
                last.1 = next.0 + next.1 - last.0;
            }
            join
        });
        hole = hole.saturating_mul(2);
    }
    Ok(all)
}
