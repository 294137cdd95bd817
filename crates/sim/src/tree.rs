//! The records of all servers as one tree, kept up to date batch by batch, with what every batch must leave
//! true.
//!
//! A committed transaction counts on all its servers from the moment its coordinator applied the decision:
//! what its participants have prepared and not applied yet is laid over their records. So the only tree that
//! is ever looked at is one in which every transaction happened whole or not at all, and no state is excused
//! as "in flight". The content of a new directory counts from the moment that its parent's server owes it.

use pando_cluster::ClusterMap;
use pando_format::{
    AttachmentKind, Batch, Entry, Key, Layout, Mutation, NameHash, OwedRecord, Position, Record, Target,
};
use pando_types::{DirId, Division, FileKind, Generation, Ids, Ino, Name, Part, ServerId, Slot, TxId};
use std::collections::{BTreeMap, BTreeSet};

/// A broken invariant, in words.
pub type Broken = String;

/// Where an entry stands.
pub type Place = (DirId, NameHash, Name);

/// A transaction's prepared part on one server.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TxPart {
    mutations: Vec<Mutation>,
    /// Laid over the tree because the transaction is decided.
    overlaid: bool,
}

/// The tree.
#[derive(Clone, Default)]
pub struct Tree {
    /// How directories got their IDs.
    ids: Ids,
    /// How their entries are divided over slots.
    division: Division,
    records: BTreeMap<Key, Record>,
    /// Records that do not count: of parts that are not there, or that gave them away.
    aside: BTreeMap<Key, Record>,
    /// Starts of the parts but 0 of each directory that have heads.
    live: BTreeMap<DirId, BTreeSet<u16>>,
    counts: BTreeMap<Part, (u64, u64)>,
    /// The entries that name a directory. Sound: exactly one each.
    names: BTreeMap<DirId, BTreeSet<Place>>,
    /// Entries of each inode number and generation. Sound: exactly one each.
    inodes: BTreeMap<(Ino, Generation), u32>,
    /// Names of each file that is at home. Sound: as many as it counts.
    links: BTreeMap<(Slot, Ino, Generation), u32>,
    /// And what it counts.
    homes: BTreeMap<(Slot, Ino, Generation), u32>,
    /// Entries at each position. Sound: exactly one each.
    positions: BTreeMap<(DirId, Position), u32>,
    /// The versions of heads that say they are on their birth's rename list.
    listed: BTreeMap<(DirId, Name), BTreeSet<u32>>,
    parts: BTreeMap<TxId, BTreeMap<(ServerId, Slot), TxPart>>,
    decided: BTreeMap<TxId, ServerId>,
    /// Content that is owed, by whom; and that of it which no server has stored yet, which is laid over the
    /// tree.
    owed: BTreeMap<TxId, (DirId, Generation)>,
    promised: BTreeMap<DirId, Generation>,
    /// Transactions that were decided and confirmed by all. A prepare that comes after is a zombie (H39).
    finished: BTreeSet<TxId>,
}

/// What a batch touched, and so what is to be checked.
#[derive(Default)]
struct Dirty {
    dirs: BTreeSet<DirId>,
    entries: BTreeSet<Place>,
    moved: BTreeSet<DirId>,
    births: BTreeSet<(DirId, Name)>,
    homes: BTreeSet<(Slot, Ino, Generation)>,
}

impl Tree {
    /// Whether each directory has the ID that its head says it got.
    pub fn check_ids(&self, map: &ClusterMap) -> Result<(), Broken> {
        for (key, record) in &self.records {
            if let (Key::Head(part), Record::Head(head)) = (key, record)
                && part.dir != DirId::ROOT
                && !map.is_born(part.dir, &head.birth, head.generation)
            {
                return Err(format!("{:?} was not born as its head says: {head:?}", part.dir));
            }
        }
        Ok(())
    }

    /// The tree that the records of these stores make, with the transactions that are known to be finished.
    pub fn build(
        map: &ClusterMap,
        stores: Vec<(ServerId, Vec<(Key, Record)>)>,
        finished: BTreeSet<TxId>,
    ) -> Result<Tree, Broken> {
        let mut tree = Tree {
            ids: map.ids,
            division: map.placement.division(),
            finished,
            ..Tree::default()
        };
        let mut dirty = Dirty::default();
        let mut owed = Vec::new();
        // Heads first: they say which records count.
        let (heads, others): (Vec<_>, Vec<_>) = stores
            .into_iter()
            .flat_map(|(server, records)| records.into_iter().map(move |(k, r)| (server, k, r)))
            .partition(|(_, key, _)| matches!(key, Key::Head(_)));
        for (server, key, record) in heads.into_iter().chain(others) {
            match (&key, &record) {
                (Key::Prepared(slot, tx), Record::Prepared(p)) => {
                    let part = TxPart {
                        mutations: p.mutations.clone(),
                        overlaid: false,
                    };
                    tree.parts.entry(*tx).or_default().insert((server, *slot), part);
                }
                (Key::Decision(tx), _) => {
                    tree.decided.insert(*tx, server);
                }
                (Key::Owed(tx), Record::Owed(o)) => {
                    tree.owed.insert(*tx, (o.dir, o.head.generation));
                    owed.push(o.clone());
                }
                _ if in_tree(&key) => {
                    if tree.records.contains_key(&key) || tree.aside.contains_key(&key) {
                        return Err(format!("{key:?} is stored on two servers, one of them {server}"));
                    }
                    tree.put(key, record, &mut dirty);
                }
                _ => {}
            }
        }
        let decided: Vec<TxId> = tree.decided.keys().copied().collect();
        for tx in decided {
            tree.overlay(tx, &mut dirty)?;
        }
        for content in owed {
            // A record may be left of what was stored long ago.
            let named = tree.names.get(&content.dir).is_some_and(|names| {
                names
                    .iter()
                    .any(|place| match tree.entry(place).map(|e| &e.target) {
                        Some(Target::Dir(d)) => d.generation == content.head.generation,
                        _ => false,
                    })
            });
            if named && tree.head(content.dir).is_none() {
                tree.promise(&content, &mut dirty)?;
            }
        }
        Ok(tree)
    }

    /// Takes out the parts that this batch ends. Returns the mutations of those that were committed:
    /// the batch has to contain them.
    fn end_parts(&mut self, server: ServerId, batch: &Batch) -> Vec<Mutation> {
        let mut committed = Vec::new();
        for m in &batch.mutations {
            if let Mutation::Delete {
                key: Key::Prepared(slot, tx),
            } = m
                && let Some(part) = self.parts.get_mut(tx).and_then(|p| p.remove(&(server, *slot)))
            {
                if part.overlaid {
                    committed.extend(part.mutations);
                }
                if self.parts.get(tx).is_some_and(BTreeMap::is_empty) {
                    self.parts.remove(tx);
                }
            }
        }
        committed
    }

    /// A server applied a batch.
    pub fn apply(&mut self, server: ServerId, batch: &Batch) -> Result<(), Broken> {
        let mut dirty = Dirty::default();
        let mut skip = self.end_parts(server, batch);
        let mut owed: Vec<OwedRecord> = Vec::new();
        let mut decided = Vec::new();
        let mut forgotten = Vec::new();
        for m in &batch.mutations {
            if let Mutation::Insert {
                key: Key::Head(part),
                record: Record::Head(head),
            } = m
                && self.promised.get(&part.dir) == Some(&head.generation)
            {
                self.promised.remove(&part.dir);
                skip.extend(
                    [Key::Head(*part), Key::Touch(*part)]
                        .into_iter()
                        .filter_map(|key| {
                            let record = self.records.get(&key)?.clone();
                            Some(Mutation::Insert { key, record })
                        }),
                );
            }
            match m {
                Mutation::Insert {
                    key: Key::Owed(tx),
                    record: Record::Owed(content),
                } => {
                    // After a start it has a new name, and may have been stored.
                    let what = (content.dir, content.head.generation);
                    let again = self.owed.values().any(|o| *o == what);
                    self.owed.insert(*tx, what);
                    owed.extend((!again).then(|| content.clone()));
                }
                Mutation::Delete { key: Key::Owed(tx) } => forgotten.push(*tx),
                Mutation::Insert {
                    key: Key::Prepared(slot, tx),
                    record,
                }
                | Mutation::Update {
                    key: Key::Prepared(slot, tx),
                    record,
                } => {
                    if self.finished.contains(tx) || self.decided.contains_key(tx) {
                        return Err(format!(
                            "server {server} prepares {tx}, which is committed already"
                        ));
                    }
                    let Record::Prepared(p) = record else { continue };
                    let part = TxPart {
                        mutations: p.mutations.clone(),
                        overlaid: false,
                    };
                    self.parts.entry(*tx).or_default().insert((server, *slot), part);
                }
                Mutation::Insert {
                    key: Key::Decision(tx),
                    record,
                } => {
                    if let Record::Decision(d) = record {
                        let parts = self.parts.get(tx);
                        for p in &d.participants {
                            if !parts.is_some_and(|parts| parts.keys().any(|(s, _)| s == p)) {
                                return Err(format!(
                                    "{tx} is committed, but server {p} has nothing prepared for it"
                                ));
                            }
                        }
                    }
                    self.decided.insert(*tx, server);
                    decided.push(*tx);
                }
                Mutation::Delete {
                    key: Key::Decision(tx),
                } => {
                    if let Some(parts) = self.parts.get(tx) {
                        return Err(format!(
                            "the decision of {tx} is forgotten while {:?} hold it prepared",
                            parts.keys()
                        ));
                    }
                    self.decided.remove(tx);
                    self.finished.insert(*tx);
                }
                m if in_tree(&m.key()) => {
                    if let Some(at) = skip.iter().position(|s| s == m) {
                        skip.swap_remove(at);
                        continue;
                    }
                    self.change(m, &mut dirty)
                        .map_err(|e| format!("server {server}: {e}"))?;
                }
                _ => {}
            }
        }
        if let Some(left) = skip.first() {
            return Err(format!(
                "server {server} ends its part of a committed transaction without {left:?}"
            ));
        }
        for tx in decided {
            self.overlay(tx, &mut dirty)?;
        }
        for content in owed {
            self.promise(&content, &mut dirty)?;
        }
        for tx in forgotten {
            if let Some(what) = self.owed.remove(&tx)
                && self.promised.get(&what.0) == Some(&what.1)
                && !self.owed.values().any(|o| *o == what)
            {
                return Err(format!(
                    "the content of {what:?} is owed no more, and nobody has it"
                ));
            }
        }
        self.check(&dirty)
    }

    /// Lays content over the tree that is owed.
    fn promise(&mut self, content: &OwedRecord, dirty: &mut Dirty) -> Result<(), Broken> {
        let insert = |key, record| Mutation::Insert { key, record };
        self.promised.insert(content.dir, content.head.generation);
        let head = insert(Key::Head(content.dir.into()), Record::Head(content.head.clone()));
        let touch = insert(Key::Touch(content.dir.into()), Record::Touch(content.touch));
        self.change(&head, dirty)?;
        self.change(&touch, dirty)
    }

    /// Lays the prepared parts of a decided transaction over the tree.
    fn overlay(&mut self, tx: TxId, dirty: &mut Dirty) -> Result<(), Broken> {
        let Some(parts) = self.parts.get_mut(&tx) else {
            return Ok(());
        };
        let mut all = Vec::new();
        for part in parts.values_mut().filter(|p| !p.overlaid) {
            part.overlaid = true;
            all.extend(part.mutations.iter().filter(|m| in_tree(&m.key())).cloned());
        }
        all.iter().try_for_each(|m| {
            self.change(m, dirty)
                .map_err(|e| format!("{tx} is committed: {e}"))
        })
    }

    fn change(&mut self, m: &Mutation, dirty: &mut Dirty) -> Result<(), Broken> {
        let (Mutation::Insert {
            key: Key::Head(part), ..
        }
        | Mutation::Update {
            key: Key::Head(part), ..
        }
        | Mutation::Delete { key: Key::Head(part) }) = m
        else {
            return self.change_one(m, dirty);
        };
        let before = self.tile(*part);
        self.change_one(m, dirty)?;
        if self.tile(*part) != before {
            self.resettle(*part, dirty);
        }
        Ok(())
    }

    fn change_one(&mut self, m: &Mutation, dirty: &mut Dirty) -> Result<(), Broken> {
        match m {
            Mutation::Insert { key, record } => {
                if self.records.contains_key(key) || self.aside.contains_key(key) {
                    return Err(format!("{key:?} is inserted twice"));
                }
                self.put(key.clone(), record.clone(), dirty);
            }
            Mutation::Update { key, record } => {
                self.take(key, dirty);
                self.put(key.clone(), record.clone(), dirty);
            }
            Mutation::Delete { key } => self.take(key, dirty),
            Mutation::Touch { part, delta } => {
                let Some(Record::Touch(t)) = self.records.get_mut(&Key::Touch(*part)) else {
                    return Err(format!("a touch of {part}, which has none"));
                };
                t.apply(delta);
                dirty.dirs.insert(part.dir);
            }
        }
        Ok(())
    }

    fn put(&mut self, key: Key, record: Record, dirty: &mut Dirty) {
        if !self.counts(&key) {
            dirty.dirs.extend(dir_of(&key));
            self.aside.insert(key, record);
            return;
        }
        match (&key, &record) {
            (Key::Entry { part, hash, name }, Record::Entry(e)) => {
                let place = (part.dir, *hash, name.clone());
                self.count_more(*part, e.target.kind());
                *self
                    .positions
                    .entry((part.dir, Position::new(*hash, e.ordinal)))
                    .or_default() += 1;
                match &e.target {
                    Target::Dir(d) => {
                        self.names.entry(d.id).or_default().insert(place.clone());
                        dirty.dirs.insert(d.id);
                    }
                    Target::Inode(i) if part.dir.is_homes() => {
                        let home = (part.slot(), i.ino, i.generation);
                        self.homes.insert(home, i.nlink);
                        dirty.homes.insert(home);
                    }
                    Target::Inode(_) => {}
                    Target::Link(l) => {
                        *self.links.entry((l.slot, l.ino, l.generation)).or_default() += 1;
                        dirty.homes.insert((l.slot, l.ino, l.generation));
                    }
                }
                if !matches!(e.target, Target::Link(_)) {
                    *self.inodes.entry(e.target.identity()).or_default() += 1;
                }
                dirty.dirs.insert(part.dir);
                dirty.entries.insert(place);
            }
            (Key::Head(part), Record::Part(_)) => {
                dirty.dirs.insert(part.dir);
                self.live.entry(part.dir).or_default().insert(part.start());
            }
            (Key::Head(part), Record::Head(head)) => {
                dirty.dirs.insert(part.dir);
                dirty.moved.insert(part.dir);
                if head.listed {
                    let birth = (head.birth.parent, head.birth.name.clone());
                    dirty.births.insert(birth.clone());
                    self.listed.entry(birth).or_default().insert(head.birth.version);
                }
            }
            (Key::RenameList { parent, name }, _) => {
                dirty.births.insert((*parent, name.clone()));
            }
            (Key::Touch(part) | Key::PartNote(part), _) => {
                dirty.dirs.insert(part.dir);
            }
            (Key::Parts(dir), _) => {
                dirty.dirs.insert(*dir);
            }
            (Key::Orphan(slot, ino, generation), _) => {
                dirty.homes.insert((*slot, *ino, *generation));
            }
            (Key::Attachment { part, hash, name, .. }, _) => {
                dirty.entries.insert((part.dir, *hash, name.clone()));
            }
            (Key::Line { dir, hash, name }, _) => {
                dirty.entries.insert((*dir, *hash, name.clone()));
            }
            _ => {}
        }
        self.records.insert(key, record);
    }

    fn take(&mut self, key: &Key, dirty: &mut Dirty) {
        if self.aside.remove(key).is_some() {
            dirty.dirs.extend(dir_of(key));
            return;
        }
        let Some(record) = self.records.remove(key) else {
            return;
        };
        match (key, &record) {
            (Key::Entry { part, hash, name }, Record::Entry(e)) => {
                let place = (part.dir, *hash, name.clone());
                self.count_less(*part, e.target.kind());
                decrease(&mut self.positions, &(part.dir, Position::new(*hash, e.ordinal)));
                match &e.target {
                    Target::Dir(d) => {
                        if let Some(names) = self.names.get_mut(&d.id) {
                            names.remove(&place);
                            if names.is_empty() {
                                self.names.remove(&d.id);
                            }
                        }
                        dirty.dirs.insert(d.id);
                    }
                    Target::Inode(i) if part.dir.is_homes() => {
                        let home = (part.slot(), i.ino, i.generation);
                        self.homes.remove(&home);
                        dirty.homes.insert(home);
                    }
                    Target::Inode(_) => {}
                    Target::Link(l) => {
                        decrease(&mut self.links, &(l.slot, l.ino, l.generation));
                        dirty.homes.insert((l.slot, l.ino, l.generation));
                    }
                }
                if !matches!(e.target, Target::Link(_)) {
                    decrease(&mut self.inodes, &e.target.identity());
                }
                dirty.dirs.insert(part.dir);
                dirty.entries.insert(place);
            }
            (Key::Head(part), Record::Head(head)) => {
                dirty.dirs.insert(part.dir);
                let birth = (head.birth.parent, head.birth.name.clone());
                if let Some(versions) = self.listed.get_mut(&birth).filter(|_| head.listed) {
                    versions.remove(&head.birth.version);
                    if versions.is_empty() {
                        self.listed.remove(&birth);
                    }
                }
                dirty.births.insert(birth);
            }
            (Key::Head(part), Record::Part(_)) => {
                dirty.dirs.insert(part.dir);
                self.dies(*part);
            }
            (Key::Touch(part) | Key::PartNote(part), _) => {
                dirty.dirs.insert(part.dir);
            }
            (Key::Parts(dir), _) => {
                dirty.dirs.insert(*dir);
            }
            (Key::RenameList { parent, name }, _) => {
                dirty.births.insert((*parent, name.clone()));
            }
            (Key::Orphan(slot, ino, generation), _) => {
                dirty.homes.insert((*slot, *ino, *generation));
            }
            (Key::Attachment { part, hash, name, .. }, _) => {
                dirty.entries.insert((part.dir, *hash, name.clone()));
            }
            (Key::Line { dir, hash, name }, _) => {
                dirty.entries.insert((*dir, *hash, name.clone()));
            }
            _ => {}
        }
    }

    /// Checks everything.
    pub fn check_all(&self) -> Result<(), Broken> {
        let mut dirty = Dirty::default();
        for key in self.records.keys() {
            match key {
                Key::Entry { part, hash, name } | Key::Attachment { part, hash, name, .. } => {
                    dirty.entries.insert((part.dir, *hash, name.clone()));
                    dirty.dirs.insert(part.dir);
                }
                Key::Line { dir, hash, name } => {
                    dirty.entries.insert((*dir, *hash, name.clone()));
                }
                Key::Head(part) | Key::Touch(part) => {
                    dirty.dirs.insert(part.dir);
                    dirty.moved.insert(part.dir);
                }
                Key::RenameList { parent, name } => {
                    dirty.births.insert((*parent, name.clone()));
                }
                _ => {}
            }
        }
        dirty.dirs.extend(self.names.keys());
        dirty.births.extend(self.listed.keys().cloned());
        dirty.homes.extend(self.links.keys());
        dirty.homes.extend(self.homes.keys());
        self.check(&dirty)
    }

    fn check(&self, dirty: &Dirty) -> Result<(), Broken> {
        for dir in &dirty.dirs {
            self.check_dir(*dir)?;
        }
        for place in &dirty.entries {
            self.check_entry(place)?;
        }
        for dir in &dirty.moved {
            self.check_path(*dir)?;
        }
        for home in &dirty.homes {
            self.check_home(*home)?;
        }
        dirty.births.iter().try_for_each(|birth| self.check_births(birth))
    }

    fn check_dir(&self, dir: DirId) -> Result<(), Broken> {
        if dir == DirId::ABOVE_ROOT || dir.is_homes() {
            return Ok(());
        }
        self.check_parts(dir)?;
        let count = self.counts.get(&Part::whole(dir)).copied().unwrap_or_default();
        let names = self.names.get(&dir).map_or(0, BTreeSet::len);
        let Some(head) = self.head(dir) else {
            if count.0 > 0 {
                return Err(format!("{dir:?} has {} entries and no head", count.0));
            }
            if names > 0 {
                return Err(format!(
                    "{dir:?} has a name ({:?}) and no head",
                    self.names.get(&dir)
                ));
            }
            if self.touch(dir).is_some() {
                return Err(format!("{dir:?} has a touch and no head"));
            }
            return Ok(());
        };
        let Some(place) = self.names.get(&dir).and_then(BTreeSet::first) else {
            return Err(format!(
                "{dir:?} has a head and no name: an orphan (born {:?})",
                head.birth
            ));
        };
        if names != 1 {
            return Err(format!("{dir:?} has {names} names: {:?}", self.names.get(&dir)));
        }
        let Some(Entry {
            target: Target::Dir(access),
            ..
        }) = self.entry(place)
        else {
            return Err(format!("{dir:?} is indexed under {place:?}, where it is not"));
        };
        if (access.generation, access.ino, access.salt, access.realm)
            != (head.generation, head.ino, head.salt, head.realm)
        {
            return Err(format!("the halves of {dir:?} differ: {access:?} and {head:?}"));
        }
        if (head.parent, &head.name) != (place.0, &place.2) {
            let says = (head.parent, &head.name);
            return Err(format!("{dir:?} is {place:?} but its head says {says:?}"));
        }
        let unlisted = self.ids == Ids::Predicted && !head.listed;
        if unlisted && (head.parent, &head.name) != (head.birth.parent, &head.birth.name) {
            return Err(format!(
                "{dir:?} is not where it was born ({:?}), and on no rename list",
                head.birth
            ));
        }
        let parent = match self.head(head.parent) {
            Some(p) => p.generation,
            None if head.parent == DirId::ABOVE_ROOT => Generation::ABOVE_ROOT,
            None => {
                return Err(format!(
                    "the parent of {dir:?}, {:?}, does not exist",
                    head.parent
                ));
            }
        };
        if parent != head.parent_generation {
            return Err(format!(
                "{dir:?} means its parent's incarnation {}, not {parent}",
                head.parent_generation
            ));
        }
        Ok(())
    }

    fn check_entry(&self, place: &Place) -> Result<(), Broken> {
        let (dir, hash, name) = place;
        let part = self.part_with(*dir, hash.upper());
        let has = |kind| {
            self.records
                .get(&Key::Attachment {
                    part,
                    hash: *hash,
                    name: name.clone(),
                    kind,
                })
                .and_then(|r| match r {
                    Record::Attachment(b) => Some(b.0.len() as u64),
                    _ => None,
                })
        };
        let (data, target) = (has(AttachmentKind::Data), has(AttachmentKind::Target));
        let entry = self.entry(place);
        self.check_line(place, entry)?;
        let layout = match entry.map(|e| &e.target) {
            Some(Target::Inode(i)) => Some(&i.layout),
            _ => None,
        };
        if data.is_some() != layout.is_some_and(Layout::is_inline) {
            return Err(format!("{place:?} has layout {layout:?}, inline data {data:?}"));
        }
        if target.is_some() != (layout == Some(&Layout::LongTarget)) {
            return Err(format!("{place:?} has layout {layout:?}, long target {target:?}"));
        }
        let marked = entry.is_some_and(|e| match &e.target {
            Target::Dir(d) => d.marks.has_xattrs(),
            Target::Inode(i) => i.marks.has_xattrs(),
            Target::Link(_) => false,
        });
        if has(AttachmentKind::Xattrs).is_some() != marked {
            return Err(format!(
                "{place:?} is marked as having extended attributes: {marked}, and there are some: {}",
                !marked
            ));
        }
        let Some(entry) = entry else { return Ok(()) };
        if self.positions.get(&(*dir, Position::new(*hash, entry.ordinal))) != Some(&1) {
            return Err(format!("two entries of {dir:?} share the position of {place:?}"));
        }
        let identity = entry.target.identity();
        if self.inodes.get(&identity) != Some(&1) {
            return Err(format!(
                "{place:?}: its inode number and generation {identity:?} are those of {:?} records",
                self.inodes.get(&identity)
            ));
        }
        match &entry.target {
            Target::Inode(i) => {
                if i.kind == FileKind::Directory {
                    return Err(format!("{place:?}: a directory that is none"));
                }
                if !dir.is_homes() && i.nlink != 1 {
                    return Err(format!("{place:?}: {} links under one name", i.nlink));
                }
                if data.is_some_and(|n| n > i.size) {
                    return Err(format!(
                        "{place:?}: {data:?} inline bytes in a file of {}",
                        i.size
                    ));
                }
                let garbage = Key::Garbage(part.slot(), i.ino, i.generation);
                if self.records.contains_key(&garbage) {
                    return Err(format!("{place:?} lives, and its data is to be deleted"));
                }
            }
            Target::Dir(d) => {
                if *dir != DirId::ABOVE_ROOT && d.id == DirId::ROOT || dir.is_homes() {
                    return Err(format!("{place:?} names {:?}", d.id));
                }
            }
            Target::Link(_) if dir.is_homes() => {
                return Err(format!("{place:?} is a link to a link"));
            }
            Target::Link(_) => {}
        }
        Ok(())
    }

    /// A file at home counts its names, and no name is without one (H96).
    fn check_home(&self, (slot, ino, generation): (Slot, Ino, Generation)) -> Result<(), Broken> {
        let home = (slot, ino, generation);
        let links = self.links.get(&home).copied();
        let counted = self.homes.get(&home).copied();
        // One that is open has none, and is noted (H97).
        let noted = self.records.contains_key(&Key::Orphan(slot, ino, generation));
        if noted && (links, counted) == (None, Some(0)) || !noted && links == counted {
            Ok(())
        } else {
            Err(format!(
                "{links:?} names of inode {ino} generation {generation}, which is at home in slot {slot} with {counted:?}"
            ))
        }
    }

    /// Whether another way of building the tree gave the same; if not, where they differ.
    pub fn compare(&self, other: &Tree) -> Result<(), Broken> {
        for (key, record) in &self.records {
            let there = other.records.get(key);
            if there != Some(record) {
                return Err(format!("{key:?}: kept {record:?}, found {there:?}"));
            }
        }
        match other.records.iter().find(|(k, _)| !self.records.contains_key(k)) {
            Some((key, record)) => Err(format!("{key:?}: not kept, found {record:?}")),
            None if self.aside() != other.aside() => Err("what is set aside differs".into()),
            None if self.parts != other.parts => Err("prepared parts differ".into()),
            None if self.decided != other.decided => Err("decisions differ".into()),
            None if self.promised != other.promised => Err("what is owed differs".into()),
            None => Ok(()),
        }
    }
}

/// Whether a record belongs to the tree, rather than to the machinery of one server or slot.
pub fn in_tree(key: &Key) -> bool {
    matches!(
        key,
        Key::Entry { .. }
            | Key::Head(_)
            | Key::Parts(_)
            | Key::PartNote(_)
            | Key::Touch(_)
            | Key::Attachment { .. }
            | Key::Garbage(..)
            | Key::Orphan(..)
            | Key::RenameList { .. }
            | Key::Local(_)
            | Key::Line { .. }
    )
}

/// The directory that an entry or an attachment is in.
fn dir_of(key: &Key) -> Option<DirId> {
    match key {
        Key::Entry { part, .. } | Key::Attachment { part, .. } => Some(part.dir),
        _ => None,
    }
}

fn decrease<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(n) = counts.get_mut(key) {
        *n -= 1;
        if *n == 0 {
            counts.remove(key);
        }
    }
}

mod lists;
mod look;
mod parts;
#[cfg(test)]
mod tests;
