//! After the healing: every directory still lets itself be changed, no lock or transaction is left, and the
//! disks hold the model's tree.

use crate::cluster::Cluster;
use crate::generate::creds;
use crate::knowledge::Knowledge;
use crate::scribe::Scribe;
use crate::violation::Kind;
use crate::workload::Workload;
use crate::world::{Life, NodeId, SEC};
use pando_client::Client;
use pando_data::FileKey;
use pando_env::Env;
use pando_format::{Key, Position, Record, Target};
use pando_types::{Access, Cred, Errno, FileKind, Name, PATH_MAX, Perm};
use pando_wire::{Answer, EntryView, Op, Request, Response, Statement};
use std::rc::Rc;
use std::time::Duration;

/// Virtual time within which each step of the end must be reached.
const WITHIN: u64 = 120 * SEC;

/// Brings a healed cluster to rest and looks at everything.
pub fn finish(cluster: &Rc<Cluster>, workload: &Rc<Workload>, admin: NodeId) {
    let sim = &cluster.sim;
    workload.stop();
    if !sim.run_until(WITHIN, || {
        if !workload.is_over() {
            workload.end_the_lost();
        }
        if !cluster.all_serve() {
            cluster.start_joined();
        }
        workload.is_over() && cluster.all_serve() && !cluster.judge().revokes() && cluster.has_grown()
    }) {
        let waiting = cluster.judge().replies.borrow().outstanding();
        let down: Vec<_> = (0..cluster.servers.len())
            .filter(|i| {
                cluster.running(*i).is_none() && cluster.map().server(cluster.servers[*i].id).is_some()
            })
            .map(|i| cluster.servers[i].id)
            .collect();
        return sim.fail(
            Kind::NoProgress,
            format!("everything is healed, but programs still wait: {waiting:?}; servers that do not serve: {down:?}; plan: {:?}", cluster.map().plan),
        );
    }
    workload.strict.set(true);
    let cluster2 = cluster.clone();
    let over = workload.aside(admin, |workload, life, client| async move {
        // Longer than a server believes an old measurement of its space.
        life.sleep(Duration::from_secs(1)).await;
        Scribe::new(&workload, &life, &client).read_all().await;
        touch_everything(&cluster2, &workload, &life, &client).await;
        crate::cuts::at_last(&cluster2, &life, &client).await;
        at_rest(&cluster2, &life, &client).await;
    });
    if !sim.run_until(WITHIN, || over.get()) {
        let waiting = cluster.judge().replies.borrow().outstanding();
        return sim.fail(
            Kind::NoProgress,
            format!("the final round does not end: {waiting:?}"),
        );
    }
    if !sim.run_until(WITHIN, || {
        cluster.judge().in_flight() == (0, 0) && cluster.judge().part_notes() == 0
    }) {
        let left = cluster.judge().in_flight();
        return sim.fail(
            Kind::NoProgress,
            format!(
                "at rest, but {} transactions are prepared, {} decided, and {} parts of directories noted",
                left.0,
                left.1,
                cluster.judge().part_notes()
            ),
        );
    }
    cluster.judge().full_walk();
    check_blocks(cluster);
    // A server that was cut off learns it when it asks next.
    let mut gone = cluster.judge().revoked_are_gone(cluster);
    for _ in 0..20 {
        if gone.is_err() && !sim.run_until(SEC, || false) {
            gone = cluster.judge().revoked_are_gone(cluster);
        }
    }
    cluster.judge().check(gone);
}

/// Makes and removes something in every directory there is, as a client that knows nothing would find them.
async fn touch_everything(
    cluster: &Rc<Cluster>,
    workload: &Rc<Workload>,
    life: &Rc<Life>,
    client: &Rc<Client>,
) {
    let root = Cred::root();
    let ask = async |mut op: Op| {
        let text = crate::words::describe_op(&op);
        let mut outcome = None;
        for _ in 0..8 {
            outcome = workload
                .op(life, client, &root, &mut Knowledge::new(8), op.clone())
                .await;
            if outcome != Some(Err(Errno::Stale)) {
                break;
            }
            // Something that was given up before has taken effect now.
            for dir in op.statements_mut().into_iter().flatten() {
                if let Ok(EntryView { dir: Some(again), .. }) = client.reopen(dir).await {
                    *dir = again;
                }
            }
        }
        match outcome {
            Some(Ok(answer)) => Some(answer),
            other => {
                cluster.sim.fail(
                    Kind::NoProgress,
                    format!("in the final round {text} came to {other:?}"),
                );
                None
            }
        }
    };
    let Ok(EntryView { dir: Some(dir), .. }) = client.root_handle().await else {
        return cluster
            .sim
            .fail(Kind::NoProgress, "the root does not open in the final round");
    };
    let mut todo: Vec<(Statement, Way)> = vec![(dir, Way::default())];
    let (Ok(file), Ok(sub)) = (Name::new(b"final-file"), Name::new(b"final-dir")) else {
        return;
    };
    while let Some((dir, way)) = todo.pop() {
        way.check(cluster, client, &dir).await;
        let mut after = Position::START;
        loop {
            let op = Op::ReadDir {
                dir: dir.clone(),
                after,
                limit: 100,
                plus: true,
            };
            let Some(Answer::Entries { entries, end }) = ask(op).await else {
                return;
            };
            after = entries.last().map_or(after, |e| e.position);
            todo.extend(
                entries
                    .into_iter()
                    .filter_map(|e| e.view?.dir)
                    .map(|d| (d.clone(), way.on(&dir, &d))),
            );
            if end {
                break;
            }
        }
        let steps = [
            Op::Create {
                dir: dir.clone(),
                name: file.clone(),
                mode: Perm::new(0o600).into(),
                exclusive: true,
                want: 6,
            },
            Op::Mkdir {
                dir: dir.clone(),
                name: sub.clone(),
                mode: Perm::new(0o700).into(),
            },
            Op::DirStat { dir: dir.clone() },
            Op::Rmdir {
                dir: dir.clone(),
                name: sub.clone(),
            },
            Op::Unlink {
                dir: dir.clone(),
                name: file.clone(),
                held: false,
            },
        ];
        for op in steps {
            if ask(op).await.is_none() {
                return;
            }
        }
    }
}

/// How a directory is reached.
#[derive(Default)]
struct Way {
    path: Vec<u8>,
    /// Those above it, from the root on.
    above: Vec<Statement>,
}

impl Way {
    /// On from `dir`, which this leads to, into `child`.
    fn on(&self, dir: &Statement, child: &Statement) -> Way {
        Way {
            path: [&self.path[..], b"/", child.name.as_bytes()].concat(),
            above: self.above.iter().chain([dir]).cloned().collect(),
        }
    }

    /// By its path, too, everybody comes to this directory who may search those above it, and nobody else.
    async fn check(&self, cluster: &Cluster, client: &Client, dir: &Statement) {
        if self.path.is_empty() || self.path.len() >= PATH_MAX {
            return;
        }
        for cred in creds() {
            let may = |s: &Statement| cred.may(Access::EXEC, &s.guard());
            let open = self.above.iter().all(may);
            let resolved = client.resolve(&cred, &self.path, true).await;
            let came_to = resolved.as_ref().map(|f| f.entry.attr.ino).map_err(|e| *e);
            let right = match resolved {
                Ok(found) => {
                    let there = found
                        .entry
                        .dir
                        .is_some_and(|d| (d.id, d.generation) == (dir.id, dir.generation));
                    open && there
                }
                Err(e) => !open && e == Errno::Access,
            };
            if !right {
                let path = String::from_utf8_lossy(&self.path);
                let text = format!(
                    "{path} leads user {} to {came_to:?}, not to {}",
                    cred.uid, dir.ino
                );
                cluster.sim.fail(Kind::WrongResult, text);
            }
        }
    }
}

/// Waits until no server holds a lock or a transaction.
async fn at_rest(cluster: &Rc<Cluster>, life: &Rc<Life>, client: &Rc<Client>) {
    let mut busy = String::new();
    for _ in 0..100 {
        busy.clear();
        for server in &cluster.map().servers {
            match client.admin(server.id, Request::Status).await {
                Ok(Response::Status(s)) => {
                    let zero = |name: &str| s.contains(&format!("\"{name}\":0,"));
                    if !(zero("locks_held") && zero("prepared") && zero("deciding")) {
                        busy = s;
                    }
                }
                other => busy = format!("server {}: {other:?}", server.id),
            }
        }
        if busy.is_empty() {
            return;
        }
        life.sleep(Duration::from_millis(500)).await;
    }
    cluster.sim.fail(
        Kind::NoProgress,
        format!("nobody asks for anything, but a server is not at rest: {busy}"),
    );
}

/// What living files say is in blocks is there. (The scribes look into theirs, which may have holes.)
pub fn check_blocks(cluster: &Rc<Cluster>) {
    let missing = cluster.judge().with_model(|_, tree| {
        tree.records().find_map(|(key, record)| match (key, record) {
            (Key::Entry { part, name, .. }, Record::Entry(e)) => match &e.target {
                Target::Inode(_)
                    if tree
                        .head(part.dir)
                        .is_some_and(|h| h.name.as_bytes().starts_with(crate::scribe::PREFIX)) =>
                {
                    None
                }
                Target::Inode(i) if i.kind == FileKind::Regular && i.layout.block_size().is_some() => {
                    let file = FileKey {
                        ino: i.ino,
                        generation: i.generation,
                    };
                    (i.size > 0 && cluster.blocks.count(file) == 0).then(|| format!("{name} ({file:?})"))
                }
                _ => None,
            },
            _ => None,
        })
    });
    if let Some(file) = missing {
        cluster.sim.fail(
            Kind::WrongResult,
            format!("the blocks of {file}, which lives, are gone"),
        );
    }
}
