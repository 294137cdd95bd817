//! Attaching to a directory and detaching from it, as root or through fusermount3.
//!
//! The fuser library could mount too. But when its session ends it unmounts by path once more, which takes
//! away whatever was mounted there since; and the type of filesystem it shows to others is plain `fuse`.

use crate::flags::Flags;
use crate::mount::MountError;
use nix::mount::{MntFlags, umount2};
use nix::unistd::{getegid, geteuid};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What others see as the type of filesystem.
pub const TYPE: &str = "fuse.pando";

/// Mounts at a directory and returns the connection to the kernel.
pub(crate) fn attach(
    mountpoint: &Path,
    source: &str,
    allow_other: bool,
    kernel_checks: bool,
    flags: Flags,
) -> Result<OwnedFd, MountError> {
    let failed = |e| MountError::Failed(mountpoint.into(), e);
    let mut options = String::new();
    if kernel_checks {
        options.push_str(",default_permissions");
    }
    if allow_other {
        options.push_str(",allow_other");
    }
    if !geteuid().is_root() {
        return by_fusermount3(mountpoint, source, &options, flags).map_err(failed);
    }
    let device = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(failed)?;
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}{options}",
        device.as_raw_fd(),
        geteuid(),
        getegid()
    );
    match nix::mount::mount(
        Some(source),
        mountpoint,
        Some(TYPE),
        flags.bits(),
        Some(data.as_str()),
    ) {
        Ok(()) => Ok(device.into()),
        // Root of a container without the right to mount: the helper may have it.
        Err(nix::Error::EPERM) if fusermount().is_some() => {
            by_fusermount3(mountpoint, source, &options, flags).map_err(failed)
        }
        Err(e) => Err(failed(e.into())),
    }
}

/// fusermount3 mounts, and sends the connection over a socket it is given the number of.
fn by_fusermount3(mountpoint: &Path, source: &str, more: &str, flags: Flags) -> io::Result<OwnedFd> {
    // The helper's end stays open across exec.
    let (ours, its) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )?;
    // A comma in the name would end the option.
    let name = source.replace('\\', "\\\\").replace(',', "\\,");
    let mut options = format!("fsname={name},subtype=pando{more}");
    let words = flags.for_fusermount3();
    if !words.is_empty() {
        options.push(',');
        options.push_str(&words);
    }
    let mut helper = Command::new(fusermount().unwrap_or_else(|| "fusermount3".into()));
    helper
        .args(["-o", &options, "--"])
        .arg(mountpoint)
        .env("_FUSE_COMMFD", its.as_raw_fd().to_string());
    let child = helper.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    drop(its);
    let device = receive(&ours);
    drop(ours);
    let output = child.wait_with_output()?;
    match device {
        Some(device) => Ok(device),
        None => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).trim().to_string(),
        )),
    }
}

fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    // At its end, the helper has failed and says why on its standard error.
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// Unmounts what is mounted at a directory, from any process. `lazy`: it disappears now, and ends with its
/// last user.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), MountError> {
    let flags = if lazy {
        MntFlags::MNT_DETACH
    } else {
        MntFlags::empty()
    };
    match umount2(mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(nix::Error::EBUSY) => Err(MountError::Busy(mountpoint.into())),
        Err(nix::Error::EINVAL | nix::Error::ENOENT) => Err(MountError::NotMounted(mountpoint.into())),
        Err(nix::Error::EPERM) => by_fusermount(mountpoint, lazy),
        Err(e) => Err(MountError::Failed(mountpoint.into(), e.into())),
    }
}

fn by_fusermount(mountpoint: &Path, lazy: bool) -> Result<(), MountError> {
    let mut command = Command::new(fusermount().ok_or(MountError::NoFusermount)?);
    command
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(mountpoint);
    let output = command
        .output()
        .map_err(|e| MountError::Failed(mountpoint.into(), e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    if said.contains("busy") {
        Err(MountError::Busy(mountpoint.into()))
    } else if said.contains("not mounted") || said.contains("not found in") {
        Err(MountError::NotMounted(mountpoint.into()))
    } else {
        Err(MountError::Failed(mountpoint.into(), io::Error::other(said)))
    }
}

pub(crate) fn fusermount() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|d| d.join("fusermount3"))
        .find(|p| p.is_file())
}

pub(crate) fn others_allowed() -> bool {
    let conf = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    conf.lines().any(|l| l.trim() == "user_allow_other")
}
