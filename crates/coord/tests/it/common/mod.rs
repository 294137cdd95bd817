//! A filesystem to coordinate, and a thread that waits.

#![allow(dead_code)] // each test uses its part

use pando_cluster::{ClusterFile, ClusterMap, Placement, PlanText, Profile, Server};
use pando_types::FsId;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// The `cluster.json` of three servers.
pub fn file(coord: &str) -> ClusterFile {
    let server = |id| Server {
        id,
        address: format!("127.0.0.1:{}", 7000 + id),
        metrics: format!("127.0.0.1:{}", 8000 + id),
    };
    ClusterFile {
        format: 1,
        fs: "000102030405060708090a0b0c0d0e0f".into(),
        epoch: 1,
        profile: Profile {
            name: "pando".into(),
            placement: Placement::Directory.word(),
            ids: pando_types::Ids::Predicted.word().into(),
            directory_updates: "two-phase-commit".into(),
            coherence: "lazy".into(),
            store: "rocksdb".into(),
        },
        durability: "sync".into(),
        servers: vec![server(0), server(1), server(2)],
        slots: vec![(0, 1000, 0), (1000, 2000, 1), (2000, 4096, 2)],
        coordinator: 0,
        keeper: Some(0),
        term: 1,
        inline_limit: 65_536,
        block_size: 1 << 22,
        blocks: "file:blocks".into(),
        name_bits: 55,
        id_bits: 128,
        auth: "none".into(),
        plan: PlanText::default(),
        coord: coord.into(),
    }
}

/// Its map.
pub fn map(dir: &Path) -> ClusterMap {
    file("dir").map(dir).expect("a good file")
}

/// Its name.
pub fn fs() -> FsId {
    map(Path::new("/")).fs
}

/// Makes its folder.
pub fn make(dir: &Path, coord: &str) {
    std::fs::create_dir_all(dir.join("run")).expect("folder");
    std::fs::write(dir.join("cluster.json"), file(coord).to_text()).expect("cluster.json");
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
