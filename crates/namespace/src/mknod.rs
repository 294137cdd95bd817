//! mknod: FIFOs, names of sockets, devices. The kernel opens them; here they are records.

use crate::context::Context;
use crate::create::{add, new_inode};
use crate::snapshot::Stop;
use pando_types::{Access, Errno, FileKind, Mode, Name, plant};
use pando_wire::{Answer, Statement};

/// Creates a special file. Devices are the superuser's to make (H148): through a mount they are the
/// machine's.
pub(crate) fn mknod(
    cx: &mut Context<'_>,
    dir: &Statement,
    name: &Name,
    kind: FileKind,
    mode: Mode,
    rdev: u64,
) -> Result<Answer, Stop> {
    let device = match kind {
        FileKind::Fifo | FileKind::Socket => false,
        FileKind::CharDevice | FileKind::BlockDevice => true,
        // As mknod(2) has it. Regular files are made by create.
        FileKind::Directory => return Err(Errno::Perm.into()),
        FileKind::Regular | FileKind::Symlink => return Err(Errno::Invalid.into()),
    };
    if device && u32::try_from(rdev).is_err() {
        return Err(Errno::Invalid.into());
    }
    let place = cx.place(dir, name);
    cx.require(cx.change_wants(&place))?;
    cx.enter_at(&place, dir, Access::EXEC)?;
    if cx.entry(&place).is_some() {
        return Err(Errno::Exists.into());
    }
    cx.change_at(&place, dir)?;
    let mut inode = new_inode(cx, dir, kind, mode)?;
    if device {
        if !cx.inputs.cred.is_root() && !plant!(H148) {
            return Err(Errno::Perm.into());
        }
        inode.rdev = rdev;
    }
    Ok(Answer::Entry(add(cx, &place, inode)?))
}
