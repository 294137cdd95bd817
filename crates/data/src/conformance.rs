//! What every [`Blocks`] must do. Each implementation's tests run it.

pub use crate::wait as now;
use crate::{Blocks, FileKey, Listing, StoredFile, names};
use pando_types::{Generation, Ino};
use std::collections::BTreeMap;

/// A store that the suite looks at whole.
pub trait Whole: Blocks + Listing {}

impl<B: Blocks + Listing> Whole for B {}

/// Runs the suite; `make` gives an empty store each time.
///
/// # Panics
/// If the store does not conform.
pub fn run(make: impl Fn() -> Box<dyn Whole>) {
    run_steps(2000, make);
}

/// The same with so many random steps, for stores that take long over each.
///
/// # Panics
/// If the store does not conform.
pub fn run_steps(steps: u64, make: impl Fn() -> Box<dyn Whole>) {
    listings(&*make());
    holes(&*make());
    presence(&*make());
    room(&*make());
    overwrites(&*make());
    cuts(&*make());
    removes(&*make());
    incarnations(&*make());
    random(&*make(), steps);
}

fn key(ino: u64, generation: u64) -> FileKey {
    FileKey {
        ino: Ino(ino),
        generation: Generation(generation),
    }
}

/// What a reader that pads with zeros sees.
fn padded(b: &dyn Blocks, file: FileKey, block: u64, offset: u32, len: u32) -> Vec<u8> {
    let mut v = now(b.read(file, block, offset, len)).expect("read");
    assert!(v.len() <= len as usize, "more bytes than asked for");
    v.resize(len as usize, 0);
    v
}

fn write(b: &dyn Blocks, file: FileKey, block: u64, offset: u32, data: &[u8]) {
    now(b.write(file, block, offset, data.to_vec())).expect("write");
}

fn room(b: &dyn Blocks) {
    let before = now(b.room()).expect("how much is free");
    write(b, key(5, 1), 0, 0, b"x");
    let after = now(b.room()).expect("how much is free");
    assert_eq!(
        before.is_some(),
        after.is_some(),
        "either it knows or it does not"
    );
    assert!(after.is_none_or(|free| free > 0), "nothing is free");
}

fn presence(b: &dyn Blocks) {
    let (f, other) = (key(6, 1), key(6, 2));
    let present = |from, to| now(b.present(f, from, to)).expect("a list");
    assert_eq!(present(0, u64::MAX), [0; 0], "nothing was written");
    for n in [100, 9, 2, 1_000_000, 10, 8] {
        write(b, f, n, 3, b"x");
    }
    write(b, other, 5, 0, b"another's");
    assert_eq!(present(0, u64::MAX), [2, 8, 9, 10, 100, 1_000_000]);
    assert_eq!(present(2, 10), [2, 8, 9], "by name");
    assert_eq!(present(9, 1_000_000), [9, 10, 100], "by listing");
    assert_eq!(present(10, 10), [0; 0]);
    let stored = now(b.stored(f, 2, 10)).expect("a list");
    let lengths: Vec<(u64, u32)> = stored.iter().map(|s| (s.number, s.bytes)).collect();
    assert_eq!(lengths, [(2, 4), (8, 4), (9, 4)], "from the beginning of each");
    write(b, f, 8, 2_500_000, b"long");
    let stored = now(b.stored(f, 8, u64::MAX)).expect("a list");
    let lengths: Vec<(u64, u32)> = stored.iter().map(|s| (s.number, s.bytes)).collect();
    assert_eq!(
        lengths,
        [(8, 2_500_004), (9, 4), (10, 4), (100, 4), (1_000_000, 4)]
    );
    now(b.truncate(f, 9, 0)).expect("cut");
    now(b.truncate(f, 10, 2)).expect("cut");
    assert_eq!(present(0, 50), [2, 8, 10]);
    now(b.remove(f, 0, u64::MAX)).expect("remove");
    assert_eq!(present(0, 50), [0; 0]);
    assert_eq!(present(0, u64::MAX), [0; 0]);
}

fn holes(b: &dyn Blocks) {
    let f = key(2, 1);
    assert_eq!(
        now(b.read(f, 0, 0, 10)).expect("read"),
        b"",
        "nothing was written"
    );
    write(b, f, 3, 5, b"abc");
    assert_eq!(padded(b, f, 3, 0, 10), b"\0\0\0\0\0abc\0\0");
    assert_eq!(padded(b, f, 3, 6, 1), b"b");
    assert_eq!(now(b.read(f, 3, 8, 10)).expect("read"), b"", "at the end");
    assert_eq!(now(b.read(f, 3, 800, 10)).expect("read"), b"", "past the end");
    assert_eq!(
        padded(b, f, 2, 0, 4),
        b"\0\0\0\0",
        "a block before the written one"
    );
    now(b.sync(f, vec![0, 3, 17])).expect("sync of blocks that are not there");
    now(b.sync(key(3, 1), vec![0])).expect("sync of a file that is not there");
}

fn overwrites(b: &dyn Blocks) {
    let f = key(2, 1);
    write(b, f, 0, 0, b"0123456789");
    write(b, f, 0, 3, b"abc");
    write(b, f, 0, 10, b"tail");
    assert_eq!(padded(b, f, 0, 0, 14), b"012abc6789tail");
    write(b, f, 0, 2, b"");
    assert_eq!(padded(b, f, 0, 0, 14), b"012abc6789tail");
}

fn cuts(b: &dyn Blocks) {
    let f = key(2, 1);
    now(b.truncate(f, 0, 5)).expect("cut of a file that is not there");
    now(b.truncate(f, 0, 0)).expect("removal of a file that is not there");
    write(b, f, 0, 0, b"0123456789");
    now(b.truncate(f, 0, 20)).expect("cut past the end");
    assert_eq!(padded(b, f, 0, 0, 10), b"0123456789");
    now(b.truncate(f, 0, 4)).expect("cut");
    assert_eq!(padded(b, f, 0, 0, 8), b"0123\0\0\0\0");
    write(b, f, 0, 6, b"x");
    assert_eq!(
        padded(b, f, 0, 0, 8),
        b"0123\0\0x\0",
        "what was cut does not come back"
    );
    now(b.truncate(f, 0, 0)).expect("removal");
    assert_eq!(now(b.read(f, 0, 0, 9)).expect("read"), b"");
    now(b.sync(f, vec![0])).expect("sync of a removal");
}

fn removes(b: &dyn Blocks) {
    let f = key(2, 1);
    now(b.remove(f, 0, u64::MAX)).expect("nothing there");
    for block in [0, 1, 2, 3, 1000] {
        write(b, f, block, 0, b"data");
    }
    write(b, key(3, 1), 1, 0, b"other");
    now(b.remove(f, 1, 3)).expect("remove");
    now(b.remove(f, 1, 3)).expect("twice");
    now(b.remove(f, 2, 2)).expect("empty range");
    let left: Vec<bool> = [0, 1, 2, 3, 1000]
        .iter()
        .map(|n| !now(b.read(f, *n, 0, 4)).expect("read").is_empty())
        .collect();
    assert_eq!(left, [true, false, false, true, true]);
    now(b.remove(f, 3, u64::MAX)).expect("to the end");
    assert!(now(b.read(f, 1000, 0, 4)).expect("read").is_empty());
    assert_eq!(padded(b, f, 0, 0, 4), b"data");
    now(b.remove(f, 0, u64::MAX)).expect("all");
    assert!(now(b.read(f, 0, 0, 4)).expect("read").is_empty());
    write(b, f, 0, 1, b"again");
    assert_eq!(
        padded(b, f, 0, 0, 6),
        b"\0again",
        "a removed file can be written again"
    );
    assert_eq!(padded(b, key(3, 1), 1, 0, 5), b"other");
}

/// A reused inode number never shows old bytes (H97).
fn incarnations(b: &dyn Blocks) {
    write(b, key(2, 1), 0, 0, b"old");
    assert_eq!(now(b.read(key(2, 2), 0, 0, 3)).expect("read"), b"");
    write(b, key(2, 2), 0, 0, b"new");
    now(b.remove(key(2, 1), 0, u64::MAX)).expect("remove");
    assert_eq!(padded(b, key(2, 2), 0, 0, 3), b"new");
    // Numbers use all 64 bits.
    write(b, key(u64::MAX, u64::MAX - 1), u64::MAX - 1, 0, b"far");
    assert_eq!(padded(b, key(u64::MAX, u64::MAX - 1), u64::MAX - 1, 0, 3), b"far");
}

fn all(b: &dyn Whole) -> BTreeMap<FileKey, StoredFile> {
    let mut found = BTreeMap::new();
    for part in 0..=u8::MAX {
        for stored in now(b.files(part)).expect("a listing") {
            assert_eq!(names::part(stored.file), part);
            assert!(found.insert(stored.file, stored).is_none(), "listed twice");
        }
    }
    found
}

/// What a collector of what nobody refers to sees.
fn listings(b: &dyn Whole) {
    assert_eq!(all(b).len(), 0);
    let (one, two) = (key(2, 1), key(u64::MAX, 7));
    for block in [0, 5, u64::MAX - 1] {
        write(b, one, block, 0, b"data");
    }
    write(b, two, 1, 0, b"other");
    let found = all(b);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [one, two]);
    assert_eq!((found[&one].blocks, found[&two].blocks), (3, 1));
    assert!(found[&one].bytes >= 12);
    now(b.remove(one, 0, u64::MAX)).expect("remove");
    assert_eq!(all(b).into_keys().collect::<Vec<_>>(), [two]);
}

fn random(b: &dyn Blocks, steps: u64) {
    const LEN: usize = 64;
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    let mut reference: BTreeMap<(u64, u64), [u8; LEN]> = BTreeMap::new();
    for step in 0..steps {
        let (ino, block) = (2 + next(3), next(4));
        let f = key(ino, 1);
        let offset = next(LEN as u64) as usize;
        let len = next((LEN - offset) as u64 + 1) as usize;
        match next(8) {
            0..=3 => {
                let data = vec![step as u8 | 1; len];
                write(b, f, block, offset as u32, &data);
                reference.entry((ino, block)).or_insert([0; LEN])[offset..offset + len]
                    .copy_from_slice(&data);
            }
            4 => {
                now(b.truncate(f, block, offset as u32)).expect("truncate");
                if let Some(r) = reference.get_mut(&(ino, block)) {
                    r[offset..].fill(0);
                }
            }
            5 if step % 7 == 0 => {
                let to = block + next(3);
                now(b.remove(f, block, to)).expect("remove");
                for n in block..to {
                    reference.remove(&(ino, n));
                }
            }
            6 => now(b.sync(f, vec![block])).expect("sync"),
            _ => {
                let zeros = [0; LEN];
                let want = &reference.get(&(ino, block)).unwrap_or(&zeros)[offset..offset + len];
                assert_eq!(
                    padded(b, f, block, offset as u32, len as u32),
                    want,
                    "step {step}"
                );
            }
        }
    }
}
