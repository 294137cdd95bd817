//! When everything is fed: what does not agree.

use super::{Checker, Dir};
use crate::fsck::finding::{Finding, Kind, Place, Subject};
use crate::text::quoted;
use pando_format::{Key, NameHash};
use pando_types::{Birth, DirId, Generation, Ids, Ino, Name, Part, SLOTS, Slot, Timestamp};

/// By so many seconds clocks may differ.
const CLOCKS: i64 = 2;

impl Checker {
    /// Compares everything, and says what is wrong.
    pub fn finish(&mut self) -> Vec<Finding> {
        for mut lane in std::mem::take(&mut self.lanes).into_values() {
            self.end_slot(&mut lane);
        }
        for i in 0..self.dirs.len() {
            self.judge(self.ids[i], self.dirs[i]);
        }
        for (id, access) in std::mem::take(&mut self.doubles) {
            let first = self.get(id).and_then(|d| d.access).map(|a| a.place);
            let detail = format!("a second name, in directory {}", access.place.part.dir);
            let finding = Finding::new(Kind::TwoNames, Subject::Dir(id), detail);
            self.findings.push(finding.at(access.place).at_each(first));
        }
        self.renamed();
        self.walk();
        self.doubled_numbers();
        self.links();
        for slot in 0..usize::from(SLOTS) {
            if self.largest[slot] >= self.reserved[slot] {
                let (largest, reserved) = (self.largest[slot], self.reserved[slot]);
                let detail = format!(
                    "inode number {largest} is in use, but the slot's counter is at {reserved}: it will be given out again"
                );
                let slot = Slot(slot as u16);
                self.find(Kind::Counter, Subject::Counter(slot, largest), detail);
            }
        }
        std::mem::take(&mut self.findings)
    }

    /// One directory: its halves, its place, its counts.
    fn judge(&mut self, id: DirId, d: Dir) {
        let subject = || Subject::Dir(id);
        if id == DirId::ABOVE_ROOT || id.is_homes() {
            return;
        }
        self.judge_parts(id, d.head);
        self.judge_list(id, (d.lines, d.named));
        let Some(head) = d.head else {
            let (parts, is_split) = self.part_heads(id);
            if let Some(access) = d.access {
                let finding = Finding::new(
                    Kind::NoContent,
                    subject(),
                    "it has a name but no content: opening it fails",
                );
                self.findings.push(finding.at(access.place));
            } else if d.entries > 0 || d.touch.is_some() || is_split {
                let detail = format!("{} entries of a directory that is not there", d.entries);
                let mut finding = Finding::new(Kind::NoHead, subject(), detail);
                finding.keys = parts;
                self.findings.push(finding);
            }
            return;
        };
        self.counts.directories += 1;
        if !head.born {
            self.find(Kind::Birth, subject(), "its ID is not the hash of its birth");
        }
        let parent_generation = match self.get(head.parent).and_then(|p| p.head) {
            Some(parent) => Some(parent.generation),
            None => (head.parent == DirId::ABOVE_ROOT).then_some(Generation::ABOVE_ROOT),
        };
        match d.access {
            None => self.find(
                Kind::NoName,
                subject(),
                "it has content but no name: it cannot be reached",
            ),
            Some(access) => {
                let mut wrong = Vec::new();
                let mut differ = |what, yes: bool| {
                    if yes {
                        wrong.push(what);
                    }
                };
                differ("generation", access.generation != head.generation);
                differ("inode number", access.ino != head.ino);
                differ("salt", access.salt != head.salt);
                differ("realm", access.realm != head.realm);
                differ("name", access.name != head.name);
                differ("parent", access.place.part.dir != head.parent);
                differ(
                    "parent's generation",
                    parent_generation.is_some_and(|g| g != head.parent_generation),
                );
                if !wrong.is_empty() {
                    let detail = format!("its halves disagree about: {}", wrong.join(", "));
                    self.findings
                        .push(Finding::new(Kind::Halves, subject(), detail).at(access.place));
                }
            }
        }
        match d.touch {
            None => self.find(Kind::NoTouch, subject(), "its counts and times are missing"),
            Some(_) if d.moving => self.find(Kind::Moving, subject(), "it changed while it was counted"),
            Some((entries, subdirs)) if (entries, subdirs) != (d.entries, d.subdirs) => {
                let detail = format!(
                    "it says {entries} entries, {subdirs} of them directories; there are {} and {}",
                    d.entries, d.subdirs
                );
                self.find(Kind::Counts, subject(), detail);
            }
            Some(_) => {}
        }
    }

    /// Where IDs are placed there are no rename lists, and no head says that it is on one.
    fn unrenamed(&mut self) {
        let mut findings = Vec::new();
        for (id, d) in self.ids.iter().zip(&self.dirs) {
            if d.head.is_some_and(|head| head.listed) {
                let detail = "it says that it is on a rename list, and IDs here are on none";
                findings.push(Finding::new(Kind::Unlisted, Subject::Dir(*id), detail));
            }
        }
        for (parent, name, _) in self.lists.values() {
            let detail = format!(
                "there is a rename list of {}, and IDs here are on none",
                quoted(name)
            );
            let finding = Finding::new(Kind::Listed, Subject::Dir(*parent), detail);
            findings.push(finding.with(Key::RenameList {
                parent: *parent,
                name: name.clone(),
            }));
        }
        self.findings.extend(findings);
    }

    /// Rename lists against the heads of directories, both ways.
    fn renamed(&mut self) {
        if self.map.ids == Ids::Placed {
            return self.unrenamed();
        }
        // Halves that disagree about the place are reported as that.
        let placed = |d: &Dir| match (d.access, d.head) {
            (Some(a), Some(h)) => (a.place.part.dir, a.name) == (h.parent, h.name),
            _ => false,
        };
        let mut findings = Vec::new();
        for (id, d) in self.ids.iter().zip(&self.dirs) {
            let Some(head) = d.head else { continue };
            let there = self.lists.get(&head.birth);
            let detail = if head.listed && !there.is_some_and(|(_, _, l)| l.contains(head.version)) {
                "it was renamed, and the rename list of its birth lacks it"
            } else if !head.listed && !head.home && placed(d) {
                "it is not where it was born, and says that it is on no rename list"
            } else {
                continue;
            };
            findings.push(Finding::new(Kind::Unlisted, Subject::Dir(*id), detail));
        }
        for (mark, (parent, name, versions)) in &self.lists {
            for version in versions.versions() {
                let birth = Birth {
                    parent: *parent,
                    name: name.clone(),
                    version,
                };
                let id = self.map.widths().dir_id(&birth);
                let head = self.get(id).and_then(|d| d.head);
                if !head.is_some_and(|h| h.listed && (h.birth, h.version) == (*mark, version)) {
                    let detail = format!(
                        "a rename list has version {version} of {} born in {parent}, and no renamed directory is that",
                        quoted(name)
                    );
                    let finding = Finding::new(Kind::Listed, Subject::Dir(id), detail);
                    findings.push(finding.with(Key::RenameList {
                        parent: *parent,
                        name: name.clone(),
                    }));
                }
            }
        }
        self.findings.extend(findings);
    }

    /// Every directory must lead up to the root. Reported are loops, and directories whose parent is not
    /// there; what is below them is not reported again.
    fn walk(&mut self) {
        const UNKNOWN: u32 = 0;
        const SEEN: u32 = u32::MAX;
        if self.get(DirId::ROOT).is_none_or(|d| d.head.is_none()) && !self.dirs.is_empty() {
            self.find(
                Kind::NoContent,
                Subject::Dir(DirId::ROOT),
                "there is no root directory",
            );
        }
        // Which walk a directory was first met in.
        let mut met = vec![UNKNOWN; self.dirs.len()];
        for start in 0..self.dirs.len() {
            let number = start as u32 + 1;
            let mut i = start;
            let mut path = Vec::new();
            loop {
                if met[i] == number {
                    let ids: Vec<DirId> = path
                        .iter()
                        .skip_while(|p| **p != i)
                        .map(|p| self.ids[*p])
                        .collect();
                    for id in &ids {
                        let detail = format!("a loop of {} directories that nothing leads into", ids.len());
                        self.find(Kind::Loop, Subject::Dir(*id), detail);
                    }
                    break;
                }
                if met[i] != UNKNOWN {
                    break;
                }
                met[i] = number;
                path.push(i);
                let Some(head) = self.dirs[i].head else { break };
                if self.ids[i] == DirId::ROOT {
                    break;
                }
                match self
                    .index
                    .get(&head.parent)
                    .filter(|p| self.dirs[**p as usize].head.is_some())
                {
                    Some(parent) => i = *parent as usize,
                    None => {
                        let detail = format!("its parent {} is not there", head.parent);
                        self.find(Kind::NoParent, Subject::Dir(self.ids[i]), detail);
                        break;
                    }
                }
            }
            path.into_iter().for_each(|i| met[i] = SEEN);
        }
    }

    /// Files at home against their names, both ways (H96).
    fn links(&mut self) {
        for ((slot, ino, generation), linked) in std::mem::take(&mut self.linked) {
            let names = linked.names.len();
            let moving = |changed: Timestamp| self.began.is_some_and(|b| changed.secs >= b.secs - CLOCKS);
            let (kind, detail) = match linked.home {
                None => (
                    Kind::Links,
                    format!("{names} names of inode {ino}, which is not there"),
                ),
                Some(home) if linked.noted != (home.names == 0) => {
                    let kind = if moving(home.changed) {
                        Kind::Moving
                    } else {
                        Kind::Links
                    };
                    let noted = if linked.noted { "noted" } else { "not noted" };
                    let detail = format!(
                        "inode {ino} counts {} names, and is {noted} as open without one",
                        home.names
                    );
                    (kind, detail)
                }
                Some(home) if home.names as usize != names => {
                    let kind = if moving(home.changed) {
                        Kind::Moving
                    } else {
                        Kind::Links
                    };
                    let detail = format!("inode {ino} counts {} names, and has {names}", home.names);
                    (kind, detail)
                }
                Some(home) if linked.names.iter().any(|(_, kind)| *kind != home.kind) => {
                    let kind = crate::text::kind_word(home.kind);
                    (
                        Kind::Links,
                        format!("inode {ino} is a {kind}, and a name of it says another kind"),
                    )
                }
                Some(_) => continue,
            };
            // Where it is, or has come to meanwhile.
            let home = Place {
                part: DirId::homes(slot).into(),
                hash: self.map.widths().name(0, &Name::home(ino, generation)),
            };
            let finding = Finding::new(kind, Subject::Ino(ino), detail);
            let places = linked.names.into_iter().map(|(place, _)| place).chain([home]);
            self.findings.push(finding.at_each(places));
        }
    }

    fn doubled_numbers(&mut self) {
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.sort_unstable();
        let mut i = 0;
        while i < numbers.len() {
            let same = numbers[i..]
                .iter()
                .take_while(|n| n.ino == numbers[i].ino)
                .count();
            if same > 1 {
                let ino = Ino(numbers[i].ino);
                let detail = format!("inode number {ino} has {same} names");
                let places = numbers[i..i + same].iter().filter_map(|n| {
                    Some(Place {
                        part: Part::new(self.ids[n.dir as usize], n.start)?,
                        hash: NameHash(n.hash),
                    })
                });
                let finding = Finding::new(Kind::Number, Subject::Ino(ino), detail).at_each(places);
                self.findings.push(finding);
            }
            i += same;
        }
    }
}
