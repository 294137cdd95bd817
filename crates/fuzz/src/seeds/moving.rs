//! Every message about slots that move, and about which servers there are.

use super::records::{self, SESSION};
use pando_format::codec::Blob;
use pando_types::{BootEpoch, FsId, MapEpoch, ServerId, Slot};
use pando_wire::{ClusterError, ClusterRequest, CopyId, Holds, MoveAnswer, MoveRequest};

pub(super) fn requests() -> Vec<MoveRequest> {
    let copy = CopyId {
        source: ServerId(2),
        boot: BootEpoch(3),
        number: 4,
    };
    let bundle = records::bundles().into_iter().next().unwrap_or_default();
    vec![
        MoveRequest::Begin {
            copy,
            slots: vec![Slot(1), Slot(0x0abc)],
        },
        MoveRequest::Records {
            copy,
            number: 5,
            bundle: Blob(bundle),
            gone: records::keys(),
        },
        MoveRequest::Settle {
            copy,
            made: MapEpoch(6),
            ended: vec![SESSION],
            holds: Holds {
                held: vec![(SESSION.keeping(), super::messages::turned())],
            },
            lockers: vec![(Slot(7), SESSION)],
        },
        MoveRequest::HandOver {
            from: ServerId(2),
            to: ServerId(3),
            made: MapEpoch(6),
            slots: vec![Slot(1)],
        },
        MoveRequest::Left,
    ]
}

pub(super) fn answers() -> Vec<MoveAnswer> {
    vec![
        MoveAnswer::Taken,
        MoveAnswer::Lost,
        MoveAnswer::Map(Blob(vec![1; 8])),
        MoveAnswer::Left(2),
    ]
}

pub(super) fn wishes() -> Vec<ClusterRequest> {
    vec![
        ClusterRequest::Join {
            id: ServerId(4),
            fs: FsId(5),
            address: "host4:7000".into(),
            metrics: "host4:8000".into(),
        },
        ClusterRequest::Drain(ServerId(4)),
        ClusterRequest::Rebalance,
        ClusterRequest::KeepServer(ServerId(4)),
        ClusterRequest::EndMoves,
    ]
}

pub(super) fn errors() -> Vec<ClusterError> {
    vec![
        ClusterError::AlreadyIn(ServerId(1)),
        ClusterError::NumberUsed(ServerId(2)),
        ClusterError::AddressTaken(ServerId(3)),
        ClusterError::TooMany,
        ClusterError::Unknown(ServerId(4)),
        ClusterError::Last(ServerId(5)),
        ClusterError::Coupled,
        ClusterError::Foreign(FsId(6)),
        ClusterError::KeepsIdentities(ServerId(7)),
        ClusterError::BadAddress,
        ClusterError::NotLeaving(ServerId(8)),
        ClusterError::NothingMoves,
    ]
}
