//! Speculative path resolution (InfiniFS §3.3.2): all components of a path at once, by directory IDs that are
//! predicted from the names.
//!
//! The first component is looked up as always. The entries of the others are asked for in directories whose
//! IDs are guesses (version 0 of each birth triple), and come sealed: the key to each answer is in the one
//! before it, if the caller may search there. So a hop counts only after every hop before it confirmed
//! exactly that ID and generation (H6), and nobody learns what he may not search (H99). Where the chain
//! breaks, because a directory was renamed or does not exist, resolution goes on from the last true ID.

use crate::Client;
use crate::explain::How;
use pando_auth::seal;
use pando_env::sync::join_all;
use pando_format::Codec;
use pando_types::{Access, Birth, Cred, DirId, Errno, Ids, Name, Part, ServerId, plant};
use pando_wire::{Answer, EntryView, Op, Outcome, Probe, Request, Response, Statement};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;

/// How paths are resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Resolution {
    /// One component after the other: the baseline.
    Sequential,
    /// All at once, by predicted IDs.
    #[default]
    Speculative,
}

/// Most components guessed at once; longer paths take more rounds.
const AT_ONCE: usize = 64;

/// Entries that were resolved ahead of their turn, and how far it pays to look ahead: where directories were
/// renamed guesses are wrong, and each round would ask for all that follow again.
pub(crate) struct Ahead {
    ready: VecDeque<EntryView>,
    window: usize,
}

impl Ahead {
    pub fn new(resolution: Resolution) -> Ahead {
        Ahead {
            ready: VecDeque::new(),
            window: match resolution {
                Resolution::Sequential => 0,
                Resolution::Speculative => AT_ONCE,
            },
        }
    }

    /// So many of `guesses` were right.
    fn learn(&mut self, guesses: usize, right: usize) {
        self.window = if guesses == 0 {
            self.window.max(1)
        } else if right == 0 {
            self.window / 4
        } else {
            (self.window * 2).min(AT_ONCE)
        };
    }
}

/// What comes back of one message.
enum Got {
    First(Outcome),
    /// For these guesses, by number.
    Sealed(Vec<usize>, Vec<Vec<u8>>),
}

type Asking<'a> = Pin<Box<dyn Future<Output = Got> + 'a>>;

impl Client {
    /// The entry of `name` in `dir`, and ahead of their turn those of the names that follow. With `known`, if
    /// it is a directory that is known already, what was known of it.
    pub(crate) async fn next<'a>(
        &self,
        cred: &Cred,
        (dir, name): (&Statement, &'a Name),
        following: impl Iterator<Item = &'a Name>,
        ahead: &mut Ahead,
        known: bool,
    ) -> Result<EntryView, Errno> {
        let passed = |entry: EntryView, how| {
            self.passed(dir.id, name, entry.dir.as_ref().map(|d| d.id), how);
            Ok(entry)
        };
        if let Some(entry) = ahead.ready.pop_front() {
            return passed(entry, How::Predicted);
        }
        // Whether somebody may not search a directory is told by its server alone: that may have changed.
        if known
            && self.config.cache_bytes > 0
            && cred.may(Access::EXEC, &dir.guard())
            && let Some(entry) = self.cache.borrow_mut().child(dir, name, self.world.mono())
        {
            self.count(|s| s.cached += 1);
            return passed(entry, How::Cached);
        }
        let window = match self.map().ids {
            Ids::Predicted => ahead.window,
            Ids::Placed => 0,
        };
        let names: Vec<&Name> = std::iter::once(name).chain(following.take(window)).collect();
        ahead.ready = self.ahead(cred, dir, &names).await?.into();
        if self.config.resolution == Resolution::Speculative {
            ahead.learn(names.len() - 1, ahead.ready.len() - 1);
        }
        passed(ahead.ready.pop_front().ok_or(Errno::Io)?, How::LookedUp)
    }

    /// Resolves as many of `names` as it can in one round: the entry of the first in `dir`, and as many after
    /// it as were predicted right. Fails if the first fails.
    async fn ahead(&self, cred: &Cred, dir: &Statement, names: &[&Name]) -> Result<Vec<EntryView>, Errno> {
        let Some((first, rest)) = names.split_first() else {
            return Err(Errno::Invalid);
        };
        let guesses = match self.map().ids {
            Ids::Predicted => self.guess(dir, first, rest.iter()),
            // Nobody can guess them.
            Ids::Placed => Vec::new(),
        };
        let asked = self.world.mono();
        let lookup = Op::Lookup {
            dir: dir.clone(),
            name: (*first).clone(),
        };
        let mut asking: Vec<Asking<'_>> = vec![Box::pin(async { Got::First(self.op(cred, lookup).await) })];
        for (server, numbers) in self.by_server(&guesses) {
            let probes = numbers.iter().map(|n| guesses[*n].clone()).collect();
            asking.push(Box::pin(async move {
                let sealed = self.probe(server, cred, probes).await;
                Got::Sealed(numbers, sealed)
            }));
        }
        let mut entries = Vec::new();
        let mut sealed: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for got in join_all(asking).await {
            match got {
                Got::First(outcome) => match outcome? {
                    Answer::Entry(entry) => entries.push(entry),
                    _ => return Err(Errno::Io),
                },
                Got::Sealed(numbers, answers) => sealed.extend(numbers.into_iter().zip(answers)),
            }
        }
        self.unseal(&guesses, &sealed, &mut entries);
        let mut cache = self.cache.borrow_mut();
        for (pair, name) in entries.windows(2).zip(rest) {
            if let (Some(dir), Some(_)) = (&pair[0].dir, &pair[1].dir) {
                cache.insert(dir, name, &pair[1], self.good_until(asked, &pair[1]));
            }
        }
        drop(cache);
        self.count(|s| {
            s.guesses += guesses.len() as u64;
            s.guessed += entries.len() as u64 - 1;
        });
        Ok(entries)
    }

    /// Where the names after the first would be if every directory kept the ID it was born with here.
    fn guess<'a>(
        &self,
        dir: &Statement,
        first: &Name,
        rest: impl Iterator<Item = &'a &'a Name>,
    ) -> Vec<Probe> {
        let widths = self.map().widths();
        let born = |parent: DirId, name: &Name| {
            if parent == DirId::ABOVE_ROOT {
                return DirId::ROOT;
            }
            widths.dir_id(&Birth {
                parent,
                name: name.clone(),
                version: 0,
            })
        };
        let mut at = born(dir.id, first);
        let mut guesses = Vec::new();
        for name in rest {
            let dir = at;
            at = born(dir, name);
            guesses.push(Probe {
                dir,
                name: (*name).clone(),
            });
        }
        guesses
    }

    fn by_server(&self, guesses: &[Probe]) -> BTreeMap<ServerId, Vec<usize>> {
        let map = self.map();
        let mut by_server: BTreeMap<ServerId, Vec<usize>> = BTreeMap::new();
        for (n, guess) in guesses.iter().enumerate() {
            by_server
                .entry(map.owner(Part::whole(guess.dir).slot()))
                .or_default()
                .push(n);
        }
        by_server
    }

    /// Asks one server. What it does not answer is looked up later, one by one.
    async fn probe(&self, server: ServerId, cred: &Cred, probes: Vec<Probe>) -> Vec<Vec<u8>> {
        let request = Request::Probe {
            instance: self.instance,
            cred: cred.clone(),
            probes,
        };
        // The first try may only learn the boot epoch.
        for _ in 0..3 {
            // It waits beside the lookup of the first component.
            self.count(|s| s.beside += 1);
            match self.exchange(server, &request).await {
                Ok(Ok(Response::Sealed(answers))) => return answers.into_iter().map(|a| a.0).collect(),
                Ok(Err(pando_wire::Refusal::WrongBoot(_))) => {}
                _ => break,
            }
        }
        Vec::new()
    }

    /// Follows the chain of keys as far as it holds.
    fn unseal(&self, guesses: &[Probe], sealed: &BTreeMap<usize, Vec<u8>>, entries: &mut Vec<EntryView>) {
        for (n, guess) in guesses.iter().enumerate() {
            let Some(last) = entries.last() else { return };
            let (Some(dir), Some(key)) = (&last.dir, &last.seal) else {
                return;
            };
            if dir.id != guess.dir && !plant!(H6) {
                return;
            }
            let opened = sealed.get(&n).and_then(|s| seal::open(key, s));
            let Some(Ok(entry)) = opened.map(|text| EntryView::from_bytes(&text)) else {
                return;
            };
            entries.push(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_guesses_make_it_careful_and_right_ones_bold() {
        let mut ahead = Ahead::new(Resolution::Speculative);
        let mut windows = Vec::new();
        for (guesses, right) in [(64, 0), (16, 0), (4, 0), (1, 0), (0, 0), (1, 1), (2, 1), (4, 4)] {
            assert_eq!(ahead.window, guesses);
            ahead.learn(guesses, right);
            windows.push(ahead.window);
        }
        assert_eq!(windows, [16, 4, 1, 0, 1, 2, 4, 8]);
        assert_eq!(Ahead::new(Resolution::Sequential).window, 0);
    }
}
