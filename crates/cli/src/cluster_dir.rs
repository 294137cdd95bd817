//! The folder of a cluster:
//!
//! ```text
//! cluster.json       the map and the choices fixed at format
//! secret             what all servers share; no client needs it
//! client.key         what clients of this machine prove who they are with, in mode `key`
//! server-N/          the store of server N
//! run/server-N.lock  held by the running server; contains its pid
//! run/server-N.log   its log
//! run/mount-*.json   mounts that `pando up` made
//! blocks/            file data above the inline limit (unless elsewhere)
//! ```

use crate::args::{Args, Mode};
use anyhow::{Context, Result, bail};
use pando_auth::{Secret, Secrets};
use pando_cluster::{ClusterMap, ServerInfo};
use pando_types::{AuthMode, FsId, MapEpoch, SLOTS, ServerId};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// `cluster.json`.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct ClusterFile {
    /// Version of this file's form.
    pub format: u32,
    /// The filesystem's id, 32 hexadecimal digits.
    pub fs: String,
    /// Epoch of the map.
    pub epoch: u64,
    /// The profile's name when it was made, and what it stood for.
    pub profile: Profile,
    /// `sync` or `async`.
    pub durability: String,
    /// All servers.
    pub servers: Vec<Server>,
    /// Runs of slots: first slot, slot after the last, owner.
    pub slots: Vec<(u16, u16, u16)>,
    /// Serialises renames of directories between parents.
    pub rename_server: u16,
    /// Largest inline file, in bytes.
    pub inline_limit: u32,
    /// Size of blocks, in bytes.
    pub block_size: u32,
    /// Where blocks are: `file:PATH`; a relative path counts from this folder.
    pub blocks: String,
    /// Width of name hashes.
    pub name_bits: u8,
    /// Width of directory IDs.
    pub id_bits: u8,
    /// How clients identify themselves: `none`, `key` or `tls`. Filesystems made before there was a choice: `none`.
    #[serde(default = "nobody")]
    pub auth: String,
}

fn nobody() -> String {
    AuthMode::None.word().into()
}

/// The choices a profile's name stood for when the filesystem was made.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Profile {
    /// As given.
    pub name: String,
    /// Who places records.
    pub placement: String,
    /// How directories of two servers are changed.
    pub directory_updates: String,
    /// How client caches stay true.
    pub coherence: String,
    /// The store.
    pub store: String,
}

/// A server.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Server {
    /// Number.
    pub id: u16,
    /// `host:port`.
    pub address: String,
    /// `host:port` of its Prometheus endpoint.
    pub metrics: String,
}

/// The folder.
#[derive(Clone, Debug)]
pub struct ClusterDir {
    /// Where.
    pub path: PathBuf,
    /// The key that clients use, if not the one in the folder.
    pub key: Option<PathBuf>,
}

impl ClusterDir {
    /// The folder the arguments name.
    pub fn of(args: &Args) -> Result<ClusterDir> {
        let path = match &args.dir {
            Some(dir) => dir.clone(),
            None => {
                let home = std::env::var_os("HOME").context("HOME is not set; say --dir DIR")?;
                PathBuf::from(home).join(".local/share/pando/default")
            }
        };
        let path = std::path::absolute(&path).with_context(|| format!("cannot use {}", path.display()))?;
        let key = args.key.as_deref().map(std::path::absolute).transpose()?;
        Ok(ClusterDir { path, key })
    }

    /// Whether a filesystem was made here.
    pub fn exists(&self) -> bool {
        self.file().exists()
    }

    fn file(&self) -> PathBuf {
        self.path.join("cluster.json")
    }

    /// The store of a server.
    pub fn store(&self, id: u16) -> PathBuf {
        self.path.join(format!("server-{id}"))
    }

    /// The key of clients of this machine.
    pub fn client_key(&self) -> PathBuf {
        self.key.clone().unwrap_or_else(|| self.path.join("client.key"))
    }

    /// Where running processes leave their marks.
    pub fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    fn secret_file(&self) -> PathBuf {
        self.path.join("secret")
    }

    /// Writes the secret that all servers share, readable by its owner alone.
    pub fn save_secret(&self, secret: &Secret) -> Result<()> {
        let path = self.secret_file();
        let write = || -> std::io::Result<()> {
            // What an interrupted format left has nobody's trust.
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let mut f = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            writeln!(f, "{}", secret.to_hex())?;
            f.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// What this filesystem's servers share: the secrets in the folder, one on a line, the one in use first.
    pub fn secrets(&self, fs: FsId) -> Result<Secrets> {
        let path = self.secret_file();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
                "{} is missing: copy it from the machine where the filesystem was made; all its servers need the same",
                path.display()
            ),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        let mut secrets = text
            .lines()
            .map(|line| Secret::from_hex(line.trim()))
            .collect::<Result<Vec<Secret>, _>>()
            .with_context(|| format!("{} is damaged; restore it from a copy", path.display()))?
            .into_iter();
        match secrets.next() {
            Some(newest) => Ok(Secrets::new(fs, newest, secrets.collect())),
            None => bail!("{} is empty; restore it from a copy", path.display()),
        }
    }

    /// Reads `cluster.json`.
    pub fn load(&self) -> Result<ClusterFile> {
        let path = self.file();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
                "there is no cluster in {}; make one with `pando up` or `pando format`, or say --dir DIR",
                self.path.display()
            ),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        let file: ClusterFile = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged; restore it from a copy", path.display()))?;
        if file.format != 1 {
            bail!(
                "{} has form {}, this program understands 1; use a newer pando",
                path.display(),
                file.format
            );
        }
        Ok(file)
    }

    /// Writes `cluster.json`, whole or not at all.
    pub fn save(&self, file: &ClusterFile) -> Result<()> {
        let path = self.file();
        let new = path.with_extension("json.new");
        let write = || -> std::io::Result<()> {
            let mut f = std::fs::File::create(&new)?;
            f.write_all(serde_json::to_string_pretty(file)?.as_bytes())?;
            f.write_all(b"\n")?;
            f.sync_all()?;
            std::fs::rename(&new, &path)?;
            std::fs::File::open(&self.path)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }
}

impl ClusterFile {
    /// The map, as servers and clients use it.
    pub fn map(&self, dir: &Path) -> Result<ClusterMap> {
        let fs =
            u128::from_str_radix(&self.fs, 16).context("cluster.json: fs is not a hexadecimal number")?;
        let mut slots = vec![ServerId(0); usize::from(SLOTS)];
        let mut covered = 0;
        for (from, to, owner) in &self.slots {
            let run = slots
                .get_mut(usize::from(*from)..usize::from(*to))
                .with_context(|| format!("cluster.json: slots {from}..{to} do not exist"))?;
            covered += run.len();
            run.fill(ServerId(*owner));
        }
        if covered != usize::from(SLOTS) {
            bail!("cluster.json: {covered} of {SLOTS} slots have an owner");
        }
        let blocks = match self.blocks.strip_prefix("file:") {
            Some(path) => format!("file:{}", dir.join(path).display()),
            None => bail!("cluster.json: blocks is not file:PATH"),
        };
        let servers = self.servers.iter().map(|s| ServerInfo {
            id: ServerId(s.id),
            address: s.address.clone(),
            metrics: s.metrics.clone(),
        });
        let map = ClusterMap {
            fs: FsId(fs),
            epoch: MapEpoch(self.epoch),
            servers: servers.collect(),
            slots,
            rename_server: ServerId(self.rename_server),
            inline_limit: self.inline_limit,
            block_size: self.block_size,
            blocks,
            name_bits: self.name_bits,
            id_bits: self.id_bits,
            auth: self.auth_mode()?,
        };
        map.check().context("cluster.json")?;
        Ok(map)
    }

    /// How clients identify themselves.
    pub fn auth_mode(&self) -> Result<AuthMode> {
        let modes = [AuthMode::None, AuthMode::Key, AuthMode::Tls];
        let found = modes.into_iter().find(|m| m.word() == self.auth);
        found.with_context(|| format!("cluster.json: auth is {:?}, not none, key or tls", self.auth))
    }

    /// The durability chosen at format.
    pub fn mode(&self) -> Result<Mode> {
        match self.durability.as_str() {
            "sync" => Ok(Mode::Sync),
            "async" => Ok(Mode::Async),
            other => bail!("cluster.json: durability is {other:?}, not sync or async"),
        }
    }
}
