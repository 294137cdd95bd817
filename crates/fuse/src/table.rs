//! The kernel's table of mounts.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// A mount whose process has ended says so at once.
const SOON: Duration = Duration::from_millis(500);

/// What is mounted at a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Where.
    pub at: PathBuf,
    /// The type of filesystem; ours is `fuse.pando`.
    pub kind: String,
    /// What it was said to be a mount of.
    pub source: OsString,
    /// Options of this mount, such as `ro` or `nosuid`.
    pub flags: Vec<String>,
    /// Options of the filesystem, wherever it is mounted.
    pub of_filesystem: Vec<String>,
}

impl Mount {
    /// Whether the process that serves it has ended. One that does not answer soon lives: it waits for
    /// servers.
    pub fn is_dead(&self) -> bool {
        if !self.kind.starts_with("fuse") {
            return false;
        }
        // Attributes could be remembered by the kernel; how much space there is never is.
        let (at, (told, heard)) = (self.at.clone(), mpsc::channel());
        let looks = std::thread::Builder::new().spawn(move || {
            let dead = rustix::fs::statvfs(&at).is_err_and(|e| e == rustix::io::Errno::NOTCONN);
            let _ = told.send(dead);
        });
        looks.is_ok() && heard.recv_timeout(SOON).unwrap_or(false)
    }
}

/// What is mounted exactly here, on top of all else that is; if this process may know. The path must be one
/// without symbolic links.
pub fn find(mountpoint: &Path) -> Option<Mount> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|b| *b == b'\n');
    lines.filter_map(line).rfind(|m| m.at == mountpoint)
}

/// `36 35 98:0 /root /at flags [optional...] - kind source options`
fn line(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let dash = words.iter().skip(6).position(|w| *w == b"-")? + 6;
    let text = |w: &[u8]| String::from_utf8_lossy(&unescape(w)).into_owned();
    let list = |w: &[u8]| text(w).split(',').map(str::to_owned).collect();
    Some(Mount {
        at: PathBuf::from(OsString::from_vec(unescape(words.get(4)?))),
        kind: text(words.get(dash + 1)?),
        source: std::ffi::OsStr::from_bytes(&unescape(words.get(dash + 2)?)).to_owned(),
        flags: list(words.get(5)?),
        of_filesystem: list(words.get(dash + 3)?),
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

    #[test]
    fn lines_of_mount_tables() {
        let text =
            b"36 35 0:98 / /mnt/a\\040b ro,nosuid shared:1 - fuse.pando /srv/x ro,user_id=0,allow_other";
        let found = line(text).unwrap();
        assert_eq!(found.at, Path::new("/mnt/a b"));
        assert_eq!(
            (found.kind.as_str(), found.source.to_str()),
            ("fuse.pando", Some("/srv/x"))
        );
        assert_eq!(found.flags, ["ro", "nosuid"]);
        assert_eq!(found.of_filesystem, ["ro", "user_id=0", "allow_other"]);
        assert_eq!(line(b"36 35 0:98 / /mnt ro"), None);
        assert_eq!(line(b""), None);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(find(Path::new("/")).is_some());
        assert_eq!(find(Path::new("/no/such/place")), None);
    }
}
