//! `pando format`: a new, empty filesystem.

use crate::addresses::{on_loopback, server_at, stays_here};
use crate::args::{Args, Choices, FormatArgs, Without};
use crate::cluster_dir::{ClusterDir, FORMAT_LOCK};
use crate::pki::Authority;
use crate::process::RunLock;
use crate::{coordination, process, stores};
use anyhow::{Context, Result, bail};
use pando_auth::Secret;
use pando_blocks::Store;
use pando_cluster::{
    ClusterFile, ClusterMap, Coherence, DirectoryUpdates, Placement, PlanText, Profile, Server,
};
use pando_types::{AuthMode, Division, Ids, SLOTS};
use std::io::Read;

/// Entries above which a directory is split, as in IndexFS (§II-A).
const SPLIT_ENTRIES: u32 = 2000;

/// Size of blocks of files above the inline limit.
const BLOCK_SIZE: u32 = 4 << 20;

pub fn run(args: &Args, format: &FormatArgs) -> Result<()> {
    let dir = ClusterDir::of(args)?;
    if dir.exists() {
        bail!(
            "{} holds a filesystem already; nothing was changed. Say another --dir.",
            dir.path.display()
        );
    }
    let servers = if format.addresses.is_empty() {
        on_loopback(0, format.servers, format.choices.auth.mode())?
    } else {
        let at = |(id, address): (usize, &String)| server_at(u16::try_from(id)?, address);
        format
            .addresses
            .iter()
            .enumerate()
            .map(at)
            .collect::<Result<_>>()?
    };
    let file = make(&dir, servers, format.blocks.as_deref(), &format.choices)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&file)?);
    } else {
        println!(
            "Made filesystem {} with {} servers in {}.",
            file.fs,
            file.servers.len(),
            dir.path.display()
        );
        println!(
            "Start it with `pando up --dir {0}`, or each server with `pando server --dir {0} --id N`.",
            dir.path.display()
        );
    }
    Ok(())
}

/// A profile: the choices its name stands for when a filesystem is made.
struct System {
    name: &'static str,
    updates: DirectoryUpdates,
    ids: Ids,
    division: Division,
}

const SYSTEMS: [System; 4] = [
    System {
        name: "pando",
        updates: DirectoryUpdates::ParentFirst,
        ids: Ids::Predicted,
        division: Division::Whole,
    },
    System {
        name: "infinifs",
        updates: DirectoryUpdates::TwoPhase,
        ids: Ids::Predicted,
        division: Division::Whole,
    },
    System {
        name: "indexfs",
        updates: DirectoryUpdates::ParentFirst,
        ids: Ids::Placed,
        division: Division::Halves,
    },
    System {
        name: "asyncfs",
        updates: DirectoryUpdates::TwoPhase,
        ids: Ids::Placed,
        division: Division::OneByOne,
    },
];

impl System {
    fn of(name: &str) -> Option<System> {
        SYSTEMS.into_iter().find(|s| s.name == name)
    }
}

/// Where such a filesystem has its entries; or why these choices do not go together.
fn placement(system: &System, choices: &Choices) -> Result<Placement> {
    if choices.split_entries.is_some() && system.division != Division::Halves {
        bail!(
            "--split-entries is for profiles that split directories (indexfs), not for {}",
            system.name
        );
    }
    match (choices.without, system.name) {
        (None, "asyncfs") => bail!(
            "profile \"asyncfs\" is begun: directories' lists cannot be changed later than their entries yet; say --without deferral to measure what it starts from"
        ),
        (None, _) | (Some(Without::Decoupling), "infinifs") | (Some(Without::Deferral), "asyncfs") => {}
        (Some(_), _) => bail!(
            "--without is for experiments, `decoupling` with --profile infinifs and `deferral` with --profile asyncfs, not for a filesystem that is to be used"
        ),
    }
    if system.division == Division::OneByOne && choices.coherence != Coherence::Lazy {
        bail!(
            "leases are for profiles whose directories are in one place or split; {} knows by its log of changes alone what is there",
            system.name
        );
    }
    Ok(match (choices.without, system.division) {
        (Some(Without::Decoupling), _) => Placement::Coupled,
        (_, Division::Whole) => Placement::Directory,
        (_, Division::Halves) => Placement::Split(choices.split_entries.unwrap_or(SPLIT_ENTRIES)),
        (_, Division::OneByOne) => Placement::Entry,
    })
}

/// Makes stores and, last, `cluster.json`: a cluster without that file does not exist.
pub fn make(
    dir: &ClusterDir,
    servers: Vec<Server>,
    blocks: Option<&str>,
    choices: &Choices,
) -> Result<ClusterFile> {
    let Some(system) = System::of(&choices.profile) else {
        bail!(
            "profile \"{}\" is not there yet; there are: {}",
            choices.profile,
            SYSTEMS.map(|s| s.name).join(", ")
        );
    };
    let placement = placement(&system, choices)?;
    let file = ClusterFile {
        format: Profile::form(system.ids),
        fs: new_fs()?,
        epoch: 1,
        profile: Profile {
            name: choices.profile.clone(),
            placement: placement.word(),
            ids: system.ids.word().into(),
            directory_updates: Profile::updates_word(system.updates),
            coherence: choices.coherence.word(),
            store: choices.store.word().into(),
        },
        durability: choices.durability.word().into(),
        slots: runs(&servers),
        keeper: servers.first().map(|s| s.id),
        term: 1,
        coordinator: servers.first().context("a cluster has at least one server")?.id,
        servers,
        inline_limit: choices.inline_limit,
        block_size: BLOCK_SIZE,
        blocks: blocks_at(blocks),
        name_bits: 55,
        id_bits: choices.id_bits,
        auth: choices.auth.mode().word().into(),
        coord: choices.coord.to_string(),
        plan: PlanText::default(),
    };
    make_as(dir, file, |map| {
        let owner = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        for server in &map.servers {
            stores::make(&dir.store(server.id.0), server.id, map, owner, choices.store)?;
        }
        Ok(|| Ok(()))
    })
}

/// A new name for a filesystem.
pub fn new_fs() -> Result<String> {
    let id = std::fs::read("/proc/sys/kernel/random/uuid").context("cannot get random bits")?;
    let digits = id.iter().filter(|b| b.is_ascii_hexdigit());
    Ok(digits.map(|b| char::from(*b)).collect())
}

/// All slots, spread evenly over these servers.
pub fn runs(servers: &[Server]) -> Vec<(u16, u16, u16)> {
    let n = servers.len().max(1);
    let slot = |i: usize| (i * usize::from(SLOTS) / n) as u16;
    let run = |(i, s): (usize, &Server)| (slot(i), slot(i + 1), s.id);
    servers.iter().enumerate().map(run).collect()
}

/// Where blocks are that somebody wants there, as `cluster.json` has it.
pub fn blocks_at(wanted: Option<&str>) -> String {
    match wanted {
        Some(url) if pando_blocks::is_bucket(url) => url.to_owned(),
        folder => format!("file:{}", folder.unwrap_or("blocks")),
    }
}

/// Makes the filesystem that a file describes; `fill` makes its stores, and says what makes them so that no
/// other command replaces them: that is done when all that may fail is done. Last comes `cluster.json`.
pub fn make_as<L: FnOnce() -> Result<()>>(
    dir: &ClusterDir,
    file: ClusterFile,
    fill: impl FnOnce(&ClusterMap) -> Result<L>,
) -> Result<ClusterFile> {
    let map = file.map(&dir.path)?;
    for server in &map.servers {
        stays_here(map.auth, &server.address)?;
    }
    coordination::suits(&coordination::place(&file)?, &map)?;
    let making = begin(dir)?;
    Store::create(&map.blocks, map.fs, Some(&dir.path))
        .with_context(|| format!("cannot make the block store {}", map.blocks))?;
    let last = fill(&map)?;
    if map.auth == AuthMode::Tls {
        Authority::make(dir, &map)?;
    }
    dir.save_secret(&Secret::new(random_key()?))?;
    // Last but one: whatever fails before leaves nothing anywhere but in this folder, where it does not count
    // yet.
    coordination::create(dir, &file)?;
    last()?;
    dir.save(&file)?;
    std::fs::remove_file(process::lock_path(dir, FORMAT_LOCK))?;
    drop(making);
    Ok(file)
}

/// Begins to make a filesystem: from here on until there is one, stores that were never used are what an
/// interrupted format left, and no other command makes one here.
fn begin(dir: &ClusterDir) -> Result<RunLock> {
    dir.make_run()?;
    stores::has_room(&dir.path)?;
    // Before the lock makes it look so.
    let interrupted = dir.was_interrupted();
    let Some(making) = process::take_lock(dir, FORMAT_LOCK)? else {
        bail!(
            "another command makes a filesystem in {} just now; wait until it is done",
            dir.path.display()
        );
    };
    let lock = process::lock_path(dir, FORMAT_LOCK);
    if dir.exists() {
        std::fs::remove_file(lock)?;
        bail!(
            "another command has just made a filesystem in {}",
            dir.path.display()
        );
    }
    if let Err(e) = stores::clear(dir, interrupted) {
        if !interrupted {
            std::fs::remove_file(lock)?;
        }
        return Err(e);
    }
    Ok(making)
}

/// Random bits that are fit for keys.
pub fn random_key() -> Result<[u8; 32]> {
    let mut random = [0; 32];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut random))
        .context("cannot get random bits")?;
    Ok(random)
}
