//! Faults that strike at a step of a protocol (see [`crate::aim`]), and cuts that leave a server to its
//! clients.

use crate::aim::{Hit, KEPT, Step};
use crate::faults::Nemesis;
use crate::world::{Death, MS, NodeId, SEC, Time};
use pando_wire::{Message, PeerRequest, Request};
use std::cell::Cell;
use std::rc::Rc;

/// How long a message is waited for.
const WAIT: Time = 2 * SEC;

impl Nemesis {
    fn coordinator(&self) -> Option<usize> {
        let coordinator = self.cluster.map().coordinator;
        self.cluster.servers.iter().position(|s| s.id == coordinator)
    }

    /// A server, the coordinator more often than others.
    fn somebody(&self) -> usize {
        let coordinator = self.coordinator().filter(|_| self.below(4) > 0);
        coordinator.unwrap_or_else(|| self.server())
    }

    /// Waits for a message of some kind; half of the time for one of the coordinator's.
    fn wait_for(self: &Rc<Self>, kind: &'static str, then: impl FnOnce(&Rc<Nemesis>, Hit) -> Time + 'static) {
        let of = self.coordinator().filter(|_| self.below(2) == 0);
        let of = of.map(|index| self.cluster.servers[index].node);
        let skip = self.below(4);
        // Where slots move, that is what it is about.
        let moving = self.cluster.settings.spares > 0 && self.below(2) == 0;
        let drawn = {
            let mut aims = self.cluster.aims.borrow_mut();
            let among = |s: Step| matches!(s, Step::Copy | Step::Settle | Step::HandOver | Step::Moved);
            let first = moving.then(|| aims.draw(among, of)).flatten();
            first.or_else(|| aims.draw(|_| true, of))
        };
        let Some((step, of)) = drawn else { return };
        self.wait_for_step(kind, (step, of, skip), then);
    }

    fn wait_for_step(
        self: &Rc<Self>,
        kind: &'static str,
        what: (Step, Option<NodeId>, u64),
        then: impl FnOnce(&Rc<Nemesis>, Hit) -> Time + 'static,
    ) {
        self.wait_for_any(kind, what, |_| true, then);
    }

    /// The same, of some such messages only.
    fn wait_for_any(
        self: &Rc<Self>,
        kind: &'static str,
        (step, of, skip): (Step, Option<NodeId>, u64),
        wanted: fn(&Message) -> bool,
        then: impl FnOnce(&Rc<Nemesis>, Hit) -> Time + 'static,
    ) {
        let (me, hit) = (self.clone(), Rc::new(Cell::new(false)));
        let was_hit = hit.clone();
        let then = Box::new(move |at: Hit| {
            hit.set(true);
            me.felt(kind, true);
            then(&me, at)
        });
        self.cluster.aims.borrow_mut().aim((step, wanted), of, skip, then);
        self.sim().note(|| format!("    waiting for {step:?}"));
        self.later(WAIT, move |me| {
            if !was_hit.get() {
                me.cluster.aims.borrow_mut().give_up();
            }
        });
    }

    /// The sender of a message, or who is to get it: one that is a server.
    fn victim(&self, at: Hit) -> Option<usize> {
        let (first, second) = match self.below(2) {
            0 => (at.from, at.to),
            _ => (at.to, at.from),
        };
        let index = |node: NodeId| self.cluster.servers.iter().position(|s| s.node == node);
        index(first).or_else(|| index(second))
    }

    /// Long enough for an election, now and then.
    fn long_downtime(&self) -> Time {
        match self.below(3) {
            0 => self.downtime(),
            _ => SEC + self.below(12 * SEC),
        }
    }

    /// All ways between a server and others.
    fn ways(&self, index: usize, clients: bool) -> Vec<(NodeId, NodeId)> {
        let node = self.cluster.servers[index].node;
        let mut others: Vec<NodeId> = self.cluster.servers.iter().map(|s| s.node).collect();
        if clients {
            others.extend(self.machines());
        }
        let both = |other: NodeId| [(node, other), (other, node)];
        others.into_iter().filter(|o| *o != node).flat_map(both).collect()
    }

    /// A process dies as it sends a message, or as one is sent to it, which often is lost with it.
    pub(crate) fn aimed_death(self: &Rc<Self>, kind: &'static str) {
        self.wait_for(kind, move |me, at| {
            let Some(index) = me.victim(at) else { return 0 };
            let how = match me.below(2) {
                0 => Death::Kill,
                _ => Death::Power,
            };
            let down = me.long_downtime();
            // From the message on nobody hears anything, or else it lives on for a moment.
            let silent = me.below(2) > 0;
            let ways = if silent { me.ways(index, true) } else { Vec::new() };
            me.cut(&ways);
            let moment = if silent { 0 } else { me.below(4 * MS) };
            me.later(moment, move |me| {
                me.mend(&ways);
                if !me.is_stopped() {
                    me.cluster.kill(index, how, Some(down));
                }
            });
            0
        });
    }

    /// From a message on a server reaches no other one, or is not reached by them, or both.
    pub(crate) fn aimed_cut(self: &Rc<Self>, kind: &'static str) {
        self.wait_for(kind, move |me, at| {
            let Some(index) = me.victim(at) else { return 0 };
            let node = me.cluster.servers[index].node;
            let clients = me.below(2) == 0;
            let direction = me.below(3);
            let mut ways = me.ways(index, clients);
            ways.retain(|(from, _)| match direction {
                0 => *from == node,
                1 => *from != node,
                _ => true,
            });
            me.cut(&ways);
            let time = me.duration(300 * MS, 8 * SEC);
            me.later(time, move |me| me.mend(&ways));
            0
        });
    }

    /// A message is held up, for long; or until who sent it has started again.
    pub(crate) fn late_message(self: &Rc<Self>, kind: &'static str) {
        self.wait_for(kind, move |me, at| {
            let from = me.cluster.servers.iter().position(|s| s.node == at.from);
            let Some(index) = from.filter(|_| me.below(3) > 0) else {
                return me.duration(500 * MS, 10 * SEC);
            };
            let (moment, down) = (me.below(3 * MS), me.downtime());
            me.later(moment, move |me| {
                if !me.is_stopped() {
                    me.cluster.kill(index, Death::Kill, Some(down));
                }
            });
            me.cluster.aims.borrow_mut().outlives(at.from);
            KEPT
        });
    }

    /// A server that lent locks starts again before it is asked for more: who goes on counts on locks that
    /// are gone (H124).
    pub(crate) fn lost_locks(self: &Rc<Self>, kind: &'static str) {
        let skip = self.below(2);
        let more = |m: &Message| {
            matches!(
                m,
                Message::Request {
                    request: Request::Peer(PeerRequest::Lock { locked: true, .. }),
                    ..
                }
            )
        };
        self.wait_for_any(kind, (Step::Lock, None, skip), more, move |me, at| {
            let Some(index) = me.cluster.servers.iter().position(|s| s.node == at.to) else {
                return 0;
            };
            let down = MS + me.below(10 * MS);
            me.later(0, move |me| {
                if !me.is_stopped() {
                    me.cluster.kill(index, Death::Kill, Some(down));
                }
            });
            me.cluster.aims.borrow_mut().outlives(at.to);
            KEPT
        });
    }

    /// At a step of its own nobody hears the coordinator any more: it dies, or goes on for its clients alone,
    /// until another has the office.
    pub(crate) fn office_falls(self: &Rc<Self>, kind: &'static str) {
        let Some(index) = self.coordinator() else { return };
        let node = self.cluster.servers[index].node;
        let own = |s: Step| {
            use Step::{Content, Decide, Head, Invalidate, Lock, Prepare};
            matches!(s, Lock | Prepare | Content | Decide | Invalidate | Head)
        };
        let decides = self.below(2) == 0;
        let wanted = |s: Step| if decides { s == Step::Decide } else { own(s) };
        let drawn = self.cluster.aims.borrow_mut().draw(wanted, Some(node));
        let Some((step, of)) = drawn else { return };
        let skip = self.below(3);
        self.wait_for_step(kind, (step, of, skip), move |me, _| {
            let time = 2 * SEC + me.below(10 * SEC);
            if me.below(2) == 0 {
                let ways = me.ways(index, true);
                me.cut(&ways);
                me.later(0, move |me| {
                    me.mend(&ways);
                    if !me.is_stopped() {
                        me.cluster.kill(index, Death::Kill, Some(time));
                    }
                });
            } else {
                me.alone(index, time, |_| {});
            }
            0
        });
    }

    /// For a while messages of one kind are late, each by another time: mostly clients' requests.
    pub(crate) fn late_kind(self: &Rc<Self>, kind: &'static str) {
        let changes = self.below(2) == 0;
        let step = self
            .cluster
            .aims
            .borrow_mut()
            .draw(|s| !changes || s == Step::Change, None);
        let Some((step, _)) = step else { return };
        let most = 20 * MS + self.duration(400 * MS, 6 * SEC);
        let percent = 10 + self.below(80);
        let before = {
            let mut aims = self.cluster.aims.borrow_mut();
            aims.late(Some((step, percent, most)));
            aims.held
        };
        self.sim()
            .note(|| format!("    {step:?}: {percent} % up to {} ms", most / MS));
        let time = 100 * MS + self.duration(SEC, 5 * SEC);
        self.later(time, move |me| {
            let held = {
                let mut aims = me.cluster.aims.borrow_mut();
                aims.late(None);
                aims.held
            };
            me.felt(kind, held > before);
        });
    }

    /// In seeds that are about steps: one such fault after the other, beside all others.
    pub(crate) fn take_aim(self: &Rc<Self>) {
        let pause = self.duration(SEC, 3 * SEC);
        self.later(pause, |me| {
            if me.is_stopped() {
                return;
            }
            if !me.is_busy() {
                let (ring, grows) = (me.cluster.settings.ring > 0, me.cluster.settings.pendulum);
                me.strike_as(match (me.below(16), me.below(2)) {
                    (_, 0) if ring => "office falls",
                    (0..=11, 0) if grows => "kept requests",
                    (0..=4, _) => "aimed death",
                    (5..=6, _) => "aimed cut",
                    (7..=10, _) => "late message",
                    (11, _) => "lost locks",
                    (12..=13, _) => "late kind",
                    (14, _) => "office falls",
                    _ => "deposed",
                });
            }
            me.take_aim();
        });
    }

    /// Requests for slots that are on the move do not arrive before those slots are back, while the clients
    /// try again and then stand still: what comes too late finds that nothing has come after it.
    pub(crate) fn kept_requests(self: &Rc<Self>, kind: &'static str) {
        let percent = 40 + self.below(60);
        let me = Rc::downgrade(self);
        let hear = Rc::new(move |client: NodeId| {
            let Some(me) = me.upgrade() else { return };
            if me.below(2) == 0 {
                let (moment, time) = (200 * MS + me.duration(SEC, 4 * SEC), me.below(8 * SEC));
                me.later(moment, move |me| me.stand_still(client, time));
            }
        });
        let before = {
            let mut aims = self.cluster.aims.borrow_mut();
            aims.keep(Some((percent, hear)));
            aims.keeps
        };
        let time = SEC + self.below(4 * SEC);
        self.later(time, move |me| {
            let keeps = {
                let mut aims = me.cluster.aims.borrow_mut();
                aims.keep(None);
                aims.keeps
            };
            me.felt(kind, keeps > before);
        });
    }

    /// A server reaches neither the others nor coordination, while clients go on asking it (H27).
    pub(crate) fn deposed(self: &Rc<Self>, kind: &'static str) {
        let index = self.somebody();
        let before = self.sim().net.borrow().counts.cut;
        let time = SEC + self.below(20 * SEC);
        self.alone(index, time, move |me| {
            me.felt(kind, me.sim().net.borrow().counts.cut > before);
        });
    }

    /// For so long a server reaches nobody but clients.
    fn alone(self: &Rc<Self>, index: usize, time: Time, then: impl FnOnce(&Rc<Nemesis>) + 'static) {
        let ways = self.ways(index, false);
        self.cut(&ways);
        let node = self.cluster.servers[index].node;
        self.cluster.coord.set_cut(node, true);
        self.later(time, move |me| {
            me.mend(&ways);
            me.cluster.coord.set_cut(node, false);
            then(me);
        });
    }

    fn cut(&self, ways: &[(NodeId, NodeId)]) {
        let mut net = self.sim().net.borrow_mut();
        ways.iter().for_each(|(a, b)| net.cut(*a, *b));
    }

    fn mend(&self, ways: &[(NodeId, NodeId)]) {
        let mut net = self.sim().net.borrow_mut();
        ways.iter().for_each(|(a, b)| net.mend(*a, *b));
    }
}
