//! One session: what is asked of ZooKeeper, and what it means.

use super::thread::{Thread, server_of};
use crate::file::parse;
use pando_cluster::{ClusterMap, CoordError, Membership, View, may_replace};
use pando_types::{MapEpoch, ServerId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteError, MultiWriteResult, MultiWriter};

/// Names of members, and since when their session is known to have ended.
pub(super) type Missing = BTreeMap<String, Instant>;

/// How often something is begun again because others changed it meanwhile.
const TRIES: u32 = 5;
/// No server's lease is longer; one that cannot be read is taken for this long.
const LONGEST_LEASE: Duration = Duration::from_secs(60);
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_millis(500);

/// What a member says of itself.
#[derive(Serialize, Deserialize)]
struct About {
    lease_ms: u64,
    /// For people.
    host: String,
    pid: u32,
}

pub(super) struct Session {
    client: Client,
    base: String,
    acls: Acls<'static>,
    about: Vec<u8>,
    /// Who this session is, by the names of their nodes.
    mine: BTreeMap<ServerId, String>,
}

/// What is there, as of one instant.
struct Snapshot {
    map: Vec<u8>,
    /// Version of the map's node.
    version: i32,
    members: Vec<Member>,
    alive: BTreeSet<String>,
}

struct Member {
    server: ServerId,
    name: String,
    number: u64,
    lease: Duration,
}

fn away(e: &Error) -> CoordError {
    CoordError::Away(match e {
        Error::NoAuth | Error::AuthFailed | Error::InvalidAcl => {
            format!("ZooKeeper refuses us: {e}; is the file coord.auth of the cluster's folder right?")
        }
        e => format!("ZooKeeper: {e}"),
    })
}

impl Session {
    pub(super) async fn open(thread: &Thread) -> Result<Session, CoordError> {
        let options = thread.options;
        let mut connector = Client::connector().with_session_timeout(options.session);
        if let Some(auth) = &thread.auth {
            connector = connector.with_auth("digest", auth);
        }
        let client = connector
            .connect(&thread.hosts)
            .await
            .map_err(|e| CoordError::Away(format!("ZooKeeper at {}: {e}", thread.hosts)))?;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let about = About {
            lease_ms: u64::try_from(options.lease.as_millis()).unwrap_or(u64::MAX),
            host: host.trim().into(),
            pid: std::process::id(),
        };
        Ok(Session {
            client,
            base: thread.base.clone(),
            acls: if thread.auth.is_some() {
                Acls::creator_all()
            } else {
                Acls::anyone_all()
            },
            // Numbers and text: there is nothing that JSON does not have.
            about: serde_json::to_vec(&about).unwrap_or_default(),
            mine: BTreeMap::new(),
        })
    }

    /// Whether nothing more can be asked in it.
    pub(super) fn is_over(&self) -> bool {
        self.client.state().is_terminated()
    }

    /// Ends it, so that nobody need wait for its timeout.
    pub(super) async fn close(self) {
        let mut state = self.client.state_watcher();
        drop(self.client);
        let closed = async { while !state.changed().await.is_terminated() {} };
        // Who is not reached finds out by the timeout.
        let _ = timeout(GOODBYE, closed).await;
    }

    fn map_node(&self) -> String {
        format!("{}/map", self.base)
    }

    fn members_node(&self) -> String {
        format!("{}/members", self.base)
    }

    fn member_node(&self, name: &str) -> String {
        format!("{}/members/{name}", self.base)
    }

    fn alive_node(&self, server: ServerId) -> String {
        format!("{}/alive/{server}", self.base)
    }

    pub(super) async fn attend(
        &mut self,
        thread: &mut Thread,
        me: ServerId,
    ) -> Result<(View, String), CoordError> {
        for _ in 0..TRIES {
            let Some(name) = self.mine.get(&me).cloned() else {
                self.register(me).await?;
                continue;
            };
            // Ordered among all changes: whatever is read after it is no older than the call, and both nodes
            // were there.
            let mut still = self.client.new_multi_writer();
            let asked = Instant::now();
            still
                .add_check_version(&self.member_node(&name), -1)
                .and_then(|()| still.add_check_version(&self.alive_node(me), -1))
                .map_err(|e| away(&e))?;
            match still.commit().await {
                Ok(_) => return self.look(thread, asked).await,
                Err(MultiWriteError::OperationFailed {
                    source: Error::NoNode,
                    ..
                }) => {
                    self.mine.remove(&me);
                }
                Err(e) => return Err(away(&e.into())),
            }
        }
        Err(CoordError::Away(format!(
            "another process takes the place of server {me} again and again"
        )))
    }

    /// Makes a server a member, in the place of what an earlier process or session of it was.
    async fn register(&mut self, me: ServerId) -> Result<(), CoordError> {
        for _ in 0..TRIES {
            let before = self.names().await?;
            let alive = self
                .client
                .check_stat(&self.alive_node(me))
                .await
                .map_err(|e| away(&e))?;
            let mut all = self.client.new_multi_writer();
            let built = self.build(&mut all, me, &before, alive.is_some());
            built.map_err(|e| away(&e))?;
            match all.commit().await {
                Ok(results) => {
                    let made = results.iter().find_map(|r| match r {
                        MultiWriteResult::Create { path, .. } => path.rsplit_once("/members/"),
                        _ => None,
                    });
                    let (_, name) = made.ok_or_else(|| CoordError::Away("ZooKeeper made no node".into()))?;
                    self.mine.insert(me, name.to_owned());
                    return Ok(());
                }
                // Somebody else changed something of it meanwhile.
                Err(MultiWriteError::OperationFailed {
                    source: Error::NoNode | Error::NodeExists,
                    ..
                }) => {}
                Err(e) => return Err(away(&e.into())),
            }
        }
        Err(CoordError::Away(format!(
            "another process makes itself server {me} at the same time"
        )))
    }

    fn build(
        &self,
        all: &mut MultiWriter<'_>,
        me: ServerId,
        names: &[String],
        alive: bool,
    ) -> Result<(), Error> {
        if alive {
            all.add_delete(&self.alive_node(me), None)?;
        }
        for name in names.iter().filter(|n| server_of(n) == Some(me)) {
            all.add_delete(&self.member_node(name), None)?;
        }
        let member = CreateMode::PersistentSequential.with_acls(self.acls);
        all.add_create(&self.member_node(&format!("{me}.")), &self.about, &member)?;
        all.add_create(
            &self.alive_node(me),
            b"",
            &CreateMode::Ephemeral.with_acls(self.acls),
        )
    }

    async fn names(&self) -> Result<Vec<String>, CoordError> {
        self.client
            .list_children(&self.members_node())
            .await
            .map_err(|e| self.unprepared(&e))
    }

    pub(super) async fn view(&mut self, thread: &mut Thread) -> Result<(View, String), CoordError> {
        // A transaction that changes nothing goes the way of all changes; a read alone could be old.
        let mut nothing = self.client.new_multi_writer();
        let asked = Instant::now();
        nothing
            .add_check_version(&self.map_node(), -1)
            .map_err(|e| away(&e))?;
        match nothing.commit().await {
            Ok(_) => self.look(thread, asked).await,
            Err(e) => Err(self.unprepared(&e.into())),
        }
    }

    /// What is there now. Who has been missing for too long is taken away before.
    async fn look(&mut self, thread: &mut Thread, asked: Instant) -> Result<(View, String), CoordError> {
        let mut found = self.snapshot().await?;
        let alive = |m: &Member, found: &Snapshot| found.alive.contains(&m.server.to_string());
        let missing = found.members.iter().filter(|m| !alive(m, &found));
        let missing = missing.map(|m| (m.name.clone(), m.lease)).collect();
        let overdue = thread.overdue(asked, missing);
        if !overdue.is_empty() {
            for name in &overdue {
                match self.client.delete(&self.member_node(name), None).await {
                    Ok(()) => tracing::info!("membership {name} has ended"),
                    // Somebody else did, or the server is back under another name.
                    Err(Error::NoNode) => {}
                    Err(e) => return Err(away(&e)),
                }
            }
            found = self.snapshot().await?;
        }
        let text = String::from_utf8(found.map)
            .map_err(|_| CoordError::NoMap(format!("{} is no text", self.map_node())))?;
        let (_, map) = parse(&text, &thread.folder.path, thread.folder.fs).map_err(|e| self.damaged(e))?;
        let mut members = BTreeMap::new();
        for member in found.members {
            let number: &mut Membership = members.entry(member.server).or_insert(Membership(0));
            *number = (*number).max(Membership(member.number));
        }
        Ok((View { map, members }, text))
    }

    /// Everything as of one instant: no member came or went while it was read.
    async fn snapshot(&self) -> Result<Snapshot, CoordError> {
        for _ in 0..TRIES {
            let (members_node, map_node, alive_node) = (
                self.members_node(),
                self.map_node(),
                format!("{}/alive", self.base),
            );
            // All are sent at once; answers come in order.
            let names = self.client.get_children(&members_node);
            let map = self.client.get_data(&map_node);
            let alive = self.client.list_children(&alive_node);
            let (names, before) = names.await.map_err(|e| self.unprepared(&e))?;
            let (map, stat) = map.await.map_err(|e| self.unprepared(&e))?;
            let alive = alive.await.map_err(|e| self.unprepared(&e))?;
            let nodes: Vec<String> = names.iter().map(|n| self.member_node(n)).collect();
            let asked: Vec<_> = nodes.iter().map(|n| self.client.get_data(n)).collect();
            let after = self.client.check_stat(&members_node);
            let mut members = Vec::new();
            for (name, data) in names.into_iter().zip(asked) {
                let (data, stat) = match data.await {
                    Ok(found) => found,
                    Err(Error::NoNode) => continue, // and so the two stats differ
                    Err(e) => return Err(away(&e)),
                };
                let Some(server) = server_of(&name) else {
                    continue; // nobody that we know of
                };
                members.push(Member {
                    server,
                    name,
                    number: u64::try_from(stat.czxid).unwrap_or(0),
                    lease: lease_of(&data),
                });
            }
            if after.await.map_err(|e| away(&e))?.map(|s| s.pzxid) == Some(before.pzxid) {
                return Ok(Snapshot {
                    map,
                    version: stat.version,
                    members,
                    alive: alive.into_iter().collect(),
                });
            }
        }
        Err(CoordError::Away("members come and go all the time".into()))
    }

    pub(super) async fn leave(&mut self, me: ServerId) -> Result<(), CoordError> {
        let Some(name) = self.mine.remove(&me) else {
            return Ok(());
        };
        let mut both = self.client.new_multi_writer();
        both.add_delete(&self.member_node(&name), None)
            .and_then(|()| both.add_delete(&self.alive_node(me), None))
            .map_err(|e| away(&e))?;
        match both.commit().await {
            // It was gone.
            Ok(_)
            | Err(MultiWriteError::OperationFailed {
                source: Error::NoNode,
                ..
            }) => Ok(()),
            Err(e) => Err(away(&e.into())),
        }
    }

    pub(super) async fn replace(
        &mut self,
        thread: &Thread,
        from: MapEpoch,
        to: &ClusterMap,
    ) -> Result<(), CoordError> {
        for _ in 0..TRIES {
            let found = self.snapshot().await?;
            let text = String::from_utf8_lossy(&found.map);
            let (file, map) =
                parse(&text, &thread.folder.path, thread.folder.fs).map_err(|e| self.damaged(e))?;
            may_replace(&map, from, to)?;
            let text = file.with_map(to).to_text();
            let done = self
                .client
                .set_data(&self.map_node(), text.as_bytes(), Some(found.version))
                .await;
            match done {
                Ok(_) => return Ok(()),
                // Somebody else was first, or what was read was old.
                Err(Error::BadVersion) => self.refresh().await?,
                Err(e) => return Err(self.unprepared(&e)),
            }
        }
        Err(CoordError::Away("the map changes all the time".into()))
    }

    /// After this, reads are no older than now.
    async fn refresh(&self) -> Result<(), CoordError> {
        self.client.sync(&self.map_node()).await.map_err(|e| away(&e))
    }

    pub(super) async fn create(&mut self, thread: &Thread, text: &str) -> Result<(), CoordError> {
        parse(text, &thread.folder.path, thread.folder.fs)?;
        let persistent = CreateMode::Persistent.with_acls(self.acls);
        // Whoever may use ZooKeeper may see which filesystems there are; their own nodes are theirs.
        let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let above = self.base.rsplit_once('/').map_or("", |(above, _)| above);
        self.client.mkdir(above, &open).await.map_err(|e| away(&e))?;
        let mut all = self.client.new_multi_writer();
        all.add_create(&self.base, b"", &persistent)
            .and_then(|()| all.add_create(&self.members_node(), b"", &persistent))
            .and_then(|()| all.add_create(&format!("{}/alive", self.base), b"", &persistent))
            .and_then(|()| all.add_create(&self.map_node(), text.as_bytes(), &persistent))
            .map_err(|e| away(&e))?;
        match all.commit().await {
            Ok(_) => Ok(()),
            Err(MultiWriteError::OperationFailed {
                source: Error::NodeExists,
                ..
            }) => Err(CoordError::NoMap(format!(
                "{} is there already; nothing was changed",
                self.base
            ))),
            Err(e) => Err(away(&e.into())),
        }
    }

    /// What it means that a node is missing which was made with the filesystem.
    fn unprepared(&self, e: &Error) -> CoordError {
        match e {
            Error::NoNode => CoordError::NoMap(format!(
                "ZooKeeper has no {}; is the address right? A map that was lost is put back with `pando map restore`",
                self.base
            )),
            e => away(e),
        }
    }

    fn damaged(&self, e: CoordError) -> CoordError {
        match e {
            CoordError::NoMap(why) => CoordError::NoMap(format!(
                "{} is damaged ({why}); put the text of a cluster.json there, of the highest epoch that any machine has",
                self.map_node()
            )),
            other => other,
        }
    }
}

/// A member that does not say how long its lease is has the longest.
fn lease_of(about: &[u8]) -> Duration {
    let said = serde_json::from_slice::<About>(about).ok();
    said.map_or(LONGEST_LEASE, |a| {
        Duration::from_millis(a.lease_ms).min(LONGEST_LEASE)
    })
}
