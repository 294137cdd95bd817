//! A consistent cut: this server holds still while all others do, keeps a picture of its store, and goes on.
//!
//! **Why that is one moment.** An operator asks all servers to hold, and when all of them do, each for its
//! picture. There is an instant at which all hold; call it the cut. What takes effect waits in
//! [`MetaServer::flow`], between the answer to `Hold` and the picture. So the picture of each server has
//! exactly what took effect there before the cut: what was acknowledged before the operator began is in it,
//! and nothing is in it without what it rests on (H153). It is what would be found if all servers had been
//! killed at that instant: parts that were prepared, decisions and content that is owed are in the pictures,
//! and are brought to their end when they are restored (`restore`). Therefore nobody forgets an outcome while
//! holding either (H154).
//!
//! **Who holds up whom.** A hold ends by itself, whatever becomes of the operator, and after it nobody may
//! hold for four times as long as it lasted. A picture that nobody reads goes. As long as there is one no
//! file data are deleted, so that the blocks of files in it can be copied.

use crate::{Failure, MetaServer};
use pando_env::sync::{Sender, oneshot};
use pando_format::codec::Blob;
use pando_format::{KeyRange, Scan};
use pando_store::{Picture, StoreError};
use pando_types::{MapEpoch, Mono, plant};
use pando_wire::{CutAnswer, CutError, CutId, CutRequest, Response};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Most bytes of records in one answer.
const PIECE: u32 = 1 << 20;
/// After a hold so many times as long nobody may hold again.
const REST: u32 = 4;

/// The cut that there is here, if any.
#[derive(Default)]
pub(crate) struct Cuts(RefCell<State>);

#[derive(Default)]
struct State {
    live: Option<Live>,
    /// Who waits for the end of a hold: woken by being dropped.
    waiting: Vec<Sender<()>>,
    /// The last one that ended: a late copy of its messages begins nothing.
    ended: Option<CutId>,
    /// Nobody may hold before.
    rest: Option<Mono>,
    /// The longest hold so far.
    longest: Duration,
}

struct Live {
    cut: CutId,
    map: MapEpoch,
    began: Mono,
    /// When it was last heard of.
    seen: Mono,
    stage: Stage,
}

enum Stage {
    /// Nothing takes effect.
    Holding,
    /// This is how it was, and how long it was held, in microseconds.
    Taken(Rc<dyn Picture>, u64),
}

impl State {
    fn holds(&self) -> bool {
        self.live
            .as_ref()
            .is_some_and(|l| matches!(l.stage, Stage::Holding))
    }

    fn live(&mut self, cut: CutId) -> Result<&mut Live, CutError> {
        self.live.as_mut().filter(|l| l.cut == cut).ok_or(CutError::Over)
    }

    /// Everything goes on. Returns those to be woken, outside of any borrow. What took longer than `most` is
    /// no operator's doing: the machine was suspended.
    fn let_go(&mut self, now: Mono, most: Duration) -> Vec<Sender<()>> {
        if let Some(live) = self.live.as_ref().filter(|l| matches!(l.stage, Stage::Holding)) {
            let held = now.since(live.began);
            self.longest = self.longest.max(held);
            self.rest = Some(now.after(held.min(most).saturating_mul(REST)));
        }
        std::mem::take(&mut self.waiting)
    }

    /// It is over.
    fn end(&mut self, now: Mono, most: Duration) -> Vec<Sender<()>> {
        let woken = self.let_go(now, most);
        self.ended = self.live.take().map(|l| l.cut).or(self.ended);
        woken
    }
}

fn millis(left: Duration) -> u32 {
    u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1)
}

impl Cuts {
    /// Whether file data must stay: a picture may name them.
    pub fn keeps_data(&self) -> bool {
        self.0.borrow().live.is_some()
    }

    /// Whether who lets something take effect must wait.
    pub fn holds_still(&self) -> bool {
        self.0.borrow().holds() && !plant!(H153)
    }

    /// The longest hold so far.
    pub fn longest(&self) -> Duration {
        self.0.borrow().longest
    }
}

impl MetaServer {
    /// Waits while this server holds still. Whoever lets something take effect comes here first, and waits
    /// for nothing between this and the batch (H153). Whether there was anything to wait for.
    pub(crate) async fn flow(&self) -> bool {
        let mut waited = false;
        while self.slots.cuts.holds_still() {
            let (wake, woken) = oneshot();
            self.slots.cuts.0.borrow_mut().waiting.push(wake);
            woken.await;
            waited = true;
        }
        waited
    }

    pub(crate) async fn cut(&self, request: CutRequest) -> Result<Response, Failure> {
        let answer = match request {
            CutRequest::Hold { cut, map } => self.hold_still(cut, map),
            CutRequest::Take(cut) => self.take_picture(cut).await?,
            CutRequest::Read { cut, range, bytes } => self.read_picture(cut, range, bytes).await?,
            CutRequest::End(cut) => Ok(self.end_cut(cut)),
        };
        Ok(Response::Cut(answer))
    }

    /// Records that move belong to two servers, or to nobody.
    fn suits_a_cut(&self, map: MapEpoch) -> Result<(), CutError> {
        let mine = self.map();
        match mine.epoch == map {
            false => Err(CutError::OtherMap(mine.epoch)),
            true if mine.to_move() > 0 => Err(CutError::Moving),
            true => Ok(()),
        }
    }

    fn hold_still(&self, cut: CutId, map: MapEpoch) -> Result<CutAnswer, CutError> {
        self.suits_a_cut(map)?;
        self.end_idle_cut();
        let now = self.world.mono();
        let mut state = self.slots.cuts.0.borrow_mut();
        match &state.live {
            // A copy of the message.
            Some(live) if live.cut == cut && matches!(live.stage, Stage::Holding) => {
                return Ok(CutAnswer::Held);
            }
            Some(live) if live.cut == cut => return Err(CutError::Over),
            Some(live) => {
                let left = self.limits.cut_idle.saturating_sub(now.since(live.seen));
                return Err(CutError::Another(millis(left)));
            }
            None if state.ended == Some(cut) => return Err(CutError::Over),
            None => {}
        }
        if let Some(rest) = state.rest.filter(|rest| *rest > now && !plant!(G68)) {
            return Err(CutError::Rest(millis(rest.since(now))));
        }
        state.live = Some(Live {
            cut,
            map,
            began: now,
            seen: now,
            stage: Stage::Holding,
        });
        drop(state);
        self.spawn(|me| {
            Box::pin(async move {
                me.pause(me.limits.cut_hold).await;
                me.give_up_hold(cut);
            })
        });
        Ok(CutAnswer::Held)
    }

    /// The operator is away, or another server is: everything goes on.
    fn give_up_hold(&self, cut: CutId) {
        if plant!(G68) {
            return;
        }
        let now = self.world.mono();
        let mut state = self.slots.cuts.0.borrow_mut();
        if state.holds() && state.live(cut).is_ok() {
            let woken = state.end(now, self.limits.cut_hold);
            drop(state);
            drop(woken);
        }
    }

    async fn take_picture(&self, cut: CutId) -> Result<Result<CutAnswer, CutError>, Failure> {
        let taken = |state: &mut State| match &state.live(cut)?.stage {
            Stage::Taken(_, held) => Ok(Some(CutAnswer::Taken(*held))),
            Stage::Holding => Ok(None),
        };
        match taken(&mut self.slots.cuts.0.borrow_mut()) {
            Err(e) => return Ok(Err(e)),
            Ok(Some(answer)) => return Ok(Ok(answer)),
            Ok(None) => {}
        }
        let picture = self.store.picture().await?;
        let now = self.world.mono();
        let mut state = self.slots.cuts.0.borrow_mut();
        // It may have been given up meanwhile: then something may have taken effect before the picture.
        match taken(&mut state) {
            Err(e) => return Ok(Err(e)),
            Ok(Some(answer)) => return Ok(Ok(answer)),
            Ok(None) => {}
        }
        let map = state.live(cut).map_or(MapEpoch(0), |l| l.map);
        if let Err(e) = self.suits_a_cut(map) {
            let woken = state.end(now, self.limits.cut_hold);
            drop(state);
            drop(woken);
            return Ok(Err(e));
        }
        let woken = state.let_go(now, self.limits.cut_hold);
        let held = state.live(cut).map_or(0, |live| {
            let held = now.since(live.began).as_micros() as u64;
            live.seen = now;
            live.stage = Stage::Taken(picture, held);
            held
        });
        drop(state);
        drop(woken);
        Ok(Ok(CutAnswer::Taken(held)))
    }

    async fn read_picture(
        &self,
        cut: CutId,
        range: KeyRange,
        bytes: u32,
    ) -> Result<Result<CutAnswer, CutError>, Failure> {
        self.end_idle_cut();
        let now = self.world.mono();
        let picture = {
            let mut state = self.slots.cuts.0.borrow_mut();
            match state.live(cut) {
                Ok(Live {
                    seen,
                    stage: Stage::Taken(picture, _),
                    ..
                }) => {
                    *seen = now;
                    picture.clone()
                }
                _ => return Ok(Err(CutError::Over)),
            }
        };
        match picture
            .export(&Scan::Keys(range), bytes.min(PIECE) as usize)
            .await
        {
            Ok((bundle, rest)) => {
                let rest = rest.map(|rest| rest.range());
                Ok(Ok(CutAnswer::Records(Blob(bundle.0), rest)))
            }
            Err(e @ StoreError::Corrupt { .. }) => {
                self.report(&e);
                Ok(Err(CutError::Damaged))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn end_cut(&self, cut: CutId) -> CutAnswer {
        let now = self.world.mono();
        let mut state = self.slots.cuts.0.borrow_mut();
        let there = state.live(cut).is_ok();
        let woken = match there {
            true => state.end(now, self.limits.cut_hold),
            false => {
                // Its first message may still be on the way.
                state.ended = Some(cut);
                Vec::new()
            }
        };
        drop(state);
        drop(woken);
        CutAnswer::Ended(there)
    }

    /// Lets a picture go that nobody has read for a while.
    pub(crate) fn end_idle_cut(&self) {
        let now = self.world.mono();
        let mut state = self.slots.cuts.0.borrow_mut();
        let idle = state.live.as_ref().is_some_and(|live| {
            matches!(live.stage, Stage::Taken(..)) && now.since(live.seen) >= self.limits.cut_idle
        });
        if idle {
            let woken = state.end(now, self.limits.cut_hold);
            drop(state);
            drop(woken);
        }
    }
}
