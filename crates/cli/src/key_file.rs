//! The file that proves who a client is: `client.key`, or whatever `pando auth add --out` wrote.

use anyhow::{Context, Result, bail};
use pando_auth::{Introduction, Key};
use pando_types::{Claims, Cred, FsId, IdentityId, Users};
use pando_wire::{Role, Way};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file.
#[derive(Serialize, Deserialize, Debug)]
pub struct KeyFile {
    /// Version of this file's form.
    format: u32,
    /// The filesystem, 32 hexadecimal digits.
    fs: String,
    /// The identity's number.
    identity: u32,
    /// Its name, for people.
    name: String,
    /// The key, 64 hexadecimal digits.
    key: String,
    /// For whom a client acts when no program asks.
    uid: u32,
    /// The same.
    gid: u32,
}

impl KeyFile {
    /// For an identity.
    pub fn new(fs: FsId, id: IdentityId, name: &str, key: &Key, claims: &Claims) -> KeyFile {
        let (uid, gid) = match &claims.users {
            Users::Any => (0, 0),
            Users::Only { uids, gids } => (
                uids.first().copied().unwrap_or(0),
                gids.first().copied().unwrap_or(0),
            ),
        };
        KeyFile {
            format: 1,
            fs: format!("{:032x}", fs.0),
            identity: id.0,
            name: name.into(),
            key: key.to_hex(),
            uid,
            gid,
        }
    }

    /// Reads it.
    pub fn load(path: &Path) -> Result<KeyFile> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the key {}", path.display()))?;
        let file: KeyFile = serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is not a key file; `pando auth add` writes one",
                path.display()
            )
        })?;
        if file.format != 1 {
            bail!(
                "{} has form {}, this program understands 1; use a newer pando",
                path.display(),
                file.format
            );
        }
        Ok(file)
    }

    /// Writes it, readable by its owner alone; whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = Path::new(&name);
        let write = || -> std::io::Result<()> {
            match std::fs::remove_file(new) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let mut f = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(new)?;
            f.write_all(serde_json::to_string_pretty(self)?.as_bytes())?;
            f.write_all(b"\n")?;
            f.sync_all()?;
            std::fs::rename(new, path)
        };
        write().with_context(|| format!("cannot write the key {}", path.display()))
    }

    /// How its owner introduces itself to servers of this filesystem.
    pub fn introduction(&self, fs: FsId) -> Result<Introduction> {
        let mine = u128::from_str_radix(&self.fs, 16).context("key file: fs is not a hexadecimal number")?;
        if mine != fs.0 {
            bail!(
                "the key of {:?} is for filesystem {}, and this is {:032x}; say --key FILE",
                self.name,
                self.fs,
                fs.0
            );
        }
        Ok(Introduction {
            fs,
            role: Role::Client(Way::Key(self.id())),
            key: Some(Key::from_hex(&self.key).context("key file: key")?),
        })
    }

    /// The identity.
    pub fn id(&self) -> IdentityId {
        IdentityId(self.identity)
    }

    /// For whom a client acts when no program asks.
    pub fn own(&self) -> Cred {
        Cred {
            uid: self.uid,
            gid: self.gid,
            groups: Vec::new(),
        }
    }
}
