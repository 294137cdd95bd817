//! What clients know of the tree, rightly or no longer: directories, removed directories, files.

use pando_env::rng::Rng;
use pando_types::{FileKind, Generation, Ino, Name, Part, Slot};
use pando_wire::{Answer, EntryView, Fate, Handle, Object, Op, Outcome, Statement};
use std::collections::VecDeque;

/// A file, symlink or directory as it was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The directory it was in.
    pub dir: Statement,
    /// Its name there.
    pub name: Name,
    /// The object.
    pub ino: Ino,
    /// Its incarnation.
    pub generation: Generation,
    /// What it is.
    pub kind: FileKind,
    /// Shows that it was opened for writing.
    pub handle: Option<Handle>,
    /// Where it is if it has several names.
    pub home: Option<Statement>,
}

impl Seen {
    /// As an operation means it.
    pub fn meant(self) -> Object {
        Object {
            dir: self.dir,
            name: self.name,
            ino: self.ino,
            generation: self.generation,
        }
    }

    /// The same file, found at its home, if it has one.
    pub fn at_home(self) -> Seen {
        match self.home.clone() {
            Some(home) => Seen {
                name: home.name.clone(),
                dir: home,
                ..self
            },
            None => self,
        }
    }
}

/// What was seen, the latest last.
pub struct Knowledge {
    /// Most directories kept in mind.
    most: usize,
    dirs: VecDeque<Statement>,
    /// Statements that were overtaken: of removed directories, or older versions.
    stale: VecDeque<Statement>,
    files: VecDeque<Seen>,
    /// Removed files that are held open.
    pub held: Vec<(Slot, Ino, Generation)>,
}

const STALE: usize = 12;
const FILES: usize = 32;

impl Knowledge {
    /// Nothing known; at most so many directories will be.
    pub fn new(most: usize) -> Knowledge {
        Knowledge {
            most: most.max(2),
            dirs: VecDeque::new(),
            stale: VecDeque::new(),
            files: VecDeque::new(),
            held: Vec::new(),
        }
    }

    /// Learns from what an operation came to.
    pub fn learn(&mut self, op: &Op, outcome: &Outcome) {
        match outcome {
            Ok(Answer::Entry(e)) => {
                // Under the name that it has got, or that it has. (Of what was read nothing is learnt.)
                let subjects = op.subjects().into_iter().flatten();
                let named = subjects.last().and_then(|s| Some((s.dir(), s.name()?)));
                if let Some((dir, name)) = named
                    && !matches!(op, Op::Accessed { .. })
                {
                    self.saw(dir, name, e);
                }
            }
            Ok(Answer::Opened { entry: e, handle, .. }) => {
                if let Op::Open { dir, name, .. } | Op::Create { dir, name, .. } = op {
                    self.saw(dir, name, e);
                    if let Some(handle) = handle {
                        self.opened(e, *handle);
                    }
                }
            }
            Ok(Answer::Removed(e)) => self.removed(op, e),
            Ok(Answer::Fates(fates)) => {
                if let Op::UnlinkMany { dir, names } = op {
                    let fates = names.iter().zip(fates);
                    let gone: Vec<&Name> = fates
                        .filter(|(_, f)| **f == Fate::Gone)
                        .map(|(name, _)| name)
                        .collect();
                    self.files
                        .retain(|f| !(f.dir.is_of(dir.id, dir.generation) && gone.contains(&&f.name)));
                }
            }
            Ok(Answer::Renamed { moved, other }) => self.renamed(op, moved, other.as_deref()),
            Ok(Answer::Entries { entries, .. } | Answer::Part { entries, .. }) => {
                if let Op::ReadDir { dir, .. } = op {
                    for e in entries {
                        if let Some(view) = &e.view {
                            self.saw(dir, &e.name, view);
                        }
                    }
                }
            }
            Err(pando_types::Errno::Stale) => {
                if let [Some(d), _] = op.statements()
                    && !d.id.is_homes()
                {
                    let d = d.clone();
                    self.died(&d);
                }
            }
            Ok(
                Answer::Done
                | Answer::DirStat(_)
                | Answer::Target(_)
                | Answer::FsStat(_)
                | Answer::Value(_)
                | Answer::Names(_),
            )
            | Ok(Answer::Bulk(_))
            | Err(_) => {}
        }
    }

    fn removed(&mut self, op: &Op, e: &EntryView) {
        if let Some(d) = e.dir.as_ref().filter(|_| matches!(op, Op::Rmdir { .. })) {
            self.died(d);
        }
        if let Op::Unlink { dir, held, .. } = op {
            self.files
                .retain(|f| (f.ino, f.generation) != (e.attr.ino, e.attr.generation));
            if *held && e.attr.nlink == 1 {
                self.held
                    .push((Part::whole(dir.id).slot(), e.attr.ino, e.attr.generation));
            }
        }
    }

    fn renamed(&mut self, op: &Op, moved: &EntryView, other: Option<&EntryView>) {
        let Op::Rename {
            src,
            src_name,
            dst,
            dst_name,
            mode,
            ..
        } = op
        else {
            return;
        };
        self.saw(dst, dst_name, moved);
        if let Some(o) = other {
            if *mode == pando_wire::RenameMode::Exchange {
                self.saw(src, src_name, o);
            } else if let Some(d) = &o.dir {
                self.died(d);
            }
        }
    }

    fn saw(&mut self, dir: &Statement, name: &Name, e: &EntryView) {
        // At home it has no name to be remembered.
        if theirs(name) || theirs(&dir.name) || dir.id.is_homes() {
            return;
        }
        let file = Seen {
            dir: dir.clone(),
            name: name.clone(),
            ino: e.attr.ino,
            generation: e.attr.generation,
            kind: e.attr.kind,
            handle: self
                .files
                .iter()
                .find(|f| (f.ino, f.generation) == (e.attr.ino, e.attr.generation))
                .and_then(|f| f.handle),
            home: e.home.clone(),
        };
        self.files
            .retain(|f| (f.ino, f.generation) != (file.ino, file.generation));
        push(&mut self.files, file, FILES);
        if let Some(d) = &e.dir {
            self.saw_dir(d);
        }
    }

    fn opened(&mut self, e: &EntryView, handle: Handle) {
        let it = |f: &&mut Seen| (f.ino, f.generation) == (e.attr.ino, e.attr.generation);
        if let Some(f) = self.files.iter_mut().find(it) {
            f.handle = Some(handle);
        }
    }

    /// A directory's statement, newer than what was known of it.
    pub fn saw_dir(&mut self, d: &Statement) {
        if let Some(at) = self.dirs.iter().position(|x| x.id == d.id)
            && let Some(old) = self.dirs.remove(at)
            && old != *d
        {
            push(&mut self.stale, old, STALE);
        }
        push(&mut self.dirs, d.clone(), self.most);
    }

    fn died(&mut self, d: &Statement) {
        self.dirs.retain(|x| (x.id, x.generation) != (d.id, d.generation));
        if !self.stale.contains(d) && !theirs(&d.name) {
            push(&mut self.stale, d.clone(), STALE);
        }
        self.files
            .retain(|f| (f.ino, f.generation) != (d.ino, d.generation));
    }

    /// Some directory; with `stale`, one whose statement was overtaken, if there is any.
    pub fn dir(&self, rng: &mut Rng, stale: bool) -> Option<Statement> {
        let from = if stale && !self.stale.is_empty() {
            &self.stale
        } else {
            &self.dirs
        };
        if from.is_empty() {
            None
        } else {
            from.get(rng.index(from.len())).cloned()
        }
    }

    /// The statement of a directory's parent, if that is known.
    pub fn parent_of(&self, d: &Statement) -> Option<Statement> {
        self.dirs
            .iter()
            .find(|p| p.id == d.parent && p.generation == d.parent_generation)
            .cloned()
    }

    /// Some file, symlink or directory of which `wanted` holds.
    pub fn file(&self, rng: &mut Rng, wanted: impl Fn(&Seen) -> bool) -> Option<Seen> {
        let fit: Vec<&Seen> = self.files.iter().filter(|f| wanted(f)).collect();
        if fit.is_empty() {
            None
        } else {
            Some((*rng.pick(&fit)).clone())
        }
    }

    /// Number of directories known.
    pub fn dirs(&self) -> usize {
        self.dirs.len()
    }
}

/// The directories of scribes and movers are nobody else's business.
fn theirs(name: &Name) -> bool {
    [
        crate::scribe::PREFIX,
        crate::opposed::PREFIX,
        crate::keeper::PREFIX,
    ]
    .iter()
    .any(|prefix| name.as_bytes().starts_with(prefix))
}

fn push<T>(queue: &mut VecDeque<T>, value: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(value);
}
