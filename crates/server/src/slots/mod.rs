//! Slots: how they come, move and leave, what is counted in each, and how a server starts on those it has.

pub(crate) mod cut;
pub(crate) mod loads;
pub(crate) mod mkfs;
pub(crate) mod moving;
pub(crate) mod numbers;
pub(crate) mod recovery;
pub(crate) mod restore;
pub(crate) mod split;

use pando_types::MapEpoch;
use std::cell::{Cell, RefCell};

/// What this room knows.
pub(crate) struct State {
    /// Epoch of the map under which this boot last got a slot or the office of coordinator.
    pub gained: Cell<MapEpoch>,
    /// And lost a slot.
    pub lost: Cell<MapEpoch>,
    pub moving: RefCell<moving::Moving>,
    pub numbers: numbers::Numbers,
    /// How many records other servers have.
    pub loads: RefCell<loads::Loads>,
    /// Parts of directories that are split, or come.
    pub splits: RefCell<split::Splits>,
    /// The cut that there is here, if any.
    pub cuts: cut::Cuts,
}
