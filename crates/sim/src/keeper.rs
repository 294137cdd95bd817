//! Programs that keep files open, and others that take their names from them (H97).
//!
//! A keeper opens files under a session that keeps them, and goes on using them: whatever others do, each is
//! there, by its name or at home, as long as the session lives. Thieves, on other machines, rename, replace,
//! link and unlink the same files. What comes of each operation is judged like any other; that a file is
//! there at all, here.

use crate::knowledge::Knowledge;
use crate::violation::Kind;
use crate::workload::Workload;
use crate::world::{Life, MS};
use pando_client::{Client, Kept};
use pando_env::Env;
use pando_env::rng::Rng;
use pando_format::codec::Blob;
use pando_types::{AttrChange, Cred, Errno, Name, Perm, SessionId};
use pando_wire::{Answer, Content, EntryView, Handle, Object, Op, RenameMode, Statement};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Directories with names that begin like this are theirs alone.
pub const PREFIX: &[u8] = b"kept-";
const DIRS: u64 = 3;
const FILES: u64 = 3;
/// Files that one keeps open at one time.
const MOST: usize = 3;

/// Such a program.
pub struct Keeper {
    workload: Rc<Workload>,
    life: Rc<Life>,
    client: Rc<Client>,
    cred: Cred,
    dirs: BTreeMap<u64, Statement>,
    held: Vec<Open>,
}

/// A file that is open.
struct Open {
    kept: Kept,
    place: (u64, Name),
    handle: Option<Handle>,
    /// Under which session it was opened.
    session: Option<SessionId>,
    /// The judge's epoch: in `async` a power failure takes sessions and files.
    epoch: u64,
}

fn file_name(n: u64) -> Option<Name> {
    Name::new(format!("f{n}").as_bytes()).ok()
}

/// A name that nothing has: of what is opened without one.
fn unnamed() -> Option<Name> {
    Name::new(b"none").ok()
}

impl Keeper {
    /// On a client's process.
    pub fn new(workload: &Rc<Workload>, life: &Rc<Life>, client: &Rc<Client>) -> Keeper {
        Keeper {
            workload: workload.clone(),
            life: life.clone(),
            client: client.clone(),
            cred: Cred::root(),
            dirs: BTreeMap::new(),
            held: Vec::new(),
        }
    }

    /// Keeps files open until it is told to stop.
    pub async fn keep(mut self, rng: &mut Rng) {
        while self.workload.goes_on() && self.life.alive() {
            match rng.below(10) {
                0..=3 if self.held.len() < MOST => self.open(rng).await,
                0..=7 if !self.held.is_empty() => self.look(rng).await,
                8 if !self.held.is_empty() => {
                    self.held.swap_remove(rng.below(self.held.len() as u64) as usize);
                    if rng.percent(60) {
                        self.client.tell_closed().await;
                    }
                }
                _ => {}
            }
            let pause = rng.skewed(6 * MS);
            self.life.sleep(Duration::from_nanos(pause)).await;
        }
        self.held.clear();
        self.client.close_keeping().await;
    }

    /// Takes files' names until it is told to stop.
    pub async fn steal(mut self, rng: &mut Rng) {
        while self.workload.goes_on() && self.life.alive() {
            self.take(rng).await;
            let pause = rng.skewed(12 * MS);
            self.life.sleep(Duration::from_nanos(pause)).await;
        }
    }

    async fn op(&self, op: Op) -> Result<Answer, Errno> {
        let mut own = Knowledge::new(2);
        let done = self
            .workload
            .op(&self.life, &self.client, &self.cred, &mut own, op)
            .await;
        done.unwrap_or(Err(Errno::Interrupted))
    }

    async fn entry(&self, op: Op) -> Result<EntryView, Errno> {
        match self.op(op).await? {
            Answer::Entry(e) => Ok(e),
            _ => Err(Errno::Io),
        }
    }

    /// A directory, as a handle: made by who comes first.
    async fn dir(&mut self, n: u64) -> Option<Statement> {
        if let Some(known) = self.dirs.get(&n).cloned() {
            // It was asked for long ago, perhaps.
            let again = self.entry(Op::Reopen { dir: known.clone() }).await;
            match again {
                Ok(e) => return e.dir,
                Err(Errno::Stale) => self.dirs.remove(&n),
                Err(_) => return Some(known),
            };
        }
        let root = self.client.root_handle().await.ok()?.dir?;
        let name = Name::new(&[PREFIX, n.to_string().as_bytes()].concat()).ok()?;
        let (dir, perm) = (root.clone(), Perm::new(0o700));
        let found = self
            .entry(Op::Lookup {
                dir,
                name: name.clone(),
            })
            .await;
        let found = match found {
            Err(Errno::NotFound) => {
                self.entry(Op::Mkdir {
                    dir: root,
                    name,
                    mode: perm.into(),
                })
                .await
            }
            found => found,
        };
        let dir = found.ok()?.dir?;
        let dir = self.entry(Op::Reopen { dir }).await.ok()?.dir?;
        self.dirs.insert(n, dir.clone());
        Some(dir)
    }

    async fn open(&mut self, rng: &mut Rng) {
        let n = rng.below(DIRS);
        let (Some(dir), Some(name)) = (self.dir(n).await, file_name(rng.below(FILES))) else {
            return;
        };
        let epoch = self.workload.cluster().judge().epoch();
        let mode = Perm::new(0o600).into();
        let (op, name) = match unnamed() {
            Some(none) if rng.percent(25) => {
                let linkable = rng.percent(70);
                (Op::Tmpfile { dir, mode, linkable }, none)
            }
            _ => (
                Op::Create {
                    dir,
                    name: name.clone(),
                    mode,
                    exclusive: false,
                    want: 6,
                },
                name,
            ),
        };
        // It may take several requests: replies are not judged here.
        let judge = self.workload.cluster().judge().clone();
        let call = judge.history.borrow_mut().begin(&op);
        let (outcome, kept) = self.client.op_open(&self.cred, op).await;
        judge.history.borrow_mut().end(call, &outcome);
        if let (Ok(Answer::Opened { handle, .. }), Some(kept)) = (outcome, kept) {
            self.held.push(Open {
                kept,
                place: (n, name),
                handle,
                session: self.client.keeping_session(),
                epoch,
            });
        }
    }

    /// Uses an open file: where its name was, or at home.
    async fn look(&mut self, rng: &mut Rng) {
        let which = rng.below(self.held.len() as u64) as usize;
        let file = self.held[which].kept.file();
        let (n, name) = self.held[which].place.clone();
        if let Some(dir) = self.dir(n).await
            && rng.percent(60)
        {
            let look = Op::Lookup {
                dir: dir.clone(),
                name: name.clone(),
            };
            match self.entry(look).await {
                Ok(e) if (e.attr.ino, e.attr.generation) == (file.ino, file.generation) => {
                    if rng.percent(30) {
                        let read = self.read(rng, which, dir, name);
                        let _ = self.op(read).await;
                    }
                    return;
                }
                Ok(_) | Err(Errno::NotFound) => {}
                // It is not known.
                Err(_) => return,
            }
        }
        match self.client.find_home(&self.cred, &self.held[which].kept).await {
            Ok(view) => {
                let Some(home) = view.home else { return };
                self.use_at_home(rng, which, home).await;
            }
            Err(Errno::Stale) => self.missing(which).await,
            Err(_) => {}
        }
    }

    /// An open file was read, some time ago.
    fn read(&self, rng: &mut Rng, which: usize, dir: Statement, name: Name) -> Op {
        let kept = &self.held[which].kept;
        Op::Accessed {
            object: Object {
                dir,
                name,
                ino: kept.file().ino,
                generation: kept.file().generation,
            },
            proof: kept.proof(),
            ago: rng.skewed(2_000 * MS),
        }
    }

    async fn use_at_home(&mut self, rng: &mut Rng, which: usize, dir: Statement) {
        let file = self.held[which].kept.file();
        let name = dir.name.clone();
        let (ino, generation) = (file.ino, file.generation);
        let op = match (rng.below(6), self.held[which].handle) {
            (4, _) => self.read(rng, which, dir, name),
            // What never had a name may get one; what has lost its last may not.
            (3, _) => {
                let n = rng.below(DIRS);
                let (Some(dst), Some(dst_name)) = (self.dir(n).await, file_name(rng.below(FILES))) else {
                    return;
                };
                Op::Link {
                    object: Object {
                        dir,
                        name,
                        ino,
                        generation,
                    },
                    dst,
                    dst_name,
                }
            }
            (0, Some(handle)) => Op::Publish {
                object: Object {
                    dir,
                    name,
                    ino,
                    generation,
                },
                handle,
                content: Content::Inline(Blob(vec![rng.next() as u8; 8])),
                size: 8 + rng.below(8),
                mtime: None,
                base: rng.percent(20).then(|| rng.below(3)),
            },
            (1, handle @ Some(_)) => Op::SetAttr {
                object: Object {
                    dir,
                    name,
                    ino,
                    generation,
                },
                change: AttrChange {
                    size: Some(rng.below(64)),
                    ..AttrChange::default()
                },
                handle,
            },
            (2, _) => Op::Open { dir, name, want: 4 },
            _ => Op::Lookup { dir, name },
        };
        if let Err(Errno::NotFound | Errno::Stale) = self.op(op).await {
            self.missing(which).await;
        }
    }

    /// A file is neither under its name nor at home. It may be under its name still, which was not looked at;
    /// or its session has ended, there or everywhere; or a power failure has taken what was not synced.
    async fn missing(&mut self, which: usize) {
        let (n, name) = self.held[which].place.clone();
        let file = self.held[which].kept.file();
        if let Some(dir) = self.dir(n).await {
            match self.entry(Op::Lookup { dir, name }).await {
                Ok(e) if (e.attr.ino, e.attr.generation) == (file.ino, file.generation) => return,
                Ok(_) | Err(Errno::NotFound) => {}
                Err(_) => return,
            }
        } else {
            return;
        }
        // Since that was looked at it may have come home.
        match self.client.find_home(&self.cred, &self.held[which].kept).await {
            Err(Errno::Stale) => {}
            _ => return,
        }
        let lives = self.client.keeps_at(file.slot).await;
        let open = self.held.swap_remove(which);
        let same_epoch = self.workload.cluster().judge().epoch() == open.epoch;
        if lives.is_some() && lives == open.session && same_epoch {
            let text = format!("{file:?} is kept open by a session that lives, and is gone");
            self.workload.cluster().sim.fail(Kind::WrongResult, text);
        }
    }

    /// Takes a name from a file, or gives it another.
    async fn take(&mut self, rng: &mut Rng) {
        let (a, b) = (rng.below(DIRS), rng.below(DIRS));
        let (Some(src), Some(dst)) = (self.dir(a).await, self.dir(b).await) else {
            return;
        };
        let (Some(src_name), Some(dst_name)) = (file_name(rng.below(FILES)), file_name(rng.below(FILES)))
        else {
            return;
        };
        let op = match rng.below(10) {
            0..=2 => Op::Unlink {
                dir: src,
                name: src_name,
                held: false,
            },
            3 => {
                let (dir, name) = (src.clone(), src_name.clone());
                let Ok(e) = self.entry(Op::Lookup { dir, name }).await else {
                    return;
                };
                Op::Link {
                    object: Object::shown(src, src_name, &e.attr),
                    dst,
                    dst_name,
                }
            }
            _ => Op::Rename {
                src,
                src_name,
                dst,
                dst_name,
                mode: if rng.percent(20) {
                    RenameMode::Exchange
                } else {
                    RenameMode::Replace
                },
                held: false,
            },
        };
        let _ = self.op(op).await;
    }
}
