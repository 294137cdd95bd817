//! The calls that run, and how signals end them.
//!
//! The kernel says that whoever waits for a call was sent a signal, and waits on for the answer, also if the
//! signal kills. What is answered:
//! - **Who is killed** gets EINTR at once and is gone. A change that may have reached a server goes on to its
//!   outcome in its thread; what has not is given up.
//! - **Who handles a signal that asks it to end** (SIGINT, SIGTERM, SIGQUIT, SIGHUP) gets EINTR once the call
//!   has waited for [`STALLED`], if it has changed nothing and will not. Other signals that are handled end
//!   nothing: programs do not expect it of a filesystem.
//! - **Who closes a file** is not known by number. The call ends after [`STALLED`], or [`CLOSING`] if the
//!   publish may have reached a server; the release that follows publishes what is not published.
//! - Signals that do neither (stops, what is ignored, timers) end nothing.

use foldhash::HashMap;
use pando_client::Interrupt;
use pando_types::{Cred, Errno};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A call that has waited for so long waits for a server that is away.
const STALLED: Duration = Duration::from_secs(1);
/// The same for a close.
const CLOSING: Duration = Duration::from_secs(5);
/// How often it is looked what the signals of interrupted calls are: a second one is not told.
const LOOK: Duration = Duration::from_millis(100);
/// Interrupts of calls that are not known, not yet or not any more. The kernel never uses a number again.
const EARLY: usize = 1024;

/// One request of the kernel, while it is served.
struct Call {
    unique: u64,
    /// The calling thread; 0 if it is not known.
    pid: u32,
    /// As whom what is looked at for it is looked at, if not as the superuser.
    acts: Option<Cred>,
    begun: Instant,
    closes: AtomicBool,
    interrupt: Arc<Interrupt>,
    cut: fuser::Cut,
}

#[derive(Default)]
struct Table {
    running: HashMap<u64, Arc<Call>>,
    early: VecDeque<u64>,
    interrupted: BTreeSet<u64>,
    watched: bool,
    stopped: bool,
}

/// All calls of a mount.
#[derive(Default)]
pub(crate) struct Calls {
    table: Mutex<Table>,
    changed: Condvar,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Call>>> = const { RefCell::new(None) };
}

/// Ends a call's entry when it is answered.
pub(crate) struct Entered<'a>(&'a Calls, u64);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(None);
        let mut table = self.0.lock();
        table.running.remove(&self.1);
        table.interrupted.remove(&self.1);
    }
}

/// The call that a thread serves, while it serves another.
pub(crate) struct Current(Option<Arc<Call>>);

impl Current {
    pub fn take() -> Current {
        Current(CURRENT.take())
    }

    pub fn put_back(self) {
        CURRENT.set(self.0);
    }
}

/// The call this thread serves, for its client.
pub(crate) fn heeded() -> Option<Arc<Interrupt>> {
    CURRENT.with_borrow(|c| c.as_ref().map(|c| c.interrupt.clone()))
}

/// As whom this thread's call looks at what no one user asks for; see [`crate::cred`].
pub(crate) fn acts() -> Option<Cred> {
    CURRENT.with_borrow(|c| c.as_ref().and_then(|c| c.acts.clone()))
}

/// This thread's call is about to change something.
pub(crate) fn change() -> Result<(), Errno> {
    match heeded() {
        Some(call) if !call.change() => Err(Errno::Interrupted),
        _ => Ok(()),
    }
}

/// This thread's call was answered early: nobody has what it gives.
pub(crate) fn cut_off() -> bool {
    CURRENT.with_borrow(|c| c.as_ref().is_some_and(|c| c.cut.is_done()))
}

/// This thread's call closes a file.
pub(crate) fn closes() {
    CURRENT.with_borrow(|c| {
        if let Some(call) = c {
            call.closes.store(true, Relaxed);
        }
    });
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread serves a request until what is returned is dropped.
    pub fn enter(
        self: &Arc<Self>,
        unique: u64,
        pid: u32,
        acts: Option<Cred>,
        cut: fuser::Cut,
    ) -> Entered<'_> {
        let call = Arc::new(Call {
            unique,
            pid,
            acts,
            begun: Instant::now(),
            closes: AtomicBool::new(false),
            interrupt: Arc::default(),
            cut,
        });
        let mut table = self.lock();
        if let Some(at) = table.early.iter().position(|u| *u == unique) {
            table.early.remove(at);
            table.interrupted.insert(unique);
            self.changed.notify_all();
        }
        table.running.insert(unique, call.clone());
        drop(table);
        CURRENT.set(Some(call));
        Entered(self, unique)
    }

    /// Whoever waits for this request was sent a signal.
    pub fn interrupt(self: &Arc<Self>, unique: u64) {
        let mut table = self.lock();
        if table.running.contains_key(&unique) {
            table.interrupted.insert(unique);
        } else {
            if table.early.len() >= EARLY {
                table.early.pop_front();
            }
            table.early.push_back(unique);
        }
        if !table.watched && !table.stopped {
            let calls = self.clone();
            let thread = std::thread::Builder::new().name("pando-calls".into());
            match thread.spawn(move || calls.watch()) {
                Ok(_) => table.watched = true,
                Err(e) => tracing::error!("interrupted calls go on: {e}"),
            }
        }
        self.changed.notify_all();
    }

    /// No more calls come.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    fn watch(&self) {
        let mut table = self.lock();
        while !table.stopped {
            if table.interrupted.is_empty() {
                table = self.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let calls: Vec<Arc<Call>> = table
                .interrupted
                .iter()
                .filter_map(|u| table.running.get(u).cloned())
                .collect();
            drop(table);
            let ended: Vec<u64> = calls.iter().filter(|c| c.end()).map(|c| c.unique).collect();
            table = self.lock();
            for unique in ended {
                table.interrupted.remove(&unique);
            }
            if !table.interrupted.is_empty() {
                let waited = self.changed.wait_timeout(table, LOOK);
                table = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl Call {
    /// Answers an interrupted call, if it is time.
    fn end(&self) -> bool {
        let age = self.begun.elapsed();
        let closes = self.closes.load(Relaxed);
        let ends = match Signals::of(self.pid) {
            Signals::Kill => {
                self.interrupt.cut();
                true
            }
            Signals::Nothing => false,
            Signals::Handled | Signals::Unknown if age < STALLED => false,
            Signals::Handled => self.interrupt.cut(),
            Signals::Unknown => self.interrupt.cut() || (closes && age >= CLOSING),
        };
        ends && (self.cut.error(fuser::Errno::EINTR) || self.cut.is_done())
    }
}

/// What a thread's pending signals will do to it.
#[derive(PartialEq, Eq, Debug)]
enum Signals {
    Kill,
    Handled,
    Nothing,
    Unknown,
}

impl Signals {
    fn of(pid: u32) -> Signals {
        if pid == 0 {
            return Signals::Unknown;
        }
        match std::fs::read_to_string(format!("/proc/{pid}/status")) {
            Ok(status) => Signals::in_status(&status),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Signals::unseen(pid),
            Err(_) => Signals::Unknown,
        }
    }

    /// Of one that is not shown: it is gone, or hidden (`hidepid`).
    fn unseen(pid: u32) -> Signals {
        let pid = i32::try_from(pid).map(nix::unistd::Pid::from_raw);
        match pid.map(|pid| nix::sys::signal::kill(pid, None)) {
            Ok(Err(nix::errno::Errno::ESRCH)) => Signals::Kill,
            _ => Signals::Unknown,
        }
    }

    fn in_status(status: &str) -> Signals {
        let mask = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|l| l.strip_prefix(name))?;
            u64::from_str_radix(line.strip_prefix(':')?.trim(), 16).ok()
        };
        let (Some(own), Some(shared)) = (mask("SigPnd"), mask("ShdPnd")) else {
            return Signals::Unknown;
        };
        let (Some(blocked), Some(ignored), Some(caught)) = (mask("SigBlk"), mask("SigIgn"), mask("SigCgt"))
        else {
            return Signals::Unknown;
        };
        use nix::sys::signal::Signal::*;
        let bit = |s: nix::sys::signal::Signal| 1u64 << (s as u32 - 1);
        // What these do by default ends nobody.
        let harmless = [
            SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
        ]
        .into_iter()
        .fold(0, |all, s| all | bit(s));
        let asks = [SIGINT, SIGTERM, SIGQUIT, SIGHUP]
            .into_iter()
            .fold(0, |all, s| all | bit(s));
        let pending = (own | shared) & !blocked;
        if pending & !caught & !ignored & !harmless != 0 {
            Signals::Kill
        } else if pending & caught & asks != 0 {
            Signals::Handled
        } else {
            Signals::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(own: u64, shared: u64, blocked: u64, ignored: u64, caught: u64) -> Signals {
        let text = format!(
            "Name:\tx\nSigQ:\t0/1\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n\
             SigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        );
        Signals::in_status(&text)
    }

    #[test]
    fn what_signals_do() {
        let (int, kill, alarm, urgent, tstp) = (1 << 1, 1 << 8, 1 << 13, 1 << 22, 1 << 19);
        assert_eq!(status(0, 0, 0, 0, 0), Signals::Nothing);
        assert_eq!(status(0, int, 0, 0, 0), Signals::Kill);
        assert_eq!(status(int, 0, 0, 0, int), Signals::Handled);
        assert_eq!(status(0, int, 0, int, 0), Signals::Nothing);
        assert_eq!(status(0, int, int, 0, int), Signals::Nothing);
        assert_eq!(status(0, tstp, 0, 0, 0), Signals::Nothing);
        // Nobody asks the program to end: a timer, what runtimes tell themselves.
        assert_eq!(status(alarm, urgent, 0, 0, alarm | urgent), Signals::Nothing);
        assert_eq!(status(0, tstp, 0, 0, tstp), Signals::Nothing);
        // As the kernel marks the threads of a program that a signal kills, whatever the signal was.
        assert_eq!(status(kill, int, 0, 0, int), Signals::Kill);
        assert_eq!(Signals::in_status("Name:\tx\n"), Signals::Unknown);
        assert_eq!(Signals::of(0), Signals::Unknown);
        // One that lives and is not shown; there are no processes of such numbers.
        assert_eq!(Signals::unseen(std::process::id()), Signals::Unknown);
        assert_eq!(Signals::unseen(i32::MAX as u32), Signals::Kill);
        assert_eq!(Signals::of(std::process::id()), Signals::Nothing);
    }
}
