//! What is looked for.

use super::FindArgs;
use super::glob::Glob;
use pando_types::{Attr, FileKind, Timestamp};
use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

const DAY: u64 = 24 * 60 * 60;

/// All tests of a search.
pub struct Wanted {
    name: Option<Glob>,
    kinds: Vec<FileKind>,
    size: Option<Size>,
    mtime: Option<Age>,
    now: Timestamp,
}

/// A number, more than it or less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Count(Ordering, u64);

/// Of which size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    count: Count,
    unit: u64,
}

/// How long ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Age(Count);

impl Count {
    fn holds(self, n: u64) -> bool {
        n.cmp(&self.1) == self.0
    }
}

impl FromStr for Count {
    type Err = String;
    fn from_str(text: &str) -> Result<Count, String> {
        let (order, digits) = match text.split_at_checked(1) {
            Some(("+", rest)) => (Ordering::Greater, rest),
            Some(("-", rest)) => (Ordering::Less, rest),
            _ => (Ordering::Equal, text),
        };
        match digits.parse() {
            Ok(n) if digits.bytes().all(|b| b.is_ascii_digit()) => Ok(Count(order, n)),
            _ => Err("a number, or one behind + or -".into()),
        }
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        let unit = match text.bytes().last() {
            Some(b'c') => 1,
            Some(b'k') => 1 << 10,
            Some(b'M') => 1 << 20,
            Some(b'G') => 1 << 30,
            Some(b'T') => 1 << 40,
            _ => 512,
        };
        let number = text.trim_end_matches(|c| "ckMGTb".contains(c));
        if text.len() > number.len() + 1 {
            return Err("one unit: c (bytes), k, M, G, T or b (512 bytes)".into());
        }
        let count = number.parse()?;
        Ok(Size { count, unit })
    }
}

impl FromStr for Age {
    type Err = String;
    fn from_str(text: &str) -> Result<Age, String> {
        text.parse().map(Age)
    }
}

/// A letter of find(1).
pub fn kind(text: &str) -> Result<FileKind, String> {
    Ok(match text {
        "f" => FileKind::Regular,
        "d" => FileKind::Directory,
        "l" => FileKind::Symlink,
        "p" => FileKind::Fifo,
        "s" => FileKind::Socket,
        "b" => FileKind::BlockDevice,
        "c" => FileKind::CharDevice,
        _ => return Err("kinds are f, d, l, p, s, b and c".into()),
    })
}

impl Wanted {
    pub fn of(args: &FindArgs, now: Timestamp) -> Wanted {
        Wanted {
            name: args.name.as_ref().map(|n| Glob::new(n.as_bytes())),
            kinds: args.kinds.clone(),
            size: args.size,
            mtime: args.mtime,
            now,
        }
    }

    /// Whether names and kinds do not say it all.
    pub fn need_attributes(&self) -> bool {
        self.size.is_some() || self.mtime.is_some()
    }

    /// As far as name and kind say.
    pub fn may_be(&self, name: &[u8], kind: FileKind) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && self.name.as_ref().is_none_or(|glob| glob.matches(name))
    }

    /// The rest of the tests.
    pub fn passes(&self, attr: Option<&Attr>) -> bool {
        let Some(attr) = attr else {
            return !self.need_attributes();
        };
        let large = |size: Size| size.count.holds(attr.size.div_ceil(size.unit));
        let old = |age: Age| {
            age.0
                .holds(self.now.secs.saturating_sub(attr.mtime.secs).max(0) as u64 / DAY)
        };
        self.size.is_none_or(large) && self.mtime.is_none_or(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let size = |text: &str, bytes: u64| {
            let size: Size = text.parse().expect(text);
            size.count.holds(bytes.div_ceil(size.unit))
        };
        assert!(size("0", 0) && size("1", 1) && size("1", 512) && size("2b", 513));
        assert!(size("5c", 5) && !size("5c", 6) && size("+5c", 6) && size("-5c", 4));
        assert!(size("1k", 1024) && size("+1k", 1025) && size("-1M", 0) && !size("-1M", 1));
        for bad in [
            "",
            "+",
            "k",
            "1kk",
            "1x",
            "--1",
            "+-1",
            "1.5M",
            "99999999999999999999",
        ] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
        let age = |text: &str| text.parse::<Age>().expect(text).0;
        assert!(age("+1").holds(2) && !age("+1").holds(1) && age("-1").holds(0) && age("3").holds(3));
    }
}
