//! `pando bench posix`: what programs get, through system calls, from whatever filesystem a directory is on.

mod crew;
mod worker;

use super::Figures;
use super::meter::{Measured, Meter};
use anyhow::{Context, Result, bail};
use crew::Crew;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Create, look at and remove files by system calls, as mdtest does: any mounted filesystem can be measured
/// so, and compared.
///
/// Each process is one of its own, and has a directory of its own unless --shared. They begin each phase
/// together. All happens in a new directory below DIR, which is removed at the end, also when the benchmark
/// is interrupted.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Phases:\n  create  open with O_CREAT and O_EXCL, and close\n  stat    each file once\n  restat  each file again, for a fifth of a second, right after all were looked at: what the kernel remembers, it answers\n  open    open for reading, and close\n  rename  to another name in the same directory\n  remove  unlink\n\nExamples:\n  pando bench posix /mnt/pando\n  pando bench posix /mnt/pando -n 10000 --processes 8 --shared --json\n  pando bench posix /mnt/pando --phases create,stat,restat,remove --paths"
)]
pub struct PosixArgs {
    /// Where: a directory that exists.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Files of each process.
    #[arg(short = 'n', default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub items: u64,
    /// Processes.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub processes: u64,
    /// All of them in one directory.
    #[arg(long)]
    pub shared: bool,
    /// What is measured, in the order of the list below, whatever the order here. Files are made and removed
    /// in any case.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "create,stat,remove")]
    pub phases: Vec<Phase>,
    /// Say the whole path to the kernel each time, instead of names in an open directory.
    #[arg(long)]
    pub paths: bool,
    /// One of the processes, which another one of this program started: what to do comes on its standard
    /// input.
    #[arg(long, hide = true, value_name = "NUMBER")]
    pub worker: Option<u64>,
}

/// What is done to each file.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Open with O_CREAT and O_EXCL, and close.
    Create,
    /// Look at it.
    Stat,
    /// Look at it again, right after all were looked at.
    Restat,
    /// Open for reading, and close.
    Open,
    /// To another name.
    Rename,
    /// Unlink.
    Remove,
}

impl Phase {
    const ALL: [Phase; 6] = [
        Phase::Create,
        Phase::Stat,
        Phase::Restat,
        Phase::Open,
        Phase::Rename,
        Phase::Remove,
    ];

    fn name(self) -> &'static str {
        match self {
            Phase::Create => "create",
            Phase::Stat => "stat",
            Phase::Restat => "restat",
            Phase::Open => "open",
            Phase::Rename => "rename",
            Phase::Remove => "remove",
        }
    }
}

/// Measures; or, as one of the processes of another, does its part and gives nothing.
pub fn run(bench: &PosixArgs) -> Result<Option<Figures>> {
    if let Some(number) = bench.worker {
        worker::run(bench, number)?;
        return Ok(None);
    }
    let dir = &bench.dir;
    let there = std::fs::metadata(dir).with_context(|| {
        format!(
            "{} cannot be looked at; give a directory that exists, such as a mountpoint",
            dir.display()
        )
    })?;
    if !there.is_dir() {
        bail!(
            "{} is not a directory; give one, such as a mountpoint",
            dir.display()
        );
    }
    let phases: Vec<Phase> = Phase::ALL
        .into_iter()
        .filter(|p| bench.phases.contains(p))
        .collect();
    let folder = tempfile::Builder::new()
        .prefix("pando-posix-")
        .tempdir_in(dir)
        .with_context(|| format!("cannot make a directory in {}", dir.display()))?;
    let path = folder.path().to_owned();

    let crew = Crew::new()?;
    let measured = measure(bench, &crew, &path, &phases);
    crew.end();
    // Also after an interrupted run, before anything is said.
    folder
        .close()
        .with_context(|| format!("cannot remove {}: remove it by hand", path.display()))?;
    if let Some(signal) = crew.interrupted() {
        eprintln!("pando: interrupted; {} is removed", path.display());
        signal_hook::low_level::emulate_default_handler(signal)?;
    }
    let results = measured?;
    let names: Vec<&str> = phases.iter().map(|p| p.name()).collect();
    let params = json!({
        "dir": dir.display().to_string(), "n": bench.items, "processes": bench.processes, "shared": bench.shared,
        "paths": bench.paths, "phases": names,
    });
    Ok(Some(Figures {
        bench: "posix",
        profile: None,
        params,
        results,
    }))
}

fn measure(bench: &PosixArgs, crew: &Crew, path: &Path, phases: &[Phase]) -> Result<Vec<Measured>> {
    let mut workers = (0..bench.processes)
        .map(|number| crew.start(bench, path, number))
        .collect::<Result<Vec<_>>>()?;
    for worker in &mut workers {
        worker.ready()?;
    }
    let mut results = Vec::new();
    for phase in phases {
        // First what must have happened before, of all; then all at once.
        for word in ["prepare", "go"] {
            for worker in &mut workers {
                worker.tell(word, *phase)?;
            }
            if word == "prepare" {
                for worker in &mut workers {
                    worker.ready()?;
                }
            }
        }
        let parts: Result<Vec<Meter>> = workers.iter_mut().map(crew::Worker::figures).collect();
        results.push(Meter::sum(phase.name(), parts?, false)?);
    }
    Ok(results)
}
