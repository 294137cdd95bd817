//! `pando format`: a new, empty filesystem.

use crate::args::{Args, Choices, FormatArgs, Without};
use crate::cluster_dir::{ClusterDir, FORMAT_LOCK};
use crate::pki::Authority;
use crate::process::RunLock;
use crate::{coordination, process, stores};
use anyhow::{Context, Result, bail};
use pando_auth::Secret;
use pando_cluster::{ClusterFile, DirectoryUpdates, PlanText, Profile, Server};
use pando_data::DirBlocks;
use pando_types::{AuthMode, SLOTS};
use std::io::Read;
use std::net::{TcpListener, ToSocketAddrs};
use std::path::Path;

/// Size of blocks of files above the inline limit.
const BLOCK_SIZE: u32 = 4 << 20;
/// Where a server's metrics are, from its address.
const METRICS_OFFSET: u16 = 1000;
/// The first port on an address of one's own.
const FIRST_PORT: u16 = 7400;

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

/// Servers of this machine, `first` the number of the first of them.
///
/// They are at a loopback address of their own, drawn at random: on 127.0.0.1 any program's outgoing connection, or another
/// filesystem, can have the port of a server that is down when it comes back. Certificates of one's own are made for a
/// host, so with `tls` it is 127.0.0.1, and ports that the kernel gives to nobody by itself.
pub fn on_loopback(first: u16, servers: u16, auth: AuthMode) -> Result<Vec<Server>> {
    let random = random_key()?;
    let (host, port) = match auth {
        AuthMode::Tls => (
            "127.0.0.1".to_owned(),
            10_000 + u16::from_le_bytes([random[0], random[1]]) % 16_384,
        ),
        AuthMode::None | AuthMode::Key => {
            let [a, b, c] = [random[0], random[1], random[2]].map(|part| part.clamp(1, 254));
            (format!("127.{a}.{b}.{c}"), FIRST_PORT)
        }
    };
    let free = |address: &str| TcpListener::bind(address).is_ok();
    let found: Vec<Server> = (port..=u16::MAX - METRICS_OFFSET)
        .map(|port| server_at(first, &format!("{host}:{port}")))
        .filter(|s| s.as_ref().map_or(true, |s| free(&s.address) && free(&s.metrics)))
        .take(usize::from(servers))
        .zip(first..)
        .map(|(server, id)| server.map(|s| Server { id, ..s }))
        .collect::<Result<_>>()?;
    if found.len() < usize::from(servers) {
        bail!("cannot find free ports on {host}; is its interface, lo, up?");
    }
    Ok(found)
}

/// A server at `HOST:PORT`.
pub fn server_at(id: u16, address: &str) -> Result<Server> {
    let port = address
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let (host, port) = port.with_context(|| format!("{address:?} is not HOST:PORT"))?;
    let metrics = port
        .checked_add(METRICS_OFFSET)
        .context("no port left for metrics")?;
    Ok(Server {
        id,
        address: address.to_owned(),
        metrics: format!("{host}:{metrics}"),
    })
}

/// Makes stores and, last, `cluster.json`: a cluster without that file does not exist.
pub fn make(
    dir: &ClusterDir,
    servers: Vec<Server>,
    blocks: Option<&Path>,
    choices: &Choices,
) -> Result<ClusterFile> {
    if !["pando", "infinifs"].contains(&choices.profile.as_str()) {
        bail!(
            "profile {:?} is not there yet; there are: pando, infinifs",
            choices.profile
        );
    }
    let decoupled = choices.without != Some(Without::Decoupling);
    if !decoupled && choices.profile != "infinifs" {
        bail!(
            "--without is for experiments with --profile infinifs, not for a filesystem that is to be used"
        );
    }
    let updates = match choices.profile.as_str() {
        "infinifs" => DirectoryUpdates::TwoPhase,
        _ => DirectoryUpdates::ParentFirst,
    };
    let id = std::fs::read("/proc/sys/kernel/random/uuid").context("cannot get random bits")?;
    let fs: String = id
        .iter()
        .filter(|b| b.is_ascii_hexdigit())
        .map(|b| char::from(*b))
        .collect();
    let n = servers.len();
    let slot = |i: usize| (i * usize::from(SLOTS) / n) as u16;
    let file = ClusterFile {
        format: 1,
        fs,
        epoch: 1,
        profile: Profile {
            name: choices.profile.clone(),
            placement: Profile::placement_word(decoupled),
            directory_updates: Profile::updates_word(updates),
            coherence: Profile::coherence_word(choices.coherence),
            store: "rocksdb".into(),
        },
        durability: choices.durability.word().into(),
        slots: servers
            .iter()
            .enumerate()
            .map(|(i, s)| (slot(i), slot(i + 1), s.id))
            .collect(),
        keeper: servers.first().map(|s| s.id),
        term: 1,
        coordinator: servers.first().context("a cluster has at least one server")?.id,
        servers,
        inline_limit: choices.inline_limit,
        block_size: BLOCK_SIZE,
        blocks: format!("file:{}", blocks.unwrap_or(Path::new("blocks")).display()),
        name_bits: 55,
        id_bits: choices.id_bits,
        auth: choices.auth.mode().word().into(),
        coord: choices.coord.to_string(),
        plan: PlanText::default(),
    };
    let map = file.map(&dir.path)?;
    for server in &map.servers {
        stays_here(map.auth, &server.address)?;
    }
    coordination::suits(&choices.coord, &map)?;
    let making = begin(dir)?;
    let blocks = map.blocks.strip_prefix("file:").unwrap_or("blocks");
    DirBlocks::create(blocks).with_context(|| format!("cannot make the block store {blocks}"))?;
    let owner = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    for server in &map.servers {
        stores::make(&dir.store(server.id.0), server.id, &map, owner)?;
    }
    if map.auth == AuthMode::Tls {
        Authority::make(dir, &map)?;
    }
    dir.save_secret(&Secret::new(random_key()?))?;
    // Last but one: whatever fails before leaves nothing anywhere but in this folder, where it does not count yet.
    coordination::create(dir, &file)?;
    dir.save(&file)?;
    std::fs::remove_file(process::lock_path(dir, FORMAT_LOCK))?;
    drop(making);
    Ok(file)
}

/// Begins to make a filesystem: from here on until there is one, stores that were never used are what an interrupted format
/// left, and no other command makes one here.
fn begin(dir: &ClusterDir) -> Result<RunLock> {
    dir.make_run()?;
    stores::has_room(&dir.path)?;
    stores::clear(dir, dir.was_interrupted())?;
    let Some(making) = process::take_lock(dir, FORMAT_LOCK)? else {
        bail!(
            "another command makes a filesystem in {} just now; wait until it is done",
            dir.path.display()
        );
    };
    if dir.exists() {
        bail!(
            "another command has just made a filesystem in {}",
            dir.path.display()
        );
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

/// Whoever asks nobody who they are must not be reached from other machines.
pub fn stays_here(mode: AuthMode, address: &str) -> Result<()> {
    if mode != AuthMode::None {
        return Ok(());
    }
    let found = address
        .to_socket_addrs()
        .with_context(|| format!("cannot find the address {address}"))?;
    for at in found {
        if !at.ip().is_loopback() {
            bail!(
                "a server at {address} could be reached from other machines, and this filesystem asks nobody who they \
                 are; make it with --auth key or --auth tls, or with addresses of 127.0.0.1"
            );
        }
    }
    Ok(())
}
