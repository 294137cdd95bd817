//! Words for messages and what came of them.

use crate::text::printable;
use pando_client::explain::{Exchange, How};
use pando_env::CallError;
use pando_types::{DirId, Name, Part};
use pando_wire::{ErrandEnd, Refusal, Request, Response, Scope, Statement, Task, Vote};

pub fn refusal(why: &Refusal) -> &'static str {
    match why {
        Refusal::WrongBoot(_) => "wrong boot",
        Refusal::NotOwner(_) => "not owner",
        Refusal::SessionUnknown => "session unknown",
        Refusal::TooOld => "too old",
        Refusal::Busy => "busy",
        Refusal::UseCoordinator => "use the rename server",
        Refusal::Invalid => "invalid",
        Refusal::NotReady => "not ready",
        Refusal::BadStatement => "bad statement",
        Refusal::Outdated(_) => "outdated",
        Refusal::NotAllowed => "not allowed",
        Refusal::ReadOnly => "read only",
        Refusal::BadHandle => "bad handle",
        Refusal::KeeperUnknown => "keeper unknown",
        Refusal::Elsewhere { .. } => "in another part",
    }
}

pub fn task(what: Task) -> &'static str {
    match what {
        Task::Lock => "lock",
        Task::Prepare => "prepare",
        Task::Content => "content",
        Task::Commit => "commit",
        Task::Release => "release",
        Task::Ancestor => "ancestor",
        Task::Invalidate => "invalidate",
        Task::Other => "other",
    }
}

pub fn end(of: &ErrandEnd) -> String {
    match of {
        ErrandEnd::Done => "done".into(),
        ErrandEnd::Voted(Vote::Yes) => "yes".into(),
        ErrandEnd::Voted(Vote::Exists) => "exists".into(),
        ErrandEnd::Voted(Vote::No) => "no".into(),
        ErrandEnd::Voted(Vote::NoSpace) => "no space".into(),
        ErrandEnd::Refused(why) => format!("refused: {}", refusal(why)),
        ErrandEnd::Silent => "no answer".into(),
        ErrandEnd::Later => "later".into(),
    }
}

pub fn how(known: How) -> &'static str {
    match known {
        How::Cached => "cached",
        How::LookedUp => "asked",
        How::Predicted => "predicted",
    }
}

pub fn scope(of: Scope) -> &'static str {
    match of {
        Scope::Way => "ticket",
        Scope::Link => "link",
        Scope::Handle => "handle",
    }
}

/// The kind of a message.
pub fn kind(request: &Request) -> &'static str {
    match request {
        Request::Op(asked) => asked.op.kind(),
        Request::Probe { .. } => "probe",
        Request::OpenSession(_) => "open-session",
        Request::KeepAlive(_) => "keep-alive",
        Request::CloseSession(_) => "close-session",
        Request::Holds(_) => "holds",
        Request::GetMap => "get-map",
        Request::Null(_)
        | Request::Scan { .. }
        | Request::Status
        | Request::Auth(_)
        | Request::Cut(_)
        | Request::Repair(_)
        | Request::Remains(_)
        | Request::Cluster(_)
        | Request::Lock(_)
        | Request::Peer(_) => "other",
    }
}

/// The directories and names a message is about, in which part each is taken to be.
pub fn places(request: &Request) -> Vec<(Part, Option<&Name>)> {
    match request {
        Request::Probe { probes, .. } => probes.iter().map(|p| (p.dir.into(), Some(&p.name))).collect(),
        Request::Op(asked) => {
            let subjects = asked.op.subjects().into_iter().zip(asked.parts);
            let places = subjects.filter_map(|(subject, start)| {
                let subject = subject?;
                Some((Part::new(subject.dir().id, start)?, subject.name()))
            });
            places.collect()
        }
        _ => Vec::new(),
    }
}

/// The statements a message carries: those it names directories by, and those that these hang on.
pub fn statements(request: &Request) -> impl Iterator<Item = &Statement> {
    let (named, ways) = match request {
        Request::Op(asked) => (asked.op.statements(), &asked.ways[..]),
        _ => ([None, None], &[][..]),
    };
    // The place above the root needs none.
    let named = named.into_iter().flatten().filter(|s| s.id != DirId::ABOVE_ROOT);
    named.chain(ways)
}

/// A name in a directory as people see it.
pub fn name(dir: DirId, name: &Name) -> String {
    match dir {
        DirId::ABOVE_ROOT => "/".into(),
        _ => printable(name.as_bytes()),
    }
}

/// A message in a few words.
pub fn message(request: &Request) -> String {
    let places = places(request);
    let names: Vec<String> = places
        .iter()
        .filter_map(|(part, n)| n.map(|n| name(part.dir, n)))
        .collect();
    match request {
        Request::Probe { .. } if names.len() != 1 => format!("probe of {} names", names.len()),
        _ if names.is_empty() => kind(request).into(),
        _ => format!("{} {}", kind(request), names.join(" to ")),
    }
}

/// What a message rests on, in a few words.
pub fn basis(request: &Request) -> String {
    let text: Vec<String> = statements(request)
        .map(|s| match s.scope {
            Scope::Way => format!("ticket of {}", s.way.len()),
            other => scope(other).into(),
        })
        .collect();
    match text.len() {
        0 => "-".into(),
        1..=3 => text.join(", "),
        n => format!("{}, {} more", text[0], n - 1),
    }
}

/// What came of a message.
pub fn answer(m: &Exchange) -> String {
    match &m.answer {
        None => "not waited for".into(),
        Some(Ok(Ok(Response::Sealed(_)))) => "sealed".into(),
        Some(Ok(Ok(response))) => match response.outcome() {
            Some(Err(e)) => e.to_string(),
            _ => "done".into(),
        },
        Some(Ok(Err(why))) => format!("refused: {}", refusal(why)),
        Some(Err(CallError::Timeout)) => "no answer in time".into(),
        Some(Err(CallError::Disconnected)) => "connection lost".into(),
        Some(Err(CallError::Denied)) => "not let in".into(),
    }
}
