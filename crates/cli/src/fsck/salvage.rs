//! Stores with damaged tables are made anew where they are: their servers are stopped meanwhile. What is lost
//! is named before, while paths can be found.

use super::finding::{Finding, Kind, Subject};
use super::range::of_what;
use super::repair::Done;
use super::report;
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::Connection;
use crate::store_kinds::{Salvaged, StoreKind};
use crate::{process, restart};
use anyhow::{Context, Result};
use pando_format::Left;
use pando_types::ServerId;
use std::collections::BTreeSet;
use std::path::Path;

/// Makes the store anew, without whatever is damaged in it.
pub fn store(path: &Path) -> Result<Salvaged> {
    StoreKind::at(path)
        .salvage(path)
        .with_context(|| format!("cannot make the store {} anew", path.display()))
}

/// What was done, in words.
pub fn told(id: u16, salvaged: &Salvaged) -> String {
    let (Some(remains), Some(kept)) = (&salvaged.remains, &salvaged.kept) else {
        return format!("server {id}: no table is damaged, nothing was changed");
    };
    format!(
        "server {id}: {} damaged; the store was made anew with {} records, what was damaged is in {}",
        remains.tables.join(", "),
        salvaged.records,
        kept.display()
    )
}

/// What is lost that has no name.
fn unnamed(salvaged: &Salvaged) -> impl Iterator<Item = String> {
    let more = salvaged.remains.as_ref().is_some_and(|r| r.more);
    let records = "there may have been records whose names are lost too: how many a directory misses is said where it is counted";
    let answers = "answers to requests may be lost: what a client repeats may be done twice";
    let records = more.then(|| records.to_owned());
    records
        .into_iter()
        .chain(salvaged.journal.then(|| answers.to_owned()))
}

/// What is lost, in words without paths: no server is asked.
pub fn lost(salvaged: &Salvaged) -> Vec<String> {
    let remains = salvaged.remains.iter();
    let found = remains.clone().flat_map(|r| &r.found).map(|remnant| {
        let key = remnant.key.encode();
        let what = match remnant.left {
            Left::Nothing => "lost-record",
            Left::Whole(_) | Left::Older(_) => "older-record",
        };
        format!(
            "{what}: {}: {}",
            report::words(&report::record(&key)),
            of_what(&remnant.key)
        )
    });
    found.chain(unnamed(salvaged)).collect()
}

/// Does it for all servers of which something cannot be read and that run from this folder.
pub fn all(args: &Args, conn: &Connection, findings: &[Finding], done: &mut Done) {
    let servers = |f: &Finding| match (&f.subject, f.kind) {
        (Subject::Range(server, ..), Kind::Corrupt) => Some(*server),
        _ => None,
    };
    let servers: BTreeSet<ServerId> = findings.iter().filter_map(servers).collect();
    for id in servers {
        let of_it = |f: &&Finding| match (&f.subject, f.kind) {
            (Subject::Record(server, _), Kind::Lost | Kind::Older) => *server == id,
            _ => false,
        };
        let lost: Vec<&Finding> = findings.iter().filter(of_it).collect();
        let lost = report::texts(conn, &lost);
        match one(args, id.0) {
            Ok(salvaged) => {
                done.repairs.push(told(id.0, &salvaged));
                done.lost.extend(lost);
                let unnamed = unnamed(&salvaged);
                done.lost
                    .extend(unnamed.map(|what| format!("server {id}: {what}")));
            }
            Err(e) => done.failed.push(format!("server {id}: {e:#}")),
        }
    }
}

fn one(args: &Args, id: u16) -> Result<Salvaged> {
    let dir = ClusterDir::of(args)?;
    if process::running(&dir, &format!("server-{id}")).is_none() {
        anyhow::bail!(
            "it does not run from this folder: say `pando fsck --repair` where it runs, or stop it there and say `pando server --id {id} --salvage`"
        );
    }
    restart::while_stopped(args, &dir, id, |path| store(&path))
}
