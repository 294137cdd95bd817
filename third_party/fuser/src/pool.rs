//! Patched in: the threads of a session.
//!
//! One thread reads requests, and serves them as the filesystem wants to ([`Filesystem::serve`]): one after the other, or several beside each
//! other. Before it does anything that may take long it steps aside, and another reads: the kernel's interrupts come the same way as
//! requests. There are up to `max_threads`; from then on the last one only reads, and what it reads waits for the first that is done.
//!
//! Threads that have nothing to do are parked, and who was parked last goes back first: it is the warmest.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::thread::Thread;

use log::warn;
use nix::unistd::Uid;
use parking_lot::Mutex;
use parking_lot::MutexGuard;

use crate::FileHandle;
use crate::Filesystem;
use crate::INodeNo;
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
/// After so many reads in a row that failed, nobody reads any more.
const FAILURES: usize = 8;

pub(crate) struct Pool<FS: Filesystem> {
    pub(crate) ch: Channel,
    pub(crate) filesystem: Arc<FilesystemHolder<FS>>,
    pub(crate) allowed: SessionACL,
    pub(crate) session_owner: Uid,
    pub(crate) clone_fd: bool,
    /// Threads to start with; so many read while there is nothing to do.
    pub(crate) first: usize,
    pub(crate) max: usize,
    pub(crate) state: Mutex<State>,
    /// Reads in a row that failed.
    pub(crate) failures: AtomicUsize,
}

pub(crate) struct State {
    /// Threads that read, or will without waiting for anything else.
    readers: usize,
    total: usize,
    /// Threads that wait until they are needed, and where each is told for what.
    parked: Vec<(Thread, Arc<Mutex<Option<Job>>>)>,
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

/// What a thread is needed for.
enum Job {
    /// To read: it is counted as a reader already.
    Read,
    Serve(Waiting),
}

/// What a request asks for, as far as it matters to who serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// Bytes of a file, or locks.
    Data,
    /// To read bytes of a file.
    Read(FileHandle),
    /// To write bytes of a file, and where they end.
    Write(FileHandle, u64),
    /// To change attributes of a file.
    Change(INodeNo),
    /// A descriptor of a file is closed.
    Close(FileHandle),
    /// Anything else.
    Other,
}

impl Asks {
    fn of(operation: &Operation<'_>, node: INodeNo) -> Asks {
        match operation {
            Operation::FSync(_)
            | Operation::FAllocate(_)
            | Operation::Lseek(_)
            | Operation::CopyFileRange(_)
            | Operation::GetLk(_)
            | Operation::SetLk(_) => Asks::Data,
            Operation::Read(read) => Asks::Read(read.file_handle()),
            Operation::Write(write) => {
                let offset = write.offset().unwrap_or(u64::MAX);
                Asks::Write(write.file_handle(), offset.saturating_add(write.data().len() as u64))
            }
            // A size cuts bytes.
            Operation::SetAttr(change) if change.size().is_some() => Asks::Data,
            Operation::SetAttr(_) | Operation::SetXAttr(_) | Operation::RemoveXAttr(_) => Asks::Change(node),
            // It may be there already, and is emptied then.
            Operation::Create(create) if create.flags() & libc::O_TRUNC != 0 => Asks::Data,
            Operation::Flush(flush) => Asks::Close(flush.file_handle()),
            Operation::Release(release) => Asks::Close(release.file_handle()),
            _ => Asks::Other,
        }
    }
}

/// What was read.
#[derive(Debug)]
pub enum Next {
    /// There is nothing now.
    Nothing,
    /// A request, to be served, taken or handed over before the next is read.
    Request(Asks),
    /// The connection has ended.
    End,
}

/// A request that is served apart from the others, on the thread that has read it. Dropped before that, it is answered with an error.
pub struct Taken<FS: Filesystem + 'static> {
    request: Option<Waiting>,
    event_loop: Rc<SessionEventLoop<FS>>,
}

impl<FS: Filesystem + 'static> Taken<FS> {
    /// Serves it.
    pub fn serve(mut self) {
        if let Some(Waiting { mut data, sender }) = self.request.take()
            && let Some(request) = RequestWithSender::new(sender, data.as_mut())
        {
            request.dispatch(&self.event_loop);
        }
    }
}

impl<FS: Filesystem + 'static> Drop for Taken<FS> {
    fn drop(&mut self) {
        let Some(Waiting { mut data, sender }) = self.request.take() else {
            return;
        };
        if let Some(request) = RequestWithSender::new(sender, data.as_mut()) {
            match request.request.operation() {
                // Not answered by anybody.
                Ok(Operation::Forget(_) | Operation::BatchForget(_)) => {}
                _ => request.reply::<ReplyEmpty>().error(crate::Errno::EIO),
            }
        }
    }
}

/// The requests that one thread reads.
pub struct Requests<FS: Filesystem + 'static> {
    pool: Arc<Pool<FS>>,
    event_loop: Rc<SessionEventLoop<FS>>,
    buffer: FuseReadBuf,
    /// Of the request in the buffer.
    size: usize,
    /// Whether this thread is counted among the readers.
    reads: bool,
    /// What it is to do before it reads.
    job: Option<Waiting>,
}

impl<FS: Filesystem + 'static> Requests<FS> {
    /// What becomes readable when there are requests. It does not block.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event_loop.ch.as_fd()
    }

    /// Reads the next request. Interrupts are passed on here.
    pub fn next(&mut self) -> io::Result<Next> {
        loop {
            let buffer = self.buffer.as_mut();
            // The kernel driver makes sure that we get exactly one request per read.
            let size = match self.event_loop.ch.receive_now(buffer) {
                Ok(Some(size)) => size,
                Ok(None) => return Ok(Next::Nothing),
                Err(nix::errno::Errno::ENODEV) => {
                    self.read_no_more();
                    return Ok(Next::End);
                }
                Err(e) => {
                    // Another thread tries; in the end none does.
                    if self.pool.failures.fetch_add(1, Relaxed) >= FAILURES {
                        self.read_no_more();
                    }
                    return Err(e.into());
                }
            };
            if self.pool.failures.load(Relaxed) > 0 {
                self.pool.failures.store(0, Relaxed);
            }
            self.size = size;
            let Some(request) = RequestWithSender::new(self.event_loop.ch.sender(), &buffer[..size]) else {
                return Err(invalid());
            };
            match request.request.operation() {
                Ok(Operation::Destroy(_)) => {
                    request.reply::<ReplyEmpty>().ok();
                    self.read_no_more();
                    return Ok(Next::End);
                }
                // Waits for nothing.
                Ok(Operation::Interrupt(_)) => request.dispatch(&self.event_loop),
                Ok(operation) => {
                    let asks = Asks::of(&operation, request.request.nodeid());
                    return Ok(Next::Request(asks));
                }
                Err(_) => return Ok(Next::Request(Asks::Other)),
            }
        }
    }

    /// Serves what was read.
    pub fn serve_here(&mut self) {
        let size = self.size;
        let data = &self.buffer.as_mut()[..size];
        if let Some(request) = RequestWithSender::new(self.event_loop.ch.sender(), data) {
            request.dispatch(&self.event_loop);
        }
    }

    /// Takes what was read, to be served beside others.
    pub fn take(&mut self) -> Taken<FS> {
        Taken {
            request: Some(self.copy()),
            event_loop: self.event_loop.clone(),
        }
    }

    fn copy(&mut self) -> Waiting {
        let size = self.size;
        Waiting {
            data: FuseReadBuf::of(&self.buffer.as_mut()[..size]),
            sender: self.event_loop.ch.sender(),
        }
    }

    /// Has another thread serve what was read. False: there is none.
    pub fn hand_over(&mut self) -> bool {
        let waiting = self.copy();
        let mut state = self.pool.state.lock();
        if let Some(Job::Serve(waiting)) = self.pool.give(&mut state, Job::Serve(waiting)) {
            if state.total == 1 {
                return false;
            }
            // For the first that is done.
            state.waiting.push_back(waiting);
        }
        true
    }

    /// This thread may not read for a while: another does. False: no other can, and this one should not.
    pub fn step_aside(&mut self) -> bool {
        let pool = self.pool.clone();
        let mut state = pool.state.lock();
        if state.readers == 1 && pool.give(&mut state, Job::Read).is_some() && state.total > 1 {
            return false;
        }
        state.readers -= 1;
        self.reads = false;
        true
    }

    /// Another thread reads as well, if no more than so many do beyond those that always do.
    pub fn call_help(&self, helpers: usize) {
        let mut state = self.pool.state.lock();
        if state.readers < self.pool.first + helpers {
            let _ = self.pool.give(&mut state, Job::Read);
        }
    }

    /// Whether others read, so that this thread need not.
    pub fn others_read(&self) -> bool {
        self.pool.state.lock().readers > self.pool.first
    }

    /// The same. It does not any more then.
    pub fn rest(&mut self) -> bool {
        let pool = self.pool.clone();
        let mut state = pool.state.lock();
        let enough = state.readers > pool.first;
        if enough {
            state.readers -= 1;
            self.reads = false;
        }
        enough
    }

    /// Serves what others have handed over, until this thread is to read. False: it is to end. `beside`: it reads also if one more than
    /// always do already does.
    pub fn wait(&mut self, beside: bool) -> io::Result<bool> {
        loop {
            if let Some(mut waiting) = self.job.take() {
                let Some(request) = RequestWithSender::new(waiting.sender, waiting.data.as_mut()) else {
                    return Err(invalid());
                };
                request.dispatch(&self.event_loop);
                continue;
            }
            if self.reads {
                return Ok(true);
            }
            let place = {
                let mut state = self.pool.state.lock();
                if let Some(waiting) = state.waiting.pop_front() {
                    self.job = Some(waiting);
                    continue;
                }
                if state.readers < self.pool.first + usize::from(beside) || state.ended {
                    state.readers += 1;
                    self.reads = true;
                    continue;
                }
                if state.parked.len() >= PARKED {
                    return Ok(false);
                }
                let place = Arc::new(Mutex::new(None));
                state.parked.push((std::thread::current(), place.clone()));
                place
            };
            match parked(&place) {
                Job::Read => self.reads = true,
                Job::Serve(waiting) => self.job = Some(waiting),
            }
        }
    }

    /// Serves one request after the other: what a filesystem does that has no better way.
    pub fn serve_each(mut self) -> io::Result<()> {
        use nix::poll::PollFd;
        use nix::poll::PollFlags;
        use nix::poll::PollTimeout;
        while self.wait(false)? {
            match self.next()? {
                Next::Nothing => {
                    let mut fds = [PollFd::new(self.fd(), PollFlags::POLLIN)];
                    match nix::poll::poll(&mut fds, PollTimeout::NONE) {
                        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
                Next::Request(_) if self.step_aside() => self.serve_here(),
                Next::Request(_) => {
                    if !self.hand_over() {
                        self.serve_here();
                    }
                }
                Next::End => break,
            }
        }
        Ok(())
    }

    /// The connection has ended. Parked threads find out by themselves.
    fn read_no_more(&mut self) {
        let mut state = self.pool.state.lock();
        if self.reads {
            state.readers -= 1;
            self.reads = false;
        }
        state.ended = true;
        while !state.parked.is_empty() {
            let _ = self.pool.give(&mut state, Job::Read);
        }
    }
}

impl<FS: Filesystem + 'static> Drop for Requests<FS> {
    /// Whatever this thread ends for, another reads.
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.total -= 1;
        if self.reads {
            state.readers -= 1;
        }
        if state.readers < self.pool.first && !state.ended {
            let _ = self.pool.give(&mut state, Job::Read);
        }
        if let Some(waiting) = self.job.take() {
            state.waiting.push_front(waiting);
        }
        if let Some(waiting) = state.waiting.pop_front()
            && let Some(Job::Serve(waiting)) = self.pool.give(&mut state, Job::Serve(waiting))
        {
            state.waiting.push_front(waiting);
        }
    }
}

fn parked(place: &Mutex<Option<Job>>) -> Job {
    loop {
        if let Some(job) = place.lock().take() {
            return job;
        }
        std::thread::park();
    }
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "Invalid request")
}

impl<FS: Filesystem + 'static> Pool<FS> {
    /// Serves until the kernel ends the connection.
    pub(crate) fn run(self: &Arc<Self>) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            for _ in 0..self.first.max(1) {
                self.start(&mut state, Job::Read).map_err(|(e, _)| e)?;
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

    /// Gives a job to a thread that has nothing to do, or to a new one. Returned if there is none.
    fn give(self: &Arc<Self>, state: &mut MutexGuard<'_, State>, job: Job) -> Option<Job> {
        if let Some((thread, place)) = state.parked.pop() {
            if matches!(job, Job::Read) {
                state.readers += 1;
            }
            *place.lock() = Some(job);
            thread.unpark();
            return None;
        }
        if state.total >= self.max || state.ended {
            return Some(job);
        }
        match self.start(state, job) {
            Ok(()) => None,
            Err((e, job)) => {
                warn!("no thread more for requests: {e}");
                Some(job)
            }
        }
    }

    fn start(self: &Arc<Self>, state: &mut State, job: Job) -> Result<(), (io::Error, Job)> {
        let ch = if self.clone_fd && state.started > 0 {
            self.ch.clone_fd()
        } else {
            Ok(self.ch.clone())
        };
        let ch = match ch.and_then(|ch| ch.set_nonblocking().map(|()| ch)) {
            Ok(ch) => ch,
            Err(e) => return Err((e, job)),
        };
        let name = format!("fuser-{}", state.started);
        let reads = matches!(job, Job::Read);
        let pool = self.clone();
        // Not moved into a thread that may not start.
        let place = Arc::new(Mutex::new(Some(job)));
        let given = place.clone();
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
            let guard = Guard(pool);
            let pool = &guard.0;
            let job = parked(&given);
            if let Err(e) = pool.serve(ch, name, job) {
                let mut state = pool.state.lock();
                if state.result.is_ok() {
                    state.result = Err(e);
                }
            }
        });
        let thread = match thread {
            Ok(thread) => thread,
            Err(e) => {
                let job = place.lock().take();
                return Err((e, job.unwrap_or(Job::Read)));
            }
        };
        state.threads.retain(|t| !t.is_finished());
        state.threads.push(thread);
        state.started += 1;
        state.total += 1;
        if reads {
            state.readers += 1;
        }
        Ok(())
    }

    fn serve(self: &Arc<Self>, ch: Channel, thread_name: String, job: Job) -> io::Result<()> {
        let event_loop = Rc::new(SessionEventLoop {
            thread_name,
            ch,
            filesystem: self.filesystem.clone(),
            allowed: self.allowed,
            session_owner: self.session_owner,
        });
        let (reads, job) = match job {
            Job::Read => (true, None),
            Job::Serve(waiting) => (false, Some(waiting)),
        };
        let requests = Requests {
            pool: self.clone(),
            event_loop,
            buffer: FuseReadBuf::new(),
            size: 0,
            reads,
            job,
        };
        match &self.filesystem.fs {
            Some(filesystem) => filesystem.serve(requests),
            None => Ok(()),
        }
    }
}

/// Says in the end that a thread has panicked.
struct Guard<FS: Filesystem + 'static>(Arc<Pool<FS>>);

impl<FS: Filesystem + 'static> Drop for Guard<FS> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.state.lock();
            if state.result.is_ok() {
                state.result = Err(io::Error::other("event loop thread panicked"));
            }
        }
    }
}
