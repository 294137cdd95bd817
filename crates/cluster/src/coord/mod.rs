//! Coordination of a cluster: the one place that says what the map is, and who is there.
//!
//! It is asked seldom: when a server starts, when the coordinator shows that it is still there, when another
//! takes its place, when servers join and leave. No request of a client waits for it.

mod mem;

pub use mem::MemCoord;

use crate::ClusterMap;
use pando_env::LocalFuture;
use pando_types::{FsId, MapEpoch, ServerId};
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;

/// A membership. A server that comes back after its membership ended has a higher one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Membership(pub u64);

/// What coordination says, as of between question and answer: who was there after the map was in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The map in force.
    pub map: ClusterMap,
    /// Who is there.
    pub members: BTreeMap<ServerId, Membership>,
}

/// Why coordination did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CoordError {
    /// It cannot be reached, or has no majority. What was to be replaced may have been replaced.
    #[error("coordination cannot be reached: {0}")]
    Away(String),
    /// The map in force is another one than was to be replaced.
    #[error("the cluster map has changed meanwhile: epoch {0} is in force")]
    Changed(MapEpoch),
    /// It keeps another filesystem under this name.
    #[error("coordination keeps filesystem {:032x} there, not this one", .0.0)]
    Foreign(FsId),
    /// What it keeps is no map, or there is none.
    #[error("coordination keeps no usable cluster map: {0}")]
    NoMap(String),
}

/// The service. Implementations: a directory of one machine, ZooKeeper, and one that is simulated.
pub trait Coord {
    /// For so long after the beginning of a call of [`Coord::attend`] that succeeded its caller is a member,
    /// whatever happens. Nobody sees it gone before.
    fn lease(&self) -> Duration;

    /// Says that a server is there. What was told to an earlier membership is void if the answer shows
    /// another one.
    fn attend(&self, me: ServerId) -> LocalFuture<Result<View, CoordError>>;

    /// Says that a server goes, so that nobody need wait until its membership ends.
    fn leave(&self, me: ServerId) -> LocalFuture<Result<(), CoordError>>;

    /// The same without being anybody.
    fn view(&self) -> LocalFuture<Result<View, CoordError>>;

    /// Puts a map in the place of the one of epoch `from`. When this returns it cannot be lost.
    fn replace(&self, from: MapEpoch, to: ClusterMap) -> LocalFuture<Result<(), CoordError>>;
}

/// Whether `to` may take the place of the map in force.
pub fn may_replace(now: &ClusterMap, from: MapEpoch, to: &ClusterMap) -> Result<(), CoordError> {
    if now.epoch != from {
        return Err(CoordError::Changed(now.epoch));
    }
    if to.fs != now.fs {
        return Err(CoordError::Foreign(to.fs));
    }
    if to.epoch <= now.epoch {
        // Epochs rise with every change, or nobody would hear of it.
        return Err(CoordError::Changed(now.epoch));
    }
    to.check().map_err(|e| CoordError::NoMap(e.to_string()))
}
