//! What put, get and cat share: opening files and moving their bytes.

use super::{Fs, Why};
use pando_client::file::{self, OpenFile, Place};
use pando_cluster::ClusterFile;
use pando_types::{Access, AttrChange, Errno, Mode, Perm, TimeChange, Timestamp};
use pando_wire::{Answer, EntryView, Object, Op};
use std::io::{Read, Write};

/// Bytes moved at once. A multiple of nothing in particular; blocks are larger, inline files not.
pub const CHUNK: u32 = 1 << 20;

/// When blocks must be safe, by the filesystem's durability.
pub fn data_sync(cluster: &ClusterFile) -> file::DataSync {
    match cluster.durability.as_str() {
        "async" => file::DataSync::OnFsync,
        _ => file::DataSync::BeforePublish,
    }
}

/// Opens a file for reading.
pub async fn open(fs: &Fs, place: Place) -> Result<OpenFile, Errno> {
    let opened = file::open(&**fs.client(), &fs.cred, &place, Access::READ).await?;
    OpenFile::new(place, opened, data_sync(&fs.conn.file))
}

/// Opens a file for writing, creating it if it is not there. Its content is gone.
pub async fn create(fs: &Fs, place: Place, mode: impl Into<Mode>) -> Result<OpenFile, Errno> {
    let client = &**fs.client();
    let opened = file::create(client, &fs.cred, &place, mode, false, Access::WRITE).await?;
    let mut file = OpenFile::new(place, opened, data_sync(&fs.conn.file))?.gathering();
    if file.size() > 0 {
        let now = fs.world().now();
        file.truncate(client, &*fs.conn.blocks, &fs.cred, 0, now, true)
            .await?;
    }
    Ok(file)
}

/// Writes all that `from` has to an empty file, and publishes it. `time` becomes the modification time.
pub async fn fill(
    fs: &Fs,
    file: &mut OpenFile,
    from: &mut dyn Read,
    time: Timestamp,
    moved: &dyn Fn(u64),
) -> Result<(), Why> {
    let client = &**fs.client();
    let mut buffer = vec![0; CHUNK as usize];
    let mut offset = 0;
    loop {
        let n = read_whole(from, &mut buffer)?;
        if n == 0 {
            break;
        }
        file.write(client, &*fs.conn.blocks, &fs.cred, offset, &buffer[..n], time)
            .await?;
        offset += n as u64;
        moved(n as u64);
    }
    file.flush(client, &*fs.conn.blocks, &fs.cred).await?;
    Ok(())
}

/// Writes a file's bytes to `to`.
pub async fn drain(fs: &Fs, file: &OpenFile, to: &mut dyn Write, moved: &dyn Fn(u64)) -> Result<(), Why> {
    let mut offset = 0;
    loop {
        let data = file.read(&*fs.conn.blocks, offset, CHUNK).await?;
        if data.is_empty() {
            return Ok(());
        }
        to.write_all(&data)?;
        offset += data.len() as u64;
        moved(data.len() as u64);
    }
}

/// Fills the buffer unless the source ends: short reads of pipes do not make small writes.
fn read_whole(from: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match from.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

/// A copy is its maker's: as programs they run as others only if they were the maker's before.
pub fn without_foreign_set_ids(perm: Perm, owner: (u32, u32), mine: (u32, u32)) -> Perm {
    let mut bits = perm.bits();
    if owner.0 != mine.0 {
        bits &= !Perm::SETUID;
    }
    if owner.1 != mine.1 {
        bits &= !Perm::SETGID;
    }
    Perm::new(bits)
}

/// Sets what is not as wanted yet. A file that is somebody else's, which could be written, keeps its bits,
/// and has the time at which it was.
pub async fn settle(
    fs: &Fs,
    place: &Place,
    view: &pando_types::Attr,
    perm: Option<Perm>,
    mtime: Timestamp,
) -> Result<(), Errno> {
    let change = AttrChange {
        perm: perm.filter(|p| *p != view.perm),
        mtime: (view.mtime != mtime).then_some(TimeChange::To(mtime)),
        ..AttrChange::default()
    };
    let may = fs.cred.is_root() || fs.cred.uid == view.uid;
    if change == AttrChange::default() || !may {
        return Ok(());
    }
    set(fs, place, view, change).await.map(|_| ())
}

/// Changes attributes of the object at a place.
pub async fn set(
    fs: &Fs,
    place: &Place,
    object: &pando_types::Attr,
    change: AttrChange,
) -> Result<EntryView, Errno> {
    let op = Op::SetAttr {
        object: Object::shown(place.dir.clone(), place.name.clone(), object),
        change,
        handle: None,
    };
    match fs.client().op(&fs.cred, op).await? {
        Answer::Entry(view) => Ok(view),
        _ => Err(Errno::Io),
    }
}
