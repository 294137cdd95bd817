//! Opening and creating.

use super::{Ops, Place};
use crate::keep::Kept;
use pando_format::codec::Blob;
use pando_types::{Access, Cred, Errno, Mode};
use pando_wire::{Answer, EntryView, Handle, Op, Outcome, Statement};
use std::pin::pin;
use std::sync::Arc;

/// How often a file that exists is opened again by who would have created it, if others replace it all the
/// time.
const AGAIN: usize = 10;

/// What a server answered to an open.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The entry.
    pub entry: EntryView,
    /// Its inline data.
    pub data: Option<Blob>,
    /// Whether it was created by this.
    pub created: bool,
    /// If it was opened for writing, what shows that.
    pub handle: Option<Handle>,
    /// Keeps it open, if that was asked for.
    pub hold: Option<Arc<Kept>>,
    /// What shows that it was opened.
    pub proof: Handle,
}

/// Checks permission to open the file at `place` and fetches its inline data, if they may be seen.
pub async fn open(ops: &impl Ops, cred: &Cred, place: &Place, want: Access) -> Result<Opened, Errno> {
    let op = Op::Open {
        dir: place.dir.clone(),
        name: place.name.clone(),
        want: want.0,
    };
    let opened = opened((ops.op(cred, op).await, None))?;
    readable(ops, place, want, opened).await
}

/// The same, of a file that is to stay there while it is open.
pub async fn open_kept(ops: &impl Ops, cred: &Cred, place: &Place, want: Access) -> Result<Opened, Errno> {
    let op = Op::Open {
        dir: place.dir.clone(),
        name: place.name.clone(),
        want: want.0,
    };
    let opened = opened(ops.op_open(cred, op).await)?;
    readable(ops, place, want, opened).await
}

async fn readable(ops: &impl Ops, place: &Place, want: Access, opened: Opened) -> Result<Opened, Errno> {
    if want.0 & Access::WRITE.0 != 0 {
        return Ok(with_bytes(ops, &ops.own(), place, opened).await);
    }
    Ok(opened)
}

/// Whether its bytes are at the server and were not told.
fn lacks_bytes(opened: &Opened) -> bool {
    opened.data.is_none() && opened.entry.layout.is_inline()
}

/// What is changed in part must be known whole. A mount that many users share may read, as root, for those
/// who may only write; who acts for some users alone does without.
pub(super) async fn with_bytes(ops: &impl Ops, reader: &Cred, place: &Place, first: Opened) -> Opened {
    if !lacks_bytes(&first) {
        return first;
    }
    let op = Op::Open {
        dir: place.dir.clone(),
        name: place.name.clone(),
        want: Access::READ.0,
    };
    let file = |e: &EntryView| (e.attr.ino, e.attr.generation);
    match opened((ops.op(reader, op).await, None)) {
        Ok(again) if file(&again.entry) == file(&first.entry) => Opened {
            entry: again.entry,
            data: again.data,
            ..first
        },
        _ => first,
    }
}

/// Creates the file at `place`, or opens it if it exists and `exclusive` is not set.
pub async fn create(
    ops: &impl Ops,
    cred: &Cred,
    place: &Place,
    mode: impl Into<Mode>,
    exclusive: bool,
    want: Access,
) -> Result<Opened, Errno> {
    let mode = mode.into();
    for _ in 0..AGAIN {
        let op = Op::Create {
            dir: place.dir.clone(),
            name: place.name.clone(),
            mode,
            exclusive,
            want: want.0,
        };
        let found = opened(pin!(ops.op_open(cred, op)).await)?;
        // What was created, nearly always.
        if !lacks_bytes(&found) {
            return Ok(found);
        }
        if want.0 & (Access::READ.0 | Access::EXEC.0) == 0 {
            if want.0 & Access::WRITE.0 == 0 {
                return Ok(found);
            }
            let found = with_bytes(ops, cred, place, found).await;
            return Ok(with_bytes(ops, &ops.own(), place, found).await);
        }
        // The bytes of what was there come with an open only. Meanwhile it may be another file's name.
        let found = with_bytes(ops, cred, place, found).await;
        if !lacks_bytes(&found) {
            return Ok(found);
        }
    }
    Err(Errno::Stale)
}

/// Creates a file without a name that is there while it is open. `linkable`: it may get one.
pub async fn create_unnamed(
    ops: &impl Ops,
    cred: &Cred,
    dir: Statement,
    mode: Mode,
    linkable: bool,
) -> Result<Opened, Errno> {
    opened(ops.op_open(cred, Op::Tmpfile { dir, mode, linkable }).await)
}

fn opened((outcome, kept): (Outcome, Option<Kept>)) -> Result<Opened, Errno> {
    match outcome? {
        Answer::Opened {
            entry,
            data,
            created,
            handle,
            proof,
            ..
        } => Ok(Opened {
            entry,
            data,
            created,
            handle,
            hold: kept.map(Arc::new),
            proof,
        }),
        _ => Err(Errno::Io),
    }
}
