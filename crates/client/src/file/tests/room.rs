//! `fallocate` of more than there is, and sizes at the end of what there can be.

use super::*;
use crate::file::{Allocation, Fill, SIZE_MAX};

const ROOM: u64 = 1000;
const ALL: [Fill; 3] = [Fill::AsItIs, Fill::Zeros, Fill::Hole];

fn allocate(h: &mut Handle, offset: u64, len: u64, fill: Fill, keeps_size: bool) -> Result<(), Errno> {
    h.clock += 1;
    let what = Allocation {
        offset,
        len,
        fill,
        keeps_size,
    };
    run(h.file.allocate(&h.ops, &h.blocks, &user(), what, time(h.clock)))
}

/// Files of no bytes, of some beside the record, and of some in blocks of 32 bytes.
fn files() -> impl Iterator<Item = (MemBlocks, Handle, Vec<u8>)> {
    [0, LIMIT as usize / 2, 150].into_iter().map(|size| {
        let (_, blocks, mut h) = new(32);
        let data = vec![7; size];
        h.write(0, &data).unwrap();
        h.flush().unwrap();
        blocks.set_room(Some(ROOM));
        (blocks, h, data)
    })
}

#[test]
fn what_there_is_no_room_for_changes_nothing() {
    for (blocks, mut h, data) in files() {
        let size = data.len() as u64;
        for keeps_size in [false, true] {
            for fill in [Fill::AsItIs, Fill::Zeros] {
                for (offset, len) in [
                    (0, 1 << 60),
                    (0, ROOM + 1 + 160),
                    (size, ROOM + 33),
                    (1 << 61, ROOM + 1),
                ] {
                    let done = allocate(&mut h, offset, len, fill, keeps_size);
                    assert_eq!(done, Err(Errno::NoSpace), "{offset} {len} {fill:?}");
                }
            }
            for fill in ALL {
                for (offset, len) in [
                    (1, SIZE_MAX),
                    (SIZE_MAX, 1),
                    (u64::MAX, u64::MAX),
                    (5, u64::MAX - 4),
                ] {
                    let done = allocate(&mut h, offset, len, fill, keeps_size);
                    assert_eq!(done, Err(Errno::TooBig), "{offset} {len} {fill:?}");
                }
            }
        }
        assert_eq!((h.file.size(), h.all()), (size, data.clone()));
        assert!(!h.file.is_dirty());
        assert_eq!(blocks.count(KEY), if data.len() == 150 { 5 } else { 0 });
    }
}

#[test]
fn what_there_is_room_for_is_done() {
    for (_, mut h, data) in files() {
        let size = data.len() as u64;
        allocate(&mut h, 0, ROOM, Fill::AsItIs, true).unwrap();
        assert_eq!(h.file.size(), size);
        allocate(&mut h, size, ROOM, Fill::AsItIs, false).unwrap();
        let mut want = data;
        want.resize((size + ROOM) as usize, 0);
        assert_eq!(h.all(), want);
        // Whole, it is not there yet.
        let len = size + ROOM;
        allocate(&mut h, 0, len, Fill::Hole, true).unwrap();
        assert_eq!(h.all(), vec![0; len as usize]);
    }
}

#[test]
fn what_is_stored_needs_no_room() {
    let (_, blocks, mut h) = new(32);
    h.write(0, &[7; 320]).unwrap();
    h.write(640, &[8; 32]).unwrap();
    blocks.set_room(Some(0));
    allocate(&mut h, 0, 320, Fill::AsItIs, false).unwrap();
    allocate(&mut h, 640, 32, Fill::Zeros, false).unwrap();
    assert_eq!(h.read(640, 32), [0; 32]);
    // Zeros of a whole block give back its room.
    let hole = |h: &mut Handle| allocate(h, 0, 672, Fill::AsItIs, false);
    assert_eq!(hole(&mut h), Err(Errno::NoSpace));
    blocks.set_room(Some(351));
    assert_eq!(hole(&mut h), Err(Errno::NoSpace));
    blocks.set_room(Some(352));
    hole(&mut h).unwrap();
    // A small file is not in the block store.
    let (_, blocks, mut h) = new(32);
    blocks.set_room(Some(0));
    allocate(&mut h, 0, u64::from(LIMIT), Fill::AsItIs, false).unwrap();
    assert_eq!(
        allocate(&mut h, 0, u64::from(LIMIT) + 1, Fill::AsItIs, false),
        Err(Errno::NoSpace)
    );
}

#[test]
fn the_last_byte_there_can_be() {
    for (_, mut h, data) in files() {
        h.write(SIZE_MAX - 1, b"x").unwrap();
        assert_eq!(
            (h.file.size(), h.read(SIZE_MAX - 2, 9)),
            (SIZE_MAX, vec![0, b'x'])
        );
        assert_eq!(h.write(SIZE_MAX, b"x"), Err(Errno::TooBig));
        assert_eq!(h.write(SIZE_MAX - 1, b"xy"), Err(Errno::TooBig));
        assert_eq!(h.truncate(SIZE_MAX + 1, true), Err(Errno::TooBig));
        assert_eq!(h.read(SIZE_MAX - 2, 9), [0, b'x']);
        allocate(
            &mut h,
            data.len() as u64,
            SIZE_MAX - data.len() as u64,
            Fill::Hole,
            true,
        )
        .unwrap();
        h.flush().unwrap();
        assert_eq!(h.read(0, data.len() as u32 + 1), [&data[..], &[0]].concat());
        assert_eq!(h.read(SIZE_MAX - 2, 9), [0, 0]);
    }
}

/// A store that takes so many blocks.
fn full_after(blocks: &MemBlocks, count: u32) {
    let mut left = count;
    blocks.set_faults(move |call, _| {
        if call != BlockCall::Write {
            return None;
        }
        match left.checked_sub(1) {
            Some(rest) => {
                left = rest;
                None
            }
            None => Some(BlockError::NoSpace),
        }
    });
}

#[test]
fn what_could_be_stored_is_published_and_the_rest_given_back() {
    for gathers in [false, true] {
        let (ops, blocks, mut h) = new(32);
        if gathers {
            h.file = h.file.gathering();
        }
        full_after(&blocks, 5);
        let mut written = 0;
        let failed = loop {
            match h.write(written, &[7; 40]) {
                Ok(()) => written += 40,
                Err(e) => break e,
            }
        };
        assert_eq!(failed, Errno::NoSpace);
        assert_eq!(h.file.size(), written);
        run(h.file.give_back(&h.ops, &h.blocks, &user())).unwrap();
        blocks.clear_faults();
        let seen = Handle::open(&ops, &blocks, DataSync::BeforePublish).all();
        assert!(seen.len() >= 80 && seen.iter().all(|b| *b == 7), "{}", seen.len());
        assert_eq!(blocks.count(KEY), seen.len().div_ceil(32), "gathers: {gathers}");
    }
}

#[test]
fn where_the_servers_take_nothing_all_of_it_is_removed() {
    for begin in [0, 100] {
        let (ops, blocks, mut h) = new(32);
        h.file = h.file.gathering();
        h.write(0, &vec![1; begin]).unwrap();
        h.flush().unwrap();
        let there = blocks.count(KEY);
        full_after(&blocks, 4);
        while h.write(h.file.size(), &[7; 30]).is_ok() {}
        // The publish is refused, and then it is asked what is there.
        ops.trusts.set(true);
        ops.fail.set(1);
        let before = ops.calls.get();
        run(h.file.give_back(&h.ops, &h.blocks, &user())).unwrap();
        assert_eq!(ops.calls.get(), before + 2);
        blocks.clear_faults();
        assert_eq!(blocks.count(KEY), there);
        let seen = Handle::open(&ops, &blocks, DataSync::BeforePublish).all();
        assert_eq!(seen, vec![1; begin]);
    }
}
