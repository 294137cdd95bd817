//! The processes of the benchmark, as the one that started them sees them. None outlives it.

use super::super::meter::Meter;
use super::{Phase, PosixArgs};
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// All of them. A signal ends them, so that whoever waits for one of them learns of it.
pub struct Crew {
    all: Arc<Mutex<All>>,
    signals: Handle,
}

#[derive(Default)]
struct All {
    children: Vec<Child>,
    /// The signal that came.
    signal: Option<i32>,
}

/// The way to one of them.
pub struct Worker {
    number: u64,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Crew {
    pub fn new() -> Result<Crew> {
        let all = Arc::new(Mutex::new(All::default()));
        let again = Arc::new(AtomicBool::new(false));
        let caught = [SIGINT, SIGTERM, SIGHUP];
        for signal in caught {
            // A second one ends this process wherever it is: removing may take long, too.
            signal_hook::flag::register_conditional_shutdown(signal, 130, again.clone())?;
        }
        let mut signals = Signals::new(caught)?;
        let crew = Crew {
            all: all.clone(),
            signals: signals.handle(),
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in &mut signals {
                    again.store(true, Ordering::SeqCst);
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    all.signal.get_or_insert(signal);
                    for child in &mut all.children {
                        let _ = child.kill();
                    }
                }
            })?;
        Ok(crew)
    }

    fn with<T>(&self, f: impl FnOnce(&mut All) -> T) -> T {
        f(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts one.
    pub fn start(&self, bench: &PosixArgs, dir: &Path, number: u64) -> Result<Worker> {
        let program = std::env::current_exe().context("cannot find this program to start it again")?;
        let mut command = Command::new(program);
        command.args(["bench", "posix", "--worker", &number.to_string()]);
        command.args(["-n", &bench.items.to_string()]);
        command.args(bench.shared.then_some("--shared"));
        command.args(bench.paths.then_some("--paths"));
        command.arg("--").arg(dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        self.with(|all| {
            if all.signal.is_some() {
                bail!("interrupted");
            }
            let mut child = command.spawn().context("cannot start another process")?;
            let pipes = (child.stdin.take(), child.stdout.take());
            all.children.push(child);
            let (Some(to), Some(from)) = pipes else {
                bail!("a process was started without its pipes");
            };
            Ok(Worker {
                number,
                to,
                from: BufReader::new(from),
            })
        })
    }

    /// Ends those that still run, and waits for all.
    pub fn end(&self) {
        let children = self.with(|all| std::mem::take(&mut all.children));
        for mut child in children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The signal that came meanwhile.
    pub fn interrupted(&self) -> Option<i32> {
        self.with(|all| all.signal)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.signals.close();
        self.end();
    }
}

impl Worker {
    /// Sends it one line.
    pub fn tell(&mut self, word: &str, phase: Phase) -> Result<()> {
        let line = format!("{word} {}\n", phase.name());
        self.to
            .write_all(line.as_bytes())
            .with_context(|| format!("process {} of the benchmark has ended", self.number))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.from.read_line(&mut line);
        if read.with_context(|| format!("process {} cannot be heard", self.number))? == 0 {
            // It says why on its standard error, which is this one's.
            bail!("process {} of the benchmark has ended", self.number);
        }
        Ok(line)
    }

    /// Waits until it has prepared what it was told.
    pub fn ready(&mut self) -> Result<()> {
        let line = self.line()?;
        if line.trim_end() != "ready" {
            bail!("process {} of the benchmark says \"{line}\"", self.number);
        }
        Ok(())
    }

    /// Waits for what it measured.
    pub fn figures(&mut self) -> Result<Meter> {
        let line = self.line()?;
        Meter::from_line(&line)
            .with_context(|| format!("process {} of the benchmark says \"{line}\"", self.number))
    }
}
