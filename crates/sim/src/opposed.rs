//! Programs that move a few directories into each other, all at once: what the renaming graph is for
//! (H20-H26). They go by handles, as shells do that stand in directories which others move.

use crate::knowledge::Knowledge;
use crate::workload::Workload;
use crate::world::{Life, MS};
use pando_client::Client;
use pando_env::Env;
use pando_env::rng::Rng;
use pando_format::Position;
use pando_types::{Cred, DirId, Errno, Name, Perm};
use pando_wire::{Answer, Op, RenameMode, Statement};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The directory in which it happens; nobody else looks into it.
pub const PREFIX: &[u8] = b"opposed";
/// Directories that are moved about.
const PIECES: u64 = 7;

/// One such program.
pub struct Mover {
    workload: Rc<Workload>,
    pub(crate) life: Rc<Life>,
    client: Rc<Client>,
    cred: Cred,
    pub(crate) top: Option<Statement>,
    /// Handles of the directories, by ID.
    pub(crate) pieces: BTreeMap<DirId, Statement>,
}

impl Mover {
    /// On a client's process.
    pub fn new(workload: &Rc<Workload>, life: &Rc<Life>, client: &Rc<Client>) -> Mover {
        Mover {
            workload: workload.clone(),
            life: life.clone(),
            client: client.clone(),
            cred: Cred::root(),
            top: None,
            pieces: BTreeMap::new(),
        }
    }

    /// Works until it is told to stop.
    pub async fn work(mut self, rng: &mut Rng) {
        let ring = self.workload.cluster().settings.ring;
        if ring > 0 {
            return self.go_round(rng, ring).await;
        }
        while self.goes_on() {
            if self.pieces.len() < 2 || rng.percent(2) {
                self.look_around().await;
                if (self.pieces.len() as u64) < PIECES {
                    self.make(rng).await;
                }
            } else {
                self.turn(rng).await;
            }
            let pause = rng.skewed(3 * MS);
            self.life.sleep(Duration::from_nanos(pause)).await;
        }
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.workload.goes_on() && self.life.alive()
    }

    pub(crate) async fn op(&self, op: Op) -> Result<Answer, Errno> {
        let mut own = Knowledge::new(2);
        let done = self
            .workload
            .op(&self.life, &self.client, &self.cred, &mut own, op)
            .await;
        done.unwrap_or(Err(Errno::Interrupted))
    }

    pub(crate) async fn dir(&self, op: Op) -> Option<Statement> {
        match self.op(op).await {
            Ok(Answer::Entry(e)) => e.dir,
            _ => None,
        }
    }

    /// A handle of a directory, with what its parent is now.
    pub(crate) async fn reopened(&self, dir: &Statement) -> Option<Statement> {
        self.dir(Op::Reopen { dir: dir.clone() }).await
    }

    /// Finds the directories, wherever they are by now.
    pub(crate) async fn look_around(&mut self) {
        self.pieces.clear();
        self.top = self.find_top().await;
        let mut next: Vec<Statement> = self.top.iter().cloned().collect();
        while let Some(dir) = next.pop() {
            let op = Op::ReadDir {
                dir,
                after: Position::START,
                limit: 8,
                plus: true,
            };
            let Ok(Answer::Entries { entries, .. }) = self.op(op).await else {
                continue;
            };
            for found in entries.into_iter().filter_map(|e| e.view?.dir) {
                if let Some(handle) = self.reopened(&found).await
                    && self.pieces.insert(handle.id, handle.clone()).is_none()
                {
                    next.push(handle);
                }
            }
        }
    }

    async fn find_top(&self) -> Option<Statement> {
        let (dir, name) = (Statement::above_root(), Name::root());
        let root = self.dir(Op::Lookup { dir, name }).await?;
        let root = self.reopened(&root).await?;
        let name = Name::new(PREFIX).ok()?;
        let look = Op::Lookup {
            dir: root.clone(),
            name: name.clone(),
        };
        let found = match self.dir(look).await {
            Some(found) => found,
            None => {
                self.dir(Op::Mkdir {
                    dir: root,
                    name,
                    mode: Perm::new(0o700).into(),
                })
                .await?
            }
        };
        self.reopened(&found).await
    }

    async fn make(&mut self, rng: &mut Rng) {
        let (Some(top), Ok(name)) = (
            self.top.clone(),
            Name::new(format!("p{}", rng.below(PIECES)).as_bytes()),
        ) else {
            return;
        };
        let perm = Perm::new(0o700);
        if let Some(made) = self
            .dir(Op::Mkdir {
                dir: top,
                name,
                mode: perm.into(),
            })
            .await
            && let Some(handle) = self.reopened(&made).await
        {
            self.pieces.insert(handle.id, handle);
        }
    }

    /// Moves one of them into another, or to the top, or two in each other's places.
    async fn turn(&mut self, rng: &mut Rng) {
        let (a, b) = self.choose(rng);
        let Some((src, src_name)) = self.place(&a).await else {
            self.pieces.remove(&a.id);
            return;
        };
        self.workload.duel.set(Some((a.id, b.id)));
        let (dst, dst_name, mode) = if rng.percent(12) {
            let Some((dst, name)) = self.place(&b).await else {
                return;
            };
            (dst, name, RenameMode::Exchange)
        } else {
            let into = if rng.percent(15) {
                self.top.clone()
            } else {
                Some(b)
            };
            let Some(into) = into else { return };
            (into, src_name.clone(), RenameMode::NoReplace)
        };
        // Whatever comes of it: the judge knows whether that is right.
        let _ = self
            .op(Op::Rename {
                src,
                src_name,
                dst,
                dst_name,
                mode,
                held: false,
            })
            .await;
    }

    /// What is moved, and where to: often the opposite of what another does at that moment, from above the
    /// one into what is below the other, so that no lock keeps the two apart.
    fn choose(&self, rng: &mut Rng) -> (Statement, Statement) {
        let all: Vec<&Statement> = self.pieces.values().collect();
        let any = (*rng.pick(&all), *rng.pick(&all));
        let opposite = self.workload.duel.get().filter(|_| rng.percent(70));
        let known = opposite.map(|(moved, into)| (self.pieces.get(&moved), self.pieces.get(&into)));
        let (a, b) = match known {
            Some((Some(moved), Some(into))) => {
                let above = self.pieces.get(&into.parent).unwrap_or(into);
                let below: Vec<_> = all.iter().copied().filter(|p| p.parent == moved.id).collect();
                let into = if below.is_empty() {
                    moved
                } else {
                    *rng.pick(&below)
                };
                (above, into)
            }
            _ => any,
        };
        (a.clone(), b.clone())
    }

    /// The directory in which a directory is by now, and its name there.
    async fn place(&mut self, dir: &Statement) -> Option<(Statement, Name)> {
        let now = self.reopened(dir).await?;
        self.pieces.insert(now.id, now.clone());
        let top = self.top.as_ref().filter(|top| top.id == now.parent);
        let parent = top.or_else(|| self.pieces.get(&now.parent))?;
        Some((parent.clone(), now.name.clone()))
    }
}
