//! Which sessions have which files open (H97).
//!
//! In memory: an open says under which session the file is kept, in the turn of that open, and is known
//! before it is answered, under the lock of the file's record. While a file is held its record does not leave
//! its slot, and what loses its last name stays at home without one (`orphans`). What a restart forgets the
//! holders say again: until each session that may hold something has said all it has, every file counts as
//! held by it (H165), and no slot moves away. Holds go along with slots that move (H167).

use crate::{Failure, MetaServer};
use pando_format::Record;
use pando_types::{
    AuthMode, FileKind, Generation, IdentityId, Ino, MapEpoch, Mono, Part, SessionId, Slot, plant,
};
use pando_wire::{
    Answer, FileAt, HOLDING_MAX, Held, Holders, Holding, Holds as Moved, Keep, Outcome, Refusal, Response,
    Turned,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Files without a name that a session is told of at one time.
const TOLD: usize = 1000;

/// All that is known of open files.
#[derive(Default)]
pub(crate) struct Holds {
    /// Of each file, under which sessions it is open, and by which turn of theirs.
    files: BTreeMap<FileAt, BTreeMap<SessionId, u64>>,
    sessions: BTreeMap<SessionId, BTreeSet<FileAt>>,
    /// How many all sessions of an identity have open.
    owners: BTreeMap<IdentityId, usize>,
    /// The map that this boot began with: by an older one nobody knows what is here.
    since: MapEpoch,
    /// Sessions that have not said yet what they have, and since when that is waited for.
    unstated: BTreeMap<SessionId, Mono>,
    /// Files without a name that were seen here.
    orphans: BTreeSet<FileAt>,
    /// How often files became known to be open otherwise than by an open here.
    heard: u64,
}

/// A file is open under a session.
pub(crate) struct OpenClaim {
    session: SessionId,
    open: Turned,
}

impl Holds {
    /// Of a server that starts with this map.
    pub fn starting(since: MapEpoch) -> Holds {
        Holds {
            since,
            ..Holds::default()
        }
    }

    /// Whether somebody has yet to say what it has.
    pub fn awaits(&self) -> bool {
        !self.unstated.is_empty()
    }

    /// How often it was heard what is open, otherwise than by an open here.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// A session of before, which may have anything open.
    pub fn expect(&mut self, session: SessionId, now: Mono) {
        if session.keeps() && !plant!(H165) {
            self.unstated.entry(session).or_insert(now);
        }
    }

    /// Sessions that have been waited for so long: they live, or would have ended, and do not say what they
    /// have.
    fn mute(&self, now: Mono, patience: Duration) -> Vec<SessionId> {
        let mute = self
            .unstated
            .iter()
            .filter(|(_, since)| now.since(**since) >= patience);
        mute.map(|(session, _)| *session).collect()
    }

    /// Who has a file open, or may.
    pub fn holders(&self, file: FileAt) -> Holders {
        let known = self.files.get(&file).into_iter().flat_map(BTreeMap::keys);
        known
            .chain(self.unstated.keys())
            .fold(Holders::Nobody, |all, session| all.and(*session))
    }

    /// How many files a session has open.
    pub fn count(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, BTreeSet::len)
    }

    /// How many an identity has open.
    fn count_of(&self, owner: IdentityId) -> usize {
        self.owners.get(&owner).copied().unwrap_or_default()
    }

    /// Slots in which a session has files open.
    pub fn slots_of(&self, session: SessionId) -> impl Iterator<Item = Slot> {
        let files = self.sessions.get(&session).into_iter().flatten();
        files.map(|file| file.slot)
    }

    fn has(&self, session: SessionId, file: FileAt) -> bool {
        self.files.get(&file).is_some_and(|of| of.contains_key(&session))
    }

    fn note(&mut self, session: SessionId, Turned { file, turn }: Turned) {
        let known = self.files.entry(file).or_default().entry(session).or_default();
        *known = turn.max(*known);
        if self.sessions.entry(session).or_default().insert(file) {
            *self.owners.entry(session.owner()).or_default() += 1;
        }
    }

    /// Its file is not among a session's any more.
    fn strike(&mut self, session: SessionId, file: FileAt) {
        let Some(files) = self.sessions.get_mut(&session) else {
            return;
        };
        let gone = usize::from(files.remove(&file));
        if files.is_empty() {
            self.sessions.remove(&session);
        }
        self.fewer(session.owner(), gone);
    }

    fn fewer(&mut self, owner: IdentityId, gone: usize) {
        if let Some(all) = self.owners.get_mut(&owner) {
            *all -= gone;
            if *all == 0 {
                self.owners.remove(&owner);
            }
        }
    }

    /// A file is not open any more, unless it was opened again since (H164).
    fn close(&mut self, session: SessionId, Turned { file, turn }: Turned) {
        let Some(holders) = self.files.get_mut(&file) else {
            return;
        };
        if holders
            .get(&session)
            .is_some_and(|last| *last <= turn || plant!(H164))
        {
            holders.remove(&session);
            if holders.is_empty() {
                self.files.remove(&file);
            }
            self.strike(session, file);
        }
    }

    /// A session has ended.
    pub fn end(&mut self, session: SessionId) {
        self.unstated.remove(&session);
        let files = self.sessions.remove(&session).unwrap_or_default();
        self.fewer(session.owner(), files.len());
        for file in files {
            if let Some(holders) = self.files.get_mut(&file) {
                holders.remove(&session);
                if holders.is_empty() {
                    self.files.remove(&file);
                }
            }
        }
    }

    /// What goes with slots that move.
    pub fn of(&self, slots: &BTreeSet<Slot>) -> Moved {
        let mut moved = Moved::default();
        for (file, holders) in self.files.iter().filter(|(file, _)| slots.contains(&file.slot)) {
            let turned = |(session, turn): (&SessionId, &u64)| {
                let (file, turn) = (*file, *turn);
                (*session, Turned { file, turn })
            };
            moved.held.extend(holders.iter().map(turned));
        }
        moved
    }

    /// It comes with slots.
    pub fn come(&mut self, moved: &Moved) {
        self.heard += 1;
        if !plant!(H167) {
            moved
                .held
                .iter()
                .for_each(|(session, held)| self.note(*session, *held));
        }
    }

    /// These slots are another server's, or come anew: nothing here is said of them.
    pub fn forget(&mut self, slots: &BTreeSet<Slot>) {
        let gone: Vec<FileAt> = self
            .files
            .keys()
            .filter(|f| slots.contains(&f.slot))
            .copied()
            .collect();
        for file in gone {
            for session in self.files.remove(&file).unwrap_or_default().into_keys() {
                self.strike(session, file);
            }
        }
        self.orphans.retain(|f| !slots.contains(&f.slot));
    }

    /// A file without a name was seen, or has gone.
    pub fn orphan(&mut self, file: FileAt, there: bool) {
        if there {
            self.orphans.insert(file);
        } else {
            self.orphans.remove(&file);
        }
    }

    /// What of a slot has got a name since it was seen is forgotten.
    pub fn orphans_in(&mut self, slot: Slot, noted: &BTreeSet<FileAt>) {
        let first = FileAt {
            slot,
            ino: Ino(0),
            generation: Generation(0),
        };
        let seen = self.orphans.range(first..).take_while(|file| file.slot == slot);
        let named: Vec<FileAt> = seen.filter(|file| !noted.contains(file)).copied().collect();
        for file in named {
            self.orphans.remove(&file);
        }
    }

    /// Files without a name that a session is thought to have open.
    fn orphans_of(&self, session: SessionId) -> Vec<Turned> {
        let Some(files) = self.sessions.get(&session) else {
            return Vec::new();
        };
        let orphans = files.intersection(&self.orphans).take(TOLD);
        let turned = |file: &FileAt| {
            let turn = *self.files.get(file)?.get(&session)?;
            Some(Turned { file: *file, turn })
        };
        orphans.filter_map(turned).collect()
    }
}

/// The file of an entry record, if it may be kept open.
fn file_of(slot: Slot, record: &Record) -> Option<FileAt> {
    match record {
        Record::Entry(pando_format::Entry {
            target: pando_format::Target::Inode(inode),
            ..
        }) if inode.kind == FileKind::Regular => Some(FileAt {
            slot,
            ino: inode.ino,
            generation: inode.generation,
        }),
        _ => None,
    }
}

impl MetaServer {
    /// Who has those files open that are among records of this server. REQUIRES: they are locked.
    pub(crate) fn held_among(&self, records: &[(pando_format::Key, Record)]) -> Vec<(FileAt, Holders)> {
        let holds = self.mounts.holds.borrow();
        let files = records
            .iter()
            .filter_map(|(key, record)| file_of(key.slot(), record));
        files
            .map(|file| (file, holds.holders(file)))
            .filter(|(_, holders)| *holders != Holders::Nobody)
            .collect()
    }

    /// Before an operation of a session that keeps files open: what it says was closed, and whether it is
    /// known, if it is to keep another.
    pub(crate) fn heed_keeper(&self, keep: &Keep) -> Result<(), Refusal> {
        if keep.closed.len() > pando_wire::CLOSED_MAX || !keep.session.keeps() {
            return Err(Refusal::Invalid);
        }
        // What is elsewhere must be said there.
        let mut slots = keep.closed.iter().map(|closed| closed.file.slot);
        if let Some(slot) = slots.find(|slot| !self.serves_slot(*slot)) {
            return Err(self.not_served(slot));
        }
        self.closed(keep.session, &keep.closed);
        if keep.turn == 0 {
            return Ok(());
        }
        let now = self.world.mono();
        let mut sessions = self.admission.sessions.borrow_mut();
        if !sessions.knows(keep.session) {
            return Err(Refusal::KeeperUnknown);
        }
        sessions.seen(keep.session, now);
        drop(sessions);
        if self.has_room(&self.mounts.holds.borrow(), keep.session, 1) {
            Ok(())
        } else {
            Err(Refusal::Busy)
        }
    }

    /// Whether a session may have so many more files open.
    fn has_room(&self, holds: &Holds, session: SessionId, new: usize) -> bool {
        let limits = &self.limits;
        // In mode `none` all are one identity.
        let crowded = self.map().auth != AuthMode::None
            && holds.count_of(session.owner()) + new > limits.identity_holds;
        !crowded && holds.count(session) + new <= limits.session_holds || plant!(G71)
    }

    /// Sessions that are alive and have not said what they have open, twice as long as one that is gone would
    /// be waited for.
    pub(crate) fn mute_keepers(&self) -> Vec<SessionId> {
        let patience = self.limits.session_timeout * 2;
        self.mounts.holds.borrow().mute(self.world.mono(), patience)
    }

    fn closed(&self, session: SessionId, closed: &[Turned]) {
        let mut holds = self.mounts.holds.borrow_mut();
        closed.iter().for_each(|file| holds.close(session, *file));
    }

    /// The claim that an answer makes for the session of its asker: the file is open from now on, if its
    /// record is here. The answer says whether there is one. REQUIRES: the record is locked.
    pub(crate) fn open_claim(
        &self,
        keep: Option<&Keep>,
        slot: Option<Slot>,
        outcome: &mut Outcome,
    ) -> Result<Option<OpenClaim>, Failure> {
        let (Some(keep), Ok(Answer::Opened { entry, kept, .. })) = (keep.filter(|k| k.turn != 0), outcome)
        else {
            return Ok(None);
        };
        let home = entry.home.as_ref();
        let Some(slot) = home.map(|home| Part::whole(home.id).slot()).or(slot) else {
            return Ok(None);
        };
        *kept = entry.attr.kind == FileKind::Regular && self.serves_slot(slot);
        if !*kept {
            return Ok(None);
        }
        // It may have ended since the operation came.
        if !self.admission.sessions.borrow().knows(keep.session) {
            return Err(Failure::Refused(Refusal::KeeperUnknown));
        }
        let file = FileAt {
            slot,
            ino: entry.attr.ino,
            generation: entry.attr.generation,
        };
        let turn = keep.turn;
        Ok(Some(OpenClaim {
            session: keep.session,
            open: Turned { file, turn },
        }))
    }

    /// The file is open from now on.
    pub(crate) fn note_open(&self, claim: Option<OpenClaim>) {
        if let Some(OpenClaim { session, open }) = claim {
            self.mounts.holds.borrow_mut().note(session, open);
        }
    }

    /// What a session that keeps files open says.
    pub(crate) fn hear_holding(&self, holder: IdentityId, said: &Holding) -> Result<Response, Failure> {
        let session = said.session;
        let most = said.held.len().max(said.closed.len());
        if !session.keeps() || most > HOLDING_MAX {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        if !self.admission.sessions.borrow().knows(session) {
            return Err(Failure::Refused(Refusal::SessionUnknown));
        }
        self.admission
            .sessions
            .borrow_mut()
            .seen(session, self.world.mono());
        let all = said.held.iter().map(|held| &held.open).chain(&said.closed);
        // What is elsewhere must be said there.
        if let Some(slot) = all.map(|h| h.file.slot).find(|slot| !self.serves_slot(*slot)) {
            return Err(Failure::Refused(self.not_served(slot)));
        }
        let mut holds = self.mounts.holds.borrow_mut();
        // With an older map it does not know of all slots that are here.
        if said.whole && said.map < self.slots.gained.get().max(holds.since) {
            return Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)));
        }
        let new = || {
            said.held
                .iter()
                .filter(|held| !holds.has(session, held.open.file))
        };
        let proved = |held: &Held| {
            let FileAt { ino, generation, .. } = held.open.file;
            self.facts.keys.proved(held.proof, (ino, generation), holder) || plant!(G76)
        };
        if !new().all(proved) {
            self.count(|s| s.forged += 1);
            return Err(Failure::Refused(Refusal::BadHandle));
        }
        if !self.has_room(&holds, session, new().count()) {
            return Err(Failure::Refused(Refusal::Busy));
        }
        holds.heard += u64::from(!said.held.is_empty());
        said.held.iter().for_each(|held| holds.note(session, held.open));
        said.closed.iter().for_each(|file| holds.close(session, *file));
        if said.whole {
            holds.unstated.remove(&session);
        }
        Ok(Response::Held(holds.orphans_of(session)))
    }
}

impl Holds {
    /// For `status`: files that are open, and sessions that are waited for.
    pub fn counts(&self) -> (usize, usize) {
        (self.files.len(), self.unstated.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::{Generation, IdentityId, Ino};

    const FILE: FileAt = FileAt {
        slot: Slot(3),
        ino: Ino(7),
        generation: Generation(1),
    };

    fn session(n: u128) -> SessionId {
        SessionId::of(IdentityId::ANYONE, n << 1).keeping()
    }

    fn by(turn: u64) -> Turned {
        Turned { file: FILE, turn }
    }

    #[test]
    fn a_late_closing_does_not_take_a_later_open() {
        let (a, b) = (session(1), session(2));
        let mut holds = Holds::default();
        holds.note(a, by(1));
        holds.note(a, by(4));
        holds.close(a, by(1));
        assert_eq!(holds.holders(FILE), Holders::One(a));
        holds.note(b, by(1));
        assert_eq!(holds.holders(FILE), Holders::Several);
        assert!(holds.holders(FILE).other_than(Some(a)));
        holds.close(a, by(4));
        assert_eq!(holds.holders(FILE), Holders::One(b));
        assert!(!holds.holders(FILE).other_than(Some(b)));
        holds.end(b);
        assert_eq!((holds.holders(FILE), holds.counts()), (Holders::Nobody, (0, 0)));
    }

    #[test]
    fn after_a_restart_every_file_may_be_open() {
        let (a, b) = (session(1), session(2));
        let mut holds = Holds::default();
        holds.expect(a, Mono(0));
        assert_eq!(holds.holders(FILE), Holders::One(a));
        holds.expect(b, Mono(5));
        assert_eq!(holds.holders(FILE), Holders::Several);
        assert_eq!(holds.mute(Mono(7), Duration::from_nanos(6)), [a]);
        holds.end(a);
        holds.unstated.remove(&b);
        assert_eq!((holds.counts(), holds.awaits()), ((0, 0), false));
        assert_eq!(holds.holders(FILE), Holders::Nobody);
    }

    #[test]
    fn what_an_identity_has_open_is_counted() {
        let (a, b) = (session(1), session(2));
        let mut holds = Holds::default();
        for s in [a, a, b] {
            holds.note(s, by(1));
        }
        assert_eq!(holds.count_of(IdentityId::ANYONE), 2);
        holds.close(a, by(1));
        holds.close(a, by(1));
        assert_eq!(holds.count_of(IdentityId::ANYONE), 1);
        holds.end(b);
        assert_eq!(holds.count_of(IdentityId::ANYONE), 0);
        holds.note(a, by(2));
        holds.forget(&BTreeSet::from([FILE.slot]));
        assert_eq!((holds.count(a), holds.count_of(IdentityId::ANYONE)), (0, 0));
    }

    #[test]
    fn holds_move_with_their_slots() {
        let a = session(1);
        let slots = BTreeSet::from([Slot(3)]);
        let (mut from, mut to) = (Holds::default(), Holds::default());
        from.note(a, by(2));
        to.come(&from.of(&slots));
        assert_eq!(to.holders(FILE), Holders::One(a));
        from.forget(&slots);
        assert_eq!(from.holders(FILE), Holders::Nobody);
    }
}
