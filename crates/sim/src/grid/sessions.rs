//! Others' sessions and reply records, requests repeated, and the end of sessions.

use super::arena::{ALICE, MALLORY, alice, mallory};
use super::speaker::{LONG, named};
use super::{Arena, Cell, cell};
use pando_format::Key;
use pando_types::{IdentityId, PeerId, Perm, RequestId, SessionId};
use pando_wire::{Answer, Op, Request};
use std::rc::Rc;

/// The name of Alice's last request, and the server she asked.
fn hers(a: &Arena) -> Option<(RequestId, Request, pando_types::ServerId)> {
    let said = a.alice.last.borrow().clone()?;
    match &said.request {
        Request::Op(asked) => Some((asked.request?, said.request.clone(), said.server)),
        _ => None,
    }
}

/// Mallory asks for something harmless under this name, where Alice asked.
async fn mkdir_as(a: &Arena, id: RequestId) -> Option<Answer> {
    let server = hers(a)?.2;
    // Somewhere on that server.
    let mut dir = None;
    for path in ["/open", "/sticky", "/tenant", "/group/sub", "/"] {
        let found = a.mallory.find(&mallory(), path).await?;
        if a.mallory.home(found.id) == server {
            dir = Some(found);
        }
    }
    let op = Op::Mkdir {
        dir: dir?,
        name: named("planted")?,
        mode: Perm::new(0o755).into(),
    };
    a.mark().await;
    let asked = a.mallory.asking(Some(id), &mallory(), &op, &[]);
    a.mallory.ask(server, &asked).await?.into_outcome()?.ok()
}

/// Live sessions of somebody, on all disks.
fn sessions(a: &Arena, of: IdentityId) -> usize {
    let live = |(key, record): &(Key, pando_format::Record)| match (key, record) {
        (Key::Session(s), pando_format::Record::Session(r)) => s.owner() == of && r.ended.is_none(),
        _ => false,
    };
    let servers = a.cluster.servers.iter();
    servers
        .map(|s| s.device.disk.dump().iter().filter(|r| live(r)).count())
        .sum()
}

pub(super) const CELLS: &[Cell] = &[
    cell!(
        "session",
        "another's, for a request of her own",
        ["G5"],
        "uses up another's lane",
        async |a: Rc<Arena>| {
            let (mut id, _, _) = hers(&a)?;
            id.sequence.0 += 1;
            mkdir_as(&a, id).await.map(|_| ())
        }
    ),
    cell!(
        "reply",
        "another's record, asked for by its name",
        ["G5"],
        "is told what another was told",
        async |a: Rc<Arena>| {
            let (id, _, _) = hers(&a)?;
            match mkdir_as(&a, id).await? {
                Answer::Entry(view) => (view.dir?.name == named("secret-project")?).then_some(()),
                _ => None,
            }
        }
    ),
    cell!(
        "request",
        "another's, repeated as it was",
        ["G3", "G5", "G15"],
        "is told what another was told",
        async |a: Rc<Arena>| {
            let (_, request, server) = hers(&a)?;
            a.mallory.find(&mallory(), "/").await?;
            a.mark().await;
            let answer = a.mallory.ask(server, &request).await?;
            answer.into_outcome()?.ok().map(|_| ())
        }
    ),
    cell!(
        "session",
        "another's is closed",
        ["G6"],
        "ends another's session",
        async |a: Rc<Arena>| {
            let (id, _, server) = hers(&a)?;
            a.mark().await;
            a.mallory
                .ask(server, &Request::CloseSession(id.session))
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "session",
        "opened in another's name",
        ["G6"],
        "makes sessions for another",
        async |a: Rc<Arena>| {
            let (_, _, server) = hers(&a)?;
            a.mark().await;
            a.mallory
                .ask(server, &Request::OpenSession(SessionId::of(ALICE, 7)))
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "session",
        "another's is kept alive",
        ["G7"],
        "keeps another's session from ending",
        async |a: Rc<Arena>| {
            let gone = a.speaker(PeerId::Client(ALICE));
            let dir = gone.find(&alice(), "/private").await?;
            gone.mkdir(&alice(), &dir, "left", 0o700).await?;
            let before = sessions(&a, ALICE);
            a.mark().await;
            let mut kept = true;
            for _ in 0..16 {
                a.root.sleep(LONG).await;
                // Alice herself goes on.
                for server in a.cluster.map().servers.iter().map(|s| s.id) {
                    a.alice
                        .ask(server, &Request::KeepAlive(vec![a.alice.session]))
                        .await;
                    let both = vec![gone.session];
                    kept &= a.mallory.ask(server, &Request::KeepAlive(both)).await.is_some();
                }
            }
            let now = sessions(&a, ALICE);
            // What ended by itself is not the attack's doing: the records are compared from here.
            a.mark().await;
            (kept && now == before).then_some(())
        }
    ),
    cell!(
        "session",
        "more lanes than a session may have",
        ["G51"],
        "makes a server remember without bound",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            a.mallory.open_session(a.mallory.home(open.id)).await?;
            a.mark().await;
            for lane in 0..64 {
                let op = Op::Rmdir {
                    dir: open.clone(),
                    name: named("nothing")?,
                };
                let asked = a
                    .mallory
                    .asking(Some(a.mallory.request(lane)), &mallory(), &op, &[]);
                a.mallory.ask(a.mallory.home(open.id), &asked).await?;
            }
            Some(())
        }
    ),
    cell!(
        "session",
        "opened again and again",
        ["G55"],
        "makes a server remember without bound",
        async |a: Rc<Arena>| {
            let server = a.mallory.home(a.mallory.find(&mallory(), "/open").await?.id);
            let ask = |n: u128| Request::OpenSession(SessionId::of(MALLORY, n));
            for n in 0..40 {
                let _ = a.mallory.ask(server, &ask(n)).await;
            }
            // So many it may have; what they left is not compared.
            a.mark().await;
            a.mallory.ask(server, &ask(40)).await.map(|_| ())
        }
    ),
    cell!(
        "session",
        "outlives its identity",
        ["G47"],
        "stays after a revocation",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            a.mallory.mkdir(&mallory(), &open, "made", 0o755).await?;
            a.revoke().await?;
            a.root.sleep(1_000).await;
            a.mark().await;
            (sessions(&a, MALLORY) > 0).then_some(())
        }
    ),
    cell!(
        "request",
        "a late copy, after the server has started again",
        ["G34"],
        "removes a newer file",
        async |a: Rc<Arena>| {
            let open = a.alice.find(&alice(), "/open").await?;
            let server = a.alice.home(open.id);
            // It failed, which leaves nothing behind.
            let op = Op::Unlink {
                dir: open.clone(),
                name: named("late")?,
                held: false,
            };
            a.alice.open_session(server).await?;
            let (boot, request) = (
                a.alice.boot(server),
                a.alice.asking(Some(a.alice.request(5)), &alice(), &op, &[]),
            );
            a.alice.ask_boot(server, boot, &request).await?.ok()?;
            a.alice.write(&alice(), &open, "late", 0o600, "hers").await?;
            let index = a.cluster.servers.iter().position(|s| s.id == server)?;
            a.cluster
                .kill(index, crate::world::Death::Kill, Some(crate::world::MS));
            a.root.sleep(3_000).await;
            // Who is on the way repeats what passed there.
            let wire = a.speaker(PeerId::Client(ALICE));
            a.mark().await;
            wire.ask_boot(server, boot, &request).await?.ok()?;
            (!a.exists("/open", "late").await?).then_some(())
        }
    ),
];
