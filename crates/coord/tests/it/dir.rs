//! Coordination in a folder.

use crate::common::{block_on, fs, make, map};
use pando_cluster::conformance::{self, Harness};
use pando_cluster::{ClusterMap, Coord, CoordError};
use pando_coord::DirCoord;
use pando_env::LocalFuture;
use pando_types::{FsId, ServerId};
use std::rc::Rc;
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_millis(300);

struct Dir {
    folder: tempfile::TempDir,
    began: Instant,
}

impl Dir {
    fn new() -> Dir {
        let folder = tempfile::tempdir().expect("folder");
        make(folder.path(), "dir");
        Dir {
            folder,
            began: Instant::now(),
        }
    }

    fn open(&self) -> DirCoord {
        DirCoord::with_lease(self.folder.path(), fs(), LEASE).expect("thread")
    }

    fn refusal(&self) -> String {
        match block_on(self.open().attend(ServerId(0))) {
            Ok(view) => panic!("{view:?}"),
            Err(e) => e.to_string(),
        }
    }
}

impl Harness for Dir {
    fn map(&self) -> ClusterMap {
        map(self.folder.path())
    }
    fn process(&mut self) -> Rc<dyn Coord> {
        Rc::new(self.open())
    }
    fn silence(&mut self, _process: &Rc<dyn Coord>) {
        // It lives and says nothing: the suite does not call it any more.
    }
    fn recover(&mut self, _process: &Rc<dyn Coord>) {}
    fn patience(&self) -> Duration {
        LEASE * 4
    }
    fn restart(&mut self) -> bool {
        false
    }
    fn now(&self) -> Duration {
        self.began.elapsed()
    }
    fn pass(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
    fn block_on<T>(&mut self, future: LocalFuture<T>) -> T {
        block_on(future)
    }
}

#[test]
fn conformance() {
    conformance::run(Dir::new);
}

#[test]
fn who_dies_is_gone_at_once_and_its_place_is_its_own_until_then() {
    let dir = Dir::new();
    let (a, b) = (dir.open(), dir.open());
    let first = block_on(a.attend(ServerId(0))).expect("a member");
    let refused = block_on(b.attend(ServerId(0)));
    assert!(matches!(refused, Err(CoordError::Away(why)) if why.contains("another process")));
    // Its files are closed with it, as the kernel does with a process.
    drop(a);
    let deadline = Instant::now() + LEASE / 2;
    while !block_on(b.view()).expect("a view").members.is_empty() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    let second = block_on(b.attend(ServerId(0))).expect("a member");
    assert!(second.members[&ServerId(0)] > first.members[&ServerId(0)]);
}

#[test]
fn a_mark_of_an_earlier_boot_is_nobodys() {
    let dir = Dir::new();
    let path = dir.folder.path().join("run/member-1");
    std::fs::write(&path, format!("membership 7 until {} boot other\n", u64::MAX)).expect("file");
    let held = std::fs::File::open(&path).expect("file");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockShared).expect("lock");
    assert!(block_on(dir.open().view()).expect("a view").members.is_empty());
}

#[test]
fn what_is_damaged_is_said() {
    let dir = Dir::new();
    let (run, file) = (
        dir.folder.path().join("run"),
        dir.folder.path().join("cluster.json"),
    );
    std::fs::write(run.join("coord.lock"), "?").expect("file");
    assert!(dir.refusal().contains("coord.lock is damaged; stop all servers"));
    std::fs::remove_file(run.join("coord.lock")).expect("file");
    std::fs::write(run.join("member-2"), "?").expect("file");
    assert!(dir.refusal().contains("member-2 is damaged; stop that server"));
    std::fs::remove_file(run.join("member-2")).expect("file");
    std::fs::write(&file, "{").expect("file");
    assert!(dir.refusal().contains("restore it from a copy"));
    std::fs::remove_file(&file).expect("file");
    assert!(dir.refusal().contains("restore it from a copy"));
    make(dir.folder.path(), "dir");
    let other = DirCoord::open(dir.folder.path(), FsId(1)).expect("thread");
    assert_eq!(block_on(other.view()), Err(CoordError::Foreign(fs())));
}
