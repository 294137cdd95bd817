//! The way of an operation, from its records to its answer.
//!
//! 1. *Read and decide.* `rounds` locks and reads what `namespace::run` asks for, until that decides. `fast`
//!    does the same for an operation whose records are all here, free and in memory.
//! 2. *Announce.* Every server hears what becomes untrue, before anything changes.
//! 3. *Prepare.* [`effect::Effect`] holds what is left to do, in the order in which it happens. One function
//!    makes it for both ways.
//! 4. *Take effect.* `fast` and `commit` write the batch. `commit` chooses among deciding alone, owing
//!    content, and two phases.
//! 5. *Answer.* The outcome is told when the batch is as safe as it must be (`operate`).

mod asked;
mod commit;
mod effect;
mod fast;
mod listing;
mod reply;
mod rounds;

pub(crate) use asked::{Asked, Basis};
pub(crate) use commit::{Committed, Plan};
pub(crate) use effect::{Announced, Done};
pub(crate) use fast::{AtOnce, Untold};
pub(crate) use reply::reply_key;
