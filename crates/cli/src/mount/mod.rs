//! `pando mount` and `pando umount`.

pub mod helper;
pub mod options;
pub mod serving;
pub mod start;

use crate::args::{Args, Mode, MountArgs};
use crate::blocks;
use crate::cluster_dir::{self, ClusterDir};
use crate::connect::{Connection, Party, introduce};
use anyhow::{Context, Result, bail};
use options::Words;
use pando_client::ClientConfig;
use pando_client::file::DataSync;
use pando_fuse::{MountOptions, NetCluster, table};
use pando_net::{Options, Waiting};
use pando_types::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For how long names and attributes are believed, unless something else is said.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a process may take to end whose mount was taken away from its users: it goes on for as long as
/// they do.
const LAZY_PATIENCE: Duration = Duration::from_secs(2);

pub fn run(args: &Args, mount: &MountArgs) -> Result<()> {
    let mut dir = ClusterDir::of(args)?;
    let mountpoint = place(&mount.mountpoint)?;
    let words = words(mount)?;
    if words.remount {
        return remount(args, &dir, &mountpoint, &words);
    }
    dir.key = words.key.clone().or(dir.key);
    if mount.foreground {
        return serve(&dir, mount, &words, &mountpoint);
    }
    let fresh = start::mount(
        &dir,
        &mountpoint,
        &arguments(&words, mount.source.as_deref()),
        false,
    )?;
    if args.json {
        println!("{}", serde_json::json!({ "mount": mountpoint, "mounted": fresh }));
    } else if fresh {
        println!("Mounted {}; `pando umount {0}` ends it.", mountpoint.display());
    } else {
        println!("{} is mounted already.", mountpoint.display());
    }
    Ok(())
}

/// A directory as mount tables have it: without symbolic links. What does not exist, or does not answer,
/// stays as it is said.
pub fn place(mountpoint: &Path) -> Result<PathBuf> {
    // What is mounted is not looked at: it would wait for servers that are away.
    if let Ok(whole) = std::path::absolute(mountpoint)
        && let (Some(parent), Some(name)) = (whole.parent(), whole.file_name())
        && let Ok(parent) = parent.canonicalize()
    {
        let at = parent.join(name);
        if table::find(&at).is_some() {
            return Ok(at);
        }
    }
    match mountpoint.canonicalize() {
        Ok(path) => Ok(path),
        Err(_) => {
            std::path::absolute(mountpoint).with_context(|| format!("cannot use {}", mountpoint.display()))
        }
    }
}

/// Within how many seconds a file that stays open is published, unless something else is said.
pub const DEFAULT_PUBLISH: Duration = Duration::from_secs(5);

/// All that was said of a mount, in one form.
pub fn words(mount: &MountArgs) -> Result<Words> {
    let mut words = Words::default();
    for list in &mount.options {
        words.add(list).map_err(anyhow::Error::msg)?;
    }
    words
        .all_known()
        .map_err(|e| anyhow::anyhow!("{e}; `pando mount --help` lists them"))?;
    if mount.read_only {
        words.flags.push("ro".into());
    }
    words.allow_other |= mount.allow_other;
    words.timeout = mount.timeout.or(words.timeout);
    words.publish = mount.publish.or(words.publish);
    Ok(words)
}

fn remount(args: &Args, dir: &ClusterDir, mountpoint: &Path, words: &Words) -> Result<()> {
    let flags = helper::change(Some(dir), mountpoint, words)?;
    if args.json {
        println!(
            "{}",
            serde_json::json!({ "mount": mountpoint, "remounted": true, "read_only": flags.read_only() })
        );
    } else {
        let how = if flags.read_only() {
            "read-only"
        } else {
            "for changes too"
        };
        println!("{} is mounted {how}.", mountpoint.display());
    }
    Ok(())
}

pub fn run_umount(args: &Args, mountpoint: &Path, lazy: bool) -> Result<()> {
    let mountpoint = place(mountpoint)?;
    if let Some(other) = table::find(&mountpoint).filter(|m| m.kind != pando_fuse::TYPE) {
        bail!(
            "what is mounted at {0} is not Pando's but {1} ({2}), and stays; `umount {0}` would unmount it",
            mountpoint.display(),
            other.kind,
            other.source.display()
        );
    }
    // Whichever cluster they are of: nobody has to say --dir.
    let processes = serving::at(&mountpoint);
    pando_fuse::unmount(&mountpoint, lazy)?;
    let lock = start::lock_name(&mountpoint);
    let dirs = processes.iter().map(|p| p.dir.clone());
    for dir in dirs.chain(ClusterDir::of(args)) {
        start::forget(&dir, &lock);
    }
    let patience = if lazy {
        LAZY_PATIENCE
    } else {
        serving::END_PATIENCE
    };
    for process in &processes {
        // It publishes what is dirty before it ends.
        if process.wait(patience) {
            continue;
        }
        let why = serving::still_runs(&process.dir, &mountpoint, process.pid);
        if !lazy {
            bail!("{why}");
        }
        eprintln!("pando: {why}");
    }
    if args.json {
        println!(
            "{}",
            serde_json::json!({ "unmounted": mountpoint.to_string_lossy() })
        );
    }
    Ok(())
}

/// The command line that serves this mount in the background.
pub fn arguments(words: &Words, source: Option<&str>) -> Vec<String> {
    let mut line = Vec::new();
    if let Some(timeout) = words.timeout {
        line.extend(["--timeout".to_owned(), timeout.to_string()]);
    }
    if let Some(publish) = words.publish {
        line.extend(["--publish".to_owned(), publish.to_string()]);
    }
    if words.allow_other {
        line.push("--allow-other".to_owned());
    }
    if words.local_locks {
        line.extend(["-o".to_owned(), "nolock".to_owned()]);
    }
    if words.default_permissions {
        line.extend(["-o".to_owned(), "default_permissions".to_owned()]);
    }
    if !words.flags.is_empty() {
        line.extend(["-o".to_owned(), words.flags.join(",")]);
    }
    if let Some(source) = source {
        line.push(format!("--source={source}"));
    }
    line
}

fn serve(dir: &ClusterDir, mount: &MountArgs, words: &Words, mountpoint: &Path) -> Result<()> {
    let file = dir.load()?;
    let mut map = file.map(&dir.path)?;
    let _running = serving::take_lock(dir, mountpoint)?;
    let connection = look_ahead(dir)?;
    blocks::find(
        &mut map,
        || blocks::servers_have(&connection),
        words.for_new().read_only(),
    )?;
    drop(connection);
    let me = introduce(dir, Party::Client, &map)?;
    let config = ClientConfig {
        identity: me.identity,
        own: me.own,
        ..ClientConfig::new(map)
    };
    // Each of its threads has a connection to each server.
    pando_net::raise_file_limit();
    let cluster = NetCluster::new(config, Options::default(), me.introduction, me.tls)
        .map_err(anyhow::Error::msg)
        .context("cannot use the block store")?
        .with_users(me.users)
        .with_maps(&dir.path, cluster_dir::map_in);
    let mut options = MountOptions::new(mountpoint);
    options.timeout = DEFAULT_TIMEOUT;
    if let Some(timeout) = words.timeout {
        options.timeout = Duration::try_from_secs_f64(timeout).context("--timeout")?;
    }
    options.publish = DEFAULT_PUBLISH;
    if let Some(publish) = words.publish {
        options.publish = Duration::try_from_secs_f64(publish).context("--publish")?;
    }
    options.flags = words.for_new();
    options.local_locks = words.local_locks;
    options.default_permissions = words.default_permissions;
    options.source.clone_from(&mount.source);
    options.data_sync = if cluster_dir::mode(&file)? == Mode::Sync {
        DataSync::BeforePublish
    } else {
        DataSync::OnFsync
    };
    if words.allow_other {
        options.allow_other = Some(true);
    }
    pando_fuse::serve(&options, cluster, |at| println!("mounted {}", at.display()))?;
    println!("unmounted {}", mountpoint.display());
    Ok(())
}

/// A mount waits for servers that are away; whoever mounts should know which those are, and that there is
/// nothing to mount, before.
fn look_ahead(dir: &ClusterDir) -> Result<Connection> {
    let connection = Connection::open(dir, Party::Client, Waiting::Blocking, Duration::from_millis(500))?;
    match connection.run(connection.client.root()) {
        Ok(_) => Ok(connection),
        Err(Errno::Unreachable) => {
            let why = connection.trouble().unwrap_or_else(|| "no server answers".into());
            bail!("the filesystem cannot be reached: {why}; start its servers (`pando up`) and mount again");
        }
        Err(why) => bail!("{}{}", pando_fuse::no_root(why), connection.because()),
    }
}
