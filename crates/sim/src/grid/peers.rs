//! Messages between servers, and the coordinator's, from a client.

use super::arena::{ALICE, MALLORY, alice, mallory};
use super::{Arena, Cell, cell};
use crate::cluster::Overheard;
use pando_format::{FactChange, IdentityTable, Invalidation, Key, Mutation, OwedRecord, Touch};
use pando_types::{BootEpoch, Claims, DirId, DirStat, MapEpoch, ServerId, Term, TxId, Watermark};
use pando_wire::{LockMode, LockWant, Message, PeerAnswer, PeerRequest, Request, Response, Vote};
use std::rc::Rc;

/// Mallory says that she is a server.
async fn peer(a: &Arena, server: ServerId, request: PeerRequest) -> Option<PeerAnswer> {
    match a.mallory.ask(server, &Request::Peer(request)).await? {
        Response::Peer(answer) => Some(answer),
        _ => None,
    }
}

/// A transaction that nobody coordinates.
fn tx() -> TxId {
    TxId {
        coordinator: ServerId(1),
        boot: BootEpoch(1),
        number: 1 << 40,
    }
}

/// The identities as a server would be told them, with Mallory acting for anybody.
fn raised(a: &Arena) -> IdentityTable {
    let mut table = IdentityTable {
        version: 1 << 40,
        identities: Vec::new(),
    };
    for server in &a.cluster.servers {
        for (key, record) in server.device.disk.dump() {
            if let (Key::Identity(id), pando_format::Record::Identity(mut record)) = (key, record) {
                if id == MALLORY {
                    record.claims = Claims::all();
                }
                table.identities.push((id, record));
            }
        }
    }
    table
}

/// Mallory, raised, reads what is Alice's.
async fn reads_as_alice(a: &Arena) -> Option<()> {
    let open = a.mallory.find(&alice(), "/open").await?;
    a.mallory.reads(&alice(), &open, "hers").await
}

/// The entry of a name, as the stores have it.
fn entry(a: &Arena, wanted: &str) -> Option<(ServerId, Key)> {
    for server in &a.cluster.servers {
        for (key, _) in server.device.disk.dump() {
            if matches!(&key, Key::Entry { name, .. } if name.as_bytes() == wanted.as_bytes()) {
                return Some((server.id, key));
            }
        }
    }
    None
}

/// The newest overheard question of a server to another, of which `wanted` holds: its number, and who asked.
fn question(a: &Arena, wanted: impl Fn(&PeerRequest) -> bool) -> Option<(u64, ServerId)> {
    let server = |node| a.cluster.servers.iter().find(|s| s.node == node).map(|s| s.id);
    let asked = |o: Overheard| match o.message {
        Message::Request {
            id,
            request: Request::Peer(p),
            ..
        } if wanted(&p) => Some((id, server(o.from)?)),
        _ => None,
    };
    a.cluster.overheard().into_iter().rev().find_map(asked)
}

/// Cuts a server off from another, both ways.
fn cut(a: &Arena, one: ServerId, two: ServerId) -> Option<()> {
    let mut net = a.cluster.sim.net.borrow_mut();
    let (one, two) = (net.server(one)?, net.server(two)?);
    net.cut(one, two);
    net.cut(two, one);
    Some(())
}

fn mend(a: &Arena) {
    a.cluster.sim.net.borrow_mut().mend_all();
}

pub(super) const CELLS: &[Cell] = &[
    cell!(
        "server message",
        "lock: reads raw records",
        ["G1"],
        "reads another's key",
        async |a: Rc<Arena>| {
            a.mark().await;
            let wants = vec![LockWant::Key(Key::Identity(ALICE), LockMode::Shared)];
            match peer(
                &a,
                a.keeper(),
                PeerRequest::Lock {
                    tx: tx(),
                    low: 0,
                    locked: false,
                    wants,
                    wait: true,
                },
            )
            .await?
            {
                PeerAnswer::Locked { records, .. } => (!records.is_empty()).then_some(()),
                _ => None,
            }
        }
    ),
    cell!(
        "server message",
        "lock: holds what others need",
        ["G1"],
        "stops another's work",
        async |a: Rc<Arena>| {
            let private = a.mallory.find(&mallory(), "/private").await?;
            a.mark().await;
            let wants = vec![LockWant::Key(Key::Head(private.id.into()), LockMode::Exclusive)];
            let home = a.mallory.home(private.id);
            peer(
                &a,
                home,
                PeerRequest::Lock {
                    tx: tx(),
                    low: 0,
                    locked: false,
                    wants,
                    wait: true,
                },
            )
            .await
            .map(|_| ())
        }
    ),
    cell!(
        "server message",
        "prepare and decide: writes records",
        ["G1"],
        "removes another's file",
        async |a: Rc<Arena>| {
            let (server, key) = entry(&a, "diary")?;
            a.mark().await;
            let mutations = vec![Mutation::Delete { key: key.clone() }];
            let prepare = PeerRequest::Prepare {
                tx: tx(),
                low: 0,
                locked: false,
                mutations,
                reply: None,
            };
            peer(&a, server, prepare).await?;
            peer(
                &a,
                server,
                PeerRequest::Settle {
                    committed: vec![tx()],
                    aborted: Vec::new(),
                },
            )
            .await?;
            (entry(&a, "diary") != Some((server, key))).then_some(())
        }
    ),
    cell!(
        "server message",
        "content of a directory that others will make",
        ["G1"],
        "makes its ID useless",
        async |a: Rc<Arena>| {
            let head = a
                .cluster
                .judge()
                .with_model(|_, tree| tree.head(DirId::ROOT).cloned())?;
            let dir = DirId(0x5eed_0000_0000_0000_0000_0000_0000_0077);
            let zero = Default::default();
            let (entries, subdirs) = (0, 0);
            let stat = DirStat {
                entries,
                subdirs,
                atime: zero,
                mtime: zero,
                ctime: zero,
            };
            let touch = Touch {
                stat,
                explicit: false,
            };
            a.mark().await;
            let content = PeerRequest::Content {
                low: 0,
                map: MapEpoch(u64::MAX),
                contents: vec![(tx(), OwedRecord { dir, head, touch })],
            };
            match peer(&a, a.mallory.home(dir), content).await? {
                PeerAnswer::Content(_) => Some(()),
                _ => None,
            }
        }
    ),
    cell!(
        "server message",
        "inquire",
        ["G1"],
        "learns of others' transactions",
        async |a: Rc<Arena>| {
            a.mark().await;
            peer(&a, ServerId(1), PeerRequest::Inquire(tx()))
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "server message",
        "head of a guessed directory",
        ["G1"],
        "learns where it is, and its salt",
        async |a: Rc<Arena>| {
            let sub = a.at("/private/sub").await?;
            a.mark().await;
            match peer(&a, a.mallory.home(sub.id), PeerRequest::Head(sub.id)).await? {
                PeerAnswer::Head(head) => head.map(|_| ()),
                _ => None,
            }
        }
    ),
    cell!(
        "server message",
        "asks for the identities",
        ["G1"],
        "reads everybody's keys",
        async |a: Rc<Arena>| {
            a.mark().await;
            match peer(&a, a.keeper(), PeerRequest::Identities(0)).await? {
                PeerAnswer::Identities(table) => table.map(|_| ()),
                _ => None,
            }
        }
    ),
    cell!(
        "server message",
        "tells other identities",
        ["G1"],
        "acts for anybody",
        async |a: Rc<Arena>| {
            let table = raised(&a);
            a.mark().await;
            for server in a.cluster.map().servers.iter().map(|s| s.id) {
                peer(&a, server, PeerRequest::Adopt(table.clone())).await?;
            }
            reads_as_alice(&a).await
        }
    ),
    cell!(
        "coordinator message",
        "tells entries of the log",
        ["G1"],
        "makes all forget a directory",
        async |a: Rc<Arena>| {
            let private = a.mallory.find(&mallory(), "/private").await?;
            a.mark().await;
            let (id, generation) = (private.id, private.generation);
            let entries = vec![Invalidation {
                id,
                generation,
                change: FactChange::Access,
            }];
            let after = Watermark(private.at.0);
            peer(
                &a,
                ServerId(1),
                PeerRequest::Invalidate {
                    term: Term(1),
                    after,
                    entries,
                },
            )
            .await
            .map(|_| ())
        }
    ),
    cell!(
        "coordinator message",
        "asks for the log",
        ["G1"],
        "learns what others rename",
        async |a: Rc<Arena>| {
            a.mark().await;
            let following = PeerRequest::Follow {
                who: ServerId(1),
                boot: BootEpoch(1),
                term: Term(1),
                map: MapEpoch(1),
                heard: Watermark(0),
                echo: Default::default(),
                relayed: false,
            };
            peer(&a, a.cluster.map().coordinator, following).await.map(|_| ())
        }
    ),
    cell!(
        "server answer",
        "identities that nobody sent",
        ["G35"],
        "acts for anybody",
        async |a: Rc<Arena>| {
            let mut table = raised(&a);
            table.version = 1 << 41;
            let dir = a.mallory.find(&mallory(), "/open").await?;
            let others: Vec<ServerId> = a
                .cluster
                .map()
                .servers
                .iter()
                .map(|s| s.id)
                .filter(|s| *s != a.keeper())
                .collect();
            others.iter().try_for_each(|s| cut(&a, a.keeper(), *s))?;
            a.mark().await;
            let mut answered = 0;
            for _ in 0..400 {
                a.root.sleep(20).await;
                if let Some((id, asker)) = question(&a, |p| matches!(p, PeerRequest::Identities(_)))
                    && id != answered
                {
                    answered = id;
                    let result = Ok(Response::Peer(PeerAnswer::Identities(Some(table.clone()))));
                    a.mallory.say(
                        asker,
                        &Message::Reply {
                            id,
                            result,
                            account: None,
                        },
                    );
                }
            }
            mend(&a);
            // Who was cut off from the coordinator too acts on nothing before it follows again.
            a.root.sleep(5_000).await;
            a.mallory.reads(&alice(), &dir, "hers").await
        }
    ),
    cell!(
        "server answer",
        "a vote that nobody gave",
        ["G35"],
        "commits half of a transaction",
        async |a: Rc<Arena>| {
            // A directory whose content is to be on another server than its name.
            let open = a.alice.find(&alice(), "/open").await?;
            let home = a.alice.home(open.id);
            let widths = a.cluster.map().widths();
            let away = |name: &str| -> Option<ServerId> {
                let birth = pando_types::Birth {
                    parent: open.id,
                    name: super::speaker::named(name)?,
                    version: 0,
                };
                Some(a.alice.home(widths.dir_id(&birth)))
            };
            let name = (0..50)
                .map(|n| format!("half{n}"))
                .find(|n| away(n).is_some_and(|s| s != home))?;
            let other = away(&name)?;
            a.alice.open_session(home).await?;
            a.mark().await;
            cut(&a, home, other)?;
            let (hers, dir, wanted) = (a.alice.clone(), open.clone(), name.clone());
            a.alice.life.world().spawn(Box::pin(async move {
                let id = hers.request(3);
                let op = pando_wire::Op::Mkdir {
                    dir,
                    name: match super::speaker::named(&wanted) {
                        Some(n) => n,
                        None => return,
                    },
                    mode: pando_types::Perm::new(0o755).into(),
                };
                let asked = hers.asking(Some(id), &alice(), &op, &[]);
                hers.ask_boot(home, hers.boot(home), &asked).await;
            }));
            for _ in 0..40 {
                a.root.sleep(10).await;
                if let Some((id, asker)) = question(&a, |p| {
                    matches!(p, PeerRequest::Prepare { .. } | PeerRequest::Lock { .. })
                }) {
                    let votes = [
                        PeerAnswer::Vote(Vote::Yes),
                        PeerAnswer::Locked {
                            records: Vec::new(),
                            held: Vec::new(),
                        },
                    ];
                    let asked_to_vote =
                        question(&a, |p| matches!(p, PeerRequest::Prepare { .. })).map(|(n, _)| n);
                    let answer = if asked_to_vote == Some(id) {
                        &votes[0]
                    } else {
                        &votes[1]
                    };
                    a.mallory.say(
                        asker,
                        &Message::Reply {
                            id,
                            result: Ok(Response::Peer(answer.clone())),
                            account: None,
                        },
                    );
                }
            }
            a.root.sleep(2_000).await;
            let half = entry(&a, &name).is_some();
            mend(&a);
            half.then_some(())
        }
    ),
];
