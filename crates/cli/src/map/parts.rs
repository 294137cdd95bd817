//! `pando map PATH`: the parts of a directory.

use super::entries::Entries;
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::fs::absolute;
use crate::text;
use anyhow::{Context, Result, bail};
use pando_client::Client;
use pando_format::{Key, Record, Scan, Touch};
use pando_net::Waiting;
use pando_types::{Cred, DirId, Division, Part, SLOTS, Tile, Tiling};
use pando_wire::{Request, Response};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

pub fn run(args: &Args, dir: &ClusterDir, paths: &[OsString]) -> Result<ExitCode> {
    let conn = Connection::open(
        dir,
        Party::Operator,
        Waiting::default(),
        Duration::from_secs(args.wait),
    )?;
    let mut all = Vec::new();
    for path in paths {
        let path = absolute(path);
        let found = conn
            .run(conn.client.resolve(&Cred::root(), &path, false))
            .with_context(|| text::printable(&path))?;
        let Some(id) = found.entry.dir.as_ref().map(|d| d.id) else {
            bail!(
                "{} is no directory: `pando map slot` says where it is",
                text::printable(&path)
            );
        };
        let mut object = Map::new();
        text::put_bytes(&mut object, "path", &path);
        object.insert("id".into(), json!(id.to_string()));
        if conn.client.map().placement.division() == Division::OneByOne {
            let entries = conn
                .run(Entries::of(&conn.client, id))
                .with_context(|| text::printable(&path))?;
            object.insert("entries".into(), json!(entries.count()));
            object.insert("servers".into(), entries.json());
            if !args.json {
                print!("{}\n{}", text::printable(&path), entries.text());
            }
            all.push(Value::Object(object));
            continue;
        }
        let parts = conn
            .run(parts_of(&conn.client, id))
            .with_context(|| text::printable(&path))?;
        object.insert(
            "entries".into(),
            json!(parts.iter().map(|p| p.touch.stat.entries).sum::<u64>()),
        );
        object.insert("parts".into(), parts.iter().map(Row::json).collect());
        if !args.json {
            println!("{}", text::printable(&path));
            let rows: Vec<Vec<String>> = parts.iter().map(Row::words).collect();
            let heads = ["part", "hashes", "slot", "server", "entries", "subdirectories"];
            print!("{}", text::table(&heads, &rows));
        }
        all.push(Value::Object(object));
    }
    if args.json {
        println!("{}", json!({ "paths": all }));
    }
    Ok(ExitCode::SUCCESS)
}

/// A part of a directory.
struct Row {
    tile: Tile,
    slot: u16,
    server: u16,
    touch: Touch,
}

impl Row {
    fn words(&self) -> Vec<String> {
        vec![
            self.tile.start.to_string(),
            format!("{}/{SLOTS}", self.tile.width()),
            self.slot.to_string(),
            self.server.to_string(),
            self.touch.stat.entries.to_string(),
            self.touch.stat.subdirs.to_string(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "part": self.tile.start, "hashes": self.tile.width(), "slot": self.slot, "server": self.server,
            "entries": self.touch.stat.entries, "subdirectories": self.touch.stat.subdirs,
        })
    }
}

/// The parts of a directory, as of about now: they are read one after the other.
async fn parts_of(client: &Client, dir: DirId) -> Result<Vec<Row>> {
    let starts = match read(client, &Key::Parts(dir)).await? {
        Some(Record::Parts(parts)) => parts.starts,
        _ => Vec::new(),
    };
    let Some(tiling) = Tiling::of(starts) else {
        bail!("the list of its parts is damaged: `pando fsck --repair` makes it anew");
    };
    let mut rows = Vec::new();
    for tile in tiling.tiles() {
        let part = Part::new(dir, tile.start).context("a part beyond the hash space")?;
        let Some(Record::Touch(touch)) = read(client, &Key::Touch(part)).await? else {
            bail!(
                "it was removed, or its part {} is missing: `pando fsck` says which",
                tile.start
            );
        };
        rows.push(Row {
            tile,
            slot: part.slot().0,
            server: client.map().owner(part.slot()).0,
            touch,
        });
    }
    Ok(rows)
}

async fn read(client: &Client, key: &Key) -> Result<Option<Record>> {
    let server = client.map().home(key);
    let range = Scan::Keys(pando_format::KeyRange {
        start: key.encode(),
        end: [key.encode(), vec![0]].concat(),
    })
    .range();
    match client.admin(server, Request::Scan { range, limit: 1 }).await? {
        Response::Records(records) => Ok(records.into_iter().next().map(|(_, record)| record)),
        _ => bail!("server {server} answers otherwise than asked"),
    }
}
