//! What travels in frames.

use crate::account::Account;
use crate::auth::{AuthAnswer, AuthError, AuthRequest};
use crate::change::ChangeInfo;
use crate::cut::{CutAnswer, CutError, CutRequest};
use crate::filelocks::{FileLockAnswer, FileLockRequest};
use crate::holds::{FileAt, Holders, Holding, Keep, Turned};
use crate::lease::LeaseRequest;
use crate::moving::{ClusterError, ClusterRequest, MoveAnswer, MoveRequest};
use crate::op::{Answer, Op, Probe, Statement};
use crate::repair::{RepairRequest, Repaired};
use crate::splitting::{SplitAnswer, SplitRequest};
use pando_format::codec::{Blob, Codec, DecodeError, Reader, put_part, take_part};
use pando_format::{
    Head, IdentityTable, Invalidation, Key, KeyRange, Mutation, NameHash, OwedRecord, Record, Remains,
    ReplyWrite, codec_enum, codec_struct,
};
use pando_types::{
    BootEpoch, Cred, DirId, Errno, Generation, Instance, MapEpoch, Mono, Part, RequestId, ServerId,
    SessionId, Term, TxId, Watermark,
};

/// An operation's result; an error is an outcome too, and is remembered like one.
pub type Outcome = Result<Answer, Errno>;

/// Any message after the hello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Asks.
    Request {
        /// Chosen by the asker, unique among what it has outstanding; the reply carries it, whoever sends
        /// that.
        id: u64,
        /// The boot of the receiver the sender believes in; a message to an earlier boot is refused (rule 2).
        boot: BootEpoch,
        /// What.
        request: Request,
        /// Whether the asker wants to know what work it made. It may be told nothing all the same.
        explain: bool,
    },
    /// Answers.
    Reply {
        /// Of the request.
        id: u64,
        /// What, or why not. A refusal means: not executed.
        result: Result<Response, Refusal>,
        /// What work it made; only if that was asked for.
        account: Option<Account>,
    },
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// An operation on the tree.
    Op(Box<OpRequest>),
    /// Registers a session with this server. Idempotent.
    OpenSession(SessionId),
    /// Signs of life.
    KeepAlive(Vec<SessionId>),
    /// Ends a session: its reply records and holds go.
    CloseSession(SessionId),
    /// The cluster map.
    GetMap,
    /// Does nothing: the ceiling of every other request (`bench null`). True: with a durable empty batch.
    Null(bool),
    /// Raw records of a range, for `fsck`.
    Scan {
        /// Which.
        range: KeyRange,
        /// At most so many.
        limit: u32,
    },
    /// Counters and state, as JSON text.
    Status,
    /// From another server.
    Peer(PeerRequest),
    /// From an operator: which servers there should be. For the coordinator.
    Cluster(ClusterRequest),
    /// From an operator: who may connect. For the server that the map names to serialise renames.
    Auth(AuthRequest),
    /// A sign of life of a session that keeps files open, and which.
    Holds(Holding),
    /// Entries of names in directories the asker has no statement of. All in slots of this server.
    Probe {
        /// Whose statements the answers will be.
        instance: Instance,
        /// On whose behalf: decides which keys the answers contain.
        cred: Cred,
        /// What.
        probes: Vec<Probe>,
    },
    /// From an operator: a cut through all servers, for a backup.
    Cut(CutRequest),
    /// From an operator: records that are wrong are put right, if they are still as they were found.
    Repair(RepairRequest),
    /// Locks of programs on files.
    Lock(FileLockRequest),
    /// From an operator: what is left of a range that cannot be read, for `fsck`.
    Remains(KeyRange),
}

/// An operation on the tree, as it is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpRequest {
    /// For mutating operations: the identity that a retry repeats.
    pub request: Option<RequestId>,
    /// Whether an earlier try may have been executed, here or on another server.
    pub again: bool,
    /// The caller's map: what was sent by an older one may be late, and have been repeated elsewhere.
    pub map: MapEpoch,
    /// Whose statements these are.
    pub instance: Instance,
    /// On whose behalf.
    pub cred: Cred,
    /// What.
    pub op: Op,
    /// What the statements in it of scope [`crate::Scope::Link`] hang on, in any order.
    pub ways: Vec<Statement>,
    /// Under which session the sender keeps files open, if it does.
    pub keep: Option<Keep>,
    /// In which parts of their directories the sender takes the first and the second name to be: their starts
    /// (`types::Tiling`). A retry keeps them, as it keeps its identity (H300).
    pub parts: [u16; 2],
}

impl From<OpRequest> for Request {
    fn from(asked: OpRequest) -> Request {
        Request::Op(Box::new(asked))
    }
}

/// Answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// Of an operation.
    Op(Box<Outcome>),
    /// Of an operation, with what else there is to say.
    Refreshed(Box<Refreshed>),
    /// Done, nothing to say.
    Ok,
    /// The cluster map, encoded by `pando-cluster`.
    Map(Blob),
    /// Raw records.
    Records(Vec<(Key, Record)>),
    /// JSON text.
    Status(String),
    /// To another server.
    Peer(PeerAnswer),
    /// What became of a change of servers: the map in force.
    Cluster(Result<Blob, ClusterError>),
    /// What became of a change of identities.
    Auth(Result<AuthAnswer, AuthError>),
    /// Files without a name that the session is thought to have open.
    Held(Vec<Turned>),
    /// For each probe, in order, equally many bytes: an entry sealed under the directory's key, or nothing
    /// (H99).
    Sealed(Vec<Blob>),
    /// What became of a cut.
    Cut(Result<CutAnswer, CutError>),
    /// What became of a repair.
    Repair(Repaired),
    /// About locks on files.
    Lock(FileLockAnswer),
    /// What is left of a range that cannot be read.
    Remains(Remains),
}

/// The outcome of an operation, and what the server knows of its directories beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refreshed {
    /// The outcome.
    pub outcome: Outcome,
    /// Statements of those whose statements were links, or older than what the server knows; in any order.
    pub fresh: Vec<Statement>,
    /// What became of the change attribute of the one that it changes or looks at.
    pub change: Option<ChangeInfo>,
}

impl From<Outcome> for Response {
    fn from(outcome: Outcome) -> Response {
        Response::Op(Box::new(outcome))
    }
}

impl Response {
    /// The outcome, of an operation's.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Response::Op(outcome) => Some(outcome),
            Response::Refreshed(told) => Some(&told.outcome),
            _ => None,
        }
    }

    /// The same, as it is.
    pub fn into_outcome(self) -> Option<Outcome> {
        match self {
            Response::Op(outcome) => Some(*outcome),
            Response::Refreshed(told) => Some(told.outcome),
            _ => None,
        }
    }
}

/// Why a request was not executed. The client reacts to each; none is shown to programs as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The server has started again since the sender learnt its boot epoch: learn this one and ask again.
    WrongBoot(BootEpoch),
    /// The slot belongs to another server by the map of this epoch: fetch it and ask again.
    NotOwner(MapEpoch),
    /// The session is not registered here, or it has ended.
    SessionUnknown,
    /// A newer request of the same request slot was seen: the answer to this one is gone (H46).
    TooOld,
    /// A lock could not be had in time, or a participant did not answer. Ask again later.
    Busy,
    /// The rename concerns directories: ask the server the map names for them (H28).
    UseCoordinator,
    /// The request makes no sense, or is not for clients.
    Invalid,
    /// The server is starting or stopping.
    NotReady,
    /// A statement in it was not made by this filesystem, or is signed with a key that is not accepted any
    /// more: look the directory up again (H98).
    BadStatement,
    /// A directory on the way has been renamed, or its permissions changed, since its statement was made:
    /// nothing that rests on this tag is true any more. 0: the statement is older than the server remembers;
    /// forget all (H13).
    Outdated(u64),
    /// The identity that asks may not do this: not as this user, not at all for its kind, or not any more.
    NotAllowed,
    /// The identity that asks may change nothing.
    ReadOnly,
    /// No server of this filesystem gave that handle to whoever asks.
    BadHandle,
    /// The session that is to keep a file open is not registered here, or has not said what it has open.
    KeeperUnknown,
    /// A name is not in the part that was asked: neither this try nor an earlier one was or will be executed
    /// under this identity (H300). The sender takes another, and the part that has the name.
    Elsewhere {
        /// Whether it is the second name.
        second: bool,
        /// The part that was asked.
        start: u16,
        /// How often that was halved: all it gave away is there. `None`: there is no such part.
        depth: Option<u8>,
    },
}

/// Shared or exclusive, or commutative with its own kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockMode {
    /// Readers.
    Shared,
    /// Commutative changes.
    Increment,
    /// One writer.
    Exclusive,
}

/// One record (or bucket) an operation needs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockWant {
    /// One record.
    Key(Key, LockMode),
    /// All records of a name's bucket.
    Bucket(Part, pando_format::NameHash, LockMode),
    /// The attachments of an entry, under the entry's bucket lock.
    Attachments(Key),
}

/// Server to server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerRequest {
    /// Locks and reads. The locks are volatile until a prepare; they end with a decision, or when the
    /// coordinator, asked, does not know the transaction.
    Lock {
        /// For whom.
        tx: TxId,
        /// Every transaction of the coordinator's boot below this number is finished (H39).
        low: u64,
        /// Whether locks were taken before by another `Lock`: if they are gone it is refused (H124).
        locked: bool,
        /// What.
        wants: Vec<LockWant>,
        /// Whether locks that are taken are waited for, in order; or else it is busy at once.
        wait: bool,
    },
    /// Votes. A yes is durable before it is sent, in both durabilities (H40).
    Prepare {
        /// Which.
        tx: TxId,
        /// As in `Lock`.
        low: u64,
        /// Whether locks were taken before by `Lock`: if they are gone the vote is no.
        locked: bool,
        /// What to change.
        mutations: Vec<Mutation>,
        /// A reply record of a slot of this server.
        reply: Option<ReplyWrite>,
    },
    /// The outcome, as soon as there is one. Not answered: who does not hear it is told again (`Settle`), or
    /// asks.
    Decide {
        /// Which.
        tx: TxId,
        /// Commit or abort.
        commit: bool,
    },
    /// The outcomes of a while once more. Answered when the effects of all that are committed are synced
    /// (H38).
    Settle {
        /// Those that are committed.
        committed: Vec<TxId>,
        /// Those that are aborted, or only borrowed locks.
        aborted: Vec<TxId>,
    },
    /// The content of directories that were born on the asking server, for whom it is decided already.
    /// Answered when it is synced; sent again until then.
    Content {
        /// As in `Lock`.
        low: u64,
        /// Epoch of the sender's map: who got a slot since may have had the directory, and lost it, meanwhile
        /// (H118).
        map: MapEpoch,
        /// What, each with the name that says that it comes for the second time.
        contents: Vec<(TxId, OwedRecord)>,
    },
    /// Do you still owe the content of this directory, that was born in this one? Answered when you do not
    /// (any more).
    Owes {
        /// The parent.
        parent: DirId,
        /// The directory.
        dir: DirId,
        /// Which of those that have its ID.
        generation: Generation,
    },
    /// What became of a transaction you coordinate?
    Inquire(TxId),
    /// A directory's head, for the ancestor walk; waits for locks.
    Head(DirId),
    /// A server follows the coordinator: it asks for what it has not heard of the log of invalidations (H15),
    /// and for its lease. A server that is not the coordinator passes it on: two servers may not reach each
    /// other while others reach both.
    Follow {
        /// Who follows.
        who: ServerId,
        /// Its boot: what an earlier one had heard is lost.
        boot: BootEpoch,
        /// The term it believes in.
        term: Term,
        /// Epoch of the map it knows.
        map: MapEpoch,
        /// How far it has heard the log; 0: it knows nothing of it.
        heard: Watermark,
        /// The coordinator's boot and time in its latest answer: prove that it was followed then.
        echo: (BootEpoch, Mono),
        /// Whether another server passes it on.
        relayed: bool,
    },
    /// The coordinator tells entries of its log, in order and without gaps: those after `after` (H12).
    Invalidate {
        /// Whose log (H27).
        term: Term,
        /// The entry before the first.
        after: Watermark,
        /// One after the other.
        entries: Vec<Invalidation>,
    },
    /// Who may connect, if that is newer than this version.
    Identities(u64),
    /// Who may connect from now on.
    Adopt(IdentityTable),
    /// Slots move.
    Moving(MoveRequest),
    /// About a part of a directory that is split.
    Split(SplitRequest),
    /// The map that is in force now.
    NewMap(Blob),
    /// How many records do you have?
    Load,
    /// About leases on directories.
    Lease(LeaseRequest),
}

/// Answers between servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerAnswer {
    /// Locked.
    Locked {
        /// What was there.
        records: Vec<(Key, Record)>,
        /// Which of the files among it somebody has open.
        held: Vec<(FileAt, Holders)>,
    },
    /// A vote.
    Vote(Vote),
    /// What was decided is applied and synced.
    Decided,
    /// What became of the content that was owed, of each in turn.
    Content(Vec<Stored>),
    /// It is not owed.
    NotOwed,
    /// How many records the server has: an estimate.
    Load(u64),
    /// As `Content`, where IDs are placed, with the server's load.
    Stored {
        /// Of each in turn.
        stored: Vec<Stored>,
        /// How many records the server has now.
        records: u64,
    },
    /// State of a transaction.
    State(TxState),
    /// A head.
    Head(Option<Head>),
    /// What a follower has to know.
    Lead {
        /// The coordinator's term.
        term: Term,
        /// Whether the coordinator is in office, and the follower has its lease, counted from when it asked.
        granted: bool,
        /// The coordinator's boot and time, to be shown the next time.
        echo: (BootEpoch, Mono),
        /// The entry before the first. Above what the follower has heard: so much is forgotten, and with it
        /// whatever is older (H13).
        after: Watermark,
        /// All entries after it.
        entries: Vec<Invalidation>,
        /// The map, if the follower has an older one.
        map: Option<Blob>,
    },
    /// How far the log has been heard here; nothing that contradicts it will be executed any more.
    Heard {
        /// By which boot: what it heard is lost with it.
        boot: BootEpoch,
        /// So far.
        upto: Watermark,
    },
    /// Who may connect; nothing, if the asker knows the latest.
    Identities(Option<IdentityTable>),
    /// It is in force here, and the connections of those who may not are closed.
    Adopted,
    /// About slots that move.
    Moving(MoveAnswer),
    /// To `Split`.
    Split(SplitAnswer),
    /// To `Lease`: until when, in the coordinator's time; 0: nothing is granted now.
    Leased(Watermark),
}

/// A participant's vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vote {
    /// It will commit if told to, whatever happens.
    Yes,
    /// A record to insert exists already (a directory ID is taken).
    Exists,
    /// The locks were lost, or the transaction is finished.
    No,
    /// No room.
    NoSpace,
}

/// What became of content that was owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// It is synced.
    Yes,
    /// It is synced; ask before there is more, for there is little room.
    YesButFull,
    /// The ID has content of another directory.
    Taken,
}

/// What a coordinator knows of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxState {
    /// Not decided yet: hold on and ask again.
    Active,
    /// Committed.
    Committed,
    /// Aborted, or never decided by a boot that is over.
    Aborted,
}

/// Tags of messages: with and without an account.
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const EXPLAIN: u8 = 3;
const EXPLAINED: u8 = 4;

fn put_request(id: u64, boot: BootEpoch, request: &Request, explain: bool, out: &mut Vec<u8>) {
    out.push(if explain { EXPLAIN } else { REQUEST });
    id.put(out);
    boot.put(out);
    request.put(out);
}

impl Message {
    /// The bytes of a [`Message::Request`], for who needs the request again.
    pub fn request_bytes(id: u64, boot: BootEpoch, request: &Request, explain: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        put_request(id, boot, request, explain, &mut out);
        out
    }
}

impl Codec for Message {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Message::Request {
                id,
                boot,
                request,
                explain,
            } => put_request(*id, *boot, request, *explain, out),
            Message::Reply { id, result, account } => {
                out.push(if account.is_some() { EXPLAINED } else { REPLY });
                id.put(out);
                result.put(out);
                if let Some(account) = account {
                    account.put(out);
                }
            }
        }
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(r)? {
            tag @ (REQUEST | EXPLAIN) => Ok(Message::Request {
                id: u64::take(r)?,
                boot: BootEpoch::take(r)?,
                request: Request::take(r)?,
                explain: tag == EXPLAIN,
            }),
            tag @ (REPLY | EXPLAINED) => Ok(Message::Reply {
                id: u64::take(r)?,
                result: Result::take(r)?,
                account: if tag == EXPLAINED {
                    Some(Account::take(r)?)
                } else {
                    None
                },
            }),
            tag => Err(DecodeError::Tag { of: "Message", tag }),
        }
    }
}

/// Parts stand there only if one is not 0: then the byte before what is kept open has the second bit.
impl Codec for OpRequest {
    fn put(&self, out: &mut Vec<u8>) {
        self.request.put(out);
        self.again.put(out);
        self.map.put(out);
        self.instance.put(out);
        self.cred.put(out);
        self.op.put(out);
        self.ways.put(out);
        let split = self.parts != [0, 0];
        out.push(u8::from(self.keep.is_some()) | u8::from(split) << 1);
        if let Some(keep) = &self.keep {
            keep.put(out);
        }
        if split {
            self.parts.iter().for_each(|start| start.put(out));
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (request, again, map) = (Codec::take(r)?, Codec::take(r)?, Codec::take(r)?);
        let (instance, cred, op) = (Codec::take(r)?, Codec::take(r)?, Codec::take(r)?);
        let ways = Codec::take(r)?;
        let tag = u8::take(r)?;
        if tag > 3 {
            return Err(DecodeError::Tag { of: "OpRequest", tag });
        }
        let keep = match tag & 1 {
            0 => None,
            _ => Some(Keep::take(r)?),
        };
        let parts = match tag & 2 {
            0 => [0, 0],
            _ => [u16::take(r)?, u16::take(r)?],
        };
        Ok(OpRequest {
            request,
            again,
            map,
            instance,
            cred,
            op,
            ways,
            keep,
            parts,
        })
    }
}
codec_struct!(Refreshed {
    outcome,
    fresh,
    change
});
codec_enum!(Request {
    1 => Op(o),
    2 => OpenSession(s),
    3 => KeepAlive(s),
    4 => CloseSession(s),
    5 => GetMap,
    6 => Null(durable),
    7 => Scan { range, limit },
    8 => Status,
    9 => Peer(p),
    10 => Probe { instance, cred, probes },
    11 => Auth(a),
    12 => Cluster(c),
    13 => Cut(c),
    14 => Holds(h),
    15 => Lock(l),
    19 => Repair(r),
    20 => Remains(range),
});
codec_enum!(Response {
    1 => Op(o), 2 => Ok, 3 => Map(m), 4 => Records(r), 5 => Status(s), 6 => Peer(p), 7 => Sealed(s),
    8 => Refreshed(r), 9 => Auth(a), 10 => Cluster(c), 12 => Held(h), 13 => Cut(c), 15 => Lock(l),
    19 => Repair(r), 20 => Remains(r)
});
codec_enum!(Refusal {
    1 => WrongBoot(b), 2 => NotOwner(e), 3 => SessionUnknown, 4 => TooOld, 5 => Busy, 6 => UseCoordinator,
    7 => Invalid, 8 => NotReady, 9 => BadStatement, 10 => Outdated(t), 11 => NotAllowed, 12 => ReadOnly, 13 => BadHandle,
    14 => KeeperUnknown, 15 => Elsewhere { second, start, depth }
});
codec_enum!(LockMode { 1 => Shared, 2 => Increment, 3 => Exclusive });
/// A bucket of part 0 is written as one of its directory, as before there were others.
impl Codec for LockWant {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            LockWant::Key(key, mode) => {
                out.push(1);
                key.put(out);
                mode.put(out);
            }
            LockWant::Bucket(part, hash, mode) => {
                out.push(if part.start() == 0 { 2 } else { 4 });
                put_part(*part, out);
                hash.put(out);
                mode.put(out);
            }
            LockWant::Attachments(key) => {
                out.push(3);
                key.put(out);
            }
        }
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = u8::take(r)?;
        Ok(match tag {
            1 => LockWant::Key(Key::take(r)?, LockMode::take(r)?),
            2 | 4 => LockWant::Bucket(take_part(tag == 4, r)?, NameHash::take(r)?, LockMode::take(r)?),
            3 => LockWant::Attachments(Key::take(r)?),
            tag => return Err(DecodeError::Tag { of: "LockWant", tag }),
        })
    }
}
codec_enum!(PeerRequest {
    1 => Lock { tx, low, locked, wants, wait },
    2 => Prepare { tx, low, locked, mutations, reply },
    3 => Decide { tx, commit },
    4 => Inquire(tx),
    5 => Head(dir),
    6 => Follow { who, boot, term, map, heard, echo, relayed },
    7 => Invalidate { term, after, entries },
    8 => Identities(known),
    9 => Adopt(table),
    10 => NewMap(map),
    11 => Settle { committed, aborted },
    12 => Content { low, map, contents },
    13 => Owes { parent, dir, generation },
    14 => Load,
    20 => Moving(m),
    21 => Split(s),
    22 => Lease(l),
});
codec_enum!(PeerAnswer {
    1 => Locked { records, held }, 2 => Vote(v), 3 => Decided, 4 => State(s), 5 => Head(h),
    6 => Lead { term, granted, echo, after, entries, map }, 7 => Heard { boot, upto }, 8 => Identities(t), 9 => Adopted,
    10 => Content(s), 11 => NotOwed, 12 => Load(records), 13 => Stored { stored, records },
    20 => Moving(m), 21 => Split(s), 22 => Leased(until)
});
codec_enum!(Vote { 1 => Yes, 2 => Exists, 3 => No, 4 => NoSpace });
codec_enum!(Stored { 1 => Yes, 2 => YesButFull, 3 => Taken });
codec_enum!(TxState { 1 => Active, 2 => Committed, 3 => Aborted });
