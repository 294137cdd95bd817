//! What can be typed.

use crate::connect::Paths;
use crate::standby::Watched;
use crate::store_kinds::StoreKind;
use crate::text;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use pando_cluster::Coherence;
use pando_coord::Place;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time that anything takes, in seconds.
const YEAR: u64 = 366 * 24 * 3600;

/// One directory tree, many servers: a metadata service for distributed filesystems.
#[derive(Parser, Debug)]
#[command(
    name = "pando",
    version,
    about,
    propagate_version = true,
    arg_required_else_help = true
)]
pub struct Args {
    /// Folder of the cluster: its map, and on this machine its servers' stores and logs.
    /// [default: ~/.local/share/pando/default]
    #[arg(long, global = true, env = "PANDO_DIR", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Key, or certificate with its key, that proves our identity in filesystems that ask. [default:
    /// client.key in the cluster's folder]
    #[arg(long, global = true, env = "PANDO_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Print JSON, for scripts.
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more (-v info, -vv debug).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Seconds to wait for a server that is away.
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=YEAR))]
    pub wait: u64,
    /// How paths are resolved.
    #[command(flatten)]
    pub paths: Paths,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// The options of the command that somebody typed, by their names here; the others have their defaults.
    #[arg(skip)]
    pub typed: BTreeSet<String>,
}

impl Args {
    /// What this process was told.
    pub fn of_process() -> Result<Args, clap::Error> {
        let line = crate::fs::as_options(std::env::args_os());
        let matches = Args::command().try_get_matches_from(line)?;
        let mut args = Args::from_arg_matches(&matches)?;
        if let Some((_, command)) = matches.subcommand() {
            let typed = |id: &&clap::Id| command.value_source(id.as_str()) == Some(ValueSource::CommandLine);
            args.typed = command.ids().filter(typed).map(clap::Id::to_string).collect();
        }
        Ok(args)
    }

    /// What another process of this program was told, by its command line.
    pub fn of_line(line: &[OsString]) -> Option<Args> {
        Args::try_parse_from(line).ok()
    }
}

/// Commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start a cluster on this machine: format it if new, start what does not run, mount it.
    Up(UpArgs),
    /// Unmount and stop what `up` started.
    Down,
    /// Make a new, empty filesystem.
    Format(FormatArgs),
    /// Run one metadata server in the foreground.
    Server(ServerArgs),
    #[command(flatten)]
    Fs(crate::fs::FsCommand),
    /// Show what each server does; fails if one is down.
    #[command(after_help = "Examples:\n  pando status\n  pando status --json | jq '.servers[].operations'")]
    Status,
    Locks(crate::locks::LocksArgs),
    Restart(crate::restart::RestartArgs),
    Map(crate::map::MapArgs),
    /// Add a server: it gets its share of the slots while everything goes on.
    Join(crate::grow::JoinArgs),
    /// Take a server's slots away and let it leave, while everything goes on.
    Drain(crate::grow::DrainArgs),
    /// Move as few slots as needed so that all servers have equally many.
    Rebalance(crate::grow::RebalanceArgs),
    Explain(crate::explain::ExplainArgs),
    /// Say who may connect, as whom and to what (modes `key` and `tls`; needs the cluster's secret).
    #[command(subcommand)]
    Auth(crate::auth::AuthCommand),
    Backup(crate::backup::BackupArgs),
    Restore(crate::backup::RestoreArgs),
    Fsck(crate::fsck::FsckArgs),
    Gc(crate::gc::GcArgs),
    /// Measure.
    #[command(subcommand)]
    Bench(crate::bench::BenchCommand),
    /// Simulate whole clusters under faults.
    #[command(subcommand)]
    Sim(crate::sim::SimCommand),
    Completion(crate::completion::CompletionArgs),
    /// Mount the filesystem.
    Mount(MountArgs),
    /// Unmount it.
    Umount {
        /// Where it is mounted.
        mountpoint: PathBuf,
        /// Take it away now, even if it is in use.
        #[arg(short, long)]
        lazy: bool,
    },
    /// Prove durability: change things, log what was acknowledged, and verify it after failures.
    #[command(subcommand)]
    Hammer(crate::hammer::Hammer),
}

/// Arguments of `up`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Choices of how a filesystem is made are for new ones. With a filesystem that was made otherwise, `up` refuses them."
)]
pub struct UpArgs {
    /// Servers of a new cluster. (`pando join` adds one to a cluster that exists.)
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub servers: u16,
    /// Processes that stand by on this machine, each to be the first server that is gone, now and whenever
    /// `up` is said again. [default: as said before, or 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=64))]
    pub standbys: Option<u16>,
    /// Where to mount it. Without: the servers only.
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Memory of each server for cached records, in MiB, from its next start on. [default: as said before, or
    /// as `pando server` has it]
    #[arg(long, value_name = "MIB")]
    pub record_mib: Option<usize>,
    /// How servers wait for work, from their next start on. [default: as said before, or adaptive]
    #[arg(long, value_enum)]
    pub waiting: Option<Wait>,
    /// How often blocks that belong to no file are removed without being asked, from the servers' next start
    /// on; 0s: never. [default: as said before, or 24h]
    #[arg(long, value_name = "TIME", value_parser = text::duration)]
    pub gc_every: Option<Duration>,
    /// Blocks written within this time are left alone then. [default: as said before, or 1h]
    #[arg(long, value_name = "TIME", value_parser = text::duration)]
    pub gc_grace: Option<Duration>,
    #[command(flatten)]
    pub choices: Choices,
}

/// Choices that are fixed when a filesystem is made.
#[derive(clap::Args, Debug, Clone)]
pub struct Choices {
    /// Profile of a new filesystem: `pando`, or a published system to measure against it, `infinifs`,
    /// `indexfs`, or (begun, with `--without deferral`) `asyncfs`.
    #[arg(long, value_name = "NAME", default_value = "pando")]
    pub profile: String,
    /// How what clients know of directories is kept true: `lazy` (servers are told of each change and refuse
    /// what is outdated), or leases: changes of a directory's name or permissions wait until what was told of
    /// it has run out. `lease=SECONDS`: always as long; `lease=depth:SECONDS`: divided by the directory's
    /// depth; `lease=rate:SECONDS`: shorter the more often it changes.
    #[arg(long, value_name = "lazy|lease[=[depth:|rate:]SECONDS]", default_value = "lazy", value_parser = coherence)]
    pub coherence: Coherence,
    /// Entries above which a directory is spread over more servers. Profile `indexfs` only. [default: 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000_000_000))]
    pub split_entries: Option<u32>,
    /// An experiment: leave out what a paper adds to its baseline, `decoupling` of profile `infinifs` or
    /// `deferral` of `asyncfs`.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub without: Option<Without>,
    /// When an answer is given: `sync` after fdatasync, `async` once the kernel has it (synced every 5 s).
    #[arg(long, value_enum, default_value_t = Mode::Sync)]
    pub durability: Mode,
    /// How clients identify themselves: `none` (they do not; on this machine only), `key` (a secret for
    /// each), or `tls` (a certificate for each, and everything encrypted).
    #[arg(long, value_enum, default_value_t = Auth::None)]
    pub auth: Auth,
    /// Coordination: it knows the servers, and which of them coordinates changes of directories. `dir` (files
    /// in the cluster's folder, for servers of one machine) or ZooKeeper, `zk://HOST:PORT,HOST:PORT[/NODE]`.
    #[arg(long, value_name = "dir|zk://...", default_value = "dir")]
    pub coord: Place,
    /// Kind of the servers' stores: in `column` compactions leave values of files alone, which spares slow
    /// devices, and reads of files that are not cached take one step more.
    #[arg(long, alias = "store-kind", value_enum, value_name = "KIND", default_value_t = StoreKind::NEW)]
    pub store: StoreKind,
    /// Largest file kept with its metadata, in bytes.
    #[arg(long, default_value_t = pando_wire::INLINE_LIMIT_DEFAULT, value_parser = clap::value_parser!(u32).range(0..=i64::from(pando_wire::INLINE_LIMIT_MAX)))]
    pub inline_limit: u32,
    /// Bits of directory IDs; fewer than 128 only in tests, for collisions.
    #[arg(long, hide = true, env = "PANDO_ID_BITS", default_value_t = 128, value_parser = clap::value_parser!(u8).range(8..=128))]
    pub id_bits: u8,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            profile: "pando".into(),
            coherence: Coherence::Lazy,
            split_entries: None,
            without: None,
            durability: Mode::Sync,
            auth: Auth::None,
            coord: Place::Dir,
            store: StoreKind::NEW,
            inline_limit: pando_wire::INLINE_LIMIT_DEFAULT,
            id_bits: 128,
        }
    }
}

fn coherence(text: &str) -> Result<Coherence, String> {
    Coherence::parse(text).ok_or_else(|| {
        format!("\"{text}\" is neither lazy nor lease=SECONDS, lease=depth:SECONDS, lease=rate:SECONDS")
    })
}

/// What can be left out.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Without {
    /// Counts and times of a directory on another server than its entries, so that creating a file concerns
    /// two.
    Decoupling,
    /// Changes of directories' lists put off and put together: each is made at once, by two-phase commit.
    Deferral,
}

/// Ways of identifying clients.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Auth {
    /// Nobody is asked; servers listen on the loopback address only.
    None,
    /// A secret key for each client.
    Key,
    /// A certificate for each client and each server.
    Tls,
}

impl Auth {
    /// As the map has it.
    pub fn mode(self) -> pando_types::AuthMode {
        match self {
            Auth::None => pando_types::AuthMode::None,
            Auth::Key => pando_types::AuthMode::Key,
            Auth::Tls => pando_types::AuthMode::Tls,
        }
    }
}

/// Durability.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// After fdatasync.
    Sync,
    /// Once the kernel has it.
    Async,
}

impl Mode {
    /// As the cluster's file has it.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Sync => "sync",
            Mode::Async => "async",
        }
    }
}

/// Arguments of `format`.
#[derive(clap::Args, Debug)]
pub struct FormatArgs {
    /// Servers on this machine, on free ports of the loopback address.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub servers: u16,
    /// `HOST:PORT` of each server instead, one option each; its metrics are at PORT+1000.
    #[arg(long = "server", value_name = "HOST:PORT")]
    pub addresses: Vec<String>,
    /// Where file data above the inline limit is stored: a folder that all clients and servers share, or
    /// s3://BUCKET/PREFIX (with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL).
    #[arg(long, value_name = "DIR|URL")]
    pub blocks: Option<String>,
    #[command(flatten)]
    pub choices: Choices,
}

/// Arguments of `server`.
#[derive(clap::Args, Debug)]
pub struct ServerArgs {
    /// Which server of the cluster this is.
    #[arg(long, required_unless_present = "standby", conflicts_with = "standby")]
    pub id: Option<u16>,
    /// Be none yet: watch servers, and be the first that is gone, at another address (docs/operations.md).
    #[arg(long)]
    pub standby: bool,
    /// Which servers a standby watches. `any`: those whose stores are in the cluster's folder.
    #[arg(
        long = "for",
        value_name = "ID,...|any",
        default_value = "any",
        requires = "standby",
        conflicts_with = "id"
    )]
    pub watched: Watched,
    /// `HOST:PORT` of a standby when it serves; its metrics are at PORT+1000. [default: free ports of the
    /// loopback address]
    #[arg(long, value_name = "HOST:PORT", requires = "standby", conflicts_with = "id")]
    pub address: Option<String>,
    /// Its store. [default: DIR/server-ID]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Fail if its store is of another kind.
    #[arg(long, value_enum, value_name = "KIND")]
    pub store_kind: Option<StoreKind>,
    /// Memory for cached blocks of the store, in MiB.
    #[arg(long, default_value_t = crate::store_kinds::CACHE_MIB)]
    pub cache_mib: usize,
    /// Memory for cached records, in front of that, in MiB. 0: none.
    #[arg(long, default_value_t = crate::store_kinds::RECORD_MIB)]
    pub record_mib: usize,
    /// How to wait for work: `adaptive` spins briefly while work is likely.
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub waiting: Wait,
    /// Growing operations are refused when less than this many MiB are free.
    #[arg(long, default_value_t = 64)]
    pub reserve_mib: u64,
    /// Memory that one identity can make this server hold, in MiB: what its clients have not taken yet and
    /// unfinished requests (with more, connections are closed), and half as much for requests being served
    /// (with more, they are asked to wait).
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(16..=65_536))]
    pub identity_mib: u64,
    /// How often the server that coordinates removes blocks that belong to no file, as `pando gc` does; 0s:
    /// never.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = text::duration)]
    pub gc_every: Duration,
    /// Blocks written within this time are left alone then. It is longer than clocks differ.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = text::duration)]
    pub gc_grace: Duration,
    /// Log as JSON lines.
    #[arg(long)]
    pub log_json: bool,
    /// Instead of serving: rewrite the store without what was removed or replaced, and end.
    #[arg(long, conflicts_with = "standby")]
    pub compact: bool,
    /// Instead of serving: if a table of the store is damaged, make the store anew of what is whole in it,
    /// and end.
    #[arg(long, conflicts_with_all = ["compact", "standby"])]
    pub salvage: bool,
    /// An emulated way: what it receives arrives so much later. Benchmarks start their own servers so.
    #[arg(long, hide = true, value_name = "TIME", value_parser = text::duration, default_value = "0s")]
    pub delay: Duration,
    /// End with the process that started it.
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

/// Ways of waiting.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Always sleep.
    Blocking,
    /// Spin while it pays.
    Adaptive,
    /// Never sleep.
    Polling,
}

/// Arguments of `mount`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Options of -o: ro, rw, allow_other, nolock, default_permissions, timeout=SECONDS, publish=SECONDS, key=FILE, those of the kernel (nosuid and nodev unless suid or dev are said; noexec,\nsync, ...), remount with ro or rw, and what fstab says to others (_netdev, noauto, nofail, x-...).\n\nExamples:\n  pando mount /mnt/pando\n  pando mount -o ro,noexec /mnt/pando\n  pando mount -o remount,rw /mnt/pando\n  mount -t fuse.pando /var/lib/pando /mnt/pando     (docs/operations.md says how; fstab too)"
)]
pub struct MountArgs {
    /// Where: an existing directory.
    pub mountpoint: PathBuf,
    /// Serve the mount in this process instead of in the background.
    #[arg(short, long)]
    pub foreground: bool,
    /// Seconds for which names and attributes may be believed: the only staleness between mounts. 0 asks
    /// every time. [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = crate::mount::options::seconds)]
    pub timeout: Option<f64>,
    /// Seconds after which what was written to a file that stays open is seen by other mounts, at the latest.
    /// 0: when it is closed or synced. [default: 5]
    #[arg(long, value_name = "SECONDS", value_parser = crate::mount::options::seconds)]
    pub publish: Option<f64>,
    /// Refuse all changes.
    #[arg(long)]
    pub read_only: bool,
    /// Let other users in (root does by default).
    #[arg(long)]
    pub allow_other: bool,
    /// Options as mount(8) has them.
    #[arg(short = 'o', long = "options", value_name = "OPTION,...")]
    pub options: Vec<String>,
    /// What mount tables show as the source.
    #[arg(long, hide = true)]
    pub source: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::{Args, CommandFactory};

    #[test]
    fn options_do_not_contradict_each_other() {
        Args::command().debug_assert();
    }
}
