//! Localised directories (IndexFS §II-D): a client makes the tree below one by itself and inserts it in bulk.

use crate::codec_struct;
use crate::record::Head;
use pando_types::{Generation, Ino, SessionId, Slot};

/// Most bytes of a table that is inserted.
pub const TABLE_BYTES_MAX: u32 = 16 << 20;
/// Most records of one.
pub const TABLE_RECORDS_MAX: usize = 65_536;
/// Most directories that one table adds to, besides those that it makes.
pub const TABLE_BASES_MAX: usize = 64;

/// Numbers of a slot that were given out together: each is an inode number and a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberRun {
    /// Ownership epoch of the slot, as in its counter.
    pub epoch: u16,
    /// The first that is free.
    pub next: u64,
    /// The first after the last.
    pub end: u64,
}

impl NumberRun {
    /// How many there are.
    pub fn left(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }

    /// Number `n` of it, as an inode number and a generation of the slot.
    pub fn number(&self, slot: Slot, n: u64) -> (Ino, Generation) {
        (Ino::new(slot, n), Generation::new(self.epoch, slot, n))
    }

    /// Which of its numbers this is.
    pub fn find(&self, slot: Slot, ino: Ino, generation: Generation) -> Option<u64> {
        let n = ino.0 & 0xFFFF_FFFF_FFFF;
        let ours = self.next <= n && n < self.end && self.number(slot, n) == (ino, generation);
        ours.then_some(n)
    }
}

/// The lease of a localised directory. It is synced before the client hears of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalRecord {
    /// Its number, which fences what comes late (H55): the generation of its table.
    pub lease: Generation,
    /// Inode number of its table.
    pub table: Ino,
    /// Who has it.
    pub session: SessionId,
    /// The batch that may be inserted next (H56).
    pub batch: u64,
    /// What a batch may number what it brings with. It is used upwards only (H311).
    pub numbers: NumberRun,
}

impl Head {
    /// The bit of [`Head::split`] of a directory that somebody has localised. It counts for nothing where
    /// there is no [`LocalRecord`].
    pub const LOCALISED: u8 = 0x80;

    /// Whether there may be a [`LocalRecord`]: then it must be looked at, and the directory is not split
    /// (H319).
    pub fn is_localised(&self) -> bool {
        self.split & Head::LOCALISED != 0
    }

    /// The same head, with or without the bit.
    pub fn localised(&self, on: bool) -> Head {
        let depth = self.split & !Head::LOCALISED;
        let split = if on { depth | Head::LOCALISED } else { depth };
        Head {
            split,
            ..self.clone()
        }
    }
}

/// What a table is recognised by: it is told in the request, and the table lies where others can write
/// (H310).
pub fn table_sum(table: &[u8]) -> [u8; 32] {
    *blake3::hash(table).as_bytes()
}

codec_struct!(NumberRun { epoch, next, end });
codec_struct!(LocalRecord {
    lease,
    table,
    session,
    batch,
    numbers
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_its_own_numbers_and_no_others() {
        let (slot, run) = (
            Slot(9),
            NumberRun {
                epoch: 3,
                next: 10,
                end: 12,
            },
        );
        assert_eq!(run.left(), 2);
        for n in 9..14 {
            let (ino, generation) = run.number(slot, n);
            assert_eq!(
                run.find(slot, ino, generation),
                (10..12).contains(&n).then_some(n)
            );
            assert_eq!(run.find(Slot(8), ino, generation), None);
            assert_eq!(run.find(slot, ino, Generation(generation.0 + 1)), None);
            let other = NumberRun { epoch: 2, ..run };
            assert_eq!(other.find(slot, ino, generation), None);
        }
    }
}
