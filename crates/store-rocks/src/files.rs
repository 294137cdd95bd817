//! What RocksDB leaves to us in a store's directory: the lock, and the entries of new directories.

use pando_store::{Space, StoreError};
use rustix::fs::{FlockOperation, flock, statvfs};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A store is for the user of its server alone: keys of identities stand in it, and files and names that
/// others may not see.
pub(crate) fn make_private(store: &Path) -> Result<(), StoreError> {
    let mode = fs::metadata(store)
        .map_err(|e| failed("look at", store, &e))?
        .permissions()
        .mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(store, fs::Permissions::from_mode(0o700))
        .map_err(|e| failed("close to other users", store, &e))
}

/// Keeps everybody else out of a store, this process included, until it is dropped or the process ends.
pub(crate) struct LockFile {
    file: File,
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that another thread forks just now has it open until it
        // execs.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl LockFile {
    pub(crate) fn take(store: &Path) -> Result<LockFile, StoreError> {
        let path = store.join("LOCK");
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| failed("open", &path, &e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(LockFile { file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::Locked(store.to_path_buf())),
            Err(e) => Err(failed("lock", &path, &e.into())),
        }
    }
}

/// Creates a directory and its missing parents.
///
/// Returns those whose entries must be synced once the store in it is complete: the fsync of a file does not
/// make the path to it durable (H104).
pub(crate) fn create_dirs(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|p| !p.as_os_str().is_empty() && !p.exists())
        .collect();
    fs::create_dir_all(path).map_err(|e| failed("create", path, &e))?;
    let parent = |p: &&Path| match p.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    Ok(missing.iter().map(parent).collect())
}

pub(crate) fn sync_dir(path: &Path) -> Result<(), StoreError> {
    File::open(path)
        .and_then(|d| d.sync_all())
        .map_err(|e| failed("sync", path, &e))
}

pub(crate) fn failed(what: &str, path: &Path, e: &std::io::Error) -> StoreError {
    StoreError::Device(format!("cannot {what} {}: {e}", path.display()))
}

/// Free space of the file system. If it cannot be asked there is none: growth stops, removal goes on.
pub(crate) fn space(path: &Path) -> Space {
    match statvfs(path) {
        Ok(s) => Space {
            total: s.f_blocks.saturating_mul(s.f_frsize),
            available: s.f_bavail.saturating_mul(s.f_frsize),
            device: device(path),
        },
        Err(_) => Space {
            total: 0,
            available: 0,
            device: 0,
        },
    }
}

/// A number that stores on one device of one machine share: of the machine's boot and the device's number
/// there.
fn device(path: &Path) -> u64 {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = boot.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    match (u64::from_str_radix(&digits, 16), rustix::fs::stat(path)) {
        // Spread, so that the low numbers of devices do not meet those of other boots.
        (Ok(boot), Ok(of)) => (boot ^ of.st_dev.wrapping_mul(0x9E37_79B9_7F4A_7C15)).max(1),
        _ => 0,
    }
}
