//! Who may connect. One server keeps the identities, in its own store; it tells the others of every change before the
//! operator hears that it is done, and they ask it when they start and every so often. Until a server knows, it lets
//! no client in.

use crate::execute::Asked;
use crate::locks::Unit;
use crate::recovery::all;
use crate::{Failure, MetaServer};
use pando_auth::{Fingerprint, Key as Secret};
use pando_env::sync::join_all;
use pando_format::{Batch, IdentityKey, IdentityRecord, IdentityTable, Key, KeyRange, Mutation, Record};
use pando_store::{Level, Store, StoreError};
use pando_types::{AuthMode, Claims, IdentityId, ServerId, Timestamp, Users, plant};
use pando_wire::{
    AuthAnswer, AuthChange, AuthError, AuthRequest, Denial, IdentityView, LockMode, PeerAnswer, PeerRequest,
    Refusal,
};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Most identities at one time, so that all of them fit one message.
const MOST: usize = 10_000;
/// Longest name.
const NAME: usize = 255;
/// Keys of one identity: the newest, and those it replaced.
const KEYS: usize = 4;
/// How often a change is told to a server that does not answer, before the operator hears that it did not. All tries
/// together must take less time than an operator's client waits for one answer, or it asks again and never hears.
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
        for (key, record) in all(store, KeyRange::identities()).await? {
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

    /// Whether a key proves, or proved until it was replaced, somebody else.
    fn is_taken(&self, key: &[u8; 32], but: Option<IdentityId>) -> bool {
        let mut others = self.kept.iter().filter(|(id, _)| Some(**id) != but);
        others.any(|(_, r)| r.keys.iter().any(|k| k.key == *key))
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

    /// The record after a change, of the server that keeps them. `None`: it is so already.
    fn change(
        &self,
        seen: u64,
        asked: AuthChange,
        now: Timestamp,
    ) -> Result<(IdentityId, Option<IdentityRecord>), AuthError> {
        let newest = self.kept.iter().rev().find(|(_, r)| r.name == asked.name());
        let live = newest.filter(|(_, r)| r.revoked.is_none());
        let done = match &asked {
            AuthChange::Add { key, .. } | AuthChange::Rotate { key, .. } => {
                live.filter(|(_, r)| r.keys.first().is_some_and(|k| k.key == *key))
            }
            AuthChange::Revoke { .. } => newest.filter(|(_, r)| r.revoked.is_some()),
        };
        if let Some((id, _)) = done {
            return Ok((*id, None));
        }
        // A late copy of what was done, and undone since, would let in who was revoked.
        if seen != newest.map_or(0, |(_, r)| r.change) && !plant!(H123) {
            return Err(AuthError::Changed);
        }
        let change = self.table().version + 1;
        let fresh = |key| IdentityKey { key, until: None };
        match asked {
            AuthChange::Add { name, claims, key } => {
                if name.is_empty() || name.len() > NAME {
                    return Err(AuthError::BadName);
                }
                if live.is_some() {
                    return Err(AuthError::Exists);
                }
                if self.is_taken(&key, None) {
                    return Err(AuthError::KeyTaken);
                }
                let last = self.kept.keys().next_back().map_or(0, |id| id.0);
                let id = last.checked_add(1).map(IdentityId).ok_or(AuthError::TooMany)?;
                if self.table().identities.len() >= MOST {
                    return Err(AuthError::TooMany);
                }
                let record = IdentityRecord {
                    name,
                    claims,
                    keys: vec![fresh(key)],
                    created: now,
                    revoked: None,
                    change,
                };
                Ok((id, Some(record)))
            }
            AuthChange::Revoke { .. } => {
                let (id, record) = live.ok_or(AuthError::Unknown)?;
                let revoked = IdentityRecord {
                    revoked: Some(now),
                    // Nobody will ask for them again.
                    keys: Vec::new(),
                    change,
                    ..record.clone()
                };
                Ok((*id, Some(revoked)))
            }
            AuthChange::Rotate { key, grace, .. } => {
                let (id, record) = live.ok_or(AuthError::Unknown)?;
                if self.is_taken(&key, Some(*id)) {
                    return Err(AuthError::KeyTaken);
                }
                let end = Timestamp {
                    secs: now.secs.saturating_add(i64::from(grace)),
                    nanos: now.nanos,
                };
                let mut record = record.clone();
                for old in &mut record.keys {
                    old.until = Some(old.until.map_or(end, |t| t.min(end)));
                }
                record.keys.insert(0, fresh(key));
                record.keys.truncate(KEYS);
                record.change = change;
                Ok((*id, Some(record)))
            }
        }
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
                let identities = self.identities.borrow().kept.iter().map(view).collect();
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
        self.locks
            .acquire(held.holder, vec![turn], || self.lock_wait())
            .await?;
        let changed = self.identities.borrow().change(seen, change, self.world.now());
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
                self.identities.borrow_mut().kept.insert(id, record);
                id
            }
        };
        // Also if nothing changed: the one who asked before may not have heard who did not confirm.
        let table = self.identities.borrow().table();
        self.adopt_identities(table.clone());
        let unconfirmed = self.tell_all(table).await;
        drop(held);
        let identities = self.identities.borrow();
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

    /// Puts a table in force: who may not connect any more is thrown out at once. Sessions end with the next tick;
    /// until then nobody can speak of them.
    pub(crate) fn adopt_identities(&self, table: IdentityTable) {
        let gone = self.identities.borrow_mut().adopt(table);
        for id in gone {
            self.world.expel(id, "its identity was revoked");
        }
    }

    /// Refuses, at the instant an operation would take effect, what rests on something that is not true any more, and what
    /// an identity asked that was revoked while this waited: when a revocation has returned, nothing of its identity
    /// takes effect on the servers that confirmed it.
    pub(crate) fn may_take_effect(&self, asked: &Asked<'_>) -> Result<(), Failure> {
        let id = asked.holder.identity;
        let anybody = self.map().auth == AuthMode::None || id == IdentityId::ANYONE;
        if !anybody && !self.identities.borrow().lives(id) && !plant!(G38) && !plant!(G53) {
            return Err(Failure::Refused(Refusal::NotAllowed));
        }
        // What was looked at in another term may have been changed by another coordinator since (H27).
        let anew = self.map().term != asked.term && !plant!(H27);
        if anew || self.is_coordinated(asked.op) && !self.may_coordinate(asked.term) {
            return Err(Failure::Refused(Refusal::NotReady));
        }
        self.check_current(asked.rests_on()).map_err(Failure::Refused)
    }

    /// The table, if it is newer than that.
    pub(crate) fn show_identities(&self, known: u64) -> Result<PeerAnswer, Failure> {
        if self.keeper() != self.id {
            return Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)));
        }
        let table = self.identities.borrow().table();
        let newer = self.identities.borrow().known.is_some() && table.version >= known;
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
                .identities
                .borrow()
                .known
                .as_ref()
                .map_or(0, |k| k.version + 1);
            let answer = self.ask(self.keeper(), PeerRequest::Identities(known)).await;
            if let Ok(Ok(PeerAnswer::Identities(Some(table)))) = answer {
                self.adopt_identities(table);
            }
            let pause = if self.identities.borrow().known.is_some() {
                self.limits.identity_period
            } else {
                self.limits.tick
            };
            self.pause(pause).await;
        }
    }

    /// Ends what outlived its identity or its key: sessions, and connections that an old key opened.
    pub(crate) async fn enforce_identities(&self) -> Result<(), Failure> {
        if self.map().auth == AuthMode::None || self.identities.borrow().known.is_none() {
            return Ok(());
        }
        let over = self.identities.borrow_mut().with_keys_over(self.world.now());
        for id in over {
            // Those with a good key are back at once.
            self.world.expel(id, "one of its keys is over");
        }
        let orphans = {
            let identities = self.identities.borrow();
            let gone = |owner| owner != IdentityId::ANYONE && !identities.lives(owner);
            self.sessions.borrow().owned_by(gone)
        };
        for session in orphans {
            self.expire(session).await?;
        }
        Ok(())
    }
}
