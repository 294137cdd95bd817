//! Every message about directories that split.

use super::records::{self, DIR, TX};
use pando_types::{Generation, Part, Term};
use pando_wire::{Half, LeaseRequest, Pass, Refusal, SplitAnswer, SplitRequest};

/// The upper half of a directory.
pub(super) fn upper() -> Part {
    Part::new(DIR, 0x800).unwrap_or(Part::whole(DIR))
}

pub(super) fn requests() -> Vec<SplitRequest> {
    let (copy, part) = (TX, upper());
    let half = Half {
        part,
        generation: Generation(3),
        depth: 1,
    };
    let records = |pass| SplitRequest::Records {
        copy,
        part,
        number: 5,
        pass,
        changes: records::changes(),
    };
    vec![
        SplitRequest::Begin { copy, half },
        records(Pass::First),
        records(Pass::Again),
        SplitRequest::Settle { copy, part },
    ]
}

/// To those who look for a name in another part.
pub(super) fn refusals() -> [Refusal; 2] {
    [(true, Some(2)), (false, None)].map(|(second, depth)| Refusal::Elsewhere {
        second,
        start: 0x800,
        depth,
    })
}

pub(super) fn answers() -> Vec<SplitAnswer> {
    vec![
        SplitAnswer::Taken,
        SplitAnswer::Lost,
        SplitAnswer::Counted {
            entries: 9,
            subdirs: 2,
        },
    ]
}

/// About leases on directories.
pub(super) fn leases() -> [LeaseRequest; 3] {
    let (term, dirs) = (Term(4), vec![(DIR, Generation(3))]);
    [
        LeaseRequest::Grant {
            term,
            dir: DIR,
            generation: Generation(3),
            depth: 5,
        },
        LeaseRequest::Close {
            term,
            dirs: dirs.clone(),
        },
        LeaseRequest::Changed { dirs },
    ]
}
