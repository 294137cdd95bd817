//! Holes, and copies that keep them: lseek with SEEK_DATA and SEEK_HOLE, copy_file_range.

use crate::core::Core;
use crate::driver::{Cluster, Driver};
use pando_types::Errno;

/// So much data is copied in one call at most, so that signals are seen; programs ask again for the rest.
const AT_ONCE: u64 = 64 << 20;
/// Data in memory at once: a block, at its place in what is written, so that it is stored whole.
const PIECE: u64 = 4 << 20;

/// A stretch of what is copied.
enum Piece {
    Zeros(u64),
    Data(Vec<u8>),
    End,
}

impl<C: Cluster> Core<C> {
    /// The next data, or the next hole, at or after `offset`; the end of a file is a hole. `None`: there is
    /// none.
    pub fn seek(&self, d: &C::Driver, fh: u64, offset: u64, hole: bool) -> Result<Option<u64>, Errno> {
        let handle = self.files.get(fh).ok_or(Errno::BadHandle)?;
        let state = handle.slot.read();
        let f = state.open.as_ref().ok_or(Errno::BadHandle)?;
        if offset >= f.size() {
            return Ok(None);
        }
        let found = d.run(f.data_from(d.blocks(), offset))?;
        Ok(match (found, hole) {
            (None, true) => Some(offset),
            (None, false) => None,
            (Some((begin, _)), false) => Some(begin),
            (Some((begin, _)), true) if begin > offset => Some(offset),
            (Some((_, end)), true) => Some(end),
        })
    }

    /// Copies from one open file to another, or to another place of the same, and says how much was copied.
    pub fn copy_range(
        &self,
        d: &C::Driver,
        (from, at): (u64, u64),
        (to, out): (u64, u64),
        len: u64,
    ) -> Result<u64, Errno> {
        self.check_locks(from)?;
        self.check_locks(to)?;
        let source = self.files.get(from).ok_or(Errno::BadHandle)?;
        let target = self
            .files
            .get(to)
            .filter(|h| h.writable)
            .ok_or(Errno::BadHandle)?;
        let (mut done, mut data, mut run) = (0, 0, None);
        while done < len && data < AT_ONCE {
            // One lock after the other: it may be the same file.
            let piece = {
                let state = source.slot.read();
                let f = state.open.as_ref().ok_or(Errno::BadHandle)?;
                self.piece(d, f, at + done, PIECE - (out + done) % PIECE, &mut run)?
            };
            let mut state = target.slot.write_beside();
            self.check_not_ended()?;
            let f = state.open.as_mut().ok_or(Errno::BadHandle)?;
            let place = out.checked_add(done).ok_or(Errno::TooBig)?;
            let result = match &piece {
                Piece::End => break,
                Piece::Zeros(n) => {
                    let n = (*n).min(len - done);
                    let inside = f.size().saturating_sub(place).min(n);
                    let punched = d.run(f.punch(d.blocks(), &target.cred, place, inside, self.now()));
                    punched.map(|()| n)
                }
                Piece::Data(bytes) => {
                    let n = (bytes.len() as u64).min(len - done);
                    let bytes = &bytes[..n as usize];
                    let written = f.write(d.ops(), d.blocks(), &target.cred, place, bytes, self.now());
                    data += n;
                    d.run(written).map(|()| n)
                }
            };
            self.publisher.wrote(&target, &mut state);
            match result {
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        // What ended with a hole is as long as it would be with data.
        let mut state = target.slot.write();
        let f = state.open.as_mut().ok_or(Errno::BadHandle)?;
        let end = out.checked_add(done).ok_or(Errno::TooBig)?;
        if done > 0 && f.size() < end {
            d.run(f.truncate(d.ops(), d.blocks(), &target.cred, end, self.now(), true))?;
        }
        Ok(done)
    }

    /// What is at `at`. `run`: the stretch of data found last.
    fn piece(
        &self,
        d: &C::Driver,
        f: &pando_client::file::OpenFile,
        at: u64,
        most: u64,
        run: &mut Option<(u64, u64)>,
    ) -> Result<Piece, Errno> {
        if at >= f.size() {
            return Ok(Piece::End);
        }
        if run.is_none_or(|(_, end)| at >= end) {
            *run = d.run(f.data_from(d.blocks(), at))?;
        }
        match *run {
            None => Ok(Piece::Zeros(f.size() - at)),
            Some((begin, _)) if begin > at => Ok(Piece::Zeros(begin - at)),
            Some((_, end)) => {
                let len = u32::try_from(most.min(end - at)).unwrap_or(u32::MAX);
                let bytes = d.run(f.read(d.blocks(), at, len))?;
                match bytes.is_empty() {
                    true => Ok(Piece::End),
                    false => Ok(Piece::Data(bytes)),
                }
            }
        }
    }
}
