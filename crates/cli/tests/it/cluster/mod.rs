//! A cluster of real processes in a temporary folder. Whatever happens to the test, it is stopped at the end.

#![allow(dead_code)] // each test uses its part

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A running cluster.
pub struct Cluster {
    dir: PathBuf,
    /// Removed at the end.
    temporary: bool,
    servers: usize,
    environment: Vec<(&'static str, String)>,
}

impl Cluster {
    /// Formats and starts one.
    pub fn start(servers: usize, durability: &str) -> Cluster {
        Self::start_in(&Self::folder(), servers, durability, true)
    }

    fn folder() -> PathBuf {
        // A test may have more than one.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let unique = format!(
            "pando-test-{}-{:?}-{}",
            std::process::id(),
            std::thread::current().id(),
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(unique.replace(['(', ')'], ""));
        let _ = std::fs::remove_dir_all(&dir);
        dir
    }

    /// The same, made with more options.
    pub fn start_with(servers: usize, durability: &str, options: &[&str]) -> Cluster {
        Self::make(&Self::folder(), servers, durability, true, options)
    }

    /// The same in a given folder.
    pub fn start_in(dir: &Path, servers: usize, durability: &str, temporary: bool) -> Cluster {
        Self::make(dir, servers, durability, temporary, &[])
    }

    fn make(dir: &Path, servers: usize, durability: &str, temporary: bool, options: &[&str]) -> Cluster {
        let cluster = Cluster {
            dir: dir.to_owned(),
            temporary,
            servers,
            environment: Vec::new(),
        };
        let servers = servers.to_string();
        let up = ["up", "--servers", &servers, "--durability", durability];
        cluster.run(&[&up, options].concat());
        cluster
    }

    /// A folder in which there is none yet.
    pub fn prepare(servers: usize) -> Cluster {
        let cluster = Cluster {
            dir: Self::folder(),
            temporary: true,
            servers,
            environment: Vec::new(),
        };
        std::fs::create_dir_all(&cluster.dir).expect("a folder");
        cluster
    }

    /// One whose blocks are elsewhere; all commands, and the servers, have this environment.
    pub fn with_blocks(servers: usize, blocks: &str, environment: Vec<(&'static str, String)>) -> Cluster {
        let cluster = Cluster {
            dir: Self::folder(),
            temporary: true,
            servers,
            environment,
        };
        cluster.run(&["format", "--servers", &servers.to_string(), "--blocks", blocks]);
        cluster.up();
        cluster
    }

    /// A `pando` command on this cluster.
    pub fn pando(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.arg("--dir").arg(&self.dir).args(arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command that must succeed; returns what it printed.
    pub fn run(&self, arguments: &[&str]) -> String {
        let out = self.pando(arguments).output().expect("pando runs");
        let (stdout, stderr) = (
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr),
        );
        assert!(out.status.success(), "pando {arguments:?}: {stdout}{stderr}");
        stdout.into_owned()
    }

    /// Runs a command that must fail; returns what it complained.
    pub fn fail(&self, arguments: &[&str]) -> String {
        let out = self.pando(arguments).output().expect("pando runs");
        assert!(!out.status.success(), "pando {arguments:?} succeeded");
        String::from_utf8_lossy(&out.stderr).into_owned()
    }

    /// Starts what does not run.
    pub fn up(&self) {
        self.run(&["up"]);
    }

    /// A path in the cluster's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The same, as an argument.
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Lets somebody in; the file that proves it is theirs.
    pub fn add(&self, name: &str, claims: &[&str]) -> String {
        let key = self.file(name);
        self.run(&[&["auth", "add", name, "--out", &key], claims].concat());
        key
    }

    /// Runs a command as whom a file proves; what it printed, or what it complained.
    pub fn with(&self, key: &str, arguments: &[&str]) -> Result<String, String> {
        let all = [&["--wait", "10", "--key", key], arguments].concat();
        let out = self.pando(&all).output().expect("pando runs");
        if out.status.success() {
            Ok(String::from_utf8_lossy(&out.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&out.stderr).into_owned())
        }
    }

    /// A signal to one server, which may go on afterwards.
    pub fn signal(&self, server: usize, name: &str) {
        let pid = std::fs::read_to_string(self.path(&format!("run/server-{server}.lock"))).expect("pid");
        let sent = Command::new("kill")
            .args([&format!("-{name}"), pid.trim()])
            .status();
        assert!(sent.expect("kill runs").success());
    }

    /// kill -9 of one server.
    pub fn kill(&self, server: usize) {
        let pid = std::fs::read_to_string(self.path(&format!("run/server-{server}.lock"))).expect("pid");
        let sent = Command::new("kill").args(["-9", pid.trim()]).status();
        if sent.is_ok_and(|s| s.success()) {
            pando_testing::killed(format_args!("server {server}"));
        }
        // Until it is dead it holds its lock and may still be asked.
        for _ in 0..1000 {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            let state = stat.rsplit(") ").next().and_then(|s| s.chars().next());
            if matches!(state, None | Some('Z' | 'X')) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// kill -9 of all.
    pub fn kill_all(&self) {
        // What was never started has nothing to be killed.
        let ran = |s: &usize| self.path(&format!("run/server-{s}.lock")).exists();
        (0..self.servers).filter(ran).for_each(|s| self.kill(s));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.pando(&["down"]).output();
        self.kill_all();
        if self.temporary && !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}
