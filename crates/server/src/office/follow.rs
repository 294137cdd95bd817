//! Following the coordinator, standing for election, and newer maps.
//!
//! Every server asks the coordinator, again and again, for what it has not heard and for its lease, and shows
//! coordination that it is there. If the coordinator is silent and coordination says that it is gone, the map
//! is replaced by one that names another, under the next term: whoever comes first (H27).

use crate::office::tenure::Office;
use crate::{Failure, MetaServer};
use pando_cluster::{ClusterMap, CoordError, View};
use pando_format::Codec;
use pando_format::codec::Blob;
use pando_types::{BootEpoch, MapEpoch, Mono, ServerId, Term, Watermark, plant};
use pando_wire::{Op, PeerAnswer, PeerRequest, Refusal};
use std::rc::Rc;
use std::time::Duration;

/// Between two questions of who has no lease.
const PAUSE: Duration = Duration::from_millis(20);

/// What a server says of itself when it follows.
pub(crate) struct Following {
    pub who: ServerId,
    pub boot: BootEpoch,
    pub term: Term,
    pub map: MapEpoch,
    pub heard: Watermark,
    pub echo: (BootEpoch, Mono),
    pub relayed: bool,
}

impl MetaServer {
    fn with_office<T>(&self, f: impl FnOnce(&mut Office, Mono, &[ServerId]) -> T) -> T {
        let (now, others) = (self.world.mono(), self.others());
        f(&mut self.office.tenure.borrow_mut(), now, &others)
    }

    /// Whether changes of directories' names and permissions are coordinated here.
    pub(crate) fn coordinates(&self) -> bool {
        self.map.borrow().coordinator == self.id
    }

    /// Whether the map may be acted by: no boot of this server has been told of a newer one.
    pub(crate) fn believes_map(&self) -> bool {
        self.map.borrow().epoch >= self.newest_told()
    }

    /// Whether an operation may be here because this server coordinates, whoever has its slots.
    pub(crate) fn is_coordinated(&self, op: &Op) -> bool {
        op.traits().coordinated && self.coordinates()
    }

    /// Whether this server may act on what it has heard: it has its lease, or is in office itself.
    pub(crate) fn may_act(&self) -> bool {
        if !self.believes_map() {
            false
        } else if self.coordinates() {
            !self.office.needs_new_term.get()
                && self.with_office(|office, now, others| office.may_grant(now, others))
        } else {
            self.office.tenure.borrow().has_lease(self.world.mono())
        }
    }

    /// Whether this server may change what others have heard of, as the coordinator of a term.
    pub(crate) fn may_coordinate(&self, term: Term) -> bool {
        self.coordinates()
            && self.believes_map()
            && self.map.borrow().term == term
            && !self.office.needs_new_term.get()
            && self.with_office(|office, now, others| office.may_change(now, others))
    }

    /// A server follows, directly or through another.
    pub(crate) async fn lead(&self, f: Following) -> Result<PeerAnswer, Failure> {
        let map = self.map();
        if map.coordinator != self.id {
            // Two servers may not reach each other while both reach this one.
            if f.relayed || f.who == self.id || map.coordinator == f.who {
                return Err(Failure::Refused(Refusal::UseCoordinator));
            }
            let request = follow(Following { relayed: true, ..f });
            return match self.ask(map.coordinator, request).await {
                Ok(answer) => answer.map_err(Failure::Refused),
                Err(_) => Err(Failure::Refused(Refusal::NotReady)),
            };
        }
        if !self.believes_map() {
            return Err(Failure::Refused(Refusal::NotReady));
        }
        let newer = (f.map < map.epoch).then(|| Blob(map.to_bytes()));
        // What another boot said is a time of another clock, perhaps.
        let echo = (f.echo.0 == self.boot).then_some(f.echo.1);
        let granted = f.term == map.term
            && self.with_office(|office, now, others| office.followed(f.who, f.boot, echo, now, others))
            && !self.office.needs_new_term.get()
            // By a newer map others may have joined, who must be told of what changes (H10).
            && f.map <= map.epoch;
        if f.map > map.epoch {
            // Perhaps somebody has taken our place.
            self.spawn(|me| Box::pin(async move { drop(me.attend_once().await) }));
        }
        let (after, entries) = self.to_be_heard(f.heard);
        if f.term == map.term {
            self.confirmed_by(f.who, f.boot, f.heard);
        }
        Ok(PeerAnswer::Lead {
            term: map.term,
            granted,
            echo: self.with_office(|office, now, _| office.proof(self.boot, now)),
            after,
            entries,
            map: newer,
        })
    }

    /// Follows the coordinator as long as the server runs.
    pub(crate) async fn follow(self: Rc<Self>) {
        let mut turn = 0;
        while !self.stopped.get() {
            if self.coordinates() {
                let period = self.office.tenure.borrow().period();
                self.pause(period).await;
                continue;
            }
            let led = self.follow_once(&mut turn).await;
            let pause = match led {
                true => self.following_period(),
                false => {
                    let now = self.world.mono();
                    let silent = self.office.tenure.borrow_mut().not_led(now);
                    let lease = self.office.tenure.borrow().lease();
                    // Who has the lowest number of those that are there comes first, lest all stand at once.
                    let before = self.map().servers.iter().take_while(|s| s.id != self.id).count() as u32;
                    if silent > lease / 2 + lease / 16 * before.min(16) {
                        self.stand().await;
                    }
                    PAUSE
                }
            };
            self.pause(pause).await;
        }
    }

    /// Asks the coordinator once, the second time through another server. True: there is a lease.
    pub(crate) async fn follow_once(&self, turn: &mut usize) -> bool {
        let map = self.map();
        let asked = self.world.mono();
        let request = follow(Following {
            who: self.id,
            boot: self.boot,
            term: map.term,
            map: map.epoch,
            heard: self.heard_so_far(),
            echo: self.office.tenure.borrow().echo(),
            relayed: false,
        });
        let answer = match self.ask(map.coordinator, request.clone()).await {
            Ok(answer) => answer,
            Err(_) => {
                let others: Vec<_> = self
                    .others()
                    .into_iter()
                    .filter(|s| *s != map.coordinator)
                    .collect();
                *turn += 1;
                match others.get(*turn % others.len().max(1)) {
                    Some(other) => self.ask(*other, request).await.unwrap_or(Err(Refusal::NotReady)),
                    None => Err(Refusal::NotReady),
                }
            }
        };
        let Ok(PeerAnswer::Lead {
            term,
            granted,
            echo,
            after,
            entries,
            map: newer,
        }) = answer
        else {
            return false;
        };
        if let Some(newer) = newer {
            self.adopt_bytes(&newer);
        }
        if term != self.map().term || map.term != term {
            return false;
        }
        self.told_to_follow(asked, after, &entries, granted);
        self.office
            .tenure
            .borrow_mut()
            .led(asked, self.world.mono(), echo, granted);
        granted
    }

    /// Shows coordination that this server is there, as long as it runs.
    pub(crate) async fn attend(self: Rc<Self>) {
        while !self.stopped.get() {
            let view = self.attend_once().await;
            if let Ok(view) = &view
                && self.office.needs_new_term.get()
                && view.map.coordinator == self.id
            {
                self.take_office(&view.map).await;
            }
            let pause = match view {
                Ok(_) => self.office.coord.lease() / 4,
                Err(_) => (self.office.coord.lease() / 16).max(PAUSE),
            };
            self.pause(pause).await;
        }
    }

    /// Once. What coordination says is believed.
    pub(crate) async fn attend_once(&self) -> Result<View, CoordError> {
        let began = self.world.mono();
        let view = self.office.coord.attend(self.id).await;
        self.coord_seen(&view);
        let view = view?;
        if view.map.fs != self.map().fs {
            return Err(CoordError::Foreign(view.map.fs));
        }
        self.adopt_map(view.map.clone(), Some(&view));
        let map = self.map();
        if map.coordinator == self.id && map.epoch == view.map.epoch {
            self.office
                .tenure
                .borrow_mut()
                .attended(began.after(self.office.coord.lease()));
        }
        Ok(view)
    }

    fn coord_seen(&self, view: &Result<View, CoordError>) {
        let trouble = view.as_ref().err().map(ToString::to_string);
        if let Ok(view) = view {
            *self.office.members.borrow_mut() = view.members.keys().copied().collect();
        }
        let mut known = self.office.coord_trouble.borrow_mut();
        match (&trouble, &*known) {
            (Some(now), None) => tracing::warn!(server = self.id.0, error = %now, "coordination"),
            (None, Some(_)) => tracing::info!(server = self.id.0, "coordination is back"),
            _ => {}
        }
        *known = trouble;
    }

    /// Takes the coordinator's place if coordination says that it is gone.
    async fn stand(&self) {
        let Ok(view) = self.attend_once().await else {
            return;
        };
        let map = self.map();
        // Who was drained has left.
        if map.server(self.id).is_some()
            && map.coordinator != self.id
            && map.epoch == view.map.epoch
            && !view.members.contains_key(&map.coordinator)
            && view.members.contains_key(&self.id)
        {
            self.take_office(&map).await;
        }
    }

    async fn take_office(&self, from: &ClusterMap) {
        let to = ClusterMap {
            coordinator: self.id,
            term: Term(from.term.0 + 1),
            epoch: MapEpoch(from.epoch.0 + 1),
            ..from.clone()
        };
        tracing::info!(
            server = self.id.0,
            term = to.term.0,
            before = from.coordinator.0,
            "takes the office of coordinator"
        );
        self.office.made_term.set(to.term);
        if self.office.coord.replace(from.epoch, to).await.is_ok() {
            // Who is there is asked again: the one before may have come back in between.
            if self.attend_once().await.is_ok() {
                self.tell_map();
            }
        }
    }

    /// Tells all others the map, so that they need not find out.
    pub(crate) fn tell_map(&self) {
        let bytes = Blob(self.map().to_bytes());
        for server in self.others() {
            let request = PeerRequest::NewMap(bytes.clone());
            self.spawn(|me| Box::pin(async move { drop(me.ask(server, request).await) }));
        }
    }

    /// Another map, from another server.
    pub(crate) fn adopt_bytes(&self, bytes: &Blob) {
        match ClusterMap::decode(&bytes.0) {
            Ok(map) => {
                self.adopt_map(map, None);
            }
            Err(e) => tracing::error!(server = self.id.0, error = %e, "a server told an unusable map"),
        }
    }

    /// Puts a newer map in force here. `view`: it came from coordination, with who was there after it was in
    /// force.
    pub(crate) fn adopt_map(&self, map: ClusterMap, view: Option<&View>) {
        let before = self.map();
        if map.fs != before.fs || map.epoch <= before.epoch {
            return;
        }
        let new_term = map.term > before.term;
        let mine = |map: &ClusterMap, slot: usize| map.slots.get(slot) == Some(&self.id);
        let gained = (0..map.slots.len()).any(|slot| mine(&map, slot) && !mine(&before, slot));
        if gained || new_term && map.coordinator == self.id {
            self.slots.gained.set(map.epoch);
        }
        // Between two that do not follow one the other there may have been more.
        let unseen = map.epoch.0 > before.epoch.0 + 1;
        if unseen || (0..map.slots.len()).any(|slot| mine(&before, slot) && !mine(&map, slot)) {
            self.slots.lost.set(map.epoch);
        }
        let map = Rc::new(map);
        *self.map.borrow_mut() = map.clone();
        self.slots_changed(&before, &map);
        // No later boot believes an older one: its term would begin a log in which what is known now has not
        // changed.
        if let Err(e) = self.believe_from(map.epoch) {
            return self.fatal(&e);
        }
        self.observer.new_map(&map);
        if !new_term {
            return;
        }
        let now = self.world.mono();
        // Whoever was there may have shown it at this very moment.
        let gone = view.is_some_and(|v| !v.members.contains_key(&before.coordinator))
            || before.coordinator == self.id;
        let alive = (!gone).then(|| Office::gone_after(now, self.office.coord.lease()));
        self.office.tenure.borrow_mut().begin_term(now, alive);
        self.begin_log(&map);
        // An earlier boot may have been in office in that term, and told others of its log: it cannot begin
        // twice.
        if map.coordinator == self.id && map.term != self.office.made_term.get() && !plant!(H25) {
            self.office.needs_new_term.set(true);
        }
    }
}

/// The message.
fn follow(f: Following) -> PeerRequest {
    PeerRequest::Follow {
        who: f.who,
        boot: f.boot,
        term: f.term,
        map: f.map,
        heard: f.heard,
        echo: f.echo,
        relayed: f.relayed,
    }
}
