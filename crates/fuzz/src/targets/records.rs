//! What stands in stores, and travels between them.

use super::canonical;
use crate::memory::bounded;
use pando_format::{
    Batch, Codec, DecodeError, Key, KeyRange, LOCAL_SLOT, Mutation, Record, ReplyWrite, Scan, Target, Touch,
    XattrSet,
};
use pando_store::Bundle;

/// Keys as they stand in a store.
pub(crate) fn key(input: &[u8]) {
    let _ = canonical::<Key>(input);
    let Ok(key) = bounded(input.len(), || Key::decode(input)) else {
        return;
    };
    assert_eq!(key.encode(), input, "another form of {key:?}");
    assert_eq!(Key::from_bytes(&key.to_bytes()).as_ref(), Ok(&key));
    let slot = key.slot();
    let range = Scan::Slot(slot).range();
    assert!(range.contains(input), "{key:?} is not in its slot");
    assert!(!range.after(&key).contains(input));
    let part = match &key {
        Key::Attachment { part, hash, name, .. } => {
            let (part, first) = (*part, *hash);
            let last = first;
            assert!(Scan::AllAttachments { part, first, last }.range().contains(input));
            Scan::Attachments(part, *hash, name.clone()).range()
        }
        Key::Entry { part, hash, .. } => {
            assert!(Scan::Entries(*part).range().contains(input));
            assert!(Scan::EntriesFrom(*part, *hash).range().contains(input));
            Scan::Bucket(*part, *hash).range()
        }
        Key::Decision(_) => Scan::Decisions.range(),
        Key::Owed(_) => Scan::AllOwed.range(),
        Key::Prepared(of, _) => {
            assert!(Scan::AllPrepared.range().contains(input));
            Scan::Prepared(*of).range()
        }
        Key::PartNote(_) => Scan::PartNotes(slot).range(),
        Key::Line { dir, hash, .. } => Scan::LinesFrom(*dir, *hash).range(),
        Key::Garbage(..) => Scan::Garbage(slot).range(),
        Key::Orphan(..) => Scan::Orphans(slot).range(),
        Key::Reply(_, session, _) => {
            assert!(Scan::AllReplies(slot).range().contains(input));
            Scan::Replies(slot, *session).range()
        }
        Key::Session(_) => Scan::Sessions.range(),
        Key::RenameList { parent, .. } => Scan::RenameLists(*parent).range(),
        Key::Invalidation(_) => Scan::Invalidations.range(),
        Key::Identity(_) => Scan::Identities.range(),
        Key::Counter(_)
        | Key::Head(_)
        | Key::Parts(_)
        | Key::Touch(_)
        | Key::Local(_)
        | Key::Superblock
        | Key::HandOver => range,
    };
    assert!(part.contains(input), "{key:?} is not in {part:?}");
}

/// Ranges, as `fsck` asks for them, and a key in or out of one.
pub(crate) fn range(input: &[u8]) {
    let Ok((range, key)) = canonical::<(KeyRange, Key)>(input) else {
        let _ = canonical::<KeyRange>(input);
        return;
    };
    let bytes = key.encode();
    let inside = range.contains(&bytes);
    assert_eq!(inside, range.start <= bytes && bytes < range.end);
    let after = range.after(&key);
    assert!(!after.contains(&bytes));
    assert_eq!(after.end, range.end);
}

/// A stored value: first byte, length of the key; key; value. Checksums of inputs are put right, or nothing
/// else would ever be looked at.
pub(crate) fn record(input: &[u8]) {
    let Some((len, rest)) = input.split_first() else {
        return;
    };
    let (key, value) = rest.split_at(usize::from(*len).min(rest.len()));
    let as_it_is = bounded(value.len(), || Record::decode(key, value));
    assert!(as_it_is.is_err() || as_it_is.is_ok_and(|r| r.encode(key) == value));
    let mut whole = value.to_vec();
    whole.extend_from_slice(&crc32c(key, value).to_le_bytes());
    if let Ok(record) = bounded(whole.len(), || Record::decode(key, &whole)) {
        assert_eq!(record.encode(key), whole, "another form of {record:?}");
        if let Ok(key) = Key::decode(key) {
            fits(&key, &record);
        }
        use_record(&record);
    }
    let _ = canonical::<Record>(value);
}

/// The checksum of a value under a key, in the words of docs/format.md.
fn crc32c(key: &[u8], value: &[u8]) -> u32 {
    let mut sum = !0u32;
    for byte in key.iter().chain(value) {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0x82F6_3B78 & (sum & 1).wrapping_neg());
        }
    }
    !sum
}

fn fits(key: &Key, record: &Record) {
    let insert = Mutation::Insert {
        key: key.clone(),
        record: record.clone(),
    };
    assert_eq!(record.fits(key), insert.check().is_ok());
    assert_eq!(insert.slot(), key.slot());
}

pub(super) fn use_record(record: &Record) {
    match record {
        Record::Entry(entry) => match &entry.target {
            Target::Inode(inode) => assert_eq!(inode.attr().size, inode.size),
            Target::Dir(access) => {
                let attr = access.attr(&Touch::default().stat);
                assert_eq!(attr.perm, access.perm);
            }
            Target::Link(link) => assert_eq!(entry.target.identity(), (link.ino, link.generation)),
        },
        Record::Attachment(bytes) => {
            let _ = canonical::<XattrSet>(&bytes.0);
        }
        Record::Prepared(part) => part.mutations.iter().for_each(not_prepared),
        Record::RenameList(list) => {
            assert!(!list.is_empty());
            assert!(list.free_from(0).is_none_or(|v| !list.contains(v)));
        }
        Record::Identity(identity) => {
            // Debug text goes to logs: keys must not.
            for key in &identity.keys {
                assert!(format!("{key:?}").starts_with("IdentityKey(.., until"));
            }
        }
        _ => {}
    }
}

/// What is inside a prepared part is none.
fn not_prepared(mutation: &Mutation) {
    if let Mutation::Insert { record, .. } | Mutation::Update { record, .. } = mutation {
        let nested = matches!(record, Record::Prepared(_));
        assert!(!nested, "a prepared part inside a prepared part");
    }
}

/// Mutations, alone and in batches.
pub(crate) fn mutation(input: &[u8]) {
    let _ = canonical::<ReplyWrite>(input);
    if let Ok(mutation) = canonical::<Mutation>(input) {
        let _ = mutation.slot();
        let _ = mutation.check();
        if let Mutation::Insert { record, .. } | Mutation::Update { record, .. } = &mutation {
            use_record(record);
        }
    }
    if let Ok(batch) = canonical::<Batch>(input) {
        let prepared = Record::Prepared(pando_format::PreparedRecord {
            mutations: batch.mutations.clone(),
            reply: batch.reply.clone(),
        });
        // What can be prepared can be read again, unless it holds what is never prepared.
        let again = Record::from_bytes(&prepared.to_bytes());
        let nested = Err(DecodeError::Invalid("prepared part inside a prepared part"));
        assert!(again == Ok(prepared) || again == nested);
    }
}

/// All records of a slot, from another machine. Checksums are put right.
pub(crate) fn bundle(input: &[u8]) {
    let as_it_is = Bundle(input.to_vec());
    let decoded = bounded(input.len() * 2, || as_it_is.decode());
    assert_eq!(decoded.is_ok(), as_it_is.records().is_ok());
    let Ok(mut raw) = Vec::<(pando_format::codec::Blob, pando_format::codec::Blob)>::from_bytes(input) else {
        assert!(decoded.is_err());
        return;
    };
    for (key, value) in &mut raw {
        let body = value.0.len().saturating_sub(4);
        value.0.truncate(body);
        let sum = crc32c(&key.0, &value.0);
        value.0.extend_from_slice(&sum.to_le_bytes());
    }
    let raw: Vec<_> = raw.into_iter().map(|(k, v)| (k.0, v.0)).collect();
    let sound = Bundle::of(raw.clone());
    if let Ok(records) = sound.decode() {
        assert_eq!(sound.records().as_ref(), Ok(&raw));
        for ((key, record), (k, v)) in records.iter().zip(&raw) {
            assert!(record.fits(key));
            assert_eq!((key.encode(), record.encode(k)), (k.clone(), v.clone()));
            assert!(Scan::Slot(key.slot()).range().contains(k) || key.slot() == LOCAL_SLOT);
        }
    }
}
