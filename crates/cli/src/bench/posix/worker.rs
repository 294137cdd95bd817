//! One process of the benchmark: it does what it is told, a line at a time.

use super::super::meter::Meter;
use super::{Phase, PosixArgs};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::CString;
use std::io::{BufRead, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long files are looked at again: what the kernel remembers, it answers a million times a second, and
/// for a second.
const RESTAT: Duration = Duration::from_millis(200);

/// Its files: names in an open directory, or whole paths.
struct Files {
    dir: Option<OwnedFd>,
    /// What their names begin with.
    path: PathBuf,
    number: u64,
    names: Vec<CString>,
    /// What they are called after they are renamed.
    renamed: Vec<CString>,
    made: bool,
    moved: bool,
}

pub fn run(bench: &PosixArgs, number: u64) -> Result<()> {
    // Whoever measures may be killed.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut files = Files::new(bench, number)?;
    let mut out = std::io::stdout().lock();
    let mut say = |line: &str| -> Result<()> {
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    };
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (word, phase) = line.split_once(' ').unwrap_or((&line, ""));
        let Ok(phase) = Phase::from_str(phase, false) else {
            bail!("a process of the benchmark was told \"{line}\"");
        };
        if word == "prepare" {
            files.prepare(phase)?;
            say("ready")?;
        } else {
            say(&files.phase(phase)?.to_line())?;
        }
    }
    Ok(())
}

impl Files {
    fn new(bench: &PosixArgs, number: u64) -> Result<Files> {
        let dir = match bench.shared {
            true => bench.dir.clone(),
            false => bench.dir.join(format!("process.{number}")),
        };
        if !bench.shared {
            std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let mut files = Files {
            dir: (!bench.paths).then(|| open_dir(&dir)).transpose()?,
            path: if bench.paths { dir } else { PathBuf::new() },
            number,
            names: Vec::new(),
            renamed: Vec::new(),
            made: false,
            moved: false,
        };
        files.names = files.named("file", bench.items)?;
        Ok(files)
    }

    fn named(&self, kind: &str, items: u64) -> Result<Vec<CString>> {
        let name = |i: u64| {
            let path = self.path.join(format!("{kind}.{}.{i}", self.number));
            CString::new(path.as_os_str().as_bytes()).context("a path with a zero byte")
        };
        (0..items).map(name).collect()
    }

    fn at(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(CWD, AsFd::as_fd)
    }

    /// What the phase needs that no phase before it did.
    fn prepare(&mut self, phase: Phase) -> Result<()> {
        if phase != Phase::Create && !self.made {
            self.all(Phase::Create)?;
        }
        if phase == Phase::Restat {
            self.all(Phase::Stat)?;
        }
        if phase == Phase::Rename {
            self.renamed = self.named("moved", self.names.len() as u64)?;
        }
        Ok(())
    }

    fn all(&mut self, phase: Phase) -> Result<()> {
        let meter = self.phase(phase)?;
        match meter.first_error() {
            Some(why) => bail!("cannot {} what is to be measured: {why}", phase.name()),
            None => Ok(()),
        }
    }

    fn phase(&mut self, phase: Phase) -> Result<Meter> {
        let mut meter = Meter::new()?;
        meter.begin();
        let first = Instant::now();
        loop {
            for i in 0..self.names.len() {
                let began = Instant::now();
                match self.once(phase, i) {
                    Ok(()) => meter.record(began.elapsed()),
                    Err(e) => meter
                        .failed(|| format!("{} of {}: {e}", phase.name(), self.name(i).to_string_lossy())),
                }
            }
            if phase != Phase::Restat || first.elapsed() >= RESTAT {
                break;
            }
        }
        meter.end(0);
        match phase {
            Phase::Create => self.made = true,
            Phase::Rename => self.moved = true,
            Phase::Stat | Phase::Restat | Phase::Open | Phase::Remove => {}
        }
        Ok(meter)
    }

    fn name(&self, i: usize) -> &CString {
        if self.moved {
            &self.renamed[i]
        } else {
            &self.names[i]
        }
    }

    fn once(&self, phase: Phase, i: usize) -> Result<(), Errno> {
        let (at, name) = (self.at(), self.name(i));
        match phase {
            Phase::Create => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                close(rustix::fs::openat(at, name, flags, Mode::from_raw_mode(0o644))?);
            }
            Phase::Stat | Phase::Restat => {
                rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Phase::Open => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                close(rustix::fs::openat(at, name, flags, Mode::empty())?);
            }
            Phase::Rename => rustix::fs::renameat(at, name, at, &self.renamed[i])?,
            Phase::Remove => rustix::fs::unlinkat(at, name, AtFlags::empty())?,
        }
        Ok(())
    }
}

fn open_dir(dir: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty()).with_context(|| format!("cannot open {}", dir.display()))
}

/// Waits for the close, and takes part in what it costs.
fn close(file: OwnedFd) {
    drop(file);
}
