//! Facts: what this server says of directories, and what it has heard that makes such sayings untrue.

pub(crate) mod changes;
pub(crate) mod clock;
pub(crate) mod coherence;
pub(crate) mod heard;
pub(crate) mod leases;
pub(crate) mod private;
pub(crate) mod probe;
pub(crate) mod statements;

use pando_auth::StatementKeys;
use pando_types::{Mono, Name};
use pando_wire::Statement;
use std::cell::RefCell;

/// What this room knows.
pub(crate) struct State {
    pub keys: StatementKeys,
    pub heard: RefCell<heard::Heard>,
    /// With leases: what time it is.
    pub clock: RefCell<clock::Clock>,
    /// With leases: what is out.
    pub leases: RefCell<leases::Leases>,
    /// What became of directories, in numbers.
    pub changes: RefCell<changes::Changes>,
    pub private: RefCell<private::Private>,
    /// A guess that found something: what those that find nothing are made to take as long as (H99).
    pub decoy: RefCell<Option<(Statement, Name)>>,
}

impl State {
    /// Of a server that starts now.
    pub fn starting(keys: StatementKeys, heard: heard::Heard, changes: changes::Changes, now: Mono) -> State {
        State {
            keys,
            heard: RefCell::new(heard),
            clock: RefCell::default(),
            leases: RefCell::new(leases::Leases::new(now)),
            changes: RefCell::new(changes),
            private: RefCell::default(),
            decoy: RefCell::default(),
        }
    }
}
