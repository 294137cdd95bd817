//! Files whose writes are gathered show and publish what files without do.

use super::*;

fn gathering(block_size: u32, sync: DataSync) -> (Fake, MemBlocks, Handle) {
    let (ops, blocks) = (Fake::new(block_size), MemBlocks::new());
    let mut h = Handle::open(&ops, &blocks, sync);
    h.file = h.file.gathering();
    (ops, blocks, h)
}

/// What somebody sees who opens it now.
fn seen(ops: &Fake, blocks: &MemBlocks) -> Vec<u8> {
    Handle::open(ops, blocks, DataSync::OnFsync).all()
}

#[test]
fn any_changes_in_any_order() {
    let mut seed = 0x1234_5678_9ABC_DEF1_u64;
    let mut next = move |n: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % n
    };
    for round in 0..60 {
        let sync = match round % 2 {
            0 => DataSync::BeforePublish,
            _ => DataSync::OnFsync,
        };
        let (ops, blocks, mut h) = gathering(64, sync);
        let mut want: Vec<u8> = Vec::new();
        let mut end = 0;
        for step in 0..120_u64 {
            let at = if next(2) == 0 { end } else { next(400) };
            let len = next(90);
            match next(10) {
                0..=5 => {
                    let data = vec![step as u8 | 1; len as usize];
                    h.write(at, &data).unwrap();
                    end = at + len;
                    if len > 0 {
                        want.resize(want.len().max(end as usize), 0);
                        want[at as usize..end as usize].copy_from_slice(&data);
                    }
                }
                6 => {
                    h.truncate(at, next(2) == 0).unwrap();
                    want.resize(at as usize, 0);
                }
                7 => {
                    h.punch(at, len).unwrap();
                    let to = want.len().min((at + len) as usize);
                    if let Some(hole) = want.get_mut(at as usize..to) {
                        hole.fill(0);
                    }
                }
                8 => h.flush().unwrap(),
                _ => h.fsync().unwrap(),
            }
            assert_eq!(h.all(), want, "round {round} step {step}");
        }
        h.close().unwrap();
        assert_eq!(seen(&ops, &blocks), want, "round {round}");
    }
}

#[test]
fn small_writes_in_order_are_one() {
    let (_, blocks, mut h) = gathering(4096, DataSync::OnFsync);
    let writes = std::rc::Rc::new(std::cell::Cell::new(0));
    let counter = writes.clone();
    blocks.set_faults(move |call, _| {
        counter.set(counter.get() + u32::from(call == BlockCall::Write));
        None
    });
    for n in 0..100 {
        h.write(n * 100, &[7; 100]).unwrap();
    }
    h.close().unwrap();
    assert_eq!(writes.get(), 3, "10,000 bytes are three blocks");
}

/// What could not be stored is not forgotten, nor published, and is stored when there is room.
#[test]
fn no_space_is_told_and_passes() {
    let (ops, blocks, mut h) = gathering(1024, DataSync::OnFsync);
    h.write(0, &[1; 500]).unwrap();
    h.write(500, &[2; 100]).unwrap();
    blocks.set_faults(|c, _| (c == BlockCall::Write).then_some(BlockError::NoSpace));
    assert_eq!(h.flush(), Err(Errno::NoSpace));
    assert_eq!(h.fsync(), Err(Errno::NoSpace));
    assert_eq!(h.write(5000, b"elsewhere"), Err(Errno::NoSpace));
    assert_eq!(ops.server.borrow().view.attr.size, 0, "nothing was published");
    assert_eq!(h.all(), [[1; 500].as_slice(), &[2; 100]].concat());
    blocks.clear_faults();
    h.close().unwrap();
    assert_eq!(seen(&ops, &blocks), [[1; 500].as_slice(), &[2; 100]].concat());
    // Whoever empties the file needs no room for what was in it.
    h.write(0, &[3; 700]).unwrap();
    blocks.set_faults(|c, _| (c == BlockCall::Write).then_some(BlockError::NoSpace));
    h.truncate(0, true).unwrap();
    h.close().unwrap();
    assert_eq!(seen(&ops, &blocks), b"");
}

/// All open files together gather no more than so much; who finds no room stores at once.
#[test]
fn what_is_gathered_is_bounded() {
    let data = vec![7; 70_000];
    let open = || {
        let (ops, blocks, mut h) = gathering(64 << 20, DataSync::BeforePublish);
        h.write(0, &data).unwrap();
        (ops, blocks, h)
    };
    let mut files: Vec<_> = (0..8).map(|_| open()).collect();
    let stored = |files: &[(Fake, MemBlocks, Handle)]| -> usize {
        files.iter().map(|(_, b, h)| b.count(h.file.key())).sum()
    };
    // Other tests may have a little of it just now.
    assert!((4..=5).contains(&stored(&files)), "{}", stored(&files));
    // Who publishes makes room.
    for (_, _, h) in &mut files {
        h.flush().unwrap();
    }
    assert_eq!(stored(&files), 8);
    files.extend((0..3).map(|_| open()));
    assert_eq!(stored(&files), 8);
}
