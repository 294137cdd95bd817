//! Access control lists: set by who may not, and forged.

use super::arena::{alice, mallory, other};
use super::speaker::{Speaker, named};
use super::{Arena, Cell, cell};
use pando_types::{Acl, AclKind, Cred, Extended, Named, Perm};
use pando_wire::{Answer, EntryView, Object, Op, Statement};
use std::rc::Rc;

/// Sets a list of what a name stands for now.
async fn set(
    s: &Speaker,
    cred: &Cred,
    (dir, name): (&Statement, &str),
    kind: AclKind,
    list: Option<Acl>,
) -> Option<EntryView> {
    let there = s.view(cred, dir, name).await?;
    let op = Op::SetAcl {
        object: Object::shown(dir.clone(), named(name)?, &there.attr),
        kind,
        list,
    };
    match s.op(cred, op).await? {
        Answer::Entry(view) => Some(view),
        _ => None,
    }
}

/// A list that lets this user do everything.
fn all_for(uid: u32) -> Acl {
    Acl {
        owner: 7,
        users: vec![Named { id: uid, may: 7 }],
        mask: Some(7),
        ..Acl::default()
    }
}

pub(super) const CELLS: &[Cell] = &[
    cell!(
        "operation",
        "list set on another's file",
        ["G64"],
        "lets herself read a file of another's",
        async |a: Rc<Arena>| {
            let dir = a.mallory.find(&mallory(), "/open").await?;
            a.mark().await;
            let (list, what) = (all_for(mallory().uid), (&dir, "hers"));
            set(&a.mallory, &mallory(), what, AclKind::Access, Some(list))
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "operation",
        "default list set on another's directory",
        ["G64"],
        "is given everything that others will make there",
        async |a: Rc<Arena>| {
            let dir = a.mallory.find(&mallory(), "/").await?;
            a.mark().await;
            let (list, what) = (all_for(mallory().uid), (&dir, "open"));
            set(&a.mallory, &mallory(), what, AclKind::Default, Some(list))
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "operation",
        "list of another's file removed",
        ["G64"],
        "takes another's access away",
        async |a: Rc<Arena>| {
            let dir = a.alice.find(&alice(), "/open").await?;
            set(
                &a.alice,
                &alice(),
                (&dir, "hers"),
                AclKind::Access,
                Some(all_for(7)),
            )
            .await?;
            let dir = a.mallory.find(&mallory(), "/open").await?;
            a.mark().await;
            set(&a.mallory, &mallory(), (&dir, "hers"), AclKind::Access, None)
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "operation",
        "list on a set-gid file of a foreign group",
        ["G65"],
        "makes a program of another's group",
        async |a: Rc<Arena>| {
            // In a directory with the bit, files are of its group; nobody of it may execute this one, so it
            // keeps the bit.
            let open = a.alice.find(&alice(), "/open").await?;
            a.alice.mkdir(&alice(), &open, "setgid", 0o777).await?;
            a.alice.chmod(&alice(), &open, "setgid", 0o2777).await?;
            let dir = a.mallory.find(&mallory(), "/open/setgid").await?;
            a.mallory.write(&mallory(), &dir, "mine", 0o644, "mine").await?;
            a.root
                .chmod(&Cred::root(), &a.at("/open/setgid").await?, "mine", 0o2644)
                .await?;
            let list = Acl {
                owner: 7,
                group: 5,
                other: 5,
                ..Acl::default()
            };
            let after = set(
                &a.mallory,
                &mallory(),
                (&dir, "mine"),
                AclKind::Access,
                Some(list),
            )
            .await?;
            // The file is hers: what counts is the bit.
            a.mark().await;
            after.attr.perm.has(Perm::SETGID | 0o010).then_some(())
        }
    ),
    cell!(
        "statement",
        "forged list",
        ["G66"],
        "searches a directory of a group",
        async |a: Rc<Arena>| {
            let mut s = a.mallory.find(&mallory(), "/group").await?;
            s.acls.access = Some(Extended {
                users: vec![Named {
                    id: other().uid,
                    may: 7,
                }],
                ..Extended::default()
            });
            a.mark().await;
            a.mallory.view(&other(), &s, "sub").await.map(|_| ())
        }
    ),
];
