//! Attaching to a directory and detaching from it, as root or through fusermount3.
//!
//! The fuser library could mount too. But when its session ends it unmounts by path once more, which takes away
//! whatever was mounted there since; and the type of filesystem it shows to others is plain `fuse`.

use crate::mount::MountError;
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::unistd::{getegid, geteuid};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What others see as the type of filesystem.
const TYPE: &str = "fuse.pando";

/// Mounts at a directory and returns the connection to the kernel.
pub(crate) fn attach(
    mountpoint: &Path,
    source: &str,
    allow_other: bool,
    read_only: bool,
) -> Result<OwnedFd, MountError> {
    let failed = |e| MountError::Failed(mountpoint.into(), e);
    if !geteuid().is_root() {
        return by_fusermount3(mountpoint, source, allow_other, read_only).map_err(failed);
    }
    let device = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(failed)?;
    let mut options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        geteuid(),
        getegid()
    );
    if allow_other {
        options.push_str(",allow_other");
    }
    let mut flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    if read_only {
        flags |= MsFlags::MS_RDONLY;
    }
    match nix::mount::mount(
        Some(source),
        mountpoint,
        Some(TYPE),
        flags,
        Some(options.as_str()),
    ) {
        Ok(()) => Ok(device.into()),
        // Root of a container without the right to mount: the helper may have it.
        Err(nix::Error::EPERM) if fusermount().is_some() => {
            by_fusermount3(mountpoint, source, allow_other, read_only).map_err(failed)
        }
        Err(e) => Err(failed(e.into())),
    }
}

/// fusermount3 mounts, and sends the connection over a socket it is given the number of.
fn by_fusermount3(
    mountpoint: &Path,
    source: &str,
    allow_other: bool,
    read_only: bool,
) -> io::Result<OwnedFd> {
    // The helper's end stays open across exec.
    let (ours, its) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )?;
    let mut options = format!("fsname={source},subtype=pando,default_permissions,nosuid,nodev");
    if allow_other {
        options.push_str(",allow_other");
    }
    if read_only {
        options.push_str(",ro");
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

/// Unmounts what is mounted at a directory, from any process. `lazy`: it disappears now, and ends with its last user.
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

/// Whether a FUSE filesystem is mounted exactly here.
pub(crate) fn is_fuse_mount(mountpoint: &Path) -> bool {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|b| *b == b'\n').any(|line| {
        let mut halves = line.splitn(2, |b| *b == b'-');
        let at = halves.next().and_then(|h| h.split(|b| *b == b' ').nth(4));
        let fuse = line.windows(7).any(|w| w == b" - fuse");
        fuse && at.is_some_and(|at| unescape(at) == mountpoint.as_os_str().as_bytes())
    })
}

/// Spaces and the like stand as `\ooo` in mount tables.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match octal
            .and_then(|d| u8::from_str_radix(d, 8).ok())
            .filter(|_| *first == b'\\')
        {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_mount_tables() {
        assert_eq!(unescape(b"/a\\040b\\134"), b"/a b\\");
        assert_eq!(unescape(b"/a\\04"), b"/a\\04");
    }
}
