//! `cluster.json`: the map and the choices fixed when a filesystem was made, as text. People edit it, so
//! nothing in it is taken on trust.

use crate::{ClusterMap, Coherence, DirectoryUpdates, MapError, Placement, Plan, ServerInfo, SlotMove};
use pando_types::{AuthMode, FsId, Ids, MapEpoch, SLOTS, ServerId, Slot, Term};
use serde::{Deserialize, Serialize};
use std::path::Path;
use thiserror::Error;

/// Version of the file's form.
const FORM: u32 = 2;
/// Form of a file of which older programs understand all.
const FORM_BEFORE: u32 = 1;

/// The file.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
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
    /// Coordinates changes of directories' names, parents and permissions.
    #[serde(alias = "rename_server")]
    pub coordinator: u16,
    /// Keeps the identities. Filesystems made before there were elections: the coordinator.
    #[serde(default)]
    pub keeper: Option<u16>,
    /// The coordinator's term. Filesystems made before there were elections: 0.
    #[serde(default)]
    pub term: u64,
    /// Largest inline file, in bytes.
    pub inline_limit: u32,
    /// Size of blocks, in bytes.
    pub block_size: u32,
    /// Where blocks are: `file:PATH`, where a relative path counts from this folder, or `s3://BUCKET/PREFIX`.
    pub blocks: String,
    /// Width of name hashes.
    pub name_bits: u8,
    /// Width of directory IDs.
    pub id_bits: u8,
    /// How clients identify themselves: `none`, `key` or `tls`. Filesystems made before there was a choice:
    /// `none`.
    #[serde(default = "nobody")]
    pub auth: String,
    /// Where coordination is: `dir` (this file is the map), or `zk://...` (this file is a copy of it).
    #[serde(default = "here")]
    pub coord: String,
    /// What is to move where, and who is on its way out.
    #[serde(default)]
    pub plan: PlanText,
}

/// A [`Plan`] as text.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanText {
    /// Epoch of the map in which it was made.
    pub made: u64,
    /// No server ever had this number or a higher one.
    pub next: u16,
    /// Servers that leave.
    pub leaving: Vec<u16>,
    /// Runs of slots: first slot, slot after the last, where to.
    pub moves: Vec<(u16, u16, u16)>,
}

impl PlanText {
    fn plan(&self) -> Plan {
        let moves = self.moves.iter().map(|(first, after, to)| SlotMove {
            first: Slot(*first),
            after: Slot(*after),
            to: ServerId(*to),
        });
        Plan {
            made: MapEpoch(self.made),
            next: ServerId(self.next),
            leaving: self.leaving.iter().copied().map(ServerId).collect(),
            moves: moves.collect(),
        }
    }

    /// The text of a plan.
    pub fn of(plan: &Plan) -> PlanText {
        PlanText {
            made: plan.made.0,
            next: plan.next.0,
            leaving: plan.leaving.iter().map(|id| id.0).collect(),
            moves: plan
                .moves
                .iter()
                .map(|m| (m.first.0, m.after.0, m.to.0))
                .collect(),
        }
    }
}

fn here() -> String {
    "dir".into()
}

fn predicted() -> String {
    Ids::Predicted.word().into()
}

fn nobody() -> String {
    AuthMode::None.word().into()
}

/// The choices a profile's name stood for when the filesystem was made.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// As given.
    pub name: String,
    /// Who places records.
    pub placement: String,
    /// How new directories get their IDs. Files from before there was a choice say nothing.
    #[serde(default = "predicted")]
    pub ids: String,
    /// How directories of two servers are changed.
    pub directory_updates: String,
    /// How client caches stay true.
    pub coherence: String,
    /// The store.
    pub store: String,
}

/// Two-phase commit for everything that concerns two servers.
const TWO_PHASE: &str = "two-phase-commit";
/// The same, but for mkdir.
const PARENT_FIRST: &str = "parent-first";

impl Profile {
    /// The form of a file with these IDs. Programs that know no placed ones refuse it.
    pub fn form(ids: Ids) -> u32 {
        match ids {
            Ids::Predicted => FORM_BEFORE,
            Ids::Placed => FORM,
        }
    }

    fn ids(&self) -> Result<Ids, FileError> {
        Ids::of_word(&self.ids).ok_or_else(|| FileError::Ids(self.ids.clone()))
    }

    fn placement(&self) -> Result<Placement, FileError> {
        Placement::of_word(&self.placement).ok_or_else(|| FileError::Placement(self.placement.clone()))
    }

    /// The word for a way to change directories of two servers.
    pub fn updates_word(updates: DirectoryUpdates) -> String {
        match updates {
            DirectoryUpdates::TwoPhase => TWO_PHASE,
            DirectoryUpdates::ParentFirst => PARENT_FIRST,
        }
        .into()
    }

    fn updates(&self) -> Result<DirectoryUpdates, FileError> {
        match self.directory_updates.as_str() {
            TWO_PHASE => Ok(DirectoryUpdates::TwoPhase),
            PARENT_FIRST => Ok(DirectoryUpdates::ParentFirst),
            other => Err(FileError::Updates(other.into())),
        }
    }

    fn coherence(&self) -> Result<Coherence, FileError> {
        // Before there was a choice it said none.
        if self.coherence == "none" {
            return Ok(Coherence::Lazy);
        }
        Coherence::parse(&self.coherence).ok_or_else(|| FileError::Coherence(self.coherence.clone()))
    }
}

/// A server.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Number.
    pub id: u16,
    /// `host:port`.
    pub address: String,
    /// `host:port` of its Prometheus endpoint.
    pub metrics: String,
}

/// Why a text is not the file of a cluster.
#[derive(Debug, Error)]
pub enum FileError {
    /// Another release wrote it.
    #[error("it has form {0}, this program understands {FORM}; use a newer pando")]
    Form(u32),
    /// Not the fields there are.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Not an id.
    #[error("cluster.json: fs is not 32 hexadecimal digits")]
    Fs,
    /// A run of slots is out of bounds.
    #[error("cluster.json: slots {0}..{1} do not exist")]
    Run(u16, u16),
    /// Two runs say who owns it.
    #[error("cluster.json: slot {0} has two owners")]
    TwoOwners(u16),
    /// No run says who owns it.
    #[error("cluster.json: slot {0} has no owner")]
    NoOwner(u16),
    /// Blocks are kept nowhere that is known.
    #[error("cluster.json: blocks is neither file:PATH nor s3://BUCKET/PREFIX")]
    Blocks,
    /// No way for clients to identify themselves.
    #[error("cluster.json: auth is \"{0}\", not none, key or tls")]
    Auth(String),
    /// No way to keep what clients know true.
    #[error("cluster.json: coherence is \"{0}\", not lazy or lease=SECONDS (or depth:SECONDS, rate:SECONDS)")]
    Coherence(String),
    /// No way to give IDs.
    #[error("cluster.json: ids is \"{0}\", not predicted or placed")]
    Ids(String),
    /// No way to place records.
    #[error("cluster.json: placement is \"{0}\", not one of: {words}", words = Placement::words())]
    Placement(String),
    /// No way to change directories of two servers.
    #[error("cluster.json: directory_updates is \"{0}\", not {TWO_PHASE} or {PARENT_FIRST}")]
    Updates(String),
    /// The map it makes is not usable.
    #[error("cluster.json: {0}")]
    Map(MapError),
}

impl ClusterFile {
    /// The file a text is. A newer form is told apart, whatever else is in it.
    pub fn parse(text: &str) -> Result<ClusterFile, FileError> {
        #[derive(Deserialize)]
        struct Form {
            format: u32,
        }
        let Form { format } = serde_json::from_str(text)?;
        if !(FORM_BEFORE..=FORM).contains(&format) {
            return Err(FileError::Form(format));
        }
        Ok(serde_json::from_str(text)?)
    }

    /// The text that [`ClusterFile::parse`] reads.
    pub fn to_text(&self) -> String {
        // Strings and numbers, in structs and lists: there is nothing that JSON does not have.
        let text = serde_json::to_string_pretty(self).expect("plain data has a JSON form");
        text + "\n"
    }

    /// The map, as servers and clients use it, checked. Relative paths count from `dir`.
    pub fn map(&self, dir: &Path) -> Result<ClusterMap, FileError> {
        let digits = self.fs.len() == 32 && self.fs.bytes().all(|b| b.is_ascii_hexdigit());
        let fs = u128::from_str_radix(&self.fs, 16).ok().filter(|_| digits);
        let blocks = match self.blocks.split_once(':') {
            Some(("file", path)) => format!("file:{}", dir.join(path).display()),
            Some(("s3", rest)) if rest.starts_with("//") => self.blocks.clone(),
            _ => return Err(FileError::Blocks),
        };
        let servers = self.servers.iter().map(|s| ServerInfo {
            id: ServerId(s.id),
            address: s.address.clone(),
            metrics: s.metrics.clone(),
        });
        let map = ClusterMap {
            fs: FsId(fs.ok_or(FileError::Fs)?),
            epoch: MapEpoch(self.epoch),
            servers: servers.collect(),
            slots: self.owners()?,
            coordinator: ServerId(self.coordinator),
            keeper: ServerId(self.keeper.unwrap_or(self.coordinator)),
            // Before there were terms the log of invalidations went by the epoch.
            term: Term(if self.term == 0 { self.epoch } else { self.term }),
            inline_limit: self.inline_limit,
            block_size: self.block_size,
            blocks,
            name_bits: self.name_bits,
            id_bits: self.id_bits,
            auth: self.auth_mode()?,
            coherence: self.profile.coherence()?,
            placement: self.profile.placement()?,
            ids: self.profile.ids()?,
            updates: self.profile.updates()?,
            plan: self.plan.plan(),
        };
        map.check().map_err(FileError::Map)?;
        Ok(map)
    }

    /// The same filesystem with another map. What was chosen when it was made stays, and so do relative
    /// paths.
    pub fn with_map(&self, map: &ClusterMap) -> ClusterFile {
        let server = |s: &ServerInfo| Server {
            id: s.id.0,
            address: s.address.clone(),
            metrics: s.metrics.clone(),
        };
        let mut slots: Vec<(u16, u16, u16)> = Vec::new();
        for (slot, owner) in (0..SLOTS).zip(&map.slots) {
            match slots.last_mut() {
                Some((_, to, last)) if *last == owner.0 => *to = slot + 1,
                _ => slots.push((slot, slot + 1, owner.0)),
            }
        }
        ClusterFile {
            epoch: map.epoch.0,
            servers: map.servers.iter().map(server).collect(),
            slots,
            coordinator: map.coordinator.0,
            keeper: Some(map.keeper.0),
            term: map.term.0,
            plan: PlanText::of(&map.plan),
            ..self.clone()
        }
    }

    /// How clients identify themselves.
    pub fn auth_mode(&self) -> Result<AuthMode, FileError> {
        let modes = [AuthMode::None, AuthMode::Key, AuthMode::Tls];
        let found = modes.into_iter().find(|m| m.word() == self.auth);
        found.ok_or_else(|| FileError::Auth(self.auth.clone()))
    }

    /// The owner of each slot.
    fn owners(&self) -> Result<Vec<ServerId>, FileError> {
        let mut owners = vec![None; usize::from(SLOTS)];
        for (from, to, owner) in &self.slots {
            let run = owners
                .get_mut(usize::from(*from)..usize::from(*to))
                .ok_or(FileError::Run(*from, *to))?;
            for (slot, place) in (*from..).zip(run) {
                if place.replace(ServerId(*owner)).is_some() {
                    return Err(FileError::TwoOwners(slot));
                }
            }
        }
        (0..SLOTS)
            .zip(owners)
            .map(|(slot, owner)| owner.ok_or(FileError::NoOwner(slot)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_format::Key;

    fn file() -> ClusterFile {
        let server = |id| Server {
            id,
            address: format!("host{id}:1"),
            metrics: String::new(),
        };
        ClusterFile {
            format: 1,
            fs: "000102030405060708090a0b0c0d0e0f".into(),
            epoch: 1,
            profile: Profile {
                name: "pando".into(),
                placement: Placement::Directory.word(),
                ids: Ids::Predicted.word().into(),
                directory_updates: Profile::updates_word(DirectoryUpdates::ParentFirst),
                coherence: Coherence::Lazy.word(),
                store: String::new(),
            },
            durability: "sync".into(),
            servers: vec![server(0), server(1)],
            slots: vec![(0, 2048, 0), (2048, 4096, 1)],
            coordinator: 1,
            keeper: Some(1),
            term: 1,
            inline_limit: 65536,
            block_size: 1 << 22,
            blocks: "file:blocks".into(),
            name_bits: 55,
            id_bits: 128,
            auth: nobody(),
            coord: here(),
            plan: PlanText::default(),
        }
    }

    fn wrong(change: impl FnOnce(&mut ClusterFile)) -> String {
        let mut file = file();
        change(&mut file);
        match file.map(Path::new("/d")) {
            Ok(_) => "nothing wrong".into(),
            Err(e) => e.to_string().replace("cluster.json: ", ""),
        }
    }

    #[test]
    fn text_and_back_and_a_map() {
        let parsed = ClusterFile::parse(&file().to_text()).unwrap();
        assert_eq!(parsed, file());
        let map = parsed.map(Path::new("/d")).unwrap();
        assert_eq!(map.fs, FsId(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f));
        assert_eq!(map.blocks, "file:/d/blocks");
        let bucket = ClusterFile {
            blocks: "s3://bucket/prefix".into(),
            ..file()
        };
        assert_eq!(bucket.map(Path::new("/d")).unwrap().blocks, "s3://bucket/prefix");
        assert_eq!((map.slots[2047], map.slots[2048]), (ServerId(0), ServerId(1)));
        let newer = format!(r#"{{"format": {}, "shape": "unknown"}}"#, FORM + 1);
        assert!(matches!(ClusterFile::parse(&newer), Err(FileError::Form(f)) if f == FORM + 1));
        assert!(matches!(ClusterFile::parse("{"), Err(FileError::Json(_))));
    }

    #[test]
    fn another_map_and_the_same_choices() {
        let mut map = file().map(Path::new("/d")).unwrap();
        (map.epoch, map.term, map.coordinator) = (MapEpoch(7), Term(9), ServerId(0));
        map.slots[0] = ServerId(1);
        let changed = file().with_map(&map);
        assert_eq!(changed.slots, vec![(0, 1, 1), (1, 2048, 0), (2048, 4096, 1)]);
        assert_eq!(changed.blocks, "file:blocks");
        assert_eq!(changed.map(Path::new("/d")).unwrap(), map);
        assert_eq!(file().with_map(&file().map(Path::new("/d")).unwrap()), file());
    }

    #[test]
    fn every_slot_has_one_owner() {
        // As many slots as there are, but some twice and some not at all.
        assert_eq!(wrong(|f| f.slots[1].0 = 2047), "slot 2047 has two owners");
        assert_eq!(wrong(|f| f.slots[1].0 = 2049), "slot 2048 has no owner");
        let twice = |f: &mut ClusterFile| f.slots = vec![(0, 2048, 0), (0, 2048, 0)];
        assert_eq!(wrong(twice), "slot 0 has two owners");
        assert_eq!(wrong(|f| f.slots[1].1 = 4097), "slots 2048..4097 do not exist");
        assert_eq!(wrong(|f| f.slots.push((9, 8, 0))), "slots 9..8 do not exist");
    }

    #[test]
    fn what_people_mistype_is_said() {
        assert_eq!(wrong(|f| f.fs = "+1".into()), "fs is not 32 hexadecimal digits");
        for nowhere in ["blocks", "s3:/bucket", "ftp://x"] {
            assert_eq!(
                wrong(|f| f.blocks = nowhere.into()),
                "blocks is neither file:PATH nor s3://BUCKET/PREFIX"
            );
        }
        assert!(wrong(|f| f.coordinator = 7).contains("server 7"));
        assert!(wrong(|f| f.block_size = 0).contains("block"));
        for coherence in ["lease=", "lease=0", "lease=-1", "lease=NaN", "leases"] {
            let said = wrong(|f| f.profile.coherence = coherence.into());
            assert!(said.starts_with("coherence is"), "{said}");
        }
        assert!(wrong(|f| f.profile.coherence = "lease=3600".into()).contains("at most 60 s"));
        assert!(wrong(|f| f.profile.placement = String::new()).starts_with("placement is"));
    }

    #[test]
    fn choices_keep_their_words() {
        let mut f = file();
        // As they were made before there was a choice.
        f.profile.coherence = "none".into();
        let map = f.map(Path::new("/d")).unwrap();
        assert_eq!(
            (map.coherence, map.placement),
            (Coherence::Lazy, Placement::Directory)
        );
    }

    #[test]
    fn without_decoupling_counts_and_times_are_elsewhere() {
        let mut map = file().map(Path::new("/d")).unwrap();
        for n in 0..1000 {
            let dir = pando_types::DirId((n << 64) | (n * 0x9E37_79B9_7F4A_7C15));
            let homes =
                |map: &ClusterMap| [Key::Head(dir.into()), Key::Touch(dir.into())].map(|key| map.home(&key));
            map.placement = Placement::Directory;
            assert_eq!(homes(&map)[0], homes(&map)[1]);
            map.placement = Placement::Coupled;
            assert_ne!(homes(&map)[0], homes(&map)[1]);
        }
    }
}
