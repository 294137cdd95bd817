//! Small single-threaded building blocks for waiting.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

struct OnceState<T> {
    value: Option<T>,
    waker: Option<Waker>,
    sender_gone: bool,
}

/// Delivers one value to a [`Receiver`].
pub struct Sender<T>(Rc<RefCell<OnceState<T>>>);

/// Waits for the value of a [`Sender`]; `None` if that was dropped.
pub struct Receiver<T>(Rc<RefCell<OnceState<T>>>);

/// A one-shot channel.
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let state = Rc::new(RefCell::new(OnceState {
        value: None,
        waker: None,
        sender_gone: false,
    }));
    (Sender(state.clone()), Receiver(state))
}

impl<T> Sender<T> {
    /// Delivers. False if nobody waits any more.
    pub fn send(self, value: T) -> bool {
        if Rc::strong_count(&self.0) < 2 {
            return false;
        }
        self.0.borrow_mut().value = Some(value);
        true // dropping self wakes the receiver
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut s = self.0.borrow_mut();
            s.sender_gone = true;
            s.waker.take()
        };
        if let Some(w) = waker {
            w.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut s = self.0.borrow_mut();
        if let Some(v) = s.value.take() {
            return Poll::Ready(Some(v));
        }
        if s.sender_gone {
            return Poll::Ready(None);
        }
        s.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Completes with the first of two futures; the other is dropped.
pub async fn first<A, B>(a: A, b: B) -> Either<A::Output, B::Output>
where
    A: Future + Unpin,
    B: Future + Unpin,
{
    let (mut a, mut b) = (a, b);
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(v) = Pin::new(&mut a).poll(cx) {
            return Poll::Ready(Either::Left(v));
        }
        if let Poll::Ready(v) = Pin::new(&mut b).poll(cx) {
            return Poll::Ready(Either::Right(v));
        }
        Poll::Pending
    })
    .await
}

/// Which of two.
pub enum Either<A, B> {
    /// The first.
    Left(A),
    /// The second.
    Right(B),
}

/// Runs all futures at once and returns their results in order.
pub async fn join_all<'a, T>(futures: Vec<Pin<Box<dyn Future<Output = T> + 'a>>>) -> Vec<T> {
    let mut pending: Vec<_> = futures.into_iter().map(|f| (Some(f), None)).collect();
    std::future::poll_fn(|cx| {
        let mut all = true;
        for (future, value) in &mut pending {
            if let Some(f) = future {
                match f.as_mut().poll(cx) {
                    Poll::Ready(v) => {
                        *value = Some(v);
                        *future = None;
                    }
                    Poll::Pending => all = false,
                }
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    pending.into_iter().filter_map(|(_, v)| v).collect()
}
