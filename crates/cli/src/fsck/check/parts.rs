//! Directories that are split. A directory is the union of its live parts: those that have a head.
//! What stands outside of its part's hashes, or in a part without a head, is no entry of the tree, and a note
//! must say so.

use super::{Checker, Content};
use crate::fsck::finding::{Finding, Kind, Subject};
use crate::fsck::parts::{part_at, said_by};
use pando_format::{Key, NameHash, PartNote, PartRecord, Record, Target};
use pando_types::{DirId, Division, Part, SLOTS, Tile, Tiling};

/// What is known of a part other than 0. Of part 0: its note, and what it left behind.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    head: Option<PartRecord>,
    /// Entries and subdirectories by the touch.
    touch: Option<(u64, u64)>,
    /// As counted.
    entries: u64,
    subdirs: u64,
    /// The touch changed while the entries were read.
    moving: bool,
    note: Option<PartNote>,
    /// Entries and attachments that are none of the tree's.
    aside: u64,
}

/// The list of a directory's parts.
#[derive(Clone, Default)]
pub(super) struct Listed {
    starts: Vec<u16>,
    /// It changed while the parts were read.
    moving: bool,
}

impl Checker {
    pub(super) fn part(&mut self, part: Part) -> &mut Seen {
        // So that it is judged.
        self.dir(part.dir);
        self.parts.entry(part).or_default()
    }

    /// Takes a head ahead of its turn, because entries are judged by it.
    pub fn head(&mut self, part: Part, head: &Record) {
        match head {
            Record::Head(head) => self.content(part.dir, head),
            Record::Part(head) => self.part(part).head = Some(*head),
            _ => {}
        }
    }

    pub(super) fn counted_by_touch(&mut self, part: Part, now: (u64, u64)) {
        let (touch, moving) = match part.start() {
            0 => {
                let dir = self.dir(part.dir).1;
                (&mut dir.touch, &mut dir.moving)
            }
            _ => {
                let seen = self.part(part);
                (&mut seen.touch, &mut seen.moving)
            }
        };
        *moving |= touch.is_some_and(|before| before != now);
        *touch = Some(now);
    }

    pub(super) fn count(&mut self, part: Part, target: &Target) {
        let subdir = u64::from(matches!(target, Target::Dir(_)));
        let part = match self.has_lists() {
            true => Part::whole(part.dir),
            false => part,
        };
        let (entries, subdirs) = match part.start() {
            0 => {
                let dir = self.dir(part.dir).1;
                (&mut dir.entries, &mut dir.subdirs)
            }
            _ => {
                let seen = self.part(part);
                (&mut seen.entries, &mut seen.subdirs)
            }
        };
        *entries += 1;
        *subdirs += subdir;
    }

    pub(super) fn note(&mut self, part: Part, note: PartNote) {
        self.part(part).note = Some(note);
    }

    pub(super) fn list(&mut self, dir: DirId, starts: &[u16]) {
        self.dir(dir);
        match self.part_lists.get_mut(&dir) {
            Some(list) => {
                list.moving |= list.starts != starts;
                list.starts = starts.to_vec();
            }
            None => {
                let (starts, moving) = (starts.to_vec(), false);
                self.part_lists.insert(dir, Listed { starts, moving });
            }
        }
    }

    /// The hashes that a part has, if it is there.
    fn tile(&self, part: Part) -> Option<Tile> {
        let (start, depth) = match part.start() {
            0 => (0, self.get(part.dir)?.head?.depth),
            start => (start, self.parts.get(&part)?.head?.depth),
        };
        Some(Tile { start, depth })
    }

    /// Whether what stands there is the tree's. If it is not, that is counted.
    pub(super) fn takes(&mut self, part: Part, hash: NameHash) -> bool {
        let its = match self.tile(part) {
            _ if self.has_lists() => part == Division::OneByOne.part(part.dir, hash.upper()),
            Some(tile) => tile.has(hash.upper()),
            // Entries of a directory without a head are found out as that.
            None => part.start() == 0,
        };
        let its = its || part.dir.is_homes() || part.dir == DirId::ABOVE_ROOT;
        if !its {
            self.part(part).aside += 1;
        }
        its
    }

    /// By what a part's names are hashed.
    pub(super) fn salt(&self, part: Part) -> Option<u64> {
        match part.start() {
            _ if self.has_lists() => Some(self.get(part.dir)?.head?.salt),
            0 => Some(self.get(part.dir)?.head?.salt),
            _ => Some(self.parts.get(&part)?.head?.salt),
        }
    }

    fn parts_of(&self, dir: DirId) -> Vec<(Part, Seen)> {
        let last = Part::new(dir, SLOTS - 1).unwrap_or(Part::whole(dir));
        let all = self.parts.range(Part::whole(dir)..=last);
        all.map(|(part, seen)| (*part, *seen)).collect()
    }

    /// Heads of the parts but 0 of a directory, and whether it has such or a list of them.
    pub(super) fn part_heads(&self, dir: DirId) -> (Vec<Key>, bool) {
        let parts = self.parts_of(dir).into_iter();
        let live = parts.filter(|(_, seen)| seen.head.is_some());
        let heads: Vec<Key> = live.map(|(part, _)| Key::Head(part)).collect();
        let listed = self.part_lists.get(&dir).is_some_and(|l| !l.starts.is_empty());
        let any = listed || !heads.is_empty();
        (heads, any)
    }

    /// The parts of a directory: each by itself, and together.
    pub(super) fn judge_parts(&mut self, id: DirId, head: Option<Content>) {
        let parts = self.parts_of(id);
        let listed = self.part_lists.get(&id).cloned().unwrap_or_default();
        for (part, seen) in &parts {
            let live = match part.start() {
                0 => head.is_some(),
                _ => seen.head.is_some(),
            };
            self.judge_left(*part, *seen, live.then_some(*part));
            if part.start() != 0 && live {
                self.judge_counts(*part, *seen);
            }
        }
        let Some(head) = head else { return };
        if listed.moving {
            let detail = "it was split while it was looked at";
            return self.find(Kind::Moving, Subject::Dir(id), detail);
        }
        let depth = |seen: &Seen| seen.head.map(|head| head.depth);
        let mut live = vec![Tile {
            start: 0,
            depth: head.depth,
        }];
        live.extend(parts.iter().filter_map(|(part, seen)| {
            let (start, depth) = (part.start(), depth(seen)?);
            Some(Tile { start, depth })
        }));
        let starts: Vec<u16> = live[1..].iter().map(|tile| tile.start).collect();
        let mut findings = Vec::new();
        if listed.starts != starts {
            let detail = format!(
                "its parts are {}, and its list says {}",
                words(&starts),
                words(&listed.starts)
            );
            findings.push(Finding::new(Kind::PartList, Subject::Dir(id), detail));
        }
        let mut wrong = tiled(&live, &starts);
        for (part, seen) in &parts {
            if let Some(its) = seen.head
                && (its.generation, its.salt) != (head.generation, head.salt)
            {
                wrong.push(format!("part {} is of another directory", part.start()));
            }
        }
        if !wrong.is_empty() {
            findings.push(Finding::new(Kind::Part, Subject::Dir(id), wrong.join("; ")));
        }
        let all: Vec<u16> = starts.iter().chain(&listed.starts).copied().collect();
        for mut finding in findings {
            for start in &all {
                let depth = Tile::first_depth(*start);
                let key = Key::Head(part_at(id, Tile { start: *start, depth }));
                if !finding.keys.contains(&key) {
                    finding.keys.push(key);
                }
            }
            self.findings.push(finding);
        }
    }

    /// What is left behind in a part, against its note. `live`: it is there.
    fn judge_left(&mut self, part: Part, seen: Seen, live: Option<Part>) {
        let is_right = match (live, seen.note) {
            (Some(_), Some(PartNote::Debris)) | (None, Some(PartNote::Coming(_))) => true,
            (_, Some(PartNote::Debris | PartNote::Coming(_)) | None) => false,
        };
        if is_right {
            return;
        }
        let counts = live.is_none() && seen.touch.is_some();
        if seen.aside > 0 || counts {
            let what = match (live, seen.aside) {
                (Some(_), n) => format!("{n} records that are outside of its hashes"),
                (None, 0) => "counts, and has no head".into(),
                (None, n) => format!("{n} records, and has no head"),
            };
            let detail = format!("part {} has {what}, and no note says why", part.start());
            return self.find(Kind::LeftBehind, Subject::Part(part), detail);
        }
        let detail = match (seen.note, live) {
            (None, _) => return,
            (Some(_), Some(_)) => "is there, and is noted to be on its way",
            (Some(_), None) => "is not there, and is noted to have left something behind",
        };
        let detail = format!("part {} {detail}", part.start());
        self.find(Kind::PartNote, Subject::Part(part), detail);
    }

    fn judge_counts(&mut self, part: Part, seen: Seen) {
        let subject = Subject::Part(part);
        match seen.touch {
            None => {
                let detail = format!("the counts and times of part {} are missing", part.start());
                self.find(Kind::NoTouch, subject, detail);
            }
            Some(_) if seen.moving => self.find(Kind::Moving, subject, "it changed while it was counted"),
            Some((entries, subdirs)) if (entries, subdirs) != (seen.entries, seen.subdirs) => {
                let detail = format!(
                    "part {} says {entries} entries, {subdirs} of them directories; there are {} and {}",
                    part.start(),
                    seen.entries,
                    seen.subdirs
                );
                self.find(Kind::Counts, subject, detail);
            }
            Some(_) => {}
        }
    }
}

/// Why these heads do not tile the hash space, if so.
fn tiled(live: &[Tile], starts: &[u16]) -> Vec<String> {
    let whole = Tiling::of(starts.iter().copied());
    if whole.is_some_and(|tiling| tiling.tiles().eq(live.iter().copied())) {
        return Vec::new();
    }
    match said_by(live) {
        Some(said) => {
            let missing = said.starts().filter(|start| !starts.contains(start));
            let missing: Vec<u16> = missing.collect();
            vec![format!(
                "by the depth of its other parts it has {} too, without heads",
                words(&missing)
            )]
        }
        None => {
            let all: Vec<String> = live
                .iter()
                .map(|t| format!("{} of depth {}", t.start, t.depth))
                .collect();
            vec![format!("its parts do not tile its hashes: {}", all.join(", "))]
        }
    }
}

/// Starts of parts, in words.
fn words(starts: &[u16]) -> String {
    match starts {
        [] => "none but 0".into(),
        starts => starts.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
    }
}
