//! What holds for all values: codecs round-trip, damage is noticed, no bytes make a decoder panic.

use super::*;
use proptest::prelude::*;

fn any_name() -> impl Strategy<Value = Name> {
    let byte = any::<u8>().prop_map(|b| if b == 0 || b == b'/' { b'.' } else { b });
    prop::collection::vec(byte, 1..=NAME_MAX).prop_filter_map("dots", |bytes| Name::new(&bytes).ok())
}

fn any_key() -> impl Strategy<Value = Key> {
    let kinds = prop_oneof![Just(AttachmentKind::Data), Just(AttachmentKind::Target)];
    let numbers = (any::<u128>(), any::<u64>(), any::<u64>(), any::<u16>(), 0..SLOTS);
    (numbers, any_name(), kinds, 0usize..20).prop_map(|((wide, a, b, small, slot), name, kind, which)| {
        let (dir, hash, slot) = (DirId(wide), NameHash(a & NameHash::MAX.0), Slot(slot));
        let tx = TxId {
            coordinator: ServerId(small),
            boot: BootEpoch(a),
            number: b,
        };
        match which {
            0 => Key::Attachment {
                part: dir.into(),
                hash,
                name,
                kind,
            },
            1 => Key::Counter(slot),
            2 => Key::Decision(tx),
            3 => Key::Entry {
                part: dir.into(),
                hash,
                name,
            },
            4 => Key::Garbage(slot, Ino(a), Generation(b)),
            5 => Key::Head(dir.into()),
            6 => Key::Prepared(slot, tx),
            7 => Key::Reply(slot, SessionId(wide), RequestSlot(small)),
            8 => Key::Touch(dir.into()),
            9 => Key::Superblock,
            10 => Key::RenameList { parent: dir, name },
            11 => Key::Invalidation(Watermark(a)),
            12 => Key::Identity(IdentityId(a as u32)),
            13 => Key::Owed(tx),
            14 => Key::Orphan(slot, Ino(a), Generation(b)),
            15 => Key::Parts(dir),
            16 => Key::PartNote(Part::new(dir, small % SLOTS).unwrap_or(dir.into())),
            17 => Key::Local(dir.into()),
            18 => Key::Line { dir, hash, name },
            _ => Key::Session(SessionId(wide)),
        }
    })
}

/// A golden record with its numbers changed.
fn any_record() -> impl Strategy<Value = (Key, Record)> {
    let time = (any::<i64>(), 0..1_000_000_000u32).prop_map(|(secs, nanos)| Timestamp { secs, nanos });
    let bytes = prop::collection::vec(any::<u8>(), 0..300);
    (
        0..records().len(),
        any::<u64>(),
        any::<u8>(),
        time,
        bytes,
        any_name(),
    )
        .prop_map(|(which, n, small, time, bytes, name)| {
            let (_, key, mut record) = records().swap_remove(which);
            match &mut record {
                Record::Entry(Entry {
                    ordinal,
                    target: Target::Dir(d),
                }) => {
                    *ordinal = small;
                    (d.generation, d.perm, d.uid, d.ctime) =
                        (Generation(n), Perm::new(n as u16), n as u32, time);
                }
                Record::Entry(Entry {
                    ordinal,
                    target: Target::Inode(i),
                }) => {
                    *ordinal = small;
                    (i.size, i.perm, i.gid, i.mtime) = (n, Perm::new(n as u16), n as u32, time);
                    if let Layout::Target(t) = &mut i.layout {
                        t.0 = bytes;
                    }
                }
                Record::Entry(Entry {
                    ordinal,
                    target: Target::Link(l),
                }) => (*ordinal, l.ino) = (small, Ino(n)),
                Record::Head(h) => (h.salt, h.name, h.split) = (n, name, small),
                Record::Touch(t) => (t.stat.entries, t.stat.mtime) = (n, time),
                Record::Attachment(b) => b.0 = bytes,
                Record::Counter(c) => (c.reserved, c.epoch) = (n, n as u16),
                Record::Reply(r) => (r.sequence, r.answer.0) = (Sequence(n), bytes),
                Record::Decision(d) => d.participants = bytes.iter().map(|b| ServerId((*b).into())).collect(),
                Record::Owed(o) => (o.head.salt, o.head.name) = (n, name),
                Record::Prepared(p) => p.mutations.truncate(usize::from(small) % 5),
                Record::Orphan => {}
                Record::Local(l) => (l.batch, l.numbers.next) = (n, n),
                Record::Line(l) => (l.ordinal, l.ino) = (small, Ino(n)),
                Record::Part(p) => (p.generation, p.salt, p.depth) = (Generation(n), n, small),
                Record::Parts(p) => p.starts = bytes.iter().map(|b| u16::from(*b)).collect(),
                Record::PartNote(note) => {
                    if let PartNote::Coming(tx) = note {
                        tx.number = n;
                    }
                }
                Record::Garbage(g) => (g.size, g.holder) = (n, None),
                Record::Session(s) => s.opened = time,
                Record::HandOver(h) => h.epoch = MapEpoch(n),
                Record::RenameList(l) => {
                    *l = bytes
                        .iter()
                        .map(|b| u32::from(*b))
                        .chain([small.into()])
                        .collect()
                }
                Record::Invalidation(i) => i.generation = Generation(n),
                Record::Superblock(s) => (s.boot, s.clean) = (BootEpoch(n), small % 2 == 0),
                Record::Identity(i) => (i.change, i.revoked) = (n, Some(time)),
            }
            (key, record)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_round_trip(key in any_key()) {
        prop_assert_eq!(Key::decode(&key.encode()), Ok(key.clone()));
        prop_assert_eq!(Key::from_bytes(&key.to_bytes()), Ok(key.clone()));
        if key.slot() != LOCAL_SLOT {
            prop_assert!(Scan::Slot(key.slot()).range().contains(&key.encode()));
        }
    }

    #[test]
    fn records_round_trip((key, record) in any_record()) {
        let at = key.encode();
        prop_assert_eq!(Record::decode(&at, &record.encode(&at)), Ok(record.clone()));
        let sequence = match &record {
            Record::Reply(reply) => Some(reply.sequence),
            _ => None,
        };
        prop_assert_eq!(Record::sequence_of_reply(&record.encode(&at)), sequence);
        prop_assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
    }

    #[test]
    fn mutations_round_trip((key, record) in any_record(), other in any_key(), n in any::<i32>()) {
        let delta = TouchDelta { entries: n, subdirs: n.wrapping_neg(), time: TIME };
        let mutations = vec![
            Mutation::Insert { key: key.clone(), record: record.clone() },
            Mutation::Update { key, record },
            Mutation::Delete { key: other },
            Mutation::Touch { part: DIR.into(), delta },
        ];
        for mutation in &mutations {
            prop_assert_eq!(mutation.check(), Ok(()));
            prop_assert_eq!(&Mutation::from_bytes(&mutation.to_bytes()), &Ok(mutation.clone()));
        }
        let batch = Batch { mutations, reply: Some(ReplyWrite { key: Key::Reply(Slot(1), SESSION, RequestSlot(2)), record: reply() }) };
        prop_assert_eq!(Batch::from_bytes(&batch.to_bytes()), Ok(batch));
    }

    /// A flipped bit is reported, never served; so is a record under another key.
    #[test]
    fn damage_is_noticed((key, record) in any_record(), other in any_key(), bit in any::<prop::sample::Index>()) {
        let (at, mut bytes) = (key.encode(), record.encode(&key.encode()));
        if other != key {
            prop_assert_eq!(Record::decode(&other.encode(), &bytes), Err(DecodeError::Checksum));
        }
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(Record::decode(&at, &bytes), Err(DecodeError::Checksum));
    }

    /// Nothing that bytes can say makes a decoder panic or take more memory than was sent.
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = Key::decode(&bytes);
        let _ = Record::decode(&[], &bytes);
        let _ = Record::from_bytes(&bytes);
        let _ = Mutation::from_bytes(&bytes);
        let _ = Batch::from_bytes(&bytes);
        let _ = KeyRange::from_bytes(&bytes);
    }

    /// The same, past the first tags: valid bytes, cut or changed in one place.
    #[test]
    fn almost_valid_bytes_never_panic((key, record) in any_record(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mutation = Mutation::Insert { key: key.clone(), record };
        for bytes in [mutation.to_bytes(), key.encode()] {
            let at = at.index(bytes.len());
            let mut changed = bytes.clone();
            changed[at] = to;
            let _ = Mutation::from_bytes(&changed);
            let _ = Key::decode(&changed);
            prop_assert!(Mutation::from_bytes(&bytes[..at]).is_err());
        }
    }
}

/// A few bytes for each level must not lead a decoder as deep as its input is long: what is prepared is never
/// a prepared part.
#[test]
fn prepared_parts_do_not_nest() {
    let key = Key::Prepared(Slot(1), TX);
    let insert = |record| Mutation::Insert {
        key: key.clone(),
        record,
    };
    let part = |mutations| {
        Record::Prepared(PreparedRecord {
            mutations,
            reply: None,
        })
    };
    let whole = part(vec![insert(part(Vec::new()))]);
    let refused = DecodeError::Invalid("prepared part inside a prepared part");
    assert_eq!(Record::from_bytes(&whole.to_bytes()), Err(refused));
    // Two beside each other are as many batches are.
    let beside = Batch::of(vec![insert(part(Vec::new())), insert(part(Vec::new()))]);
    assert_eq!(Batch::from_bytes(&beside.to_bytes()), Ok(beside));
    // A frame full of levels: tag, one mutation, insert, key.
    let mut level = vec![8, 1, 0, 0, 0, 1];
    key.put(&mut level);
    let deep = level.repeat((4 << 20) / level.len());
    assert_eq!(Record::from_bytes(&deep), Err(refused));
}
