//! Statements: signed when they are told, checked when they come back (H98).

use crate::MetaServer;
use pando_types::plant;
use pando_wire::{Answer, EntryView, Op, Outcome, Refusal};

impl MetaServer {
    /// Whether all an operation says about directories was said by a server of this filesystem.
    pub(crate) fn check_statements(&self, op: &Op) -> Result<(), Refusal> {
        if plant!(H98) || op.statements().into_iter().flatten().all(|s| self.keys.made(s)) {
            Ok(())
        } else {
            self.count(|s| s.forged += 1);
            Err(Refusal::BadStatement)
        }
    }

    /// Signs every statement in an outcome.
    pub(crate) fn sign(&self, outcome: &mut Outcome) {
        let Ok(answer) = outcome else { return };
        match answer {
            Answer::Entry(e) | Answer::Opened { entry: e, .. } | Answer::Removed(e) => self.sign_entry(e),
            Answer::Renamed { moved, other } => {
                self.sign_entry(moved);
                other.iter_mut().for_each(|e| self.sign_entry(e));
            }
            Answer::Entries { entries, .. } => {
                for e in entries.iter_mut().filter_map(|e| e.view.as_mut()) {
                    self.sign_entry(e);
                }
            }
            Answer::Done | Answer::DirStat(_) | Answer::Target(_) | Answer::FsStat(_) => {}
        }
    }

    fn sign_entry(&self, entry: &mut EntryView) {
        if let Some(statement) = &mut entry.dir {
            self.keys.sign(statement);
        }
    }
}
