//! The folder of a cluster:
//!
//! ```text
//! cluster.json       the map and the choices fixed at format
//! secret             what all servers share; no client needs it
//! client.key         what clients of this machine prove who they are with, in modes `key` and `tls`
//! tls/ca.crt         mode `tls`: who signs the certificates of servers and clients
//! tls/ca.key         the key of the filesystem's own authority; only where certificates are made
//! tls/server-N.pem   certificate and key of server N (or server.pem, for all)
//! server-N/          the store of server N
//! servers.json       options that `pando up` was told to start servers with, if any
//! run/server-N.lock  held by the running server; contains its pid
//! run/server-N.log   its log
//! run/standby-N.*    the same of process N that stands by, and what it watches (json)
//! run/mount-*.json   mounts that `pando up` made
//! run/format.lock    held while a filesystem is made; there afterwards if that was interrupted
//! blocks/            file data above the inline limit (unless elsewhere)
//! ```

use crate::args::{Args, Mode};
use crate::process::lock_path;
use anyhow::{Context, Result, bail};
use pando_auth::{Secret, Secrets};
use pando_cluster::{ClusterFile, ClusterMap, FileError};
use pando_types::FsId;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the lock under which a filesystem is made.
pub const FORMAT_LOCK: &str = "format";

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

    /// The servers whose stores are here.
    pub fn stores(&self) -> Result<Vec<u16>> {
        numbered(&self.path, "server-", "")
    }

    /// Whether a filesystem was to be made here and nobody knows that it was.
    pub fn was_interrupted(&self) -> bool {
        lock_path(self, FORMAT_LOCK).exists()
    }

    /// What to do about a folder that has lost its map.
    pub fn lost_map(&self) -> String {
        format!(
            "cluster.json is missing in {}, and stores of servers are there: restore it from a copy (a backup, or that of \
             another machine with a server of this filesystem; see docs/operations.md), or say another --dir",
            self.path.display()
        )
    }

    /// The key of clients of this machine.
    pub fn client_key(&self) -> PathBuf {
        self.key.clone().unwrap_or_else(|| self.path.join("client.key"))
    }

    /// A file of mode `tls`.
    pub fn tls(&self, name: &str) -> PathBuf {
        self.path.join("tls").join(name)
    }

    /// Where running processes leave their marks.
    pub fn run(&self) -> PathBuf {
        self.path.join("run")
    }

    /// Makes the folder of those marks. What a process has locked there only its own user may lock, or look
    /// at.
    pub fn make_run(&self) -> Result<()> {
        let run = self.run();
        let make = || {
            std::fs::create_dir_all(&run)?;
            match std::fs::metadata(&run)?.permissions().mode() & 0o077 {
                0 => Ok(()),
                _ => std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o700)),
            }
        };
        make().with_context(|| format!("cannot make {}", run.display()))
    }

    fn secret_file(&self) -> PathBuf {
        self.path.join("secret")
    }

    /// Writes the secret that all servers share, readable by its owner alone.
    pub fn save_secret(&self, secret: &Secret) -> Result<()> {
        // What an interrupted format left has nobody's trust: it is replaced.
        write_private(&self.secret_file(), format!("{}\n", secret.to_hex()).as_bytes())
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
        let secrets = Secret::from_lines(&text)
            .with_context(|| format!("{} is damaged; restore it from a copy", path.display()))?;
        match secrets.split_first() {
            Some((newest, older)) => Ok(Secrets::new(fs, newest.clone(), older.to_vec())),
            None => bail!("{} is empty; restore it from a copy", path.display()),
        }
    }

    /// Reads `cluster.json`.
    pub fn load(&self) -> Result<ClusterFile> {
        let path = self.file();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e)
                if e.kind() == std::io::ErrorKind::NotFound
                    && self.stores().is_ok_and(|s| !s.is_empty())
                    && !self.was_interrupted() =>
            {
                bail!("{}", self.lost_map())
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
                "there is no cluster in {}; make one with `pando up` or `pando format`, or say --dir DIR",
                self.path.display()
            ),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        ClusterFile::parse(&text).map_err(|e| match e {
            FileError::Form(_) => anyhow::Error::new(e).context(path.display().to_string()),
            e => anyhow::Error::new(e)
                .context(format!("{} is damaged; restore it from a copy", path.display())),
        })
    }

    /// Writes `cluster.json`, whole or not at all.
    pub fn save(&self, file: &ClusterFile) -> Result<()> {
        let path = self.file();
        // Several servers of one machine may write it at once.
        let new = path.with_extension(format!("json.{}.new", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut f = std::fs::File::create(&new)?;
            f.write_all(file.to_text().as_bytes())?;
            f.sync_all()?;
            std::fs::rename(&new, &path)?;
            std::fs::File::open(&self.path)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The map as the `cluster.json` of a folder has it, if it can be read.
pub fn map_in(folder: &Path) -> Option<ClusterMap> {
    let text = std::fs::read_to_string(folder.join("cluster.json")).ok()?;
    ClusterFile::parse(&text).ok()?.map(folder).ok()
}

/// The numbers N of all PREFIX N SUFFIX in a folder, in order.
pub fn numbered(folder: &Path, prefix: &str, suffix: &str) -> Result<Vec<u16>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", folder.display())),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let name = name
            .to_str()
            .and_then(|n| n.strip_prefix(prefix)?.strip_suffix(suffix));
        found.extend(name.and_then(|n| n.parse::<u16>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// Whether this is written to as it is, and never replaced: a device, a pipe, a link (`/dev/stdout` is one).
pub fn is_special(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|m| !m.is_file())
}

/// Writes a file that is readable by its owner alone, whole or not at all.
pub fn write_private(path: &Path, text: &[u8]) -> Result<()> {
    if is_special(path) {
        let write = || {
            std::fs::OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(path)?
                .write_all(text)
        };
        return write().with_context(|| format!("cannot write {}", path.display()));
    }
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
        f.write_all(text)?;
        f.sync_all()?;
        std::fs::rename(new, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The durability chosen at format.
pub fn mode(file: &ClusterFile) -> Result<Mode> {
    match file.durability.as_str() {
        "sync" => Ok(Mode::Sync),
        "async" => Ok(Mode::Async),
        other => bail!("cluster.json: durability is \"{other}\", not sync or async"),
    }
}
