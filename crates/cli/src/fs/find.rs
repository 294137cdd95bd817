//! `pando find`.

mod glob;
mod wanted;

use super::pages::Pages;
use super::{Fs, WALKERS, absolute, base, below, print};
use crate::crew::Crew;
use crate::progress::{Progress, Unit};
use crate::text;
use anyhow::Result;
use pando_types::{Attr, Errno, FileKind};
use pando_wire::{EntryView, Statement};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::rc::Rc;
use wanted::{Age, Size, Wanted};

/// What is printed is gathered up to so many bytes.
const GATHERED: usize = 64 * 1024;

/// Look for files in whole trees, many directories at once.
///
/// What is found must pass all tests. It is printed as it is found, in no order. Symlinks are not followed.
/// Options may be written as find(1) has them, with one dash.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando find /projects -name '*.rs' -type f\n  pando find / --size +1G --mtime +30\n  pando find /a -maxdepth 1 -print0 | xargs -0 ..."
)]
pub struct FindArgs {
    /// The name, without the directory: `*` any text, `?` a character, `[a-z]` one of these.
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub name: Option<OsString>,
    /// Of one of these kinds, separated by commas: f file, d directory, l symlink, p FIFO, s socket, b and c
    /// devices.
    #[arg(long = "type", value_name = "KINDS", value_delimiter = ',', value_parser = wanted::kind)]
    pub kinds: Vec<FileKind>,
    /// So large: a number and c (bytes), k, M, G, T, or b (512 bytes), which it is without; rounded up. +N:
    /// larger, -N: smaller.
    #[arg(long, value_name = "[+-]N[ckMGTb]", allow_hyphen_values = true)]
    pub size: Option<Size>,
    /// Changed so many whole days ago. +N: longer ago, -N: not so long.
    #[arg(long, value_name = "[+-]DAYS", allow_hyphen_values = true)]
    pub mtime: Option<Age>,
    /// Not what is more than so many levels below PATH.
    #[arg(long, value_name = "LEVELS")]
    pub maxdepth: Option<u32>,
    /// Not what is less than so many levels below PATH.
    #[arg(long, value_name = "LEVELS", default_value_t = 0)]
    pub mindepth: u32,
    /// A zero byte after each path instead of a new line.
    #[arg(long)]
    pub print0: bool,
    /// Where.
    #[arg(value_name = "PATH", default_value = "/")]
    pub paths: Vec<OsString>,
}

/// Options that may be written with one dash, and whether a value follows.
const WORDS: [(&str, bool); 7] = [
    ("-name", true),
    ("-type", true),
    ("-size", true),
    ("-mtime", true),
    ("-maxdepth", true),
    ("-mindepth", true),
    ("-print0", false),
];

/// The command line, with find's options as all others have theirs.
pub fn as_options(line: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut out, mut here, mut value) = (Vec::new(), false, false);
    for word in line {
        let known = WORDS.iter().find(|(known, _)| here && !value && word == *known);
        value = known.is_some_and(|(_, value)| *value);
        here |= word == "find";
        match known {
            Some((known, _)) => out.push(format!("-{known}").into()),
            None => out.push(word),
        }
    }
    out
}

struct Search {
    fs: Rc<Fs>,
    crew: Rc<Crew>,
    progress: Rc<Progress>,
    wanted: Wanted,
    mindepth: u32,
    maxdepth: u32,
    end: u8,
    /// A terminal is not to be steered by names.
    terminal: bool,
    out: RefCell<Vec<u8>>,
    found: RefCell<Vec<Value>>,
}

pub fn run(fs: &Rc<Fs>, args: &FindArgs) -> Result<Value> {
    let search = Rc::new(Search {
        fs: fs.clone(),
        crew: Crew::new(fs.world(), WALKERS),
        progress: fs.show_progress(Progress::new("looked at", Unit::Items, 0)),
        wanted: Wanted::of(args, fs.world().now()),
        mindepth: args.mindepth,
        maxdepth: args.maxdepth.unwrap_or(u32::MAX),
        end: if args.print0 { 0 } else { b'\n' },
        terminal: !args.print0 && std::io::stdout().is_terminal(),
        out: RefCell::default(),
        found: RefCell::default(),
    });
    for path in &args.paths {
        let path = absolute(path);
        match fs.conn.run(fs.client().hold_path(&fs.cred, &path, false)) {
            Ok(found) => search.top(found.entry, path),
            Err(e) => fs.fail(&path, e),
        }
        fs.conn.run(search.crew.finished());
        search.flush()?;
    }
    Ok(json!({ "found": search.found.take() }))
}

impl Search {
    fn top(self: &Rc<Self>, view: EntryView, path: Vec<u8>) {
        let name = match base(&path) {
            b"" => b"/".to_vec(),
            name => name.to_vec(),
        };
        if view.dir.is_some() {
            self.directory(view, name, path, 0);
        } else {
            self.progress.add(1);
            self.judge(&name, view.attr.kind, Some(&view.attr), 0, || path.clone());
        }
    }

    /// Looks at a directory and what is below it.
    fn directory(self: &Rc<Self>, view: EntryView, name: Vec<u8>, path: Vec<u8>, level: u32) {
        self.progress.add(1);
        let me = self.clone();
        // What waits is small: what runs has a place of its own.
        self.crew.add(async move {
            if let Err(e) = Box::pin(me.descend(view, &name, &path, level)).await
                && e != Errno::NotFound
            {
                me.fs.fail(&path, e);
            }
        });
    }

    async fn descend(
        self: &Rc<Self>,
        view: EntryView,
        name: &[u8],
        path: &[u8],
        level: u32,
    ) -> Result<(), Errno> {
        let mut attr = None;
        if (self.fs.json || self.wanted.need_attributes()) && self.wanted.may_be(name, FileKind::Directory) {
            attr = Some(self.fs.client().attr(&self.fs.cred, &view).await?);
        }
        self.judge(name, FileKind::Directory, attr.as_ref(), level, || path.to_vec());
        match view.dir {
            Some(dir) if level < self.maxdepth => self.each(dir, path, level + 1).await,
            _ => Ok(()),
        }
    }

    async fn each(self: &Rc<Self>, dir: Statement, path: &[u8], level: u32) -> Result<(), Errno> {
        let mut pages = Pages::of(&self.fs, dir, true);
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                return Ok(());
            }
            let mut deeper = false;
            for e in page {
                let name = e.name.as_bytes();
                let unknown = e.view.is_none() && self.wanted.need_attributes();
                match e.view {
                    // A directory that may be listed and not searched shows names only.
                    None if e.kind == FileKind::Directory || unknown => {
                        self.fs.fail(&below(path, name), Errno::Access);
                    }
                    Some(view) if e.kind == FileKind::Directory => {
                        deeper = true;
                        self.directory(*view, name.to_vec(), below(path, name), level);
                    }
                    view => {
                        self.progress.add(1);
                        let attr = view.map(|v| v.attr);
                        self.judge(name, e.kind, attr.as_ref(), level, || below(path, name));
                    }
                }
            }
            self.flush_if(GATHERED)?;
            if deeper {
                self.crew.room().await;
            }
        }
    }

    /// Shows what passes all tests.
    fn judge(
        &self,
        name: &[u8],
        kind: FileKind,
        attr: Option<&Attr>,
        level: u32,
        path: impl FnOnce() -> Vec<u8>,
    ) {
        if level < self.mindepth || !self.wanted.may_be(name, kind) || !self.wanted.passes(attr) {
            return;
        }
        let path = path();
        if self.fs.json {
            let mut object = Map::new();
            text::put_bytes(&mut object, "path", &path);
            match attr {
                Some(attr) => object.extend(text::attr_json(attr)),
                None => _ = object.insert("kind".into(), text::kind_word(kind).into()),
            }
            self.found.borrow_mut().push(Value::Object(object));
            return;
        }
        let mut out = self.out.borrow_mut();
        if self.terminal {
            out.extend_from_slice(text::printable(&path).as_bytes());
        } else {
            out.extend_from_slice(&path);
        }
        out.push(self.end);
    }

    fn flush_if(&self, most: usize) -> Result<(), Errno> {
        if self.out.borrow().len() < most {
            return Ok(());
        }
        self.flush().map_err(|_| Errno::Io)
    }

    fn flush(&self) -> Result<()> {
        let out = self.out.take();
        print(&out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_dash_is_as_good_as_two() {
        let line = |words: &str| -> Vec<OsString> {
            as_options(words.split(' ').map(OsString::from))
                .into_iter()
                .collect()
        };
        let same = |one: &str, two: &str| {
            let two: Vec<OsString> = two.split(' ').map(OsString::from).collect();
            assert_eq!(line(one), two);
        };
        same(
            "pando find / -name -type -type f -print0",
            "pando find / --name -type --type f --print0",
        );
        same("pando find -size -10k", "pando find --size -10k");
        same("pando rm -name", "pando rm -name");
    }
}
