use super::*;
use pando_types::{Attr, Ino, Mode, Perm};
use pando_wire::{EntryView, Handle, Said};

const WITHIN: Duration = Duration::from_secs(10);

fn mode() -> Mode {
    Mode {
        perm: Perm::new(0o644),
        umask: Perm::new(0),
    }
}

fn dir() -> Statement {
    Statement::from(Said {
        id: DirId(7),
        generation: Generation(3),
        ..Said::above_root()
    })
}

fn name(n: u64) -> Name {
    Name::new(format!("n{n}").as_bytes()).unwrap()
}

fn at(now: Mono) -> Times {
    Times {
        first: now,
        sent: now,
        heard: now,
    }
}

fn time(n: u64) -> Timestamp {
    Timestamp {
        secs: n as i64,
        nanos: 0,
    }
}

fn view(kind: FileKind, born: u64) -> EntryView {
    EntryView {
        attr: Attr {
            ino: Ino(9),
            generation: Generation(3),
            kind,
            perm: Perm::new(0o755),
            uid: 0,
            gid: 0,
            nlink: 1,
            size: 0,
            allocated: 0,
            rdev: 0,
            atime: time(born),
            mtime: time(born),
            ctime: time(born),
        },
        dir: None,
        seal: None,
        layout: pando_format::Layout::None,
        version: 0,
        home: None,
        xattrs: false,
        acl: None,
        lease: 0,
    }
}

fn mkdir(contents: &Contents, now: Mono) {
    let op = Op::Mkdir {
        dir: Statement::above_root(),
        name: name(0),
        mode: mode(),
    };
    let view = EntryView {
        dir: Some(dir()),
        ..view(FileKind::Directory, 1)
    };
    contents.hear(&op, &Ok(Answer::Entry(view)), None, at(now));
}

fn create(n: u64) -> (Op, Outcome) {
    let op = Op::Create {
        dir: dir(),
        name: name(n),
        mode: mode(),
        exclusive: true,
        want: 0,
    };
    let answer = Answer::Opened {
        entry: view(FileKind::Regular, 1),
        data: None,
        created: true,
        handle: None,
        proof: Handle(1),
        kept: false,
    };
    (op, Ok(answer))
}

fn unlink(n: u64) -> (Op, Outcome) {
    let op = Op::Unlink {
        dir: dir(),
        name: name(n),
        held: false,
    };
    (op, Ok(Answer::Removed(view(FileKind::Regular, 1))))
}

/// What a server would say: its count, and what is there.
struct Server {
    count: u64,
    names: BTreeSet<Name>,
    stat: DirStat,
}

impl Server {
    fn new() -> Server {
        let born = time(1);
        let stat = DirStat::born(born);
        Server {
            count: UNCHANGED,
            names: BTreeSet::new(),
            stat,
        }
    }

    /// Creates the name if it is not there, else removes it.
    fn turn(&mut self, n: u64, now: u64) -> (Op, Outcome, ChangeInfo) {
        let come = self.names.insert(name(n));
        if !come {
            self.names.remove(&name(n));
        }
        self.stat.entries = self.names.len() as u64;
        self.stat.mtime = time(now);
        self.stat.ctime = time(now);
        let before = self.count;
        self.count = if before == UNCHANGED { 1000 } else { before + 1 };
        let (op, outcome) = if come { create(n) } else { unlink(n) };
        let change = ChangeInfo {
            before,
            after: self.count,
            time: time(now),
        };
        (op, outcome, change)
    }

    fn look(&self) -> (Op, Outcome, ChangeInfo) {
        let change = ChangeInfo {
            before: self.count,
            after: self.count,
            time: time(0),
        };
        (Op::DirStat { dir: dir() }, Ok(Answer::DirStat(self.stat)), change)
    }
}

fn agrees(contents: &Contents, server: &Server, now: Mono) -> bool {
    let state = contents.state();
    let known = state.of.get(&key(&dir()));
    let names = known.and_then(|k| k.names.as_ref()).and_then(|n| n.now(now));
    let stat = known.and_then(|k| k.stat.as_ref()).and_then(|s| s.now(now));
    names.is_none_or(|(names, _)| *names == server.names) && stat.is_none_or(|(stat, _)| *stat == server.stat)
}

#[test]
fn what_is_made_here_is_known() {
    let (contents, mut server) = (Contents::default(), Server::new());
    mkdir(&contents, Mono(1));
    assert!(contents.lacks(&dir(), &name(1), Mono(2), WITHIN));
    assert!(!contents.lacks(&dir(), &name(1), Mono(2), Duration::ZERO));
    for n in 0..20 {
        let (op, outcome, change) = server.turn(n % 7, n + 2);
        contents.hear(&op, &outcome, Some(change), at(Mono(n)));
        assert!(agrees(&contents, &server, Mono(n)));
        for i in 0..8 {
            let lacks = contents.lacks(&dir(), &name(i), Mono(n), WITHIN);
            assert_eq!(lacks, !server.names.contains(&name(i)));
        }
        assert_eq!(contents.stat(&dir(), Mono(n), WITHIN).unwrap().0, server.stat);
    }
    // It is as old as the request that confirmed it last.
    let old = Mono(19).after(WITHIN);
    assert!(!contents.lacks(&dir(), &name(7), old, WITHIN));
    assert!(contents.stat(&dir(), old, WITHIN).is_none());
    // Another generation is another directory.
    let other = Statement::from(Said {
        generation: Generation(4),
        ..Said::clone(&dir())
    });
    assert!(!contents.lacks(&other, &name(7), Mono(20), WITHIN));
}

#[test]
fn what_others_change_ends_it() {
    let (contents, mut server) = (Contents::default(), Server::new());
    mkdir(&contents, Mono(1));
    let _by_others = server.turn(1, 2);
    let (op, outcome, change) = server.turn(2, 3);
    contents.hear(&op, &outcome, Some(change), at(Mono(3)));
    assert!(!contents.lacks(&dir(), &name(3), Mono(3), WITHIN));
    assert!(contents.stat(&dir(), Mono(3), WITHIN).is_none());
    // A look says how it stands; names are not known again.
    let (op, outcome, change) = server.look();
    contents.hear(&op, &outcome, Some(change), at(Mono(4)));
    assert_eq!(contents.stat(&dir(), Mono(4), WITHIN).unwrap().0, server.stat);
    let (op, outcome, change) = server.turn(5, 6);
    contents.hear(&op, &outcome, Some(change), at(Mono(6)));
    assert_eq!(contents.stat(&dir(), Mono(6), WITHIN).unwrap().0, server.stat);
    assert!(!contents.lacks(&dir(), &name(3), Mono(6), WITHIN));
}

#[test]
fn what_is_in_doubt_is_not_known() {
    let contents = Contents::default();
    mkdir(&contents, Mono(1));
    // The answer of an earlier try says nothing of counts.
    let (op, outcome) = create(1);
    contents.hear(&op, &outcome, None, at(Mono(2)));
    assert!(!contents.lacks(&dir(), &name(2), Mono(2), WITHIN));
    mkdir(&contents, Mono(3));
    contents.doubt(&Contents::at_stake(&op), Mono(3));
    assert!(!contents.lacks(&dir(), &name(2), Mono(3), WITHIN));
    // A time of the future that was set by hand is replaced by the next change.
    let (mut server, now) = (Server::new(), Mono(5));
    (server.stat.mtime, server.count) = (time(99), 500);
    let (op, outcome, change) = server.look();
    contents.hear(&op, &outcome, Some(change), at(now));
    let (op, outcome, change) = server.turn(1, 6);
    contents.hear(&op, &outcome, Some(change), at(now));
    assert_eq!(contents.stat(&dir(), now, WITHIN), None);
}

/// A mount does not deny what it was told (EEXIST, and then ENOENT).
#[test]
fn what_an_answer_shows_is_there() {
    let shown = |op: Op, outcome: Outcome| {
        let (contents, mut server) = (Contents::default(), Server::new());
        mkdir(&contents, Mono(1));
        let (made, done, change) = server.turn(1, 2);
        contents.hear(&made, &done, Some(change), at(Mono(2)));
        assert!(contents.lacks(&dir(), &name(2), Mono(3), WITHIN));
        contents.hear(&op, &outcome, None, at(Mono(3)));
        !contents.lacks(&dir(), &name(2), Mono(3), WITHIN)
            && !contents.lacks(&dir(), &name(9), Mono(3), WITHIN)
    };
    let lookup = |n| Op::Lookup {
        dir: dir(),
        name: name(n),
    };
    let entry = || Ok(Answer::Entry(view(FileKind::Regular, 1)));
    // Of what is known to be there nothing is learnt.
    assert!(!shown(create(1).0, Err(Errno::Exists)) && !shown(lookup(1), entry()));
    assert!(!shown(lookup(2), Err(Errno::NotFound)));
    assert!(shown(create(2).0, Err(Errno::Exists)) && shown(lookup(2), entry()));
    let list = Op::ReadDir {
        dir: dir(),
        after: pando_format::Position::START,
        limit: 10,
        plus: false,
    };
    let page = |n| {
        let line = pando_wire::DirEntry {
            position: pando_format::Position::START,
            name: name(n),
            ino: Ino(9),
            kind: FileKind::Regular,
            view: None,
        };
        Ok(Answer::Entries {
            entries: vec![line],
            end: true,
        })
    };
    assert!(shown(list.clone(), page(2)) && !shown(list, page(1)));
}

#[test]
fn what_is_heard_late_takes_nothing_back() {
    let (contents, mut server) = (Contents::default(), Server::new());
    // A look is overtaken by a change made here, of which nothing is kept.
    let (look, stat, seen) = server.look();
    let (op, outcome, change) = server.turn(1, 2);
    contents.hear(&op, &outcome, Some(change), at(Mono(5)));
    let late = |sent| Times {
        first: Mono(sent),
        sent: Mono(sent),
        heard: Mono(9),
    };
    contents.hear(&look, &stat, Some(seen), late(4));
    assert_eq!(contents.stat(&dir(), Mono(9), WITHIN), None);
    let (look, stat, seen) = server.look();
    contents.hear(&look, &stat, Some(seen), late(6));
    assert_eq!(contents.stat(&dir(), Mono(9), WITHIN).unwrap().0, server.stat);
    // So is the answer to a mkdir, by what was done in the directory since.
    let contents = Contents::default();
    contents.doubt(&Contents::at_stake(&op), Mono(5));
    mkdir(&contents, Mono(4));
    assert!(!contents.lacks(&dir(), &name(1), Mono(6), WITHIN));
    // A change whose first try may have been executed is no younger than that.
    let (contents, mut server) = (Contents::default(), Server::new());
    mkdir(&contents, Mono(1));
    let (op, outcome, change) = server.turn(1, 2);
    let times = Times {
        first: Mono(2),
        sent: Mono(100),
        heard: Mono(101),
    };
    contents.hear(&op, &outcome, Some(change), times);
    assert!(!contents.lacks(&dir(), &name(2), Mono(102), Duration::from_nanos(100)));
    assert!(contents.lacks(&dir(), &name(2), Mono(102), Duration::from_nanos(101)));
}

/// Answers come in any order; others change something now and then. What is known when all have been heard is
/// what is there, or was at the last change made here.
#[test]
fn answers_in_any_order() {
    let mut random = 1u64;
    let mut draw = move |n: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % n
    };
    let (mut known, mut stats) = (0, 0);
    for _ in 0..2000 {
        let (contents, mut server) = (Contents::default(), Server::new());
        mkdir(&contents, Mono(1));
        let others = draw(3) == 0;
        let mut on_the_way = Vec::new();
        for now in 2..40 {
            if others && draw(8) == 0 {
                let _by_others = server.turn(draw(6), now);
            }
            let said = if draw(4) == 0 {
                server.look()
            } else {
                server.turn(draw(6), now)
            };
            on_the_way.push((2 * now, said));
            while on_the_way.len() > draw(5) as usize {
                let which = draw(on_the_way.len() as u64) as usize;
                let (sent, (op, outcome, change)) = on_the_way.swap_remove(which);
                let (sent, heard) = (Mono(sent), Mono(2 * now + 1));
                let times = Times {
                    first: sent,
                    sent,
                    heard,
                };
                contents.hear(&op, &outcome, Some(change), times);
            }
            let later = Mono(2 * now + 1);
            if on_the_way.is_empty() && !others {
                assert!(agrees(&contents, &server, later), "nobody else was here");
                stats += u64::from(contents.stat(&dir(), later, WITHIN).is_some());
            }
            if on_the_way.is_empty() {
                let (op, outcome, change) = server.turn(draw(6), now);
                contents.hear(&op, &outcome, Some(change), at(later));
                assert!(agrees(&contents, &server, later));
                let state = contents.state();
                let names = state.of.get(&key(&dir())).is_some_and(|k| k.names.is_some());
                assert!(names || others, "nobody else was here");
                known += u64::from(names);
            }
        }
    }
    assert!(known > 5000 && stats > 1000, "{known}, {stats}");
}

#[test]
fn memory_is_bounded() {
    let contents = Contents::default();
    mkdir(&contents, Mono(1));
    let (mut server, now) = (Server::new(), Mono(2));
    for n in 0..NAMES as u64 + 10 {
        let (op, outcome, change) = server.turn(n, 2);
        contents.hear(&op, &outcome, Some(change), at(now));
    }
    let state = contents.state();
    assert!(state.names <= NAMES && state.of.len() <= 1);
    assert_eq!(state.names, state.of.values().map(Known::names).sum::<usize>());
}
