//! `pando mount` and `pando umount`.

use crate::args::{Args, Mode, MountArgs};
use crate::cluster_dir::{self, ClusterDir};
use crate::connect::{Connection, Party, introduce};
use crate::{process, up};
use anyhow::{Context, Result, bail};
use pando_client::ClientConfig;
use pando_client::file::DataSync;
use pando_fuse::{MountOptions, NetCluster};
use pando_net::{Options, Waiting};
use std::path::Path;
use std::time::Duration;

pub fn run(args: &Args, mount: &MountArgs) -> Result<()> {
    let dir = ClusterDir::of(args)?;
    let mountpoint = std::path::absolute(&mount.mountpoint)?;
    if mount.foreground {
        return serve(&dir, mount, &mountpoint);
    }
    let fresh = up::mount(&dir, &mountpoint, &arguments(mount), false)?;
    if args.json {
        println!("{}", serde_json::json!({ "mount": mountpoint, "mounted": fresh }));
    } else if fresh {
        println!("Mounted {}; `pando umount {0}` ends it.", mountpoint.display());
    } else {
        println!("{} is mounted already.", mountpoint.display());
    }
    Ok(())
}

pub fn run_umount(args: &Args, mountpoint: &Path, lazy: bool) -> Result<()> {
    let mountpoint = std::path::absolute(mountpoint)?;
    pando_fuse::unmount(&mountpoint, lazy)?;
    if let Ok(dir) = ClusterDir::of(args) {
        // Its process publishes what is dirty before it ends.
        let lock = up::mount_lock(&mountpoint);
        process::wait_end(&dir, &lock, Duration::from_secs(30));
        let _ = std::fs::remove_file(dir.run().join(format!("{lock}.json")));
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
pub fn arguments(mount: &MountArgs) -> Vec<String> {
    let mut line = vec!["--timeout".to_owned(), mount.timeout.to_string()];
    if mount.read_only {
        line.push("--read-only".to_owned());
    }
    if mount.allow_other {
        line.push("--allow-other".to_owned());
    }
    line
}

fn serve(dir: &ClusterDir, mount: &MountArgs, mountpoint: &Path) -> Result<()> {
    let file = dir.load()?;
    let map = file.map(&dir.path)?;
    let lock = up::mount_lock(mountpoint);
    let Some(_running) = process::take_lock(dir, &lock)? else {
        bail!(
            "{} is mounted by another process (pid {:?})",
            mountpoint.display(),
            process::running(dir, &lock)
        );
    };
    say_who_is_away(dir)?;
    let me = introduce(dir, Party::Client, &map)?;
    let config = ClientConfig {
        identity: me.identity,
        own: me.own,
        ..ClientConfig::new(map)
    };
    let cluster = NetCluster::new(config, Options::default(), me.introduction, me.tls)
        .map_err(anyhow::Error::msg)
        .context("cannot use the block store")?;
    let mut options = MountOptions::new(mountpoint);
    options.timeout = Duration::try_from_secs_f64(mount.timeout).context("--timeout")?;
    options.read_only = mount.read_only;
    options.data_sync = if cluster_dir::mode(&file)? == Mode::Sync {
        DataSync::BeforePublish
    } else {
        DataSync::OnFsync
    };
    if mount.allow_other {
        options.allow_other = Some(true);
    }
    pando_fuse::serve(&options, cluster, |at| println!("mounted {}", at.display()))?;
    println!("unmounted {}", mountpoint.display());
    Ok(())
}

/// A mount waits for servers that are away; whoever mounts should know which those are.
fn say_who_is_away(dir: &ClusterDir) -> Result<()> {
    let connection = Connection::open(dir, Party::Client, Waiting::Blocking, Duration::from_millis(500))?;
    if connection.run(connection.client.root()).is_err() {
        let why = connection.trouble().unwrap_or_else(|| "no server answers".into());
        bail!("the filesystem cannot be reached: {why}; start its servers (`pando up`) and mount again");
    }
    Ok(())
}
