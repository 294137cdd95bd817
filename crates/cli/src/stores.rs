//! Stores of servers: making one, and never in the place of what a server has written.

use crate::cluster_dir::ClusterDir;
use crate::store_kinds::{StoreKind, StoreOptions};
use crate::{coordination, text};
use anyhow::{Context, Result, bail};
use pando_cluster::ClusterMap;
use pando_server::Limits;
use pando_store::{Store, StoreError};
use pando_types::{FsId, ServerId};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What may be found where a store is to be made.
enum Found {
    /// No store, or one whose making was interrupted so early that it can be gone on with.
    Nothing,
    /// A store that no server was ever started with: there is nothing in it that was not put there when it
    /// was made.
    Unused(FsId),
}

/// Looks at what is there. Fails if it is anybody's.
fn look(path: &Path) -> Result<Found> {
    let kind = StoreKind::at(path);
    if kind.is_torn(path) {
        bail!(
            "{} is a damaged store; move it away if it is of no use",
            path.display()
        );
    }
    match kind.open(path, &StoreOptions::default()) {
        Ok((_, superblock)) if superblock.boot.0 > 0 => bail!(
            "{} is the store of server {} of filesystem {:032x}, which was started {} times",
            path.display(),
            superblock.server,
            superblock.fs.0,
            superblock.boot
        ),
        Ok((_, superblock)) => Ok(Found::Unused(superblock.fs)),
        // Whatever it is, `StoreKind::create` takes nothing away, and refuses a store with a superblock.
        Err(StoreError::Device(_)) => Ok(Found::Nothing),
        Err(e) => Err(e).with_context(|| format!("cannot use {}", path.display())),
    }
}

/// Clears a folder in which a filesystem is to be made. Nothing is touched unless all that is there is from a
/// format that was `interrupted` before there was a filesystem.
pub fn clear(dir: &ClusterDir, interrupted: bool) -> Result<()> {
    let mut unused = Vec::new();
    for id in dir.stores()? {
        let path = dir.store(id);
        match look(&path) {
            Ok(Found::Nothing) => {}
            Ok(Found::Unused(_)) if interrupted => unused.push(path),
            Ok(Found::Unused(fs)) => bail!(
                "{}. Nothing was changed: {} is a store of filesystem {:032x}",
                dir.lost_map(),
                path.display(),
                fs.0
            ),
            Err(e) => bail!("{}. Nothing was changed: {e:#}", dir.lost_map()),
        }
    }
    for path in unused {
        std::fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Makes the store of a server. One of the same filesystem that was never used is replaced.
pub fn make(path: &Path, id: ServerId, map: &ClusterMap, owner: (u32, u32), kind: StoreKind) -> Result<()> {
    make_at(path, id, map, owner, kind).with_context(|| format!("cannot make the store {}", path.display()))
}

fn make_at(path: &Path, id: ServerId, map: &ClusterMap, owner: (u32, u32), kind: StoreKind) -> Result<()> {
    let store = make_empty(path, id, map, kind)?;
    let lsn = pando_server::format_store(&*store, id, map, now(), owner)?;
    coordination::block_on(store.wait(lsn, pando_store::Level::Synced))?;
    Ok(())
}

/// Makes a store with nothing in it but what says whose it is. One of the same filesystem that was never used
/// is replaced.
pub fn make_empty(path: &Path, id: ServerId, map: &ClusterMap, kind: StoreKind) -> Result<Rc<dyn Store>> {
    match look(path)? {
        Found::Nothing => {}
        Found::Unused(fs) if fs == map.fs => std::fs::remove_dir_all(real(path)?)?,
        Found::Unused(fs) => bail!("it was made for filesystem {:032x}; move it away", fs.0),
    }
    kind.create(path, pando_server::superblock(id, map))?;
    let (opened, _) = kind.open(path, &StoreOptions::default())?;
    Ok(opened.store())
}

/// Where a path really leads: links stay as they are.
pub fn real(path: &Path) -> Result<PathBuf> {
    let found = if path.exists() {
        path.canonicalize()
    } else {
        std::path::absolute(path)
    };
    found.with_context(|| format!("cannot use {}", path.display()))
}

/// Whether a server could do anything with what is free where its store or its map is to be. RocksDB ends the
/// process when there is nothing left at all.
pub fn has_room(path: &Path) -> Result<()> {
    let there = path.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    let found = rustix::fs::statvfs(there).with_context(|| format!("cannot look at {}", there.display()))?;
    let total = found.f_blocks.saturating_mul(found.f_frsize);
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let least = Limits::default().reserve(total);
    if free < least {
        bail!(
            "{} are free at {}, and a server takes no changes with less than {}: make room, or say another folder",
            text::human(free),
            there.display(),
            text::human(least)
        );
    }
    Ok(())
}

fn now() -> pando_types::Timestamp {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    pando_types::Timestamp {
        secs: since.as_secs() as i64,
        nanos: since.subsec_nanos(),
    }
}
