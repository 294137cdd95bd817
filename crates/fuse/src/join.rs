//! Several requests at once.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;

/// Both results.
pub(crate) async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|cx| {
        if first.is_none()
            && let Poll::Ready(v) = a.as_mut().poll(cx)
        {
            first = Some(v);
        }
        if second.is_none()
            && let Poll::Ready(v) = b.as_mut().poll(cx)
        {
            second = Some(v);
        }
        match (first.take(), second.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (first, second) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// All results, in order.
pub(crate) async fn all<T>(mut futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(v) => *result = Some(v),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// Goes on with all of them until some have ended, which are taken out, or `most` is over.
pub(crate) async fn some(
    futures: &mut Vec<Pin<Box<dyn Future<Output = ()>>>>,
    most: impl Future<Output = ()>,
) {
    let mut most = pin!(most);
    std::future::poll_fn(|cx| {
        let before = futures.len();
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.len() < before || futures.is_empty() {
            return Poll::Ready(());
        }
        most.as_mut().poll(cx)
    })
    .await;
}
