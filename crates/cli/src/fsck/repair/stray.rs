//! What is attached to entries that are not there: content goes to `/lost+found`, as a file of its own.

use super::edit::{Edit, Source};
use super::links::home_of;
use super::plan::{NAMES, Plan, Planned, Planner, WELL, one};
use pando_format::{
    AttachmentKind, Entry, InodeRecord, Key, KeyRange, Layout, NameHash, Record, Tag, Target,
};
use pando_types::{DirId, FileKind, Name, Part, ServerId};

/// Where a symbolic link leads that is made to be filled.
pub const NOWHERE: &[u8] = b"?";

/// What is to be done about what is attached to nothing in a bucket: of content, one piece at a time.
pub async fn plan<S: Source>(
    planner: &Planner<S>,
    part: Part,
    hash: NameHash,
    entries: Vec<(Key, Entry)>,
) -> Planned {
    let dir = part.dir;
    let mut prefix = dir.0.to_be_bytes().to_vec();
    prefix.extend_from_slice(&hash.0.to_be_bytes()[1..]);
    let range = KeyRange::tagged(part.slot(), Tag::Attachment, &prefix);
    let found = planner.records.source.read(range).await?;
    let (mut edit, mut content) = (Edit::new(), None);
    for (key, record) in found {
        let Key::Attachment { name, kind, .. } = &key else {
            continue;
        };
        let (name, kind) = (name.clone(), *kind);
        let entry = Key::Entry { part, hash, name };
        if entries.iter().any(|(key, _)| *key == entry) {
            continue;
        }
        match kind {
            AttachmentKind::Xattrs => {
                edit.expect(entry, None);
                edit.set(key, Some(record), None);
            }
            kind => content = content.or(Some((entry, key, kind, record))),
        }
    }
    let Some((entry, key, kind, record)) = content else {
        return match edit.request.changes.len() {
            0 => Ok(WELL),
            n => one(
                edit,
                format!("removed {n} sets of extended attributes of nothing"),
            ),
        };
    };
    if dir.is_homes() && is_awaited(planner, &entry).await? {
        return Ok(Plan::Later("its names come first"));
    }
    fill(planner, edit, (dir, hash), (entry, key, kind, record)).await
}

/// Whether there are names of a file that should be there, or a transaction is about to change it.
async fn is_awaited<S: Source>(planner: &Planner<S>, home: &Key) -> Result<bool, super::Unread> {
    let (records, mut awaited) = (&planner.records, false);
    let each = &mut |_: ServerId, _: Key, record: Record| match record {
        Record::Entry(Entry {
            target: Target::Link(l),
            ..
        }) => awaited |= home_of(records, (l.slot, l.ino, l.generation)) == *home,
        Record::Prepared(part) => awaited |= part.mutations.iter().any(|m| m.key() == *home),
        _ => {}
    };
    records.source.sweep(each).await?;
    Ok(awaited)
}

/// Content goes into an empty file in `/lost+found`, which servers have given a number to.
async fn fill<S: Source>(
    planner: &Planner<S>,
    mut edit: Edit,
    (dir, hash): (DirId, NameHash),
    (entry, key, attached, record): (Key, Key, AttachmentKind, Record),
) -> Planned {
    let Record::Attachment(bytes) = &record else {
        return Ok(WELL);
    };
    let size = bytes.0.len() as u64;
    let (kind, layout) = match attached {
        AttachmentKind::Target => (FileKind::Symlink, Layout::LongTarget),
        _ => (FileKind::Regular, Layout::Inline),
    };
    let lost = planner.lost()?;
    let head = planner.records.head(lost).await?.ok_or(Plan::NeedsLostFound)?;
    for n in 0..NAMES {
        let Ok(name) = Name::new(format!("#{:x}.{:x}.{n}", dir.0, hash.0).as_bytes()) else {
            break;
        };
        let at = planner.records.map.widths().name(head.salt, &name);
        let part = planner.records.part_with(lost, at).await?;
        let place = Key::Entry {
            part,
            hash: at,
            name: name.clone(),
        };
        let there = match planner.records.get(&place).await? {
            None => return Ok(Plan::NeedsFile(name, kind)),
            Some(Record::Entry(there)) => there,
            Some(_) => continue,
        };
        let Target::Inode(inode) = &there.target else {
            continue;
        };
        if inode.kind != kind || !is_empty(inode) || !planner.records.attached(&place).await?.is_empty() {
            continue;
        }
        let target = Target::Inode(InodeRecord {
            layout,
            size,
            mtime: planner.now,
            ctime: planner.now,
            version: inode.version + 1,
            ..inode.clone()
        });
        let filled = Record::Entry(Entry {
            target,
            ..there.clone()
        });
        let to = Key::Attachment {
            part,
            hash: at,
            name: name.clone(),
            kind: attached,
        };
        edit.expect(entry, None);
        edit.set(place, Some(Record::Entry(there)), Some(filled));
        edit.set(to, None, Some(record.clone()));
        edit.set(key, Some(record), None);
        return one(
            edit,
            format!("content of a file that is not there: moved to /lost+found/{name}, root's, mode 0600"),
        );
    }
    Ok(Plan::Not("there is no free name in /lost+found"))
}

/// Whether it was made to be filled.
fn is_empty(inode: &InodeRecord) -> bool {
    let nothing = match &inode.layout {
        Layout::None => inode.size == 0,
        Layout::Target(target) => target.0 == NOWHERE,
        _ => false,
    };
    nothing && inode.uid == 0 && inode.nlink == 1
}
