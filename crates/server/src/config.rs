//! What a server is told at start, and whom it tells what it does.

use crate::FileLockBounds;
use pando_auth::Secrets;
use pando_cluster::ClusterMap;
use pando_format::Invalidation;
use pando_store::Lsn;
use pando_types::{Bearer, Cred, RequestId, ServerId, Timestamp, Watermark};
use pando_wire::{ChangeInfo, Op, Outcome, Statement};
use std::time::Duration;

/// Identity and limits of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its number.
    pub id: ServerId,
    /// The cluster.
    pub map: ClusterMap,
    /// What the servers of the filesystem share.
    pub secrets: Secrets,
    /// Bounds.
    pub limits: Limits,
}

/// Bounds and periods. Small ones make rare paths common in tests.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest wait for a lock before the request is refused as busy.
    pub lock_wait: Duration,
    /// How long a coordinator waits for one answer of a participant.
    pub peer_timeout: Duration,
    /// How often a coordinator asks an unresponsive participant to prepare before it aborts.
    pub prepare_tries: u32,
    /// For so long a coordinator gathers outcomes before it tells them once more, to have them confirmed and
    /// forget them.
    pub settle_after: Duration,
    /// In `async`, for so long what is owed to other servers is gathered before it is synced and sent, unless
    /// somebody waits for something.
    pub owed_after: Duration,
    /// Age at which a participant asks the coordinator about a transaction.
    pub inquire_after: Duration,
    /// A session without a sign of life for this long ends.
    pub session_timeout: Duration,
    /// How long the name of an ended session is remembered, so that nothing late revives it.
    pub session_memory: Duration,
    /// Sessions at once.
    pub sessions: usize,
    /// Sessions that live, or ended and are remembered.
    pub sessions_remembered: usize,
    /// The same of one identity.
    pub identity_sessions: usize,
    /// Lanes of a session.
    pub lanes: usize,
    /// Lanes of all sessions of one identity: each keeps an answer, of up to a kilobyte.
    pub identity_lanes: usize,
    /// Inode numbers and generations set aside per reservation.
    pub number_block: u64,
    /// Entries of a listing page.
    pub page: u32,
    /// Growing operations are refused when less than this is free.
    pub reserve_bytes: u64,
    /// How long a measurement of free space is believed.
    pub space_memory: Duration,
    /// Entries of the invalidation log that are remembered: clients that know less forget all they know.
    pub invalidations: usize,
    /// For so long a server acts on what it has heard from the coordinator without being told that it still
    /// may; so long a silent one holds up changes of directories at most.
    pub server_lease: Duration,
    /// Directories whose parents the coordinator keeps in mind.
    pub parents: usize,
    /// How often a server asks who may connect, lest it missed a change.
    pub identity_period: Duration,
    /// Requests of one identity being served at one time; more are refused as busy.
    pub requests: usize,
    /// Bytes of the messages they came in; with more, all but a first one are refused as busy.
    pub request_bytes: usize,
    /// Files that one session may have open at one server; more are refused as busy.
    pub session_holds: usize,
    /// The same of all sessions of one identity.
    pub identity_holds: usize,
    /// Slots that are moved together.
    pub slots_at_once: usize,
    /// How long a slot that moves is waited for to come to rest; it is served by nobody meanwhile.
    pub rest_wait: Duration,
    /// How long a cut may hold this server still.
    pub cut_hold: Duration,
    /// How long the picture of a cut stays that nobody reads.
    pub cut_idle: Duration,
    /// Whether operations that need nothing but this server's memory are executed at once. Off, all go the
    /// long way, which is otherwise gone by few.
    pub at_once: bool,
    /// Locks of programs on files.
    pub file_locks: FileLockBounds,
    /// How long a client that has localised a directory has it, unless it asks for more.
    pub localised: Duration,
    /// Period of background work: inquiries, session expiry, deletion of file data.
    pub tick: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            lock_wait: Duration::from_secs(2),
            peer_timeout: Duration::from_secs(1),
            prepare_tries: 3,
            settle_after: Duration::from_millis(50),
            owed_after: Duration::from_millis(10),
            inquire_after: Duration::from_millis(500),
            session_timeout: Duration::from_secs(60),
            session_memory: Duration::from_secs(3600),
            sessions: 100_000,
            sessions_remembered: 1_000_000,
            identity_sessions: 50_000,
            lanes: 256,
            identity_lanes: 500_000,
            number_block: 1024,
            page: 1024,
            reserve_bytes: 64 << 20,
            space_memory: Duration::from_millis(50),
            invalidations: 4096,
            server_lease: Duration::from_secs(3),
            parents: 256 * 1024,
            identity_period: Duration::from_secs(2),
            requests: 4096,
            request_bytes: 64 << 20,
            session_holds: 1 << 20,
            identity_holds: 4 << 20,
            slots_at_once: 64,
            rest_wait: Duration::from_millis(100),
            cut_hold: Duration::from_secs(1),
            cut_idle: Duration::from_secs(20),
            at_once: true,
            file_locks: FileLockBounds {
                session: 65_536,
                file: 16_384,
                patience: Duration::from_secs(10),
                reserved: Duration::from_secs(1),
            },
            localised: Duration::from_secs(5),
            tick: Duration::from_millis(250),
        }
    }
}

impl Limits {
    /// What is kept free of a device of so many bytes.
    pub fn reserve(&self, total: u64) -> u64 {
        self.reserve_bytes.min(total / 8)
    }

    /// So small that pages, blocks of numbers and sessions end all the time.
    pub fn tiny() -> Limits {
        Limits {
            number_block: 3,
            page: 3,
            lanes: 8,
            sessions: 200,
            invalidations: 6,
            parents: 4,
            slots_at_once: 200,
            file_locks: FileLockBounds {
                session: 24,
                ..Limits::default().file_locks
            },
            ..Limits::default()
        }
    }
}

/// An operation at the instant it took effect.
pub struct Executed<'a> {
    /// Number of the message that asked.
    pub message: u64,
    /// Name of a mutating request.
    pub request: Option<RequestId>,
    /// On whose behalf.
    pub cred: &'a Cred,
    /// Who asked, and whose statements it rests on.
    pub holder: Bearer,
    /// What.
    pub op: &'a Op,
    /// In which parts the asker took its names to be.
    pub parts: [u16; 2],
    /// What it rests on: of the directories it names those that must be as said, each with its whole way.
    pub dirs: [Option<&'a Statement>; 2],
    /// What it makes untrue, of which every server has heard before.
    pub announced: &'a [Invalidation],
    /// Position of the last of these in the log.
    pub announced_upto: Watermark,
    /// A guess: on nobody's behalf, and resting on nothing.
    pub guess: bool,
    /// The server's calendar time that the operation used.
    pub now: Timestamp,
    /// What the caller is told once `lsn` is durable.
    pub outcome: &'a Outcome,
    /// The store's position at that instant.
    pub lsn: Lsn,
    /// Whether it changed anything.
    pub changed: bool,
    /// What it says of its directory's change attribute.
    pub change: Option<ChangeInfo>,
}

/// Hears what a server does: metrics and slow-operation logs in production, the judge in the simulator.
pub trait Observer {
    /// Called when an operation's batch was applied (for a distributed one: its decision) or, if it changed
    /// nothing, when its records were read. It counts once `lsn` is durable.
    fn executed(&self, e: &Executed<'_>);

    /// Called when an operation that changes nothing is decided on locks that other servers lent. They are
    /// still to confirm that they held them; if they do, it took effect now, however long that takes.
    fn weighed(&self, _e: &Executed<'_>) {}

    /// Another map is in force.
    fn new_map(&self, _map: &ClusterMap) {}

    /// The server cannot go on: its store is poisoned. It serves nothing from here on.
    fn fatal(&self, why: &str);
}
