//! Extended attributes and special files, asked for by who may not have them.

use super::arena::{alice, mallory};
use super::speaker::{Speaker, named};
use super::{Arena, Cell, cell};
use pando_format::codec::Blob;
use pando_types::{Cred, FileKind, Perm, XattrMode, XattrName};
use pando_wire::{Answer, Object, Op, Statement};
use std::rc::Rc;

/// Sets an attribute of what a name stands for now.
async fn set(s: &Speaker, cred: &Cred, dir: &Statement, name: &str, attr: &str) -> Option<()> {
    let there = s.view(cred, dir, name).await?;
    let op = Op::SetXattr {
        object: Object::shown(dir.clone(), named(name)?, &there.attr),
        attr: XattrName::new(attr.as_bytes()).ok()?,
        value: Blob(b"secret".to_vec()),
        mode: XattrMode::Any,
    };
    s.op(cred, op).await.map(|_| ())
}

/// Mallory reads an attribute.
async fn get(a: &Arena, dir: &Statement, name: &str, attr: &str) -> Option<()> {
    let there = a.mallory.view(&mallory(), dir, name).await?;
    let op = Op::GetXattr {
        object: Object::shown(dir.clone(), named(name)?, &there.attr),
        attr: XattrName::new(attr.as_bytes()).ok()?,
    };
    match a.mallory.op(&mallory(), op).await? {
        Answer::Value(value) if value.0 == b"secret" => Some(()),
        _ => None,
    }
}

/// Mallory has a file of her own, and tries to give it an attribute.
async fn own(a: &Arena, attr: &str) -> Option<()> {
    let dir = a.mallory.find(&mallory(), "/open").await?;
    a.mallory.write(&mallory(), &dir, "mine", 0o755, "mine").await?;
    a.mark().await;
    set(&a.mallory, &mallory(), &dir, "mine", attr).await
}

pub(super) const CELLS: &[Cell] = &[
    cell!(
        "operation",
        "attribute of another's file set, without w",
        ["G59"],
        "marks another's file",
        async |a: Rc<Arena>| {
            let dir = a.mallory.find(&mallory(), "/open").await?;
            a.mark().await;
            set(&a.mallory, &mallory(), &dir, "notes", "user.mark").await
        }
    ),
    cell!(
        "operation",
        "attribute of another's file read, without r",
        ["G59"],
        "reads what is attached to another's file",
        async |a: Rc<Arena>| {
            let dir = a.alice.find(&alice(), "/open").await?;
            set(&a.alice, &alice(), &dir, "hers", "user.note").await?;
            let dir = a.mallory.find(&mallory(), "/open").await?;
            a.mark().await;
            get(&a, &dir, "hers", "user.note").await
        }
    ),
    cell!(
        "operation",
        "attribute of a sticky directory",
        ["G59"],
        "marks a directory that is everybody's to work in",
        async |a: Rc<Arena>| {
            let dir = a.mallory.find(&mallory(), "/").await?;
            a.mark().await;
            set(&a.mallory, &mallory(), &dir, "sticky", "user.mark").await
        }
    ),
    cell!(
        "operation",
        "attribute set in trusted.",
        ["G60"],
        "says what only the superuser says",
        async |a: Rc<Arena>| own(&a, "trusted.mark").await
    ),
    cell!(
        "operation",
        "attribute set in security.",
        ["G60"],
        "gives a program of hers the superuser's capabilities",
        async |a: Rc<Arena>| own(&a, "security.capability").await
    ),
    cell!(
        "operation",
        "attribute read in trusted.",
        ["G60"],
        "reads what is for the superuser",
        async |a: Rc<Arena>| {
            let open = a.at("/open").await?;
            set(&a.root, &Cred::root(), &open, "notes", "trusted.note").await?;
            let dir = a.mallory.find(&mallory(), "/open").await?;
            a.mark().await;
            get(&a, &dir, "notes", "trusted.note").await
        }
    ),
    cell!(
        "operation",
        "names of attributes in trusted.",
        ["G61"],
        "learns what the superuser has attached",
        async |a: Rc<Arena>| {
            let open = a.at("/open").await?;
            set(&a.root, &Cred::root(), &open, "notes", "trusted.note").await?;
            let dir = a.mallory.find(&mallory(), "/open").await?;
            let there = a.mallory.view(&mallory(), &dir, "notes").await?;
            a.mark().await;
            let op = Op::ListXattr {
                object: Object::shown(dir, named("notes")?, &there.attr),
            };
            match a.mallory.op(&mallory(), op).await? {
                Answer::Names(names) if !names.is_empty() => Some(()),
                _ => None,
            }
        }
    ),
    cell!(
        "operation",
        "mknod of a device",
        ["H148"],
        "has a way to the machine's disks",
        async |a: Rc<Arena>| {
            let dir = a.mallory.find(&mallory(), "/open").await?;
            a.mark().await;
            let op = Op::Mknod {
                dir,
                name: named("disk")?,
                kind: FileKind::BlockDevice,
                mode: Perm::new(0o666).into(),
                rdev: 0x800,
            };
            a.mallory.op(&mallory(), op).await.map(|_| ())
        }
    ),
    cell!(
        "operation",
        "mknod without w",
        ["G22"],
        "makes a FIFO in another's directory",
        async |a: Rc<Arena>| {
            let dir = a.mallory.find(&mallory(), "/shared").await?;
            a.mark().await;
            let op = Op::Mknod {
                dir,
                name: named("fifo")?,
                kind: FileKind::Fifo,
                mode: Perm::new(0o666).into(),
                rdev: 0,
            };
            a.mallory.op(&mallory(), op).await.map(|_| ())
        }
    ),
];
