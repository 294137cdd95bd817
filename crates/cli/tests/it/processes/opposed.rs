//! Opposed renames by real processes: eight clients move subtrees into each other on four servers. The long
//! version is `pando hammer opposed --rounds 1000000` (docs/testing.md).

use crate::cluster::Cluster;

/// What a run says of itself.
fn opposed(cluster: &Cluster, name: &str, rounds: &str) -> serde_json::Value {
    let run = ["--json", "hammer", "opposed", "--name", name, "--rounds", rounds];
    serde_json::from_str(&cluster.run(&run)).expect("a report")
}

#[test]
fn process_opposed_renames_lose_nothing() {
    let cluster = Cluster::start(4, "async");
    let report = opposed(&cluster, "calm", "3000");
    println!("{report}");
    for outcome in ["moved", "loops_refused"] {
        assert!(report[outcome].as_u64() > Some(100), "{outcome}");
    }
    let twice = cluster.fail(&["hammer", "opposed", "--name", "calm"]);
    assert!(twice.contains("--name"), "{twice}");
    cluster.run(&["fsck"]);
}

/// Whatever a path says, and through however many links: what counts is where it leads.
#[test]
fn process_a_directory_is_not_moved_into_itself_through_ten_symlinks() {
    let cluster = Cluster::start(4, "async");
    cluster.run(&["mkdir", "-p", "/d/x/y", "/other"]);
    cluster.run(&["ln", "-s", "/d/x", "/l0"]);
    for n in 1..10 {
        cluster.run(&["ln", "-s", &format!("l{}", n - 1), &format!("/l{n}")]);
    }
    for into in ["/l9/y/d", "/l9/d", "/d/d", "/d/x/../x/y/./d"] {
        let why = cluster.fail(&["mv", "-T", "/d", into]);
        assert!(why.contains("cannot be moved below itself"), "{into}: {why}");
    }
    let why = cluster.fail(&["mv", "--exchange", "/d", "/l9/y"]);
    assert!(why.contains("cannot be moved below itself"), "{why}");
    let why = cluster.fail(&["mv", "-T", "/l9/y", "/d"]);
    assert!(why.contains("is not replaced"), "{why}");
    cluster.run(&["mv", "-T", "/l9/y", "/other/y"]);
    cluster.run(&["mv", "-T", "/d", "/other/y/d"]);
    assert_eq!(cluster.run(&["ls", "/other/y/d"]).trim(), "x");
    cluster.run(&["fsck"]);
}

#[test]
fn process_opposed_renames_lose_nothing_when_servers_are_killed() {
    let cluster = Cluster::start(4, "sync");
    std::thread::scope(|scope| {
        let run = scope.spawn(|| opposed(&cluster, "kills", "1500"));
        for n in 0.. {
            std::thread::sleep(std::time::Duration::from_millis(300));
            if run.is_finished() || n == 12 {
                break;
            }
            cluster.kill(n % 4);
            cluster.up();
        }
        println!("{}", run.join().expect("no panic"));
    });
    cluster.run(&["fsck"]);
}
