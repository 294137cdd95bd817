//! Entries to bytes.

use crate::pax::{self, BLOCK, Header, padding, record};
use crate::{Begin, EXTENTS_MAX, End, Entry, Place, StreamError, VERSION, check_path};
use blake3::Hasher;
use pando_types::FileKind;
use std::io::Write;

/// Writes a stream. What `to` writes at once should be large: it is given many small pieces.
pub struct Writer<W> {
    to: W,
    hash: Hasher,
    at: u64,
    done: End,
    /// Data of the entry that are still to come.
    left: u64,
}

/// A check in words: as many bits as nobody meets by chance.
pub(crate) fn check(hash: &Hasher) -> String {
    hash.finalize().to_hex()[..32].to_owned()
}

impl<W: Write> Writer<W> {
    /// Begins a stream.
    pub fn new(to: W, begin: &Begin) -> Result<Writer<W>, StreamError> {
        let mut me = Writer {
            to,
            hash: Hasher::new(),
            at: 0,
            done: End::default(),
            left: 0,
        };
        let what = if begin.metadata_only { "metadata" } else { "all" };
        let text = format!("pando={VERSION} begin fs={} what={what}", begin.fs);
        let own = check(Hasher::new().update(text.as_bytes()));
        me.global(format!("{text} this={own}"))?;
        Ok(me)
    }

    /// Bytes so far.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Adds an entry, whose data follow by [`Writer::data`].
    ///
    /// REQUIRES: the data of the one before are complete; extents are in order, not empty, and within the
    /// size.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), StreamError> {
        let refused = |what| StreamError::Entry {
            place: Place(Some(entry.path.clone())),
            what,
        };
        check_path(&entry.path).map_err(refused)?;
        if entry.link {
            check_path(&entry.target).map_err(refused)?;
        }
        let flag = pax::flag(entry).ok_or(refused("it is a socket"))?;
        if entry.extents.len() > EXTENTS_MAX {
            return Err(refused("its data are in too many pieces"));
        }
        let map = pax::map(entry);
        let mut records = pax::records(entry, &map);
        let header = Header {
            flag,
            perm: entry.perm,
            uid: entry.uid,
            gid: entry.gid,
            size: entry.stored() + map.len() as u64,
            device: entry.device,
        };
        let block = header.block(&entry.path, &entry.target, entry.mtime.secs);
        let mut own = Hasher::new();
        own.update(&records).update(&block);
        let comment = format!(
            "pando={VERSION} ino={} nlink={} data={} before={} this={}",
            entry.ino,
            entry.nlink,
            u8::from(entry.has_data),
            check(&self.hash),
            check(&own)
        );
        record(&mut records, b"comment", comment.as_bytes());
        if !pax::fits(&records) {
            return Err(refused("its attributes are too long"));
        }
        self.extended(b'x', &records)?;
        self.put(&block)?;
        self.put(&map)?;
        self.done.entries += 1;
        self.left = entry.stored();
        if entry.kind != FileKind::Regular || self.left == 0 {
            self.left = 0;
        }
        Ok(())
    }

    /// The next bytes of the entry's extents, one after the other without the holes.
    ///
    /// REQUIRES: not more than were announced.
    pub fn data(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        self.put(bytes)?;
        let len = bytes.len() as u64;
        self.done.bytes += len;
        self.left = self.left.saturating_sub(len);
        if self.left == 0 {
            let rest = padding(self.at) as usize;
            self.put(&[0; BLOCK][..rest])?;
        }
        Ok(())
    }

    /// Ends the stream, and gives back what it was written to.
    pub fn end(mut self) -> Result<(W, End), StreamError> {
        let comment = format!(
            "pando={VERSION} end entries={} bytes={} before={}",
            self.done.entries,
            self.done.bytes,
            check(&self.hash)
        );
        self.global(comment)?;
        self.put(&[0; 2 * BLOCK])?;
        self.to
            .flush()
            .map_err(|error| StreamError::Io { at: self.at, error })?;
        Ok((self.to, self.done))
    }

    fn global(&mut self, comment: String) -> Result<(), StreamError> {
        let mut records = Vec::new();
        record(&mut records, b"comment", comment.as_bytes());
        self.extended(b'g', &records)
    }

    fn extended(&mut self, flag: u8, records: &[u8]) -> Result<(), StreamError> {
        let header = Header {
            flag,
            perm: 0o644,
            uid: 0,
            gid: 0,
            size: records.len() as u64,
            device: (0, 0),
        };
        self.put(&header.block(b"PaxHeaders/pando", b"", 0))?;
        self.put(records)?;
        let rest = padding(records.len() as u64) as usize;
        self.put(&[0; BLOCK][..rest])
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        self.to
            .write_all(bytes)
            .map_err(|error| StreamError::Io { at: self.at, error })?;
        self.hash.update(bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }
}
