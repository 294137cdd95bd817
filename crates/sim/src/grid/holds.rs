//! What others keep open, spoken of by who has no part in it (H97).

use super::arena::{alice, mallory};
use super::speaker::{Speaker, named};
use super::{Arena, Cell, cell};
use pando_types::{Generation, Ino, Part, Perm, SLOTS, ServerId, SessionId, Slot};
use pando_wire::{Answer, FileAt, Handle, Held, Holding, Keep, Object, Op, Request, Response, Turned};
use std::rc::Rc;

/// The session under which somebody keeps files open, registered at a server.
async fn keeper(s: &Speaker, server: ServerId) -> Option<SessionId> {
    let session = s.session.keeping();
    s.ask(server, &Request::OpenSession(session)).await?;
    Some(session)
}

fn file(slot: Slot, n: u64) -> Turned {
    let file = FileAt {
        slot,
        ino: Ino(n),
        generation: Generation(1),
    };
    Turned { file, turn: 1 }
}

/// Mallory says what a session has open and what not any more. Whether it was heard.
async fn says(
    a: &Arena,
    server: ServerId,
    session: SessionId,
    (held, closed): (Vec<Held>, Vec<Turned>),
) -> Option<()> {
    let whole = true;
    let said = Holding {
        session,
        map: a.cluster.map().epoch,
        held,
        closed,
        whole,
    };
    match a.mallory.ask(server, &Request::Holds(said)).await? {
        Response::Held(_) => Some(()),
        _ => None,
    }
}

/// Mallory opens a file of its own: which, and what shows it.
async fn own_file(a: &Arena) -> Option<Held> {
    let dir = a.mallory.find(&mallory(), "/open").await?;
    let op = Op::Create {
        dir,
        name: named("mine")?,
        mode: Perm::new(0o600).into(),
        exclusive: false,
        want: 6,
    };
    match a.mallory.op(&mallory(), op).await? {
        Answer::Opened { entry, proof, .. } => {
            let (ino, generation) = (entry.attr.ino, entry.attr.generation);
            let (slot, turn) = (Slot(0), 1);
            let file = FileAt {
                slot,
                ino,
                generation,
            };
            let open = Turned { file, turn };
            Some(Held { open, proof })
        }
        _ => None,
    }
}

fn held_at(slot: Slot, held: &Held) -> Held {
    let mut held = *held;
    held.open.file.slot = slot;
    held
}

/// Alice opens a file of hers, by one of its two names. Its home's slot, and what shows that she opened it.
async fn hers_at_home(a: &Arena) -> Option<(FileAt, Handle)> {
    let dir = a.alice.find(&alice(), "/private").await?;
    let there = a.alice.write(&alice(), &dir, "two", 0o600, "secret").await?;
    let link = Op::Link {
        object: Object::shown(dir.clone(), named("two")?, &there.attr),
        dst: dir.clone(),
        dst_name: named("names")?,
    };
    a.alice.op(&alice(), link).await?;
    let (name, want) = (named("two")?, 4);
    match a.alice.op(&alice(), Op::Open { dir, name, want }).await? {
        Answer::Opened { entry, proof, .. } => {
            let file = FileAt {
                slot: Part::whole(entry.home?.id).slot(),
                ino: entry.attr.ino,
                generation: entry.attr.generation,
            };
            Some((file, proof))
        }
        _ => None,
    }
}

/// Mallory asks where it is.
async fn find(a: &Arena, at: FileAt, proof: Handle) -> Option<()> {
    a.mallory.find(&mallory(), "/").await?;
    a.mark().await;
    let FileAt {
        slot,
        ino,
        generation,
    } = at;
    let op = Op::Home {
        slot,
        ino,
        generation,
        proof,
    };
    match a.mallory.op(&mallory(), op).await? {
        Answer::Entry(view) => view.home.map(|_| ()),
        _ => None,
    }
}

/// A slot, and the server that has it.
async fn at_open(a: &Arena) -> Option<(Slot, ServerId)> {
    let dir = a.mallory.find(&mallory(), "/open").await?;
    let server = a.mallory.home(dir.id);
    Some((Part::whole(dir.id).slot(), server))
}

pub(super) const CELLS: &[Cell] = &[
    cell!(
        "open file",
        "another's, said to be closed",
        ["G70"],
        "makes a file go that another has open",
        async |a: Rc<Arena>| {
            let (slot, server) = at_open(&a).await?;
            let session = keeper(&a.alice, server).await?;
            a.mark().await;
            says(&a, server, session, (Vec::new(), vec![file(slot, 9)])).await
        }
    ),
    cell!(
        "open file",
        "another's, said to be closed with a request",
        ["G70"],
        "makes a file go that another has open",
        async |a: Rc<Arena>| {
            let (slot, server) = at_open(&a).await?;
            let session = keeper(&a.alice, server).await?;
            a.mark().await;
            let dir = a.mallory.find(&mallory(), "/open").await?;
            let op = Op::DirStat { dir };
            let mut request = a.mallory.asking(None, &mallory(), &op, &[]);
            if let Request::Op(asked) = &mut request {
                let closed = vec![file(slot, 9)];
                let turn = 0;
                asked.keep = Some(Keep {
                    session,
                    turn,
                    closed,
                });
            }
            a.mallory.ask(server, &request).await.map(|_| ())
        }
    ),
    cell!(
        "open file",
        "more than a session may have",
        ["G71"],
        "fills a server's memory with files that are not there",
        async |a: Rc<Arena>| {
            let (_, server) = at_open(&a).await?;
            let session = keeper(&a.mallory, server).await?;
            let proof = own_file(&a).await?;
            a.mark().await;
            // What shows that it was opened does not say where it is.
            let map = a.cluster.map();
            let slots = (0..SLOTS).map(Slot).filter(|s| map.owner(*s) == server);
            let held = slots.take(20).map(|slot| held_at(slot, &proof)).collect();
            says(&a, server, session, (held, Vec::new())).await
        }
    ),
    cell!(
        "open file",
        "more than an identity may have, under two sessions",
        ["G71"],
        "fills a server's memory with files that are not there",
        async |a: Rc<Arena>| {
            let (_, server) = at_open(&a).await?;
            let first = keeper(&a.mallory, server).await?;
            let second = SessionId(first.0 ^ 0x100);
            a.mallory.ask(server, &Request::OpenSession(second)).await?;
            let proof = own_file(&a).await?;
            let map = a.cluster.map();
            let slots = (0..SLOTS).map(Slot).filter(|s| map.owner(*s) == server);
            let held: Vec<Held> = slots.take(10).map(|slot| held_at(slot, &proof)).collect();
            says(&a, server, first, (held.clone(), Vec::new())).await?;
            a.mark().await;
            says(&a, server, second, (held, Vec::new())).await
        }
    ),
    cell!(
        "open file",
        "one that was never opened, said to be",
        ["G76"],
        "keeps a file that others remove, and fills a server's memory",
        async |a: Rc<Arena>| {
            let (slot, server) = at_open(&a).await?;
            let session = keeper(&a.mallory, server).await?;
            a.mark().await;
            let held = Held {
                open: file(slot, 9),
                proof: Handle(0),
            };
            says(&a, server, session, (vec![held], Vec::new())).await
        }
    ),
    cell!(
        "open file",
        "where another's is, without having opened it",
        ["G76"],
        "is shown the way to a file in a 0700 directory",
        async |a: Rc<Arena>| {
            let (at, _) = hers_at_home(&a).await?;
            find(&a, at, Handle(0)).await
        }
    ),
    cell!(
        "open file",
        "where it is, with what another was given to show",
        ["G12"],
        "is shown the way to a file in a 0700 directory",
        async |a: Rc<Arena>| {
            let (at, proof) = hers_at_home(&a).await?;
            find(&a, at, proof).await
        }
    ),
];
