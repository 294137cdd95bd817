//! A hammer under way, and the log of it that this process keeps.

#![allow(dead_code)] // each test uses its part

use crate::cluster::Cluster;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Operations that must be in flight at each.
const IN_FLIGHT: usize = 50;

/// What the hammer has said so far.
#[derive(Default)]
struct Heard {
    text: String,
    in_flight: BTreeSet<String>,
    acknowledged: usize,
}

/// A hammer, and the log of it that this process keeps.
pub struct Hammer {
    child: Child,
    heard: Arc<Mutex<Heard>>,
    reader: std::thread::JoinHandle<()>,
}

impl Hammer {
    /// Starts one with 128 tasks.
    pub fn start(cluster: &Cluster, name: &str) -> Hammer {
        let mut child = cluster
            .pando(&[
                "hammer",
                "run",
                "--tasks",
                "128",
                "--seconds",
                "600",
                "--until-eof",
                "--name",
                name,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("hammer starts");
        let out = child.stdout.take().expect("piped");
        let heard = Arc::new(Mutex::new(Heard::default()));
        let shared = heard.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let mut h = shared.lock().expect("lock");
                let words: Vec<&str> = line.split(' ').collect();
                match words[..] {
                    ["B", task, ..] => {
                        h.in_flight.insert(task.to_owned());
                    }
                    ["A", task, ..] => {
                        h.in_flight.remove(task);
                        h.acknowledged += 1;
                    }
                    _ => {}
                }
                h.text.push_str(&line);
                h.text.push('\n');
            }
        });
        Hammer { child, heard, reader }
    }

    /// Waits until enough is in flight and something was acknowledged since.
    pub fn wait_for_load(&self, since: usize) -> usize {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            {
                let h = self.heard.lock().expect("lock");
                if h.in_flight.len() >= IN_FLIGHT && h.acknowledged >= since {
                    return h.in_flight.len();
                }
                assert!(
                    Instant::now() < deadline,
                    "the hammer stalls: {} in flight",
                    h.in_flight.len()
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Acknowledged operations so far.
    pub fn acknowledged(&self) -> usize {
        self.heard.lock().expect("lock").acknowledged
    }

    /// Lets it end; it must not have failed. Returns the log.
    pub fn finish(mut self) -> String {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("hammer ends");
        self.reader.join().expect("reader ends");
        let text = self.heard.lock().expect("lock").text.clone();
        assert!(
            status.success(),
            "the hammer failed: {}",
            text.lines().rfind(|l| l.starts_with('X')).unwrap_or("")
        );
        text
    }
}

/// Writes the log where `pando hammer verify` finds it, and has it verified.
pub fn verify(cluster: &Cluster, text: &str) -> String {
    let log = cluster.path("hammer.log");
    std::fs::write(&log, text).expect("log is written");
    cluster.run(&["hammer", "verify", log.to_str().expect("utf-8")])
}
