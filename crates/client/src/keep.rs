//! Files that stay open whatever others do with their names (H97).
//!
//! All clients of a mount share one [`Keeping`]: a session under which the servers of open files know that
//! they are open, and which files those are. Each open has a turn, so that what is said late of an earlier
//! one does no harm. A server that has started again, or has got slots, is told all that is open there; a
//! sign of life goes to every server that knows the session.

mod state;

use state::Clocks;
pub use state::{Keeping, Kept};

use crate::session::new_id;
use crate::{Beside, Client};
use pando_env::CallError;
use pando_env::sync::join_all;
use pando_types::{Cred, Errno, FileKind, MapEpoch, Part, ServerId, SessionId, Slot, plant};
use pando_wire::traits::Opens;
use pando_wire::{
    Answer, CLOSED_MAX, EntryView, FileAt, HOLDING_MAX, Held, Holding, Keep, Op, Outcome, Refusal, Request,
    Response,
};
use std::collections::BTreeSet;
use std::pin::pin;

/// How often a file is opened again that moves to its home, or is replaced, meanwhile.
const AGAIN: usize = 10;
/// How often a server is told the same that starts again meanwhile.
const TRIES: usize = 4;

impl Client {
    /// Opens or creates a file and keeps it open: as long as what is returned lives, and this session, the
    /// file is there.
    pub async fn op_open(&self, cred: &Cred, op: Op) -> (Outcome, Option<Kept>) {
        let Some(keeping) = &self.config.keeping else {
            return (self.op(cred, op).await, None);
        };
        let want = match op.traits().opens {
            Opens::Named(want) => Some(want),
            Opens::Unnamed | Opens::No => None,
        };
        let mut asked = self.asked(cred, op);
        for _ in 0..AGAIN {
            let (outcome, kept) = pin!(self.open_once(keeping, &mut asked)).await;
            let Ok(Answer::Opened {
                entry, kept: false, ..
            }) = &outcome
            else {
                return (outcome, kept);
            };
            let home = entry
                .home
                .clone()
                .filter(|_| entry.attr.kind == FileKind::Regular);
            let (Some(dir), Some(want)) = (home, want) else {
                return (outcome, None);
            };
            // What is held is known where the file is, and that is at another server than its name.
            let name = dir.name.clone();
            let op = Op::Open { dir, name, want };
            let mut at_home = self.asked(cred, op);
            match Box::pin(self.open_once(keeping, &mut at_home)).await {
                (Err(Errno::NotFound | Errno::Stale) | Ok(Answer::Opened { kept: false, .. }), _) => {}
                done => return done,
            }
        }
        (Err(Errno::Stale), None)
    }

    async fn open_once(&self, keeping: &Keeping, asked: &mut Request) -> (Outcome, Option<Kept>) {
        let turn = keeping.begin();
        let outcome = pin!(self.op_in_turn(asked, turn.number)).await;
        // As it was asked for last: a server may have said that the name is in another part.
        let here = match &*asked {
            Request::Op(asked) => asked.op.home_in(asked.parts),
            _ => None,
        };
        let mut kept = None;
        if let Ok(Answer::Opened {
            entry,
            proof,
            kept: true,
            ..
        }) = &outcome
            && let Some(slot) = entry
                .home
                .as_ref()
                .map(|home| Part::whole(home.id).slot())
                .or(here)
        {
            let file = FileAt {
                slot,
                ino: entry.attr.ino,
                generation: entry.attr.generation,
            };
            kept = Some(keeping.keep(file, turn.number, *proof));
        }
        (outcome, kept)
    }

    /// Where a file is that is kept open and not found any more by the name it had.
    pub async fn find_home(&self, cred: &Cred, kept: &Kept) -> Result<EntryView, Errno> {
        let FileAt {
            slot,
            ino,
            generation,
        } = kept.file();
        let op = Op::Home {
            slot,
            ino,
            generation,
            proof: kept.proof(),
        };
        match self.op(cred, op).await? {
            Answer::Entry(view) => Ok(view),
            _ => Err(Errno::Io),
        }
    }

    fn keeper(&self, keeping: &Keeping) -> SessionId {
        keeping.session(|| new_id(&self.world, self.config.identity).keeping())
    }

    /// What an operation that is sent to `server` says of open files.
    /// `closed`: what was closed, too.
    pub(crate) fn keep_for(&self, server: ServerId, op: &Op, turn: u64, closed: bool) -> Option<Keep> {
        let keeping = self.config.keeping.as_ref()?;
        let map = self.map();
        let most = if closed { CLOSED_MAX } else { 0 };
        let closed = keeping.closed(most, |slot| map.owner(slot) == server);
        let matters = turn != 0 || op.may_orphan();
        (matters || !closed.is_empty()).then(|| Keep {
            session: self.keeper(keeping),
            turn,
            closed,
        })
    }

    /// An open in this turn is about to be sent to a server.
    pub(crate) fn keeper_asks(&self, turn: u64, server: ServerId, map: MapEpoch) {
        if let Some(keeping) = &self.config.keeping {
            keeping.goes(turn, server, map);
        }
    }

    /// What was said was heard.
    pub(crate) fn keep_heard(&self, keep: Option<&Keep>) {
        if let (Some(keeping), Some(keep)) = (&self.config.keeping, keep) {
            keeping.heard(&keep.closed);
        }
    }

    /// Tells a server of the session and all it has open there: before a file is opened there to be kept, if
    /// it does not know.
    pub(crate) async fn greet_keeper(&self, server: ServerId) -> Result<(), Option<CallError>> {
        match &self.config.keeping {
            Some(keeping) => self.state(keeping, server).await,
            None => Ok(()),
        }
    }

    /// Whether this boot of a server knows the session.
    pub(crate) fn keeper_is_known(&self, server: ServerId) -> bool {
        let keeping = self.config.keeping.as_ref();
        keeping.is_none_or(|keeping| keeping.knows(server, self.boot_of(server)))
    }

    /// Whether an earlier boot of a server knew the session, and this one was told nothing.
    pub(crate) fn was_forgotten_by(&self, server: ServerId) -> bool {
        let keeping = self.config.keeping.as_ref();
        keeping.is_some_and(|keeping| keeping.knew(server, self.boot_of(server)))
    }

    /// A server does not know the session under which something was to be kept.
    pub(crate) fn keeper_unknown(&self, server: ServerId, keep: Option<&Keep>) {
        if let (Some(keeping), Some(keep)) = (&self.config.keeping, keep) {
            keeping.unknown(keep.session, server, self.boot_of(server), self.clocks());
        }
    }

    /// Registers the session with a server and says all that is open there.
    async fn state(&self, keeping: &Keeping, server: ServerId) -> Result<(), Option<CallError>> {
        for _ in 0..TRIES {
            let session = self.keeper(keeping);
            // Where it was registered it is known, or has ended: if so long ago that nobody may remember, it
            // is not registered again (H194).
            if keeping.was_silent(server, self.boot_of(server), self.clocks()) && !plant!(H194) {
                let nothing = Holding {
                    session,
                    map: self.map().epoch,
                    held: Vec::new(),
                    closed: Vec::new(),
                    whole: false,
                };
                if self.say(keeping, server, nothing).await? == Err(Refusal::SessionUnknown) {
                    keeping.unknown(session, server, self.boot_of(server), self.clocks());
                    continue;
                }
            }
            // And where it is known it may have ended at whoever had the slots that are there now (H183).
            match self.try_once(server, &Request::OpenSession(session)).await {
                Ok(Ok(Response::Ok)) => {}
                Ok(Err(Refusal::SessionUnknown)) => {
                    // It has ended there: under another name all is said anew, everywhere.
                    keeping.renew(session);
                    continue;
                }
                Ok(Err(Refusal::WrongBoot(_))) => continue,
                Ok(_) => return Err(None),
                Err(e) => return Err(Some(e)),
            }
            let boot = self.boot_of(server);
            let map = self.map();
            let told = (boot, map.epoch);
            let stating = keeping.stating(server, told, |slot| map.owner(slot) == server);
            let mut rest: Vec<&[Held]> = stating.held.chunks(HOLDING_MAX).collect();
            let heard = loop {
                // Without anything that is open it says that this is all.
                let some = rest.pop().unwrap_or_default();
                let holding = Holding {
                    session,
                    map: map.epoch,
                    held: some.to_vec(),
                    closed: Vec::new(),
                    whole: rest.is_empty() && stating.whole,
                };
                match self.say(keeping, server, holding).await? {
                    Ok(()) if rest.is_empty() => break true,
                    Ok(()) => {}
                    // The secret was changed since one of them was opened: it is without its hold, the others
                    // are not.
                    Err(Refusal::BadHandle) if some.len() > 1 => {
                        let (a, b) = some.split_at(some.len() / 2);
                        rest.extend([a, b]);
                    }
                    Err(Refusal::BadHandle) => {}
                    Err(Refusal::SessionUnknown) => {
                        keeping.unknown(session, server, boot, self.clocks());
                        break false;
                    }
                    Err(_) => break false,
                }
            };
            if heard {
                keeping.stated(server, told, &stating, session, self.clocks());
                return Ok(());
            }
        }
        Err(None)
    }

    /// The second goes on while the machine sleeps, and may be set.
    fn clocks(&self) -> Clocks {
        (self.world.mono(), self.world.now())
    }

    /// One message of the session. The inner error: it was not heard.
    async fn say(
        &self,
        keeping: &Keeping,
        server: ServerId,
        holding: Holding,
    ) -> Result<Result<(), Refusal>, Option<CallError>> {
        match self.try_once(server, &Request::Holds(holding)).await {
            Ok(Ok(Response::Held(told))) => {
                keeping.told(told);
                keeping.heard_from(server, self.clocks());
                Ok(Ok(()))
            }
            Ok(Err(Refusal::NotOwner(_))) => {
                self.refresh_map_from(vec![server]).await;
                Ok(Err(Refusal::Busy))
            }
            Ok(Err(refusal)) => Ok(Err(refusal)),
            Ok(Ok(_)) => Err(None),
            Err(e) => Err(Some(e)),
        }
    }

    /// A sign of life to every server that knows the session, or has files that are open: with what is
    /// closed, and where that is not known with all that is open. What is not heard is said the next time.
    pub async fn keep_open(&self) {
        let Some(keeping) = &self.config.keeping else {
            return;
        };
        if !keeping.is_used() {
            return;
        }
        self.look_for_map().await;
        let map = self.map();
        keeping.retain(|server| map.server(server).is_some());
        let mut servers: BTreeSet<ServerId> = keeping.servers();
        let slots = keeping.slots().into_iter().chain(keeping.closing());
        servers.extend(slots.map(|slot| map.owner(slot)));
        self.sign_all(keeping, servers).await;
    }

    /// All at once: those that are away would make the others wait too long.
    async fn sign_all(&self, keeping: &Keeping, servers: impl IntoIterator<Item = ServerId>) {
        let sign = |server: ServerId| -> Beside<'_> {
            Box::pin(async move { _ = self.sign(keeping, server).await })
        };
        join_all(servers.into_iter().map(sign).collect()).await;
    }

    async fn sign(&self, keeping: &Keeping, server: ServerId) -> Result<(), Option<CallError>> {
        for _ in 0..TRIES {
            let map = self.map();
            if !keeping.is_done(server, self.boot_of(server), map.epoch) {
                self.state(keeping, server).await?;
            }
            let map = self.map();
            let closed = keeping.closed(HOLDING_MAX, |slot| map.owner(slot) == server);
            let session = self.keeper(keeping);
            let holding = Holding {
                session,
                map: map.epoch,
                held: Vec::new(),
                closed: closed.clone(),
                whole: false,
            };
            let said = self.say(keeping, server, holding).await;
            match said? {
                Ok(()) => {
                    keeping.heard(&closed);
                    return Ok(());
                }
                Err(Refusal::SessionUnknown) => {
                    keeping.unknown(session, server, self.boot_of(server), self.clocks())
                }
                Err(_) => {}
            }
        }
        Err(None)
    }

    /// Says what is not open any more, soon after it was closed.
    pub async fn tell_closed(&self) {
        let Some(keeping) = &self.config.keeping else {
            return;
        };
        let map = self.map();
        let servers: BTreeSet<ServerId> = keeping
            .closing()
            .into_iter()
            .map(|slot| map.owner(slot))
            .collect();
        let known = keeping.servers();
        self.sign_all(keeping, servers.into_iter().filter(|s| known.contains(s)))
            .await;
    }

    /// The session under which files are kept open, if any was.
    pub fn keeping_session(&self) -> Option<SessionId> {
        self.config.keeping.as_ref()?.known_session()
    }

    /// The same, if the server of a slot says just now that it lives.
    pub async fn keeps_at(&self, slot: Slot) -> Option<SessionId> {
        let keeping = self.config.keeping.as_ref()?;
        let server = self.map().owner(slot);
        self.sign(keeping, server).await.ok()?;
        keeping.known_session()
    }

    /// Ends the session everywhere: what was open is free to go.
    pub async fn close_keeping(&self) {
        let Some(keeping) = &self.config.keeping else {
            return;
        };
        let Some(session) = keeping.ended() else {
            return;
        };
        for server in keeping.servers() {
            for _ in 0..TRIES {
                match self.try_once(server, &Request::CloseSession(session)).await {
                    Ok(Err(Refusal::WrongBoot(_))) => {}
                    _ => break,
                }
            }
        }
    }
}
