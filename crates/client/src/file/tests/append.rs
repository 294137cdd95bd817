//! Appends of several mounts.

use super::random::Random;
use super::*;
use pando_env::LocalFuture;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Turns of one file, which nobody waits for: two at a time would be a mistake of ours.
#[derive(Debug, Default)]
struct One {
    taken: Arc<AtomicBool>,
    count: AtomicU64,
}

struct Held(Arc<AtomicBool>);

impl Turn for Held {
    fn holds(&self) -> bool {
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Turns for One {
    fn take(&self, file: crate::locks::Lockable) -> LocalFuture<Result<Box<dyn Turn>, Errno>> {
        assert_eq!((file.ino, file.generation), (KEY.ino, KEY.generation));
        assert!(!self.taken.swap(true, Ordering::Relaxed), "it was not given up");
        self.count.fetch_add(1, Ordering::Relaxed);
        let held = Held(self.taken.clone());
        Box::pin(std::future::ready(Ok(Box::new(held) as Box<dyn Turn>)))
    }
}

impl Handle {
    fn appending(ops: &Fake, blocks: &MemBlocks, turns: &Arc<One>) -> Handle {
        let mut h = Handle::open(ops, blocks, DataSync::BeforePublish);
        h.file = h.file.gathering().appending(turns.clone());
        h
    }
    fn append(&mut self, data: &[u8]) -> Result<(), Errno> {
        self.clock += 1;
        run(self
            .file
            .append(&self.ops, &self.blocks, &user(), data, time(self.clock)))
    }
    fn in_background(&mut self) -> Result<(), Errno> {
        if self.file.needs_turn(LIMIT) {
            let turn = run(self.file.turn())?;
            return run(self.file.flush_in(Some(turn), &self.ops, &self.blocks, &user()));
        }
        match run(self.file.begin_publish(&self.blocks, &user()))? {
            Some(underway) => {
                let sent = run(underway.send(&self.ops, &self.blocks));
                match self.file.end_publish(sent) {
                    Err(Errno::Busy) => self.flush(),
                    done => done,
                }
            }
            None => Ok(()),
        }
    }
}

/// A file of two mounts that begin at the same byte.
fn two(begin: usize) -> (Fake, MemBlocks, Arc<One>, [Handle; 2]) {
    let (ops, blocks, mut first) = new(32);
    first.write(0, &vec![b'.'; begin]).unwrap();
    first.close().unwrap();
    let turns = Arc::new(One::default());
    let handles = [(); 2].map(|()| Handle::appending(&ops, &blocks, &turns));
    (ops, blocks, turns, handles)
}

fn there(ops: &Fake, blocks: &MemBlocks) -> Vec<u8> {
    Handle::open(ops, blocks, DataSync::BeforePublish).all()
}

#[test]
fn both_are_there_wherever_the_file_is() {
    // Empty, inline, on the way to blocks, in blocks.
    for begin in [0, 5, 50, 64, 65, 96, 100, 130] {
        for lengths in [[3, 4], [20, 30], [70, 10], [10, 70], [100, 100]] {
            let (ops, blocks, turns, [mut a, mut b]) = two(begin);
            let [mine, theirs] = [vec![b'a'; lengths[0]], vec![b'b'; lengths[1]]];
            a.append(&mine).unwrap();
            b.append(&theirs).unwrap();
            assert_eq!(a.all(), [&vec![b'.'; begin][..], &mine].concat());
            b.flush().unwrap();
            a.close().unwrap();
            let want = [&vec![b'.'; begin][..], &theirs, &mine].concat();
            assert_eq!(there(&ops, &blocks), want, "{begin} {lengths:?}");
            assert_eq!(a.all(), want, "it sees where its own came to be");
            let small = begin + lengths[0] + lengths[1] <= LIMIT as usize;
            assert_eq!(
                turns.count.load(Ordering::Relaxed) == 0,
                small,
                "{begin} {lengths:?}"
            );
            b.append(b"c").unwrap();
            b.close().unwrap();
            assert_eq!(there(&ops, &blocks), [&want[..], b"c"].concat());
        }
    }
}

#[test]
fn a_publish_that_is_refused_finds_its_place_again() {
    for begin in [5, 100] {
        let (ops, blocks, _, [mut a, _]) = two(begin);
        a.append(b"mine").unwrap();
        // Another mount changes something else just before it, several times.
        ops.meddle.set(3);
        a.flush().unwrap();
        let want = [&vec![b'.'; begin][..], b"mine"].concat();
        assert_eq!(there(&ops, &blocks), want);
        // The server is away; more is appended before it is back.
        a.append(b" and").unwrap();
        ops.fail.set(1);
        assert_eq!(a.flush(), Err(Errno::Unreachable));
        a.append(b" more").unwrap();
        ops.fail.set(1);
        assert_eq!(a.in_background(), Err(Errno::Unreachable));
        assert_eq!(a.all(), [&want[..], b" and more"].concat());
        a.close().unwrap();
        assert_eq!(there(&ops, &blocks), [&want[..], b" and more"].concat());
    }
}

#[test]
fn what_is_not_an_append_gives_the_tail_its_place() {
    for begin in [5, 50, 100] {
        let (ops, blocks, _, [mut a, _]) = two(begin);
        let mut want = vec![b'.'; begin];
        for turn in 0..12_u8 {
            a.append(&[b'a' + turn; 7]).unwrap();
            want.extend([b'a' + turn; 7]);
            let last = want.len() - 1;
            match turn % 6 {
                0 => {
                    a.write(last as u64, b"!").unwrap();
                    want[last] = b'!';
                }
                1 => {
                    a.write(1, b"?").unwrap();
                    want[1] = b'?';
                }
                2 => {
                    a.truncate(last as u64, true).unwrap();
                    want.pop();
                }
                3 => {
                    let what = Allocation {
                        offset: last as u64 - 3,
                        len: 3,
                        fill: Fill::Hole,
                        keeps_size: true,
                    };
                    run(a.file.allocate(&a.ops, &a.blocks, &user(), what, time(9))).unwrap();
                    want[last - 3..last].fill(0);
                }
                4 => {
                    a.write(last as u64 + 20, b"far").unwrap();
                    want.resize(last + 20, 0);
                    want.extend(b"far");
                }
                _ => {
                    a.truncate(0, true).unwrap();
                    want.clear();
                    a.append(b"anew").unwrap();
                    want.extend(b"anew");
                }
            }
            assert_eq!(a.all(), want, "{begin} {turn}");
        }
        a.close().unwrap();
        assert_eq!(there(&ops, &blocks), want);
    }
}

#[test]
fn data_is_where_the_tail_is() {
    for begin in [5_u64, 100] {
        let (_, _, _, [mut a, _]) = two(begin as usize);
        a.truncate(300, true).unwrap();
        a.append(&[b'x'; 9]).unwrap();
        let data = |from| run(a.file.data_from(&a.blocks, from)).unwrap();
        assert_eq!(data(290), Some((300, 309)));
        assert_eq!(data(305), Some((305, 309)));
        assert_eq!(data(309), None);
        assert_eq!(a.read(295, 20), [&[0; 5][..], &[b'x'; 9]].concat());
        assert_eq!(a.read(302, 3), b"xxx");
    }
}

#[test]
fn a_full_tail_says_so_and_what_cannot_be_stored_is_kept() {
    let (ops, blocks, _, [mut a, _]) = two(0);
    let piece = vec![b'p'; 1 << 20];
    for n in 0..4 {
        assert!(!a.file.is_full_for(piece.len()), "{n}");
        a.append(&piece).unwrap();
    }
    assert!(a.file.is_full_for(1) && !a.file.is_full_for(0));
    blocks.set_faults(|c, _| (c == BlockCall::Write).then_some(BlockError::NoSpace));
    assert_eq!(a.flush(), Err(Errno::NoSpace));
    assert_eq!((there(&ops, &blocks).len(), a.file.size()), (0, 4 << 20));
    blocks.clear_faults();
    a.flush().unwrap();
    assert!(!a.file.is_full_for(piece.len()));
    assert_eq!(ops.server.borrow().view.attr.size, 4 << 20);
}

#[test]
fn every_line_is_there_once_and_in_order() {
    for seed in 1..300_u64 {
        let mut r = Random::new(seed);
        let (ops, blocks) = (Fake::new(32 << r.below(3)), MemBlocks::new());
        let turns = Arc::new(One::default());
        let mut handles: Vec<Handle> = (0..3).map(|_| Handle::appending(&ops, &blocks, &turns)).collect();
        let mut lines = [0_u32; 3];
        for _ in 0..60 {
            let n = r.below(3) as usize;
            let h = &mut handles[n];
            match r.below(8) {
                0..=3 => {
                    let line = format!("{n}:{}{}\n", lines[n], "-".repeat(r.below(40) as usize));
                    lines[n] += 1;
                    h.append(line.as_bytes()).unwrap();
                }
                4 => h.flush().unwrap(),
                5 => {
                    ops.fail.set(r.below(2) as u32);
                    let _ = h.in_background();
                    ops.fail.set(0);
                }
                6 => {
                    ops.meddle.set(r.below(3) as u32);
                    let _ = h.in_background();
                    ops.meddle.set(0);
                }
                _ => {
                    h.close().unwrap();
                    *h = Handle::appending(&ops, &blocks, &turns);
                }
            }
        }
        for h in &mut handles {
            h.close().unwrap();
        }
        let all = there(&ops, &blocks);
        let text = String::from_utf8(all).expect("lines alone");
        let mut seen = [0_u32; 3];
        for line in text.lines() {
            let (n, rest) = line.split_once(':').unwrap();
            let n: usize = n.parse().unwrap();
            let number: u32 = rest.trim_end_matches('-').parse().unwrap();
            assert_eq!(number, seen[n], "seed {seed}: {line}");
            seen[n] += 1;
        }
        assert_eq!(seen, lines, "seed {seed}");
    }
}
