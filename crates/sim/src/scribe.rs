//! Programs that read and write whole files through the client's data path, and know what must be in them.
//!
//! One program at a time writes a file; what it closed must be what anybody reads afterwards (close-to-open),
//! across crashes and power failures. A session that ends in an error, or with its process, leaves a file of
//! unknown content, which is given up. In `async` the same goes for every file when a power failure takes
//! something.

use crate::cluster::SlowBlocks;
use crate::knowledge::Knowledge;
use crate::violation::Kind;
use crate::workload::Workload;
use crate::world::{Life, MS};
use pando_client::Client;
use pando_client::file::{self, DataSync, OpenFile, Ops, Place};
use pando_env::Env;
use pando_env::rng::Rng;
use pando_store::Durability;
use pando_types::{Access, Cred, Errno, Generation, Name, Perm, Slot};
use pando_wire::{Answer, Op, Outcome, Statement};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Directories with names that begin like this are the scribes' own.
pub const PREFIX: &[u8] = b"data-";
const DIRS: u64 = 2;
const FILES: u64 = 4;
/// Files stay about this small, so that inline and block contents take turns.
const LONG: u64 = 1_600;

#[derive(Default)]
struct File {
    /// Raised when the file is given up, so that its successor has another name.
    edition: u64,
    /// Raised by every write session.
    round: u64,
    /// What the last session closed; `None`: unknown or not made yet.
    content: Option<Vec<u8>>,
    /// The process that writes.
    writer: Option<u64>,
}

/// What must be in the files.
#[derive(Default)]
pub struct Library {
    files: BTreeMap<(u64, u64), File>,
    /// The judge's epoch when the contents were last certain.
    epoch: u64,
    /// Write sessions that were closed.
    pub written: u64,
    /// Contents compared.
    pub compared: u64,
}

impl Library {
    /// The block store lost what was not synced: in `async` that may be what was closed.
    pub fn blocks_lost(&mut self) {
        self.epoch = u64::MAX;
    }
}

/// The client as the data path wants it, with every operation judged.
struct Judged<'a> {
    workload: &'a Workload,
    life: &'a Rc<Life>,
    client: &'a Client,
}

impl Ops for Judged<'_> {
    async fn op(&self, cred: &Cred, op: Op) -> Outcome {
        let mut own = Knowledge::new(2);
        let done = self.workload.op(self.life, self.client, cred, &mut own, op).await;
        done.unwrap_or(Err(Errno::Interrupted))
    }

    async fn sync_entry(&self, dir: &Statement, name: &Name) -> Result<(), Errno> {
        self.client.sync_entry(dir, name).await
    }

    async fn sync_dir(&self, dir: &Statement) -> Result<(), Errno> {
        self.client.sync_dir(dir).await
    }

    fn slot_of(&self, dir: &Statement, name: &Name) -> Slot {
        self.client.part_with(dir, name).slot()
    }

    fn inline_limit(&self) -> u32 {
        self.client.map().inline_limit
    }

    fn block_size(&self) -> u32 {
        self.client.map().block_size
    }
}

/// One scribe.
pub struct Scribe {
    workload: Rc<Workload>,
    life: Rc<Life>,
    client: Rc<Client>,
    library: Rc<RefCell<Library>>,
    blocks: SlowBlocks,
    cred: Cred,
    known: RefCell<BTreeMap<u64, Statement>>,
}

impl Scribe {
    /// On a client's process.
    pub fn new(workload: &Rc<Workload>, life: &Rc<Life>, client: &Rc<Client>) -> Scribe {
        Scribe {
            workload: workload.clone(),
            life: life.clone(),
            client: client.clone(),
            library: workload.library.clone(),
            blocks: SlowBlocks {
                inner: workload.cluster().blocks.clone(),
                life: life.clone(),
            },
            cred: Cred::root(),
            known: RefCell::default(),
        }
    }

    fn ops(&self) -> Judged<'_> {
        Judged {
            workload: &self.workload,
            life: &self.life,
            client: &self.client,
        }
    }

    /// One session with one file.
    pub async fn session(&self, rng: &mut Rng) {
        let at = (rng.below(DIRS), rng.below(FILES));
        let Some(dir) = self.directory(rng, at.0).await else {
            return self.life.sleep(Duration::from_millis(2)).await;
        };
        if rng.percent(70) {
            self.write(rng, dir, at).await;
        } else {
            self.read(dir, at).await;
        }
    }

    /// Reads every file whose content is known, at the end.
    pub async fn read_all(&self) {
        for dir_number in 0..DIRS {
            let Some(dir) = self.find(dir_number).await else {
                continue;
            };
            for n in 0..FILES {
                self.read(dir.clone(), (dir_number, n)).await;
            }
        }
    }

    /// Contents that a power failure may have taken are not held against anybody in `async`.
    fn forget_what_was_lost(&self) {
        let cluster = self.workload.cluster();
        let epoch = cluster.judge().epoch();
        let mut library = self.library.borrow_mut();
        if epoch != library.epoch && cluster.settings.durability == Durability::Async {
            for f in library.files.values_mut() {
                f.content = None;
                f.edition += 1;
                f.round += 1;
            }
        }
        library.epoch = epoch;
    }

    /// The scribes' nth directory, mostly from memory.
    async fn directory(&self, rng: &mut Rng, n: u64) -> Option<Statement> {
        let known = self.known.borrow().get(&n).cloned();
        if known.is_some() && rng.percent(85) {
            return known;
        }
        let found = self.find(n).await?;
        self.known.borrow_mut().insert(n, found.clone());
        Some(found)
    }

    async fn find(&self, n: u64) -> Option<Statement> {
        // A handle: what it leads to stays good when others rename or close directories.
        let dir = self.lookup(Statement::above_root(), Name::root()).await?;
        let root = self.reopened(&dir).await?;
        let name = Name::new(&[PREFIX, n.to_string().as_bytes()].concat()).ok()?;
        if let Some(found) = self.lookup(root.clone(), name.clone()).await {
            return Some(found);
        }
        let op = Op::Mkdir {
            dir: root,
            name,
            mode: Perm::new(0o700).into(),
        };
        match self.ops().op(&self.cred, op).await {
            Ok(Answer::Entry(e)) => e.dir,
            _ => None,
        }
    }

    async fn lookup(&self, dir: Statement, name: Name) -> Option<Statement> {
        match self.ops().op(&self.cred, Op::Lookup { dir, name }).await {
            Ok(Answer::Entry(e)) => e.dir,
            _ => None,
        }
    }

    fn place(&self, dir: Statement, at: (u64, u64)) -> Option<Place> {
        let edition = self.library.borrow_mut().files.entry(at).or_default().edition;
        let name = Name::new(format!("f{}-{edition}", at.1).as_bytes()).ok()?;
        Some(Place { dir, name })
    }

    async fn write(&self, rng: &mut Rng, dir: Statement, at: (u64, u64)) {
        self.forget_what_was_lost();
        {
            let mut library = self.library.borrow_mut();
            let f = library.files.entry(at).or_default();
            match f.writer {
                Some(life) if self.workload.lives(life) => return,
                Some(_) => {
                    // Its writer died in the middle.
                    f.content = None;
                    f.edition += 1;
                }
                None => {}
            }
            f.writer = Some(self.life.number);
            f.round += 1;
        }
        let known = self
            .library
            .borrow_mut()
            .files
            .entry(at)
            .or_default()
            .content
            .clone();
        let round = self.library.borrow_mut().files.entry(at).or_default().round;
        let Some(place) = self.place(dir, at) else { return };
        let written = self.write_session(rng, place, known, at, round).await;
        let mut library = self.library.borrow_mut();
        library.written += u64::from(written.is_ok());
        let f = library.files.entry(at).or_default();
        f.writer = None;
        if f.round != round {
            // Given up meanwhile.
            f.content = None;
            return;
        }
        match written {
            Ok(content) => f.content = Some(content),
            Err(_) => {
                f.content = None;
                f.edition += 1;
            }
        }
    }

    async fn write_session(
        &self,
        rng: &mut Rng,
        place: Place,
        known: Option<Vec<u8>>,
        at: (u64, u64),
        round: u64,
    ) -> Result<Vec<u8>, Errno> {
        let ops = self.ops();
        let sync = match self.workload.cluster().settings.durability {
            Durability::Sync => DataSync::BeforePublish,
            Durability::Async => DataSync::OnFsync,
        };
        let both = Access::READ.and(Access::WRITE);
        let opened = file::create(&ops, &self.cred, &place, Perm::new(0o600), false, both).await?;
        let mut open = OpenFile::new(place, opened, sync)?;
        let mut shadow = match known {
            Some(content) => {
                self.compare(&open, &content, at, round).await?;
                content
            }
            None => {
                let now = self.life.now();
                open.truncate(&ops, &self.blocks, &self.cred, 0, now, true)
                    .await?;
                Vec::new()
            }
        };
        for _ in 0..rng.below(5) {
            let now = self.life.now();
            match rng.below(10) {
                0..=5 => {
                    let (offset, len) = (rng.below(LONG), rng.range(1, 400));
                    let data: Vec<u8> = (0..len)
                        .map(|i| (rng.next() as u8).wrapping_add(i as u8) | 1)
                        .collect();
                    open.write(&ops, &self.blocks, &self.cred, offset, &data, now)
                        .await?;
                    let end = (offset + len) as usize;
                    if shadow.len() < end {
                        shadow.resize(end, 0);
                    }
                    shadow[offset as usize..end].copy_from_slice(&data);
                }
                6 => {
                    let size = if rng.percent(30) { 0 } else { rng.below(LONG) };
                    open.truncate(&ops, &self.blocks, &self.cred, size, now, true)
                        .await?;
                    shadow.resize(size as usize, 0);
                }
                7 => {
                    let (offset, len) = (rng.below(LONG), rng.range(1, 900));
                    open.punch(&self.blocks, &self.cred, offset, len, now).await?;
                    let to = ((offset + len) as usize).min(shadow.len());
                    if (offset as usize) < to {
                        shadow[offset as usize..to].fill(0);
                    }
                }
                8 => open.flush(&ops, &self.blocks, &self.cred).await?,
                _ => open.fsync(&ops, &self.blocks, &self.cred).await?,
            }
        }
        open.close(&ops, &self.blocks, &self.cred).await?;
        Ok(shadow)
    }

    async fn reopened(&self, dir: &Statement) -> Option<Statement> {
        match self.ops().op(&self.cred, Op::Reopen { dir: dir.clone() }).await {
            Ok(Answer::Entry(e)) => e.dir,
            _ => None,
        }
    }

    async fn read(&self, dir: Statement, at: (u64, u64)) {
        self.forget_what_was_lost();
        let (content, round) = {
            let mut library = self.library.borrow_mut();
            let f = library.files.entry(at).or_default();
            match (&f.content, f.writer) {
                (Some(content), None) => (content.clone(), f.round),
                _ => return,
            }
        };
        let generation = dir.generation;
        let Some(mut place) = self.place(dir, at) else {
            return;
        };
        let mut opened = Err(Errno::Stale);
        // So much may have been renamed since that the servers do not know the handle to be good any more.
        for _ in 0..16 {
            opened = file::open(&self.ops(), &self.cred, &place, Access::READ).await;
            match self.reopened(&place.dir).await {
                Some(dir) if matches!(opened, Err(Errno::Stale)) => place.dir = dir,
                _ => break,
            }
        }
        match opened.and_then(|o| OpenFile::new(place, o, DataSync::BeforePublish)) {
            Ok(open) => {
                // What is wrong is reported where it is found.
                let _ = self.compare(&open, &content, at, round).await;
            }
            Err(Errno::Unreachable | Errno::Interrupted) => {}
            Err(Errno::Stale) if self.is_another(at.0, generation).await => {}
            // Every time, so much was renamed meanwhile that the servers did not know the handle to be good
            // any more.
            Err(Errno::Stale) if !self.workload.strict.get() => {}
            Err(e) => self.wrong(at, round, &format!("it does not open: {e}")),
        }
    }

    /// Whether the directory is another one by now: in `async` a power failure may take it.
    async fn is_another(&self, n: u64, generation: Generation) -> bool {
        self.known.borrow_mut().remove(&n);
        match self.find(n).await {
            Some(dir) => dir.generation != generation,
            None => true,
        }
    }

    /// Reads all of a file; it must be what was closed last.
    async fn compare(
        &self,
        open: &OpenFile,
        content: &[u8],
        at: (u64, u64),
        round: u64,
    ) -> Result<(), Errno> {
        if open.size() != content.len() as u64 {
            self.wrong(
                at,
                round,
                &format!("{} bytes instead of {}", open.size(), content.len()),
            );
            return Ok(());
        }
        let read = open.read(&self.blocks, 0, u32::MAX >> 8).await?;
        self.library.borrow_mut().compared += 1;
        if let Some(first) = read.iter().zip(content).position(|(a, b)| a != b) {
            let text = format!(
                "byte {first} of {} is {} instead of {}",
                content.len(),
                read[first],
                content[first]
            );
            self.wrong(at, round, &text);
        }
        Ok(())
    }

    /// Reports, unless a session began or a power failure came meanwhile.
    fn wrong(&self, at: (u64, u64), round: u64, text: &str) {
        self.forget_what_was_lost();
        let same = self
            .library
            .borrow()
            .files
            .get(&at)
            .is_some_and(|f| f.round == round);
        if same {
            let text = format!("data-{}/f{}, closed in round {round}: {text}", at.0, at.1);
            self.workload.cluster().sim.fail(Kind::WrongResult, text);
        }
    }

    /// Works until it is told to stop.
    pub async fn work(&self, rng: &mut Rng) {
        while self.workload.goes_on() && self.life.alive() {
            self.session(rng).await;
            let pause = rng.skewed(4 * MS);
            self.life.sleep(Duration::from_nanos(pause)).await;
        }
    }
}
