//! The clocks, and other small things the operating system is asked.

use pando_types::{Mono, Timestamp};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

fn nanos(t: Timespec) -> i128 {
    i128::from(t.tv_sec) * 1_000_000_000 + i128::from(t.tv_nsec)
}

/// CLOCK_MONOTONIC.
pub fn mono() -> Mono {
    Mono(nanos(clock_gettime(ClockId::Monotonic)).max(0) as u64)
}

/// CLOCK_BOOTTIME, which goes on while the machine sleeps.
pub fn boot_time() -> Duration {
    let nanos = nanos(clock_gettime(ClockId::Boottime)).max(0);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// CLOCK_REALTIME.
pub fn now() -> Timestamp {
    Timestamp::from_nanos(nanos(clock_gettime(ClockId::Realtime)))
}

/// Processor time this thread has used.
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)).max(0) as u64)
}

/// Processor time this process has used, also in threads that have ended.
pub fn process_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ProcessCPUTime)).max(0) as u64)
}

/// Lets this process open as many files as its hard limit allows, and returns how many that is.
pub fn raise_file_limit() -> u64 {
    let was = getrlimit(Resource::Nofile);
    let want = Rlimit {
        current: was.maximum,
        maximum: was.maximum,
    };
    let now = match setrlimit(Resource::Nofile, want) {
        Ok(()) => want,
        Err(_) => was,
    };
    now.current.unwrap_or(u64::MAX)
}
