//! Many requests in flight on one thread, and not too many: a bounded crew of tasks, and counters that tell
//! when a whole directory's work is done.

use pando_env::sync::{Sender, oneshot};
use pando_env::{LocalFuture, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Runs jobs, at most so many at once. Jobs that wait are taken last in, first out: a tree is walked depth
/// first, and what waits stays about as much as one path of it.
pub struct Crew {
    world: World,
    limit: usize,
    running: Cell<usize>,
    /// Jobs that wait for room; they do not count as running, or all could wait for each other.
    roomless: Cell<usize>,
    waiting: RefCell<Vec<LocalFuture<()>>>,
    listeners: RefCell<Vec<Sender<()>>>,
}

impl Crew {
    /// Nobody works yet.
    pub fn new(world: World, limit: usize) -> Rc<Crew> {
        Rc::new(Crew {
            world,
            limit: limit.max(1),
            running: Cell::new(0),
            roomless: Cell::new(0),
            waiting: RefCell::default(),
            listeners: RefCell::default(),
        })
    }

    /// Adds a job.
    pub fn add(self: &Rc<Self>, job: impl Future<Output = ()> + 'static) {
        self.waiting.borrow_mut().push(Box::pin(job));
        self.refill();
    }

    fn refill(self: &Rc<Self>) {
        while self.running.get() < self.limit {
            let Some(job) = self.waiting.borrow_mut().pop() else {
                break;
            };
            self.running.set(self.running.get() + 1);
            let me = self.clone();
            self.world.spawn(Box::pin(async move {
                job.await;
                me.running.set(me.running.get() - 1);
                me.refill();
            }));
        }
        if self.has_room() || self.idle() {
            let listeners = self.listeners.take();
            drop(listeners);
        }
    }

    fn has_room(&self) -> bool {
        self.waiting.borrow().len() < self.limit * 4
    }

    fn idle(&self) -> bool {
        self.running.get() == 0 && self.roomless.get() == 0 && self.waiting.borrow().is_empty()
    }

    async fn news(&self) {
        let (sender, receiver) = oneshot();
        self.listeners.borrow_mut().push(sender);
        receiver.await;
    }

    /// For a job that adds many: waits until few wait.
    pub async fn room(self: &Rc<Self>) {
        if self.has_room() {
            return;
        }
        self.running.set(self.running.get() - 1);
        self.roomless.set(self.roomless.get() + 1);
        self.refill();
        while !self.has_room() {
            self.news().await;
        }
        self.roomless.set(self.roomless.get() - 1);
        self.running.set(self.running.get() + 1);
    }

    /// Waits until all is done, what the jobs added included.
    pub async fn finished(&self) {
        while !self.idle() {
            self.news().await;
        }
    }
}

/// Counts the parts of one piece of work; when all are done, its last step runs, and then it is a done part
/// of its parent.
pub struct Join {
    crew: Rc<Crew>,
    parent: Option<Rc<Join>>,
    left: Cell<usize>,
    failed: Cell<bool>,
    #[allow(clippy::type_complexity)]
    last: RefCell<Option<Box<dyn FnOnce(bool) -> LocalFuture<bool>>>>,
}

impl Join {
    /// A work of one part so far. `last` is told whether all parts succeeded, and says whether the whole did.
    pub fn new(
        crew: &Rc<Crew>,
        parent: Option<Rc<Join>>,
        last: impl FnOnce(bool) -> LocalFuture<bool> + 'static,
    ) -> Rc<Join> {
        if let Some(parent) = &parent {
            parent.more();
        }
        Rc::new(Join {
            crew: crew.clone(),
            parent,
            left: Cell::new(1),
            failed: Cell::new(false),
            last: RefCell::new(Some(Box::new(last))),
        })
    }

    /// One more part.
    pub fn more(&self) {
        self.left.set(self.left.get() + 1);
    }

    /// A part is done.
    pub fn done(self: &Rc<Self>, ok: bool) {
        if !ok {
            self.failed.set(true);
        }
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0
            && let Some(last) = self.last.take()
        {
            let me = self.clone();
            self.crew.add(async move {
                let ok = last(!me.failed.get()).await;
                if let Some(parent) = &me.parent {
                    parent.done(ok);
                }
            });
        }
    }
}
