//! Entries whose record and attachments do not fit.

use super::edit::{Edit, Source};
use super::plan::{Plan, Planner, Repair, Stop};
use pando_format::codec::Blob;
use pando_format::{AttachmentKind, Codec, Entry, InodeRecord, Key, Layout, Record, Target, XattrSet};
use pando_types::FileKind;

/// What is to be done about the entries of a bucket.
pub async fn plan<S: Source>(planner: &Planner<S>, entries: Vec<(Key, Entry)>) -> Result<Plan, Stop> {
    let mut all = Vec::new();
    for (key, entry) in entries {
        let attached = planner.records.attached(&key).await?;
        let mut edit = Edit::new();
        match fit(&key, &entry, &attached, &mut edit) {
            Ok(does) if does.is_empty() => {}
            Ok(does) => all.push(Repair {
                request: edit.request,
                counts: edit.counts,
                does: does.join("; "),
                slot: None,
            }),
            Err(why) => return Ok(Plan::Not(why)),
        }
    }
    match all.is_empty() {
        true => Ok(Plan::Later("it is well by now")),
        false => Ok(Plan::Repair(all)),
    }
}

/// Makes them fit. What it does, or why not.
fn fit(
    key: &Key,
    entry: &Entry,
    attached: &[(Key, AttachmentKind, Record)],
    edit: &mut Edit,
) -> Result<Vec<&'static str>, &'static str> {
    let mut does = Vec::new();
    let mut now = entry.clone();
    let of = |kind: AttachmentKind| attached.iter().find(|(_, k, _)| *k == kind);
    for (at, _, record) in attached {
        edit.expect(at.clone(), Some(record.clone()));
    }
    let drop_it = |edit: &mut Edit, kind: AttachmentKind| {
        if let Some((at, _, record)) = of(kind) {
            edit.set(at.clone(), Some(record.clone()), None);
        }
    };
    let readable = |record: &Record| match record {
        Record::Attachment(b) => XattrSet::from_bytes(&b.0).is_ok_and(|set| !set.is_empty()),
        _ => false,
    };
    let xattrs = of(AttachmentKind::Xattrs);
    let marks = match &mut now.target {
        Target::Dir(access) => Some(&mut access.marks),
        Target::Inode(inode) => Some(&mut inode.marks),
        Target::Link(_) => None,
    };
    let spoken = marks.as_ref().is_some_and(|m| m.has_xattrs());
    match xattrs {
        Some((_, _, record)) if !spoken || !readable(record) => {
            drop_it(edit, AttachmentKind::Xattrs);
            does.push("removed extended attributes that cannot be read or are of something else");
            if let Some(marks) = marks {
                *marks = marks.with_xattrs(false);
            }
        }
        None if spoken => {
            if let Some(marks) = marks {
                *marks = marks.with_xattrs(false);
            }
            does.push("its extended attributes are lost");
        }
        _ => {}
    }
    if let Target::Inode(inode) = &mut now.target {
        let length = |kind| match of(kind) {
            Some((_, _, Record::Attachment(b))) => Some(b.0.len() as u64),
            _ => None,
        };
        let (data, target) = (length(AttachmentKind::Data), length(AttachmentKind::Target));
        match (&inode.layout, inode.kind) {
            (Layout::Inline | Layout::SparseInline(_), FileKind::Regular) => {
                match (data, of(AttachmentKind::Data)) {
                    (None, _) => {
                        inode.layout = Layout::None;
                        does.push("its data are lost: it reads as zeros");
                    }
                    (Some(len), Some((at, _, record))) if len > inode.size => {
                        if let Record::Attachment(b) = record {
                            let cut = Blob(b.0[..inode.size as usize].to_vec());
                            let cut = Record::Attachment(cut);
                            edit.set(at.clone(), Some(record.clone()), Some(cut));
                            does.push("its data are cut to its size");
                        }
                    }
                    _ => {}
                }
            }
            (Layout::Blocks(size) | Layout::Sparse { block_size: size, .. }, FileKind::Regular)
                if !size.is_power_of_two() =>
            {
                return Err("how long its blocks are is not known: its data cannot be found");
            }
            (Layout::None | Layout::Blocks(_) | Layout::Sparse { .. }, FileKind::Regular) => {
                if data.is_some() {
                    drop_it(edit, AttachmentKind::Data);
                    does.push("removed data that its record does not speak of");
                }
            }
            (Layout::LongTarget, FileKind::Symlink) => match target {
                None => return Err("where it leads is lost: remove it, or make it again"),
                Some(len) if len != inode.size => {
                    inode.size = len;
                    does.push("its size is that of its target");
                }
                Some(_) => {}
            },
            (Layout::Target(t), FileKind::Symlink) => {
                if target.is_some() {
                    drop_it(edit, AttachmentKind::Target);
                    does.push("removed a second target");
                }
                if t.0.len() as u64 != inode.size {
                    inode.size = t.0.len() as u64;
                    does.push("its size is that of its target");
                }
            }
            (Layout::None, FileKind::Directory) => {
                return Err("it is a directory and has no content: what it was is not known");
            }
            (Layout::None, _) => {}
            _ => return Err("its kind and its layout contradict each other: what it was is not known"),
        }
        count_stored(inode, data, &mut does);
    }
    edit.expect(key.clone(), Some(Record::Entry(entry.clone())));
    if now != *entry {
        let was = Some(Record::Entry(entry.clone()));
        edit.set(key.clone(), was, Some(Record::Entry(now)));
    }
    Ok(does)
}

/// Makes the number of stored bytes one that may be true; the next publish counts them. `inline`: so many are
/// beside the record.
fn count_stored(inode: &mut InodeRecord, inline: Option<u64>, does: &mut Vec<&'static str>) {
    let said = inode.layout.allocated(inode.size);
    let counted = match inline.filter(|_| inode.layout.is_inline()) {
        Some(len) if len > said || !inode.layout.is_plausible(inode.size) => {
            Layout::inline(len.min(inode.size), inode.size)
        }
        None if !inode.layout.is_plausible(inode.size) => inode.layout.resized(inode.size, inode.size),
        _ => return,
    };
    if counted != inode.layout {
        inode.layout = counted;
        does.push("how many of its bytes are stored is what there is");
    }
}
