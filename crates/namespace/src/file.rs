//! Files, symlinks and devices where they are: under their one name, or at home (H96).
//!
//! What has one name stands under it. The first time it gets another it moves to its home, an entry of the
//! [`DirId::homes`] of the slot it is in, and its names become links: number and incarnation, one hop. It
//! stays there until the last name goes.

use crate::attached::{self, drop_all};
use crate::context::{Context, Place, Which};
use crate::snapshot::{Snapshot, Stop};
use pando_format::codec::Blob;
use pando_format::{
    AttachmentKind, Entry, GarbageRecord, HashWidths, InodeRecord, Key, LinkRecord, Mutation, NameHash,
    Position, Record, Target,
};
use pando_types::{Access, DirId, Errno, FileKind, Generation, Ino, Name, Part, Slot, Watermark, plant};
use pando_wire::{
    Answer, EntryView, FileAt, Holders, LockMode, LockWant, Object, Op, Said, Scope, Statement,
};
use std::collections::BTreeSet;

/// A file and where its record and its attachments are.
pub(crate) struct File {
    pub body: Place,
    pub inode: InodeRecord,
    pub ordinal: u8,
}

impl File {
    /// As an answer shows it.
    pub fn view(&self) -> EntryView {
        view_file(&self.inode, self.body.part.dir)
    }

    /// As who has it open knows it.
    fn at(&self) -> FileAt {
        FileAt {
            slot: self.body.part.slot(),
            ino: self.inode.ino,
            generation: self.inode.generation,
        }
    }
}

/// What operations may name the home of a file instead of a directory: those that look at it or change it,
/// and only the one that the statement is of. It has no name to be taken or given there.
pub(crate) fn check_homes(op: &Op) -> Result<(), Stop> {
    let home = op.subjects()[0]
        .filter(|first| first.dir().id.is_homes() && op.traits().at_home)
        .filter(|first| first.name() == Some(&first.dir().name) || plant!(G62));
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
    Statement::from(Said {
        name: Name::home(inode.ino, inode.generation),
        id: homes,
        generation: inode.generation,
        ino: inode.ino,
        scope: Scope::Handle,
        // Nothing it says can become untrue.
        at: Watermark(u64::MAX),
        ..Said::above_root()
    })
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
        acl: inode.acl.clone(),
        lease: 0,
    }
}

impl Context<'_> {
    fn home(&self, slot: Slot, ino: Ino, generation: Generation) -> Place {
        home_of(self.inputs.widths, slot, ino, generation)
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
        let bytes = self.snapshot.attachment(at.part, at.hash, &at.name, kind);
        Ok(Blob(bytes.ok_or(Errno::Io)?.to_vec()))
    }

    /// The file is now `inode`.
    pub fn keep(&mut self, file: &File, inode: InodeRecord) -> EntryView {
        let view = view_file(&inode, file.body.part.dir);
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

    /// Takes a file's name, and with the last one the file, unless others have it open. Blocks are noted for
    /// deletion; a file that the caller alone has open keeps them until it is released or the session ends.
    /// Returns what it was, or, if it stays without a name, what it is.
    pub fn drop_name(&mut self, place: &Place, file: &File, held: bool) -> Result<EntryView, Stop> {
        let File { body, inode, .. } = file;
        if inode.nlink > 1 && !plant!(H96) {
            self.delete(place.key());
            self.keep(
                file,
                InodeRecord {
                    nlink: inode.nlink - 1,
                    ctime: self.inputs.now,
                    ..inode.clone()
                },
            );
            return Ok(file.view());
        }
        // A caller that does not say `held` makes no note of its own: it may have the file open without
        // knowing that this is one of its names.
        let noted = self.inputs.keeper.filter(|_| held);
        if self.holders(file).other_than(noted) {
            return self.orphan(place, file);
        }
        self.delete(place.key());
        if body.part.dir.is_homes() {
            self.delete(body.key());
        }
        drop_all(self, body, &Target::Inode(inode.clone()));
        let block_size = inode.layout.block_size();
        let held = held && inode.kind == FileKind::Regular;
        if block_size.is_some() || held {
            let garbage = GarbageRecord {
                size: inode.size,
                block_size: block_size.unwrap_or(0),
                holder: if held { self.inputs.session } else { None },
            };
            // In the slot of the name, wherever the file was: the session of who holds it is known there.
            self.insert(
                Key::Garbage(place.part.slot(), inode.ino, inode.generation),
                Record::Garbage(garbage),
            );
        }
        Ok(file.view())
    }

    fn holders(&self, file: &File) -> Holders {
        if file.inode.kind != FileKind::Regular || plant!(H97) {
            return Holders::Nobody;
        }
        self.snapshot.holders(file.at())
    }

    /// Whether anybody may have the file open.
    pub fn is_open(&self, file: &File) -> bool {
        self.holders(file) != Holders::Nobody
    }

    /// Whether another than the caller's session may have the file open (H97).
    fn others_hold(&self, file: &File) -> bool {
        self.holders(file).other_than(self.inputs.keeper)
    }

    /// Whether a file that is renamed stays in the slot where it is, at home: others have it open and know no
    /// other place, or somebody has and it would leave the slot, where that is known (H97).
    pub fn stays(&self, file: &File, to: Part) -> bool {
        let leaves = file.body.part.slot() != to.slot() && self.holders(file) != Holders::Nobody;
        !file.body.part.dir.is_homes() && (leaves || self.others_hold(file))
    }

    /// Takes the last name of a file that others have open: it stays at home, without a name.
    fn orphan(&mut self, place: &Place, file: &File) -> Result<EntryView, Stop> {
        let inode = InodeRecord {
            nlink: 0,
            ctime: self.inputs.now,
            ..file.inode.clone()
        };
        let home = if file.body.part.dir.is_homes() {
            self.keep(file, inode.clone());
            file.body.clone()
        } else {
            self.move_home(place, file, &inode)?
        };
        self.delete(place.key());
        self.insert(
            Key::Orphan(home.part.slot(), inode.ino, inode.generation),
            Record::Orphan,
        );
        Ok(view_file(&inode, home.part.dir))
    }

    /// Makes a home for a file that is under its one name, which the caller changes. Returns where.
    pub fn move_home(&mut self, place: &Place, file: &File, inode: &InodeRecord) -> Result<Place, Stop> {
        let home = self.new_home(place.part.slot(), inode)?;
        let target = Target::Inode(inode.clone());
        self.require(attached::wants(place, &target).into_iter().collect())?;
        attached::carry(self, &Target::Inode(file.inode.clone()), place, &home)?;
        Ok(home)
    }

    /// Puts a file that is not there yet at home. Returns where.
    pub fn new_home(&mut self, slot: Slot, inode: &InodeRecord) -> Result<Place, Stop> {
        let home = self.home(slot, inode.ino, inode.generation);
        self.require(vec![home.bucket(LockMode::Exclusive)])?;
        let ordinal = self.free_ordinal(&home)?;
        let target = Target::Inode(inode.clone());
        self.insert(home.key(), Record::Entry(Entry { ordinal, target }));
        Ok(home)
    }
}

/// Where a file is that others may have renamed or removed since it was opened.
pub(crate) fn at_home(
    cx: &mut Context<'_>,
    slot: Slot,
    (ino, generation): (Ino, Generation),
) -> Result<Answer, Stop> {
    let home = cx.home(slot, ino, generation);
    cx.require(vec![home.bucket(LockMode::Shared)])?;
    match cx.entry(&home).map(|e| &e.target) {
        Some(Target::Inode(inode)) => Ok(Answer::Entry(view_file(inode, home.part.dir))),
        Some(Target::Dir(_) | Target::Link(_)) => Err(Errno::Io.into()),
        None => Err(Errno::Stale.into()),
    }
}

/// What a file without a name needs to go, once nobody has it open.
pub fn reap_wants(widths: HashWidths, slot: Slot, ino: Ino, generation: Generation) -> Vec<LockWant> {
    let home = home_of(widths, slot, ino, generation);
    vec![
        home.bucket(LockMode::Exclusive),
        LockWant::Attachments(home.key()),
        LockWant::Key(Key::Orphan(slot, ino, generation), LockMode::Exclusive),
    ]
}

/// What removes a file without a name. REQUIRES: the snapshot has [`reap_wants`], and nobody has it open.
pub fn reap(
    snapshot: &Snapshot,
    widths: HashWidths,
    slot: Slot,
    (ino, generation): (Ino, Generation),
) -> Vec<Mutation> {
    let note = Key::Orphan(slot, ino, generation);
    if snapshot.get(&note).is_none() {
        return Vec::new();
    }
    let home = home_of(widths, slot, ino, generation);
    let mut gone = vec![Mutation::Delete { key: note }];
    // One that has a name, or is not there, is damage: fsck reports it.
    if let Some(Entry {
        target: target @ Target::Inode(inode),
        ..
    }) = snapshot.entry(home.part, home.hash, &home.name)
        && inode.nlink == 0
    {
        gone.push(Mutation::Delete { key: home.key() });
        let kinds = attached::kinds(target).into_iter();
        gone.extend(kinds.map(|kind| Mutation::Delete {
            key: home.attachment(kind),
        }));
        if let Some(block_size) = inode.layout.block_size() {
            let garbage = GarbageRecord {
                size: inode.size,
                block_size,
                holder: None,
            };
            gone.push(Mutation::Insert {
                key: Key::Garbage(slot, ino, generation),
                record: Record::Garbage(garbage),
            });
        }
    }
    gone
}

fn home_of(widths: HashWidths, slot: Slot, ino: Ino, generation: Generation) -> Place {
    let name = Name::home(ino, generation);
    Place {
        which: Which::First,
        part: DirId::homes(slot).into(),
        hash: widths.name(0, &name),
        name,
    }
}

/// Gives what is not a directory another name. The order of the checks is Linux's.
pub(crate) fn link(
    cx: &mut Context<'_>,
    object: &Object,
    (dst_dir, dst_name): (&Statement, &Name),
) -> Result<Answer, Stop> {
    let src = cx.place(&object.dir, &object.name);
    let dst = cx.second_place(dst_dir, dst_name);
    let mut wants = cx.change_wants(&dst);
    wants.extend(cx.entry_wants(&src, LockMode::Exclusive));
    cx.require(wants)?;
    cx.enter_at(&src, &object.dir, Access::EXEC)?;
    let entry = cx.entry_of(&src, object.id())?;
    cx.enter_at(&dst, dst_dir, pando_types::Access::EXEC)?;
    if cx.entry(&dst).is_some() {
        return Err(Errno::Exists.into());
    }
    cx.change_at(&dst, dst_dir)?;
    let Some(mut file) = cx.file(&src, entry, LockMode::Exclusive)? else {
        return Err(Errno::Perm.into());
    };
    if file.inode.nlink == 0 {
        // What has lost its last name does not get another: as on Linux.
        if !file.inode.marks.is_linkable() && !plant!(H175) {
            return Err(Errno::NotFound.into());
        }
        let FileAt {
            slot,
            ino,
            generation,
        } = file.at();
        let note = Key::Orphan(slot, ino, generation);
        cx.require(vec![LockWant::Key(note.clone(), LockMode::Exclusive)])?;
        cx.delete(note);
    }
    let nlink = file.inode.nlink.checked_add(1).ok_or(Errno::TooManyLinks)?;
    let inode = InodeRecord {
        nlink,
        marks: file.inode.marks.without_linkable(),
        ctime: cx.inputs.now,
        ..file.inode.clone()
    };
    let shown = if file.body.part.dir.is_homes() {
        cx.keep(&file, inode)
    } else {
        let home = cx.move_home(&src, &file, &inode)?;
        let target = Target::Link(to_home(&inode, &home));
        let ordinal = entry.ordinal;
        cx.update(src.key(), Record::Entry(Entry { ordinal, target }));
        file.body = home;
        view_file(&inode, file.body.part.dir)
    };
    cx.link(&dst, Target::Link(to_home(&file.inode, &file.body)))?;
    Ok(Answer::Entry(shown))
}

pub(crate) fn to_home(inode: &InodeRecord, home: &Place) -> LinkRecord {
    LinkRecord {
        slot: home.part.slot(),
        ino: inode.ino,
        generation: inode.generation,
        kind: inode.kind,
    }
}

/// What is done with a file that is open and whose name goes to another slot with its part (H303).
pub struct Stays {
    /// The file and what is attached to it, at home in the slot where it was.
    pub home: Vec<Mutation>,
    /// What its name stands for from then on.
    pub link: Target,
}

/// A file that somebody has open stays in its slot. `attached`: its attachments; `taken`: ordinals in its
/// home's bucket. `None`: that is full.
pub fn stay_home(
    widths: HashWidths,
    slot: Slot,
    inode: &InodeRecord,
    attached: Vec<(AttachmentKind, Record)>,
    taken: &BTreeSet<u8>,
) -> Option<Stays> {
    let home = home_of(widths, slot, inode.ino, inode.generation);
    let free = |o: &u8| Position::new(home.hash, *o).is_entry() && !taken.contains(o);
    let ordinal = (0..=u8::MAX).find(free)?;
    let target = Target::Inode(inode.clone());
    let insert = |key, record| Mutation::Insert { key, record };
    let mut all = vec![insert(home.key(), Record::Entry(Entry { ordinal, target }))];
    all.extend(
        attached
            .into_iter()
            .map(|(kind, record)| insert(home.attachment(kind), record)),
    );
    Some(Stays {
        home: all,
        link: Target::Link(to_home(inode, &home)),
    })
}

/// The bucket of a file's home.
pub fn home_bucket(widths: HashWidths, slot: Slot, ino: Ino, generation: Generation) -> (Part, NameHash) {
    let home = home_of(widths, slot, ino, generation);
    (home.part, home.hash)
}
