//! Mounts: what each has open, and the locks of its programs.

pub(crate) mod filelocks;
pub(crate) mod holds;
pub(crate) mod orphans;

use std::cell::RefCell;

/// What this room knows.
pub(crate) struct State {
    /// Which sessions have which files open.
    pub holds: RefCell<holds::Holds>,
    /// Locks of programs on files in slots of this server.
    pub file_locks: RefCell<filelocks::FileLocks>,
}
