//! `pando ls`.

use super::pages::Pages;
use super::{CREW, Fs, absolute, base, print};
use crate::text::{self, Names};
use anyhow::Result;
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use pando_types::{Attr, Errno, FileKind};
use pando_wire::{EntryView, Statement};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::rc::Rc;

/// List directories, sorted by name, or with -U as they come.
///
/// Times are UTC.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  pando ls /\n  pando ls -l /home/me\n  pando ls -la --json / | jq .")]
pub struct LsArgs {
    /// Kind, permissions, names, owner, group, size, time.
    #[arg(short)]
    pub long: bool,
    /// Also names that begin with a dot.
    #[arg(short)]
    pub all: bool,
    /// One name a line.
    #[arg(short = '1')]
    pub one: bool,
    /// Not sorted, each page as it comes: for directories of any size.
    #[arg(short = 'U')]
    pub unsorted: bool,
    /// Directories themselves, not what is in them.
    #[arg(short)]
    pub directory: bool,
    /// Sizes as 4.0K, 12M.
    #[arg(short = 'H', long = "human")]
    pub human: bool,
    /// What to list.
    #[arg(value_name = "PATH", default_value = "/")]
    pub paths: Vec<OsString>,
}

/// One line. There may be millions.
struct Line {
    name: Box<[u8]>,
    ino: u64,
    attr: Option<Box<Attr>>,
    target: Option<Box<[u8]>>,
    kind: FileKind,
}

pub fn run(fs: &Rc<Fs>, args: &LsArgs) -> Result<Value> {
    let mut all = Vec::new();
    let mut shown = 0;
    let names = Names::load();
    for path in &args.paths {
        let path = absolute(path);
        let heading = args.paths.len() > 1 && !fs.json;
        if args.unsorted && heading {
            print(format!("{}:\n", text::printable(&path)).as_bytes())?;
        }
        match fs.conn.run(one(fs, args, &names, &path)) {
            Ok(lines) if fs.json => all.extend(lines.iter().map(|l| json(&path, l))),
            Ok(lines) => {
                if heading && !args.unsorted {
                    let gap = if shown > 0 { "\n" } else { "" };
                    print(format!("{gap}{}:\n", text::printable(&path)).as_bytes())?;
                }
                shown += 1;
                show(args, &names, &lines)?;
            }
            Err(e) => fs.fail(&path, e),
        }
    }
    Ok(json!({ "entries": all }))
}

async fn one(fs: &Rc<Fs>, args: &LsArgs, names: &Names, path: &[u8]) -> Result<Vec<Line>, Errno> {
    let found = fs.client().hold_path(&fs.cred, path, !args.directory).await?;
    if let Some(dir) = found.entry.dir.clone().filter(|_| !args.directory) {
        return list(fs, args, names, dir).await;
    }
    let name = if base(path).is_empty() { b"/" } else { base(path) };
    let whole = entry(fs.clone(), found.parent, name.into(), found.entry).await?;
    Ok(vec![whole])
}

async fn list(fs: &Rc<Fs>, args: &LsArgs, names: &Names, dir: Statement) -> Result<Vec<Line>, Errno> {
    let mut lines = Vec::new();
    let plus = args.long || fs.json;
    let mut pages = Pages::of(fs, dir.clone(), plus);
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            break;
        }
        let mut wanted: Vec<LocalFuture<Option<Line>>> = Vec::new();
        for e in page {
            if e.name.as_bytes().starts_with(b".") && !args.all {
                continue;
            }
            let name: Box<[u8]> = e.name.as_bytes().into();
            match e.view {
                Some(view) => {
                    let (fs, dir) = (fs.clone(), dir.clone());
                    // Gone meanwhile: not in the listing any more.
                    wanted.push(Box::pin(async move { entry(fs, dir, name, *view).await.ok() }));
                }
                None => lines.push(Line {
                    name,
                    kind: e.kind,
                    ino: e.ino.0,
                    attr: None,
                    target: None,
                }),
            }
        }
        while !wanted.is_empty() {
            let rest = wanted.split_off(wanted.len().min(CREW));
            lines.extend(join_all(wanted).await.into_iter().flatten());
            wanted = rest;
        }
        if args.unsorted && !fs.json {
            show(args, names, &lines).map_err(|_| Errno::Io)?;
            lines.clear();
        }
    }
    if !args.unsorted {
        lines.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }
    Ok(lines)
}

/// An entry with all its attributes: a directory's other half and a long symlink's target are asked for.
async fn entry(fs: Rc<Fs>, dir: Statement, name: Box<[u8]>, view: EntryView) -> Result<Line, Errno> {
    let attr = fs.client().attr(&fs.cred, &view).await?;
    let target = if attr.kind == FileKind::Symlink {
        let target = super::stat::target(&fs, &dir, &name, &view).await.ok();
        target.map(Vec::into_boxed_slice)
    } else {
        None
    };
    Ok(Line {
        name,
        kind: attr.kind,
        ino: attr.ino.0,
        attr: Some(Box::new(attr)),
        target,
    })
}

fn json(dir: &[u8], line: &Line) -> Value {
    let mut object = Map::new();
    text::put_bytes(&mut object, "name", &line.name);
    text::put_bytes(&mut object, "listed", dir);
    if let Some(attr) = line.attr.as_deref() {
        object.extend(text::attr_json(attr));
    } else {
        object.insert("kind".into(), text::kind_word(line.kind).into());
        object.insert("ino".into(), line.ino.into());
    }
    if let Some(target) = &line.target {
        text::put_bytes(&mut object, "target", target);
    }
    Value::Object(object)
}

fn show(args: &LsArgs, names: &Names, lines: &[Line]) -> Result<()> {
    let terminal = std::io::stdout().is_terminal();
    // Only a terminal needs protection; a pipe gets the bytes.
    let name = |n: &[u8]| {
        if terminal {
            text::printable(n).into_bytes()
        } else {
            n.to_vec()
        }
    };
    let mut out = Vec::new();
    if args.long {
        let size = |a: &Attr| {
            if args.human {
                text::human(a.size)
            } else {
                a.size.to_string()
            }
        };
        let fields: Vec<[String; 5]> = lines
            .iter()
            .filter_map(|l| l.attr.as_deref())
            .map(|a| {
                let (user, group) = (names.user(a.uid), names.group(a.gid));
                [text::mode(a), a.nlink.to_string(), user, group, size(a)]
            })
            .collect();
        let width = |i: usize| fields.iter().map(|f| f[i].len()).max().unwrap_or(0);
        let (links, users, groups, sizes) = (width(1), width(2), width(3), width(4));
        for (line, [mode, nlink, user, group, size]) in lines.iter().zip(&fields) {
            let time = line
                .attr
                .as_deref()
                .map(|a| text::time(a.mtime, false))
                .unwrap_or_default();
            out.extend_from_slice(
                format!("{mode} {nlink:>links$} {user:<users$} {group:<groups$} {size:>sizes$} {time} ")
                    .as_bytes(),
            );
            out.extend_from_slice(&name(&line.name));
            if let Some(target) = &line.target {
                out.extend_from_slice(b" -> ");
                out.extend_from_slice(&name(target));
            }
            out.push(b'\n');
        }
    } else if args.one || !terminal {
        for line in lines {
            out.extend_from_slice(&name(&line.name));
            out.push(b'\n');
        }
    } else {
        out = columns(lines).into_bytes();
    }
    print(&out)
}

/// As many columns as the terminal is wide, filled downwards.
fn columns(lines: &[Line]) -> String {
    let names: Vec<String> = lines.iter().map(|l| text::printable(&l.name)).collect();
    let widest = names.iter().map(|n| n.chars().count()).max().unwrap_or(0) + 2;
    let terminal =
        rustix::termios::tcgetwinsize(std::io::stdout()).map_or(80, |w| usize::from(w.ws_col).max(1));
    let across = (terminal / widest).max(1);
    let down = names.len().div_ceil(across);
    let mut out = String::new();
    for row in 0..down {
        let mut line = String::new();
        for name in names.iter().skip(row).step_by(down.max(1)) {
            line += name;
            line += &" ".repeat(widest - name.chars().count());
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}
