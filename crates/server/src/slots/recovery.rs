//! Start: a new boot epoch, the locks of prepared transactions, decisions to deliver, sessions.

use crate::admission::identities::Identities;
use crate::admission::sessions::Sessions;
use crate::facts::changes::Changes;
use crate::facts::heard::Heard;
use crate::mounts::filelocks::FileLocks;
use crate::mounts::holds::Holds;
use crate::office::tenure::Office;
use crate::slots::moving::Moving;
use crate::txn::locks::{Locks, in_order, units_of};
use crate::txn::owed::Debts;
use crate::txn::participant::{TxPart, TxParts};
use crate::txn::{Coordinated, Decided};
use crate::{MetaServer, Observer, ServerConfig, Stats, admission, care, facts, mounts, office, slots, txn};
use pando_cluster::Coord;
use pando_data::Blocks;
use pando_env::{Caller, World};
use pando_format::{
    Batch, FORMAT_VERSION, HandOverRecord, Key, Mutation, OLDEST_FORMAT, Record, Scan, Superblock,
};
use pando_store::{Level, Lsn, Store, StoreError};
use pando_types::{AuthMode, BootEpoch, FsId, Ids, MapEpoch, Mono, ServerId, TxId, plant};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// Records read at once while recovering.
const RUN: usize = 1024;

/// Why a server does not start.
#[derive(Debug)]
pub enum StartError {
    /// The store failed.
    Store(StoreError),
    /// The store has no superblock: it was never formatted.
    NotFormatted,
    /// The store is of a newer format.
    NewerFormat(u32),
    /// The store is of a format from before the first release.
    OlderFormat(u32),
    /// The store belongs to another filesystem or another server.
    Foreign {
        /// In the superblock.
        found: (FsId, ServerId),
        /// In the configuration.
        wanted: (FsId, ServerId),
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Store(e) => write!(f, "{e}"),
            StartError::NotFormatted => write!(f, "the store was never formatted; run `pando format` first"),
            StartError::NewerFormat(v) => {
                write!(
                    f,
                    "the store has format {v}, this program understands up to {FORMAT_VERSION}; use a newer pando"
                )
            }
            StartError::OlderFormat(v) => {
                write!(
                    f,
                    "the store has format {v}, from before the first release; this program needs {OLDEST_FORMAT} or newer: copy the files out with \
                     the pando that made it (`pando get -r`), format anew and put them back"
                )
            }
            StartError::Foreign { found, wanted } => write!(
                f,
                "the store belongs to server {} of filesystem {:032x}, not to server {} of {:032x}; check the directory",
                found.1, found.0.0, wanted.1, wanted.0.0
            ),
        }
    }
}

impl std::error::Error for StartError {}

impl From<StoreError> for StartError {
    fn from(e: StoreError) -> StartError {
        StartError::Store(e)
    }
}

/// Transactions this server voted for. They stay locked until their coordinator has been asked (H37).
async fn restore_parts(
    store: &dyn Store,
    locks: &Locks,
    changes: &mut Changes,
    now: Mono,
) -> Result<TxParts, StoreError> {
    let mut parts = TxParts::default();
    for (key, record) in all(store, Scan::AllPrepared).await? {
        let (Key::Prepared(slot, tx), Record::Prepared(record)) = (key, record) else {
            continue;
        };
        let part = parts.live.entry(tx).or_insert_with(|| TxPart {
            holder: locks.holder(),
            prepared: Default::default(),
            records: Vec::new(),
            heard: now,
        });
        if !plant!(H114) {
            let units = in_order(units_of(&record.mutations, record.reply.as_ref()));
            locks.restore(part.holder, units);
        }
        changes.prepare(slot, tx, &record);
        part.prepared.insert(slot);
        part.records.push((slot, record));
    }
    Ok(parts)
}

/// Decisions that not all participants have confirmed.
async fn decisions(store: &dyn Store) -> Result<BTreeMap<TxId, Decided>, StoreError> {
    let mut decided = BTreeMap::new();
    for (key, record) in all(store, Scan::Decisions).await? {
        if let (Key::Decision(tx), Record::Decision(d)) = (key, record) {
            decided.insert(
                tx,
                Decided {
                    lsn: Lsn(0),
                    waiting: d.participants.into_iter().collect(),
                },
            );
        }
    }
    Ok(decided)
}

/// Sessions, and what may be open under them.
async fn sessions(store: &dyn Store, epoch: MapEpoch, now: Mono) -> Result<(Sessions, Holds), StoreError> {
    let mut sessions = Sessions::default();
    let mut holds = Holds::starting(epoch);
    for (key, record) in all(store, Scan::Sessions).await? {
        if let (Key::Session(id), Record::Session(record)) = (key, record) {
            if record.ended.is_some() {
                sessions.stays_ended(id, now);
            } else {
                // A session gets its whole timeout again: its client may not have noticed the restart yet.
                sessions.reopen(id, now);
                holds.expect(id, now);
            }
        }
    }
    Ok((sessions, holds))
}

/// What is not forgotten of slots that moved.
async fn handed_over(store: &dyn Store) -> Result<HandOverRecord, StoreError> {
    match store.get(&Key::HandOver).wait().await? {
        Some(Record::HandOver(kept)) => Ok(kept),
        _ => Ok(HandOverRecord::default()),
    }
}

impl MetaServer {
    /// Starts a server on its store. When this returns it serves; messages that came before are lost.
    pub async fn start(
        config: ServerConfig,
        world: World,
        store: Rc<dyn Store>,
        blocks: Rc<dyn Blocks>,
        observer: Rc<dyn Observer>,
        coord: Rc<dyn Coord>,
    ) -> Result<Rc<MetaServer>, StartError> {
        let boot = begin_boot(&config, &*store).await?;
        let (locks, now) = (Locks::default(), world.mono());
        let mut changes = Changes::new(config.id, boot);
        let mut stats = Stats::default();
        let parts = restore_parts(&*store, &locks, &mut changes, now).await?;
        stats.in_doubt = parts.live.len() as u64;
        let decided = decisions(&*store).await?;
        let (sessions, holds) = sessions(&*store, config.map.epoch, now).await?;
        let heard = if config.map.coordinator == config.id {
            let most = config.limits.invalidations;
            crate::office::coordinator::load(&*store, config.map.term, &config.secrets.statement_keys(), most)
                .await?
        } else {
            Heard::default()
        };
        let office = Office::new(config.limits.server_lease, now);
        let needs_new_term =
            config.map.coordinator == config.id && config.map.coherence.longest_lease().is_some();
        let keeps = config.map.auth != AuthMode::None && config.map.keeper == config.id;
        let identities = match keeps {
            true => Identities::load(&*store).await?,
            false => Identities::default(),
        };
        let splits = slots::split::Splits::starting(config.map.placement);
        let moving = Moving::starting(handed_over(&*store).await?, &config.map, config.id);
        let widths = config.map.widths();
        let ours = |slot| moving.may_be_ours(&config.map, config.id, slot);
        let (debts, owed) = Debts::load(&*store, widths, (config.id, boot), &locks, ours).await?;
        if config.map.placement.by_key() {
            for slot in moving.not_served(&config.map, config.id) {
                locks.set_open(slot, false);
            }
        }
        let next = owed.len() as u64;
        let to_deliver: Vec<_> = decided.keys().copied().collect();
        let server = Rc::new_cyclic(|me| MetaServer {
            me: me.clone(),
            id: config.id,
            boot,
            map: RefCell::new(Rc::new(config.map)),
            limits: config.limits,
            caller: Caller::new(world.clone()),
            world,
            store,
            blocks,
            observer,
            boots: RefCell::new(BTreeMap::new()),
            stopped: Cell::new(false),
            untold: RefCell::default(),
            facts: facts::State::starting(config.secrets.statement_keys(), heard, changes, now),
            mounts: mounts::State {
                file_locks: RefCell::new(FileLocks::after_restart(sessions.live(), now)),
                holds: RefCell::new(holds),
            },
            admission: admission::State {
                secrets: config.secrets,
                sessions: RefCell::new(sessions),
                identities: RefCell::new(identities),
                in_flight: RefCell::default(),
            },
            txn: txn::State {
                locks,
                coordinated: RefCell::new(Coordinated {
                    decided: decided.into_iter().chain(owed).collect(),
                    next,
                    ..Coordinated::default()
                }),
                outcomes: RefCell::default(),
                debts: RefCell::new(debts),
                parts: RefCell::new(parts),
            },
            office: office::State {
                coord,
                tenure: RefCell::new(office),
                graph: RefCell::default(),
                unsynced: RefCell::default(),
                confirmed: RefCell::default(),
                telling: RefCell::default(),
                needs_new_term: Cell::new(needs_new_term),
                made_term: Cell::default(),
                members: RefCell::default(),
                coord_trouble: RefCell::default(),
            },
            slots: slots::State {
                gained: Cell::default(),
                lost: Cell::default(),
                moving: RefCell::new(moving),
                numbers: Default::default(),
                loads: RefCell::default(),
                splits: RefCell::new(splits),
                cuts: Default::default(),
            },
            bulk: Default::default(),
            care: care::State {
                said: RefCell::default(),
                removed: RefCell::default(),
                space: Cell::new(None),
                damage_logged: Cell::new(None),
                stats: Cell::new(stats),
            },
        });
        if server.newest_told() < server.map().epoch {
            server.believe_from(server.map().epoch)?;
        }
        for tx in to_deliver {
            server.deliver(tx);
        }
        server.resume_debts();
        server.spawn(|me| Box::pin(me.housekeeping()));
        server.spawn(|me| Box::pin(me.attend()));
        server.spawn(|me| Box::pin(me.follow()));
        server.spawn(|me| Box::pin(me.follow_identities()));
        server.spawn(|me| Box::pin(me.move_slots()));
        if server.map().ids == Ids::Placed {
            server.spawn(|me| Box::pin(me.ask_loads()));
        }
        if server.map().placement.splits() {
            server.spawn(|me| Box::pin(me.split_parts()));
        }
        server.spawn(|me| Box::pin(me.retire_servers()));
        Ok(server)
    }
}

/// Checks the superblock and makes the next boot epoch durable before anything is answered under it (rule 2).
async fn begin_boot(config: &ServerConfig, store: &dyn Store) -> Result<BootEpoch, StartError> {
    let Some(Record::Superblock(sb)) = store.get(&Key::Superblock).wait().await? else {
        return Err(StartError::NotFormatted);
    };
    if sb.format > FORMAT_VERSION {
        return Err(StartError::NewerFormat(sb.format));
    }
    if sb.format < OLDEST_FORMAT {
        return Err(StartError::OlderFormat(sb.format));
    }
    let (found, wanted) = ((sb.fs, sb.server), (config.map.fs, config.id));
    if found != wanted {
        return Err(StartError::Foreign { found, wanted });
    }
    let boot = BootEpoch(sb.boot.0 + 1);
    let record = Record::Superblock(Superblock {
        format: FORMAT_VERSION,
        boot,
        clean: false,
        ..sb
    });
    let lsn = store.apply(&Batch::of(vec![Mutation::Update {
        key: Key::Superblock,
        record,
    }]))?;
    store.wait(lsn, Level::Synced).await?;
    Ok(boot)
}

/// All records of a scan.
pub(crate) async fn all(store: &dyn Store, mut scan: Scan) -> Result<Vec<(Key, Record)>, StoreError> {
    let mut found = Vec::new();
    loop {
        let run = store.list(&scan, RUN).wait().await?;
        let last = run.last().map(|(key, _)| key.clone());
        let complete = run.len() < RUN;
        found.extend(run);
        match last {
            Some(last) if !complete => scan = scan.after(last),
            _ => return Ok(found),
        }
    }
}
