//! A bucket as block store, against an S3 server on a loopback address.

#![allow(clippy::unwrap_used)]

use pando_blocks::{S3Blocks, S3Settings};
use pando_data::conformance::{self, now};
use pando_data::{BlockError, Blocks, FileKey};
use pando_s3_test::{TestServer, address_of_its_own};
use pando_types::{FsId, Generation, Ino};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: FileKey = FileKey {
    ino: Ino(7),
    generation: Generation(1),
};
const BLOCK: u32 = 1 << 16;

struct Bucket {
    server: TestServer,
    root: tempfile::TempDir,
}

impl Bucket {
    fn new() -> Bucket {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("bucket")).unwrap();
        Bucket {
            server: TestServer::start(root.path()),
            root,
        }
    }

    fn settings(&self) -> S3Settings {
        let environment = self.server.environment();
        S3Settings {
            environment: environment.into_iter().map(|(n, v)| (n.to_owned(), v)).collect(),
            give_up: Duration::from_secs(20),
            tries: 2,
            fs: None,
        }
    }

    fn open(&self, place: &str) -> S3Blocks {
        S3Blocks::open_with(place, BLOCK, &self.settings()).unwrap()
    }

    /// A new store.
    fn make(&self, place: &str) -> S3Blocks {
        let s = self.open(place);
        now(s.create()).unwrap();
        s
    }

    /// The file in which the server keeps an object.
    fn object(&self, name: &str) -> PathBuf {
        fn find(dir: &Path, name: &str) -> Option<PathBuf> {
            let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
            let (dirs, files): (Vec<_>, Vec<_>) = entries.partition(|p| p.is_dir());
            files
                .into_iter()
                .find(|p| p.file_name().is_some_and(|n| n == name))
                .or_else(|| dirs.iter().find_map(|d| find(d, name)))
        }
        find(&self.root.path().join("bucket"), name).expect("the object")
    }
}

#[test]
fn conforms() {
    let bucket = Bucket::new();
    let n = Cell::new(0);
    conformance::run_steps(200, || {
        n.set(n.get() + 1);
        Box::new(bucket.make(&format!("s3://bucket/some/prefix{}", n.get())))
    });
}

#[test]
fn what_one_writes_another_reads() {
    let bucket = Bucket::new();
    let (a, b) = (bucket.make("s3://bucket"), bucket.open("s3://bucket/"));
    for round in 1..20_u8 {
        for block in 0..3 {
            now(a.write(FILE, block, 0, vec![round; BLOCK as usize])).unwrap();
        }
        now(a.write(FILE, 1, 5, vec![round + 1])).unwrap();
        for block in 0..3 {
            let read = now(b.read(FILE, block, 4, 3)).unwrap();
            let middle = if block == 1 { round + 1 } else { round };
            assert_eq!(read, [round, middle, round], "round {round}");
        }
    }
    now(a.truncate(FILE, 0, 6)).unwrap();
    now(a.remove(FILE, 2, 3)).unwrap();
    assert_eq!(now(b.read(FILE, 0, 0, 99)).unwrap().len(), 6);
    assert_eq!(now(b.read(FILE, 2, 0, 99)).unwrap(), b"");
}

#[test]
fn a_large_block_goes_in_parts() {
    let bucket = Bucket::new();
    let s = bucket.make("s3://bucket/large");
    let data: Vec<u8> = (0..20_000_000_u32).map(|n| (n % 251) as u8).collect();
    now(s.write(FILE, 0, 0, data.clone())).unwrap();
    let again = bucket.open("s3://bucket/large");
    assert!(now(again.read(FILE, 0, 0, u32::MAX)).unwrap() == data);
    assert_eq!(
        now(again.read(FILE, 0, 19_999_999, 5)).unwrap(),
        data[19_999_999..]
    );
}

#[test]
fn damage_is_found() {
    let bucket = Bucket::new();
    now(bucket.make("s3://bucket/d").write(FILE, 42, 0, vec![9; 1000])).unwrap();
    let path = bucket.object("42");
    let whole = std::fs::read(&path).unwrap();
    for at in [0, 999, 1000, whole.len() - 1] {
        let mut wrong = whole.clone();
        wrong[at] ^= 16;
        std::fs::write(&path, &wrong).unwrap();
        let s = bucket.open("s3://bucket/d");
        for result in [
            now(s.read(FILE, 42, 0, 1)).map(drop),
            now(s.write(FILE, 42, 1, vec![1])),
        ] {
            let Err(BlockError::Damaged(what)) = result else {
                panic!("byte {at} was not missed: {result:?}");
            };
            assert!(what.contains("/42 of s3://bucket/d"), "{what}");
        }
    }
    // Written whole it is well again.
    let s = bucket.open("s3://bucket/d");
    now(s.write(FILE, 42, 0, vec![1; BLOCK as usize])).unwrap();
    assert_eq!(now(s.read(FILE, 42, 0, 2)).unwrap(), [1, 1]);
}

#[test]
fn a_store_is_made_once_and_found() {
    let bucket = Bucket::new();
    let s = bucket.open("s3://bucket/made");
    assert!(
        matches!(now(s.check()), Err(BlockError::Missing(_))),
        "not made yet"
    );
    now(s.create()).unwrap();
    now(s.create()).expect("once more, as after a crash");
    now(s.check()).unwrap();
    now(s.write(FILE, 0, 0, vec![1])).unwrap();
    let Err(BlockError::Missing(why)) = now(s.create()) else {
        panic!("a second filesystem must not be made in the same place");
    };
    assert!(why.contains("not empty"), "{why}");
    for wrong in [
        "s3:///x",
        "s3://",
        "http://bucket/x",
        "s3://bucket/a//b",
        "s3://bucket/../x",
    ] {
        let result = S3Blocks::open_with(wrong, 0, &bucket.settings());
        assert!(matches!(result, Err(BlockError::Missing(_))), "{wrong}");
    }
}

#[test]
fn errors_say_what_to_do() {
    let bucket = Bucket::new();
    let with = |name: &str, value: &str, place: &str| {
        let mut settings = bucket.settings();
        settings.tries = 0;
        settings.environment.retain(|(n, _)| n != name);
        settings.environment.push((name.into(), value.into()));
        let s = S3Blocks::open_with(place, BLOCK, &settings).unwrap();
        let results = [
            ("check", now(s.check())),
            ("create", now(s.create())),
            ("read", now(s.read(FILE, 0, 0, 1)).map(drop)),
            ("write", now(s.write(FILE, 0, 0, vec![1; BLOCK as usize]))),
            ("remove", now(s.remove(FILE, 0, u64::MAX))),
        ];
        results.map(|(what, r)| r.expect_err(what))
    };
    for e in with("AWS_SECRET_ACCESS_KEY", "wrong", "s3://bucket/x") {
        assert!(matches!(e, BlockError::Denied(_)), "{e}");
        assert!(e.to_string().contains("check AWS_ACCESS_KEY_ID"), "{e}");
    }
    for e in with("AWS_REGION", "us-east-1", "s3://none/x") {
        assert!(matches!(e, BlockError::Missing(_)), "{e}");
        assert!(e.to_string().contains("no such bucket"), "{e}");
    }
    // A port that nobody listens on: it was just given back.
    let free = TcpListener::bind(address_of_its_own())
        .unwrap()
        .local_addr()
        .unwrap();
    for e in with("AWS_ENDPOINT_URL", &format!("http://{free}"), "s3://bucket/x") {
        assert!(matches!(e, BlockError::Unreachable(_)), "{e}");
        assert!(e.to_string().contains("AWS_ENDPOINT_URL"), "{e}");
    }
}

/// A service that refuses the first requests as too many, and counts them all.
fn busy(refusals: usize) -> (String, std::thread::JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let mut requests = 0;
        loop {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut bytes = [0; 4096];
            // The head, and a body of as many bytes as it says.
            let (whole, stop) = loop {
                let n = socket.read(&mut bytes).unwrap();
                request.extend_from_slice(&bytes[..n]);
                let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
                let Some(head) = text.find("\r\n\r\n") else {
                    if n == 0 {
                        break (false, false);
                    }
                    continue;
                };
                let length = text
                    .split("content-length: ")
                    .nth(1)
                    .and_then(|t| t.lines().next()?.trim().parse::<usize>().ok());
                if n == 0 || request.len() >= head + 4 + length.unwrap_or(0) {
                    break (true, text.starts_with("stop"));
                }
            };
            if stop {
                return requests;
            }
            if !whole {
                continue;
            }
            requests += 1;
            let status = if requests <= refusals {
                "503 Slow Down"
            } else {
                "200 OK"
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\netag: \"x\"\r\nlast-modified: Wed, 21 Oct 2015 07:28:00 GMT\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            socket.write_all(answer.as_bytes()).unwrap();
        }
    });
    (endpoint, served)
}

fn write_to_busy(refusals: usize) -> (Result<(), BlockError>, usize) {
    let (endpoint, served) = busy(refusals);
    let bucket = Bucket::new();
    let mut settings = bucket.settings();
    settings
        .environment
        .push(("AWS_ENDPOINT_URL".into(), endpoint.clone()));
    let s = S3Blocks::open_with("s3://bucket/x", 8, &settings).unwrap();
    let result = now(s.write(FILE, 0, 0, vec![1; 8]));
    let mut last = std::net::TcpStream::connect(endpoint.trim_start_matches("http://")).unwrap();
    last.write_all(b"STOP\r\n\r\n").unwrap();
    (result, served.join().unwrap())
}

#[test]
fn passing_failures_are_tried_again_and_lasting_ones_end() {
    // Is there a store, three times, and the write.
    assert_eq!(write_to_busy(2), (Ok(()), 4));
    let (result, requests) = write_to_busy(usize::MAX);
    assert!(matches!(result, Err(BlockError::Device(_))), "{result:?}");
    assert_eq!(requests, 3);
}

#[test]
fn a_part_of_a_bucket_is_one_filesystems() {
    let bucket = Bucket::new();
    let place = "s3://bucket/whose";
    let of = |n| S3Blocks::open_with(place, BLOCK, &bucket.settings().of(FsId(n))).unwrap();
    now(of(1).create()).unwrap();
    now(of(1).create()).expect("once more, as after a crash");
    now(of(1).check()).unwrap();
    // Before either has a block.
    for result in [
        now(of(2).create()),
        now(of(2).check()),
        now(of(2).read(FILE, 0, 0, 1)).map(drop),
    ] {
        let Err(BlockError::Missing(why)) = result else {
            panic!("a second filesystem in one place: {result:?}");
        };
        assert!(why.contains("say another place"), "{why}");
    }
    // A program before did not say whose it is: who comes first says it.
    let mark = bucket.object("pando-blocks");
    std::fs::write(
        &mark,
        "A block store of Pando, form 1. Without this object it is not found.\n",
    )
    .unwrap();
    now(of(3).check()).unwrap();
    now(of(3).check()).unwrap();
    assert!(now(of(1).check()).is_err());
}

/// Two mounts write parts of one block, each again and again: nothing is lost that was acknowledged.
#[test]
fn parts_of_a_block_from_two_mounts() {
    // A server of its own that looks at conditions and writes in one step.
    let server = Conditions::start();
    let mut settings = Bucket::new().settings();
    settings
        .environment
        .push(("AWS_ENDPOINT_URL".into(), server.endpoint.clone()));
    let open = || S3Blocks::open_with("s3://bucket/p", BLOCK, &settings).unwrap();
    const EACH: u32 = 60;
    std::thread::scope(|scope| {
        for who in 0..2u32 {
            let s = open();
            scope.spawn(move || {
                for n in 0..EACH {
                    let data = vec![1 + who as u8; 3];
                    now(s.write(FILE, 0, (2 * n + who) * 3, data)).unwrap();
                }
            });
        }
    });
    let all = now(open().read(FILE, 0, 0, BLOCK)).unwrap();
    let want: Vec<u8> = (0..2 * EACH).flat_map(|n| [1 + (n % 2) as u8; 3]).collect();
    assert!(all == want, "a part is lost");
    assert!(server.refused() > 0, "they never met");
}

/// The object, with its tag, and how many writes were refused.
type Held = std::sync::Mutex<(Option<(u64, Vec<u8>)>, u64)>;

/// A server of one object, and of a mark, which knows conditions of writes.
struct Conditions {
    endpoint: String,
    state: std::sync::Arc<Held>,
}

impl Conditions {
    fn start() -> Conditions {
        let listener = TcpListener::bind(address_of_its_own()).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state: std::sync::Arc<Held> = Default::default();
        let shared = state.clone();
        // It ends with the test's process.
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (mut socket, state) = (socket.unwrap(), shared.clone());
                std::thread::spawn(move || while serve_one(&mut socket, &state).is_some() {});
            }
        });
        Conditions { endpoint, state }
    }

    fn refused(&self) -> u64 {
        self.state.lock().unwrap().1
    }
}

fn serve_one(socket: &mut std::net::TcpStream, state: &Held) -> Option<()> {
    let (mut request, mut piece) = (Vec::new(), [0; 65536]);
    let (head, body) = loop {
        let end = request.windows(4).position(|w| w == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
            let length = head
                .split("content-length: ")
                .nth(1)
                .and_then(|t| t.lines().next()?.trim().parse::<usize>().ok())
                .unwrap_or(0);
            if request.len() >= end + 4 + length {
                break (head, request[end + 4..end + 4 + length].to_vec());
            }
        }
        match socket.read(&mut piece).ok()? {
            0 => return None,
            n => request.extend_from_slice(&piece[..n]),
        }
    };
    let field = |name: &str| {
        let line = head.lines().find_map(|l| l.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim().trim_matches('"').to_owned())
    };
    let mut state = state.lock().unwrap();
    let (object, refused) = &mut *state;
    let tag = object.as_ref().map(|(n, _)| n.to_string());
    let (status, answer) = if head.contains("pando-blocks") {
        ("200 OK", Vec::new())
    } else if head.starts_with("put") {
        let holds = match (field("if-match"), field("if-none-match")) {
            (Some(wanted), _) => tag.as_ref() == Some(&wanted),
            (None, Some(_)) => tag.is_none(),
            (None, None) => panic!("without a condition"),
        };
        if holds {
            *object = Some((object.as_ref().map_or(1, |(n, _)| n + 1), body));
            ("200 OK", Vec::new())
        } else {
            *refused += 1;
            ("412 Precondition Failed", Vec::new())
        }
    } else if tag.is_some() && field("if-none-match") == tag {
        ("304 Not Modified", Vec::new())
    } else {
        match &object {
            Some((_, bytes)) => ("200 OK", bytes.clone()),
            None => ("404 Not Found", Vec::new()),
        }
    };
    let tag = object.as_ref().map_or(0, |(n, _)| *n);
    drop(state);
    let mut text = format!(
        "HTTP/1.1 {status}\r\netag: \"{tag}\"\r\nlast-modified: Wed, 21 Oct 2015 07:28:00 GMT\r\ncontent-length: {}\r\n\r\n",
        answer.len()
    )
    .into_bytes();
    text.extend(answer);
    socket.write_all(&text).ok()
}
