//! ZooKeeper of Debian on the loopback address, and a way to it that can be cut.

#![allow(dead_code)] // each test uses its part

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Where Debian has it.
const PROGRAM: &str = "/usr/share/zookeeper/bin/zkServer.sh";
/// How long it may take to serve.
const PATIENCE: Duration = Duration::from_secs(60);
/// Its unit of time. Sessions are of 2 to 20 of them.
pub const TICK: Duration = Duration::from_millis(250);

/// A loopback address that nobody else has: a port of 127.0.0.1 may be taken while its server is down.
fn own_address() -> Ipv4Addr {
    static MADE: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 100 + high % 100, low, MADE.fetch_add(1, Ordering::SeqCst))
}

/// An ensemble of one or more.
pub struct Zoo {
    folder: tempfile::TempDir,
    servers: Vec<Server>,
}

struct Server {
    address: SocketAddr,
    home: PathBuf,
    child: Option<Child>,
}

impl Zoo {
    /// Starts one that serves when this returns.
    pub fn start(count: usize) -> Zoo {
        assert!(
            Path::new(PROGRAM).exists(),
            "ZooKeeper is not installed: scripts/setup.sh --test does it"
        );
        let folder = tempfile::tempdir().expect("folder");
        let hosts: Vec<Ipv4Addr> = (0..count).map(|_| own_address()).collect();
        let members: Vec<String> = (1..)
            .zip(&hosts)
            .map(|(n, host)| format!("server.{n}={host}:2888:3888\n"))
            .collect();
        let mut zoo = Zoo {
            servers: Vec::new(),
            folder,
        };
        for (n, host) in hosts.iter().enumerate() {
            let home = zoo.folder.path().join(format!("zk-{n}"));
            std::fs::create_dir_all(home.join("data")).expect("folder");
            std::fs::write(home.join("data/myid"), format!("{}\n", n + 1)).expect("myid");
            let members = if count == 1 {
                String::new()
            } else {
                members.concat()
            };
            let config = format!(
                "tickTime={}\ninitLimit=20\nsyncLimit=8\nmaxClientCnxns=0\nadmin.enableServer=false\n\
                 clientPortAddress={host}\nclientPort=2181\ndataDir={}\n{members}",
                TICK.as_millis(),
                home.join("data").display()
            );
            std::fs::write(home.join("zoo.cfg"), config).expect("zoo.cfg");
            zoo.servers.push(Server {
                address: (*host, 2181).into(),
                home,
                child: None,
            });
        }
        (0..count).for_each(|n| zoo.launch(n));
        (0..count).for_each(|n| zoo.await_mode(n));
        zoo
    }

    /// How it is addressed.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.servers.iter().map(|s| s.address.to_string()).collect();
        format!("zk://{}", hosts.join(","))
    }

    /// Where the first one listens.
    pub fn address(&self) -> SocketAddr {
        self.servers[0].address
    }

    /// Starts one that does not run.
    pub fn launch(&mut self, n: usize) {
        let server = &mut self.servers[n];
        let log = std::fs::File::create(server.home.join("out")).expect("log");
        let child = Command::new(PROGRAM)
            .arg("start-foreground")
            .arg(server.home.join("zoo.cfg"))
            .env("JMXDISABLE", "true")
            .env("ZOO_LOG_DIR", &server.home)
            .env(
                "SERVER_JVMFLAGS",
                "-Xmx96m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            )
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .process_group(0)
            .spawn()
            .expect("ZooKeeper starts");
        server.child = Some(child);
    }

    /// Waits until one serves. (It answers `imok` before it does.)
    pub fn await_mode(&mut self, n: usize) {
        let server = &mut self.servers[n];
        let deadline = Instant::now() + PATIENCE;
        while !mode(server.address).is_some_and(|m| m.contains("Mode: ")) {
            let ended = server.child.as_mut().and_then(|c| c.try_wait().ok().flatten());
            let said = || std::fs::read_to_string(server.home.join("out")).unwrap_or_default();
            assert!(ended.is_none(), "ZooKeeper ended: {}", said());
            assert!(Instant::now() < deadline, "ZooKeeper does not serve: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// kill -9.
    pub fn kill(&mut self, n: usize) {
        if let Some(mut child) = self.servers[n].child.take() {
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
    }

    /// Whether one leads the ensemble.
    pub fn leads(&self, n: usize) -> bool {
        mode(self.servers[n].address).is_some_and(|m| m.contains("Mode: leader"))
    }
}

impl Drop for Zoo {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|n| self.kill(n));
    }
}

fn mode(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(b"srvr").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Passes on connections to an address, until it is cut.
pub struct Way {
    address: SocketAddr,
    cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    /// A way to `to`.
    pub fn to(to: SocketAddr) -> Way {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listener");
        let address = listener.local_addr().expect("address");
        let (cut, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (is_cut, all) = (cut.clone(), open.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // A connection that is not accepted by anybody: silence, as behind a cable that was pulled.
                let far = match TcpStream::connect(to) {
                    Ok(far) if !is_cut.load(Ordering::SeqCst) => far,
                    _ => continue,
                };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().expect("socket"), to.try_clone().expect("socket"));
                    let is_cut = is_cut.clone();
                    std::thread::spawn(move || pass_on(from, to, &is_cut));
                }
                all.lock().expect("lock").extend([near, far]);
            }
        });
        Way { address, cut, open }
    }

    /// How what is at its end is addressed.
    pub fn url(&self) -> String {
        format!("zk://{}", self.address)
    }

    /// From now on nothing passes, and nobody is told.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Things pass again, on new connections.
    pub fn mend(&self) {
        for stream in self.open.lock().expect("lock").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.mend();
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 4096];
    loop {
        match from.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(_) if is_cut.load(Ordering::SeqCst) => {}
            Ok(n) => {
                if to.write_all(&bytes[..n]).is_err() {
                    break;
                }
            }
        }
    }
    if !is_cut.load(Ordering::SeqCst) {
        let _ = to.shutdown(Shutdown::Both);
    }
}
