//! Listings with whole entries: what has several names may be on another server than its directory, and is
//! looked up by its name, all of a page at once.

use crate::file::Ops;
use pando_env::sync::join_all;
use pando_types::{Cred, Errno};
use pando_wire::{Answer, DirEntry, Op, Outcome, Statement};
use std::pin::Pin;

/// The entries of a page of `dir`, whole as far as `cred` may know them. What was removed since it was listed
/// is left out.
pub async fn whole(
    ops: &impl Ops,
    cred: &Cred,
    dir: &Statement,
    entries: Vec<DirEntry>,
) -> Result<Vec<DirEntry>, Errno> {
    let look = |e: &DirEntry| {
        let (dir, name) = (dir.clone(), e.name.clone());
        ops.op(cred, Op::Lookup { dir, name })
    };
    let mut missing = entries.iter().filter(|e| e.view.is_none());
    let Some(first) = missing.next() else {
        return Ok(entries);
    };
    let mut found = vec![look(first).await];
    // Who may list a directory and not search it is shown names.
    if found[0] == Err(Errno::Access) {
        return Ok(entries);
    }
    let others: Vec<Pin<Box<dyn Future<Output = Outcome> + '_>>> =
        missing.map(|e| Box::pin(look(e)) as _).collect();
    found.extend(join_all(others).await);
    let mut found = found.into_iter();
    let mut whole = Vec::with_capacity(entries.len());
    for e in entries {
        if e.view.is_some() {
            whole.push(e);
            continue;
        }
        match found.next().ok_or(Errno::Io)? {
            Ok(Answer::Entry(view)) => whole.push(DirEntry {
                ino: view.attr.ino,
                kind: view.attr.kind,
                view: Some(Box::new(view)),
                ..e
            }),
            Ok(_) => return Err(Errno::Io),
            Err(Errno::NotFound) => {}
            // One that is damaged hides no other.
            Err(Errno::Io) => whole.push(e),
            Err(e) => return Err(e),
        }
    }
    Ok(whole)
}
