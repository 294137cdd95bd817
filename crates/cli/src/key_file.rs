//! The file that proves who a client is: `client.key`, or whatever `pando auth add --out` wrote. In mode
//! `key` it has a key, in mode `tls` a certificate, its private key, and who servers are known by.

use crate::cluster_dir::write_private;
use anyhow::{Context, Result, bail};
use pando_auth::{Introduction, Key};
use pando_net::Pems;
use pando_types::{AuthMode, Claims, Cred, FsId, IdentityId, Users};
use pando_wire::{Role, Way};
use serde::{Deserialize, Serialize};
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The certificate and its chain, PEM, or where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
    /// The same of its private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    private_key: Option<String>,
    /// The same of those who sign servers' certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorities: Option<String>,
    /// For whom a client acts when no program asks.
    uid: u32,
    /// The same.
    gid: u32,
    /// All users it may act for, if it may not for any. Files of before say nothing of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uids: Option<Vec<u32>>,
    /// The groups these may be in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gids: Option<Vec<u32>>,
}

/// What proves it.
#[derive(Clone)]
pub enum Evidence {
    /// Mode `key`.
    Key(Key),
    /// Mode `tls`. Each is PEM, or the path of a file.
    Certificate {
        /// The certificate and its chain.
        certificate: String,
        /// Its private key.
        private_key: String,
        /// Who signs servers' certificates.
        authorities: String,
    },
}

impl KeyFile {
    /// For an identity.
    pub fn new(fs: FsId, id: IdentityId, name: &str, evidence: Evidence, claims: &Claims) -> KeyFile {
        let (uid, gid) = match &claims.users {
            Users::Any => (0, 0),
            Users::Only { uids, gids } => (
                uids.first().copied().unwrap_or(0),
                gids.first().copied().unwrap_or(0),
            ),
        };
        let (uids, gids) = match &claims.users {
            Users::Any => (None, None),
            Users::Only { uids, gids } => (Some(uids.clone()), Some(gids.clone())),
        };
        let (key, certificate, private_key, authorities) = match evidence {
            Evidence::Key(key) => (Some(key.to_hex()), None, None, None),
            Evidence::Certificate {
                certificate,
                private_key,
                authorities,
            } => (None, Some(certificate), Some(private_key), Some(authorities)),
        };
        KeyFile {
            format: 1,
            fs: format!("{:032x}", fs.0),
            identity: id.0,
            name: name.into(),
            key,
            certificate,
            private_key,
            authorities,
            uid,
            gid,
            uids,
            gids,
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
        let text = serde_json::to_string_pretty(self)? + "\n";
        write_private(path, text.as_bytes())
    }

    /// Certificate, key and authorities. Each stands in the file itself (PEM), or is the path of a file, from
    /// the folder of this one.
    pub fn pems(&self, path: &Path) -> Result<Pems> {
        let find = |value: &Option<String>, what: &str| -> Result<Vec<u8>> {
            let value = value
                .as_ref()
                .with_context(|| format!("{} has no {what}", path.display()))?;
            if value.contains("-----BEGIN") {
                return Ok(value.clone().into_bytes());
            }
            let at = path.parent().unwrap_or(Path::new("")).join(value);
            std::fs::read(&at).with_context(|| format!("cannot read {}", at.display()))
        };
        Ok(Pems {
            own: Some((
                find(&self.certificate, "certificate")?,
                find(&self.private_key, "private_key")?,
            )),
            authorities: find(&self.authorities, "authorities")?,
        })
    }

    /// How its owner introduces itself to servers of this filesystem.
    pub fn introduction(&self, fs: FsId, mode: AuthMode) -> Result<Introduction> {
        self.is_of(fs)?;
        let (way, key) = match (mode, &self.key) {
            (AuthMode::Tls, _) => (Way::Certificate, None),
            (_, Some(key)) => (
                Way::Key(self.id()),
                Some(Key::from_hex(key).context("key file: key")?),
            ),
            (_, None) => bail!("the file of \"{}\" has no key", self.name),
        };
        Ok(Introduction {
            fs,
            role: Role::Client(way),
            key,
        })
    }

    /// Fails if it is of another filesystem.
    pub fn is_of(&self, fs: FsId) -> Result<()> {
        let mine = u128::from_str_radix(&self.fs, 16).context("key file: fs is not a hexadecimal number")?;
        if mine != fs.0 {
            bail!(
                "the key of \"{}\" is for filesystem {}, and this is {:032x}; say --key FILE",
                self.name,
                self.fs,
                fs.0
            );
        }
        Ok(())
    }

    /// The identity.
    pub fn id(&self) -> IdentityId {
        IdentityId(self.identity)
    }

    /// The users it may act for, as far as the file says. The servers know.
    pub fn users(&self) -> Users {
        match (&self.uids, &self.gids) {
            (Some(uids), Some(gids)) => Users::Only {
                uids: uids.clone(),
                gids: gids.clone(),
            },
            _ => Users::Any,
        }
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
