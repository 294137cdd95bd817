//! Messages between clients and servers and between servers, and the frames they travel in.
//!
//! Layouts are described in `docs/protocol.md`. Decoding never panics and never allocates more than was sent.

mod account;
mod auth;
mod bulk;
mod change;
mod cut;
mod filelocks;
mod frame;
mod hello;
mod holds;
mod lease;
mod message;
mod moving;
mod op;
mod repair;
mod splitting;

pub use account::{Account, Accounted, ERRANDS_MAX, Errand, ErrandEnd, Task};
pub use auth::{AuthAnswer, AuthChange, AuthError, AuthRequest, IdentityView};
pub use bulk::{Bulk, Bulked};
pub use change::{ChangeInfo, UNCHANGED};
pub use cut::{CutAnswer, CutError, CutId, CutRequest};
pub use filelocks::{FileLockAnswer, FileLockRequest, LockPlace, LockView, WantedLock};
pub use frame::{FRAME_HEADER, FRAME_MAX, FrameError, cut_frame, encode_frame};
pub use hello::{Denial, Hello, HelloReply, NONCE, Proof, Role, Way};
pub use holds::{CLOSED_MAX, FileAt, HOLDING_MAX, Held, Holders, Holding, Keep, Turned};
pub use lease::LeaseRequest;
pub use message::{
    LockMode, LockWant, Message, OpRequest, Outcome, PeerAnswer, PeerRequest, Refreshed, Refusal, Request,
    Response, Stored, TxState, Vote,
};
pub use moving::{ClusterError, ClusterRequest, CopyId, Holds, MoveAnswer, MoveRequest};
pub use op::{
    Answer, Content, DirEntry, EntryView, Fate, FsStat, Handle, INLINE_LIMIT_DEFAULT, INLINE_LIMIT_MAX,
    Object, Op, Probe, RenameMode, Said, Scope, SealKey, Shows, Statement, Subject, SubjectMut, UNLINK_MAX,
    traits,
};
pub use repair::{RepairRequest, Repaired};
pub use splitting::{Half, Pass, SplitAnswer, SplitRequest};

/// Version of everything in this crate; exchanged in the hello.
pub const PROTOCOL_VERSION: u16 = 12;
