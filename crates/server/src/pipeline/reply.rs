//! Reply records: what is kept of an answer, with the change that it tells of (rule 3), and found again by a
//! retry (H44).

use super::asked::Asked;
use super::effect::Done;
use crate::{Failure, MetaServer};
use pando_format::codec::Blob;
use pando_format::{Codec, Key, NameHash, Record, ReplyRecord, ReplyWrite};
use pando_namespace::Snapshot;
use pando_store::Level;
use pando_types::DirId;
use pando_wire::{Outcome, Refusal};

/// The key of a mutating request's reply record.
pub(crate) fn reply_key(asked: &Asked<'_>) -> Option<Key> {
    let request = asked.request.filter(|_| asked.op.mutates())?;
    Some(Key::Reply(asked.home()?, request.session, request.slot))
}

impl MetaServer {
    /// The answer of an earlier boot to this very request (H44, H45).
    pub(crate) fn remembered(
        &self,
        asked: &Asked<'_>,
        unknown: bool,
        snapshot: &Snapshot,
    ) -> Result<Option<Done>, Failure> {
        let (Some(request), Some(key), true) = (asked.request, reply_key(asked), unknown) else {
            return Ok(None);
        };
        let Some(Record::Reply(reply)) = snapshot.get(&key) else {
            // It may have gone with its session since this was admitted (H46).
            return match self.admission.sessions.borrow().knows(request.session) {
                true => Ok(None),
                false => Err(Failure::Refused(Refusal::SessionUnknown)),
            };
        };
        if reply.sequence > request.sequence {
            return Err(Failure::Refused(Refusal::TooOld));
        }
        if reply.sequence < request.sequence {
            return Ok(None);
        }
        let outcome = Outcome::from_bytes(&reply.answer.0).map_err(|e| pando_store::StoreError::Corrupt {
            key: "reply record".into(),
            why: e.to_string(),
        })?;
        self.count(|s| s.replayed += 1);
        Ok(Some(Done {
            outcome,
            lsn: self.store.applied(),
            level: Level::Durable,
        }))
    }

    /// What is kept of an outcome. `None`: the request changes nothing, or has no identity.
    pub(super) fn reply_write(&self, asked: &Asked<'_>, outcome: &Outcome) -> Option<ReplyWrite> {
        let request = asked.request?;
        let (dir, hash) = match asked.op.subjects() {
            [Some(first), _] => {
                let hash_of = |name| self.map().widths().name(first.dir().salt, name);
                (first.dir().id, first.first_name().map_or(NameHash(0), hash_of))
            }
            [None, _] => (DirId::ABOVE_ROOT, NameHash(0)),
        };
        let answer = Blob(outcome.to_bytes());
        let record = ReplyRecord {
            sequence: request.sequence,
            dir,
            hash,
            answer,
        };
        Some(ReplyWrite {
            key: reply_key(asked)?,
            record,
        })
    }
}
