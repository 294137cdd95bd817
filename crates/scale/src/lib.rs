//! How a cluster scales, in virtual time: the servers and clients of production, a processor per server that
//! takes for each message what was measured ([`Costs`]), a network and devices that take their time, and no
//! faults. One machine shows how 32 servers share the work of 2048 clients; what it cannot show is what each
//! of them does at a time, which is measured.

mod cluster;
mod costs;
mod latencies;
mod phase;
mod placed;
mod replay;
#[cfg(test)]
mod tests;
mod tree;
mod worker;
mod world;

pub use cluster::Setup;
pub use costs::{Costs, items_of, kind_of};
pub use latencies::Latencies;
pub use phase::{Crowd, Measured};
pub use placed::{Shares, largest, place};
pub use replay::{Kind, Replayed, replay};
pub use tree::{DEPTH, PARENTS};
pub use worker::{Files, Phase};
pub use world::Busy;
