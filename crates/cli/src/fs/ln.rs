//! `pando ln`.

use super::{Fs, absolute, base, below, nothing};
use anyhow::{Result, bail};
use pando_types::Errno;
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

/// Make a symbolic link at PATH that leads to TARGET.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  pando ln -s /data/v2 /current\n  pando ln -sf ../v3 /links/current")]
pub struct LnArgs {
    /// A symbolic link: the only kind there is so far.
    #[arg(short, long)]
    pub symbolic: bool,
    /// Replace what is at PATH, unless it is a directory.
    #[arg(short, long)]
    pub force: bool,
    /// Where it leads; any text, also what is not there.
    pub target: OsString,
    /// The link; in a directory it gets the target's last name.
    pub path: OsString,
}

pub fn run(fs: &Rc<Fs>, args: &LnArgs) -> Result<Value> {
    if !args.symbolic {
        bail!("hard links are not supported yet; `pando ln -s` makes a symbolic link");
    }
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
    match client.symlink(&fs.cred, target, &path).await {
        Err(Errno::Exists) if args.force => {
            client.unlink(&fs.cred, &path).await?;
            client.symlink(&fs.cred, target, &path).await.map(|_| ())
        }
        other => other.map(|_| ()),
    }
}
