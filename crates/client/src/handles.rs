//! What servers have said last of directories that programs hold open.
//!
//! A statement of a directory is good for as many changes anywhere as servers remember; then its directory
//! must be asked for where its name is ([`Op::Reopen`](pando_wire::Op::Reopen)), which takes a round trip and
//! that server. Whoever works in a directory need not: answers bring newer statements of it, and the newest
//! takes the place of the one that the program has.

use pando_wire::{Scope, Statement};
use std::collections::{BTreeMap, BTreeSet};

/// How many are remembered by default. Of others what the program has is shown.
pub const HANDLES: usize = 8192;

/// A directory's tag: how statements call it.
type Tag = u64;

/// The newest statements of handles; the one that was used longest ago goes first.
pub(crate) struct Handles {
    most: usize,
    clock: u64,
    known: BTreeMap<Tag, (u64, Statement)>,
    /// By last use.
    order: BTreeSet<(u64, Tag)>,
}

impl Handles {
    pub fn new(most: usize) -> Handles {
        Handles {
            most,
            clock: 0,
            known: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }

    /// A server has said this.
    pub fn learn(&mut self, fresh: &Statement) {
        let tag = fresh.tag();
        let newer = |(_, s): &(u64, Statement)| s.at >= fresh.at;
        if fresh.scope != Scope::Handle || self.known.get(&tag).is_some_and(newer) {
            return;
        }
        self.forget(tag);
        self.clock += 1;
        self.known.insert(tag, (self.clock, fresh.clone()));
        self.order.insert((self.clock, tag));
        if self.known.len() > self.most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.known.remove(&oldest);
        }
    }

    /// The newest that is known takes a statement's place.
    pub fn renew(&mut self, shown: &mut Statement) {
        if shown.scope != Scope::Handle {
            return;
        }
        let tag = shown.tag();
        let Some((used, newest)) = self.known.get_mut(&tag) else {
            return;
        };
        if newest.is_of(shown.id, shown.generation) && newest.at > shown.at {
            *shown = newest.clone();
        }
        self.clock += 1;
        self.order.remove(&(*used, tag));
        *used = self.clock;
        self.order.insert((self.clock, tag));
    }

    /// It is not true any more.
    pub fn forget(&mut self, tag: Tag) {
        if let Some((used, _)) = self.known.remove(&tag) {
            self.order.remove(&(used, tag));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::{DirId, Generation, Watermark};
    use pando_wire::Said;

    fn handle(tag: u64, at: u64) -> Statement {
        Statement::from(Said {
            id: DirId(u128::from(tag)),
            generation: Generation(tag),
            scope: Scope::Handle,
            way: vec![tag],
            at: Watermark(at),
            ..Said::above_root()
        })
    }

    fn shown(handles: &mut Handles, tag: u64, at: u64) -> u64 {
        let mut s = handle(tag, at);
        handles.renew(&mut s);
        s.at.0
    }

    #[test]
    fn the_newest_is_shown_whatever_order_they_come_in() {
        let mut h = Handles::new(8);
        assert_eq!(shown(&mut h, 5, 1), 1);
        h.learn(&handle(5, 9));
        h.learn(&handle(5, 7));
        assert_eq!(shown(&mut h, 5, 1), 9);
        assert_eq!(shown(&mut h, 5, 11), 11);
        assert_eq!(shown(&mut h, 6, 1), 1);
        h.forget(5);
        assert_eq!(shown(&mut h, 5, 1), 1);
    }

    #[test]
    fn what_leads_from_the_root_is_not_replaced() {
        let mut h = Handles::new(8);
        h.learn(&handle(5, 9));
        let mut way = Statement::from(Said {
            scope: Scope::Way,
            ..Said::clone(&handle(5, 1))
        });
        h.renew(&mut way);
        assert_eq!((way.at, way.scope), (Watermark(1), Scope::Way));
        h.learn(&Statement::from(Said {
            scope: Scope::Way,
            ..Said::clone(&handle(6, 9))
        }));
        assert_eq!(shown(&mut h, 6, 1), 1);
    }

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let mut h = Handles::new(2);
        h.learn(&handle(1, 9));
        h.learn(&handle(2, 9));
        assert_eq!(shown(&mut h, 1, 1), 9);
        h.learn(&handle(3, 9));
        assert_eq!([1, 2, 3].map(|t| shown(&mut h, t, 1)), [9, 1, 9]);
        assert_eq!((h.known.len(), h.order.len()), (2, 2));
    }
}
