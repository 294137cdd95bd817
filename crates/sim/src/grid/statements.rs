//! Statements, tickets, links, and the keys of sealed answers.

use super::arena::{MALLORY, TENANT, alice, mallory, other};
use super::speaker::{Speaker, named};
use super::{Arena, Cell, cell};
use pando_auth::{Secret, StatementKeys};
use pando_format::Codec;
use pando_types::{Bearer, Cred, FsId, Instance, PeerId, Perm, Watermark};
use pando_wire::{Answer, EntryView, Object, Op, RenameMode, Said, Scope, Statement};
use std::rc::Rc;

/// A directory that Alice makes for everybody to search, as Mallory was told of it.
async fn told(a: &Arena, name: &str) -> Option<Statement> {
    let open = a.alice.find(&alice(), "/open").await?;
    a.alice.mkdir(&alice(), &open, name, 0o777).await?;
    a.mallory.find(&mallory(), &format!("/open/{name}")).await
}

/// Alice does something to a directory in `/open`.
async fn close(a: &Arena, name: &str) -> Option<()> {
    let open = a.alice.find(&alice(), "/open").await?;
    a.alice.chmod(&alice(), &open, name, 0o700).await.map(|_| ())
}

/// Mallory makes something in a directory that she may not change any more.
async fn plants_in(a: &Arena, dir: &Statement) -> Option<()> {
    a.mallory
        .mkdir(&mallory(), dir, "planted", 0o755)
        .await
        .map(|_| ())
}

/// What a probe of Mallory's first user tells of `/group/sub`: a link.
async fn link(a: &Arena) -> Option<(Statement, Statement)> {
    let root = a.mallory.find(&mallory(), "/").await?;
    let group = a.mallory.view(&mallory(), &root, "group").await?;
    let (dir, key) = (group.dir?, group.seal?);
    let sub = a.mallory.unseal(&mallory(), dir.id, "sub", &key).await?.dir?;
    (sub.scope == Scope::Link).then_some((sub, dir))
}

/// Mallory's other user, who is not in the group, makes a file in `/group/sub`.
async fn skips_group(a: &Arena, sub: &Statement, ways: &[Statement]) -> Option<()> {
    let op = Op::Mkdir {
        dir: sub.clone(),
        name: named("planted")?,
        mode: Perm::new(0o755).into(),
    };
    a.mallory.op_with(&other(), op, ways).await.map(|_| ())
}

/// A program that says it is this instance, with Mallory's identity.
fn instance(a: &Arena, who: PeerId, instance: Instance) -> Rc<Speaker> {
    let speaker = a.speaker(who);
    speaker.instance.set(instance);
    speaker
}

async fn forged(a: &Arena, path: &str, change: impl Fn(&mut Statement)) -> Option<Statement> {
    let mut s = a.mallory.find(&mallory(), path).await?;
    change(&mut s);
    a.mark().await;
    Some(s)
}

pub(super) const CELLS: &[Cell] = &[
    cell!(
        "statement",
        "forged permissions",
        ["H98"],
        "reads a file in a 0700 directory",
        async |a: Rc<Arena>| {
            let s = forged(&a, "/private", |s| s.perm = Perm::new(0o777)).await?;
            a.mallory.reads(&mallory(), &s, "diary").await
        }
    ),
    cell!(
        "statement",
        "forged owner",
        ["H98"],
        "reads a file in a 0700 directory",
        async |a: Rc<Arena>| {
            let s = forged(&a, "/private", |s| s.uid = 1002).await?;
            a.mallory.reads(&mallory(), &s, "diary").await
        }
    ),
    cell!(
        "statement",
        "forged group",
        ["H98"],
        "searches a directory of a group",
        async |a: Rc<Arena>| {
            let s = forged(&a, "/group", |s| s.gid = 1002).await?;
            a.mallory.view(&other(), &s, "sub").await.map(|_| ())
        }
    ),
    cell!(
        "statement",
        "a guessed ID instead of the ancestors",
        ["H98"],
        "reads below a 0700 directory",
        async |a: Rc<Arena>| {
            let known = a.at("/private/sub").await?;
            let shared = a.mallory.find(&mallory(), "/shared").await?;
            let s = forged(&a, "/shared/sub", |s| {
                *s = Statement::from(Said {
                    way: [&shared.way[..], &[7]].concat(),
                    at: s.at,
                    mac: 1,
                    ..Said::clone(&known)
                });
            })
            .await?;
            a.mallory.reads(&mallory(), &s, "deep").await
        }
    ),
    cell!(
        "statement",
        "another user's, as an accomplice",
        ["G15"],
        "reads below a 0700 directory",
        async |a: Rc<Arena>| {
            let stolen = a.alice.find(&alice(), "/private/sub").await?;
            let me = instance(&a, PeerId::Client(MALLORY), a.alice.instance.get());
            a.mark().await;
            me.reads(&mallory(), &stolen, "deep").await
        }
    ),
    cell!(
        "statement",
        "from outside a subtree, as an accomplice",
        ["G15"],
        "reads outside its subtree",
        async |a: Rc<Arena>| {
            let stolen = a.alice.find(&alice(), "/shared").await?;
            let me = instance(&a, PeerId::Client(TENANT), a.alice.instance.get());
            a.mark().await;
            me.reads(&alice(), &stolen, "file").await
        }
    ),
    cell!(
        "statement",
        "another program's of the same identity",
        ["G16"],
        "uses what it was not told",
        async |a: Rc<Arena>| {
            let told = a.mallory.find(&mallory(), "/group").await?;
            let me = a.speaker(PeerId::Client(MALLORY));
            a.mark().await;
            me.view(&mallory(), &told, "sub").await.map(|_| ())
        }
    ),
    cell!(
        "statement",
        "of another filesystem with the same secret",
        ["G17"],
        "reads below a 0700 directory",
        async |a: Rc<Arena>| {
            let mut s = a.at("/private/sub").await?;
            let elsewhere = StatementKeys::new(FsId(99), &Secret::new([0x5a; 32]), &[]);
            elsewhere.sign(
                &mut s,
                Bearer {
                    identity: MALLORY,
                    instance: a.mallory.instance.get(),
                },
            );
            a.mark().await;
            a.mallory.reads(&mallory(), &s, "deep").await
        }
    ),
    cell!(
        "statement",
        "of the generation before",
        ["H1"],
        "reads in a 0700 directory made again",
        async |a: Rc<Arena>| {
            let old = told(&a, "again").await?;
            let open = a.alice.find(&alice(), "/open").await?;
            a.alice
                .op(
                    &alice(),
                    Op::Rmdir {
                        dir: open.clone(),
                        name: named("again")?,
                    },
                )
                .await?;
            let new = a.alice.mkdir(&alice(), &open, "again", 0o700).await?;
            a.alice.write(&alice(), &new, "diary", 0o644, "secret").await?;
            a.mark().await;
            a.mallory.reads(&mallory(), &old, "diary").await
        }
    ),
    cell!(
        "statement",
        "stale: the directory was closed",
        ["G21"],
        "changes a directory that was closed",
        async |a: Rc<Arena>| {
            let old = told(&a, "closed").await?;
            close(&a, "closed").await?;
            a.mark().await;
            plants_in(&a, &old).await
        }
    ),
    cell!(
        "statement",
        "stale: closed by its maker, without a broadcast",
        ["G50"],
        "changes a directory that was closed",
        async |a: Rc<Arena>| {
            let old = told(&a, "made").await?;
            close(&a, "made").await?;
            a.mark().await;
            plants_in(&a, &old).await
        }
    ),
    cell!(
        "statement",
        "stale: the group was changed",
        ["G21"],
        "searches a directory of another group",
        async |a: Rc<Arena>| {
            let top = Cred::root();
            let root = a.at("/").await?;
            let old = a.mallory.find(&mallory(), "/group").await?;
            let change = pando_types::AttrChange {
                gid: Some(1001),
                ..Default::default()
            };
            a.root.set(&top, &root, "group", change).await?;
            a.mark().await;
            a.mallory.view(&mallory(), &old, "sub").await.map(|_| ())
        }
    ),
    cell!(
        "statement",
        "stale, said to be newer",
        ["H98"],
        "changes a directory that was closed",
        async |a: Rc<Arena>| {
            let mut old = told(&a, "closed").await?;
            close(&a, "closed").await?;
            old.at = Watermark(u64::MAX);
            a.mark().await;
            plants_in(&a, &old).await
        }
    ),
    cell!(
        "ticket",
        "stale: moved into a closed directory",
        ["G21"],
        "changes a directory below a 0700 one",
        async |a: Rc<Arena>| {
            let old = told(&a, "moved").await?;
            let (from, to) = (
                a.alice.find(&alice(), "/open").await?,
                a.alice.find(&alice(), "/private").await?,
            );
            a.alice
                .rename(&alice(), (&from, "moved"), (&to, "moved"), RenameMode::Replace)
                .await?;
            a.mark().await;
            plants_in(&a, &old).await
        }
    ),
    cell!(
        "ticket",
        "stale: an ancestor was closed",
        ["H19"],
        "changes a directory below a 0700 one",
        async |a: Rc<Arena>| {
            let old = below(&a).await?;
            a.mark().await;
            plants_in(&a, &old).await
        }
    ),
    cell!(
        "ticket",
        "the closed ancestor left out",
        ["H98"],
        "changes a directory below a 0700 one",
        async |a: Rc<Arena>| {
            let mut old = below(&a).await?;
            let above = old.way.len() - 1;
            old.way = old.way.split_off(above);
            a.mark().await;
            plants_in(&a, &old).await
        }
    ),
    cell!(
        "ticket",
        "said to be a handle",
        ["H98"],
        "changes a directory that was moved away",
        async |a: Rc<Arena>| {
            let mut old = told(&a, "moved").await?;
            let (from, to) = (
                a.alice.find(&alice(), "/open").await?,
                a.alice.find(&alice(), "/private").await?,
            );
            a.alice
                .rename(&alice(), (&from, "moved"), (&to, "moved"), RenameMode::Replace)
                .await?;
            (old.scope, old.way) = (Scope::Handle, vec![old.tag()]);
            a.mark().await;
            plants_in(&a, &old).await
        }
    ),
    cell!(
        "ticket",
        "older than the log",
        ["H13"],
        "changes a directory that was closed",
        async |a: Rc<Arena>| {
            let old = told(&a, "closed").await?;
            close(&a, "closed").await?;
            for n in 0..8 {
                let name = format!("other{n}");
                told(&a, &name).await?;
                close(&a, &name).await?;
            }
            a.mark().await;
            plants_in(&a, &old).await
        }
    ),
    cell!(
        "handle",
        "of a directory that was closed",
        ["G21"],
        "changes a directory that was closed",
        async |a: Rc<Arena>| {
            let dir = told(&a, "closed").await?;
            let Answer::Entry(EntryView {
                dir: Some(handle), ..
            }) = a.mallory.op(&mallory(), Op::Reopen { dir }).await?
            else {
                return None;
            };
            close(&a, "closed").await?;
            a.mark().await;
            plants_in(&a, &handle).await
        }
    ),
    cell!(
        "link",
        "without what it hangs on",
        ["G18"],
        "skips a directory of a group",
        async |a: Rc<Arena>| {
            let (sub, _) = link(&a).await?;
            a.mark().await;
            skips_group(&a, &sub, &[]).await
        }
    ),
    cell!(
        "link",
        "through a directory that is closed to this user",
        ["G20"],
        "skips a directory of a group",
        async |a: Rc<Arena>| {
            let (sub, group) = link(&a).await?;
            a.mark().await;
            skips_group(&a, &sub, &[group]).await
        }
    ),
    cell!(
        "link",
        "hung on another directory's ticket",
        ["G19"],
        "skips a directory of a group",
        async |a: Rc<Arena>| {
            let (sub, _) = link(&a).await?;
            let open = a.mallory.find(&other(), "/open").await?;
            a.mark().await;
            skips_group(&a, &sub, &[open]).await
        }
    ),
    cell!(
        "link",
        "on a forged ticket",
        ["H98"],
        "skips a directory of a group",
        async |a: Rc<Arena>| {
            let (sub, group) = link(&a).await?;
            let group = Statement::from(Said {
                perm: Perm::new(0o777),
                ..Said::clone(&group)
            });
            a.mark().await;
            skips_group(&a, &sub, &[group]).await
        }
    ),
];

/// A statement of Mallory's below a directory that was closed.
async fn below(a: &Arena) -> Option<Statement> {
    let up = told(a, "up").await?;
    a.mallory.mkdir(&mallory(), &up, "below", 0o777).await?;
    let old = a.mallory.find(&mallory(), "/open/up/below").await?;
    close(a, "up").await?;
    Some(old)
}

pub(super) const KEYS: &[Cell] = &[
    cell!(
        "guess",
        "of a name in a closed directory",
        ["H99"],
        "sees an entry of a 0700 directory",
        async |a: Rc<Arena>| {
            let private = a.mallory.find(&mallory(), "/private").await?;
            a.mark().await;
            let answer = a.mallory.probe(&mallory(), private.id, "diary").await?;
            EntryView::from_bytes(&answer).ok().map(|_| ())
        }
    ),
    cell!(
        "guess",
        "of what exists and what does not",
        ["H99"],
        "tells names from nothing by their length",
        async |a: Rc<Arena>| {
            let private = a.mallory.find(&mallory(), "/private").await?;
            a.mark().await;
            let there = a.mallory.probe(&mallory(), private.id, "diary").await?;
            let not = a.mallory.probe(&mallory(), private.id, "nothing").await?;
            let nowhere = a
                .mallory
                .probe(&mallory(), pando_types::DirId(private.id.0 ^ 1), "x")
                .await;
            (there.len() != not.len() || nowhere.is_some_and(|n| n.len() != not.len())).then_some(())
        }
    ),
    cell!(
        "handle",
        "of her own file, for names in a closed directory",
        ["G57"],
        "tells names from nothing by the error",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            let (file, handle) = a.mallory.create(&mallory(), &open, "hers-to-ask", 0o644).await?;
            let private = a.mallory.find(&mallory(), "/private").await?;
            a.mark().await;
            let mut told = Vec::new();
            for name in ["diary", "nothing"] {
                let op = Op::SetAttr {
                    object: Object::shown(
                        private.clone(),
                        pando_types::Name::new(name.as_bytes()).ok()?,
                        &file.attr,
                    ),
                    change: pando_types::AttrChange::default(),
                    handle: Some(handle),
                };
                a.mallory.op(&mallory(), op).await.is_none().then_some(())?;
                told.push(a.mallory.refused.borrow().clone());
            }
            (told[0] != told[1]).then_some(())
        }
    ),
    cell!(
        "guess",
        "for another user",
        ["G4"],
        "gets the key of a 0700 directory",
        async |a: Rc<Arena>| {
            let root = a.mallory.find(&mallory(), "/").await?;
            let key = root_key(&a).await?;
            a.mark().await;
            let private = a.mallory.unseal(&alice(), root.id, "private", &key).await?;
            private.seal.map(|_| ())
        }
    ),
    cell!(
        "key",
        "another identity's",
        ["G32"],
        "sees an entry of a 0700 directory",
        async |a: Rc<Arena>| {
            let root = a.alice.find(&alice(), "/").await?;
            let private = a.alice.view(&alice(), &root, "private").await?;
            let (dir, key) = (private.dir?, private.seal?);
            a.mark().await;
            a.mallory
                .unseal(&mallory(), dir.id, "diary", &key)
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "key",
        "stale: from before the directory was closed",
        ["G33"],
        "sees an entry of a directory that was closed",
        async |a: Rc<Arena>| {
            let dir = told(&a, "closed").await?;
            let open = a.mallory.find(&mallory(), "/open").await?;
            let key = a.mallory.view(&mallory(), &open, "closed").await?.seal?;
            close(&a, "closed").await?;
            let hers = a.alice.find(&alice(), "/open/closed").await?;
            a.alice.write(&alice(), &hers, "diary", 0o600, "secret").await?;
            a.mark().await;
            a.mallory
                .unseal(&mallory(), dir.id, "diary", &key)
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "key",
        "of a directory it may not search",
        ["G31"],
        "sees an entry of a 0700 directory",
        async |a: Rc<Arena>| {
            let root = a.mallory.find(&mallory(), "/").await?;
            let private = a.mallory.view(&mallory(), &root, "private").await?;
            a.mark().await;
            let key = private.seal?;
            a.mallory
                .unseal(&mallory(), private.dir?.id, "diary", &key)
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "key",
        "of one directory for another",
        ["H6"],
        "sees an entry of a 0700 directory",
        async |a: Rc<Arena>| {
            let root = a.mallory.find(&mallory(), "/").await?;
            let key = a.mallory.view(&mallory(), &root, "open").await?.seal?;
            let private = a.mallory.view(&mallory(), &root, "private").await?.dir?;
            a.mark().await;
            a.mallory
                .unseal(&mallory(), private.id, "diary", &key)
                .await
                .map(|_| ())
        }
    ),
];

/// Mallory's key of the root.
async fn root_key(a: &Arena) -> Option<pando_wire::SealKey> {
    let op = Op::Lookup {
        dir: Statement::above_root(),
        name: pando_types::Name::root(),
    };
    match a.mallory.op(&mallory(), op).await? {
        Answer::Entry(view) => view.seal,
        _ => None,
    }
}
