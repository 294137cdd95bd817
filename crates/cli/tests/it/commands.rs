//! The commands as users type them, against three real servers.

use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A cluster in a folder of its own, gone at the end of the test whatever happened.
struct Cluster {
    folder: tempfile::TempDir,
}

struct Done {
    ok: bool,
    code: i32,
    out: Vec<u8>,
    text: String,
    err: String,
}

impl Cluster {
    fn start() -> Cluster {
        let cluster = Cluster {
            folder: tempfile::tempdir().expect("a folder"),
        };
        let up = cluster.run(&["up", "--servers", "3"]);
        assert!(up.ok, "up: {} {}", up.text, up.err);
        cluster
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    fn local(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.arg("--dir").arg(self.dir()).stdin(Stdio::null());
        command
    }

    fn raw(&self, args: &[&OsStr]) -> Done {
        done(self.command().args(args).output().expect("pando runs"))
    }

    fn run(&self, args: &[&str]) -> Done {
        let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        self.raw(&args)
    }

    /// Runs what must work, and returns its output.
    fn ok(&self, args: &[&str]) -> String {
        let done = self.run(args);
        assert!(done.ok, "{args:?}: {} {}", done.text, done.err);
        done.text
    }

    /// Runs what must fail with these words.
    fn bad(&self, args: &[&str], words: &str) {
        let done = self.run(args);
        assert!(
            !done.ok && done.err.contains(words),
            "{args:?}: {} {}",
            done.text,
            done.err
        );
    }

    fn json(&self, args: &[&str]) -> serde_json::Value {
        let done = self.run(args);
        serde_json::from_str(&done.text)
            .unwrap_or_else(|e| panic!("{args:?}: {e}: {} {}", done.text, done.err))
    }

    fn pid(&self, server: u16) -> String {
        let lock = self.dir().join(format!("run/server-{server}.lock"));
        std::fs::read_to_string(lock).expect("a lock").trim().to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.command().arg("down").output();
    }
}

fn done(output: Output) -> Done {
    Done {
        ok: output.status.success(),
        code: output.status.code().unwrap_or(-1),
        text: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        out: output.stdout,
    }
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i % 251) as u8 ^ (i >> 13) as u8).collect()
}

/// For the simulator 2 is a wrong result, so wrong usage must be something else, whoever finds it.
#[test]
fn wrong_usage_of_the_simulator_is_no_finding() {
    let code = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        let done = done(
            command
                .args(args)
                .stdin(Stdio::null())
                .output()
                .expect("pando runs"),
        );
        (done.code, done.err.is_empty())
    };
    assert_eq!(code(&["sim", "walk"]), (64, false));
    assert_eq!(code(&["sim", "--help"]), (0, true));
    assert_eq!(code(&["walk"]), (2, false));
}

#[test]
fn wrong_usage_is_told_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let wrong: [&[&OsStr]; 6] = [
        &[OsStr::new("--bogus"), OsStr::from_bytes(b"\xff")],
        &["--wait", "18446744073709551615", "join"].map(OsStr::new),
        &["bench", "null", "--seconds", "nan"].map(OsStr::new),
        &["bench", "resolve", "--seconds", "-1"].map(OsStr::new),
        &["bench", "echo", "--seconds", "inf"].map(OsStr::new),
        &["bench", "cost", "--seconds", "x"].map(OsStr::new),
    ];
    for arguments in wrong {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.arg("--dir").arg(folder.path().join("cluster"));
        let done = done(command.args(arguments).output().expect("pando runs"));
        assert_eq!(done.code, 2, "{arguments:?}: {} {}", done.text, done.err);
    }
    assert!(!folder.path().join("cluster").exists());
}

#[test]
fn directories_names_and_links() {
    let c = Cluster::start();
    c.ok(&["mkdir", "/a", "b"]);
    c.ok(&["mkdir", "-p", "-m", "750", "/p/q/r"]);
    c.ok(&["mkdir", "-p", "/p/q/r"]);
    c.bad(&["mkdir", "/a"], "file exists");
    c.bad(&["mkdir", "/x/y"], "no such file");
    assert_eq!(c.ok(&["ls", "/"]), "a\nb\np\n");
    assert!(c.ok(&["ls", "-l", "/p/q"]).starts_with("drwxr-x--- 2 "));
    c.ok(&["touch", "/a/f", "/a/.hidden"]);
    c.ok(&["touch", "-d", "@1000000000.123456789", "/a/f"]);
    assert_eq!(c.ok(&["ls", "a"]), "f\n");
    assert_eq!(c.ok(&["ls", "-a", "a"]), ".hidden\nf\n");
    let stat = c.json(&["--json", "stat", "/a/f"]);
    assert_eq!(stat["files"][0]["mtime"], "1000000000.123456789");
    c.ok(&["chmod", "4711", "/a/f"]);
    assert_eq!(c.json(&["--json", "stat", "/a/f"])["files"][0]["mode"], "4711");
    c.bad(&["chmod", "999", "/a/f"], "octal");

    c.ok(&["ln", "-s", "../a/f", "/b/link"]);
    let long = format!("/{}", "t".repeat(3000));
    c.ok(&["ln", "-s", &long, "/b/long"]);
    assert_eq!(c.json(&["--json", "stat", "/b/long"])["files"][0]["target"], long);
    assert!(c.ok(&["ls", "-l", "/b"]).contains("link -> ../a/f"));
    // Two names of one file, which every listing shows, until one is left.
    c.ok(&["ln", "/a/f", "/b/hard"]);
    c.bad(&["ln", "/a/f", "/b/hard"], "exists");
    c.bad(&["ln", "-f", "/a/f", "/b/hard"], "exists");
    c.bad(&["ln", "/a", "/b/dir"], "not permitted");
    c.bad(&["ln", "/a/none", "/b/none"], "no such");
    let names = c.json(&["--json", "stat", "/a/f", "/b/hard"]);
    for i in 0..2 {
        assert_eq!(names["files"][i]["nlink"], 2, "{names}");
        assert_eq!(names["files"][i]["ino"], names["files"][0]["ino"]);
    }
    assert!(c.ok(&["ls", "/b"]).contains("hard\n"));
    assert!(c.ok(&["ls", "-l", "/b"]).contains("hard\n"));
    assert!(c.ok(&["tree", "/b"]).contains("hard"));
    assert_eq!(c.ok(&["cat", "/b/hard"]), c.ok(&["cat", "/a/f"]));
    c.ok(&["rm", "/b/hard"]);
    assert_eq!(c.json(&["--json", "stat", "/a/f"])["files"][0]["nlink"], 1);

    c.ok(&["mv", "/a/f", "/b"]);
    c.ok(&["mv", "/b/f", "/a/g"]);
    c.bad(&["mv", "-n", "/a/g", "/a/.hidden"], "exists");
    c.bad(&["mv", "/p", "/p/q/p2"], "below itself");
    c.bad(&["mv", "/a", "/a"], "below itself");
    c.ok(&["mv", "--exchange", "/a", "/p"]);
    assert_eq!(c.ok(&["ls", "/a", "/p"]), "/a:\nq\n\n/p:\ng\n");

    let tree = c.ok(&["tree", "-L", "2", "/"]);
    assert!(
        tree.contains("├── a\n│   └── q\n") && tree.ends_with("4 directories, 3 files\n"),
        "{tree}"
    );
    c.bad(&["rmdir", "/a"], "not empty");
    c.bad(&["rm", "/a"], "use -r");
    c.bad(&["rm", "/nothing"], "no such file");
    c.ok(&["rm", "-f", "/nothing"]);
    c.bad(&["rm", "-r", "/"], "root");
    c.ok(&["rm", "-r", "/a", "/b"]);
    assert_eq!(c.ok(&["ls"]), "p\n");
    assert_eq!(c.ok(&["fsck"]).lines().last(), Some("Clean."));
}

#[test]
fn attributes_and_special_files() {
    let c = Cluster::start();
    c.ok(&["touch", "/f"]);
    c.ok(&["xattr", "set", "/f", "user.author", "me"]);
    c.bad(
        &["xattr", "set", "--create", "/f", "user.author", "you"],
        "file exists",
    );
    c.bad(
        &["xattr", "set", "--replace", "/f", "user.other", "x"],
        "no such attribute",
    );
    c.bad(&["xattr", "set", "/f", "author", "me"], "user.NAME");
    assert_eq!(c.ok(&["xattr", "get", "/f", "user.author"]), "me");
    c.ok(&["xattr", "set", "/", "user.root", "dir"]);
    c.ok(&["mv", "/f", "/g"]);
    let got = c.json(&["--json", "xattr", "get", "/g", "user.author"]);
    assert_eq!((&got["ok"], &got["value"]), (&true.into(), &"me".into()));
    let listed = c.json(&["--json", "xattr", "list", "/g"]);
    assert_eq!(listed["attributes"][0]["name"], "user.author");
    c.ok(&["ln", "-s", "/g", "/link"]);
    assert_eq!(c.ok(&["xattr", "list", "/link"]), "user.author\n");
    assert_eq!(c.ok(&["xattr", "list", "--no-dereference", "/link"]), "");
    c.ok(&["xattr", "rm", "/g", "user.author"]);
    c.bad(&["xattr", "get", "/g", "user.author"], "no such attribute");

    c.ok(&["mknod", "-m", "640", "/fifo", "p"]);
    c.bad(&["mknod", "/fifo", "s"], "file exists");
    c.bad(&["mknod", "/null", "c"], "major and a minor");
    c.bad(&["mknod", "/other", "p", "1", "3"], "only devices");
    assert!(c.ok(&["ls", "-l", "/"]).contains("prw-r----- 1 "));
    let stat = c.json(&["--json", "stat", "/fifo"]);
    assert_eq!(stat["files"][0]["kind"], "fifo");
    c.bad(&["cat", "/fifo"], "not supported");
    if rustix::process::geteuid().is_root() {
        c.ok(&["mknod", "-m", "600", "/null", "c", "1", "3"]);
        let stat = c.json(&["--json", "stat", "/null"]);
        assert_eq!(stat["files"][0]["device"], serde_json::json!([1, 3]));
    } else {
        c.bad(&["mknod", "/null", "c", "1", "3"], "not permitted");
    }
    c.ok(&["rm", "/fifo", "/g", "/link"]);
    assert_eq!(c.ok(&["fsck"]).lines().last(), Some("Clean."));
}

#[test]
fn access_control_lists() {
    let c = Cluster::start();
    c.ok(&["mkdir", "-m", "755", "/d"]);
    c.ok(&["touch", "/d/f"]);
    let list = "user::rw-,user:1000:r--,group::---,group:7:rw-,mask::rw-,other::---";
    c.ok(&["acl", "set", "/d/f", list]);
    let shown = |path: &str| {
        let lines = c.ok(&["acl", "get", path]);
        let lines = lines.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
        lines.collect::<Vec<_>>().join(",")
    };
    assert_eq!(shown("/d/f"), list);
    // The group's bits are the mask.
    c.ok(&["chmod", "640", "/d/f"]);
    assert_eq!(shown("/d/f"), list.replace("mask::rw-", "mask::r--"));
    let stat = c.json(&["--json", "stat", "/d/f"]);
    assert_eq!(stat["files"][0]["mode"], "0640", "{stat}");
    // Wherever it goes: another name, its home, another directory.
    c.ok(&["ln", "/d/f", "/second"]);
    c.ok(&["mv", "/d/f", "/third"]);
    assert_eq!(
        (shown("/second"), shown("/third")),
        (shown("/third"), list.replace("mask::rw-", "mask::r--"))
    );
    // Without a mask it is what it bounds.
    c.ok(&["acl", "set", "/d", "--default", "u::7,u:1000:6,g::1,o::0"]);
    c.ok(&["mkdir", "/d/sub"]);
    assert_eq!(
        shown("/d/sub"),
        "user::rwx,user:1000:rw-,group::--x,mask::rwx,other::---,default:user::rwx,default:user:1000:rw-,default:group::--x,\
         default:mask::rwx,default:other::---"
    );
    c.ok(&["mv", "/d/sub", "/sub"]);
    let object = &c.json(&["--json", "acl", "get", "/sub"])["lists"][0];
    assert_eq!(object["default"]["users"][0]["id"], 1000, "{object}");
    assert_eq!(object["extended"], true);
    c.ok(&["acl", "remove", "/sub"]);
    c.ok(&["acl", "remove", "--default", "/sub", "/d"]);
    assert_eq!(shown("/sub"), "user::rwx,group::rwx,other::---");

    c.bad(&["acl", "set", "/second", "u::7,g::5"], "other::");
    c.bad(&["acl", "set", "/second", "u::7,g::5,o::9"], "other::");
    let long: Vec<String> = (0..30).map(|n| format!("u:{n}:7")).collect();
    c.bad(
        &[
            "acl",
            "set",
            "/second",
            &format!("u::7,g::5,o::0,{}", long.join(",")),
        ],
        "at most 32",
    );
    c.bad(
        &["acl", "set", "/second", "--default", "u::7,g::5,o::0"],
        "only directories",
    );
    c.bad(&["acl", "get", "/nowhere"], "no such file");
    assert_eq!(c.ok(&["fsck"]).lines().last(), Some("Clean."));
}

#[test]
fn bad_names_and_paths() {
    let c = Cluster::start();
    let (most, more) = ("n".repeat(255), "n".repeat(256));
    c.ok(&["touch", &most]);
    c.bad(&["touch", &more], "255 bytes");
    c.bad(&["touch", &format!("/{most}/x")], "not a directory");
    c.bad(&["ls", &format!("/{}", "x/".repeat(2100))], "name too long");
    c.bad(&["cat", "/"], "is a directory");
    c.bad(&["ls", ""], "no such file");
    c.bad(&["put", "/no/such/file", "/"], "No such file");

    // Not UTF-8, and worse: an ordinary name.
    let odd = OsStr::from_bytes(b"/\xff\xfe \n\x1b[31m");
    for command in ["mkdir", "stat"] {
        let done = c.raw(&[OsStr::new(command), odd]);
        assert!(done.ok, "{}", done.err);
        assert!(!done.text.contains('\x1b'), "a name steers the terminal");
    }
    let listed = c.raw(&[OsStr::new("ls"), OsStr::new("/")]);
    let mut expected = most.clone().into_bytes();
    expected.extend_from_slice(b"\n\xff\xfe \n\x1b[31m\n");
    assert_eq!(listed.out, expected, "a pipe gets the bytes");
    let json = c.json(&["--json", "ls", "/"]);
    assert_eq!(json["entries"][1]["name_b64"], "//4gChtbMzFt");
    assert_eq!(json["entries"][0]["name_b64"], serde_json::Value::Null);
    let done = c.raw(&[OsStr::new("rmdir"), odd]);
    assert!(done.ok, "{}", done.err);
    // Errors are JSON too, and the rest is done.
    let json = c.json(&["--json", "mkdir", "/new", "/new", "/other"]);
    assert_eq!(json["ok"], false);
    assert_eq!(json["errors"][0]["path"], "/new");
    assert_eq!(c.json(&["--json", "stat", "/other"])["ok"], true);
}

#[test]
fn files_there_and_back() {
    let c = Cluster::start();
    let src = c.local("src");
    std::fs::create_dir_all(src.join("sub/deeper")).expect("folders");
    let sizes = [0, 1, 65535, 65536, 65537, 5 << 20];
    for size in sizes {
        std::fs::write(src.join(format!("f{size}")), content(size)).expect("a file");
    }
    std::fs::write(src.join(OsStr::from_bytes(b"sub/\xfe")), b"odd").expect("a file");
    std::os::unix::fs::symlink("../f1", src.join("sub/link")).expect("a link");
    std::os::unix::fs::symlink("/nowhere", src.join("dangling")).expect("a link");
    for i in 0..300 {
        std::fs::write(src.join(format!("sub/deeper/{i}")), format!("{i}")).expect("a file");
    }
    std::fs::set_permissions(src.join("f1"), std::fs::Permissions::from_mode(0o4711)).expect("chmod");
    std::fs::set_permissions(src.join("sub"), std::fs::Permissions::from_mode(0o555)).expect("chmod");
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 987_654_321);
    let file = std::fs::File::open(src.join("f0")).expect("a file");
    file.set_modified(old).expect("utimens");
    let dir = std::fs::File::open(src.join("sub/deeper")).expect("a folder");
    dir.set_modified(old).expect("utimens");

    let src_text = src.to_string_lossy().into_owned();
    c.bad(&["put", &src_text, "/copy"], "use -r");
    c.ok(&["put", "-r", &src_text, "/copy"]);
    let back = c.local("back");
    let back_text = back.to_string_lossy().into_owned();
    c.bad(&["get", "/copy", &back_text], "use -r");
    c.ok(&["get", "-r", "/copy", &back_text]);
    assert_eq!(snapshot(&src), snapshot(&back));
    // Once more, over what is there.
    c.ok(&["put", "-r", &format!("{src_text}/."), "/copy"]);
    c.ok(&["get", "-r", "/copy", &back_text]);
    assert_eq!(snapshot(&src), snapshot(&back.join("copy")));
    std::fs::set_permissions(src.join("sub"), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    for sub in ["sub", "copy/sub"] {
        std::fs::set_permissions(back.join(sub), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    }

    for size in sizes {
        let done = c.run(&["cat", &format!("/copy/f{size}")]);
        assert!(done.ok && done.out == content(size), "{size} bytes");
    }
    pipes(&c);
    copies_are_their_makers(&c);
    assert!(c.ok(&["du", "-s", "/copy"]).ends_with("\t/copy\n"));
    let df = c.json(&["--json", "df"]);
    assert_eq!(df["servers"].as_array().map(Vec::len), Some(3));
    let fsck = c.json(&["--json", "fsck", "--data"]);
    assert_eq!(fsck["clean"], true, "{fsck}");
    assert_eq!(fsck["note_count"], 0, "{fsck}");
    assert_eq!(fsck["block_files"], 2 + 1, "{fsck}");
    c.ok(&["rm", "-r", "/copy", "/piped", "/others"]);
    assert_eq!(c.ok(&["ls", "/"]), "");
    assert_eq!(c.ok(&["fsck"]).lines().last(), Some("Clean."));
}

fn pipes(c: &Cluster) {
    let mut put = c.command();
    let mut put = put
        .args(["put", "-", "/piped"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("pando runs");
    let data = content(200_000);
    std::io::Write::write_all(&mut put.stdin.take().expect("a pipe"), &data).expect("written");
    assert!(put.wait().expect("an end").success());
    assert_eq!(c.run(&["get", "/piped", "-"]).out, data);
    c.ok(&["truncate", "-s", "100K", "/piped"]);
    assert_eq!(c.run(&["cat", "/piped"]).out, data[..102_400]);
    c.ok(&["truncate", "-s", "200000", "/piped"]);
    let mut cut = data[..102_400].to_vec();
    cut.resize(200_000, 0);
    assert_eq!(c.run(&["cat", "/piped"]).out, cut);
}

/// What others have put there does not run as who fetches it, nor does it reach beyond where it is fetched
/// to.
fn copies_are_their_makers(c: &Cluster) {
    let (program, victim) = (c.local("program"), c.local("victim"));
    std::fs::write(&program, b"theirs").expect("a file");
    std::fs::create_dir(&victim).expect("a folder");
    std::fs::write(victim.join("keys"), b"mine").expect("a file");
    c.ok(&["mkdir", "/others"]);
    c.ok(&["put", &program.to_string_lossy(), "/others/program"]);
    if rustix::process::geteuid().is_root() {
        c.ok(&["chown", "4242:4242", "/others/program"]);
        c.ok(&["chmod", "6755", "/others/program"]);
    }
    c.ok(&["ln", "-s", &victim.to_string_lossy(), "/others/dir"]);
    c.ok(&["ln", "-s", &victim.join("keys").to_string_lossy(), "/others/file"]);
    let fetched = c.local("fetched");
    c.ok(&["get", "-r", "/others", &fetched.to_string_lossy()]);
    let mode = |name: &str| {
        std::fs::symlink_metadata(fetched.join(name))
            .expect("metadata")
            .mode()
    };
    assert_eq!(mode("program") & 0o6000, 0);
    // The links are replaced by others, which a second copy brings.
    c.ok(&["rm", "/others/dir", "/others/file"]);
    c.ok(&["mkdir", "/others/dir"]);
    c.ok(&["put", &program.to_string_lossy(), "/others/dir/keys"]);
    c.ok(&["put", &program.to_string_lossy(), "/others/file"]);
    c.bad(&["get", "-r", "/others/.", &fetched.to_string_lossy()], "exists");
    assert_eq!(std::fs::read(victim.join("keys")).expect("a file"), b"mine");
    assert_eq!(std::fs::read(fetched.join("file")).expect("a file"), b"theirs");
    assert!(
        std::fs::symlink_metadata(fetched.join("file"))
            .expect("metadata")
            .is_file()
    );
}

/// What there is: relative path, mode, mtime, and bytes or target.
fn snapshot(root: &Path) -> Vec<(OsString, u32, i64, i64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let meta = std::fs::symlink_metadata(&path).expect("metadata");
        let bytes = if meta.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a folder");
            // What a second copy put into the first is its own.
            todo.extend(
                entries
                    .map(|e| e.expect("an entry").path())
                    .filter(|p| *p != root.join("copy")),
            );
            Vec::new()
        } else if meta.is_symlink() {
            let target = std::fs::read_link(&path).expect("a link");
            target.as_os_str().as_bytes().to_vec()
        } else {
            std::fs::read(&path).expect("a file")
        };
        let name = path.strip_prefix(root).expect("below").as_os_str().to_owned();
        // A second copy into the root changed its time.
        let time = if name.is_empty() {
            (0, 0)
        } else {
            (meta.mtime(), meta.mtime_nsec())
        };
        let mode = if meta.is_symlink() { 0 } else { meta.mode() };
        found.push((name, mode, time.0, time.1, bytes));
    }
    found.sort();
    found
}

/// The kinds of the messages of a step, and whether their servers told of their work.
fn messages(step: &Value) -> Vec<(&str, bool)> {
    let all = step["messages"].as_array().expect("a list").iter();
    all.map(|m| (m["what"].as_str().unwrap_or(""), m["account"].is_object()))
        .collect()
}

#[test]
fn explaining() {
    let c = Cluster::start();
    c.ok(&["mkdir", "-p", "/a/b/c/d"]);
    std::fs::write(c.local("f"), b"content").expect("written");
    let f = c.local("f").to_string_lossy().into_owned();
    c.ok(&["put", &f, "/a/b/c/d/f"]);
    let explain = |args: &[&str]| {
        let told = c.json(&[&["--json", "explain"], args].concat());
        assert_eq!(told["ok"], true, "{told}");
        told
    };
    let d = c.json(&["--json", "stat", "/a/b/c/d"])["files"][0].clone();

    // Nothing known: one round trip, in which all components are asked for; guesses are not accounted for.
    let cold = explain(&["stat", "/a/b/c/d/f"]);
    assert_eq!(cold["round_trips"], 1, "{cold}");
    let components = cold["steps"][0]["components"].as_array().expect("a list");
    let known: Vec<_> = components
        .iter()
        .map(|c| c["known"].as_str().unwrap_or(""))
        .collect();
    assert_eq!(known[0], "asked");
    assert_eq!(known[1..], ["predicted"; 5]);
    assert_eq!(components[5]["server"], d["content_server"]);
    assert_eq!(components[5]["slot"], d["content_slot"]);
    assert_eq!(components[4]["directory_id"], d["directory_id"]);
    for (what, told) in messages(&cold["steps"][0]) {
        assert_eq!(told, what == "lookup", "{what}");
    }
    // One after the other, and what a new program learns first.
    let slow = explain(&["stat", "/a/b/c/d/f", "--resolution", "sequential"]);
    assert_eq!(slow["round_trips"], 6, "{slow}");
    let first = explain(&["stat", "/a/b/c/d/f", "--first"]);
    assert!(first["round_trips"].as_u64() > Some(1), "{first}");
    assert_eq!(first["steps"][0]["refusals"][0], "wrong boot");

    // All known: the server of the directory, and of what is made in it.
    let warm = explain(&["stat", "/a/b/c/d/f", "--warm"]);
    assert_eq!(messages(&warm["steps"][0]), [("lookup", true)]);
    assert_eq!(warm["servers"], serde_json::json!([d["content_server"]]));
    let made = explain(&["mkdir", "/a/b/c/d/new", "--warm"]);
    assert_eq!(messages(&made["steps"][0]), [("mkdir", true)]);
    assert_eq!(made["servers_asked"], serde_json::json!([d["content_server"]]));
    let new = c.json(&["--json", "stat", "/a/b/c/d/new"])["files"][0].clone();
    let errands = made["steps"][0]["messages"][0]["account"]["errands"].clone();
    if new["content_server"] == d["content_server"] {
        assert_eq!(made["messages_between_servers"], 0);
    } else {
        assert_eq!(
            made["servers_in_turn"],
            serde_json::json!([new["content_server"]])
        );
        assert_eq!(
            (&errands[0]["what"], &errands[0]["answer"]),
            (&"prepare".into(), &"yes".into())
        );
        assert_eq!(
            (&errands[1]["what"], &errands[1]["answer"]),
            (&"commit".into(), &"later".into())
        );
        assert_eq!(made["messages_between_servers"], 2);
    }

    // Steps apart; content and attributes stay.
    let closed = explain(&["close", "/a/b/c/d/f", "--warm"]);
    let steps = closed["steps"].as_array().expect("a list");
    let steps: Vec<_> = steps.iter().map(|s| (s["step"].clone(), messages(s))).collect();
    assert_eq!(steps[0], ("open".into(), vec![("open", true)]));
    assert_eq!(steps[1], ("write".into(), vec![]));
    assert_eq!(steps[2], ("close".into(), vec![("publish", true)]));
    assert_eq!(c.ok(&["cat", "/a/b/c/d/f"]), "content");
    let before = c.json(&["--json", "stat", "/a/b/c/d/f"])["files"][0].clone();
    for op in ["chmod", "chown", "truncate", "readdir", "statdir"] {
        let path = if op.ends_with("dir") {
            "/a/b/c/d"
        } else {
            "/a/b/c/d/f"
        };
        explain(&[op, path]);
    }
    let after = c.json(&["--json", "stat", "/a/b/c/d/f"])["files"][0].clone();
    for field in ["mode", "uid", "gid", "size", "ino"] {
        assert_eq!(before[field], after[field], "{field}");
    }
    explain(&["rename", "/a/b/c/d/f", "/a/g"]);
    explain(&["symlink", "/a/s", "g"]);
    assert_eq!(c.ok(&["cat", "/a/s"]), "content");
    explain(&["unlink", "/a/s"]);
    explain(&["rmdir", "/a/b/c/d/new"]);
    assert_eq!(c.ok(&["ls", "/a"]), "b\ng\n");

    // What fails is told as far as the client knows.
    let none = c.run(&["--json", "explain", "unlink", "/a/none"]);
    let told: Value = serde_json::from_str(&none.text).expect("JSON");
    assert_eq!((none.code, &told["ok"]), (1, &false.into()));
    let last = messages(&told["steps"][0]).last().copied();
    assert_eq!(last, Some(("unlink", false)));
    let text = c.ok(&["explain", "stat", "/a/g", "--warm"]);
    assert!(text.starts_with("stat /a/g: done, 1 round trip in "), "{text}");
    c.bad(&["explain", "rename", "/a/g"], "a second path");
    c.bad(&["explain", "stat", "/a/g", "x"], "takes one path");
}

#[test]
fn operating_it() {
    let c = Cluster::start();
    c.ok(&["mkdir", "/d"]);
    let status = c.json(&["--json", "status"]);
    assert_eq!(status["down"], 0);
    assert_eq!(status["servers"].as_array().map(Vec::len), Some(3));
    let map = c.json(&["--json", "map"]);
    let slots: u64 = (0..3)
        .filter_map(|s| map["servers"][s]["slot_count"].as_u64())
        .sum();
    assert_eq!(slots, 4096);
    let place = c.json(&["--json", "map", "slot", "/d"]);
    assert!(
        place["paths"][0]["content_server"]
            .as_u64()
            .is_some_and(|s| s < 3),
        "{place}"
    );
    assert!(c.ok(&["completion", "bash"]).contains("_pando"));

    // How servers are started is remembered, and said to those that are started from then on.
    let up = c.run(&["up", "--record-mib", "7", "--waiting", "blocking"]);
    assert!(
        up.ok && up.err.contains("go on as they were started"),
        "{}",
        up.err
    );

    // One server gone: said within about a second, and nothing pretends to be fine.
    let victim = place["paths"][0]["content_server"].as_u64().unwrap_or(0) as u16;
    let kill = Command::new("kill").args(["-9", &c.pid(victim)]).status();
    assert!(kill.is_ok_and(|s| s.success()));
    let began = Instant::now();
    let status = c.run(&["--json", "status"]);
    assert!(began.elapsed() < Duration::from_secs(8));
    assert_eq!(status.code, 1);
    let json: serde_json::Value = serde_json::from_str(&status.text).expect("JSON");
    assert_eq!(json["down"], 1);
    assert_eq!(json["servers"][usize::from(victim)]["up"], false);
    assert_eq!(c.run(&["--wait", "1", "fsck"]).code, 2);
    c.bad(&["--wait", "1", "ls", "/d"], "is away");
    c.ok(&["up"]);
    let options = |server: u16| {
        let line = std::fs::read(format!("/proc/{}/cmdline", c.pid(server))).expect("it runs");
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("--record-mib=7") && line.contains("--waiting=blocking")
    };
    assert!(options(victim) && !options((victim + 1) % 3));
    c.ok(&["restart", "--server", &victim.to_string()]);
    assert!(options(victim));
    assert_eq!(c.run(&["fsck"]).code, 0);
    assert!(c.ok(&["down"]).contains("Stopped server 0"));
    assert_eq!(c.run(&["fsck", "--wait", "1"]).code, 2);
}
