//! How long operations took.

use crate::world::Time;

/// Times of operations of one kind, in microseconds of virtual time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latencies {
    /// Operations.
    pub count: u64,
    /// Of all.
    pub mean: f64,
    /// Half took no longer.
    pub p50: f64,
    /// All but one in a hundred took no longer.
    pub p99: f64,
    /// The longest.
    pub most: f64,
}

impl Latencies {
    /// Of times in nanoseconds.
    pub(crate) fn of(mut times: Vec<Time>) -> Latencies {
        times.sort_unstable();
        let us = |ns: Time| ns as f64 / 1e3;
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
        Latencies {
            count: times.len() as u64,
            mean: us(times.iter().sum()) / times.len().max(1) as f64,
            p50: at(0.5).map_or(0.0, us),
            p99: at(0.99).map_or(0.0, us),
            most: times.last().copied().map_or(0.0, us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_up() {
        let all = Latencies::of(vec![3_000, 1_000, 2_000]);
        assert_eq!((all.count, all.mean, all.p50, all.most), (3, 2.0, 2.0, 3.0));
        assert_eq!(Latencies::of(Vec::new()).most, 0.0);
    }
}
