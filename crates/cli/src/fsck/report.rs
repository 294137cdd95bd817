//! Saying what was found, with paths where there are any.

use super::finding::{Finding, Place, Subject};
use super::repair::{self, Done};
use super::{FsckArgs, Outcome, Verdict, key_hex};
use crate::args::Args;
use crate::connect::Connection;
use crate::text;
use anyhow::Result;
use pando_client::Client;
use pando_format::{Key, KeyRange, Record};
use pando_types::{DirId, ServerId};
use pando_wire::{Request, Response};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Findings shown one by one; of more, the number.
const SHOWN: usize = 1000;
/// Deeper than any path.
const DEPTH: usize = 4096;

/// Prints the report, and says what it comes to.
pub fn print(
    args: &Args,
    conn: &Connection,
    outcome: &Outcome,
    repaired: Option<(&FsckArgs, Done)>,
) -> Result<Verdict> {
    let (notes, problems): (Vec<&Finding>, Vec<&Finding>) =
        outcome.findings.iter().partition(|f| f.kind.is_note());
    let mut paths = Paths {
        client: &conn.client,
        known: HashMap::new(),
    };
    let mut lines = |findings: &[&Finding]| -> Vec<Line> {
        findings
            .iter()
            .take(SHOWN)
            .map(|f| Line {
                kind: f.kind.name(),
                path: conn.run(paths.of(&f.subject)),
                server: server(conn, &f.subject),
                subject: subject(&f.subject),
                detail: f.detail.clone(),
            })
            .collect()
    };
    let (bad, noted) = (lines(&problems), lines(&notes));
    let verdict = match (&outcome.without_data, problems.len()) {
        (Some(_), _) => Verdict::Unchecked,
        (None, 0) => Verdict::Clean,
        (None, _) => Verdict::Problems,
    };
    let c = &outcome.counts;
    if args.json {
        let mut all = json!({
            "checked": verdict != Verdict::Unchecked, "clean": verdict == Verdict::Clean, "fs": conn.file.fs,
            "problems": bad.iter().map(Line::json).collect::<Vec<_>>(), "problem_count": problems.len(),
            "notes": noted.iter().map(Line::json).collect::<Vec<_>>(), "note_count": notes.len(),
            "suspected": outcome.suspected, "records": c.records, "directories": c.directories, "files": c.files,
            "bytes": c.bytes, "block_files": c.block_files, "sessions": c.sessions, "replies": c.replies,
            "garbage": { "files": c.garbage, "held": c.held, "bytes": c.garbage_bytes },
            "open_without_name": c.open_without_name,
        });
        if let Some(why) = &outcome.without_data {
            all["error"] = json!(could_not_look(why));
        }
        if let Some((fsck, done)) = &repaired {
            all["repair"] = repair::json(fsck, done);
        }
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(verdict);
    }
    if let Some((fsck, done)) = &repaired {
        repair::tell(fsck, done);
    }
    for line in bad.iter().chain(&noted) {
        println!("{}", line.text());
    }
    for (all, word) in [(&problems, "problems"), (&notes, "notes")] {
        if all.len() > SHOWN {
            println!("... and {} more {word}", all.len() - SHOWN);
        }
    }
    println!(
        "{} directories, {} files, {} bytes; {} records read on {} servers",
        c.directories,
        c.files,
        text::human(c.bytes),
        c.records,
        conn.client.map().servers.len()
    );
    if c.garbage > 0 {
        println!(
            "{} removed files ({} bytes) wait for the deletion of their data, {} of them are held open",
            c.garbage,
            text::human(c.garbage_bytes),
            c.held
        );
    }
    if c.open_without_name > 0 {
        println!(
            "{} files without a name are there while somebody has them open",
            c.open_without_name
        );
    }
    if outcome.suspected > outcome.findings.len() {
        println!(
            "{} things looked wrong while they were changing, and were not",
            outcome.suspected - outcome.findings.len()
        );
    }
    let left = repaired.is_some_and(|(fsck, _)| !fsck.dry_run);
    match problems.len() {
        n if n > 0 && left => println!("{n} problems are left; docs/operations.md says what to do."),
        0 if verdict == Verdict::Clean => println!("Clean."),
        0 => {}
        1 => println!("1 problem. Nothing was changed; docs/operations.md says what to do."),
        n => println!("{n} problems. Nothing was changed; docs/operations.md says what to do."),
    }
    if let Some(why) = &outcome.without_data {
        eprintln!("pando: {}", could_not_look(why));
    }
    Ok(verdict)
}

fn could_not_look(why: &str) -> String {
    format!("the data of large files could not be checked: {why}")
}

struct Line {
    kind: &'static str,
    path: Option<Vec<u8>>,
    server: Option<ServerId>,
    subject: Map<String, Value>,
    detail: String,
}

impl Line {
    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("kind".into(), self.kind.into());
        object.insert("detail".into(), self.detail.clone().into());
        if let Some(server) = self.server {
            object.insert("server".into(), server.0.into());
        }
        if let Some(path) = &self.path {
            text::put_bytes(&mut object, "path", path);
        }
        object.extend(self.subject.clone());
        Value::Object(object)
    }

    fn text(&self) -> String {
        let place = match &self.path {
            Some(path) => text::printable(path),
            None => self
                .subject
                .iter()
                .map(|(k, v)| format!("{k} {}", v.as_str().map_or(v.to_string(), str::to_owned)))
                .collect::<Vec<_>>()
                .join(" "),
        };
        let server = self.server.map_or(String::new(), |s| format!(" (server {s})"));
        format!("{}: {place}{server}: {}", self.kind, self.detail)
    }
}

fn server(conn: &Connection, subject: &Subject) -> Option<ServerId> {
    let map = conn.client.map();
    match subject {
        Subject::Dir(id) => Some(map.owner(id.slot())),
        Subject::Bucket(place) => Some(map.owner(place.dir.slot())),
        Subject::Ino(_) => None,
        Subject::Counter(slot, _) => Some(map.owner(*slot)),
        Subject::Slot(server, _) | Subject::Range(server, ..) | Subject::Record(server, _) => Some(*server),
    }
}

fn subject(subject: &Subject) -> Map<String, Value> {
    let value = match subject {
        Subject::Dir(id) => json!({ "directory": id.to_string() }),
        Subject::Bucket(p) => json!({ "directory": p.dir.to_string(), "bucket": p.hash.0 }),
        Subject::Ino(ino) => json!({ "ino": ino.0 }),
        Subject::Counter(slot, _) | Subject::Slot(_, slot) => json!({ "slot": slot.0 }),
        Subject::Range(_, start, end) => json!({ "start": key_hex(start), "end": key_hex(end) }),
        Subject::Record(_, key) => json!({ "key": key_hex(key) }),
    };
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Paths of directories, found from below.
struct Paths<'a> {
    client: &'a Client,
    known: HashMap<DirId, Option<(DirId, Vec<u8>)>>,
}

impl Paths<'_> {
    async fn of(&mut self, subject: &Subject) -> Option<Vec<u8>> {
        match subject {
            Subject::Dir(id) => self.dir(*id).await,
            Subject::Bucket(place) => {
                let dir = self.dir(place.dir).await?;
                let name = self.name(place).await?;
                Some(crate::fs::below(&dir, &name))
            }
            _ => None,
        }
    }

    /// Of entries in one bucket, which is nearly always one, the first name.
    async fn name(&self, place: &Place) -> Option<Vec<u8>> {
        let range = KeyRange::bucket(place.dir, place.hash);
        match self.scan(place.dir, range).await?.first()? {
            (Key::Entry { name, .. }, _) => Some(name.as_bytes().to_vec()),
            _ => None,
        }
    }

    async fn scan(&self, dir: DirId, range: KeyRange) -> Option<Vec<(Key, Record)>> {
        let server = self.client.map().owner(dir.slot());
        match self.client.admin(server, Request::Scan { range, limit: 1 }).await {
            Ok(Response::Records(records)) => Some(records),
            _ => None,
        }
    }

    async fn dir(&mut self, id: DirId) -> Option<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = id;
        while at != DirId::ROOT {
            if names.len() > DEPTH {
                return None;
            }
            if !self.known.contains_key(&at) {
                let start = Key::Head(at).encode();
                let mut end = start.clone();
                end.push(0);
                let head = match self.scan(at, KeyRange { start, end }).await?.into_iter().next() {
                    Some((_, Record::Head(head))) => Some((head.parent, head.name.as_bytes().to_vec())),
                    _ => None,
                };
                self.known.insert(at, head);
            }
            let (parent, name) = self.known.get(&at)?.clone()?;
            names.push(name);
            at = parent;
        }
        let mut path = Vec::new();
        for name in names.into_iter().rev() {
            path.push(b'/');
            path.extend_from_slice(&name);
        }
        if path.is_empty() {
            Some(b"/".to_vec())
        } else {
            Some(path)
        }
    }
}
