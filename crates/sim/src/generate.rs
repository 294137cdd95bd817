//! What a client does next: all operations, few names, few directories, so that conflicts are common.

use crate::acls;
use crate::knowledge::{Knowledge, Seen};
use pando_env::rng::Rng;
use pando_format::codec::Blob;
use pando_types::{
    Access, AttrChange, Cred, FileKind, Mode, NAME_MAX, Name, Perm, TimeChange, Timestamp, XATTR_VALUE_MAX,
    XattrMode, XattrName,
};
use pando_wire::{Content, Handle, Op, RenameMode, Statement};

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Task {
    /// One operation.
    Op(Op),
    /// Store blocks of a file first, then this.
    Write {
        /// How many blocks.
        blocks: u64,
        /// The publish.
        publish: Op,
    },
    /// List a directory, page by page.
    List {
        /// Which.
        dir: Statement,
        /// Entries per page.
        limit: u32,
        /// With whole entries.
        plus: bool,
    },
    /// An operation on a whole path.
    Path(Vec<u8>, u64),
    /// Look the root up, and with it begin anew.
    Root,
}

impl Task {
    /// Whether it may change something.
    pub fn mutates(&self) -> bool {
        match self {
            Task::Op(op) => op.mutates(),
            Task::Write { .. } => true,
            Task::List { .. } | Task::Path(..) | Task::Root => false,
        }
    }
}

/// Draws tasks.
pub struct Generator {
    names: Vec<Name>,
    weights: Vec<u32>,
    inline_limit: u32,
    block_size: u32,
}

/// The identities in use: root, and two users who share a group.
pub fn creds() -> [Cred; 3] {
    [
        Cred::root(),
        Cred {
            uid: 1000,
            gid: 100,
            groups: vec![200],
        },
        Cred {
            uid: 1001,
            gid: 101,
            groups: vec![100, 200],
        },
    ]
}

const KINDS: [(&str, u32); 24] = [
    ("lookup", 120),
    ("statdir", 45),
    ("readlink", 20),
    ("open", 50),
    ("list", 45),
    ("statfs", 4),
    ("sync", 8),
    ("root", 12),
    ("path", 40),
    ("reopen", 25),
    ("create", 130),
    ("symlink", 45),
    ("mkdir", 110),
    ("rmdir", 80),
    ("unlink", 90),
    ("setattr", 80),
    ("publish", 60),
    ("rename", 105),
    ("release", 10),
    ("touchdir", 15),
    ("link", 45),
    ("xattr", 70),
    ("acl", 60),
    ("mknod", 20),
];

const PERMS: [u16; 14] = [
    0o777, 0o777, 0o777, 0o755, 0o755, 0o1777, 0o2777, 0o2775, 0o775, 0o700, 0o750, 0o711, 0o6755, 0o000,
];

impl Generator {
    /// With so many names. Each seed has a mixture of its own, so that some dwell on what is rare in others;
    /// what must be common everywhere (renames, removals, changes at all) only becomes more so.
    pub fn new(rng: &mut Rng, names: usize, inline_limit: u32, block_size: u32) -> Generator {
        let weights = KINDS
            .iter()
            .map(|(kind, w)| match *kind {
                "create" | "mkdir" | "rmdir" | "rename" | "unlink" => w * rng.range(10, 16) as u32 / 10,
                "symlink" | "setattr" | "xattr" | "acl" | "mknod" | "publish" | "release" | "touchdir"
                | "link" => w * rng.range(5, 18) as u32 / 10,
                _ => w * rng.range(2, 12) as u32 / 10,
            })
            .collect();
        let names = (0..names.max(3)).filter_map(|n| {
            let bytes = match n {
                0 => vec![b'L'; NAME_MAX],
                1 => vec![0xFF, 0xFE, b'x'],
                n => format!("n{n}").into_bytes(),
            };
            Name::new(&bytes).ok()
        });
        Generator {
            names: names.collect(),
            weights,
            inline_limit,
            block_size,
        }
    }

    fn name(&self, rng: &mut Rng) -> Name {
        rng.pick(&self.names).clone()
    }

    /// The names that are removed together with one; now and then one of them is given twice.
    pub fn many(&self, rng: &mut Rng, name: Name) -> Vec<Name> {
        let mut names = vec![name];
        for _ in 0..rng.below(7) {
            names.push(self.name(rng));
        }
        if !rng.percent(20) {
            names.sort();
            names.dedup();
        }
        names
    }

    /// The name under which more directories are made, and renamed away, than under others: "staging", so to
    /// speak. Versions of births are what that is about (H2-H5).
    fn staging(&self) -> &Name {
        &self.names[2]
    }

    /// The next task, by what this client and all clients together know.
    pub fn draw(&self, rng: &mut Rng, own: &mut Knowledge, all: &Knowledge) -> Task {
        if own.dirs() == 0 {
            return Task::Root;
        }
        let kind = KINDS[rng.weighted(&self.weights)].0;
        let dir = self.dir(rng, own, all);
        let name = self.name(rng);
        let any = |rng: &mut Rng| self.seen(rng, own, all, |_| true);
        let file = |rng: &mut Rng| self.seen(rng, own, all, |f| f.kind == FileKind::Regular);
        Task::Op(match kind {
            "lookup" => match any(rng).filter(|_| rng.percent(50)) {
                Some(f) => Op::Lookup {
                    dir: f.dir,
                    name: f.name,
                },
                None => Op::Lookup { dir, name },
            },
            "statdir" => Op::DirStat { dir },
            "reopen" => Op::Reopen { dir },
            "readlink" => match self.seen(rng, own, all, |f| f.kind == FileKind::Symlink) {
                Some(f) if rng.percent(80) => Op::ReadLink {
                    dir: f.dir,
                    name: f.name,
                },
                _ => Op::ReadLink { dir, name },
            },
            "open" => {
                let want = rng.range(1, 7) as u8;
                match any(rng).filter(|_| rng.percent(70)) {
                    Some(f) if rng.percent(15) => {
                        let f = f.at_home();
                        Op::Open {
                            dir: f.dir,
                            name: f.name,
                            want,
                        }
                    }
                    Some(f) => Op::Open {
                        dir: f.dir,
                        name: f.name,
                        want,
                    },
                    None => Op::Open { dir, name, want },
                }
            }
            "list" => {
                return Task::List {
                    dir,
                    limit: rng.range(1, 8) as u32,
                    plus: rng.percent(50),
                };
            }
            "statfs" => Op::StatFs,
            "sync" => Op::Sync,
            "root" => return Task::Root,
            "path" => return self.path(rng),
            "create" => Op::Create {
                dir,
                name,
                mode: mode(rng),
                exclusive: rng.percent(40),
                want: rng.range(1, 7) as u8,
            },
            "symlink" => Op::Symlink {
                dir,
                name,
                target: Blob(self.target(rng)),
            },
            "mkdir" => Op::Mkdir {
                dir,
                name: if rng.percent(25) {
                    self.staging().clone()
                } else {
                    name
                },
                mode: mode(rng),
            },
            "rmdir" => match self.known_dir(rng, own, all) {
                Some((dir, name)) if rng.percent(85) => Op::Rmdir { dir, name },
                _ => Op::Rmdir { dir, name },
            },
            "unlink" => {
                let held = rng.percent(15);
                match self.seen(rng, own, all, |f| f.kind != FileKind::Directory) {
                    Some(f) if rng.percent(80) => Op::Unlink {
                        dir: f.dir,
                        name: f.name,
                        held,
                    },
                    _ => Op::Unlink { dir, name, held },
                }
            }
            "setattr" => match any(rng) {
                Some(f) if rng.percent(20) => self.set_attr(rng, f.at_home()),
                Some(f) => self.set_attr(rng, f),
                None => Op::Lookup { dir, name },
            },
            "touchdir" => match self.seen(rng, own, all, |f| f.kind == FileKind::Directory) {
                Some(f) => {
                    let change = AttrChange {
                        atime: times(rng),
                        mtime: times(rng),
                        ..AttrChange::default()
                    };
                    set(f, change, None)
                }
                None => Op::DirStat { dir },
            },
            "xattr" => match any(rng) {
                Some(f) => self.xattr(rng, f),
                None => Op::Lookup { dir, name },
            },
            "acl" => match any(rng) {
                Some(f) if rng.percent(15) => acls::draw(rng, f.at_home()),
                Some(f) => acls::draw(rng, f),
                None => Op::Lookup { dir, name },
            },
            "mknod" => {
                let kind = match rng.below(16) {
                    0 => FileKind::Directory,
                    1 => FileKind::Regular,
                    2..=8 => FileKind::Fifo,
                    9..=11 => FileKind::Socket,
                    12..=13 => FileKind::BlockDevice,
                    _ => FileKind::CharDevice,
                };
                Op::Mknod {
                    dir,
                    name,
                    kind,
                    mode: mode(rng),
                    rdev: rng.below(1 << 33),
                }
            }
            "publish" => match file(rng) {
                Some(f) if rng.percent(25) => return self.publish(rng, f.at_home()),
                Some(f) => return self.publish(rng, f),
                None => Op::Create {
                    dir,
                    name,
                    mode: Perm::new(0o666).into(),
                    exclusive: false,
                    want: 6,
                },
            },
            "rename" => self.rename(rng, own, all, dir, name),
            "link" => {
                let wrong = rng.percent(5);
                match self.seen(rng, own, all, |f| (f.kind == FileKind::Directory) == wrong) {
                    Some(f) => {
                        let f = if rng.percent(20) { f.at_home() } else { f };
                        Op::Link {
                            object: f.meant(),
                            dst: dir,
                            dst_name: name,
                        }
                    }
                    None => Op::Lookup { dir, name },
                }
            }
            _ => match own.held.pop() {
                Some((slot, ino, generation)) => Op::Release {
                    slot,
                    ino,
                    generation,
                },
                None => Op::DirStat { dir },
            },
        })
    }

    fn path(&self, rng: &mut Rng) -> Task {
        let mut path = Vec::new();
        for _ in 0..rng.range(1, 4) {
            path.extend_from_slice(b"/");
            match rng.below(12) {
                0 => path.extend_from_slice(b"."),
                1 => path.extend_from_slice(b".."),
                _ => path.extend_from_slice(self.name(rng).as_bytes()),
            }
        }
        Task::Path(path, rng.below(3))
    }

    fn dir(&self, rng: &mut Rng, own: &Knowledge, all: &Knowledge) -> Statement {
        let from = if rng.percent(60) { own } else { all };
        let stale = rng.percent(7);
        from.dir(rng, stale)
            .or_else(|| own.dir(rng, false))
            .unwrap_or_else(Statement::above_root)
    }

    fn seen(
        &self,
        rng: &mut Rng,
        own: &Knowledge,
        all: &Knowledge,
        wanted: impl Fn(&Seen) -> bool,
    ) -> Option<Seen> {
        let from = if rng.percent(60) { own } else { all };
        from.file(rng, |f| f.dir.id != pando_types::DirId::ABOVE_ROOT && wanted(f))
    }

    /// A directory as (its parent, its name).
    fn known_dir(&self, rng: &mut Rng, own: &Knowledge, all: &Knowledge) -> Option<(Statement, Name)> {
        let stale = rng.percent(5);
        let d = if rng.percent(60) { own } else { all }.dir(rng, stale)?;
        let parent = own.parent_of(&d).or_else(|| all.parent_of(&d))?;
        Some((parent, d.name.clone()))
    }

    fn target(&self, rng: &mut Rng) -> Vec<u8> {
        match rng.below(10) {
            0 => vec![b'/'; 300 + rng.index(200)], // longer than fits a record
            3 => format!("/n{}/n{}", rng.below(8), rng.below(8)).into_bytes(),
            4 => b"..".to_vec(),
            1 => Vec::new(),
            2 => b"a\0b".to_vec(),
            _ => format!("t{}", rng.below(100)).into_bytes(),
        }
    }

    fn set_attr(&self, rng: &mut Rng, mut f: Seen) -> Op {
        let mut change = AttrChange::default();
        if rng.percent(45) {
            change.perm = Some(Perm::new(*rng.pick(&PERMS)));
        }
        if rng.percent(20) {
            change.uid = Some(*rng.pick(&[0, 1000, 1001]));
        }
        if rng.percent(20) {
            change.gid = Some(*rng.pick(&[0, 100, 101, 200]));
        }
        let mut handle = f.handle.filter(|_| rng.percent(20));
        if f.kind == FileKind::Regular && rng.percent(50) || rng.percent(5) {
            change.size = Some(if rng.percent(3) { u64::MAX } else { rng.below(600) });
        }
        if rng.percent(25) {
            (change.atime, change.mtime) = (times(rng), times(rng));
        }
        if rng.percent(4) {
            f.generation.0 ^= 1;
            handle = None;
        }
        set(f, change, handle)
    }

    /// Few attributes, so that they are there and not there; of the large ones two fit, and seldom three.
    fn xattr(&self, rng: &mut Rng, mut f: Seen) -> Op {
        let attrs: [&[u8]; 6] = [
            b"user.a",
            b"user.b",
            b"user.c",
            b"trusted.t",
            b"security.s",
            b"security.capability",
        ];
        let attr = XattrName::new(attrs[rng.index(attrs.len())]).unwrap_or_else(|_| XattrName::capability());
        if rng.percent(4) {
            f.generation.0 ^= 1;
        }
        let object = f.meant();
        match rng.below(20) {
            0..=3 => Op::GetXattr { object, attr },
            4..=6 => Op::ListXattr { object },
            7..=8 => Op::RemoveXattr { object, attr },
            n => {
                let size = match rng.below(60) {
                    0 => XATTR_VALUE_MAX + 1,
                    1..=4 => XATTR_VALUE_MAX - 100,
                    _ => rng.index(40),
                };
                Op::SetXattr {
                    object,
                    attr,
                    value: Blob(vec![rng.next() as u8; size]),
                    mode: match n {
                        9..=11 => XattrMode::Create,
                        12..=14 => XattrMode::Replace,
                        _ => XattrMode::Any,
                    },
                }
            }
        }
    }

    fn publish(&self, rng: &mut Rng, f: Seen) -> Task {
        let size = rng.below(u64::from(self.inline_limit) * 3 / 2);
        let Some(handle) = f.handle else {
            // What nobody has opened for writing cannot be written.
            return Task::Op(Op::Open {
                dir: f.dir,
                name: f.name,
                want: Access::READ.and(Access::WRITE).0,
            });
        };
        let mtime = rng.percent(40).then(|| stamp(rng));
        let base = rng.percent(30).then(|| rng.below(3));
        let op = |content, size| Op::Publish {
            object: f.clone().meant(),
            handle,
            content,
            size,
            mtime,
            base,
        };
        match rng.below(10) {
            0 => Task::Op(op(Content::None, size)),
            1..=6 => {
                let fill = rng.next() as u8;
                let len = if rng.percent(5) {
                    size + 1
                } else {
                    rng.below(size + 1)
                };
                Task::Op(op(Content::Inline(Blob(vec![fill; len as usize])), size))
            }
            _ => {
                let blocks = rng.range(1, 4);
                let size = blocks * u64::from(self.block_size) - rng.below(u64::from(self.block_size));
                Task::Write {
                    blocks,
                    publish: op(Content::Blocks(self.block_size), size),
                }
            }
        }
    }

    fn rename(&self, rng: &mut Rng, own: &Knowledge, all: &Knowledge, dir: Statement, name: Name) -> Op {
        let (src, src_name) = match rng.below(10) {
            0..=1 => (0..4)
                .filter_map(|_| self.known_dir(rng, own, all))
                .find(|(_, name)| name == self.staging()),
            2..=4 => self.known_dir(rng, own, all),
            5..=7 => self.seen(rng, own, all, |_| true).map(|f| (f.dir, f.name)),
            _ => None,
        }
        .unwrap_or_else(|| (dir.clone(), self.name(rng)));
        let dst = if rng.percent(35) {
            src.clone()
        } else {
            self.dir(rng, own, all)
        };
        let (dst, dst_name) = match self.known_dir(rng, own, all) {
            Some(known) if rng.percent(25) => known,
            _ => (dst, name),
        };
        let mode = match rng.below(20) {
            0..=13 => RenameMode::Replace,
            14..=16 => RenameMode::NoReplace,
            _ => RenameMode::Exchange,
        };
        Op::Rename {
            src,
            src_name,
            dst,
            dst_name,
            mode,
            held: rng.percent(10),
        }
    }
}

/// Most programs have a umask.
fn mode(rng: &mut Rng) -> Mode {
    Mode {
        perm: Perm::new(*rng.pick(&PERMS)),
        umask: Perm::new(*rng.pick(&[0, 0, 0, 0o002, 0o022, 0o077])),
    }
}

fn set(f: Seen, change: AttrChange, handle: Option<Handle>) -> Op {
    Op::SetAttr {
        object: f.meant(),
        change,
        handle,
    }
}

fn stamp(rng: &mut Rng) -> Timestamp {
    Timestamp {
        secs: rng.below(4_000_000_000) as i64 - 1_000_000_000,
        nanos: rng.below(1_000_000_000) as u32,
    }
}

fn times(rng: &mut Rng) -> Option<TimeChange> {
    match rng.below(3) {
        0 => None,
        1 => Some(TimeChange::Now),
        _ => Some(TimeChange::To(stamp(rng))),
    }
}
