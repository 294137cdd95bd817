//! `pando cat`.

use super::copy::{drain, open};
use super::{Fs, Why, absolute};
use anyhow::{Result, bail};
use pando_client::file::Place;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::rc::Rc;

/// Print files, one after the other.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  pando cat /etc/motd /etc/issue")]
pub struct CatArgs {
    /// Which.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
}

pub fn run(fs: &Rc<Fs>, args: &CatArgs) -> Result<Value> {
    if fs.json {
        bail!("cat prints bytes, not JSON; leave out --json, or see `pando stat --json`");
    }
    for path in &args.paths {
        let path = absolute(path);
        if let Err(why) = fs.conn.run(print(fs, &path)) {
            fs.fail(&path, why);
        }
    }
    Ok(json!({}))
}

/// Writes a file to standard output.
pub async fn print(fs: &Rc<Fs>, path: &[u8]) -> Result<(), Why> {
    let found = fs.client().hold_path(&fs.cred, path, true).await?;
    if found.entry.dir.is_some() {
        return Err("is a directory; `pando ls` shows what is in it".into());
    }
    let place = Place {
        dir: found.parent,
        name: found.name,
    };
    let file = open(fs, place).await?;
    drain(fs, &file, &mut Out, &|_| {}).await
}

/// Standard output. A reader that went away (`| head`) ends the program quietly.
struct Out;

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match super::print(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(e) => Err(std::io::Error::other(e)),
        }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}
