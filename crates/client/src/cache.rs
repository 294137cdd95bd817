//! Directories this client knows (InfiniFS §3.4): a tree, bounded in bytes, from which the leaf that was used
//! longest ago goes first.
//!
//! Nothing here is ever answered to a program. A cached directory only lends its statement to a request, and
//! the server that executes the request knows whether that is still true; if not it names the directory
//! through which it is not, which is then forgotten with all below it (H19). Nothing is ever rewritten (H14).
//! With leases it is not lent when its time has passed, which spares the server the refusal, and no more than
//! that (H52).

use pando_types::{Mono, Name};
use pando_wire::{EntryView, Scope, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// Default budget in bytes.
pub const CACHE_BYTES: usize = 16 << 20;
/// What a node costs besides its name and its way: two maps' entries and the statement.
const NODE: usize = 512;

/// A directory's tag: how statements call it.
type Tag = u64;
/// The time of an entry that is true until a server says otherwise.
pub(crate) const EVER: Mono = Mono(u64::MAX);

struct Node {
    parent: Option<Tag>,
    name: Name,
    entry: EntryView,
    children: BTreeMap<Name, Tag>,
    /// With leases: when what its entry says has run out.
    until: Mono,
    /// With leases: the ticket that servers made of the hops, and when the first of them has run out (H315).
    ticket: Option<(Statement, Mono)>,
    used: u64,
    bytes: usize,
}

/// The tree. The root's parent is the place above the root, whose tag is 0.
pub(crate) struct Cache {
    most: usize,
    bytes: usize,
    clock: u64,
    root: Option<Tag>,
    nodes: BTreeMap<Tag, Node>,
    /// Nodes without children, by last use.
    leaves: BTreeSet<(u64, Tag)>,
}

impl Cache {
    /// At most so many bytes, but always the way that was used last.
    pub fn new(most: usize) -> Cache {
        Cache {
            most,
            bytes: 0,
            clock: 0,
            root: None,
            nodes: BTreeMap::new(),
            leaves: BTreeSet::new(),
        }
    }

    /// The directory `name` in `dir`, as it was.
    pub fn child(&mut self, dir: &Statement, name: &Name, now: Mono) -> Option<EntryView> {
        let tag = match dir.tag() {
            0 => self.root?,
            tag => *self.nodes.get(&tag)?.children.get(name)?,
        };
        self.touch(tag);
        let node = self.nodes.get(&tag).filter(|n| now < n.until)?;
        let mut entry = node.entry.clone();
        if let Some((ticket, _)) = node.ticket.as_ref().filter(|(_, until)| now < *until) {
            entry.dir = Some(ticket.clone());
        }
        Some(entry)
    }

    /// `name` in `dir` is this directory, for as long.
    pub fn insert(&mut self, dir: &Statement, name: &Name, entry: &EntryView, until: Mono) {
        // A handle says nothing of the way to it.
        let Some(s) = entry.dir.as_ref().filter(|s| s.scope != Scope::Handle) else {
            return;
        };
        let (parent, tag) = (Some(dir.tag()).filter(|t| *t != 0), s.tag());
        let here = |n: &Node| n.parent == parent && n.name == *name;
        if let Some(node) = self.nodes.get_mut(&tag).filter(|n| here(n)) {
            // A ticket is worth more than a link.
            let keep = node.entry.dir.clone().filter(|old| {
                s.scope == Scope::Link && old.scope == Scope::Way && old.at >= s.at && old.seal == s.seal
            });
            node.entry = entry.clone();
            node.until = until;
            node.ticket = None;
            if keep.is_some() {
                node.entry.dir = keep;
            }
            return self.touch(tag);
        }
        // It was elsewhere, or something else was here.
        self.forget(tag);
        let before = match parent {
            Some(p) => match self.nodes.get(&p) {
                Some(p) => p.children.get(name).copied(),
                // Its parent was forgotten meanwhile: it would hang on nothing.
                None => return,
            },
            None => self.root,
        };
        if let Some(before) = before {
            self.forget(before);
        }
        let bytes = NODE + name.as_bytes().len() * 3 + s.way.len() * 8;
        let node = Node {
            parent,
            name: name.clone(),
            entry: entry.clone(),
            children: BTreeMap::new(),
            until,
            ticket: None,
            used: 0,
            bytes,
        };
        self.nodes.insert(tag, node);
        self.leaves.insert((0, tag));
        self.bytes += bytes;
        match parent.and_then(|p| self.nodes.get_mut(&p).map(|n| (p, n))) {
            Some((p, node)) => {
                self.leaves.remove(&(node.used, p));
                node.children.insert(name.clone(), tag);
            }
            None => self.root = Some(tag),
        }
        self.touch(tag);
        self.shrink();
    }

    /// A newer statement of a directory that is known.
    pub fn refresh(&mut self, fresh: &Statement) {
        let until = self.first_run_out(fresh.tag());
        let Some(node) = self.nodes.get_mut(&fresh.tag()) else {
            return;
        };
        let Some(known) = node
            .entry
            .dir
            .as_mut()
            .filter(|s| fresh.scope == Scope::Way && s.is_of(fresh.id, fresh.generation))
        else {
            return;
        };
        // Where things run out the hop stays: with it a ticket that has run out is made anew.
        match until == EVER {
            true => *known = fresh.clone(),
            false => node.ticket = Some((fresh.clone(), until)),
        }
    }

    /// When the first hop of the way to a directory has run out.
    fn first_run_out(&self, tag: Tag) -> Mono {
        let mut until = EVER;
        let mut at = Some(tag);
        while let Some(node) = at.and_then(|tag| self.nodes.get(&tag)) {
            // Where nothing runs out, nothing above does.
            if node.until == EVER {
                break;
            }
            until = until.min(node.until);
            at = node.parent;
        }
        until
    }

    /// An entry, or a hop of the way to it, has run out. The client shows no ticket on it, and asks for the
    /// entry again.
    pub fn run_out(&mut self, tag: Tag) {
        let mut at = Some(tag);
        while let Some(node) = at.and_then(|tag| self.nodes.get_mut(&tag)) {
            if at == Some(tag) {
                node.until = Mono(0);
            }
            node.ticket = None;
            at = node.parent;
        }
    }

    /// The statements that links hang on, up to a ticket. `None`: the cache has forgotten one of them, or one
    /// has run out.
    pub fn ways<'a>(
        &self,
        statements: impl Iterator<Item = &'a Statement>,
        now: Mono,
    ) -> Option<Vec<Statement>> {
        let mut ways: Vec<Statement> = Vec::new();
        for s in statements {
            let mut at = s;
            while at.scope == Scope::Link {
                let above = *at.way.first()?;
                if ways.iter().any(|w| w.tag() == above) {
                    break;
                }
                let node = self.nodes.get(&above).filter(|node| now < node.until)?;
                at = match &node.ticket {
                    Some((ticket, until)) if now < *until => ticket,
                    _ => node.entry.dir.as_ref()?,
                };
                ways.push(at.clone());
            }
        }
        Some(ways)
    }

    /// A directory is not there, or not that, any more. 0: nothing is known any more (H13).
    pub fn forget(&mut self, tag: Tag) {
        if tag == 0 {
            *self = Cache {
                clock: self.clock,
                ..Cache::new(self.most)
            };
            return;
        }
        let Some(node) = self.nodes.get(&tag) else { return };
        let (parent, name) = (node.parent, node.name.clone());
        match parent {
            Some(p) => {
                if let Some(above) = self.nodes.get_mut(&p) {
                    above.children.remove(&name);
                    if above.children.is_empty() {
                        self.leaves.insert((above.used, p));
                    }
                }
            }
            None => self.root = None,
        }
        let mut doomed = vec![tag];
        while let Some(tag) = doomed.pop() {
            if let Some(node) = self.nodes.remove(&tag) {
                self.leaves.remove(&(node.used, tag));
                self.bytes -= node.bytes;
                doomed.extend(node.children.values());
            }
        }
    }

    fn touch(&mut self, tag: Tag) {
        self.clock += 1;
        let Some(node) = self.nodes.get_mut(&tag) else {
            return;
        };
        let leaf = self.leaves.remove(&(node.used, tag));
        node.used = self.clock;
        if leaf {
            self.leaves.insert((node.used, tag));
        }
    }

    fn shrink(&mut self) {
        while self.bytes > self.most && self.leaves.len() > 1 {
            let Some((_, oldest)) = self.leaves.first().copied() else {
                return;
            };
            self.forget(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::{Attr, DirId, FileKind, Generation, Ino, Perm, Timestamp, Watermark};
    use pando_wire::Said;

    fn name(n: u64) -> Name {
        Name::new(format!("n{n}").as_bytes()).unwrap()
    }

    fn dir(way: &[u64], scope: Scope) -> EntryView {
        let time = Timestamp::default();
        let tag = *way.last().unwrap();
        EntryView {
            attr: Attr {
                ino: Ino(tag),
                generation: Generation(1),
                kind: FileKind::Directory,
                perm: Perm::new(0o755),
                uid: 0,
                gid: 0,
                nlink: 2,
                size: 0,
                allocated: 0,
                rdev: 0,
                atime: time,
                mtime: time,
                ctime: time,
            },
            dir: Some(Statement::from(Said {
                id: DirId(u128::from(tag)),
                generation: Generation(1),
                scope,
                way: way.to_vec(),
                at: Watermark(1),
                ..Said::above_root()
            })),
            seal: None,
            layout: pando_format::Layout::None,
            version: 0,
            home: None,
            xattrs: false,
            acl: None,
            lease: 0,
        }
    }

    fn statement(way: &[u64]) -> Statement {
        dir(way, Scope::Way).dir.unwrap()
    }

    /// /n2/n3/…, as far as `depth`.
    fn chain(cache: &mut Cache, depth: u64) {
        let mut way = vec![1];
        cache.insert(
            &Statement::above_root(),
            &Name::root(),
            &dir(&way, Scope::Way),
            EVER,
        );
        for n in 2..=depth {
            let parent = statement(&way);
            way.push(n);
            cache.insert(&parent, &name(n), &dir(&way, Scope::Way), EVER);
        }
    }

    fn tags(cache: &Cache) -> Vec<u64> {
        cache.nodes.keys().copied().collect()
    }

    #[test]
    fn what_is_below_goes_with_what_is_above() {
        let mut c = Cache::new(CACHE_BYTES);
        chain(&mut c, 5);
        assert!(c.child(&statement(&[1, 2]), &name(3), Mono(0)).is_some());
        c.forget(3);
        assert_eq!(tags(&c), [1, 2]);
        assert!(c.child(&statement(&[1, 2]), &name(3), Mono(0)).is_none());
        c.forget(0);
        assert_eq!((tags(&c), c.bytes, c.leaves.len()), (vec![], 0, 0));
        assert!(
            c.child(&Statement::above_root(), &Name::root(), Mono(0))
                .is_none()
        );
    }

    #[test]
    fn the_leaf_used_longest_ago_goes_first_and_the_last_way_stays() {
        let mut c = Cache::new(4 * NODE + 100);
        chain(&mut c, 3);
        c.insert(&statement(&[1]), &name(7), &dir(&[1, 7], Scope::Way), EVER);
        assert_eq!(tags(&c), [1, 2, 3, 7]);
        c.child(&statement(&[1, 2]), &name(3), Mono(0));
        c.insert(&statement(&[1]), &name(8), &dir(&[1, 8], Scope::Way), EVER);
        assert_eq!(tags(&c), [1, 2, 3, 8]);
        let mut small = Cache::new(0);
        chain(&mut small, 9);
        assert_eq!(tags(&small), (1..=9).collect::<Vec<_>>());
    }

    #[test]
    fn a_directory_is_in_one_place_and_a_place_has_one_directory() {
        let mut c = Cache::new(CACHE_BYTES);
        chain(&mut c, 4);
        // 3 is found as /n9 now: where it was, and what was below, is gone.
        c.insert(&statement(&[1]), &name(9), &dir(&[1, 3], Scope::Way), EVER);
        assert_eq!(tags(&c), [1, 2, 3]);
        assert!(c.child(&statement(&[1, 2]), &name(3), Mono(0)).is_none());
        // Another directory under the name of 2.
        c.insert(&statement(&[1]), &name(2), &dir(&[1, 12], Scope::Way), EVER);
        assert_eq!(tags(&c), [1, 3, 12]);
        // Below something that is not known nothing is kept.
        c.insert(
            &statement(&[1, 99]),
            &name(5),
            &dir(&[1, 99, 5], Scope::Way),
            EVER,
        );
        assert_eq!(tags(&c), [1, 3, 12]);
        let bytes: usize = c.nodes.values().map(|n| n.bytes).sum();
        assert_eq!(c.bytes, bytes);
    }

    #[test]
    fn links_find_their_ticket_and_become_tickets() {
        let mut c = Cache::new(CACHE_BYTES);
        chain(&mut c, 2);
        c.insert(&statement(&[1, 2]), &name(3), &dir(&[2, 3], Scope::Link), EVER);
        let link = dir(&[3, 4], Scope::Link);
        c.insert(&dir(&[2, 3], Scope::Link).dir.unwrap(), &name(4), &link, EVER);
        let ways = c.ways(link.dir.as_ref().into_iter(), Mono(0)).unwrap();
        assert_eq!(ways.iter().map(|s| s.tag()).collect::<Vec<_>>(), [3, 2]);
        c.refresh(&statement(&[1, 2, 3]));
        assert_eq!(
            c.ways(link.dir.as_ref().into_iter(), Mono(0)).unwrap(),
            [statement(&[1, 2, 3])]
        );
        // A link that is learnt again does not replace the ticket.
        c.insert(&statement(&[1, 2]), &name(3), &dir(&[2, 3], Scope::Link), EVER);
        assert_eq!(
            c.ways(link.dir.as_ref().into_iter(), Mono(0)).unwrap(),
            [statement(&[1, 2, 3])]
        );
        c.forget(3);
        assert_eq!(c.ways(link.dir.as_ref().into_iter(), Mono(0)), None);
    }

    #[test]
    fn each_hop_has_its_own_time_and_a_ticket_the_least_of_them() {
        let mut c = Cache::new(CACHE_BYTES);
        let (root, hop) = (dir(&[1], Scope::Way), dir(&[1, 2], Scope::Link));
        let said = hop.dir.clone().unwrap();
        let shown = |c: &mut Cache, now| {
            c.child(&statement(&[1]), &name(2), Mono(now))
                .map(|e| e.dir.unwrap())
        };
        c.insert(&Statement::above_root(), &Name::root(), &root, Mono(10));
        c.insert(&statement(&[1]), &name(2), &hop, Mono(20));
        assert_eq!(shown(&mut c, 19), Some(said.clone()));
        assert_eq!(shown(&mut c, 20), None);
        let ticket = statement(&[1, 2]);
        c.refresh(&ticket);
        assert_eq!(shown(&mut c, 9), Some(ticket.clone()));
        // The root's time has passed, not the hop's.
        assert_eq!(shown(&mut c, 10), Some(said.clone()));
        assert_eq!(c.ways([&said].into_iter(), Mono(9)).map(|w| w.len()), Some(1));
        assert_eq!(c.ways([&said].into_iter(), Mono(10)), None);
        c.insert(&Statement::above_root(), &Name::root(), &root, Mono(30));
        assert_eq!(c.ways([&said].into_iter(), Mono(15)).map(|w| w.len()), Some(1));
        c.refresh(&ticket);
        assert_eq!(shown(&mut c, 19), Some(ticket.clone()));
        c.run_out(2);
        assert_eq!(shown(&mut c, 9), None);
        c.insert(&statement(&[1]), &name(2), &hop, Mono(40));
        assert_eq!(shown(&mut c, 25), Some(said));
    }
}
