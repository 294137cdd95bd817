//! What things take: the calibration, as virtual time uses it.

use crate::world::Time;
use pando_cluster::ClusterMap;
use pando_types::{Birth, DirId, Name, Part, ServerId};
use pando_wire::{Message, Op, PeerAnswer, PeerRequest, Request, Response, Statement};
use std::collections::BTreeMap;

/// What was measured, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    /// Processor time of a server for one message of each kind ([`kind_of`]), with all that it sets off
    /// there.
    pub service: BTreeMap<String, Time>,
    /// Of kinds that are not listed. What share of a result rests on it is told with the result.
    pub other: Time,
    /// Processor time of a client for one answer.
    pub client: Time,
    /// From one process to another.
    pub one_way: Time,
    /// How long the device takes to sync so many batches, by rising numbers of batches. In between it is
    /// interpolated.
    pub sync: Vec<(u64, Time)>,
}

impl Costs {
    /// Of a message of this kind, and whether that was measured.
    pub(crate) fn service(&self, kind: &str) -> (Time, bool) {
        match self.service.get(kind) {
            Some(time) => (*time, true),
            None => (self.other, false),
        }
    }

    /// How long a sync of so many batches takes.
    pub(crate) fn sync(&self, batches: u64) -> Time {
        let mut below = (0, self.sync.first().map_or(0, |(_, time)| *time));
        for &(n, time) in &self.sync {
            if n >= batches {
                let (from, at) = below;
                let (span, part) = ((n - from).max(1), batches - from);
                let more = time.saturating_sub(at);
                return at + (u128::from(more) * u128::from(part) / u128::from(span)) as Time;
            }
            below = (n, time);
        }
        // Beyond what was measured the device is as fast for each batch as it was at the end.
        (u128::from(below.1) * u128::from(batches) / u128::from(below.0.max(1))) as Time
    }
}

/// What kind of message it is to server `me`, as far as its costs go: an operation that is about one server
/// does its work here, one that is about two sends most of it elsewhere.
pub fn kind_of(message: &Message, map: &ClusterMap, me: ServerId) -> &'static str {
    match message {
        Message::Request { request, .. } => match request {
            Request::Op(asked) => operation(&asked.op, map, me),
            Request::OpenSession(_) => "session",
            Request::Probe { .. } => "probe",
            Request::Null(_) => "null",
            Request::Peer(peer) => match peer {
                PeerRequest::Lock { .. } => "peer lock",
                PeerRequest::Prepare { .. } => "peer prepare",
                PeerRequest::Content { .. } => "peer content",
                PeerRequest::Decide { .. } => "peer decide",
                PeerRequest::Settle { .. } => "peer settle",
                PeerRequest::Head(_) => "peer head",
                PeerRequest::Invalidate { .. } => "peer invalidate",
                PeerRequest::Follow { .. } => "peer follow",
                _ => "peer other",
            },
            _ => "other",
        },
        Message::Reply { result, .. } => match result {
            Ok(Response::Peer(answer)) => match answer {
                PeerAnswer::Locked { .. } => "answer locked",
                PeerAnswer::Vote(_) => "answer vote",
                PeerAnswer::Content(_) => "answer content",
                PeerAnswer::Decided => "answer decided",
                PeerAnswer::Head(_) => "answer head",
                PeerAnswer::Heard { .. } => "answer heard",
                PeerAnswer::Lead { .. } => "answer lead",
                _ => "answer other",
            },
            _ => "answer other",
        },
    }
}

/// How many things of its kind a message is: it takes so many times as long.
pub fn items_of(message: &Message) -> u64 {
    let items = match message {
        Message::Request {
            request: Request::Peer(PeerRequest::Content { contents, .. }),
            ..
        } => contents.len(),
        Message::Reply {
            result: Ok(Response::Peer(PeerAnswer::Content(stored))),
            ..
        } => stored.len(),
        _ => 1,
    };
    (items as u64).max(1)
}

fn operation(op: &Op, map: &ClusterMap, me: ServerId) -> &'static str {
    // The content of a directory, if it was not renamed.
    let content = |parent: DirId, name: &Name| {
        let name = name.clone();
        map.owner(
            Part::whole(map.widths().dir_id(&Birth {
                parent,
                name,
                version: 0,
            }))
            .slot(),
        ) == me
    };
    let here = |dir: &Statement| map.owner(Part::whole(dir.id).slot()) == me;
    if let Op::Mkdir { dir, name, .. } = op
        && content(dir.id, name)
    {
        return "mkdir on one server";
    }
    if let Op::Rmdir { dir, name } = op
        && content(dir.id, name)
    {
        return "rmdir on one server";
    }
    if let Op::Rename { src, dst, .. } = op {
        // Of a directory: one that is not here is asked of the coordinator only.
        if !here(src) {
            return "rename as coordinator";
        }
        if here(dst) {
            return "rename on one server";
        }
    }
    op.kind()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_between_and_beyond_what_was_measured() {
        let costs = Costs {
            sync: vec![(1, 100), (11, 200), (21, 600)],
            ..Costs::default()
        };
        let times: Vec<Time> = [0, 1, 6, 11, 16, 21, 42].map(|n| costs.sync(n)).into();
        assert_eq!(times, [100, 100, 150, 200, 400, 600, 1200]);
        assert_eq!(Costs::default().sync(7), 0);
    }
}
