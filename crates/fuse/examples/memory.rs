//! A filesystem whose servers live and die with this process, mounted: for trying programs on it.
//!
//! `cargo run -p pando-fuse --release --example memory -- DIR [INLINE_LIMIT BLOCK_SIZE] [SERVERS]
//! [TIMEOUT_MS] [MOUNTPOINT2]`

#[path = "../tests/it/support/mod.rs"]
mod support;

use pando_fuse::{MountOptions, mount, serve};
use std::time::Duration;

fn main() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u32| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let Some(mountpoint) = args.first() else {
        eprintln!("usage: memory DIR [INLINE_LIMIT BLOCK_SIZE] [SERVERS] [TIMEOUT_MS] [MOUNTPOINT2]");
        return;
    };
    let data = match tempfile::tempdir() {
        Ok(d) => d,
        Err(e) => return eprintln!("{e}"),
    };
    let sizes = support::Sizes {
        inline_limit: number(1, 64 * 1024),
        block_size: number(2, 4 << 20),
        servers: number(3, 4) as u16,
    };
    let mut options = MountOptions::new(mountpoint);
    options.timeout = Duration::from_millis(u64::from(number(4, 1000)));
    // Signals are blocked before the first thread starts.
    let block = nix::sys::signal::SigSet::all().thread_block();
    let cluster = support::TestCluster::start(data.path(), sizes);
    let second = args.get(5).map(|m| {
        let options = MountOptions {
            mountpoint: m.into(),
            ..options.clone()
        };
        mount(&options, cluster.cluster())
    });
    if let Some(Err(e)) = &second {
        return eprintln!("{e}");
    }
    let result = block.map_err(|e| e.to_string()).and_then(|()| {
        serve(&options, cluster.cluster(), |at| {
            eprintln!("mounted {}", at.display())
        })
        .map_err(|e| e.to_string())
    });
    drop(second);
    if let Err(e) = result {
        eprintln!("{e}");
    }
}
