//! File data of a backup: the blocks of all files in it. They are copied after the cut; servers delete none
//! meanwhile.

use super::manifest::Manifest;
use super::piece::{PIECE, Writer};
use super::{Backup, frame};
use crate::fsck::{Collector, Unread};
use anyhow::{Context, Result, bail};
use pando_data::{Blocks, FileKey};
use pando_env::LocalFuture;
use pando_env::sync::join_all;
use pando_format::{InodeRecord, KeyRange, Record, Target};
use std::collections::BTreeMap;
use std::path::Path;

/// Blocks that are read at one time.
const AT_ONCE: usize = 4;
/// Block numbers that are asked for at one time.
const ASKED: u64 = 1 << 16;
/// Files that the manifest lists by number.
const LISTED: usize = 1000;

/// A file whose data are in blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockFile {
    /// Which.
    pub key: FileKey,
    blocks: u64,
    block_size: u32,
    /// Of its content, at the cut.
    pub version: u64,
}

impl BlockFile {
    /// Of this record.
    pub fn new(inode: &InodeRecord, block_size: u32) -> BlockFile {
        BlockFile {
            key: FileKey {
                ino: inode.ino,
                generation: inode.generation,
            },
            blocks: inode.size.div_ceil(u64::from(block_size.max(1))),
            block_size,
            version: inode.version,
        }
    }
}

/// Copies what there is of the blocks of these files, and finds out which files were changed meanwhile.
pub async fn copy_blocks(
    backup: &Backup,
    folder: &Path,
    files: Vec<BlockFile>,
    manifest: &mut Manifest,
) -> Result<()> {
    manifest.files = files.len() as u64;
    let mut writer = Writer::new(folder, "data", PIECE);
    for file in &files {
        let mut from = 0;
        while from < file.blocks {
            // Most of a large file may be a hole. Asked when its turn comes, and after the cut: blocks that
            // are filled meanwhile come along, and none of the cut goes.
            let to = (from + ASKED).min(file.blocks);
            let present = backup.conn.blocks.present(file.key, from, to).await;
            let present =
                present.with_context(|| format!("cannot list the blocks of inode {}", file.key.ino))?;
            for some in present.chunks(AT_ONCE) {
                let reading = some.iter().map(|n| {
                    let read: LocalFuture<_> =
                        Box::pin(backup.conn.blocks.read(file.key, *n, 0, file.block_size));
                    read
                });
                let read = join_all(reading.collect()).await;
                for (n, data) in some.iter().zip(read) {
                    let data = data.with_context(|| format!("block {n} of inode {}", file.key.ino))?;
                    if data.is_empty() {
                        continue;
                    }
                    manifest.blocks += 1;
                    manifest.block_bytes += data.len() as u64;
                    backup.progress.add(data.len() as u64);
                    writer.put(&frame(file.key, *n, data))?;
                }
                backup.alive().await?;
            }
            from = to;
            backup.alive().await?;
        }
    }
    manifest.data_pieces = writer.finish()?;
    let newer = newer_files(backup, &files).await?;
    manifest.newer_files = newer.len() as u64;
    manifest.newer = newer.into_iter().take(LISTED).map(|f| f.ino.0).collect();
    Ok(())
}

/// Those of these files whose content is another one now.
pub async fn newer_files(backup: &Backup, files: &[BlockFile]) -> Result<Vec<FileKey>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let versions: BTreeMap<FileKey, u64> = files.iter().map(|f| (f.key, f.version)).collect();
    let mut newer = Vec::new();
    for server in backup.cut.map.servers.clone() {
        let all = KeyRange {
            start: vec![0],
            end: vec![0xFF, 0xFF, 0xFF],
        };
        let looked = Collector::new(backup.conn.client.clone())
            .stream(
                server.id,
                all,
                &mut |_, record| {
                    if let Record::Entry(entry) = &record
                        && let Target::Inode(inode) = &entry.target
                    {
                        let key = FileKey {
                            ino: inode.ino,
                            generation: inode.generation,
                        };
                        // What a part left behind may be older.
                        if versions.get(&key).is_some_and(|v| *v < inode.version) {
                            newer.push(key);
                        }
                    }
                },
                &mut |_| {},
            )
            .await;
        match looked {
            Ok(()) | Err(Unread::Damaged) => {}
            Err(Unread::Away(id)) => bail!("server {id} does not answer any more"),
        }
        backup.alive().await?;
    }
    newer.sort_unstable();
    newer.dedup();
    Ok(newer)
}
