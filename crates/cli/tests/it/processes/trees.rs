//! Whole trees from the command line: found, summed up, removed, with names that need care among many.

use crate::cluster::Cluster;
use serde_json::Value;
use std::collections::BTreeSet;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// What `find` prints, sorted.
fn found(c: &Cluster, arguments: &[&str]) -> Vec<String> {
    let text = c.run(&[&["find"], arguments].concat());
    let lines: BTreeSet<String> = text.lines().map(str::to_string).collect();
    assert_eq!(lines.len(), text.lines().count(), "each once");
    lines.into_iter().collect()
}

#[test]
fn process_trees_are_found_summed_up_and_removed() {
    let c = Cluster::start(3, "async");
    // 21 directories, in each some pages and requests full of files.
    let mdtest = ["bench", "mdtest", "-C", "-F", "-b", "20", "-z", "1", "-I", "1500"];
    c.run(&[&mdtest[..], &["--clients", "1", "--depth", "32", "-d", "/t"]].concat());
    assert_eq!(found(&c, &["/t", "-type", "d", "-mindepth", "1"]).len(), 20);
    c.run(&["mkdir", "/t/sub", "/t/sub/empty"]);
    c.run(&["put", &c.file("cluster.json"), "/t/sub/large.json"]);
    c.run(&["touch", "/t/sub/new", "/t/sub/.hidden", "/kept"]);
    c.run(&["touch", "-d", "@1000000000", "/t/sub/old"]);
    c.run(&["ln", "-s", "/nowhere", "/t/sub/symlink"]);
    c.run(&["ln", "/kept", "/t/sub/hard"]);
    c.run(&["ln", "/t/sub/new", "/t/sub/again"]);

    let sub = ["/t/sub/large.json", "/t/sub/new", "/t/sub/old"];
    assert_eq!(found(&c, &["/t/sub", "-name", "[lno]*", "-type", "f"]), sub);
    assert_eq!(
        found(&c, &["t/sub", "--type", "l,d"]),
        ["/t/sub", "/t/sub/empty", "/t/sub/symlink"]
    );
    assert_eq!(found(&c, &["/t/sub", "-name", ".*"]), ["/t/sub/.hidden"]);
    assert_eq!(found(&c, &["/t", "-mtime", "+5000"]), ["/t/sub/old"]);
    assert_eq!(
        found(&c, &["/t/sub", "-mtime", "-1", "-size", "+1c", "-type", "f"]),
        ["/t/sub/large.json"]
    );
    assert_eq!(found(&c, &["/t/sub/new"]), ["/t/sub/new"]);
    assert_eq!(found(&c, &["/", "-maxdepth", "1"]), ["/", "/kept", "/t"]);
    assert_eq!(c.run(&["find", "/t/sub/empty", "-print0"]), "/t/sub/empty\0");
    assert_eq!(found(&c, &["/t", "-name", "file.mdtest*"]).len(), 21 * 1500);
    let all = json(&c.run(&["find", "/t/sub", "-name", "old", "--json"]));
    assert_eq!(
        (
            &all["found"][0]["path"],
            &all["found"][0]["mtime"],
            all["found"].as_array().map(Vec::len)
        ),
        (&"/t/sub/old".into(), &"1000000000.000000000".into(), Some(1)),
        "{all}"
    );
    assert!(c.fail(&["find", "/none"]).contains("no such file"));
    assert!(c.fail(&["find", "/", "-size", "1x"]).contains("a number"));

    let sum = json(&c.run(&["du", "-s", "/t", "--json"]))["sums"][0].clone();
    assert_eq!(
        (&sum["files"], &sum["directories"]),
        (&(21 * 1500 + 7).into(), &23.into()),
        "{sum}"
    );
    let sorted = c.run(&["ls", "/t"]);
    let mut unsorted: Vec<String> = c.run(&["ls", "-U", "/t"]).lines().map(str::to_string).collect();
    unsorted.sort();
    assert_eq!(unsorted, sorted.lines().collect::<Vec<_>>());
    assert_eq!(unsorted.len(), 1500 + 21);

    // Names of one file among the many, and a file that has another name outside.
    let removed = json(&c.run(&["rm", "-r", "/t", "--json"]));
    assert_eq!(removed["removed"], 21 * 1500 + 7 + 23, "{removed}");
    assert_eq!(c.run(&["ls", "/"]), "kept\n");
    assert_eq!(json(&c.run(&["stat", "/kept", "--json"]))["files"][0]["nlink"], 1);
    assert!(c.run(&["fsck"]).ends_with("Clean.\n"));
}
