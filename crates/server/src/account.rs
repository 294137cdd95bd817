//! Accounts of what a request made this server do, for askers that want to know (`pando explain`). Who does
//! not ask costs nothing: there is no account then, and no clock is read.

use crate::MetaServer;
use pando_env::{CallError, World};
use pando_types::{Mono, ServerId};
use pando_wire::{
    Account, Accounted, ERRANDS_MAX, Errand, ErrandEnd, PeerAnswer, PeerRequest, Response, Task,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The notes of one request that is being served. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Notes(Option<Rc<Taken>>);

struct Taken {
    world: World,
    began: Mono,
    account: RefCell<Account>,
}

/// An errand that is under way.
pub(crate) struct UnderWay {
    to: ServerId,
    what: Task,
    sent: Mono,
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

impl Notes {
    /// Whether they are taken.
    pub fn wanted(&self) -> bool {
        self.0.is_some()
    }

    /// It begins again.
    pub fn again(&self) {
        if let Some(taken) = &self.0 {
            taken.account.borrow_mut().again += 1;
        }
    }

    /// Waits for locks of this server.
    pub async fn locking<T>(&self, wait: impl Future<Output = T>) -> T {
        self.timed(wait, |account| &mut account.locks).await
    }

    /// Waits until something is durable here.
    pub async fn syncing<T>(&self, wait: impl Future<Output = T>) -> T {
        self.timed(wait, |account| &mut account.syncs).await
    }

    async fn timed<T>(&self, wait: impl Future<Output = T>, of: fn(&mut Account) -> &mut u64) -> T {
        let began = self.0.as_ref().map(|taken| taken.world.mono());
        let done = wait.await;
        if let (Some(taken), Some(began)) = (&self.0, began) {
            *of(&mut taken.account.borrow_mut()) += micros(taken.world.mono().since(began));
        }
        done
    }

    /// A message is sent to another server.
    pub fn sent(&self, to: ServerId, request: &PeerRequest) -> Option<UnderWay> {
        let taken = self.0.as_ref()?;
        Some(UnderWay {
            to,
            what: Task::from(request),
            sent: taken.world.mono(),
        })
    }

    /// It was answered, or not.
    pub fn answered(&self, under_way: Option<UnderWay>, answer: &Result<Accounted, CallError>) {
        let (Some(taken), Some(UnderWay { to, what, sent })) = (&self.0, under_way) else {
            return;
        };
        let (end, there) = match answer {
            Ok((Ok(Response::Peer(PeerAnswer::Vote(vote))), there)) => {
                (ErrandEnd::Voted(*vote), there.as_ref())
            }
            Ok((Ok(_), there)) => (ErrandEnd::Done, there.as_ref()),
            Ok((Err(why), _)) => (ErrandEnd::Refused(*why), None),
            Err(_) => (ErrandEnd::Silent, None),
        };
        taken.list(Errand {
            to,
            what,
            at: micros(sent.since(taken.began)),
            took: micros(taken.world.mono().since(sent)),
            end,
            locks: there.map_or(0, |a| a.locks),
            syncs: there.map_or(0, |a| a.syncs),
        });
    }

    /// Servers are told something that the request does not wait for.
    pub fn later(&self, servers: impl IntoIterator<Item = ServerId>, what: Task) {
        let Some(taken) = &self.0 else { return };
        let at = micros(taken.world.mono().since(taken.began));
        for to in servers {
            taken.list(Errand {
                to,
                what,
                at,
                took: 0,
                end: ErrandEnd::Later,
                locks: 0,
                syncs: 0,
            });
        }
    }

    /// All of it, in the order in which messages were sent.
    pub fn account(&self) -> Option<Account> {
        let taken = self.0.as_ref()?;
        let mut account = taken.account.borrow().clone();
        account.took = micros(taken.world.mono().since(taken.began));
        account.errands.sort_by_key(|e| e.at);
        Some(account)
    }
}

impl Taken {
    fn list(&self, errand: Errand) {
        let mut account = self.account.borrow_mut();
        if account.errands.len() < ERRANDS_MAX {
            account.errands.push(errand);
        } else {
            account.unlisted += 1;
        }
    }
}

impl MetaServer {
    /// Notes, if they are wanted and the asker may have them.
    pub(crate) fn notes(&self, wanted: bool) -> Notes {
        Notes(wanted.then(|| {
            Rc::new(Taken {
                world: self.world.clone(),
                began: self.world.mono(),
                account: RefCell::default(),
            })
        }))
    }
}
