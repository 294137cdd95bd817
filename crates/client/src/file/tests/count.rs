//! How many bytes are stored: what servers are told, and what the program that writes is shown before.

use super::*;

const BLOCK: u32 = 8192;

fn stored_of(blocks: &MemBlocks, size: u64) -> u64 {
    let found = ready(blocks.stored(KEY, 0, u64::MAX)).unwrap();
    let within = |b: &pando_data::StoredBlock| {
        let begin = b.number * u64::from(BLOCK);
        u64::from(b.bytes).min(size.saturating_sub(begin))
    };
    found.iter().map(within).sum()
}

/// What the layout says that is published.
fn published(ops: &Fake) -> u64 {
    let view = &ops.server.borrow().view;
    assert_eq!(view.attr.allocated, view.layout.allocated(view.attr.size));
    view.attr.allocated
}

#[test]
fn a_write_far_behind_the_end_stores_no_hole() {
    let (ops, blocks, mut h) = new(BLOCK);
    h.write(100 << 20, &[1; 4096]).unwrap();
    assert_eq!(h.file.attr().allocated, 4096, "shown before it is published");
    assert_eq!(h.file.attr().size, (100 << 20) + 4096);
    h.close().unwrap();
    assert_eq!(published(&ops), 4096);
    // What fills a hole counts, and what overwrites does not.
    let mut h = Handle::open(&ops, &blocks, DataSync::BeforePublish);
    h.write(50 << 20, &[2; 100]).unwrap();
    h.write(100 << 20, &[3; 4096]).unwrap();
    assert_eq!(h.file.attr().allocated, 4196);
    h.close().unwrap();
    assert_eq!(published(&ops), 4196);
}

#[test]
fn gathered_bytes_count() {
    let (ops, blocks, h) = new(BLOCK);
    let mut h = Handle {
        file: h.file.gathering(),
        ..h
    };
    h.write(1 << 20, &[1; 100]).unwrap();
    h.write((1 << 20) + 100, &[1; 100]).unwrap();
    h.write(2 << 20, &[1; 100]).unwrap();
    assert_eq!(h.file.attr().allocated, 300);
    h.close().unwrap();
    assert_eq!((published(&ops), stored_of(&blocks, 3 << 20)), (300, 300));
}

#[test]
fn truncation_and_holes_keep_the_number_right() {
    let (ops, blocks, mut h) = new(BLOCK);
    h.write(0, &[1; 4 * BLOCK as usize]).unwrap();
    h.flush().unwrap();
    assert_eq!(ops.server.borrow().view.layout, Layout::Blocks(BLOCK));
    let whole = u64::from(4 * BLOCK);
    // Up, by who has it open, and by a path.
    h.truncate(whole * 10, true).unwrap();
    assert_eq!(published(&ops), whole);
    h.truncate(whole * 11, false).unwrap();
    assert_eq!(published(&ops), whole);
    // A hole of two blocks.
    h.punch(u64::from(BLOCK), u64::from(2 * BLOCK)).unwrap();
    assert_eq!(h.file.attr().allocated, whole / 2);
    // Down into a block, by a path: the server cannot know, and is told.
    h.truncate(u64::from(2 * BLOCK), false).unwrap();
    assert_eq!(published(&ops), u64::from(BLOCK));
    h.truncate(100, true).unwrap();
    assert_eq!(ops.server.borrow().view.layout, Layout::Blocks(BLOCK));
    h.truncate(whole, true).unwrap();
    assert_eq!(published(&ops), 100);
    // Without holes again.
    h.write(0, &[2; 4 * BLOCK as usize]).unwrap();
    h.close().unwrap();
    assert_eq!(ops.server.borrow().view.layout, Layout::Blocks(BLOCK));
    assert_eq!(stored_of(&blocks, whole), whole);
}

#[test]
fn an_inline_file_counts_its_bytes() {
    let (ops, _, mut h) = new(BLOCK);
    h.truncate(1 << 30, true).unwrap();
    assert_eq!((published(&ops), h.file.attr().allocated), (0, 0));
    h.truncate(0, true).unwrap();
    h.write(0, b"five.").unwrap();
    h.flush().unwrap();
    h.truncate(1 << 30, true).unwrap();
    assert_eq!(ops.server.borrow().view.layout, Layout::SparseInline(5));
    assert_eq!((published(&ops), h.file.attr().allocated), (5, 5));
    // What is written far behind brings it to blocks.
    h.write(1 << 29, b"more").unwrap();
    assert_eq!(h.file.attr().allocated, 9);
    h.close().unwrap();
    assert_eq!(published(&ops), 9);
}

#[test]
fn a_hole_to_the_end_gives_all_back() {
    let (ops, blocks, mut h) = new(BLOCK);
    h.write(0, &[1; 3 * BLOCK as usize]).unwrap();
    h.punch(100, 1 << 40).unwrap();
    assert_eq!(h.file.attr().allocated, 100);
    h.close().unwrap();
    assert_eq!((published(&ops), blocks.count(KEY)), (100, 1));
}

#[test]
fn a_store_that_does_not_say_what_it_has_costs_the_number_alone() {
    let (ops, blocks, mut h) = new(BLOCK);
    h.write(0, &[1; 3 * BLOCK as usize]).unwrap();
    h.flush().unwrap();
    blocks.set_faults(|call, _| (call == BlockCall::Read).then_some(BlockError::NoSpace));
    h.truncate(1 << 30, true).unwrap();
    assert_eq!(published(&ops), u64::from(3 * BLOCK));
    h.write(1 << 20, &[1; 10]).unwrap();
    h.flush().unwrap();
    blocks.clear_faults();
    h.write(1 << 21, &[1; 10]).unwrap();
    h.close().unwrap();
    assert_eq!(published(&ops), u64::from(3 * BLOCK) + 20);
}

#[test]
fn two_mounts_count_what_both_wrote() {
    let (ops, blocks, mut here) = new(BLOCK);
    here.write(1 << 20, &[1; 10]).unwrap();
    here.flush().unwrap();
    let mut there = Handle::open(&ops, &blocks, DataSync::BeforePublish);
    there.write(2 << 20, &[1; 20]).unwrap();
    here.write(1 << 19, &[1; 30]).unwrap();
    there.close().unwrap();
    here.close().unwrap();
    assert_eq!(published(&ops), 60);
}

fn random_run(seed: u64) {
    let mut r = super::random::Random::new(seed);
    let (ops, blocks) = (Fake::new(BLOCK), MemBlocks::new());
    let open = |r: &mut super::random::Random| {
        let h = Handle::open(&ops, &blocks, DataSync::BeforePublish);
        match r.below(2) {
            0 => Handle {
                file: h.file.gathering(),
                ..h
            },
            _ => h,
        }
    };
    let mut h = open(&mut r);
    for step in 0..60 {
        let offset = match r.below(3) {
            0 => u64::from(BLOCK) * r.below(20),
            1 => r.below(200),
            _ => r.below(20 * u64::from(BLOCK)),
        };
        match r.below(9) {
            0..=3 => h.write(offset, &vec![1; 1 + r.below(12_000) as usize]).unwrap(),
            4 => h.truncate(offset, r.below(2) == 0).unwrap(),
            5 | 6 => h.punch(offset, r.below(50_000)).unwrap(),
            7 => h.flush().unwrap(),
            _ => {
                h.close().unwrap();
                h = open(&mut r);
            }
        }
        let (shown, size) = (h.file.attr().allocated, h.file.size());
        h.flush().unwrap();
        assert_eq!(
            shown,
            published(&ops),
            "seed {seed} step {step}: shown and published"
        );
        if let Some(block_size) = ops.server.borrow().view.layout.block_size() {
            let right = Layout::blocks(block_size, stored_of(&blocks, size), size);
            assert_eq!(
                shown,
                right.allocated(size),
                "seed {seed} step {step} size {size}"
            );
        }
    }
}

#[test]
fn the_number_is_what_the_store_has() {
    for seed in 0..400 {
        random_run(seed);
    }
}
