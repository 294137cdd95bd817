//! `pando load`: what `pando dump` wrote, into a directory.

mod make;
mod source;

use super::{Fs, absolute, below};
use crate::crew::{Crew, Join};
use crate::progress::{Progress, Unit};
use anyhow::{Context, Result, bail};
use make::{Filling, Whose, change_of};
use pando_client::Found;
use pando_client::file::Place;
use pando_dump::{End, Entry};
use pando_types::{Errno, FileKind, Name};
use pando_wire::Statement;
use serde_json::{Value, json};
use source::{Item, Source};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Files made at once.
const FILES: usize = 32;
/// Between two looks whether the stream has come further.
const LOOK: Duration = Duration::from_millis(1);

/// Make a tree of what `pando dump` wrote, with owners, permission bits and times.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Owners are kept if root loads. What a dump says is checked on the way: of damage nothing is loaded, and the message says where it is.\n\nExamples:\n  pando load all.pando                        into an empty filesystem\n  zstd -dc home.pando.zst | pando load --into /restored\n  pando load --continue all.pando             after an interruption"
)]
pub struct LoadArgs {
    /// What was dumped. [default: standard input]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The directory; it must be there.
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub into: OsString,
    /// Into a directory that is not empty: go on with an interrupted load. Files that are there with the same
    /// size, times, bits and owner are kept, other files and links of the same names are replaced,
    /// directories are filled.
    #[arg(long = "continue")]
    pub go_on: bool,
}

/// A directory that entries of the stream are made in.
struct Level {
    path: Vec<u8>,
    /// `None`: it could not be made, and what is in it is passed over.
    dir: Option<Statement>,
    join: Rc<Join>,
}

/// A load under way.
struct Load {
    fs: Rc<Fs>,
    crew: Rc<Crew>,
    progress: Rc<Progress>,
    /// As typed.
    into: Vec<u8>,
    go_on: bool,
    made: Cell<u64>,
    kept: Cell<u64>,
    passed: Cell<u64>,
    bytes: Cell<u64>,
    /// Paths of files with several names that are being made.
    under_way: RefCell<BTreeSet<Vec<u8>>>,
    /// Where those are that were made, or were there as they should be: nothing else gets another name.
    firsts: RefCell<BTreeMap<Vec<u8>, Place>>,
}

pub fn run(fs: &Rc<Fs>, args: &LoadArgs) -> Result<Value> {
    let source = Source::open(args.file.as_deref())?;
    let load = Rc::new(Load {
        fs: fs.clone(),
        crew: Crew::new(fs.world(), FILES),
        progress: fs.show_progress(Progress::new("loaded", Unit::Bytes, 0)),
        into: absolute(&args.into),
        go_on: args.go_on,
        made: Cell::default(),
        kept: Cell::default(),
        passed: Cell::default(),
        bytes: Cell::default(),
        under_way: RefCell::default(),
        firsts: RefCell::default(),
    });
    let end = fs.conn.run(load.all(source))?;
    let (made, kept, passed) = (load.made.get(), load.kept.get(), load.passed.get());
    if !fs.json {
        let kept = if kept > 0 {
            format!(", {kept} were there already")
        } else {
            String::new()
        };
        fs.complain(&format!(
            "pando: loaded {made} entries, {} bytes of data{kept}",
            load.bytes.get()
        ));
        if !fs.cred.is_root() {
            fs.complain("pando: everything is yours: owners are kept if root loads");
        }
    }
    Ok(json!({
        "entries": end.entries, "loaded": made, "kept": kept, "passed_over": passed, "bytes": load.bytes.get(),
    }))
}

impl Load {
    async fn all(self: &Rc<Self>, mut source: Source) -> Result<End> {
        let shown = crate::text::printable(&self.into);
        let (client, cred) = (self.fs.client(), &self.fs.cred);
        let top = client.hold_path(cred, &self.into, true).await;
        let top = top.with_context(|| format!("{shown} must be a directory; `pando mkdir` makes one"))?;
        let Some(dir) = top.entry.dir.clone() else {
            bail!("{shown} is not a directory");
        };
        if !self.go_on
            && !client
                .list(cred, dir.clone(), false)
                .next_page()
                .await?
                .is_empty()
        {
            bail!(
                "{shown} is not empty, and nothing was changed: say another --into, or --continue to go on with an interrupted load"
            );
        }
        let mut levels = Vec::new();
        let loaded = self.entries(&mut source, &top, &dir, &mut levels).await;
        while let Some(level) = levels.pop() {
            level.join.done(true);
        }
        self.crew.finished().await;
        loaded.map_err(|e| match self.made.get() {
            0 => e,
            made => e.context(format!(
                "{made} entries were loaded before; with a whole dump `pando load --continue` goes on"
            )),
        })
    }

    async fn entries(
        self: &Rc<Self>,
        source: &mut Source,
        top: &Found,
        dir: &Statement,
        levels: &mut Vec<Level>,
    ) -> Result<End> {
        loop {
            let (entry, data) = match self.next(source).await? {
                Item::Entry(entry, data) => (*entry, data),
                Item::End(end) => return Ok(end),
                Item::Data(_) | Item::Good => bail!("the dump has data of nothing"),
            };
            if levels.is_empty() {
                if !entry.path.is_empty() || entry.kind != FileKind::Directory {
                    bail!("the dump does not begin with its directory");
                }
                let (above, name) = self.fs.client().place_of(top).await?;
                let place = Place { dir: above, name };
                let join = self.join(None, place, top.entry.attr, entry);
                levels.push(Level {
                    path: Vec::new(),
                    dir: Some(dir.clone()),
                    join,
                });
                continue;
            }
            let (above, name) = match entry.path.iter().rposition(|b| *b == b'/') {
                Some(slash) => (&entry.path[..slash], &entry.path[slash + 1..]),
                None => (&entry.path[..0], entry.path.as_slice()),
            };
            while levels.last().is_some_and(|l| l.path != above) {
                if let Some(level) = levels.pop() {
                    level.join.done(true);
                }
            }
            let name = Name::new(name);
            let (Some(level), Ok(name)) = (levels.last(), name) else {
                bail!(
                    "{} is not in the directory that the dump is at",
                    pando_dump::Place(Some(entry.path))
                );
            };
            let Some(above) = level.dir.clone() else {
                self.passed.set(self.passed.get() + 1);
                let data = data.is_none() && entry.stored() > 0;
                if entry.kind == FileKind::Directory {
                    let (path, join) = (entry.path, self.plain(&level.join));
                    levels.push(Level {
                        path,
                        dir: None,
                        join,
                    });
                }
                self.pass_over(source, data).await?;
                continue;
            };
            let place = Place { dir: above, name };
            let join = level.join.clone();
            match (entry.kind, data) {
                (FileKind::Directory, _) => levels.push(self.directory(entry, place, &join).await),
                (FileKind::Regular, None) if entry.stored() > 0 => {
                    self.large(source, &entry, place).await?;
                }
                (_, data) => self.later(entry, place, data.unwrap_or_default(), &join).await,
            }
        }
    }

    /// What comes next. Others work meanwhile.
    async fn next(&self, source: &mut Source) -> Result<Item> {
        let world = self.fs.world();
        loop {
            match source.take() {
                Some(item) => return item,
                None => world.sleep(LOOK).await,
            }
        }
    }

    async fn pass_over(&self, source: &mut Source, data: bool) -> Result<()> {
        if !data {
            return Ok(());
        }
        loop {
            if let Item::Good = self.next(source).await? {
                return Ok(());
            }
        }
    }

    /// The work of a directory: when all in it is done its times and bits can be set.
    fn join(
        self: &Rc<Self>,
        above: Option<Rc<Join>>,
        place: Place,
        attr: pando_types::Attr,
        entry: Entry,
    ) -> Rc<Join> {
        let me = self.clone();
        Join::new(&self.crew, above, move |ok| {
            Box::pin(async move {
                if let Err(why) = make::attributes(&me.fs, &place, &entry, Whose::Users).await {
                    me.fail(&entry.path, why);
                }
                if let Err(why) = make::lists_before_bits(&me.fs, &place, &attr, &entry).await {
                    // Rather nobody's than everybody's.
                    me.fail(&entry.path, why);
                    return false;
                }
                let set = super::copy::set(&me.fs, &place, &attr, change_of(&me.fs, &entry)).await;
                if let Err(e) = set {
                    me.fail(&entry.path, e);
                }
                me.attributes(&place, &entry).await;
                ok
            })
        })
    }

    /// The same of a directory that is not there.
    fn plain(self: &Rc<Self>, above: &Rc<Join>) -> Rc<Join> {
        Join::new(&self.crew, Some(above.clone()), |ok| Box::pin(async move { ok }))
    }

    async fn directory(self: &Rc<Self>, entry: Entry, place: Place, above: &Rc<Join>) -> Level {
        let path = entry.path.clone();
        match make::directory(&self.fs, &place, self.go_on).await {
            Ok((dir, attr)) => {
                self.count();
                Level {
                    path,
                    dir: Some(dir),
                    join: self.join(Some(above.clone()), place, attr, entry),
                }
            }
            Err(why) => {
                self.fail(&path, why);
                let join = self.plain(above);
                Level {
                    path,
                    dir: None,
                    join,
                }
            }
        }
    }

    /// Makes what is small, with others at the same time.
    async fn later(self: &Rc<Self>, entry: Entry, place: Place, data: Vec<u8>, above: &Rc<Join>) {
        if entry.link {
            // The first of a file's names comes first in the stream, and may still be being made.
            while self.under_way.borrow().contains(&entry.target) {
                self.fs.world().sleep(LOOK).await;
            }
        } else if entry.nlink > 1 {
            self.under_way.borrow_mut().insert(entry.path.clone());
        }
        self.crew.room().await;
        above.more();
        let (me, above) = (self.clone(), above.clone());
        self.crew.add(async move {
            let made = if entry.link {
                let first = me.firsts.borrow().get(&entry.target).cloned();
                match first {
                    Some(first) => make::link(&me.fs, &first, &place, me.go_on).await,
                    None => {
                        let first = crate::text::printable(&entry.target);
                        Err(format!(
                            "is another name of {first}, which this dump has not, or which was not loaded"
                        )
                        .into())
                    }
                }
            } else {
                make::small(&me.fs, &place, &entry, &data, me.go_on).await
            };
            me.first_of(&entry, &place, made.is_ok());
            let ok = made.is_ok();
            match made {
                Ok(true) => {
                    me.moved(data.len() as u64);
                    if !entry.link {
                        me.attributes(&place, &entry).await;
                    }
                    me.count();
                }
                Ok(false) => {
                    // It may have been made just before an interruption.
                    if !entry.link {
                        me.attributes(&place, &entry).await;
                    }
                    me.kept.set(me.kept.get() + 1);
                }
                Err(why) => me.fail(&entry.path, why),
            }
            above.done(ok);
        });
    }

    /// A file whose data come piece by piece. They are nobody's before the stream has proved them.
    async fn large(&self, source: &mut Source, entry: &Entry, place: Place) -> Result<()> {
        let mut filling = match Filling::begin(&self.fs, place.clone(), entry, self.go_on).await {
            Ok(Some(filling)) => Ok(filling),
            Ok(None) => {
                self.attributes(&place, entry).await;
                self.first_of(entry, &place, true);
                self.kept.set(self.kept.get() + 1);
                return self.pass_over(source, true).await;
            }
            Err(why) => Err(why),
        };
        loop {
            match self.next(source).await {
                Ok(Item::Data(bytes)) => {
                    let written = match &mut filling {
                        Ok(filling) => filling.write(&self.fs, &bytes).await,
                        Err(_) => Ok(()),
                    };
                    match written {
                        Ok(()) => self.moved(bytes.len() as u64),
                        Err(why) => filling = Err(why),
                    }
                }
                Ok(_) => break,
                Err(e) => {
                    if let Ok(filling) = filling {
                        filling.give_up(&self.fs).await;
                    }
                    return Err(e);
                }
            }
        }
        let finished = match filling {
            Ok(filling) => filling.finish(&self.fs, entry).await,
            Err(why) => Err(why),
        };
        match finished {
            Ok(()) => {
                self.attributes(&place, entry).await;
                self.first_of(entry, &place, true);
                self.count();
            }
            Err(why) => self.fail(&entry.path, why),
        }
        Ok(())
    }

    /// A file that may get other names was made, or not.
    fn first_of(&self, entry: &Entry, place: &Place, made: bool) {
        self.under_way.borrow_mut().remove(&entry.path);
        if made && !entry.link && entry.nlink > 1 {
            self.firsts.borrow_mut().insert(entry.path.clone(), place.clone());
        }
    }

    async fn attributes(&self, place: &Place, entry: &Entry) {
        if let Err(why) = make::attributes(&self.fs, place, entry, Whose::Others).await {
            self.fail(&entry.path, why);
        }
    }

    fn fail(&self, path: &[u8], why: impl Into<super::Why>) {
        let path = if path.is_empty() {
            self.into.clone()
        } else {
            below(&self.into, path)
        };
        self.fs.fail(&path, why);
    }

    fn moved(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
        self.progress.add(bytes);
    }

    fn count(&self) {
        self.made.set(self.made.get() + 1);
        self.progress.say(format!("{} entries", self.made.get()));
    }
}

/// What somebody else has put there, in words.
fn in_the_way(e: Errno) -> super::Why {
    match e {
        Errno::Exists => "is there already; --continue replaces it".into(),
        e => e.into(),
    }
}
