//! What is said when a connection is opened, and about those who may open one.

use super::records::{self, TIME};
use pando_format::IdentityTable;
use pando_types::{AuthMode, BootEpoch, FsId, IdentityId, ServerId};
use pando_wire::{
    AuthAnswer, AuthChange, AuthError, AuthRequest, Denial, Hello, HelloReply, IdentityView, NONCE,
    PROTOCOL_VERSION, Proof, Role, Way,
};

pub(super) fn ways() -> [Way; 3] {
    [Way::Nobody, Way::Key(IdentityId(1)), Way::Certificate]
}

pub(super) fn roles() -> [Role; 5] {
    let [nobody, key, certificate] = ways().map(Role::Client);
    [
        nobody,
        key,
        certificate,
        Role::Server(ServerId(3)),
        Role::Operator,
    ]
}

pub(super) fn denials() -> [Denial; 5] {
    [
        Denial::UnknownKey,
        Denial::WrongProof,
        Denial::WrongWay(AuthMode::Key),
        Denial::NotReady,
        Denial::TooManyOfYours,
    ]
}

pub(super) fn proof() -> Proof {
    Proof { proof: [9; NONCE] }
}

pub(super) fn hello(role: Role) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        fs: crate::targets::FS,
        role,
        key_name: pando_auth::Key::new(crate::targets::KEY).name(),
        nonce: [6; NONCE],
    }
}

pub(super) fn hello_replies() -> Vec<HelloReply> {
    let (server, boot) = (ServerId(3), BootEpoch(7));
    let welcome = |proof| HelloReply::Welcome { server, boot, proof };
    let mut all = vec![
        welcome(None),
        welcome(Some([8; NONCE])),
        HelloReply::WrongVersion(1),
        HelloReply::WrongFilesystem(FsId(1)),
        HelloReply::TooMany,
        HelloReply::Challenge {
            server,
            boot,
            nonce: [7; NONCE],
            proof: [8; NONCE],
        },
    ];
    all.extend(denials().map(HelloReply::Denied));
    all
}

pub(super) fn auth_requests() -> Vec<AuthRequest> {
    let (name, key) = (|| String::from("laptop"), [0x5c; 32]);
    let add = |claims| AuthChange::Add {
        name: name(),
        claims,
        key,
    };
    let mut changes = vec![
        AuthChange::Revoke { name: name() },
        AuthChange::Rotate {
            name: name(),
            key,
            grace: 60,
        },
    ];
    changes.extend(records::claims().map(add));
    let change = |change| AuthRequest::Change { seen: 3, change };
    let mut all = vec![AuthRequest::List];
    all.extend(changes.into_iter().map(change));
    all
}

pub(super) fn auth_errors() -> [AuthError; 7] {
    [
        AuthError::Exists,
        AuthError::Unknown,
        AuthError::NotUsed,
        AuthError::TooMany,
        AuthError::BadName,
        AuthError::KeyTaken,
        AuthError::Changed,
    ]
}

pub(super) fn auth_answer() -> AuthAnswer {
    let view = |claims| IdentityView {
        id: IdentityId(4),
        name: "laptop".into(),
        claims,
        keys: vec![None, Some(TIME)],
        created: TIME,
        revoked: None,
        change: 3,
    };
    AuthAnswer {
        identities: records::claims().map(view).to_vec(),
        unconfirmed: vec![ServerId(1)],
    }
}

pub(super) fn table() -> IdentityTable {
    IdentityTable {
        version: 3,
        identities: records::identities().map(|i| (IdentityId(4), i)).to_vec(),
    }
}
