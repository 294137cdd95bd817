//! Directories that split while they are used (GIGA+; IndexFS §II-A, §II-C).
//!
//! The owner of a part that has grown too large gives its upper half to the owner of that half's slot, if
//! this spreads the directory (`pando_cluster::due`). It copies the half and what changes of it meanwhile
//! (`source`, `target`), then locks the list of the directory's parts and the part itself, sends the last
//! changes, and decides all of it in one transaction (`decide`). What it gave away is deleted afterwards
//! (`sweep`).
//!
//! - Before the decision there is no head of the new part, so it is as absent (H305).
//! - Nothing is split while anything prepared or owed would change the half (H301), or while it is not known
//!   who has which of its files open (H303).
//! - What was given away is out of the part's range: nobody reads it, and a note says that it is to go
//!   (H302).
//! - A copy has the name of a transaction that its source knows as long as it goes on. One that its source
//!   does not know has come to nothing, and is cleared away (H60).

mod decide;
mod source;
mod sweep;
mod target;

use crate::pipeline::Asked;
use crate::{Failure, MetaServer};
use pando_cluster::Placement;
use pando_env::sync::{Sender, first, oneshot};
use pando_format::{Batch, Key, Mutation, NameHash, Record};
use pando_types::{Part, SLOTS, Slot, Tile, TxId, plant};
use pando_wire::{SplitAnswer, SplitRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Parts of which it is counted how much was made in them.
const COUNTED: usize = 1 << 16;

/// A half that is being copied from here.
struct Copying {
    part: Part,
    half: Tile,
    /// Keys under this part whose records have changed, or were opened, since they were sent.
    noted: BTreeSet<Key>,
    /// The part has left this server.
    lost: bool,
}

impl Copying {
    fn has(&self, key: &Key) -> bool {
        match key {
            Key::Entry { part, hash, .. } | Key::Attachment { part, hash, .. } => {
                *part == self.part && self.half.has(hash.upper())
            }
            _ => false,
        }
    }
}

/// Parts that are split here, or come here.
#[derive(Default)]
pub(crate) struct Splits {
    /// Of how many entries a part is looked at, and after how many new ones again. `None`: nothing is split.
    entries: Option<u32>,
    /// Entries made in each part since it was looked at.
    grown: BTreeMap<Part, u32>,
    /// Parts that are to be looked at.
    due: BTreeSet<Part>,
    copying: Option<Copying>,
    /// Parts that are being copied to here.
    coming: BTreeMap<Part, target::Coming>,
    /// Parts of which there may be notes.
    notes: BTreeSet<Part>,
    /// Slots whose notes were not looked for.
    unread: BTreeSet<Slot>,
    /// Woken by being dropped, when there is something to do.
    resting: Option<Sender<()>>,
    /// Counts.
    stats: SplitStats,
}

/// Counts of what was split.
#[derive(Clone, Copy, Default, Debug)]
pub struct SplitStats {
    /// Halves given away.
    pub given: u64,
    /// Halves taken over, by copies that were begun here.
    pub taken: u64,
    /// Records sent.
    pub sent: u64,
    /// Copies that came to nothing.
    pub broken_off: u64,
    /// Longest time in which nobody could change a part because it was split, in microseconds.
    pub longest_pause: u64,
    /// Records deleted of what was given away, or had come to nothing.
    pub swept: u64,
}

/// The buckets that a tile has.
fn buckets(tile: Tile) -> (NameHash, NameHash) {
    (
        NameHash::first_of(tile.start),
        NameHash::last_of(tile.start, tile.width().max(1)),
    )
}

impl Splits {
    /// Of a server that starts.
    pub fn starting(placement: Placement) -> Splits {
        let entries = match placement {
            Placement::Split(entries) => Some(entries),
            Placement::Directory | Placement::Coupled | Placement::Entry => None,
        };
        Splits {
            entries,
            unread: entries
                .map(|_| (0..SLOTS).map(Slot).collect())
                .unwrap_or_default(),
            ..Splits::default()
        }
    }

    /// After how many new entries a part is looked at: seldom, and often enough for small ones.
    fn every(&self) -> Option<u32> {
        self.entries.map(|entries| (entries / 4).clamp(1, 64))
    }

    /// A batch was written.
    pub fn wrote(&mut self, batch: &Batch) {
        let Some(every) = self.every() else { return };
        for m in &batch.mutations {
            if let Mutation::Touch { part, delta } = m
                && delta.entries > 0
            {
                self.grows(*part, every);
            }
            if let Mutation::Delete {
                key: Key::PartNote(part),
            } = m
                && self.coming.get(part).is_some_and(|c| c.settled)
            {
                self.stats.taken += 1;
            }
            if let Some(copying) = &mut self.copying
                && copying.has(&m.key())
            {
                copying.noted.insert(m.key());
            }
        }
    }

    /// A part may be due: somebody had localised its directory until now.
    pub fn look_at(&mut self, part: Part) {
        if self.entries.is_some() {
            self.due.insert(part);
            self.resting = None;
        }
    }

    fn grows(&mut self, part: Part, every: u32) {
        let known = self.grown.entry(part).or_default();
        *known += 1;
        if *known >= every {
            self.grown.remove(&part);
            self.due.insert(part);
            self.resting = None;
        } else if self.grown.len() > COUNTED {
            self.grown.clear();
        }
    }

    /// A slot is another server's.
    pub fn left(&mut self, slot: Slot) {
        if self.entries.is_none() {
            return;
        }
        self.coming.retain(|part, _| part.slot() != slot);
        self.notes.retain(|part| part.slot() != slot);
        self.due.retain(|part| part.slot() != slot);
        self.unread.remove(&slot);
        if let Some(copying) = &mut self.copying
            && copying.part.slot() == slot
        {
            copying.lost = true;
        }
    }

    /// A slot is this server's.
    pub fn came(&mut self, slot: Slot) {
        if self.entries.is_some() {
            self.unread.insert(slot);
            self.resting = None;
        }
    }

    /// There is a note about a part.
    fn noted(&mut self, part: Part) {
        self.notes.insert(part);
        self.resting = None;
    }
}

impl MetaServer {
    /// Splits what is due, and sweeps what is left over. Runs as long as the server.
    pub(crate) async fn split_parts(self: Rc<Self>) {
        while !self.stopped.get() {
            let done = match self.look_for_notes().await {
                Ok(()) => match self.sweep_parts().await {
                    Ok(()) => self.split_what_is_due().await,
                    failed => failed,
                },
                failed => failed,
            };
            match done {
                Ok(()) | Err(Failure::Refused(_)) => {}
                Err(Failure::Store(e)) => {
                    if !self.report(&e) {
                        return;
                    }
                }
            }
            let woken = {
                let mut splits = self.slots.splits.borrow_mut();
                let (wake, woken) = oneshot();
                splits.resting = Some(wake);
                woken
            };
            first(woken, self.world.sleep(self.limits.tick)).await;
        }
    }

    /// What other servers say about parts that are split.
    pub(crate) async fn about_split(&self, request: SplitRequest) -> Result<SplitAnswer, Failure> {
        match request {
            SplitRequest::Begin { copy, half } => self.half_begins(copy, half).await,
            SplitRequest::Records {
                copy,
                part,
                number,
                pass,
                changes,
            } => {
                let piece = target::Piece {
                    number,
                    pass,
                    changes,
                };
                self.half_comes((copy, part), piece).await
            }
            SplitRequest::Settle { copy, part } => self.half_settles(copy, part),
        }
    }

    /// A file is open from now on whose record may be on its way to another server (H303).
    pub(crate) fn opened_while_split(&self, asked: &Asked<'_>) {
        let mut splits = self.slots.splits.borrow_mut();
        let Some(copying) = &mut splits.copying else {
            return;
        };
        let [Some(subject), _] = asked.op.subjects() else {
            return;
        };
        let Some(name) = subject.first_name() else { return };
        let dir = subject.dir();
        let key = Key::Entry {
            part: asked.first_part(dir.id),
            hash: self.map().widths().name(dir.salt, name),
            name: name.clone(),
        };
        if copying.has(&key) {
            copying.noted.insert(key);
        }
    }

    /// The depth of a part, and what a head says of its directory. `None`: it is not there.
    async fn part_head(&self, part: Part) -> Result<Option<Headed>, Failure> {
        Ok(match self.store.get(&Key::Head(part)).wait().await? {
            Some(record @ (Record::Head(_) | Record::Part(_))) => Some(Headed { part, record }),
            _ => None,
        })
    }

    /// Counts of what was split here.
    pub fn split_stats(&self) -> SplitStats {
        self.slots.splits.borrow().stats
    }
}

/// The head of a part.
struct Headed {
    part: Part,
    record: Record,
}

impl Headed {
    fn tile(&self) -> Tile {
        let start = self.part.start();
        let head = self.record.part_head(self.part);
        head.map_or(Tile { start, depth: 0 }, |head| head.tile)
    }

    /// Whether its directory may be localised: a table is for a whole directory, which is not split until the
    /// lease ends (H319).
    fn is_localised(&self) -> bool {
        let head = self.record.part_head(self.part);
        head.is_some_and(|head| head.localised) && !plant!(H319)
    }
}

/// A copy, by the transaction that it has the name of, and its part.
type CopyOf = (TxId, Part);
