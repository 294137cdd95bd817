//! Directories that a table adds to and does not make: the localised one, and others below it that are there
//! already.

use super::lease::{Not, Round};
use super::validate::Base;
use crate::MetaServer;
use pando_format::{AccessRecord, Entry, Head, Key, Record, Target};
use pando_types::{Access, DirId, Errno, Part, Perm, Slot, plant};
use std::collections::{BTreeMap, BTreeSet};

/// Directories between a base and the localised directory.
const DEPTH: usize = 1024;

impl MetaServer {
    /// What bears on entries of these directories. Each is found below the localised one, by way of
    /// directories that the caller may search, all of them in its slot. REQUIRES: their heads are locked.
    pub(super) async fn bases(
        &self,
        at: &Round<'_>,
        others: &BTreeSet<DirId>,
    ) -> Result<BTreeMap<DirId, Base>, Not> {
        let dir = at.dir;
        let mut bases = BTreeMap::new();
        let root = Base {
            generation: dir.generation,
            salt: dir.salt,
            gid: dir.perm.has(Perm::SETGID).then_some(dir.gid),
            realm: dir.realm,
        };
        bases.insert(dir.id, root);
        let mut above = BTreeSet::from([dir.id]);
        for id in others {
            let (head, access) = self.found(*id, Part::whole(dir.id).slot()).await?;
            let want = Access::WRITE.and(Access::EXEC);
            if !at.asked.cred.may(want, &access.guard()) && !plant!(G82) {
                return Err(Errno::Access.into());
            }
            self.is_below(at, &mut above, &head).await?;
            let base = Base {
                generation: head.generation,
                salt: head.salt,
                gid: access.perm.has(Perm::SETGID).then_some(access.gid),
                realm: head.realm,
            };
            bases.insert(*id, base);
        }
        Ok(bases)
    }

    /// Whether the way from a directory up comes to one of those `above`, which it then belongs to.
    async fn is_below(&self, at: &Round<'_>, above: &mut BTreeSet<DirId>, head: &Head) -> Result<(), Not> {
        let slot = Part::whole(at.dir.id).slot();
        if plant!(G83) {
            return Ok(());
        }
        let (mut way, mut parent) = (Vec::new(), head.parent);
        while !above.contains(&parent) {
            let (head, access) = self.found(parent, slot).await?;
            if !at.asked.cred.may(Access::EXEC, &access.guard()) {
                return Err(Errno::Access.into());
            }
            way.push(parent);
            parent = head.parent;
            if way.len() > DEPTH {
                return Err(Errno::Stale.into());
            }
        }
        above.extend(way);
        Ok(())
    }

    /// A directory of this slot whose entry is here too, with nothing that a table could not have made.
    async fn found(&self, id: DirId, slot: Slot) -> Result<(Head, AccessRecord), Not> {
        let part = Part::whole(id);
        let stale = || Not::Errno(Errno::Stale);
        if part.slot() != slot {
            return Err(stale());
        }
        let Some(Record::Head(head)) = self.store.get(&Key::Head(part)).wait().await? else {
            return Err(stale());
        };
        let above = Part::whole(head.parent);
        if above.slot() != slot || head.split != 0 {
            return Err(stale());
        }
        let Some(Record::Head(parent)) = self.store.get(&Key::Head(above)).wait().await? else {
            return Err(stale());
        };
        let key = Key::Entry {
            part: above,
            hash: self.map().widths().name(parent.salt, &head.name),
            name: head.name.clone(),
        };
        match self.store.get(&key).wait().await? {
            Some(Record::Entry(Entry {
                target: Target::Dir(access),
                ..
            })) if (access.id, access.generation) == (id, head.generation)
                && access.acls.default.is_none() =>
            {
                Ok((head, access))
            }
            _ => Err(stale()),
        }
    }
}
