//! Directories in slots that cannot be read, by path as far as their heads tell it.

use super::Operator;
use crate::status;
use pando_cluster::ClusterMap;
use pando_env::sync::{Either, first};
use pando_env::{Env, LocalFuture};
use pando_format::{Head, Key, KeyRange, Record, Tag};
use pando_types::{DirId, Part, ServerId, Slot};
use pando_wire::{Request, Response};

/// Slots that are looked into, directories of each, and requests for the content of one: this is asked while
/// somebody waits.
const SLOTS: usize = 4;
const DIRECTORIES: u32 = 64;
const PIECES: usize = 16;
/// Records in an answer.
const RECORDS: u32 = 4096;
/// Paths that are shown of one slot.
const SHOWN: usize = 8;
/// Deepest directory whose path is told.
const DEPTH: usize = 256;

impl Operator {
    /// Lines about the directories of slots that a server cannot read.
    pub(super) fn damaged_paths(&self, map: &ClusterMap, server: ServerId, slots: &[u16]) -> String {
        let (mut text, mut unknown) = (String::new(), Vec::new());
        for slot in slots.iter().take(SLOTS) {
            let heads = KeyRange::tagged(Slot(*slot), Tag::Head, &[]);
            let Some(heads) = self.scan(server, heads, DIRECTORIES) else {
                unknown.push(slot.to_string());
                continue;
            };
            let damaged = heads.iter().filter_map(|(key, record)| match (key, record) {
                (Key::Head(part), Record::Head(_) | Record::Part(_)) if !self.is_sound(server, *part) => {
                    Some((*part, record))
                }
                _ => None,
            });
            for (part, record) in damaged.take(SHOWN) {
                let path = match record {
                    Record::Head(head) => self.path(map, head),
                    _ => self.path_of_part(map, part),
                };
                text.push_str(&format!("\n    damaged: {path}"));
            }
        }
        if !unknown.is_empty() {
            text.push_str(&format!(
                "\n    which directories are in slot {} is not to be read there; `pando fsck` looks for them",
                unknown.join(", ")
            ));
        }
        text
    }

    /// Whether all that is in a part of a directory can be read, as far as is looked.
    fn is_sound(&self, server: ServerId, part: Part) -> bool {
        let kinds = [Tag::Entry, Tag::Attachment, Tag::Touch, Tag::RenameList];
        kinds.into_iter().all(|tag| {
            let mut range = KeyRange::tagged(part.slot(), tag, &part.dir.0.to_be_bytes());
            for _ in 0..PIECES {
                match self.scan(server, range.clone(), RECORDS) {
                    None => return false,
                    Some(found) => match found.last() {
                        None => break,
                        Some((key, _)) => {
                            range.start = key.encode();
                            range.start.push(0);
                        }
                    },
                }
            }
            true
        })
    }

    /// The path of a directory that is split, and which part of it is meant.
    fn path_of_part(&self, map: &ClusterMap, part: Part) -> String {
        let path = self.head(map, part.dir).map(|head| match part.dir {
            DirId::ROOT => "/".into(),
            _ => self.path(map, &head),
        });
        let path = path.unwrap_or_else(|| format!("directory {}", part.dir));
        format!("{path} (part {})", part.start())
    }

    /// The head of a directory, if it can be read.
    fn head(&self, map: &ClusterMap, dir: DirId) -> Option<Head> {
        let key = Key::Head(dir.into());
        let mut range = KeyRange {
            start: key.encode(),
            end: key.encode(),
        };
        range.end.push(0);
        let found = self.scan(map.home(&key), range, 1).unwrap_or_default();
        match found.into_iter().next() {
            Some((_, Record::Head(head))) => Some(head),
            _ => None,
        }
    }

    /// The path of a directory; from where it cannot be told, with dots.
    fn path(&self, map: &ClusterMap, head: &Head) -> String {
        let mut path = format!("/{}", crate::text::printable(head.name.as_bytes()));
        let mut parent = head.parent;
        for _ in 0..DEPTH {
            if parent == DirId::ROOT {
                return path;
            }
            let Some(above) = self.head(map, parent) else {
                break;
            };
            path = format!("/{}{path}", crate::text::printable(above.name.as_bytes()));
            parent = above.parent;
        }
        format!("...{path}")
    }

    /// Some records of a range. `None`: they cannot be read, or nobody answers.
    fn scan(&self, server: ServerId, range: KeyRange, limit: u32) -> Option<Vec<(Key, Record)>> {
        let client = self.connection.client.clone();
        let asked: LocalFuture<_> =
            Box::pin(async move { client.admin(server, Request::Scan { range, limit }).await });
        let nap = self.connection.reactor.sleep(status::PATIENCE);
        match self.connection.run(first(asked, nap)) {
            Either::Left(Ok(Response::Records(records))) => Some(records),
            _ => None,
        }
    }
}
