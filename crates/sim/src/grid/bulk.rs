//! Bulk insertion: leases of directories, the tables that are inserted by them, and parts of directories.

use super::arena::{alice, mallory};
use super::speaker::named;
use super::tables::{Lease, Maker, packed};
use super::{Arena, Cell, Layout, cell};
use pando_format::{Key, NumberRun, Record, table_sum};
use pando_types::{Ino, Perm};
use pando_wire::{Bulk, Op};
use std::rc::Rc;

fn hers(a: &Rc<Arena>) -> Maker {
    Maker {
        arena: a.clone(),
        speaker: a.alice.clone(),
        cred: alice(),
    }
}

fn mine(a: &Rc<Arena>) -> Maker {
    Maker {
        arena: a.clone(),
        speaker: a.mallory.clone(),
        cred: mallory(),
    }
}

/// Mallory says a step of a lease that is Alice's, of a directory that is everybody's.
async fn of_hers(a: &Rc<Arena>, step: impl FnOnce(&Lease) -> Bulk) -> Option<()> {
    let lease = hers(a).localized("box").await?;
    let dir = a.mallory.find(&mallory(), "/open/box").await?;
    let step = step(&lease);
    a.mark().await;
    mine(a).step(&dir, step).await.map(|_| ())
}

/// Mallory localises a directory of her own and inserts what this makes for it.
async fn inserts(
    a: &Rc<Arena>,
    make: impl FnOnce(&Maker, &Lease) -> Option<Vec<(Key, Record)>>,
) -> Option<()> {
    let me = mine(a);
    let lease = me.localized("box").await?;
    let rows = make(&me, &lease)?;
    a.mark().await;
    me.insert(&lease, &rows).await
}

/// One file, as this changes it.
async fn inserts_file(
    a: &Rc<Arena>,
    change: impl FnOnce(&Lease, &mut pando_format::InodeRecord),
) -> Option<()> {
    let made = |me: &Maker, lease: &Lease| {
        let mut file = me.file(lease.id(0));
        change(lease, &mut file);
        Some(vec![me.row(lease.inside(), "planted", file)?])
    };
    inserts(a, made).await
}

/// The number of a file of Alice's in `/open`.
async fn her_number(a: &Rc<Arena>) -> Option<Ino> {
    let open = a.alice.find(&alice(), "/open").await?;
    Some(a.alice.view(&alice(), &open, "notes").await?.attr.ino)
}

pub(super) const CELLS: &[Cell] = &[
    cell!(
        Layout::Placed,
        "lease",
        "of another's directory",
        ["G77"],
        "locks others out of their directory",
        async |a: Rc<Arena>| {
            let sub = a.mallory.find(&mallory(), "/shared/sub").await?;
            a.mark().await;
            mine(&a).localize(&sub).await.map(|_| ())
        }
    ),
    cell!(
        Layout::Placed,
        "lease",
        "another's, renewed",
        ["G78"],
        "is given numbers, and keeps others out",
        async |a: Rc<Arena>| {
            let renew = |l: &Lease| Bulk::Renew {
                lease: l.lease,
                more: true,
            };
            of_hers(&a, renew).await
        }
    ),
    cell!(
        Layout::Placed,
        "lease",
        "another's, given back",
        ["G78"],
        "ends it, and what was made is lost",
        async |a: Rc<Arena>| of_hers(&a, |l| Bulk::Return { lease: l.lease }).await
    ),
    cell!(
        Layout::Placed,
        "lease",
        "another's, with a table of her own",
        ["G78"],
        "puts files where another makes them",
        async |a: Rc<Arena>| {
            let lease = hers(&a).localized("box").await?;
            let dir = a.mallory.find(&mallory(), "/open/box").await?;
            let (me, lease) = (mine(&a), Lease { dir, ..lease });
            let rows = [me.row(lease.inside(), "planted", me.file(lease.id(0)))?];
            a.mark().await;
            me.insert(&lease, &rows).await
        }
    ),
    cell!(
        Layout::Placed,
        "lease",
        "of before, after another one",
        ["H55"],
        "inserts what is late",
        async |a: Rc<Arena>| {
            let me = mine(&a);
            let before = me.localized("box").await?;
            me.give_back(&before).await?;
            let lease = me.localize(&before.dir).await?;
            let rows = [me.row(lease.inside(), "late", me.file(lease.id(0)))?];
            a.mark().await;
            let bytes = packed(&rows);
            // The bytes lie where the server looks for them.
            me.insert_said(&lease, &bytes, [0; 32]).await;
            let stale = Lease {
                lease: before.lease,
                ..lease
            };
            me.insert(&stale, &rows).await
        }
    ),
    cell!(
        Layout::Placed,
        "lease",
        "made up, renewed",
        ["H55"],
        "is given numbers without a lease",
        async |a: Rc<Arena>| {
            let me = mine(&a);
            let lease = me.localized("box").await?;
            a.mark().await;
            let made_up = pando_types::Generation(lease.lease.0 ^ 1);
            let renew = Bulk::Renew {
                lease: made_up,
                more: true,
            };
            me.step(&lease.dir, renew).await.map(|_| ())
        }
    ),
    cell!(
        Layout::Placed,
        "table",
        "number of another's file",
        ["H311"],
        "makes two files of one number",
        async |a: Rc<Arena>| {
            let number = her_number(&a).await?;
            inserts_file(&a, |_, file| file.ino = number).await
        }
    ),
    cell!(
        Layout::Placed,
        "table",
        "number that was not given yet",
        ["H311"],
        "has the number of a file to come",
        async |a: Rc<Arena>| {
            let beyond = |lease: &Lease, file: &mut pando_format::InodeRecord| {
                let NumberRun { next, end, .. } = lease.numbers;
                (file.ino, file.generation) = lease.id(end - next);
            };
            inserts_file(&a, beyond).await
        }
    ),
    cell!(
        Layout::Placed,
        "table",
        "a file of another user",
        ["G79"],
        "makes a file in another's name",
        async |a: Rc<Arena>| inserts_file(&a, |_, file| file.uid = alice().uid).await
    ),
    cell!(
        Layout::Placed,
        "table",
        "a set-uid file of the superuser",
        ["G79"],
        "makes a program that runs as the superuser",
        async |a: Rc<Arena>| {
            let planted = |_: &Lease, file: &mut pando_format::InodeRecord| {
                (file.uid, file.perm) = (0, Perm::new(0o4755));
            };
            inserts_file(&a, planted).await
        }
    ),
    cell!(
        Layout::Placed,
        "table",
        "a file of a foreign group",
        ["G79"],
        "makes a file of another's group",
        async |a: Rc<Arena>| inserts_file(&a, |_, file| file.gid = alice().gid).await
    ),
    cell!(
        Layout::Placed,
        "table",
        "a name in another name's place",
        ["G80"],
        "makes a file that nobody finds or removes",
        async |a: Rc<Arena>| {
            let made = |me: &Maker, lease: &Lease| {
                let (_, record) = me.row(lease.inside(), "planted", me.file(lease.id(0)))?;
                let Key::Entry { part, name, .. } = me.key(lease.inside(), "planted")? else {
                    return None;
                };
                let Key::Entry { hash, .. } = me.key(lease.inside(), "other")? else {
                    return None;
                };
                Some(vec![(Key::Entry { part, hash, name }, record)])
            };
            inserts(&a, made).await
        }
    ),
    cell!(
        Layout::Placed,
        "table",
        "two directories, each in the other",
        ["G81"],
        "makes a loop that no walk leaves",
        async |a: Rc<Arena>| {
            let made = |me: &Maker, lease: &Lease| {
                let realm = lease.dir.realm;
                let (first, second) = (lease.made(0, realm), lease.made(1, realm));
                let mut rows = me.dir(lease, 0, (second, "first"), 1)?;
                rows.extend(me.dir(lease, 1, (first, "second"), 1)?);
                Some(rows)
            };
            inserts(&a, made).await
        }
    ),
    cell!(
        Layout::Placed,
        "table",
        "into another's directory that is not below hers",
        ["G82", "G83"],
        "makes files in another's directory",
        async |a: Rc<Arena>| {
            // Alice's table makes both in one slot, and one of them is open to all.
            let she = hers(&a);
            let lease = she.localized("box").await?;
            let inside = lease.inside();
            let mut rows = she.dir(&lease, 0, (inside, "hers"), 0)?;
            rows.extend(she.dir(&lease, 1, (inside, "for-all"), 0)?);
            she.insert(&lease, &rows).await?;
            she.give_back(&lease).await?;
            let open = a.alice.find(&alice(), "/open/box").await?;
            a.alice.chmod(&alice(), &open, "for-all", 0o777).await?;
            let me = mine(&a);
            let dir = a.mallory.find(&mallory(), "/open/box/for-all").await?;
            let own = me.localize(&dir).await?;
            let there = lease.made(0, inside.realm);
            let rows = [me.row(there, "planted", me.file(own.id(0)))?];
            a.mark().await;
            me.insert(&own, &rows).await
        }
    ),
    cell!(
        Layout::Placed,
        "table",
        "another one than its checksum is of",
        ["H310"],
        "has examined what is not inserted",
        async |a: Rc<Arena>| {
            let me = mine(&a);
            let lease = me.localized("box").await?;
            let said = packed(&[me.row(lease.inside(), "said", me.file(lease.id(0)))?]);
            let there = packed(&[me.row(lease.inside(), "them", me.file(lease.id(0)))?]);
            a.mark().await;
            me.insert_said(&lease, &there, table_sum(&said)).await
        }
    ),
    cell!(
        Layout::Split,
        "request",
        "made in a part that has not the name",
        ["G84"],
        "makes a second file of one name",
        async |a: Rc<Arena>| {
            let me = mine(&a);
            let dir = me.mkdir("box").await?;
            let names: Vec<String> = (0..40).map(|n| format!("file-{n}")).collect();
            let mut made = Vec::new();
            for name in &names {
                if a.mallory.create(&mallory(), &dir, name, 0o644).await.is_some() {
                    made.push(name);
                }
            }
            // The directory is split, and what was given away is swept.
            a.mallory.sleep(5_000).await;
            a.mark().await;
            // A request that names no parts is of the first.
            for name in made {
                let op = Op::Create {
                    dir: dir.clone(),
                    name: named(name)?,
                    mode: Perm::new(0o644).into(),
                    exclusive: true,
                    want: 0,
                };
                if a.mallory.op(&mallory(), op).await.is_some() {
                    return Some(());
                }
            }
            None
        }
    ),
];
