//! `pando down`: unmounts and stops exactly what `pando up` started.

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::{process, up};
use anyhow::Result;
use std::time::Duration;

pub fn run(args: &Args) -> Result<()> {
    let dir = ClusterDir::of(args)?;
    let file = dir.load()?;
    let mut stopped = Vec::new();
    for mount in up::mounts(&dir)? {
        up::unmount(&dir, &mount)?;
        stopped.push(format!("mount {}", mount.mountpoint.display()));
    }
    for server in &file.servers {
        if process::stop(&dir, &format!("server-{}", server.id), Duration::from_secs(15))? {
            stopped.push(format!("server {}", server.id));
        }
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
