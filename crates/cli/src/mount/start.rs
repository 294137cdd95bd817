//! Mounts in the background: starting their processes, the notes of those that `pando up` made, and their
//! end.

use super::serving;
use crate::cluster_dir::ClusterDir;
use crate::process;
use crate::up::START_PATIENCE;
use anyhow::{Context, Result, bail};
use pando_fuse::table;
use serde::{Deserialize, Serialize};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// A mount that `up` made.
#[derive(Serialize, Deserialize, Debug)]
pub struct Mount {
    /// Where.
    pub mountpoint: PathBuf,
    /// The name of its run lock.
    pub lock: String,
}

/// The mounts that `up` made and that are still noted.
pub fn mounts(dir: &ClusterDir) -> Result<Vec<Mount>> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(dir.run()) else {
        return Ok(found);
    };
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("mount-") && name.ends_with(".json") {
            let text = std::fs::read_to_string(&path)?;
            found
                .push(serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?);
        }
    }
    Ok(found)
}

/// Longest name of a mount's lock.
const LOCK_NAME: usize = 200;

/// The run lock of a mount, by where it is.
pub fn lock_name(mountpoint: &Path) -> String {
    // Of each mountpoint another one.
    let escaped = |b: &u8| match *b {
        b'/' => "_".to_owned(),
        b if b.is_ascii_alphanumeric() || b == b'.' => char::from(b).to_string(),
        b => format!("%{b:02x}"),
    };
    let mut name: String = mountpoint.as_os_str().as_bytes().iter().map(escaped).collect();
    // A file's name has 255 bytes at most.
    if name.len() > LOCK_NAME {
        let hash = blake3::hash(mountpoint.as_os_str().as_bytes());
        name = format!("{:.120}-{}", name, &hash.to_hex()[..32]);
    }
    format!("mount-{name}")
}

/// The mount of ours at this place.
pub fn ours(mountpoint: &Path) -> Option<table::Mount> {
    table::find(mountpoint).filter(|m| m.kind == pando_fuse::TYPE)
}

/// Mounts in the background if it is not mounted yet; `noted`: `pando down` ends it. True if it was not
/// mounted.
pub fn mount(dir: &ClusterDir, mountpoint: &Path, options: &[String], noted: bool) -> Result<bool> {
    if mountpoint.to_str().is_none() {
        bail!(
            "{} is not UTF-8; choose another place to mount at",
            mountpoint.display()
        );
    }
    if !serving::is_free(dir, mountpoint)? {
        return Ok(false);
    }
    std::fs::create_dir_all(mountpoint).with_context(|| format!("cannot make {}", mountpoint.display()))?;
    let lock = lock_name(mountpoint);
    let mut arguments = vec!["mount".to_owned(), "--foreground".to_owned()];
    arguments.extend_from_slice(options);
    arguments.push(mountpoint.to_string_lossy().into_owned());
    let (mut child, log) = process::start(dir, &lock, &arguments)?;
    if !appears(dir, mountpoint, &mut child, &log)? {
        return Ok(false);
    }
    if noted {
        let note = serde_json::to_string(&Mount {
            mountpoint: mountpoint.to_path_buf(),
            lock: lock.clone(),
        })?;
        std::fs::write(dir.run().join(format!("{lock}.json")), note)?;
    }
    Ok(true)
}

/// Waits until it is mounted. True: by this child; false: by another process for the same cluster.
fn appears(dir: &ClusterDir, mountpoint: &Path, child: &mut Child, log: &Path) -> Result<bool> {
    let lock = lock_name(mountpoint);
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        let ended = child.try_wait()?.is_some();
        if ours(mountpoint).is_some_and(|m| !m.is_dead())
            && let Some(pid) = process::running(dir, &lock)
        {
            let is_ours = u32::try_from(pid.as_raw_pid()) == Ok(child.id());
            if is_ours || ended {
                return Ok(is_ours);
            }
        }
        if ended {
            bail!(
                "the mount ended at once; its log {} says:\n  {}",
                log.display(),
                process::tail(log)
            );
        }
        if Instant::now() > deadline {
            bail!("the mount does not appear; see {}", log.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Unmounts, and waits for the mount's process, which writes back what is dirty.
pub fn unmount(dir: &ClusterDir, mount: &Mount) -> Result<()> {
    if ours(&mount.mountpoint).is_some() {
        pando_fuse::unmount(&mount.mountpoint, false)?;
    }
    process::wait_end(dir, &mount.lock, serving::END_PATIENCE);
    process::stop(dir, &mount.lock, Duration::from_secs(15))?;
    forget(dir, &mount.lock);
    Ok(())
}

/// Forgets that `up` made a mount.
pub fn forget(dir: &ClusterDir, lock: &str) {
    let _ = std::fs::remove_file(dir.run().join(format!("{lock}.json")));
}
