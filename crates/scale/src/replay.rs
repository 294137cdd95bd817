//! A mix of operations of all clients on one tree, in which few directories are used by most (IndexFS §IV-B).
//!
//! The paper replays the trace of a cluster, which cannot be had. Its text gives the mix: 84 % of the
//! operations look, 9 % create, 7 % change. Here directories are chosen by Zipf's law, and of the changes a
//! third each are removals of files, renames of files, and changes of a directory's permissions.

use crate::cluster::{Cluster, Program};
use crate::latencies::Latencies;
use crate::phase::Crowd;
use crate::tree;
use crate::worker::create;
use crate::world::Time;
use pando_client::Client;
use pando_env::rng::Rng;
use pando_types::{AttrChange, Cred, Errno, Perm};
use pando_wire::RenameMode;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Longest virtual time of it.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Until then changes wait for leases that a server may have granted before it was started.
const SETTLED: Duration = Duration::from_secs(10);
/// The directory that is used most is used so many times as often as the one of the millionth place.
const SCALE: u64 = 1_000_000;
/// Of a hundred operations.
const LOOKS: u64 = 84;
const CREATES: u64 = 9;
/// The file that each directory has from the beginning.
const FILE: &str = "/file";

/// Kinds of operations, as they are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A file's attributes.
    Look,
    /// A new file.
    Create,
    /// A removal, a rename, or other permissions of a directory.
    Update,
}

/// The result.
#[derive(Clone, Copy, Debug)]
pub struct Replayed {
    /// Operations of all kinds.
    pub ops: u64,
    /// Virtual seconds.
    pub seconds: f64,
    /// Messages that a client waited for, per operation.
    pub round_trips: f64,
    /// Of looks, creates and updates.
    pub latencies: [Latencies; 3],
}

impl Replayed {
    /// Operations per virtual second.
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.seconds
    }

    /// Times of one kind.
    pub fn of(&self, kind: Kind) -> Latencies {
        self.latencies[kind as usize]
    }
}

/// The directories, the most used first, and how often each and those before it are used.
struct Directories {
    paths: Vec<Vec<u8>>,
    until: Vec<u64>,
}

impl Directories {
    fn new(clients: usize) -> Directories {
        let mut paths: Vec<Vec<u8>> = (0..clients).flat_map(|n| tree::parents_of(n, clients)).collect();
        // Those that are next to each other in the tree are not next to each other in use.
        paths.sort_by_key(|path| {
            path.iter()
                .fold(0, |sum, byte| pando_env::rng::mix(sum ^ u64::from(*byte)))
        });
        let mut sum = 0;
        let until = (1..=paths.len() as u64).map(|place| {
            sum += SCALE / place;
            sum
        });
        Directories {
            until: until.collect(),
            paths,
        }
    }

    fn draw(&self, rng: &mut Rng) -> &[u8] {
        let all = self.until.last().copied().unwrap_or(1);
        let at = rng.below(all.max(1));
        let place = self.until.partition_point(|until| *until <= at);
        self.paths.get(place).map_or(b"/", |path| path)
    }
}

/// One client, with the files that it has made.
struct Player {
    number: usize,
    client: Rc<Client>,
    rng: Rng,
    made: u64,
    files: Vec<Vec<u8>>,
    /// Its last operation.
    what: &'static str,
}

impl Player {
    fn new(number: usize, program: &Program, seed: u64) -> Player {
        Player {
            number,
            client: program.client.borrow().clone(),
            rng: Rng::new(seed).fork(number as u64),
            made: 0,
            files: Vec::new(),
            what: "",
        }
    }

    fn new_name(&mut self, dirs: &Directories) -> Vec<u8> {
        self.made += 1;
        let name = format!("/n{}-{}", self.number, self.made);
        [dirs.draw(&mut self.rng), name.as_bytes()].concat()
    }

    /// One operation.
    async fn act(&mut self, dirs: &Directories) -> Result<Kind, Errno> {
        let drawn = self.rng.below(100);
        if drawn < LOOKS {
            let path = [dirs.draw(&mut self.rng), FILE.as_bytes()].concat();
            self.what = "stat";
            self.client.stat(&Cred::root(), &path, false).await?;
            return Ok(Kind::Look);
        }
        if drawn < LOOKS + CREATES {
            self.what = "create";
            self.create(dirs).await?;
            return Ok(Kind::Create);
        }
        let change = self.rng.below(3);
        let cred = Cred::root();
        match (change, self.files.pop()) {
            (0, Some(path)) => {
                self.what = "unlink";
                self.client.unlink(&cred, &path).await?;
            }
            (1, Some(path)) => {
                self.what = "rename";
                let to = self.new_name(dirs);
                self.client
                    .rename(&cred, &path, &to, RenameMode::NoReplace)
                    .await?;
                self.files.push(to);
            }
            (_, kept) => {
                self.what = "chmod";
                self.files.extend(kept);
                let path = dirs.draw(&mut self.rng).to_vec();
                let perm = if self.rng.percent(50) { 0o755 } else { 0o750 };
                let change = AttrChange {
                    perm: Some(Perm::new(perm)),
                    ..AttrChange::default()
                };
                self.client.set_attr(&cred, &path, false, change).await?;
            }
        }
        Ok(Kind::Update)
    }

    async fn create(&mut self, dirs: &Directories) -> Result<(), Errno> {
        let path = self.new_name(dirs);
        // Its directory may change after it was looked up.
        self.client
            .persist(async || create(&self.client, &path).await)
            .await?;
        self.files.push(path);
        Ok(())
    }
}

/// State that all players share.
#[derive(Default)]
struct Stage {
    done: Cell<u64>,
    counting: Cell<bool>,
    enough: Cell<bool>,
    times: RefCell<[Vec<Time>; 3]>,
}

/// Each directory gets its file.
fn prepare(cluster: &Cluster) -> Result<(), String> {
    let clients = cluster.programs.len();
    cluster.all_do(|number, program| {
        let client = program.client.borrow().clone();
        Box::pin(async move {
            for parent in tree::parents_of(number, clients) {
                let path = [&parent[..], FILE.as_bytes()].concat();
                create(&client, &path).await.map_err(|e| e.to_string())?;
            }
            Ok(())
        })
    })
}

/// All clients do what they draw, until `ops` were done after the first tenth, which is not counted. The
/// clients begin with empty caches of `cache_bytes`.
pub fn replay(crowd: &Crowd, ops: u64, cache_bytes: usize, seed: u64) -> Result<Replayed, String> {
    let cluster = crowd.cluster();
    prepare(cluster)?;
    crowd.rest(SETTLED)?;
    cluster.renew_clients(cache_bytes)?;
    let world = cluster.world.clone();
    let dirs = Rc::new(Directories::new(cluster.programs.len()));
    let (stage, left) = (
        Rc::new(Stage::default()),
        Rc::new(Cell::new(cluster.programs.len())),
    );
    for (number, program) in cluster.programs.iter().enumerate() {
        let mut player = Player::new(number, program, seed);
        let (stage, left, dirs, world) = (stage.clone(), left.clone(), dirs.clone(), world.clone());
        program.process.begin(Box::pin(async move {
            while !stage.enough.get() {
                let began = world.now();
                let kind = match player.act(&dirs).await {
                    Ok(kind) => kind,
                    Err(e) => return world.fail(|| format!("client {number}: {}: {e}", player.what)),
                };
                stage.done.set(stage.done.get() + 1);
                if stage.counting.get() {
                    stage.times.borrow_mut()[kind as usize].push(world.now() - began);
                }
            }
            left.set(left.get() - 1);
        }));
    }
    world.run_until(PATIENCE, || stage.done.get() >= ops / 10)?;
    stage.counting.set(true);
    let before = (world.now(), stage.done.get(), cluster.round_trips());
    world.run_until(PATIENCE, || stage.done.get() >= before.1 + ops)?;
    let after = (world.now(), stage.done.get(), cluster.round_trips());
    stage.counting.set(false);
    stage.enough.set(true);
    world.run_until(PATIENCE, || left.get() == 0)?;
    let done = after.1 - before.1;
    let latencies = stage.times.take().map(Latencies::of);
    Ok(Replayed {
        ops: done,
        seconds: (after.0 - before.0).max(1) as f64 / 1e9,
        round_trips: (after.2 - before.2) as f64 / done.max(1) as f64,
        latencies,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_directories_are_used_by_most() {
        let dirs = Directories::new(4);
        assert_eq!(dirs.paths.len(), 4 * tree::PARENTS);
        let mut rng = Rng::new(1);
        let first = dirs.paths[0].clone();
        let hits = (0..10_000).filter(|_| dirs.draw(&mut rng) == first).count();
        // One of the 64th harmonic number, 4.74.
        assert!((1_900..2_320).contains(&hits), "{hits}");
    }
}
