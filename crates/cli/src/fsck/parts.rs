//! Directories that are split: which parts there are, and which part has a name. Only heads count: the list
//! of a directory's parts is checked by them.

use pando_format::{Key, NameHash, Record};
use pando_types::{DirId, Part, Tile, Tiling};

/// The hashes that a part has, as its head says. `None`: this is no head of it.
pub fn tile(part: Part, head: &Record) -> Option<Tile> {
    head.part_head(part).map(|head| head.tile)
}

/// The part of a directory that a tile is of.
pub fn part_at(dir: DirId, tile: Tile) -> Part {
    Part::new(dir, tile.start).unwrap_or(Part::whole(dir))
}

/// The place of an entry or an attachment in the hash space.
pub fn bucket_of(key: &Key) -> Option<(Part, NameHash)> {
    match key {
        Key::Entry { part, hash, .. } | Key::Attachment { part, hash, .. } => Some((*part, *hash)),
        _ => None,
    }
}

/// The part with these upper bits of a hash, and how deep it is, if `there` says which parts have heads.
pub async fn find<E>(
    dir: DirId,
    upper: u16,
    there: impl AsyncFn(Part) -> Result<bool, E>,
) -> Result<Tile, E> {
    let mut at = Tile::WHOLE;
    while let (Some(half), Some(kept)) = (at.half(), at.kept()) {
        if !there(part_at(dir, half)).await? {
            break;
        }
        at = if half.has(upper) { half } else { kept };
    }
    Ok(at)
}

/// The tiles of all parts that come from part 0 by splits, if `there` says which parts have heads.
pub async fn all<E>(dir: DirId, there: impl AsyncFn(Part) -> Result<bool, E>) -> Result<Vec<Tile>, E> {
    let (mut todo, mut done) = (vec![Tile::WHOLE], Vec::new());
    while let Some(at) = todo.pop() {
        match (at.half(), at.kept()) {
            (Some(half), Some(kept)) if there(part_at(dir, half)).await? => todo.extend([half, kept]),
            _ => done.push(at),
        }
    }
    done.sort_unstable();
    Ok(done)
}

/// What the heads that there are say together: each part gave away as many halves as it was split. `None`:
/// they contradict each other.
pub fn said_by(heads: &[Tile]) -> Option<Tiling> {
    let mut tiling = Tiling::default();
    heads.iter().for_each(|head| tiling.learn(*head));
    let agree = |head: &Tile| tiling.tile(head.start) == Some(*head);
    heads.iter().all(agree).then_some(tiling)
}

/// Which parts a directory must have, by its heads and its list, if that is known. A head may be missing.
pub fn truth(heads: &[Tile], list: Option<&[u16]>) -> Option<Tiling> {
    let starts = || heads.iter().map(|head| head.start).filter(|start| *start != 0);
    let listed = list.and_then(|list| Tiling::of(list.iter().copied()));
    if let Some(listed) = &listed
        && listed.starts().eq(starts())
    {
        return Some(listed.clone());
    }
    let said = said_by(heads)?;
    let complete = said.starts().eq(starts());
    (complete || list.is_none() || listed.as_ref() == Some(&said)).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(start: u16, depth: u8) -> Tile {
        Tile { start, depth }
    }

    fn starts(tiling: Option<Tiling>) -> Option<Vec<u16>> {
        tiling.map(|tiling| tiling.starts().collect())
    }

    #[test]
    fn what_is_true_of_parts() {
        let whole = [head(0, 2), head(1024, 2), head(2048, 1)];
        let right = Some(vec![1024, 2048]);
        assert_eq!(starts(truth(&whole, Some(&[1024, 2048]))), right);
        assert_eq!(starts(truth(&whole, None)), right, "the list is missing");
        assert_eq!(starts(truth(&whole, Some(&[2048]))), right, "the list is short");
        // A head is missing.
        let some = [whole[0], whole[2]];
        assert_eq!(starts(truth(&some, Some(&[1024, 2048]))), right);
        assert_eq!(starts(truth(&some, None)), right);
        assert_eq!(
            starts(truth(&some, Some(&[2048]))),
            Some(vec![2048]),
            "a depth is wrong"
        );
        assert_eq!(starts(truth(&some, Some(&[3072]))), None);
        // Depths that contradict each other, and a list that nothing speaks for.
        let wrong = [head(0, 1), head(1024, 2), head(2048, 1)];
        assert_eq!(starts(truth(&wrong, Some(&[1024, 2048]))), right);
        assert_eq!(starts(truth(&wrong, None)), None);
        assert_eq!(starts(truth(&[head(0, 0)], Some(&[]))), Some(vec![]));
    }
}
