//! How the hash space of a directory is tiled by its live parts.
//!
//! A part of depth *r* has the hashes whose upper 12 bits are in `start .. start + (4096 >> r)`. A split
//! gives its upper half to a new part and makes both one deeper (GIGA+; IndexFS §II-A). Part 0 is always
//! there, so it is not listed.

use crate::SLOTS;
use std::collections::BTreeSet;

/// Deepest part: it has one 4,096th of the hash space, and cannot be split.
pub const DEPTH_MAX: u8 = 12;

/// A range of hashes: a part's start, and its depth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tile {
    /// Upper 12 bits of the first hash.
    pub start: u16,
    /// How often it was halved.
    pub depth: u8,
}

impl Tile {
    /// The whole hash space.
    pub const WHOLE: Tile = Tile { start: 0, depth: 0 };

    /// How many 4,096ths it has. 0: no tile is that deep.
    pub const fn width(self) -> u16 {
        if self.depth > DEPTH_MAX {
            0
        } else {
            SLOTS >> self.depth
        }
    }

    /// Whether it has the hashes with these upper 12 bits.
    pub const fn has(self, upper: u16) -> bool {
        upper >= self.start && upper - self.start < self.width()
    }

    /// What it gives away when it is split. `None`: it cannot be.
    pub const fn half(self) -> Option<Tile> {
        if self.depth >= DEPTH_MAX {
            return None;
        }
        let depth = self.depth + 1;
        Some(Tile {
            start: self.start + (SLOTS >> depth),
            depth,
        })
    }

    /// What it keeps when it is split.
    pub const fn kept(self) -> Option<Tile> {
        if self.depth >= DEPTH_MAX {
            return None;
        }
        Some(Tile {
            start: self.start,
            depth: self.depth + 1,
        })
    }

    /// Whether a part of this depth may begin there.
    pub const fn is_aligned(self) -> bool {
        self.depth <= DEPTH_MAX && self.start < SLOTS && self.start.is_multiple_of(SLOTS >> self.depth)
    }

    /// The smallest depth at which a part may begin at this start: part 0 began whole.
    pub const fn first_depth(start: u16) -> u8 {
        if start == 0 {
            0
        } else {
            DEPTH_MAX.saturating_sub(start.trailing_zeros() as u8)
        }
    }
}

/// The parts of a directory that are known to be there, besides part 0. Either all of them, or hints: those
/// that somebody has heard of.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tiling {
    starts: BTreeSet<u16>,
}

impl Tiling {
    /// Of the starts of all parts but 0, ascending. `None`: they do not tile the hash space.
    pub fn of(starts: impl IntoIterator<Item = u16>) -> Option<Tiling> {
        let mut tiling = Tiling::default();
        let mut last = 0;
        for start in starts {
            if start <= last || start >= SLOTS {
                return None;
            }
            last = start;
            tiling.starts.insert(start);
        }
        // Each part that there is was given away by one that there is, after all that one had given before.
        let found = tiling.tiles().count();
        (found == tiling.starts.len() + 1).then_some(tiling)
    }

    /// Whether nothing but part 0 is known.
    pub fn is_whole(&self) -> bool {
        self.starts.is_empty()
    }

    /// The starts of all parts but 0, ascending.
    pub fn starts(&self) -> impl Iterator<Item = u16> + '_ {
        self.starts.iter().copied()
    }

    /// The tile that has the hashes with these upper 12 bits.
    pub fn find(&self, upper: u16) -> Tile {
        let mut at = Tile::WHOLE;
        while let (Some(half), Some(kept)) = (at.half(), at.kept()) {
            if !self.starts.contains(&half.start) {
                break;
            }
            at = if half.has(upper) { half } else { kept };
        }
        at
    }

    /// All tiles, in the order of their starts.
    pub fn tiles(&self) -> impl Iterator<Item = Tile> + '_ {
        let mut next = Some(0);
        std::iter::from_fn(move || {
            let tile = self.find(next?);
            next = tile
                .start
                .checked_add(tile.width())
                .filter(|upper| *upper < SLOTS);
            Some(tile)
        })
    }

    /// The tile of a part, if that is known.
    pub fn tile(&self, start: u16) -> Option<Tile> {
        Some(self.find(start)).filter(|tile| tile.start == start)
    }

    /// A part has so great a depth, as its server says: all that it has given away is there (H64).
    pub fn learn(&mut self, said: Tile) {
        if !said.is_aligned() {
            return;
        }
        if said.start != 0 {
            self.learn_way_to(said.start);
        }
        let mut at = Tile {
            start: said.start,
            depth: Tile::first_depth(said.start),
        };
        while at.depth < said.depth
            && let (Some(half), Some(kept)) = (at.half(), at.kept())
        {
            self.starts.insert(half.start);
            at = kept;
        }
    }

    /// A part is there, so all that were split to make it are.
    fn learn_way_to(&mut self, start: u16) {
        let mut at = Tile::WHOLE;
        while at.start != start
            && let (Some(half), Some(kept)) = (at.half(), at.kept())
        {
            self.starts.insert(half.start);
            at = if half.has(start) { half } else { kept };
        }
    }

    /// A part is split. `None`: it is not known, or cannot be.
    pub fn split(&mut self, start: u16) -> Option<Tile> {
        let half = self.tile(start)?.half()?;
        self.starts.insert(half.start);
        Some(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tilings that are made by so many splits.
    fn grown(splits: usize) -> Vec<Tiling> {
        let mut all = vec![Tiling::default()];
        for _ in 0..splits {
            let mut next = Vec::new();
            for tiling in &all {
                for tile in tiling.tiles().filter(|t| t.depth < 4) {
                    let mut grown = tiling.clone();
                    assert_eq!(grown.split(tile.start), tile.half());
                    next.push(grown);
                }
            }
            next.sort_by(|a, b| a.starts.cmp(&b.starts));
            next.dedup();
            all = next;
        }
        all
    }

    #[test]
    fn tiles_have_each_hash_once() {
        for tiling in grown(5) {
            let tiles: Vec<Tile> = tiling.tiles().collect();
            assert_eq!(tiles.iter().map(|t| t.width()).sum::<u16>(), SLOTS);
            for upper in (0..SLOTS).step_by(64) {
                let of: Vec<&Tile> = tiles.iter().filter(|t| t.has(upper)).collect();
                assert_eq!(of, [&tiling.find(upper)], "{tiling:?} {upper}");
            }
            assert!(
                tiles
                    .iter()
                    .all(|t| t.is_aligned() && tiling.tile(t.start) == Some(*t))
            );
            assert_eq!(Tiling::of(tiling.starts()), Some(tiling.clone()));
        }
    }

    #[test]
    fn hints_lead_to_the_part_in_twelve_steps() {
        for truth in grown(5) {
            for upper in (0..SLOTS).step_by(32) {
                let mut hints = Tiling::default();
                let mut steps = 0;
                loop {
                    let asked = hints.find(upper);
                    // Only parts that there are were learnt.
                    let there = truth.tile(asked.start).expect("a part");
                    if there.has(upper) {
                        break;
                    }
                    hints.learn(there);
                    steps += 1;
                    assert!(steps <= 12, "{truth:?} {upper}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_tile_is_refused() {
        for starts in [
            &[1][..],
            &[1024],
            &[2048, 1024],
            &[2048, 2048],
            &[2048, 3073],
            &[4096],
            &[0],
        ] {
            assert_eq!(Tiling::of(starts.iter().copied()), None, "{starts:?}");
        }
        assert_eq!(Tiling::of([]), Some(Tiling::default()));
        assert_eq!(Tiling::of([1024, 2048, 3072]).map(|t| t.tiles().count()), Some(4));
    }

    #[test]
    fn the_deepest_part_is_not_split() {
        let mut tiling = Tiling::default();
        for depth in 1..=DEPTH_MAX {
            assert_eq!(
                tiling.split(0).map(|t| (t.start, t.depth)),
                Some((SLOTS >> depth, depth))
            );
        }
        assert_eq!(tiling.split(0), None);
        assert_eq!(tiling.find(0), Tile { start: 0, depth: 12 });
        assert_eq!(tiling.split(5), None, "no part begins there");
    }
}
