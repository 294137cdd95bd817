//! An S3 server for tests, on a thread of the test's process: buckets are directories of a folder. It is a
//! package of its own, so that only those tests build it that talk to it.

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder as Connections;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The key that is let in.
pub const KEY: &str = "test-key";
/// Its secret.
pub const SECRET: &str = "test-secret";

/// An address of this machine that is given once. A port that is given back there can be had again, and until
/// then nobody listens.
pub fn address_of_its_own() -> SocketAddr {
    static GIVEN: AtomicU8 = AtomicU8::new(0);
    let n = GIVEN.fetch_add(1, Ordering::Relaxed) % 128;
    let process = std::process::id();
    SocketAddr::from(([127, 64 + n, (process >> 8) as u8, (process as u8).max(1)], 0))
}

/// A running server. It ends when it is dropped.
pub struct TestServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    /// Serves the buckets in `root` on a port of its own.
    ///
    /// # Panics
    /// If that cannot be.
    pub fn start(root: &Path) -> TestServer {
        TestServer::start_at(root, address_of_its_own())
    }

    /// The same at a given address.
    ///
    /// # Panics
    /// If that cannot be.
    pub fn start_at(root: &Path, address: SocketAddr) -> TestServer {
        let listener = std::net::TcpListener::bind(address).expect("a port");
        listener.set_nonblocking(true).expect("a socket option");
        let address = listener.local_addr().expect("an address");
        let files = s3s_fs::FileSystem::new(root).expect("a folder for buckets");
        let (stop, mut stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let mut service = S3ServiceBuilder::new(files);
                service.set_auth(SimpleAuth::from_single(KEY, SECRET));
                let service = service.build();
                let http = Connections::new(TokioExecutor::new());
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                loop {
                    let accepted =
                        futures_util::future::select(Box::pin(listener.accept()), &mut stopped).await;
                    let futures_util::future::Either::Left((accepted, _)) = accepted else {
                        return;
                    };
                    let Ok((socket, _)) = accepted else { continue };
                    let connection = http
                        .serve_connection(TokioIo::new(socket), service.clone())
                        .into_owned();
                    tokio::spawn(connection);
                }
            });
        });
        TestServer {
            address,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The environment in which programs find it.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address)),
            ("AWS_ACCESS_KEY_ID", KEY.into()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.into()),
            ("AWS_REGION", "us-east-1".into()),
        ]
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
