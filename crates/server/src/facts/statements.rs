//! Statements: signed when they are told, checked when they come back (H98), joined to tickets.

use crate::MetaServer;
use crate::pipeline::{Asked, Basis};
use pando_types::{Access, Bearer, Cred, DirId, IdentityId, Watermark, plant};
use pando_wire::traits::Opens;
use pando_wire::{Answer, EntryView, Op, Outcome, Refusal, Said, Scope, Shows, Statement};

/// Longest way: as many directories as a path can have.
const LONGEST: usize = 2048;

/// A directory that an operation names. It is moved about with its operation: what is seldom has a place of
/// its own.
enum Named<'a> {
    As(&'a Statement),
    /// With the whole way, joined from links.
    Joined(Statement),
}

impl Named<'_> {
    fn statement(&self) -> &Statement {
        match self {
            Named::As(shown) => shown,
            Named::Joined(joined) => joined,
        }
    }
}

/// The directories an operation names, each with the whole way it rests on.
pub(crate) struct Dirs<'a>([Option<Named<'a>>; 2]);

impl<'a> Dirs<'a> {
    /// Of an operation whose statements need nothing else.
    pub fn of(op: &'a Op) -> Dirs<'a> {
        Dirs(op.statements().map(|s| s.map(Named::As)))
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Statement> {
        self.0.iter().flatten().map(Named::statement)
    }

    /// Whether who asked has shown the whole way to each of them. A handle says nothing of where a directory
    /// is by now, and which servers were asked about it would (H99).
    pub fn whole_ways(&self) -> bool {
        self.all().all(|s| s.scope == Scope::Way)
    }

    /// Those that were joined from links, or are older than `upto`.
    pub fn old(&self, upto: Watermark) -> impl Iterator<Item = &Statement> {
        let old = move |s: &&Named<'a>| matches!(s, Named::Joined(_)) || s.statement().at < upto;
        self.0.iter().flatten().filter(old).map(Named::statement)
    }
}

impl MetaServer {
    /// Whether all an operation says about directories was said by a server of this filesystem to who asks,
    /// and leads all the way from the root.
    pub(crate) fn believe<'a>(
        &self,
        holder: Bearer,
        cred: &Cred,
        op: &'a Op,
        ways: &[Statement],
    ) -> Result<Dirs<'a>, Refusal> {
        let said = op.statements();
        let made = |s: &Statement| self.facts.keys.made(s, holder);
        let genuine =
            ways.len() <= LONGEST && (plant!(H98) || said.into_iter().flatten().chain(ways).all(made));
        let dirs = genuine.then(|| {
            let [a, b] = said.map(|s| s.map_or(Some(None), |s| weave(cred, s, ways).map(Some)));
            Some(Dirs([a?, b?]))
        });
        dirs.flatten().ok_or_else(|| {
            self.count(|s| s.forged += 1);
            Refusal::BadStatement
        })
    }

    /// Newer statements of the directories of an operation that has just been executed.
    pub(crate) fn refresh(&self, dirs: &Dirs<'_>, holder: Bearer) -> Vec<Statement> {
        let upto = self.renewed_upto();
        let still_true = |s: &&Statement| self.check_current([*s], Watermark(0)).is_ok();
        let fresh = |s: &Statement| {
            let mut fresh = s.clone();
            fresh.at = self.known_upto_below(s);
            self.facts.keys.sign(&mut fresh, holder);
            fresh
        };
        dirs.old(upto).filter(still_true).map(fresh).collect()
    }

    /// Whether a handle that an operation comes through was given to whoever asks.
    pub(crate) fn check_handle(&self, op: &Op, holder: IdentityId) -> Result<(), Refusal> {
        let genuine = match op.shows() {
            None => true,
            Some(Shows::Opened(proof, file)) => self.facts.keys.proved(proof, file, holder) || plant!(G76),
            Some(Shows::OpenedToWrite(handle, file)) => {
                plant!(H100) || plant!(G11) || self.facts.keys.opened(handle, file, holder)
            }
        };
        if genuine {
            Ok(())
        } else {
            self.count(|s| s.forged += 1);
            Err(Refusal::BadHandle)
        }
    }

    /// Gives a handle to who has opened a file for writing, and proof to who has opened it at all.
    pub(crate) fn give_handle(&self, op: &Op, outcome: &mut Outcome, holder: IdentityId) {
        let want = match op.traits().opens {
            Opens::No => return,
            Opens::Named(want) => want,
            // Nobody makes one but to write it.
            Opens::Unnamed => Access::WRITE.0,
        };
        let Ok(Answer::Opened {
            entry, handle, proof, ..
        }) = outcome
        else {
            return;
        };
        let file = (entry.attr.ino, entry.attr.generation);
        *proof = self.facts.keys.proof(file, holder);
        if want & Access::WRITE.0 != 0 || plant!(G14) {
            *handle = Some(self.facts.keys.handle(file, holder));
        }
    }

    /// Signs every statement in an outcome, and adds the keys that the caller may have. REQUIRES: the records
    /// it was made of are locked, so that it is true now.
    pub(crate) fn sign(&self, outcome: &mut Outcome, asked: &Asked<'_>) {
        let Ok(answer) = outcome else { return };
        match answer {
            Answer::Entry(e) | Answer::Opened { entry: e, .. } | Answer::Removed(e) => {
                self.sign_entry(e, asked)
            }
            Answer::Renamed { moved, other } => {
                self.sign_entry(moved, asked);
                other.iter_mut().for_each(|e| self.sign_entry(e, asked));
            }
            Answer::Entries { entries, .. } | Answer::Part { entries, .. } => {
                for e in entries.iter_mut().filter_map(|e| e.view.as_mut()) {
                    self.sign_entry(e, asked);
                }
            }
            Answer::Done
            | Answer::DirStat(_)
            | Answer::Target(_)
            | Answer::FsStat(_)
            | Answer::Value(_)
            | Answer::Names(_)
            | Answer::Fates(_)
            | Answer::Bulk(_) => {}
        }
    }

    /// The key goes only to who may search the directory (H99).
    fn sign_entry(&self, entry: &mut EntryView, asked: &Asked<'_>) {
        if let Some(home) = &mut entry.home {
            home.way = vec![self.facts.keys.tag(home.id, home.generation)];
            self.facts.keys.sign(home, asked.holder);
        }
        let Some(s) = &mut entry.dir else { return };
        let tag = self.facts.keys.tag(s.id, s.generation);
        let parent = asked.dirs.all().find(|d| d.is_of(s.parent, s.parent_generation));
        let handle = matches!(asked.op, Op::Reopen { .. });
        let leases = self.has_leases();
        (s.scope, s.way) = match (asked.basis, parent) {
            (Basis::Subtree, _) => (Scope::Way, vec![tag]),
            (Basis::Guess, _) => (
                Scope::Link,
                vec![self.facts.keys.tag(s.parent, s.parent_generation), tag],
            ),
            (Basis::Shown, Some(parent)) if parent.scope == Scope::Way && !handle => {
                match leases && parent.id != DirId::ABOVE_ROOT {
                    // Each hop has its own time (H315).
                    true => (Scope::Link, vec![parent.tag(), tag]),
                    false => (Scope::Way, parent.way.iter().copied().chain([tag]).collect()),
                }
            }
            _ => (Scope::Handle, vec![tag]),
        };
        let good = self.good_upto((s.id, s.generation), asked);
        s.at = good.at;
        entry.lease = good.millis;
        self.facts.keys.sign(s, asked.holder);
        self.facts
            .private
            .borrow_mut()
            .told(s.id, s.generation, asked.holder);
        let may_search = asked.told.may(Access::EXEC, &s.guard());
        entry.seal = (may_search || plant!(G31)).then(|| {
            self.facts
                .keys
                .seal_key(s.id, s.generation, s.seal, asked.holder.identity)
        });
    }
}

/// The statement with its whole way. A link is joined, by its tags, to others, the last of which is a ticket;
/// each directory that is passed must let the caller search it. `None`: they do not belong together.
fn weave<'a>(cred: &Cred, s: &'a Statement, ways: &[Statement]) -> Option<Named<'a>> {
    if s.scope != Scope::Link || plant!(G18) {
        return Some(Named::As(s));
    }
    // From this directory up.
    let mut way = vec![s.tag()];
    let mut at = s.at;
    let mut first = s;
    while first.scope == Scope::Link {
        let above = first.way.first().copied()?;
        first = ways.iter().find(|w| w.tag() == above || plant!(G19))?;
        let may_search = cred.may(Access::EXEC, &first.guard()) || plant!(G20);
        if !may_search || way.len() > LONGEST {
            return None;
        }
        way.push(above);
        at = if plant!(H11) {
            at.max(first.at)
        } else if plant!(H315) {
            at
        } else {
            at.min(first.at)
        };
    }
    if first.scope != Scope::Way {
        return None;
    }
    // The ticket's own tag is in its way.
    way.pop();
    let way = first.way.iter().copied().chain(way.into_iter().rev()).collect();
    let scope = Scope::Way;
    Some(Named::Joined(Statement::from(Said {
        scope,
        way,
        at,
        ..Said::clone(s)
    })))
}
