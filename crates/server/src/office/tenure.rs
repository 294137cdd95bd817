//! Who coordinates, and until when: the leases that servers have of the coordinator, and the coordinator's
//! own right to change anything (H27, H112).
//!
//! Two promises, each with an end:
//! - A **lease** lets a server act on what it has heard. The coordinator grants it when the server *follows*,
//!   and the server counts from before it asked. A server that does not answer is waited for until its lease
//!   has run out, and no longer: from then on it refuses everything by itself (that is its fence), until it
//!   has followed again and heard what it missed.
//! - The **office** lets the coordinator grant leases and change what others have heard of. It lasts as long
//!   as coordination says that it is there, or, when coordination is away, as long as every other server
//!   proves to follow it: then nobody can have taken its place unnoticed, because whoever does so is one of
//!   them.
//!
//! Whoever is elected knows when the one before must have stopped: that needed the new one's own following
//! (unless coordination says it is still there), and the last answer that could prove it came at a time known
//! here. One lease after that the old office is over; two leases after it so are the leases it granted. Or
//! every other server, the old coordinator too, follows the new one: then nobody follows the old one, and
//! nothing need be waited for.
//!
//! Nothing here waits or sends; time comes in as an argument.

use pando_types::{BootEpoch, Mono, ServerId, plant};
use std::collections::BTreeMap;
use std::time::Duration;

/// Clocks differ by less than one part in so many: who counts for others adds that much.
const DRIFT: u32 = 32;

/// So long here, and it has been that long for whoever counts it.
fn by_any_clock(time: Duration) -> Duration {
    time + time / DRIFT
}

/// What proves nothing: no process has this epoch.
const NOTHING: (BootEpoch, Mono) = (BootEpoch(0), Mono(0));

/// What the coordinator knows of a server that follows it.
#[derive(Clone, Copy, Debug)]
struct Follower {
    /// Its boot.
    boot: BootEpoch,
    /// When it was granted its latest lease.
    granted: Option<Mono>,
    /// A time of ours at or after which it followed.
    proved: Option<Mono>,
}

/// The two promises, as one server knows them.
#[derive(Debug)]
pub(crate) struct Office {
    /// Length of a server's lease, and of an office that rests on being followed.
    lease: Duration,
    /// When we asked for the lease we have.
    asked: Option<Mono>,
    /// When we last heard, in whatever term, what proves to a coordinator that it was followed; at first,
    /// when our process began.
    proved: Mono,
    /// The coordinator's boot and time in its latest answer that proves something, to be shown to it.
    echo: (BootEpoch, Mono),
    /// Since when asking has brought nothing.
    silent: Option<Mono>,
    /// When this term began for us.
    began: Mono,
    /// When the office of the one before is over at the latest.
    old_office: Mono,
    /// Until when coordination counts us as being there.
    attended: Option<Mono>,
    /// Whether we have been in office in this term, or every other server has followed us in it.
    held: bool,
    followers: BTreeMap<ServerId, Follower>,
}

impl Office {
    /// At the start of a process: nothing is known of what an earlier one promised, or was promised.
    pub fn new(lease: Duration, now: Mono) -> Office {
        Office {
            lease,
            asked: None,
            proved: now,
            echo: NOTHING,
            silent: None,
            began: now,
            old_office: now.after(by_any_clock(lease)),
            attended: None,
            held: false,
            followers: BTreeMap::new(),
        }
    }

    /// When coordination counts somebody as gone at the latest who may have shown itself until now, by our
    /// clock.
    pub fn gone_after(now: Mono, member: Duration) -> Mono {
        now.after(by_any_clock(member))
    }

    /// A term begins. `alive` is until when the coordinator of the one before may be there by the word of
    /// coordination.
    pub fn begin_term(&mut self, now: Mono, alive: Option<Mono>) {
        let long = by_any_clock(self.lease);
        // It needed us, and has not had us since.
        let unfollowed = match plant!(H132) {
            true => self.asked.unwrap_or(self.proved).after(long),
            false => self.proved.after(long),
        };
        self.old_office = unfollowed.max(alive.unwrap_or(now));
        self.began = now;
        self.asked = None;
        self.echo = NOTHING;
        self.silent = None;
        self.attended = None;
        self.held = false;
        self.followers.clear();
    }

    /// How often a server that has a lease follows.
    pub fn period(&self) -> Duration {
        self.lease / 4
    }

    /// Length of a lease.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    // As a server that follows.

    /// What proves to the coordinator that it was followed.
    pub fn echo(&self) -> (BootEpoch, Mono) {
        self.echo
    }

    /// The coordinator has answered what was asked then.
    pub fn led(&mut self, asked: Mono, now: Mono, echo: (BootEpoch, Mono), granted: bool) {
        if echo != NOTHING {
            self.echo = self.echo.max(echo);
            self.proved = now;
        }
        if granted {
            self.asked = self.asked.max(Some(asked));
            self.silent = None;
        }
    }

    /// Asking brought nothing. Returns for how long that has been so.
    pub fn not_led(&mut self, now: Mono) -> Duration {
        now.since(*self.silent.get_or_insert(now))
    }

    /// Whether what was heard may be acted on.
    pub fn has_lease(&self, now: Mono) -> bool {
        plant!(H112) || plant!(H15) || self.asked.is_some_and(|asked| now < asked.after(self.lease))
    }

    // As the coordinator.

    /// Coordination has said that we are there, asked at some time.
    pub fn attended(&mut self, until: Mono) {
        self.attended = self.attended.max(Some(until));
    }

    /// A server follows us, and shows a time of ours if it has one. Returns whether it may have its lease.
    /// REQUIRES: it believes in our term.
    pub fn followed(
        &mut self,
        who: ServerId,
        boot: BootEpoch,
        echo: Option<Mono>,
        now: Mono,
        others: &[ServerId],
    ) -> bool {
        let follower = self.followers.entry(who).or_insert(Follower {
            boot,
            granted: None,
            proved: None,
        });
        follower.boot = boot;
        follower.proved = follower.proved.max(echo);
        let granted = self.may_grant(now, others);
        self.held |= granted || self.all_follow(others);
        if let (true, Some(follower)) = (granted, self.followers.get_mut(&who)) {
            follower.granted = Some(now);
        }
        granted
    }

    /// What an answer of this boot, given now, proves to us when it is shown. Nothing, as long as we have not
    /// been in office: who was elected and waits for the end of an earlier office would else put it off for
    /// whoever is elected next, who counts from the latest answer that proves something (H132).
    pub fn proof(&self, boot: BootEpoch, now: Mono) -> (BootEpoch, Mono) {
        match self.held {
            true => (boot, now),
            false => NOTHING,
        }
    }

    /// The boot under which a server follows.
    pub fn boot_of(&self, who: ServerId) -> Option<BootEpoch> {
        self.followers.get(&who).map(|f| f.boot)
    }

    fn all_follow(&self, others: &[ServerId]) -> bool {
        others.iter().all(|s| self.followers.contains_key(s))
    }

    /// Whether nobody can have taken our place.
    fn valid(&self, now: Mono, others: &[ServerId]) -> bool {
        let proved = |s: &ServerId| {
            let proved = self.followers.get(s).and_then(|f| f.proved);
            proved.is_some_and(|at| now < at.after(self.lease))
        };
        plant!(H27) || self.attended.is_some_and(|until| now < until) || others.iter().all(proved)
    }

    /// Whether what we say is the truth: we are in office, and nobody changes anything in the name of the one
    /// before.
    pub fn may_grant(&self, now: Mono, others: &[ServerId]) -> bool {
        self.valid(now, others) && (self.all_follow(others) || now >= self.old_office || plant!(H53))
    }

    /// Whether we may change what others have heard of: besides, nobody acts on what the one before has told.
    pub fn may_change(&self, now: Mono, others: &[ServerId]) -> bool {
        let old_leases = self.old_office.after(by_any_clock(self.lease));
        self.valid(now, others) && (self.all_follow(others) || now >= old_leases || plant!(H53))
    }

    /// Whether a server that does not answer has stopped acting on what it has heard.
    pub fn is_fenced(&self, who: ServerId, now: Mono) -> bool {
        // What an earlier process of ours granted is not known.
        let granted = self.followers.get(&who).and_then(|f| f.granted);
        let last = granted.unwrap_or(self.began).max(self.began);
        now >= last.after(by_any_clock(self.lease))
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    const L: Duration = Duration::from_millis(3200);
    const OTHERS: [ServerId; 2] = [ServerId(2), ServerId(3)];

    fn at(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    #[test]
    fn a_lease_is_counted_from_before_it_was_asked_for_and_outlasted_by_who_gave_it() {
        let mut server = Office::new(L, at(0));
        assert!(!server.has_lease(at(0)));
        server.led(at(1000), at(2000), (BootEpoch(1), at(70)), true);
        assert!(server.has_lease(at(4199)) && !server.has_lease(at(4200)));
        let mut coordinator = Office::new(L, at(0));
        coordinator.attended(at(100_000));
        for who in OTHERS {
            assert_eq!(
                coordinator.followed(who, BootEpoch(1), None, at(1500), &OTHERS),
                who == OTHERS[1]
            );
        }
        assert!(coordinator.followed(OTHERS[0], BootEpoch(1), None, at(1600), &OTHERS));
        assert!(!coordinator.is_fenced(OTHERS[0], at(4899)) && coordinator.is_fenced(OTHERS[0], at(4900)));
    }

    #[test]
    fn without_coordination_an_office_lasts_as_long_as_all_prove_to_follow() {
        let mut c = Office::new(L, at(0));
        for who in OTHERS {
            c.followed(who, BootEpoch(1), None, at(10), &OTHERS);
        }
        assert!(!c.may_change(at(10), &OTHERS), "they may have followed long ago");
        c.followed(OTHERS[0], BootEpoch(1), Some(at(10)), at(1000), &OTHERS);
        assert!(!c.may_change(at(1000), &OTHERS));
        c.followed(OTHERS[1], BootEpoch(1), Some(at(20)), at(1000), &OTHERS);
        assert!(c.may_change(at(1000), &OTHERS));
        // What they prove is as old as what they show, however late it comes.
        c.followed(OTHERS[1], BootEpoch(1), Some(at(20)), at(3000), &OTHERS);
        assert!(c.may_change(at(3209), &OTHERS) && !c.may_change(at(3210), &OTHERS));
        c.attended(at(9000));
        assert!(c.may_change(at(8999), &OTHERS) && !c.may_change(at(9000), &OTHERS));
    }

    #[test]
    fn who_is_elected_outlasts_the_one_before() {
        let mut c = Office::new(L, at(0));
        c.led(at(990), at(1000), (BootEpoch(1), at(5)), true);
        c.begin_term(at(2000), None);
        c.attended(at(100_000));
        assert!(!c.has_lease(at(2000)));
        // Office of the one before: until 1000 + 3300; leases of others: 3300 more.
        assert!(!c.may_grant(at(4299), &OTHERS) && c.may_grant(at(4300), &OTHERS));
        assert!(!c.may_change(at(7599), &OTHERS) && c.may_change(at(7600), &OTHERS));
        c.followed(OTHERS[0], BootEpoch(1), None, at(2100), &OTHERS);
        assert!(!c.may_change(at(2100), &OTHERS));
        c.followed(OTHERS[1], BootEpoch(1), None, at(2100), &OTHERS);
        assert!(c.may_change(at(2100), &OTHERS), "nobody follows the one before");
        // Coordination may still count the one before as being there.
        let mut c = Office::new(L, at(0));
        c.led(at(990), at(1000), (BootEpoch(1), at(5)), true);
        c.begin_term(at(2000), Some(at(9000)));
        c.attended(at(100_000));
        assert!(!c.may_grant(at(8999), &OTHERS) && c.may_grant(at(9000), &OTHERS));
    }
}
