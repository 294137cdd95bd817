//! What is true of each operation, whoever carries it out: one table, next to the operations.

use super::Op;
use crate::bulk::Bulk;
use pando_types::{Access, Slot};

/// What an operation is like. Some of it depends on what the operation says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traits {
    /// The name of the operation, as metrics and logs show it.
    pub kind: &'static str,
    /// Whether it may change something, and so needs a request identity.
    pub mutates: bool,
    /// Whether it may create something that needs a number, in the first directory that it names.
    pub creates: bool,
    /// Whether it needs room in the store: refused below the watermark, where removals go on.
    pub grows: bool,
    /// Whether it changes something or asks to be allowed to later.
    pub writes: bool,
    /// Whether it may leave a file without a name that is open somewhere.
    pub may_orphan: bool,
    /// Whether it may leave a removed file that its caller holds open, in the slot of the second directory
    /// that it names.
    pub leaves_held: bool,
    /// Whether the coordinator may do it for other servers.
    pub coordinated: bool,
    /// Whether it may change what statements are made of.
    pub facts: bool,
    /// Whether a directory may be meant by itself: what is asked for has the name of its statement.
    pub itself: bool,
    /// Whether the first directory that it names may be the home of a file.
    pub at_home: bool,
    /// Whether its answer shows the entry of its name as paths are resolved by.
    pub learnt: bool,
    /// Whether it may be over at once.
    pub quick: Quick,
    /// Where it is carried out.
    pub home: Home,
    /// What must be true of the directories that it names.
    pub rests: Rests,
    /// What it says of the change attribute of its directory.
    pub counts: Counts,
    /// Who knows a directory whose entry it writes.
    pub leaves: Leaves,
    /// How it opens a file.
    pub opens: Opens,
}

/// Whether an operation may be over at once. Listings are made of more than records under keys; directories
/// come and go with content that is elsewhere, or that others have heard of; what is asked again may have
/// been executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quick {
    /// It may.
    Always,
    /// If it is asked for the first time.
    Once,
    /// It may not.
    Never,
}

/// Where an operation is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// In the slot of the first directory that it names.
    First,
    /// In this slot.
    Slot(Slot),
    /// At any server. It says and does nothing on anybody's behalf.
    Anywhere,
}

/// What must be true of the directories that an operation names, at the instant it takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rests {
    /// All that was said of them.
    Everything,
    /// What was said of their ways; a directory that is open may have become another.
    Ways,
    /// Nothing: a file that is open is written on.
    Nothing,
}

/// What an answer says of the change attribute of the first directory that its operation names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counts {
    /// Nothing.
    Nothing,
    /// It changed names, in this directory and no other.
    Names,
    /// It looked at one name.
    Name,
    /// It looked at the content half.
    Content,
}

/// Who knows a directory, once an operation has written the entry of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaves {
    /// Nobody but its maker.
    Made,
    /// Its caller, too.
    Told,
    /// Others may.
    Open,
}

/// How an operation opens a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opens {
    /// It does not.
    No,
    /// By a name, for this (as [`Access`] bits).
    Named(u8),
    /// One without a name, to write.
    Unnamed,
}

/// Of an operation that looks.
const fn look(kind: &'static str) -> Traits {
    Traits {
        kind,
        mutates: false,
        creates: false,
        grows: false,
        writes: false,
        may_orphan: false,
        leaves_held: false,
        coordinated: false,
        facts: false,
        itself: false,
        at_home: false,
        learnt: false,
        quick: Quick::Always,
        home: Home::First,
        rests: Rests::Everything,
        counts: Counts::Nothing,
        leaves: Leaves::Open,
        opens: Opens::No,
    }
}

/// Of an operation that changes something.
const fn change(kind: &'static str) -> Traits {
    Traits {
        mutates: true,
        writes: true,
        ..look(kind).quick(Quick::Once)
    }
}

/// Of an operation that makes something new.
const fn make(kind: &'static str) -> Traits {
    Traits {
        creates: true,
        ..change(kind).grows()
    }
}

/// Of an operation that changes what statements are made of.
const fn govern(kind: &'static str) -> Traits {
    Traits {
        coordinated: true,
        facts: true,
        ..change(kind)
    }
}

macro_rules! also {
    ($($field:ident),*) => {
        $( const fn $field(self) -> Traits {
            Traits { $field: true, ..self }
        } )*
    };
}

macro_rules! set {
    ($($field:ident: $of:ty),*) => {
        $( const fn $field(self, $field: $of) -> Traits {
            Traits { $field, ..self }
        } )*
    };
}

impl Traits {
    also!(grows, may_orphan, facts, itself, at_home, learnt);
    set!(quick: Quick, home: Home, rests: Rests, counts: Counts, leaves: Leaves, opens: Opens);
}

impl Op {
    /// What the operation is like. (Of what a caller does not ask for nothing is left after optimization.)
    #[inline(always)]
    #[rustfmt::skip]
    pub fn traits(&self) -> Traits {
        use {Counts::*, Home::*, Leaves::*, Opens::*, Quick::*};
        match self {
            Op::Lookup { .. } => const { look("lookup").at_home().learnt().counts(Name) },
            Op::Reopen { .. } => const { look("reopen").rests(Rests::Ways) },
            Op::DirStat { .. } => const { look("statdir").counts(Counts::Content) },
            Op::ReadLink { .. } => const { look("readlink").at_home() },
            Op::Open { want, .. } => Traits {
                writes: *want & Access::WRITE.0 != 0,
                opens: Named(*want),
                ..const { look("open").at_home() }
            },
            Op::ReadDir { .. } => const { look("readdir").quick(Never) },
            Op::GetXattr { .. } => const { look("getxattr").itself().at_home() },
            Op::ListXattr { .. } => const { look("listxattr").itself().at_home() },
            Op::Home { slot, .. } => Traits { home: Slot(*slot), ..const { look("home").quick(Never) } },
            Op::StatFs => const { look("statfs").quick(Never).home(Anywhere) },
            Op::Sync => const { look("sync").quick(Never).home(Anywhere).facts() },
            Op::Create { want, .. } => Traits { opens: Named(*want), ..const { make("create").counts(Names) } },
            Op::Tmpfile { .. } => const { make("tmpfile").opens(Unnamed) },
            Op::Symlink { .. } => const { make("symlink").counts(Names) },
            Op::Mknod { .. } => const { make("mknod").counts(Names) },
            Op::Mkdir { .. } => const { make("mkdir").quick(Never).counts(Names).leaves(Made).learnt() },
            Op::Rmdir { .. } => const { change("rmdir").quick(Never).counts(Names) },
            Op::Unlink { .. } => const { change("unlink").counts(Names).may_orphan() },
            Op::UnlinkMany { .. } => const { change("unlinkmany").quick(Never) },
            Op::SetAttr { handle, .. } => Traits {
                rests: if handle.is_some() { Rests::Nothing } else { Rests::Everything },
                ..const { govern("setattr").leaves(Told).itself().at_home().learnt() }
            },
            Op::SetXattr { .. } => const { change("setxattr").grows().itself().at_home() },
            Op::SetAcl { list, .. } => Traits {
                grows: list.is_some(),
                ..const { govern("setacl").quick(Never).leaves(Told).itself().at_home().learnt() }
            },
            Op::RemoveXattr { .. } => const { change("removexattr").itself().at_home() },
            Op::Publish { content, .. } => Traits {
                grows: !matches!(content, super::Content::None),
                ..const { change("publish").at_home().rests(Rests::Nothing) }
            },
            Op::Accessed { .. } => const { change("accessed").at_home().rests(Rests::Nothing) },
            Op::Rename { src, dst, held, .. } => Traits {
                leaves_held: *held,
                counts: if src.id == dst.id { Names } else { Counts::Nothing },
                ..const { govern("rename").grows().may_orphan() }
            },
            Op::Link { .. } => const { change("link").grows().at_home() },
            Op::Release { slot, .. } => Traits { home: Slot(*slot), ..const { change("release") } },
            Op::Bulk { step, .. } => match step {
                Bulk::Localize => const { change("localize").grows().quick(Never) },
                Bulk::Renew { .. } => const { change("renew").quick(Never) },
                Bulk::Insert { .. } => const { change("insert").grows().facts().quick(Never) },
                Bulk::Return { .. } => const { change("return").quick(Never) },
            },
        }
    }

    /// Its name ([`Traits::kind`]).
    #[inline]
    pub fn kind(&self) -> &'static str {
        self.traits().kind
    }

    /// Whether it may change something, and so needs a request identity.
    #[inline]
    pub fn mutates(&self) -> bool {
        self.traits().mutates
    }

    /// Whether it needs room in the store ([`Traits::grows`]).
    #[inline]
    pub fn grows(&self) -> bool {
        self.traits().grows
    }

    /// Whether it may leave a file without a name that is open somewhere.
    #[inline]
    pub fn may_orphan(&self) -> bool {
        self.traits().may_orphan
    }
}
