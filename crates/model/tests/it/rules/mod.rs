//! Each rule of the model by example. `tests/it/linux` shows that the rules are the kernel's; this shows what
//! they are, and holds those that the kernel cannot show (identities, stale handles, listings over time).

mod acl;
mod attr;
mod entries;
mod identity;
mod listing;
mod rename;
mod shape;

use pando_model::{DirRef, Fresh, Model, ModelAnswer, ModelOp, NodeId, RenameMode, View};
use pando_types::{Access, Acls, AttrChange, Cred, DirId, Errno, Generation, Ino, Name, Perm, Timestamp};

pub(crate) type Answer = Result<ModelAnswer, Errno>;

pub(crate) fn name(s: &str) -> Name {
    Name::new(s.as_bytes()).expect("a valid name")
}

pub(crate) fn user(uid: u32) -> Cred {
    Cred {
        uid,
        gid: uid,
        groups: Vec::new(),
    }
}

pub(crate) fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

pub(crate) const READ: Access = Access::READ;
pub(crate) const WRITE: Access = Access::WRITE;

/// A model whose clock ticks a second for each operation, and who acts in it.
pub(crate) struct World {
    pub(crate) model: Model,
    pub(crate) cred: Cred,
    pub(crate) clock: i64,
    pub(crate) root: DirRef,
}

impl World {
    /// An empty tree anyone may write.
    pub(crate) fn new() -> World {
        let model = Model::new(Perm::new(0o777), 0, 0, at(0));
        World {
            model,
            cred: Cred::root(),
            clock: 0,
            root: DirRef::new(NodeId::ROOT),
        }
    }

    pub(crate) fn become_user(&mut self, uid: u32) {
        self.cred = user(uid);
    }

    pub(crate) fn become_root(&mut self) {
        self.cred = Cred::root();
    }

    pub(crate) fn now(&self) -> Timestamp {
        at(self.clock)
    }

    pub(crate) fn apply(&mut self, op: ModelOp) -> Answer {
        let number = self.clock as u64 + 10;
        let dir_id = Some(DirId(u128::from(number)));
        let fresh = Fresh {
            ino: Ino(number),
            generation: Generation(number),
            dir_id,
        };
        self.apply_as(op, Some(fresh))
    }

    /// By what the request says of lists.
    pub(crate) fn apply_by(&mut self, said: Vec<(NodeId, Acls)>, op: ModelOp) -> Answer {
        self.clock += 1;
        let number = self.clock as u64 + 10;
        let fresh = Fresh {
            ino: Ino(number),
            generation: Generation(number),
            dir_id: Some(DirId(u128::from(number))),
        };
        self.model
            .apply_by(said, &self.cred, &op, at(self.clock), Some(fresh))
    }

    /// Checks that the tree stays one, and that what fails changes nothing.
    pub(crate) fn apply_as(&mut self, op: ModelOp, fresh: Option<Fresh>) -> Answer {
        self.clock += 1;
        let before = self.model.walk();
        let answer = self.model.apply(&self.cred, &op, at(self.clock), fresh);
        self.model.check().expect("a tree");
        if matches!(answer, Err(_) | Ok(ModelAnswer::Identity(_))) {
            assert_eq!(before, self.model.walk(), "{op:?} failed and changed something");
        }
        answer
    }

    pub(crate) fn create_in(&mut self, dir: DirRef, n: &str, perm: u16) -> Answer {
        let want = WRITE;
        self.apply(ModelOp::Create {
            dir,
            name: name(n),
            mode: Perm::new(perm).into(),
            exclusive: true,
            want,
        })
    }

    pub(crate) fn mkdir_in(&mut self, dir: DirRef, n: &str, perm: u16) -> Answer {
        self.apply(ModelOp::Mkdir {
            dir,
            name: name(n),
            mode: Perm::new(perm).into(),
        })
    }

    /// A new file.
    pub(crate) fn file(&mut self, dir: DirRef, n: &str, perm: u16) -> NodeId {
        view(self.create_in(dir, n, perm)).id()
    }

    /// A new directory.
    pub(crate) fn dir(&mut self, dir: DirRef, n: &str, perm: u16) -> DirRef {
        DirRef::new(view(self.mkdir_in(dir, n, perm)).id())
    }

    pub(crate) fn lookup(&mut self, dir: DirRef, n: &str) -> Answer {
        self.apply(ModelOp::Lookup { dir, name: name(n) })
    }

    pub(crate) fn open(&mut self, dir: DirRef, n: &str, want: Access) -> Answer {
        self.apply(ModelOp::Open {
            dir,
            name: name(n),
            want,
        })
    }

    pub(crate) fn unlink(&mut self, dir: DirRef, n: &str) -> Answer {
        self.apply(ModelOp::Unlink { dir, name: name(n) })
    }

    pub(crate) fn rmdir(&mut self, dir: DirRef, n: &str) -> Answer {
        self.apply(ModelOp::Rmdir { dir, name: name(n) })
    }

    pub(crate) fn rename(
        &mut self,
        (src, a): (DirRef, &str),
        (dst, b): (DirRef, &str),
        mode: RenameMode,
    ) -> Answer {
        self.apply(ModelOp::Rename {
            src,
            src_name: name(a),
            dst,
            dst_name: name(b),
            mode,
        })
    }

    pub(crate) fn set_attr(&mut self, dir: DirRef, n: &str, change: AttrChange) -> Answer {
        let id = self.model.child(dir.id, &name(n)).expect("exists");
        self.apply(ModelOp::SetAttr {
            dir,
            name: name(n),
            id,
            change,
            through_handle: false,
        })
    }

    pub(crate) fn chmod(&mut self, dir: DirRef, n: &str, perm: u16) -> Answer {
        self.set_attr(
            dir,
            n,
            AttrChange {
                perm: Some(Perm::new(perm)),
                ..Default::default()
            },
        )
    }

    pub(crate) fn perm(&self, id: NodeId) -> u16 {
        self.model.attr(id).expect("alive").perm.bits()
    }
}

/// What an answer shows.
pub(crate) fn view(answer: Answer) -> View {
    match answer.expect("success") {
        ModelAnswer::Entry(v) | ModelAnswer::Opened { entry: v, .. } | ModelAnswer::Removed(v) => v,
        other => panic!("no entry in {other:?}"),
    }
}
