//! How what clients know of directories is kept true, and for how long they are told something.

use pando_format::codec::{Codec, DecodeError, Reader};
use std::time::Duration;

/// How what clients know of directories is kept true.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Coherence {
    /// Every server hears of a change before it is made, and refuses what rests on what was (InfiniFS §3.4).
    #[default]
    Lazy,
    /// Servers grant clients leases on directories, and a change of a directory waits until they have run out
    /// (IndexFS §II-B).
    Lease(LeaseLength),
}

/// For how long clients are told something of a directory (IndexFS §II-B). Lengths are in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseLength {
    /// Always as long: the baseline that lazy invalidation is measured against (InfiniFS §5.5).
    Fixed(u32),
    /// The deeper a directory is, the shorter: this length, divided by its depth (the root's is 1).
    Depth(u32),
    /// The more often its entry changes, the shorter: this length, times its looks among looks and changes.
    /// Of what is not known how often it changes: three times the length, divided by its depth.
    Rate(u32),
}

/// No lease is shorter, in milliseconds: it would run out before it is used.
const SHORTEST: u64 = 100;

/// How a directory was used: what the length of a lease on it may depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseUse {
    /// Components of the path to it; the root has 1.
    pub depth: u32,
    /// How often its entry was looked at, of late.
    pub looks: u32,
    /// How often it was changed, of late.
    pub changes: u32,
}

impl LeaseLength {
    /// The longest lease there can be.
    pub fn longest(self) -> Duration {
        Duration::from_millis(u64::from(match self {
            LeaseLength::Fixed(millis) | LeaseLength::Depth(millis) => millis,
            LeaseLength::Rate(millis) => millis.saturating_mul(3),
        }))
    }

    /// The length of a lease, in milliseconds; never longer than the longest.
    pub fn millis(self, used: LeaseUse) -> u64 {
        let by_depth = |millis: u32| u64::from(millis) / u64::from(used.depth.max(1));
        let millis = match self {
            LeaseLength::Fixed(millis) => u64::from(millis),
            LeaseLength::Depth(millis) => by_depth(millis),
            LeaseLength::Rate(millis) if used.looks == 0 => by_depth(millis.saturating_mul(3)),
            LeaseLength::Rate(millis) => {
                let (looks, changes) = (u64::from(used.looks), u64::from(used.changes));
                u64::from(millis) * looks / (looks + changes)
            }
        };
        millis.max(SHORTEST.min(self.longest().as_millis() as u64))
    }
}

impl Coherence {
    /// With leases: the longest there can be.
    pub fn longest_lease(self) -> Option<Duration> {
        match self {
            Coherence::Lazy => None,
            Coherence::Lease(length) => Some(length.longest()),
        }
    }

    /// The meaning of `lazy`, `lease` (of 5 seconds), `lease=SECONDS`, `lease=depth:SECONDS` and
    /// `lease=rate:SECONDS`.
    pub fn parse(text: &str) -> Option<Coherence> {
        let length = match text {
            "lazy" => return Some(Coherence::Lazy),
            "lease" => return Some(Coherence::Lease(LeaseLength::Fixed(5000))),
            _ => text.strip_prefix("lease=")?,
        };
        Some(Coherence::Lease(match length.split_once(':') {
            None => LeaseLength::Fixed(millis(length)?),
            Some(("depth", length)) => LeaseLength::Depth(millis(length)?),
            Some(("rate", length)) => LeaseLength::Rate(millis(length)?),
            Some(_) => return None,
        }))
    }

    /// The word for it.
    pub fn word(self) -> String {
        let seconds = |millis: u32| f64::from(millis) / 1000.0;
        match self {
            Coherence::Lazy => "lazy".into(),
            Coherence::Lease(LeaseLength::Fixed(millis)) => format!("lease={}", seconds(millis)),
            Coherence::Lease(LeaseLength::Depth(millis)) => format!("lease=depth:{}", seconds(millis)),
            Coherence::Lease(LeaseLength::Rate(millis)) => format!("lease=rate:{}", seconds(millis)),
        }
    }
}

/// Seconds as milliseconds. Too many are not refused here but by the map.
fn millis(seconds: &str) -> Option<u32> {
    let millis = (seconds.parse::<f64>().ok()? * 1000.0).round();
    (1.0..=1e9).contains(&millis).then_some(millis as u32)
}

impl Codec for Coherence {
    fn put(&self, out: &mut Vec<u8>) {
        let (tag, millis) = match self {
            Coherence::Lazy => return out.push(1),
            Coherence::Lease(LeaseLength::Fixed(millis)) => (2, millis),
            Coherence::Lease(LeaseLength::Depth(millis)) => (3, millis),
            Coherence::Lease(LeaseLength::Rate(millis)) => (4, millis),
        };
        out.push(tag);
        millis.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = match u8::take(r)? {
            1 => return Ok(Coherence::Lazy),
            2 => LeaseLength::Fixed(Codec::take(r)?),
            3 => LeaseLength::Depth(Codec::take(r)?),
            4 => LeaseLength::Rate(Codec::take(r)?),
            tag => return Err(DecodeError::Tag { of: "Coherence", tag }),
        };
        Ok(Coherence::Lease(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_come_back() {
        let all = [
            Coherence::Lazy,
            Coherence::Lease(LeaseLength::Fixed(5000)),
            Coherence::Lease(LeaseLength::Fixed(1500)),
            Coherence::Lease(LeaseLength::Depth(3000)),
            Coherence::Lease(LeaseLength::Rate(250)),
        ];
        for coherence in all {
            assert_eq!(Coherence::parse(&coherence.word()), Some(coherence));
            assert_eq!(Coherence::from_bytes(&coherence.to_bytes()), Ok(coherence));
        }
        assert_eq!(
            Coherence::parse("lease"),
            Some(Coherence::Lease(LeaseLength::Fixed(5000)))
        );
        for odd in [
            "",
            "leases",
            "lease=",
            "lease=-1",
            "lease=0",
            "lease=NaN",
            "lease=depth",
            "lease=depth:",
            "lease=soon:1",
            "lease=1:2",
        ] {
            assert_eq!(Coherence::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn no_lease_is_longer_than_the_longest() {
        for length in [
            LeaseLength::Fixed(900),
            LeaseLength::Depth(900),
            LeaseLength::Rate(900),
        ] {
            for (depth, looks, changes) in [
                (0, 0, 0),
                (1, 0, 7),
                (3, 0, 0),
                (3, 1, 0),
                (9, 1, 3),
                (1, u32::MAX, u32::MAX),
            ] {
                let millis = length.millis(LeaseUse {
                    depth,
                    looks,
                    changes,
                });
                assert!(u128::from(millis) <= length.longest().as_millis(), "{length:?}");
            }
        }
        let used = LeaseUse {
            depth: 3,
            looks: 3,
            changes: 1,
        };
        assert_eq!(LeaseLength::Fixed(900).millis(used), 900);
        assert_eq!(LeaseLength::Depth(900).millis(used), 300);
        assert_eq!(LeaseLength::Rate(900).millis(used), 675);
        let unknown = LeaseUse {
            looks: 0,
            changes: 0,
            ..used
        };
        assert_eq!(LeaseLength::Rate(900).millis(unknown), 900);
    }
}
