//! Locks that programs take on files: `flock` and `fcntl`. Advice among programs; no operation looks at them.
//! And the turns of mounts that append to one file.
//!
//! One table for one file and one family. All families obey the same rules; of `flock` and of turns every
//! span is [`Span::ALL`].

/// The families. A lock of one never conflicts with one of the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockFamily {
    /// `fcntl`: ranges of bytes, owned by a process.
    Posix,
    /// `flock`: the whole file, owned by an open file.
    Flock,
    /// The turn to append to the file's blocks, owned by a mount; no program asks for it.
    Append,
}

/// Shared with others of its kind, or alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hold {
    /// `F_RDLCK`, `LOCK_SH`
    Shared,
    /// `F_WRLCK`, `LOCK_EX`
    Exclusive,
}

impl Hold {
    fn excludes(self, other: Hold) -> bool {
        self == Hold::Exclusive || other == Hold::Exclusive
    }
}

/// Bytes from `first` to `last`, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// The first.
    pub first: u64,
    /// The last; `u64::MAX`: however long the file becomes.
    pub last: u64,
}

impl Span {
    /// The whole file.
    pub const ALL: Span = Span {
        first: 0,
        last: u64::MAX,
    };

    /// `None`: it would be empty.
    pub fn new(first: u64, last: u64) -> Option<Span> {
        (first <= last).then_some(Span { first, last })
    }

    /// Whether they have a byte in common.
    pub fn meets(self, other: Span) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// What of this is before and after another.
    fn without(self, other: Span) -> [Option<Span>; 2] {
        let before = other
            .first
            .checked_sub(1)
            .and_then(|last| Span::new(self.first, last.min(self.last)));
        let after = other
            .last
            .checked_add(1)
            .and_then(|first| Span::new(first.max(self.first), self.last));
        [before, after]
    }

    /// What both have.
    fn common(self, other: Span) -> Option<Span> {
        Span::new(self.first.max(other.first), self.last.min(other.last))
    }
}

/// A lock that somebody has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Held<O> {
    /// Who.
    pub owner: O,
    /// Of what.
    pub span: Span,
    /// How.
    pub hold: Hold,
    /// The process that took it, on its own machine: only to be shown.
    pub pid: u32,
}

/// The locks of one family on one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spans<O>(Vec<Held<O>>);

impl<O> Default for Spans<O> {
    fn default() -> Self {
        Spans(Vec::new())
    }
}

impl<O: Copy + Ord> Spans<O> {
    /// All of them: by owner, then by first byte.
    pub fn iter(&self) -> impl Iterator<Item = &Held<O>> {
        self.0.iter()
    }

    /// Those of one owner, in order.
    pub fn of(&self, owner: O) -> impl Iterator<Item = &Held<O>> {
        self.0.iter().filter(move |h| h.owner == owner)
    }

    /// Those of others that are in the way of a lock.
    pub fn against(&self, owner: O, span: Span, hold: Hold) -> impl Iterator<Item = &Held<O>> {
        self.0
            .iter()
            .filter(move |h| h.owner != owner && h.span.meets(span) && h.hold.excludes(hold))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From now on the owner has this lock, or none, on these bytes, whatever it had there before. What
    /// touches another of the same kind becomes one with it; what sticks out stays. REQUIRES: nothing is
    /// [against](Spans::against) it.
    pub fn set(&mut self, owner: O, span: Span, hold: Option<Hold>, pid: u32) {
        let (own, mut kept): (Vec<_>, Vec<_>) = self.0.drain(..).partition(|h| h.owner == owner);
        let mut pieces: Vec<Held<O>> = own
            .iter()
            .flat_map(|h| {
                h.span
                    .without(span)
                    .into_iter()
                    .flatten()
                    .map(|span| Held { span, ..*h })
            })
            .collect();
        if let Some(hold) = hold {
            pieces.push(Held {
                owner,
                span,
                hold,
                pid,
            });
        }
        pieces.sort_by_key(|h| h.span);
        for piece in pieces {
            match kept.last_mut() {
                Some(last)
                    if last.owner == owner
                        && last.hold == piece.hold
                        && last.span.last.checked_add(1) == Some(piece.span.first) =>
                {
                    last.span.last = piece.span.last;
                    last.pid = pid;
                }
                _ => kept.push(piece),
            }
        }
        kept.sort();
        self.0 = kept;
    }

    /// By how many pieces there are more after [`Spans::set`]; `Err`: so many fewer, or as many.
    pub fn growth(&self, owner: O, span: Span, hold: Option<Hold>) -> Result<usize, usize> {
        let mut own = Spans(self.of(owner).copied().collect());
        let before = own.len();
        own.set(owner, span, hold, 0);
        match own.len() {
            after if after > before => Ok(after - before),
            after => Err(before - after),
        }
    }

    /// What an owner has of these bytes, piece by piece, with those it has nothing of.
    pub fn pieces(&self, owner: O, span: Span) -> Vec<(Span, Option<Hold>)> {
        let mut pieces = Vec::new();
        let mut rest = Some(span);
        for h in self.of(owner) {
            let Some(left) = rest else { break };
            let Some(common) = left.common(h.span) else {
                continue;
            };
            let [before, after] = left.without(common);
            pieces.extend(before.map(|s| (s, None)));
            pieces.push((common, Some(h.hold)));
            rest = after;
        }
        pieces.extend(rest.map(|s| (s, None)));
        pieces
    }

    /// All locks of some owners go. Whether there were any.
    pub fn remove(&mut self, mut gone: impl FnMut(O) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|h| !gone(h.owner));
        self.0.len() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const BYTES: u64 = 12;

    /// What each owner has of each byte.
    #[derive(Default)]
    struct Naive(BTreeMap<(u8, u64), Hold>);

    impl Naive {
        fn free(&self, owner: u8, span: Span, hold: Hold) -> bool {
            let others = |(o, b): &(u8, u64)| *o != owner && (span.first..=span.last).contains(b);
            let excluded = |h: &Hold| *h == Hold::Exclusive || hold == Hold::Exclusive;
            !self.0.iter().any(|(at, h)| others(at) && excluded(h))
        }

        fn set(&mut self, owner: u8, span: Span, hold: Option<Hold>) {
            for byte in span.first..=span.last {
                match hold {
                    Some(hold) => self.0.insert((owner, byte), hold),
                    None => self.0.remove(&(owner, byte)),
                };
            }
        }
    }

    fn agree(spans: &Spans<u8>, naive: &Naive) {
        let mut seen = BTreeMap::new();
        let mut last: Option<&Held<u8>> = None;
        for h in spans.iter() {
            for byte in h.span.first..=h.span.last {
                assert_eq!(seen.insert((h.owner, byte), h.hold), None, "twice: {spans:?}");
            }
            // Neighbours of one kind are one.
            if let Some(l) = last.filter(|l| l.owner == h.owner && l.hold == h.hold) {
                assert!(l.span.last + 1 < h.span.first, "{spans:?}");
            }
            last = Some(h);
        }
        assert_eq!(seen, naive.0);
    }

    #[test]
    fn random_walks_agree_with_bytes() {
        let mut x = 0x9E37_79B9_u64;
        let mut random = move |n: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x % n
        };
        for _ in 0..300 {
            let (mut spans, mut naive) = (Spans::default(), Naive::default());
            for _ in 0..60 {
                let owner = random(3) as u8;
                let (a, b) = (random(BYTES), random(BYTES));
                let span = Span::new(a.min(b), a.max(b)).unwrap();
                let hold = [None, Some(Hold::Shared), Some(Hold::Exclusive)][random(3) as usize];
                if let Some(hold) = hold {
                    let free = spans.against(owner, span, hold).next().is_none();
                    assert_eq!(free, naive.free(owner, span, hold));
                    if !free {
                        continue;
                    }
                }
                let before: Vec<_> = spans.pieces(owner, span);
                let covered: u64 = before.iter().map(|(s, _)| s.last - s.first + 1).sum();
                assert_eq!(covered, span.last - span.first + 1);
                for (piece, hold) in before {
                    for byte in piece.first..=piece.last {
                        assert_eq!(naive.0.get(&(owner, byte)).copied(), hold);
                    }
                }
                spans.set(owner, span, hold, 1);
                naive.set(owner, span, hold);
                agree(&spans, &naive);
                if random(20) == 0 {
                    let gone = random(3) as u8;
                    let had = naive.0.keys().any(|(o, _)| *o == gone);
                    assert_eq!(spans.remove(|o| o == gone), had);
                    naive.0.retain(|(o, _), _| *o != gone);
                    agree(&spans, &naive);
                }
            }
        }
    }

    #[test]
    fn the_ends_of_a_file_are_no_exception() {
        let mut spans = Spans::default();
        spans.set(1, Span::ALL, Some(Hold::Shared), 1);
        spans.set(1, Span { first: 5, last: 5 }, None, 1);
        spans.set(
            1,
            Span {
                first: u64::MAX,
                last: u64::MAX,
            },
            Some(Hold::Exclusive),
            1,
        );
        let all: Vec<_> = spans
            .iter()
            .map(|h| (h.span.first, h.span.last, h.hold))
            .collect();
        let expected = [
            (0, 4, Hold::Shared),
            (6, u64::MAX - 1, Hold::Shared),
            (u64::MAX, u64::MAX, Hold::Exclusive),
        ];
        assert_eq!(all, expected);
        spans.set(1, Span::ALL, None, 1);
        assert!(spans.is_empty());
        assert_eq!(Span::new(2, 1), None);
    }
}
