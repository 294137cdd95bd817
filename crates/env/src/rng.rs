//! Deterministic random numbers: xoshiro256**, seeded by splitmix64. Integer arithmetic only, so that a seed
//! means the same on every machine.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

/// One step of splitmix64: spreads a counter over all 64 bits.
pub fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Rng {
        let mut z = seed;
        Rng(std::array::from_fn(|_| {
            z = mix(z);
            z
        }))
    }

    /// An independent stream. What one stream draws does not shift another, so that a change in one part of a
    /// run leaves the others comparable.
    pub fn fork(&self, label: u64) -> Rng {
        Rng::new(mix(self.0[0] ^ mix(label)) ^ self.0[3])
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait)] // it has no end
    pub fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// An index below `n`.
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// From `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True `n` times in a million.
    pub fn ppm(&mut self, n: u64) -> bool {
        n > 0 && self.below(1_000_000) < n
    }

    /// True `n` times in a hundred.
    pub fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    /// One of a slice. REQUIRES: not empty.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.index(of.len())]
    }

    /// An index chosen by weights. REQUIRES: a positive sum.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let sum: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        let mut at = self.below(sum);
        for (i, w) in weights.iter().enumerate() {
            if at < u64::from(*w) {
                return i;
            }
            at -= u64::from(*w);
        }
        weights.len() - 1
    }

    /// About `mean`, skewed: most draws are smaller, a few are many times larger (up to 16 times). Stands for
    /// an exponential distribution without logarithms.
    pub fn skewed(&mut self, mean: u64) -> u64 {
        let step = (self.next() | 1 << 60).leading_zeros() as u64; // 0: half of all, 1: a quarter, …
        let scale = [1, 3, 6, 12, 16][(step as usize).min(4)];
        self.below(mean.saturating_mul(scale) * 2 / 3 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.next() == b.next()));
        let (mut c, mut d) = (a.fork(1), a.fork(2));
        assert_ne!(c.next(), d.next());
        assert!((0..1000).all(|_| c.below(10) < 10 && (3..=5).contains(&c.range(3, 5))));
    }

    #[test]
    fn skewed_is_about_its_mean() {
        let mut r = Rng::new(1);
        let sum: u64 = (0..10_000).map(|_| r.skewed(1000)).sum();
        assert!((500..2000).contains(&(sum / 10_000)), "{}", sum / 10_000);
    }
}
