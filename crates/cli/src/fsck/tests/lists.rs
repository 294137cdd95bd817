//! Rename lists against the heads of directories.

use super::*;

#[test]
fn rename_lists() {
    let moved = |listed: bool, on_list: &[u32]| {
        let mut t = Tree::new();
        let (d, e) = (t.d(), t.id_of("e", t.d()));
        let (_, _, record) = t.remove(&t.key(d, "e"));
        let (hash, to) = (t.map.widths().name(t.salt(d), &name("moved")), name("moved"));
        t.put(
            Key::Entry {
                part: d.into(),
                hash,
                name: to,
            },
            record,
        );
        t.change_head(e, |h| (h.name, h.listed) = (name("moved"), listed));
        if !on_list.is_empty() {
            let list = on_list.iter().copied().collect();
            let birth = (d, name("e"));
            t.put(
                Key::RenameList {
                    parent: birth.0,
                    name: birth.1,
                },
                Record::RenameList(list),
            );
        }
        (t.found(), e, d)
    };
    assert_eq!(moved(true, &[0]).0, []);
    for (listed, on_list) in [(true, &[][..]), (false, &[])] {
        let (found, e, _) = moved(listed, on_list);
        assert_eq!(found, [(Kind::Unlisted, Subject::Dir(e))]);
    }
    // On the list, and the head does not say so.
    let (found, e, _) = moved(false, &[0]);
    assert_eq!(
        found,
        [(Kind::Unlisted, Subject::Dir(e)), (Kind::Listed, Subject::Dir(e))]
    );
    // A version that is nobody's; where to look again is said.
    let (found, _, d) = moved(true, &[0, 3]);
    let ghost = map().widths().dir_id(&Birth {
        parent: d,
        name: name("e"),
        version: 3,
    });
    assert_eq!(found, [(Kind::Listed, Subject::Dir(ghost))]);
}

#[test]
fn placed_directories_are_on_no_rename_list() {
    let mut t = Tree::with(Ids::Placed);
    assert_eq!(t.found(), []);
    let e = t.id_of("e", t.d());
    t.change_head(e, |h| h.listed = true);
    assert_eq!(t.found(), [(Kind::Unlisted, Subject::Dir(e))]);
    t.change_head(e, |h| h.listed = false);
    let parent = t.d();
    t.put(
        Key::RenameList {
            parent,
            name: name("e"),
        },
        Record::RenameList([0].into_iter().collect()),
    );
    assert_eq!(t.found(), [(Kind::Listed, Subject::Dir(parent))]);
}
