//! What operations do, as those know it who check them: told here, and not by the servers' own table.

use pando_wire::Op;

/// What an operation does to what it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nature {
    /// It looks at the entry of a name.
    Looks,
    /// It looks at the object that a name stands for, as which its caller knows it.
    LooksInto,
    /// It looks at what else a name stands for.
    Reads,
    /// It looks at the names of a directory.
    Lists,
    /// It makes something new under a name.
    Makes,
    /// It removes what is under a name, or under many.
    Removes,
    /// It changes the object that a name stands for.
    Changes,
    /// It gives the object that the first name stands for the second name, too.
    Links,
    /// It moves what is under the first name to the second, or exchanges them.
    Moves,
    /// Nothing to a name.
    Other,
}

impl Nature {
    /// Of an operation.
    pub fn of(op: &Op) -> Nature {
        match op {
            Op::Lookup { .. } | Op::Open { .. } => Nature::Looks,
            Op::GetXattr { .. } | Op::ListXattr { .. } => Nature::LooksInto,
            Op::ReadLink { .. } => Nature::Reads,
            Op::ReadDir { .. } => Nature::Lists,
            Op::Create { .. } | Op::Symlink { .. } | Op::Mknod { .. } | Op::Mkdir { .. } => Nature::Makes,
            Op::Rmdir { .. } | Op::Unlink { .. } | Op::UnlinkMany { .. } => Nature::Removes,
            Op::SetAttr { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::SetAcl { .. }
            | Op::Accessed { .. }
            | Op::Publish { .. } => Nature::Changes,
            Op::Link { .. } => Nature::Links,
            Op::Rename { .. } => Nature::Moves,
            Op::Reopen { .. }
            | Op::DirStat { .. }
            | Op::Tmpfile { .. }
            | Op::Home { .. }
            | Op::Release { .. }
            | Op::Bulk { .. }
            | Op::StatFs
            | Op::Sync => Nature::Other,
        }
    }
}
