//! The node table: what the kernel holds by inode number.
//!
//! A node lives from the first reply that names it until the kernel forgets it. The lock around the table is
//! never held across a request, and never while a file's own lock is waited for.

use crate::open::FileSlot;
use foldhash::HashMap;
use pando_client::Kept;
use pando_format::Layout;
use pando_format::codec::Blob;
use pando_types::{Acls, Attr, FileKind, Generation, Ino, Name, Perm};
use pando_wire::{EntryView, Statement};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// No directory: what it has no names are seen, but that of the root, and that by which a file without a name
/// is known here.
const NOWHERE: Ino = Ino(0);

/// So many earlier names of a node are remembered.
const FORMERLY: usize = 8;

/// So much later no answer comes that another one has overtaken. What is older then is so for another reason,
/// such as a restored backup.
const OVERTAKEN: Duration = Duration::from_secs(60);

/// A directory's statement, and when it was learnt.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub statement: Statement,
    pub learnt: Instant,
}

pub(crate) struct Node {
    pub kind: FileKind,
    pub generation: Generation,
    /// References of the kernel.
    lookups: u64,
    /// Where it was last seen. Another mount may have renamed it since.
    pub parent: Ino,
    pub name: Name,
    /// Other names it was seen under.
    others: Vec<(Ino, Name)>,
    /// The name it had before, which the kernel may still believe.
    formerly: Vec<Name>,
    /// Keeps it where it is known to be, while it is open.
    pub kept: Option<Arc<Kept>>,
    /// Where it is if it has several names.
    pub home: Option<Statement>,
    /// Removed on this mount.
    pub gone: bool,
    /// As last shown: of a directory, the access half.
    pub attr: Attr,
    /// Its access control lists, and when they were seen.
    acls: (Acls, Instant),
    /// When it was seen to have no capabilities, if it had none then.
    incapable: Option<Instant>,
    /// Content version of the attributes that the kernel was last told.
    pub shown: Option<u64>,
    /// Of a directory.
    pub known: Option<Known>,
    /// Of a directory: how often its access half had changed when it was last shown.
    pub version: u64,
    /// Of a symlink, if it is short.
    pub target: Option<Blob>,
    /// Of a regular file.
    pub file: Option<Arc<FileSlot>>,
    /// Of a directory: how often names in it were removed or changed on this mount.
    changes: u64,
    /// Of a directory: how often it is open.
    pub handles: u32,
}

impl Known {
    fn of(view: &EntryView, now: Instant) -> Option<Known> {
        view.dir.clone().map(|statement| Known {
            statement,
            learnt: now,
        })
    }
}

impl Node {
    /// As it is seen for the first time, without references.
    fn new(parent: Ino, name: &Name, view: &EntryView, now: Instant) -> Node {
        let target = match &view.layout {
            Layout::Target(t) => Some(t.clone()),
            _ => None,
        };
        Node {
            kind: view.attr.kind,
            generation: view.attr.generation,
            lookups: 0,
            parent,
            name: name.clone(),
            others: Vec::new(),
            formerly: Vec::new(),
            kept: None,
            home: None,
            gone: false,
            attr: view.attr,
            acls: (view.acls(), now),
            incapable: None,
            shown: None,
            known: Known::of(view, now),
            version: view.version,
            target,
            file: (view.attr.kind == FileKind::Regular).then(Arc::default),
            changes: 0,
            handles: 0,
        }
    }

    /// Whether an answer is from before what is known here of a directory's permissions: it was overtaken by
    /// another.
    fn overtakes(&self, view: &EntryView, now: Instant) -> bool {
        let known = self.known.as_ref().filter(|_| view.version < self.version);
        known.is_some_and(|known| now.saturating_duration_since(known.learnt) < OVERTAKEN)
    }

    /// What came to its home stays there: an answer that knows nothing of it is from before.
    fn at_home(&mut self, view: &EntryView) {
        if view.home.is_some() {
            self.home.clone_from(&view.home);
        }
    }
}

#[derive(Default)]
pub(crate) struct Nodes {
    nodes: HashMap<Ino, Node>,
    names: HashMap<(Ino, Name), Ino>,
}

impl Nodes {
    /// The root's node, which is never forgotten. The kernel calls it [`Ino::ROOT`], whichever directory it
    /// is: an identity's root may be a subtree.
    pub fn with_root(view: &EntryView, now: Instant) -> Nodes {
        let mut nodes = Nodes::default();
        let root = Node::new(NOWHERE, &Name::root(), view, now);
        nodes.nodes.insert(Ino::ROOT, root);
        nodes.count(Ino::ROOT);
        nodes
    }

    /// The number that a node's object has in the filesystem, and is shown with.
    pub fn number(&self, ino: Ino) -> Ino {
        self.nodes.get(&ino).map_or(ino, |n| n.attr.ino)
    }

    pub fn get(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    pub fn by_name(&self, parent: Ino, name: &Name) -> Option<Ino> {
        self.names.get(&(parent, name.clone())).copied()
    }

    pub fn file(&self, ino: Ino) -> Option<Arc<FileSlot>> {
        self.nodes.get(&ino).and_then(|n| n.file.clone())
    }

    /// An entry was seen: makes or updates its node, without a reference of the kernel. A node that nobody
    /// refers to is dropped by [`Nodes::forget`] of nothing.
    pub fn see(&mut self, parent: Ino, name: &Name, view: &EntryView, now: Instant) {
        let ino = view.attr.ino;
        let fresh = self
            .nodes
            .get(&ino)
            .is_none_or(|n| n.generation != view.attr.generation);
        let overtaken = !fresh && self.nodes.get(&ino).is_some_and(|n| n.overtakes(view, now));
        if fresh {
            let mut node = Node::new(parent, name, view, now);
            if let Some(before) = self.nodes.get(&ino) {
                (node.lookups, node.handles) = (before.lookups, before.handles);
            }
            self.unname(ino);
            self.nodes.insert(ino, node);
        } else if let Some(node) = self.nodes.get_mut(&ino) {
            node.gone = false;
            if !overtaken {
                node.attr = view.attr;
                node.version = view.version;
            }
            if view.dir.is_some() && !overtaken {
                node.known = Known::of(view, now);
            }
            let here = (parent, name.clone());
            let before = (node.parent, node.name.clone());
            if before != here && before.0 != NOWHERE && (view.home.is_some() || node.home.is_some()) {
                node.others.retain(|other| *other != here);
                node.others.push(before);
            } else if before != here {
                self.unname(ino);
            }
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.parent = parent;
            node.name = name.clone();
            node.at_home(view);
            if !overtaken {
                node.acls = (view.acls(), now);
                node.incapable = (!view.xattrs).then_some(now);
            }
        }
        self.names.insert((parent, name.clone()), ino);
    }

    /// A file without a name was made.
    pub fn see_unnamed(&mut self, view: &EntryView, now: Instant) {
        self.see(
            NOWHERE,
            &Name::home(view.attr.ino, view.attr.generation),
            view,
            now,
        );
    }

    /// It is open now, or not any more.
    pub fn keep(&mut self, ino: Ino, kept: Option<Arc<Kept>>) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.kept = kept;
        }
    }

    /// How often names in a directory were removed or changed: what was listed before may show what is gone.
    pub fn changes(&self, dir: Ino) -> u64 {
        self.nodes.get(&dir).map_or(0, |n| n.changes)
    }

    /// A name in a directory is about to be removed or changed.
    pub fn changing(&mut self, dir: Ino) {
        if let Some(node) = self.nodes.get_mut(&dir) {
            node.changes += 1;
        }
    }

    /// A reply gives the kernel a reference.
    pub fn count(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.lookups = node.lookups.saturating_add(1);
        }
    }

    /// The kernel drops `n` references.
    pub fn forget(&mut self, ino: Ino, n: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.lookups = node.lookups.saturating_sub(n);
            if node.lookups == 0 && ino != Ino::ROOT {
                self.unname(ino);
                self.nodes.remove(&ino);
            }
        }
    }

    /// New attributes of a node, without its name.
    pub fn learn(&mut self, ino: Ino, view: &EntryView, now: Instant) {
        if let Some(node) = self.nodes.get_mut(&ino)
            && node.generation == view.attr.generation
            && !node.overtakes(view, now)
        {
            node.attr = view.attr;
            node.version = view.version;
            node.at_home(view);
            node.acls = (view.acls(), now);
            node.incapable = (!view.xattrs).then_some(now);
            if let Some(statement) = view.dir.clone() {
                node.known = Some(Known {
                    statement,
                    learnt: now,
                });
            }
        }
    }

    /// Whether it was seen, no longer ago than this, to have no capabilities.
    pub fn incapable(&self, ino: Ino, timeout: Duration) -> bool {
        let seen = self.nodes.get(&ino).and_then(|n| n.incapable);
        seen.is_some_and(|seen| seen.elapsed() < timeout)
    }

    /// Permission bits and lists, as they were seen no longer ago than this.
    pub fn acls(&self, ino: Ino, timeout: Duration) -> Option<(Perm, Acls)> {
        let node = self.nodes.get(&ino)?;
        let (acls, seen) = &node.acls;
        (seen.elapsed() < timeout).then(|| (node.attr.perm, acls.clone()))
    }

    /// It had none then.
    pub fn has_no_capability(&mut self, ino: Ino, then: Instant) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.incapable = Some(then);
        }
    }

    /// The kernel is told attributes of this content version; `None`: it was not told after all.
    pub fn shown(&mut self, ino: Ino, version: Option<u64>) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.shown = version;
        }
    }

    /// What `view` showed before has lost this name. Returns whether it has others.
    pub fn lost(&mut self, parent: Ino, name: &Name, view: &EntryView) -> bool {
        let ino = view.attr.ino;
        if view.dir.is_some() || view.attr.nlink <= 1 {
            self.gone(ino);
            // Others have it open: it is there without a name.
            if view.attr.nlink == 0
                && let Some(node) = self.nodes.get_mut(&ino)
            {
                node.at_home(view);
            }
            return false;
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.at_home(view);
            node.attr.nlink = view.attr.nlink - 1;
        }
        self.dropped(ino, parent, name);
        true
    }

    /// It is not called that any more; what else, is told apart from this.
    pub fn dropped(&mut self, ino: Ino, parent: Ino, name: &Name) {
        let lost = (parent, name.clone());
        if self.names.get(&lost) == Some(&ino) {
            self.names.remove(&lost);
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.others.retain(|other| *other != lost);
            if (node.parent, &node.name) == (parent, name)
                && let Some(other) = node.others.pop()
            {
                (node.parent, node.name) = other;
            }
        }
    }

    /// Its last name was removed.
    pub fn gone(&mut self, ino: Ino) {
        self.unname(ino);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.gone = true;
        }
    }

    /// A directory gets a handle.
    pub fn opened_dir(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.handles = node.handles.saturating_add(1);
        }
    }

    /// It has lost one.
    pub fn closed_dir(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.handles = node.handles.saturating_sub(1);
        }
    }

    /// Whether a server has said, no longer ago than this, that a directory is there.
    pub fn learnt_within(&self, ino: Ino, timeout: Duration) -> bool {
        let known = self.nodes.get(&ino).and_then(|n| n.known.as_ref());
        known.is_some_and(|k| k.learnt.elapsed() <= timeout)
    }

    /// For changes that no server hears of.
    pub fn attr_mut(&mut self, ino: Ino) -> Option<&mut Attr> {
        self.nodes.get_mut(&ino).map(|n| &mut n.attr)
    }

    /// The names it had last, in whatever directories.
    pub fn names_of(&self, ino: Ino) -> Vec<Name> {
        let Some(node) = self.nodes.get(&ino) else {
            return Vec::new();
        };
        let others = node.others.iter().map(|(_, name)| name);
        let all = std::iter::once(&node.name).chain(others).chain(&node.formerly);
        all.cloned().collect()
    }

    /// It has no name any more, as was found out. Returns the one that it had last, if that is not known to
    /// be another's.
    pub fn outlived(&mut self, ino: Ino) -> Option<(Ino, Name)> {
        let node = self.nodes.get(&ino)?;
        let here = (node.parent, node.name.clone());
        let believed = here.0 != NOWHERE && self.names.get(&here) == Some(&ino);
        self.unname(ino);
        believed.then_some(here)
    }

    fn unname(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            let here = (node.parent, node.name.clone());
            for key in std::mem::take(&mut node.others).into_iter().chain([here]) {
                if self.names.get(&key) == Some(&ino) {
                    self.names.remove(&key);
                }
                node.formerly.retain(|name| *name != key.1);
                node.formerly.push(key.1);
            }
            let more = node.formerly.len().saturating_sub(FORMERLY);
            node.formerly.drain(..more);
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::Timestamp;

    fn view(ino: u64, generation: u64) -> EntryView {
        let time = Timestamp::default();
        EntryView {
            attr: Attr {
                ino: Ino(ino),
                generation: Generation(generation),
                kind: FileKind::Regular,
                perm: Perm::new(0o644),
                uid: 0,
                gid: 0,
                nlink: 1,
                size: 0,
                allocated: 0,
                rdev: 0,
                atime: time,
                mtime: time,
                ctime: time,
            },
            dir: None,
            seal: None,
            layout: Layout::None,
            version: 0,
            home: None,
            xattrs: false,
            acl: None,
            lease: 0,
        }
    }

    fn name(n: &str) -> Name {
        Name::new(n.as_bytes()).unwrap()
    }

    #[test]
    fn a_node_lives_until_it_is_forgotten() {
        let mut nodes = Nodes::default();
        let at = Instant::now();
        for _ in 0..3 {
            nodes.see(Ino(1), &name("a"), &view(7, 1), at);
            nodes.count(Ino(7));
        }
        nodes.forget(Ino(7), 2);
        assert_eq!(nodes.by_name(Ino(1), &name("a")), Some(Ino(7)));
        nodes.forget(Ino(7), 1);
        assert_eq!((nodes.len(), nodes.by_name(Ino(1), &name("a"))), (0, None));
        nodes.forget(Ino(7), 1);
    }

    #[test]
    fn names_follow_renames_and_replacements() {
        let mut nodes = Nodes::default();
        let at = Instant::now();
        nodes.see(Ino(1), &name("a"), &view(7, 1), at);
        nodes.see(Ino(1), &name("b"), &view(8, 1), at);
        // b is replaced by a.
        nodes.gone(Ino(8));
        nodes.see(Ino(1), &name("b"), &view(7, 1), at);
        assert_eq!(nodes.by_name(Ino(1), &name("a")), None);
        assert_eq!(nodes.by_name(Ino(1), &name("b")), Some(Ino(7)));
        // The replaced node is forgotten late: the name is not its own any more.
        nodes.count(Ino(8));
        nodes.forget(Ino(8), 1);
        assert_eq!(nodes.by_name(Ino(1), &name("b")), Some(Ino(7)));
    }

    #[test]
    fn an_answer_that_was_overtaken_changes_no_permissions() {
        let of = |mode, version| {
            let mut view = view(7, 1);
            view.attr.kind = FileKind::Directory;
            view.attr.perm = Perm::new(mode);
            view.version = version;
            view.dir = Some(Statement::above_root());
            view
        };
        let (mut nodes, at) = (Nodes::default(), Instant::now());
        let perm = |nodes: &Nodes| nodes.get(Ino(7)).unwrap().attr.perm;
        nodes.see(Ino(1), &name("d"), &of(0o755, 1), at);
        nodes.learn(Ino(7), &of(0o700, 2), at);
        nodes.learn(Ino(7), &of(0o755, 1), at);
        nodes.see(Ino(1), &name("d"), &of(0o755, 1), at);
        assert_eq!(perm(&nodes), Perm::new(0o700));
        // The same again, and what is newer, counts; so does anything that cannot have been under way for so
        // long.
        nodes.learn(Ino(7), &of(0o711, 2), at);
        assert_eq!(perm(&nodes), Perm::new(0o711));
        nodes.learn(Ino(7), &of(0o755, 1), at + OVERTAKEN);
        assert_eq!(perm(&nodes), Perm::new(0o755));
    }

    #[test]
    fn a_node_that_has_gone_knows_what_the_kernel_may_call_it() {
        let mut nodes = Nodes::default();
        let at = Instant::now();
        nodes.see(Ino(1), &name("a"), &view(7, 1), at);
        nodes.see(Ino(1), &name("b"), &view(7, 1), at);
        assert_eq!(nodes.outlived(Ino(7)), Some((Ino(1), name("b"))));
        // Once is enough, and what is another's by now is not said.
        assert_eq!(nodes.outlived(Ino(7)), None);
        nodes.see(Ino(1), &name("c"), &view(8, 1), at);
        nodes.see(Ino(1), &name("c"), &view(9, 1), at);
        assert_eq!(nodes.outlived(Ino(8)), None);
        let names = nodes.names_of(Ino(7));
        assert!(names.contains(&name("a")) && names.contains(&name("b")));
        for i in 0..20 {
            nodes.see(Ino(1), &name(&format!("n{i}")), &view(7, 1), at);
        }
        assert!(nodes.names_of(Ino(7)).len() <= FORMERLY + 1);
    }

    #[test]
    fn another_generation_is_another_file() {
        let mut nodes = Nodes::default();
        let at = Instant::now();
        nodes.see(Ino(1), &name("a"), &view(7, 1), at);
        let old = nodes.file(Ino(7)).unwrap();
        nodes.see(Ino(1), &name("a"), &view(7, 2), at);
        assert!(!Arc::ptr_eq(&old, &nodes.file(Ino(7)).unwrap()));
    }
}
