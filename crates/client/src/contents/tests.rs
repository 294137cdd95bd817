use super::*;
use pando_types::{Attr, Ino, Mode, Perm};
use pando_wire::{EntryView, Handle};

const WITHIN: Duration = Duration::from_secs(10);

fn mode() -> Mode {
    Mode {
        perm: Perm::new(0o644),
        umask: Perm::new(0),
    }
}

fn dir() -> Statement {
    Statement {
        id: DirId(7),
        generation: Generation(3),
        ..Statement::above_root()
    }
}

fn name(n: u64) -> Name {
    Name::new(format!("n{n}").as_bytes()).unwrap()
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
    }
}

fn mkdir(contents: &Contents, at: Mono) {
    let op = Op::Mkdir {
        dir: Statement::above_root(),
        name: name(0),
        mode: mode(),
    };
    let view = EntryView {
        dir: Some(Box::new(dir())),
        ..view(FileKind::Directory, 1)
    };
    contents.hear(&op, &Ok(Answer::Entry(view)), None, (at, at));
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
        let stat = DirStat {
            entries: 0,
            subdirs: 0,
            atime: born,
            mtime: born,
            ctime: born,
        };
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
    for n in 0..20 {
        let (op, outcome, change) = server.turn(n % 7, n + 2);
        contents.hear(&op, &outcome, Some(change), (Mono(n), Mono(n)));
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
    let other = Statement {
        generation: Generation(4),
        ..dir()
    };
    assert!(!contents.lacks(&other, &name(7), Mono(20), WITHIN));
}

#[test]
fn what_others_change_ends_it() {
    let (contents, mut server) = (Contents::default(), Server::new());
    mkdir(&contents, Mono(1));
    let _by_others = server.turn(1, 2);
    let (op, outcome, change) = server.turn(2, 3);
    contents.hear(&op, &outcome, Some(change), (Mono(3), Mono(3)));
    assert!(!contents.lacks(&dir(), &name(3), Mono(3), WITHIN));
    assert!(contents.stat(&dir(), Mono(3), WITHIN).is_none());
    // A look says how it stands; names are not known again.
    let (op, outcome, change) = server.look();
    contents.hear(&op, &outcome, Some(change), (Mono(4), Mono(4)));
    assert_eq!(contents.stat(&dir(), Mono(4), WITHIN).unwrap().0, server.stat);
    let (op, outcome, change) = server.turn(5, 6);
    contents.hear(&op, &outcome, Some(change), (Mono(6), Mono(6)));
    assert_eq!(contents.stat(&dir(), Mono(6), WITHIN).unwrap().0, server.stat);
    assert!(!contents.lacks(&dir(), &name(3), Mono(6), WITHIN));
}

#[test]
fn what_is_in_doubt_is_not_known() {
    let contents = Contents::default();
    mkdir(&contents, Mono(1));
    // The answer of an earlier try says nothing of counts.
    let (op, outcome) = create(1);
    contents.hear(&op, &outcome, None, (Mono(2), Mono(2)));
    assert!(!contents.lacks(&dir(), &name(2), Mono(2), WITHIN));
    mkdir(&contents, Mono(3));
    contents.doubt(&Contents::at_stake(&op));
    assert!(!contents.lacks(&dir(), &name(2), Mono(3), WITHIN));
    // An error changes nothing.
    mkdir(&contents, Mono(4));
    contents.hear(&op, &Err(Errno::Exists), None, (Mono(4), Mono(4)));
    assert!(contents.lacks(&dir(), &name(2), Mono(4), WITHIN));
    // A time of the future that was set by hand is replaced by the next change.
    let (mut server, now) = (Server::new(), Mono(5));
    (server.stat.mtime, server.count) = (time(99), 500);
    let (op, outcome, change) = server.look();
    contents.hear(&op, &outcome, Some(change), (now, now));
    let (op, outcome, change) = server.turn(1, 6);
    contents.hear(&op, &outcome, Some(change), (now, now));
    assert_eq!(contents.stat(&dir(), now, WITHIN), None);
}

/// Answers come in any order; others change something now and then. Whatever is known is what was there at the last change made here, or
/// nothing is known.
#[test]
fn answers_in_any_order() {
    let mut random = 1u64;
    let mut draw = move |n: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % n
    };
    let mut known = 0;
    for _ in 0..2000 {
        let (contents, mut server) = (Contents::default(), Server::new());
        mkdir(&contents, Mono(1));
        let others = draw(3) == 0;
        let mut on_the_way = Vec::new();
        for now in 2..40 {
            if others && draw(8) == 0 {
                let _by_others = server.turn(draw(6), now);
            }
            on_the_way.push(if draw(6) == 0 {
                server.look()
            } else {
                server.turn(draw(6), now)
            });
            while on_the_way.len() > draw(5) as usize {
                let (op, outcome, change) = on_the_way.swap_remove(draw(on_the_way.len() as u64) as usize);
                contents.hear(&op, &outcome, Some(change), (Mono(now), Mono(now)));
            }
            if on_the_way.is_empty() {
                let (op, outcome, change) = server.turn(draw(6), now);
                contents.hear(&op, &outcome, Some(change), (Mono(now), Mono(now)));
                assert!(agrees(&contents, &server, Mono(now)));
                let names = contents
                    .state()
                    .of
                    .get(&key(&dir()))
                    .is_some_and(|k| k.names.is_some());
                assert!(names || others, "nobody else was here");
                known += u64::from(names);
            }
        }
    }
    assert!(known > 5000, "{known}");
}

#[test]
fn memory_is_bounded() {
    let contents = Contents::default();
    mkdir(&contents, Mono(1));
    let (mut server, now) = (Server::new(), Mono(2));
    for n in 0..NAMES as u64 + 10 {
        let (op, outcome, change) = server.turn(n, 2);
        contents.hear(&op, &outcome, Some(change), (now, now));
    }
    let state = contents.state();
    assert!(state.names <= NAMES && state.of.len() <= 1);
    assert_eq!(state.names, state.of.values().map(Known::names).sum::<usize>());
}
