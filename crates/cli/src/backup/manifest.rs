//! What a backup is of, and which files belong to it. Written last: without it there is no backup.

use super::piece::Piece;
use anyhow::{Context, Result, bail};
use pando_cluster::ClusterFile;
use pando_format::{FORMAT_VERSION, OLDEST_FORMAT};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the folder's form.
const FORM: u32 = 1;
/// The file's name.
pub const NAME: &str = "manifest.json";

/// The file.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Version of this form.
    pub backup: u32,
    /// Format of the records.
    pub format: u32,
    /// The program that made it.
    pub program: String,
    /// Name of the cut.
    pub cut: String,
    /// When it was taken, in seconds since 1970.
    pub taken: i64,
    /// The highest boot of any server.
    pub boot: u64,
    /// The cluster at that moment.
    pub cluster: ClusterFile,
    /// Records.
    pub records: u64,
    /// Files whose data are in blocks.
    pub files: u64,
    /// Their blocks, and bytes of them.
    pub blocks: u64,
    pub block_bytes: u64,
    /// Of these files, those that changed after the cut, before or while they were copied: by inode number, a
    /// thousand at most.
    pub newer: Vec<u64>,
    /// How many these are.
    pub newer_files: u64,
    /// Records of the servers.
    pub record_pieces: Vec<Piece>,
    /// Blocks.
    pub data_pieces: Vec<Piece>,
    /// BLAKE3 of all of this but itself.
    pub hash: String,
}

impl Manifest {
    fn digest(&self) -> Result<String> {
        let all = Manifest {
            hash: String::new(),
            ..self.clone()
        };
        Ok(blake3::hash(&serde_json::to_vec(&all)?).to_hex().to_string())
    }

    /// A new one, of the form of this program.
    pub fn of_now(cluster: ClusterFile) -> Manifest {
        Manifest {
            backup: FORM,
            format: FORMAT_VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            cut: String::new(),
            taken: 0,
            boot: 0,
            cluster,
            records: 0,
            files: 0,
            blocks: 0,
            block_bytes: 0,
            newer: Vec::new(),
            newer_files: 0,
            record_pieces: Vec::new(),
            data_pieces: Vec::new(),
            hash: String::new(),
        }
    }

    /// Writes it: from here on there is a backup.
    pub fn save(&mut self, folder: &Path) -> Result<()> {
        self.hash = self.digest()?;
        let text = serde_json::to_string_pretty(self)? + "\n";
        crate::cluster_dir::write_private(&folder.join(NAME), text.as_bytes())?;
        let sync = || std::fs::File::open(folder)?.sync_all();
        sync().with_context(|| format!("cannot sync {}", folder.display()))
    }

    /// Reads it.
    pub fn load(folder: &Path) -> Result<Manifest> {
        let path = folder.join(NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
                "{} is no backup, or one that was broken off: it has no {NAME}",
                folder.display()
            ),
            Err(e) => return Err(e).with_context(|| format!("cannot read {}", path.display())),
        };
        #[derive(Deserialize)]
        struct Form {
            backup: u32,
            format: u32,
        }
        let damaged = || format!("{} is damaged", path.display());
        let Form { backup, format } = serde_json::from_str(&text).with_context(damaged)?;
        if backup != FORM || !(OLDEST_FORMAT..=FORMAT_VERSION).contains(&format) {
            bail!(
                "{} is a backup of form {backup} with records of format {format}; this program understands form {FORM} and \
                 formats {OLDEST_FORMAT} to {FORMAT_VERSION}",
                folder.display()
            );
        }
        let manifest: Manifest = serde_json::from_str(&text).with_context(damaged)?;
        if manifest.hash != manifest.digest()? {
            bail!("{}: its hash is not that of its content", damaged());
        }
        Ok(manifest)
    }
}
