//! `pando chmod`, `chown`, `touch`, `truncate`.

use super::copy::data_sync;
use super::{Fs, Why, absolute, nothing, octal, usual};
use crate::text::Names;
use anyhow::{Context, Result};
use pando_client::file::{self, OpenFile, Place};
use pando_types::{Access, AttrChange, Errno, Perm, TimeChange, Timestamp};
use serde_json::Value;
use std::ffi::OsString;
use std::rc::Rc;

/// Change permission bits.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  pando chmod 640 /home/me/notes.txt")]
pub struct ChmodArgs {
    /// The bits, in octal.
    #[arg(value_parser = octal)]
    pub mode: u16,
    /// Of what.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
}

/// Change owners.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  pando chown 1000 /a\n  pando chown me:users /a /b\n  pando chown :users /a"
)]
pub struct ChownArgs {
    /// `USER`, `USER:GROUP` or `:GROUP`, names of this machine or numbers.
    #[arg(value_name = "UID[:GID]")]
    pub owner: String,
    /// Symbolic links themselves.
    #[arg(long)]
    pub no_dereference: bool,
    /// Of what.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
}

/// Create files that are not there, and set the times of those that are.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  pando touch /a /b\n  pando touch -d @1700000000.5 /a")]
pub struct TouchArgs {
    /// Do not create.
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// Seconds since 1970 with an optional fraction, instead of now.
    #[arg(short, long, value_name = "@SECONDS", value_parser = date, allow_hyphen_values = true)]
    pub date: Option<Timestamp>,
    /// Which.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
}

/// Change the size of files: what is cut is gone, what is new reads as zeros.
///
/// Create files that are not there.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  pando truncate -s 0 /log\n  pando truncate -s 10G /sparse")]
pub struct TruncateArgs {
    /// The new size in bytes, or with K, M, G, T.
    #[arg(short, long, value_parser = size)]
    pub size: u64,
    /// Do not create.
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// Which.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<OsString>,
}

/// `@-1.5`: one and a half seconds before 1970.
fn date(text: &str) -> Result<Timestamp, String> {
    let parse = || {
        let text = text.strip_prefix('@').unwrap_or(text);
        let (sign, text) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text),
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = fraction.len() <= 9 && fraction.bytes().all(|b| b.is_ascii_digit());
        let nanos: i128 = format!("{fraction:0<9}").parse().ok().filter(|_| digits)?;
        let secs: i64 = whole.parse().ok()?;
        Some(Timestamp::from_nanos(
            sign * (i128::from(secs) * 1_000_000_000 + nanos),
        ))
    };
    parse().ok_or("a time is @SECONDS or @SECONDS.FRACTION since 1970".into())
}

fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((i, 'K' | 'k')) => (&text[..i], 10),
        Some((i, 'M')) => (&text[..i], 20),
        Some((i, 'G')) => (&text[..i], 30),
        Some((i, 'T')) => (&text[..i], 40),
        _ => (text, 0),
    };
    let n: Option<u64> = digits.parse().ok();
    n.and_then(|n| n.checked_mul(1 << shift))
        .ok_or("a size is a number of bytes, or with K, M, G, T".into())
}

fn each(fs: &Rc<Fs>, paths: &[OsString], change: impl AsyncFn(&[u8]) -> Result<(), Errno>) -> Result<Value> {
    for path in paths {
        let path = absolute(path);
        if let Err(e) = fs.conn.run(change(&path)) {
            let why = match e {
                Errno::Busy => Why::Text("is the root".into()),
                e => Why::Errno(e),
            };
            fs.fail(&path, why);
        }
    }
    Ok(nothing())
}

pub fn chmod(fs: &Rc<Fs>, args: &ChmodArgs) -> Result<Value> {
    let change = AttrChange {
        perm: Some(Perm::new(args.mode)),
        ..AttrChange::default()
    };
    each(fs, &args.paths, async |path| {
        fs.client()
            .set_attr(&fs.cred, path, true, change)
            .await
            .map(|_| ())
    })
}

pub fn chown(fs: &Rc<Fs>, args: &ChownArgs) -> Result<Value> {
    let names = Names::load();
    let (user, group) = args.owner.split_once(':').unwrap_or((&args.owner, ""));
    let uid = match user {
        "" => None,
        user => Some(names.user_id(user).with_context(|| {
            format!("\"{user}\" is neither a user of this machine nor a number from 0 to 4294967295")
        })?),
    };
    let gid = match group {
        "" => None,
        group => Some(names.group_id(group).with_context(|| {
            format!("\"{group}\" is neither a group of this machine nor a number from 0 to 4294967295")
        })?),
    };
    let change = AttrChange {
        uid,
        gid,
        ..AttrChange::default()
    };
    let follow = !args.no_dereference;
    each(fs, &args.paths, async |path| {
        fs.client()
            .set_attr(&fs.cred, path, follow, change)
            .await
            .map(|_| ())
    })
}

pub fn touch(fs: &Rc<Fs>, args: &TouchArgs) -> Result<Value> {
    let time = args.date.map_or(TimeChange::Now, TimeChange::To);
    let change = AttrChange {
        atime: Some(time),
        mtime: Some(time),
        ..AttrChange::default()
    };
    let perm = usual(0o666);
    each(fs, &args.paths, async |path| {
        let client = fs.client();
        match client.set_attr(&fs.cred, path, true, change).await {
            Err(Errno::NotFound) if args.no_create => Ok(()),
            Err(Errno::NotFound) => {
                let (dir, name) = client.hold_parent(&fs.cred, path).await?;
                let place = Place { dir, name };
                file::create(&**client, &fs.cred, &place, perm, false, Access(0)).await?;
                if args.date.is_some() {
                    client.set_attr(&fs.cred, path, true, change).await?;
                }
                Ok(())
            }
            other => other.map(|_| ()),
        }
    })
}

pub fn truncate(fs: &Rc<Fs>, args: &TruncateArgs) -> Result<Value> {
    let perm = usual(0o666);
    each(fs, &args.paths, async |path| {
        let client = &**fs.client();
        let (place, opened) = match client.hold_path(&fs.cred, path, true).await {
            Ok(found) if found.entry.dir.is_some() => return Err(Errno::IsDir),
            Ok(found) => {
                let place = Place {
                    dir: found.parent,
                    name: found.name,
                };
                let opened = file::open(client, &fs.cred, &place, Access::WRITE).await?;
                (place, opened)
            }
            Err(Errno::NotFound) if args.no_create => return Ok(()),
            Err(Errno::NotFound) => {
                let (dir, name) = client.hold_parent(&fs.cred, path).await?;
                let place = Place { dir, name };
                let opened = file::create(client, &fs.cred, &place, perm, false, Access::WRITE).await?;
                (place, opened)
            }
            Err(e) => return Err(e),
        };
        let mut file = OpenFile::new(place, opened, data_sync(&fs.conn.file))?;
        let now = fs.world().now();
        file.truncate(client, &*fs.conn.blocks, &fs.cred, args.size, now, true)
            .await?;
        file.close(client, &*fs.conn.blocks, &fs.cred).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        let t = |text| date(text).map(|t| t.as_nanos());
        assert_eq!(t("@1.5"), Ok(1_500_000_000));
        assert_eq!(t("-0.000000001"), Ok(-1));
        assert!(t("@").is_err() && t("@1.0000000001").is_err() && t("@1.-5").is_err());
        assert_eq!(size("3K"), Ok(3072));
        assert_eq!(size("7"), Ok(7));
        assert!(size("").is_err() && size("1X").is_err() && size("99999999999T").is_err());
    }
}
