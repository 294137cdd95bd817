//! Births: the version a new directory gets, and the rename lists from which it follows (InfiniFS §3.3.1,
//! H2–H5).
//!
//! A directory's ID is the hash of its birth: parent ID, name, version. While it lives under its birth's name
//! nobody else can be born there. Its first rename puts the version on the rename list of its birth, and the
//! mark that it did into the head; both stay, wherever the directory goes, until its removal takes them away
//! in its own transaction. So a version is free if the list does not have it. What is left are collisions of
//! hashes: content under the ID of another birth, which the server of that content finds when the head is
//! inserted.

use crate::context::Context;
use crate::snapshot::{Snapshot, Stop};
use pando_format::{Key, Mutation, Record, RenameList};
use pando_types::{Birth, DirId, Errno, Ids, Name, plant};
use pando_wire::{LockMode, LockWant};
use std::collections::BTreeMap;

/// The birth of the directory that a decision makes, if it makes one: whoever is told that its ID is taken
/// goes on from the next version.
pub fn born(mutations: &[Mutation]) -> Option<&Birth> {
    mutations.iter().find_map(|m| match m {
        Mutation::Insert {
            key: Key::Head(_),
            record: Record::Head(head),
        } => Some(&head.birth),
        _ => None,
    })
}

fn list(parent: DirId, name: &Name) -> Key {
    Key::RenameList {
        parent,
        name: name.clone(),
    }
}

/// Wants to give a version to a directory born as `name` in `parent`.
pub(crate) fn birth_want(cx: &Context<'_>, parent: DirId, name: &Name) -> Option<LockWant> {
    match cx.inputs.ids {
        Ids::Predicted => Some(LockWant::Key(list(parent, name), LockMode::Shared)),
        Ids::Placed => None,
    }
}

/// Wants to rename a directory that has not been renamed yet, out of `name` in `parent`.
pub(crate) fn leave_want(cx: &Context<'_>, parent: DirId, name: &Name) -> Option<LockWant> {
    match cx.inputs.ids {
        Ids::Predicted => Some(LockWant::Key(list(parent, name), LockMode::Exclusive)),
        Ids::Placed => None,
    }
}

/// The smallest version from `floor` on that no living directory has (H2). REQUIRES: [`birth_want`].
pub(crate) fn free_version(snapshot: &Snapshot, parent: DirId, name: &Name, floor: u32) -> Result<u32, Stop> {
    let list = snapshot.rename_list(&list(parent, name));
    let free = match list {
        Some(list) if plant!(H2) => u32::try_from(list.len()).ok(),
        Some(list) => list.free_from(floor),
        None => Some(floor),
    };
    // Every version there is belongs to a directory.
    free.ok_or(Stop::Fail(Errno::TooManyLinks))
}

/// Brings the rename lists up to date for directories that leave their places and for those that end. Needs
/// the lists in question; each is written once, though several directories may be on it. REQUIRES: the heads
/// of all of them, exclusive.
pub(crate) fn relist(cx: &mut Context<'_>, leave: &[DirId], end: &[DirId]) -> Result<(), Stop> {
    let mut changes: Vec<(Key, u32, bool)> = Vec::new();
    match cx.inputs.ids {
        Ids::Predicted => {}
        // IDs that are placed never come twice, so no list is kept.
        Ids::Placed => return Ok(()),
    }
    for head in leave.iter().filter_map(|d| cx.snapshot.head((*d).into())) {
        // Only the first time: from then on the list of its birth has it, and no other ever does (H5).
        if !head.listed || plant!(H5) {
            let (parent, name) = if plant!(H5) {
                (head.parent, &head.name)
            } else {
                (head.birth.parent, &head.birth.name)
            };
            changes.push((list(parent, name), head.birth.version, true));
        }
    }
    for head in end.iter().filter_map(|d| cx.snapshot.head((*d).into())) {
        if head.listed {
            let key = list(head.birth.parent, &head.birth.name);
            changes.push((key, head.birth.version, false));
        }
    }
    let want = |(key, _, _): &(Key, u32, bool)| LockWant::Key(key.clone(), LockMode::Exclusive);
    cx.require(changes.iter().map(want).collect())?;
    let mut lists: BTreeMap<Key, RenameList> = BTreeMap::new();
    for (key, version, add) in changes {
        let there = cx.snapshot.rename_list(&key);
        let list = lists
            .entry(key)
            .or_insert_with(|| there.cloned().unwrap_or_default());
        let changed = if add {
            list.insert(version)
        } else {
            list.remove(version)
        };
        if !changed {
            // List and head disagree: damage, which fsck reports.
            return Err(Errno::Io.into());
        }
    }
    for (key, list) in lists {
        let was = cx.snapshot.rename_list(&key).is_some();
        match (was, list.is_empty()) {
            (false, false) => cx.insert(key, Record::RenameList(list)),
            (true, false) => cx.update(key, Record::RenameList(list)),
            (true, true) => cx.delete(key),
            (false, true) => {}
        }
    }
    Ok(())
}
