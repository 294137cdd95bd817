//! Patched in: the threads of a session.
//!
//! A thread that reads a request serves it, and meanwhile another must read: the kernel's interrupts come the same
//! way as requests. So there is always one more thread that reads, up to `max_threads`; from then on the last one
//! only reads, and what it reads waits for the first that is done.
//!
//! The kernel hands requests to waiting readers in turn, so that each is as cold as can be. So only a few wait there; the others are parked,
//! and who was parked last goes back first.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Release;
use std::thread::JoinHandle;
use std::thread::Thread;

use log::warn;
use nix::unistd::Uid;
use parking_lot::Mutex;

use crate::Filesystem;
use crate::ReplyEmpty;
use crate::SessionACL;
use crate::channel::Channel;
use crate::channel::ChannelSender;
use crate::ll::Operation;
use crate::read_buf::FuseReadBuf;
use crate::request::RequestWithSender;
use crate::session::FilesystemHolder;
use crate::session::SessionEventLoop;

/// So many threads may be parked before one ends.
const PARKED: usize = 16;

pub(crate) struct Pool<FS: Filesystem> {
    pub(crate) ch: Channel,
    pub(crate) filesystem: Arc<FilesystemHolder<FS>>,
    pub(crate) allowed: SessionACL,
    pub(crate) session_owner: Uid,
    pub(crate) clone_fd: bool,
    /// Threads to start with; so many may wait for requests in the kernel.
    pub(crate) first: usize,
    pub(crate) max: usize,
    pub(crate) state: Mutex<State>,
}

pub(crate) struct State {
    /// Threads that read, or will without waiting for anything else.
    readers: usize,
    total: usize,
    /// Threads that wait until they are needed, by the flag that wakes each.
    parked: Vec<(Thread, Arc<AtomicBool>)>,
    /// The kernel has ended the connection.
    ended: bool,
    /// Read while all threads but the reader were busy and no more could be started.
    waiting: VecDeque<Waiting>,
    threads: Vec<JoinHandle<()>>,
    started: usize,
    result: io::Result<()>,
}

impl Default for State {
    fn default() -> State {
        State {
            readers: 0,
            total: 0,
            parked: Vec::new(),
            ended: false,
            waiting: VecDeque::new(),
            threads: Vec::new(),
            started: 0,
            result: Ok(()),
        }
    }
}

struct Waiting {
    data: FuseReadBuf,
    /// A request is answered through the descriptor that it was read from.
    sender: ChannelSender,
}

enum Next {
    Serve(Waiting),
    Read,
    Park(Arc<AtomicBool>),
    End,
}

impl<FS: Filesystem + 'static> Pool<FS> {
    /// Serves until the kernel ends the connection.
    pub(crate) fn run(self: &Arc<Self>) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            for _ in 0..self.first.max(1) {
                self.start(&mut state)?;
            }
        }
        // Threads are started by threads only: when all that are known have ended, there is none.
        loop {
            let Some(thread) = self.state.lock().threads.pop() else {
                break;
            };
            let _ = thread.join();
        }
        std::mem::replace(&mut self.state.lock().result, Ok(()))
    }

    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let ch = if self.clone_fd && state.started > 0 {
            self.ch.clone_fd()?
        } else {
            self.ch.clone()
        };
        let name = format!("fuser-{}", state.started);
        let pool = self.clone();
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
            let guard = Guard(pool);
            let pool = &guard.0;
            if let Err(e) = pool.serve(ch, name) {
                let mut state = pool.state.lock();
                if state.result.is_ok() {
                    state.result = Err(e);
                }
            }
        })?;
        state.threads.retain(|t| !t.is_finished());
        state.threads.push(thread);
        state.started += 1;
        state.total += 1;
        state.readers += 1;
        Ok(())
    }

    fn serve(self: &Arc<Self>, ch: Channel, thread_name: String) -> io::Result<()> {
        let event_loop = SessionEventLoop {
            thread_name,
            ch,
            filesystem: self.filesystem.clone(),
            allowed: self.allowed,
            session_owner: self.session_owner,
        };
        let mut buf = FuseReadBuf::new();
        let buf = buf.as_mut();
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "Invalid request");
        loop {
            // The kernel driver makes sure that we get exactly one request per read.
            let size = match event_loop.ch.receive_retrying(buf) {
                Ok(size) => size,
                Err(err) => {
                    self.reads_no_more();
                    return match err {
                        nix::errno::Errno::ENODEV => Ok(()),
                        err => Err(err.into()),
                    };
                }
            };
            let data = &buf[..size];
            let Some(req) = RequestWithSender::new(event_loop.ch.sender(), data) else {
                self.reads_no_more();
                return Err(invalid());
            };
            match req.request.operation() {
                Ok(Operation::Destroy(_)) => {
                    req.reply::<ReplyEmpty>().ok();
                    self.reads_no_more();
                    return Ok(());
                }
                // Waits for nothing.
                Ok(Operation::Interrupt(_)) => {
                    req.dispatch(&event_loop);
                    continue;
                }
                _ => {}
            }
            if !self.begin(data, &event_loop.ch) {
                continue;
            }
            req.dispatch(&event_loop);
            loop {
                match self.next() {
                    Next::Serve(mut waiting) => {
                        let Some(req) = RequestWithSender::new(waiting.sender, waiting.data.as_mut()) else {
                            return Err(invalid());
                        };
                        req.dispatch(&event_loop);
                    }
                    Next::Read => break,
                    Next::Park(woken) => {
                        while !woken.load(Acquire) {
                            std::thread::park();
                        }
                        // Whoever woke it has counted it as a reader.
                        break;
                    }
                    Next::End => return Ok(()),
                }
            }
        }
    }

    /// Whether this thread is to serve what it has just read. If not, another will, and this one reads on.
    fn begin(self: &Arc<Self>, data: &[u8], ch: &Channel) -> bool {
        let mut state = self.state.lock();
        if state.readers > 1 {
            state.readers -= 1;
            return true;
        }
        if let Some((thread, woken)) = state.parked.pop() {
            // It reads in this one's place.
            woken.store(true, Release);
            drop(state);
            thread.unpark();
            return true;
        }
        if state.total < self.max {
            match self.start(&mut state) {
                Ok(()) => {
                    state.readers -= 1;
                    return true;
                }
                Err(e) => warn!("no thread more for requests: {e}"),
            }
        }
        if state.total == 1 {
            // Nobody else would.
            state.readers -= 1;
            return true;
        }
        state.waiting.push_back(Waiting {
            data: FuseReadBuf::of(data),
            sender: ch.sender(),
        });
        false
    }

    /// A reader ends: the connection has ended, or has failed for it. Parked threads find out by themselves.
    fn reads_no_more(&self) {
        let mut state = self.state.lock();
        state.readers -= 1;
        state.ended = true;
        for (thread, woken) in std::mem::take(&mut state.parked) {
            state.readers += 1;
            woken.store(true, Release);
            thread.unpark();
        }
    }

    fn next(&self) -> Next {
        let mut state = self.state.lock();
        if let Some(waiting) = state.waiting.pop_front() {
            return Next::Serve(waiting);
        }
        if state.readers < self.first.max(1) || state.ended {
            state.readers += 1;
            return Next::Read;
        }
        if state.parked.len() >= PARKED {
            return Next::End;
        }
        let woken = Arc::<AtomicBool>::default();
        state.parked.push((std::thread::current(), woken.clone()));
        Next::Park(woken)
    }
}

/// Counts a thread out, whichever way it ends.
struct Guard<FS: Filesystem + 'static>(Arc<Pool<FS>>);

impl<FS: Filesystem + 'static> Drop for Guard<FS> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.total -= 1;
        if std::thread::panicking() {
            if state.result.is_ok() {
                state.result = Err(io::Error::other("event loop thread panicked"));
            }
            // It was serving: what waits for a thread, waits for this one perhaps.
            if let Err(e) = self.0.start(&mut state) {
                warn!("no thread in place of one that panicked: {e}");
            }
        }
    }
}
