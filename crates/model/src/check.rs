//! The whole tree: in order for comparison, and whether it is one.

use crate::Model;
use crate::node::{Inner, NodeId};
use crate::op::View;
use std::collections::BTreeSet;

/// An object and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walked {
    /// Names from the root, each with a `/` before it; empty for the root.
    pub path: Vec<u8>,
    /// The object; of a directory, with the attributes of both halves.
    pub view: View,
}

impl Model {
    /// Every object from the root down, each directory before what is in it, entries by name.
    pub fn walk(&self) -> Vec<Walked> {
        let mut out = Vec::with_capacity(self.len());
        // An explicit stack: trees may be deeper than the thread's.
        let mut stack = vec![(Vec::new(), NodeId::ROOT)];
        while let Some((path, id)) = stack.pop() {
            let node = self.node(id);
            if let Inner::Dir(d) = &node.inner {
                for (name, child) in d.entries.iter().rev() {
                    let mut path = path.clone();
                    path.push(b'/');
                    path.extend_from_slice(name.as_bytes());
                    stack.push((path, *child));
                }
            }
            let mut view = self.shown(id);
            view.attr = node.attr(id);
            out.push(Walked { path, view });
        }
        out
    }

    /// Whether this is a tree: everything reachable from the root by exactly one path, counts and parents
    /// right, identities unique. `Err` says what is not.
    pub fn check(&self) -> Result<(), String> {
        let mut reached = BTreeSet::new();
        let mut inos = BTreeSet::new();
        let (mut dirs, mut named) = (0, 0);
        let mut stack = vec![NodeId::ABOVE_ROOT];
        while let Some(id) = stack.pop() {
            let node = self
                .nodes
                .get(&id)
                .ok_or(format!("{id:?} is named but not alive"))?;
            let again = !reached.insert(id);
            if again && node.is_dir() {
                return Err(format!("{id:?} is reached twice"));
            }
            if again {
                continue;
            }
            if !inos.insert(id.ino) {
                return Err(format!("inode number {} is used twice", id.ino));
            }
            if !self.spent.contains(&id) {
                return Err(format!("{id:?} is not among the spent identities"));
            }
            let Some(d) = node.as_dir() else { continue };
            dirs += 1;
            if self.live_dirs.get(&d.id) != Some(&id) || !self.spent_dirs.contains(&(d.id, id.generation)) {
                return Err(format!("directory ID {} is not known as {id:?}", d.id));
            }
            let mut subdirs = 0;
            for (name, child_id) in &d.entries {
                let child = self
                    .nodes
                    .get(child_id)
                    .ok_or(format!("{name} in {id:?} is not alive"))?;
                if !child.names.contains(&(id, name.clone())) || child.is_dir() && child.names.len() != 1 {
                    return Err(format!("{name} in {id:?} thinks it is {:?}", child.names));
                }
                named += 1;
                subdirs += u64::from(child.is_dir());
                stack.push(*child_id);
            }
            if subdirs != d.subdirs {
                return Err(format!(
                    "{id:?} counts {} subdirectories, has {subdirs}",
                    d.subdirs
                ));
            }
        }
        let open = self
            .nodes
            .iter()
            .filter(|(id, n)| n.names.is_empty() && self.open.contains(id));
        let open = open.filter(|(id, _)| **id != NodeId::ABOVE_ROOT).count();
        if reached.len() + open != self.nodes.len() {
            return Err(format!(
                "{} objects cannot be reached",
                self.nodes.len() - reached.len() - open
            ));
        }
        let names: usize = self.nodes.values().map(|n| n.names.len()).sum();
        if named != names {
            return Err(format!(
                "{names} names are known of objects, {named} are in directories"
            ));
        }
        if dirs != self.live_dirs.len() {
            return Err(format!(
                "{} directories of {} are alive",
                dirs,
                self.live_dirs.len()
            ));
        }
        Ok(())
    }
}
