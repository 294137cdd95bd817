//! Calls of the kernel that are served beside each other on one thread, each on a stack of its own.
//!
//! A call is served by plain code, which waits by [`Driver::run`](crate::driver::Driver::run). On a stack of
//! its own that gives the thread to others until what it waits for is there. So one thread serves many calls:
//! the requests that they send go out together, as do their answers, and no thread has to wake for each.
//!
//! REQUIRES, of what runs here: while it waits it holds no lock that others wait for otherwise than by
//! [`locked`].

use crate::calls::Current;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// Bytes of a stack, of which those are in memory that were ever used: unoptimized code uses most.
const STACK: usize = 1 << 20;
/// Stacks kept for the next calls.
const SPARE: usize = 32;

type Fiber = Coroutine<Waker, (), (), DefaultStack>;

/// What the call that runs on this thread needs in order to wait.
struct Running {
    yielder: NonNull<Yielder<Waker, ()>>,
    waker: Waker,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// Whether this is such a call.
pub(crate) fn is_running() -> bool {
    RUNNING.with_borrow(Option::is_some)
}

/// Waits for a future; others run meanwhile. REQUIRES: [`is_running`].
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        let waker = RUNNING.with_borrow(|r| r.as_ref().map(|r| r.waker.clone()));
        let waker = waker.expect("only calls with a stack of their own wait so");
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        suspend();
    }
}

/// Gives the thread to others until this call's waker is used.
#[allow(unsafe_code)]
fn suspend() {
    let running = RUNNING
        .take()
        .expect("only calls with a stack of their own are suspended");
    let call = Current::take();
    // SAFETY: it was made from a reference that is valid for as long as the body of this coroutine runs,
    // which is what is running: whoever resumes another takes this one's pointer away before, here.
    let waker = unsafe { running.yielder.as_ref() }.suspend(());
    call.put_back();
    RUNNING.set(Some(Running { waker, ..running }));
}

/// A lock that is held while its holder waits, waited for: `blocking` where calls block their threads.
pub(crate) fn locked<F: Future>(lock: F, blocking: impl FnOnce() -> F::Output) -> F::Output {
    if is_running() { wait(lock) } else { blocking() }
}

/// The calls that a thread serves beside each other. Dropped, they are, too, wherever they are.
#[derive(Default)]
pub(crate) struct Fibers {
    /// Those that wait.
    waiting: RefCell<BTreeMap<u64, Fiber>>,
    begun: Cell<u64>,
    running: Cell<usize>,
    stacks: RefCell<Vec<DefaultStack>>,
    /// Who wants to know when one has ended.
    watcher: RefCell<Option<Waker>>,
    /// What one has panicked with.
    panic: RefCell<Option<Box<dyn Any + Send>>>,
}

impl Fibers {
    /// How many have not ended.
    pub fn len(&self) -> usize {
        self.running.get()
    }

    /// Whether all have ended; wakes who polls this when one has.
    pub fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.len() == 0 {
            return Poll::Ready(());
        }
        *self.watcher.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Begins a call. What is returned serves it, as a task of this thread.
    pub fn begin(
        self: &Rc<Self>,
        call: impl FnOnce() + 'static,
    ) -> std::io::Result<impl Future<Output = ()> + 'static> {
        let spare = self.stacks.borrow_mut().pop();
        let stack = match spare {
            Some(stack) => stack,
            None => DefaultStack::new(STACK)?,
        };
        let fiber = Coroutine::with_stack(stack, move |yielder: &Yielder<Waker, ()>, waker| {
            RUNNING.set(Some(Running {
                yielder: NonNull::from(yielder),
                waker,
            }));
            call();
            RUNNING.set(None);
        });
        let number = self.begun.get();
        self.begun.set(number + 1);
        self.running.set(self.running.get() + 1);
        self.waiting.borrow_mut().insert(number, fiber);
        let fibers = Rc::downgrade(self);
        Ok(std::future::poll_fn(move |cx| resume(&fibers, number, cx)))
    }

    /// If one has panicked, so does this. The others are not to suffer for it: REQUIRES that none is left.
    pub fn panic(&self) {
        if let Some(panic) = self.panic.take() {
            resume_unwind(panic);
        }
    }

    fn ended(&self) {
        self.running.set(self.running.get() - 1);
        if let Some(watcher) = self.watcher.take() {
            watcher.wake();
        }
    }

    fn keep(&self, stack: DefaultStack) {
        let mut stacks = self.stacks.borrow_mut();
        if stacks.len() < SPARE {
            stacks.push(stack);
        }
    }
}

fn resume(fibers: &Weak<Fibers>, number: u64, cx: &mut Context<'_>) -> Poll<()> {
    let Some(fibers) = fibers.upgrade() else {
        return Poll::Ready(());
    };
    let fiber = fibers.waiting.borrow_mut().remove(&number);
    let Some(mut fiber) = fiber else {
        return Poll::Ready(());
    };
    match catch_unwind(AssertUnwindSafe(|| fiber.resume(cx.waker().clone()))) {
        Ok(CoroutineResult::Yield(())) => {
            fibers.waiting.borrow_mut().insert(number, fiber);
            return Poll::Pending;
        }
        Ok(CoroutineResult::Return(())) => fibers.keep(fiber.into_stack()),
        Err(panic) => {
            RUNNING.set(None);
            *fibers.panic.borrow_mut() = Some(panic);
        }
    }
    fibers.ended();
    Poll::Ready(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_auth::Introduction;
    use pando_net::{Options, Reactor};
    use pando_types::FsId;
    use pando_wire::{Role, Way};
    use std::sync::Arc;
    use std::time::Duration;

    fn reactor() -> Rc<Reactor> {
        let introduction = Introduction {
            fs: FsId(1),
            role: Role::Client(Way::Nobody),
            key: None,
        };
        Reactor::new(Options::default(), introduction).unwrap()
    }

    #[test]
    fn they_wait_beside_each_other() {
        let reactor = reactor();
        let fibers = Rc::<Fibers>::default();
        let seen = Rc::new(RefCell::new(Vec::new()));
        for n in 0..3u64 {
            let (seen, world) = (seen.clone(), reactor.clone());
            let call = move || {
                seen.borrow_mut().push((n, "begins"));
                wait(pando_env::Env::sleep(&*world, Duration::from_millis(30 - 10 * n)));
                seen.borrow_mut().push((n, "ends"));
            };
            let task = fibers.begin(call).unwrap();
            pando_env::Env::spawn(&*reactor, Box::pin(task));
        }
        assert_eq!(fibers.len(), 3);
        reactor.block_on(all_end(&fibers));
        let seen = seen.take();
        assert_eq!(seen[..3], [(0, "begins"), (1, "begins"), (2, "begins")]);
        assert_eq!(seen[3..], [(2, "ends"), (1, "ends"), (0, "ends")]);
        assert_eq!(fibers.stacks.borrow().len(), 3);
        assert!(!is_running());
    }

    async fn all_end(fibers: &Fibers) {
        std::future::poll_fn(|cx| fibers.poll_end(cx)).await
    }

    #[test]
    fn what_one_has_locked_the_next_waits_for() {
        let reactor = reactor();
        let fibers = Rc::<Fibers>::default();
        let lock = Arc::new(async_lock::Mutex::new(Vec::new()));
        for n in 0..4 {
            let (lock, world) = (lock.clone(), reactor.clone());
            let call = move || {
                let mut guard = locked(lock.lock(), || unreachable!());
                guard.push(n);
                wait(pando_env::Env::sleep(&*world, Duration::from_millis(2)));
                guard.push(n);
            };
            let task = fibers.begin(call).unwrap();
            pando_env::Env::spawn(&*reactor, Box::pin(task));
        }
        // A thread of its own waits for it otherwise.
        let other = lock.clone();
        let thread = std::thread::spawn(move || locked(other.lock(), || other.lock_blocking()).push(9));
        reactor.block_on(all_end(&fibers));
        thread.join().unwrap();
        let mut seen = lock.lock_blocking().clone();
        seen.retain(|n| *n != 9);
        assert!(seen.chunks(2).all(|two| two[0] == two[1]), "{seen:?}");
        assert_eq!(seen.len(), 8);
    }

    /// Says when it is dropped.
    struct Noted(Rc<Cell<u32>>);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn one_that_panics_leaves_the_others_and_those_that_wait_can_be_dropped() {
        let reactor = reactor();
        let fibers = Rc::<Fibers>::default();
        let dropped = Rc::<Cell<u32>>::default();
        for what in ["waits for ever", "panics", "waits"] {
            let (noted, world) = (Noted(dropped.clone()), reactor.clone());
            let call = move || {
                let _noted = noted;
                match what {
                    "panics" => panic!("as a bug would"),
                    "waits" => wait(pando_env::Env::sleep(&*world, Duration::from_millis(5))),
                    _ => wait(std::future::pending()),
                }
            };
            let task = fibers.begin(call).unwrap();
            pando_env::Env::spawn(&*reactor, Box::pin(task));
        }
        // A panic takes its time to be told.
        for _ in 0..1000 {
            reactor.block_on(pando_env::Env::sleep(&*reactor, Duration::from_millis(10)));
            if dropped.get() == 2 {
                break;
            }
        }
        assert_eq!((fibers.len(), dropped.get()), (1, 2));
        assert!(!is_running());
        assert!(catch_unwind(AssertUnwindSafe(|| fibers.panic())).is_err());
        fibers.panic(); // told once
        drop(fibers);
        assert_eq!(dropped.get(), 3);
    }
}
