//! What every operation shares: its inputs, permission checks, entries, and the mutations it collects.

use crate::file::view_file;
use crate::list::Listed;
use crate::snapshot::{Snapshot, Stop};
use pando_format::{
    AccessRecord, AttachmentKind, Entry, FactChange, HashWidths, Invalidation, Key, Mutation, NameHash,
    Position, Record, Target, TouchDelta,
};
use pando_types::{
    Access, Cred, DirId, Division, Errno, Generation, Ids, Ino, Name, Part, SessionId, Tiling, Timestamp,
    Watermark, plant,
};
use std::collections::BTreeMap;

use pando_wire::{EntryView, LockMode, LockWant, Outcome, Said, Scope, Statement};

/// A directory, and which of all that have its ID, one after the other.
pub type Incarnation = (DirId, Generation);

/// Moves that were checked: the directory that gets another parent, that parent, and whether the first is the
/// second or above it.
pub type Walked = BTreeMap<(Incarnation, Incarnation), bool>;

/// Identities set aside for what an operation may create.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// Inode number.
    pub ino: Ino,
    /// Generation, of the slot that holds the new name.
    pub generation: Generation,
    /// Salt for a new directory.
    pub salt: u64,
    /// Smallest version that may be tried for a new directory's birth: the IDs of those below turned out to
    /// be taken by directories of other births (H7).
    pub floor: u32,
    /// The ID of a new directory, where IDs are placed ([`Ids::Placed`]).
    pub placed: Option<DirId>,
}

/// Everything an operation may depend on besides records.
pub struct Inputs<'a> {
    /// On whose behalf.
    pub cred: &'a Cred,
    /// The session that asks, for holds on removed files.
    pub session: Option<SessionId>,
    /// The session under which the caller keeps files open.
    pub keeper: Option<SessionId>,
    /// The server's calendar time.
    pub now: Timestamp,
    /// Hash widths of the filesystem.
    pub widths: HashWidths,
    /// How new directories get their IDs.
    pub ids: Ids,
    /// How the entries of directories are divided over slots.
    pub division: Division,
    /// In which parts the asker takes the first and the second name to be: their starts.
    pub parts: [u16; 2],
    /// Largest inline file.
    pub inline_limit: u32,
    /// Size of the blocks that larger files are kept in.
    pub block_size: u32,
    /// Identities; REQUIRED for operations that create.
    pub fresh: Option<Fresh>,
    /// On the server that coordinates changes of directories' names and permissions: what it has checked so
    /// far. `None` elsewhere.
    pub walked: Option<&'a Walked>,
    /// Whether nobody but the asker was ever told anything of a directory: then nobody need be told of its
    /// change.
    pub private: &'a dyn Fn(DirId, Generation) -> bool,
}

/// The end of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// What the caller is told.
    pub outcome: Outcome,
    /// What changes. Empty when it failed or changes nothing.
    pub mutations: Vec<Mutation>,
    /// What clients may know and will not be true any more. Every server must have heard of it before the
    /// mutations take effect (H10).
    pub invalidates: Vec<Invalidation>,
}

/// A name of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The first, or the only one.
    First,
    /// Where a rename or a link goes.
    Second,
}

/// A name within a directory, hashed.
#[derive(Clone)]
pub(crate) struct Place {
    /// Which of the two names of the operation this is of.
    pub which: Which,
    pub part: Part,
    pub hash: NameHash,
    pub name: Name,
}

impl Place {
    pub fn key(&self) -> Key {
        Key::Entry {
            part: self.part,
            hash: self.hash,
            name: self.name.clone(),
        }
    }

    pub fn attachment(&self, kind: AttachmentKind) -> Key {
        Key::Attachment {
            part: self.part,
            hash: self.hash,
            name: self.name.clone(),
            kind,
        }
    }

    pub fn bucket(&self, mode: LockMode) -> LockWant {
        LockWant::Bucket(self.part, self.hash, mode)
    }
}

pub(crate) struct Context<'a> {
    pub inputs: &'a Inputs<'a>,
    pub snapshot: &'a Snapshot,
    mutations: Vec<Mutation>,
    /// Inserts come after all deletes: their keys may be freed by them.
    inserts: Vec<Mutation>,
    invalidates: Vec<Invalidation>,
    /// The part of the first name, if that was found out here.
    pub first: Option<Part>,
}

impl<'a> Context<'a> {
    pub fn new(inputs: &'a Inputs<'a>, snapshot: &'a Snapshot) -> Context<'a> {
        Context {
            inputs,
            snapshot,
            mutations: Vec::new(),
            inserts: Vec::new(),
            invalidates: Vec::new(),
            first: None,
        }
    }

    pub fn decided(mut self, outcome: Outcome) -> Decision {
        self.mutations.append(&mut self.inserts);
        Decision {
            outcome,
            mutations: self.mutations,
            invalidates: self.invalidates,
        }
    }

    /// A directory gets another name, parent or permissions. Only the coordinator can do that, unless it is
    /// permissions of a directory that nobody else knows. True: others know it.
    pub fn invalidate(&mut self, d: &AccessRecord, change: FactChange) -> Result<bool, Stop> {
        if change == FactChange::Access && (self.inputs.private)(d.id, d.generation) {
            return Ok(false);
        }
        if self.inputs.walked.is_none() {
            if change == FactChange::Moved && pando_types::plant!(H28) {
                return Ok(true);
            }
            return Err(Stop::UseCoordinator);
        }
        self.invalidates.push(Invalidation {
            id: d.id,
            generation: d.generation,
            change,
        });
        Ok(true)
    }

    /// The place of an operation's first name, in the part that the asker takes for its.
    pub fn place(&self, dir: &Statement, name: &Name) -> Place {
        self.place_of(Which::First, dir, name)
    }

    /// The place of an operation's second name.
    pub fn second_place(&self, dir: &Statement, name: &Name) -> Place {
        self.place_of(Which::Second, dir, name)
    }

    fn place_of(&self, which: Which, dir: &Statement, name: &Name) -> Place {
        let hash = self.inputs.widths.name(dir.salt, name);
        // A start that no part has was refused before this.
        let said = |start| Part::new(dir.id, start).unwrap_or(Part::whole(dir.id));
        let [first, second] = self.inputs.parts;
        let part = match (self.inputs.division, which, self.first) {
            (Division::OneByOne, _, _) => self.inputs.division.part(dir.id, hash.upper()),
            (_, Which::First, Some(part)) => part,
            (_, Which::First, None) => said(first),
            (_, Which::Second, _) => said(second),
        };
        Place {
            which,
            part,
            hash,
            name: name.clone(),
        }
    }

    /// The place of a name that no request says a part of: by the list of the directory's parts, which is
    /// locked against cuts (H304).
    pub fn place_by_list(&self, dir: &Statement, name: &Name) -> Result<Place, Stop> {
        let hash = self.inputs.widths.name(dir.salt, name);
        let part = match self.inputs.division {
            Division::Halves => {
                let tile = self.tiling(dir.id)?.find(hash.upper());
                Part::new(dir.id, tile.start).ok_or(Errno::Io)?
            }
            division @ (Division::Whole | Division::OneByOne) => division.part(dir.id, hash.upper()),
        };
        Ok(Place {
            which: Which::First,
            part,
            hash,
            name: name.clone(),
        })
    }

    /// The parts of a directory, locked against cuts (H304).
    pub fn tiling(&self, dir: DirId) -> Result<Tiling, Stop> {
        if self.inputs.division != Division::Halves || dir.is_homes() || dir == DirId::ABOVE_ROOT {
            return Ok(Tiling::default());
        }
        let key = Key::Parts(dir);
        let mode = match plant!(H304) {
            true => LockMode::Increment,
            false => LockMode::Shared,
        };
        self.require(vec![LockWant::Key(key.clone(), mode)])?;
        match self.snapshot.get(&key) {
            None => Ok(Tiling::default()),
            Some(Record::Parts(parts)) => Ok(Tiling::of(parts.starts.iter().copied()).ok_or(Errno::Io)?),
            Some(_) => Err(Errno::Io.into()),
        }
    }

    /// All parts of a directory, of which part 0 is the first.
    pub fn parts_of(&self, dir: DirId) -> Result<Vec<Part>, Stop> {
        let tiling = self.tiling(dir)?;
        Ok(tiling
            .tiles()
            .filter_map(|tile| Part::new(dir, tile.start))
            .collect())
    }

    pub fn require(&self, wants: Vec<LockWant>) -> Result<(), Stop> {
        self.snapshot.require(wants)
    }

    /// What every operation inside a directory checks first: the directory is alive in the generation meant
    /// (H1), and the caller may do `want` in it by what the request's statement says.
    pub fn enter(&self, dir: &Statement, want: Access) -> Result<(), Stop> {
        self.enter_part(Part::whole(dir.id), dir, want)
    }

    /// The same for an operation on a name, whose part must have it.
    pub fn enter_at(&self, place: &Place, dir: &Statement, want: Access) -> Result<(), Stop> {
        if self.inputs.division == Division::Halves && !dir.id.is_homes() {
            self.is_in(place.which, place.part, dir, place.hash)?;
        }
        let part = self.counted_in(place.part);
        // An entry that is looked at where it is shows that its directory is there. Of one that is not there
        // nothing else is to be said.
        if self.has_lines(dir.id) && !self.snapshot.has_read(&Key::Head(part)) {
            return self.may_enter(dir, want);
        }
        self.enter_part(part, dir, want)
    }

    /// Whether a part has a bucket (H64).
    fn is_in(&self, which: Which, part: Part, dir: &Statement, hash: NameHash) -> Result<(), Stop> {
        let start = part.start();
        let there = self.snapshot.part(part);
        match there.filter(|p| start == 0 || (p.generation, p.salt) == (dir.generation, dir.salt)) {
            Some(there) if there.tile.has(hash.upper()) || plant!(G84) => Ok(()),
            Some(there) => Err(Stop::Elsewhere {
                which,
                tile: Some(there.tile),
            }),
            // Only part 0 says that the directory is gone.
            None if start != 0 => Err(Stop::Elsewhere { which, tile: None }),
            None => Ok(()),
        }
    }

    /// The part of which a page of a listing is asked for.
    pub fn listed_part(&self, dir: &Statement) -> Part {
        Part::new(dir.id, self.inputs.parts[0]).unwrap_or(Part::whole(dir.id))
    }

    /// What a listing checks first: the part must have the position that comes next (H66).
    pub fn enter_listed(&self, part: Part, dir: &Statement, after: Position) -> Result<(), Stop> {
        if self.inputs.division == Division::Halves && !dir.id.is_homes() {
            self.is_in(Which::First, part, dir, after.next().bucket())?;
        }
        self.enter_part(part, dir, Access::READ)
    }

    fn enter_part(&self, part: Part, dir: &Statement, want: Access) -> Result<(), Stop> {
        // Of a file at home: whoever has this was shown the way to it.
        if dir.id.is_homes() {
            return Ok(());
        }
        let alive = match self.snapshot.part(part) {
            Some(head) => {
                // Who only looks at a directory from outside sees it as it is without what comes.
                if head.localised && want != Access(0) {
                    self.not_localised(dir.id.into())?;
                }
                (head.generation == dir.generation || pando_types::plant!(H1)) && head.salt == dir.salt
            }
            None => {
                dir.id == DirId::ABOVE_ROOT && dir.generation == Generation::ABOVE_ROOT
                    || pando_types::plant!(H9)
            }
        };
        if dir.id == DirId::ABOVE_ROOT && want.0 & !Access::EXEC.0 != 0 {
            return Err(Errno::Perm.into());
        }
        if !alive {
            return Err(Errno::Stale.into());
        }
        self.may_enter(dir, want)
    }

    /// Whether the caller may do `want` in a directory, by what the request's statement says.
    fn may_enter(&self, dir: &Statement, want: Access) -> Result<(), Stop> {
        if self.inputs.cred.may(want, &dir.guard()) || pando_types::plant!(G22) {
            Ok(())
        } else {
            Err(Errno::Access.into())
        }
    }

    /// Of a directory whose head says that somebody may have localised it. As long as somebody has, nobody
    /// else comes into it, and it is neither moved nor removed (H312).
    pub fn not_localised(&self, part: Part) -> Result<(), Stop> {
        let key = Key::Local(part);
        self.require(vec![LockWant::Key(key.clone(), LockMode::Shared)])?;
        // The bit alone counts for nothing.
        match self.snapshot.get(&key) {
            Some(Record::Local(_)) if !pando_types::plant!(H312) => Err(Stop::Localised),
            _ => Ok(()),
        }
    }

    /// What every operation that changes a directory's entries checks, once it knows whether the name exists:
    /// as on Linux existence comes before permission. Nothing changes above the root.
    pub fn change_at(&self, place: &Place, dir: &Statement) -> Result<(), Stop> {
        self.enter_at(place, dir, Access::WRITE.and(Access::EXEC))?;
        if dir.id == DirId::ABOVE_ROOT {
            Err(Errno::Busy.into())
        } else {
            Ok(())
        }
    }

    /// The same for something that gets no name.
    pub fn change(&self, dir: &Statement) -> Result<(), Stop> {
        self.enter(dir, Access::WRITE.and(Access::EXEC))?;
        if dir.id == DirId::ABOVE_ROOT {
            Err(Errno::Busy.into())
        } else {
            Ok(())
        }
    }

    /// Wants to change the entries of a directory.
    pub fn change_wants(&self, place: &Place) -> Vec<LockWant> {
        self.change_all_wants(place.part, std::slice::from_ref(place))
    }

    /// Wants to change many entries of one part of a directory, or of one directory where entries are placed
    /// one by one.
    pub fn change_all_wants(&self, part: Part, places: &[Place]) -> Vec<LockWant> {
        let part = self.counted_in(part);
        let mut wants = Vec::with_capacity(2 + places.len());
        wants.push(LockWant::Key(Key::Head(part), LockMode::Shared));
        wants.push(LockWant::Key(Key::Touch(part), LockMode::Increment));
        wants.extend(places.iter().map(|place| place.bucket(LockMode::Exclusive)));
        wants.extend(places.iter().filter_map(|place| self.line_want(place)));
        wants
    }

    /// Wants to look at an entry.
    pub fn look_wants(&self, place: &Place) -> Vec<LockWant> {
        self.entry_wants(place, LockMode::Shared)
    }

    /// Wants an entry that keeps its name.
    pub fn entry_wants(&self, place: &Place, mode: LockMode) -> Vec<LockWant> {
        let bucket = place.bucket(mode);
        match self.has_lines(place.part.dir) {
            true => vec![bucket],
            false => vec![LockWant::Key(Key::Head(place.part), LockMode::Shared), bucket],
        }
    }

    pub fn entry(&self, place: &Place) -> Option<&'a Entry> {
        self.snapshot.entry(place.part, place.hash, &place.name)
    }

    /// The entry, which must name the object meant.
    pub fn entry_of(&self, place: &Place, object: (Ino, Generation)) -> Result<&'a Entry, Stop> {
        let entry = self.entry(place).ok_or(Errno::NotFound)?;
        if entry.target.identity() == object {
            Ok(entry)
        } else {
            Err(Errno::Stale.into())
        }
    }

    /// As an answer shows an entry.
    pub fn view(&self, dir: &Statement, place: &Place, entry: &Entry) -> Result<EntryView, Stop> {
        match &entry.target {
            Target::Dir(d) => Ok(view_dir(dir, &place.name, d)),
            Target::Inode(i) => Ok(view_file(i, place.part.dir)),
            Target::Link(_) => Ok(self
                .file(place, entry, LockMode::Shared)?
                .ok_or(Errno::Io)?
                .view()),
        }
    }

    /// Who owns what an entry names.
    pub fn owner(&self, place: &Place, entry: &Entry, mode: LockMode) -> Result<u32, Stop> {
        match &entry.target {
            Target::Dir(d) => Ok(d.uid),
            Target::Inode(i) => Ok(i.uid),
            Target::Link(_) => Ok(self.file(place, entry, mode)?.ok_or(Errno::Io)?.inode.uid),
        }
    }

    /// Whether the sticky bit keeps the caller from removing or renaming an entry.
    pub fn sticky(&self, dir: &Statement, owner: u32) -> Result<(), Stop> {
        let uid = self.inputs.cred.uid;
        if dir.perm.has(pando_types::Perm::STICKY)
            && !self.inputs.cred.is_root()
            && uid != owner
            && uid != dir.uid
            && !pando_types::plant!(G23)
        {
            return Err(Errno::Perm.into());
        }
        Ok(())
    }

    /// A free ordinal in a bucket, so that the entry's cookie is unique (H66–H68).
    pub fn free_ordinal(&self, place: &Place) -> Result<u8, Stop> {
        let mut taken = self.snapshot.ordinals(place.part, place.hash);
        // Two files of one operation may come to their homes.
        taken.extend(self.inserts.iter().filter_map(|m| match m {
            Mutation::Insert {
                key: Key::Entry { part, hash, .. },
                record: Record::Entry(e),
            } if (*part, *hash) == (place.part, place.hash) => Some(e.ordinal),
            _ => None,
        }));
        (0..=u8::MAX)
            .find(|o| Position::new(place.hash, *o).is_entry() && (plant!(H68) || !taken.contains(o)))
            .ok_or(Stop::Fail(Errno::NoSpace))
    }

    pub fn insert(&mut self, key: Key, record: Record) {
        self.inserts.push(Mutation::Insert { key, record });
    }

    pub fn update(&mut self, key: Key, record: Record) {
        self.mutations.push(Mutation::Update { key, record });
    }

    pub fn delete(&mut self, key: Key) {
        self.mutations.push(Mutation::Delete { key });
    }

    /// Changes counts and times of a part of a directory.
    pub fn touch(&mut self, part: Part, delta: TouchDelta) {
        self.mutations.push(Mutation::Touch { part, delta });
    }

    /// Makes `place` name `target`, at a free position.
    pub fn link(&mut self, place: &Place, target: Target) -> Result<(), Stop> {
        let ordinal = self.free_ordinal(place)?;
        let entry = Entry { ordinal, target };
        self.list(place, Listed::New(&entry));
        self.insert(place.key(), Record::Entry(entry));
        Ok(())
    }

    pub fn fresh(&self) -> Result<Fresh, Stop> {
        // The server sets identities aside for every operation that creates.
        self.inputs.fresh.ok_or(Stop::Fail(Errno::Io))
    }
}

/// A directory's entry as the client sees it: with the statement that later requests carry.
pub(crate) fn view_dir(dir: &Statement, name: &Name, d: &AccessRecord) -> EntryView {
    EntryView {
        attr: d.attr(&pando_types::DirStat::default()),
        dir: Some(Statement::from(Said {
            parent: dir.id,
            parent_generation: dir.generation,
            name: name.clone(),
            id: d.id,
            generation: d.generation,
            ino: d.ino,
            salt: d.salt,
            perm: d.perm,
            uid: d.uid,
            gid: d.gid,
            acls: d.acls.clone(),
            realm: d.realm,
            seal: d.seal,
            // What it rests on is known to the server alone.
            scope: Scope::Handle,
            way: Vec::new(),
            at: Watermark(0),
            mac: 0,
        })),
        seal: None,
        layout: pando_format::Layout::None,
        version: d.version,
        xattrs: d.marks.has_xattrs(),
        home: None,
        acl: None,
        lease: 0,
    }
}
