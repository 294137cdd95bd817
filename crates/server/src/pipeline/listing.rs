//! Pages of listings, each of one moment.

use crate::{Failure, MetaServer};
use pando_format::{NameHash, Scan};
use pando_namespace::{Page, page};
use pando_types::{Cred, DirId, Errno, plant};
use pando_wire::{Answer, LockMode, LockWant, Op, Outcome};
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
    pub(super) async fn list(&self, cred: &Cred, op: &Op) -> Result<Listed, Failure> {
        let Op::ReadDir {
            dir,
            after,
            limit,
            plus,
        } = op
        else {
            return Ok(Listed::Page(Err(Errno::Invalid)));
        };
        // What is read may be as of before a change that comes and goes meanwhile (H136).
        let watch = self.txn.locks.watch(dir.id.into());
        let scan = Scan::EntriesFrom(dir.id.into(), after.bucket());
        let mut limit = (*limit).clamp(1, self.limits.page) as usize;
        loop {
            // One more than shown, to know whether the last bucket is whole.
            let records = match plus {
                true => self.store.list(&scan, limit + 1),
                false => self.store.names(&scan, limit + 1),
            };
            let records = records.wait().await?;
            let complete = records.len() <= limit;
            match page(cred, dir, &records, complete, *after, *plus) {
                // A page of entries the caller has seen already says nothing: look further.
                Page::Entries(Answer::Entries { entries, end: false }) if entries.is_empty() => limit *= 2,
                Page::Entries(answer) => {
                    let changing = if plant!(H136) {
                        self.txn.locks.being_changed(dir.id.into())
                    } else {
                        watch.changed()
                    };
                    let wait = being_changed(dir.id, &answer, &changing);
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
fn being_changed(dir: DirId, page: &Answer, changing: &BTreeSet<NameHash>) -> Vec<LockWant> {
    let Answer::Entries { entries, .. } = page else {
        return Vec::new();
    };
    let told = entries.iter().filter(|e| e.view.is_some());
    told.map(|e| e.position.bucket())
        .filter(|bucket| changing.contains(bucket))
        .map(|bucket| LockWant::Bucket(dir.into(), bucket, LockMode::Shared))
        .collect()
}
