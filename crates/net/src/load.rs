//! Whether the machine has a core to spare for spinning.

use crate::clock::mono;
use pando_types::Mono;
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// How long a look at the machine is good for. A look takes about a microsecond.
const FRESH: Duration = Duration::from_micros(20);
/// How long not to look again, after a look found it busy: first, and at most.
const HOLD: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(2));

/// Counts the machine's running and runnable threads now and then (fourth field of `/proc/loadavg`: not an
/// average, but the number of this moment; it sees other processes that spin, and everything else that wants
/// a core).
///
/// In a container it counts the whole machine's threads against the container's cores, and so errs towards
/// sleeping.
pub(crate) struct Load {
    /// None where there is no such file: taken for busy.
    file: Option<File>,
    cores: u32,
    /// What the last look found is good until then.
    until: Cell<Mono>,
    busy: Cell<bool>,
    hold: Cell<Duration>,
}

impl Load {
    pub fn new() -> Load {
        Load {
            file: File::open("/proc/loadavg").ok(),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            until: Cell::new(Mono(0)),
            busy: Cell::new(false),
            hold: Cell::new(HOLD.0),
        }
    }

    /// Whether somebody else has a use for this core.
    pub fn is_busy(&self, now: Mono) -> bool {
        if now < self.until.get() {
            return self.busy.get();
        }
        let mut text = [0; 64];
        let n = self
            .file
            .as_ref()
            .and_then(|f| f.read_at(&mut text, 0).ok())
            .unwrap_or(0);
        let busy = running(&text[..n]).is_none_or(|running| running > self.cores);
        self.busy.set(busy);
        let hold = if busy { self.hold.get() } else { FRESH };
        self.hold.set(if busy { (hold * 2).min(HOLD.1) } else { HOLD.0 });
        // Counted from after the look: it can take long where many cores are counted.
        self.until.set(mono().after(hold));
        busy
    }
}

/// The number before the slash.
fn running(text: &[u8]) -> Option<u32> {
    let field = text.split(|b| *b == b' ').nth(3)?;
    let number = field.split(|b| *b == b'/').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_field() {
        assert_eq!(running(b"2.88 2.37 1.11 5/122 3292\n"), Some(5));
        assert_eq!(running(b""), None);
        assert_eq!(running(b"1 2 3 x/1 2"), None);
        // At least this thread runs.
        let text = std::fs::read("/proc/loadavg").unwrap_or_default();
        assert!(running(&text) >= Some(1));
    }
}
