//! Space that is kept for the store on its device, so that removing goes on when others have filled that.
//!
//! A *ballast* is a file of zeros beside the database. It is given up, piece by piece, when the device has
//! next to nothing left: a flush and a new log find room. It is made again when there is room for it and
//! everything else.

use crate::files;
use rustix::fs::{FallocateFlags, fallocate};
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::path::Path;

const NAME: &str = "ballast";
/// Pieces in which it is given up.
const PIECE: u64 = 1 << 20;

/// The file.
#[derive(Debug)]
pub(crate) struct Ballast {
    file: Option<File>,
    /// Its size, if there is room.
    whole: u64,
    held: Cell<u64>,
}

impl Ballast {
    /// `bytes`: how large it is to be; 0: none. At most a sixteenth of the device.
    pub fn open(path: &Path, bytes: u64) -> Ballast {
        let whole = bytes.min(files::space(path).total / 16) / PIECE * PIECE;
        let path = path.join(NAME);
        let mut open = OpenOptions::new();
        open.write(true).create(whole > 0).truncate(false);
        // Without it everything goes on as far as there is space.
        let file = open.open(path).ok();
        let held = file
            .as_ref()
            .and_then(|f| f.metadata().ok())
            .map_or(0, |m| m.len());
        let ballast = Ballast {
            file,
            whole,
            held: Cell::new(held),
        };
        if held > whole {
            ballast.shrink(whole);
        }
        ballast
    }

    /// The device has so many bytes left, and the store needs some of them.
    pub fn look(&self, left: u64, needs: u64) {
        let least = self.whole / 2;
        if left < least && self.held.get() > 0 {
            let missing = (least - left).div_ceil(PIECE) * PIECE;
            self.shrink(self.held.get().saturating_sub(missing));
        } else if self.held.get() < self.whole && left > needs.saturating_add(self.whole * 3) {
            self.grow();
        }
    }

    /// Bytes that are not set aside and should be.
    pub fn missing(&self) -> u64 {
        self.whole.saturating_sub(self.held.get())
    }

    fn shrink(&self, to: u64) {
        if let Some(file) = &self.file
            && file.set_len(to).is_ok()
        {
            self.held.set(to);
        }
    }

    fn grow(&self) {
        let Some(file) = &self.file else { return };
        if fallocate(file, FallocateFlags::empty(), 0, self.whole).is_ok() {
            self.held.set(self.whole);
        } else {
            // Some file systems have no such thing, or it is full by now.
            self.shrink(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_piece_by_piece_and_comes_back() {
        let tmp = tempfile::tempdir().unwrap();
        let size = || tmp.path().join(NAME).metadata().map_or(0, |m| m.len());
        let ballast = Ballast::open(tmp.path(), 8 * PIECE);
        assert_eq!((size(), ballast.whole), (0, 8 * PIECE));
        ballast.look(30 * PIECE, 6 * PIECE);
        assert_eq!(size(), 0, "there is no room for it and what the store needs");
        ballast.look(31 * PIECE, 6 * PIECE);
        if size() == 0 {
            println!("SKIPPED: this file system cannot set space aside");
            return;
        }
        assert_eq!(size(), 8 * PIECE);
        ballast.look(4 * PIECE, PIECE);
        assert_eq!(size(), 8 * PIECE);
        ballast.look(3 * PIECE - 1, PIECE);
        assert_eq!(size(), 6 * PIECE);
        ballast.look(0, PIECE);
        assert_eq!(size(), 2 * PIECE);
        ballast.look(0, PIECE);
        ballast.look(0, PIECE);
        assert_eq!(size(), 0);
        ballast.look(100 * PIECE, PIECE);
        drop(ballast);
        // Another start: of a smaller one.
        let ballast = Ballast::open(tmp.path(), 5 * PIECE);
        assert_eq!((size(), ballast.held.get()), (5 * PIECE, 5 * PIECE));
        drop(ballast);
        drop(Ballast::open(tmp.path(), 0));
        assert_eq!(size(), 0);
    }
}
