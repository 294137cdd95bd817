//! Leases on directories (IndexFS §II-B): until when a server that has a directory's entry has told others
//! what that says.
//!
//! Each directory has its own length, and for each one time is remembered: the latest that was granted. A
//! change of the directory marks it: nothing is granted from then on that lasts longer than what is out
//! (H54), and when that has run out the change takes place. The mark outlasts the wait, so that the change
//! finds everything run out when it comes again (H317).
//!
//! Of a directory that is not known here anything may have been granted up to the floor: the longest lease,
//! from a time that the coordinator said after this server started, the term began, or the slot or part with
//! the entry came (H53). All times are the coordinator's.

use super::clock::later;
use crate::{Failure, MetaServer};
use pando_cluster::{Coherence, LeaseLength, LeaseUse};
use pando_env::sync::join_all;
use pando_format::{Invalidation, Key};
use pando_types::{DirId, Generation, Mono, ServerId, Watermark, plant};
use pando_wire::{LeaseRequest, PeerAnswer, PeerRequest, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Directories remembered; for others the floor counts.
const MOST: usize = 64 * 1024;
/// What lasts no longer is not granted any more: it would be out before it is used, by the clocks of others.
/// That much, and one part in `UNCERTAIN` of the longest lease.
const LEAST: Duration = Duration::from_millis(5);
const UNCERTAIN: u32 = 256;
/// A mark outlasts what it waits for by so much.
const GRACE: Duration = Duration::from_millis(500);
/// Of the longest lease so much is added where another clock may have counted it.
const SLOWER: u32 = 16;
/// Looks and changes that are counted; then both counts are halved.
const COUNTED: u32 = 32;
/// Depth of a directory that was only ever opened by its content.
const DEPTH: u32 = 4;

/// A directory's incarnation.
pub(crate) type Dir = (DirId, Generation);

/// What is remembered of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Granted {
    until: Watermark,
    /// Until when it is marked for a change; 0: it is not.
    closed: Watermark,
    depth: u32,
    looks: u32,
    changes: u32,
}

impl Granted {
    /// Until when it is remembered, if there is room: what is marked, for ever, or its change would wait for
    /// the floor of what took its place.
    fn kept(&self) -> Watermark {
        match self.closed > Watermark(0) {
            true => Watermark(u64::MAX),
            false => self.until,
        }
    }

    fn count(&mut self, looks: u32, changes: u32) {
        self.looks += looks;
        self.changes += changes;
        if self.looks + self.changes >= COUNTED {
            self.looks = (self.looks / 2).max(1);
            self.changes /= 2;
        }
    }
}

/// A lease that is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub dir: Dir,
    /// Components of the path to it; 0: not known.
    pub depth: u32,
    /// A time that has passed.
    pub now: Watermark,
    pub length: LeaseLength,
}

/// Leases that are out.
#[derive(Clone)]
pub(crate) struct Leases {
    most: usize,
    /// Of what is not known. `None`: no time was heard since that counts from.
    floor: Option<Watermark>,
    /// What is not known here may have been granted until then.
    since: Mono,
    known: BTreeMap<Dir, Granted>,
    order: BTreeSet<(Watermark, Dir)>,
}

impl Leases {
    /// Of a server that starts.
    pub fn new(now: Mono) -> Leases {
        Leases {
            most: MOST,
            floor: None,
            since: now,
            known: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }

    /// Directories came of which is not known what was granted, or another clock counts.
    pub fn arrived(&mut self, now: Mono) {
        self.floor = None;
        self.since = now;
    }

    /// Directories are not here any more, or may have been elsewhere meanwhile: no mark says any more that
    /// nobody else has granted anything.
    pub fn unmark(&mut self) {
        let marked = self.known.iter().filter(|(_, g)| g.closed > Watermark(0));
        for dir in marked.map(|(dir, _)| *dir).collect::<Vec<_>>() {
            self.changed(dir);
        }
    }

    /// What time it was when the coordinator was asked then.
    pub fn hear(&mut self, time: Watermark, asked: Mono, longest: Duration) {
        if self.floor.is_none() && asked >= self.since {
            // What was granted by the clock of another coordinator may run out a little later by this one's.
            let longest = longest + longest / SLOWER;
            self.floor = Some(if plant!(H53) { time } else { later(time, longest) });
        }
    }

    /// Until when may be told of a directory. `None`: its change is about to take place.
    pub fn grant(&mut self, ask: Ask) -> Option<Watermark> {
        let mut granted = self.known.get(&ask.dir).copied().unwrap_or_default();
        if ask.depth > 0 {
            granted.depth = ask.depth;
        }
        if ask.now < granted.closed && !plant!(H54) {
            // Others go on by what they have until then.
            let least = LEAST + ask.length.longest() / UNCERTAIN;
            return (later(ask.now, least) <= granted.until).then_some(granted.until);
        }
        granted.closed = Watermark(0);
        let millis = ask.length.millis(LeaseUse {
            depth: if granted.depth == 0 { DEPTH } else { granted.depth },
            looks: granted.looks,
            changes: granted.changes,
        });
        let until = Watermark(ask.now.0.saturating_add(millis));
        granted.until = granted.until.max(until);
        granted.count(1, 0);
        self.remember(ask.dir, granted);
        Some(until)
    }

    /// A directory is to change: it is marked. Until when its leases are out; `None`: that is not known yet.
    pub fn close(&mut self, dir: Dir, now: Watermark) -> Option<Watermark> {
        let mut granted = self.known.get(&dir).copied().unwrap_or_default();
        // Since it was marked nobody else has granted anything: what came since is not waited for.
        if now >= granted.closed {
            granted.until = granted.until.max(self.floor?);
            granted.count(0, 1);
        }
        let out = granted.until.max(now);
        granted.closed = if plant!(H317) { out } else { later(out, GRACE) };
        self.remember(dir, granted);
        Some(granted.until)
    }

    /// It has changed.
    pub fn changed(&mut self, dir: Dir) {
        if let Some(mut granted) = self.known.get(&dir).copied() {
            granted.closed = Watermark(0);
            self.remember(dir, granted);
        }
    }

    fn remember(&mut self, dir: Dir, granted: Granted) {
        if let Some(before) = self.known.insert(dir, granted) {
            self.order.remove(&(before.kept(), dir));
        }
        self.order.insert((granted.kept(), dir));
        while self.known.len() > self.most
            && let Some((_, dir)) = self.order.pop_first()
            && let Some(gone) = self.known.remove(&dir)
        {
            self.floor = self.floor.map(|floor| floor.max(gone.until));
        }
    }

    /// Directories of which is remembered what was granted.
    pub fn known(&self) -> usize {
        self.known.len()
    }
}

/// What a change has to wait for.
pub(crate) enum Closed {
    /// Nothing: it takes place now.
    Now,
    /// Leases that are out for so long.
    In(Duration),
}

/// A lease that another server has to grant.
pub(crate) struct LeaseElsewhere {
    pub server: ServerId,
    pub dir: Dir,
    /// Components of the path to it; 0: not known.
    pub depth: u32,
}

/// Directories by the server that has their entries.
pub(crate) type ByServer = BTreeMap<ServerId, Vec<Dir>>;

impl MetaServer {
    /// Lets this server's leases be looked at, with a floor if that can be known.
    fn with_leases<T>(&self, f: impl FnOnce(&mut Leases) -> T) -> T {
        let mut leases = self.facts.leases.borrow_mut();
        if let (true, Some(longest)) = (self.coordinates(), self.map().coherence.longest_lease()) {
            leases.hear(self.lease_time(), self.world.mono(), longest);
        }
        f(&mut leases)
    }

    /// Grants a lease on a directory whose entry is here, and locked. `None`: it is about to change.
    pub(crate) fn grant_lease(&self, dir: Dir, depth: u32, length: LeaseLength) -> Option<Watermark> {
        let now = self.lease_time();
        self.count(|s| s.leases += 1);
        self.with_leases(|leases| {
            leases.grant(Ask {
                dir,
                depth,
                now,
                length,
            })
        })
    }

    /// Another server asks about leases on directories whose entries are here.
    pub(crate) fn about_leases(&self, request: LeaseRequest) -> Result<PeerAnswer, Failure> {
        let Coherence::Lease(length) = self.map().coherence else {
            return Err(Failure::Refused(Refusal::Invalid));
        };
        let until = match request {
            LeaseRequest::Grant {
                term,
                dir,
                generation,
                depth,
            } => {
                self.knows_term(term)?;
                self.grant_lease((dir, generation), depth, length)
                    .unwrap_or_default()
            }
            LeaseRequest::Close { term, dirs } => {
                self.knows_term(term)?;
                self.close_here(&dirs)?
            }
            LeaseRequest::Changed { dirs } => {
                self.changed_here(&dirs);
                Watermark(0)
            }
        };
        Ok(PeerAnswer::Leased(until))
    }

    /// A time of another term says nothing here.
    fn knows_term(&self, term: pando_types::Term) -> Result<(), Failure> {
        let known = self.map().term;
        if term > known {
            self.spawn(|me| Box::pin(async move { drop(me.attend_once().await) }));
        }
        // A coordinator that has started again has no clock before its new term.
        let new_term = self.coordinates() && self.office.needs_new_term.get();
        match term == known && !new_term && self.lease_time() > Watermark(0) {
            true => Ok(()),
            false => Err(Failure::Refused(Refusal::NotReady)),
        }
    }

    fn close_here(&self, dirs: &[Dir]) -> Result<Watermark, Failure> {
        let now = self.lease_time();
        let until = self.with_leases(|leases| {
            let each = dirs.iter().map(|dir| leases.close(*dir, now));
            each.collect::<Option<Vec<_>>>()
        });
        let until = until.ok_or(Failure::Refused(Refusal::NotReady))?;
        Ok(until.into_iter().max().unwrap_or_default())
    }

    fn changed_here(&self, dirs: &[Dir]) {
        self.with_leases(|leases| dirs.iter().for_each(|dir| leases.changed(*dir)));
    }

    /// Until when may be told of a directory whose entry is on another server. It is locked there for the
    /// asker. 0: nothing is to be told of it for long.
    pub(crate) async fn lease_elsewhere(&self, wanted: LeaseElsewhere) -> Result<Watermark, Failure> {
        let request = PeerRequest::Lease(LeaseRequest::Grant {
            term: self.map().term,
            dir: wanted.dir.0,
            generation: wanted.dir.1,
            depth: wanted.depth,
        });
        match self.ask(wanted.server, request).await {
            Ok(Ok(PeerAnswer::Leased(until))) => Ok(until),
            _ => Err(Failure::Refused(Refusal::Busy)),
        }
    }

    /// On the coordinator: directories are to change whose entries are locked. They are marked where those
    /// are, and change now if no lease on them is out.
    pub(crate) async fn close_leases(&self, by_server: &ByServer) -> Result<Closed, Failure> {
        let term = self.map().term;
        let closing = by_server.iter().map(|(server, dirs)| async move {
            if *server == self.id {
                return self.close_here(dirs);
            }
            let request = PeerRequest::Lease(LeaseRequest::Close {
                term,
                dirs: dirs.clone(),
            });
            match self.ask(*server, request).await {
                Ok(Ok(PeerAnswer::Leased(until))) => Ok(until),
                _ => Err(Failure::Refused(Refusal::Busy)),
            }
        });
        type Closing<'f> = Pin<Box<dyn Future<Output = Result<Watermark, Failure>> + 'f>>;
        let closing: Vec<Closing<'_>> = closing.map(|c| Box::pin(c) as Closing<'_>).collect();
        let mut until = Watermark(0);
        for closed in join_all(closing).await {
            until = until.max(closed?);
        }
        let now = self.lease_time();
        if until <= now {
            return Ok(Closed::Now);
        }
        self.count(|s| s.lease_waits += 1);
        Ok(Closed::In(Duration::from_millis(until.0 - now.0)))
    }

    /// On the coordinator: they have changed.
    pub(crate) fn leases_changed(&self, by_server: ByServer) {
        for (server, dirs) in by_server {
            if server == self.id {
                self.changed_here(&dirs);
                continue;
            }
            let request = PeerRequest::Lease(LeaseRequest::Changed { dirs });
            self.spawn(|me| Box::pin(async move { drop(me.ask(server, request).await) }));
        }
    }

    /// Where the entries are of what is to change, by the records that were read for it.
    pub(crate) fn entries_of<'a>(
        &self,
        what: &[Invalidation],
        find: impl Fn(DirId, Generation) -> Option<&'a Key>,
    ) -> Result<ByServer, Failure> {
        let mut by_server = ByServer::new();
        for i in what {
            // Without its entry nothing of it would have been decided.
            let key = find(i.id, i.generation).ok_or(Failure::Refused(Refusal::Busy))?;
            let dirs = by_server.entry(self.home(key)).or_default();
            if !dirs.contains(&(i.id, i.generation)) {
                dirs.push((i.id, i.generation));
            }
        }
        Ok(by_server)
    }

    /// Directories of which is remembered until when others were told of them.
    pub(crate) fn leased_directories(&self) -> usize {
        self.facts.leases.borrow().known()
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: LeaseLength = LeaseLength::Fixed(100);

    fn dir(n: u128) -> Dir {
        (DirId(n), Generation(1))
    }

    fn ask(n: u128, now: u64) -> Ask {
        Ask {
            dir: dir(n),
            depth: 2,
            now: Watermark(now),
            length: LENGTH,
        }
    }

    fn ready() -> Leases {
        let mut leases = Leases::new(Mono(0));
        leases.hear(Watermark(1000), Mono(1), LENGTH.longest());
        leases
    }

    #[test]
    fn what_is_out_is_waited_for_and_not_renewed() {
        let mut l = ready();
        assert_eq!(l.grant(ask(1, 2000)), Some(Watermark(2100)));
        assert_eq!(l.grant(ask(1, 2030)), Some(Watermark(2130)));
        assert_eq!(l.close(dir(1), Watermark(2040)), Some(Watermark(2130)));
        // Others are told what runs out with what is out, until that is too little.
        assert_eq!(l.grant(ask(1, 2100)), Some(Watermark(2130)));
        assert_eq!(l.grant(ask(1, 2126)), None);
        assert_eq!(l.grant(ask(2, 2126)), Some(Watermark(2226)));
        // The mark outlasts what is out.
        assert_eq!(l.grant(ask(1, 2629)), None);
        assert_eq!(l.grant(ask(1, 2630)), Some(Watermark(2730)));
        l.close(dir(1), Watermark(2800));
        l.changed(dir(1));
        assert_eq!(l.grant(ask(1, 2801)), Some(Watermark(2901)));
    }

    #[test]
    fn of_what_is_not_known_the_longest_is_waited_for() {
        let mut l = Leases::new(Mono(50));
        assert_eq!(l.close(dir(1), Watermark(900)), None);
        // An answer to what was asked before is too old.
        l.hear(Watermark(900), Mono(49), LENGTH.longest());
        assert_eq!(l.close(dir(1), Watermark(900)), None);
        l.hear(Watermark(950), Mono(50), LENGTH.longest());
        assert_eq!(l.close(dir(1), Watermark(950)), Some(Watermark(1056)));
        l.arrived(Mono(60));
        assert_eq!(l.close(dir(1), Watermark(2000)), None);
        l.hear(Watermark(2000), Mono(61), LENGTH.longest());
        // It is marked: what came since had nothing of it, unless it was elsewhere.
        assert_eq!(l.close(dir(1), Watermark(1500)), Some(Watermark(1056)));
        l.unmark();
        assert_eq!(l.close(dir(1), Watermark(2001)), Some(Watermark(2106)));
    }

    #[test]
    fn of_what_is_forgotten_the_floor_says_until_when() {
        let mut l = ready();
        l.most = 2;
        l.grant(ask(1, 2000));
        l.grant(ask(2, 2010));
        l.grant(ask(3, 2020));
        assert_eq!((l.known(), l.order.len()), (2, 2));
        assert_eq!(l.close(dir(1), Watermark(2030)), Some(Watermark(2100)));
        assert_eq!(l.close(dir(9), Watermark(2030)), Some(Watermark(2110)));
        // What is marked is not forgotten, however much is looked at.
        l.grant(ask(4, 2050));
        l.grant(ask(5, 2060));
        assert_eq!(l.close(dir(9), Watermark(2115)), Some(Watermark(2110)));
    }

    #[test]
    fn what_changes_often_is_told_for_less_long() {
        let mut l = ready();
        let rate = |now| Ask {
            length: LeaseLength::Rate(400),
            ..ask(1, now)
        };
        assert_eq!(l.grant(rate(2000)), Some(Watermark(2600)), "by its depth");
        assert_eq!(l.grant(rate(2000)), Some(Watermark(2400)), "never changed");
        for _ in 0..2 {
            l.close(dir(1), Watermark(3000));
            l.changed(dir(1));
        }
        assert_eq!(l.grant(rate(3000)), Some(Watermark(3200)));
        for _ in 0..200 {
            l.grant(rate(3000));
        }
        assert_eq!(l.grant(rate(3000)), Some(Watermark(3400)), "long ago");
    }
}
