//! Patterns of names, as fnmatch(3) has them.

/// A character, or a byte that is part of none.
type Char = u32;

enum Part {
    One(Char),
    Any,
    Many,
    /// Ranges, and whether it is none of them.
    Of(Vec<(Char, Char)>, bool),
}

/// A pattern.
pub struct Glob(Vec<Part>);

fn chars(bytes: &[u8]) -> Vec<Char> {
    let mut out = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.extend(chunk.valid().chars().map(Char::from));
        // Beyond all characters.
        out.extend(chunk.invalid().iter().map(|b| 0x11_0000 + Char::from(*b)));
    }
    out
}

impl Glob {
    pub fn new(pattern: &[u8]) -> Glob {
        let pattern = chars(pattern);
        let (mut parts, mut at) = (Vec::new(), 0);
        while let Some(c) = pattern.get(at) {
            at += 1;
            parts.push(match char::from_u32(*c) {
                Some('*') => Part::Many,
                Some('?') => Part::Any,
                Some('\\') if at < pattern.len() => {
                    at += 1;
                    Part::One(pattern[at - 1])
                }
                Some('[') => match bracket(&pattern[at..]) {
                    Some((part, used)) => {
                        at += used;
                        part
                    }
                    None => Part::One(*c),
                },
                _ => Part::One(*c),
            });
        }
        Glob(parts)
    }

    pub fn matches(&self, name: &[u8]) -> bool {
        let name = chars(name);
        let (mut part, mut at) = (0, 0);
        // Behind the last `*`, and what of the name it has taken so far.
        let mut back = None;
        loop {
            match (self.0.get(part), name.get(at)) {
                (Some(Part::Many), _) => {
                    part += 1;
                    back = Some((part, at));
                    continue;
                }
                (None, None) => return true,
                (Some(p), Some(c)) if p.takes(*c) => {
                    part += 1;
                    at += 1;
                    continue;
                }
                _ => {}
            }
            match &mut back {
                Some((behind, taken)) if *taken < name.len() => {
                    *taken += 1;
                    (part, at) = (*behind, *taken);
                }
                _ => return false,
            }
        }
    }
}

impl Part {
    fn takes(&self, c: Char) -> bool {
        match self {
            Part::One(one) => *one == c,
            Part::Any => true,
            Part::Many => false,
            Part::Of(ranges, none) => ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)) != *none,
        }
    }
}

/// What stands behind `[`, and how much of it. `None`: it has no end, so it is a character as any other.
fn bracket(text: &[Char]) -> Option<(Part, usize)> {
    let is = |at: usize, c: char| text.get(at) == Some(&Char::from(c));
    let none = is(0, '!') || is(0, '^');
    let first = usize::from(none);
    let (mut at, mut ranges) = (first, Vec::new());
    loop {
        // A `]` that comes first is one of them.
        if is(at, ']') && at > first {
            return Some((Part::Of(ranges, none), at + 1));
        }
        at += usize::from(is(at, '\\'));
        let from = *text.get(at)?;
        at += 1;
        if is(at, '-') && !is(at + 1, ']') {
            ranges.push((from, *text.get(at + 1)?));
            at += 2;
        } else {
            ranges.push((from, from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn as_fnmatch() {
        for (pattern, yes, no) in [
            ("a", &["a"][..], &["", "b", "aa"][..]),
            ("*", &["", "a", ".hidden"], &[]),
            ("*.rs", &[".rs", "a.rs", "a.rs.rs"], &["a.r", "rs"]),
            ("a*b*c", &["abc", "axxbxc", "abbbcc"], &["ab", "acb", "abcd"]),
            ("?x", &["ax", "äx"], &["x", "aax"]),
            ("[a-c]1", &["a1", "c1"], &["d1", "-1"]),
            ("[!a-c]", &["d"], &["a", "c", ""]),
            ("[^a]", &["b"], &["a"]),
            ("[]x]", &["]", "x"], &["y"]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[x", &["[x"], &["x"]),
            ("\\*", &["*"], &["a"]),
            ("[\\]]", &["]"], &["\\"]),
            ("**a**", &["a", "xay"], &["x"]),
        ] {
            let glob = Glob::new(pattern.as_bytes());
            for name in yes {
                assert!(glob.matches(name.as_bytes()), "{pattern} {name}");
            }
            for name in no {
                assert!(!glob.matches(name.as_bytes()), "{pattern} {name}");
            }
        }
        assert!(Glob::new(b"?\xFF*").matches(b"\xFE\xFFx"));
        assert!(!Glob::new(b"\xFF").matches(b"\xFE"));
        // Not all ways to share out a name are tried.
        assert!(!Glob::new("a*".repeat(40).as_bytes()).matches("a".repeat(39).as_bytes()));
    }
}
