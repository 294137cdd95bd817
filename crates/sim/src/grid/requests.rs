//! What an identity may ask at all: users, groups, read-only, subtrees; handles of files.

use super::arena::{GROUP, READER, TENANT, alice, mallory};
use super::speaker::{Speaker, named};
use super::{Arena, Cell, cell};
use pando_types::{AttrChange, Cred, DirId, Name, PeerId, Perm};
use pando_wire::{
    Answer, AuthChange, AuthRequest, ClusterRequest, CutId, CutRequest, Handle, Object, Op, RepairRequest,
    Repaired, Request, Response, Statement,
};
use std::rc::Rc;

/// Mallory acts under these credentials, with statements that are her own.
async fn reads_as(a: &Arena, cred: Cred, name: &str) -> Option<()> {
    let open = a.mallory.find(&mallory(), "/open").await?;
    a.mark().await;
    a.mallory.reads(&cred, &open, name).await
}

/// Mallory publishes something to a file through a handle.
async fn publishes(a: &Arena, name: &str, handle: Handle) -> Option<()> {
    let open = a.mallory.find(&mallory(), "/open").await?;
    let file = a.mallory.view(&mallory(), &open, name).await?;
    a.mark().await;
    let done = a
        .mallory
        .publish(&mallory(), &open, name, &file, handle, "x")
        .await;
    done.map(|_| ())
}

/// A handle that somebody is given of a file in `/open`.
async fn handle_of(who: &Speaker, cred: &Cred, name: &str) -> Option<Handle> {
    let open = who.find(cred, "/open").await?;
    who.open(cred, &open, name, 6).await?.2
}

pub(super) const CELLS: &[Cell] = &[
    cell!(
        "request",
        "as another user",
        ["G3"],
        "reads another's file",
        async |a: Rc<Arena>| reads_as(&a, alice(), "hers").await
    ),
    cell!(
        "request",
        "as the superuser",
        ["G3"],
        "reads another's file",
        async |a: Rc<Arena>| reads_as(&a, Cred::root(), "hers").await
    ),
    cell!(
        "request",
        "in another group",
        ["G3"],
        "reads a file of another group",
        async |a: Rc<Arena>| {
            let cred = Cred {
                groups: vec![GROUP, 1001],
                ..mallory()
            };
            reads_as(&a, cred, "hers-by-group").await
        }
    ),
    cell!(
        "request",
        "mkdir of a read-only identity",
        ["G8"],
        "makes a directory",
        async |a: Rc<Arena>| {
            let reader = a.speaker(PeerId::Client(READER));
            let open = reader.find(&Cred::root(), "/open").await?;
            a.mark().await;
            reader
                .mkdir(&Cred::root(), &open, "planted", 0o755)
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "request",
        "open for writing of a read-only identity",
        ["G8"],
        "is given a handle",
        async |a: Rc<Arena>| {
            let reader = a.speaker(PeerId::Client(READER));
            let open = reader.find(&Cred::root(), "/open").await?;
            a.mark().await;
            reader.open(&Cred::root(), &open, "notes", 2).await?.2.map(|_| ())
        }
    ),
    cell!(
        "request",
        "chmod of a read-only identity",
        ["G8"],
        "changes permissions",
        async |a: Rc<Arena>| {
            let reader = a.speaker(PeerId::Client(READER));
            let open = reader.find(&Cred::root(), "/open").await?;
            a.mark().await;
            reader
                .chmod(&Cred::root(), &open, "notes", 0o666)
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "request",
        "a subtree's holder asks for the root",
        ["G10"],
        "sees the whole filesystem",
        async |a: Rc<Arena>| {
            let tenant = a.speaker(PeerId::Client(TENANT));
            a.mark().await;
            let root = tenant.find(&Cred::root(), "/").await?;
            (root.id == DirId::ROOT).then_some(())
        }
    ),
    cell!(
        "request",
        "a subtree's holder names the place above the root",
        ["G9"],
        "is given the real root",
        async |a: Rc<Arena>| {
            let tenant = a.speaker(PeerId::Client(TENANT));
            a.mark().await;
            let (dir, name, want) = (Statement::above_root(), Name::root(), 4);
            match tenant.op(&Cred::root(), Op::Open { dir, name, want }).await? {
                Answer::Opened { entry, .. } => (entry.dir?.id == DirId::ROOT).then_some(()),
                _ => None,
            }
        }
    ),
    cell!(
        "request",
        "chmod of the real root by a subtree's holder",
        ["G9"],
        "closes the filesystem",
        async |a: Rc<Arena>| {
            let tenant = a.speaker(PeerId::Client(TENANT));
            a.mark().await;
            let op = Op::SetAttr {
                object: Object {
                    dir: Statement::above_root(),
                    name: Name::root(),
                    ino: pando_types::Ino::ROOT,
                    generation: pando_types::Generation::ROOT,
                },
                change: AttrChange {
                    perm: Some(Perm::new(0)),
                    ..AttrChange::default()
                },
                handle: None,
            };
            tenant.op(&Cred::root(), op).await.map(|_| ())
        }
    ),
    cell!(
        "request",
        "of an identity that nobody knows",
        ["G38"],
        "acts for anybody",
        async |a: Rc<Arena>| {
            let nobody = a.speaker(PeerId::Client(pando_types::IdentityId(77)));
            a.mark().await;
            let open = nobody.find(&alice(), "/open").await?;
            nobody.reads(&alice(), &open, "hers").await
        }
    ),
    cell!(
        "request",
        "after a revocation",
        ["G47"],
        "goes on",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            a.revoke().await?;
            a.mark().await;
            a.mallory
                .mkdir(&mallory(), &open, "planted", 0o755)
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "request",
        "more at a time than an identity may have",
        ["G49"],
        "takes a server for itself",
        async |a: Rc<Arena>| {
            a.mallory.find(&mallory(), "/").await?;
            let server = a.keeper();
            a.mallory.ask(server, &Request::KeepAlive(Vec::new())).await?;
            let boot = a.mallory.boot(server);
            a.mark().await;
            let me = a.mallory.clone();
            let many = (0..64).map(|_| -> pando_env::LocalFuture<bool> {
                let me = me.clone();
                Box::pin(async move {
                    matches!(me.ask_boot(server, boot, &Request::Null(true)).await, Some(Ok(_)))
                })
            });
            let served = pando_env::sync::join_all(many.collect()).await;
            (served.iter().filter(|s| **s).count() == 64).then_some(())
        }
    ),
    cell!(
        "handle",
        "forged",
        ["G11"],
        "replaces another's bytes",
        async |a: Rc<Arena>| publishes(&a, "notes", Handle(1)).await
    ),
    cell!(
        "handle",
        "flipped",
        ["G11"],
        "replaces another's bytes",
        async |a: Rc<Arena>| {
            let hers = handle_of(&a.alice, &alice(), "notes").await?;
            publishes(&a, "notes", Handle(hers.0 ^ 1 << 77)).await
        }
    ),
    cell!(
        "handle",
        "of her own file, for another's",
        ["G13"],
        "replaces another's bytes",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            let (_, mine) = a.mallory.create(&mallory(), &open, "mine", 0o644).await?;
            publishes(&a, "notes", mine).await
        }
    ),
    cell!(
        "handle",
        "of the file that had this name before",
        ["G13"],
        "replaces another's bytes",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            let (_, mine) = a.mallory.create(&mallory(), &open, "new", 0o666).await?;
            a.mallory.unlink(&mallory(), &open, "new").await?;
            let hers = a.alice.find(&alice(), "/open").await?;
            a.alice.write(&alice(), &hers, "new", 0o644, "hers").await?;
            publishes(&a, "new", mine).await
        }
    ),
    cell!(
        "handle",
        "another identity's",
        ["G12"],
        "replaces another's bytes",
        async |a: Rc<Arena>| {
            let hers = handle_of(&a.alice, &alice(), "notes").await?;
            publishes(&a, "notes", hers).await
        }
    ),
    cell!(
        "handle",
        "of a file opened to be read",
        ["G14"],
        "replaces another's bytes",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            a.mark().await;
            let (file, _, handle) = a.mallory.open(&mallory(), &open, "notes", 4).await?;
            a.mallory
                .publish(&mallory(), &open, "notes", &file, handle?, "x")
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "handle",
        "forged, to truncate",
        ["G11"],
        "empties another's file",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            let file = a.mallory.view(&mallory(), &open, "notes").await?;
            a.mark().await;
            let op = Op::SetAttr {
                object: Object::shown(open, named("notes")?, &file.attr),
                change: AttrChange {
                    size: Some(0),
                    ..AttrChange::default()
                },
                handle: Some(Handle(3)),
            };
            a.mallory.op(&mallory(), op).await.map(|_| ())
        }
    ),
    cell!(
        "handle",
        "after a revocation",
        ["G47"],
        "goes on writing",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            let (file, _, handle) = a.mallory.open(&mallory(), &open, "written-only", 2).await?;
            a.revoke().await?;
            a.mark().await;
            a.mallory
                .publish(&mallory(), &open, "written-only", &file, handle?, "x")
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "operator",
        "a client lists identities",
        ["G2"],
        "learns who there is",
        async |a: Rc<Arena>| operator(&a, Request::Auth(AuthRequest::List)).await
    ),
    cell!(
        "operator",
        "a client makes an identity",
        ["G2"],
        "acts for anybody",
        async |a: Rc<Arena>| {
            let (name, key) = ("eve".to_string(), [9; 32]);
            let claims = pando_types::Claims::all();
            let made = a.change(AuthChange::Add { name, claims, key }).await?;
            operator(&a, Request::Auth(made)).await
        }
    ),
    cell!(
        "operator",
        "a client revokes another's identity",
        ["G2"],
        "locks another out",
        async |a: Rc<Arena>| {
            let name = "alice".into();
            let revoked = a.change(AuthChange::Revoke { name }).await?;
            operator(&a, Request::Auth(revoked)).await
        }
    ),
    cell!(
        "operator",
        "a client gives another's identity a key",
        ["G2"],
        "comes in as another",
        async |a: Rc<Arena>| {
            let (name, key) = ("alice".to_string(), [9; 32]);
            let rotated = a.change(AuthChange::Rotate { name, key, grace: 0 }).await?;
            operator(&a, Request::Auth(rotated)).await
        }
    ),
    cell!(
        "operator",
        "a client scans raw records",
        ["G2"],
        "reads everybody's keys",
        async |a: Rc<Arena>| {
            let range = pando_format::Scan::Identities.range();
            operator(&a, Request::Scan { range, limit: 100 }).await
        }
    ),
    cell!(
        "operator",
        "a client asks for a server's state",
        ["G2"],
        "learns what others do",
        async |a: Rc<Arena>| operator(&a, Request::Status).await
    ),
    cell!(
        "operator",
        "a client asks for a cut",
        ["G2"],
        "holds all changes up",
        async |a: Rc<Arena>| {
            let (cut, map) = (CutId(7), a.cluster.map().epoch);
            operator(&a, Request::Cut(CutRequest::Hold { cut, map })).await
        }
    ),
    cell!(
        "operator",
        "a client asks for a repair of raw records",
        ["G2"],
        "deletes another's directory",
        async |a: Rc<Arena>| {
            let hers = a.at("/private").await?;
            let name = pando_format::Key::Head(hers.id.into());
            let disks = a.cluster.servers.iter().map(|s| s.device.disk.dump());
            let there = disks.flatten().find(|(key, _)| *key == name)?.1;
            a.mark().await;
            let request = Request::Repair(RepairRequest {
                expected: vec![(name.clone(), Some(there))],
                changes: vec![(name, None)],
                touches: Vec::new(),
                invalidates: Vec::new(),
            });
            match a.mallory.ask(a.cluster.map().coordinator, &request).await? {
                Response::Repair(Repaired::Done) => Some(()),
                _ => None,
            }
        }
    ),
    cell!(
        "operator",
        "an operator begins cuts and never ends them",
        ["G68"],
        "nobody changes anything any more",
        async |a: Rc<Arena>| {
            let hers = a.alice.find(&alice(), "/private").await?;
            for n in 1..=6 {
                let (cut, map) = (CutId(n), a.cluster.map().epoch);
                for server in &a.cluster.map().servers {
                    a.root
                        .ask(server.id, &Request::Cut(CutRequest::Hold { cut, map }))
                        .await?;
                }
            }
            let made = a.alice.mkdir(&alice(), &hers, "meanwhile", 0o700).await;
            a.mark().await;
            made.is_none().then_some(())
        }
    ),
    cell!(
        "operator",
        "a client drains a server",
        ["G2"],
        "takes a server away",
        async |a: Rc<Arena>| {
            a.mark().await;
            let map = a.cluster.map();
            let other = map
                .staying()
                .find(|id| *id != map.keeper && *id != map.coordinator)?;
            let request = Request::Cluster(ClusterRequest::Drain(other));
            let answer = a.mallory.ask(map.coordinator, &request).await?;
            matches!(answer, Response::Cluster(Ok(_))).then_some(())
        }
    ),
];

/// Mallory asks the server that keeps the identities for something that is an operator's.
async fn operator(a: &Arena, request: Request) -> Option<()> {
    a.mark().await;
    let answer = a.mallory.ask(a.keeper(), &request).await?;
    (!matches!(answer, Response::Auth(Err(_)))).then_some(())
}
