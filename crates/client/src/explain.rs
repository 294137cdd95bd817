//! What an operation did, message by message (`pando explain`). Who does not ask keeps no notes.

use crate::{Client, ClientStats};
use pando_env::CallError;
use pando_types::{DirId, Mono, Name, ServerId};
use pando_wire::{Account, Accounted, Refusal, Request, Response};
use std::time::Duration;

/// Everything one operation did.
#[derive(Clone, Debug, Default)]
pub struct Explained {
    /// The components of paths that were passed, in order; those of a path that was tried again, again.
    pub components: Vec<Passed>,
    /// Messages to servers, in the order they were sent.
    pub messages: Vec<Exchange>,
    /// Waiting between tries.
    pub paused: Duration,
    /// From begin to end.
    pub took: Duration,
    /// What the client counted meanwhile.
    pub stats: ClientStats,
}

/// One component of a path.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The directory it is in.
    pub dir: DirId,
    /// The component.
    pub name: Name,
    /// What it is, if that is a directory.
    pub found: Option<DirId>,
    /// How that was known.
    pub how: How,
}

/// How what a component stands for was known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// It was known already.
    Cached,
    /// It was asked for.
    LookedUp,
    /// It was asked for by a predicted ID, beside those before it.
    Predicted,
}

/// One message and what came of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Which round trip it belongs to, from 1: one more than that of the last answer there was when it was
    /// sent.
    pub round: u32,
    /// To whom.
    pub to: ServerId,
    /// What.
    pub request: Request,
    /// When it was sent, after the beginning.
    pub at: Duration,
    /// Until the end of waiting for its answer.
    pub took: Duration,
    /// The answer; `None` if the operation ended without waiting for it.
    pub answer: Option<Result<Result<Response, Refusal>, CallError>>,
    /// What work it made for the server, if that was told.
    pub account: Option<Account>,
}

/// Notes that are being taken.
pub(crate) struct Notes {
    began: Mono,
    before: ClientStats,
    /// Round trips that have ended.
    rounds: u32,
    so_far: Explained,
}

/// The place of a message in the notes that were begun then.
pub(crate) struct Noted {
    notes: Mono,
    number: usize,
}

impl Explained {
    /// Round trips: messages that waited for one another.
    pub fn rounds(&self) -> u32 {
        self.messages.iter().map(|m| m.round).max().unwrap_or(0)
    }
}

/// Ends the notes when an operation ends, or is given up.
struct End<'a>(&'a Client);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.notes.take();
    }
}

impl Client {
    /// Does something, and tells what it took; servers are asked for accounts of their part. What else this
    /// client does meanwhile is told with it. Of what is to be explained while something else is, nothing is
    /// told.
    pub async fn explain<T>(&self, what: impl Future<Output = T>) -> (T, Option<Explained>) {
        if self.notes.borrow().is_some() {
            return (what.await, None);
        }
        *self.notes.borrow_mut() = Some(Notes {
            began: self.world.mono(),
            before: self.stats(),
            rounds: 0,
            so_far: Explained::default(),
        });
        let end = End(self);
        let done = what.await;
        let notes = self.notes.take();
        drop(end);
        let explained = notes.map(|notes| Explained {
            took: self.world.mono().since(notes.began),
            stats: self.stats().since(&notes.before),
            ..notes.so_far
        });
        (done, explained)
    }

    /// A component of a path was passed.
    pub(crate) fn passed(&self, dir: DirId, name: &Name, found: Option<DirId>, how: How) {
        if let Some(notes) = &mut *self.notes.borrow_mut() {
            notes.so_far.components.push(Passed {
                dir,
                name: name.clone(),
                found,
                how,
            });
        }
    }

    /// Time passed between two tries.
    pub(crate) fn paused(&self, d: Duration) {
        if let Some(notes) = &mut *self.notes.borrow_mut() {
            notes.so_far.paused += d;
        }
    }

    /// A message is sent. Its place in the notes, if there are any.
    pub(crate) fn sent(&self, to: ServerId, request: &Request) -> Option<Noted> {
        let mut notes = self.notes.borrow_mut();
        let notes = notes.as_mut()?;
        notes.so_far.messages.push(Exchange {
            round: notes.rounds + 1,
            to,
            request: request.clone(),
            at: self.world.mono().since(notes.began),
            took: Duration::ZERO,
            answer: None,
            account: None,
        });
        Some(Noted {
            notes: notes.began,
            number: notes.so_far.messages.len() - 1,
        })
    }

    /// It was answered, or not.
    pub(crate) fn answered(&self, noted: Option<Noted>, answer: &Result<Accounted, CallError>) {
        let (Some(noted), Some(notes)) = (noted, &mut *self.notes.borrow_mut()) else {
            return;
        };
        // It may have been sent while something else was explained.
        if noted.notes != notes.began {
            return;
        }
        let at = self.world.mono().since(notes.began);
        if let Some(m) = notes.so_far.messages.get_mut(noted.number) {
            notes.rounds = notes.rounds.max(m.round);
            m.took = at.saturating_sub(m.at);
            (m.answer, m.account) = match answer {
                Ok((result, account)) => (Some(Ok(result.clone())), account.clone()),
                Err(e) => (Some(Err(*e)), None),
            };
        }
    }
}
