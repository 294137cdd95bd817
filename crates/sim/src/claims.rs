//! Identities in the simulator: who has which claims, what they try beyond them, and whether anything came of
//! it (H100).

use crate::generate::creds;
use crate::violation::Kind;
use crate::workload::Workload;
use crate::world::Life;
use pando_client::Client;
use pando_env::rng::Rng;
use pando_format::Scan;
use pando_server::Executed;
use pando_types::{
    Access, BootEpoch, Claims, Cred, DirId, Errno, Generation, IdentityId, Perm, ServerId, SessionId, TxId,
    Users,
};
use pando_wire::{
    Answer, AuthChange, AuthRequest, EntryView, Op, Outcome, PeerRequest, Request, Response, Statement,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The directory that is one identity's whole filesystem.
const SUBTREE: &[u8] = b"subtree";

/// A directory in one incarnation.
type Dir = (DirId, Generation);

/// What the judge knows of identities.
#[derive(Default)]
pub struct Book {
    claims: BTreeMap<IdentityId, Claims>,
    /// Where an identity was told of a directory: the directories it was told of it in.
    told: BTreeMap<(IdentityId, Dir), BTreeSet<Dir>>,
}

impl Book {
    /// An identity was made.
    pub fn made(&mut self, id: IdentityId, claims: Claims) {
        self.claims.insert(id, claims);
    }

    /// What an identity may claim; everything, where nobody is asked.
    pub fn claims_of(&self, id: IdentityId) -> Claims {
        self.claims.get(&id).cloned().unwrap_or_else(Claims::all)
    }

    /// Whether this may have been executed.
    pub fn executed(&mut self, e: &Executed<'_>) -> Result<(), String> {
        if e.holder.identity == IdentityId::ANYONE {
            return Ok(());
        }
        if e.guess && e.op.is_root_lookup() {
            return Err("an identity was shown the root, not its own".into());
        }
        let Some(claims) = self.claims.get(&e.holder.identity).cloned() else {
            return Err(format!("identity {} does not exist", e.holder.identity));
        };
        if e.request.is_some_and(|r| r.session.owner() != e.holder.identity) {
            return Err(format!("identity {} used another's session", e.holder.identity));
        }
        if !e.guess && !claims.covers(e.cred) {
            return Err(format!("identity {} acts as {:?}", e.holder.identity, e.cred));
        }
        if claims.read_only && (e.changed || changes(e.op)) {
            return Err(format!("identity {} is read-only", e.holder.identity));
        }
        let dirs: Vec<Dir> =
            e.op.statements()
                .into_iter()
                .flatten()
                .map(|s| (s.id, s.generation))
                .collect();
        if let Some(subtree) = claims.subtree
            && !e.guess
            && let Some(outside) = dirs
                .iter()
                .find(|d| !self.leads_to(e.holder.identity, **d, subtree))
        {
            return Err(format!(
                "identity {} reaches {outside:?}, outside its subtree",
                e.holder.identity
            ));
        }
        for found in dirs_in(e.outcome) {
            let places = self.told.entry((e.holder.identity, found)).or_default();
            places.extend(dirs.iter().copied());
        }
        Ok(())
    }

    /// Whether an identity was told of a directory by a chain of answers that begins in its subtree.
    fn leads_to(&self, id: IdentityId, dir: Dir, subtree: Dir) -> bool {
        let mut todo = vec![dir];
        let mut seen = BTreeSet::new();
        while let Some(at) = todo.pop() {
            if at == subtree {
                return true;
            }
            if seen.insert(at) {
                todo.extend(self.told.get(&(id, at)).into_iter().flatten());
            }
        }
        false
    }
}

/// The directories an outcome tells of.
fn dirs_in(outcome: &Outcome) -> Vec<Dir> {
    let Ok(answer) = outcome else {
        return Vec::new();
    };
    let views: Vec<&EntryView> = match answer {
        Answer::Entry(e) | Answer::Removed(e) | Answer::Opened { entry: e, .. } => vec![e],
        Answer::Renamed { moved, other } => std::iter::once(&**moved).chain(other.as_deref()).collect(),
        Answer::Entries { entries, .. } | Answer::Part { entries, .. } => {
            entries.iter().filter_map(|e| e.view.as_deref()).collect()
        }
        Answer::Done
        | Answer::DirStat(_)
        | Answer::Target(_)
        | Answer::FsStat(_)
        | Answer::Value(_)
        | Answer::Names(_)
        | Answer::Fates(_)
        | Answer::Bulk(_) => Vec::new(),
    };
    // And of the homes of files: who was told of one may go there.
    let dirs = views.into_iter().flat_map(|v| v.dir.iter().chain(&v.home));
    dirs.map(|d| (d.id, d.generation)).collect()
}

fn changes(op: &Op) -> bool {
    op.mutates() || matches!(op, Op::Open { want, .. } if want & Access::WRITE.0 != 0)
}

/// Whether claims forbid an operation whatever its permissions say.
pub fn forbids(claims: &Claims, cred: &Cred, op: &Op) -> bool {
    !matches!(op, Op::StatFs | Op::Sync) && (!claims.covers(cred) || claims.read_only && changes(op))
}

/// Who clients are in a filesystem that asks: anybody; one user; anybody who only reads; anybody in a
/// subtree.
fn kinds(subtree: Dir) -> [Claims; 4] {
    let [_, one, _] = creds();
    let mut gids = one.groups.clone();
    gids.push(one.gid);
    [
        Claims::all(),
        Claims {
            users: Users::Only {
                uids: vec![one.uid],
                gids,
            },
            ..Claims::all()
        },
        Claims {
            read_only: true,
            ..Claims::all()
        },
        Claims {
            subtree: Some(subtree),
            ..Claims::all()
        },
    ]
}

/// Identities of clients, which come round in this order: most may change things, or a seed would put nothing
/// at risk.
pub const IDENTITIES: [IdentityId; 8] = [
    IdentityId(1),
    IdentityId(2),
    IdentityId(1),
    IdentityId(3),
    IdentityId(1),
    IdentityId(4),
    IdentityId(2),
    IdentityId(1),
];

/// For whom a client of an identity acts when no program asks.
pub fn own(id: IdentityId) -> Cred {
    if id == IdentityId(2) {
        let [_, one, _] = creds();
        one
    } else {
        Cred::root()
    }
}

impl Workload {
    /// Makes the identities, as an operator would.
    pub async fn make_identities(&self, client: &Client) {
        let made = self.try_identities(client).await;
        if let Err(why) = made {
            self.cluster()
                .sim
                .fail(Kind::WrongResult, format!("identities: {why}"));
        }
    }

    async fn try_identities(&self, client: &Client) -> Result<(), String> {
        let path = [b"/", SUBTREE].concat();
        let made = client.mkdir(&Cred::root(), &path, Perm::new(0o777)).await;
        let made = made.map_err(|e| format!("no directory for a subtree: {e}"))?;
        let dir = made.dir.ok_or("no directory")?;
        for (n, claims) in kinds((dir.id, dir.generation)).into_iter().enumerate() {
            let change = AuthChange::Add {
                name: format!("kind {n}"),
                claims: claims.clone(),
                key: [n as u8; 32],
            };
            let request = Request::Auth(AuthRequest::Change { seen: 0, change });
            let keeper = client.map().keeper;
            match client.admin(keeper, request).await {
                Ok(Response::Auth(Ok(answer))) if answer.identities.len() == 1 => {
                    self.cluster().judge().identity(answer.identities[0].id, claims);
                }
                other => return Err(format!("{other:?}")),
            }
        }
        Ok(())
    }

    /// An operation that the identity's claims forbid. Nothing may come of it.
    pub async fn forbidden(&self, client: &Client, cred: &Cred, op: Op) {
        let outcome = client.op(cred, op.clone()).await;
        self.lied();
        // Under leases what it was told may have run out before anybody was asked.
        let run_out = outcome == Err(Errno::Stale) && self.cluster().settings.lease.is_some();
        if !run_out && !matches!(outcome, Err(Errno::Access | Errno::ReadOnly | Errno::Unreachable)) {
            let text = format!(
                "{} for uid {}, which the identity may not do, was answered with {outcome:?}",
                crate::words::describe_op(&op),
                cred.uid
            );
            self.cluster().sim.fail(Kind::WrongResult, text);
        }
    }

    /// A client asks for what is not for clients.
    pub async fn intrude(&self, rng: &mut Rng, life: &Rc<Life>, client: &Client) {
        let map = client.map();
        let server = rng.pick(&map.servers).id;
        let someone = SessionId::of(IdentityId(rng.range(7, 9) as u32), u128::from(life.number));
        let tx = TxId {
            coordinator: ServerId(1),
            boot: BootEpoch(1),
            number: rng.below(50),
        };
        let request = match rng.below(7) {
            0 => Request::Scan {
                range: Scan::Sessions.range(),
                limit: 10,
            },
            1 => Request::Status,
            2 => Request::Auth(AuthRequest::List),
            3 => Request::Peer(PeerRequest::Decide { tx, commit: false }),
            4 => Request::Peer(PeerRequest::Head(Statement::above_root().id)),
            5 => Request::CloseSession(someone),
            _ => Request::OpenSession(someone),
        };
        let answer = client.admin(server, request.clone()).await;
        self.lied();
        if !matches!(answer, Err(Errno::Access | Errno::Unreachable)) {
            let text = format!("a client's {request:?} was answered with {answer:?}");
            self.cluster().sim.fail(Kind::WrongResult, text);
        }
    }
}
