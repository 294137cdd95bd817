//! Time: what files show, and what timeouts count.

use std::time::Duration;

/// A point of calendar time as POSIX shows it: seconds since 1970 (may be negative) and nanoseconds below a
/// second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Whole seconds since the epoch, rounded towards the past.
    pub secs: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// From nanoseconds since the epoch.
    pub fn from_nanos(nanos: i128) -> Timestamp {
        Timestamp {
            secs: nanos.div_euclid(1_000_000_000) as i64,
            nanos: nanos.rem_euclid(1_000_000_000) as u32,
        }
    }

    /// Nanoseconds since the epoch.
    pub fn as_nanos(self) -> i128 {
        i128::from(self.secs) * 1_000_000_000 + i128::from(self.nanos)
    }
}

/// A point of a process's own monotonic time, in nanoseconds since an arbitrary start. Never leaves the
/// process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mono(pub u64);

impl Mono {
    /// This point plus `d`, saturating.
    pub fn after(self, d: Duration) -> Mono {
        Mono(
            self.0
                .saturating_add(d.as_nanos().min(u128::from(u64::MAX)) as u64),
        )
    }

    /// Time since `earlier`; zero if that is in the future.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_1970() {
        let t = Timestamp::from_nanos(-1);
        assert_eq!(
            t,
            Timestamp {
                secs: -1,
                nanos: 999_999_999
            }
        );
        assert_eq!(t.as_nanos(), -1);
    }
}
