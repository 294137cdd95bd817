//! Mounting, and its end.

use crate::attach::{self, fusermount, others_allowed, unmount};
use crate::core::{Core, Settings};
use crate::driver::{Cluster, Driver};
use crate::flags::Flags;
use crate::{fs, table};
use fuser::{Config, Session, SessionACL};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::geteuid;
use pando_client::file::DataSync;
use pando_types::{Errno, Ino};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long an unmounted session may take to end. It does not end while another mount namespace, of a
/// container perhaps, has a copy of the mount.
const LINGER: Duration = Duration::from_secs(2);

/// How long a mount that is told to end waits for the kernel to write what programs changed in mappings.
const WRITE_BACK: Duration = Duration::from_secs(10);

/// And so long no write may have come.
const QUIET: Duration = Duration::from_millis(200);

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Where: an existing directory.
    pub mountpoint: PathBuf,
    /// How long the kernel may believe names and attributes: the only staleness between mounts. 0 asks every
    /// time.
    pub timeout: Duration,
    /// When file data is made safe; [`DataSync::BeforePublish`] for durability `sync`.
    pub data_sync: DataSync,
    /// So long after a write what was written is seen by other mounts, at the latest, if the file stays open.
    /// Zero: when it is closed or synced.
    pub publish: Duration,
    /// One thread serves many requests; those that read or write files, or wait for locks, have one each. So
    /// many threads there are.
    pub max_threads: usize,
    /// Whether other users may use the mount. `None`: if the superuser mounts.
    pub allow_other: Option<bool>,
    /// What the kernel refuses: all changes, for example.
    pub flags: Flags,
    /// Locks of programs hold on this mount alone: the kernel keeps them.
    pub local_locks: bool,
    /// The kernel checks permissions with timeout 0, too, for which it asks for a directory before each name
    /// in it.
    pub default_permissions: bool,
    /// What others are shown as the source of the mount. `None`: the filesystem's name.
    pub source: Option<String>,
}

impl MountOptions {
    /// The defaults, for this directory.
    pub fn new(mountpoint: impl Into<PathBuf>) -> MountOptions {
        MountOptions {
            mountpoint: mountpoint.into(),
            timeout: Duration::from_secs(1),
            data_sync: DataSync::BeforePublish,
            publish: Duration::from_secs(5),
            max_threads: 32,
            allow_other: None,
            flags: Flags::default(),
            local_locks: false,
            default_permissions: false,
            source: None,
        }
    }
}

/// Why a filesystem is not mounted, and what to do.
#[derive(Debug, Error)]
pub enum MountError {
    /// The kernel offers no FUSE.
    #[error(
        "/dev/fuse is not there: load it with `modprobe fuse`, or start the container with `--device /dev/fuse \
         --cap-add SYS_ADMIN`; without it, use `pando ls`, `pando get`, `pando put` and the library"
    )]
    NoFuse,
    /// It may not be used.
    #[error(
        "/dev/fuse may not be opened ({0}): mount as root, or have root do `chmod 666 /dev/fuse`, as is usual"
    )]
    FuseDenied(io::Error),
    /// The helper that lets users mount is missing.
    #[error("fusermount3 is not there, and only root can mount without it: install the package `fuse3`")]
    NoFusermount,
    /// Users may not open their mounts to others.
    #[error("allow_other is for root, unless /etc/fuse.conf says `user_allow_other`")]
    AllowOther,
    /// Nothing to mount on.
    #[error("{0} does not exist: create the directory first")]
    NoMountpoint(PathBuf),
    /// Not a directory.
    #[error("{0} is not a directory")]
    NotADirectory(PathBuf),
    /// The process behind an earlier mount is gone.
    #[error("{0} is a mount whose process has ended: `pando umount {0}` first")]
    Dead(PathBuf),
    /// A FUSE filesystem is mounted there.
    #[error("something is mounted at {0} already: `pando umount {0}` first, or mount elsewhere")]
    AlreadyMounted(PathBuf),
    /// The directory cannot be looked at.
    #[error("{0}: {1}")]
    Mountpoint(PathBuf, io::Error),
    /// No server, or not this filesystem.
    #[error("the filesystem cannot be reached: {0}")]
    Cluster(String),
    /// Servers answer, but there is nothing to show.
    #[error("{0}")]
    NoRoot(String),
    /// The kernel or fusermount3 refused.
    #[error("mounting at {0} failed: {1}")]
    Failed(PathBuf, io::Error),
    /// Somebody works in it.
    #[error("{0} is in use: close what is open there (`fuser -vm {0}` shows it), or unmount lazily")]
    Busy(PathBuf),
    /// It is to be read-only, and somebody writes.
    #[error("{0} has files open for writing: close them first (`fuser -vm {0}` shows who has them)")]
    OpenForWriting(PathBuf),
    /// Only root may.
    #[error("{0} can be remounted by root only")]
    RemountDenied(PathBuf),
    /// Not mounted.
    #[error("nothing is mounted at {0}")]
    NotMounted(PathBuf),
}

/// A mounted filesystem. Dropped, it is unmounted, lazily if it is in use.
pub struct Mounted {
    mountpoint: PathBuf,
    session: Option<JoinHandle<io::Result<()>>>,
    publish: Arc<dyn Fn() + Send + Sync>,
    /// Writes that came so far.
    written: Arc<AtomicU64>,
}

/// Why the directory that would be a mount's root cannot be had, in words.
pub fn no_root(why: Errno) -> String {
    match why {
        Errno::NotFound | Errno::Stale => {
            "the directory that is this identity's root (`pando auth add --subtree`) was removed: \
             `pando auth list` shows it, and `pando auth add` makes an identity for another"
                .into()
        }
        Errno::Access => {
            "the servers refuse this identity: it was revoked, or may not act for its own user".into()
        }
        why => format!("the root cannot be had: {why}"),
    }
}

/// Mounts. Returns when the filesystem can be used.
pub fn mount<C: Cluster>(options: &MountOptions, cluster: C) -> Result<Mounted, MountError> {
    let mountpoint = check(options)?;
    let cluster = Arc::new(cluster);
    // What cannot be reached is said here and now, not by the first `ls`.
    let driver = cluster.connect().map_err(MountError::Cluster)?;
    let root = driver.root().map_err(|e| match e {
        Errno::Unreachable => MountError::Cluster(e.to_string()),
        e => MountError::NoRoot(no_root(e)),
    })?;
    let settings = Settings {
        timeout: options.timeout,
        data_sync: options.data_sync,
        publish: options.publish,
        local_locks: options.local_locks,
        atimes: options.flags.follows_reads(),
        // Names that the kernel believes it walks without asking. Where it asks for each, as whoever asks,
        // the servers refuse.
        kernel_checks: !options.timeout.is_zero() || options.default_permissions,
    };
    let name = options.source.clone().unwrap_or_else(|| cluster.name());
    let failed = |e| MountError::Failed(mountpoint.clone(), e);
    let kernel_checks = settings.kernel_checks;
    let core = Arc::new(Core::new(cluster, settings, &root).map_err(failed)?);
    core.getattr(&driver, Ino::ROOT)
        .map_err(|e| MountError::NoRoot(no_root(e)))?;
    driver.close();
    drop(driver);
    let config = config(options);
    let others = config.acl == SessionACL::All;
    let alone = alone(&mountpoint);
    unmounted(&mountpoint)?;
    let device = attach::attach(&mountpoint, &name, others, kernel_checks, options.flags)?;
    drop(alone);
    let session = match Session::from_fd(fs::Mounted(core.clone()), device, config.acl, config) {
        Ok(session) => session,
        Err(e) => {
            let _ = unmount(&mountpoint, true);
            return Err(failed(e));
        }
    };
    let _ = core.notifier.set(session.notifier());
    let _ = core.turns.set(crate::turns::MountTurns::new(&core));
    crate::accessed::start(&core).map_err(failed)?;
    crate::publisher::start(&core).map_err(failed)?;
    crate::watch::start(&core).map_err(failed)?;
    crate::again::start(&core).map_err(failed)?;
    let thread = std::thread::Builder::new()
        .name("pando-mount".into())
        .spawn(move || session.run())
        .map_err(failed)?;
    let written = core.written.clone();
    let publish = Arc::new(move || {
        let _ = core.with(|d| {
            core.end_writes(d);
            Ok(())
        });
    });
    Ok(Mounted {
        mountpoint,
        session: Some(thread),
        publish,
        written,
    })
}

/// Mounts, and returns when the filesystem was unmounted: by `pando umount`, `umount`, or SIGTERM, SIGINT or
/// SIGHUP to this process. `ready` is called when it can be used.
///
/// REQUIRES: no other thread runs yet that would take these signals.
pub fn serve<C: Cluster>(
    options: &MountOptions,
    cluster: C,
    ready: impl FnOnce(&Path),
) -> Result<(), MountError> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    // Blocked before any thread starts, all inherit that, and one waits for them.
    let failed = |e: nix::Error| MountError::Failed(options.mountpoint.clone(), e.into());
    signals.thread_block().map_err(failed)?;
    let mut mounted = mount(options, cluster)?;
    ready(&mounted.mountpoint);
    let failed = |e| MountError::Failed(options.mountpoint.clone(), e);
    let (ended, end) = mpsc::channel();
    let by_signal = ended.clone();
    let (mountpoint, publish) = (mounted.mountpoint.clone(), mounted.publish.clone());
    let written = mounted.written.clone();
    let wait = move || {
        let Ok(signal) = signals.wait() else { return };
        tracing::info!(%signal, "unmounting");
        write_back(&mountpoint, &written);
        if let Err(MountError::Busy(_)) = unmount(&mountpoint, false) {
            // What is open is published, and cut off when this process ends.
            tracing::warn!("the mount is in use and is taken away from its users");
            let _ = unmount(&mountpoint, true);
        } else {
            std::thread::sleep(LINGER);
        }
        publish();
        let _ = by_signal.send(Ok(()));
    };
    std::thread::Builder::new()
        .name("pando-signals".into())
        .spawn(wait)
        .map_err(failed)?;
    if let Some(session) = mounted.session.take() {
        let watch = move || drop(ended.send(join(session)));
        std::thread::Builder::new()
            .name("pando-session".into())
            .spawn(watch)
            .map_err(failed)?;
    }
    end.recv().unwrap_or(Ok(())).map_err(failed)
}

impl Mounted {
    /// Where.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Returns when it was unmounted by somebody.
    pub fn wait(mut self) -> Result<(), MountError> {
        self.finish()
    }

    /// Unmounts it and waits for the end, but not for containers that have a copy of the mount. `Busy` if
    /// somebody works in it: then it is still mounted.
    pub fn unmount(&mut self) -> Result<(), MountError> {
        unmount(&self.mountpoint, false)?;
        let until = Instant::now() + LINGER;
        while self.session.as_ref().is_some_and(|s| !s.is_finished()) {
            if Instant::now() >= until {
                (self.publish)();
                self.session = None;
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.finish()
    }

    fn finish(&mut self) -> Result<(), MountError> {
        match self.session.take() {
            Some(session) => join(session).map_err(|e| MountError::Failed(self.mountpoint.clone(), e)),
            None => Ok(()),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(session) = &self.session
            && !session.is_finished()
            && matches!(unmount(&self.mountpoint, false), Err(MountError::Busy(_)))
        {
            (self.publish)();
            let _ = unmount(&self.mountpoint, true);
        }
    }
}

/// Has the kernel hand over what programs changed in mappings; gives up after a while, for servers may be
/// away.
fn write_back(mountpoint: &Path, written: &AtomicU64) {
    let at = mountpoint.to_owned();
    let (done, wait) = mpsc::channel();
    let sync = move || {
        let synced = std::fs::File::open(&at).and_then(|dir| Ok(nix::unistd::syncfs(&dir)?));
        if let Err(e) = synced {
            tracing::warn!("changes in mappings may be lost: {e}");
        }
        let _ = done.send(());
    };
    let started = std::thread::Builder::new()
        .name("pando-syncfs".into())
        .spawn(sync);
    if started.is_ok() && wait.recv_timeout(WRITE_BACK).is_err() {
        tracing::warn!("changes in mappings may be lost: writing them takes too long");
    }
    // Newer kernels return from syncfs before a FUSE mount has had all writes.
    let until = Instant::now() + WRITE_BACK;
    let mut before = None;
    while Instant::now() < until {
        let now = written.load(Ordering::Relaxed);
        if before.replace(now) == Some(now) {
            return;
        }
        std::thread::sleep(QUIET);
    }
}

fn join(session: JoinHandle<io::Result<()>>) -> io::Result<()> {
    match session.join() {
        Ok(result) => result,
        Err(_) => Err(io::Error::other("a thread of the mount has panicked")),
    }
}

fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    let allow_other = options.allow_other.unwrap_or(geteuid().is_root());
    config.acl = if allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    config.n_threads = Some(1);
    config.max_threads = options.max_threads.max(2);
    // Each thread gets a descriptor of its own, so that they do not queue for one.
    config.clone_fd = true;
    config
}

/// Finds out beforehand what would go wrong, so that it can be said with advice. Returns the directory's
/// whole path.
fn check(options: &MountOptions) -> Result<PathBuf, MountError> {
    let given = options.mountpoint.clone();
    match std::fs::metadata(&given) {
        Ok(m) if m.is_dir() => {}
        Ok(_) => return Err(MountError::NotADirectory(given)),
        Err(e) if e.raw_os_error() == Some(nix::libc::ENOTCONN) => return Err(MountError::Dead(given)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(MountError::NoMountpoint(given)),
        Err(e) => return Err(MountError::Mountpoint(given, e)),
    }
    let mountpoint = given
        .canonicalize()
        .map_err(|e| MountError::Mountpoint(given, e))?;
    unmounted(&mountpoint)?;
    match std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
    {
        Ok(_) => {}
        // fusermount3 opens it as the user, too.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Err(MountError::FuseDenied(e)),
        // ENODEV: the node is there and the module is not.
        Err(_) => return Err(MountError::NoFuse),
    }
    if !geteuid().is_root() {
        if fusermount().is_none() {
            return Err(MountError::NoFusermount);
        }
        if options.allow_other == Some(true) && !others_allowed() {
            return Err(MountError::AllowOther);
        }
    }
    Ok(mountpoint)
}

/// Fails if a FUSE filesystem is mounted there.
fn unmounted(mountpoint: &Path) -> Result<(), MountError> {
    match table::find(mountpoint) {
        Some(mount) if mount.is_dead() => Err(MountError::Dead(mountpoint.into())),
        Some(mount) if mount.kind.starts_with("fuse") => Err(MountError::AlreadyMounted(mountpoint.into())),
        _ => Ok(()),
    }
}

/// While this is held nobody else who asks for it mounts on the directory, of whichever filesystem. `None`:
/// the directory cannot be locked.
fn alone(mountpoint: &Path) -> Option<std::fs::File> {
    let directory = std::fs::File::open(mountpoint).ok()?;
    rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive).ok()?;
    Some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_mounted_on() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(matches!(
            check(&MountOptions::new(&file)),
            Err(MountError::NotADirectory(_))
        ));
        assert!(matches!(
            check(&MountOptions::new(tmp.path().join("none"))),
            Err(MountError::NoMountpoint(_))
        ));
        assert!(matches!(
            unmount(tmp.path(), false),
            Err(MountError::NotMounted(_) | MountError::Failed(..))
        ));
    }
}
