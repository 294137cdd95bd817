//! kill -9 of real processes, torn logs, and power cuts.

use crate::common::{Xfs, batch, file_batch, file_prefix, open, prefix, superblock};
use pando_format::Scan;
use pando_store::conformance::block_on;
use pando_store::{Batch, Durability, Level, Lsn, Store, StoreError};
use pando_store_rocks::{RocksOptions, RocksStore, Schema};
use pando_types::Slot;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DIR: &str = "PANDO_TEST_STORE";
const MODE: &str = "PANDO_TEST_MODE";

/// What a victim does.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    Sync,
    Async,
    /// Waits for syncs in async mode.
    AsyncSynced,
    /// Sync, with H102 planted.
    Lying,
    /// Sync, with columns, and logs so small that rows go to files all the time.
    Columns,
    /// The same as `AsyncSynced`.
    ColumnsSynced,
}

impl Mode {
    const ALL: [Mode; 6] = [
        Mode::Sync,
        Mode::Async,
        Mode::AsyncSynced,
        Mode::Lying,
        Mode::Columns,
        Mode::ColumnsSynced,
    ];

    fn columns(self) -> bool {
        matches!(self, Mode::Columns | Mode::ColumnsSynced)
    }

    fn create(self, path: &Path) {
        let schema = match self.columns() {
            true => Schema::Columns,
            false => Schema::Whole,
        };
        RocksStore::create_as(path, superblock(), schema).expect("create");
    }

    fn options(self) -> RocksOptions {
        let options = crate::common::options(self.durability());
        match self.columns() {
            true => RocksOptions {
                wal_bytes: 32 << 10,
                ..options
            },
            false => options,
        }
    }

    fn open(self, path: &Path) -> RocksStore {
        RocksStore::open(path, self.options()).expect("open").0
    }

    fn batch(self, n: u64) -> Batch {
        if self.columns() { file_batch(n) } else { batch(n) }
    }

    fn prefix(self, store: &RocksStore) -> u64 {
        match self.columns() {
            true => file_prefix(store),
            false => prefix(store),
        }
    }

    fn durability(self) -> Durability {
        if matches!(self, Mode::Sync | Mode::Lying | Mode::Columns) {
            Durability::Sync
        } else {
            Durability::Async
        }
    }

    fn level(self) -> Level {
        if matches!(self, Mode::AsyncSynced | Mode::ColumnsSynced) {
            Level::Synced
        } else {
            Level::Durable
        }
    }
}

/// Not a test of its own: the process that the tests kill, or cut the power under. It prints numbers that are
/// durable.
#[test]
fn victim() {
    let (Some(path), Ok(mode)) = (std::env::var_os(DIR), std::env::var(MODE)) else {
        return;
    };
    let mode = Mode::ALL
        .into_iter()
        .find(|m| format!("{m:?}") == mode)
        .expect("mode");
    if mode == Mode::Lying {
        pando_types::plant::set(&["H102"]);
    }
    let store = mode.open(Path::new(&path));
    let mut out = std::io::stdout();
    for n in mode.prefix(&store) + 1.. {
        let lsn = store.apply(&mode.batch(n));
        // Several batches for each wait, so that there is always something at risk.
        let done = match lsn {
            Ok(lsn) if n % 3 == 0 => block_on(store.wait(lsn, mode.level())),
            other => other.map(drop),
        };
        if done.is_err() {
            // H103: for ever, and for everything.
            assert!(matches!(
                store.apply(&mode.batch(n + 1)),
                Err(StoreError::Poisoned(_))
            ));
            let wait = block_on(store.wait(store.applied(), Level::Synced));
            assert!(matches!(wait, Err(StoreError::Poisoned(_))), "{wait:?}");
            assert!(store.check().is_err());
            assert!(block_on(store.get(&crate::common::key(1)).wait()).is_err());
            let all = Scan::Slot(Slot(0));
            assert!(block_on(store.list(&all, 1).wait()).is_err());
            assert!(block_on(store.export(&all, 1).wait()).is_err());
            writeln!(out, "\npoisoned").expect("print");
            return;
        }
        if n % 3 == 0 {
            writeln!(out, "\ndurable {n}").expect("print");
        }
    }
}

/// A running victim. Killed when dropped.
struct Victim {
    process: Child,
    lines: Box<dyn Iterator<Item = String>>,
    durable: u64,
    poisoned: bool,
}

impl Victim {
    fn start(path: &Path, mode: Mode) -> Victim {
        let program = std::env::current_exe().expect("this program");
        let mut process = Command::new(program)
            .args(["crash::victim", "--exact", "--nocapture"])
            .env(DIR, path)
            .env(MODE, format!("{mode:?}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start");
        let lines = BufReader::new(process.stdout.take().expect("stdout"))
            .lines()
            .map_while(Result::ok);
        Victim {
            process,
            lines: Box::new(lines),
            durable: 0,
            poisoned: false,
        }
    }

    /// Reads what it prints, until it said `count` times that something is durable, or until it is dead.
    fn follow(&mut self, mut count: u64) {
        while count > 0 {
            let Some(line) = self.lines.next() else { return };
            if let Some(n) = line.strip_prefix("durable ").and_then(|n| n.parse().ok()) {
                self.durable = n;
                count -= 1;
            }
            self.poisoned |= line == "poisoned";
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn kill_9_loses_nothing() {
    for mode in [Mode::Sync, Mode::Async, Mode::Columns] {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("store");
        mode.create(&path);
        for round in 1..=4 {
            let mut victim = Victim::start(&path, mode);
            victim.follow(30 * round);
            let locked = RocksStore::open(&path, mode.options()).map(drop);
            assert_eq!(locked, Err(StoreError::Locked(path.clone())));
            victim.process.kill().expect("kill");
            pando_testing::killed("a process with a store");
            victim.follow(u64::MAX);
            let durable = victim.durable;
            drop(victim);
            assert!(durable > 0, "the test proves nothing");
            let survived = mode.prefix(&mode.open(&path));
            assert!(
                survived >= durable,
                "{mode:?}: {durable} were durable, {survived} survived kill -9"
            );
        }
    }
}

fn newest_log(path: &Path) -> PathBuf {
    let logs = std::fs::read_dir(path.join("db"))
        .expect("read")
        .filter_map(|e| Some(e.ok()?.path()));
    logs.filter(|p| p.extension().is_some_and(|e| e == "log"))
        .max()
        .expect("a WAL")
}

type Damage = fn(&mut Vec<u8>);

#[test]
fn a_torn_log_opens() {
    let damages: [(&str, Damage); 5] = [
        ("cut", |log| log.truncate(log.len() - 7)),
        ("cut to a third", |log| log.truncate(log.len() / 3)),
        ("garbled", |log| {
            log.iter_mut().rev().take(9).for_each(|b| *b ^= 0x55)
        }),
        ("a page of zeros before the last records", |log| {
            let middle = log.len() / 2;
            log[middle..middle + 512].fill(0);
        }),
        ("garbage behind", |log| {
            log.extend(std::iter::repeat_n(0xA5, 5000))
        }),
    ];
    for (what, damage) in damages {
        let dir = tempfile::tempdir().expect("temporary directory");
        RocksStore::create(dir.path(), superblock()).expect("create");
        let store = open(dir.path(), Durability::Sync);
        for n in 1..=200 {
            store.apply(&batch(n)).expect("apply");
        }
        drop(store);
        let log = newest_log(dir.path());
        let mut bytes = std::fs::read(&log).expect("read");
        damage(&mut bytes);
        std::fs::write(&log, bytes).expect("write");
        let survived = prefix(&open(dir.path(), Durability::Sync));
        let whole = what == "garbage behind";
        assert!(
            (40..=200).contains(&survived) && (survived == 200) == whole,
            "{what}: {survived}"
        );
    }
}

/// Cuts the power under a victim, several times. Err tells what was durable and is lost.
fn cut_power(xfs: &Xfs, mode: Mode) -> Result<(), String> {
    let path = xfs.store();
    mode.create(&path);
    xfs.cut();
    xfs.restart();
    for round in 0..5 {
        let mut victim = Victim::start(&path, mode);
        victim.follow(40 + 100 * round);
        // A power cut stops the processor too. Without this, an fsync that races with the shutdown of the
        // file system may return success for what is then gone (plain write and fdatasync on XFS do so in one
        // run of ten).
        victim.process.kill().expect("kill");
        victim.follow(u64::MAX);
        xfs.cut();
        let durable = victim.durable;
        drop(victim);
        xfs.restart();
        if durable == 0 {
            return Err(format!(
                "round {round}: nothing was durable, the test proves nothing"
            ));
        }
        let store = RocksStore::open(&path, mode.options())
            .map_err(|e| format!("round {round}: the store does not open: {e}"))?
            .0;
        let survived = mode.prefix(&store);
        if survived < durable {
            return Err(format!(
                "round {round}: {durable} were durable, {survived} survived"
            ));
        }
        eprintln!("{mode:?}: {durable} durable, {survived} survived a power cut");
    }
    Ok(())
}

#[test]
fn a_power_cut_loses_nothing_durable() {
    for mode in [Mode::Sync, Mode::AsyncSynced, Mode::Columns, Mode::ColumnsSynced] {
        let Some(xfs) = Xfs::new() else { return };
        assert_eq!(cut_power(&xfs, mode), Ok(()));
    }
}

#[test]
fn a_missing_fsync_is_found() {
    let Some(xfs) = Xfs::new() else { return };
    let lost =
        cut_power(&xfs, Mode::Lying).expect_err("the power cuts did not notice that nothing was synced");
    assert!(lost.contains("survived"), "{lost}");
    eprintln!("found: {lost}");
}

#[test]
fn a_failed_device_poisons() {
    let Some(xfs) = Xfs::new() else { return };
    RocksStore::create(&xfs.store(), superblock()).expect("create");
    for (round, mode) in [Mode::Sync, Mode::Async, Mode::AsyncSynced]
        .into_iter()
        .cycle()
        .take(9)
        .enumerate()
    {
        let mut victim = Victim::start(&xfs.store(), mode);
        victim.follow(30 + round as u64);
        xfs.cut();
        victim.follow(u64::MAX);
        let end = victim.process.wait().expect("wait");
        // Debian's library has its assertions on: a sync that begins between a write's failure and our
        // hearing of it ends the process. That stops it too, and only the background syncs of async mode can
        // do it.
        let asserted = mode == Mode::Async && !end.success();
        assert!(
            asserted || (victim.poisoned && end.success()),
            "{mode:?}: {}, {end}",
            victim.poisoned
        );
        drop(victim);
        xfs.restart();
    }
}

#[test]
fn async_syncs_in_the_background() {
    let dir = tempfile::tempdir().expect("temporary directory");
    RocksStore::create(dir.path(), superblock()).expect("create");
    let mut options = crate::common::options(Durability::Async);
    options.sync_interval = Duration::from_millis(100);
    let store = RocksStore::open(dir.path(), options.clone()).expect("open").0;
    let until = |what: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !what() {
            assert!(start.elapsed() < Duration::from_secs(20), "no sync came");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    store.apply(&batch(1)).expect("apply");
    until(&|| store.safe(Level::Synced) == Lsn(1));
    drop(store);
    options.sync_interval = Duration::from_secs(3600);
    options.sync_bytes = 16 << 10;
    let store = RocksStore::open(dir.path(), options).expect("open").0;
    for n in 2..400 {
        store.apply(&batch(n)).expect("apply");
    }
    until(&|| store.stats().syncs >= 1);
}
