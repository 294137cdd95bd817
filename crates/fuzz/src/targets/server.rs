//! A server and a client that says anything. Whatever it says, the server answers, goes on serving, keeps a
//! sound tree, and starts again.
//!
//! The input is a list of steps:
//!
//! | bytes | meaning |
//! |---|---|
//! | `00`, 1 | so many times 50 ms pass |
//! | flags, 2 + n | length, little-endian, and a message |
//!
//! What no fuzzer guesses is put right where a flag says so: the boot epoch (1), statements (2: the one that
//! a server has told us, by the number in the MAC; all others of them come with it), which object is meant
//! (4: one that was seen, by the number in the inode), the next sequence of the lane (8). Flag 16: the
//! message comes twice; 32: an operator says it.

use super::frames::FS;
use super::tree::sound;
use super::world::{Bench, CLIENT, ME, OPERATOR, small_map};
use pando_auth::{Secret, Secrets, StatementKeys};
use pando_cluster::{ClusterMap, MemCoord};
use pando_data::MemBlocks;
use pando_env::{Env, Node};
use pando_format::Codec;
use pando_server::{Executed, Limits, MetaServer, Observer, ServerConfig, format_store};
use pando_store::{Disk, Durability, MemStore, NoFaults};
use pando_types::{
    Bearer, BootEpoch, Cred, DirId, Generation, IdentityId, Ino, Instance, MapEpoch, Mono, Name, RequestId,
    RequestSlot, Sequence, SessionId, Timestamp,
};
use pando_wire::{Answer, EntryView, Message, Op, OpRequest, Request, Response, Scope, Statement};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Most steps of one input.
const STEPS: usize = 48;
/// Longer than any answer takes: a lock is waited for once or twice.
const SETTLE: Duration = Duration::from_secs(2);
/// The message numbers from here on are ours, and the one before.
const OURS: u64 = u64::MAX - 16;

pub(crate) const PASS: u8 = 0;
pub(crate) const BOOT: u8 = 1;
pub(crate) const STATEMENTS: u8 = 2;
pub(crate) const OBJECTS: u8 = 4;
pub(crate) const SEQUENCE: u8 = 8;
pub(crate) const TWICE: u8 = 16;
pub(crate) const OPERATES: u8 = 32;
pub(crate) const EXPLAIN: u8 = 64;
/// The program that the client says it is.
pub(crate) const INSTANCE: Instance = Instance(1);
const HOLDER: Bearer = Bearer {
    identity: IdentityId::ANYONE,
    instance: INSTANCE,
};

pub(crate) fn server(input: &[u8]) {
    let disk = Disk::new();
    let mut run = Run::start(&disk, small_map());
    run.play(input);
    run.bench.pass(SETTLE);
    run.all_answered();
    run.serves();
    let map = run.coord.now().map;
    drop(run);
    sound(&disk, &map);
    // What it wrote, it can read.
    let mut again = Run::start(&disk, map.clone());
    again.serves();
    again.bench.pass(Duration::from_secs(1));
    drop(again);
    sound(&disk, &map);
}

/// A server that runs, and what its client knows.
pub(super) struct Run {
    pub(super) bench: Rc<Bench>,
    server: Rc<MetaServer>,
    coord: Rc<MemCoord>,
    /// The block store.
    pub(super) blocks: MemBlocks,
    /// To tell statements that were given to us from others.
    keys: StatementKeys,
    /// Directories it was told of, and objects.
    dirs: Vec<Statement>,
    objects: Vec<(Ino, Generation)>,
    lanes: BTreeMap<(SessionId, RequestSlot), Sequence>,
    /// Requests by number: asked minus answered.
    open: BTreeMap<u64, i64>,
    /// Operations that succeeded.
    done: usize,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.bench.kill();
    }
}

struct Silent;

impl Observer for Silent {
    fn executed(&self, _: &Executed<'_>) {}
    fn fatal(&self, why: &str) {
        panic!("the server gave up: {why}");
    }
}

impl Run {
    /// `map`: the one in force. A disk with nothing on it is formatted.
    pub(super) fn start(disk: &Disk, map: ClusterMap) -> Run {
        let bench = Bench::new();
        let store = MemStore::open(disk, Durability::Sync, Rc::new(NoFaults));
        if disk.dump().is_empty() {
            let now = Timestamp {
                secs: 1_600_000_000,
                nanos: 0,
            };
            format_store(&store, ME, &map, now, (0, 0)).expect("an empty store can be formatted");
        }
        let secrets = Secrets::new(FS, Secret::new([0x5a; 32]), Vec::new());
        let keys = secrets.statement_keys();
        let config = ServerConfig {
            id: ME,
            secrets,
            map,
            limits: Limits {
                lock_wait: Duration::from_millis(200),
                // A tick looks into hundreds of slots: most of the time would else be spent there.
                tick: Duration::from_secs(1),
                session_timeout: Duration::from_secs(5),
                session_memory: Duration::from_secs(8),
                sessions: 6,
                ..Limits::tiny()
            },
        };
        let clock = Rc::downgrade(&bench);
        let now = move || clock.upgrade().map_or(Mono(0), |bench| bench.mono());
        let coord = Rc::new(MemCoord::new(config.map.clone(), Duration::from_secs(1), now));
        let started = Rc::new(RefCell::new(None));
        let (world, into, there) = (bench.clone(), started.clone(), coord.clone());
        let blocks = MemBlocks::new();
        let stored = blocks.clone();
        pando_env::Env::spawn(
            &*bench,
            Box::pin(async move {
                let blocks = Rc::new(stored);
                let result =
                    MetaServer::start(config, world, Rc::new(store), blocks, Rc::new(Silent), there).await;
                *into.borrow_mut() = Some(result);
            }),
        );
        bench.run();
        let server = match started.take() {
            Some(Ok(server)) => server,
            Some(Err(e)) => panic!("the server does not start: {e}"),
            None => panic!("the server does not start, and does not say why"),
        };
        Run {
            bench,
            server,
            coord,
            blocks,
            keys,
            dirs: vec![Statement::above_root()],
            objects: vec![(Ino::ROOT, Generation::ROOT)],
            lanes: BTreeMap::new(),
            open: BTreeMap::new(),
            done: 0,
        }
    }

    /// Does what an input says.
    fn play(&mut self, input: &[u8]) {
        let mut rest = input;
        for _ in 0..STEPS {
            let Some((flags, after)) = rest.split_first() else {
                break;
            };
            if *flags == PASS {
                let (n, after) = after.split_first().map_or((0, after), |(n, a)| (*n, a));
                self.bench.pass(Duration::from_millis(50) * u32::from(n));
                rest = after;
                continue;
            }
            let Some((len, after)) = after.split_first_chunk() else {
                break;
            };
            let (bytes, after) = after.split_at(usize::from(u16::from_le_bytes(*len)).min(after.len()));
            rest = after;
            self.say(*flags, bytes);
        }
    }

    /// Delivers a message, and hears what comes of it at once.
    fn say(&mut self, flags: u8, bytes: &[u8]) {
        let message = Message::from_bytes(bytes).ok().map(|m| self.put_right(flags, m));
        let from = if flags & OPERATES == 0 { CLIENT } else { OPERATOR };
        let copies = if flags & TWICE == 0 { 1 } else { 2 };
        for _ in 0..copies {
            if let Some(Message::Request { id, .. }) = message {
                *self.open.entry(id).or_default() += 1;
            }
            let before = self.bench.closed.borrow().len();
            let bytes = message.as_ref().map_or_else(|| bytes.to_vec(), Codec::to_bytes);
            self.server.receive(from, bytes);
            let closed = self.bench.closed.borrow().len() > before;
            assert_eq!(
                closed,
                !matches!(message, Some(Message::Request { .. })),
                "hangs up on what it cannot read, on answers, and on nothing else"
            );
        }
        self.bench.run();
        self.hear();
    }

    fn put_right(&mut self, flags: u8, mut message: Message) -> Message {
        let Message::Request {
            id,
            boot,
            request,
            explain,
        } = &mut message
        else {
            return message;
        };
        *explain |= flags & EXPLAIN != 0;
        *id = (*id).min(OURS - 2);
        if flags & BOOT != 0 {
            *boot = self.server.boot();
        }
        let Request::Op(asked) = request else {
            return message;
        };
        let OpRequest {
            request,
            instance,
            op,
            ways,
            ..
        } = &mut **asked;
        if flags & STATEMENTS != 0 {
            *instance = INSTANCE;
            for said in op.statements_mut().into_iter().flatten() {
                *said = self.dirs[said.mac as usize % self.dirs.len()].clone();
            }
            ways.clone_from(&self.dirs);
        }
        if flags & OBJECTS != 0
            && let Some((ino, generation)) = object(op)
        {
            let file = self.objects[ino.0 as usize % self.objects.len()];
            (*ino, *generation) = file;
            if let Op::Publish { handle, .. }
            | Op::SetAttr {
                handle: Some(handle), ..
            } = op
            {
                *handle = self.keys.handle(file, HOLDER.identity);
            }
        }
        if flags & SEQUENCE != 0
            && let Some(request) = request
        {
            let last = self.lanes.entry((request.session, request.slot)).or_default();
            last.0 += 1;
            request.sequence = *last;
        }
        message
    }

    /// Takes what the server sent.
    fn hear(&mut self) -> Vec<(u64, Option<Response>)> {
        let mut heard = Vec::new();
        for (to, bytes) in self.bench.sent.take() {
            assert!([CLIENT, OPERATOR].contains(&to), "there is nobody else");
            let message = Message::from_bytes(&bytes).expect("the server sends messages");
            let Message::Reply { id, result, account } = message else {
                panic!("a server asks a client: {message:?}")
            };
            let outcome = result.as_ref().ok().and_then(Response::outcome);
            let success = outcome.is_some_and(Result::is_ok);
            assert!(account.is_none() || success, "an account of {result:?}");
            *self.open.entry(id).or_default() -= 1;
            if let Some(Ok(answer)) = outcome {
                self.done += 1;
                self.learn(answer);
            }
            if let Ok(Response::Refreshed(told)) = &result {
                told.fresh.iter().for_each(|s| self.told(s));
            }
            heard.push((id, result.ok()));
        }
        heard
    }

    fn learn(&mut self, answer: &Answer) {
        let mut seen = |e: &EntryView| {
            let object = (e.attr.ino, e.attr.generation);
            if !self.objects.contains(&object) {
                self.objects.push(object);
            }
            if let Some(dir) = &e.dir {
                self.told(dir);
            }
        };
        match answer {
            Answer::Entry(e) | Answer::Opened { entry: e, .. } | Answer::Removed(e) => seen(e),
            Answer::Renamed { moved, other } => {
                seen(moved);
                other.iter().for_each(|o| seen(o));
            }
            Answer::Entries { entries, .. } | Answer::Part { entries, .. } => {
                entries.iter().filter_map(|e| e.view.as_deref()).for_each(seen)
            }
            Answer::Done
            | Answer::DirStat(_)
            | Answer::Target(_)
            | Answer::FsStat(_)
            | Answer::Value(_)
            | Answer::Names(_)
            | Answer::Fates(_)
            | Answer::Bulk(_) => {}
        }
    }

    /// Keeps a statement, in the place of an earlier one of the same directory.
    fn told(&mut self, s: &Statement) {
        if !self.keys.made(s, HOLDER) {
            return;
        }
        let handle = |s: &Statement| s.scope == Scope::Handle;
        let same = |old: &&mut Statement| old.is_of(s.id, s.generation) && handle(old) == handle(s);
        match self.dirs.iter_mut().find(same) {
            Some(old) => *old = s.clone(),
            None => self.dirs.push(s.clone()),
        }
    }

    /// What a request comes to; nothing if it is not answered within this time.
    pub(super) fn ask(&mut self, request: Request, within: Duration) -> Option<Response> {
        let id = OURS - 1;
        *self.open.entry(id).or_default() += 1;
        let boot = self.server.boot();
        let message = Message::Request {
            id,
            boot,
            request,
            explain: false,
        };
        self.server.receive(CLIENT, message.to_bytes());
        self.bench.pass(within);
        let heard = self.hear();
        heard.into_iter().find(|(of, _)| *of == id)?.1
    }

    pub(super) fn all_answered(&mut self) {
        self.hear();
        for (id, left) in &self.open {
            assert_eq!(*left, 0, "request {id}: {left} answers too few");
        }
    }

    /// It does what a healthy server does.
    pub(super) fn serves(&mut self) {
        assert!(!self.server.stopped());
        let (dir, name) = (Statement::above_root(), Name::root());
        let lookup = asking(None, Op::Lookup { dir, name });
        for (n, request) in [Request::GetMap, Request::Null(true), Request::Status, lookup]
            .into_iter()
            .enumerate()
        {
            let id = OURS + n as u64;
            let boot = if n == 3 { self.server.boot() } else { BootEpoch(0) };
            *self.open.entry(id).or_default() += 1;
            self.server.receive(
                if n == 2 { OPERATOR } else { CLIENT },
                Message::Request {
                    id,
                    boot,
                    request,
                    explain: false,
                }
                .to_bytes(),
            );
            self.bench.run();
            let heard = self.hear();
            let right = |r: &Option<Response>| match r {
                Some(Response::Map(map)) => {
                    // An operator may have had a server join.
                    let right =
                        |m: ClusterMap| m.fs == FS && (m.epoch > MapEpoch(1) || m == self.coord.now().map);
                    n == 0 && ClusterMap::decode(&map.0).is_ok_and(right)
                }
                Some(Response::Ok) => n == 1,
                Some(Response::Status(_)) => n == 2,
                Some(other) => match other.outcome() {
                    Some(Ok(Answer::Entry(e))) => {
                        n == 3 && e.dir.as_ref().is_some_and(|d| d.id == DirId::ROOT)
                    }
                    _ => false,
                },
                None => false,
            };
            assert!(
                matches!(heard.as_slice(), [(i, r)] if *i == id && right(r)),
                "question {n}: {heard:?}"
            );
        }
    }
}

/// An operation of the superuser, with no statements beside its own.
pub(super) fn asking(request: Option<RequestId>, op: Op) -> Request {
    OpRequest {
        parts: [0, 0],
        keep: None,
        request,
        again: false,
        map: MapEpoch(1),
        instance: INSTANCE,
        cred: Cred::root(),
        op,
        ways: Vec::new(),
    }
    .into()
}

/// The object an operation means.
fn object(op: &mut Op) -> Option<(&mut Ino, &mut Generation)> {
    if let Op::Release { ino, generation, .. } = op {
        return Some((ino, generation));
    }
    op.object_mut().map(|o| (&mut o.ino, &mut o.generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scripts that fuzzing starts from do what they are meant to: most of it succeeds.
    #[test]
    fn scripts_are_understood() {
        let done: Vec<usize> = crate::seeds::of("server")
            .iter()
            .take(7)
            .map(|script| {
                let mut run = Run::start(&Disk::new(), small_map());
                run.play(script);
                run.done
            })
            .collect();
        let least = [8, 7, 11, 7, 6, 4, 6];
        let enough = done.iter().zip(least).all(|(done, least)| *done >= least);
        assert!(enough, "{done:?} operations succeeded, not {least:?}");
    }
}
