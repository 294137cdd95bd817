//! `pando mkdir`.

use super::{Fs, absolute, nothing, octal, usual};
use anyhow::Result;
use pando_types::{AttrChange, Errno, Mode, Perm};
use serde_json::Value;
use std::ffi::OsString;
use std::rc::Rc;

/// Make directories.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  pando mkdir /projects\n  pando mkdir -p -m 750 /projects/a/b/c")]
pub struct MkdirArgs {
    /// Also those above that are missing; what exists is no error.
    #[arg(short, long)]
    pub parents: bool,
    /// Permission bits, in octal. [default: 777 without the umask]
    #[arg(short, long, value_parser = octal)]
    pub mode: Option<u16>,
    /// What to make.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
}

pub fn run(fs: &Rc<Fs>, args: &MkdirArgs) -> Result<Value> {
    for path in &args.paths {
        let path = absolute(path);
        if let Err(e) = fs.conn.run(make(fs, args, &path)) {
            fs.fail(&path, e);
        }
    }
    Ok(nothing())
}

async fn make(fs: &Rc<Fs>, args: &MkdirArgs, path: &[u8]) -> Result<(), Errno> {
    let client = fs.client();
    if args.parents {
        // Whoever asks for a/b/c must be able to make b in a.
        let Mode { perm, umask } = usual(0o777);
        let umask = Perm::new(umask.bits() & !0o300);
        let above = Mode { perm, umask };
        let cut = path.iter().rposition(|b| *b != b'/').map_or(0, |i| i + 1);
        let last = path[..cut].iter().rposition(|b| *b == b'/').unwrap_or(0);
        if last > 0 {
            client.mkdir_all(&fs.cred, &path[..last], above).await?;
        }
    }
    match client
        .mkdir(
            &fs.cred,
            path,
            args.mode.map_or(usual(0o777), |bits| Perm::new(bits).into()),
        )
        .await
    {
        Ok(_) => {}
        Err(Errno::Exists) if args.parents => {
            let found = client.resolve(&fs.cred, path, true).await?;
            return found.entry.dir.map(|_| ()).ok_or(Errno::Exists);
        }
        Err(e) => return Err(e),
    }
    // mkdir itself honours the permission and sticky bits only, as Linux does.
    if let Some(mode) = args.mode.filter(|m| m & 0o6000 != 0) {
        let change = AttrChange {
            perm: Some(Perm::new(mode)),
            ..AttrChange::default()
        };
        client.set_attr(&fs.cred, path, false, change).await?;
    }
    Ok(())
}
