//! Power cuts: every server's store is on an XFS of its own in a loop file, and `xfs_io -x -c shutdown` drops
//! what was not synced. In `sync` nothing acknowledged may be missing, whether one server loses power or all
//! do. (That these cuts see a missing fsync is proven where it can be planted: `pando-store-rocks`,
//! tests/crash.rs.)

use crate::cluster::Cluster;
use crate::hammering::{Hammer, verify};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SERVERS: usize = 4;

fn command(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .output()
        .is_ok_and(|o| o.status.success())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

/// Why this machine cannot do it.
fn lacking() -> Option<&'static str> {
    if !command("sh", &["-c", "[ \"$(id -u)\" = 0 ]"]) {
        Some("only root can mount")
    } else if !command(
        "sh",
        &["-c", "command -v mkfs.xfs && command -v xfs_io && losetup -f"],
    ) {
        Some("no xfsprogs or no loop devices")
    } else {
        None
    }
}

/// The stores of a cluster, each on a file system whose power can be cut.
struct Plugs {
    cluster: Option<Cluster>,
    root: PathBuf,
}

impl Plugs {
    fn new(name: &str) -> Plugs {
        let root = std::env::temp_dir().join(format!("pando-power-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).expect("folder");
        let mode = if name.starts_with("sync") { "sync" } else { "async" };
        let cluster = Cluster::start_in(&root.join("c"), SERVERS, mode, true);
        cluster.run(&["down"]);
        let plugs = Plugs {
            cluster: Some(cluster),
            root,
        };
        for n in 0..SERVERS {
            let image = plugs.image(n);
            let at = plugs.store(n);
            let kept = plugs.root.join("kept");
            std::fs::rename(&at, &kept).expect("store moves");
            std::fs::create_dir(&at).expect("folder");
            assert!(command("truncate", &["-s", "320M", text(&image)]), "image");
            assert!(command("mkfs.xfs", &["-q", text(&image)]), "mkfs.xfs");
            plugs.plug_in(n);
            assert!(
                command("cp", &["-a", &format!("{}/.", text(&kept)), text(&at)]),
                "store is copied"
            );
            std::fs::remove_dir_all(&kept).expect("copy goes");
        }
        assert!(command("sync", &[]), "sync");
        plugs.cluster().up();
        plugs
    }

    fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("cluster")
    }

    fn image(&self, n: usize) -> PathBuf {
        self.root.join(format!("disk-{n}"))
    }

    fn store(&self, n: usize) -> PathBuf {
        self.root.join(format!("c/server-{n}"))
    }

    fn plug_in(&self, n: usize) {
        let (image, at) = (self.image(n), self.store(n));
        assert!(
            command("mount", &["-o", "loop", text(&image), text(&at)]),
            "mount of {}",
            image.display()
        );
    }

    /// Cuts the power of these servers and plugs them in again. They are killed first: a shut down XFS may
    /// tell a process that still writes that its data was synced when it was not, as no device would.
    fn cut(&self, victims: &[usize]) {
        victims.iter().for_each(|n| self.cluster().kill(*n));
        victims.iter().for_each(|n| self.wait_end(*n));
        for n in victims {
            self.shut_down(*n);
            self.replug(*n);
        }
        self.cluster().up();
    }

    fn shut_down(&self, n: usize) {
        assert!(
            command("xfs_io", &["-x", "-c", "shutdown", text(&self.store(n))]),
            "shutdown"
        );
    }

    /// Waits until the server's process is gone: then its lock is free.
    fn wait_end(&self, n: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let lock = self.cluster().path(&format!("run/server-{n}.lock"));
        while !command("flock", &["-n", text(&lock), "true"]) {
            assert!(Instant::now() < deadline, "server {n} does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn replug(&self, n: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        // The lock goes before the last thread does.
        while !command("umount", &[text(&self.store(n))]) {
            assert!(Instant::now() < deadline, "server {n} keeps its store open");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.plug_in(n);
    }
}

impl Drop for Plugs {
    fn drop(&mut self) {
        if let Some(cluster) = &self.cluster {
            let _ = cluster.pando(&["down"]).output();
            cluster.kill_all();
        }
        for n in 0..SERVERS {
            command("umount", &["-l", text(&self.store(n))]);
            if let Ok(device) = std::fs::read_to_string(self.root.join(format!("device-{n}"))) {
                command("losetup", &["-d", device.trim()]);
            }
        }
        self.cluster = None;
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

#[test]
fn process_power_cuts_in_sync_lose_nothing() {
    if let Some(why) = lacking() {
        pando_testing::skip(why);
        return;
    }
    let plugs = Plugs::new("sync");
    let hammer = Hammer::start(plugs.cluster(), "power");
    for victims in [&[1][..], &[0], &[0, 1, 2, 3], &[2, 3], &[3], &[0, 1, 2, 3]] {
        hammer.wait_for_load(hammer.acknowledged() + 20);
        plugs.cut(victims);
    }
    let log = hammer.finish();
    println!(
        "sync: 6 power cuts, two of them of all servers; {}",
        verify(plugs.cluster(), &log)
    );
}

/// A server whose store fails under it stops and says so; the others go on, and so does it after a restart
/// (H103).
#[test]
fn process_a_failed_store_stops_its_server() {
    if let Some(why) = lacking() {
        pando_testing::skip(why);
        return;
    }
    let plugs = Plugs::new("sync-failed");
    let mut hammer = plugs
        .cluster()
        .pando(&[
            "hammer",
            "run",
            "--tasks",
            "64",
            "--seconds",
            "60",
            "--name",
            "failing",
        ])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("hammer starts");
    std::thread::sleep(Duration::from_secs(2));
    plugs.shut_down(1);
    plugs.wait_end(1);
    let _ = hammer.kill();
    let _ = hammer.wait();
    let log = std::fs::read_to_string(plugs.cluster().path("run/server-1.log")).expect("log");
    assert!(
        log.contains("the store failed"),
        "server 1 does not say why it stopped: {log}"
    );
    plugs.replug(1);
    plugs.cluster().up();
    plugs.cluster().run(&["ls", "/"]);
}

/// In `async` the last seconds may be lost, but what is left must be whole.
#[test]
fn process_power_cuts_in_async_leave_a_whole_filesystem() {
    if let Some(why) = lacking() {
        pando_testing::skip(why);
        return;
    }
    let plugs = Plugs::new("async");
    for round in 0..3 {
        let mut hammer = plugs
            .cluster()
            .pando(&[
                "hammer",
                "run",
                "--tasks",
                "64",
                "--seconds",
                "60",
                "--name",
                &format!("async{round}"),
            ])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("hammer starts");
        std::thread::sleep(Duration::from_millis(2500));
        // What it believes acknowledged may be gone: it must not go on.
        let _ = hammer.kill();
        let _ = hammer.wait();
        plugs.cut(if round == 1 { &[2] } else { &[0, 1, 2, 3] });
        println!("async: {}", plugs.cluster().run(&["fsck"]));
    }
}
