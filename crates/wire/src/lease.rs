//! Leases on directories, between the server that has a directory's entry and those that tell of it, or
//! change it (IndexFS §II-B).

use pando_format::codec_enum;
use pando_types::{DirId, Generation, Term};

/// To the server that has the entries of directories.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseRequest {
    /// Until when may be told of a directory what its entry says? The asker has the entry locked.
    Grant {
        /// In whose time.
        term: Term,
        /// Which.
        dir: DirId,
        /// Which of those that have its ID.
        generation: Generation,
        /// Components of the path to it; 0: not known.
        depth: u32,
    },
    /// Directories are about to change, and nothing is granted that lasts longer than what is: until when?
    /// The asker has their entries locked.
    Close {
        /// In whose time.
        term: Term,
        /// Which.
        dirs: Vec<(DirId, Generation)>,
    },
    /// They have changed: leases are granted again.
    Changed {
        /// Which.
        dirs: Vec<(DirId, Generation)>,
    },
}

codec_enum!(LeaseRequest {
    1 => Grant { term, dir, generation, depth },
    2 => Close { term, dirs },
    3 => Changed { dirs },
});
