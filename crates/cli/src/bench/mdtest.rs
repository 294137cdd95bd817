//! `pando bench mdtest`: the phases and options of mdtest, through the client library.

use super::meter::{Measured, Meter};
use super::spent::{Phases, Watch};
use super::{Figures, Wait, connect, on_threads};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, my_cred};
use crate::crew::Crew;
use crate::fs::{absolute, below};
use anyhow::{Context, Result, bail};
use pando_client::Client;
use pando_client::file::{self, DataSync, OpenFile, Place};
use pando_env::rng::mix;
use pando_types::{Access, Cred, Errno, Name, Perm};
use pando_wire::{Op, RenameMode, Statement};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::rc::Rc;
use std::time::Instant;

/// Create, look at, read, rename and remove files and directories.
///
/// Without -C, -T, -E, --rename or -r all five are done, without -F or -D both files and directories. Renames
/// are made in pairs, to another name and back. Needs a running cluster.
///
/// Beside times it says what an operation cost: processor time of this process and of the servers (of no use
/// with anybody who polls), the share of the servers' reads that their cached records answered (`pando up
/// --record-mib` limits those), and how many operations shared a sync of a log.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando bench mdtest -n 10000 --clients 4 --depth 8\n  pando bench mdtest -n 1000 -b 4 -z 2 -u -F --json\n  pando bench mdtest -n 100000 -C -F    create only; -T, -E and -r afterwards find the files\n  pando bench mdtest -n 500000 --clients 2 -T -F -R --accesses 100000    random looks at a million of them"
)]
pub struct MdtestArgs {
    /// Files, and directories, of each client.
    #[arg(short = 'n', default_value_t = 1000)]
    pub items: u64,
    /// Directories in each directory of the tree they are spread over.
    #[arg(short = 'b', default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub branch: u64,
    /// Levels of that tree.
    #[arg(short = 'z', default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=12))]
    pub depth_of_tree: u32,
    /// Items of each directory of the tree, instead of -n.
    #[arg(short = 'I')]
    pub per_directory: Option<u64>,
    /// A tree of its own for each client.
    #[arg(short = 'u')]
    pub unique: bool,
    /// Files only.
    #[arg(short = 'F')]
    pub files: bool,
    /// Directories only.
    #[arg(short = 'D', conflicts_with = "files")]
    pub directories: bool,
    /// Create only.
    #[arg(short = 'C')]
    pub create: bool,
    /// Stat only.
    #[arg(short = 'T')]
    pub stat: bool,
    /// Read only.
    #[arg(short = 'E')]
    pub read: bool,
    /// Remove only.
    #[arg(short = 'r')]
    pub remove: bool,
    /// Rename only.
    #[arg(long)]
    pub rename: bool,
    /// Look at and read items at random, each as likely as any other, instead of one after the other.
    #[arg(short = 'R')]
    pub random: bool,
    /// With -R: so many looks, and reads, of each client. [default: as many as it has items]
    #[arg(long, value_name = "N", requires = "random")]
    pub accesses: Option<u64>,
    /// With -R: another choice of items for each number.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "random")]
    pub seed: u64,
    /// Number of each client's first item: items with lower numbers stay as they are.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "random")]
    pub from: u64,
    /// Bytes written to each file.
    #[arg(short = 'w', default_value_t = 0)]
    pub write_bytes: u64,
    /// Clients, each a thread with a session of its own.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub clients: u64,
    /// Requests in flight, per client.
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    /// Resolve the whole path for every operation, instead of working from open directories.
    #[arg(long)]
    pub paths: bool,
    /// The directory in which it happens.
    #[arg(short = 'd', value_name = "PATH", default_value = "/pando-mdtest")]
    pub base: OsString,
    /// How clients wait for answers.
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub waiting: Wait,
}

/// What is done to each item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    DirCreate,
    DirStat,
    DirRename,
    DirRemove,
    FileCreate,
    FileStat,
    FileRead,
    FileRename,
    FileRemove,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::DirCreate => "dir-create",
            Phase::DirStat => "dir-stat",
            Phase::DirRename => "dir-rename",
            Phase::DirRemove => "dir-remove",
            Phase::FileCreate => "file-create",
            Phase::FileStat => "file-stat",
            Phase::FileRead => "file-read",
            Phase::FileRename => "file-rename",
            Phase::FileRemove => "file-remove",
        }
    }

    /// Whether it can be done to an item as often as one likes.
    fn may_repeat(self) -> bool {
        matches!(self, Phase::DirStat | Phase::FileStat | Phase::FileRead)
    }

    /// Operations that it takes.
    fn operations(self) -> u32 {
        match self {
            Phase::DirRename | Phase::FileRename => 2,
            _ => 1,
        }
    }
}

fn phases(args: &MdtestArgs) -> Vec<Phase> {
    let all = !(args.create || args.stat || args.read || args.rename || args.remove);
    let wanted = |p: &Phase| {
        let kind = match p {
            Phase::DirCreate | Phase::DirStat | Phase::DirRename | Phase::DirRemove => !args.files,
            _ => !args.directories,
        };
        let what = match p {
            Phase::DirCreate | Phase::FileCreate => args.create,
            Phase::DirStat | Phase::FileStat => args.stat,
            Phase::FileRead => args.read,
            Phase::DirRename | Phase::FileRename => args.rename,
            Phase::DirRemove | Phase::FileRemove => args.remove,
        };
        kind && (all || what)
    };
    let order = [
        Phase::DirCreate,
        Phase::DirStat,
        Phase::DirRename,
        Phase::DirRemove,
        Phase::FileCreate,
        Phase::FileStat,
        Phase::FileRead,
        Phase::FileRename,
        Phase::FileRemove,
    ];
    order.into_iter().filter(wanted).collect()
}

/// Paths of the tree's directories below its root, parents first.
fn tree(args: &MdtestArgs) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut level = all.clone();
    for _ in 0..args.depth_of_tree {
        let children = |parent: &String| {
            let parent = parent.clone();
            (0..args.branch).map(move |i| format!("{parent}/mdtest_tree.{i}"))
        };
        level = level.iter().flat_map(children).collect();
        all.extend(level.iter().cloned());
    }
    all
}

/// One client with its directories open.
struct Worker {
    client: Rc<Client>,
    blocks: Rc<dyn pando_data::Blocks>,
    cred: Cred,
    number: u64,
    dirs: Vec<(Vec<u8>, Statement)>,
    write: Vec<u8>,
    sync: DataSync,
    paths: bool,
}

pub fn run(args: &Args, md: &MdtestArgs) -> Result<Figures> {
    let dir = ClusterDir::of(args)?;
    let file = dir.load()?;
    let phases = phases(md);
    if phases.is_empty() {
        bail!("directories are not read: -E goes with files (leave out -D)");
    }
    let tree = tree(md);
    let items = md.per_directory.map_or(md.items, |i| i * tree.len() as u64);
    let base = absolute(&md.base);
    let keeps = (md.create || md.stat || md.read || md.rename) && !md.remove;

    let first = connect(&dir, md.waiting, args.paths)?;
    let roots: Vec<Vec<u8>> = if md.unique {
        (0..md.clients)
            .map(|c| below(&base, format!("client.{c}").as_bytes()))
            .collect()
    } else {
        vec![base.clone()]
    };
    let of_tree = tree.len() > 1 || md.unique;
    let made = first.run(make_trees(&first, &roots, &tree))?;

    let watch = Watch::of(&dir, &file);
    let together = Phases::new(&watch, md.clients as usize);
    let parts = on_threads(md.clients as usize, |number| {
        let root = &roots[number % roots.len()];
        let worker = connect(&dir, md.waiting, args.paths).and_then(|conn| {
            let worker = Worker::open(&conn, md, number as u64, root, &tree)?;
            Ok((conn, Rc::new(worker)))
        });
        let part = |phase: &Phase| match &worker {
            Ok((conn, worker)) => worker.phase(conn, *phase, items, md),
            Err(e) => {
                let mut meter = Meter::new()?;
                meter.failed(|| format!("{e:#}"));
                Ok(meter)
            }
        };
        let meters: Vec<Result<Meter>> = phases.iter().map(|p| together.part(|| part(p))).collect();
        meters.into_iter().collect::<Result<Vec<Meter>>>()
    })?;
    let mut by_phase: Vec<Vec<Meter>> = phases.iter().map(|_| Vec::new()).collect();
    for client in parts {
        for (phase, meter) in by_phase.iter_mut().zip(client) {
            phase.push(meter);
        }
    }
    let sum = |(n, (phase, meters)): (usize, (&Phase, Vec<Meter>))| {
        let mut measured = Meter::sum(phase.name(), meters, true)?;
        measured.spent = together.spent(n, measured.ops);
        Ok(measured)
    };
    let measured = phases.iter().zip(by_phase).enumerate().map(sum);
    let mut results: Vec<Measured> = measured.collect::<Result<_>>()?;
    if of_tree {
        results.insert(0, Meter::sum("tree-create", vec![made], true)?);
    }
    if !keeps {
        let removed = first.run(remove_trees(&first, &roots, &tree, &base, md.unique))?;
        if of_tree {
            results.push(Meter::sum("tree-remove", vec![removed], true)?);
        }
    }
    let params = json!({
        "n": items, "b": md.branch, "z": md.depth_of_tree, "u": md.unique, "w": md.write_bytes, "clients": md.clients,
        "depth": md.depth, "paths": md.paths, "random": md.random, "accesses": md.accesses, "seed": md.seed, "from": md.from,
        "record_mib": watch.record_mib(), "waiting": md.waiting.name(), "servers": file.servers.len(),
        "durability": file.durability,
    });
    Ok(Figures {
        bench: "mdtest",
        profile: Some(file.profile.name),
        params,
        results,
    })
}

async fn make_trees(conn: &Connection, roots: &[Vec<u8>], tree: &[String]) -> Result<Meter> {
    let (cred, mut meter) = (my_cred(), Meter::new()?);
    let before = conn.client.stats().round_trips;
    for root in roots {
        for dir in tree {
            let path = [root.as_slice(), dir.as_bytes()].concat();
            let began = Instant::now();
            conn.client
                .mkdir_all(&cred, &path, Perm::new(0o755))
                .await
                .with_context(|| format!("cannot make {}", crate::text::printable(&path)))?;
            meter.record(began.elapsed());
        }
    }
    meter.end(conn.client.stats().round_trips - before);
    Ok(meter)
}

/// What is not empty stays.
async fn remove_trees(
    conn: &Connection,
    roots: &[Vec<u8>],
    tree: &[String],
    base: &[u8],
    unique: bool,
) -> Result<Meter> {
    let (cred, mut meter) = (my_cred(), Meter::new()?);
    let before = conn.client.stats().round_trips;
    for root in roots {
        for dir in tree.iter().rev() {
            let path = [root.as_slice(), dir.as_bytes()].concat();
            let began = Instant::now();
            if conn.client.rmdir(&cred, &path).await.is_ok() {
                meter.record(began.elapsed());
            }
        }
    }
    meter.end(conn.client.stats().round_trips - before);
    if unique {
        let _ = conn.client.rmdir(&cred, base).await;
    }
    Ok(meter)
}

impl Worker {
    fn open(conn: &Connection, md: &MdtestArgs, number: u64, root: &[u8], tree: &[String]) -> Result<Worker> {
        let cred = my_cred();
        let mut dirs = Vec::new();
        for dir in tree {
            let path = [root, dir.as_bytes()].concat();
            let found = conn.run(conn.client.hold_path(&cred, &path, true))?;
            dirs.push((path, found.entry.dir.context("not a directory")?));
        }
        let sync = if conn.file.durability == "async" {
            DataSync::OnFsync
        } else {
            DataSync::BeforePublish
        };
        Ok(Worker {
            client: conn.client.clone(),
            blocks: conn.blocks.clone(),
            cred,
            number,
            dirs,
            write: vec![b'm'; usize::try_from(md.write_bytes)?],
            sync,
            paths: md.paths,
        })
    }

    /// All items of this client, some at a time.
    fn phase(self: &Rc<Self>, conn: &Connection, phase: Phase, items: u64, md: &MdtestArgs) -> Result<Meter> {
        let depth = md.depth.max(1);
        let random = md.random && phase.may_repeat();
        let most = md.accesses.filter(|_| random).unwrap_or(items);
        let meter = Rc::new(RefCell::new(Meter::new()?));
        let next = Rc::new(Cell::new(0));
        let crew = Crew::new(conn.reactor.clone(), depth);
        let before = self.client.stats().round_trips;
        let (from, seed) = (md.from, if md.seed == 0 { 0 } else { mix(md.seed) });
        for _ in 0..depth {
            let (me, meter, next) = (self.clone(), meter.clone(), next.clone());
            crew.add(async move {
                while next.get() < most {
                    let item = next.replace(next.get() + 1);
                    let item = if random {
                        // The same in every run.
                        mix(item ^ (me.number << 40) ^ seed) % items
                    } else {
                        from.saturating_add(item)
                    };
                    let began = Instant::now();
                    match me.item(phase, item).await {
                        Ok(()) => {
                            let took = began.elapsed() / phase.operations();
                            (0..phase.operations()).for_each(|_| meter.borrow_mut().record(took));
                        }
                        Err(e) => meter
                            .borrow_mut()
                            .failed(|| format!("{} {item}: {e}", phase.name())),
                    }
                }
            });
        }
        conn.run(crew.finished());
        meter.borrow_mut().end(self.client.stats().round_trips - before);
        let done = meter.replace(Meter::new()?);
        Ok(done)
    }

    async fn item(&self, phase: Phase, item: u64) -> Result<(), Errno> {
        let client = &*self.client;
        let kind = match phase {
            Phase::DirCreate | Phase::DirStat | Phase::DirRename | Phase::DirRemove => "dir",
            _ => "file",
        };
        let (path, dir) = &self.dirs[(item % self.dirs.len() as u64) as usize];
        let text = format!("{kind}.mdtest.{}.{item}", self.number);
        let name = Name::new(text.as_bytes())?;
        let dir = if self.paths {
            // As a program without open directories does: the whole way, every time.
            let (dir, _) = client
                .parent_of(&self.cred, &below(path, text.as_bytes()))
                .await?;
            dir
        } else {
            dir.clone()
        };
        let op = match phase {
            Phase::DirCreate => Op::Mkdir {
                dir,
                name,
                mode: Perm::new(0o755).into(),
            },
            Phase::DirRemove => Op::Rmdir { dir, name },
            Phase::FileRemove => Op::Unlink {
                dir,
                name,
                held: false,
            },
            Phase::DirStat | Phase::FileStat => {
                let entry = client.lookup(&self.cred, &dir, &name).await?;
                return client.attr(&self.cred, &entry).await.map(|_| ());
            }
            Phase::DirRename | Phase::FileRename => {
                let other = Name::new(format!("{text}.renamed").as_bytes())?;
                self.rename(&dir, &name, &other).await?;
                return self.rename(&dir, &other, &name).await;
            }
            Phase::FileCreate => return self.create(Place { dir, name }).await,
            Phase::FileRead => return self.read(Place { dir, name }).await,
        };
        client.op(&self.cred, op).await.map(|_| ())
    }

    async fn rename(&self, dir: &Statement, from: &Name, to: &Name) -> Result<(), Errno> {
        let op = Op::Rename {
            src: dir.clone(),
            src_name: from.clone(),
            dst: dir.clone(),
            dst_name: to.clone(),
            mode: RenameMode::Replace,
            held: false,
        };
        self.client.op(&self.cred, op).await.map(|_| ())
    }

    async fn create(&self, place: Place) -> Result<(), Errno> {
        let client = &*self.client;
        let opened = file::create(client, &self.cred, &place, Perm::new(0o644), true, Access::WRITE).await?;
        if self.write.is_empty() {
            return Ok(());
        }
        let mut file = OpenFile::new(place, opened, self.sync)?;
        let now = file.attr().mtime;
        file.write(client, &*self.blocks, &self.cred, 0, &self.write, now)
            .await?;
        file.close(client, &*self.blocks, &self.cred).await
    }

    async fn read(&self, place: Place) -> Result<(), Errno> {
        let opened = file::open(&*self.client, &self.cred, &place, Access::READ).await?;
        let file = OpenFile::new(place, opened, self.sync)?;
        let mut offset = 0;
        while offset < file.size() {
            let data = file.read(&*self.blocks, offset, 1 << 20).await?;
            if data.is_empty() {
                return Err(Errno::Io);
            }
            offset += data.len() as u64;
        }
        Ok(())
    }
}
