//! Files that are at home because they have several names (H96): what stands for a file alone, and not for a
//! name of it.

use super::arena::{MALLORY, alice, mallory};
use super::{Arena, Cell, cell};
use pando_format::Position;
use pando_types::{Cred, Name, PeerId};
use pando_wire::{Answer, EntryView, Op, Said, Statement};
use std::rc::Rc;

/// Somebody makes a file in `/open` with two names. The home of such files is where that directory is.
async fn linked(a: &Arena, cred: &Cred, name: &str) -> Option<EntryView> {
    let who = if *cred == alice() { &a.alice } else { &a.mallory };
    let open = who.find(cred, "/open").await?;
    who.write(cred, &open, name, 0o644, "secret").await?;
    who.link(cred, (&open, name), (&open, &format!("{name}-too")))
        .await
}

/// Alice makes one, and takes it away into a directory of her own.
async fn hidden(a: &Arena) -> Option<EntryView> {
    let view = linked(a, &alice(), "gone").await?;
    let open = a.alice.find(&alice(), "/open").await?;
    let private = a.alice.find(&alice(), "/private").await?;
    for name in ["gone", "gone-too"] {
        let mode = pando_wire::RenameMode::NoReplace;
        a.alice
            .rename(&alice(), (&open, name), (&private, name), mode)
            .await?;
    }
    Some(view)
}

async fn reads_at(a: &Arena, dir: Statement, name: Name) -> Option<()> {
    match a.mallory.op(&mallory(), Op::Open { dir, name, want: 4 }).await? {
        Answer::Opened { data, .. } => data?.0.starts_with(b"secret").then_some(()),
        _ => None,
    }
}

pub(super) const CELLS: &[Cell] = &[
    cell!(
        "home",
        "of her own file, for another's",
        ["G62"],
        "reads a file in a 0700 directory",
        async |a: Rc<Arena>| {
            let hers = hidden(&a).await?.attr;
            let mine = linked(&a, &mallory(), "mine").await?;
            a.mark().await;
            reads_at(&a, mine.home?, Name::home(hers.ino, hers.generation)).await
        }
    ),
    cell!(
        "home",
        "listed like a directory",
        ["G63"],
        "sees what is in a 0700 directory",
        async |a: Rc<Arena>| {
            let hers = hidden(&a).await?.attr;
            let dir = linked(&a, &mallory(), "mine").await?.home?;
            a.mark().await;
            let list = Op::ReadDir {
                dir,
                after: Position::START,
                limit: 100,
                plus: true,
            };
            match a.mallory.op(&mallory(), list).await? {
                Answer::Entries { entries, .. } => entries.iter().any(|e| e.ino == hers.ino).then_some(()),
                _ => None,
            }
        }
    ),
    cell!(
        "home",
        "made up",
        ["H98"],
        "reads a file in a 0700 directory",
        async |a: Rc<Arena>| {
            let hers = hidden(&a).await?;
            let home = hers.home?;
            let made_up = Statement::from(Said {
                mac: 1,
                ..Said::clone(&home)
            });
            a.mark().await;
            let name = made_up.name.clone();
            reads_at(&a, made_up, name).await
        }
    ),
    cell!(
        "home",
        "another user's, as an accomplice",
        ["G15"],
        "reads a file in a 0700 directory",
        async |a: Rc<Arena>| {
            let stolen = hidden(&a).await?.home?;
            let me = a.speaker(PeerId::Client(MALLORY));
            me.instance.set(a.alice.instance.get());
            a.mark().await;
            let name = stolen.name.clone();
            let open = Op::Open {
                dir: stolen,
                name,
                want: 4,
            };
            match me.op(&mallory(), open).await? {
                Answer::Opened { data, .. } => data?.0.starts_with(b"secret").then_some(()),
                _ => None,
            }
        }
    ),
];
