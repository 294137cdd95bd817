//! What the kernel itself lets or does not let happen on a mount: `ro`, `nosuid`, `noexec` and their like.

use crate::attach;
use crate::mount::MountError;
use crate::table;
use nix::mount::MsFlags;
use std::path::Path;

/// Words of mount(8) for flags of the kernel: with the flag, and whether the word sets it or takes it away.
const WORDS: [(&str, MsFlags, bool); 20] = [
    ("ro", MsFlags::MS_RDONLY, true),
    ("rw", MsFlags::MS_RDONLY, false),
    ("nosuid", MsFlags::MS_NOSUID, true),
    ("suid", MsFlags::MS_NOSUID, false),
    ("nodev", MsFlags::MS_NODEV, true),
    ("dev", MsFlags::MS_NODEV, false),
    ("noexec", MsFlags::MS_NOEXEC, true),
    ("exec", MsFlags::MS_NOEXEC, false),
    ("sync", MsFlags::MS_SYNCHRONOUS, true),
    ("async", MsFlags::MS_SYNCHRONOUS, false),
    ("dirsync", MsFlags::MS_DIRSYNC, true),
    ("noatime", MsFlags::MS_NOATIME, true),
    ("atime", MsFlags::MS_NOATIME, false),
    ("nodiratime", MsFlags::MS_NODIRATIME, true),
    ("diratime", MsFlags::MS_NODIRATIME, false),
    ("relatime", MsFlags::MS_RELATIME, true),
    ("norelatime", MsFlags::MS_RELATIME, false),
    ("strictatime", MsFlags::MS_STRICTATIME, true),
    ("nostrictatime", MsFlags::MS_STRICTATIME, false),
    ("silent", MsFlags::MS_SILENT, true),
];
/// Those that fusermount3 does not know. Atimes are as with `relatime` anyway.
const NOT_FOR_USERS: [&str; 3] = ["relatime", "strictatime", "silent"];

/// Flags of a mount. By default nothing on it is a device, and no program there gets other rights by a set-id
/// bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags(MsFlags);

impl Default for Flags {
    fn default() -> Flags {
        Flags(MsFlags::MS_NOSUID | MsFlags::MS_NODEV)
    }
}

impl Flags {
    /// Takes one of mount(8)'s words into account; the last said counts. False if it is not a word for a
    /// flag.
    pub fn say(&mut self, word: &str) -> bool {
        let Some((_, flag, on)) = WORDS.iter().find(|(w, ..)| *w == word) else {
            return false;
        };
        self.0.set(*flag, *on);
        true
    }

    /// Whether all changes are refused.
    pub fn read_only(self) -> bool {
        self.0.contains(MsFlags::MS_RDONLY)
    }

    /// Whether reads move atimes: as with `relatime`, whatever is said, unless nothing may change.
    pub(crate) fn follows_reads(self) -> bool {
        !self.0.intersects(MsFlags::MS_NOATIME | MsFlags::MS_RDONLY)
    }

    pub(crate) fn bits(self) -> MsFlags {
        self.0
    }

    /// As fusermount3 is told.
    pub(crate) fn for_fusermount3(self) -> String {
        let said = WORDS
            .iter()
            .filter(|(word, flag, on)| *on && self.0.contains(*flag) && !NOT_FOR_USERS.contains(word));
        let words: Vec<&str> = said.map(|(word, ..)| *word).collect();
        words.join(",")
    }
}

/// Changes the flags of what is mounted at a directory, by mount(8)'s words; those that are not said stay.
/// The process behind the mount has no part in it.
pub fn remount(mountpoint: &Path, words: &[&str]) -> Result<Flags, MountError> {
    let Some(found) = table::find(mountpoint).filter(|m| m.kind == attach::TYPE) else {
        return Err(MountError::NotMounted(mountpoint.into()));
    };
    if found.is_dead() {
        return Err(MountError::Dead(mountpoint.into()));
    }
    let mut flags = Flags(MsFlags::empty());
    let all = || found.flags.iter().chain(&found.of_filesystem);
    for word in all().filter(|w| *w != "rw") {
        flags.say(word);
    }
    for word in words {
        flags.say(word);
    }
    match nix::mount::mount(
        None::<&str>,
        mountpoint,
        None::<&str>,
        flags.0 | MsFlags::MS_REMOUNT,
        None::<&str>,
    ) {
        Ok(()) => Ok(flags),
        Err(nix::Error::EBUSY) => Err(MountError::OpenForWriting(mountpoint.into())),
        Err(nix::Error::EPERM) => Err(MountError::RemountDenied(mountpoint.into())),
        Err(e) => Err(MountError::Failed(mountpoint.into(), e.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts() {
        let mut flags = Flags::default();
        for word in ["ro", "noexec", "suid", "rw", "relatime"] {
            assert!(flags.say(word), "{word}");
        }
        assert!(!flags.read_only());
        assert_eq!(flags.for_fusermount3(), "nodev,noexec");
        assert!(flags.say("ro") && flags.read_only());
        assert!(!flags.say("allow_other") && !flags.say(""));
    }
}
