//! The office of coordinator: election and tenure, the log of invalidations, moves of directories.

pub(crate) mod coordinator;
pub(crate) mod follow;
pub(crate) mod graph;
pub(crate) mod tenure;

use pando_cluster::Coord;
use pando_env::sync::Sender;
use pando_format::Invalidation;
use pando_types::{BootEpoch, ServerId, Term, Watermark};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// Those who are woken, by being dropped, when one who tells for all is done.
pub(crate) type Waiting = Rc<RefCell<Vec<Sender<()>>>>;

/// What this room knows.
pub(crate) struct State {
    pub coord: Rc<dyn Coord>,
    pub tenure: RefCell<tenure::Office>,
    /// On the coordinator: which directory is in which, as far as moves need to know.
    pub graph: RefCell<graph::Graph>,
    /// On the coordinator: entries of the log that are not synced yet.
    pub unsynced: RefCell<VecDeque<Invalidation>>,
    /// On the coordinator: how far others have heard the log, and by which boot.
    pub confirmed: RefCell<BTreeMap<ServerId, (BootEpoch, Watermark)>>,
    /// On the coordinator: who is being told what it has missed, and who waits for that.
    pub telling: RefCell<BTreeMap<ServerId, Waiting>>,
    /// With leases: what was changed in this term before this start is not known; another must begin.
    pub needs_new_term: Cell<bool>,
    /// The latest term that this boot began.
    pub made_term: Cell<Term>,
    /// What coordination last said: who is there, and why it cannot be asked.
    pub members: RefCell<BTreeSet<ServerId>>,
    pub coord_trouble: RefCell<Option<String>>,
}
