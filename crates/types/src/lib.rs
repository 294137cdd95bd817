//! The vocabulary of Pando: identities, names, attributes, credentials, time and errors.
//!
//! This crate knows nothing of bytes on disk (`pando-format`), of messages (`pando-wire`) or of the world
//! (`pando-env`). Everything here is a plain value.

mod acl;
mod attr;
mod cred;
mod division;
mod error;
mod filelock;
mod identity;
mod ids;
mod name;
mod part;
pub mod plant;
mod tiling;
mod time;
mod xattr;

pub use acl::{ACL_ENTRIES_MAX, Acl, AclKind, Acls, Extended, Mode, Named};
pub use attr::{Attr, AttrChange, DirStat, FileKind, Perm, TimeChange};
pub use cred::{Access, Cred, Guard};
pub use division::Division;
pub use error::Errno;
pub use filelock::{Held, Hold, LockFamily, Span, Spans};
pub use identity::{AuthMode, Claims, IdentityId, PeerId, Users};
pub use ids::{
    Bearer, Birth, BootEpoch, DirId, FsId, Generation, Ids, Ino, Instance, MapEpoch, Realm, RequestId,
    RequestSlot, SLOTS, Sequence, ServerId, SessionId, Slot, Term, TxId, Watermark,
};
pub use name::{NAME_MAX, Name, PATH_MAX, SYMLINK_MAX};
pub use part::Part;
pub use tiling::{DEPTH_MAX, Tile, Tiling};
pub use time::{Mono, Timestamp};
pub use xattr::{XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_MAX, XattrMode, XattrName, XattrSpace, may_xattr};
