//! `pando down`: unmounts and stops what runs from this folder, whatever its map says: it may be lost, and
//! servers that have left are not in it.

use crate::args::Args;
use crate::cluster_dir::{ClusterDir, numbered};
use crate::mount::start;
use crate::{process, standby};
use anyhow::Result;
use std::time::Duration;

pub fn run(args: &Args) -> Result<()> {
    let dir = ClusterDir::of(args)?;
    let mut stopped = Vec::new();
    for mount in start::mounts(&dir)? {
        start::unmount(&dir, &mount)?;
        stopped.push(format!("mount {}", mount.mountpoint.display()));
    }
    // First, or they would take servers for lost.
    for id in numbered(&dir.run(), "standby-", ".lock")? {
        if process::stop(&dir, &standby::name(id), Duration::from_secs(15))? {
            stopped.push(format!("standby {id}"));
        }
    }
    for id in numbered(&dir.run(), "server-", ".lock")? {
        if process::stop(&dir, &format!("server-{id}"), Duration::from_secs(15))? {
            stopped.push(format!("server {id}"));
        }
    }
    if stopped.is_empty() {
        // Perhaps it is another folder that is meant.
        dir.load()?;
    }
    if args.json {
        println!("{}", serde_json::json!({ "stopped": stopped }));
    } else if stopped.is_empty() {
        println!("Nothing was running in {}.", dir.path.display());
    } else {
        println!(
            "Stopped {}. The data stays in {}.",
            stopped.join(", "),
            dir.path.display()
        );
    }
    Ok(())
}
