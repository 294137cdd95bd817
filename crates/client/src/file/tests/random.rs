//! Random operations, faults and crashes; after each the file is what a plain vector of bytes is.

use super::*;

pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// Offsets and sizes that like the borders: the inline limit, and multiples of the block size.
fn border(r: &mut Random, block_size: u32) -> u64 {
    let at = match r.below(4) {
        0 => u64::from(LIMIT),
        1 => u64::from(block_size) * r.below(5),
        2 => 0,
        _ => return r.below(300),
    };
    (at + r.below(4)).saturating_sub(2)
}

fn random_run(seed: u64) {
    let mut r = Random::new(seed);
    let block_size = 32 << r.below(3);
    let sync = if r.below(2) == 0 {
        DataSync::BeforePublish
    } else {
        DataSync::OnFsync
    };
    let (ops, blocks) = (Fake::new(block_size), MemBlocks::new());
    let mut h = Handle::open(&ops, &blocks, sync);
    let mut want: Vec<u8> = Vec::new();
    // What the server knows, and bytes that a crash may leave in either state.
    let mut published = want.clone();
    for step in 0..200_u64 {
        let context = format!("seed {seed} step {step} block size {block_size}");
        let action = r.below(13);
        if action <= 6 && r.below(6) == 0 {
            let mut countdown = r.below(3);
            blocks.set_faults(move |call, _| {
                if call == BlockCall::Sync {
                    return None;
                }
                countdown = countdown.checked_sub(1)?;
                (countdown == 0).then_some(BlockError::NoSpace)
            });
        }
        let mut failed = false;
        let offset = border(&mut r, block_size);
        match action {
            0..=4 => {
                let data = vec![(step as u8).max(1); r.below(100) as usize];
                if h.write(offset, &data).is_ok() {
                    if !data.is_empty() {
                        want.resize(want.len().max(offset as usize + data.len()), 0);
                        want[offset as usize..][..data.len()].copy_from_slice(&data);
                    }
                } else {
                    failed = true;
                    assert_eq!(h.file.size(), want.len() as u64, "{context}");
                }
            }
            5 | 6 => match h.truncate(offset, r.below(2) == 0) {
                Ok(()) => {
                    want.resize(offset as usize, 0);
                    published = want.clone();
                }
                Err(_) => {
                    failed = true;
                    assert_eq!(h.file.size(), want.len() as u64, "{context}");
                }
            },
            12 => {
                let len = r.below(200);
                h.punch(offset, len).unwrap();
                let end = want.len().min((offset + len) as usize);
                if (offset as usize) < end {
                    want[offset as usize..end].fill(0);
                }
            }
            7 => {
                h.flush().unwrap();
                published = want.clone();
            }
            8 => {
                h.fsync().unwrap();
                published = want.clone();
            }
            9 | 10 => {
                h.close().unwrap();
                h = Handle::open(&ops, &blocks, sync);
                published = want.clone();
            }
            _ => {
                // A crash of this mount: the size is what was published; each byte below it is of either
                // time.
                h = Handle::open(&ops, &blocks, sync);
                let now = h.all();
                assert_eq!(
                    now.len(),
                    ops.server.borrow().view.attr.size as usize,
                    "{context}"
                );
                for (i, b) in now.iter().enumerate() {
                    let before = published.get(i).copied().unwrap_or(0);
                    assert!(*b == before || want.get(i) == Some(b), "{context} byte {i}");
                }
                want = now;
                published = want.clone();
            }
        }
        blocks.clear_faults();
        if failed {
            // Only bytes that were written to may differ, and only below the old end.
            let now = h.all();
            assert_eq!(now.len(), want.len(), "{context}");
            assert_eq!(
                now.iter()
                    .zip(&want)
                    .skip(offset as usize + 100)
                    .filter(|(a, b)| a != b)
                    .count(),
                0
            );
            assert_eq!(
                now[..want.len().min(offset as usize)],
                want[..want.len().min(offset as usize)]
            );
            want = now;
        }
        assert_eq!(h.all(), want, "{context}");
        let (at, len) = (r.below(300), r.below(100) as u32);
        let to = want.len().min(at as usize + len as usize);
        assert_eq!(
            h.read(at, len),
            want[want.len().min(at as usize)..to.max(want.len().min(at as usize))],
            "{context}"
        );
    }
}

#[test]
fn random_operations_match_a_plain_vector() {
    for seed in 0..3000 {
        random_run(seed);
    }
}
