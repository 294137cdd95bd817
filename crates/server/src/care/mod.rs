//! Care: housekeeping, what operators ask, repairs.

pub(crate) mod admin;
pub(crate) mod housekeeping;
pub(crate) mod repair;

use crate::Stats;
use housekeeping::Removed;
use pando_store::Space;
use pando_types::Mono;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// What this room knows.
pub(crate) struct State {
    /// What the program around the server has to say with its status.
    pub said: RefCell<BTreeMap<&'static str, admin::Saying>>,
    /// What housekeeping found to be left of removed files, by the first slot of each part.
    pub removed: RefCell<BTreeMap<u16, Removed>>,
    /// Free space, and when it was asked for.
    pub space: Cell<Option<(Mono, Space)>>,
    /// When a damaged record was last logged.
    pub damage_logged: Cell<Option<Mono>>,
    pub stats: Cell<Stats>,
}
