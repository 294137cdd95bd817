//! `pando ln`.

use super::{Fs, absolute, base, below, nothing};
use anyhow::Result;
use pando_client::Client;
use pando_types::Errno;
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

/// Give the file TARGET another name, PATH; or make a symbolic link at PATH that leads to TARGET.
///
/// A file and its names may be in any directories of the filesystem. All names are equal, and the file is
/// there until the last is removed. Directories cannot have several.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando ln /data/a /other/b\n  pando ln -s /data/v2 /current\n  pando ln -sf ../v3 /links/current"
)]
pub struct LnArgs {
    /// A symbolic link.
    #[arg(short, long)]
    pub symbolic: bool,
    /// Replace what is at PATH, unless it is a directory.
    #[arg(short, long)]
    pub force: bool,
    /// The file; or where a symbolic link leads: any text, also what is not there.
    pub target: OsString,
    /// The name; in a directory it is the target's last name.
    pub path: OsString,
}

pub fn run(fs: &Rc<Fs>, args: &LnArgs) -> Result<Value> {
    let path = absolute(&args.path);
    if let Err(e) = fs.conn.run(link(fs, args, &path)) {
        fs.fail(&path, e);
    }
    Ok(nothing())
}

async fn link(fs: &Rc<Fs>, args: &LnArgs, path: &[u8]) -> Result<(), Errno> {
    let (client, target) = (fs.client(), args.target.as_bytes());
    let found = client.resolve(&fs.cred, path, true).await;
    let path = match found {
        Ok(found) if found.entry.dir.is_some() => below(path, base(target)),
        _ => path.to_vec(),
    };
    match make(client, fs, args, &path).await {
        Err(Errno::Exists) if args.force && !same(client, fs, args, &path).await? => {
            client.unlink(&fs.cred, &path).await?;
            make(client, fs, args, &path).await
        }
        other => other,
    }
}

async fn make(client: &Client, fs: &Fs, args: &LnArgs, path: &[u8]) -> Result<(), Errno> {
    let made = if args.symbolic {
        client.symlink(&fs.cred, args.target.as_bytes(), path).await
    } else {
        client.link(&fs.cred, &absolute(&args.target), path).await
    };
    made.map(|_| ())
}

/// Whether both are names of one file already: neither is to be removed.
async fn same(client: &Client, fs: &Fs, args: &LnArgs, path: &[u8]) -> Result<bool, Errno> {
    if args.symbolic {
        return Ok(false);
    }
    let there = client.stat(&fs.cred, path, false).await?;
    let target = client.stat(&fs.cred, &absolute(&args.target), false).await?;
    Ok((there.ino, there.generation) == (target.ino, target.generation))
}
