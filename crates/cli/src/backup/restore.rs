//! `pando restore`: a new filesystem from a backup. Everything is checked before anything is made.

use super::manifest::Manifest;
use super::{piece, unframe};
use crate::addresses::{on_loopback, server_at};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::progress::{Progress, Unit};
use crate::store_kinds::StoreKind;
use crate::{coordination, format, stores, text};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use pando_blocks::Store as BlockStore;
use pando_cluster::{ClusterFile, ClusterMap, PlanText, Profile};
use pando_coord::Place;
use pando_data::{Blocks, FileKey};
use pando_server::{Raise, Restore, Restored};
use pando_store::{Bundle, Store};
use pando_types::{BootEpoch, ServerId};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

/// Blocks of a file between two syncs.
const UNSYNCED: usize = 64;

/// Make a new filesystem from a backup, with servers of its own.
///
/// It goes into the cluster's folder (--dir), which must not have one. It has another identity and another
/// secret: clients, mounts and handles of the old filesystem are refused by it. Start it with `pando up`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando restore --check /backups/monday\n  pando --dir /srv/pando restore /backups/monday --servers 8\n  pando --dir /srv/pando up"
)]
pub struct RestoreArgs {
    /// The backup.
    pub folder: PathBuf,
    /// Only find out whether the backup is whole.
    #[arg(long)]
    pub check: bool,
    /// Servers on this machine, on free ports of the loopback address. [default: as many as there were]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub servers: Option<u16>,
    /// `HOST:PORT` of each server instead, one option each; its metrics are at PORT+1000.
    #[arg(long = "server", value_name = "HOST:PORT", conflicts_with = "servers")]
    pub addresses: Vec<String>,
    /// Where file data above the inline limit go: a new folder, or s3://BUCKET/PREFIX. [default: `blocks` in
    /// the cluster's folder]
    #[arg(long, value_name = "DIR|URL")]
    pub blocks: Option<String>,
    /// Coordination, which knows the servers: `dir`, or ZooKeeper, `zk://HOST:PORT,HOST:PORT[/NODE]`.
    #[arg(long, value_name = "dir|zk://...", default_value = "dir")]
    pub coord: Place,
    /// Kind of the servers' stores. [default: as when the filesystem was made]
    #[arg(long, alias = "store-kind", value_enum, value_name = "KIND")]
    pub store: Option<StoreKind>,
}

pub fn restore(args: &Args, options: &RestoreArgs) -> Result<()> {
    let began = Instant::now();
    let folder = std::path::absolute(&options.folder)?;
    let manifest = Manifest::load(&folder)?;
    if options.check {
        check(&folder, &manifest)?;
        if args.json {
            println!(
                "{}",
                json!({ "whole": true, "records": manifest.records, "blocks": manifest.blocks })
            );
        } else {
            println!(
                "{} is whole: {} records and {} blocks of filesystem {}, as of {}.",
                folder.display(),
                manifest.records,
                manifest.blocks,
                manifest.cluster.fs,
                text::time(
                    pando_types::Timestamp {
                        secs: manifest.taken,
                        nanos: 0
                    },
                    false
                )
            );
        }
        return Ok(());
    }
    let dir = ClusterDir::of(args)?;
    if dir.exists() {
        bail!(
            "{} holds a filesystem already; nothing was changed. Say another --dir.",
            dir.path.display()
        );
    }
    check(&folder, &manifest)?;
    let file = describe(options, &manifest)?;
    let mut restored = Restored::default();
    let file = format::make_as(&dir, file, |map| {
        restore_data(&folder, &manifest, map)?;
        let (counts, raise) = restore_records(&dir, options, &manifest, map)?;
        restored = counts;
        let boot = BootEpoch(manifest.boot);
        Ok(move || Ok(coordination::block_on(raise.boots(boot))?))
    })?;
    report(args, &dir, &file, &restored, &manifest, began);
    Ok(())
}

/// Reads everything once.
fn check(folder: &Path, manifest: &Manifest) -> Result<()> {
    let pieces = || manifest.record_pieces.iter().chain(&manifest.data_pieces);
    let progress = Progress::new("checking", Unit::Bytes, pieces().map(|p| p.bytes).sum());
    for piece in pieces() {
        piece::read(folder, piece, |frame| {
            progress.add(frame.len() as u64);
            Ok(())
        })?;
    }
    progress.finish();
    Ok(())
}

/// The kind of its stores.
fn kind(options: &RestoreArgs, manifest: &Manifest) -> StoreKind {
    let was = || StoreKind::from_str(&manifest.cluster.profile.store, false);
    options.store.or_else(|| was().ok()).unwrap_or(StoreKind::NEW)
}

/// The new cluster: what was chosen when the old one was made stays; all that tells one time of it from
/// another is higher.
fn describe(options: &RestoreArgs, manifest: &Manifest) -> Result<ClusterFile> {
    let was = &manifest.cluster;
    let auth = was.auth_mode()?;
    let servers = if options.addresses.is_empty() {
        let count = options.servers.unwrap_or(was.servers.len() as u16);
        on_loopback(0, count, auth)?
    } else {
        let at = |(id, address): (usize, &String)| server_at(u16::try_from(id)?, address);
        options
            .addresses
            .iter()
            .enumerate()
            .map(at)
            .collect::<Result<_>>()?
    };
    let first = servers.first().context("a cluster has at least one server")?.id;
    let kind = kind(options, manifest);
    Ok(ClusterFile {
        profile: Profile {
            store: kind.word().into(),
            ..was.profile.clone()
        },
        fs: format::new_fs()?,
        epoch: was.epoch + 1,
        term: was.term.max(was.epoch) + 1,
        slots: format::runs(&servers),
        coordinator: first,
        keeper: Some(first),
        servers,
        blocks: format::blocks_at(options.blocks.as_deref()),
        coord: options.coord.to_string(),
        plan: PlanText::default(),
        ..was.clone()
    })
}

fn restore_records(
    dir: &ClusterDir,
    options: &RestoreArgs,
    manifest: &Manifest,
    map: &ClusterMap,
) -> Result<(Restored, Raise)> {
    let folder = std::path::absolute(&options.folder)?;
    let kind = kind(options, manifest);
    let mut made: BTreeMap<ServerId, Rc<dyn Store>> = BTreeMap::new();
    for server in &map.servers {
        let store = stores::make_empty(&dir.store(server.id.0), server.id, map, kind)?;
        made.insert(server.id, store);
    }
    let mut restore = Restore::new(map.clone(), made);
    let progress = Progress::new("restoring records", Unit::Items, manifest.records);
    for piece in &manifest.record_pieces {
        piece::read(&folder, piece, |frame| {
            let records = Bundle(frame).decode()?;
            progress.add(records.len() as u64);
            for (key, record) in records {
                restore.add(key, record)?;
            }
            Ok(())
        })?;
    }
    let restored = coordination::block_on(restore.rest())?;
    progress.finish();
    Ok(restored)
}

fn restore_data(folder: &Path, manifest: &Manifest, map: &ClusterMap) -> Result<()> {
    let store = BlockStore::open(&map.blocks, map.block_size, map.fs)?;
    let progress = Progress::new("restoring data", Unit::Bytes, manifest.block_bytes);
    let mut unsynced: (Option<FileKey>, Vec<u64>) = (None, Vec::new());
    let sync = |(file, blocks): (Option<FileKey>, Vec<u64>)| match file {
        Some(file) if !blocks.is_empty() => pando_data::wait(store.sync(file, blocks)),
        _ => Ok(()),
    };
    for piece in &manifest.data_pieces {
        piece::read(folder, piece, |frame| {
            let (file, block, data) = unframe(&frame)?;
            progress.add(data.len() as u64);
            if unsynced.0 != Some(file) || unsynced.1.len() >= UNSYNCED {
                sync(std::mem::replace(&mut unsynced, (Some(file), Vec::new())))?;
            }
            pando_data::wait(store.write(file, block, 0, data))?;
            unsynced.1.push(block);
            Ok(())
        })?;
    }
    sync(unsynced)?;
    progress.finish();
    Ok(())
}

fn report(
    args: &Args,
    dir: &ClusterDir,
    file: &ClusterFile,
    restored: &Restored,
    manifest: &Manifest,
    began: Instant,
) {
    if args.json {
        let all = json!({
            "dir": dir.path.display().to_string(), "filesystem": file.fs, "of": manifest.cluster.fs, "taken": manifest.taken,
            "servers": file.servers.len(), "records": restored.records, "directories": restored.dirs, "names": restored.names,
            "blocks": manifest.blocks, "transactions_finished": restored.finished, "transactions_dropped": restored.dropped,
            "contents_delivered": restored.owed, "took_s": began.elapsed().as_secs_f64(),
        });
        println!("{all:#}");
        return;
    }
    println!(
        "Restored {} directories, {} names and {} blocks as filesystem {} with {} servers in {}.",
        restored.dirs,
        restored.names,
        manifest.blocks,
        file.fs,
        file.servers.len(),
        dir.path.display()
    );
    println!("Start it with `pando up --dir {}`.", dir.path.display());
}
