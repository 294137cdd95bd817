//! The trace of a run: a running hash over every event and every decision, and on request one readable line
//! each.

/// Collects the trace.
pub struct Trace {
    hash: u64,
    events: u64,
    print: Print,
    lines: std::collections::VecDeque<String>,
}

/// What becomes of the readable lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Print {
    /// Nothing: lines are not even formatted.
    #[default]
    No,
    /// The last so many are kept for the report of a violation.
    Tail(usize),
    /// Printed as they come.
    All,
}

/// Digest of bytes, fast and not cryptographic.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut h = 0x51_7c_c1_b7_27_22_0a_95u64 ^ bytes.len() as u64;
    let mut chunks = bytes.chunks_exact(8);
    for c in &mut chunks {
        let mut b = [0; 8];
        b.copy_from_slice(c);
        h = (h.rotate_left(5) ^ u64::from_le_bytes(b)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    for b in chunks.remainder() {
        h = (h.rotate_left(5) ^ u64::from(*b)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    h
}

impl Trace {
    /// An empty trace.
    pub fn new(print: Print) -> Trace {
        Trace {
            hash: 0,
            events: 0,
            print,
            lines: std::collections::VecDeque::new(),
        }
    }

    /// Adds a value to the hash.
    pub fn add(&mut self, value: u64) {
        self.hash = (self.hash.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// An event happened at `time`.
    pub fn event(&mut self, time: u64, kind: u64, a: u64, b: u64) {
        self.events += 1;
        self.add(time);
        self.add(kind << 56 ^ a);
        self.add(b);
    }

    /// Whether lines are wanted.
    pub fn wants_lines(&self) -> bool {
        self.print != Print::No
    }

    /// Adds a readable line.
    pub fn line(&mut self, time: u64, text: &str) {
        let line = format!("{:>12.6} {text}", time as f64 / 1e9);
        match self.print {
            Print::No => {}
            Print::All => println!("{line}"),
            Print::Tail(n) => {
                if self.lines.len() >= n {
                    self.lines.pop_front();
                }
                self.lines.push_back(line);
            }
        }
    }

    /// The lines kept.
    pub fn tail(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }

    /// The hash so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }
}
