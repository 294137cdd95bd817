//! Every kind of message.

use super::records::{self, DIR, SESSION, TIME, TX, name};
use super::{cuts, filelocks, identities, moving, splitting};
use crate::targets::INSTANCE;
use pando_format::codec::Blob;
use pando_format::{Codec, Key, Layout, NameHash, Position, Scan};
use pando_types::{
    Acl, AclKind, Acls, Attr, AttrChange, BootEpoch, Cred, DirStat, Errno, FileKind, Generation, Ino,
    MapEpoch, Mono, Named, Perm, RequestId, RequestSlot, Sequence, ServerId, Slot, Term, TimeChange,
    Watermark, XattrMode, XattrName,
};
use pando_wire::{
    Account, Answer, Bulk, Bulked, ChangeInfo, Content, DirEntry, EntryView, Errand, ErrandEnd, Fate, FileAt,
    FsStat, Handle, Held, Holders, Holding, Keep, LockMode, LockWant, Message, Object, Op, OpRequest,
    PeerAnswer, PeerRequest, Probe, Refreshed, Refusal, RenameMode, Repaired, Request, Response, Said, Scope,
    SealKey, Statement, Stored, Task, Turned, TxState, Vote,
};

/// A statement whose MAC is a small number: the target `server` takes it for which of those it knows.
pub(super) fn statement(which: u128) -> Statement {
    Statement::from(Said {
        parent: DIR,
        parent_generation: Generation(2),
        name: name("d"),
        id: DIR,
        generation: Generation(3),
        ino: Ino(4),
        salt: 5,
        perm: Perm::new(0o755),
        uid: 6,
        gid: 7,
        acls: lists(),
        realm: pando_types::Realm(1),
        seal: 8,
        scope: Scope::Link,
        way: vec![9, 10],
        at: Watermark(11),
        mac: which,
    })
}

/// Both lists, with somebody named in each.
pub(super) fn lists() -> Acls {
    let list = list();
    Acls {
        access: list.split().1,
        default: Some(list),
    }
}

fn list() -> Acl {
    Acl {
        owner: 7,
        users: vec![Named { id: 1000, may: 6 }],
        group: 5,
        groups: vec![Named { id: 7, may: 1 }, Named { id: 100, may: 4 }],
        mask: Some(6),
        other: 0,
    }
}

pub(super) fn statements() -> Vec<Statement> {
    let handle = Statement::from(Said {
        scope: Scope::Handle,
        way: vec![10],
        ..Said::clone(&statement(2))
    });
    vec![
        statement(0),
        statement(u128::MAX),
        handle,
        Statement::above_root(),
    ]
}

fn attr(kind: FileKind) -> Attr {
    Attr {
        ino: Ino(0x0abc_0000_0000_0002),
        generation: Generation(3),
        kind,
        perm: Perm::new(0o644),
        uid: 1000,
        gid: 100,
        nlink: 1,
        size: 5,
        allocated: 0,
        rdev: 0,
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
    }
}

pub(super) fn views() -> Vec<EntryView> {
    let view = |kind, layout: Layout| EntryView {
        attr: Attr {
            allocated: layout.allocated(attr(kind).size),
            ..attr(kind)
        },
        dir: None,
        seal: None,
        layout,
        version: 4,
        home: None,
        xattrs: kind == FileKind::Regular,
        acl: lists().access.filter(|_| kind == FileKind::Regular),
        lease: 0,
    };
    let sparse = |size, layout: Layout| {
        let mut view = view(FileKind::Regular, layout);
        (view.attr.size, view.attr.allocated) = (size, view.layout.allocated(size));
        view
    };
    let dir = EntryView {
        dir: Some(statement(1)),
        seal: Some(SealKey([1; 32])),
        ..view(FileKind::Directory, Layout::None)
    };
    vec![
        EntryView {
            seal: None,
            ..dir.clone()
        },
        EntryView {
            lease: 1500,
            ..dir.clone()
        },
        dir,
        view(FileKind::Regular, Layout::Inline),
        view(FileKind::Regular, Layout::Blocks(4096)),
        sparse(1 << 30, Layout::SparseInline(5)),
        sparse(
            1 << 40,
            Layout::Sparse {
                block_size: 4096,
                allocated: 12288,
            },
        ),
        view(FileKind::Symlink, Layout::Target(Blob(b"../there".to_vec()))),
        view(FileKind::Symlink, Layout::LongTarget),
        view(FileKind::Fifo, Layout::None),
        EntryView {
            home: Some(statement(2)),
            ..view(FileKind::Regular, Layout::Inline)
        },
    ]
}

/// Every operation, on the directory `which`.
pub(super) fn operations(which: u128) -> Vec<Op> {
    let dir = || statement(which);
    let bulk = |step| Op::Bulk { dir: dir(), step };
    let lease = Generation(0x1_0000_0000_3abc);
    let n = || name("f");
    let (ino, generation) = (Ino(1), Generation(1));
    let change = AttrChange {
        perm: Some(Perm::new(0o700)),
        uid: Some(1),
        gid: Some(2),
        size: Some(3),
        atime: Some(TimeChange::Now),
        mtime: Some(TimeChange::To(TIME)),
    };
    let publish = |content| Op::Publish {
        object: Object {
            dir: dir(),
            name: n(),
            ino,
            generation,
        },
        content,
        size: 5,
        mtime: Some(TIME),
        base: Some(7),
        handle: Handle(6),
    };
    let attr = XattrName::capability;
    let set = |mode| Op::SetXattr {
        object: Object {
            dir: dir(),
            name: n(),
            ino,
            generation,
        },
        attr: attr(),
        value: Blob(vec![1, 0, 0, 2]),
        mode,
    };
    let list_set = |kind, list| Op::SetAcl {
        object: Object {
            dir: dir(),
            name: n(),
            ino,
            generation,
        },
        kind,
        list,
    };
    let rename = |mode| Op::Rename {
        src: dir(),
        src_name: n(),
        dst: statement(which + 1),
        dst_name: name("g"),
        mode,
        held: false,
    };
    vec![
        Op::Lookup {
            dir: dir(),
            name: n(),
        },
        Op::DirStat { dir: dir() },
        Op::ReadLink {
            dir: dir(),
            name: n(),
        },
        Op::Open {
            dir: dir(),
            name: n(),
            want: 6,
        },
        Op::ReadDir {
            dir: dir(),
            after: Position::START,
            limit: 100,
            plus: true,
        },
        Op::StatFs,
        Op::Sync,
        Op::Create {
            dir: dir(),
            name: n(),
            mode: Perm::new(0o644).into(),
            exclusive: true,
            want: 6,
        },
        Op::Accessed {
            object: Object {
                dir: dir(),
                name: n(),
                ino,
                generation,
            },
            proof: Handle(6),
            ago: 1_000_000_000,
        },
        Op::Tmpfile {
            dir: dir(),
            mode: Perm::new(0o600).into(),
            linkable: true,
        },
        Op::Symlink {
            dir: dir(),
            name: n(),
            target: Blob(b"there".to_vec()),
        },
        Op::Mknod {
            dir: dir(),
            name: n(),
            kind: FileKind::CharDevice,
            mode: Perm::new(0o600).into(),
            rdev: 0x103,
        },
        Op::Mkdir {
            dir: dir(),
            name: n(),
            mode: Perm::new(0o755).into(),
        },
        Op::Rmdir {
            dir: dir(),
            name: n(),
        },
        Op::Unlink {
            dir: dir(),
            name: n(),
            held: true,
        },
        Op::UnlinkMany {
            dir: dir(),
            names: vec![n(), name("other")],
        },
        bulk(Bulk::Localize),
        bulk(Bulk::Renew { lease, more: true }),
        bulk(Bulk::Insert {
            lease,
            batch: 2,
            bytes: 4096,
            sum: [7; 32],
        }),
        bulk(Bulk::Return { lease }),
        Op::SetAttr {
            object: Object {
                dir: dir(),
                name: n(),
                ino,
                generation,
            },
            change,
            handle: Some(Handle(7)),
        },
        publish(Content::None),
        publish(Content::Inline(Blob(b"hello".to_vec()))),
        publish(Content::Blocks(512)),
        publish(Content::Sparse {
            block_size: 512,
            allocated: 3,
        }),
        rename(RenameMode::Replace),
        rename(RenameMode::NoReplace),
        rename(RenameMode::Exchange),
        Op::Home {
            slot: Slot(0x0abc),
            ino: Ino(0x0abc_0000_0000_0002),
            generation: Generation(3),
            proof: Handle(3),
        },
        Op::Release {
            slot: Slot(1),
            ino,
            generation,
        },
        Op::Reopen { dir: dir() },
        Op::Link {
            object: Object {
                dir: dir(),
                name: n(),
                ino,
                generation,
            },
            dst: statement(which + 1),
            dst_name: name("g"),
        },
        Op::GetXattr {
            object: Object {
                dir: dir(),
                name: n(),
                ino,
                generation,
            },
            attr: attr(),
        },
        Op::ListXattr {
            object: Object {
                dir: dir(),
                name: n(),
                ino,
                generation,
            },
        },
        set(XattrMode::Any),
        set(XattrMode::Create),
        set(XattrMode::Replace),
        list_set(AclKind::Access, Some(list())),
        list_set(AclKind::Default, Some(list())),
        list_set(AclKind::Default, None),
        Op::RemoveXattr {
            object: Object {
                dir: dir(),
                name: n(),
                ino,
                generation,
            },
            attr: attr(),
        },
    ]
}

pub(super) fn turned() -> Turned {
    Turned {
        file: FileAt {
            slot: Slot(0x0abc),
            ino: Ino(0x0abc_0000_0000_0002),
            generation: Generation(3),
        },
        turn: 7,
    }
}

fn keep() -> Keep {
    Keep {
        session: SESSION.keeping(),
        turn: 8,
        closed: vec![turned()],
    }
}

pub(super) fn ask(op: Op) -> Request {
    let request = op.mutates().then_some(RequestId {
        session: SESSION,
        slot: RequestSlot(0),
        sequence: Sequence(1),
    });
    OpRequest {
        parts: [0, 0],
        keep: None,
        request,
        again: false,
        map: MapEpoch(1),
        instance: INSTANCE,
        cred: Cred {
            uid: 0,
            gid: 0,
            groups: vec![4, 24],
        },
        op,
        ways: Vec::new(),
    }
    .into()
}

pub(super) fn requests() -> Vec<Request> {
    let mut all = vec![
        Request::OpenSession(SESSION),
        Request::KeepAlive(vec![SESSION]),
        Request::CloseSession(SESSION),
        Request::OpenSession(filelocks::session()),
        Request::GetMap,
        Request::Null(true),
        Request::Scan {
            range: Scan::Slot(Slot(1)).range(),
            limit: 10,
        },
        Request::Status,
        Request::Probe {
            instance: INSTANCE,
            cred: Cred::root(),
            probes: vec![Probe {
                dir: DIR,
                name: name("f"),
            }],
        },
    ];
    for whole in [true, false] {
        all.push(Request::Holds(Holding {
            session: SESSION.keeping(),
            map: MapEpoch(1),
            held: vec![Held {
                open: turned(),
                proof: Handle(5),
            }],
            closed: vec![turned()],
            whole,
        }));
    }
    let asked = OpRequest {
        parts: [0, 0],
        keep: Some(keep()),
        request: None,
        again: false,
        map: MapEpoch(1),
        instance: INSTANCE,
        cred: Cred::root(),
        op: Op::DirStat { dir: statement(1) },
        ways: statements(),
    };
    all.push(asked.into());
    all.extend(peer_requests().into_iter().map(Request::Peer));
    all.extend(identities::auth_requests().into_iter().map(Request::Auth));
    all.extend(moving::wishes().into_iter().map(Request::Cluster));
    all.extend(cuts::requests().into_iter().map(Request::Cut));
    all.push(Request::Repair(cuts::repair()));
    all.push(Request::Remains(Scan::Entries(DIR.into()).range()));
    all.extend(filelocks::requests().into_iter().map(Request::Lock));
    all
}

pub(super) fn wants() -> Vec<LockWant> {
    vec![
        LockWant::Key(Key::Head(DIR.into()), LockMode::Shared),
        LockWant::Key(Key::Touch(DIR.into()), LockMode::Increment),
        LockWant::Bucket(DIR.into(), NameHash(7), LockMode::Exclusive),
        LockWant::Bucket(splitting::upper(), NameHash(u64::MAX >> 8), LockMode::Shared),
        LockWant::Attachments(records::entry_key()),
    ]
}

pub(super) fn peer_requests() -> Vec<PeerRequest> {
    let (tx, low, wants) = (TX, 3, wants());
    let mut all = vec![
        PeerRequest::Lock {
            tx,
            low,
            locked: false,
            wants: wants.clone(),
            wait: true,
        },
        PeerRequest::Lock {
            tx,
            low,
            locked: true,
            wants,
            wait: false,
        },
        PeerRequest::Prepare {
            tx,
            low,
            locked: true,
            mutations: records::changes(),
            reply: Some(records::reply_write()),
        },
        PeerRequest::Decide { tx, commit: true },
        PeerRequest::Settle {
            committed: vec![tx],
            aborted: vec![tx],
        },
        PeerRequest::Content {
            low,
            map: MapEpoch(5),
            contents: vec![(tx, records::owed()), (tx, records::owed())],
        },
        PeerRequest::Load,
        PeerRequest::Owes {
            parent: DIR,
            dir: DIR,
            generation: Generation(3),
        },
        PeerRequest::Inquire(tx),
        PeerRequest::Head(DIR),
        PeerRequest::Follow {
            who: ServerId(2),
            boot: BootEpoch(3),
            term: Term(4),
            map: MapEpoch(5),
            heard: Watermark(6),
            echo: (BootEpoch(9), Mono(7)),
            relayed: true,
        },
        PeerRequest::Invalidate {
            term: Term(4),
            after: Watermark(11),
            entries: records::invalidations().to_vec(),
        },
        PeerRequest::Identities(2),
        PeerRequest::Adopt(identities::table()),
        PeerRequest::NewMap(Blob(vec![1, 2])),
    ];
    all.extend(moving::requests().into_iter().map(PeerRequest::Moving));
    all.extend(splitting::requests().into_iter().map(PeerRequest::Split));
    all.extend(splitting::leases().into_iter().map(PeerRequest::Lease));
    all
}

pub(super) fn answers() -> Vec<Answer> {
    let views = views();
    let stat = DirStat {
        entries: 3,
        subdirs: 1,
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
    };
    let line = |view: Option<EntryView>| DirEntry {
        position: Position(0x300),
        name: name("f"),
        ino: Ino(7),
        kind: FileKind::Regular,
        view: view.map(Box::new),
    };
    vec![
        Answer::Done,
        Answer::Entry(views[0].clone()),
        Answer::Opened {
            kept: true,
            entry: views[2].clone(),
            data: Some(Blob(b"hello".to_vec())),
            created: true,
            handle: Some(Handle(8)),
            proof: Handle(9),
        },
        Answer::Removed(views[3].clone()),
        Answer::Renamed {
            moved: Box::new(views[1].clone()),
            other: Some(Box::new(views[4].clone())),
        },
        Answer::DirStat(stat),
        Answer::Target(Blob(b"there".to_vec())),
        Answer::Entries {
            entries: vec![line(None), line(Some(views[5].clone()))],
            end: true,
        },
        Answer::Part {
            entries: vec![line(None)],
            upto: Position(0x400),
        },
        Answer::FsStat(FsStat {
            total: 9,
            available: 8,
            device: 3,
        }),
        Answer::Value(Blob(b"value".to_vec())),
        Answer::Names(vec![XattrName::capability()]),
        Answer::Fates(vec![Fate::Gone, Fate::Not(Errno::NotFound), Fate::Alone]),
        Answer::Bulk(Bulked::Localized {
            lease: Generation(0x1_0000_0000_3abc),
            table: Ino(0x0abc_0000_0000_0003),
            millis: 5000,
            now: TIME,
            numbers: records::numbers(),
        }),
        Answer::Bulk(Bulked::Renewed {
            millis: 5000,
            now: TIME,
            numbers: Some(records::numbers()),
        }),
        Answer::Bulk(Bulked::Inserted { entries: 7 }),
        Answer::Bulk(Bulked::Returned),
    ]
}

pub(super) fn results() -> Vec<Result<Response, Refusal>> {
    let mut all: Vec<Result<Response, Refusal>> = answers().into_iter().map(|a| Ok(Ok(a).into())).collect();
    let peers = [
        PeerAnswer::Locked {
            records: records::records(),
            held: vec![
                (turned().file, Holders::One(SESSION)),
                (turned().file, Holders::Several),
                (turned().file, Holders::Nobody),
            ],
        },
        PeerAnswer::Vote(Vote::Yes),
        PeerAnswer::Vote(Vote::Exists),
        PeerAnswer::Vote(Vote::No),
        PeerAnswer::Vote(Vote::NoSpace),
        PeerAnswer::Decided,
        PeerAnswer::Content(vec![Stored::Yes, Stored::YesButFull, Stored::Taken]),
        PeerAnswer::NotOwed,
        PeerAnswer::Load(12_345),
        PeerAnswer::Leased(Watermark(2500)),
        PeerAnswer::Stored {
            stored: vec![Stored::Yes],
            records: 7,
        },
        PeerAnswer::State(TxState::Active),
        PeerAnswer::State(TxState::Committed),
        PeerAnswer::State(TxState::Aborted),
        PeerAnswer::Head(Some(records::head())),
        PeerAnswer::Head(None),
        PeerAnswer::Lead {
            term: Term(4),
            granted: true,
            echo: (BootEpoch(9), Mono(7)),
            after: Watermark(11),
            entries: records::invalidations().to_vec(),
            map: Some(Blob(vec![1, 2])),
        },
        PeerAnswer::Heard {
            boot: BootEpoch(3),
            upto: Watermark(13),
        },
        PeerAnswer::Identities(None),
        PeerAnswer::Identities(Some(identities::table())),
        PeerAnswer::Adopted,
    ];
    all.extend(peers.into_iter().map(|p| Ok(Response::Peer(p))));
    all.extend(cuts::answers().into_iter().map(|a| Ok(Response::Cut(a))));
    all.push(Ok(Response::Remains(cuts::remains())));
    all.extend([Repaired::Done, Repaired::Changed, Repaired::Wrong].map(|r| Ok(Response::Repair(r))));
    all.extend([
        Ok(Err(Errno::NotFound).into()),
        Ok(Err(Errno::Io).into()),
        Ok(Response::Ok),
        Ok(Response::Refreshed(Box::new(Refreshed {
            outcome: Ok(Answer::Entry(views()[1].clone())),
            fresh: statements(),
            change: None,
        }))),
        Ok(Response::Refreshed(Box::new(Refreshed {
            outcome: Ok(Answer::Done),
            fresh: Vec::new(),
            change: Some(ChangeInfo {
                before: 0,
                after: u64::MAX,
                time: TIME,
            }),
        }))),
        Ok(Response::Auth(Ok(identities::auth_answer()))),
        Ok(Response::Map(Blob(vec![0; 16]))),
        Ok(Response::Records(records::records())),
        Ok(Response::Status("{}".into())),
        Ok(Response::Sealed(vec![Blob(vec![1; 40])])),
        Ok(Response::Held(vec![turned()])),
    ]);
    all.extend(identities::auth_errors().map(|e| Ok(Response::Auth(Err(e)))));
    let moves = moving::answers().into_iter().map(PeerAnswer::Moving);
    all.extend(moves.map(|m| Ok(Response::Peer(m))));
    let splits = splitting::answers().into_iter().map(PeerAnswer::Split);
    all.extend(splits.map(|s| Ok(Response::Peer(s))));
    all.push(Ok(Response::Cluster(Ok(Blob(vec![0; 16])))));
    all.extend(filelocks::answers().into_iter().map(|a| Ok(Response::Lock(a))));
    all.extend(
        moving::errors()
            .into_iter()
            .map(|e| Ok(Response::Cluster(Err(e)))),
    );
    let refusals = [
        Refusal::WrongBoot(BootEpoch(8)),
        Refusal::NotOwner(MapEpoch(2)),
        Refusal::SessionUnknown,
        Refusal::TooOld,
        Refusal::Busy,
        Refusal::UseCoordinator,
        Refusal::Invalid,
        Refusal::NotReady,
        Refusal::BadStatement,
        Refusal::Outdated(10),
        Refusal::NotAllowed,
        Refusal::ReadOnly,
        Refusal::BadHandle,
        Refusal::KeeperUnknown,
    ];
    all.extend(refusals.map(Err));
    all.extend(splitting::refusals().map(Err));
    all
}

pub(super) fn request(id: u64, request: Request) -> Message {
    Message::Request {
        id,
        boot: BootEpoch(1),
        request,
        explain: false,
    }
}

fn reply(result: Result<Response, Refusal>, account: Option<Account>) -> Message {
    Message::Reply {
        id: 9,
        result,
        account,
    }
}

/// What every kind of errand came to.
pub(super) fn account() -> Account {
    let tasks = [
        Task::Lock,
        Task::Prepare,
        Task::Content,
        Task::Commit,
        Task::Release,
        Task::Ancestor,
        Task::Invalidate,
        Task::Other,
    ];
    let ends = [
        ErrandEnd::Done,
        ErrandEnd::Voted(Vote::Yes),
        ErrandEnd::Refused(Refusal::Busy),
        ErrandEnd::Silent,
        ErrandEnd::Later,
    ];
    let errands = tasks.into_iter().zip(ends.into_iter().cycle());
    Account {
        took: 900,
        locks: 10,
        syncs: 300,
        again: 1,
        errands: errands
            .zip(0..)
            .map(|((what, end), at)| Errand {
                to: ServerId(2),
                what,
                at: at * 7,
                took: 5,
                end,
                locks: 1,
                syncs: 2,
            })
            .collect(),
        unlisted: 0,
    }
}

/// Inputs of the target `message`, outcomes alone among them.
pub(super) fn all() -> Vec<Vec<u8>> {
    let operations = operations(1).into_iter().map(ask);
    let asked = requests()
        .into_iter()
        .chain(operations)
        .map(|r| request(9, r).to_bytes());
    let replies = results().into_iter().map(|result| reply(result, None).to_bytes());
    let explained = [
        Message::Request {
            id: 9,
            boot: BootEpoch(1),
            request: ask(Op::StatFs),
            explain: true,
        },
        reply(Ok(Ok(Answer::Done).into()), Some(account())),
    ]
    .map(|m| m.to_bytes());
    let outcomes = answers().into_iter().map(|a| Ok::<_, Errno>(a).to_bytes());
    asked.chain(replies).chain(outcomes).chain(explained).collect()
}
