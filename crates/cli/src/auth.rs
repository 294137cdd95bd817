//! `pando auth`: who may connect, as whom, and to what.

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::format::random_key;
use crate::fs::absolute;
use crate::key_file::KeyFile;
use crate::text;
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use pando_auth::Key;
use pando_net::Waiting;
use pando_types::{Claims, Cred, DirId, Generation, Users};
use pando_wire::{AuthAnswer, AuthError, AuthRequest, IdentityView, Request, Response};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Commands.
#[derive(Subcommand, Debug)]
#[command(
    after_help = "Examples:\n  pando auth add laptop --any-uid --out laptop.key\n  pando auth add alice --uid 1000 --gid 1000 --subtree /people/alice --out alice.key\n  pando auth rotate laptop --out laptop.key --grace 1h\n  pando auth revoke laptop"
)]
pub enum AuthCommand {
    /// Let a client in: write its key to a file.
    Add(AddArgs),
    /// Show all identities, revoked ones too.
    List,
    /// End an identity now: its connections are closed, its sessions end.
    Revoke {
        /// Which.
        name: String,
    },
    /// Give an identity another key; the old one stays good for a while, so that nothing stops.
    Rotate {
        /// Which.
        name: String,
        /// Where to write the new key.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// How long the old keys stay good: 90s, 15m, 1h, 2d.
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = seconds)]
        grace: u32,
    },
}

/// Arguments of `add`.
#[derive(clap::Args, Debug)]
pub struct AddArgs {
    /// What to call it.
    name: String,
    /// Users it may act for.
    #[arg(long = "uid", value_name = "N", value_delimiter = ',', requires = "gids")]
    uids: Vec<u32>,
    /// Groups these users may be in.
    #[arg(long = "gid", value_name = "N", value_delimiter = ',', requires = "uids")]
    gids: Vec<u32>,
    /// It may act for anybody: a machine whose root you trust, as a mount for all its users needs.
    #[arg(long, conflicts_with_all = ["uids", "gids"], required_unless_present = "uids")]
    any_uid: bool,
    /// The directory that is its whole filesystem, shown to it as /.
    #[arg(long, value_name = "PATH")]
    subtree: Option<OsString>,
    /// It may change nothing.
    #[arg(long)]
    read_only: bool,
    /// Where to write its key.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub fn run(args: &Args, command: &AuthCommand) -> Result<()> {
    let dir = ClusterDir::of(args)?;
    let conn = Connection::open(
        &dir,
        Party::Operator,
        Waiting::Blocking,
        Duration::from_secs(args.wait.min(10)),
    )?;
    match command {
        AuthCommand::Add(add) => {
            let answer = add_identity(&conn, add)?;
            report(
                args,
                &answer,
                &format!("{:?} may connect with {}", add.name, add.out.display()),
            )
        }
        AuthCommand::List => {
            let answer = ask(&conn, AuthRequest::List)?;
            list(args, &answer);
            Ok(())
        }
        AuthCommand::Revoke { name } => {
            let answer = ask(&conn, AuthRequest::Revoke { name: name.clone() })?;
            report(args, &answer, &format!("{name:?} may not connect any more"))
        }
        AuthCommand::Rotate { name, out, grace } => {
            let key = Key::new(random_key()?);
            let request = AuthRequest::Rotate {
                name: name.clone(),
                key: *key.bytes(),
                grace: *grace,
            };
            let answer = ask(&conn, request)?;
            write_key(&conn, &answer, &key, out)?;
            let text = format!(
                "{name:?} has a new key in {}; the old ones end in {grace} s",
                out.display()
            );
            report(args, &answer, &text)
        }
    }
}

fn add_identity(conn: &Connection, add: &AddArgs) -> Result<AuthAnswer> {
    let sorted = |numbers: &[u32]| {
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    };
    let users = if add.any_uid {
        Users::Any
    } else {
        Users::Only {
            uids: sorted(&add.uids),
            gids: sorted(&add.gids),
        }
    };
    let subtree = match &add.subtree {
        Some(path) => Some(find(conn, &absolute(path))?),
        None => None,
    };
    let claims = Claims {
        users,
        subtree,
        read_only: add.read_only,
    };
    make(conn, &add.name, claims, &add.out)
}

/// Makes an identity and writes its key.
pub fn make(conn: &Connection, name: &str, claims: Claims, out: &Path) -> Result<AuthAnswer> {
    let key = Key::new(random_key()?);
    let request = AuthRequest::Add {
        name: name.into(),
        claims,
        key: *key.bytes(),
    };
    let answer = ask(conn, request)?;
    write_key(conn, &answer, &key, out)?;
    Ok(answer)
}

fn write_key(conn: &Connection, answer: &AuthAnswer, key: &Key, out: &Path) -> Result<()> {
    let made = answer
        .identities
        .first()
        .context("the server does not say what it made")?;
    KeyFile::new(conn.client.map().fs, made.id, &made.name, key, &made.claims).save(out)
}

fn find(conn: &Connection, path: &[u8]) -> Result<(DirId, Generation)> {
    let found = conn
        .run(conn.client.resolve(&Cred::root(), path, true))
        .with_context(|| text::printable(path))?;
    match found.entry.dir {
        Some(dir) => Ok((dir.id, dir.generation)),
        None => bail!("{} is not a directory", text::printable(path)),
    }
}

fn ask(conn: &Connection, request: AuthRequest) -> Result<AuthAnswer> {
    let keeper = conn.client.map().rename_server;
    match conn.run(conn.client.admin(keeper, Request::Auth(request))) {
        Ok(Response::Auth(Ok(answer))) => Ok(answer),
        Ok(Response::Auth(Err(why))) => bail!("{}", explain(why)),
        Ok(_) => bail!("server {keeper} answers something else"),
        Err(e) => match conn.trouble() {
            Some(why) => bail!("{e}: {why}"),
            None => bail!("server {keeper}, which keeps the identities: {e}"),
        },
    }
}

fn explain(why: AuthError) -> &'static str {
    match why {
        AuthError::Exists => "there is an identity of that name; `pando auth rotate` gives it another key",
        AuthError::Unknown => "there is no identity of that name; `pando auth list` shows all",
        AuthError::NotUsed => {
            "clients of this filesystem are not asked who they are (it was made with --auth none)"
        }
        AuthError::TooMany => "there are as many identities as there can be; revoke some",
        AuthError::BadName => "a name has 1 to 255 bytes",
    }
}

fn report(args: &Args, answer: &AuthAnswer, text: &str) -> Result<()> {
    if args.json {
        let identities: Vec<Value> = answer.identities.iter().map(show).collect();
        let unconfirmed: Vec<u16> = answer.unconfirmed.iter().map(|s| s.0).collect();
        println!(
            "{}",
            json!({ "identities": identities, "unconfirmed": unconfirmed })
        );
    } else {
        println!("{text}.");
        for server in &answer.unconfirmed {
            println!("Server {server} has not confirmed; it learns of this as soon as it can be reached.");
        }
    }
    Ok(())
}

fn show(i: &IdentityView) -> Value {
    let users = match &i.claims.users {
        Users::Any => json!("any"),
        Users::Only { uids, gids } => json!({ "uids": uids, "gids": gids }),
    };
    let subtree = i
        .claims
        .subtree
        .map(|(id, generation)| json!({ "id": id.to_string(), "generation": generation.0 }));
    json!({
        "id": i.id.0, "name": i.name, "users": users, "subtree": subtree, "read_only": i.claims.read_only,
        "keys": i.keys.iter().map(|k| k.map(|t| t.secs)).collect::<Vec<_>>(),
        "created": i.created.secs, "revoked": i.revoked.map(|t| t.secs),
    })
}

fn list(args: &Args, answer: &AuthAnswer) {
    if args.json {
        let identities: Vec<Value> = answer.identities.iter().map(show).collect();
        println!("{}", json!({ "identities": identities }));
        return;
    }
    let numbers = |list: &[u32]| list.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let row = |i: &IdentityView| {
        let users = match &i.claims.users {
            Users::Any => "any".into(),
            Users::Only { uids, gids } => format!("uid {} gid {}", numbers(uids), numbers(gids)),
        };
        vec![
            i.id.to_string(),
            i.name.clone(),
            users,
            i.claims
                .subtree
                .map_or("/".into(), |(id, _)| format!("directory {id}")),
            if i.claims.read_only { "read" } else { "write" }.into(),
            if i.revoked.is_some() {
                "revoked".into()
            } else {
                format!("{} key{}", i.keys.len(), if i.keys.len() == 1 { "" } else { "s" })
            },
        ]
    };
    let rows: Vec<Vec<String>> = answer.identities.iter().map(row).collect();
    print!(
        "{}",
        text::table(&["number", "name", "users", "subtree", "access", "state"], &rows)
    );
}

/// A time as people write it.
fn seconds(text: &str) -> Result<u32, String> {
    let bad = || "a time is a number with s, m, h or d, as in 90s or 1h".to_string();
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        _ => return Err(bad()),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| bad())?;
    number.checked_mul(unit).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times() {
        for (text, n) in [
            ("90s", 90),
            ("15m", 900),
            ("1h", 3600),
            ("2d", 172_800),
            ("0s", 0),
        ] {
            assert_eq!(seconds(text), Ok(n));
        }
        for bad in ["", "5", "h", "-1h", "1.5h", "99999999d", "1é"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
