//! Saying what was found, with paths where there are any.

use super::finding::{Finding, Kind, Place, Subject};
use super::repair::{self, Done};
use super::{Collector, FsckArgs, Outcome, Verdict, key_hex};
use crate::args::Args;
use crate::connect::Connection;
use crate::text;
use anyhow::Result;
use pando_client::Client;
use pando_format::{Key, KeyRange, LOCAL_SLOT, Record, Scan};
use pando_types::{DirId, Part, ServerId};
use pando_wire::{Request, Response};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::rc::Rc;

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
    let mut paths = Paths::new(conn.client.clone());
    let mut lines = |findings: &[&Finding]| -> Vec<Line> {
        let shown = findings.iter().take(SHOWN);
        shown.map(|f| line(conn, &mut paths, f)).collect()
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
    let damaged = problems.iter().any(|f| f.kind == Kind::Corrupt);
    let left = repaired.as_ref().is_some_and(|(fsck, _)| !fsck.dry_run);
    match problems.len() {
        n if n > 0 && damaged && !left => println!(
            "{n} problems. Nothing was changed. A table is damaged: `pando fsck --repair` makes the store anew of what is whole, \
             `pando dump` copies what can be read; docs/operations.md says more."
        ),
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

fn line(conn: &Connection, paths: &mut Paths, f: &Finding) -> Line {
    Line {
        kind: f.kind.name(),
        path: conn.run(paths.of(&f.subject)),
        server: server(conn, &f.subject),
        subject: subject(&f.subject),
        detail: f.detail.clone(),
    }
}

/// A line for each of these findings, with paths as far as they are known.
pub fn texts(conn: &Connection, findings: &[&Finding]) -> Vec<String> {
    let mut paths = Paths::new(conn.client.clone());
    let all = findings.iter();
    all.map(|f| line(conn, &mut paths, f).text()).collect()
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
            None => words(&Value::Object(self.subject.clone())),
        };
        let server = self.server.map_or(String::new(), |s| format!(" (server {s})"));
        format!("{}: {place}{server}: {}", self.kind, self.detail)
    }
}

fn server(conn: &Connection, subject: &Subject) -> Option<ServerId> {
    let map = conn.client.map();
    match subject {
        Subject::Dir(id) => Some(map.owner(Part::whole(*id).slot())),
        Subject::Part(part) => Some(map.owner(part.slot())),
        Subject::Bucket(place) => Some(map.owner(place.part.slot())),
        Subject::Ino(_) => None,
        Subject::Counter(slot, _) => Some(map.owner(*slot)),
        Subject::Slot(server, _) | Subject::Range(server, ..) | Subject::Record(server, _) => Some(*server),
    }
}

fn subject(subject: &Subject) -> Map<String, Value> {
    let value = match subject {
        Subject::Dir(id) => json!({ "directory": id.to_string() }),
        Subject::Part(p) => json!({ "directory": p.dir.to_string(), "part": p.start() }),
        Subject::Bucket(p) if p.part.start() == 0 => {
            json!({ "directory": p.part.dir.to_string(), "bucket": p.hash.0 })
        }
        Subject::Bucket(p) => {
            json!({ "directory": p.part.dir.to_string(), "part": p.part.start(), "bucket": p.hash.0 })
        }
        Subject::Ino(ino) => json!({ "ino": ino.0 }),
        Subject::Counter(slot, _) | Subject::Slot(_, slot) => json!({ "slot": slot.0 }),
        Subject::Range(_, start, end) => json!({ "start": key_hex(start), "end": key_hex(end) }),
        Subject::Record(_, key) => record(key),
    };
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The members of an object, for people.
pub fn words(object: &Value) -> String {
    let members = object.as_object().into_iter().flatten();
    let all = members.map(|(k, v)| format!("{k} {}", v.as_str().map_or(v.to_string(), str::to_owned)));
    all.collect::<Vec<_>>().join(" ")
}

/// What is known of a record by its key.
pub fn record(key: &[u8]) -> Value {
    let mut all = json!({ "key": key_hex(key) });
    let Ok(key) = Key::decode(key) else { return all };
    if key.slot() != LOCAL_SLOT {
        all["slot"] = json!(key.slot().0);
    }
    match &key {
        Key::Entry { part, name, .. } | Key::Attachment { part, name, .. } => {
            all["directory"] = json!(part.to_string());
            all["name"] = json!(text::quoted(name));
        }
        Key::Line { dir, name, .. } => {
            all["directory"] = json!(dir.to_string());
            all["name"] = json!(text::quoted(name));
        }
        Key::Head(part) | Key::Touch(part) | Key::PartNote(part) | Key::Local(part) => {
            all["directory"] = json!(part.to_string());
        }
        Key::Parts(dir) => all["directory"] = json!(dir.to_string()),
        Key::Garbage(_, ino, _) | Key::Orphan(_, ino, _) => all["ino"] = json!(ino.0),
        Key::RenameList { .. }
        | Key::Counter(_)
        | Key::Reply(..)
        | Key::Superblock
        | Key::Session(_)
        | Key::Decision(_)
        | Key::Owed(_)
        | Key::Prepared(..)
        | Key::Identity(_)
        | Key::HandOver
        | Key::Invalidation(_) => {}
    }
    all
}

/// Paths of directories, found from below.
pub struct Paths {
    client: Rc<Client>,
    known: HashMap<DirId, Option<(DirId, Vec<u8>)>>,
}

impl Paths {
    /// Knows none yet.
    pub fn new(client: Rc<Client>) -> Paths {
        Paths {
            client,
            known: HashMap::new(),
        }
    }

    /// The path of what a record is of, if it can be found.
    pub async fn of_key(&mut self, key: &Key) -> Option<Vec<u8>> {
        match key {
            Key::Entry { part, name, .. } | Key::Attachment { part, name, .. } => {
                let part = self.dir(part.dir).await?;
                Some(crate::fs::below(&part, name.as_bytes()))
            }
            Key::Line { dir, name, .. } => {
                let dir = self.dir(*dir).await?;
                Some(crate::fs::below(&dir, name.as_bytes()))
            }
            Key::Head(part) | Key::Touch(part) | Key::PartNote(part) | Key::Local(part) => {
                self.dir(part.dir).await
            }
            Key::Parts(dir) => self.dir(*dir).await,
            Key::RenameList { .. }
            | Key::Counter(_)
            | Key::Garbage(..)
            | Key::Orphan(..)
            | Key::Reply(..)
            | Key::Superblock
            | Key::Session(_)
            | Key::Decision(_)
            | Key::Owed(_)
            | Key::Prepared(..)
            | Key::Identity(_)
            | Key::HandOver
            | Key::Invalidation(_) => None,
        }
    }

    async fn of(&mut self, subject: &Subject) -> Option<Vec<u8>> {
        match subject {
            Subject::Dir(id) => self.dir(*id).await,
            Subject::Part(part) => self.dir(part.dir).await,
            Subject::Bucket(place) => {
                let dir = self.dir(place.part.dir).await?;
                let name = self.name(place).await?;
                Some(crate::fs::below(&dir, &name))
            }
            Subject::Record(_, key) => self.of_key(&Key::decode(key).ok()?).await,
            _ => None,
        }
    }

    /// Of entries in one bucket, which is nearly always one, the first name.
    async fn name(&self, place: &Place) -> Option<Vec<u8>> {
        let range = Scan::Bucket(place.part, place.hash).range();
        match self.scan(place.part, range).await?.first()? {
            (Key::Entry { name, .. }, _) => Some(name.as_bytes().to_vec()),
            _ => None,
        }
    }

    async fn scan(&self, part: Part, range: KeyRange) -> Option<Vec<(Key, Record)>> {
        let server = self.client.map().owner(part.slot());
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
                let collector = Collector::new(self.client.clone());
                let server = self.client.map().owner(Part::whole(at).slot());
                let head = match collector.one(server, &Key::Head(at.into())).await.ok()? {
                    Some(Record::Head(head)) => Some((head.parent, head.name.as_bytes().to_vec())),
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
