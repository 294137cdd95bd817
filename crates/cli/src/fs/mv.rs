//! `pando mv`.

use super::{Fs, Why, absolute, base, below, nothing};
use anyhow::{Result, bail};
use pando_types::Errno;
use pando_wire::RenameMode;
use serde_json::Value;
use std::ffi::OsString;
use std::rc::Rc;

/// Rename, and move into directories.
///
/// Each rename happens at once or not at all, whatever is below.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando mv /a /b              rename, or move into /b if that is a directory\n  pando mv /a /b /c /dir      move three into a directory\n  pando mv --exchange /a /b   swap two"
)]
pub struct MvArgs {
    /// Do not replace what is there.
    #[arg(short, long)]
    pub no_clobber: bool,
    /// Swap the two.
    #[arg(long, conflicts_with = "no_clobber")]
    pub exchange: bool,
    /// DST is a name, never a directory to move into.
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// What to move.
    #[arg(value_name = "SRC", required = true)]
    pub sources: Vec<OsString>,
    /// Where to.
    #[arg(value_name = "DST")]
    pub target: OsString,
}

pub fn run(fs: &Rc<Fs>, args: &MvArgs) -> Result<Value> {
    let target = absolute(&args.target);
    let mode = match (args.no_clobber, args.exchange) {
        (true, _) => RenameMode::NoReplace,
        (_, true) => RenameMode::Exchange,
        _ => RenameMode::Replace,
    };
    let one = args.exchange || args.no_target_directory;
    if one && args.sources.len() > 1 {
        bail!("one SRC only with --exchange or -T");
    }
    let into = !one && fs.conn.run(is_dir(fs, &target));
    if args.sources.len() > 1 && !into {
        bail!(
            "{} is not a directory; several files are moved into a directory",
            crate::text::printable(&target)
        );
    }
    for source in &args.sources {
        let source = absolute(source);
        let to = if into {
            below(&target, base(&source))
        } else {
            target.clone()
        };
        if let Err(e) = fs.conn.run(fs.client().rename(&fs.cred, &source, &to, mode)) {
            fs.fail(&source, explain(e, &source, &to));
        }
    }
    Ok(nothing())
}

async fn is_dir(fs: &Rc<Fs>, path: &[u8]) -> bool {
    let found = fs.client().resolve(&fs.cred, path, true).await;
    found.is_ok_and(|f| f.entry.dir.is_some())
}

fn explain(e: Errno, from: &[u8], to: &[u8]) -> Why {
    let to = crate::text::printable(to);
    match e {
        Errno::Invalid if base(from).is_empty() => Why::Text("the root cannot be moved".into()),
        Errno::Invalid => Why::Text(format!("cannot be moved below itself, to {to}")),
        Errno::Exists => Why::Text(format!("{to} exists; leave out -n to replace it")),
        Errno::NotEmpty => Why::Text(format!("{to} is a directory with entries and is not replaced")),
        Errno::IsDir => Why::Text(format!("{to} is a directory and is not replaced by what is none")),
        Errno::NotDir => Why::Text(format!("{to}: not a directory")),
        Errno::Busy => Why::Text("the root, `.` and `..` cannot be moved".into()),
        e => Why::Errno(e),
    }
}
