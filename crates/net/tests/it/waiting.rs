//! Timers, wake-ups from other threads, and doing nothing when there is nothing to do.
#![allow(clippy::unwrap_used)]

use crate::common::{CLIENT, Client, Server, identity};
use pando_env::Env;
use pando_net::{Options, Reactor, Waiting, thread_cpu};
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

fn reactor() -> Rc<Reactor> {
    Reactor::new(Options::default(), identity(CLIENT)).unwrap()
}

#[test]
fn timers_fire_in_order_and_on_time() {
    let reactor = reactor();
    let seen = Rc::new(RefCell::new(Vec::new()));
    for ms in [30u64, 10, 20, 10] {
        let (r, seen) = (reactor.clone(), seen.clone());
        reactor.spawn(Box::pin(async move {
            r.sleep(Duration::from_millis(ms)).await;
            seen.borrow_mut().push(ms);
        }));
    }
    let begin = Instant::now();
    reactor.block_on(reactor.sleep(Duration::from_millis(40)));
    assert!(begin.elapsed() >= Duration::from_millis(40));
    assert_eq!(*seen.borrow(), [10, 10, 20, 30]);
    // A sleep that is dropped leaves nothing behind, and zero is zero.
    drop(reactor.sleep(Duration::from_secs(1)));
    let begin = Instant::now();
    reactor.block_on(reactor.sleep(Duration::ZERO));
    reactor.turn(Some(Duration::from_millis(5)));
    assert!(begin.elapsed() < Duration::from_secs(4));
    reactor.shutdown();
}

/// What another thread completes: a value and who waits for it.
#[derive(Default)]
struct Slot(Mutex<(u32, Option<Waker>)>);

impl Slot {
    fn put(&self) {
        let mut s = self.0.lock().unwrap();
        s.0 += 1;
        if let Some(w) = s.1.take() {
            drop(s);
            w.wake();
        }
    }

    async fn take(&self) {
        poll_fn(|cx| {
            let mut s = self.0.lock().unwrap();
            if s.0 > 0 {
                s.0 -= 1;
                return Poll::Ready(());
            }
            s.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[test]
fn wakes_from_another_thread_are_never_lost() {
    for waiting in [Waiting::Blocking, Waiting::default()] {
        let reactor = Reactor::new(
            Options {
                waiting,
                ..Options::default()
            },
            identity(CLIENT),
        )
        .unwrap();
        let (there, back) = (Arc::new(Slot::default()), Arc::new(Slot::default()));
        let (t, b) = (there.clone(), back.clone());
        const ROUNDS: u32 = 20_000;
        let thread = std::thread::spawn(move || {
            let other = Reactor::new(
                Options {
                    waiting,
                    ..Options::default()
                },
                identity(CLIENT),
            );
            let other = other.unwrap();
            for _ in 0..ROUNDS {
                other.block_on(t.take());
                b.put();
            }
        });
        // One half as a task, one as the blocking future.
        let task_done = Arc::new(Slot::default());
        let done = task_done.clone();
        reactor.spawn(Box::pin(async move {
            for _ in 0..ROUNDS {
                there.put();
                back.take().await;
            }
            done.put();
        }));
        reactor.block_on(task_done.take());
        thread.join().unwrap();
        reactor.shutdown();
    }
}

#[test]
fn a_stopper_ends_a_park() {
    let reactor = reactor();
    let stopper = reactor.stopper();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        stopper.stop();
    });
    reactor.run();
    thread.join().unwrap();
}

#[test]
fn other_descriptors_are_waited_for_along() {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    let (mut pen, mut page) = std::os::unix::net::UnixStream::pair().unwrap();
    page.set_nonblocking(true).unwrap();
    let reactor = reactor();
    // What was there before it was waited for counts, too.
    pen.write_all(b"a").unwrap();
    let along = reactor.along(page.as_fd()).unwrap();
    along.begin().unwrap();
    let mut read = || {
        reactor.block_on(poll_fn(|cx| along.poll_readable(cx)));
        let mut bytes = [0; 8];
        let n = page.read(&mut bytes).unwrap();
        assert_eq!(
            page.read(&mut bytes).unwrap_err().kind(),
            std::io::ErrorKind::WouldBlock
        );
        bytes[..n].to_vec()
    };
    assert_eq!(read(), b"a");
    pen.write_all(b"bc").unwrap();
    assert_eq!(read(), b"bc");
    let mut other = pen.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        other.write_all(b"d").unwrap();
    });
    assert_eq!(read(), b"d");
    writer.join().unwrap();
    along.end();
    // Not any more, and another can be.
    pen.write_all(b"e").unwrap();
    reactor.turn(Some(Duration::from_millis(1)));
    let again = reactor.along(page.as_fd()).unwrap();
    again.begin().unwrap();
    reactor.block_on(poll_fn(|cx| again.poll_readable(cx)));
    drop(again);
    along.begin().unwrap();
    drop(along);
    reactor.shutdown();
}

#[test]
fn idle_processes_use_no_time() {
    let server = Server::start("127.0.0.1:0", Options::default());
    let client = Client::new(&server.address.to_string(), Options::default());
    // Busy first, so that spinning is on when the silence begins.
    for _ in 0..2000 {
        client.call(b"x").unwrap();
    }
    std::thread::sleep(Duration::from_millis(300)); // the last sweeps
    let before = thread_cpu();
    client
        .reactor
        .block_on(client.reactor.sleep(Duration::from_secs(1)));
    let used = thread_cpu() - before;
    assert!(used < Duration::from_millis(10), "idle client used {used:?}");

    // Its start and the handshake are not idleness: asked before and after.
    let quiet = Server::start("127.0.0.1:0", Options::default());
    let other = Client::new(&quiet.address.to_string(), Options::default());
    let cpu = || {
        let reply = other.call(b"CPU").unwrap();
        Duration::from_nanos(u64::from_le_bytes(reply.try_into().unwrap()))
    };
    let before = cpu();
    std::thread::sleep(Duration::from_secs(1));
    let used = cpu() - before;
    assert!(used < Duration::from_millis(10), "idle server used {used:?}");
}

#[test]
#[should_panic(expected = "entered from one of its own tasks")]
fn entering_twice_is_refused() {
    let reactor = reactor();
    let inner = reactor.clone();
    reactor.block_on(async move { inner.block_on(async {}) });
}
