//! Reading records from the servers: everything as a stream, or the few that findings are about. A damaged
//! record does not end a stream: the range that cannot be read is narrowed down, noted, and passed over.

use super::check::Checker;
use super::finding::{Finding, Kind, Place, Subject};
use super::parts::{self, part_at};
use super::range::{PRECISION, beyond, describe, empty, just, middle, of_what};
use crate::progress::Progress;
use pando_client::Client;
use pando_format::{Key, KeyRange, LOCAL_SLOT, Left, NameHash, PartsRecord, Record, Remains, Scan, Tag};
use pando_types::{DirId, Errno, Part, SLOTS, ServerId, Slot};
use pando_wire::{Request, Response};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Records asked for at once.
const PAGE: u32 = 4096;
/// Why a range was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// A record in it is damaged.
    Damaged,
    /// The server is away: nothing can be said.
    Away(ServerId),
}

/// Records beside damage, and the damage.
#[derive(Default)]
pub struct Past {
    /// Records that can be read.
    pub records: Vec<(Key, Record)>,
    /// Losses.
    pub lost: Vec<Finding>,
    /// The range that was not looked at.
    pub rest: Option<KeyRange>,
}

/// Records that are left.
fn whole(remains: Remains) -> Vec<(Key, Record)> {
    let found = remains.found.into_iter();
    found
        .filter_map(|r| match r.left {
            Left::Whole(record) | Left::Older(record) => Some((r.key, record)),
            Left::Nothing => None,
        })
        .collect()
}

/// Findings of a range that cannot be read.
fn damage(server: ServerId, hole: KeyRange, remains: &Remains) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut left = 0;
    for remnant in &remains.found {
        let subject = Subject::Record(server, remnant.key.encode());
        match remnant.left {
            Left::Whole(_) => left += 1,
            Left::Older(_) => all.push(Finding::new(
                Kind::Older,
                subject,
                format!("{} may be older than what was lost", of_what(&remnant.key)),
            )),
            Left::Nothing => all.push(Finding::new(
                Kind::Lost,
                subject,
                format!("{} cannot be read any more", of_what(&remnant.key)),
            )),
        }
    }
    let tables = match &remains.tables[..] {
        [] => "a table of the store is damaged".into(),
        tables => format!("damaged: {}", tables.join(", ")),
    };
    let more = match remains.more {
        true => ", and there may have been records whose names are lost too",
        false => "",
    };
    let detail = format!(
        "cannot be read: {} ({tables}); {left} records in it are whole{more}",
        describe(&hole)
    );
    let subject = Subject::Range(server, hole.start, hole.end);
    all.push(Finding::new(Kind::Corrupt, subject, detail));
    all
}

/// Which directories, places and parts findings are about.
fn about(findings: &[Finding]) -> (BTreeSet<DirId>, BTreeSet<Place>, BTreeSet<Part>) {
    let (mut dirs, mut places, mut named) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for f in findings {
        places.extend(f.places.iter().copied());
        named.extend(f.keys.iter().filter_map(|key| match key {
            Key::Head(part) => Some(*part),
            _ => None,
        }));
        match &f.subject {
            Subject::Dir(id) => drop(dirs.insert(*id)),
            Subject::Part(part) => {
                dirs.insert(part.dir);
                named.insert(*part);
            }
            Subject::Bucket(place) => drop(places.insert(*place)),
            _ => {}
        }
    }
    (dirs, places, named)
}

/// Reads from the servers of one cluster.
pub struct Collector {
    client: Rc<Client>,
}

impl Collector {
    /// Reads through this client.
    pub fn new(client: Rc<Client>) -> Collector {
        Collector { client }
    }

    async fn ask(
        &self,
        server: ServerId,
        range: &KeyRange,
        limit: u32,
    ) -> Result<Vec<(Key, Record)>, Unread> {
        let request = Request::Scan {
            range: range.clone(),
            limit,
        };
        match self.client.admin(server, request).await {
            Ok(Response::Records(records)) => Ok(records),
            Ok(Response::Op(outcome)) if *outcome == Err(Errno::Io) => Err(Unread::Damaged),
            _ => Err(Unread::Away(server)),
        }
    }

    /// What is left of a range that cannot be read.
    pub async fn remains(&self, server: ServerId, range: &KeyRange) -> Result<Remains, Unread> {
        let mut all = Remains::default();
        let mut rest = Some(range.clone());
        while let Some(range) = rest {
            let asked = self.client.admin(server, Request::Remains(range)).await;
            let some = match asked {
                Ok(Response::Remains(some)) => some,
                // Nothing is known of it, but that it is damaged.
                Ok(Response::Op(outcome)) if *outcome == Err(Errno::Io) => Remains {
                    more: true,
                    ..Remains::default()
                },
                _ => return Err(Unread::Away(server)),
            };
            all.more |= some.more;
            all.found.extend(some.found);
            for table in some.tables {
                if !all.tables.contains(&table) {
                    all.tables.push(table);
                }
            }
            rest = some.rest;
        }
        Ok(all)
    }

    /// All of a server's store, in order; `each` gets every record, `damaged` every range that cannot be
    /// read. Of what is in those, `each` gets what is whole.
    pub async fn stream(
        &self,
        server: ServerId,
        mut range: KeyRange,
        each: &mut dyn FnMut(Key, Record),
        damaged: &mut dyn FnMut(KeyRange),
    ) -> Result<(), Unread> {
        let mut limit = PAGE;
        while !empty(&range) {
            match self.ask(server, &range, limit).await {
                Ok(records) => {
                    let Some((last, _)) = records.last() else {
                        return Ok(());
                    };
                    range = range.after(last);
                    records.into_iter().for_each(|(k, r)| each(k, r));
                    limit = PAGE;
                }
                // What precedes the damage is read in smaller steps.
                Err(Unread::Damaged) if limit > 1 => limit = (limit / 8).max(1),
                Err(Unread::Damaged) => {
                    let hole = self.hole(server, &range).await?;
                    range.start.clone_from(&hole.end);
                    whole(self.remains(server, &hole).await?)
                        .into_iter()
                        .for_each(|(k, r)| each(k, r));
                    damaged(hole);
                }
                Err(away) => return Err(away),
            }
        }
        Ok(())
    }

    /// The first record of a range cannot be read. Returns what must be passed over so that reading can go
    /// on.
    ///
    /// What is damaged may be one record or a block of a table file with many. Looked for is the first key
    /// from which on reading works: first with steps that grow, so that good records before a second damage
    /// are not passed over, then by halving. Each try reads to the far end of the range, because a store may
    /// know without looking that a narrow range is empty.
    async fn hole(&self, server: ServerId, range: &KeyRange) -> Result<KeyRange, Unread> {
        let reads_from = async |start: &[u8]| {
            let rest = KeyRange {
                start: start.to_vec(),
                end: range.end.clone(),
            };
            if empty(&rest) {
                return Ok(true);
            }
            match self.ask(server, &rest, 1).await {
                Ok(_) => Ok(true),
                Err(Unread::Damaged) => Ok(false),
                Err(away) => Err(away),
            }
        };
        // Invariant: reading does not work from `bad`, and works from `good`.
        let (mut bad, mut good) = (range.start.clone(), range.end.clone());
        for length in (0..=range.start.len().min(PRECISION)).rev() {
            let next = beyond(&range.start[..length]);
            if next >= range.end {
                break;
            }
            if reads_from(&next).await? {
                good = next;
                break;
            }
            bad = next;
        }
        loop {
            let between = KeyRange {
                start: bad.clone(),
                end: good.clone(),
            };
            let Some(m) = middle(&between) else { break };
            if reads_from(&m).await? { good = m } else { bad = m }
        }
        Ok(KeyRange {
            start: range.start.clone(),
            end: good,
        })
    }

    /// What can be read of a range up to the first damage, with what is whole there; what is lost; and where
    /// it goes on.
    pub async fn past_damage(&self, server: ServerId, mut range: KeyRange) -> Result<Past, Unread> {
        let mut past = Past::default();
        let mut limit = PAGE;
        loop {
            match self.ask(server, &range, limit).await {
                Ok(records) => {
                    let Some((last, _)) = records.last() else {
                        past.rest = None;
                        return Ok(past);
                    };
                    range = range.after(last);
                    past.records.extend(records);
                }
                Err(Unread::Damaged) if limit > 1 => limit = (limit / 8).max(1),
                Err(Unread::Damaged) => {
                    let hole = self.hole(server, &range).await?;
                    range.start.clone_from(&hole.end);
                    let remains = self.remains(server, &hole).await?;
                    past.lost = damage(server, hole, &remains);
                    past.records.extend(whole(remains));
                    past.rest = (!empty(&range)).then_some(range);
                    return Ok(past);
                }
                Err(away) => return Err(away),
            }
        }
    }

    /// Feeds everything to a checker. Returns the ranges that cannot be read.
    pub async fn everything(
        &self,
        checker: Rc<RefCell<Checker>>,
        progress: Rc<Progress>,
    ) -> Result<Vec<Finding>, Unread> {
        let map = self.client.map();
        let streams = map.servers.iter().map(|s| s.id).map(|server| {
            let (me, checker, progress) = (
                Collector::new(self.client.clone()),
                checker.clone(),
                progress.clone(),
            );
            let stream: pando_env::LocalFuture<Result<Vec<Finding>, Unread>> =
                Box::pin(async move { me.server(server, &checker, &progress).await });
            stream
        });
        let all = pando_env::sync::join_all(streams.collect()).await;
        let all: Result<Vec<Vec<Finding>>, Unread> = all.into_iter().collect();
        Ok(all?.into_iter().flatten().collect())
    }

    async fn server(
        &self,
        server: ServerId,
        checker: &RefCell<Checker>,
        progress: &Progress,
    ) -> Result<Vec<Finding>, Unread> {
        let mut findings = Vec::new();
        let mut range = KeyRange {
            start: vec![0],
            end: vec![0xFF, 0xFF, 0xFF],
        };
        let mut here: Option<Slot> = None;
        let mut limit = PAGE;
        while !empty(&range) {
            let records = match self.ask(server, &range, limit).await {
                Ok(records) => records,
                Err(Unread::Damaged) if limit > 1 => {
                    limit = (limit / 8).max(1);
                    continue;
                }
                Err(Unread::Damaged) => {
                    let hole = self.hole(server, &range).await?;
                    let remains = self.remains(server, &hole).await?;
                    range.start.clone_from(&hole.end);
                    findings.extend(damage(server, hole, &remains));
                    whole(remains)
                }
                Err(away) => return Err(away),
            };
            limit = PAGE;
            match records.last() {
                // What was passed over may have been empty.
                Some((last, _)) if last.encode() >= range.start => range = range.after(last),
                None if findings.is_empty() => break,
                None if self.is_at_end(server, &range).await? => break,
                _ => {}
            }
            for (key, record) in records {
                let slot = key.slot();
                if here != Some(slot) {
                    let before = here.map_or(0, |s| u64::from(s.0.min(SLOTS)));
                    progress.add(u64::from(slot.0.min(SLOTS)).saturating_sub(before));
                    here = Some(slot);
                    if slot != LOCAL_SLOT {
                        // Entries come before the heads by which they are judged. Damage is met again in its
                        // turn.
                        let mut heads = Vec::new();
                        let all = KeyRange::tagged(slot, Tag::Head, &[]);
                        self.stream(server, all, &mut |k, r| heads.push((k, r)), &mut |_| {})
                            .await?;
                        for (key, record) in heads {
                            if let Key::Head(part) = key {
                                checker.borrow_mut().head(part, &record);
                            }
                        }
                    }
                }
                checker.borrow_mut().feed(server, &key, &record);
            }
            progress.say(format!("{} records", checker.borrow().counts().records));
        }
        let before = here.map_or(0, |s| u64::from(s.0.min(SLOTS)));
        progress.add(u64::from(SLOTS).saturating_sub(before));
        Ok(findings)
    }

    async fn owned(&self, slot: Slot, range: KeyRange) -> Result<Vec<(Key, Record)>, Unread> {
        let server = self.client.map().owner(slot);
        let mut out = Vec::new();
        self.stream(server, range, &mut |k, r| out.push((k, r)), &mut |_| {})
            .await?;
        Ok(out)
    }

    /// What is attached to entries of a directory, or of one bucket of it, and then the entries.
    async fn content(&self, slot: Slot, begin: &[u8], into: &mut Vec<(Key, Record)>) -> Result<(), Unread> {
        for tag in [Tag::Attachment, Tag::Entry] {
            into.extend(self.owned(slot, KeyRange::tagged(slot, tag, begin)).await?);
        }
        Ok(())
    }

    /// Whether a range of a server can still not be read.
    pub async fn unreadable(&self, server: ServerId, range: &KeyRange) -> Result<bool, Unread> {
        match self.ask(server, range, 1).await {
            Ok(_) => Ok(false),
            Err(Unread::Damaged) => Ok(true),
            Err(away) => Err(away),
        }
    }

    /// Whether there is nothing in a range, not even damage.
    async fn is_at_end(&self, server: ServerId, range: &KeyRange) -> Result<bool, Unread> {
        match self.ask(server, range, 1).await {
            Ok(records) => Ok(records.is_empty()),
            Err(Unread::Damaged) => Ok(false),
            Err(away) => Err(away),
        }
    }

    /// One record, if it is there and can be read or is whole.
    pub async fn one(&self, server: ServerId, key: &Key) -> Result<Option<Record>, Unread> {
        match self.ask(server, &just(key), 1).await {
            Ok(records) => Ok(records.into_iter().next().map(|(_, r)| r)),
            Err(Unread::Damaged) => {
                let records = whole(self.remains(server, &just(key)).await?);
                Ok(records.into_iter().find(|(k, _)| k == key).map(|(_, r)| r))
            }
            Err(away) => Err(away),
        }
    }

    /// Whether a server still holds anything of a slot.
    pub async fn holds(&self, server: ServerId, slot: Slot) -> Result<Option<(Key, Record)>, Unread> {
        let range = Scan::Slot(slot).range();
        match self.ask(server, &range, 1).await {
            Ok(records) => Ok(records.into_iter().next()),
            Err(Unread::Damaged) => Ok(None),
            Err(away) => Err(away),
        }
    }

    async fn head_of(
        &self,
        dir: DirId,
        into: &mut Vec<(Key, Record)>,
    ) -> Result<Option<(Part, KeyRange)>, Unread> {
        let key = Key::Head(dir.into());
        let server = self.client.map().owner(Part::whole(dir).slot());
        let Some(Record::Head(head)) = self.one(server, &key).await? else {
            return Ok(None);
        };
        let parent = head.parent;
        let salt = if parent == DirId::ABOVE_ROOT {
            Some(0)
        } else {
            let server = self.client.map().owner(Part::whole(parent).slot());
            match self.one(server, &Key::Head(parent.into())).await? {
                Some(Record::Head(h)) => Some(h.salt),
                _ => None,
            }
        };
        let name = salt.map(|salt| self.client.map().widths().name(salt, &head.name));
        into.push((key, Record::Head(head)));
        let Some(hash) = name else { return Ok(None) };
        let part = self.part_with(parent, hash).await?;
        self.part_head(part, into).await?;
        Ok(Some((part, Scan::Bucket(part, hash).range())))
    }

    /// The head of a part other than 0.
    async fn part_head(&self, part: Part, into: &mut Vec<(Key, Record)>) -> Result<(), Unread> {
        let (key, server) = (Key::Head(part), self.client.map().owner(part.slot()));
        if part.start() != 0
            && let Some(head) = self.one(server, &key).await?
        {
            into.push((key, head));
        }
        Ok(())
    }

    /// Whether directories here are split, and this may be one.
    fn may_split(&self, dir: DirId) -> bool {
        self.client.map().placement.splits() && !dir.is_homes() && dir != DirId::ABOVE_ROOT
    }

    /// Whether a directory's entries are placed one by one, and its list says what there is.
    fn has_list(&self, dir: DirId) -> bool {
        self.client.map().placement.division().has_list(dir)
    }

    async fn is_there(&self, part: Part) -> Result<bool, Unread> {
        let server = self.client.map().owner(part.slot());
        Ok(self.one(server, &Key::Head(part)).await?.is_some())
    }

    /// The part of a directory that has a hash.
    async fn part_with(&self, dir: DirId, hash: NameHash) -> Result<Part, Unread> {
        if !self.may_split(dir) {
            return Ok(self.client.map().placement.division().part(dir, hash.upper()));
        }
        let there = async |part| self.is_there(part).await;
        let tile = parts::find(dir, hash.upper(), there).await?;
        Ok(part_at(dir, tile))
    }

    /// The list of a directory's parts; an empty one if there is none.
    async fn list(&self, dir: DirId) -> Result<Vec<u16>, Unread> {
        let key = Key::Parts(dir);
        Ok(match self.one(self.client.map().owner(key.slot()), &key).await? {
            Some(Record::Parts(parts)) => parts.starts,
            _ => Vec::new(),
        })
    }

    /// One part of a directory, with its touch before and after: if it changed, the entries read in between
    /// count for nothing.
    async fn part_again(&self, part: Part, into: &mut Vec<(Key, Record)>) -> Result<(), Unread> {
        let server = self.client.map().owner(part.slot());
        let touch = Key::Touch(part);
        self.part_head(part, into).await?;
        if let Some(before) = self.one(server, &touch).await? {
            into.push((touch.clone(), before));
        }
        let dir = part.dir.0.to_be_bytes();
        if self.has_list(part.dir) {
            for slot in (0..SLOTS).map(Slot) {
                self.content(slot, &dir, into).await?;
            }
            let lines = KeyRange::tagged(part.slot(), Tag::Line, &dir);
            into.extend(self.owned(part.slot(), lines).await?);
        } else {
            self.content(part.slot(), &dir, into).await?;
        }
        if let Some(after) = self.one(server, &touch).await? {
            into.push((touch, after));
        }
        let note = Key::PartNote(part);
        if self.may_split(part.dir)
            && let Some(record) = self.one(server, &note).await?
        {
            into.push((note, record));
        }
        Ok(())
    }

    /// All parts of a directory, and those that findings name; with its list before and after.
    async fn dir_again(
        &self,
        dir: DirId,
        named: &BTreeSet<Part>,
        into: &mut Vec<(Key, Record)>,
    ) -> Result<(), Unread> {
        if !self.may_split(dir) {
            return self.part_again(dir.into(), into).await;
        }
        let list = |starts| (Key::Parts(dir), Record::Parts(PartsRecord { starts }));
        let before = self.list(dir).await?;
        let there = async |part| self.is_there(part).await;
        let mut all: BTreeSet<Part> = named.iter().filter(|part| part.dir == dir).copied().collect();
        all.extend(before.iter().filter_map(|start| Part::new(dir, *start)));
        let found = parts::all(dir, there).await?;
        all.extend(found.into_iter().map(|tile| part_at(dir, tile)));
        into.push(list(before));
        for part in all {
            self.part_again(part, into).await?;
        }
        into.push(list(self.list(dir).await?));
        Ok(())
    }

    /// What has to be read again to judge findings once more.
    pub async fn again(&self, findings: &[Finding]) -> Result<Vec<(ServerId, Key, Record)>, Unread> {
        let (dirs, mut places, named) = about(findings);
        // Where names are by now, if their part was split.
        for place in places.clone() {
            let part = self.part_with(place.part.dir, place.hash).await?;
            places.insert(Place { part, ..place });
        }
        let mut records = Vec::new();
        let mut climbed = BTreeSet::new();
        for dir in &dirs {
            self.dir_again(*dir, &named, &mut records).await?;
            // Its access record, and the heads up to the root.
            let mut above = self.head_of(*dir, &mut records).await?;
            if let Some((parent, bucket)) = &above
                && !dirs.contains(&parent.dir)
            {
                records.extend(self.owned(parent.slot(), bucket.clone()).await?);
            }
            climbed.insert(*dir);
            while let Some((parent, _)) = above
                && parent.dir != DirId::ABOVE_ROOT
                && climbed.insert(parent.dir)
            {
                above = self.head_of(parent.dir, &mut records).await?;
            }
        }
        for place in places.iter().filter(|p| !dirs.contains(&p.part.dir)) {
            let slot = place.part.slot();
            self.head_of(place.part.dir, &mut records).await?;
            self.part_head(place.part, &mut records).await?;
            let mut rest = place.part.dir.0.to_be_bytes().to_vec();
            rest.extend_from_slice(&place.hash.0.to_be_bytes()[1..]);
            self.content(slot, &rest, &mut records).await?;
        }
        // Rename lists: those that findings name, and those of directories that should be on one.
        let lists = findings.iter().flat_map(|f| f.keys.iter().cloned());
        let mut lists: BTreeSet<Key> = lists.filter(|key| !matches!(key, Key::Head(_))).collect();
        for (key, record) in &records {
            if let (Key::Head(id), Record::Head(head)) = (key, record)
                && dirs.contains(&id.dir)
            {
                lists.insert(Key::RenameList {
                    parent: head.birth.parent,
                    name: head.birth.name.clone(),
                });
            }
        }
        for key in lists {
            let server = self.client.map().owner(key.slot());
            if let Some(record) = self.one(server, &key).await? {
                records.push((key, record));
            }
        }
        let map = self.client.map();
        let mut out: Vec<(ServerId, Key, Record)> = records
            .into_iter()
            .map(|(k, r)| (map.owner(k.slot()), k, r))
            .collect();
        // As the checker wants them: heads first, then in order; twice only what shows whether it changed.
        let rank = |k: &Key| (!matches!(k, Key::Head(_)), k.slot(), k.encode());
        out.sort_by_cached_key(|(_, k, _)| rank(k));
        out.dedup_by(|(_, a, _), (_, b, _)| a == b && !matches!(a, Key::Touch(_) | Key::Parts(_)));
        Ok(out)
    }
}
