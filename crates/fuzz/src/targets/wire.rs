//! Messages, what is sealed or signed in them, and the map.

use super::canonical;
use super::frames::FS;
use super::records::use_record;
use crate::memory::bounded;
use pando_auth::{Secret, StatementKeys, seal};
use pando_cluster::ClusterMap;
use pando_format::{Codec, Mutation};
use pando_types::{Bearer, Birth, DirId, Generation, IdentityId, Instance, Name, SLOTS, Slot};
use pando_wire::{
    Answer, ERRANDS_MAX, EntryView, Message, Op, Outcome, PeerRequest, Request, Response, SealKey, Statement,
};

/// Any message, and the outcome in a reply record.
pub(crate) fn message(input: &[u8]) {
    let _ = canonical::<Outcome>(input);
    let Ok(message) = canonical::<Message>(input) else {
        return;
    };
    match message {
        Message::Request {
            request: Request::Op(asked),
            ..
        } => ask(&asked.op),
        Message::Request {
            request: Request::Peer(PeerRequest::Prepare { mutations, .. }),
            ..
        } => {
            for mutation in mutations {
                if let Mutation::Insert { record, .. } | Mutation::Update { record, .. } = mutation {
                    use_record(&record);
                }
            }
        }
        Message::Reply {
            result: Ok(Response::Map(bytes)),
            ..
        } => map(&bytes.0),
        Message::Reply {
            result: Ok(response),
            account,
            ..
        } => {
            if let Some(Ok(answer)) = response.outcome() {
                show(answer);
                // Longer lists are no error: they are only told by servers.
                assert!(account.is_none_or(|a| a.rounds() <= a.errands.len().min(ERRANDS_MAX)));
            }
        }
        _ => {}
    }
}

/// What a server works out before it looks at anything.
fn ask(op: &Op) {
    assert!(!op.kind().is_empty());
    let said = op.statements().into_iter().flatten().count();
    let homeless = matches!(op, Op::StatFs | Op::Sync);
    assert_eq!(op.home().is_none(), homeless);
    assert_eq!(
        said == 0,
        homeless || matches!(op, Op::Release { .. } | Op::Home { .. })
    );
    assert!(op.mutates() || !op.grows());
}

/// Debug text goes to logs: keys must not.
fn show(answer: &Answer) {
    if let Answer::Entry(EntryView { seal: Some(key), .. }) = answer {
        assert_eq!(format!("{key:?}"), "SealKey(..)");
    }
}

fn keys() -> StatementKeys {
    StatementKeys::new(FS, &Secret::new([0x5a; 32]), &[Secret::new([0x5b; 32])])
}

/// Whom statements are signed for.
const HOLDER: Bearer = Bearer {
    identity: IdentityId(1),
    instance: Instance(1),
};

/// The key that the seeds of the corpus are sealed under.
pub(crate) fn seal_key() -> SealKey {
    SealKey([1; 32])
}

/// What a client opens: sealed bytes, and the same bytes as the text inside them, which a server in error
/// might seal.
pub(crate) fn sealed(input: &[u8]) {
    let key = seal_key();
    if let Some(text) = bounded(input.len(), || seal::open(&key, input)) {
        assert!(text.len() <= seal::TEXT);
        assert_eq!(input.len(), seal::SEALED, "sealed answers differ in length");
        let _ = canonical::<EntryView>(&text);
    }
    let _ = canonical::<EntryView>(input);
    let nonce = std::array::from_fn(|i| input.get(i).copied().unwrap_or(0));
    match seal::seal(&key, nonce, input) {
        Some(sealed) => {
            assert_eq!(sealed.len(), seal::SEALED);
            assert_eq!(seal::open(&key, &sealed).as_deref(), Some(input));
            let other = SealKey([3; 32]);
            assert_eq!(seal::open(&other, &sealed), None);
        }
        None => assert!(input.len() > seal::TEXT),
    }
}

/// Statements: nobody makes one up, and a signed one holds as it is and no other way.
pub(crate) fn statement(input: &[u8]) {
    let Ok(mut statement) = canonical::<Statement>(input) else {
        return;
    };
    let keys = keys();
    assert!(!keys.made(&statement, HOLDER) || statement == Statement::above_root());
    keys.sign(&mut statement, HOLDER);
    assert!(keys.made(&statement, HOLDER));
    let again = Statement::from_bytes(&statement.to_bytes());
    assert!(again.is_ok_and(|s| keys.made(&s, HOLDER)));
    for other in [
        Bearer {
            identity: IdentityId(2),
            ..HOLDER
        },
        Bearer {
            instance: Instance(2),
            ..HOLDER
        },
    ] {
        assert!(!keys.made(&statement, other), "somebody else's");
    }
    // One changed bit of what was signed.
    let at = usize::from(input[0]) % (input.len() - 16);
    let mut bytes = statement.to_bytes();
    bytes[at] ^= 1;
    if let Ok(forged) = Statement::from_bytes(&bytes) {
        assert!(!keys.made(&forged, HOLDER));
    }
}

/// A map that is accepted can be used.
pub(crate) fn map(input: &[u8]) {
    let _ = canonical::<ClusterMap>(input);
    let Ok(map) = bounded(input.len(), || ClusterMap::decode(input)) else {
        return;
    };
    for slot in [0, 1, SLOTS / 2, SLOTS - 1, SLOTS, u16::MAX] {
        let owner = map.owner(Slot(slot));
        assert!(map.server(owner).is_some(), "slot {slot} belongs to nobody");
    }
    for server in &map.servers {
        assert_eq!(map.server(server.id), Some(server), "two of one number");
    }
    assert!(map.block_size.is_power_of_two());
    assert!((1..=55).contains(&map.name_bits) && (8..=128).contains(&map.id_bits));
    let widths = map.widths();
    let name = Name::root();
    assert!(widths.name(map.epoch.0, &name) <= pando_format::NameHash::MAX);
    let birth = Birth {
        parent: DirId::ROOT,
        name,
        version: 0,
    };
    assert!(widths.dir_id(&birth).0 > 1);
    let _ = keys().seal_key(DirId::ROOT, Generation::ROOT, 0, IdentityId::ANYONE);
}
