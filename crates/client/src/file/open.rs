//! Opening and creating.

use super::{Ops, Place};
use pando_format::codec::Blob;
use pando_types::{Access, Cred, Errno, Perm};
use pando_wire::{Answer, EntryView, Handle, Op};

/// What a server answered to an open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The entry.
    pub entry: EntryView,
    /// Its inline data.
    pub data: Option<Blob>,
    /// Whether it was created by this.
    pub created: bool,
    /// If it was opened for writing, what shows that.
    pub handle: Option<Handle>,
}

/// Checks permission to open the file at `place` and fetches its inline data.
pub async fn open(ops: &impl Ops, cred: &Cred, place: &Place, want: Access) -> Result<Opened, Errno> {
    let op = Op::Open {
        dir: place.dir.clone(),
        name: place.name.clone(),
        want: want.0,
    };
    opened(ops.op(cred, op).await?)
}

/// Creates the file at `place`, or opens it if it exists and `exclusive` is not set.
pub async fn create(
    ops: &impl Ops,
    cred: &Cred,
    place: &Place,
    perm: Perm,
    exclusive: bool,
    want: Access,
) -> Result<Opened, Errno> {
    let op = Op::Create {
        dir: place.dir.clone(),
        name: place.name.clone(),
        perm,
        exclusive,
        want: want.0,
    };
    opened(ops.op(cred, op).await?)
}

fn opened(answer: Answer) -> Result<Opened, Errno> {
    match answer {
        Answer::Opened {
            entry,
            data,
            created,
            handle,
        } => Ok(Opened {
            entry,
            data,
            created,
            handle,
        }),
        _ => Err(Errno::Io),
    }
}
