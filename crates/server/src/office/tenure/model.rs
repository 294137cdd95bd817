//! Leases and offices under chance: three servers with clocks that differ, coordination that goes away,
//! messages that are lost, late and doubled, processes that start again, elections. What a server knows is
//! the production type; the model stands for who talks to whom, as `follow` has it.
//!
//! What must hold at every instant: one office at most (H27); and whoever may make changes and counts a
//! server as fenced is right that it acts on nothing that it heard (H112, H53).

use super::*;
use std::collections::BTreeMap;

const SERVERS: usize = 3;
const MS: u64 = 1_000_000;
/// A server's lease, and that of a member of coordination.
const LEASE: Duration = Duration::from_millis(3_200);
const MEMBER: Duration = Duration::from_millis(1_600);

/// Numbers that look random (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Who coordinates, as of a term.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
struct Map {
    term: u64,
    coordinator: usize,
}

struct Server {
    office: Office,
    boot: u64,
    map: Map,
    /// Clock: what it shows at time 0, and nanoseconds it gains in a second.
    offset: u64,
    gains: u64,
    /// The term it asked for itself.
    made: u64,
    /// Its place in the present term is an earlier process's.
    needs_new_term: bool,
}

#[derive(Clone, Debug)]
enum Packet {
    Follow {
        who: usize,
        boot: u64,
        term: u64,
        echo: (BootEpoch, Mono),
        asked: Mono,
        to: usize,
    },
    Lead {
        to: usize,
        boot: u64,
        map: Map,
        echo: (BootEpoch, Mono),
        asked: Mono,
        granted: bool,
    },
    Attend {
        who: usize,
        boot: u64,
        began: Mono,
    },
    View {
        to: usize,
        boot: u64,
        began: Mono,
        map: Map,
        members: [bool; SERVERS],
    },
    Replace {
        who: usize,
        from: Map,
    },
    NewMap {
        to: usize,
        map: Map,
    },
}

struct World {
    chance: Chance,
    now: u64,
    servers: Vec<Server>,
    /// In force at coordination, and until when it counts each server as there.
    map: Map,
    members: [u64; SERVERS],
    away: bool,
    cut: [bool; SERVERS],
    packets: Vec<Packet>,
    seen: BTreeMap<&'static str, u64>,
}

fn id(n: usize) -> ServerId {
    ServerId(n as u16 + 1)
}

fn others(n: usize) -> Vec<ServerId> {
    (0..SERVERS).filter(|o| *o != n).map(id).collect()
}

impl World {
    fn new(seed: u64) -> World {
        let mut chance = Chance(seed);
        let map = Map {
            term: 1,
            coordinator: 0,
        };
        let servers = (0..SERVERS)
            .map(|_| {
                let offset = 1_000_000 * MS + chance.below(1_000) * MS;
                Server {
                    office: Office::new(LEASE, Mono(offset)),
                    boot: 1,
                    map,
                    offset,
                    gains: chance.below(1_000_000_000 / u64::from(DRIFT)),
                    made: 0,
                    needs_new_term: false,
                }
            })
            .collect();
        World {
            chance,
            now: 0,
            servers,
            map,
            members: [0; SERVERS],
            away: false,
            cut: [false; SERVERS],
            packets: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn clock(&self, n: usize) -> Mono {
        let s = &self.servers[n];
        Mono(s.offset + self.now + self.now / 1_000 * s.gains / 1_000_000)
    }

    fn coordinates(&self, n: usize) -> bool {
        self.servers[n].map.coordinator == n && !self.servers[n].needs_new_term
    }

    fn step(&mut self) {
        let n = self.chance.below(SERVERS as u64) as usize;
        match self.chance.below(64) {
            0..=11 => self.now += self.chance.below(200) * MS,
            12..=21 => self.follow(n),
            22..=29 => self.attend(n),
            30 if self.chance.one_in(4) => self.away = !self.away,
            31 if self.chance.one_in(2) => self.cut[n] = !self.cut[n],
            32 if self.chance.one_in(8) => self.restart(n),
            _ if self.packets.is_empty() => {}
            _ => {
                let which = self.chance.below(self.packets.len() as u64) as usize;
                // Rarely twice.
                let packet = match self.chance.one_in(16) {
                    true => self.packets[which].clone(),
                    false => self.packets.swap_remove(which),
                };
                if !self.chance.one_in(12) {
                    self.deliver(packet);
                }
            }
        }
    }

    fn follow(&mut self, who: usize) {
        let asked = self.clock(who);
        let s = &self.servers[who];
        let to = s.map.coordinator;
        if to != who {
            self.packets.push(Packet::Follow {
                who,
                boot: s.boot,
                term: s.map.term,
                echo: s.office.echo(),
                asked,
                to,
            });
        }
    }

    fn attend(&mut self, who: usize) {
        let (began, boot) = (self.clock(who), self.servers[who].boot);
        self.packets.push(Packet::Attend { who, boot, began });
    }

    fn restart(&mut self, n: usize) {
        let now = self.clock(n);
        let s = &mut self.servers[n];
        s.boot += 1;
        s.office = Office::new(LEASE, now);
        s.made = 0;
        // As with leases of clients; else the log goes on in the term.
        s.needs_new_term = s.map.coordinator == n && self.chance.one_in(2);
        self.saw("restarts");
    }

    fn deliver(&mut self, packet: Packet) {
        match packet {
            Packet::Follow { who, .. } | Packet::Lead { to: who, .. } if self.cut[who] => {}
            Packet::Follow { to, .. } if self.cut[to] => {}
            Packet::NewMap { to, .. } if self.cut[to] => {}
            Packet::Attend { .. } | Packet::View { .. } | Packet::Replace { .. } if self.away => {}
            Packet::Follow {
                who,
                boot,
                term,
                echo,
                asked,
                to,
            } => {
                let now = self.clock(to);
                let c = &mut self.servers[to];
                if c.map.coordinator != to {
                    return;
                }
                let own = BootEpoch(c.boot);
                let echo = (echo.0 == own).then_some(echo.1);
                let granted = term == c.map.term
                    && c.office
                        .followed(id(who), BootEpoch(boot), echo, now, &others(to))
                    && !c.needs_new_term;
                let (map, echo) = (c.map, c.office.proof(own, now));
                self.packets.push(Packet::Lead {
                    to: who,
                    boot,
                    map,
                    echo,
                    asked,
                    granted,
                });
                if term > map.term {
                    self.attend(to);
                }
            }
            Packet::Lead {
                to,
                boot,
                map,
                echo,
                asked,
                granted,
            } => {
                if self.servers[to].boot != boot {
                    return;
                }
                self.adopt(to, map, None);
                let now = self.clock(to);
                let s = &mut self.servers[to];
                if s.map == map {
                    s.office.led(asked, now, echo, granted);
                }
            }
            Packet::Attend { who, boot, began } => {
                // Nobody is seen gone before its own count is over, by whatever clock.
                let longest = by_any_clock(MEMBER);
                self.members[who] = self.members[who].max(self.now + longest.as_nanos() as u64);
                let members = std::array::from_fn(|n| self.now < self.members[n]);
                let map = self.map;
                self.packets.push(Packet::View {
                    to: who,
                    boot,
                    began,
                    map,
                    members,
                });
            }
            Packet::View {
                to,
                boot,
                began,
                map,
                members,
            } => {
                if self.servers[to].boot != boot {
                    return;
                }
                self.adopt(to, map, Some(members));
                let s = &mut self.servers[to];
                if s.map != map {
                    return;
                }
                let mine = s.map.coordinator == to;
                if mine {
                    s.office.attended(began.after(MEMBER));
                }
                let stands = !mine && members[to] && !members[map.coordinator] && self.chance.one_in(2);
                if stands || mine && s.needs_new_term {
                    s.made = map.term + 1;
                    self.packets.push(Packet::Replace { who: to, from: map });
                }
            }
            Packet::Replace { who, from } => {
                if self.map == from {
                    self.map = Map {
                        term: from.term + 1,
                        coordinator: who,
                    };
                    self.saw("elections");
                    let map = self.map;
                    self.packets
                        .extend((0..SERVERS).map(|to| Packet::NewMap { to, map }));
                }
            }
            Packet::NewMap { to, map } => self.adopt(to, map, None),
        }
    }

    fn adopt(&mut self, n: usize, map: Map, members: Option<[bool; SERVERS]>) {
        let now = self.clock(n);
        let s = &mut self.servers[n];
        if map.term <= s.map.term {
            return;
        }
        let before = s.map.coordinator;
        let gone = members.is_some_and(|m| !m[before]) || before == n;
        s.office
            .begin_term(now, (!gone).then(|| Office::gone_after(now, MEMBER)));
        s.map = map;
        s.needs_new_term = map.coordinator == n && map.term != s.made;
    }

    /// What is wrong, if anything.
    fn wrong(&mut self) -> Option<String> {
        let in_office: Vec<usize> = (0..SERVERS)
            .filter(|n| self.coordinates(*n))
            .filter(|n| self.servers[*n].office.may_grant(self.clock(*n), &others(*n)))
            .collect();
        if in_office.len() > 1 {
            // debug: a test.
            return Some(format!("two are in office: {in_office:?}"));
        }
        let c = *in_office.first()?;
        let (now, office) = (self.clock(c), &self.servers[c].office);
        let changes = office.may_change(now, &others(c));
        let attended = office.attended.is_some_and(|until| now < until);
        let fenced = |n: &usize| office.is_fenced(id(*n), now);
        let acts = |n: &usize| self.servers[*n].office.has_lease(self.clock(*n));
        let others = || (0..SERVERS).filter(|n| *n != c);
        if changes && let Some(n) = others().find(|n| fenced(n) && acts(n)) {
            return Some(format!("{c} takes {n} for fenced, which acts on what it heard"));
        }
        let fences = others().any(|n| fenced(&n));
        for (what, happened) in [
            ("in office by the word of coordination", attended),
            ("in office by being followed", !attended),
            ("changes", changes),
            ("fences", changes && fences),
            ("leases", others().any(|n| acts(&n))),
        ] {
            if happened {
                self.saw(what);
            }
        }
        None
    }
}

/// Walks until something is wrong.
fn walk(seeds: std::ops::Range<u64>) -> Result<BTreeMap<&'static str, u64>, String> {
    let mut seen = BTreeMap::new();
    for seed in seeds {
        let mut world = World::new(seed);
        for step in 0..4_000 {
            world.step();
            if let Some(what) = world.wrong() {
                return Err(format!("seed {seed}, step {step}: {what}"));
            }
        }
        for (what, n) in world.seen {
            *seen.entry(what).or_default() += n;
        }
    }
    Ok(seen)
}

#[test]
fn one_office_at_a_time_and_nobody_acts_who_is_fenced() {
    let seen = walk(0..3_000).unwrap();
    assert_eq!(seen.len(), 7, "not all of it happened: {seen:?}");
    assert!(seen.values().all(|n| *n > 1_000), "{seen:?}");
}

#[cfg(feature = "plant")]
#[test]
fn a_walk_that_fails_for_each_planted_rule() {
    for rule in ["H27", "H53", "H112", "H132"] {
        pando_types::plant::set(&[rule]);
        let found = walk(0..3_000);
        pando_types::plant::set(&[]);
        assert!(found.is_err(), "{rule}: {found:?}");
    }
}
