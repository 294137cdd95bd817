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

/// Tells when a descriptor can be read. Dropped, the loop waits for it no longer.
pub struct Along {
    reactor: Rc<Reactor>,
    fd: OwnedFd,
    signal: Rc<Signal>,
}

impl Along {
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
        *self.reactor.along.borrow_mut() = None;
        let _ = self
            .reactor
            .registry
            .deregister(&mut SourceFd(&self.fd.as_raw_fd()));
    }
}

impl Reactor {
    /// Waits for `fd`, which does not block, along with the sockets. REQUIRES: for no other.
    pub fn along(self: &Rc<Reactor>, fd: BorrowedFd<'_>) -> io::Result<Along> {
        // Its own, so that it is open for as long as it is waited for.
        let fd = fd.try_clone_to_owned()?;
        let signal = Rc::<Signal>::default();
        let other = self.along.borrow_mut().replace(signal.clone());
        assert!(other.is_none(), "two descriptors to wait for");
        let (reactor, source) = (self.clone(), fd.as_raw_fd());
        let along = Along { reactor, fd, signal };
        self.registry
            .register(&mut SourceFd(&source), ALONG, Interest::READABLE)?;
        Ok(along)
    }

    /// Whether another thread can run beside this one.
    pub fn has_spare_core(&self) -> bool {
        self.pacer.has_spare_core(self.time.get())
    }
}
