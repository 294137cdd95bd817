//! Taking a consistent cut through all servers, and reading it: the operator's side (`pando backup`).

use crate::Client;
use pando_cluster::ClusterMap;
use pando_env::LocalFuture;
use pando_env::sync::{Either, first, join_all};
use pando_format::KeyRange;
use pando_store::Bundle;
use pando_types::{Errno, ServerId};
use pando_wire::{CutAnswer, CutError, CutId, CutRequest, Request, Response};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of records asked for at once.
const PIECE: u32 = 1 << 20;
/// How long all servers together may take to hold, and to take their pictures: less than they hold by
/// themselves.
const MOMENT: Duration = Duration::from_millis(900);

/// Why there is no cut, or none any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutFailed {
    /// A server said so.
    Refused(ServerId, CutError),
    /// A server did not answer in time, or cannot be reached.
    Silent(ServerId),
    /// We are no operator.
    NotAllowed,
}

impl fmt::Display for CutFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CutFailed::Silent(id) => write!(
                f,
                "server {id} does not answer; a cut needs all servers (`pando status`)"
            ),
            CutFailed::NotAllowed => write!(f, "only operators may make a cut"),
            CutFailed::Refused(id, CutError::Over) => write!(
                f,
                "the cut is gone at server {id}: it has started again, or was not read for too long"
            ),
            CutFailed::Refused(id, CutError::Another(ms)) => write!(
                f,
                "another backup is being made (says server {id}); if it was broken off, its cut goes in {} s",
                ms.div_ceil(1000)
            ),
            CutFailed::Refused(id, CutError::Rest(ms)) => {
                write!(
                    f,
                    "server {id} was held up a moment ago and rests for {ms} ms more"
                )
            }
            CutFailed::Refused(id, CutError::OtherMap(epoch)) => {
                write!(f, "server {id} knows a cluster map of epoch {epoch}")
            }
            CutFailed::Refused(_, CutError::Moving) => {
                write!(
                    f,
                    "slots are on the move; wait until they are there (`pando status`)"
                )
            }
            CutFailed::Refused(id, CutError::Damaged) => {
                write!(
                    f,
                    "a table of server {id} is damaged: `pando fsck` names what is lost, `pando fsck --repair` makes the store anew without it"
                )
            }
        }
    }
}

impl std::error::Error for CutFailed {}

impl CutFailed {
    /// Whether it may be otherwise in a moment.
    pub fn passes(&self) -> bool {
        match self {
            CutFailed::Refused(_, why) => match why {
                CutError::Over | CutError::Another(_) | CutError::Rest(_) | CutError::OtherMap(_) => true,
                CutError::Moving | CutError::Damaged => false,
            },
            CutFailed::Silent(_) => true,
            CutFailed::NotAllowed => false,
        }
    }
}

/// A cut that all servers have pictures of.
pub struct Cut {
    client: Rc<Client>,
    /// Its name.
    pub id: CutId,
    /// The map at that moment.
    pub map: Rc<ClusterMap>,
    /// How long the server held still that was held up longest.
    pub held: Duration,
}

impl Cut {
    /// Takes one: a single attempt, which takes no longer than servers hold still by themselves. If it fails
    /// they are told to go on. `at_rest` is called at an instant at which all hold.
    pub async fn take(client: &Rc<Client>, at_rest: impl FnOnce()) -> Result<Cut, CutFailed> {
        let map = client.newest_map().await;
        let id = CutId(u128::from(client.world.random()) << 64 | u128::from(client.world.random()));
        let mut cut = Cut {
            client: client.clone(),
            id,
            map,
            held: Duration::ZERO,
        };
        let taken = cut.hold_and_take(at_rest).await;
        if taken.is_err() {
            // Also who did not answer: it may have heard.
            cut.tell_all(Request::Cut(CutRequest::End(id))).await;
        }
        taken.map(|()| cut)
    }

    async fn hold_and_take(&mut self, at_rest: impl FnOnce()) -> Result<(), CutFailed> {
        // Who is away is not worth holding the others up; and connections are there when it matters.
        for (_, answer) in self.tell_all(Request::Null(false)).await {
            answer?;
        }
        let (cut, map) = (self.id, self.map.epoch);
        for (id, answer) in self.tell_all(Request::Cut(CutRequest::Hold { cut, map })).await {
            match answer? {
                CutAnswer::Held => {}
                _ => return Err(CutFailed::Refused(id, CutError::Over)),
            }
        }
        at_rest();
        for (id, answer) in self.tell_all(Request::Cut(CutRequest::Take(cut))).await {
            match answer? {
                CutAnswer::Taken(micros) => self.held = self.held.max(Duration::from_micros(micros)),
                _ => return Err(CutFailed::Refused(id, CutError::Over)),
            }
        }
        Ok(())
    }

    /// Asks all servers at once, and waits for a moment at most.
    async fn tell_all(&self, request: Request) -> Vec<(ServerId, Result<CutAnswer, CutFailed>)> {
        type Asking = LocalFuture<(ServerId, Result<CutAnswer, CutFailed>)>;
        let asking = self.map.servers.iter().map(|server| {
            let (client, id, request) = (self.client.clone(), server.id, request.clone());
            let asking: Asking = Box::pin(async move {
                let world = client.world.clone();
                let asked: LocalFuture<_> = Box::pin(async move { ask(&client, id, request).await });
                match first(asked, world.sleep(MOMENT)).await {
                    Either::Left(answer) => (id, answer),
                    Either::Right(()) => (id, Err(CutFailed::Silent(id))),
                }
            });
            asking
        });
        join_all(asking.collect()).await
    }

    /// The next records of a range at a server, and what is left of it. Also a sign of life for that server.
    pub async fn read(
        &self,
        server: ServerId,
        range: KeyRange,
    ) -> Result<(Bundle, Option<KeyRange>), CutFailed> {
        let read = CutRequest::Read {
            cut: self.id,
            range,
            bytes: PIECE,
        };
        match ask(&self.client, server, Request::Cut(read)).await? {
            CutAnswer::Records(bundle, rest) => Ok((Bundle(bundle.0), rest)),
            _ => Err(CutFailed::Refused(server, CutError::Over)),
        }
    }

    /// Signs of life for all.
    pub async fn keep(&self) -> Result<(), CutFailed> {
        let nothing = KeyRange {
            start: vec![0],
            end: vec![0],
        };
        let read = CutRequest::Read {
            cut: self.id,
            range: nothing,
            bytes: 1,
        };
        let answers = self.tell_all(Request::Cut(read)).await;
        answers.into_iter().try_for_each(|(_, answer)| answer.map(|_| ()))
    }

    /// It is not needed any more. Errs if a server did not have it until now.
    pub async fn end(self) -> Result<(), CutFailed> {
        for (id, answer) in self.tell_all(Request::Cut(CutRequest::End(self.id))).await {
            if answer? != CutAnswer::Ended(true) {
                return Err(CutFailed::Refused(id, CutError::Over));
            }
        }
        Ok(())
    }
}

async fn ask(client: &Client, server: ServerId, request: Request) -> Result<CutAnswer, CutFailed> {
    match client.admin(server, request).await {
        // It is there.
        Ok(Response::Ok) => Ok(CutAnswer::Ended(true)),
        Ok(Response::Cut(answer)) => answer.map_err(|why| CutFailed::Refused(server, why)),
        Err(Errno::Access) => Err(CutFailed::NotAllowed),
        Ok(_) | Err(_) => Err(CutFailed::Silent(server)),
    }
}
