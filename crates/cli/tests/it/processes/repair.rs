//! `pando fsck --repair` on real servers, whose stores were damaged behind their backs, while others work.

use crate::cluster::Cluster;
use crate::hammering::{Hammer, verify};
use pando_format::{Batch, Entry, Key, KeyRange, Mutation, PartNote, Record, Scan, Target};
use pando_store::{Level, Read, Store};
use pando_store_rocks::{RocksOptions, RocksStore};
use pando_types::{BootEpoch, DirId, Part, ServerId, TxId};
use std::collections::BTreeMap;

const SERVERS: u16 = 3;

fn ready<T>(read: Read<T>) -> T {
    let found = match read {
        Read::Ready(found) => found,
        Read::Pending(coming) => pando_data::wait(coming),
    };
    found.expect("sound")
}

/// All stores of a cluster that does not run.
struct Stores(Vec<RocksStore>);

impl Stores {
    fn open(cluster: &Cluster) -> Stores {
        let open = |n| {
            let path = cluster.path(&format!("server-{n}"));
            RocksStore::open(&path, RocksOptions::default()).expect("opens").0
        };
        Stores((0..SERVERS).map(open).collect())
    }

    fn all(&self) -> BTreeMap<Key, (usize, Record)> {
        let everything = Scan::Keys(KeyRange {
            start: vec![0],
            end: vec![0xFF, 0xFF],
        });
        let stores = self.0.iter().enumerate();
        let all = stores.flat_map(|(n, store)| {
            let found = ready(store.list(&everything, usize::MAX));
            found.into_iter().map(move |(key, record)| (key, (n, record)))
        });
        all.collect()
    }

    /// The entry of this name, wherever it is.
    fn entry(&self, wanted: &str) -> (Key, Entry) {
        let named =
            |key: &Key| matches!(key, Key::Entry { name, .. } if name.as_bytes() == wanted.as_bytes());
        let found = self.all().into_iter().find(|(key, _)| named(key));
        match found {
            Some((key, (_, Record::Entry(entry)))) => (key, entry),
            other => panic!("{wanted}: {other:?}"),
        }
    }

    fn dir(&self, wanted: &str) -> DirId {
        match self.entry(wanted).1.target {
            Target::Dir(access) => access.id,
            other => panic!("{wanted}: {other:?}"),
        }
    }

    /// Something else stands there, or nothing.
    fn set(&self, key: &Key, record: Option<Record>) {
        let (n, _) = self.all().remove(key).expect("it is there");
        self.change(n, key, record);
    }

    fn change(&self, n: usize, key: &Key, record: Option<Record>) {
        let mutation = match record {
            Some(record) => Mutation::Update {
                key: key.clone(),
                record,
            },
            None => Mutation::Delete { key: key.clone() },
        };
        let store = &self.0[n];
        let lsn = store.apply(&Batch::of(vec![mutation])).expect("written");
        pando_data::wait(store.wait(lsn, Level::Synced)).expect("synced");
    }

    fn get(&self, key: &Key) -> Record {
        self.all().remove(key).expect("it is there").1
    }
}

#[test]
fn process_what_is_damaged_is_repaired_while_others_work() {
    let cluster = Cluster::start(usize::from(SERVERS), "async");
    cluster.run(&[
        "mkdir",
        "-p",
        "/tree/lost-head/below",
        "/tree/lost-name/kept",
        "/tree/counted/in",
    ]);
    let text = cluster.path("text");
    std::fs::write(&text, "hello").expect("works");
    let text = text.display().to_string();
    for name in [
        "counted/file",
        "lost-head/file",
        "lost-name/kept/file",
        "linked",
        "inline",
    ] {
        cluster.run(&["put", &text, &format!("/tree/{name}")]);
    }
    cluster.run(&["ln", "/tree/linked", "/tree/counted/also"]);
    cluster.run(&["fsck"]);
    cluster.run(&["down"]);
    {
        let stores = Stores::open(&cluster);
        stores.set(&Key::Head(stores.dir("lost-head").into()), None);
        stores.set(&stores.entry("lost-name").0, None);
        let touch = Key::Touch(stores.dir("counted").into());
        let Record::Touch(mut counts) = stores.get(&touch) else {
            panic!("counts")
        };
        counts.stat.entries = 70;
        stores.set(&touch, Some(Record::Touch(counts)));
        stores.set(&stores.entry("also").0, None);
        let (inline, entry) = stores.entry("inline");
        let Target::Inode(mut inode) = entry.target.clone() else {
            panic!("a file")
        };
        inode.nlink = 3;
        let target = Target::Inode(inode);
        stores.set(&inline, Some(Record::Entry(Entry { target, ..entry })));
    }
    cluster.up();
    // What changed in the last seconds before a look may be changing.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let found = cluster.pando(&["fsck"]).output().expect("runs");
    assert_eq!(found.status.code(), Some(1));
    // Nothing is changed by asking what would be.
    let dry = cluster
        .pando(&["fsck", "--repair", "--dry-run"])
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&dry.stdout);
    assert_eq!(dry.status.code(), Some(1), "{said}");
    assert!(
        said.contains("nothing was changed") && said.contains("would be"),
        "{said}"
    );
    let again = cluster.pando(&["fsck"]).output().expect("runs");
    let (mut a, mut b) = (found.stdout, again.stdout);
    // But for the last lines, which count reads.
    for text in [&mut a, &mut b] {
        let cut = text
            .windows(12)
            .position(|w| w == b"directories,")
            .unwrap_or(text.len());
        text.truncate(cut);
    }
    assert_eq!(String::from_utf8_lossy(&a), String::from_utf8_lossy(&b));
    assert!(!cluster.run(&["ls", "/"]).contains("lost+found"));

    let hammer = Hammer::start(&cluster, "busy");
    hammer.wait_for_load(200);
    let repaired = cluster.run(&["fsck", "--repair"]);
    assert!(repaired.contains("Clean."), "{repaired}");
    hammer.wait_for_load(hammer.acknowledged() + 200);
    let log = hammer.finish();
    cluster.run(&["fsck"]);
    verify(&cluster, &log);

    assert_eq!(cluster.run(&["cat", "/tree/lost-head/file"]), "hello");
    assert!(cluster.run(&["ls", "/tree/lost-head"]).contains("below"));
    let lost = cluster.run(&["ls", "/lost+found"]);
    let names: Vec<&str> = lost.lines().collect();
    let [name] = &names[..] else { panic!("{names:?}") };
    assert_eq!(
        cluster.run(&["cat", &format!("/lost+found/{name}/kept/file")]),
        "hello"
    );
    let stat = cluster.run(&["stat", "/lost+found", "--json"]);
    assert!(stat.contains("700"), "{stat}");
    // All of it can be used like anything else.
    cluster.run(&["mv", &format!("/lost+found/{name}"), "/tree/lost-name"]);
    cluster.run(&["rm", "-r", "/tree"]);
    cluster.run(&["rmdir", "/lost+found"]);
    cluster.run(&["fsck"]);
    // Of what is sound nothing is repaired.
    assert!(cluster.run(&["fsck", "--repair"]).contains("0 repairs made"));
}

#[test]
fn process_parts_of_a_directory_are_repaired() {
    let options = ["--profile", "indexfs", "--split-entries", "50"];
    let cluster = Cluster::start_with(usize::from(SERVERS), "async", &options);
    cluster.run(&["mkdir", "/d"]);
    let paths: Vec<String> = (0..600).map(|n| format!("/d/n{n}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    cluster.run(&[&["touch"], &paths[..]].concat());
    cluster.run(&["fsck"]);
    cluster.run(&["down"]);
    {
        let stores = Stores::open(&cluster);
        let dir = stores.dir("d");
        let all = stores.all();
        let heads = || {
            all.iter()
                .filter(|(key, _)| matches!(key, Key::Head(part) if part.dir == dir))
        };
        let parts: Vec<(Part, usize)> = heads()
            .filter_map(|(key, (n, _))| match key {
                Key::Head(part) => Some((*part, *n)),
                _ => None,
            })
            .collect();
        assert!(parts.len() > 2, "{parts:?}");
        let ((whole, home), (near, beside), (far, _)) = (parts[0], parts[1], parts[parts.len() - 1]);
        stores.set(&Key::Parts(dir), None);
        stores.set(&Key::Head(far), None);
        let touch = Key::Touch(near);
        let Record::Touch(mut counts) = stores.get(&touch) else {
            panic!("counts")
        };
        counts.stat.entries += 5;
        stores.set(&touch, Some(Record::Touch(counts)));
        // What was given away stands there again, and nothing says why; of one nothing else is left.
        let given = all.iter().filter_map(|(key, (_, record))| match key {
            Key::Entry { part, hash, name } if *part == near => {
                let (part, hash, name) = (whole, *hash, name.clone());
                Some((key, Key::Entry { part, hash, name }, record))
            }
            _ => None,
        });
        for (n, (key, left, record)) in given.take(20).enumerate() {
            stores.change(home, &left, Some(record.clone()));
            if n == 0 {
                stores.set(key, None);
            }
        }
        let copy = TxId {
            coordinator: ServerId(0),
            boot: BootEpoch(1),
            number: 1 << 40,
        };
        let note = Record::PartNote(PartNote::Coming(copy));
        stores.change(beside, &Key::PartNote(near), Some(note));
    }
    cluster.up();
    let found = cluster.pando(&["fsck"]).output().expect("runs");
    assert_eq!(found.status.code(), Some(1));
    let said = String::from_utf8_lossy(&found.stdout);
    for kind in [
        "wrong-part-list",
        "wrong-part:",
        "left-behind",
        "wrong-counts",
        "wrong-part-note",
    ] {
        assert!(said.contains(kind), "{kind}: {said}");
    }
    let repaired = cluster.run(&["fsck", "--repair"]);
    assert!(repaired.contains("Clean."), "{repaired}");
    assert_eq!(cluster.run(&["ls", "/d"]).lines().count(), 599);
    assert_eq!(cluster.run(&["ls", "/lost+found"]).lines().count(), 1);
    cluster.run(&["touch", "/d/more"]);
    cluster.run(&["rm", "-r", "/d"]);
    cluster.run(&["fsck"]);
}
