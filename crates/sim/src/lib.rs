//! The simulator: a whole cluster with its clients on one thread, in virtual time, under every fault we could think of,
//! judged by the reference model. The same server and client code runs here and in production.
//!
//! - `world`: virtual time, processes; `net`: the network; `disk`: the devices; `faults`: what goes wrong and whether
//!   it was felt;
//! - `generate`, `knowledge`, `workload`: what clients do;
//! - `judge`, `compare`, `replies`, `tree`: whether it is right, after every event;
//! - `run`: one seed; `many`, `plant`, `report`: many seeds, planted bugs, results.
//!
//! A seed replays exactly: nothing here or below reads time, randomness or addresses from outside.

#[cfg(test)]
mod births;
mod claims;
pub mod cli;
mod cluster;
mod compare;
#[cfg(test)]
mod counts;
mod disk;
pub mod facts;
mod faults;
mod final_round;
mod generate;
pub mod grid;
mod judge;
mod knowledge;
mod liar;
mod many;
mod moving;
mod net;
mod plant;
mod replies;
mod report;
mod revoke;
mod rng;
mod run;
mod scribe;
mod settings;
mod trace;
mod tree;
mod violation;
mod workload;
mod world;

pub use many::{Batch, regressions, run_many, seeds_of};
pub use plant::{Hunt, PLANTS, hunt};
pub use report::{SeedReport, Totals};
pub use run::{ENOUGH_FAULTS, ENOUGH_OPERATIONS, Options, run_seed};
pub use trace::Print;
pub use violation::{Kind, Violation};
