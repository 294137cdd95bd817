//! Every seed, every input of the committed corpora, and everything that was ever found: under stable Rust.

use pando_cluster::ClusterMap;
use pando_format::{Codec, DecodeError, Mutation};
use pando_fuzz::{TARGETS, Target, pack, seeds};
use pando_wire::Message;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, thread};

/// A stack as small as the smallest that a decoder runs on.
const STACK: usize = 2 << 20;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn run(target: &'static Target, inputs: Vec<(String, Vec<u8>)>) {
    for (what, input) in inputs {
        let on_a_thread = thread::Builder::new()
            .name(format!("{} {what}", target.name))
            .stack_size(STACK)
            .spawn(move || (target.run)(&input));
        let done = on_a_thread.expect("a thread").join();
        assert!(done.is_ok(), "target {}: {what}", target.name);
    }
}

#[test]
fn seeds_hold() {
    for target in TARGETS {
        let seeds = seeds::of(target.name);
        assert!(!seeds.is_empty(), "target {} has no seeds", target.name);
        let longest = seeds.iter().map(Vec::len).max().unwrap_or(0);
        assert!(longest <= target.max_len, "{}: {longest}", target.name);
        run(
            target,
            seeds
                .into_iter()
                .enumerate()
                .map(|(n, s)| (format!("seed {n}"), s))
                .collect(),
        );
    }
}

#[test]
fn corpora_hold() {
    for target in TARGETS {
        let path = folder("corpus").join(format!("{}.pack", target.name));
        let packed = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let inputs = pack::unpack(&packed).expect("a sound pack");
        assert!(
            inputs.len() > 10,
            "{} has {} inputs",
            path.display(),
            inputs.len()
        );
        run(
            target,
            inputs
                .into_iter()
                .enumerate()
                .map(|(n, s)| (format!("input {n}"), s))
                .collect(),
        );
    }
}

#[test]
fn nothing_that_was_found_comes_back() {
    let names: BTreeSet<&str> = TARGETS.iter().map(|t| t.name).collect();
    let mut ran = 0;
    for entry in fs::read_dir(folder("regressions")).expect("the folder of regressions") {
        let path = entry.expect("an entry").path();
        let file = path
            .file_name()
            .and_then(|n| n.to_str())
            .expect("a plain name")
            .to_owned();
        // `target.what-it-was`
        let target = file.split('.').next().unwrap_or_default();
        assert!(names.contains(target), "{file} names no target");
        let target = pando_fuzz::named(target).expect("it is one of them");
        run(target, vec![(file, fs::read(&path).expect("readable"))]);
        ran += 1;
    }
    assert!(ran > 0, "no regressions");
}

/// Those of them that a changed layout would make pointless are still refused for what they were found for.
#[test]
fn what_was_found_is_still_understood() {
    let read = |name: &str| fs::read(folder("regressions").join(name)).expect("readable");
    for name in [
        "blocks-of-no-bytes",
        "hashes-of-200-bits",
        "rename-server-unknown",
        "server-named-twice",
    ] {
        let bytes = read(&format!("map.{name}"));
        assert!(ClusterMap::from_bytes(&bytes).is_ok(), "{name}");
        assert!(ClusterMap::decode(&bytes).is_err(), "{name}");
    }
    let nested = DecodeError::Invalid("prepared part inside a prepared part");
    let name = "prepared-inside-prepared";
    let message = Message::from_bytes(&read(&format!("message.{name}")));
    assert_eq!(message.err(), Some(nested));
    let mutation = Mutation::from_bytes(&read(&format!("mutation.{name}")));
    assert_eq!(mutation.err(), Some(nested));
}
