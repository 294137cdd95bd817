//! Making what an entry says.

use super::in_the_way;
use crate::fs::copy::{data_sync, set, without_foreign_set_ids};
use crate::fs::{Fs, Why, lists};
use pando_client::file::{self, OpenFile, Place};
use pando_dump::Entry;
use pando_format::Layout;
use pando_format::codec::Blob;
use pando_types::{Access, Attr, AttrChange, Errno, FileKind, Name, Perm, TimeChange, XattrMode, XattrName};
use pando_wire::{Answer, EntryView, Object, Op, RenameMode, Statement};

/// Bits of what is being filled: nobody else's yet.
const OWN: u16 = 0o600;

/// Owner, bits and times of an entry. Only root gives things away.
pub fn change_of(fs: &Fs, entry: &Entry) -> AttrChange {
    let root = fs.cred.is_root();
    let perm = match entry.kind {
        FileKind::Regular if !root => without_foreign_set_ids(
            Perm::new(entry.perm),
            (entry.uid, entry.gid),
            (fs.cred.uid, fs.cred.gid),
        ),
        _ => Perm::new(entry.perm),
    };
    AttrChange {
        perm: (entry.kind != FileKind::Symlink).then_some(perm),
        uid: root.then_some(entry.uid),
        gid: root.then_some(entry.gid),
        size: None,
        atime: Some(TimeChange::To(entry.atime)),
        mtime: Some(TimeChange::To(entry.mtime)),
    }
}

/// Whether what is there is what the entry says, so that it need not be made again.
fn is_same(fs: &Fs, view: &EntryView, entry: &Entry) -> bool {
    let (attr, change) = (&view.attr, change_of(fs, entry));
    attr.kind == entry.kind
        && attr.mtime == entry.mtime
        && attr.atime == entry.atime
        && change.perm.is_none_or(|p| p == attr.perm)
        && change.uid.is_none_or(|u| u == attr.uid)
        && change.gid.is_none_or(|g| g == attr.gid)
        && (entry.kind != FileKind::Regular || attr.size == entry.size)
        // An earlier dump may have had no data.
        && (entry.stored() == 0 || view.layout != Layout::None)
}

/// What is there, if something is.
async fn there(fs: &Fs, place: &Place) -> Result<Option<EntryView>, Errno> {
    match fs.client().lookup(&fs.cred, &place.dir, &place.name).await {
        Ok(view) => Ok(Some(view)),
        Err(Errno::NotFound) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Makes a directory that its maker can fill.
pub async fn directory(fs: &Fs, place: &Place, go_on: bool) -> Result<(Statement, Attr), Why> {
    let op = Op::Mkdir {
        dir: place.dir.clone(),
        name: place.name.clone(),
        // Others come in when it is filled.
        mode: Perm::new(0o700).into(),
    };
    let view = match fs.client().op(&fs.cred, op).await {
        Ok(Answer::Entry(view)) => view,
        Err(Errno::Exists) if go_on => {
            let view = fs.client().lookup(&fs.cred, &place.dir, &place.name).await?;
            if view.attr.perm.bits() & 0o700 != 0o700 && view.dir.is_some() {
                // It was finished before: it is opened once more.
                let change = AttrChange {
                    perm: Some(Perm::new(view.attr.perm.bits() | 0o700)),
                    ..AttrChange::default()
                };
                set(fs, place, &view.attr, change).await?
            } else {
                view
            }
        }
        Ok(_) => return Err(Errno::Io.into()),
        Err(e) => return Err(in_the_way(e)),
    };
    let dir = view
        .dir
        .clone()
        .ok_or("is there and is not a directory; remove it first")?;
    // Later its own bits are set, and times of directories above.
    Ok((fs.client().hold(&dir).await?, view.attr))
}

/// Makes anything whose data are here. False: it was there.
pub async fn small(fs: &Fs, place: &Place, entry: &Entry, data: &[u8], go_on: bool) -> Result<bool, Why> {
    let (dir, name) = (place.dir.clone(), place.name.clone());
    let op = match entry.kind {
        FileKind::Regular => {
            let Some(mut filling) = Filling::begin(fs, place.clone(), entry, go_on).await? else {
                return Ok(false);
            };
            filling.write(fs, data).await?;
            filling.finish(fs, entry).await?;
            return Ok(true);
        }
        FileKind::Symlink => Op::Symlink {
            dir,
            name,
            target: Blob(entry.target.clone()),
        },
        kind => Op::Mknod {
            dir,
            name,
            kind,
            mode: Perm::new(OWN).into(),
            rdev: rustix::fs::makedev(entry.device.0, entry.device.1),
        },
    };
    match make(fs, place, entry, op, go_on).await? {
        Some(view) => {
            attributes(fs, place, entry, Whose::Users).await?;
            lists_before_bits(fs, place, &view.attr, entry).await?;
            set(fs, place, &view.attr, change_of(fs, entry)).await?;
            Ok(true)
        }
        None => Ok(false),
    }
}

/// Gives the file at `first`, which this load has made or found as it should be, another name. False: it has
/// it.
pub async fn link(fs: &Fs, first: &Place, place: &Place, go_on: bool) -> Result<bool, Why> {
    let client = fs.client();
    let attr = there(fs, first).await?.ok_or(Errno::NotFound)?.attr;
    let op = Op::Link {
        object: Object::shown(first.dir.clone(), first.name.clone(), &attr),
        dst: place.dir.clone(),
        dst_name: place.name.clone(),
    };
    let answer = client.op(&fs.cred, op.clone()).await;
    if answer == Err(Errno::Exists) && go_on {
        if there(fs, place)
            .await?
            .is_some_and(|v| (v.attr.ino, v.attr.generation) == (attr.ino, attr.generation))
        {
            return Ok(false);
        }
        remove(fs, place).await?;
        client.op(&fs.cred, op).await.map_err(in_the_way)?;
        return Ok(true);
    }
    answer.map_err(in_the_way)?;
    Ok(true)
}

/// Which extended attributes: those of users need write permission, so they come before the permission bits;
/// others may go with a change of owner, so they come after.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Users,
    Others,
}

/// Sets extended attributes of an entry, and with those that are not users' its access control lists.
pub async fn attributes(fs: &Fs, place: &Place, entry: &Entry, whose: Whose) -> Result<(), Why> {
    let of = |name: &[u8]| match name.starts_with(b"user.") {
        true => Whose::Users,
        false => Whose::Others,
    };
    if whose == Whose::Others {
        lists::bring(fs, place, entry).await?;
    }
    let mut wanted = entry
        .xattrs
        .iter()
        .filter(|(name, _)| of(name) == whose && !lists::is_list(name))
        .peekable();
    if wanted.peek().is_none() {
        return Ok(());
    }
    let attr = there(fs, place).await?.ok_or(Errno::NotFound)?.attr;
    for (name, value) in wanted {
        let op = Op::SetXattr {
            object: Object::shown(place.dir.clone(), place.name.clone(), &attr),
            attr: XattrName::new(name)?,
            value: Blob(value.clone()),
            mode: XattrMode::Any,
        };
        let set = fs.client().op(&fs.cred, op).await;
        set.map_err(|e| {
            let name = crate::text::printable(name);
            Why::Text(format!("its extended attribute {name} is not kept: {e}"))
        })?;
    }
    Ok(())
}

/// Gives an object its lists, and takes those that it has inherited, while its bits are still those of what
/// is being filled: with the bits that it gets, an inherited list would let others in for a moment. Its owner
/// comes before: lists speak of it.
pub async fn lists_before_bits(fs: &Fs, place: &Place, attr: &Attr, entry: &Entry) -> Result<(), Why> {
    let has = entry.xattrs.iter().any(|(name, _)| lists::is_list(name));
    if entry.kind == FileKind::Symlink || !has && place.dir.acls.default.is_none() {
        return Ok(());
    }
    if fs.cred.is_root() {
        let owner = AttrChange {
            uid: Some(entry.uid),
            gid: Some(entry.gid),
            ..AttrChange::default()
        };
        set(fs, place, attr, owner).await?;
    }
    lists::bring(fs, place, entry).await
}

/// Does `op`, which makes what the entry says. `None`: it was there.
async fn make(fs: &Fs, place: &Place, entry: &Entry, op: Op, go_on: bool) -> Result<Option<EntryView>, Why> {
    let mut answer = fs.client().op(&fs.cred, op.clone()).await;
    if answer == Err(Errno::Exists)
        && go_on
        && let Some(view) = there(fs, place).await?
    {
        let leads = match entry.kind {
            FileKind::Symlink if view.attr.kind == FileKind::Symlink => {
                crate::fs::stat::target(fs, &place.dir, place.name.as_bytes(), &view).await? == entry.target
            }
            _ => rustix::fs::makedev(entry.device.0, entry.device.1) == view.attr.rdev,
        };
        if is_same(fs, &view, entry) && leads {
            return Ok(None);
        }
        if view.dir.is_some() {
            return Err("is there and is a directory; remove it first".into());
        }
        remove(fs, place).await?;
        answer = fs.client().op(&fs.cred, op).await;
    }
    match answer.map_err(in_the_way)? {
        Answer::Entry(view) => Ok(Some(view)),
        _ => Err(Errno::Io.into()),
    }
}

async fn remove(fs: &Fs, place: &Place) -> Result<(), Errno> {
    let old = Op::Unlink {
        dir: place.dir.clone(),
        name: place.name.clone(),
        held: false,
    };
    fs.client().op(&fs.cred, old).await.map(drop)
}

/// A file that is being filled.
pub struct Filling {
    place: Place,
    file: OpenFile,
    /// It was not there before.
    created: bool,
    extents: std::vec::IntoIter<(u64, u64)>,
    /// Where the next bytes belong.
    at: u64,
    left: u64,
    mtime: pando_types::Timestamp,
    /// Whose place it takes when it is whole; others see what was there until then.
    replaces: Option<Place>,
}

/// What a file is filled as, beside the one it will replace. Found again if it was left by an interruption.
fn beside(view: &EntryView) -> Result<Name, Errno> {
    Name::new(format!(".pando-load.{:x}", view.attr.ino.0).as_bytes())
}

impl Filling {
    /// Begins with an empty file. `None`: it is there as it should be.
    pub async fn begin(
        fs: &Fs,
        mut place: Place,
        entry: &Entry,
        go_on: bool,
    ) -> Result<Option<Filling>, Why> {
        let mut replaces = None;
        if go_on && let Some(view) = there(fs, &place).await? {
            if is_same(fs, &view, entry) {
                return Ok(None);
            }
            if view.attr.kind != FileKind::Regular {
                return Err("is there and is no file; remove it first".into());
            }
            // Its other names may be other files of the dump, or nothing of it: they keep what they have.
            let name = std::mem::replace(&mut place.name, beside(&view)?);
            let dir = place.dir.clone();
            replaces = Some(Place { dir, name });
        }
        let (client, perm) = (&**fs.client(), Perm::new(OWN));
        let opened = file::create(client, &fs.cred, &place, perm, !go_on, Access::WRITE);
        let opened = opened.await.map_err(in_the_way)?;
        let created = opened.created;
        let mut file = OpenFile::new(place.clone(), opened, data_sync(&fs.conn.file))?;
        if file.size() > 0 {
            file.truncate(client, &*fs.conn.blocks, &fs.cred, 0, fs.world().now(), true)
                .await?;
        }
        Ok(Some(Filling {
            place,
            file,
            created,
            extents: entry.extents.clone().into_iter(),
            at: 0,
            left: 0,
            mtime: entry.mtime,
            replaces,
        }))
    }

    /// Writes the next bytes where the entry says.
    pub async fn write(&mut self, fs: &Fs, mut bytes: &[u8]) -> Result<(), Why> {
        while !bytes.is_empty() {
            if self.left == 0 {
                (self.at, self.left) = self.extents.next().ok_or("has more data than places for them")?;
            }
            let n = self.left.min(bytes.len() as u64);
            let (now, rest) = bytes.split_at(n as usize);
            self.file
                .write(
                    &**fs.client(),
                    &*fs.conn.blocks,
                    &fs.cred,
                    self.at,
                    now,
                    self.mtime,
                )
                .await?;
            (self.at, self.left, bytes) = (self.at + n, self.left - n, rest);
        }
        Ok(())
    }

    /// Publishes it, with its size, owner, bits and times.
    pub async fn finish(mut self, fs: &Fs, entry: &Entry) -> Result<(), Why> {
        let (client, blocks) = (&**fs.client(), &*fs.conn.blocks);
        self.file.flush(client, blocks, &fs.cred).await?;
        if self.file.size() < entry.size {
            self.file
                .truncate(client, blocks, &fs.cred, entry.size, self.mtime, true)
                .await?;
        }
        let kept = attributes(fs, &self.place, entry, Whose::Users).await;
        // Rather nobody's than everybody's.
        lists_before_bits(fs, &self.place, &self.file.attr(), entry).await?;
        set(fs, &self.place, &self.file.attr(), change_of(fs, entry)).await?;
        if let Some(to) = self.replaces {
            let op = Op::Rename {
                src: self.place.dir,
                src_name: self.place.name,
                dst: to.dir,
                dst_name: to.name,
                mode: RenameMode::Replace,
                held: false,
            };
            client.op(&fs.cred, op).await?;
        }
        kept
    }

    /// Leaves nothing of it, if it was not there before.
    pub async fn give_up(self, fs: &Fs) {
        // What was written and never published is known here only.
        let _ = self.file.free(&*fs.conn.blocks).await;
        if self.created || self.replaces.is_some() {
            let _ = remove(fs, &self.place).await;
        }
    }
}
