//! Rename lists: which versions of a birth are taken by directories that live elsewhere (InfiniFS §3.3.1).

use crate::codec::{Codec, DecodeError, Reader};
use crate::codec_struct;

/// The versions under which directories were born as one name in one parent, that have been renamed since and
/// live (H2–H5). Kept as runs: where many directories are made under one name and moved away, the versions
/// are dense. A list without versions has no record.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct RenameList {
    /// Ascending, with at least one version between one run and the next.
    runs: Vec<Run>,
}

/// Versions from `first` to `last`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Run {
    first: u32,
    last: u32,
}

codec_struct!(Run { first, last });

impl Codec for RenameList {
    fn put(&self, out: &mut Vec<u8>) {
        self.runs.put(out);
    }
    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let runs: Vec<Run> = Codec::take(r)?;
        let apart = |w: &[Run]| w[0].last < w[1].first && w[1].first - w[0].last > 1;
        if runs.is_empty() || runs.iter().any(|r| r.first > r.last) || !runs.windows(2).all(apart) {
            return Err(DecodeError::Invalid("rename list"));
        }
        Ok(RenameList { runs })
    }
}

impl RenameList {
    /// Whether no version is in it.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many versions are in it.
    pub fn len(&self) -> u64 {
        let run = |r: &Run| u64::from(r.last) - u64::from(r.first) + 1;
        self.runs.iter().map(run).sum()
    }

    /// The versions, ascending.
    pub fn versions(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|r| r.first..=r.last)
    }

    /// Whether a version is in it.
    pub fn contains(&self, version: u32) -> bool {
        self.at(version).is_ok()
    }

    /// The smallest version from `floor` on that is not in it (H2).
    pub fn free_from(&self, floor: u32) -> Option<u32> {
        match self.at(floor) {
            Ok(run) => self.runs[run].last.checked_add(1),
            Err(_) => Some(floor),
        }
    }

    /// Adds a version. False: it was in it.
    pub fn insert(&mut self, version: u32) -> bool {
        let Err(at) = self.at(version) else {
            return false;
        };
        let joins_before = at > 0 && self.runs[at - 1].last.checked_add(1) == Some(version);
        let joins_after = self
            .runs
            .get(at)
            .is_some_and(|r| version.checked_add(1) == Some(r.first));
        match (joins_before, joins_after) {
            (true, true) => {
                self.runs[at - 1].last = self.runs[at].last;
                self.runs.remove(at);
            }
            (true, false) => self.runs[at - 1].last = version,
            (false, true) => self.runs[at].first = version,
            (false, false) => self.runs.insert(
                at,
                Run {
                    first: version,
                    last: version,
                },
            ),
        }
        true
    }

    /// Takes a version out. False: it was not in it.
    pub fn remove(&mut self, version: u32) -> bool {
        let Ok(at) = self.at(version) else {
            return false;
        };
        let run = self.runs[at];
        self.runs.remove(at);
        if version < run.last {
            let first = version + 1;
            self.runs.insert(at, Run { first, ..run });
        }
        if version > run.first {
            let last = version - 1;
            self.runs.insert(at, Run { last, ..run });
        }
        true
    }

    /// The run that has this version, or where one would go.
    fn at(&self, version: u32) -> Result<usize, usize> {
        let at = self.runs.partition_point(|r| r.last < version);
        match self.runs.get(at) {
            Some(r) if r.first <= version => Ok(at),
            _ => Err(at),
        }
    }
}

impl FromIterator<u32> for RenameList {
    fn from_iter<T: IntoIterator<Item = u32>>(versions: T) -> RenameList {
        let mut list = RenameList::default();
        for v in versions {
            list.insert(v);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn only_one_form_is_read() {
        let run = |first: u32, last: u32| Run { first, last };
        let read = |runs: Vec<Run>| RenameList::from_bytes(&runs.to_bytes());
        assert!(read(vec![run(0, 3), run(5, 5)]).is_ok());
        for bad in [
            vec![],
            vec![run(3, 2)],
            vec![run(0, 3), run(4, 5)],
            vec![run(0, 3), run(2, 5)],
            vec![run(5, 5), run(0, 3)],
        ] {
            assert_eq!(read(bad), Err(DecodeError::Invalid("rename list")));
        }
    }

    #[test]
    fn the_last_version_is_not_passed() {
        let mut list: RenameList = [u32::MAX - 1, u32::MAX].into_iter().collect();
        assert_eq!(list.free_from(u32::MAX - 1), None);
        assert_eq!(list.free_from(0), Some(0));
        assert!(list.remove(u32::MAX));
        assert_eq!(list.free_from(u32::MAX - 1), Some(u32::MAX));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// It is a set of numbers, whatever is done to it, and its form is the one that is read.
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0u32..24), 0..80), floor in 0u32..26) {
            let (mut list, mut set) = (RenameList::default(), BTreeSet::new());
            for (add, version) in steps {
                if add {
                    prop_assert_eq!(list.insert(version), set.insert(version));
                } else {
                    prop_assert_eq!(list.remove(version), set.remove(&version));
                }
                prop_assert_eq!(list.versions().collect::<BTreeSet<_>>(), set.clone());
                prop_assert_eq!(list.len(), set.len() as u64);
                if !list.is_empty() {
                    prop_assert_eq!(RenameList::from_bytes(&list.to_bytes()), Ok(list.clone()));
                }
            }
            prop_assert_eq!(list.free_from(floor), (floor..).find(|v| !set.contains(v)));
            prop_assert!((0..26).all(|v| list.contains(v) == set.contains(&v)));
        }
    }
}
