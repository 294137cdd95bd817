//! How things are shown: names that are not text, sizes, times, modes, owners.

use pando_types::{Attr, FileKind, Timestamp};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Base64 as RFC 4648 has it, with padding.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .enumerate()
            .fold(0u32, |g, (i, b)| g | (u32::from(*b) << (16 - 8 * i)));
        for i in 0..4 {
            if i <= chunk.len() {
                out.push(char::from(DIGITS[(group >> (18 - 6 * i)) as usize & 63]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

/// Puts bytes into a JSON object under `field`, and under `field_b64` exactly if they are not text.
pub fn put_bytes(object: &mut Map<String, Value>, field: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            object.insert(field.into(), text.into());
        }
        Err(_) => {
            object.insert(field.into(), String::from_utf8_lossy(bytes).into());
            object.insert(format!("{field}_b64"), base64(bytes).into());
        }
    }
}

/// For people: control characters and what is not text as `?`, so that a name cannot steer the terminal.
pub fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| {
            if c.is_control() || c == char::REPLACEMENT_CHARACTER {
                '?'
            } else {
                c
            }
        })
        .collect()
}

/// `4.0K`, as `ls -h` has it.
pub fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["", "K", "M", "G", "T", "P"] {
        if value < 1024.0 {
            return match unit {
                "" => format!("{bytes}"),
                _ if value < 10.0 => format!("{value:.1}{unit}"),
                _ => format!("{value:.0}{unit}"),
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1}E")
}

/// Year, month and day of a day number counted from 1970-01-01.
fn civil(days: i64) -> (i64, u32, u32) {
    // Days since 0000-03-01, in eras of 400 years.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let m = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * m + 2) / 5 + 1) as u32;
    let month = if m < 10 { m + 3 } else { m - 9 } as u32;
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// `2026-01-31 13:45:00Z`, always UTC; with nanoseconds if `fine`.
pub fn time(t: Timestamp, fine: bool) -> String {
    let (days, secs) = (t.secs.div_euclid(86_400), t.secs.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (h, m, s) = (secs / 3600, secs / 60 % 60, secs % 60);
    if fine {
        format!(
            "{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}.{:09}Z",
            t.nanos
        )
    } else {
        format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}Z")
    }
}

/// The letter of `ls -l`.
pub fn kind_letter(kind: FileKind) -> char {
    match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    }
}

/// In quotation marks, on one line, whatever is in it.
pub fn quoted(text: impl std::fmt::Display) -> String {
    format!("\"{}\"", text.to_string().escape_debug())
}

/// The word of `stat`.
pub fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char-device",
        FileKind::BlockDevice => "block-device",
    }
}

/// `drwxr-xr-x`.
pub fn mode(attr: &Attr) -> String {
    let bits = attr.perm.bits();
    let mut out = String::with_capacity(10);
    out.push(kind_letter(attr.kind));
    let specials = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    for (i, (special, with_x, without_x)) in specials.into_iter().enumerate() {
        let class = bits >> (6 - 3 * i);
        out.push(if class & 4 != 0 { 'r' } else { '-' });
        out.push(if class & 2 != 0 { 'w' } else { '-' });
        out.push(match (bits & special != 0, class & 1 != 0) {
            (true, true) => with_x,
            (true, false) => without_x,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// Attributes for scripts.
pub fn attr_json(attr: &Attr) -> Map<String, Value> {
    let time = |t: Timestamp| format!("{}.{:09}", t.secs, t.nanos);
    let value = json!({
        "kind": kind_word(attr.kind), "ino": attr.ino.0, "generation": attr.generation.0,
        "mode": format!("{:04o}", attr.perm.bits()), "uid": attr.uid, "gid": attr.gid, "nlink": attr.nlink,
        "size": attr.size, "allocated": attr.allocated, "atime": time(attr.atime), "mtime": time(attr.mtime), "ctime": time(attr.ctime),
    });
    match value {
        Value::Object(mut map) => {
            if matches!(attr.kind, FileKind::CharDevice | FileKind::BlockDevice) {
                let (major, minor) = device(attr.rdev);
                map.insert("device".into(), json!([major, minor]));
            }
            map
        }
        _ => Map::new(),
    }
}

/// Major and minor number of a device, from what Linux makes of them in 32 bits.
pub fn device(rdev: u64) -> (u64, u64) {
    (rdev >> 8 & 0xFFF, rdev & 0xFF | rdev >> 12 & 0xF_FF00)
}

/// Names of users and groups of this machine.
pub struct Names {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

impl Names {
    /// Reads the machine's files; what is not in them is shown as a number.
    pub fn load() -> Names {
        let read = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let entry = |line: &str| {
                let mut fields = line.split(':');
                let name = fields.next()?.to_owned();
                Some((fields.nth(1)?.parse().ok()?, name))
            };
            text.lines().filter_map(entry).collect()
        };
        Names {
            users: read("/etc/passwd"),
            groups: read("/etc/group"),
        }
    }

    /// A user.
    pub fn user(&self, uid: u32) -> String {
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    /// A group.
    pub fn group(&self, gid: u32) -> String {
        self.groups.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }

    /// The user with this name or number.
    pub fn user_id(&self, text: &str) -> Option<u32> {
        id(&self.users, text)
    }

    /// The group with this name or number.
    pub fn group_id(&self, text: &str) -> Option<u32> {
        id(&self.groups, text)
    }
}

fn id(names: &BTreeMap<u32, String>, text: &str) -> Option<u32> {
    let named = names.iter().find(|(_, name)| *name == text).map(|(id, _)| *id);
    named.or_else(|| text.parse().ok())
}

/// A length of time: `200us`, `1ms`, `1.5s`, `10min`, `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("min", 60.0),
        ("h", 3600.0),
    ];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok()
    });
    parsed.ok_or_else(|| format!("\"{text}\" is not a time such as 200us, 1ms, 1.5s, 10min or 1h"))
}

/// Seconds, for measurements.
pub fn seconds(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    let number = number.filter(|n| (0.01..=3600.0).contains(n));
    number.ok_or_else(|| format!("\"{text}\" is not between 0.01 and 3600 seconds"))
}

/// Columns as wide as their widest cell; numbers to the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
        cells.chain(head.get(i).map(|h| h.len())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let number = |c: &str| c.starts_with(|c: char| c.is_ascii_digit());
    let mut out = String::new();
    let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let right = number(cell) || (std::ptr::eq(row, &head) && rows.iter().all(|r| number(&r[i])));
            let fill = " ".repeat(width.saturating_sub(cell.chars().count()));
            let gap = if i == 0 { "" } else { "  " };
            line += &if right && !rows.is_empty() {
                format!("{gap}{fill}{cell}")
            } else {
                format!("{gap}{cell}{fill}")
            };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_remainder() {
        assert_eq!(base64(b""), "");
        assert_eq!(base64(b"f"), "Zg==");
        assert_eq!(base64(b"fo"), "Zm8=");
        assert_eq!(base64(b"foo"), "Zm9v");
        assert_eq!(base64(&[0xFF, 0xFE, 0xFD, 0xFC]), "//79/A==");
    }

    #[test]
    fn lengths_of_time() {
        let found = ["200us", "1ms", "1.5 s", "0s", "2min"].map(|t| duration(t).map(|d| d.as_micros()));
        assert_eq!(found, [Ok(200), Ok(1000), Ok(1_500_000), Ok(0), Ok(120_000_000)]);
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        for wrong in ["", "1", "ms", "-1ms", "1d", "1e99s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn dates() {
        let at = |secs| time(Timestamp { secs, nanos: 5 }, true);
        assert_eq!(at(0), "1970-01-01 00:00:00.000000005Z");
        assert_eq!(at(-1), "1969-12-31 23:59:59.000000005Z");
        assert_eq!(at(951_782_399), "2000-02-28 23:59:59.000000005Z");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00.000000005Z");
        assert_eq!(at(4_102_444_800), "2100-01-01 00:00:00.000000005Z");
    }

    #[test]
    fn sizes() {
        assert_eq!(human(1023), "1023");
        assert_eq!(human(1024), "1.0K");
        assert_eq!(human(20 << 20), "20M");
    }
}
