//! `pando du`.

use super::pages::Pages;
use super::{Fs, WALKERS, absolute, below};
use crate::crew::{Crew, Join};
use crate::progress::{Progress, Unit};
use crate::text;
use anyhow::Result;
use pando_types::{Errno, FileKind, Generation, Ino};
use pando_wire::{EntryView, Statement};
use serde_json::{Map, Value, json};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::rc::Rc;

/// Add up what is stored of files, directory by directory.
///
/// Holes are not stored and do not count.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  pando du -sH /projects\n  pando du -d 1 /")]
pub struct DuArgs {
    /// Only the sum of each PATH.
    #[arg(short, long, conflicts_with = "depth")]
    pub summarize: bool,
    /// Only directories down to this level.
    #[arg(short, long, value_name = "DEPTH")]
    pub depth: Option<u32>,
    /// Sizes as 4.0K, 12M.
    #[arg(short = 'H', long = "human")]
    pub human: bool,
    /// Of what.
    #[arg(value_name = "PATH", default_value = "/")]
    pub paths: Vec<OsString>,
}

/// A sum.
#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    files: u64,
    dirs: u64,
}

struct Walk {
    fs: Rc<Fs>,
    crew: Rc<Crew>,
    progress: Rc<Progress>,
    depth: u32,
    lines: RefCell<Vec<(Vec<u8>, Sum)>>,
    /// Files with several names that were met.
    counted: RefCell<BTreeSet<(Ino, Generation)>>,
}

pub fn run(fs: &Rc<Fs>, args: &DuArgs) -> Result<Value> {
    let progress = fs.show_progress(Progress::new("looked at", Unit::Items, 0));
    let walk = Rc::new(Walk {
        fs: fs.clone(),
        crew: Crew::new(fs.world(), WALKERS),
        progress: progress.clone(),
        depth: if args.summarize {
            0
        } else {
            args.depth.unwrap_or(u32::MAX)
        },
        lines: RefCell::default(),
        counted: RefCell::default(),
    });
    let mut all = Vec::new();
    for path in &args.paths {
        let path = absolute(path);
        match fs.conn.run(fs.client().hold_path(&fs.cred, &path, false)) {
            Ok(found) => {
                let sum = Rc::new(Cell::new(Sum::default()));
                walk.entry(found.entry, path, 0, sum, None);
                fs.conn.run(walk.crew.finished());
            }
            Err(e) => fs.fail(&path, e),
        }
        let mut lines = walk.lines.take();
        lines.sort_by(|(a, _), (b, _)| order(a, b));
        for (path, sum) in lines {
            if fs.json {
                let mut object = Map::new();
                text::put_bytes(&mut object, "path", &path);
                object.insert("bytes".into(), sum.bytes.into());
                object.insert("files".into(), sum.files.into());
                object.insert("directories".into(), sum.dirs.into());
                all.push(Value::Object(object));
            } else {
                let size = if args.human {
                    text::human(sum.bytes)
                } else {
                    sum.bytes.to_string()
                };
                super::print(format!("{size}\t{}\n", text::printable(&path)).as_bytes())?;
            }
        }
    }
    Ok(json!({ "sums": all }))
}

/// As du prints: a directory after what is in it.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    let parts = |p| <[u8]>::split(p, |b| *b == b'/').filter(|c| !c.is_empty());
    let (mut a, mut b) = (parts(a), parts(b));
    loop {
        match (a.next(), b.next()) {
            (Some(x), Some(y)) if x == y => {}
            (Some(x), Some(y)) => return x.cmp(y),
            (Some(_), None) => return Ordering::Less,
            (None, Some(_)) => return Ordering::Greater,
            (None, None) => return Ordering::Equal,
        }
    }
}

fn add(to: &Cell<Sum>, more: Sum) {
    let sum = to.get();
    to.set(Sum {
        bytes: sum.bytes + more.bytes,
        files: sum.files + more.files,
        dirs: sum.dirs + more.dirs,
    });
}

impl Walk {
    /// Adds what was asked for, or a directory, to a sum: at once, or when all that is below it is added.
    fn entry(
        self: &Rc<Self>,
        view: EntryView,
        path: Vec<u8>,
        level: u32,
        above: Rc<Cell<Sum>>,
        join: Option<Rc<Join>>,
    ) {
        let Some(dir) = view.dir else {
            let one = self.file(&view, &above);
            self.lines.borrow_mut().push((path, one));
            return;
        };
        self.progress.add(1);
        let sum = Rc::new(Cell::new(Sum {
            dirs: 1,
            ..Sum::default()
        }));
        let (me, mine, shown) = (self.clone(), sum.clone(), path.clone());
        let all = Join::new(&self.crew, join, move |ok| {
            add(&above, mine.get());
            if level <= me.depth {
                me.lines.borrow_mut().push((shown, mine.get()));
            }
            Box::pin(std::future::ready(ok))
        });
        let me = self.clone();
        self.crew.add(async move {
            let result = Box::pin(me.each(dir, &path, level, &sum, &all)).await;
            let ok = result.is_ok();
            if let Err(e) = result {
                me.fs.fail(&path, e);
            }
            all.done(ok);
        });
    }

    /// Adds what is not a directory.
    fn file(&self, view: &EntryView, above: &Cell<Sum>) -> Sum {
        self.progress.add(1);
        let attr = &view.attr;
        // Of a file with several names each is a name, and the bytes are there once.
        let again = attr.nlink > 1 && !self.counted.borrow_mut().insert((attr.ino, attr.generation));
        let bytes = match attr.kind {
            FileKind::Regular if !again => attr.allocated,
            _ => 0,
        };
        let one = Sum {
            bytes,
            files: 1,
            dirs: 0,
        };
        add(above, one);
        one
    }

    async fn each(
        self: &Rc<Self>,
        dir: Statement,
        path: &[u8],
        level: u32,
        sum: &Rc<Cell<Sum>>,
        all: &Rc<Join>,
    ) -> Result<(), Errno> {
        let mut pages = Pages::of(&self.fs, dir, true);
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                return Ok(());
            }
            let mut deeper = false;
            for e in page {
                // A directory that may be listed and not searched shows names only.
                let view = e.view.ok_or(Errno::Access)?;
                if view.dir.is_some() {
                    deeper = true;
                    let path = below(path, e.name.as_bytes());
                    self.entry(*view, path, level + 1, sum.clone(), Some(all.clone()));
                } else {
                    self.file(&view, sum);
                }
            }
            if deeper {
                self.crew.room().await;
            }
        }
    }
}
