//! `pando auth`: who may connect, as whom, and to what.

use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::format::random_key;
use crate::fs::absolute;
use crate::key_file::{Evidence, KeyFile};
use crate::pki::{self, Authority};
use crate::text;
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use pando_auth::Key;
use pando_net::Waiting;
use pando_types::{AuthMode, Claims, Cred, DirId, Generation, Users};
use pando_wire::{AuthAnswer, AuthChange, AuthError, AuthRequest, IdentityView, Request, Response};
use rcgen::KeyPair;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds for which a certificate is good that is made here. What ends access is a revocation, not a date.
const LIFETIME: u64 = 3650 * 86_400;

/// Commands.
#[derive(Subcommand, Debug)]
#[command(
    after_help = "Examples:\n  pando auth add laptop --any-uid --out laptop.key\n  pando auth add alice --uid 1000 --gid 1000 --subtree /people/alice --out alice.key\n  pando auth rotate laptop --out laptop.key --grace 1h\n  pando auth revoke laptop"
)]
pub enum AuthCommand {
    /// Let a client in: write its key, or certificate with key, to a file.
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
        #[command(flatten)]
        material: Material,
    },
    /// Mode `tls`: make new certificates for all servers; they are used within a second.
    Renew,
}

/// Mode `tls`: where an identity's certificate comes from.
#[derive(clap::Args, Debug, Default)]
pub struct Material {
    /// Mode `tls`: a certificate (PEM) from another authority, which the servers' tls/ca.crt has to name.
    /// Without: one is made.
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Its private key (PEM), if that is not in the same file. It stays where it is.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    private_key: Option<PathBuf>,
    /// Mode `tls`: how long a certificate that is made is good: 90d, 3650d. [default: 3650d]
    #[arg(long, value_name = "TIME", value_parser = seconds, conflicts_with = "certificate")]
    lifetime: Option<u32>,
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
    #[command(flatten)]
    material: Material,
}

pub fn run(args: &Args, command: &AuthCommand) -> Result<()> {
    let dir = ClusterDir::of(args)?;
    if matches!(command, AuthCommand::Renew) {
        return renew(args, &dir);
    }
    let conn = Connection::open(
        &dir,
        Party::Operator,
        Waiting::Blocking,
        Duration::from_secs(args.wait.min(10)),
    )?;
    match command {
        AuthCommand::Add(add) => {
            let answer = add_identity(&dir, &conn, add)?;
            report(
                args,
                &answer,
                &format!("\"{}\" may connect with {}", add.name, add.out.display()),
            )
        }
        AuthCommand::List => {
            let answer = ask(&conn, AuthRequest::List)?;
            list(args, &answer);
            Ok(())
        }
        AuthCommand::Revoke { name } => {
            let answer = change(&conn, AuthChange::Revoke { name: name.clone() })?;
            report(args, &answer, &format!("\"{name}\" may not connect any more"))
        }
        AuthCommand::Rotate {
            name,
            out,
            grace,
            material,
        } => {
            let proof = Proving::of(&dir, &conn, material)?;
            let rotated = AuthChange::Rotate {
                name: name.clone(),
                key: proof.recorded,
                grace: *grace,
            };
            let answer = change(&conn, rotated)?;
            write_key(&conn, &answer, proof, out)?;
            let text = format!(
                "\"{name}\" has a new key in {}; the old ones end in {grace} s",
                out.display()
            );
            report(args, &answer, &text)
        }
        AuthCommand::Renew => Ok(()),
    }
}

fn renew(args: &Args, dir: &ClusterDir) -> Result<()> {
    let map = dir.load()?.map(&dir.path)?;
    if map.auth != AuthMode::Tls {
        bail!("the servers of this filesystem have no certificates (it was not made with --auth tls)");
    }
    Authority::open(dir, map.fs)?.certify_servers(dir, &map)?;
    if args.json {
        println!("{}", json!({ "renewed": map.servers.len() }));
    } else {
        println!(
            "Made new certificates for {} servers in {}.",
            map.servers.len(),
            dir.tls("").display()
        );
    }
    Ok(())
}

/// What will prove an identity, before it has a number.
pub struct Proving {
    /// What its record will hold.
    recorded: [u8; 32],
    what: What,
}

enum What {
    Key(Key),
    /// To be signed when the number is known.
    Fresh(KeyPair, Box<Authority>, Duration),
    /// From elsewhere.
    Given(Evidence),
}

impl Proving {
    /// As the filesystem asks for it.
    pub fn of(dir: &ClusterDir, conn: &Connection, material: &Material) -> Result<Proving> {
        let map = conn.client.map();
        if map.auth != AuthMode::Tls {
            if material.certificate.is_some() || material.lifetime.is_some() {
                bail!("clients of this filesystem have no certificates (it was not made with --auth tls)");
            }
            let key = Key::new(random_key()?);
            return Ok(Proving {
                recorded: *key.bytes(),
                what: What::Key(key),
            });
        }
        let Some(path) = &material.certificate else {
            let key = KeyPair::generate()?;
            let life = Duration::from_secs(material.lifetime.map_or(LIFETIME, u64::from));
            return Ok(Proving {
                recorded: pki::fingerprint(&key).0,
                what: What::Fresh(key, Box::new(Authority::open(dir, map.fs)?), life),
            });
        };
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let recorded = pando_net::fingerprint(&text).with_context(|| path.display().to_string())?;
        let absolute = |path: &Path| -> Result<String> {
            let path = std::path::absolute(path)?;
            path.into_os_string()
                .into_string()
                .map_err(|p| anyhow::anyhow!("{} is not UTF-8", p.display()))
        };
        let authorities = std::fs::read_to_string(dir.tls("ca.crt"))
            .with_context(|| format!("cannot read {}", dir.tls("ca.crt").display()))?;
        Ok(Proving {
            recorded: recorded.0,
            what: What::Given(Evidence::Certificate {
                certificate: absolute(path)?,
                private_key: absolute(material.private_key.as_ref().unwrap_or(path))?,
                authorities,
            }),
        })
    }
}

fn add_identity(dir: &ClusterDir, conn: &Connection, add: &AddArgs) -> Result<AuthAnswer> {
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
        // The filesystem's root is no part of it.
        Some(path) => Some(find(conn, &absolute(path))?).filter(|(dir, _)| *dir != DirId::ROOT),
        None => None,
    };
    let claims = Claims {
        users,
        subtree,
        read_only: add.read_only,
    };
    let proof = Proving::of(dir, conn, &add.material)?;
    make(conn, &add.name, claims, proof, &add.out)
}

/// Makes an identity and writes what proves it.
pub fn make(conn: &Connection, name: &str, claims: Claims, proof: Proving, out: &Path) -> Result<AuthAnswer> {
    let add = AuthChange::Add {
        name: name.into(),
        claims,
        key: proof.recorded,
    };
    let answer = change(conn, add)?;
    write_key(conn, &answer, proof, out)?;
    Ok(answer)
}

fn write_key(conn: &Connection, answer: &AuthAnswer, proof: Proving, out: &Path) -> Result<()> {
    let made = answer
        .identities
        .first()
        .context("the server does not say what it made")?;
    let evidence = match proof.what {
        What::Key(key) => Evidence::Key(key),
        What::Given(evidence) => evidence,
        What::Fresh(key, authority, life) => Evidence::Certificate {
            certificate: authority.certify(&key, made.id, &made.name, life)?,
            private_key: key.serialize_pem(),
            authorities: authority.certificates().into(),
        },
    };
    KeyFile::new(conn.client.map().fs, made.id, &made.name, evidence, &made.claims).save(out)
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

/// A change of what is there now.
fn change(conn: &Connection, change: AuthChange) -> Result<AuthAnswer> {
    let seen = ask(conn, AuthRequest::List)?.newest(change.name());
    ask(conn, AuthRequest::Change { seen, change })
}

fn ask(conn: &Connection, request: AuthRequest) -> Result<AuthAnswer> {
    let keeper = conn.client.map().keeper;
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
        AuthError::KeyTaken => "another identity has this key or certificate",
        AuthError::Changed => {
            "somebody else changed the identity of that name at the same time; `pando auth list` shows what is there now"
        }
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
