//! The FUSE mount.
//!
//! A few threads take requests from the kernel. Each has a reactor and a client of its own, which it drives
//! inline ([`Driver`]); they share the node table and open files. Node ids are inode numbers.
//!
//! What the kernel may believe and for how long: names and attributes for [`MountOptions::timeout`], pages of
//! a file while this mount knows of no change by another since it last had the file open (close-to-open).
//! There is no write-back cache: a `write` is in this process when it returns, and published by `close`,
//! `fsync` or `truncate`.
//!
//! Knows nothing of servers, retries or sessions: those are the client's.

mod accessed;
mod again;
mod attach;
mod attr;
mod calls;
mod change;
mod core;
mod cred;
mod data;
mod driver;
mod errno;
mod fiber;
mod flags;
mod foreseen;
mod fs;
mod holder;
mod holes;
mod join;
mod kernel;
mod later;
mod list;
mod locks;
mod looked;
mod mount;
mod net;
mod node;
mod open;
mod publisher;
mod serve;
pub mod table;
mod trail;
mod turns;
mod watch;
mod xattr;

pub use attach::{TYPE, unmount};
pub use driver::{Cluster, Driver};
pub use flags::{Flags, remount};
pub use mount::{MountError, MountOptions, Mounted, mount, no_root, serve};
pub use net::{NetCluster, NetDriver};
