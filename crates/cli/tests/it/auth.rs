//! Identities on real servers: what each may do, revocation, rotation, servers that were away, and secrets.
#![allow(clippy::unwrap_used)]

use crate::cluster::Cluster;
use std::fs::Permissions;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A cluster of mode `key` with a file of alice's.
struct Keyed(Cluster);

impl Keyed {
    fn start() -> Keyed {
        let cluster = Cluster::start_with(3, "sync", &["--auth", "key"]);
        cluster.run(&["mkdir", "/people"]);
        cluster.run(&["mkdir", "/people/alice"]);
        std::fs::write(cluster.path("text"), "hello\n").unwrap();
        let text = cluster.path("text").display().to_string();
        cluster.run(&["put", &text, "/people/alice/file"]);
        Keyed(cluster)
    }
}

impl Deref for Keyed {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

#[test]
fn an_identity_does_what_its_claims_allow() {
    let c = Keyed::start();
    let alice = c.add("alice", &["--any-uid", "--subtree", "/people/alice"]);
    assert_eq!(c.with(&alice, &["ls", "/"]), Ok("file\n".into()));
    assert_eq!(c.with(&alice, &["cat", "/file"]), Ok("hello\n".into()));
    c.with(&alice, &["mkdir", "/made"]).unwrap();
    assert!(
        c.with(&alice, &["ls", "/people"])
            .unwrap_err()
            .contains("no such file")
    );
    assert_eq!(c.with(&alice, &["ls", "/.."]), Ok("file\nmade\n".into()));
    // It follows its directory, wherever that goes.
    c.run(&["mv", "/people/alice", "/people/alicia"]);
    assert_eq!(c.with(&alice, &["ls", "/"]), Ok("file\nmade\n".into()));
    c.run(&["rm", "-r", "/people/alicia"]);
    assert!(c.with(&alice, &["ls", "/"]).is_err());

    let reader = c.add("reader", &["--any-uid", "--read-only"]);
    c.with(&reader, &["ls", "/people"]).unwrap();
    assert!(
        c.with(&reader, &["mkdir", "/x"])
            .unwrap_err()
            .contains("read-only")
    );

    // These tests run as somebody; that somebody is not user 4711.
    let other = c.add("other", &["--uid", "4711", "--gid", "4711"]);
    assert!(
        c.with(&other, &["ls", "/"])
            .unwrap_err()
            .contains("may not act for user")
    );
    let complaint = c.fail(&["auth", "add", "other", "--any-uid", "--out", &c.file("other2")]);
    assert!(
        complaint.contains("there is an identity of that name"),
        "{complaint}"
    );
    let listed = c.run(&["auth", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["identities"].as_array().unwrap().len(), 4, "{listed}");
}

/// The user that an identity is for, and how that user runs a command: with files of its own, where tests run
/// as root.
fn as_its_user(c: &Keyed, key: &str, uid: u32) -> impl Fn(&[&str]) -> Result<String, String> {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let open = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    open(place.path(), 0o755);
    std::fs::copy(env!("CARGO_BIN_EXE_pando"), at("pando")).unwrap();
    std::fs::create_dir_all(at("cluster/blocks")).unwrap();
    std::fs::copy(c.path("cluster.json"), at("cluster/cluster.json")).unwrap();
    std::fs::copy(key, at("key")).unwrap();
    open(&at("cluster/cluster.json"), 0o644);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(at("key"), Some(uid), Some(uid)).unwrap();
    }
    move |arguments: &[&str]| {
        let mut command = Command::new(place.path().join("pando"));
        command.arg("--dir").arg(place.path().join("cluster"));
        command.arg("--key").arg(place.path().join("key"));
        command.args(["--wait", "10"]).args(arguments).current_dir("/");
        if rustix::process::geteuid().is_root() {
            command.uid(uid).gid(uid);
        }
        let out = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match out.status.success() {
            true => Ok(text(out.stdout)),
            false => Err(text(out.stderr)),
        }
    }
}

/// Where servers ask for no proof a key would restrict nothing.
#[test]
fn a_key_is_refused_where_nothing_is_proved() {
    let open = Cluster::start(1, "sync");
    let keyed = Keyed::start();
    let other = keyed.add("other", &["--any-uid", "--subtree", "/people/alice"]);
    let refused = open.with(&other, &["ls", "/"]).unwrap_err();
    assert!(refused.contains("is for filesystem"), "{refused}");
    let own = open.path("own.key");
    let fs = open.run(&["status", "--json"]);
    let fs: serde_json::Value = serde_json::from_str(&fs).unwrap();
    let text = std::fs::read_to_string(&other).unwrap();
    let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
    file["fs"] = fs["fs"].clone();
    std::fs::write(&own, file.to_string()).unwrap();
    let refused = open.with(&own.display().to_string(), &["ls", "/"]).unwrap_err();
    assert!(refused.contains("mode none"), "{refused}");
    assert_eq!(open.run(&["ls", "/"]), "");
}

#[test]
fn an_identity_for_one_user_is_all_that_user_needs() {
    let c = Keyed::start();
    let root = rustix::process::geteuid().is_root();
    let uid = if root {
        4711
    } else {
        rustix::process::geteuid().as_raw()
    };
    let mut claims = vec!["--uid".to_owned(), uid.to_string(), "--gid".to_owned()];
    claims.push(
        if root {
            uid
        } else {
            rustix::process::getegid().as_raw()
        }
        .to_string(),
    );
    if !root {
        let groups = rustix::process::getgroups().unwrap();
        claims.extend(
            groups
                .iter()
                .flat_map(|g| ["--gid".to_owned(), g.as_raw().to_string()]),
        );
    }
    let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
    c.run(&["mkdir", "/theirs"]);
    if root {
        c.run(&["chown", "4711:4711", "/theirs"]);
    }
    let key = c.add("theirs", &claims);
    let run = as_its_user(&c, &key, uid);
    let fetched = tempfile::tempdir().unwrap();
    std::fs::set_permissions(fetched.path(), Permissions::from_mode(0o777)).unwrap();
    let copy = fetched.path().join("copy").to_string_lossy().into_owned();
    assert_eq!(run(&["ls", "/"]), Ok("people\ntheirs\n".into()));
    run(&["mkdir", "/theirs/sub"]).unwrap();
    run(&["put", "/proc/self/comm", "/theirs/sub/f"]).unwrap();
    assert_eq!(run(&["cat", "/theirs/sub/f"]), Ok("pando\n".into()));
    // Over what is there, and a part of it.
    run(&["put", "/proc/self/comm", "/theirs/sub/f"]).unwrap();
    run(&["truncate", "-s", "3", "/theirs/sub/f"]).unwrap();
    assert_eq!(run(&["cat", "/theirs/sub/f"]), Ok("pan".into()));
    run(&["mv", "/theirs/sub", "/theirs/other"]).unwrap();
    run(&["chmod", "700", "/theirs/other"]).unwrap();
    assert_eq!(run(&["ls", "/theirs/other"]), Ok("f\n".into()));
    run(&["get", "-r", "/theirs", &copy]).unwrap();
    assert_eq!(
        std::fs::read(fetched.path().join("copy/other/f")).unwrap(),
        b"pan"
    );
    run(&["tree", "/"]).unwrap();
    run(&["du", "-s", "/theirs"]).unwrap();
    run(&["rm", "-r", "/theirs/other"]).unwrap();
    assert_eq!(run(&["ls", "/theirs"]), Ok(String::new()));
    if root {
        assert!(run(&["mkdir", "/mine"]).unwrap_err().contains("ermission denied"));
    }
}

#[test]
fn revoked_and_replaced_keys_are_worth_nothing() {
    let c = Keyed::start();
    let laptop = c.add("laptop", &["--any-uid"]);
    let (old, older) = (c.file("old"), c.file("older"));
    std::fs::copy(&laptop, &older).unwrap();
    c.run(&["auth", "rotate", "laptop", "--out", &laptop]);
    std::fs::copy(&laptop, &old).unwrap();
    // During the grace period both are good.
    c.with(&older, &["ls", "/"]).unwrap();
    c.with(&laptop, &["ls", "/"]).unwrap();
    c.run(&["auth", "rotate", "laptop", "--grace", "0s", "--out", &laptop]);
    let begin = Instant::now();
    for key in [&old, &older] {
        let complaint = c.with(key, &["ls", "/"]).unwrap_err();
        assert!(complaint.contains("pando auth"), "{complaint}");
    }
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "a refusal is no reason to wait"
    );
    c.with(&laptop, &["ls", "/"]).unwrap();
    c.run(&["auth", "revoke", "laptop"]);
    assert!(c.with(&laptop, &["ls", "/"]).is_err());
    // A server that was away meanwhile knows it as soon as it is back, and the number is not given out again.
    let away = c.add("away", &["--any-uid"]);
    c.kill(1);
    let said = c.run(&["auth", "revoke", "away"]);
    assert!(said.contains("Server 1 has not confirmed"), "{said}");
    c.up();
    assert!(c.with(&away, &["ls", "/"]).is_err());
    let again = c.add("away", &["--any-uid"]);
    c.with(&again, &["ls", "/"]).unwrap();
    assert!(c.with(&laptop, &["ls", "/"]).is_err());
}

#[test]
fn identities_outlive_all_servers() {
    let c = Keyed::start();
    let alice = c.add("alice", &["--any-uid", "--subtree", "/people/alice"]);
    let gone = c.add("gone", &["--any-uid"]);
    c.run(&["auth", "revoke", "gone"]);
    c.kill_all();
    c.up();
    assert_eq!(c.with(&alice, &["cat", "/file"]), Ok("hello\n".into()));
    assert!(c.with(&gone, &["ls", "/"]).is_err());
}

/// `docs/security.md`, "The secret", step by step: at no time is a client refused.
#[test]
fn the_secret_changes_without_an_outage() {
    let c = Keyed::start();
    let secret = c.path("secret");
    let old = std::fs::read_to_string(&secret).unwrap().trim().to_owned();
    let new = "5a".repeat(32);
    let steps = [
        format!("{old}\n{new}\n"),
        format!("{new}\n{old}\n"),
        format!("{new}\n"),
    ];
    for (step, lines) in steps.iter().enumerate() {
        std::fs::write(&secret, lines).unwrap();
        for server in 0..3 {
            c.kill(server);
            c.up();
            c.run(&["mkdir", &format!("/people/alice/{step}-{server}")]);
            c.run(&[
                "mv",
                &format!("/people/alice/{step}-{server}"),
                &format!("/people/{step}-{server}"),
            ]);
            c.run(&["ls", "/people/alice"]);
        }
    }
    let listed = c.run(&["ls", "/people"]);
    assert_eq!(listed.lines().count(), 10, "{listed}");
}

#[test]
fn what_makes_no_sense_is_said() {
    let c = Cluster::start(1, "sync");
    let out = c.path("k").display().to_string();
    for (arguments, what) in [
        (vec!["auth", "add", "x", "--out", &out], "--any-uid"),
        (vec!["auth", "add", "x", "--uid", "5", "--out", &out], "--gid"),
        (
            vec!["auth", "add", "x", "--any-uid", "--out", &out],
            "--auth none",
        ),
        (
            vec!["auth", "rotate", "x", "--grace", "1", "--out", &out],
            "as in 90s",
        ),
        (
            vec!["format", "--server", "192.0.2.1:7000"],
            "holds a filesystem already",
        ),
    ] {
        let complaint = c.fail(&arguments);
        assert!(complaint.contains(what), "{arguments:?}: {complaint}");
    }
    let elsewhere = c.path("elsewhere").display().to_string();
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_pando"))
        .args(["--dir", &elsewhere, "format", "--server", "192.0.2.1:7000"])
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success());
    assert!(complaint.contains("--auth key"), "{complaint}");
}
