//! Lists of directories whose entries are placed one by one.

use super::*;
use crate::fsck::tests::lines::{broken, one_by_one};

#[test]
fn a_list_is_made_anew_from_the_entries() {
    let sound = one_by_one();
    for t in broken() {
        let mended = mend(t);
        assert_eq!(
            (mended.left, mended.did.len()),
            (Vec::new(), 1),
            "{:?}",
            mended.did
        );
        assert_eq!(mended.tree.found(), []);
        assert!(mended.tree.records.keys().eq(sound.records.keys()));
    }
}

#[test]
fn counts_are_those_of_all_entries() {
    let mut t = one_by_one();
    let d = t.d();
    t.touch(d, |s| s.entries += 3);
    assert_eq!(t.found(), [(Kind::Counts, crate::fsck::finding::Subject::Dir(d))]);
    let mended = mend(t);
    assert_eq!(mended.left, []);
    assert_eq!(mended.tree.found(), []);
}
