//! `pando map PATH` where entries are placed one by one: how many of a directory's each server has, by its
//! list.

use crate::text;
use anyhow::{Result, bail};
use pando_client::Client;
use pando_format::{Key, NameHash, Record, Scan};
use pando_types::{DirId, Division, FileKind, Part};
use pando_wire::{Request, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Lines asked for at a time.
const SOME: u32 = 4096;

/// Entries of a directory by the servers that have them.
pub struct Entries {
    /// The directory's own slot, and its server: they have the list, counts and times.
    home: (u16, u16),
    /// Of each server: entries, and subdirectories among them.
    servers: BTreeMap<u16, (u64, u64)>,
}

impl Entries {
    /// As of about now: the list is read in pages.
    pub async fn of(client: &Client, dir: DirId) -> Result<Entries> {
        let map = client.map();
        let slot = Part::whole(dir).slot();
        let mut servers: BTreeMap<u16, (u64, u64)> = map.servers.iter().map(|s| (s.id.0, (0, 0))).collect();
        let mut range = Scan::LinesFrom(dir, NameHash(0)).range();
        loop {
            let request = Request::Scan {
                range: range.clone(),
                limit: SOME,
            };
            let Response::Records(records) = client.admin(map.owner(slot), request).await? else {
                bail!("its list cannot be read: `pando fsck` says why");
            };
            let Some((last, _)) = records.last() else { break };
            range = range.after(last);
            for (key, record) in &records {
                if let (Key::Line { hash, .. }, Record::Line(line)) = (key, record) {
                    let at = map.owner(Division::OneByOne.part(dir, hash.upper()).slot());
                    let (entries, subdirs) = servers.entry(at.0).or_default();
                    *entries += 1;
                    *subdirs += u64::from(line.kind == FileKind::Directory);
                }
            }
        }
        let home = (slot.0, map.owner(slot).0);
        Ok(Entries { home, servers })
    }

    /// All of them.
    pub fn count(&self) -> u64 {
        self.servers.values().map(|(entries, _)| entries).sum()
    }

    /// For people.
    pub fn text(&self) -> String {
        let (slot, server) = self.home;
        let rows: Vec<Vec<String>> = (self.servers.iter())
            .map(|(server, (entries, subdirs))| {
                [*server as u64, *entries, *subdirs]
                    .map(|n| n.to_string())
                    .to_vec()
            })
            .collect();
        let table = text::table(&["server", "entries", "subdirectories"], &rows);
        format!("list, counts and times: slot {slot} on server {server}\n{table}")
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let row = |(server, (entries, subdirs)): (&u16, &(u64, u64))| json!({ "server": server, "entries": entries, "subdirectories": subdirs });
        self.servers.iter().map(row).collect()
    }
}
