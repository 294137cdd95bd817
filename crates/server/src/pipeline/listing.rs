//! Pages of listings, each of one moment.

use super::asked::Asked;
use crate::{Failure, MetaServer};
use pando_format::{NameHash, Position, Scan};
use pando_namespace::{ListFrom, Page, Snapshot, page};
use pando_types::{Errno, Part, SLOTS, plant};
use pando_wire::{Answer, LockMode, LockWant, Op, Outcome, Refusal};
use std::collections::BTreeSet;

/// What came of reading a page.
pub(super) enum Listed {
    /// The page.
    Page(Outcome),
    /// These are needed first.
    Wait(Vec<LockWant>),
}

impl MetaServer {
    /// A page of a listing, under the locks that make it one moment.
    pub(super) async fn list(&self, asked: &Asked<'_>, snapshot: &Snapshot) -> Result<Listed, Failure> {
        let Op::ReadDir {
            dir,
            after,
            limit,
            plus,
        } = asked.op
        else {
            return Ok(Listed::Page(Err(Errno::Invalid)));
        };
        let part = Part::new(dir.id, asked.parts[0]).ok_or(Failure::Refused(Refusal::Invalid))?;
        // What it gave away, and may not have deleted yet, is not its own (H302).
        let last = match snapshot.part(part) {
            Some(there) if there.tile.start + there.tile.width() < SLOTS => {
                NameHash::last_of(there.tile.start, there.tile.width())
            }
            Some(_) | None => NameHash::MAX,
        };
        let from = ListFrom {
            after: *after,
            last: match last {
                NameHash::MAX => Position::END,
                last => Position::last_of(last),
            },
        };
        // What is read may be as of before a change that comes and goes meanwhile (H136).
        let watch = self.txn.locks.watch(part);
        let first = after.bucket();
        let has_list = self.map().placement.division().has_list(dir.id);
        let scan = match last {
            NameHash::MAX if has_list => Scan::LinesFrom(dir.id, first),
            NameHash::MAX => Scan::EntriesFrom(part, first),
            last => Scan::Buckets { part, first, last },
        };
        let mut limit = (*limit).clamp(1, self.limits.page) as usize;
        loop {
            // One more than shown, to know whether the last bucket is whole.
            let records = match plus {
                true => self.store.list(&scan, limit + 1),
                false => self.store.names(&scan, limit + 1),
            };
            let records = records.wait().await?;
            let complete = records.len() <= limit;
            match page(asked.cred, dir, &records, complete, from, *plus) {
                // A page of entries the caller has seen already says nothing: look further.
                Page::Entries(Answer::Entries { entries, end: false }) if entries.is_empty() => limit *= 2,
                Page::Entries(answer) => {
                    let changing = if plant!(H136) {
                        self.txn.locks.being_changed(part)
                    } else {
                        watch.changed()
                    };
                    let wait = being_changed(part, &answer, &changing);
                    return Ok(if wait.is_empty() {
                        Listed::Page(Ok(answer))
                    } else {
                        Listed::Wait(wait)
                    });
                }
                Page::More => limit *= 2,
            }
        }
    }
}

/// Entries on a page that are being changed. Of a subdirectory every server may have heard already that what
/// it is now will not be true any more, so its statement must not say that it is; of a file it may be decided
/// elsewhere, and told, what it is now.
fn being_changed(part: Part, page: &Answer, changing: &BTreeSet<NameHash>) -> Vec<LockWant> {
    let (Answer::Entries { entries, .. } | Answer::Part { entries, .. }) = page else {
        return Vec::new();
    };
    let told = entries.iter().filter(|e| e.view.is_some());
    told.map(|e| e.position.bucket())
        .filter(|bucket| changing.contains(bucket))
        .map(|bucket| LockWant::Bucket(part, bucket, LockMode::Shared))
        .collect()
}
