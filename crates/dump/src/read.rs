//! Bytes to entries.

use crate::pax::{self, BLOCK, Header, decimal, first_record, padding};
use crate::write::check;
use crate::{Begin, EXTENTS_MAX, End, Entry, Place, RECORDS_MAX, StreamError, VERSION, check_path};
use blake3::Hasher;
use pando_types::FileKind;
use std::io::{ErrorKind, Read};

/// Reads a stream. An entry's records are checked before they are shown; its data are when the next entry, or
/// the end, was read.
pub struct Reader<R> {
    from: R,
    hash: Hasher,
    at: u64,
    after: Place,
    done: End,
    /// Data of the entry that are still to be read, and the padding behind them.
    left: u64,
    begin: Begin,
}

/// What comes next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// An entry; [`Reader::data`] has its data.
    Entry(Entry),
    /// The end, and all was right.
    End(End),
}

/// What one `comment` says: words with `=` between.
struct Words<'a>(Vec<(&'a str, &'a str)>, &'a str);

impl<'a> Words<'a> {
    fn of(text: &'a [u8]) -> Option<Words<'a>> {
        let text = std::str::from_utf8(text).ok()?;
        let pairs = text.split(' ').map(|w| w.split_once('=').unwrap_or((w, "")));
        Some(Words(pairs.collect(), text))
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    fn number(&self, key: &str) -> Option<u64> {
        decimal(self.get(key)?.as_bytes())
    }
}

impl<R: Read> Reader<R> {
    /// Reads how it begins.
    pub fn new(from: R) -> Result<Reader<R>, StreamError> {
        let mut me = Reader {
            from,
            hash: Hasher::new(),
            at: 0,
            after: Place(None),
            done: End::default(),
            left: 0,
            begin: Begin::default(),
        };
        let block = match me.block() {
            Err(StreamError::Truncated { at: 0, .. }) => return Err(StreamError::NotADump("it is empty")),
            other => other?,
        };
        let header = Header::parse(&block).filter(|h| h.flag == b'g');
        let size = header.ok_or(StreamError::NotADump("it begins otherwise"))?.size;
        let records = me.records(size)?;
        let comment = only_comment(&records).ok_or(StreamError::NotADump("it is another tar archive"))?;
        let version = comment
            .number("pando")
            .ok_or(StreamError::NotADump("it is another tar archive"))?;
        if version != u64::from(VERSION) {
            return Err(StreamError::Version(u32::try_from(version).unwrap_or(u32::MAX)));
        }
        let begun = (|| {
            comment.get("begin")?;
            let text = comment.1.rsplit_once(" this=")?.0;
            if comment.get("this") != Some(&check(Hasher::new().update(text.as_bytes()))) {
                return None;
            }
            Some(Begin {
                fs: comment.get("fs")?.to_owned(),
                metadata_only: match comment.get("what")? {
                    "all" => false,
                    "metadata" => true,
                    _ => return None,
                },
            })
        })();
        me.begin = begun.ok_or_else(|| me.damaged("its first header is not one"))?;
        Ok(me)
    }

    /// How it began.
    pub fn begin(&self) -> &Begin {
        &self.begin
    }

    /// Bytes so far.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next entry. What is left of the data of the one before is passed over; that its data were right is
    /// what an entry, or the end, says.
    #[allow(clippy::should_implement_trait)] // it fails, and ends with more than nothing
    pub fn next(&mut self) -> Result<Next, StreamError> {
        let mut rest = [0; 8192];
        while self.data(&mut rest)? > 0 {}
        let before = check(&self.hash);
        let block = self.block()?;
        let header = Header::parse(&block).ok_or_else(|| self.damaged("a header is not one"))?;
        let records = self.records(header.size)?;
        match header.flag {
            b'x' => self.entry(&records, &before).map(Next::Entry),
            b'g' => self.ended(&records, &before).map(Next::End),
            _ => Err(self.damaged("a header is not one of a dump")),
        }
    }

    /// Reads data of the entry that was read last; 0 at their end.
    pub fn data(&mut self, buffer: &mut [u8]) -> Result<usize, StreamError> {
        let n = (self.left.min(buffer.len() as u64)) as usize;
        if n == 0 {
            return Ok(0);
        }
        self.get(&mut buffer[..n])?;
        self.left -= n as u64;
        self.done.bytes += n as u64;
        if self.left == 0 {
            self.pad()?;
        }
        Ok(n)
    }

    fn entry(&mut self, records: &[u8], before: &str) -> Result<Entry, StreamError> {
        let block = self.block()?;
        let header = Header::parse(&block).ok_or_else(|| self.damaged("a header is not one"))?;
        let (own, comment) = split_comment(records).ok_or_else(|| self.damaged("an entry has no check"))?;
        let words = Words::of(comment).ok_or_else(|| self.damaged("an entry's check is not text"))?;
        // Of what was before first: that is where to look.
        if words.get("before") != Some(before) {
            return Err(self.damaged("the check of what was before does not hold"));
        }
        let mut hash = Hasher::new();
        hash.update(own).update(&block);
        if words.get("this") != Some(&check(&hash)) {
            return Err(self.damaged("an entry's check does not hold"));
        }
        let (mut entry, sparse, stored) =
            parse(&header, own, &words).ok_or_else(|| self.damaged("an entry makes no sense"))?;
        self.after = Place(Some(entry.path.clone()));
        let refused = |what| StreamError::Entry {
            place: Place(Some(entry.path.clone())),
            what,
        };
        check_path(&entry.path).map_err(refused)?;
        if entry.link {
            check_path(&entry.target).map_err(refused)?;
        }
        self.left = stored;
        if sparse {
            entry.extents = self.map(entry.size)?;
        } else if entry.kind == FileKind::Regular && stored > 0 {
            entry.extents = vec![(0, stored)];
        }
        if self.left != entry.stored() {
            return Err(self.damaged("an entry has more or less data than it says"));
        }
        self.done.entries += 1;
        Ok(entry)
    }

    /// The map before the data of a file with holes.
    fn map(&mut self, size: u64) -> Result<Vec<(u64, u64)>, StreamError> {
        // Numbers go on from block to block.
        let (mut block, mut used) = ([0; BLOCK], BLOCK);
        let mut number = |me: &mut Self| -> Result<u64, StreamError> {
            let mut digits = Vec::new();
            loop {
                if used == BLOCK {
                    if me.left < BLOCK as u64 {
                        return Err(me.damaged("the map of a file with holes has no end"));
                    }
                    (block, used) = (me.block()?, 0);
                    me.left -= BLOCK as u64;
                }
                used += 1;
                match block[used - 1] {
                    b'\n' => break,
                    _ if digits.len() > 20 => break,
                    digit => digits.push(digit),
                }
            }
            decimal(&digits).ok_or_else(|| me.damaged("the map of a file with holes is no list of numbers"))
        };
        let count = number(self)?;
        if count > EXTENTS_MAX as u64 + 1 {
            return Err(self.damaged("a file is in too many pieces"));
        }
        let (mut extents, mut end) = (Vec::new(), 0u64);
        for n in 1..=count {
            let (at, len) = (number(self)?, number(self)?);
            let last_of_hole = n == count && at == size && len == 0 && end < size;
            match at.checked_add(len) {
                Some(_) if last_of_hole => {}
                Some(next) if len > 0 && next <= size && (at > end || at == end && n == 1) => {
                    extents.push((at, len));
                    end = next;
                }
                _ => return Err(self.damaged("the pieces of a file with holes are not in order")),
            }
        }
        Ok(extents)
    }

    fn ended(&mut self, records: &[u8], before: &str) -> Result<End, StreamError> {
        let words = only_comment(records).ok_or_else(|| self.damaged("its end is not one"))?;
        if words.get("before") != Some(before) {
            return Err(self.damaged("the check of what was before does not hold"));
        }
        let said = (
            words.number("pando"),
            words.get("end"),
            words.number("entries"),
            words.number("bytes"),
        );
        let own = (
            Some(u64::from(VERSION)),
            Some(""),
            Some(self.done.entries),
            Some(self.done.bytes),
        );
        if said != own {
            return Err(self.damaged("it ends with other counts than it had"));
        }
        for _ in 0..2 {
            if self.block()? != [0; BLOCK] {
                return Err(self.damaged("something follows its end"));
            }
        }
        Ok(self.done)
    }

    fn records(&mut self, size: u64) -> Result<Vec<u8>, StreamError> {
        if size > RECORDS_MAX {
            return Err(self.damaged("a header is longer than any"));
        }
        // What is only announced takes no memory.
        let mut records = Vec::new();
        let mut left = size as usize;
        while left > 0 {
            let mut piece = [0; 16 * BLOCK];
            let n = left.min(piece.len());
            self.get(&mut piece[..n])?;
            records.extend_from_slice(&piece[..n]);
            left -= n;
        }
        self.pad()?;
        Ok(records)
    }

    fn pad(&mut self) -> Result<(), StreamError> {
        let mut rest = [0; BLOCK];
        let n = padding(self.at) as usize;
        self.get(&mut rest[..n])?;
        if rest != [0; BLOCK] {
            return Err(self.damaged("there is something between two entries"));
        }
        Ok(())
    }

    fn block(&mut self) -> Result<[u8; BLOCK], StreamError> {
        let mut block = [0; BLOCK];
        self.get(&mut block)?;
        Ok(block)
    }

    fn get(&mut self, buffer: &mut [u8]) -> Result<(), StreamError> {
        let mut n = 0;
        while n < buffer.len() {
            match self.from.read(&mut buffer[n..]) {
                Ok(0) => {
                    return Err(StreamError::Truncated {
                        at: self.at + n as u64,
                        after: self.after.clone(),
                    });
                }
                Ok(more) => n += more,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let at = self.at + n as u64;
                    return Err(StreamError::Io { at, error });
                }
            }
        }
        self.hash.update(buffer);
        self.at += n as u64;
        Ok(())
    }

    fn damaged(&self, what: &'static str) -> StreamError {
        StreamError::Damaged {
            at: self.at,
            after: self.after.clone(),
            what,
        }
    }
}

/// The records but the last, and that one's value: it is the comment.
fn split_comment(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = records;
    loop {
        let (key, value, behind) = first_record(rest)?;
        if behind.is_empty() {
            let own = &records[..records.len() - rest.len()];
            return (key == b"comment").then_some((own, value));
        }
        rest = behind;
    }
}

fn only_comment(records: &[u8]) -> Option<Words<'_>> {
    let (own, comment) = split_comment(records)?;
    own.is_empty().then(|| Words::of(comment)).flatten()
}

/// What header and records say; whether a map follows, and how many bytes.
fn parse(header: &Header, mut records: &[u8], words: &Words<'_>) -> Option<(Entry, bool, u64)> {
    let kind = match header.flag {
        b'0' | b'1' => FileKind::Regular,
        b'2' => FileKind::Symlink,
        b'3' => FileKind::CharDevice,
        b'4' => FileKind::BlockDevice,
        b'5' => FileKind::Directory,
        b'6' => FileKind::Fifo,
        _ => return None,
    };
    let mut entry = Entry::new(Vec::new(), kind);
    entry.link = header.flag == b'1';
    entry.perm = header.perm & 0o7777;
    (entry.uid, entry.gid) = (header.uid, header.gid);
    entry.device = header.device;
    entry.ino = words.number("ino")?;
    entry.nlink = u32::try_from(words.number("nlink")?).ok()?;
    entry.has_data = match words.get("data")? {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    let (mut sparse, mut stored, mut path) = (false, header.size, None);
    while !records.is_empty() {
        let (key, value, rest) = first_record(records)?;
        records = rest;
        match key {
            b"path" => path = Some(pax::hidden(value, header.flag == b'5')?.to_vec()),
            b"linkpath" if entry.link => entry.target = pax::hidden(value, false)?.to_vec(),
            b"linkpath" => entry.target = value.to_vec(),
            b"mtime" => entry.mtime = pax::parse_time(value)?,
            b"atime" => entry.atime = pax::parse_time(value)?,
            b"uid" => entry.uid = u32::try_from(decimal(value)?).ok()?,
            b"gid" => entry.gid = u32::try_from(decimal(value)?).ok()?,
            b"size" => stored = decimal(value)?,
            b"GNU.sparse.major" | b"GNU.sparse.minor" | b"GNU.sparse.name" | b"hdrcharset" => {}
            b"GNU.sparse.realsize" => (sparse, entry.size) = (true, decimal(value)?),
            _ => {
                let name = key.strip_prefix(b"SCHILY.xattr.")?;
                entry.xattrs.push((pax::plain(name)?, value.to_vec()));
            }
        }
    }
    entry.path = path?;
    if !sparse {
        entry.size = stored;
    }
    let is_file = kind == FileKind::Regular && !entry.link;
    let has_target = kind == FileKind::Symlink || entry.link;
    (is_file || stored == 0 && !sparse)
        .then_some(())
        .and((has_target != entry.target.is_empty()).then_some((entry, sparse, stored)))
}
