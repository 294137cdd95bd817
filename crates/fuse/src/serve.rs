//! A thread of a mount: reads requests of the kernel, and serves them beside each other.
//!
//! A request that may wait for other things than servers (bytes in blocks, locks) keeps its thread: another
//! reads meanwhile. Everything else is served on [stacks of its own](crate::fiber) by the thread that reads,
//! so that one thread does for many programs, and wakes for none of them.

use crate::core::Core;
use crate::driver::{self, Cluster, Driver};
use crate::fiber::Fibers;
use crate::fs::Mounted;
use fuser::{Asks, Next, Requests};
use pando_net::Along;
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

/// So many are served beside each other: less than a client has lanes, so that those that wait for a server
/// that is away leave some. Who comes after them is served by other threads.
const MOST: usize = 32;
/// So many are read before those that were begun go on.
const AT_ONCE: usize = 32;
/// Where so many came at once, and there is a core to spare, another thread helps.
const CROWD: usize = 8;
/// One thread that reads does for so many cores, and there are at most so many that help it.
const CORES: usize = 4;
const HELPERS: usize = 8;

/// Bytes flow until so long after the last.
const STREAMING: Duration = Duration::from_millis(10);

/// Why a thread reads no more.
enum Turn {
    /// It serves what it has read last.
    Serve,
    /// Others do.
    Rest,
    End,
}

pub(crate) fn serve<C: Cluster>(core: &Arc<Core<C>>, mut requests: Requests<Mounted<C>>) -> io::Result<()> {
    // Without a client it has been said why. Each request is answered so then, or by a thread that has one.
    let Ok(driver) = driver::of(core.id, &*core.cluster) else {
        return requests.serve_each();
    };
    let along = match driver.along(requests.fd()) {
        Ok(along) => along,
        Err(e) => {
            tracing::warn!("a thread of the mount serves one request at a time: {e}");
            return requests.serve_each();
        }
    };
    let fibers = Rc::<Fibers>::default();
    let streamed = Streamed::default();
    while requests.wait(streamed.lately())? {
        // Where bytes flow the next request is often there already, and is for this thread alone: nothing
        // need be waited for.
        let turn = match requests.next()? {
            Next::Request(asks) if waits(core, &*driver, asks) && requests.step_aside() => Turn::Serve,
            Next::End => Turn::End,
            next => {
                if let Err(e) = along.begin() {
                    // Nobody else has what was read.
                    if matches!(next, Next::Request(_)) {
                        requests.serve_here();
                    }
                    return Err(e);
                }
                let turn = driver.run(read(
                    core,
                    &*driver,
                    &mut requests,
                    next,
                    &fibers,
                    &streamed,
                    &along,
                ));
                along.end();
                turn?
            }
        };
        match turn {
            Turn::Serve => {
                requests.serve_here();
                streamed.now();
            }
            Turn::Rest => {}
            Turn::End => break,
        }
    }
    Ok(())
}

/// When a thread last served what it keeps its thread for. Where bytes flow, who has served some reads on
/// beside the other that reads: the two take turns then, and neither wakes the other.
#[derive(Default)]
struct Streamed(Cell<Option<Instant>>);

impl Streamed {
    fn now(&self) {
        self.0.set(Some(Instant::now()));
    }

    fn lately(&self) -> bool {
        self.0.get().is_some_and(|at| at.elapsed() < STREAMING)
    }
}

/// So many threads help the one that reads. Asked once: the answer is in files of the kernel's.
fn helpers() -> usize {
    static HELP: OnceLock<usize> = OnceLock::new();
    *HELP.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (cores / CORES).min(HELPERS)
    })
}

/// Whether a request may wait for more than an answer of a server.
fn waits<C: Cluster>(core: &Core<C>, driver: &C::Driver, asks: Asks) -> bool {
    match asks {
        Asks::Data => true,
        Asks::Read(fh) => !core.has_bytes(driver, fh.0, 0),
        Asks::Write(fh, end) => !core.has_bytes(driver, fh.0, end),
        Asks::Change(ino) => !core.changes_at_once(driver, ino.0),
        Asks::Close(fh) => !core.closes_at_once(driver, fh.0),
        Asks::Other => false,
    }
}

/// Reads and serves, until this thread is to do something else.
async fn read<C: Cluster>(
    core: &Core<C>,
    driver: &C::Driver,
    requests: &mut Requests<Mounted<C>>,
    mut first: Next,
    fibers: &Rc<Fibers>,
    streamed: &Streamed,
    along: &Along,
) -> io::Result<Turn> {
    let helpers = helpers();
    loop {
        let (mut came, mut read) = (0, 0);
        loop {
            if read == AT_ONCE {
                // What has begun is to go on, however many come: that there are more is told anew.
                along.end();
                along.begin()?;
                break;
            }
            read += 1;
            let next = match std::mem::replace(&mut first, Next::Nothing) {
                Next::Nothing => requests.next()?,
                first => first,
            };
            let apart = match next {
                Next::Nothing => break,
                Next::Request(asks) => waits(core, driver, asks) || fibers.len() >= MOST,
                Next::End => {
                    // What was begun is brought to its end.
                    poll_fn(|cx| fibers.poll_end(cx)).await;
                    fibers.panic();
                    return Ok(Turn::End);
                }
            };
            if apart && fibers.len() == 0 && requests.step_aside() {
                return Ok(Turn::Serve);
            }
            // Where there is no other thread it is served here.
            if !apart || !requests.hand_over() {
                let request = requests.take();
                match fibers.begin(move || request.serve()) {
                    Ok(task) => driver.spawn(Box::pin(task)),
                    // It was answered with an error.
                    Err(e) => tracing::warn!("no memory for another call: {e}"),
                }
                came += 1;
            }
        }
        if came >= CROWD && driver.has_spare_core() {
            requests.call_help(helpers);
        }
        if fibers.len() == 0 {
            fibers.panic();
            if !streamed.lately() && requests.rest() {
                return Ok(Turn::Rest);
            }
        }
        poll_fn(|cx| {
            // Who only helps goes when it has done what it began.
            if !streamed.lately() && requests.others_read() && fibers.poll_end(cx).is_ready() {
                return Poll::Ready(());
            }
            along.poll_readable(cx)
        })
        .await;
    }
}
