//! Operations with honest statements that ask for more than their permissions allow.

use super::arena::{alice, mallory};
use super::speaker::named;
use super::{Arena, Cell, cell};
use pando_format::Position;
use pando_format::codec::Blob;
use pando_types::{AttrChange, Name, Perm, TimeChange, Timestamp};
use pando_wire::{Answer, DirEntry, EntryView, Object, Op, RenameMode, Statement};
use std::rc::Rc;

/// Mallory's honest statement of a directory; the attack begins.
async fn at(a: &Arena, path: &str) -> Option<Statement> {
    let dir = a.mallory.find(&mallory(), path).await?;
    a.mark().await;
    Some(dir)
}

/// Mallory changes attributes.
async fn set(a: &Arena, path: &str, name: &str, change: AttrChange) -> Option<()> {
    let dir = at(a, path).await?;
    a.mallory.set(&mallory(), &dir, name, change).await.map(|_| ())
}

/// Mallory has a file of her own in a directory that everybody may change.
async fn own(a: &Arena, path: &str) -> Option<Statement> {
    let dir = a.mallory.find(&mallory(), path).await?;
    a.mallory.write(&mallory(), &dir, "mine", 0o644, "mine").await?;
    Some(dir)
}

/// A page of a listing by Mallory.
async fn listed(a: &Arena, dir: Statement, plus: bool) -> Option<Vec<DirEntry>> {
    let (after, limit) = (Position::START, 100);
    let op = Op::ReadDir {
        dir,
        after,
        limit,
        plus,
    };
    match a.mallory.op(&mallory(), op).await? {
        Answer::Entries { entries, .. } => Some(entries),
        _ => None,
    }
}

/// Mallory renames between two directories.
async fn moves(a: &Arena, from: (&Statement, &str), to: (&Statement, &str), mode: RenameMode) -> Option<()> {
    a.mallory.rename(&mallory(), from, to, mode).await.map(|_| ())
}

const REPLACE: RenameMode = RenameMode::Replace;

pub(super) const CELLS: &[Cell] = &[
    cell!(
        "operation",
        "lookup and read without x",
        ["G22"],
        "reads a file in a 0700 directory",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/private").await?;
            a.mallory.reads(&mallory(), &dir, "diary").await
        }
    ),
    cell!(
        "operation",
        "readdir without r",
        ["G22"],
        "lists a 0711 directory",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/blind").await?;
            listed(&a, dir, false).await.map(|_| ())
        }
    ),
    cell!(
        "operation",
        "readdir with whole entries, r without x",
        ["G29"],
        "enters a directory below a 0744 one",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/listed").await?;
            let inner = listed(&a, dir, true).await?.into_iter().next()?.view?.dir?;
            a.mallory.reads(&mallory(), &inner, "file").await
        }
    ),
    cell!(
        "operation",
        "create without w",
        ["G22"],
        "makes a file in another's directory",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/shared").await?;
            a.mallory
                .create(&mallory(), &dir, "planted", 0o644)
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "operation",
        "mkdir without w",
        ["G22"],
        "makes a directory in another's",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/shared").await?;
            a.mallory
                .mkdir(&mallory(), &dir, "planted", 0o755)
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "operation",
        "symlink without w",
        ["G22"],
        "makes a link in another's directory",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/shared").await?;
            let (name, target) = (named("planted")?, Blob(b"/open".to_vec()));
            a.mallory
                .op(&mallory(), Op::Symlink { dir, name, target })
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "operation",
        "unlink without w",
        ["G22"],
        "removes another's file",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/shared").await?;
            a.mallory.unlink(&mallory(), &dir, "file").await.map(|_| ())
        }
    ),
    cell!(
        "operation",
        "unlink of many without w",
        ["G22"],
        "removes another's files",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/shared").await?;
            a.mallory
                .unlink_many(&mallory(), &dir, &["nothing", "file"])
                .await
        }
    ),
    cell!(
        "operation",
        "rmdir without w",
        ["G22"],
        "removes another's directory",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/shared").await?;
            a.mallory
                .op(
                    &mallory(),
                    Op::Rmdir {
                        dir,
                        name: named("sub")?,
                    },
                )
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "operation",
        "rename out of a directory without w",
        ["G22"],
        "takes another's file",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            let dir = at(&a, "/shared").await?;
            moves(&a, (&dir, "file"), (&open, "taken"), REPLACE).await
        }
    ),
    cell!(
        "operation",
        "rename into a directory without w",
        ["G22"],
        "puts a file into another's directory",
        async |a: Rc<Arena>| {
            let open = own(&a, "/open").await?;
            let dir = at(&a, "/shared").await?;
            moves(&a, (&open, "mine"), (&dir, "planted"), REPLACE).await
        }
    ),
    cell!(
        "operation",
        "rename over another's file",
        ["G22"],
        "replaces another's file",
        async |a: Rc<Arena>| {
            let open = own(&a, "/open").await?;
            let dir = at(&a, "/shared").await?;
            moves(&a, (&open, "mine"), (&dir, "file"), REPLACE).await
        }
    ),
    cell!(
        "operation",
        "exchange with another's file",
        ["G22"],
        "takes another's file",
        async |a: Rc<Arena>| {
            let open = own(&a, "/open").await?;
            let dir = at(&a, "/shared").await?;
            moves(&a, (&open, "mine"), (&dir, "file"), RenameMode::Exchange).await
        }
    ),
    cell!(
        "operation",
        "rename out of a directory without x",
        ["G22"],
        "takes a file out of a 0700 directory",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            let dir = at(&a, "/private").await?;
            moves(&a, (&dir, "diary"), (&open, "taken"), REPLACE).await
        }
    ),
    cell!(
        "operation",
        "rename of a directory out of another's",
        ["G22", "G54"],
        "takes another's directory",
        async |a: Rc<Arena>| {
            let open = a.mallory.find(&mallory(), "/open").await?;
            let dir = at(&a, "/shared").await?;
            moves(&a, (&dir, "sub"), (&open, "taken"), REPLACE).await
        }
    ),
    cell!(
        "operation",
        "unlink under the sticky bit",
        ["G23"],
        "removes another's file",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/sticky").await?;
            a.mallory.unlink(&mallory(), &dir, "hers").await.map(|_| ())
        }
    ),
    cell!(
        "operation",
        "unlink of many under the sticky bit",
        ["G23"],
        "removes another's files",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/sticky").await?;
            a.mallory
                .unlink_many(&mallory(), &dir, &["nothing", "hers"])
                .await
        }
    ),
    cell!(
        "operation",
        "rename under the sticky bit",
        ["G23"],
        "takes another's file",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/sticky").await?;
            moves(&a, (&dir, "hers"), (&dir, "taken"), REPLACE).await
        }
    ),
    cell!(
        "operation",
        "rename over another's under the sticky bit",
        ["G23"],
        "replaces another's file",
        async |a: Rc<Arena>| {
            let dir = own(&a, "/sticky").await?;
            a.mark().await;
            moves(&a, (&dir, "mine"), (&dir, "hers"), REPLACE).await
        }
    ),
    cell!(
        "operation",
        "chmod of another's file",
        ["G24"],
        "opens another's file to all",
        async |a: Rc<Arena>| {
            let perm = Some(Perm::new(0o777));
            set(
                &a,
                "/open",
                "hers",
                AttrChange {
                    perm,
                    ..AttrChange::default()
                },
            )
            .await
        }
    ),
    cell!(
        "operation",
        "chown of another's file",
        ["G24"],
        "owns another's file",
        async |a: Rc<Arena>| {
            set(
                &a,
                "/open",
                "hers",
                AttrChange {
                    uid: Some(1002),
                    ..AttrChange::default()
                },
            )
            .await
        }
    ),
    cell!(
        "operation",
        "chmod of another's directory",
        ["G24"],
        "opens another's directory to all",
        async |a: Rc<Arena>| {
            let perm = Some(Perm::new(0o777));
            set(
                &a,
                "/",
                "private",
                AttrChange {
                    perm,
                    ..AttrChange::default()
                },
            )
            .await
        }
    ),
    cell!(
        "operation",
        "chmod of another's directory by itself",
        ["G24"],
        "opens another's directory to all",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/private").await?;
            let Answer::Entry(EntryView { dir: Some(dir), .. }) =
                a.mallory.op(&mallory(), Op::Reopen { dir }).await?
            else {
                return None;
            };
            let op = Op::SetAttr {
                object: Object {
                    name: Name::root(),
                    ino: dir.ino,
                    generation: dir.generation,
                    dir,
                },
                change: AttrChange {
                    perm: Some(Perm::new(0o777)),
                    ..AttrChange::default()
                },
                handle: None,
            };
            a.mallory.op(&mallory(), op).await.map(|_| ())
        }
    ),
    cell!(
        "operation",
        "own file given to another user",
        ["G24"],
        "makes another its owner",
        async |a: Rc<Arena>| {
            own(&a, "/open").await?;
            set(
                &a,
                "/open",
                "mine",
                AttrChange {
                    uid: Some(1001),
                    ..AttrChange::default()
                },
            )
            .await
        }
    ),
    cell!(
        "operation",
        "own file given to a foreign group",
        ["G24"],
        "makes a file of another's group",
        async |a: Rc<Arena>| {
            own(&a, "/open").await?;
            set(
                &a,
                "/open",
                "mine",
                AttrChange {
                    gid: Some(1001),
                    ..AttrChange::default()
                },
            )
            .await
        }
    ),
    cell!(
        "operation",
        "setgid on a file of a foreign group",
        ["G28"],
        "makes a program of another's group",
        async |a: Rc<Arena>| {
            // In a directory with the bit, files are of its group.
            let open = a.alice.find(&alice(), "/open").await?;
            a.alice.mkdir(&alice(), &open, "setgid", 0o777).await?;
            a.alice.chmod(&alice(), &open, "setgid", 0o2777).await?;
            let dir = own(&a, "/open/setgid").await?;
            let view = a.mallory.view(&mallory(), &dir, "mine").await?;
            (view.attr.gid == 1001).then_some(())?;
            let op = Op::SetAttr {
                object: Object::shown(dir.clone(), named("mine")?, &view.attr),
                change: AttrChange {
                    perm: Some(Perm::new(0o2755)),
                    ..AttrChange::default()
                },
                handle: None,
            };
            let Answer::Entry(after) = a.mallory.op(&mallory(), op).await? else {
                return None;
            };
            // The file is hers: what counts is the bit.
            a.mark().await;
            after.attr.perm.has(Perm::SETGID).then_some(())
        }
    ),
    cell!(
        "operation",
        "times of another's file",
        ["G25"],
        "changes another's times",
        async |a: Rc<Arena>| {
            let then = TimeChange::To(Timestamp { secs: 1, nanos: 0 });
            set(
                &a,
                "/open",
                "notes",
                AttrChange {
                    mtime: Some(then),
                    ..AttrChange::default()
                },
            )
            .await
        }
    ),
    cell!(
        "operation",
        "other times with new content of another's file",
        ["G58"],
        "hides from its owner that a file was changed",
        async |a: Rc<Arena>| {
            let open = a.alice.find(&alice(), "/open").await?;
            a.alice
                .write(&alice(), &open, "shared", 0o666, "by alice")
                .await?;
            let dir = at(&a, "/open").await?;
            let (file, _, handle) = a.mallory.open(&mallory(), &dir, "shared", 2).await?;
            let then = Timestamp { secs: 1, nanos: 0 };
            let op = Op::Publish {
                object: Object::shown(dir.clone(), named("shared")?, &file.attr),
                handle: handle?,
                content: pando_wire::Content::None,
                size: 0,
                mtime: Some(then),
                base: None,
            };
            let Answer::Entry(after) = a.mallory.op(&mallory(), op).await? else {
                return None;
            };
            // To write it is her right: what counts is the time.
            a.mark().await;
            (after.attr.mtime == then).then_some(())
        }
    ),
    cell!(
        "operation",
        "open of a 0600 file",
        ["G52"],
        "reads another's file",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/open").await?;
            a.mallory.reads(&mallory(), &dir, "hers").await
        }
    ),
    cell!(
        "operation",
        "open for writing of a 0644 file",
        ["G52"],
        "replaces another's bytes",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/open").await?;
            let (file, _, handle) = a.mallory.open(&mallory(), &dir, "notes", 2).await?;
            a.mallory
                .publish(&mallory(), &dir, "notes", &file, handle?, "x")
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "operation",
        "create of what exists, to write it",
        ["G52"],
        "replaces another's bytes",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/open").await?;
            let (name, perm) = (named("notes")?, Perm::new(0o644));
            let op = Op::Create {
                dir: dir.clone(),
                name,
                mode: perm.into(),
                exclusive: false,
                want: 2,
            };
            let Answer::Opened { entry, handle, .. } = a.mallory.op(&mallory(), op).await? else {
                return None;
            };
            a.mallory
                .publish(&mallory(), &dir, "notes", &entry, handle?, "x")
                .await
                .map(|_| ())
        }
    ),
    cell!(
        "operation",
        "open for nothing",
        ["G30"],
        "is shown another's bytes",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/open").await?;
            let (_, data, _) = a.mallory.open(&mallory(), &dir, "hers", 0).await?;
            data.starts_with(b"secret").then_some(())
        }
    ),
    cell!(
        "operation",
        "open to write what may not be read",
        ["G30"],
        "is shown another's bytes",
        async |a: Rc<Arena>| {
            let dir = at(&a, "/open").await?;
            let (_, data, _) = a.mallory.open(&mallory(), &dir, "written-only", 2).await?;
            data.starts_with(b"secret").then_some(())
        }
    ),
    cell!(
        "operation",
        "truncate of a 0644 file",
        ["G27"],
        "empties another's file",
        async |a: Rc<Arena>| {
            set(
                &a,
                "/open",
                "notes",
                AttrChange {
                    size: Some(0),
                    ..AttrChange::default()
                },
            )
            .await
        }
    ),
    cell!(
        "operation",
        "truncate of another's setuid program",
        ["G26"],
        "changes a program that runs as another",
        async |a: Rc<Arena>| {
            // It may be written by all; what runs as its owner must not be what they wrote.
            let dir = a.alice.find(&alice(), "/open").await?;
            a.alice.chmod(&alice(), &dir, "setuid", 0o4666).await?;
            let dir = a.mallory.find(&mallory(), "/open").await?;
            let size = AttrChange {
                size: Some(3),
                ..AttrChange::default()
            };
            let after = a.mallory.set(&mallory(), &dir, "setuid", size).await?;
            a.mark().await;
            after.attr.perm.has(Perm::SETUID).then_some(())
        }
    ),
];
