//! What the commands ask coordination, which says what the map is and who is there.

use crate::addresses;
use crate::cluster_dir::ClusterDir;
use anyhow::{Context, Result, bail};
use pando_cluster::{ClusterFile, ClusterMap, Coord, CoordError, View};
use pando_coord::{Place, ZkCoord, ZkOptions};
use serde_json::{Value, json};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Poller, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long a command waits for it.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Where coordination of a cluster is.
pub fn place(file: &ClusterFile) -> Result<Place> {
    file.coord.parse().context("cluster.json: coord")
}

/// Whether the cluster's file is the map in force, and no copy of it.
pub fn is_here(file: &ClusterFile) -> Result<bool> {
    Ok(place(file)? == Place::Dir)
}

/// What coordination is called.
pub fn name(file: &ClusterFile) -> &str {
    match place(file) {
        Ok(Place::Dir) => "cluster.json",
        _ => &file.coord,
    }
}

/// Coordination of a cluster. Nothing is asked yet.
pub fn open(dir: &ClusterDir, file: &ClusterFile) -> Result<Rc<dyn Coord>> {
    let (place, map) = (place(file)?, file.map(&dir.path)?);
    suits(&place, &map)?;
    pando_coord::open(&place, &dir.path, map.fs)
        .with_context(|| format!("cannot prepare coordination ({place})"))
}

/// Puts the first map of a filesystem there, or one that was lost.
pub fn create(dir: &ClusterDir, file: &ClusterFile) -> Result<()> {
    let map = file.map(&dir.path)?;
    match place(file)? {
        // The file is the map.
        Place::Dir => Ok(()),
        Place::ZooKeeper(url) => {
            let coord = ZkCoord::open(&url, &dir.path, map.fs, ZkOptions::default())?;
            let done = wait(coord.create(file.to_text()), Instant::now() + PATIENCE);
            done.with_context(|| format!("cannot put the cluster map into {}", file.coord))
        }
    }
}

/// Servers of several machines see no files of each other: each would take itself for the only one that is
/// left.
pub fn suits(place: &Place, map: &ClusterMap) -> Result<()> {
    if *place != Place::Dir {
        return Ok(());
    }
    for server in &map.servers {
        if !addresses::is_here(&server.address)? {
            bail!(
                "server {} at {} is not on this machine; servers of several machines need --coord \
                 zk://HOST:PORT,... when the filesystem is made",
                server.id,
                server.address
            );
        }
    }
    Ok(())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits on this thread, which has no event loop.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Poller::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// The same for an answer of coordination, until a time.
pub fn wait<T>(
    answer: pando_env::LocalFuture<Result<T, CoordError>>,
    deadline: Instant,
) -> Result<T, CoordError> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut answer = answer;
    loop {
        if let Poll::Ready(value) = answer.as_mut().poll(&mut Poller::from_waker(&waker)) {
            return value;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(CoordError::Away("no answer in time".into()));
        }
        std::thread::park_timeout(left);
    }
}

/// The cluster's file, brought up to date if coordination can be reached: a copy may be old.
pub fn current(dir: &ClusterDir) -> Result<ClusterFile> {
    current_or_copy(dir).map(|(file, _)| file)
}

/// The same, and whether coordination said so.
pub fn current_or_copy(dir: &ClusterDir) -> Result<(ClusterFile, bool)> {
    let file = dir.load()?;
    if is_here(&file)? {
        return Ok((file, true));
    }
    match wait(open(dir, &file)?.view(), Instant::now() + PATIENCE) {
        Ok(view) => Ok((file.with_map(&view.map), true)),
        Err(e @ CoordError::Away(_)) => {
            tracing::warn!("{e}; using the copy of the cluster map of epoch {}", file.epoch);
            Ok((file, false))
        }
        Err(e) => Err(e).with_context(|| file.coord.clone()),
    }
}

/// What coordination says, for scripts.
pub fn to_json(file: &ClusterFile, found: &Result<View, CoordError>) -> Value {
    let mut all = json!({ "place": file.coord, "reachable": !matches!(found, Err(CoordError::Away(_))) });
    match found {
        Ok(view) => {
            let members = view
                .members
                .iter()
                .map(|(id, m)| json!({ "server": id.0, "membership": m.0 }));
            all["epoch"] = view.map.epoch.0.into();
            all["term"] = view.map.term.0.into();
            all["coordinator"] = view.map.coordinator.0.into();
            all["keeper"] = view.map.keeper.0.into();
            all["members"] = members.collect();
        }
        Err(e) => all["error"] = e.to_string().into(),
    }
    all
}

/// The same for people.
pub fn to_text(file: &ClusterFile, found: &Result<View, CoordError>) -> String {
    let here = match place(file) {
        Ok(Place::Dir) => "in this folder".into(),
        _ => format!("in {}", file.coord),
    };
    match found {
        Ok(view) => {
            let members: Vec<String> = view.members.keys().map(ToString::to_string).collect();
            let members = match members.len() {
                0 => "no server is a member".into(),
                1 => format!("server {} is a member", members.concat()),
                _ => format!("servers {} are members", members.join(", ")),
            };
            format!(
                "Coordination {here}: map epoch {}, coordinator server {} in term {}; {members}",
                view.map.epoch, view.map.coordinator, view.map.term
            )
        }
        Err(e) => format!("Coordination {here}: {e}"),
    }
}
