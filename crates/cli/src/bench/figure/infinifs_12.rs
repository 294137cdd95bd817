//! Figure 12: throughput with up to 10^11 files. No machine here holds them, so this is a MODEL of a
//! log-structured store:
//!
//! - A server's files are in levels, each ten times as large as the one above; the first holds
//!   [`LEVEL_BYTES`]. What was written last is in memory, what was written first in the lowest level.
//! - Looking for a name asks the filter of each level above the one it is in; a name that is not there, as of
//!   a new file, is asked of every level. What that takes for one level is measured: names that are not
//!   there, in a store with tables against one without.
//! - A file in the lowest level is not in memory: its block is read by one of the store's reader threads.
//!   What that takes the event loop, in processor time, and the reader, in time, is measured on a store that
//!   is larger than its cache.
//! - Everything else a request takes is what `pando bench calibrate` measured.
//!
//! What it leaves out: compactions, whose share grows with the number of levels, and memory that runs short
//! of filters.

use super::Virtual;
use crate::bench::lines::{Claim, Drawn, median, round};
use crate::bench::store::{Bench, StoreArgs};
use crate::store_kinds::{StoreKind, StoreOptions};
use anyhow::{Context, Result};
use pando_net::thread_cpu;
use serde_json::json;
use std::time::Instant;

/// What the first level holds before there is a second.
const LEVEL_BYTES: f64 = 256e6;
/// How much more each level holds than the one above.
const FANOUT: f64 = 10.0;
/// The cache of the store that is measured, as the paper's.
const CACHE_BYTES: usize = 8 << 20;
/// Files in the store that is measured.
const FILES: u64 = 1_000_000;
/// Files in the one that is all in memory.
const FEW: u64 = 10_000;
/// Reads of each kind.
const READS: u64 = 4_000;
/// Sizes of the tree.
const SIZES: [f64; 6] = [1e9, 3e9, 1e10, 3e10, 6e10, 1e11];

/// What was measured, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Parts {
    /// Bytes of a file's records in tables.
    file_bytes: f64,
    /// The filters of one level.
    filter_us: f64,
    /// What a read that misses memory takes the event loop more than one that does not.
    miss_us: f64,
    /// What it takes a reader thread.
    reader_us: f64,
    /// Of an old file against a new one, in the store that was measured.
    levels_here: f64,
}

/// Processor time and time of one read, in the middle.
fn time(bench: &Bench<'_>, kind: &str, numbers: impl Iterator<Item = u64>) -> Result<[f64; 2]> {
    let (mut cpu, mut wall) = (Vec::new(), Vec::new());
    for n in numbers {
        let (began, cpu_began) = (Instant::now(), thread_cpu());
        bench.look(kind, n)?;
        cpu.push(thread_cpu().saturating_sub(cpu_began).as_secs_f64() * 1e6);
        wall.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok([median(&cpu), median(&wall)])
}

/// Levels of a store with so many bytes in tables.
fn levels(bytes: f64) -> f64 {
    (bytes / LEVEL_BYTES).log(FANOUT).ceil().max(0.0) + 1.0
}

fn measure(bench: &Virtual) -> Result<Parts> {
    let args = StoreArgs {
        items: FILES,
        files: 0,
        per_directory: 1000,
        sync: false,
        depth: 1,
        record_mib: 128,
        cache_mib: 256,
        store: StoreKind::NEW,
        at: None,
    };
    let at = bench.how.at.clone().unwrap_or_else(std::env::temp_dir);
    let folder = || {
        tempfile::Builder::new()
            .prefix("pando-bench-store-")
            .tempdir_in(&at)
            .with_context(|| format!("cannot make a folder in {}", at.display()))
    };
    eprintln!("a store with {FEW} files, and one with {FILES}");
    let (few_at, many_at) = (folder()?, folder()?);
    let mut few = Bench::open(&args, few_at.path(), StoreOptions::default().cache_bytes)?;
    few.fill(0..FEW)?;
    let mut many = Bench::open(&args, many_at.path(), CACHE_BYTES)?;
    many.fill(0..FILES)?;
    let spread = |most: u64| (0..READS).map(move |n| n.wrapping_mul(2_654_435_761) % most);
    let [hit, _] = time(&few, "file", spread(FEW))?;
    let [absent_few, _] = time(&few, "none", spread(FEW))?;
    // The same few directories, again and again: their filters are in memory.
    let near = || (0..READS).map(|n| n % 1000);
    time(&many, "none", near())?;
    let [absent_many, _] = time(&many, "none", near())?;
    let [miss, reader] = time(&many, "file", spread(FILES / 2))?;
    let levels_here = levels(many.table_bytes() as f64);
    Ok(Parts {
        file_bytes: many.table_bytes() as f64 / FILES as f64,
        filter_us: ((absent_many - absent_few) / levels_here).max(0.0),
        miss_us: (miss - hit).max(0.0),
        reader_us: reader,
        levels_here,
    })
}

/// One size of the tree.
struct Size {
    files: f64,
    levels: f64,
    create: f64,
    stat_new: f64,
    stat_old: f64,
}

/// The model: operations per second of all servers.
fn model(parts: &Parts, service: [f64; 2], servers: f64, readers: f64, files: f64) -> Size {
    let levels = levels(files / servers * parts.file_bytes);
    let [create, lookup] = service;
    let rate = |us: f64| servers * 1e6 / us;
    let old = rate(lookup + parts.filter_us * levels + parts.miss_us);
    Size {
        files,
        levels,
        create: rate(create + parts.filter_us * levels),
        stat_new: rate(lookup),
        // Old files are read by so many threads of each server.
        stat_old: old.min(rate(parts.reader_us / readers)),
    }
}

pub fn draw(bench: &Virtual) -> Result<Drawn> {
    let calibration = bench.crowd.calibration(&bench.how)?;
    let parts = measure(bench)?;
    let of = |kind: &str| {
        let us = calibration.service_us.get(kind).copied();
        us.with_context(|| format!("the calibration has no {kind}"))
    };
    let service = [of("create")?, of("lookup")?];
    let readers = StoreKind::NEW.readers() as f64;
    let sizes: Vec<Size> = SIZES
        .iter()
        .map(|files| model(&parts, service, f64::from(bench.most), readers, *files))
        .collect();
    let lines = sizes
        .iter()
        .map(|s| {
            vec![
                ("files", json!(format!("{:.0e}", s.files))),
                ("levels", json!(s.levels)),
                ("create/s", json!(s.create.round())),
                ("stat new/s", json!(s.stat_new.round())),
                ("stat old/s", json!(s.stat_old.round())),
                ("old to new", round(s.stat_old / s.stat_new)),
                ("paper", json!("model; about 3.5M ops/s")),
            ]
        })
        .collect();
    let (first, last) = (&sizes[0], &sizes[sizes.len() - 1]);
    let claims = vec![
        Claim {
            about: "This is a model",
            paper: "100 billion files were made",
            here: format!(
                "levels of {:.0} MB times {FANOUT:.0}; measured with {FILES} files ({:.0} of the model's levels): {:.0} bytes a file, {:.2} us \
                 for the filters of a level, {:.1} us of the event loop and {:.1} us of a reader thread for a block that is not in memory; \
                 compaction is left out",
                LEVEL_BYTES / 1e6,
                parts.levels_here,
                parts.file_bytes,
                parts.filter_us,
                parts.miss_us,
                parts.reader_us
            ),
        },
        Claim {
            about: "create and stat of new files, from 10^9 to 10^11",
            paper: "steady, about 3.5M ops/s",
            here: format!(
                "create {:.2}, stat {:.2} of what it was",
                last.create / first.create,
                last.stat_new / first.stat_new
            ),
        },
        Claim {
            about: "stat of old files at 10^11",
            paper: "about 20 % less than of new files",
            here: format!("{:.0} % less", (1.0 - last.stat_old / last.stat_new) * 100.0),
        },
    ];
    Ok(Drawn {
        bench: "figure",
        figure: Some("infinifs-12"),
        params: bench.params(&calibration),
        lines,
        claims,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ten_times_as_large_as_those_above() {
        let of = [1e6, 256e6, 257e6, 2.56e9, 2.57e9, 25.7e9];
        assert_eq!(of.map(levels), [1.0, 1.0, 2.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn old_files_are_slower_and_never_faster_than_their_readers() {
        let parts = Parts {
            file_bytes: 100.0,
            filter_us: 0.5,
            miss_us: 5.0,
            reader_us: 20.0,
            levels_here: 1.0,
        };
        let size = |readers| model(&parts, [30.0, 15.0], 32.0, readers, 1e11);
        assert_eq!(size(8.0).levels, 5.0);
        assert_eq!(size(8.0).stat_new, 32e6 / 15.0);
        assert_eq!(size(8.0).stat_old, 32e6 / (15.0 + 2.5 + 5.0));
        assert_eq!(size(8.0).create, 32e6 / 32.5);
        assert_eq!(size(0.5).stat_old, 32e6 / 40.0);
    }
}
