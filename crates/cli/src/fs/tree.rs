//! `pando tree`.

use super::{Fs, absolute, below};
use crate::text;
use anyhow::Result;
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use pando_types::{Errno, FileKind};
use pando_wire::{EntryView, Statement};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::rc::Rc;

/// Directories read at once.
const AHEAD: usize = 16;

/// Show a directory and what is below it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  pando tree\n  pando tree -L 2 -d /projects")]
pub struct TreeArgs {
    /// Only so many levels.
    #[arg(short = 'L', long = "level", value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(1..))]
    pub level: Option<u32>,
    /// Also names that begin with a dot.
    #[arg(short, long)]
    pub all: bool,
    /// Directories only.
    #[arg(short, long)]
    pub directories: bool,
    /// Of what.
    #[arg(value_name = "PATH", default_value = "/")]
    pub paths: Vec<OsString>,
}

struct Entry {
    name: Vec<u8>,
    view: EntryView,
}

/// What is in a directory, sorted; or why that is not known.
type Content = Result<Vec<Entry>, Errno>;

#[derive(Default)]
struct Counts {
    dirs: u64,
    files: u64,
}

pub fn run(fs: &Rc<Fs>, args: &TreeArgs) -> Result<Value> {
    let mut roots = Vec::new();
    for path in &args.paths {
        let path = absolute(path);
        let found = fs.conn.run(fs.client().hold_path(&fs.cred, &path, true));
        let dir = match found {
            Ok(found) => match found.entry.dir {
                Some(dir) => dir,
                None => {
                    fs.fail(&path, Errno::NotDir);
                    continue;
                }
            },
            Err(e) => {
                fs.fail(&path, e);
                continue;
            }
        };
        let content = fs.conn.run(list(fs.clone(), dir, args.all, args.directories));
        let mut counts = Counts::default();
        if !fs.json {
            super::print(format!("{}\n", text::printable(&path)).as_bytes())?;
        }
        let children = show(fs, args, &path, content, "", 1, &mut counts)?;
        if fs.json {
            let mut object = Map::new();
            text::put_bytes(&mut object, "path", &path);
            object.insert("directories".into(), counts.dirs.into());
            object.insert("files".into(), counts.files.into());
            object.insert("children".into(), children.into());
            roots.push(Value::Object(object));
        } else {
            let (dirs, files) = (counts.dirs, counts.files);
            super::print(format!("\n{dirs} directories, {files} files\n").as_bytes())?;
        }
    }
    Ok(json!({ "trees": roots }))
}

async fn list(fs: Rc<Fs>, dir: Statement, all: bool, only_dirs: bool) -> Content {
    let mut entries = Vec::new();
    let mut listing = fs.client().list(&fs.cred, dir, true);
    loop {
        let page = listing.next_page().await?;
        if page.is_empty() {
            break;
        }
        for e in page {
            let name = e.name.as_bytes().to_vec();
            let hidden = name.first() == Some(&b'.') && !all || only_dirs && e.kind != FileKind::Directory;
            if !hidden {
                // A directory that may be listed and not searched shows names only.
                let view = e.view.ok_or(Errno::Access)?;
                entries.push(Entry { name, view: *view });
            }
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Shows the content of one directory and what is below; the directories in it are read some at a time, in
/// parallel.
fn show(
    fs: &Rc<Fs>,
    args: &TreeArgs,
    path: &[u8],
    content: Content,
    indent: &str,
    level: u32,
    counts: &mut Counts,
) -> Result<Vec<Value>> {
    let entries = match content {
        Ok(entries) => entries,
        Err(e) => {
            fs.fail(path, e);
            return Ok(Vec::new());
        }
    };
    let deeper = args.level.is_none_or(|l| level < l);
    let mut values = Vec::new();
    let total = entries.len();
    let mut at = 0;
    let mut entries = entries.into_iter().peekable();
    while entries.peek().is_some() {
        let group: Vec<Entry> = entries.by_ref().take(AHEAD).collect();
        let dirs = group.iter().filter_map(|e| e.view.dir.clone()).filter(|_| deeper);
        let lists: Vec<LocalFuture<Content>> = dirs
            .map(|d| -> LocalFuture<Content> { Box::pin(list(fs.clone(), d, args.all, args.directories)) })
            .collect();
        let mut contents = fs.conn.run(join_all(lists)).into_iter();
        for e in group {
            at += 1;
            let last = at == total;
            let is_dir = e.view.dir.is_some();
            *(if is_dir {
                &mut counts.dirs
            } else {
                &mut counts.files
            }) += 1;
            if !fs.json {
                let branch = if last { "└── " } else { "├── " };
                let target = match &e.view.layout {
                    pando_format::Layout::Target(t) => format!(" -> {}", text::printable(&t.0)),
                    _ => String::new(),
                };
                super::print(format!("{indent}{branch}{}{target}\n", text::printable(&e.name)).as_bytes())?;
            }
            let mut children = Vec::new();
            if is_dir && let Some(content) = contents.next() {
                let indent = format!("{indent}{}", if last { "    " } else { "│   " });
                let path = below(path, &e.name);
                children = show(fs, args, &path, content, &indent, level + 1, counts)?;
            }
            if fs.json {
                let mut object = Map::new();
                text::put_bytes(&mut object, "name", &e.name);
                object.insert("kind".into(), text::kind_word(e.view.attr.kind).into());
                if is_dir {
                    object.insert("children".into(), children.into());
                }
                values.push(Value::Object(object));
            }
        }
    }
    Ok(values)
}
