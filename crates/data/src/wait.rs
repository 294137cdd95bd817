//! Futures without an event loop.

use crate::LocalFuture;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// What a future comes to, on a thread that has nothing else to do. Other threads may wake it.
pub fn wait<T>(mut future: LocalFuture<T>) -> T {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Unpark>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(v) => return v,
            Poll::Pending => std::thread::park(),
        }
    }
}
