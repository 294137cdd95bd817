//! What operators say about cuts and repairs.

use super::records::{self, DIR, TIME};
use pando_format::Scan;
use pando_format::codec::Blob;
use pando_format::{Key, Left, Remains, Remnant, TouchDelta};
use pando_types::{MapEpoch, Slot};
use pando_wire::{CutAnswer, CutError, CutId, CutRequest, RepairRequest};

const CUT: CutId = CutId(77);

pub(super) fn requests() -> Vec<CutRequest> {
    vec![
        CutRequest::Hold {
            cut: CUT,
            map: MapEpoch(1),
        },
        CutRequest::Take(CUT),
        CutRequest::Read {
            cut: CUT,
            range: Scan::Slot(Slot(1)).range(),
            bytes: 1000,
        },
        CutRequest::End(CUT),
    ]
}

pub(super) fn repair() -> RepairRequest {
    let mut expected: Vec<_> = records::records()
        .into_iter()
        .map(|(key, record)| (key, Some(record)))
        .collect();
    expected.push((Key::Head(DIR.into()), None));
    RepairRequest {
        changes: vec![(records::entry_key(), None)],
        touches: vec![(
            DIR,
            TouchDelta {
                entries: -1,
                subdirs: 0,
                time: TIME,
            },
        )],
        invalidates: records::invalidations().to_vec(),
        expected,
    }
}

pub(super) fn remains() -> Remains {
    let found = records::records().into_iter().enumerate();
    let found = found.map(|(n, (key, record))| Remnant {
        key,
        left: match n % 3 {
            0 => Left::Nothing,
            1 => Left::Older(record),
            _ => Left::Whole(record),
        },
    });
    Remains {
        tables: vec!["000012.sst".into()],
        found: found.collect(),
        more: true,
        rest: Some(Scan::Entries(DIR.into()).range()),
    }
}

pub(super) fn answers() -> Vec<Result<CutAnswer, CutError>> {
    vec![
        Ok(CutAnswer::Held),
        Ok(CutAnswer::Taken(1234)),
        Ok(CutAnswer::Records(
            Blob(vec![0, 0, 0, 0]),
            Some(Scan::Slot(Slot(1)).range()),
        )),
        Ok(CutAnswer::Records(Blob(Vec::new()), None)),
        Ok(CutAnswer::Ended(true)),
        Err(CutError::Over),
        Err(CutError::Another(10)),
        Err(CutError::Rest(10)),
        Err(CutError::OtherMap(MapEpoch(2))),
        Err(CutError::Moving),
        Err(CutError::Damaged),
    ]
}
