//! What a phase of a benchmark costs beside time: processor time of clients and servers, reads of records,
//! syncs.

use crate::cluster_dir::ClusterDir;
use crate::process;
use pando_cluster::ClusterFile;
use pando_net::process_cpu;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

/// How long a server may take to say what it has counted.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the operations of one phase cost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spent {
    /// Processor time of this process for each, in microseconds.
    pub client_us: Option<f64>,
    /// Of all servers together. Nobody knows if one of them is on another machine.
    pub servers_us: Option<f64>,
    /// Share of the servers' reads that cached records answered.
    pub record_hits: Option<f64>,
    /// Reads for each that they did not answer.
    pub uncached_reads: Option<f64>,
    /// Reads for each that went to the device.
    pub disk_reads: Option<f64>,
    /// Bytes for each in servers' logs.
    pub log_bytes: Option<f64>,
    /// Operations for each sync of a server's log.
    pub per_sync: Option<f64>,
}

impl Spent {
    /// Where what servers read says nothing: reads are few, and mostly their own business.
    pub fn without_reads(self) -> Spent {
        Spent {
            record_hits: None,
            uncached_reads: None,
            disk_reads: None,
            ..self
        }
    }
}

/// Whom it looks at.
pub struct Watch {
    dir: ClusterDir,
    /// Numbers, and where they tell what they have counted.
    servers: Vec<(u16, String)>,
}

/// What had been spent by some instant.
#[derive(Clone, Debug)]
pub struct Sample {
    /// All servers' counts, by name.
    counts: Option<BTreeMap<String, u64>>,
    servers: Option<Duration>,
    client: Duration,
}

impl Watch {
    /// The servers of a cluster.
    pub fn of(dir: &ClusterDir, file: &ClusterFile) -> Watch {
        Watch {
            dir: dir.clone(),
            servers: file.servers.iter().map(|s| (s.id, s.metrics.clone())).collect(),
        }
    }

    /// What was spent until now, as something begins: what asking costs is not part of it.
    pub fn before(&self) -> Sample {
        let counts = self.counts();
        Sample {
            counts,
            servers: self.servers_cpu(),
            client: process_cpu(),
        }
    }

    /// The same as it ends.
    pub fn after(&self) -> Sample {
        let (client, servers) = (process_cpu(), self.servers_cpu());
        Sample {
            counts: self.counts(),
            servers,
            client,
        }
    }

    /// How large the servers' caches of records may become, in MiB, if all say the same.
    pub fn record_mib(&self) -> Option<u64> {
        let of =
            |(_, address): &(u16, String)| page(address)?.get("store_record_limit_bytes").map(|b| b >> 20);
        let mut all = self.servers.iter().map(of);
        let first = all.next()??;
        all.all(|one| one == Some(first)).then_some(first)
    }

    /// From here on `VmHWM:` is the most memory since, where the kernel lets us say so.
    pub fn forget_peaks(&self) {
        let pids = self.pids().unwrap_or_default();
        let servers = pids.iter().map(i32::to_string);
        for pid in servers.chain(["self".to_owned()]) {
            let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
    }

    /// Bytes that this process, and the servers together, have in memory (`VmRSS:`), or had at most
    /// (`VmHWM:`).
    pub fn memory(&self, field: &str) -> [Option<u64>; 2] {
        let of = |pid: i32| memory_of(&pid.to_string(), field);
        let servers = self.pids().and_then(|pids| pids.into_iter().map(of).sum());
        [memory_of("self", field), servers]
    }

    fn counts(&self) -> Option<BTreeMap<String, u64>> {
        let mut all = BTreeMap::new();
        for (_, address) in &self.servers {
            for (name, n) in page(address)? {
                *all.entry(name).or_default() += n;
            }
        }
        Some(all)
    }

    fn pids(&self) -> Option<Vec<i32>> {
        let pid = |(id, _): &(u16, String)| {
            let pid = process::running(&self.dir, &format!("server-{id}"))?;
            Some(pid.as_raw_nonzero().get())
        };
        self.servers.iter().map(pid).collect()
    }

    fn servers_cpu(&self) -> Option<Duration> {
        self.pids()?.into_iter().map(cpu_of).sum()
    }
}

/// Processor time that the threads of a process have used. (Servers' threads live as long as they do.)
fn cpu_of(pid: i32) -> Option<Duration> {
    let mut all = Duration::ZERO;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        all += Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?);
    }
    Some(all)
}

fn memory_of(pid: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(field))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

/// What a server tells to whoever asks for its metrics: names without `pando_`, and numbers.
fn page(address: &str) -> Option<BTreeMap<String, u64>> {
    let at = address.to_socket_addrs().ok()?.next()?;
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(parse(&text))
}

fn parse(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("pando_")?.split_once('{')?;
        let (_, number) = rest.rsplit_once(' ')?;
        // Of those that are told by kind there is more than one.
        (name != "operations_total").then_some((name.to_owned(), number.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

impl Sample {
    /// What `ops` operations cost since `before`.
    pub fn since(&self, before: &Sample, ops: u64) -> Spent {
        if ops == 0 {
            return Spent::default();
        }
        let each = |n: u64| n as f64 / ops as f64;
        let micros = |t: Duration| t.as_secs_f64() * 1e6 / ops as f64;
        let count = |name: &str| {
            let (now, was) = (self.counts.as_ref()?, before.counts.as_ref()?);
            // A server that was started again meanwhile has begun to count anew.
            now.get(name)?.checked_sub(*was.get(name)?)
        };
        let records = count("store_record_hits_total");
        let disk = count("store_disk_reads_total");
        let reads = count("store_memory_hits_total").zip(disk).map(|(a, b)| a + b);
        let known = records.zip(reads).filter(|(_, reads)| *reads > 0);
        Spent {
            client_us: Some(micros(self.client.saturating_sub(before.client))),
            servers_us: self
                .servers
                .zip(before.servers)
                .map(|(now, was)| micros(now.saturating_sub(was))),
            record_hits: known.map(|(hits, reads)| hits as f64 / reads as f64),
            uncached_reads: known.map(|(hits, reads)| each(reads.saturating_sub(hits))),
            disk_reads: disk.map(each),
            log_bytes: count("store_wal_bytes_total").map(each),
            per_sync: count("store_syncs_total")
                .filter(|n| *n > 0)
                .map(|n| ops as f64 / n as f64),
        }
    }
}

/// Phases that all clients begin together, and of which none begins before all have ended the one before.
pub struct Phases<'a> {
    watch: &'a Watch,
    barrier: Barrier,
    samples: Mutex<Vec<Sample>>,
}

impl<'a> Phases<'a> {
    /// Of so many clients, each a thread.
    pub fn new(watch: &'a Watch, clients: usize) -> Phases<'a> {
        Phases {
            watch,
            barrier: Barrier::new(clients.max(1)),
            samples: Mutex::default(),
        }
    }

    /// One client's part of the next phase. Every client has one, also who cannot work: the others wait for
    /// it.
    pub fn part<T>(&self, work: impl FnOnce() -> T) -> T {
        let add = |sample| {
            let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
            samples.push(sample);
        };
        if self.barrier.wait().is_leader() {
            add(self.watch.before());
        }
        self.barrier.wait();
        let done = work();
        if self.barrier.wait().is_leader() {
            add(self.watch.after());
        }
        done
    }

    /// What phase `n` cost, of so many operations.
    pub fn spent(&self, n: usize, ops: u64) -> Option<Spent> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = (samples.get(2 * n)?, samples.get(2 * n + 1)?);
        Some(after.since(before, ops))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(counts: &str, servers: u64, client: u64) -> Sample {
        Sample {
            counts: Some(parse(counts)),
            servers: Some(Duration::from_micros(servers)),
            client: Duration::from_micros(client),
        }
    }

    #[test]
    fn differences_of_counts() {
        let page = |hits: u64, records: u64, disk: u64, syncs: u64| {
            format!(
                "HTTP/1.1 200 OK\r\n\r\n# HELP pando_store_syncs_total x\npando_operations_total{{server=\"0\",op=\"a\"}} 9\n\
                 pando_store_memory_hits_total{{server=\"0\"}} {hits}\npando_store_record_hits_total{{server=\"0\"}} {records}\n\
                 pando_store_disk_reads_total{{server=\"0\"}} {disk}\npando_store_syncs_total{{server=\"0\"}} {syncs}\n"
            )
        };
        let (a, b) = (
            sample(&page(100, 50, 10, 3), 500, 100),
            sample(&page(280, 200, 30, 8), 1500, 300),
        );
        let spent = b.since(&a, 100);
        assert_eq!((spent.client_us, spent.servers_us), (Some(2.0), Some(10.0)));
        assert_eq!(spent.record_hits, Some(0.75));
        assert_eq!((spent.uncached_reads, spent.disk_reads), (Some(0.5), Some(0.2)));
        assert_eq!(spent.per_sync, Some(20.0));
        // Started again: it is not known.
        assert_eq!(a.since(&b, 100).record_hits, None);
        assert_eq!(b.since(&a, 0), Spent::default());
        assert!(memory_of("self", "VmRSS:").is_some_and(|bytes| bytes > 1 << 20));
    }
}
