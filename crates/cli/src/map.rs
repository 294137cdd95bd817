//! `pando map`: who answers for what.

mod entries;
mod parts;

use crate::args::Args;
use crate::blocks;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use crate::fs::absolute;
use crate::{coordination, text};
use anyhow::{Context, Result};
use clap::Subcommand;
use pando_cluster::ClusterFile;
use pando_net::Waiting;
use pando_types::Part;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Show the cluster map, or where a path is.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  pando map\n  pando map /home/me\n  pando map slot /home/me"
)]
pub struct MapArgs {
    #[command(subcommand)]
    command: Option<MapCommand>,
    /// Directories: their parts, and which servers have them.
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

#[derive(Subcommand, Debug)]
enum MapCommand {
    /// Put this machine's copy of the map back into coordination that has lost it.
    Restore,
    /// Show which slot and server hold a path's record and, of a directory, its content.
    Slot {
        /// Which paths.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<OsString>,
    },
}

pub fn run(args: &Args, map: &MapArgs) -> Result<ExitCode> {
    let dir = ClusterDir::of(args)?;
    match &map.command {
        None if !map.paths.is_empty() => parts::run(args, &dir, &map.paths),
        None => whole(args, &dir),
        Some(MapCommand::Restore) => restore(args, &dir),
        Some(MapCommand::Slot { paths }) => slot(args, &dir, paths),
    }
}

/// Slots of a server as runs.
fn runs(file: &ClusterFile, server: u16) -> (u32, String) {
    let mine = || file.slots.iter().filter(|(_, _, owner)| *owner == server);
    let count = mine().map(|(from, to, _)| u32::from(to - from)).sum();
    let runs: Vec<String> = mine().map(|(from, to, _)| format!("{from}..{to}")).collect();
    (count, runs.join(" "))
}

fn whole(args: &Args, dir: &ClusterDir) -> Result<ExitCode> {
    let copy = dir.load()?;
    let coord = coordination::open(dir, &copy)?;
    let found = coordination::wait(coord.view(), Instant::now() + coordination::PATIENCE);
    // What is known here is worth showing if there is nothing better.
    let file = match &found {
        Ok(view) => copy.with_map(&view.map),
        Err(_) => copy,
    };
    if args.json {
        let servers: Vec<Value> = file
            .servers
            .iter()
            .map(|s| {
                let (count, _) = runs(&file, s.id);
                let runs: Vec<(u16, u16)> =
                    file.slots.iter().filter(|r| r.2 == s.id).map(|r| (r.0, r.1)).collect();
                json!({ "server": s.id, "address": s.address, "metrics": s.metrics, "slot_count": count, "slots": runs })
            })
            .collect();
        let all = json!({
            "dir": dir.path, "fs": file.fs, "epoch": file.epoch, "profile": file.profile, "durability": file.durability,
            "coordinator": file.coordinator, "term": file.term, "coordination": coordination::to_json(&file, &found), "inline_limit": file.inline_limit, "block_size": file.block_size,
            "blocks": file.blocks, "name_bits": file.name_bits, "id_bits": file.id_bits, "servers": servers, "plan": file.plan,
        });
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("Filesystem {}, map epoch {}", file.fs, file.epoch);
    let p = &file.profile;
    println!(
        "Profile {}: placement {}, directory updates {}, client caches {}, store {}",
        p.name, p.placement, p.directory_updates, p.coherence, p.store
    );
    println!(
        "Durability {}; files up to {} bytes inline, larger ones in blocks of {} bytes in {}",
        file.durability, file.inline_limit, file.block_size, file.blocks
    );
    let map = file.map(&dir.path)?;
    if let Err(why) = blocks::usable(&map, &map.blocks, true) {
        println!(
            "From here {} cannot be used: {why}; {}",
            map.blocks,
            blocks::advice(&map)
        );
    }
    println!("{}", coordination::to_text(&file, &found));
    if found.is_err() {
        println!("What follows is this machine's copy of the map, which may be old.");
    }
    let rows: Vec<Vec<String>> = file
        .servers
        .iter()
        .map(|s| {
            let (count, runs) = runs(&file, s.id);
            vec![
                s.id.to_string(),
                s.address.clone(),
                s.metrics.clone(),
                count.to_string(),
                runs,
            ]
        })
        .collect();
    print!(
        "{}",
        text::table(&["server", "address", "metrics", "slots", "which"], &rows)
    );
    for (first, after, to) in &file.plan.moves {
        println!("on the move: slots {first}..{after} to server {to}");
    }
    for id in &file.plan.leaving {
        println!("server {id} is leaving");
    }
    Ok(ExitCode::SUCCESS)
}

fn restore(args: &Args, dir: &ClusterDir) -> Result<ExitCode> {
    let file = dir.load()?;
    coordination::create(dir, &file)?;
    if args.json {
        println!("{}", json!({ "place": file.coord, "epoch": file.epoch }));
    } else {
        println!("The map of epoch {} is in {}.", file.epoch, file.coord);
    }
    Ok(ExitCode::SUCCESS)
}

fn slot(args: &Args, dir: &ClusterDir, paths: &[OsString]) -> Result<ExitCode> {
    let conn = Connection::open(
        dir,
        Party::Client,
        Waiting::default(),
        Duration::from_secs(args.wait),
    )?;
    let cred = conn.my_cred();
    let mut all = Vec::new();
    for path in paths {
        let path = absolute(path);
        let found = conn
            .run(conn.client.resolve(&cred, &path, false))
            .with_context(|| text::printable(&path))?;
        let map = conn.client.map();
        let slot = conn.client.part_with(&found.parent, &found.name).slot();
        let (attr, content) = (found.entry.attr, found.entry.dir.as_ref().map(|d| d.id));
        let mut object = Map::new();
        text::put_bytes(&mut object, "path", &path);
        let value = json!({
            "slot": slot.0, "server": map.owner(slot).0, "parent_id": found.parent.id.to_string(),
            "ino": attr.ino.0, "generation": attr.generation.0,
            "id": content.map(|id| id.to_string()), "content_slot": content.map(|id| Part::whole(id).slot().0),
            "content_server": content.map(|id| map.owner(Part::whole(id).slot()).0),
        });
        if let Value::Object(value) = value {
            object.extend(value);
        }
        if !args.json {
            println!("{}", text::printable(&path));
            println!(
                "  record   slot {slot} on server {}, in directory {}, inode {}, generation {}",
                map.owner(slot),
                found.parent.id,
                attr.ino,
                attr.generation
            );
            if let Some(id) = content {
                let slot = Part::whole(id).slot();
                println!(
                    "  content  slot {slot} on server {}, directory ID {id}",
                    map.owner(slot)
                );
            }
        }
        all.push(Value::Object(object));
    }
    if args.json {
        println!("{}", json!({ "paths": all }));
    }
    Ok(ExitCode::SUCCESS)
}
