//! When a part of a directory is to be split (GIGA+; IndexFS §II-A).

use crate::ClusterMap;
use pando_types::{DirId, Part, SLOTS, ServerId, Tile, Tiling};
use std::collections::BTreeMap;

/// A directory has at most so many parts for each server.
const PARTS: usize = 8;

/// What a part that has grown too large gives away, if that spreads the directory: to a server that has none
/// of it yet, or from one that has much to one that has little.
pub fn due(map: &ClusterMap, dir: DirId, tiling: &Tiling, start: u16) -> Option<Tile> {
    let half = tiling.tile(start)?.half()?;
    let owner = |start| Part::new(dir, start).map(|part| map.owner(part.slot()));
    let servers: Vec<ServerId> = map.staying().filter(|s| map.slots.contains(s)).collect();
    let mut shares: BTreeMap<ServerId, u32> = servers.iter().map(|s| (*s, 0)).collect();
    for tile in tiling.tiles() {
        *shares.entry(owner(tile.start)?).or_default() += u32::from(tile.width());
    }
    let share = |server: ServerId| shares.get(&server).copied().unwrap_or(0);
    let theirs = (half.start..half.start + half.width()).filter_map(owner);
    let mean = u32::from(SLOTS) / (servers.len().max(1) as u32);
    let crowded = 2 * share(owner(start)?) > 3 * mean && tiling.tiles().count() < PARTS * servers.len();
    let gains = |server: ServerId| {
        shares.contains_key(&server) && (share(server) == 0 || crowded && share(server) < mean)
    };
    theirs.into_iter().any(gains).then_some(half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::map;

    /// Splits as long as some part is due, all of them being too large.
    fn spread(map: &ClusterMap, dir: DirId, tiling: &mut Tiling) {
        for _ in 0..1_000 {
            let starts: Vec<u16> = tiling.tiles().map(|t| t.start).collect();
            let Some(start) = starts.into_iter().find(|s| due(map, dir, tiling, *s).is_some()) else {
                return;
            };
            assert!(tiling.split(start).is_some());
        }
        panic!("it never ends: {tiling:?}");
    }

    /// The largest share, as a multiple of the mean.
    fn largest(map: &ClusterMap, dir: DirId, tiling: &Tiling) -> f64 {
        let mut shares: BTreeMap<ServerId, u32> = BTreeMap::new();
        for tile in tiling.tiles() {
            let part = Part::new(dir, tile.start).expect("a part");
            *shares.entry(map.owner(part.slot())).or_default() += u32::from(tile.width());
        }
        assert_eq!(shares.len(), map.servers.len(), "each has a part");
        let most = shares.values().max().copied().unwrap_or(0);
        f64::from(most) * map.servers.len() as f64 / f64::from(SLOTS)
    }

    #[test]
    fn directories_spread_over_all_servers_and_stop() {
        for servers in [1, 2, 3, 4, 5, 7, 8, 12, 16, 32] {
            let map = map(servers);
            let mut sum = 0.0;
            for n in 0..20_u128 {
                let dir = DirId(n << 64 | 0x1234_5678);
                let mut tiling = Tiling::default();
                spread(&map, dir, &mut tiling);
                sum += largest(&map, dir, &tiling);
                let many = tiling.tiles().count();
                assert!(many <= PARTS * usize::from(servers), "{many} parts on {servers}");
            }
            let mean = sum / 20.0;
            let most = if servers.is_power_of_two() { 1.3 } else { 1.7 };
            assert!(mean <= most, "{servers} servers: {mean}");
        }
    }

    #[test]
    fn a_part_that_spreads_nothing_is_not_split() {
        let mut whole = Tiling::default();
        let dir = DirId(77 << 64);
        assert_eq!(due(&map(1), dir, &whole, 0), None);
        assert!(due(&map(2), dir, &whole, 0).is_some());
        assert_eq!(due(&map(2), dir, &whole, 2048), None, "no such part");
        // All slots belong to one of two.
        let mut all_of_one = map(2);
        all_of_one.slots.fill(ServerId(0));
        assert_eq!(due(&all_of_one, dir, &whole, 0), None);
        while whole.split(0).is_some() {}
        assert_eq!(due(&map(2), dir, &whole, 0), None);
    }
}
