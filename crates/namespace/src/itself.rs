//! A directory by itself: found by its content, which knows its parent and name. Who has a directory open, or
//! as root, asks so.

use crate::context::Context;
use crate::snapshot::Stop;
use pando_format::Key;
use pando_types::{DirId, Errno, Name};
use pando_wire::{Answer, LockMode, LockWant, Op, Said, Statement};

/// Where a directory has its name, as a statement that lets everybody search it, and the name. Neither is for
/// callers to hear.
pub(crate) fn whereabouts(cx: &Context<'_>, dir: &Statement) -> Result<(Statement, Name), Stop> {
    cx.require(vec![LockWant::Key(Key::Head(dir.id.into()), LockMode::Shared)])?;
    let head = cx.snapshot.head(dir.id.into());
    let head = head
        .filter(|h| h.generation == dir.generation)
        .ok_or(Errno::Stale)?;
    let mut parent = Statement::from(Said {
        id: head.parent,
        generation: head.parent_generation,
        ..Said::above_root()
    });
    if parent.id != DirId::ABOVE_ROOT {
        cx.require(vec![LockWant::Key(Key::Head(parent.id.into()), LockMode::Shared)])?;
        parent.salt = cx.snapshot.head(parent.id.into()).ok_or(Errno::Io)?.salt;
    }
    Ok((parent, head.name.clone()))
}

/// What a caller has said of where a directory is.
pub(crate) fn said_above(dir: &Statement) -> Statement {
    Statement::from(Said {
        id: dir.parent,
        generation: dir.parent_generation,
        ..Said::above_root()
    })
}

/// Does to a directory what is asked of it by itself. Whether the caller may is decided by the directory's
/// own record; that it may come to it, the statement shows.
pub(crate) fn carry_out(cx: &mut Context<'_>, op: &Op, dir: &Statement) -> Result<Answer, Stop> {
    let (parent, name) = whereabouts(cx, dir)?;
    cx.first = Some(cx.place_by_list(&parent, &name)?.part);
    let mut there = op.clone();
    if let Some(object) = there.object_mut() {
        object.name = name;
    }
    there
        .statements_mut()
        .into_iter()
        .flatten()
        .for_each(|s| *s = parent.clone());
    let mut answer = crate::carry_out(cx, &there)?;
    if let Answer::Entry(view) = &mut answer
        && let Some(shown) = &mut view.dir
    {
        let mut said = Said::clone(shown);
        (said.parent, said.parent_generation, said.name) =
            (dir.parent, dir.parent_generation, dir.name.clone());
        *shown = Statement::from(said);
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Inputs, Snapshot, Step, Walked, run};
    use pando_format::{AccessRecord, Entry, HashWidths, Head, Marks, Mutation, NameHash, Record, Target};
    use pando_types::{Acls, AttrChange, Birth, Cred, Generation, Ino, Perm, Realm, Timestamp};
    use pando_wire::Object;

    const ABOVE: DirId = DirId(7);
    const DIR: DirId = DirId(8);
    const WIDTHS: HashWidths = HashWidths {
        name_bits: 55,
        id_bits: 128,
    };

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn access() -> AccessRecord {
        AccessRecord {
            id: DIR,
            generation: Generation(3),
            ino: Ino(80),
            perm: Perm::new(0o755),
            uid: 5,
            gid: 5,
            ctime: Timestamp::default(),
            realm: Realm(0),
            salt: 2,
            version: 1,
            marks: Marks::default(),
            seal: 0,
            acls: Acls::default(),
        }
    }

    fn head(ino: u64, parent: DirId, text: &str) -> Head {
        Head {
            generation: Generation(3),
            ino: Ino(ino),
            birth: Birth {
                parent,
                name: name(text),
                version: 0,
            },
            parent,
            parent_generation: Generation(3),
            name: name(text),
            realm: Realm(0),
            salt: 2,
            split: 0,
            seal: 0,
            listed: false,
        }
    }

    /// All that a step asks for, of two directories.
    fn give(snapshot: &mut Snapshot, wants: Vec<LockWant>) {
        for want in wants {
            let found = match &want {
                LockWant::Key(key @ Key::Head(part), _) if part.dir == DIR => {
                    vec![(key.clone(), Record::Head(head(80, ABOVE, "d")))]
                }
                LockWant::Key(key @ Key::Head(part), _) if part.dir == ABOVE => {
                    vec![(key.clone(), Record::Head(head(70, DirId::ROOT, "above")))]
                }
                LockWant::Bucket(dir, hash, _) => entry(dir.dir, *hash),
                LockWant::Key(..) | LockWant::Attachments(_) => Vec::new(),
            };
            snapshot.add(want, found);
        }
    }

    fn entry(dir: DirId, hash: NameHash) -> Vec<(Key, Record)> {
        let name = name("d");
        assert_eq!((dir, hash), (ABOVE, WIDTHS.name(2, &name)), "where it is");
        let target = Target::Dir(access());
        vec![(
            Key::Entry {
                part: dir.into(),
                hash,
                name,
            },
            Record::Entry(Entry { ordinal: 1, target }),
        )]
    }

    fn chmod(cred: &Cred, generation: u64) -> crate::Decision {
        let dir = Statement::from(Said {
            id: DIR,
            generation: Generation(generation),
            ino: Ino(80),
            ..Said::above_root()
        });
        let op = Op::SetAttr {
            object: Object {
                name: dir.name.clone(),
                ino: dir.ino,
                generation: dir.generation,
                dir,
            },
            change: AttrChange {
                perm: Some(Perm::new(0o700)),
                ..AttrChange::default()
            },
            handle: None,
        };
        let (walked, private) = (Walked::new(), |_, _| false);
        let inputs = Inputs {
            cred,
            session: None,
            keeper: None,
            now: Timestamp::default(),
            widths: WIDTHS,
            ids: pando_types::Ids::Predicted,
            division: pando_types::Division::Whole,
            parts: [0, 0],
            inline_limit: 100,
            block_size: 100,
            fresh: None,
            walked: Some(&walked),
            private: &private,
        };
        let mut snapshot = Snapshot::default();
        loop {
            match run(&op, &inputs, &snapshot) {
                Step::Need(wants) => give(&mut snapshot, wants),
                Step::Done(decision) => return decision,
                Step::UseCoordinator
                | Step::Walk { .. }
                | Step::Localised
                | Step::Elsewhere { .. }
                | Step::Busy => {
                    panic!("it is the coordinator, and nothing moves")
                }
            }
        }
    }

    #[test]
    fn a_directory_is_changed_without_saying_where_it_is() {
        let cred = |uid| Cred {
            uid,
            gid: uid,
            groups: Vec::new(),
        };
        let done = chmod(&cred(5), 3);
        let Ok(Answer::Entry(view)) = &done.outcome else {
            panic!("{:?}", done.outcome);
        };
        let shown = view.dir.as_ref().unwrap();
        // Of where it is the answer says what was asked.
        assert_eq!((shown.parent, &shown.name), (DirId::ABOVE_ROOT, &Name::root()));
        assert_eq!((shown.id, shown.perm), (DIR, Perm::new(0o700)));
        let changed = |m: &Mutation| {
            matches!(
                m,
                Mutation::Update {
                    key: Key::Entry { part, .. },
                    ..
                } if part.dir == ABOVE
            )
        };
        assert!(done.mutations.iter().any(changed) && done.invalidates.len() == 1);
        assert_eq!(chmod(&cred(6), 3).outcome, Err(Errno::Perm));
        assert_eq!(
            chmod(&cred(5), 2).outcome,
            Err(Errno::Stale),
            "another that had the number"
        );
    }
}
