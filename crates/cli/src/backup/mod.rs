//! `pando backup` and `pando restore`: a filesystem at one instant, in a folder, and a new filesystem from
//! it.

mod data;
mod manifest;
mod piece;
mod restore;

pub use restore::{RestoreArgs, restore};

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::fsck::{self, Collector, Finding};
use crate::progress::{Progress, Unit};
use crate::text;
use anyhow::{Context, Result, anyhow, bail};
use data::{BlockFile, copy_blocks};
use manifest::Manifest;
use pando_client::{Cut, CutFailed};
use pando_env::Env;
use pando_env::sync::{Either, first};
use pando_format::{Codec, Key, KeyRange, Mutation, Record, Target};
use pando_net::Waiting;
use pando_server::restored;
use pando_store::{Bundle, RawRecord};
use pando_types::{FileKind, ServerId};
use pando_wire::CutError;
use piece::{PIECE, Writer};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two signs of life: servers forget a cut that nobody reads.
const ALIVE: Duration = Duration::from_secs(3);
/// Signs in a row that may go unanswered: a server that is slow for a moment does not end a backup of hours.
const UNANSWERED: u32 = 4;

/// Copy the filesystem, as it is at one instant, into a folder, while it is in use.
///
/// All names, attributes and files of up to the inline limit are those of that instant. The data of larger
/// files are copied after it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0 done, 1 failed, 3 done, and what is damaged was left out (--skip-damaged).\n\nAll servers must be there. The folder has the keys of all identities in it: it is readable by its owner alone.\n\nExamples:\n  pando backup /backups/monday\n  pando restore --check /backups/monday"
)]
pub struct BackupArgs {
    /// Where to: a folder that is new or empty.
    pub folder: PathBuf,
    /// Leave the data of files above the inline limit out: they are in a bucket or folder that has copies of
    /// its own. Restored, they read as zeros.
    #[arg(long)]
    pub no_data: bool,
    /// Where a table of a server is damaged, leave out what is lost, and list it.
    #[arg(long)]
    pub skip_damaged: bool,
}

/// What is being backed up.
struct Backup {
    conn: Connection,
    cut: Cut,
    heard: Cell<Instant>,
    unanswered: Cell<u32>,
    progress: Progress,
    skip_damaged: bool,
    /// Findings that were left out.
    left_out: RefCell<Vec<Finding>>,
}

impl Backup {
    /// Tells servers that we are there, if it is time.
    async fn alive(&self) -> Result<()> {
        if self.heard.get().elapsed() < ALIVE {
            return Ok(());
        }
        self.heard.set(Instant::now());
        match self.cut.keep().await {
            Ok(()) => self.unanswered.set(0),
            Err(CutFailed::Silent(_)) if self.unanswered.get() < UNANSWERED => {
                self.unanswered.set(self.unanswered.get() + 1);
            }
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    /// Does it, and tells servers all the while that we are there: they forget a cut whose reader waits for
    /// something else.
    async fn meanwhile_alive<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let alive = async {
            loop {
                self.conn.reactor.sleep(ALIVE).await;
                if let Err(e) = self.alive().await {
                    return e;
                }
            }
        };
        match first(Box::pin(work), Box::pin(alive)).await {
            Either::Left(done) => done,
            Either::Right(gone) => Err(gone),
        }
    }
}

/// Exit status of a backup that lacks what was damaged.
const LACKS: u8 = 3;

pub fn backup(args: &Args, options: &BackupArgs) -> Result<ExitCode> {
    let dir = ClusterDir::of(args)?;
    let folder = std::path::absolute(&options.folder)?;
    make_folder(&folder)?;
    let began = Instant::now();
    let patience = Duration::from_secs(args.wait.min(10));
    let conn = Connection::open(&dir, Party::Operator, Waiting::default(), patience)?;
    let deadline = Instant::now() + Duration::from_secs(args.wait);
    let cut = conn.run(take(&conn, deadline))?;
    let mut manifest = Manifest::of_now(conn.file.with_map(&cut.map));
    manifest.cut = format!("{:032x}", cut.id.0);
    manifest.taken = conn.reactor.now().secs;
    let held = cut.held;
    let reactor = conn.reactor.clone();
    let backup = Backup {
        conn,
        cut,
        heard: Cell::new(Instant::now()),
        unanswered: Cell::new(0),
        progress: Progress::new("backing up", Unit::Bytes, 0),
        skip_damaged: options.skip_damaged,
        left_out: RefCell::default(),
    };
    let copying = copy(&backup, &folder, &mut manifest, options.no_data);
    let result = reactor.block_on(backup.meanwhile_alive(copying));
    backup.progress.finish();
    let ended = result.and_then(|()| Ok(backup.conn.reactor.clone().block_on(backup.cut.end())?));
    if ended.is_err() {
        let lost = backup.left_out.take();
        let lost = fsck::texts(&backup.conn, &lost.iter().collect::<Vec<_>>());
        lost.iter().for_each(|line| eprintln!("{line}"));
        if !lost.is_empty() {
            eprintln!("`pando backup --skip-damaged` leaves it out; `pando dump` copies what can be read.");
        }
    }
    ended.with_context(|| {
        format!(
            "there is no backup: remove what is in {}, and say it again",
            folder.display()
        )
    })?;
    let left_out = backup.left_out.take();
    let left_out = fsck::texts(&backup.conn, &left_out.iter().collect::<Vec<_>>());
    manifest.save(&folder)?;
    report(args, &folder, &manifest, held, began.elapsed(), &left_out);
    Ok(match left_out.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(LACKS),
    })
}

/// Records of a server, from the cut; or, where it cannot be read and that is allowed, as they are beside the
/// damage.
async fn read(
    backup: &Backup,
    server: ServerId,
    range: KeyRange,
) -> Result<(Vec<RawRecord>, Option<KeyRange>)> {
    let damaged = match backup.cut.read(server, range.clone()).await {
        Ok((bundle, rest)) => return Ok((bundle.records().context("what a server sent")?, rest)),
        Err(e @ CutFailed::Refused(_, CutError::Damaged)) => e,
        Err(e) => return Err(e.into()),
    };
    let past = Collector::new(backup.conn.client.clone())
        .past_damage(server, range)
        .await;
    let past = past.map_err(|_| anyhow!("server {server} does not answer any more"))?;
    if !backup.skip_damaged {
        *backup.left_out.borrow_mut() = past.lost;
        return Err(damaged.into());
    }
    backup.left_out.borrow_mut().extend(past.lost);
    let raw = |(key, record): (Key, Record)| {
        let key = key.encode();
        let value = record.encode(&key);
        (key, value)
    };
    Ok((past.records.into_iter().map(raw).collect(), past.rest))
}

async fn copy(backup: &Backup, folder: &Path, manifest: &mut Manifest, no_data: bool) -> Result<()> {
    let files = copy_records(backup, folder, manifest).await?;
    match no_data {
        true => Ok(()),
        false => copy_blocks(backup, folder, files, manifest).await,
    }
}

fn make_folder(folder: &Path) -> Result<()> {
    let is_empty = || std::fs::read_dir(folder).map(|mut entries| entries.next().is_none());
    match folder.exists() {
        true if !is_empty().with_context(|| format!("cannot read {}", folder.display()))? => bail!(
            "{} is not empty; a backup needs a folder of its own. Nothing was changed.",
            folder.display()
        ),
        true => Ok(()),
        false => {
            let missing: Vec<&Path> = folder.ancestors().take_while(|p| !p.exists()).collect();
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
            // Its own name, and those of the folders above it, stay too (H104).
            for parent in missing.iter().filter_map(|p| p.parent()) {
                let sync = || std::fs::File::open(parent)?.sync_all();
                sync().with_context(|| format!("cannot sync {}", parent.display()))?;
            }
            Ok(())
        }
    }
}

/// Takes a cut, as soon as servers let us.
async fn take(conn: &Connection, deadline: Instant) -> Result<Cut> {
    // Why it did not come about at first says more than that servers rest after that.
    let mut first = None;
    loop {
        let why = match Cut::take(&conn.client, || {}).await {
            Ok(cut) => return Ok(cut),
            Err(why) => why,
        };
        if !why.passes() || Instant::now() >= deadline {
            let why = match why {
                CutFailed::Refused(_, CutError::Rest(_)) => first.unwrap_or(why),
                why => why,
            };
            let because = match why {
                CutFailed::Silent(_) => conn.because(),
                _ => String::new(),
            };
            bail!("no cut could be taken: {why}{because}");
        }
        tracing::info!("no cut yet: {why}");
        if !matches!(why, CutFailed::Refused(_, CutError::Rest(_))) {
            first = Some(why);
        }
        let wait = match why {
            CutFailed::Refused(_, CutError::Rest(ms)) => Duration::from_millis(u64::from(ms)),
            _ => Duration::from_millis(500),
        };
        conn.reactor.sleep(wait).await;
    }
}

/// All records that are worth it. Returns the files whose data are in blocks.
async fn copy_records(backup: &Backup, folder: &Path, manifest: &mut Manifest) -> Result<Vec<BlockFile>> {
    let mut writer = Writer::new(folder, "records", PIECE);
    let mut files = Vec::new();
    let map = backup.cut.map.clone();
    for server in map.servers.iter().map(|s| s.id) {
        let mut rest = Some(KeyRange {
            start: Vec::new(),
            end: vec![0xFF, 0xFF, 0xFF],
        });
        while let Some(range) = rest {
            let (records, left) = read(backup, server, range).await?;
            rest = left;
            let mut kept = Vec::new();
            for (key, value) in records {
                let (decoded, record) = (Key::decode(&key)?, Record::decode(&key, &value)?);
                if let Record::Superblock(superblock) = &record {
                    manifest.boot = manifest.boot.max(superblock.boot.0);
                }
                if restored(&decoded, server, &map) {
                    in_blocks(&record, &mut |file| files.push(file));
                    kept.push((key, value));
                }
            }
            backup.progress.say(format!("{} records", manifest.records));
            if !kept.is_empty() {
                manifest.records += kept.len() as u64;
                let bundle = Bundle::of(kept);
                backup.progress.add(bundle.0.len() as u64);
                writer.put(&bundle.0)?;
            }
            backup.alive().await?;
        }
    }
    manifest.record_pieces = writer.finish()?;
    // Of a file with several records the newest one counts: the others are what parts left behind.
    files.sort_unstable_by_key(|f| (f.key, std::cmp::Reverse(f.version)));
    files.dedup_by_key(|f| f.key);
    Ok(files)
}

/// The files whose data are in blocks that a record speaks of.
fn in_blocks(record: &Record, each: &mut dyn FnMut(BlockFile)) {
    match record {
        Record::Entry(entry) => {
            if let Target::Inode(inode) = &entry.target
                && let (FileKind::Regular, Some(block_size)) = (inode.kind, inode.layout.block_size())
            {
                each(BlockFile::new(inode, block_size));
            }
        }
        // On its way from one directory to another.
        Record::Prepared(part) => {
            for mutation in &part.mutations {
                if let Mutation::Insert { record, .. } | Mutation::Update { record, .. } = mutation {
                    in_blocks(record, each);
                }
            }
        }
        _ => {}
    }
}

fn report(
    args: &Args,
    folder: &Path,
    manifest: &Manifest,
    held: Duration,
    took: Duration,
    left_out: &[String],
) {
    let pieces = || manifest.record_pieces.iter().chain(&manifest.data_pieces);
    let bytes: u64 = pieces().map(|p| p.bytes).sum();
    if args.json {
        let all = json!({
            "folder": folder.display().to_string(), "filesystem": manifest.cluster.fs, "cut": manifest.cut,
            "taken": manifest.taken, "servers": manifest.cluster.servers.len(), "records": manifest.records,
            "files_in_blocks": manifest.files, "blocks": manifest.blocks, "block_bytes": manifest.block_bytes,
            "newer_files": manifest.newer_files, "newer": manifest.newer, "pieces": pieces().count(), "bytes": bytes,
            "left_out": left_out, "held_ms": held.as_secs_f64() * 1e3, "took_s": took.as_secs_f64(),
        });
        println!("{all:#}");
        return;
    }
    println!(
        "{}: {} records and {} blocks of {} files, {} in all. Changes waited for {:.1} ms.",
        folder.display(),
        manifest.records,
        manifest.blocks,
        manifest.files,
        text::human(bytes),
        held.as_secs_f64() * 1e3
    );
    left_out.iter().for_each(|line| println!("left out: {line}"));
    if manifest.newer_files > 0 {
        println!(
            "{} large files were written to after the cut: their data may be newer than their attributes (manifest.json lists them).",
            manifest.newer_files
        );
    }
}

/// A frame of file data.
type Framed = (
    (pando_types::Ino, pando_types::Generation),
    (u64, pando_format::codec::Blob),
);

fn frame(file: pando_data::FileKey, block: u64, data: Vec<u8>) -> Vec<u8> {
    let framed: Framed = (
        (file.ino, file.generation),
        (block, pando_format::codec::Blob(data)),
    );
    framed.to_bytes()
}

fn unframe(bytes: &[u8]) -> Result<(pando_data::FileKey, u64, Vec<u8>)> {
    let ((ino, generation), (block, data)) = Framed::from_bytes(bytes)?;
    Ok((pando_data::FileKey { ino, generation }, block, data.0))
}
