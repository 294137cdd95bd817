//! Mixes of operations, as production systems have them.

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Attributes of a file, by its name.
    Stat,
    /// Attributes of a directory.
    StatDir,
    Create,
    Delete,
    Mkdir,
    Rmdir,
    /// Of a file, to another directory.
    Rename,
    /// All names of a directory.
    List,
    /// What the table calls others: permissions of a file are changed.
    Other,
}

/// All, in the order of shares.
pub const KINDS: [Kind; 9] = [
    Kind::Stat,
    Kind::StatDir,
    Kind::Create,
    Kind::Delete,
    Kind::Mkdir,
    Kind::Rmdir,
    Kind::Rename,
    Kind::List,
    Kind::Other,
];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Stat => "stat",
            Kind::StatDir => "statdir",
            Kind::Create => "create",
            Kind::Delete => "delete",
            Kind::Mkdir => "mkdir",
            Kind::Rmdir => "rmdir",
            Kind::Rename => "rename",
            Kind::List => "list",
            Kind::Other => "others",
        }
    }
}

/// All that a workload's shares add up to: they have two digits after the point of a percent.
pub const WHOLE: u64 = 10_000;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    pub name: &'static str,
    /// Of each kind, in hundredths of a percent.
    shares: [u64; KINDS.len()],
}

/// Table 5 of the paper on HMFS, which has them from those on CFS (Baidu AI Cloud), Pangu (Alibaba Cloud) and
/// HDFS (Spotify).
pub const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "alibaba",
        shares: [6495, 28, 958, 1188, 1, 0, 929, 392, 9],
    },
    Workload {
        name: "baidu",
        shares: [9305, 0, 144, 114, 8, 4, 12, 92, 321],
    },
    Workload {
        name: "spotify",
        shares: [8191, 396, 270, 75, 2, 0, 130, 901, 35],
    },
];

impl Workload {
    /// The kind that a number below [`WHOLE`] stands for.
    pub fn kind(&self, mut drawn: u64) -> Kind {
        for (kind, share) in KINDS.into_iter().zip(self.shares) {
            if drawn < share {
                return kind;
            }
            drawn -= share;
        }
        Kind::Other
    }

    /// How many of a hundred are of this kind.
    pub fn percent(&self, kind: Kind) -> f64 {
        let shares = KINDS.into_iter().zip(self.shares);
        let share: u64 = shares.filter(|(k, _)| *k == kind).map(|(_, share)| share).sum();
        share as f64 / 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_a_whole() {
        for workload in WORKLOADS {
            assert_eq!(workload.shares.iter().sum::<u64>(), WHOLE, "{}", workload.name);
            for kind in KINDS {
                let drawn = (0..WHOLE).filter(|n| workload.kind(*n) == kind).count();
                assert_eq!(drawn as f64 / 100.0, workload.percent(kind));
            }
        }
        assert_eq!(WORKLOADS[0].kind(0), Kind::Stat);
        assert_eq!(WORKLOADS[1].kind(WHOLE - 1), Kind::Other);
    }
}
