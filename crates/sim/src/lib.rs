//! The simulator: a whole cluster with its clients on one thread, in virtual time, under every fault we could
//! think of, judged by the reference model. The same server and client code runs here and in production.
//!
//! - `world`: virtual time, processes; `net`: the network; `disk`: the devices; `faults`: what goes wrong and
//!   whether it was felt;
//! - `generate`, `knowledge`, `workload`: what clients do;
//! - `judge`, `compare`, `replies`, `tree`: whether it is right, after every event; `history`, `linear`:
//!   whether some order explains what clients saw;
//! - `grow`, `revoke`, `liar`: servers that join and leave, identities that end, clients that lie;
//! - `run`: one seed; `many`, `plant`, `report`: many seeds, planted bugs, results;
//! - `scale`: how many servers do how much, in a virtual time of its own without faults.
//!
//! A seed replays exactly: nothing here or below reads time, randomness or addresses from outside.

mod acls;
mod adopted;
mod aim;
mod aimed;
#[cfg(test)]
mod births;
#[cfg(test)]
mod bulk;
mod changes;
mod claims;
pub mod cli;
mod cluster;
mod compare;
mod coord;
#[cfg(test)]
mod counts;
mod cuts;
mod disk;
#[cfg(test)]
mod divided;
pub mod facts;
mod faults;
mod final_round;
mod generate;
pub mod grid;
mod grow;
mod hazards;
#[cfg(test)]
mod held;
mod history;
mod judge;
mod keeper;
mod knowledge;
mod lent;
mod liar;
mod linear;
mod localisers;
mod lockers;
mod many;
mod moving;
mod nature;
mod net;
mod opposed;
mod plant;
mod replies;
mod report;
mod revoke;
mod ring;
mod run;
mod scribe;
mod settings;
mod trace;
mod tree;
mod violation;
mod words;
mod workload;
mod world;

pub use hazards::{Plant, plants};
pub use many::{Batch, regressions, run_many, seeds_of};
pub use plant::{Found, Hunt, HuntOptions, hunt};
pub use report::{SeedReport, Totals};
pub use run::{ENOUGH_FAULTS, ENOUGH_OPERATIONS, Options, run_seed};
pub use trace::Print;
pub use violation::{Kind, Violation};
