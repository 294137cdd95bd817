//! One flipped byte in a table of a store: what is lost is named, everything else stays, and the store is
//! sound again.

use crate::cluster::Cluster;
use pando_format::{Key, KeyRange, Left, Scan};
use pando_store::Store;
use pando_store_rocks::{RocksOptions, RocksStore};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;

const DIRS: [&str; 4] = ["one", "two", "three", "four"];
const FILES: usize = 60;

fn text(dir: &str, n: usize) -> String {
    format!("what is in file {n} of {dir}")
}

fn populate(cluster: &Cluster) -> BTreeSet<String> {
    let from = cluster.path("from");
    let mut names = BTreeSet::new();
    for dir in DIRS {
        std::fs::create_dir_all(from.join(dir).join("empty")).expect("made");
        names.insert(format!("/tree/{dir}/empty"));
        for n in 0..FILES {
            std::fs::write(from.join(dir).join(format!("file-{n}")), text(dir, n)).expect("written");
            names.insert(format!("/tree/{dir}/file-{n}"));
        }
    }
    cluster.run(&["put", "-r", &from.display().to_string(), "/tree"]);
    names
}

/// The largest table of records of a server. In the journal's there are rows of another kind.
fn largest(store: &Path) -> PathBuf {
    let all = std::fs::read_dir(store.join("db")).expect("listed");
    let all = all.map(|e| e.expect("entry").path());
    let tables = all.filter(|p| p.extension().is_some_and(|e| e == "sst"));
    let of_records = tables.filter(|p| {
        let bytes = std::fs::read(p).expect("read");
        bytes.windows(5).any(|w| w == b"file-")
    });
    of_records
        .max_by_key(|p| std::fs::metadata(p).map_or(0, |m| m.len()))
        .expect("a table with files")
}

/// Flips a byte from a share of the table on, so that what is lost is of files alone and has names: what is
/// left of directories, and of blocks that cannot be unpacked, is tested with the store.
fn flip(store: &Path, share: f64) {
    let table = largest(store);
    let sound = std::fs::read(&table).expect("read");
    let keys = keys(store);
    let first = (sound.len() as f64 * share) as usize;
    for at in (first..sound.len()).step_by(7) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&table, bytes).expect("written");
        if costs_files(store, &keys) {
            eprintln!("flipped byte {at} of {} of {}", sound.len(), table.display());
            return;
        }
    }
    panic!("no byte of {} from {share} on will do", table.display());
}

fn all() -> Scan {
    Scan::Keys(KeyRange {
        start: vec![0],
        end: vec![0xFF; 3],
    })
}

fn opened(store: &Path) -> RocksStore {
    RocksStore::open(store, RocksOptions::default()).expect("opens").0
}

/// Keys of a sound store.
fn keys(store: &Path) -> BTreeSet<Key> {
    let store = opened(store);
    let listed = pando_data::wait(Box::pin(store.list(&all(), usize::MAX).wait())).expect("sound");
    listed.into_iter().map(|(key, _)| key).collect()
}

/// Whether what is lost is of files, and their keys are not damaged.
fn costs_files(store: &Path, keys: &BTreeSet<Key>) -> bool {
    let store = opened(store);
    let remains = pando_data::wait(Box::pin(store.remains(&all()).wait())).expect("told");
    let mut lost = remains
        .found
        .iter()
        .filter(|r| r.left == Left::Nothing)
        .peekable();
    let is_file = |key: &Key| match key {
        Key::Entry { name, .. } | Key::Attachment { name, .. } => name.as_bytes().starts_with(b"file-"),
        _ => false,
    };
    let named = |key: &Key| is_file(key) && keys.contains(key);
    !remains.more && lost.peek().is_some() && lost.all(|r| named(&r.key))
}

fn said(out: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    format!("{out}{err}")
}

fn code(out: &Output) -> Option<i32> {
    out.status.code()
}

/// Flips a byte of the largest table of the first server that has a large one.
fn damage(cluster: &Cluster, share: f64, compact: bool) {
    cluster.run(&["down"]);
    cluster.up();
    cluster.run(&["down"]);
    if compact {
        cluster.run(&["server", "--id", "0", "--compact"]);
    }
    flip(&cluster.path("server-0"), share);
}

fn paths(cluster: &Cluster) -> BTreeSet<String> {
    let out = cluster.pando(&["find", "/tree"]).output().expect("runs");
    said(&out).lines().map(str::to_owned).collect()
}

#[test]
fn process_one_flipped_byte_costs_what_it_hit_and_no_more() {
    for (seed, share) in [0.07, 0.23].into_iter().enumerate() {
        let compact = seed % 2 == 1;
        eprintln!("seed {seed}: at {share}, compacted: {compact}");
        let cluster = Cluster::start(1, "async");
        let names = populate(&cluster);
        damage(&cluster, share, compact);
        let why = cluster.fail(&["server", "--id", "0", "--compact"]);
        assert!(
            why.contains(".sst") && why.contains("--salvage") && !why.contains("failed write"),
            "{why}"
        );
        cluster.up();
        let found = cluster.pando(&["fsck"]).output().expect("runs");
        let text = said(&found);
        assert!(
            code(&found) == Some(1) && text.contains(".sst") && text.contains("pando fsck --repair"),
            "{text}"
        );
        let backup = cluster.file("backup");
        let why = cluster.fail(&["backup", &backup]);
        assert!(why.contains(".sst") && why.contains("fsck --repair"), "{why}");
        let lacking = cluster.file("lacking");
        let out = cluster
            .pando(&["backup", "--skip-damaged", &lacking])
            .output()
            .expect("runs");
        let left_out = said(&out);
        assert!(
            code(&out) == Some(3) && left_out.contains("left out: corrupt-record"),
            "{left_out}"
        );
        cluster.run(&["restore", "--check", &lacking]);

        // A dump goes past the damage, and says so.
        let dump = cluster.file("dump");
        let out = cluster.pando(&["dump", "-o", &dump]).output().expect("runs");
        let dumped = said(&out);
        assert!(
            Path::new(&dump).is_file() && dumped.contains("dumped"),
            "{dumped}"
        );
        assert!(code(&out) == Some(0) || dumped.contains("/tree/"), "{dumped}");

        let repaired = cluster.pando(&["fsck", "--repair"]).output().expect("runs");
        let done = said(&repaired);
        eprintln!("{done}");
        assert_eq!(code(&repaired), Some(0), "{done}");
        assert!(done.contains("made anew") && done.contains("Clean."), "{done}");
        cluster.run(&["fsck"]);
        // What is gone was named, before and when it was repaired; all else is there and reads as it did.
        let there = paths(&cluster);
        let gone: Vec<&String> = names.iter().filter(|n| !there.contains(*n)).collect();
        let lost = |text: &str, name: &str| {
            let about = |line: &str| line.contains(&format!("{name} ")) || line.contains(&format!("{name}:"));
            text.lines().any(about)
        };
        let unnamed = text.contains("whose names are lost");
        for name in &gone {
            assert!(
                unnamed || lost(&text, name) && lost(&done, name),
                "{name}: {text}{done}"
            );
        }
        assert!(gone.len() < 80, "{gone:?}");
        for dir in DIRS {
            for n in (0..FILES).step_by(10) {
                let name = format!("/tree/{dir}/file-{n}");
                if gone.contains(&&name) || lost(&done, &name) || unnamed {
                    continue;
                }
                assert_eq!(cluster.run(&["cat", &name]), self::text(dir, n), "{name}");
            }
        }
        let whole = cluster.file("whole");
        cluster.run(&["backup", &whole]);
        cluster.run(&["rm", "-r", "/tree"]);
        cluster.run(&["fsck"]);
        cluster.run(&["down"]);
        cluster.run(&["server", "--id", "0", "--compact"]);
    }
}
