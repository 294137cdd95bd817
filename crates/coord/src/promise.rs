//! Answers of the thread that talks to ZooKeeper.

use pando_cluster::CoordError;
use pando_env::LocalFuture;

pub(crate) type Answered<T> = Result<T, CoordError>;

/// Whoever drops it has answered: with what was found, or with an error.
pub(crate) type Promise<T> = pando_env::Promise<Answered<T>>;

/// A promise, and what waits for it.
pub(crate) fn promise<T: 'static>() -> (Promise<T>, LocalFuture<Answered<T>>) {
    let (promise, answer) = pando_env::promise();
    let gone = || Err(CoordError::Away("its thread has ended".into()));
    let answer = Box::pin(async move { answer.await.unwrap_or_else(gone) });
    (promise, answer)
}
