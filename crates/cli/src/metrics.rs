//! The Prometheus endpoint: a page that the event loop makes when somebody asks, handed out by a thread of
//! its own.

use anyhow::{Context, Result};
use pando_server::MetaServer;
use pando_types::ServerId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// How long whoever asks waits for a new page. An event loop that takes longer is busy, and the page of
/// before says more than nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// The latest page, and how many were asked for and made.
#[derive(Clone, Default)]
pub struct SharedPage(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<Pages>,
    news: Condvar,
}

#[derive(Default)]
struct Pages {
    latest: String,
    asked: u64,
    made: u64,
    /// Of the task that makes them.
    maker: Option<Waker>,
}

impl SharedPage {
    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until somebody wants a page.
    pub async fn wanted(&self) {
        std::future::poll_fn(|cx| {
            let mut pages = self.lock();
            if pages.asked > pages.made {
                return Poll::Ready(());
            }
            pages.maker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn put(&self, page: String) {
        let mut pages = self.lock();
        pages.latest = page;
        pages.made = pages.asked;
        self.0.news.notify_all();
    }

    /// For the thread that hands them out.
    fn fresh(&self) -> String {
        let mut pages = self.lock();
        pages.asked += 1;
        let mine = pages.asked;
        if let Some(maker) = pages.maker.take() {
            maker.wake();
        }
        let late = |pages: &mut Pages| pages.made < mine;
        let waited = self.0.news.wait_timeout_while(pages, PATIENCE, late);
        waited.unwrap_or_else(PoisonError::into_inner).0.latest.clone()
    }
}

/// Operations by kind and result.
#[derive(Default)]
pub struct Counters {
    executed: RefCell<BTreeMap<(&'static str, bool), u64>>,
    /// Kind of the server's store.
    store: &'static str,
}

impl Counters {
    /// Of a server with a store of this kind.
    pub fn of(store: &'static str) -> Counters {
        Counters {
            store,
            ..Counters::default()
        }
    }

    fn write(&self, out: &mut String, id: ServerId) {
        let _ = writeln!(
            out,
            "# HELP pando_operations_total Operations executed, by kind and result."
        );
        let _ = writeln!(out, "# TYPE pando_operations_total counter");
        for ((kind, ok), n) in &*self.executed.borrow() {
            let result = if *ok { "ok" } else { "error" };
            let _ = writeln!(
                out,
                "pando_operations_total{{server=\"{id}\",op=\"{kind}\",result=\"{result}\"}} {n}"
            );
        }
        let _ = writeln!(out, "# HELP pando_store_info Kind of the server's store.");
        let _ = writeln!(out, "# TYPE pando_store_info gauge");
        let kind = self.store;
        let _ = writeln!(out, "pando_store_info{{server=\"{id}\",kind=\"{kind}\"}} 1");
    }

    /// Counts one.
    pub fn executed(&self, kind: &'static str, ok: bool) {
        *self.executed.borrow_mut().entry((kind, ok)).or_default() += 1;
    }
}

/// Begins to answer HTTP GETs with the latest page.
pub fn serve(address: &str) -> Result<SharedPage> {
    let listener = TcpListener::bind(address).with_context(|| {
        format!("cannot serve metrics on {address}; is the port taken by another program?")
    })?;
    let page = SharedPage::default();
    let shown = page.clone();
    std::thread::Builder::new()
        .name("metrics".into())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                // One at a time, briefly: a scraper that does not speak does not keep others out for long.
                let _ = answer(stream, &shown);
            }
        })?;
    Ok(page)
}

fn answer(mut stream: TcpStream, page: &SharedPage) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    let mut request = [0; 4096];
    let n = stream.read(&mut request)?;
    let (status, body) = if request[..n].starts_with(b"GET /metrics ") || request[..n].starts_with(b"GET / ")
    {
        ("200 OK", page.fresh())
    } else {
        ("404 Not Found", "metrics are at /metrics\n".to_owned())
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Makes the page anew.
pub fn publish(
    page: &SharedPage,
    counters: &Counters,
    server: &MetaServer,
    store: &pando_store::Stats,
    record_limit: usize,
    connections: usize,
) {
    let (s, removed) = (server.stats(), server.removed());
    let id = server.id();
    let mut out = String::with_capacity(4096);
    counters.write(&mut out, id);
    let metrics: [(&str, &str, &str, u64); 23] = [
        ("boot_epoch", "gauge", "Starts of this server.", server.boot().0),
        (
            "connections",
            "gauge",
            "Accepted connections.",
            connections as u64,
        ),
        (
            "replayed_total",
            "counter",
            "Retries answered from a reply record.",
            s.replayed,
        ),
        (
            "busy_total",
            "counter",
            "Requests refused because a lock was not free in time.",
            s.busy,
        ),
        (
            "announced_total",
            "counter",
            "Changes of directories that every server was told of before.",
            s.announced,
        ),
        (
            "outdated_total",
            "counter",
            "Requests refused because a directory on the way had changed.",
            s.outdated,
        ),
        (
            "forged_total",
            "counter",
            "Requests refused because of a statement that this filesystem did not make.",
            s.forged,
        ),
        (
            "transactions_committed_total",
            "counter",
            "Distributed transactions committed here.",
            s.commits,
        ),
        (
            "transactions_aborted_total",
            "counter",
            "Distributed transactions aborted here.",
            s.aborts,
        ),
        (
            "id_collisions_total",
            "counter",
            "Directory IDs that belonged to another directory when one was to be made under them.",
            s.collisions,
        ),
        (
            "peer_calls_total",
            "counter",
            "Messages sent to other servers.",
            s.peer_calls,
        ),
        (
            "removed_files",
            "gauge",
            "Removed files that wait for the deletion of their data.",
            removed.files,
        ),
        ("removed_bytes", "gauge", "Their sizes together.", removed.bytes),
        (
            "store_batches_total",
            "counter",
            "Batches applied.",
            store.batches,
        ),
        (
            "store_wal_bytes_total",
            "counter",
            "Bytes written to the log.",
            store.wal_bytes,
        ),
        ("store_syncs_total", "counter", "Syncs of the log.", store.syncs),
        (
            "store_memory_hits_total",
            "counter",
            "Reads answered from memory.",
            store.hits,
        ),
        (
            "store_record_hits_total",
            "counter",
            "Of them, those answered by cached records.",
            store.record_hits,
        ),
        (
            "store_disk_reads_total",
            "counter",
            "Reads that went to the device.",
            store.misses,
        ),
        (
            "store_table_bytes",
            "gauge",
            "Bytes in table files.",
            store.table_bytes,
        ),
        (
            "store_cache_bytes",
            "gauge",
            "Bytes of cache in use.",
            store.cache_bytes,
        ),
        (
            "store_record_bytes",
            "gauge",
            "Bytes of cached records.",
            store.record_bytes,
        ),
        (
            "store_record_limit_bytes",
            "gauge",
            "Bytes of records that may be cached.",
            record_limit as u64,
        ),
    ];
    put_all(&mut out, server, &metrics);
    publish_splits(&mut out, server);
    publish_leases(&mut out, server);
    page.put(out);
}

/// A metric: name, kind, help, value.
type Metric = (&'static str, &'static str, &'static str, u64);

fn put_all(out: &mut String, server: &MetaServer, metrics: &[Metric]) {
    let id = server.id();
    for (name, kind, help, value) in metrics {
        let _ = writeln!(
            out,
            "# HELP pando_{name} {help}\n# TYPE pando_{name} {kind}\npando_{name}{{server=\"{id}\"}} {value}"
        );
    }
}

/// Of leases on directories.
fn publish_leases(out: &mut String, server: &MetaServer) {
    let s = server.stats();
    let metrics = [
        (
            "leases_granted_total",
            "counter",
            "Leases on directories granted (--coherence lease).",
            s.leases,
        ),
        (
            "lease_waits_total",
            "counter",
            "Changes of directories that waited until leases had run out.",
            s.lease_waits,
        ),
    ];
    put_all(out, server, &metrics);
}

/// Of directories that were split.
fn publish_splits(out: &mut String, server: &MetaServer) {
    let s = server.split_stats();
    let metrics = [
        (
            "parts_given_total",
            "counter",
            "Halves of parts given to other slots.",
            s.given,
        ),
        (
            "parts_taken_total",
            "counter",
            "Halves of parts taken over.",
            s.taken,
        ),
        (
            "part_records_sent_total",
            "counter",
            "Records sent in halves of parts.",
            s.sent,
        ),
        (
            "part_copies_broken_off_total",
            "counter",
            "Copies of halves that came to nothing.",
            s.broken_off,
        ),
        (
            "part_pause_microseconds",
            "gauge",
            "Longest time in which a part could not change while it was split.",
            s.longest_pause,
        ),
        (
            "part_records_swept_total",
            "counter",
            "Records deleted of halves that were given away.",
            s.swept,
        ),
    ];
    put_all(out, server, &metrics);
}
