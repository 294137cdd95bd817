//! Who may connect. One server keeps the identities, in its own store; it tells the others of every change
//! before the operator hears that it is done, and they ask it when they start and every so often. Until a
//! server knows, it lets no client in.

mod change;

use crate::pipeline::Asked;
use crate::slots::recovery::all;
use crate::txn::locks::Unit;
use crate::{Failure, MetaServer};
use pando_auth::{Fingerprint, Key as Secret};
use pando_env::sync::join_all;
use pando_format::{Batch, IdentityRecord, IdentityTable, Key, Mutation, Record, Scan};
use pando_store::{Level, Store, StoreError};
use pando_types::{AuthMode, Claims, IdentityId, ServerId, Timestamp, Users, plant};
use pando_wire::{
    AuthAnswer, AuthError, AuthRequest, Denial, IdentityView, LockMode, PeerAnswer, PeerRequest, Refusal,
};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// How often a change is told to a server that does not answer, before the operator hears that it did not.
/// All tries together must take less time than an operator's client waits for one answer, or it asks again
/// and never hears.
const TRIES: usize = 2;

/// Planted: who nobody knows may do everything.
const EVERYTHING: Claims = Claims {
    users: Users::Any,
    subtree: None,
    read_only: false,
};

/// What a server knows of identities.
#[derive(Default)]
pub(crate) struct Identities {
    /// `None`: nothing yet.
    known: Option<Known>,
    /// Of the server that keeps them: all records, revoked ones too.
    kept: BTreeMap<IdentityId, IdentityRecord>,
    /// Keys whose time is over and whose connections were closed.
    over: BTreeSet<(IdentityId, u64)>,
}

/// One server being told; it, if it did not confirm.
type Telling<'a> = Pin<Box<dyn Future<Output = Option<ServerId>> + 'a>>;

struct Known {
    version: u64,
    live: BTreeMap<IdentityId, IdentityRecord>,
}

impl Identities {
    /// Of the server that keeps them: what its store has.
    pub async fn load(store: &dyn Store) -> Result<Identities, StoreError> {
        let mut kept = BTreeMap::new();
        for (key, record) in all(store, Scan::Identities).await? {
            if let (Key::Identity(id), Record::Identity(record)) = (key, record) {
                kept.insert(id, record);
            }
        }
        let mut identities = Identities {
            kept,
            ..Identities::default()
        };
        let table = identities.table();
        identities.adopt(table);
        Ok(identities)
    }

    /// Everybody who is not revoked.
    fn table(&self) -> IdentityTable {
        let live = self.kept.iter().filter(|(_, r)| r.revoked.is_none());
        IdentityTable {
            version: self.kept.values().map(|r| r.change).max().unwrap_or(0),
            identities: live.map(|(id, r)| (*id, r.clone())).collect(),
        }
    }

    /// Takes a table, unless a newer one is known. Returns who may not connect any more.
    fn adopt(&mut self, table: IdentityTable) -> Vec<IdentityId> {
        if plant!(G47) && table.identities.len() < self.known.as_ref().map_or(0, |k| k.live.len()) {
            return Vec::new();
        }
        if self.known.as_ref().is_some_and(|k| k.version >= table.version) {
            return Vec::new();
        }
        let live: BTreeMap<IdentityId, IdentityRecord> = table.identities.into_iter().collect();
        let before = self.known.replace(Known {
            version: table.version,
            live,
        });
        let Some(before) = before else { return Vec::new() };
        let gone = before.live.into_keys();
        gone.filter(|id| !self.lives(*id)).collect()
    }

    fn lives(&self, id: IdentityId) -> bool {
        self.known.as_ref().is_some_and(|k| k.live.contains_key(&id))
    }

    /// What an identity may claim.
    pub fn claims(&self, id: IdentityId) -> Result<&Claims, Refusal> {
        let known = self.known.as_ref().ok_or(Refusal::NotReady)?;
        match known.live.get(&id) {
            Some(record) => Ok(&record.claims),
            None if plant!(G38) => Ok(&EVERYTHING),
            None => Err(Refusal::NotAllowed),
        }
    }

    /// A key of an identity that is still good.
    pub fn key(&self, id: IdentityId, name: u64, now: Timestamp) -> Result<Secret, Denial> {
        let known = self.known.as_ref().ok_or(Denial::NotReady)?;
        let record = known.live.get(&id).ok_or(Denial::UnknownKey)?;
        let good = record
            .keys
            .iter()
            .filter(|k| k.until.is_none_or(|t| t > now) || plant!(G46));
        good.map(|k| Secret::new(k.key))
            .find(|k| k.name() == name)
            .ok_or(Denial::UnknownKey)
    }

    /// Planted: a key proves any role.
    pub fn any_key(&self, name: u64) -> Option<Secret> {
        let known = self.known.as_ref()?;
        let keys = known
            .live
            .values()
            .flat_map(|r| &r.keys)
            .map(|k| Secret::new(k.key));
        keys.into_iter().find(|k| k.name() == name)
    }

    /// Whose certificate has this public key.
    pub fn certified(&self, public_key: &Fingerprint, now: Timestamp) -> Result<IdentityId, Denial> {
        let known = self.known.as_ref().ok_or(Denial::NotReady)?;
        let good = |r: &IdentityRecord| {
            let mut keys = r.keys.iter();
            keys.any(|k| k.key == public_key.0 && k.until.is_none_or(|t| t > now))
        };
        let found = known.live.iter().find(|(_, record)| good(record));
        found.map(|(id, _)| *id).ok_or(Denial::UnknownKey)
    }

    /// Identities one of whose keys is over since this was last asked.
    fn with_keys_over(&mut self, now: Timestamp) -> BTreeSet<IdentityId> {
        let Some(known) = &self.known else {
            return BTreeSet::new();
        };
        let mut over = BTreeSet::new();
        for (id, record) in &known.live {
            for key in record.keys.iter().filter(|k| k.until.is_some_and(|t| t <= now)) {
                over.insert((*id, Secret::new(key.key).name()));
            }
        }
        let news = over.difference(&self.over).map(|(id, _)| *id).collect();
        self.over = over;
        news
    }
}

fn view((id, r): (&IdentityId, &IdentityRecord)) -> IdentityView {
    IdentityView {
        id: *id,
        name: r.name.clone(),
        claims: r.claims.clone(),
        keys: r.keys.iter().map(|k| k.until).collect(),
        created: r.created,
        revoked: r.revoked,
        change: r.change,
    }
}

impl MetaServer {
    /// The server that keeps the identities.
    fn keeper(&self) -> ServerId {
        self.map().keeper
    }

    /// What an operator asks about identities.
    pub(crate) async fn auth(&self, request: AuthRequest) -> Result<Result<AuthAnswer, AuthError>, Failure> {
        if self.keeper() != self.id {
            return Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)));
        }
        if self.map().auth == AuthMode::None {
            return Ok(Err(AuthError::NotUsed));
        }
        let (seen, change) = match request {
            AuthRequest::List => {
                let identities = self.admission.identities.borrow().kept.iter().map(view).collect();
                return Ok(Ok(AuthAnswer {
                    identities,
                    unconfirmed: Vec::new(),
                }));
            }
            AuthRequest::Change { seen, change } => (seen, change),
        };
        // One change after the other: no version ever stands for two tables.
        let held = self.hold();
        let turn = (Unit::Key(Key::Identity(IdentityId::ANYONE)), LockMode::Exclusive);
        self.txn
            .locks
            .acquire(held.holder, vec![turn], || self.lock_wait())
            .await?;
        let changed = self
            .admission
            .identities
            .borrow()
            .change(seen, change, self.world.now());
        let id = match changed {
            Err(e) => return Ok(Err(e)),
            Ok((id, None)) => id,
            Ok((id, Some(record))) => {
                let write = Mutation::Update {
                    key: Key::Identity(id),
                    record: Record::Identity(record.clone()),
                };
                let lsn = self.store.apply(&Batch::of(vec![write]))?;
                self.safe(lsn, Level::Synced).await?;
                self.admission.identities.borrow_mut().kept.insert(id, record);
                id
            }
        };
        // Also if nothing changed: the one who asked before may not have heard who did not confirm.
        let table = self.admission.identities.borrow().table();
        self.adopt_identities(table.clone());
        let unconfirmed = self.tell_all(table).await;
        drop(held);
        let identities = self.admission.identities.borrow();
        let changed = identities.kept.get_key_value(&id);
        Ok(Ok(AuthAnswer {
            identities: changed.map(view).into_iter().collect(),
            unconfirmed,
        }))
    }

    /// Tells all other servers. Returns those that did not confirm.
    async fn tell_all(&self, table: IdentityTable) -> Vec<ServerId> {
        let map = self.map();
        let others = map.servers.iter().map(|s| s.id).filter(|id| *id != self.id);
        let tells = others.map(|server| -> Telling<'_> {
            let table = table.clone();
            Box::pin(async move {
                for _ in 0..TRIES {
                    let told = self.ask(server, PeerRequest::Adopt(table.clone())).await;
                    if let Ok(Ok(PeerAnswer::Adopted)) = told {
                        return None;
                    }
                    self.pause(Duration::from_millis(50)).await;
                }
                Some(server)
            })
        });
        join_all(tells.collect()).await.into_iter().flatten().collect()
    }

    /// Puts a table in force: who may not connect any more is thrown out at once. Sessions end with the next
    /// tick; until then nobody can speak of them.
    pub(crate) fn adopt_identities(&self, table: IdentityTable) {
        let gone = self.admission.identities.borrow_mut().adopt(table);
        for id in gone {
            self.world.expel(id, "its identity was revoked");
        }
    }

    /// Refuses, at the instant an operation would take effect, what rests on something that is not true any
    /// more, and what an identity asked that was revoked while this waited: when a revocation has returned,
    /// nothing of its identity takes effect on the servers that confirmed it.
    pub(crate) fn may_take_effect(&self, asked: &Asked<'_>) -> Result<(), Failure> {
        let id = asked.holder.identity;
        let anybody = self.map().auth == AuthMode::None || id == IdentityId::ANYONE;
        if !anybody && !self.admission.identities.borrow().lives(id) && !plant!(G38) && !plant!(G53) {
            return Err(Failure::Refused(Refusal::NotAllowed));
        }
        // What was looked at in another term may have been changed by another coordinator since (H27).
        let anew = self.map().term != asked.term && !plant!(H27);
        if anew || self.is_coordinated(asked.op) && !self.may_coordinate(asked.term) {
            return Err(Failure::Refused(Refusal::NotReady));
        }
        // Whoever had its slots meanwhile may have been asked the same, and have done it or sent it on
        // (H131).
        if asked.request.is_some() && asked.slot_changes != self.slot_changes() && !plant!(H131) {
            return Err(Failure::Refused(Refusal::Busy));
        }
        self.check_current(asked.rests_on(), asked.leases.verified.get())
            .map_err(Failure::Refused)
    }

    /// The table, if it is newer than that.
    pub(crate) fn show_identities(&self, known: u64) -> Result<PeerAnswer, Failure> {
        if self.keeper() != self.id {
            return Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)));
        }
        let table = self.admission.identities.borrow().table();
        let newer = self.admission.identities.borrow().known.is_some() && table.version >= known;
        Ok(PeerAnswer::Identities(newer.then_some(table)))
    }

    /// Learns who may connect, and learns of what was missed. Runs as long as the server.
    pub(crate) async fn follow_identities(self: Rc<Self>) {
        if self.map().auth == AuthMode::None || self.keeper() == self.id {
            return;
        }
        while !self.stopped.get() {
            // 0 is the version of a table without any change.
            let known = self
                .admission
                .identities
                .borrow()
                .known
                .as_ref()
                .map_or(0, |k| k.version + 1);
            let answer = self.ask(self.keeper(), PeerRequest::Identities(known)).await;
            if let Ok(Ok(PeerAnswer::Identities(Some(table)))) = answer {
                self.adopt_identities(table);
            }
            let pause = if self.admission.identities.borrow().known.is_some() {
                self.limits.identity_period
            } else {
                self.limits.tick
            };
            self.pause(pause).await;
        }
    }

    /// Ends what outlived its identity or its key: sessions, and connections that an old key opened.
    pub(crate) async fn enforce_identities(&self) -> Result<(), Failure> {
        if self.map().auth == AuthMode::None || self.admission.identities.borrow().known.is_none() {
            return Ok(());
        }
        let over = self
            .admission
            .identities
            .borrow_mut()
            .with_keys_over(self.world.now());
        for id in over {
            // Those with a good key are back at once.
            self.world.expel(id, "one of its keys is over");
        }
        let orphans = {
            let identities = self.admission.identities.borrow();
            let gone = |owner| owner != IdentityId::ANYONE && !identities.lives(owner);
            self.admission.sessions.borrow().owned_by(gone)
        };
        for session in orphans {
            self.expire(session, |s| s.is_idle(session)).await?;
        }
        Ok(())
    }
}
