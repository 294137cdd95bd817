//! What requests say of the directories they name.

use pando_format::{codec_enum, codec_newtype, codec_struct};
use pando_types::{Acls, DirId, Generation, Guard, Ino, Name, Perm, Realm, Watermark};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};

/// What a lookup returned about a directory: enough for the server that holds the directory's content to
/// check an operation inside it. Part of every request that names a directory. Copies share what is said; who
/// changes one has it for himself first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement(Arc<Said>);

impl Deref for Statement {
    type Target = Said;
    fn deref(&self) -> &Said {
        &self.0
    }
}

impl DerefMut for Statement {
    fn deref_mut(&mut self) -> &mut Said {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Said> for Statement {
    fn from(said: Said) -> Statement {
        Statement(Arc::new(said))
    }
}

/// What a [`Statement`] says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// Parent directory.
    pub parent: DirId,
    /// Incarnation of the parent.
    pub parent_generation: Generation,
    /// Name in the parent.
    pub name: Name,
    /// The directory.
    pub id: DirId,
    /// Its incarnation.
    pub generation: Generation,
    /// Its inode number.
    pub ino: Ino,
    /// Salt of its name hash.
    pub salt: u64,
    /// Permission bits.
    pub perm: Perm,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Its access control lists: servers check by the one, and what is new in it begins with the other.
    pub acls: Acls,
    /// Realm.
    pub realm: Realm,
    /// Counts the changes of who may search it that others were told of: with the ID and generation it makes
    /// the key of what is sealed about it (H99).
    pub seal: u64,
    /// What it rests on.
    pub scope: Scope,
    /// Keyed tags of the directories it rests on, the nearest to the root first, this one last.
    pub way: Vec<u64>,
    /// All this was true when the log of invalidations had come so far. Of later entries the server that
    /// executes an operation knows whether they concern a directory of the way (InfiniFS §3.4).
    pub at: Watermark,
    /// Keyed MAC over all the above and whom it was told, by a server: clients pass it on as it is (H98).
    /// Invariant: encoded last.
    pub mac: u128,
}

/// What a statement rests on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// The whole way from the root, which its server has verified: a ticket for the path.
    Way,
    /// One hop: the way is the parent and this directory. It says nothing of the way to the parent, and is
    /// good only together with a statement of that.
    Link,
    /// Nothing but the directory itself, as an open directory does: it stays good when a directory above is
    /// renamed or closed to the holder.
    Handle,
}

impl Statement {
    /// The fixed statement of the place above the root, whose single entry is the root's access record.
    pub fn above_root() -> Statement {
        static ABOVE_ROOT: LazyLock<Statement> = LazyLock::new(|| Said::above_root().into());
        ABOVE_ROOT.clone()
    }
}

impl Said {
    /// What is said of the place above the root.
    pub fn above_root() -> Said {
        Said {
            parent: DirId::ABOVE_ROOT,
            parent_generation: Generation::ABOVE_ROOT,
            name: Name::root(),
            id: DirId::ABOVE_ROOT,
            generation: Generation::ABOVE_ROOT,
            ino: Ino(0),
            salt: 0,
            perm: Perm::new(0o755),
            uid: 0,
            gid: 0,
            acls: Acls::default(),
            realm: Realm(0),
            seal: 0,
            scope: Scope::Way,
            way: Vec::new(),
            at: Watermark(u64::MAX),
            mac: 0,
        }
    }

    /// Who may do what with the directory.
    pub fn guard(&self) -> Guard<'_> {
        Guard {
            perm: self.perm,
            uid: self.uid,
            gid: self.gid,
            acl: self.acls.access.as_ref(),
            is_dir: true,
        }
    }

    /// Whether it is about this incarnation of this directory.
    pub fn is_of(&self, id: DirId, generation: Generation) -> bool {
        self.id == id && self.generation == generation
    }

    /// The tag of the directory itself; that of the place above the root is 0.
    pub fn tag(&self) -> u64 {
        self.way.last().copied().unwrap_or(0)
    }
}

codec_newtype!(Statement);
codec_struct!(Said {
    parent,
    parent_generation,
    name,
    id,
    generation,
    ino,
    salt,
    perm,
    uid,
    gid,
    acls,
    realm,
    seal,
    scope,
    way,
    at,
    mac
});
codec_enum!(Scope { 1 => Way, 2 => Link, 3 => Handle });
