//! What a run can find.

use crate::world::Time;

/// Kinds of findings, with the exit code of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// A reply, a record or the tree is wrong.
    WrongResult,
    /// Something did not come to an end.
    NoProgress,
    /// The code under test panicked.
    Panic,
    /// The seed put nothing at risk, so its success would say nothing.
    RiskedNothing,
    /// The same seed gave another trace.
    Diverged,
}

impl Kind {
    /// As a word.
    pub fn word(self) -> &'static str {
        match self {
            Kind::WrongResult => "wrong result",
            Kind::NoProgress => "no progress",
            Kind::Panic => "panic",
            Kind::RiskedNothing => "risked nothing",
            Kind::Diverged => "not deterministic",
        }
    }

    /// The exit code of a run that found it.
    pub fn exit_code(self) -> i32 {
        match self {
            Kind::WrongResult | Kind::Diverged => 2,
            Kind::NoProgress => 3,
            Kind::Panic => 4,
            Kind::RiskedNothing => 5,
        }
    }
}

/// A finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which kind.
    pub kind: Kind,
    /// What exactly.
    pub text: String,
    /// When.
    pub time: Time,
}
