//! Requests and their replies: who asked what, what came of it, and what the asker was told.

use crate::judge::{Execution, Judge};
use crate::revoke::Ended;
use crate::words::describe_op;
use pando_auth::seal;
use pando_cluster::Coherence;
use pando_format::codec::Blob;
use pando_format::{Codec, NameHash, Position};
use pando_types::{Errno, RequestId, SessionId};
use pando_wire::{
    Answer, EntryView, Message, Op, OpRequest, Outcome, Refusal, Request, Response, Said, Statement,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A message that asked for an operation.
struct Asked {
    request: Option<RequestId>,
    op: Op,
}

/// All that is known of one request identity.
#[derive(Default)]
struct Fate {
    executions: Vec<Rc<Execution>>,
    /// What the program that asked was told.
    answered: Option<Outcome>,
}

/// An operation that a program of a client waits for.
struct Waiting {
    life: u64,
    op: Op,
    requests: BTreeSet<RequestId>,
    messages: BTreeSet<u64>,
    /// For a sync: what must be synced when it ends.
    before: Vec<Rc<Execution>>,
}

/// The books.
#[derive(Default)]
pub(crate) struct Replies {
    asked: BTreeMap<u64, Asked>,
    fates: BTreeMap<RequestId, Fate>,
    reads: BTreeMap<u64, Vec<Rc<Execution>>>,
    waiting: BTreeMap<u64, Waiting>,
    /// Which process a session is of: the first to register it. Liars ask under the names of others'
    /// requests.
    sessions: BTreeMap<SessionId, u64>,
    /// Executions that were told before they were synced (`async` only).
    unsynced: Vec<Rc<Execution>>,
    /// Messages that were refused for good, and by which process.
    refused: BTreeSet<(u64, u64)>,
    /// Whether what clients are told runs out.
    leases: bool,
    /// Messages that were refused because of what they rest on.
    outdated: BTreeSet<u64>,
    /// Operations that programs gave up; their clients may still be at them.
    abandoned: Vec<(u64, Op)>,
    next: u64,
    pub checked: u64,
    pub repeated: u64,
}

/// Whether a client asks for what its program does: of directories that are held it may know newer
/// statements.
fn is_same(wanted: &Op, asked: &Op) -> bool {
    wanted == asked || bare(wanted) == bare(asked) || goes_on(wanted, asked)
}

/// Whether it is the same listing, in the next part of a split directory.
fn goes_on(wanted: &Op, asked: &Op) -> bool {
    let (Op::ReadDir { after: from, .. }, Op::ReadDir { after, .. }) = (wanted, asked) else {
        return false;
    };
    let next = after.next();
    let begins = NameHash::first_of(next.bucket().upper());
    let mut same = bare(asked);
    if let Op::ReadDir { after, .. } = &mut same {
        *after = *from;
    }
    after > from && next == Position::new(begins, 0) && same == bare(wanted)
}

/// An operation on the same directories, whatever is said of them.
fn bare(op: &Op) -> Op {
    let mut op = op.clone();
    for s in op.statements_mut().into_iter().flatten() {
        *s = Statement::from(Said {
            id: s.id,
            generation: s.generation,
            scope: s.scope,
            ..Said::above_root()
        });
    }
    op
}

/// The root of an identity may be gone, if it is not the filesystem's: nothing is executed to find that out.
fn no_subtree(op: &Op, outcome: &Outcome) -> bool {
    op.is_root_lookup() && *outcome == Err(Errno::NotFound)
}

impl Replies {
    /// Of a filesystem whose clients are told what is good for a while, or is not.
    pub fn with(coherence: Coherence) -> Replies {
        Replies {
            leases: coherence.longest_lease().is_some(),
            ..Replies::default()
        }
    }

    /// A client process sent a request.
    pub fn asked(&mut self, life: u64, message: &Message) {
        let Message::Request { id, request, .. } = message else {
            return;
        };
        if let Request::OpenSession(session) = request {
            self.sessions.entry(*session).or_insert(life);
        }
        let Request::Op(asked) = request else {
            return;
        };
        let OpRequest { request, op, .. } = &**asked;
        self.asked.insert(
            *id,
            Asked {
                request: *request,
                op: op.clone(),
            },
        );
        if request.is_some_and(|r| self.sessions.get(&r.session).is_some_and(|whose| *whose != life)) {
            return;
        }
        for w in self
            .waiting
            .values_mut()
            .filter(|w| w.life == life && is_same(&w.op, op))
        {
            w.requests.extend(*request);
            w.messages.insert(*id);
        }
    }

    /// An operation was executed. `Err` if its request had taken effect before, or had been answered.
    pub fn executed(&mut self, e: &Rc<Execution>) -> Result<(), String> {
        if e.changed && self.refused.contains(&(e.message, e.life)) {
            return Err(format!(
                "server {} executes {} after it refused it",
                e.server,
                describe_op(&e.op)
            ));
        }
        let Some(id) = e.request else {
            self.reads.entry(e.message).or_default().push(e.clone());
            return Ok(());
        };
        let fate = self.fates.entry(id).or_default();
        let before = fate.executions.iter().find(|x| x.changed && !x.lost.get());
        let result = match (before, &fate.answered) {
            (Some(first), _) if e.changed => Err(format!(
                "{id:?} took effect twice: {} on server {} ({:?}), then on server {} ({:?})",
                describe_op(&e.op),
                first.server,
                first.outcome,
                e.server,
                e.outcome
            )),
            (_, Some(told)) if e.changed && told != &Err(Errno::Unreachable) => Err(format!(
                "{id:?} took effect on server {} after it was answered {told:?}: {} = {:?}",
                e.server,
                describe_op(&e.op),
                e.outcome
            )),
            _ => Ok(()),
        };
        fate.executions.push(e.clone());
        result
    }

    /// A power failure undid executions.
    pub fn lost(&mut self, lost: &[Rc<Execution>]) {
        for e in lost {
            // It stays in the books: its reply may be on its way already. In `async` that is no lie, only
            // short-lived.
            if let Some(fate) = e.request.and_then(|id| self.fates.get_mut(&id))
                && e.changed
            {
                fate.answered = None;
            }
        }
    }

    /// A server sends an outcome. `Err` if nothing durable is behind it.
    pub fn reply(
        &mut self,
        judge: &Judge,
        server: u16,
        message: u64,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let Some(asked) = self.asked.get(&message) else {
            return Err(format!(
                "server {server} answers message {message}, which nobody sent"
            ));
        };
        self.checked += 1;
        if matches!(asked.op, Op::Sync) || no_subtree(&asked.op, outcome) {
            return Ok(());
        }
        let text = || describe_op(&asked.op);
        let none = Vec::new();
        let executions = match asked.request {
            Some(id) => self.fates.get(&id).map_or(&none, |f| &f.executions),
            None => self.reads.get(&message).unwrap_or(&none),
        };
        let effect = executions.iter().find(|e| e.changed && !e.lost.get());
        let behind = match effect {
            Some(e) => Some(e).filter(|e| e.outcome == *outcome),
            None => executions
                .iter()
                .rev()
                .find(|e| e.outcome == *outcome && !e.lost.get() && judge.is_durable(e)),
        };
        let Some(e) = behind else {
            let known: Vec<&Outcome> = executions.iter().map(|e| &e.outcome).collect();
            return Err(format!(
                "server {server} answers {} with {outcome:?}, executed were {known:?}",
                text()
            ));
        };
        if !judge.is_durable(e) {
            return Err(format!(
                "server {server} answers {} before position {:?} of server {} is durable",
                text(),
                e.lsn,
                e.server
            ));
        }
        e.told.set(true);
        // What space there is is not kept anywhere.
        if !judge.is_synced(e) && !matches!(e.op, Op::StatFs) {
            self.unsynced.push(e.clone());
        }
        self.repeated += u64::from(e.message != message);
        Ok(())
    }

    /// A server refuses a message. `Err` if it was executed.
    /// `ends`: identities that are revoked in this run.
    pub fn refuse(&mut self, life: u64, message: u64, why: Refusal, ends: &Ended) -> Result<(), String> {
        // These two speak of the past, not of this message; and that the session of open files is to be
        // registered says nothing of either: the client asks again under the same identity.
        if matches!(
            why,
            Refusal::TooOld | Refusal::SessionUnknown | Refusal::KeeperUnknown
        ) {
            return Ok(());
        }
        let Some(asked) = self.asked.get(&message) else {
            return Ok(());
        };
        if matches!(why, Refusal::BadStatement | Refusal::Outdated(_)) {
            self.outdated.insert(message);
        }
        // After these the client asks again under the same identity: a late copy of the message may be what
        // is executed.
        if !matches!(why, Refusal::Busy | Refusal::NotReady) {
            self.refused.insert((message, life));
        }
        // A second copy of a message, which came when its identity was over: it says nothing of the first.
        if why == Refusal::NotAllowed && asked.request.is_some_and(|r| ends.has(r.session.owner())) {
            return Ok(());
        }
        let fate = asked.request.and_then(|id| self.fates.get(&id));
        // A late copy of what was answered long ago, at a server that has got its slot back since: nobody
        // hears this (H115).
        if matches!(why, Refusal::NotOwner(_)) && fate.is_some_and(|f| f.answered.is_some()) {
            return Ok(());
        }
        let done = fate.and_then(|f| {
            f.executions
                .iter()
                .find(|e| e.changed && !e.lost.get() && (e.message, e.life) == (message, life))
        });
        match done {
            // A copy of what was answered came late, to a server that can do nothing just now, or has nothing
            // to do with it any more. "Later" and "elsewhere" say nothing of the past: who hears it asks
            // under the same identity.
            Some(e)
                if e.told.get()
                    && matches!(why, Refusal::Busy | Refusal::NotReady | Refusal::NotOwner(_)) =>
            {
                Ok(())
            }
            Some(e) => Err(format!(
                "server {} refuses {} ({why:?}) after it did it",
                e.server,
                describe_op(&e.op)
            )),
            None => Ok(()),
        }
    }

    /// A program asks its client for an operation.
    pub fn begin(&mut self, judge: &Judge, life: u64, op: &Op) -> u64 {
        self.next += 1;
        let before = if matches!(op, Op::Sync) {
            self.unsynced.retain(|e| !e.lost.get() && !judge.is_synced(e));
            self.unsynced.clone()
        } else {
            Vec::new()
        };
        let waiting = Waiting {
            life,
            op: op.clone(),
            requests: BTreeSet::new(),
            messages: BTreeSet::new(),
            before,
        };
        self.waiting.insert(self.next, waiting);
        self.next
    }

    /// The client gave its program an outcome. `Err` if it is not what happened.
    pub fn end(&mut self, judge: &Judge, token: u64, outcome: &Outcome) -> Result<(), String> {
        let Some(w) = self.waiting.remove(&token) else {
            return Ok(());
        };
        if outcome.is_ok()
            && let Some(e) = w.before.iter().find(|e| !e.lost.get() && !judge.is_synced(e))
        {
            return Err(format!(
                "a sync ended while {}, answered before it began, was not synced on server {}",
                describe_op(&e.op),
                e.server
            ));
        }
        if *outcome == Err(Errno::Unreachable)
            || matches!(w.op, Op::Sync | Op::StatFs)
            || no_subtree(&w.op, outcome)
        {
            return Ok(());
        }
        let text = || {
            format!(
                "the client of life {} says {outcome:?} of {}",
                w.life,
                describe_op(&w.op)
            )
        };
        // Under leases the client itself knows that what it was told has run out.
        let refused = self.leases || w.messages.iter().any(|m| self.outdated.contains(m));
        let outdated = *outcome == Err(Errno::Stale) && refused;
        if !w.op.mutates() {
            if outdated {
                return Ok(());
            }
            let seen = w.messages.iter().filter_map(|m| self.reads.get(m)).flatten();
            return if seen.into_iter().any(|e| is_told(&e.outcome, outcome)) {
                Ok(())
            } else {
                Err(format!("{}, which no server executed for it", text()))
            };
        }
        let mut effects = 0;
        let mut matches = outdated;
        for id in &w.requests {
            let fate = self.fates.entry(*id).or_default();
            for e in &fate.executions {
                effects += usize::from(e.changed && !e.lost.get());
                matches |= e.outcome == *outcome;
            }
            fate.answered = Some(outcome.clone());
        }
        if effects > 1 {
            return Err(format!("{}, which took effect {effects} times", text()));
        }
        let changed = w
            .requests
            .iter()
            .flat_map(|id| &self.fates[id].executions)
            .find(|e| e.changed && !e.lost.get());
        if changed.is_some_and(|e| e.outcome != *outcome) {
            return Err(format!(
                "{}, but it took effect with {:?}",
                text(),
                changed.map(|e| &e.outcome)
            ));
        }
        if !matches {
            return Err(format!("{}, which no server executed", text()));
        }
        Ok(())
    }

    /// A program does not wait any longer: its operation may happen or not, but once at most.
    pub fn abandon(&mut self, token: u64) {
        self.abandoned
            .extend(self.waiting.remove(&token).map(|w| (w.life, w.op)));
    }

    /// A client process is gone: nobody waits any more.
    pub fn gone(&mut self, life: u64) {
        self.waiting.retain(|_, w| w.life != life);
        self.abandoned.retain(|(l, _)| *l != life);
    }

    /// Whether a program of this process waits for anything.
    pub fn waits(&self, life: u64) -> bool {
        self.waiting.values().any(|w| w.life == life)
    }

    /// Whether this process is, or may still be, at just this: two of a kind could not be told apart.
    pub fn waits_for(&self, life: u64, op: &Op) -> bool {
        self.waiting
            .values()
            .any(|w| w.life == life && is_same(&w.op, op))
            || self.abandoned.iter().any(|(l, o)| *l == life && is_same(o, op))
    }

    /// Operations that programs wait for.
    pub fn outstanding(&self) -> Vec<String> {
        self.waiting
            .values()
            .map(|w| format!("life {}: {}", w.life, describe_op(&w.op)))
            .collect()
    }
}

/// Answers to guesses say nothing to who has no key: not by their length, and not in the clear (H99).
fn sealed(server: u16, answers: &[Blob]) -> Result<(), String> {
    let open = |a: &&Blob| a.0.len() != seal::SEALED || EntryView::from_bytes(&a.0).is_ok();
    match answers.iter().find(open) {
        Some(a) => Err(format!(
            "server {server} answers a guess in the clear, with {} bytes",
            a.0.len()
        )),
        None => Ok(()),
    }
}

/// What work a request made is told only of what succeeded: of the rest it would say what is there (H99).
fn accounted(result: &Result<Response, Refusal>) -> Result<(), String> {
    match result {
        Ok(Response::Peer(_)) => Ok(()),
        Ok(response) if response.outcome().is_some_and(Result::is_ok) => Ok(()),
        other => Err(format!("an account comes with {other:?}")),
    }
}

impl Judge {
    /// A message was sent.
    pub fn saw(&self, life: u64, server: Option<u16>, message: &Message) {
        if let Message::Reply {
            result,
            account: Some(_),
            ..
        } = message
        {
            self.check(accounted(result));
        }
        match (server, message) {
            (None, _) => self.replies.borrow_mut().asked(life, message),
            (
                Some(server),
                Message::Reply {
                    id,
                    result: Ok(response @ (Response::Op(_) | Response::Refreshed(_))),
                    ..
                },
            ) => {
                let Some(outcome) = response.outcome() else { return };
                let result = self.replies.borrow_mut().reply(self, server, *id, outcome);
                self.check(result);
            }
            (
                Some(server),
                Message::Reply {
                    result: Ok(Response::Sealed(answers)),
                    ..
                },
            ) => self.check(sealed(server, answers)),
            (
                Some(_),
                Message::Reply {
                    id, result: Err(why), ..
                },
            ) => {
                let ends = self.revocations.borrow();
                let result = self.replies.borrow_mut().refuse(life, *id, *why, &ends);
                drop(ends);
                self.check(result);
            }
            _ => {}
        }
    }
}

/// Whether a program is told this of what a server executed. That a page ends with its part is not told.
fn is_told(executed: &Outcome, told: &Outcome) -> bool {
    match (executed, told) {
        (
            Ok(Answer::Part { entries, .. }),
            Ok(Answer::Entries {
                entries: shown,
                end: false,
            }),
        ) => entries == shown,
        (executed, told) => executed == told,
    }
}
