//! The thread that talks to ZooKeeper: one session after the other, and one call after the other.

use super::session::{Missing, Session};
use super::{Call, What, ZkOptions};
use crate::file::Folder;
use crate::place::ZkUrl;
use pando_cluster::{CoordError, View};
use pando_types::{FsId, ServerId};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{timeout, timeout_at};

/// Leases without a call, after which a session is given up.
const SILENT_LEASES: u32 = 4;

/// What outlives a session.
pub(super) struct Thread {
    pub(super) hosts: String,
    /// The node of the filesystem.
    pub(super) base: String,
    pub(super) folder: Folder,
    pub(super) options: ZkOptions,
    /// `USER:PASSWORD`, from `coord.auth`.
    pub(super) auth: Option<Vec<u8>>,
    /// Members whose session has ended, and since when that was known.
    missing: Missing,
}

/// Why no more calls are served in this session.
enum End {
    /// Nobody will call any more.
    Closed,
    /// Another session is to be opened for the next call.
    Session,
}

impl Thread {
    pub(super) fn new(url: &ZkUrl, dir: &Path, fs: FsId, options: ZkOptions) -> io::Result<Thread> {
        let auth = match std::fs::read_to_string(dir.join("coord.auth")) {
            Ok(text) => Some(text.trim().as_bytes().to_vec()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        Ok(Thread {
            hosts: url.hosts(),
            base: format!("{}/{:032x}", url.node(), fs.0),
            folder: Folder {
                path: dir.to_owned(),
                fs,
            },
            options,
            auth,
            missing: BTreeMap::new(),
        })
    }

    /// Serves calls until nobody can make one.
    pub(super) fn serve(mut self, mut queue: UnboundedReceiver<Call>) {
        let mut next = None;
        loop {
            // One runtime for each session: with it all ends that was still to be sent. A map that was to be
            // put in place must not get there minutes after its author was told that nobody knows.
            let runtime = match Builder::new_current_thread().enable_time().build() {
                Ok(runtime) => runtime,
                Err(e) => {
                    tracing::error!("coordination ends: {e}");
                    return;
                }
            };
            if let End::Closed = self.session(&runtime, &mut queue, &mut next) {
                return;
            }
        }
    }

    /// Opens a session for the next call, and serves in it. A call that needs another one is left in `next`.
    fn session(
        &mut self,
        runtime: &Runtime,
        queue: &mut UnboundedReceiver<Call>,
        next: &mut Option<Call>,
    ) -> End {
        runtime.block_on(async {
            let Some(call) = (match next.take() {
                Some(call) => Some(call),
                None => queue.recv().await,
            }) else {
                return End::Closed;
            };
            let deadline = call.asked + self.options.lease;
            let opened = match timeout_at(deadline.into(), Session::open(self)).await {
                Ok(opened) => opened,
                Err(_) => Err(CoordError::Away(format!("no answer from {}", self.hosts))),
            };
            let mut session = match opened {
                Ok(session) => session,
                Err(e) => {
                    refuse(call, e);
                    return End::Session;
                }
            };
            let mut call = Some(call);
            let silence = self.options.lease * SILENT_LEASES;
            loop {
                let now = match call.take() {
                    Some(call) => call,
                    None => match timeout(silence, queue.recv()).await {
                        Ok(Some(call)) => call,
                        Ok(None) => {
                            session.close().await;
                            return End::Closed;
                        }
                        Err(_) => {
                            session.close().await;
                            return End::Session;
                        }
                    },
                };
                if session.is_over() {
                    *next = Some(now);
                    return End::Session;
                }
                if !self.answer(&mut session, now).await {
                    return End::Session;
                }
            }
        })
    }

    /// Answers a call. False: the session must end, lest what was sent takes effect later.
    async fn answer(&mut self, session: &mut Session, call: Call) -> bool {
        let deadline = call.asked + self.options.lease;
        match call.what {
            What::Attend(me, promise) => {
                let answer = within(deadline, session.attend(self, me)).await;
                promise.keep(self.seen(answer));
                true
            }
            What::View(promise) => {
                let answer = within(deadline, session.view(self)).await;
                promise.keep(self.seen(answer));
                true
            }
            What::Leave(me, promise) => {
                let answer = within(deadline, session.leave(me)).await;
                promise.keep(answer);
                true
            }
            What::Replace(from, to, promise) => {
                let answer = within(deadline, session.replace(self, from, &to)).await;
                let known = !matches!(answer, Err(CoordError::Away(_)));
                promise.keep(answer);
                known
            }
            What::Create(text, promise) => {
                let answer = within(deadline, session.create(self, &text)).await;
                let known = !matches!(answer, Err(CoordError::Away(_)));
                promise.keep(answer);
                known
            }
        }
    }

    /// What was seen, after this machine's copy of the map was brought up to date.
    fn seen(&mut self, answer: Result<(View, String), CoordError>) -> Result<View, CoordError> {
        let (view, text) = answer?;
        // A copy is a convenience: servers go by what coordination says.
        if let Err(e) = self.copy(&view, &text) {
            tracing::warn!("this machine's copy of the cluster map is not up to date: {e}");
        }
        Ok(view)
    }

    fn copy(&self, view: &View, text: &str) -> Result<(), CoordError> {
        let (mine, map) = self.folder.read()?;
        if map.epoch >= view.map.epoch {
            return Ok(());
        }
        let _lock = self.folder.lock()?;
        let (_, map) = self.folder.read()?;
        if map.epoch >= view.map.epoch {
            return Ok(());
        }
        let (theirs, _) = crate::file::parse(text, &self.folder.path, self.folder.fs)?;
        // Where coordination is, and where blocks are, may be said differently on this machine.
        self.folder.write(&pando_cluster::ClusterFile {
            coord: mine.coord,
            blocks: mine.blocks,
            ..theirs
        })
    }

    /// Notes who has no session behind it. Of these, who has had none for longer than its lease.
    pub(super) fn overdue(&mut self, asked: Instant, missing: Vec<(String, Duration)>) -> Vec<String> {
        let known = std::mem::take(&mut self.missing);
        let heard = Instant::now();
        let mut overdue = Vec::new();
        for (name, lease) in missing {
            // First seen missing in an answer that came then; still missing in one that was asked for since.
            let since = known.get(&name).copied().unwrap_or(heard);
            if asked.saturating_duration_since(since) > lease + lease / 8 {
                overdue.push(name.clone());
            }
            self.missing.insert(name, since);
        }
        overdue
    }
}

async fn within<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, CoordError>>,
) -> Result<T, CoordError> {
    timeout_at(deadline.into(), work)
        .await
        .unwrap_or_else(|_| Err(CoordError::Away("ZooKeeper does not answer".into())))
}

fn refuse(call: Call, e: CoordError) {
    match call.what {
        What::Attend(_, promise) | What::View(promise) => promise.keep(Err(e)),
        What::Leave(_, promise) | What::Replace(_, _, promise) | What::Create(_, promise) => {
            promise.keep(Err(e))
        }
    }
}

/// The number of a server in the name of its membership.
pub(super) fn server_of(name: &str) -> Option<ServerId> {
    let (server, _sequence) = name.split_once('.')?;
    server.parse().ok().map(ServerId)
}
