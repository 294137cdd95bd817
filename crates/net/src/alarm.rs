//! Ends a wait in the kernel at an instant. The timeout of such a wait counts in milliseconds from where it
//! begins, which is too coarse for what is shorter, and spinning would take the core from those whose
//! messages are waited for.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use pando_types::Mono;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A timer of the kernel.
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    /// One that is not set, and is an event under `token` when it rings.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Alarm(timer))
    }

    /// Rings then, and not when it was to ring before. False: it cannot.
    pub fn set(&self, at: Mono) -> bool {
        let when = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: (at.0 / 1_000_000_000) as i64,
                tv_nsec: (at.0 % 1_000_000_000) as i64,
            },
        };
        let set = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &when);
        if let Err(e) = &set {
            tracing::error!(error = %e, "a timer cannot be set");
        }
        set.is_ok()
    }
}
