//! How the threads of a mount reach the cluster.

use pando_client::file::Ops;
use pando_client::locks::{Locker, Signs};
use pando_client::{Contents, Keeping};
use pando_data::Blocks;
use pando_env::{LocalFuture, World};
use pando_net::Along;
use pando_types::{Errno, Mono, Users};
use pando_wire::{EntryView, FsStat, LockPlace};
use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One thread's client. Its futures are driven inline: no other thread has to wake for a request.
pub trait Driver: 'static {
    /// What runs operations.
    type Ops: Ops;
    /// What runs operations.
    fn ops(&self) -> &Self::Ops;
    /// Where the bytes of large files are.
    fn blocks(&self) -> &dyn Blocks;
    /// The clock that [`Contents`] go by.
    fn now(&self) -> Mono;
    /// Drives a future to its end on this thread. A call that has a stack of its own gives the thread to
    /// others meanwhile.
    fn run<F: Future>(&self, future: F) -> F::Output;
    /// The root directory's entry, as a handle.
    fn root(&self) -> Result<EntryView, Errno>;
    /// Space of all servers.
    fn statfs(&self) -> Result<FsStat, Errno>;
    /// What locks files; none if this cluster has no locks.
    fn locker(&self, _signs: Signs, _on_lost: impl Fn(LockPlace) + 'static) -> Option<Rc<Locker>> {
        None
    }
    /// Time and tasks of this thread.
    fn world(&self) -> World;
    /// For waiting for `fd` along with everything else.
    fn along(&self, fd: BorrowedFd<'_>) -> io::Result<Along>;
    /// Whether another thread can run beside this one.
    fn has_spare_core(&self) -> bool;
    /// Runs a task beside the future that is driven.
    fn spawn(&self, task: LocalFuture<()>);
    /// A sign of life for this driver's session.
    fn keep_alive(&self) {}
    /// Gives signs of life for it so often beside whatever is driven.
    fn stay_alive(&self, _every: Duration) {}
    /// A sign of life for the session of open files.
    fn keep_open(&self) {}
    /// Tells the servers what was closed.
    fn tell_closed(&self) {}
    /// Ends the session of open files in an orderly way.
    fn close_keeping(&self) {}
    /// Ends this driver's session in an orderly way.
    fn close(&self) {}
}

/// A filesystem that can be mounted.
pub trait Cluster: Send + Sync + 'static {
    /// What a thread uses.
    type Driver: Driver;
    /// A driver for the calling thread.
    fn connect(&self) -> Result<Self::Driver, String>;
    /// The users whom its drivers may act for.
    fn users(&self) -> Users {
        Users::Any
    }
    /// The filesystem's name, shown as the source of the mount.
    fn name(&self) -> String;
    /// What its drivers keep open together.
    fn keeping(&self) -> Option<Keeping> {
        None
    }
    /// What its drivers know of the contents of directories together.
    fn contents(&self) -> Option<Contents> {
        None
    }
    /// How often a session that holds something must give a sign of life.
    fn keep_alive_every(&self) -> Duration {
        Duration::from_secs(15)
    }
}

/// Names one mount within the process, for the threads' drivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MountId(u64);

impl MountId {
    pub fn new() -> MountId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        MountId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

thread_local! {
    static DRIVER: RefCell<Option<(MountId, Rc<dyn Any>)>> = const { RefCell::new(None) };
}

/// This thread's driver for a mount, which is made at first use.
pub(crate) fn of<C: Cluster>(mount: MountId, cluster: &C) -> Result<Rc<C::Driver>, Errno> {
    let known = DRIVER.with_borrow(|d| d.as_ref().filter(|(m, _)| *m == mount).map(|(_, d)| d.clone()));
    if let Some(driver) = known.and_then(|d| d.downcast::<C::Driver>().ok()) {
        return Ok(driver);
    }
    let driver = Rc::new(cluster.connect().map_err(|why| {
        tracing::error!(why, "this thread of the mount cannot reach the cluster");
        Errno::Io
    })?);
    DRIVER.set(Some((mount, driver.clone())));
    Ok(driver)
}
