//! Transactions: locks and records of an attempt, votes and outcomes, and what is owed.

pub(crate) mod attempt;
pub(crate) mod content;
pub(crate) mod locks;
pub(crate) mod outcomes;
pub(crate) mod owed;
pub(crate) mod participant;

use pando_store::Lsn;
use pando_types::{ServerId, TxId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// What a coordinator remembers of its transactions.
#[derive(Default)]
pub(crate) struct Coordinated {
    pub next: u64,
    /// Not decided.
    pub active: BTreeSet<u64>,
    /// Committed and not confirmed by all.
    pub decided: BTreeMap<TxId, Decided>,
}

/// A commit on its way to its participants.
pub(crate) struct Decided {
    /// Position of the decision: before that is synced nobody hears of it.
    pub lsn: Lsn,
    /// Who has not confirmed. Nobody from the beginning: it is no transaction, but what is owed.
    pub waiting: BTreeSet<ServerId>,
}

/// What this room knows.
pub(crate) struct State {
    pub locks: locks::Locks,
    pub coordinated: RefCell<Coordinated>,
    /// Outcomes of which each server is to be told once more.
    pub outcomes: RefCell<BTreeMap<ServerId, outcomes::Unconfirmed>>,
    /// Content of new directories that is owed to others.
    pub debts: RefCell<owed::Debts>,
    pub parts: RefCell<participant::TxParts>,
}
