//! A single-threaded executor. The caller decides which ready task runs next, so the simulator can explore
//! orders and a crash can drop all tasks of one process.

use crate::LocalFuture;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

/// Groups the tasks of one (simulated) process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TaskOwner(pub u64);

/// What a poll needs. Out of its place while the task runs.
type Runnable = (LocalFuture<()>, Waker);

struct Task {
    owner: TaskOwner,
    /// Counts spawns: tasks of one owner die in the order they were born.
    born: u64,
    state: Arc<TaskWaker>,
    runnable: Option<Runnable>,
}

/// A place for a task. Its generation rises when the task ends, so that a late wake-up finds nobody.
#[derive(Default)]
struct Place {
    generation: u32,
    task: Option<Task>,
}

/// Names a task for ever: generation and place.
#[derive(Clone, Copy)]
struct TaskId {
    generation: u32,
    place: u32,
}

#[derive(Default)]
struct Tasks {
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Tasks {
    fn vacant(&mut self) -> TaskId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            (self.places.len() - 1) as u32
        });
        TaskId {
            generation: self.places[place as usize].generation,
            place,
        }
    }

    fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.places
            .get_mut(id.place as usize)
            .filter(|p| p.generation == id.generation)?
            .task
            .as_mut()
    }

    fn remove(&mut self, id: TaskId) -> Option<Task> {
        let place = self
            .places
            .get_mut(id.place as usize)
            .filter(|p| p.generation == id.generation)?;
        let task = place.task.take()?;
        // A place whose generations are used up stays empty.
        if let Some(next) = place.generation.checked_add(1) {
            place.generation = next;
            self.free.push(id.place);
        }
        Some(task)
    }
}

struct Ready {
    queue: Mutex<VecDeque<TaskId>>,
    /// Called at every wake-up, after the task stands in the queue.
    notify: Box<dyn Fn() + Send + Sync>,
}

impl Ready {
    fn queue(&self) -> MutexGuard<'_, VecDeque<TaskId>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TaskWaker {
    id: TaskId,
    /// Stands in the queue. Cleared before a poll, so a wake-up during the poll leads to another one.
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl TaskWaker {
    fn push(&self) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.queue().push_back(self.id);
        }
        (self.ready.notify)();
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.push();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.push();
    }
}

/// The executor.
pub struct Executor {
    tasks: RefCell<Tasks>,
    ready: Arc<Ready>,
    born: Cell<u64>,
}

impl Executor {
    /// An empty executor. `notify` runs at every wake-up, on the waking thread (it ends a park of the event
    /// loop).
    pub fn new(notify: impl Fn() + Send + Sync + 'static) -> Executor {
        Executor {
            tasks: RefCell::default(),
            ready: Arc::new(Ready {
                queue: Mutex::default(),
                notify: Box::new(notify),
            }),
            born: Cell::new(0),
        }
    }

    /// Adds a task.
    pub fn spawn(&self, owner: TaskOwner, future: LocalFuture<()>) {
        let born = self.born.get();
        self.born.set(born + 1);
        let mut tasks = self.tasks.borrow_mut();
        let id = tasks.vacant();
        let state = Arc::new(TaskWaker {
            id,
            queued: AtomicBool::new(false),
            ready: self.ready.clone(),
        });
        let runnable = Some((future, Waker::from(state.clone())));
        tasks.places[id.place as usize].task = Some(Task {
            owner,
            born,
            state: state.clone(),
            runnable,
        });
        drop(tasks);
        state.push();
    }

    /// Number of tasks that can run now.
    pub fn ready(&self) -> usize {
        self.ready.queue().len()
    }

    /// Runs one ready task, the one `pick(number of ready tasks)` chooses. False if none was ready.
    pub fn run_one(&self, pick: impl FnOnce(usize) -> usize) -> bool {
        let id = {
            let mut q = self.ready.queue();
            if q.is_empty() {
                return false;
            }
            let i = pick(q.len()) % q.len();
            q.remove(i)
        };
        let Some(id) = id else { return false };
        let taken = self.tasks.borrow_mut().get_mut(id).and_then(|t| {
            // A swap, not a store: it sees all that whoever set the flag did before.
            t.state.queued.swap(false, Ordering::AcqRel);
            t.runnable.take()
        });
        let Some((mut future, waker)) = taken else {
            return true;
        };
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        // The task may have been killed while it ran. Dropped outside the borrow: a drop may wake or spawn
        // others.
        let mut tasks = self.tasks.borrow_mut();
        if done {
            let task = tasks.remove(id);
            drop(tasks);
            drop(task);
        } else if let Some(t) = tasks.get_mut(id) {
            t.runnable = Some((future, waker));
        } else {
            drop(tasks);
        }
        true
    }

    /// Runs ready tasks in order until none is ready.
    pub fn run_until_idle(&self) {
        while self.run_one(|_| 0) {}
    }

    /// Drops all tasks of one owner.
    pub fn kill(&self, owner: TaskOwner) {
        let mut dead: Vec<(u64, TaskId)> = {
            let tasks = self.tasks.borrow();
            let of = tasks
                .places
                .iter()
                .filter_map(|p| p.task.as_ref())
                .filter(|t| t.owner == owner);
            of.map(|t| (t.born, t.state.id)).collect()
        };
        dead.sort_unstable_by_key(|(born, _)| *born);
        for (_, id) in dead {
            // Dropped outside the borrow: a task's drop may wake or spawn others.
            let task = self.tasks.borrow_mut().remove(id);
            drop(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Poll;

    fn executor() -> Rc<Executor> {
        Rc::new(Executor::new(|| {}))
    }

    #[test]
    fn a_wake_during_the_poll_leads_to_another() {
        let e = executor();
        let left = Rc::new(Cell::new(3));
        let l = left.clone();
        e.spawn(
            TaskOwner(0),
            Box::pin(poll_fn(move |cx| {
                cx.waker().wake_by_ref();
                cx.waker().wake_by_ref();
                l.set(l.get() - 1);
                if l.get() == 0 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })),
        );
        assert_eq!(e.ready(), 1);
        e.run_until_idle();
        assert_eq!((left.get(), e.ready()), (0, 0));
    }

    #[test]
    fn the_dead_do_not_wake_their_successors() {
        let e = executor();
        let kept = Rc::new(RefCell::new(None));
        let k = kept.clone();
        e.spawn(
            TaskOwner(1),
            Box::pin(poll_fn(move |cx| {
                *k.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            })),
        );
        e.run_until_idle();
        e.kill(TaskOwner(1));
        let polls = Rc::new(Cell::new(0));
        let p = polls.clone();
        e.spawn(
            TaskOwner(1),
            Box::pin(poll_fn(move |_| {
                p.set(p.get() + 1);
                Poll::Pending
            })),
        );
        e.run_until_idle();
        if let Some(waker) = kept.take() {
            waker.wake();
        }
        e.run_until_idle();
        assert_eq!(polls.get(), 1);
    }

    #[test]
    fn tasks_may_kill_and_spawn_while_they_run() {
        let e = executor();
        let ran = Rc::new(Cell::new(0));
        let (inner, r) = (e.clone(), ran.clone());
        e.spawn(
            TaskOwner(2),
            Box::pin(poll_fn(move |_| {
                inner.kill(TaskOwner(2));
                let r = r.clone();
                inner.spawn(TaskOwner(3), Box::pin(async move { r.set(r.get() + 1) }));
                Poll::Pending
            })),
        );
        e.run_until_idle();
        assert_eq!(ran.get(), 1);
        e.kill(TaskOwner(3));
    }
}
