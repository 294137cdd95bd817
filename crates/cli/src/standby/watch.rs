//! Watching servers, and taking the place of one that is gone.
//!
//! Coordination says who is there. Which process *is* a server is decided by the lock on its store: whoever
//! serves holds it as long as it lives. So a server that is paused, or cut off, keeps its place however long
//! that takes, and the standby waits and says so (H314). Whoever has the lock replaces the map by one that
//! differs in the server's address, so that a process that was server before and has lost its lock finds out
//! and stops. Then it starts as the server does: recovery is that of a restart.

use super::post::Post;
use super::{StandbyError, Watched};
use crate::addresses::{self, on_loopback, server_at, stays_here};
use crate::args::ServerArgs;
use crate::cluster_dir::ClusterDir;
use crate::server::{Seat, store_options};
use crate::store_kinds::StoreKind;
use crate::{coordination, process};
use anyhow::{Context, Result, bail};
use pando_cluster::{ClusterFile, ClusterMap, Coord, CoordError, ServerInfo, View};
use pando_store::StoreError;
use pando_types::{MapEpoch, ServerId};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long the map may take to be replaced, once the store is had.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries of that.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until a server that is watched is gone, and takes its place.
pub fn wait(dir: &ClusterDir, options: &ServerArgs) -> Result<Seat> {
    let file = coordination::current(dir)?;
    let mut standby = Standby {
        dir,
        options,
        coord: coordination::open(dir, &file)?,
        file,
        gone: BTreeMap::new(),
        refused: BTreeMap::new(),
    };
    standby.check()?;
    let mut post = Post::take(dir)?;
    let look = standby.coord.lease() / 8;
    loop {
        let found = coordination::wait(standby.coord.view(), Instant::now() + coordination::PATIENCE);
        let state = match found {
            Ok(view) => match standby.look(&view)? {
                Found::Seat(seat) => {
                    post.say(
                        &[seat.me.id.0],
                        &format!("takes the place of server {}", seat.me.id),
                    );
                    return Ok(*seat);
                }
                Found::Nothing(state) => state,
            },
            Err(e @ CoordError::Away(_)) => {
                // It is not known which servers are gone.
                standby.gone.clear();
                e.to_string()
            }
            Err(e) => return Err(e).context(standby.file.coord.clone()),
        };
        post.say(&standby.targets()?, &state);
        std::thread::sleep(look);
    }
}

/// What came of a look.
enum Found {
    /// A server's place.
    Seat(Box<Seat>),
    /// None; what is waited for, in words.
    Nothing(String),
}

struct Standby<'a> {
    dir: &'a ClusterDir,
    options: &'a ServerArgs,
    coord: Rc<dyn Coord>,
    file: ClusterFile,
    /// Servers that were not there when coordination was last asked, and since when.
    gone: BTreeMap<ServerId, Instant>,
    /// Servers whose stores cannot be used, and why.
    refused: BTreeMap<u16, String>,
}

impl Standby<'_> {
    fn store(&self, id: u16) -> PathBuf {
        self.options.store.clone().unwrap_or_else(|| self.dir.store(id))
    }

    /// What can be known to be wrong before any server is gone.
    fn check(&self) -> Result<()> {
        let map = self.file.map(&self.dir.path)?;
        let known: Vec<u16> = map.servers.iter().map(|s| s.id.0).collect();
        let (said, ids) = (&self.options.store, self.targets()?);
        if said.is_some() && !matches!(&self.options.watched, Watched::These(ids) if ids.len() == 1) {
            bail!(StandbyError::WhoseStore);
        }
        if ids.is_empty() {
            bail!(StandbyError::NoneHere(self.dir.path.clone()));
        }
        for id in ids {
            let path = self.store(id);
            if !known.contains(&id) {
                bail!(StandbyError::Unknown(id, known));
            }
            // A link that leads nowhere is a store that cannot be reached.
            if said.is_none() && !path.is_dir() {
                bail!(StandbyError::Elsewhere(id, path));
            }
            if !StoreKind::is_at(&path) {
                bail!(StandbyError::NoStore(id, path));
            }
        }
        let first = map.servers.first().map_or(ServerId(0), |s| s.id);
        self.place(&map, first).map(drop)
    }

    /// The servers that are watched, as the map has them now. At first those that were said, known or not.
    fn targets(&self) -> Result<Vec<u16>> {
        let ids: Vec<u16> = match &self.options.watched {
            Watched::These(ids) => ids.clone(),
            Watched::Any => {
                let ids = self.file.servers.iter().map(|s| s.id);
                ids.filter(|id| self.dir.store(*id).is_dir()).collect()
            }
        };
        Ok(ids
            .into_iter()
            .filter(|id| !self.refused.contains_key(id))
            .collect())
    }

    /// Looks for a server that has been gone for half a lease in every look: one that is only started again
    /// keeps its place.
    fn look(&mut self, view: &View) -> Result<Found> {
        self.file = self.file.with_map(&view.map);
        let known = |id: &u16| view.map.server(ServerId(*id)).is_some();
        let targets: Vec<u16> = self.targets()?.into_iter().filter(known).collect();
        if targets.is_empty() {
            bail!(StandbyError::NothingLeft(
                self.refused.values().cloned().collect()
            ));
        }
        let now = Instant::now();
        let is_gone = |id: &ServerId| targets.contains(&id.0) && !view.members.contains_key(id);
        self.gone.retain(|id, _| is_gone(id));
        for id in targets.iter().map(|id| ServerId(*id)).filter(is_gone) {
            self.gone.entry(id).or_insert(now);
        }
        if !self.gone.is_empty() && process::running(self.dir, "restart").is_some() {
            self.gone.clear();
            return Ok(Found::Nothing("waits for `pando restart` to end".into()));
        }
        let grace = self.coord.lease() / 2;
        let late: Vec<ServerId> = self
            .gone
            .iter()
            .filter(|(_, since)| now.duration_since(**since) >= grace)
            .map(|(id, _)| *id)
            .collect();
        let mut state = "watches".to_owned();
        for server in late.iter().filter_map(|id| view.map.server(*id)) {
            match self.take(&view.map, server)? {
                Found::Seat(seat) => return Ok(Found::Seat(seat)),
                Found::Nothing(why) => state = why,
            }
        }
        Ok(Found::Nothing(state))
    }

    /// Takes the place of a server that coordination does not see, if nobody has its store.
    fn take(&mut self, map: &ClusterMap, server: &ServerInfo) -> Result<Found> {
        let began = Instant::now();
        let (id, path) = (server.id, self.store(server.id.0));
        let name = format!("server-{id}");
        let held = |by: &str| {
            format!("waits for the store of server {id}, which coordination does not see and {by} holds")
        };
        let Some(running) = process::take_lock(self.dir, &name)? else {
            let by = process::running(self.dir, &name);
            let by = by.map_or_else(|| "another process".into(), |pid| format!("process {pid}"));
            return Ok(Found::Nothing(held(&by)));
        };
        let how = store_options(&self.file, self.options)?;
        let (opened, superblock) = match StoreKind::at(&path).open(&path, &how) {
            Ok(found) => found,
            Err(StoreError::Locked(_)) => return Ok(Found::Nothing(held("another process"))),
            Err(e) => return Ok(self.refuse(id, format!("server {id} cannot be taken over: {e}"))),
        };
        if (superblock.fs, superblock.server) != (map.fs, id) {
            let found = (superblock.server, superblock.fs);
            return Ok(self.refuse(id, StandbyError::Foreign(path, found, id).to_string()));
        }
        let me = match self.place(map, id) {
            Ok(me) => me,
            Err(e) => {
                return Ok(Found::Nothing(format!(
                    "cannot take the place of server {id}: {e:#}"
                )));
            }
        };
        let Some(file) = self.replace(server, &me)? else {
            let why = format!("server {id} is there again, or another process has taken its place");
            return Ok(Found::Nothing(why));
        };
        println!("server {id} is gone: this process is it now, at {}", me.address);
        if !coordination::is_here(&file)? {
            self.dir.save(&file)?;
        }
        Ok(Found::Seat(Box::new(Seat {
            began,
            file,
            in_force: true,
            me,
            opened,
            _running: running,
        })))
    }

    fn refuse(&mut self, id: ServerId, why: String) -> Found {
        tracing::error!("{why}");
        self.refused.insert(id.0, why.clone());
        Found::Nothing(why)
    }

    /// Where a server is to be when this process is it.
    fn place(&self, map: &ClusterMap, id: ServerId) -> Result<ServerInfo> {
        let said = self.options.address.as_deref();
        addresses::reaches(said, map)?;
        let found = match said {
            Some(address) => server_at(id.0, address)?,
            None => on_loopback(id.0, 1, map.auth)?.pop().context("no free port")?,
        };
        stays_here(map.auth, &found.address)?;
        let me = ServerInfo {
            id,
            address: found.address.clone(),
            metrics: found.metrics.clone(),
        };
        let only = ClusterMap {
            servers: vec![me.clone()],
            ..map.clone()
        };
        coordination::suits(&coordination::place(&self.file)?, &only)?;
        if !addresses::is_here(&me.address)? {
            bail!(
                "{} is no address of this machine; say another --address",
                me.address
            );
        }
        addresses::is_free(&found, map)?;
        Ok(me)
    }

    /// Puts `me` in the place of `server` in the map. `None`: somebody else is that server.
    fn replace(&self, server: &ServerInfo, me: &ServerInfo) -> Result<Option<ClusterFile>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let wait = || Instant::now() + coordination::PATIENCE;
            match coordination::wait(self.coord.view(), wait()) {
                Ok(view) => {
                    let there = view.map.server(me.id);
                    if there == Some(me) {
                        return Ok(Some(self.file.with_map(&view.map)));
                    }
                    if there != Some(server) || view.members.contains_key(&me.id) {
                        return Ok(None);
                    }
                    let replaced = self.coord.replace(view.map.epoch, moved(&view.map, me));
                    // The next look finds what came of it.
                    if let Err(e) = coordination::wait(replaced, wait()) {
                        tracing::info!("the cluster map was not replaced: {e}");
                        std::thread::sleep(PAUSE);
                    }
                }
                Err(e @ CoordError::Away(_)) => tracing::info!("{e}"),
                Err(e) => return Err(e).context(self.file.coord.clone()),
            }
            if Instant::now() > deadline {
                return Ok(None);
            }
        }
    }
}

/// The map that differs in where one server is.
fn moved(map: &ClusterMap, me: &ServerInfo) -> ClusterMap {
    let place = |s: &ServerInfo| if s.id == me.id { me.clone() } else { s.clone() };
    ClusterMap {
        epoch: MapEpoch(map.epoch.0 + 1),
        servers: map.servers.iter().map(place).collect(),
        ..map.clone()
    }
}
