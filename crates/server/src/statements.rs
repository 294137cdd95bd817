//! Statements: signed when they are told, checked when they come back (H98).

use crate::MetaServer;
use pando_types::{Access, Cred, IdentityId, plant};
use pando_wire::{Answer, EntryView, Op, Outcome, Refusal};

impl MetaServer {
    /// Whether all an operation says about directories was said by a server of this filesystem to whoever asks.
    pub(crate) fn check_statements(&self, op: &Op, holder: IdentityId) -> Result<(), Refusal> {
        if plant!(H98)
            || op
                .statements()
                .into_iter()
                .flatten()
                .all(|s| self.keys.made(s, holder))
        {
            Ok(())
        } else {
            self.count(|s| s.forged += 1);
            Err(Refusal::BadStatement)
        }
    }

    /// Whether a handle that an operation comes through was given to whoever asks.
    pub(crate) fn check_handle(&self, op: &Op, holder: IdentityId) -> Result<(), Refusal> {
        let (handle, file) = match op {
            Op::Publish {
                ino,
                generation,
                handle,
                ..
            }
            | Op::SetAttr {
                ino,
                generation,
                handle: Some(handle),
                ..
            } => (*handle, (*ino, *generation)),
            _ => return Ok(()),
        };
        if plant!(H100) || self.keys.opened(handle, file, holder) {
            Ok(())
        } else {
            self.count(|s| s.forged += 1);
            Err(Refusal::BadHandle)
        }
    }

    /// Gives a handle to who has opened a file for writing.
    pub(crate) fn give_handle(&self, op: &Op, outcome: &mut Outcome, holder: IdentityId) {
        if let (Op::Open { want, .. } | Op::Create { want, .. }, Ok(Answer::Opened { entry, handle, .. })) =
            (op, outcome)
            && want & Access::WRITE.0 != 0
        {
            *handle = Some(self.keys.handle((entry.attr.ino, entry.attr.generation), holder));
        }
    }

    /// Signs every statement in an outcome, and adds the keys that the caller may have.
    pub(crate) fn sign(&self, outcome: &mut Outcome, cred: &Cred, holder: IdentityId) {
        let Ok(answer) = outcome else { return };
        match answer {
            Answer::Entry(e) | Answer::Opened { entry: e, .. } | Answer::Removed(e) => {
                self.sign_entry(e, cred, holder)
            }
            Answer::Renamed { moved, other } => {
                self.sign_entry(moved, cred, holder);
                other.iter_mut().for_each(|e| self.sign_entry(e, cred, holder));
            }
            Answer::Entries { entries, .. } => {
                for e in entries.iter_mut().filter_map(|e| e.view.as_mut()) {
                    self.sign_entry(e, cred, holder);
                }
            }
            Answer::Done | Answer::DirStat(_) | Answer::Target(_) | Answer::FsStat(_) => {}
        }
    }

    /// The key goes only to who may search the directory (H99).
    pub(crate) fn sign_entry(&self, entry: &mut EntryView, cred: &Cred, holder: IdentityId) {
        let Some(s) = &mut entry.dir else { return };
        self.keys.sign(s, holder);
        entry.seal = cred
            .may(Access::EXEC, s.perm, s.uid, s.gid, true)
            .then(|| self.keys.seal_key(s.id, s.generation, holder));
    }
}
