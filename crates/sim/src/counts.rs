//! Counted: how many round trips an operation takes by its path, which servers it concerns, and with how many
//! messages between them (InfiniFS §3.2: one server or two). No faults, one client, the judge watching.

use crate::births::{Program, on_a_cluster, on_a_cluster_with};
use pando_client::explain::{Exchange, Explained, How};
use pando_client::file::{self, DataSync, OpenFile, Place};
use pando_cluster::DirectoryUpdates;
use pando_data::MemBlocks;
use pando_env::sync::join_all;
use pando_types::{Access, AttrChange, Birth, Cred, DirId, Errno, Name, Part, Perm, ServerId, Timestamp};
use pando_wire::{ErrandEnd, Op, Refusal, RenameMode, Request, Task};
use std::collections::BTreeSet;
use std::pin::Pin;

/// What one operation took.
struct Cost {
    explained: Explained,
    /// Messages between servers, as they count them.
    between: u64,
}

impl Cost {
    /// The client's messages: what, to whom.
    fn asked(&self) -> Vec<(&'static str, ServerId)> {
        let kind = |m: &Exchange| match &m.request {
            Request::Op(asked) => asked.op.kind(),
            Request::Probe { .. } => "probe",
            _ => "other",
        };
        self.explained.messages.iter().map(|m| (kind(m), m.to)).collect()
    }

    /// The messages of the servers that were asked: what, to whom, and whether somebody waited for it.
    fn in_turn(&self) -> Vec<(Task, ServerId, bool)> {
        let accounts = self.explained.messages.iter().filter_map(|m| m.account.as_ref());
        let errands = accounts.flat_map(|a| &a.errands);
        errands
            .map(|e| (e.what, e.to, e.end != ErrandEnd::Later))
            .collect()
    }

    /// All servers it concerned.
    fn servers(&self) -> BTreeSet<ServerId> {
        let asked = self.explained.messages.iter().map(|m| m.to);
        asked
            .chain(self.in_turn().into_iter().map(|(_, to, _)| to))
            .collect()
    }
}

const ROOT: fn() -> Cred = Cred::root;
const DIRS: fn() -> Perm = || Perm::new(0o755);

impl Program {
    /// What something takes that succeeds.
    async fn cost<T>(&self, what: &str, f: impl AsyncFnOnce() -> Result<T, Errno>) -> (T, Cost) {
        self.settle().await;
        let before = self.counted("peer_calls");
        let (done, explained) = self.client.explain(f()).await;
        let done = done.unwrap_or_else(|e| panic!("{what}: {e}"));
        // What is told after the answer is counted too.
        self.settle().await;
        let cost = Cost {
            explained: explained.expect("nothing else is explained"),
            between: self.counted("peer_calls") - before,
        };
        println!(
            "{what}: {} round trips, {:?}, in turn {:?}",
            cost.explained.rounds(),
            cost.asked(),
            cost.in_turn()
        );
        let rounds = u64::from(cost.explained.rounds());
        assert_eq!(rounds, cost.explained.stats.round_trips, "{what}");
        // Of what it refused a server tells nothing.
        let refused = |m: &Exchange| matches!(m.answer, Some(Ok(Err(_))));
        let untold = cost.explained.messages.iter().any(refused);
        let told = cost.in_turn().len() as u64;
        assert!(told == cost.between || untold && told < cost.between, "{what}");
        (done, cost)
    }

    fn owner(&self, dir: DirId) -> ServerId {
        self.client.map().owner(Part::whole(dir).slot())
    }

    /// The directory a path leads to.
    async fn dir(&self, path: &[u8]) -> DirId {
        let found = self.client.resolve(&ROOT(), path, true).await.expect("found");
        found.entry.dir.expect("a directory").id
    }

    async fn make_dir(&self, path: &[u8]) {
        self.client.mkdir(&ROOT(), path, DIRS()).await.expect("made");
    }

    /// `/d0/d1/…`.
    async fn make_dirs(&self, depth: usize) -> Vec<u8> {
        let mut path = Vec::new();
        for n in 0..depth {
            path.extend_from_slice(format!("/d{n}").as_bytes());
            self.make_dir(&path).await;
        }
        path
    }

    /// A path in the directory `dir` for a directory whose content will be on another server.
    fn elsewhere(&self, dir: DirId, path: &[u8], name: &str) -> Vec<u8> {
        let widths = self.client.map().widths();
        let id = |name: &String| {
            widths.dir_id(&Birth {
                parent: dir,
                name: Name::new(name.as_bytes()).expect("a name"),
                version: 0,
            })
        };
        let mut names = (0..).map(|n| format!("{name}{n}"));
        let far = names.find(|name| self.owner(id(name)) != self.owner(dir));
        below(path, &far.expect("some are"))
    }

    /// Every server's boot, and the session there, are known.
    async fn greet(&self) {
        for server in self.client.map().servers.iter().map(|s| s.id) {
            self.client.greet(server, true).await;
        }
    }

    async fn place(&self, path: &[u8]) -> Result<Place, Errno> {
        let (dir, name) = self.client.parent_of(&ROOT(), path).await?;
        Ok(Place { dir, name })
    }

    async fn create(&self, path: &[u8]) -> Result<(), Errno> {
        let place = self.place(path).await?;
        file::create(
            &*self.client,
            &ROOT(),
            &place,
            Perm::new(0o644),
            true,
            Access::WRITE,
        )
        .await
        .map(|_| ())
    }

    async fn open(&self, path: &[u8]) -> Result<OpenFile, Errno> {
        let place = self.place(path).await?;
        let want = Access(Access::READ.0 | Access::WRITE.0);
        let opened = file::open(&*self.client, &ROOT(), &place, want).await?;
        OpenFile::new(place, opened, DataSync::BeforePublish)
    }
}

fn below(path: &[u8], name: &str) -> Vec<u8> {
    [path, b"/", name.as_bytes()].concat()
}

fn mode(perm: u16) -> AttrChange {
    AttrChange {
        perm: Some(Perm::new(perm)),
        ..AttrChange::default()
    }
}

/// Directories on the way cost nothing once they are known, and what is done to a file concerns the server of
/// its directory.
#[test]
fn files_concern_one_server() {
    on_a_cluster(128, |p| async move {
        let deep = p.make_dirs(12).await;
        p.greet().await;
        p.create(&below(&deep, "warm")).await.expect("made");
        let (c, f) = (&p.client, below(&deep, "f"));
        let home = p.owner(p.dir(&deep).await);
        let one = |cost: &Cost, kinds: &[&'static str]| {
            let asked: Vec<_> = kinds.iter().map(|kind| (*kind, home)).collect();
            assert_eq!(cost.asked(), asked);
            assert_eq!(cost.explained.rounds() as usize, kinds.len());
            assert_eq!(cost.in_turn(), []);
            let on_the_way = &cost.explained.components[..13];
            assert!(on_the_way.iter().all(|p| p.how == How::Cached));
        };
        one(
            &p.cost("create", async || p.create(&f).await).await.1,
            &["create"],
        );
        let (mut file, cost) = p.cost("open", async || p.open(&f).await).await;
        one(&cost, &["open"]);
        let cost = p.cost("stat", async || c.stat(&ROOT(), &f, true).await).await.1;
        one(&cost, &["lookup"]);
        // Attributes are changed of the object that was looked at.
        let chmod = async || c.set_attr(&ROOT(), &f, true, mode(0o600)).await;
        one(&p.cost("chmod", chmod).await.1, &["lookup", "setattr"]);
        let list = async || {
            let dir = p.place(&f).await?.dir;
            c.list(&ROOT(), dir, true).next_page().await
        };
        let (page, cost) = p.cost("readdir", list).await;
        assert!(!page.is_empty());
        one(&cost, &["readdir"]);
        // What is written is published when the file is closed; what was only read is not.
        let (blocks, now) = (MemBlocks::new(), Timestamp::default());
        let write = async || file.write(&**c, &blocks, &ROOT(), 0, b"x", now).await;
        assert_eq!(p.cost("write", write).await.1.asked(), []);
        let cost = p
            .cost("close", async || file.close(&**c, &blocks, &ROOT()).await)
            .await
            .1;
        assert_eq!(cost.asked(), [("publish", home)]);
        assert_eq!((cost.explained.rounds(), cost.between), (1, 0));
        let cost = p
            .cost("close", async || file.close(&**c, &blocks, &ROOT()).await)
            .await
            .1;
        assert_eq!(cost.asked(), []);
        let unlink = async || c.unlink(&ROOT(), &f).await;
        one(&p.cost("unlink", unlink).await.1, &["unlink"]);
    });
}

/// Many names go in one request; only what has a home is asked for by itself.
#[test]
fn many_names_go_in_one_round_trip() {
    on_a_cluster(124, |p| async move {
        let deep = p.make_dirs(3).await;
        p.greet().await;
        let c = &p.client;
        let name = |n: &str| Name::new(n.as_bytes()).expect("a name");
        for n in ["a", "b", "linked"] {
            p.create(&below(&deep, n)).await.expect("made");
        }
        let dir = p.place(&below(&deep, "a")).await.expect("known").dir;
        let home = p.owner(dir.id);
        let names = [name("a"), name("none"), name("b"), name("a")];
        let many = async || Ok::<_, Errno>(c.unlink_many(&ROOT(), &dir, &names).await);
        let (fates, cost) = p.cost("unlinkmany", many).await;
        let gone = Err(Errno::NotFound);
        assert_eq!(fates, [Ok(()), gone, Ok(()), gone]);
        assert_eq!(cost.asked(), [("unlinkmany", home)]);
        assert_eq!((cost.explained.rounds(), cost.between), (1, 0));

        let (linked, other) = (below(&deep, "linked"), below(&deep, "other"));
        c.link(&ROOT(), &linked, &other).await.expect("linked");
        let names = [name("linked")];
        let many = async || Ok::<_, Errno>(c.unlink_many(&ROOT(), &dir, &names).await);
        let (fates, cost) = p.cost("unlinkmany", many).await;
        assert_eq!(fates, [Ok(())]);
        assert_eq!(cost.asked(), [("unlinkmany", home), ("unlink", home)]);
        let left = c.stat(&ROOT(), &other, true).await.expect("there");
        assert_eq!(left.nlink, 1);
        // None at all, and too many.
        for n in [0, pando_wire::UNLINK_MAX + 1] {
            let (dir, names) = (dir.clone(), vec![name("x"); n]);
            let outcome = c.op(&ROOT(), Op::UnlinkMany { dir, names }).await;
            assert_eq!(outcome, Err(Errno::Invalid));
        }
    });
}

/// What is done to a directory concerns the servers of its two halves; the client asks one of them.
#[test]
fn directories_concern_two_servers() {
    on_a_cluster(128, |p| async move {
        let deep = p.make_dirs(12).await;
        p.greet().await;
        let (c, here) = (&p.client, p.dir(&deep).await);
        let (sub, other) = (p.elsewhere(here, &deep, "sub"), p.elsewhere(here, &deep, "other"));
        p.make_dir(&other).await;
        p.create(&below(&other, "warm")).await.expect("made");
        let (parent, target) = (p.owner(here), p.owner(p.dir(&other).await));
        let mkdir = async || c.mkdir(&ROOT(), &sub, DIRS()).await;
        let (made, cost) = p.cost("mkdir", mkdir).await;
        let content = p.owner(made.dir.expect("a directory").id);
        assert_ne!(content, parent);
        assert_eq!(cost.asked(), [("mkdir", parent)]);
        // The parent's server decides alone; the other one hears of it after the answer.
        assert_eq!(cost.in_turn(), [(Task::Content, content, false)]);
        let account = cost.explained.messages[0].account.as_ref().expect("told");
        assert_eq!(account.rounds(), 0);
        assert!(account.took >= account.syncs);

        let statdir = async || c.stat(&ROOT(), &sub, true).await;
        let (_, cost) = p.cost("statdir", statdir).await;
        assert_eq!(cost.asked(), [("lookup", parent), ("statdir", content)]);
        assert_eq!((cost.explained.rounds(), cost.between), (2, 0));

        let locked = |there| {
            [
                (Task::Lock, there, true),
                (Task::Prepare, there, true),
                (Task::Commit, there, false),
            ]
        };
        let rmdir = async || c.rmdir(&ROOT(), &sub).await;
        let (_, cost) = p.cost("rmdir", rmdir).await;
        assert_eq!(cost.asked(), [("rmdir", parent)]);
        assert_eq!(cost.in_turn(), locked(content));

        let (from, to) = (below(&deep, "f"), below(&other, "f"));
        p.create(&from).await.expect("made");
        let rename = async || c.rename(&ROOT(), &from, &to, RenameMode::Replace).await;
        let (_, cost) = p.cost("rename of a file", rename).await;
        assert_eq!(cost.asked(), [("rename", parent)]);
        assert_eq!(cost.in_turn(), locked(target));
        assert_eq!(cost.servers(), BTreeSet::from([parent, target]));
    });
}

/// A file with several names is on the server where it was; names elsewhere cost a look there.
#[test]
fn names_of_a_file_concern_its_server() {
    on_a_cluster(128, |p| async move {
        let deep = p.make_dirs(12).await;
        p.greet().await;
        let (c, here) = (&p.client, p.dir(&deep).await);
        let other = p.elsewhere(here, &deep, "other");
        p.make_dir(&other).await;
        p.create(&below(&other, "warm")).await.expect("made");
        let (home, there) = (p.owner(here), p.owner(p.dir(&other).await));
        let [f, near, far] = [below(&deep, "f"), below(&deep, "near"), below(&other, "far")];
        p.create(&f).await.expect("made");
        let both = [("lookup", home), ("link", home)];

        let link = async || c.link(&ROOT(), &f, &near).await;
        let (_, cost) = p.cost("link beside", link).await;
        assert_eq!((cost.asked(), cost.in_turn()), (both.to_vec(), vec![]));
        for name in [&f, &near] {
            let stat = async || c.stat(&ROOT(), name, true).await;
            let (attr, cost) = p.cost("stat of one of two names", stat).await;
            assert_eq!(attr.nlink, 2);
            assert_eq!((cost.asked(), cost.in_turn()), (vec![("lookup", home)], vec![]));
        }
        let link = async || c.link(&ROOT(), &f, &far).await;
        let (_, cost) = p.cost("link to another server", link).await;
        assert_eq!(cost.asked(), both);
        let locked = |at, last| {
            [
                (Task::Lock, at, true),
                (Task::Prepare, at, true),
                (last, at, false),
            ]
        };
        assert_eq!(cost.in_turn(), locked(there, Task::Commit));
        // Both servers must be seen at one moment: the home's is asked whether it still was.
        let stat = async || c.stat(&ROOT(), &far, true).await;
        let (_, cost) = p.cost("stat from another server", stat).await;
        assert_eq!(cost.asked(), [("lookup", there)]);
        assert_eq!(cost.in_turn(), locked(home, Task::Release));
        let unlink = async || c.unlink(&ROOT(), &far).await;
        let (_, cost) = p.cost("unlink on another server", unlink).await;
        assert_eq!(cost.asked(), [("unlink", there)]);
        assert_eq!(cost.in_turn(), locked(home, Task::Commit));
        let unlink = async || c.unlink(&ROOT(), &near).await;
        let (_, cost) = p.cost("unlink", unlink).await;
        assert_eq!((cost.asked(), cost.in_turn()), (vec![("unlink", home)], vec![]));
    });
}

/// By two-phase commit the other server votes before the answer, and hears of the decision after it.
#[test]
fn a_directory_may_be_voted_for() {
    on_a_cluster_with(DirectoryUpdates::TwoPhase, 128, |p| async move {
        let deep = p.make_dirs(12).await;
        p.greet().await;
        let (c, here) = (&p.client, p.dir(&deep).await);
        let (sub, parent) = (p.elsewhere(here, &deep, "sub"), p.owner(here));
        // All servers have spoken to each other.
        for n in 0..20 {
            p.make_dir(&below(&deep, &format!("warm{n}"))).await;
        }
        let mkdir = async || c.mkdir(&ROOT(), &sub, DIRS()).await;
        let (made, cost) = p.cost("mkdir", mkdir).await;
        let content = p.owner(made.dir.expect("a directory").id);
        assert_ne!(content, parent);
        assert_eq!(cost.asked(), [("mkdir", parent)]);
        // Nobody can have locked what is not there: one round.
        let expected = [(Task::Prepare, content, true), (Task::Commit, content, false)];
        assert_eq!(cost.in_turn(), expected);
        let account = cost.explained.messages[0].account.as_ref().expect("told");
        assert_eq!(account.rounds(), 1);
        assert!(account.syncs > 0 && account.errands[0].syncs > 0);
        assert!(account.took >= account.syncs + account.errands[0].took);
    });
}

/// What others may know of a directory changes after every server was told, by the one server that says so.
#[test]
fn a_directory_that_changes_concerns_all() {
    on_a_cluster(128, |p| async move {
        let mut path = p.make_dirs(8).await;
        p.greet().await;
        let coordinator = p.client.map().coordinator;
        // In a directory of the coordinator, and in another.
        let mut left = vec![true, false];
        while let Some(up) = path.iter().rposition(|b| *b == b'/') {
            let home = p.owner(p.dir(&path).await);
            if let Some(n) = left.iter().position(|here| *here == (home == coordinator)) {
                left.remove(n);
                moved(&p, &path, home, coordinator).await;
            }
            path.truncate(up);
        }
        assert!(left.is_empty(), "both were there");
    });
}

async fn moved(p: &Program, path: &[u8], home: ServerId, coordinator: ServerId) {
    let c = &p.client;
    let (from, to) = (p.elsewhere(p.dir(path).await, path, "sub"), below(path, "moved"));
    p.make_dir(&from).await;
    let rename = async || c.rename(&ROOT(), &from, &to, RenameMode::Replace).await;
    let (_, cost) = p.cost("rename of a directory", rename).await;
    let mut told: Vec<ServerId> = Vec::new();
    for (what, to, waited) in cost.in_turn() {
        if what == Task::Invalidate {
            assert!(waited);
            told.push(to);
        }
    }
    // One that was never told anything may be asked first how far it has heard.
    told.sort();
    told.dedup();
    let all: BTreeSet<ServerId> = c.map().servers.iter().map(|s| s.id).collect();
    let others: Vec<ServerId> = all.iter().copied().filter(|s| *s != coordinator).collect();
    assert_eq!(told, others);
    assert_eq!(cost.servers(), all);
    if home == coordinator {
        assert_eq!(cost.asked(), [("rename", home)]);
    } else {
        // That it is a directory's turns out at the server of its entry.
        assert_eq!(cost.asked(), [("rename", home), ("rename", coordinator)]);
        let refused = Some(Ok(Err(Refusal::UseCoordinator)));
        assert_eq!(cost.explained.messages[0].answer, refused);
        assert_eq!(cost.explained.messages[0].account, None);
    }
    // Nobody but its maker knows this one.
    let made = p.elsewhere(p.dir(&to).await, &to, "mine");
    p.make_dir(&made).await;
    let chmod = async || c.set_attr(&ROOT(), &made, true, mode(0o700)).await;
    let (_, cost) = p.cost("chmod of a directory", chmod).await;
    assert_eq!(cost.in_turn(), []);
}

/// Another parent: that no loop comes of it costs nothing once what is above that is known, and all else is
/// asked of all servers at once.
#[test]
fn a_directory_that_gets_another_parent_takes_six_round_trips() {
    on_a_cluster(128, |p| async move {
        let deep = p.make_dirs(12).await;
        p.greet().await;
        let (c, coordinator) = (&p.client, p.client.map().coordinator);
        let (mut seen, mut again) = (BTreeSet::new(), 0);
        for n in 0..12 {
            let (one, two) = (below(&deep, &format!("one{n}")), below(&deep, &format!("two{n}")));
            p.make_dir(&one).await;
            p.make_dir(&two).await;
            let (from, to) = (p.elsewhere(p.dir(&one).await, &one, "sub"), below(&two, "moved"));
            p.make_dir(&from).await;
            // What is above the new parent is found out once.
            p.make_dir(&below(&one, "first")).await;
            c.rename(
                &ROOT(),
                &below(&one, "first"),
                &below(&two, "first"),
                RenameMode::Replace,
            )
            .await
            .expect("moved");
            let rename = async || c.rename(&ROOT(), &from, &to, RenameMode::Replace).await;
            let (_, cost) = p.cost("rename to another parent", rename).await;
            let account = cost.explained.messages.last().and_then(|m| m.account.as_ref());
            let account = account.expect("told");
            assert_eq!(account.unlisted, 0);
            if account.again > 0 {
                // Who was asked first, and is not the coordinator, had not yet given back what it had locked
                // there.
                assert!(cost.explained.rounds() > 1);
                again += 1;
                continue;
            }
            assert!(account.errands.iter().all(|e| e.what != Task::Ancestor));
            // Its records with those of both parents, its content's head with its rename list, announcing,
            // voting.
            assert!(account.rounds() <= 4);
            let rounds = cost.explained.rounds() as usize + account.rounds();
            assert!(rounds <= 6, "{rounds} round trips");
            seen.insert((p.owner(p.dir(&one).await) == coordinator, rounds));
        }
        println!("from a directory of the coordinator, round trips: {seen:?}; again: {again}");
        assert!(again <= 2);
        assert!(seen.iter().any(|(here, _)| *here) && seen.contains(&(false, 6)));
    });
}

/// A hundred want the same directory somewhere else: one gets it, the others hear that it is gone, and nobody
/// waits long.
#[test]
fn a_hundred_move_the_same_directory() {
    on_a_cluster(128, |p| async move {
        for n in 0..10 {
            p.make_dir(format!("/t{n}").as_bytes()).await;
        }
        p.make_dir(b"/wanted").await;
        let targets: Vec<String> = (0..100).map(|n| format!("/t{}/got{n}", n % 10)).collect();
        let (c, cred) = (&p.client, Cred::root());
        type Move<'a> = Pin<Box<dyn Future<Output = Result<(), Errno>> + 'a>>;
        let mut moves: Vec<Move<'_>> = Vec::new();
        for to in &targets {
            moves.push(Box::pin(c.rename(
                &cred,
                b"/wanted",
                to.as_bytes(),
                RenameMode::Replace,
            )));
        }
        let ended = join_all(moves).await;
        let lost = ended.iter().filter(|r| **r == Err(Errno::NotFound)).count();
        assert_eq!((ended.iter().filter(|r| r.is_ok()).count(), lost), (1, 99));
        let got = ended.iter().position(Result::is_ok).expect("one");
        p.dir(targets[got].as_bytes()).await;
    });
}

/// A path of 24 directories of which nothing is known: all of it at once. Only where a directory was renamed
/// one begins again from there.
#[test]
fn a_cold_path_takes_one_round_trip() {
    on_a_cluster(128, |p| async move {
        let path = p.make_dirs(24).await;
        p.greet().await;
        p.client.forget_all();
        let resolve = async || p.client.resolve(&ROOT(), &path, true).await;
        let (_, cost) = p.cost("resolve", resolve).await;
        assert_eq!(cost.explained.rounds(), 1);
        let components = &cost.explained.components;
        assert_eq!(components[0].how, How::LookedUp);
        assert_eq!(components.len(), 25);
        assert!(components[1..].iter().all(|p| p.how == How::Predicted));
        let (_, again) = p.cost("resolve", resolve).await;
        assert_eq!(again.asked().len(), 1, "the last component is asked for");

        // The twelfth was born elsewhere.
        let at = path.windows(4).position(|w| w == b"/d12").expect("on the way");
        let aside = below(&path[..at], "aside");
        p.client
            .rename(&ROOT(), &path[..at + 4], &aside, RenameMode::Replace)
            .await
            .expect("moved");
        p.client.forget_all();
        let moved = [&aside[..], &path[at + 4..]].concat();
        let resolve = async || p.client.resolve(&ROOT(), &moved, true).await;
        let (_, cost) = p.cost("resolve", resolve).await;
        assert_eq!(cost.explained.rounds(), 2);
        let asked: Vec<usize> = (cost.explained.components.iter().enumerate())
            .filter(|(_, p)| p.how == How::LookedUp)
            .map(|(n, _)| n)
            .collect();
        assert_eq!(asked, [0, 14]);
    });
}

/// Of what fails, of guesses, and of what is done through a handle, which says nothing of where it is, nobody
/// is told what work it made.
#[test]
fn what_is_not_told() {
    on_a_cluster(128, |p| async move {
        let path = p.make_dirs(6).await;
        p.greet().await;
        p.client.forget_all();
        let none = below(&path, "none");
        let look = async || p.client.resolve(&ROOT(), &none, true).await;
        let (result, explained) = p.client.explain(look()).await;
        assert_eq!(result.err(), Some(Errno::NotFound));
        let told = explained.expect("nothing else is explained");
        let first = |m: &Exchange| matches!(m.request, Request::Op(_)) && m.round == 1;
        for m in &told.messages {
            assert_eq!(m.account.is_some(), first(m), "{m:?}");
        }
        assert!(told.messages.len() > 2 && told.rounds() == 2);

        let dir = p.client.dir(&ROOT(), &path).await.expect("there");
        let stat = async || p.client.dir_stat(&ROOT(), &dir).await;
        let (_, by_path) = p.cost("statdir", stat).await;
        let dir = p.client.hold(&dir).await.expect("held");
        let stat = async || p.client.dir_stat(&ROOT(), &dir).await;
        let (_, by_handle) = p.cost("statdir of a handle", stat).await;
        let accounts = [by_path, by_handle].map(|c| c.explained.messages[0].account.is_some());
        assert_eq!(accounts, [true, false]);
    });
}
