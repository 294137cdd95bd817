//! Where a cell is played: three servers of mode `key`, a tree with something to lose, an operator, somebody
//! to attack and somebody who attacks.

use super::speaker::Speaker;
use super::{Cell as GridCell, Layout};
use crate::cluster::Cluster;
use crate::settings::Settings;
use crate::trace::Print;
use crate::world::{MS, SEC, Sim};
use pando_auth::Key as AuthKey;
use pando_cluster::{DirectoryUpdates, Placement};
use pando_format::{Codec, Key, Mutation};
use pando_types::{
    AttrChange, Claims, Cred, DirId, Generation, IdentityId, Ids, Ino, Name, PeerId, Perm, ServerId, Users,
};
use pando_wire::{AuthAnswer, AuthChange, AuthRequest, Object, Op, Request, Response, Statement};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Who is attacked: one user.
pub const ALICE: IdentityId = IdentityId(1);
/// Who attacks: two users, and a group.
pub const MALLORY: IdentityId = IdentityId(2);
/// Acts for anybody and changes nothing.
pub const READER: IdentityId = IdentityId(3);
/// Acts for anybody in `/tenant`.
pub const TENANT: IdentityId = IdentityId(4);
/// A group of Mallory's first user.
pub const GROUP: u32 = 2000;

/// Where a cell is played.
pub struct Arena {
    /// The cluster.
    pub cluster: Rc<Cluster>,
    /// Has the cluster's secret; acts for anybody.
    pub root: Rc<Speaker>,
    /// Who is attacked.
    pub alice: Rc<Speaker>,
    /// Who attacks.
    pub mallory: Rc<Speaker>,
    speakers: Cell<u16>,
    /// Records before the attack began.
    baseline: RefCell<Option<BTreeSet<Vec<u8>>>>,
}

/// What came of an attack.
pub struct Played {
    /// It gained what it wanted.
    pub gained: bool,
    /// It came so far as to begin.
    pub prepared: bool,
    /// What its last refusal said.
    pub told: String,
    /// What is not as it was, or what the judge says.
    pub wrong: Vec<String>,
}

fn user(uid: u32, gid: u32, groups: &[u32]) -> Cred {
    Cred {
        uid,
        gid,
        groups: groups.to_vec(),
    }
}

/// Alice.
pub fn alice() -> Cred {
    user(1001, 1001, &[])
}

/// Mallory, who is in a group.
pub fn mallory() -> Cred {
    user(1002, 1002, &[GROUP])
}

/// Mallory's other user, who is not.
pub fn other() -> Cred {
    user(1003, 1002, &[])
}

/// The key of an identity by its name.
pub fn key_of(name: &str) -> [u8; 32] {
    let mut key = [7; 32];
    key[..name.len()].copy_from_slice(name.as_bytes());
    key
}

fn claims(subtree: Option<(DirId, Generation)>) -> [(&'static str, Claims); 4] {
    let only = |uids: &[u32], gids: &[u32]| Claims {
        users: Users::Only {
            uids: uids.to_vec(),
            gids: gids.to_vec(),
        },
        ..Claims::all()
    };
    [
        ("alice", only(&[1001], &[1001])),
        ("mallory", only(&[1002, 1003], &[1002, GROUP])),
        (
            "reader",
            Claims {
                read_only: true,
                ..Claims::all()
            },
        ),
        (
            "tenant",
            Claims {
                subtree,
                ..Claims::all()
            },
        ),
    ]
}

impl Arena {
    /// Somebody else, whose connections prove this.
    pub fn speaker(&self, who: PeerId) -> Rc<Speaker> {
        self.speakers.set(self.speakers.get() + 1);
        Speaker::new(&self.cluster, self.speakers.get(), who)
    }

    /// The server that keeps the identities.
    pub fn keeper(&self) -> ServerId {
        self.cluster.map().keeper
    }

    /// A change of identities, as an operator makes it.
    pub async fn auth(&self, change: AuthChange) -> Option<AuthAnswer> {
        let request = self.change(change).await?;
        self.ask_auth(request).await
    }

    /// The request for it.
    pub async fn change(&self, change: AuthChange) -> Option<AuthRequest> {
        let seen = self.ask_auth(AuthRequest::List).await?.newest(change.name());
        Some(AuthRequest::Change { seen, change })
    }

    async fn ask_auth(&self, request: AuthRequest) -> Option<AuthAnswer> {
        match self.root.ask(self.keeper(), &Request::Auth(request)).await? {
            Response::Auth(Ok(answer)) => Some(answer),
            _ => None,
        }
    }

    /// The end of Mallory's identity.
    pub async fn revoke(&self) -> Option<()> {
        let name = "mallory".to_string();
        self.auth(AuthChange::Revoke { name }).await.map(|_| ())
    }

    /// A directory as the operator sees it.
    pub async fn at(&self, path: &str) -> Option<Statement> {
        self.root.find(&Cred::root(), path).await
    }

    /// Whether there is such a name.
    pub async fn exists(&self, dir: &str, name: &str) -> Option<bool> {
        let dir = self.at(dir).await?;
        Some(self.root.view(&Cred::root(), &dir, name).await.is_some())
    }

    /// The attack begins here: all records are noted.
    pub async fn mark(&self) {
        self.root.sleep(500).await;
        *self.baseline.borrow_mut() = Some(self.records());
    }

    /// All records but counters of numbers, and the sessions and reply records of those who attack.
    fn records(&self) -> BTreeSet<Vec<u8>> {
        let theirs = |id: IdentityId| id != ALICE;
        let counts = |key: &Key| match key {
            Key::Counter(_) => false,
            Key::Session(s) | Key::Reply(_, s, _) => !theirs(s.owner()),
            _ => true,
        };
        let mut all = BTreeSet::new();
        for server in &self.cluster.servers {
            let records = server
                .device
                .disk
                .dump()
                .into_iter()
                .filter(|(key, _)| counts(key));
            all.extend(records.map(|(key, record)| Mutation::Update { key, record }.to_bytes()));
        }
        all
    }

    /// What the whole tree, and others' sessions and reply records, come to.
    fn hash(records: &BTreeSet<Vec<u8>>) -> u64 {
        let all: Vec<u8> = records.iter().flatten().copied().collect();
        crate::trace::digest(&all)
    }

    /// What everybody can see, and what they may not.
    async fn furnish(&self) -> Option<()> {
        let (s, top) = (&self.root, Cred::root());
        let hers = alice();
        let open = Op::SetAttr {
            object: Object {
                dir: Statement::above_root(),
                name: Name::root(),
                ino: Ino::ROOT,
                generation: Generation::ROOT,
            },
            change: AttrChange {
                perm: Some(Perm::new(0o777)),
                ..AttrChange::default()
            },
            handle: None,
        };
        s.op(&top, open).await?;
        let root = s.find(&top, "/").await?;
        for (owner, name, perm) in [
            (&top, "open", 0o777),
            (&top, "sticky", 0o1777),
            (&hers, "private", 0o700),
            (&hers, "listed", 0o744),
            (&hers, "blind", 0o711),
            (&hers, "shared", 0o755),
            (&user(0, GROUP, &[]), "group", 0o750),
            (&top, "tenant", 0o777),
        ] {
            s.mkdir(owner, &root, name, perm).await?;
        }
        for (path, name, perm) in [
            ("/private", "sub", 0o755),
            ("/shared", "sub", 0o755),
            ("/listed", "inner", 0o755),
        ] {
            let dir = s.find(&top, path).await?;
            s.mkdir(&hers, &dir, name, perm).await?;
        }
        let group = s.find(&top, "/group").await?;
        s.mkdir(&top, &group, "sub", 0o777).await?;
        for (path, name, perm) in [
            ("/open", "hers", 0o600),
            ("/open", "hers-by-group", 0o640),
            ("/open", "notes", 0o644),
            ("/open", "written-only", 0o622),
            ("/open", "setuid", 0o4666),
            ("/sticky", "hers", 0o644),
            ("/private", "diary", 0o644),
            ("/private/sub", "deep", 0o644),
            ("/listed/inner", "file", 0o644),
            ("/blind", "known", 0o644),
            ("/shared", "file", 0o644),
            ("/group/sub", "file", 0o644),
        ] {
            let dir = s.find(&top, path).await?;
            s.write(&hers, &dir, name, perm, "secret").await?;
        }
        let tenant = s.find(&top, "/tenant").await?;
        for (name, claims) in claims(Some((tenant.id, tenant.generation))) {
            let (key, name) = (key_of(name), name.to_string());
            let add = AuthChange::Add {
                name,
                claims: claims.clone(),
                key,
            };
            let answer = self.auth(add).await?;
            let made = answer.identities.first()?;
            self.cluster.judge().identity(made.id, claims);
        }
        // Alice has a session with something in it.
        let dir = self.alice.find(&alice(), "/private").await?;
        self.alice.mkdir(&alice(), &dir, "secret-project", 0o700).await?;
        Some(())
    }

    /// Whether Alice, who repeats her last request, is told what she was told before.
    async fn alice_goes_on(&self) -> bool {
        let last = self.alice.last.borrow().clone();
        let Some(said) = last else { return true };
        match self.alice.ask(said.server, &said.request).await {
            Some(response) => match response.into_outcome() {
                Some(outcome) => outcome.ok().map(|a| untimed(&a)) == said.answer.as_ref().map(untimed),
                None => false,
            },
            None => false,
        }
    }

    /// A key of an identity, as its owner has it.
    pub fn key(name: &str) -> AuthKey {
        AuthKey::new(key_of(name))
    }
}

fn untimed(answer: &pando_wire::Answer) -> Vec<u8> {
    answer.to_bytes()
}

fn settings(sim: &Rc<Sim>, layout: Layout) -> Settings {
    let mut settings = Settings {
        servers: 3,
        clients: 0,
        keyed: true,
        id_bits: 128,
        name_bits: 55,
        durability: pando_store::Durability::Sync,
        inline_limit: 256,
        // Most cells about servers are about votes.
        updates: DirectoryUpdates::TwoPhase,
        overhears: 10_000,
        ..Settings::of(&mut sim.stream(6))
    };
    match layout {
        Layout::Predicted => {}
        Layout::Placed | Layout::Split => {
            settings.ids = Ids::Placed;
            settings.updates = DirectoryUpdates::ParentFirst;
        }
    }
    if layout == Layout::Split {
        settings.placement = Placement::Split(16);
    }
    settings.limits.session_timeout = Duration::from_secs(120);
    settings.limits.tick = Duration::from_millis(100);
    settings.limits.identity_period = Duration::from_secs(2);
    settings.limits.lock_wait = Duration::from_millis(500);
    settings.limits.peer_timeout = Duration::from_millis(200);
    // What is left of a transaction is gone when records are compared.
    settings.limits.settle_after = Duration::ZERO;
    settings.limits.inquire_after = Duration::from_millis(300);
    settings.limits.invalidations = 6;
    settings.limits.page = 100;
    settings.limits.cut_hold = Duration::from_millis(200);
    settings.limits.requests = 16;
    settings.limits.identity_sessions = 32;
    settings.limits.session_holds = 10;
    settings.limits.identity_holds = 15;
    settings
}

/// Plays a cell without these checks.
pub(super) fn play(cell: &'static GridCell, without: &[&str]) -> Played {
    plant(without);
    let sim = Sim::new(1, Print::No);
    let played = on(&sim, cell, without.is_empty());
    sim.tear_down();
    plant(&[]);
    played
}

#[cfg(feature = "plant")]
fn plant(names: &[&str]) {
    pando_types::plant::set(names);
}

#[cfg(not(feature = "plant"))]
fn plant(_names: &[&str]) {}

/// Lets things happen until `done`, whatever the judge says. False: it never is.
fn until(sim: &Rc<Sim>, done: impl Fn() -> bool) -> bool {
    let end = sim.now() + 400 * SEC;
    while !done() {
        if sim.now() > end || !sim.step() {
            return done();
        }
    }
    true
}

fn on(sim: &Rc<Sim>, cell: &'static GridCell, whole: bool) -> Played {
    let mut played = Played {
        gained: false,
        prepared: false,
        told: String::new(),
        wrong: Vec::new(),
    };
    let cluster = match Cluster::format(sim, settings(sim, cell.layout)) {
        Ok(cluster) => cluster,
        Err(e) => {
            played.wrong.push(e);
            return played;
        }
    };
    for index in 0..cluster.servers.len() {
        cluster.set_downtime(index, Some(10 * MS));
        cluster.start(index);
    }
    until(sim, || cluster.all_serve());
    let arena = Rc::new(Arena {
        root: Speaker::new(&cluster, 1, PeerId::Operator),
        alice: Speaker::new(&cluster, 2, PeerId::Client(ALICE)),
        mallory: Speaker::new(&cluster, 3, PeerId::Client(MALLORY)),
        cluster,
        speakers: Cell::new(3),
        baseline: RefCell::new(None),
    });
    let end: Rc<Cell<Option<(bool, bool)>>> = Rc::default();
    let (a, e) = (arena.clone(), end.clone());
    arena.root.life.world().spawn(Box::pin(async move {
        let furnished = a.furnish().await.is_some();
        let gained = furnished && (cell.attack)(a.clone()).await.is_some();
        // Decisions on their way arrive.
        a.root.sleep(1_000).await;
        let goes_on = !whole || a.alice_goes_on().await;
        e.set(Some((gained, goes_on)));
    }));
    until(sim, || end.get().is_some());
    let (gained, goes_on) = end.get().unwrap_or_default();
    played.gained = gained;
    played.told = arena.mallory.refused.borrow().clone();
    if let Some(before) = &*arena.baseline.borrow() {
        played.prepared = true;
        let after = arena.records();
        if Arena::hash(before) != Arena::hash(&after) && whole {
            let changed = before.symmetric_difference(&after).next();
            let what = changed.and_then(|b| Mutation::from_bytes(b).ok());
            played
                .wrong
                .push(format!("not all records are what they were: {what:?}"));
        }
    }
    if whole {
        if !goes_on {
            played
                .wrong
                .push("Alice is not told what she was told before".into());
        }
        if let Some(v) = sim.violation() {
            played.wrong.push(v.text);
        }
    }
    played
}
