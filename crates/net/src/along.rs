//! A descriptor that is none of ours, waited for along with the sockets.

use crate::Reactor;
use mio::unix::SourceFd;
use mio::{Interest, Token};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pub(crate) const ALONG: Token = Token(usize::MAX - 3);

/// That it can be read, and who waits for that.
#[derive(Default)]
pub(crate) struct Signal {
    raised: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    pub fn raise(&self) {
        self.raised.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Tells when a descriptor can be read, while the loop waits for it.
pub struct Along {
    reactor: Rc<Reactor>,
    /// Its own, so that it is open for as long as it is waited for.
    fd: OwnedFd,
    signal: Rc<Signal>,
    waits: Cell<bool>,
}

impl Along {
    /// From now on the loop waits for it. REQUIRES: for no other.
    pub fn begin(&self) -> io::Result<()> {
        let other = self.reactor.along.borrow_mut().replace(self.signal.clone());
        assert!(other.is_none(), "two descriptors to wait for");
        self.waits.set(true);
        let fd = self.fd.as_raw_fd();
        self.reactor
            .registry
            .register(&mut SourceFd(&fd), ALONG, Interest::READABLE)
    }

    /// Not any more.
    pub fn end(&self) {
        if self.waits.take() {
            *self.reactor.along.borrow_mut() = None;
            let fd = self.fd.as_raw_fd();
            let _ = self.reactor.registry.deregister(&mut SourceFd(&fd));
        }
    }

    /// Ready if something came since the last time: whoever waits has read all there was before.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.signal.raised.take() {
            return Poll::Ready(());
        }
        *self.signal.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Along {
    fn drop(&mut self) {
        self.end();
    }
}

impl Reactor {
    /// For waiting for `fd`, which does not block, along with the sockets.
    pub fn along(self: &Rc<Reactor>, fd: BorrowedFd<'_>) -> io::Result<Along> {
        Ok(Along {
            reactor: self.clone(),
            fd: fd.try_clone_to_owned()?,
            signal: Rc::default(),
            waits: Cell::new(false),
        })
    }
}
