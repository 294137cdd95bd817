//! Publishes beside the writer.

use super::*;

impl Handle {
    fn begin(&mut self) -> Option<Underway> {
        run(self.file.begin_publish(&self.blocks, &user())).unwrap()
    }
    fn send(&self, underway: Underway) -> Published {
        run(underway.send(&self.ops, &self.blocks))
    }
    fn publish(&mut self) -> Result<(), Errno> {
        let underway = self.begin().unwrap();
        let sent = self.send(underway);
        self.file.end_publish(sent)
    }
    fn others(&self) -> Vec<u8> {
        Handle::open(&self.ops, &self.blocks, DataSync::BeforePublish).all()
    }
}

#[test]
fn others_see_what_was_there_when_it_began_and_the_rest_next_time() {
    // Inline; in blocks; inline when it began, and in blocks before it ended.
    for (first, second) in [(10, 20), (100, 200), (10, 200)] {
        let (_, _, mut h) = new(32);
        h.write(0, &vec![1; first]).unwrap();
        let underway = h.begin().unwrap();
        h.write(first as u64, &vec![2; second]).unwrap();
        let sent = h.send(underway);
        h.write(0, &[3]).unwrap();
        h.file.end_publish(sent).unwrap();
        let seen = h.others();
        assert_eq!(seen.len(), first);
        let want = [vec![3], vec![1; first - 1], vec![2; second]].concat();
        assert_eq!(h.all(), want, "the writer sees its own");
        assert!(h.file.is_dirty());
        h.publish().unwrap();
        assert_eq!(h.others(), want);
        assert!(!h.file.is_dirty() && h.begin().is_none());
        assert_eq!(
            h.file.cached_version(),
            Some(h.file.version()),
            "nobody else wrote"
        );
    }
}

#[test]
fn nothing_is_lost_by_a_publish_that_fails() {
    for first in [10, 100] {
        let (ops, _, mut h) = new(32);
        h.write(0, &vec![1; first]).unwrap();
        let underway = h.begin().unwrap();
        ops.fail.set(1);
        let sent = h.send(underway);
        h.write(first as u64, &[2; 3]).unwrap();
        assert_eq!(h.file.end_publish(sent), Err(Errno::Unreachable));
        assert!(h.file.is_dirty() && h.others().is_empty());
        h.close().unwrap();
        assert_eq!(h.others(), [vec![1; first], vec![2; 3]].concat());
    }
}

#[test]
fn another_mount_that_published_meanwhile_is_put_together_with_both_writes() {
    let (ops, blocks, mut h) = new(32);
    h.write(0, b"0123456789").unwrap();
    h.flush().unwrap();
    h.write(1, b"A").unwrap();
    let underway = h.begin().unwrap();
    let mut other = Handle::open(&ops, &blocks, DataSync::BeforePublish);
    other.write(5, b"C").unwrap();
    other.close().unwrap();
    h.write(8, b"B").unwrap();
    let sent = h.send(underway);
    assert_eq!(h.file.end_publish(sent), Err(Errno::Busy));
    h.flush().unwrap();
    assert_eq!(h.others(), b"0A234C67B9");
    assert_eq!(h.all(), b"0A234C67B9");
}

#[test]
fn what_was_removed_or_is_clean_is_not_published() {
    let (ops, _, mut h) = new(32);
    assert!(h.begin().is_none());
    h.write(0, b"x").unwrap();
    h.file.removed(pando_types::Slot(0), time(9));
    let calls = ops.calls.get();
    assert!(h.begin().is_none());
    assert_eq!(ops.calls.get(), calls);
}

#[test]
fn what_is_gathered_is_stored_first_and_gathering_goes_on() {
    let (ops, blocks, h) = new(64);
    let mut h = Handle {
        file: h.file.gathering(),
        ..h
    };
    for n in 0..40_u8 {
        h.write(u64::from(n) * 10, &[n; 10]).unwrap();
        if n % 3 == 0 {
            h.publish().unwrap();
            assert_eq!(h.others().len(), (usize::from(n) + 1) * 10);
        }
    }
    h.close().unwrap();
    let want: Vec<u8> = (0..40).flat_map(|n| [n; 10]).collect();
    assert_eq!(Handle::open(&ops, &blocks, DataSync::BeforePublish).all(), want);
}
