//! What the clients of a mount know together of its open files.

use pando_types::{BootEpoch, MapEpoch, Mono, ServerId, SessionId, Slot, Timestamp, plant};
use pando_wire::{FileAt, Handle, Held, Turned};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The open files of a program or mount, shared by its clients. Clones are the same.
#[derive(Clone, Default)]
pub struct Keeping(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    session: Option<SessionId>,
    /// Of the latest open.
    turn: u64,
    files: BTreeMap<FileAt, Open>,
    /// Turns of opens that have not been answered, and who may know of them.
    under_way: BTreeMap<u64, Way>,
    /// Servers that know the session.
    servers: BTreeMap<ServerId, Stated>,
    /// Closed and not said yet.
    closing: BTreeSet<Turned>,
    wake: Option<Box<dyn Fn() + Send>>,
}

struct Open {
    /// How often.
    times: usize,
    /// The latest turn.
    turn: u64,
    /// Shows that it was opened.
    proof: Handle,
}

/// Where an open that is under way was sent.
#[derive(Default)]
struct Way {
    /// To these.
    servers: BTreeSet<ServerId>,
    /// By this map at first: with another, what it opened may have moved anywhere.
    map: Option<MapEpoch>,
}

impl State {
    /// Whether an open of a turn up to this may be known to a server, and its outcome is not here yet.
    fn awaits(&self, upto: u64, server: ServerId, map: MapEpoch) -> bool {
        let mut ways = self.under_way.range(..=upto).map(|(_, way)| way);
        ways.any(|way| way.servers.contains(&server) || way.map.is_some_and(|by| by != map))
    }
}

/// What a server was told.
struct Stated {
    /// Which boot of it.
    boot: BootEpoch,
    /// By which map.
    map: MapEpoch,
    /// Opens of turns up to this were under way when it was told: what they opened may be known to an earlier
    /// boot alone, so it is to be told again when they are over. `None`: it knows all.
    again: Option<u64>,
    /// When it last answered.
    heard: Clocks,
}

/// A moment, by two clocks.
pub(super) type Clocks = (Mono, Timestamp);

/// Who was silent for so long asks before it takes its session for known. Servers remember that one has ended
/// for an hour.
const SILENT: Duration = Duration::from_secs(600);

/// What a server is about to be told.
pub(super) struct Stating {
    pub held: Vec<Held>,
    /// Nothing more can come of opens that were under way.
    pub whole: bool,
    again: Option<u64>,
}

/// An open that is under way.
pub(super) struct Turn {
    keeping: Keeping,
    pub number: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.keeping.lock().under_way.remove(&self.number);
    }
}

/// A file that is kept open: until this is dropped.
pub struct Kept {
    keeping: Keeping,
    file: FileAt,
    proof: Handle,
}

impl std::fmt::Debug for Keeping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keeping({} files)", self.lock().files.len())
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kept({:?})", self.file)
    }
}

impl Kept {
    /// Which file, and where its record was when it was opened.
    pub fn file(&self) -> FileAt {
        self.file
    }

    /// Shows that it was opened.
    pub fn proof(&self) -> Handle {
        self.proof
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.keeping.close(self.file);
    }
}

impl Keeping {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `wake` called when there is something to say ([`crate::Client::tell_closed`]).
    pub fn on_close(&self, wake: impl Fn() + Send + 'static) {
        self.lock().wake = Some(Box::new(wake));
    }

    /// How many files are open.
    pub fn count(&self) -> usize {
        self.lock().files.len()
    }

    pub(super) fn session(&self, make: impl FnOnce() -> SessionId) -> SessionId {
        *self.lock().session.get_or_insert_with(make)
    }

    pub(super) fn known_session(&self) -> Option<SessionId> {
        self.lock().session
    }

    /// The session has ended somewhere: it gets another name, which no server knows.
    pub(super) fn renew(&self, ended: SessionId) {
        let mut s = self.lock();
        if s.session == Some(ended) {
            s.session = None;
            s.servers.clear();
        }
    }

    /// The session, which is over.
    pub(super) fn ended(&self) -> Option<SessionId> {
        self.lock().session.take()
    }

    /// An open begins. It ends, and what it opened is known by then, when what is returned is dropped.
    pub(super) fn begin(&self) -> Turn {
        let mut s = self.lock();
        s.turn += 1;
        let number = s.turn;
        s.under_way.insert(number, Way::default());
        let keeping = self.clone();
        Turn { keeping, number }
    }

    /// An open is about to be sent to a server.
    pub(crate) fn goes(&self, turn: u64, server: ServerId, map: MapEpoch) {
        if let Some(way) = self.lock().under_way.get_mut(&turn) {
            way.servers.insert(server);
            way.map.get_or_insert(map);
        }
    }

    pub(super) fn keep(&self, file: FileAt, turn: u64, proof: Handle) -> Kept {
        let mut s = self.lock();
        let s = &mut *s;
        // What was not said of a later turn is not true any more: the next closing says it.
        let late = |c: &&Turned| c.file == file;
        let unsaid: Vec<Turned> = s.closing.iter().filter(late).copied().collect();
        let turn = unsaid.iter().fold(turn, |turn, c| turn.max(c.turn));
        unsaid.iter().for_each(|c| _ = s.closing.remove(c));
        let open = s.files.entry(file).or_insert(Open {
            times: 0,
            turn,
            proof,
        });
        open.times += 1;
        open.turn = open.turn.max(turn);
        open.proof = proof;
        Kept {
            keeping: self.clone(),
            file,
            proof,
        }
    }

    fn close(&self, file: FileAt) {
        let mut s = self.lock();
        let s = &mut *s;
        let Some(open) = s.files.get_mut(&file) else {
            return;
        };
        open.times -= 1;
        if open.times > 0 {
            return;
        }
        let turn = open.turn;
        s.files.remove(&file);
        s.closing.insert(Turned { file, turn });
        if let Some(wake) = &s.wake {
            wake();
        }
    }

    /// Up to `most` of what was closed in some slots, to be said: until it is heard it is said again. Not
    /// what an open that is under way may be of: its hold would go, too.
    pub(super) fn closed(&self, most: usize, there: impl Fn(Slot) -> bool) -> Vec<Turned> {
        let s = self.lock();
        let first = s.under_way.keys().next();
        let over = |closed: &Turned| first.is_none_or(|first| closed.turn < *first);
        let closed = s.closing.iter().filter(|c| there(c.file.slot) && over(c));
        closed.take(most).copied().collect()
    }

    /// A server has heard what was closed.
    pub(super) fn heard(&self, closed: &[Turned]) {
        let mut s = self.lock();
        for c in closed {
            s.closing.remove(c);
        }
    }

    /// Slots of what was closed.
    pub(super) fn closing(&self) -> BTreeSet<Slot> {
        self.lock().closing.iter().map(|c| c.file.slot).collect()
    }

    /// Slots of what is open.
    pub(super) fn slots(&self) -> BTreeSet<Slot> {
        self.lock().files.keys().map(|f| f.slot).collect()
    }

    /// Whether anything is or was open.
    pub fn is_used(&self) -> bool {
        let s = self.lock();
        s.session.is_some() || !s.closing.is_empty()
    }

    pub(super) fn servers(&self) -> BTreeSet<ServerId> {
        self.lock().servers.keys().copied().collect()
    }

    pub(super) fn retain(&self, there: impl Fn(ServerId) -> bool) {
        self.lock().servers.retain(|server, _| there(*server));
    }

    /// A server does not know the session. If it was registered there so long ago that nobody may remember
    /// its end, it is over (H194); else the server itself says so when it is registered again.
    pub(super) fn unknown(&self, session: SessionId, server: ServerId, boot: BootEpoch, now: Clocks) {
        if self.was_silent(server, boot, now) && !plant!(H194) {
            return self.renew(session);
        }
        self.lock().servers.remove(&server);
    }

    /// Whether this boot of a server knows the session and what it had open.
    pub(super) fn knows(&self, server: ServerId, boot: BootEpoch) -> bool {
        self.lock()
            .servers
            .get(&server)
            .is_some_and(|told| told.boot == boot)
    }

    /// Whether nothing was heard for long of a boot of a server that knew the session.
    pub(super) fn was_silent(&self, server: ServerId, boot: BootEpoch, (mono, now): Clocks) -> bool {
        let s = self.lock();
        let told = s.servers.get(&server).filter(|told| told.boot == boot);
        told.is_some_and(|Stated { heard, .. }| {
            let passed = now.as_nanos().abs_diff(heard.1.as_nanos());
            mono.since(heard.0) >= SILENT || passed >= SILENT.as_nanos()
        })
    }

    /// A server has answered.
    pub(super) fn heard_from(&self, server: ServerId, at: Clocks) {
        if let Some(told) = self.lock().servers.get_mut(&server) {
            told.heard = at;
        }
    }

    /// Whether an earlier boot of a server was told something, and this one was not.
    pub(super) fn knew(&self, server: ServerId, boot: BootEpoch) -> bool {
        self.lock()
            .servers
            .get(&server)
            .is_some_and(|told| told.boot != boot)
    }

    /// Whether there is nothing to be said again to this boot, which may have got slots with another map, or
    /// it cannot be yet.
    pub(super) fn is_done(&self, server: ServerId, boot: BootEpoch, map: MapEpoch) -> bool {
        let s = self.lock();
        let told = s.servers.get(&server).filter(|t| t.boot == boot && t.map == map);
        told.is_some_and(|told| told.again.is_none_or(|upto| s.awaits(upto, server, map)))
    }

    pub(super) fn stating(
        &self,
        server: ServerId,
        (boot, map): (BootEpoch, MapEpoch),
        there: impl Fn(Slot) -> bool,
    ) -> Stating {
        let s = self.lock();
        let before = s.servers.get(&server).filter(|t| t.boot == boot && t.map == map);
        // Opens that begin from now on are known to this boot if to any.
        let upto = before.and_then(|told| told.again).unwrap_or(s.turn);
        let again = s.awaits(upto, server, map).then_some(upto);
        let held = s.files.iter().filter(|(file, _)| there(file.slot));
        let turned = |(file, open): (&FileAt, &Open)| {
            let (file, turn, proof) = (*file, open.turn, open.proof);
            let open = Turned { file, turn };
            Held { open, proof }
        };
        Stating {
            held: held.map(turned).collect(),
            whole: again.is_none(),
            again,
        }
    }

    pub(super) fn stated(
        &self,
        server: ServerId,
        (boot, map): (BootEpoch, MapEpoch),
        stating: &Stating,
        session: SessionId,
        heard: Clocks,
    ) {
        let mut s = self.lock();
        if s.session == Some(session) {
            let again = stating.again;
            let stated = Stated {
                boot,
                map,
                again,
                heard,
            };
            s.servers.insert(server, stated);
        }
    }

    /// Files that a server believes open: what is not was not heard of.
    pub(super) fn told(&self, believed: Vec<Turned>) {
        let mut s = self.lock();
        let s = &mut *s;
        for told in believed {
            if !s.files.contains_key(&told.file) && !s.under_way.contains_key(&told.turn) {
                s.closing.insert(told);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::{Generation, Ino};

    const FILE: FileAt = FileAt {
        slot: Slot(1),
        ino: Ino(2),
        generation: Generation(3),
    };
    const SERVER: ServerId = ServerId(1);
    const MAP: MapEpoch = MapEpoch(5);

    fn at_second(secs: u64) -> Clocks {
        let nanos = i128::from(secs) * 1_000_000_000;
        (Mono(nanos as u64), Timestamp::from_nanos(nanos))
    }

    #[test]
    fn a_silence_is_noticed_by_either_clock() {
        let keeping = Keeping::default();
        let session = keeping.session(|| SessionId(1));
        let (boot, ten) = (BootEpoch(2), SILENT.as_secs());
        let stating = keeping.stating(SERVER, (boot, MAP), |_| true);
        assert!(
            !keeping.was_silent(SERVER, boot, at_second(9 * ten)),
            "it was told nothing"
        );
        keeping.stated(SERVER, (boot, MAP), &stating, session, at_second(0));
        assert!(!keeping.was_silent(SERVER, boot, at_second(ten - 1)));
        let (mono, now) = at_second(ten);
        let (early, start) = at_second(0);
        for clocks in [(mono, now), (early, now), (mono, start)] {
            assert!(keeping.was_silent(SERVER, boot, clocks));
            assert!(!keeping.was_silent(SERVER, BootEpoch(3), clocks));
        }
        keeping.heard_from(SERVER, at_second(ten));
        assert!(!keeping.was_silent(SERVER, boot, at_second(ten + 1)));
        // The session is known to nobody any more.
        keeping.unknown(session, SERVER, boot, at_second(9 * ten));
        assert_eq!(
            (keeping.known_session(), keeping.knows(SERVER, boot)),
            (None, false)
        );
    }

    fn open(keeping: &Keeping) -> Kept {
        let turn = keeping.begin();
        keeping.keep(FILE, turn.number, Handle(0))
    }

    #[test]
    fn a_file_is_closed_by_the_last_that_has_it_open() {
        let keeping = Keeping::default();
        let first = open(&keeping);
        let second = open(&keeping);
        drop(first);
        assert_eq!(keeping.closed(9, |_| true), []);
        drop(second);
        let closed = keeping.closed(9, |slot| slot == FILE.slot);
        assert_eq!(closed, [Turned { file: FILE, turn: 2 }]);
        assert_eq!((keeping.count(), keeping.closing().len()), (0, 1));
        keeping.heard(&closed);
        assert_eq!(keeping.closing(), BTreeSet::new());
    }

    /// The server has noted the later turn for both.
    #[test]
    fn a_closing_waits_for_opens_of_before() {
        let keeping = Keeping::default();
        let early = keeping.begin();
        drop(open(&keeping));
        assert_eq!(
            (keeping.closing().len(), keeping.closed(9, |_| true)),
            (1, vec![])
        );
        let kept = keeping.keep(FILE, early.number, Handle(0));
        drop(early);
        assert_eq!(keeping.closing().len(), 0);
        drop(kept);
        assert_eq!(keeping.closed(9, |_| true), [Turned { file: FILE, turn: 2 }]);
    }

    #[test]
    fn a_server_knows_all_only_when_opens_of_before_are_over() {
        let keeping = Keeping::default();
        let session = keeping.session(|| SessionId(1));
        let late = keeping.begin();
        let (boot, at) = ((BootEpoch(2), MAP), |_| true);
        keeping.goes(late.number, SERVER, MAP);
        // Who was not asked knows nothing of it.
        assert!(keeping.stating(ServerId(9), boot, at).whole);
        let stating = keeping.stating(SERVER, boot, at);
        assert!(!stating.whole);
        keeping.stated(SERVER, boot, &stating, session, at_second(7));
        assert!(keeping.knows(SERVER, boot.0) && keeping.is_done(SERVER, boot.0, MAP));
        assert!(!keeping.is_done(SERVER, boot.0, MapEpoch(6)));
        // One that begins now does not keep it from being whole.
        let later = keeping.begin();
        keeping.goes(later.number, SERVER, MAP);
        let _kept = keeping.keep(FILE, late.number, Handle(0));
        drop(late);
        assert!(!keeping.is_done(SERVER, boot.0, MAP));
        let stating = keeping.stating(SERVER, boot, at);
        assert_eq!((stating.whole, stating.held.len()), (true, 1));
        keeping.stated(SERVER, boot, &stating, session, at_second(7));
        assert!(keeping.is_done(SERVER, boot.0, MAP));
        // With another map what the later one opens may be here, from somebody else's earlier boot.
        assert!(!keeping.stating(SERVER, (boot.0, MapEpoch(6)), at).whole);
        assert!(!keeping.knows(SERVER, BootEpoch(3)) && keeping.knew(SERVER, BootEpoch(3)));
        assert!(!keeping.knew(SERVER, boot.0) && !keeping.knew(ServerId(9), BootEpoch(3)));
    }

    #[test]
    fn what_a_server_believes_open_and_is_not_is_closed() {
        let keeping = Keeping::default();
        let told = Turned { file: FILE, turn: 1 };
        let kept = open(&keeping);
        keeping.told(vec![told]);
        assert_eq!(keeping.closing().len(), 0);
        drop(kept);
        keeping.heard(&keeping.closed(9, |_| true));
        keeping.told(vec![told]);
        keeping.told(vec![told]);
        assert_eq!(keeping.closed(9, |_| true), [told]);
    }
}
