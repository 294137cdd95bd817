//! The server that gets a half: it takes what comes, and answers for none of it before the decision.

use super::CopyOf;
use crate::txn::locks::Unit;
use crate::{Failure, MetaServer};
use pando_format::{Batch, Entry, Key, Mutation, NameHash, PartNote, Record, Scan, Target};
use pando_types::{Mono, Part, TxId, plant};
use pando_wire::{Half, LockMode, Pass, Refusal, SplitAnswer};
use std::collections::BTreeSet;

/// Records deleted at a time before a copy begins.
const CLEARED: usize = 512;

/// A half on its way here.
pub(super) struct Coming {
    copy: TxId,
    half: Half,
    /// What was here of it before is gone.
    cleared: bool,
    /// Messages that were taken.
    taken: BTreeSet<u32>,
    /// Nothing more is taken.
    pub(super) settled: bool,
    entries: u64,
    subdirs: u64,
    /// When it was heard of.
    pub heard: Mono,
}

impl Coming {
    pub fn copy(&self) -> TxId {
        self.copy
    }
}

/// One message with records.
pub(super) struct Piece {
    pub number: u32,
    pub pass: Pass,
    pub changes: Vec<Mutation>,
}

/// Whether what an entry stands for is a directory. `None`: it is no entry.
fn is_dir(record: &Record) -> Option<bool> {
    match record {
        Record::Entry(Entry { target, .. }) => Some(matches!(target, Target::Dir(_))),
        _ => None,
    }
}

/// Whether a change may be of a half that is copied.
fn is_of(half: &Half, m: &Mutation) -> bool {
    let mine = |part: &Part, hash: &NameHash| *part == half.part && half.tile().has(hash.upper());
    match m {
        Mutation::Update { key, record } => match key {
            Key::Entry { part, hash, .. } => mine(part, hash) && matches!(record, Record::Entry(_)),
            Key::Attachment { part, hash, .. } => mine(part, hash) && matches!(record, Record::Attachment(_)),
            _ => false,
        },
        Mutation::Delete { key } => match key {
            Key::Entry { part, hash, .. } | Key::Attachment { part, hash, .. } => mine(part, hash),
            _ => false,
        },
        Mutation::Insert { .. } | Mutation::Touch { .. } => false,
    }
}

impl MetaServer {
    /// A copy begins. What is here of its half is what an earlier one left, unless it lives (H305).
    pub(super) async fn half_begins(&self, copy: TxId, half: Half) -> Result<SplitAnswer, Failure> {
        let part = half.part;
        self.takes_part(part)?;
        if let Some(known) = self.slots.splits.borrow().coming.get(&part) {
            let same = known.copy.coordinator == copy.coordinator;
            match same.then(|| copy.cmp(&known.copy)) {
                Some(std::cmp::Ordering::Less) => return Ok(SplitAnswer::Lost),
                Some(std::cmp::Ordering::Equal) if known.cleared => return Ok(SplitAnswer::Taken),
                Some(std::cmp::Ordering::Equal) => return Err(Failure::Refused(Refusal::Busy)),
                Some(std::cmp::Ordering::Greater) | None => {}
            }
        }
        let held = self.hold();
        let note = Key::PartNote(part);
        let units = vec![(Unit::Key(note.clone()), LockMode::Exclusive)];
        self.txn
            .locks
            .acquire(held.holder, units, || self.peer_wait())
            .await?;
        if self.part_head(part).await?.is_some() && !plant!(H305) {
            return Ok(SplitAnswer::Lost);
        }
        self.flow().await;
        self.takes_part(part)?;
        {
            let mut splits = self.slots.splits.borrow_mut();
            let coming = Coming {
                copy,
                half,
                cleared: false,
                taken: BTreeSet::new(),
                settled: false,
                entries: 0,
                subdirs: 0,
                heard: self.world.mono(),
            };
            splits.coming.insert(part, coming);
            splits.noted(part);
        }
        let record = Record::PartNote(PartNote::Coming(copy));
        self.change(&Batch::of(vec![Mutation::Update { key: note, record }]))?;
        self.clear_part(part).await?;
        drop(held);
        let mut splits = self.slots.splits.borrow_mut();
        Ok(match splits.coming.get_mut(&part).filter(|c| c.copy == copy) {
            Some(coming) => {
                coming.cleared = true;
                SplitAnswer::Taken
            }
            None => SplitAnswer::Lost,
        })
    }

    /// Refuses a part that is not this server's to have, or for which there is no room.
    fn takes_part(&self, part: Part) -> Result<(), Failure> {
        if !self.serves_slot(part.slot()) {
            return Err(Failure::Refused(self.not_served(part.slot())));
        }
        if !self.map().placement.splits() {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        if self.low_on_space() {
            return Err(Failure::Refused(Refusal::Busy));
        }
        Ok(())
    }

    /// Deletes what stands under a part that is not there. REQUIRES: its note is locked.
    pub(super) async fn clear_part(&self, part: Part) -> Result<(), Failure> {
        let (first, last) = (NameHash(0), NameHash::MAX);
        for scan in [Scan::Entries(part), Scan::AllAttachments { part, first, last }] {
            loop {
                let found = self.store.list(&scan, CLEARED).wait().await?;
                let complete = found.len() < CLEARED;
                let gone: Vec<Mutation> = found
                    .into_iter()
                    .map(|(key, _)| Mutation::Delete { key })
                    .collect();
                if !gone.is_empty() {
                    self.slots.splits.borrow_mut().stats.swept += gone.len() as u64;
                    self.flow().await;
                    self.change(&Batch::of(gone))?;
                }
                if complete {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether this copy still comes and takes records, and has not taken this message.
    fn awaits_piece(&self, (copy, part): CopyOf, number: u32) -> Option<bool> {
        let splits = self.slots.splits.borrow();
        let coming = splits
            .coming
            .get(&part)
            .filter(|c| c.copy == copy && c.cleared && !c.settled)?;
        Some(!coming.taken.contains(&number))
    }

    /// Records of a copy. They take the place of what was sent before.
    pub(super) async fn half_comes(&self, of: CopyOf, piece: Piece) -> Result<SplitAnswer, Failure> {
        let (copy, part) = of;
        self.takes_part(part)?;
        match self.awaits_piece(of, piece.number) {
            None => return Ok(SplitAnswer::Lost),
            // A message that comes twice may have been overtaken by what changed after it was sent.
            Some(false) => return Ok(SplitAnswer::Taken),
            Some(true) => {}
        }
        let half = self.slots.splits.borrow().coming.get(&part).map(|c| c.half);
        if !half.is_some_and(|half| piece.changes.iter().all(|m| is_of(&half, m))) {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        // How many entries there are is counted as they come.
        let (mut entries, mut subdirs) = (0i64, 0i64);
        for m in &piece.changes {
            let now = match m {
                Mutation::Update { record, .. } => is_dir(record),
                _ => None,
            };
            let before = match (piece.pass, m.key()) {
                (Pass::First, _) => None,
                (Pass::Again, key) => self.store.get(&key).wait().await?.as_ref().and_then(is_dir),
            };
            entries += i64::from(now.is_some()) - i64::from(before.is_some());
            subdirs += i64::from(now == Some(true)) - i64::from(before == Some(true));
        }
        self.flow().await;
        self.takes_part(part)?;
        // While that was read the same message may have come again.
        match self.awaits_piece(of, piece.number) {
            None => return Ok(SplitAnswer::Lost),
            Some(false) => return Ok(SplitAnswer::Taken),
            Some(true) => {}
        }
        self.change(&Batch::of(piece.changes))?;
        let mut splits = self.slots.splits.borrow_mut();
        if let Some(coming) = splits.coming.get_mut(&part).filter(|c| c.copy == copy) {
            coming.taken.insert(piece.number);
            coming.entries = coming.entries.saturating_add_signed(entries);
            coming.subdirs = coming.subdirs.saturating_add_signed(subdirs);
            coming.heard = self.world.mono();
        }
        Ok(SplitAnswer::Taken)
    }

    /// All of a copy is here.
    pub(super) fn half_settles(&self, copy: TxId, part: Part) -> Result<SplitAnswer, Failure> {
        let mut splits = self.slots.splits.borrow_mut();
        let coming = splits.coming.get_mut(&part);
        let Some(coming) = coming.filter(|c| c.copy == copy && c.cleared) else {
            return Ok(SplitAnswer::Lost);
        };
        coming.settled = true;
        coming.heard = self.world.mono();
        Ok(SplitAnswer::Counted {
            entries: coming.entries,
            subdirs: coming.subdirs,
        })
    }
}
