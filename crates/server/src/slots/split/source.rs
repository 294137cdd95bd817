//! The server that gives a half away: copy, catch up, lock.

use super::{Copying, buckets};
use crate::account::Notes;
use crate::txn::attempt::{Got, Txn};
use crate::{Failure, MetaServer};
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use pando_format::{Entry, Key, Mutation, Record, Scan, Target};
use pando_namespace::Snapshot;
use pando_store::StoreError;
use pando_types::{Generation, Part, ServerId, Tile, Tiling, TxId, plant};
use pando_wire::{
    FileAt, Half, Holders, LockMode, LockWant, Pass, PeerAnswer, PeerRequest, Refusal, SplitAnswer,
    SplitRequest,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// Records in one message, and messages of one copy that are on their way at one time.
const PIECE: usize = 256;
const WINDOW: usize = 4;
/// Changed records that are left to be sent while nobody may change them.
const FEW: usize = 64;
/// Rounds of sending what has changed meanwhile.
const ROUNDS: usize = 12;
/// How often one message is sent.
const TRIES: u32 = 8;
/// How often the locks are asked for, and the pause between.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(5);

/// Why a part stays whole for now.
pub(super) enum Stopped {
    /// Something stands in the way: it is tried again.
    Later,
    /// This server cannot go on.
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(e: Failure) -> Stopped {
        match e {
            Failure::Refused(_) => Stopped::Later,
            e @ Failure::Store(_) => Stopped::Failed(e),
        }
    }
}

impl From<StoreError> for Stopped {
    fn from(e: StoreError) -> Stopped {
        Stopped::Failed(e.into())
    }
}

/// A copy as its source sees it.
pub(super) struct Copy {
    pub id: TxId,
    pub from: Part,
    /// What the part has before.
    pub tile: Tile,
    pub half: Half,
    pub to: ServerId,
    /// Messages sent.
    sent: u32,
    /// Entries of the half that somebody may have open.
    pub open: BTreeSet<Key>,
    /// How often it was heard what is open when the copy began.
    pub heard: u64,
}

impl MetaServer {
    /// Splits parts that have grown too large, one after the other. Each is looked at once: those that are
    /// due again meanwhile come after what was given away is swept.
    pub(super) async fn split_what_is_due(&self) -> Result<(), Failure> {
        let due = std::mem::take(&mut self.slots.splits.borrow_mut().due);
        for part in due {
            if !self.serves_slot(part.slot()) {
                continue;
            }
            match self.split_if_due(part).await {
                Ok(()) => {}
                // What stood in the way may be over by the next time.
                Err(Stopped::Later) => drop(self.slots.splits.borrow_mut().due.insert(part)),
                Err(Stopped::Failed(e)) => return Err(e),
            }
        }
        Ok(())
    }

    async fn split_if_due(&self, part: Part) -> Result<(), Stopped> {
        let Some(entries) = self.slots.splits.borrow().entries else {
            return Ok(());
        };
        if part.dir.is_homes() || !self.is_larger(part, u64::from(entries)).await? {
            return Ok(());
        }
        let Some(head) = self.part_head(part).await? else {
            return Ok(());
        };
        if head.is_localised() {
            return Ok(());
        }
        // Before others are asked: as long as this stands in the way, nothing comes of it.
        let ready = !self.mounts.holds.borrow().awaits() && !self.low_on_space();
        let swept = self.store.get(&Key::PartNote(part)).wait().await?.is_none();
        if !ready || !swept {
            return Err(Stopped::Later);
        }
        let tiling = self.tiling_of(part).await?;
        let Some(half) = pando_cluster::due(&self.map(), part.dir, &tiling, part.start()) else {
            return Ok(());
        };
        let generation = match &head.record {
            Record::Head(head) => head.generation,
            Record::Part(head) => head.generation,
            _ => return Ok(()),
        };
        let new = Part::new(part.dir, half.start).ok_or(Stopped::Later)?;
        if head.tile().half() != Some(half) {
            return Err(Stopped::Later);
        }
        self.split(part, head.tile(), new, generation).await
    }

    async fn is_larger(&self, part: Part, entries: u64) -> Result<bool, Failure> {
        Ok(match self.store.get(&Key::Touch(part)).wait().await? {
            Some(Record::Touch(touch)) => touch.stat.entries > entries,
            _ => false,
        })
    }

    /// The parts of a directory, as of a moment ago.
    async fn tiling_of(&self, part: Part) -> Result<Tiling, Stopped> {
        let notes = Notes::default();
        let mut txn = Txn::new(self, false, &notes);
        let mut snapshot = Snapshot::default();
        let want = LockWant::Key(Key::Parts(part.dir), LockMode::Shared);
        match txn.read(&mut snapshot, vec![want]).await? {
            Got::All => Ok(tiling_in(&snapshot, part).ok_or(Stopped::Later)?),
            Got::Taken => Err(Stopped::Later),
        }
    }

    async fn split(&self, from: Part, tile: Tile, new: Part, generation: Generation) -> Result<(), Stopped> {
        let half = Half {
            part: new,
            generation,
            depth: tile.depth + 1,
        };
        let notes = Notes::default();
        // Its number is the copy's name: whoever is asked for it knows whether the copy goes on.
        let mut name = Txn::new(self, false, &notes);
        let mut copy = Copy {
            id: name.id(),
            from,
            tile,
            half,
            to: self.owner(new.slot()),
            sent: 0,
            open: BTreeSet::new(),
            heard: self.mounts.holds.borrow().heard(),
        };
        self.slots.splits.borrow_mut().copying = Some(Copying {
            part: from,
            half: half.tile(),
            noted: BTreeSet::new(),
            lost: false,
        });
        let result = self.copy_and_decide(&mut copy).await;
        drop(name);
        let mut splits = self.slots.splits.borrow_mut();
        splits.copying = None;
        match &result {
            Ok(()) => {
                splits.stats.given += 1;
                splits.noted(from);
                // It may be too large still.
                splits.due.insert(from);
            }
            Err(_) => splits.stats.broken_off += 1,
        }
        drop(splits);
        if result.is_ok() {
            tracing::info!(
                server = self.id.0,
                dir = %from.dir,
                part = new.start(),
                to = copy.to.0,
                "a directory was split"
            );
        }
        result
    }

    async fn copy_and_decide(&self, copy: &mut Copy) -> Result<(), Stopped> {
        let begin = SplitRequest::Begin {
            copy: copy.id,
            half: copy.half,
        };
        self.tell_half(copy.to, begin).await?;
        self.send_half(copy).await?;
        for attempt in 0..ATTEMPTS {
            let mut before = usize::MAX;
            for _ in 0..ROUNDS {
                let sent = self.send_noted(copy).await?;
                // A server that is busy all the time has as much to send after each round.
                if sent <= FEW || sent > before / 2 {
                    break;
                }
                before = sent;
            }
            match self.decide_split(copy).await {
                Err(Stopped::Later) if attempt + 1 < ATTEMPTS && self.goes_on(copy) => {
                    self.pause(PAUSE).await;
                }
                decided => return decided,
            }
        }
        Err(Stopped::Later)
    }

    /// Whether a copy may still be decided.
    fn goes_on(&self, copy: &Copy) -> bool {
        let splits = self.slots.splits.borrow();
        let here = splits.copying.as_ref().is_some_and(|c| !c.lost);
        here && !copy.is_settled() && self.mounts.holds.borrow().heard() == copy.heard
    }

    /// One message to the server that gets the half, until it is taken.
    pub(super) async fn tell_half(
        &self,
        to: ServerId,
        request: SplitRequest,
    ) -> Result<SplitAnswer, Stopped> {
        for _ in 0..TRIES {
            let answer = match to == self.id {
                true => match Box::pin(self.about_split(request.clone())).await {
                    Ok(answer) => Ok(Ok(PeerAnswer::Split(answer))),
                    Err(Failure::Refused(why)) => Ok(Err(why)),
                    Err(e @ Failure::Store(_)) => return Err(Stopped::Failed(e)),
                },
                false => self.ask(to, PeerRequest::Split(request.clone())).await,
            };
            match answer {
                Ok(Ok(PeerAnswer::Split(SplitAnswer::Lost))) => return Err(Stopped::Later),
                Ok(Ok(PeerAnswer::Split(answer))) => return Ok(answer),
                Ok(Err(Refusal::Busy | Refusal::NotReady)) => self.pause(Duration::from_millis(20)).await,
                Ok(_) => return Err(Stopped::Later),
                Err(_) => self.pause(PAUSE).await,
            }
        }
        Err(Stopped::Later)
    }

    /// Everything there is of the half.
    async fn send_half(&self, copy: &mut Copy) -> Result<(), Stopped> {
        let ((first, last), part) = (buckets(copy.half.tile()), copy.from);
        let entries = Scan::Buckets { part, first, last };
        for scan in [entries, Scan::AllAttachments { part, first, last }] {
            let mut after: Option<Key> = None;
            let mut window = Vec::new();
            loop {
                let rest = match after.take() {
                    None => scan.clone(),
                    Some(key) => scan.clone().after(key),
                };
                let found = self.store.list(&rest, PIECE).wait().await?;
                let complete = found.len() < PIECE;
                after = found.last().map(|(key, _)| key.clone());
                self.note_records(copy, &found);
                let mut changes = Vec::with_capacity(found.len());
                for (key, record) in found {
                    let key = copy.under(key).ok_or(Stopped::Later)?;
                    changes.push(Mutation::Update { key, record });
                }
                if !changes.is_empty() {
                    window.push(changes);
                }
                if complete || window.len() >= WINDOW {
                    self.send_changes(copy, Pass::First, std::mem::take(&mut window))
                        .await?;
                }
                if complete {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Which files among these are open, and that directories among them are nobody's secret any more (H308).
    fn note_records(&self, copy: &mut Copy, records: &[(Key, Record)]) {
        if !plant!(H308) {
            self.lent(records.iter().map(|(_, record)| record));
        }
        for (key, record) in records {
            if self.held_at(copy.from, record) != Holders::Nobody {
                copy.open.insert(key.clone());
            }
        }
    }

    /// Who has a file open whose record is in this part.
    pub(super) fn held_at(&self, part: Part, record: &Record) -> Holders {
        match record {
            Record::Entry(Entry {
                target: Target::Inode(inode),
                ..
            }) => self.mounts.holds.borrow().holders(FileAt {
                slot: part.slot(),
                ino: inode.ino,
                generation: inode.generation,
            }),
            _ => Holders::Nobody,
        }
    }

    /// What has changed since it was sent, or since this was asked last. Returns how much that was.
    pub(super) async fn send_noted(&self, copy: &mut Copy) -> Result<usize, Stopped> {
        let noted = match &mut self.slots.splits.borrow_mut().copying {
            Some(copying) if !copying.lost => std::mem::take(&mut copying.noted),
            _ => return Err(Stopped::Later),
        };
        let n = noted.len();
        let mut pieces: Vec<Vec<Mutation>> = Vec::new();
        for key in noted {
            let found = self.store.get(&key).wait().await?;
            copy.open.insert(key.clone());
            let new = copy.under(key).ok_or(Stopped::Later)?;
            let change = match found {
                Some(record) => {
                    if !plant!(H308) {
                        self.lent([&record].into_iter());
                    }
                    Mutation::Update { key: new, record }
                }
                None => Mutation::Delete { key: new },
            };
            match pieces.last_mut().filter(|piece| piece.len() < PIECE) {
                Some(piece) => piece.push(change),
                None => pieces.push(vec![change]),
            }
        }
        self.send_changes(copy, Pass::Again, pieces).await?;
        Ok(n)
    }

    /// Sends pieces beside each other: none has a key of another.
    async fn send_changes(
        &self,
        copy: &mut Copy,
        pass: Pass,
        pieces: Vec<Vec<Mutation>>,
    ) -> Result<(), Stopped> {
        let mut sending: Vec<LocalFuture<Result<SplitAnswer, Stopped>>> = Vec::new();
        for changes in pieces {
            copy.sent += 1;
            self.slots.splits.borrow_mut().stats.sent += changes.len() as u64;
            let request = SplitRequest::Records {
                copy: copy.id,
                part: copy.half.part,
                number: copy.sent,
                pass,
                changes,
            };
            let to = copy.to;
            let Some(me) = self.me.upgrade() else {
                return Err(Stopped::Later);
            };
            sending.push(Box::pin(async move { me.tell_half(to, request).await }));
        }
        for sent in join_all(sending).await {
            sent?;
        }
        Ok(())
    }
}

impl Copy {
    /// The key that a record of the half has in its new part.
    pub fn under(&self, key: Key) -> Option<Key> {
        let part = self.half.part;
        match key {
            Key::Entry { hash, name, .. } => Some(Key::Entry { part, hash, name }),
            Key::Attachment { hash, name, kind, .. } => Some(Key::Attachment {
                part,
                hash,
                name,
                kind,
            }),
            _ => None,
        }
    }

    /// Nothing more is taken of it.
    fn is_settled(&self) -> bool {
        self.sent == u32::MAX
    }

    /// From here on it is decided or comes to nothing.
    pub fn settle(&mut self) {
        self.sent = u32::MAX;
    }
}

/// The parts of a directory, if they were read.
pub(super) fn tiling_in(snapshot: &Snapshot, part: Part) -> Option<Tiling> {
    match snapshot.get(&Key::Parts(part.dir)) {
        None => Some(Tiling::default()),
        Some(Record::Parts(parts)) => Tiling::of(parts.starts.iter().copied()),
        Some(_) => None,
    }
}
