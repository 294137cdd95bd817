//! Directories whose entries are placed one by one, and their lists.

use super::*;

/// The filesystem with forty more files in `/d`, each entry in its own slot.
pub(in crate::fsck) fn one_by_one() -> Tree {
    let mut t = Tree::on(ClusterMap {
        ids: Ids::Placed,
        placement: Placement::Entry,
        updates: pando_cluster::DirectoryUpdates::TwoPhase,
        ..map()
    });
    let d = t.d();
    for n in 0..40 {
        t.file(d, &format!("n{n}"), Layout::Inline, 2);
        t.attach(d, &format!("n{n}"), AttachmentKind::Data, 2);
    }
    t.directory(d, "sub");
    t
}

/// Ways to break the list of `/d`, which its entries mend.
pub(in crate::fsck) fn broken() -> Vec<Tree> {
    let line = |t: &Tree, text: &str| t.key(t.d(), text).line().expect("an entry's key");
    let mut lacks = one_by_one();
    let key = line(&lacks, "n7");
    lacks.remove(&key);
    let mut has_more = one_by_one();
    let one = line(&has_more, "n7");
    let Some((_, _, record)) = has_more.records.get(&one.encode()).cloned() else {
        unreachable!("it was put there");
    };
    let other = line(&has_more, "never");
    has_more.put(other, record);
    let mut says_another = one_by_one();
    let (key, entry) = (
        line(&says_another, "n7"),
        says_another.key(says_another.d(), "sub"),
    );
    if let Some((_, _, Record::Entry(entry))) = says_another.records.get(&entry.encode()).cloned() {
        says_another.put(key, Record::Line(Line::of(&entry)));
    }
    vec![lacks, has_more, says_another]
}

#[test]
fn entries_one_by_one_are_sound() {
    assert_eq!(one_by_one().found(), []);
}

#[test]
fn lists_that_are_not_those_of_the_entries() {
    for t in broken() {
        assert_eq!(t.found(), [(Kind::List, Subject::Dir(t.d()))]);
    }
    // Where directories have no lists no line is right.
    let mut t = Tree::new();
    let (d, entry) = (t.d(), t.key(t.d(), "g"));
    if let Some((_, _, Record::Entry(e))) = t.records.get(&entry.encode()).cloned() {
        t.put(entry.line().expect("an entry's key"), Record::Line(Line::of(&e)));
    }
    assert_eq!(t.found(), [(Kind::List, Subject::Dir(d))]);
}

#[test]
fn an_entry_in_another_slot_than_its_hash_says() {
    let mut t = one_by_one();
    let key = t.key(t.d(), "n7");
    let (_, _, record) = t.remove(&key);
    let Key::Entry { part, hash, name } = key else {
        unreachable!("an entry's key");
    };
    let wrong = Part::new(part.dir, part.start() ^ 1).expect("a part");
    t.put(
        Key::Entry {
            part: wrong,
            hash,
            name,
        },
        record,
    );
    let kinds: Vec<Kind> = t.found().into_iter().map(|(kind, _)| kind).collect();
    assert!(
        kinds.contains(&Kind::LeftBehind) && kinds.contains(&Kind::List),
        "{kinds:?}"
    );
}
