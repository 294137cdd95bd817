//! The operations: POSIX rules, written once, as pure functions of records.
//!
//! `run` looks at the records in a [`Snapshot`]. If one is missing it says so and is called again with more;
//! in the end it gives an outcome and the mutations that bring it about. It knows nothing of servers, locks
//! or transactions: the same function decides an operation on one server and one that spans four.

mod accessed;
mod acl;
mod attached;
mod attr;
mod births;
mod context;
mod create;
mod file;
mod itself;
mod list;
mod lookup;
mod mkdir;
mod mknod;
mod parts;
mod publish;
mod readdir;
mod remove;
mod rename;
mod snapshot;
mod xattr;

pub use births::born;
pub use context::{Decision, Fresh, Incarnation, Inputs, Walked, Which};
pub use file::{Stays, home_bucket, reap, reap_wants, stay_home};
pub use readdir::{From as ListFrom, Page, page};
pub use snapshot::{Snapshot, Stop};

use context::Context;
use pando_types::Tile;
use pando_wire::{Answer, LockWant, Op};

/// What comes of looking at a snapshot.
pub enum Step {
    /// These are needed too.
    Need(Vec<LockWant>),
    /// Decided.
    Done(Decision),
    /// It changes a directory's name, parent or permissions, and this server does not coordinate that (H28).
    UseCoordinator,
    /// This is the rename server: walk up from `into` and say whether `moved` is on the way.
    Walk {
        /// The directory that changes its parent.
        moved: Incarnation,
        /// The new parent.
        into: Incarnation,
    },
    /// A client has localised a directory that it concerns: it is to be asked again later.
    Localised,
    /// A name is in another part than the asker takes it to be in.
    Elsewhere {
        /// Of which name.
        which: Which,
        /// The hashes of the part that was asked. `None`: there is no such part.
        tile: Option<Tile>,
    },
    /// Something must be over first.
    Busy,
}

/// Decides an operation, as far as the snapshot allows. Pure: the same inputs give the same step.
///
/// REQUIRES: the snapshot was read under the locks it was asked for with, all of them still held.
pub fn run(op: &Op, inputs: &Inputs<'_>, snapshot: &Snapshot) -> Step {
    let mut cx = Context::new(inputs, snapshot);
    let answer = file::check_homes(op).and_then(|()| carry_out(&mut cx, op));
    match answer {
        Ok(answer) => Step::Done(cx.decided(Ok(answer))),
        Err(Stop::Fail(errno)) => Step::Done(Context::new(inputs, snapshot).decided(Err(errno))),
        Err(Stop::Need(wants)) => Step::Need(wants),
        Err(Stop::UseCoordinator) => Step::UseCoordinator,
        Err(Stop::Localised) => Step::Localised,
        Err(Stop::Walk { moved, into }) => Step::Walk { moved, into },
        Err(Stop::Elsewhere { which, tile }) => Step::Elsewhere { which, tile },
        Err(Stop::Busy) => Step::Busy,
    }
}

fn carry_out(cx: &mut Context<'_>, op: &Op) -> Result<Answer, Stop> {
    if let Some(dir) = op.means_itself() {
        return itself::carry_out(cx, op, dir);
    }
    match op {
        Op::Lookup { dir, name } => lookup::lookup(cx, dir, name),
        Op::Reopen { dir } => lookup::reopen(cx, dir),
        Op::DirStat { dir } => lookup::dir_stat(cx, dir),
        Op::ReadLink { dir, name } => lookup::read_link(cx, dir, name),
        Op::Open { dir, name, want } => lookup::open(cx, dir, name, *want),
        Op::Create {
            dir,
            name,
            mode,
            exclusive,
            want,
        } => create::create(cx, dir, name, *mode, *exclusive, *want),
        Op::Tmpfile { dir, mode, linkable } => create::unnamed(cx, dir, *mode, *linkable),
        Op::Symlink { dir, name, target } => create::symlink(cx, dir, name, target),
        Op::Mknod {
            dir,
            name,
            kind,
            mode,
            rdev,
        } => mknod::mknod(cx, dir, name, *kind, *mode, *rdev),
        Op::Mkdir { dir, name, mode } => mkdir::mkdir(cx, dir, name, *mode),
        Op::Rmdir { dir, name } => remove::rmdir(cx, dir, name),
        Op::Unlink { dir, name, held } => remove::unlink(cx, dir, name, *held),
        Op::UnlinkMany { dir, names } => remove::unlink_many(cx, dir, names),
        Op::Release {
            slot,
            ino,
            generation,
        } => remove::release(cx, *slot, *ino, *generation),
        Op::SetAttr {
            object,
            change,
            handle,
        } => attr::set_attr(cx, object, change, handle.is_some()),
        Op::GetXattr { object, attr } => xattr::get(cx, object, attr),
        Op::ListXattr { object } => xattr::list(cx, object),
        Op::SetXattr {
            object,
            attr,
            value,
            mode,
        } => xattr::set(cx, object, attr, &value.0, *mode),
        Op::RemoveXattr { object, attr } => xattr::remove(cx, object, attr),
        Op::SetAcl { object, kind, list } => acl::set(cx, object, *kind, list.as_ref()),
        Op::Publish {
            object,
            handle: _,
            content,
            size,
            mtime,
            base,
        } => {
            let when = (*mtime, *base);
            publish::publish(cx, object, content, *size, when)
        }
        Op::Accessed {
            object,
            proof: _,
            ago,
        } => accessed::accessed(cx, object, *ago),
        Op::Rename {
            src,
            src_name,
            dst,
            dst_name,
            mode,
            held,
        } => rename::rename(cx, (src, src_name), (dst, dst_name), *mode, *held),
        Op::Link {
            object,
            dst,
            dst_name,
        } => file::link(cx, object, (dst, dst_name)),
        Op::Home {
            slot,
            ino,
            generation,
            ..
        } => file::at_home(cx, *slot, (*ino, *generation)),
        // Listings and whole-server operations are the server's: they need more than records under keys.
        Op::ReadDir { dir, after, .. } => readdir::check(cx, dir, *after),
        Op::StatFs | Op::Sync | Op::Bulk { .. } => Err(Stop::Fail(pando_types::Errno::Unsupported)),
    }
}
