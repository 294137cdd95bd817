//! Files, symlinks and devices where they are: under their one name, or at home (H96).
//!
//! What has one name stands under it. The first time it gets another it moves to its home, an entry of the
//! [`DirId::homes`] of the slot it is in, and its names become links: number and incarnation, one hop. It stays there
//! until the last name goes.

use crate::attached::{self, drop_all};
use crate::context::{Context, Place};
use crate::snapshot::Stop;
use pando_format::codec::Blob;
use pando_format::{
    AttachmentKind, Entry, GarbageRecord, InodeRecord, Key, Layout, LinkRecord, Record, Target,
};
use pando_types::{Access, DirId, Errno, FileKind, Generation, Ino, Name, Slot, Watermark, plant};
use pando_wire::{Answer, EntryView, LockMode, LockWant, Op, Scope, Statement};

/// A file and where its record and its attachments are.
pub(crate) struct File {
    pub body: Place,
    pub inode: InodeRecord,
    pub ordinal: u8,
}

impl File {
    /// As an answer shows it.
    pub fn view(&self) -> EntryView {
        view_file(&self.inode, self.body.dir)
    }
}

/// What operations may name the home of a file instead of a directory: those that look at it or change it, and only the one
/// that the statement is of. It has no name to be taken or given there.
pub(crate) fn check_homes(op: &Op) -> Result<(), Stop> {
    let home = match op {
        Op::Lookup { dir, name }
        | Op::ReadLink { dir, name }
        | Op::Open { dir, name, .. }
        | Op::SetAttr { dir, name, .. }
        | Op::GetXattr { dir, name, .. }
        | Op::ListXattr { dir, name, .. }
        | Op::SetXattr { dir, name, .. }
        | Op::RemoveXattr { dir, name, .. }
        | Op::Publish { dir, name, .. }
        | Op::Link {
            src: dir,
            src_name: name,
            ..
        } if dir.id.is_homes() => Some(dir).filter(|dir| dir.name == *name || plant!(G62)),
        _ => None,
    };
    let homes = |s: &&Statement| s.id.is_homes();
    let named = op.statements().iter().flatten().filter(|s| homes(s)).count();
    if named == usize::from(home.is_some()) || plant!(G63) {
        Ok(())
    } else {
        Err(Errno::Perm.into())
    }
}

/// The statement of a file's home, not yet signed.
fn home_statement(inode: &InodeRecord, homes: DirId) -> Statement {
    Statement {
        name: Name::home(inode.ino, inode.generation),
        id: homes,
        generation: inode.generation,
        ino: inode.ino,
        scope: Scope::Handle,
        // Nothing it says can become untrue.
        at: Watermark(u64::MAX),
        ..Statement::above_root()
    }
}

/// As an answer shows a file whose record is in `dir`.
pub(crate) fn view_file(inode: &InodeRecord, dir: DirId) -> EntryView {
    EntryView {
        attr: inode.attr(),
        dir: None,
        seal: None,
        layout: inode.layout.clone(),
        version: inode.version,
        xattrs: inode.marks.has_xattrs(),
        home: dir.is_homes().then(|| home_statement(inode, dir)),
    }
}

impl Context<'_> {
    fn home(&self, slot: Slot, ino: Ino, generation: Generation) -> Place {
        let name = Name::home(ino, generation);
        Place {
            dir: DirId::homes(slot),
            hash: self.inputs.widths.name(0, &name),
            name,
        }
    }

    /// The lock on the home of what an entry names, if it is at home.
    pub fn home_want(&self, target: &Target, mode: LockMode) -> Option<LockWant> {
        match target {
            Target::Link(l) => Some(self.home(l.slot, l.ino, l.generation).bucket(mode)),
            Target::Dir(_) | Target::Inode(_) => None,
        }
    }

    /// What an entry that is no directory's names. `None`: a directory.
    pub fn file(&self, place: &Place, entry: &Entry, mode: LockMode) -> Result<Option<File>, Stop> {
        match &entry.target {
            Target::Dir(_) => Ok(None),
            Target::Inode(inode) => Ok(Some(File {
                body: place.clone(),
                inode: inode.clone(),
                ordinal: entry.ordinal,
            })),
            Target::Link(link) => {
                let home = self.home(link.slot, link.ino, link.generation);
                self.require(vec![home.bucket(mode)])?;
                // A link to nothing is damage; fsck reports it.
                let entry = self.entry(&home).ok_or(Errno::Io)?;
                match &entry.target {
                    Target::Inode(inode) => Ok(Some(File {
                        body: home,
                        inode: inode.clone(),
                        ordinal: entry.ordinal,
                    })),
                    Target::Dir(_) | Target::Link(_) => Err(Errno::Io.into()),
                }
            }
        }
    }

    /// The bytes attached to a file.
    pub fn attached(&self, file: &File, kind: AttachmentKind) -> Result<Blob, Stop> {
        self.require(vec![LockWant::Attachments(file.body.key())])?;
        let at = &file.body;
        let bytes = self.snapshot.attachment(at.dir, at.hash, &at.name, kind);
        Ok(Blob(bytes.ok_or(Errno::Io)?.to_vec()))
    }

    /// The file is now `inode`.
    pub fn keep(&mut self, file: &File, inode: InodeRecord) -> EntryView {
        let view = view_file(&inode, file.body.dir);
        if inode != file.inode {
            self.keep_at(file, inode, file.ordinal);
        }
        view
    }

    /// The same, at another position among its siblings: what no operation may do (H66).
    pub fn keep_at(&mut self, file: &File, inode: InodeRecord, ordinal: u8) {
        let target = Target::Inode(inode);
        self.update(file.body.key(), Record::Entry(Entry { ordinal, target }));
    }

    /// Takes a file's name, and with the last one the file. Blocks are noted for deletion; a file that the caller has open keeps
    /// them until it is released or the session ends.
    pub fn drop_name(&mut self, place: &Place, file: &File, held: bool) {
        self.delete(place.key());
        let File { body, inode, .. } = file;
        if inode.nlink > 1 && !plant!(H96) {
            self.keep(
                file,
                InodeRecord {
                    nlink: inode.nlink - 1,
                    ctime: self.inputs.now,
                    ..inode.clone()
                },
            );
            return;
        }
        if body.dir.is_homes() {
            self.delete(body.key());
        }
        drop_all(self, body, &Target::Inode(inode.clone()));
        let block_size = match inode.layout {
            Layout::Blocks(size) => Some(size),
            _ => None,
        };
        let held = held && inode.kind == FileKind::Regular;
        if block_size.is_some() || held {
            let garbage = GarbageRecord {
                size: inode.size,
                block_size: block_size.unwrap_or(0),
                holder: if held { self.inputs.session } else { None },
            };
            // In the slot of the name, wherever the file was: the session of who holds it is known there.
            self.insert(
                Key::Garbage(place.dir.slot(), inode.ino, inode.generation),
                Record::Garbage(garbage),
            );
        }
    }
}

/// Gives what is not a directory another name. The order of the checks is Linux's.
pub(crate) fn link(
    cx: &mut Context<'_>,
    (src_dir, src_name): (&Statement, &Name),
    object: (Ino, Generation),
    (dst_dir, dst_name): (&Statement, &Name),
) -> Result<Answer, Stop> {
    let src = cx.place(src_dir, src_name);
    let dst = cx.place(dst_dir, dst_name);
    let mut wants = cx.change_wants(&dst);
    wants.push(LockWant::Key(Key::Head(src.dir), LockMode::Shared));
    wants.push(src.bucket(LockMode::Exclusive));
    cx.require(wants)?;
    cx.enter(src_dir, Access::EXEC)?;
    let entry = cx.entry_of(&src, object)?;
    cx.enter(dst_dir, pando_types::Access::EXEC)?;
    if cx.entry(&dst).is_some() {
        return Err(Errno::Exists.into());
    }
    cx.change(dst_dir)?;
    let Some(mut file) = cx.file(&src, entry, LockMode::Exclusive)? else {
        return Err(Errno::Perm.into());
    };
    let nlink = file.inode.nlink.checked_add(1).ok_or(Errno::TooManyLinks)?;
    let inode = InodeRecord {
        nlink,
        ctime: cx.inputs.now,
        ..file.inode.clone()
    };
    let shown = if file.body.dir.is_homes() {
        cx.keep(&file, inode)
    } else {
        file.body = promote(cx, &src, entry, &inode)?;
        view_file(&inode, file.body.dir)
    };
    cx.link(&dst, Target::Link(to_home(&file.inode, &file.body)))?;
    Ok(Answer::Entry(shown))
}

fn to_home(inode: &InodeRecord, home: &Place) -> LinkRecord {
    LinkRecord {
        slot: home.dir.slot(),
        ino: inode.ino,
        generation: inode.generation,
        kind: inode.kind,
    }
}

/// Moves a file from its one name to its home, in the slot where it is.
fn promote(cx: &mut Context<'_>, place: &Place, entry: &Entry, inode: &InodeRecord) -> Result<Place, Stop> {
    let home = cx.home(place.dir.slot(), inode.ino, inode.generation);
    cx.require(vec![home.bucket(LockMode::Exclusive)])?;
    let target = Target::Inode(inode.clone());
    cx.require(attached::wants(place, &target).into_iter().collect())?;
    attached::carry(cx, &target, place, &home)?;
    let ordinal = cx.free_ordinal(&home)?;
    cx.insert(home.key(), Record::Entry(Entry { ordinal, target }));
    let target = Target::Link(to_home(inode, &home));
    let ordinal = entry.ordinal;
    cx.update(place.key(), Record::Entry(Entry { ordinal, target }));
    Ok(home)
}
