//! Programs that speak the protocol themselves: they say about directories, and about what they opened, what
//! no server said (H98), repeat what others said, show what others were told, and speak as servers do (H100).
//! They know every name and ID; all they lack is the servers' secret. What each check stops is in `grid`;
//! here the same is tried at random while others work and things break.

use crate::cluster::{Cluster, Overheard};
use crate::violation::Kind;
use crate::workload::Workload;
use crate::world::{Life, Role};
use pando_auth::{
    Acceptor, FrameKeys, Greeting, Here, Initiator, Introduction, Key, OpenGate, Step, payload,
};
use pando_client::Client;
use pando_env::rng::Rng;
use pando_env::{Env, Peer};
use pando_format::{Codec, IdentityTable, Key as RecordKey};
use pando_types::{
    Bearer, BootEpoch, Cred, DirId, Errno, FsId, Generation, IdentityId, Instance, MapEpoch, PeerId, Perm,
    SLOTS, ServerId, Slot, Term, TxId, Watermark,
};
use pando_wire::{
    CopyId, LockMode, LockWant, Message, MoveAnswer, MoveRequest, Op, OpRequest, PeerAnswer, PeerRequest,
    Request, Response, Scope, SplitAnswer, Statement, Stored, TxState, Vote,
};
use std::rc::Rc;

/// Answers to clients of mode `key` that somebody on the way forges, in a million.
const FORGED: u64 = 2_000;

/// What liars need of the world.
pub fn begin(cluster: &Rc<Cluster>, workload: &Workload) {
    if cluster.settings.lies == 0 {
        return;
    }
    let mut net = cluster.sim.net.borrow_mut();
    for machine in workload
        .machines
        .iter()
        .filter(|m| matches!(m.who, PeerId::Client(_)))
    {
        net.distrust(machine.node);
    }
    if cluster.settings.keyed
        && let Some(keys) = client_end()
    {
        net.forge(FORGED, keys);
    }
}

/// The client's end of a connection with keys, as the handshake makes them.
fn client_end() -> Option<FrameKeys> {
    let (fs, key) = (FsId(1), Key::new([1; 32]));
    let role = pando_wire::Role::Operator;
    let me = Introduction {
        fs,
        role,
        key: Some(key.clone()),
    };
    let (mut initiator, hello) = Initiator::new(&me, [2; 32]);
    let here = Here {
        fs,
        server: ServerId(1),
        boot: BootEpoch(1),
    };
    let gate = OpenGate(vec![key]);
    let Greeting::Challenge(challenge, acceptor) = Acceptor::greet(&hello, here, &gate, None, [3; 32]) else {
        return None;
    };
    let Step::Say(proof) = initiator.take(&payload(&challenge)).ok()? else {
        return None;
    };
    let accepted = acceptor.accept(&proof, &gate).ok()?;
    match initiator.take(&payload(&accepted.welcome)).ok()? {
        Step::Up { keys, .. } => keys,
        Step::Say(_) => None,
    }
}

/// The operation, saying something else in one of its statements. `None` if it makes none.
pub fn forged(rng: &mut Rng, cred: &Cred, op: &Op) -> Option<Op> {
    let second = rng.percent(50);
    let mut lie = op.clone();
    // "I opened it for writing."
    if let Op::Publish { handle, .. } = &mut lie
        && second
    {
        handle.0 ^= 1 << rng.below(128);
        return Some(lie);
    }
    let statement = match lie.statements_mut() {
        [Some(_), Some(dst)] if second => dst,
        [Some(first), _] => first,
        _ => return None,
    };
    change(rng, cred, statement);
    (lie != *op).then_some(lie)
}

fn change(rng: &mut Rng, cred: &Cred, s: &mut Statement) {
    match rng.below(10) {
        // "I may do anything here."
        0 => s.perm = Perm::new(0o777),
        1 => (s.uid, s.perm) = (cred.uid, Perm::new(0o700)),
        2 => s.gid = cred.gid,
        // "It is the directory of that name I mean", guessed.
        3 => s.id = DirId(s.id.0 ^ 1 << rng.below(8)),
        4 => s.generation = Generation(s.generation.0.wrapping_add(rng.range(1, 4))),
        5 => s.seal = s.seal.wrapping_add(1),
        // "This is still so", "and does not depend on that".
        6 => s.at.0 = s.at.0.wrapping_add(rng.range(1, 1 << 33)),
        7 => s.way.truncate(1),
        8 => {
            s.scope = if s.scope == Scope::Handle {
                Scope::Way
            } else {
                Scope::Handle
            }
        }
        _ => s.mac = (u128::from(rng.next()) << 64) | u128::from(rng.next()),
    }
}

/// What a client says that would be a server.
fn peer_request(rng: &mut Rng) -> PeerRequest {
    let tx = TxId {
        coordinator: ServerId(rng.range(1, 3) as u16),
        boot: BootEpoch(rng.range(1, 3)),
        number: rng.below(100),
    };
    match rng.below(11) {
        9 => PeerRequest::Moving(MoveRequest::Begin {
            copy: CopyId {
                source: ServerId(rng.range(1, 3) as u16),
                boot: BootEpoch(1 << 40),
                number: 1,
            },
            slots: (0..SLOTS).map(Slot).collect(),
        }),
        10 => PeerRequest::Moving(MoveRequest::HandOver {
            from: ServerId(rng.range(1, 3) as u16),
            to: ServerId(rng.range(1, 3) as u16),
            made: MapEpoch(0),
            slots: Vec::new(),
        }),
        0 => {
            let wants = vec![LockWant::Key(
                RecordKey::Head(DirId::ROOT.into()),
                LockMode::Exclusive,
            )];
            PeerRequest::Lock {
                tx,
                low: 0,
                locked: false,
                wants,
                wait: true,
            }
        }
        1 => {
            let (mutations, reply) = (Vec::new(), None);
            PeerRequest::Prepare {
                tx,
                low: 0,
                locked: false,
                mutations,
                reply,
            }
        }
        2 => PeerRequest::Decide {
            tx,
            commit: rng.percent(50),
        },
        3 if rng.percent(30) => PeerRequest::Owes {
            parent: DirId::ROOT,
            dir: DirId::ROOT,
            generation: Generation(1),
        },
        3 => PeerRequest::Inquire(tx),
        4 => PeerRequest::Head(DirId::ROOT),
        5 => PeerRequest::Follow {
            who: ServerId(rng.range(1, 3) as u16),
            boot: BootEpoch(1),
            term: Term(1),
            map: MapEpoch(1),
            heard: Watermark(1 << 60),
            echo: Default::default(),
            relayed: rng.percent(50),
        },
        6 => {
            let after = Watermark(rng.below(50));
            PeerRequest::Invalidate {
                term: Term(1),
                after,
                entries: Vec::new(),
            }
        }
        7 => PeerRequest::Identities(0),
        _ => {
            let (version, identities) = (1 << 50, Vec::new());
            PeerRequest::Adopt(IdentityTable { version, identities })
        }
    }
}

/// What a server would like to be answered.
fn peer_answer(asked: &PeerRequest) -> Option<PeerAnswer> {
    Some(match asked {
        PeerRequest::Lock { .. } => PeerAnswer::Locked {
            records: Vec::new(),
            held: Vec::new(),
        },
        PeerRequest::Prepare { .. } => PeerAnswer::Vote(Vote::Yes),
        PeerRequest::Content { contents, .. } => PeerAnswer::Content(vec![Stored::Yes; contents.len()]),
        PeerRequest::Owes { .. } => PeerAnswer::NotOwed,
        PeerRequest::Load => PeerAnswer::Load(u64::MAX),
        PeerRequest::Decide { .. } | PeerRequest::Settle { .. } => PeerAnswer::Decided,
        PeerRequest::Inquire(_) => PeerAnswer::State(TxState::Aborted),
        PeerRequest::Invalidate { .. } => PeerAnswer::Heard {
            boot: BootEpoch(1),
            upto: Watermark(u64::MAX),
        },
        PeerRequest::Adopt(_) => PeerAnswer::Adopted,
        PeerRequest::Moving(_) => PeerAnswer::Moving(MoveAnswer::Taken),
        PeerRequest::Split(_) => PeerAnswer::Split(SplitAnswer::Taken),
        PeerRequest::Lease(_) => PeerAnswer::Leased(Watermark(1)),
        PeerRequest::NewMap(_) => PeerAnswer::Adopted,
        PeerRequest::Head(_) | PeerRequest::Follow { .. } | PeerRequest::Identities(_) => return None,
    })
}

/// Whether it names the place above the root, of which nobody needs a statement.
fn above_root(op: &Op) -> bool {
    let mut named = op.statements().into_iter().flatten();
    named.any(|s| s.id == DirId::ABOVE_ROOT)
}

impl Workload {
    /// Some mischief that is no lie about a directory. `own`: an operation that this client might ask for.
    pub async fn mischief(
        &self,
        rng: &mut Rng,
        life: &Rc<Life>,
        client: &Client,
        cred: &Cred,
        own: Option<Op>,
    ) {
        match rng.below(5) {
            0 => self.repeat(rng, life, client).await,
            1 => self.borrow_name(rng, life, client, cred, own).await,
            2 => self.show_stolen(rng, life, client, cred, own).await,
            3 => self.answer_for_another(rng, life),
            _ => {
                let server = rng.pick(&client.map().servers).id;
                let request = Request::Peer(peer_request(rng));
                let answer = client.admin(server, request.clone()).await;
                self.gained(&format!("{request:?}"), answer);
            }
        }
    }

    /// Nothing may come of it.
    fn gained(&self, what: &str, answer: Result<Response, Errno>) {
        self.lied();
        if let Ok(answer) = answer {
            let text = format!("a hostile client's {what} was answered with {answer:?}");
            self.cluster().sim.fail(Kind::WrongResult, text);
        }
    }

    /// Something overheard from a client of another identity, and the server it was said to.
    fn others(&self, rng: &mut Rng, life: &Life) -> Option<(Request, ServerId)> {
        let mine = self.who(life.node);
        let sim = &self.cluster().sim;
        let said = |o: Overheard| match (sim.role(o.from), sim.role(o.to), self.who(o.from), o.message) {
            (
                Role::Client(_),
                Role::Server(to),
                Some(PeerId::Client(id)),
                Message::Request { request, .. },
            ) if Some(PeerId::Client(id)) != mine && id != IdentityId::ANYONE => Some((request, to)),
            _ => None,
        };
        let all: Vec<_> = self.cluster().overheard().into_iter().filter_map(said).collect();
        (!all.is_empty()).then(|| rng.pick(&all).clone())
    }

    /// Repeats word for word what another identity's client asked for.
    async fn repeat(&self, rng: &mut Rng, life: &Rc<Life>, client: &Client) {
        let Some((request, to)) = self.others(rng, life) else {
            return;
        };
        let Request::Op(asked) = &request else {
            return;
        };
        let OpRequest {
            request: name,
            op,
            instance,
            ..
        } = &**asked;
        // Another liar may have repeated what is this one's own.
        let Some(PeerId::Client(identity)) = self.who(life.node) else {
            return;
        };
        let me = Bearer {
            identity,
            instance: *instance,
        };
        let judge = self.cluster().judge();
        let own = name.is_some_and(|r| r.session.owner() == identity);
        if own
            || op
                .statements()
                .into_iter()
                .flatten()
                .any(|s| judge.told_to(s, me))
        {
            return;
        }
        // What anybody may ask.
        let free = above_root(op) && !op.mutates();
        if free || matches!(op, Op::StatFs | Op::Sync) {
            return;
        }
        let what = format!("copy of another's {}", crate::words::describe_op(op));
        let answer = client.admin(to, request).await;
        self.gained(&what, answer);
    }

    /// Asks for something of its own under the name of another's request.
    async fn borrow_name(
        &self,
        rng: &mut Rng,
        life: &Rc<Life>,
        client: &Client,
        cred: &Cred,
        own: Option<Op>,
    ) {
        let Some((Request::Op(asked), to)) = self.others(rng, life) else {
            return;
        };
        let (Some(id), map) = (asked.request, asked.map) else {
            return;
        };
        // Another liar may have repeated what is this one's own.
        if self.who(life.node) == Some(PeerId::Client(id.session.owner())) {
            return;
        }
        let Some(op) = own.filter(Op::mutates) else { return };
        // Two equal operations of one client could not be told apart.
        if self
            .cluster()
            .judge()
            .replies
            .borrow()
            .waits_for(life.number, &op)
        {
            return;
        }
        let mut id = id;
        id.sequence.0 += rng.below(2);
        let what = format!(
            "{} under the name of another's request",
            crate::words::describe_op(&op)
        );
        let (instance, cred, ways) = (Instance(7), cred.clone(), Vec::new());
        let request = OpRequest {
            parts: [0, 0],
            keep: None,
            request: Some(id),
            again: false,
            map,
            instance,
            cred,
            op,
            ways,
        };
        let answer = client.admin(to, request.into()).await;
        self.gained(&what, answer);
    }

    /// Shows a statement that another identity was given, new or overtaken.
    async fn show_stolen(
        &self,
        rng: &mut Rng,
        life: &Rc<Life>,
        client: &Client,
        cred: &Cred,
        own: Option<Op>,
    ) {
        let stale = rng.percent(50);
        let Some(stolen) = self.of_another(rng, life.node, stale) else {
            return;
        };
        let Some(mut op) = own else { return };
        if let [Some(dir), _] = op.statements_mut() {
            *dir = stolen;
            self.lie(client, cred, op).await;
        }
    }

    /// Answers what one server asked another.
    fn answer_for_another(&self, rng: &mut Rng, life: &Rc<Life>) {
        let sim = &self.cluster().sim;
        let asked = |o: Overheard| match (sim.role(o.from), o.message) {
            (
                Role::Server(asker),
                Message::Request {
                    id,
                    request: Request::Peer(p),
                    ..
                },
            ) => Some((asker, id, peer_answer(&p)?)),
            _ => None,
        };
        // The latest may still wait.
        let all: Vec<_> = self
            .cluster()
            .overheard()
            .into_iter()
            .rev()
            .filter_map(asked)
            .take(4)
            .collect();
        if all.is_empty() {
            return;
        }
        let (asker, id, answer) = rng.pick(&all).clone();
        let result = Ok(Response::Peer(answer));
        life.send(
            Peer::Server(asker),
            Message::Reply {
                id,
                result,
                account: None,
            }
            .to_bytes(),
        );
        self.lied();
    }

    /// One lie. Whatever comes of it, it must not be what was asked for.
    pub async fn lie(&self, client: &Client, cred: &Cred, op: Op) {
        let outcome = client.op(cred, op.clone()).await;
        self.lied();
        // Who has a subtree may not even name the place above the root.
        let refused = matches!(outcome, Err(Errno::Stale | Errno::BadHandle | Errno::Unreachable))
            || above_root(&op) && outcome == Err(Errno::Access);
        if !refused {
            let text = format!(
                "a forged {} was answered with {outcome:?}",
                crate::words::describe_op(&op)
            );
            self.cluster().sim.fail(Kind::WrongResult, text);
        }
    }
}
