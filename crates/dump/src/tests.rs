//! What is written is read; what is changed on the way is noticed, with its place.

use super::*;
use crate::pax::{BLOCK, Header};
use blake3::Hasher;
use proptest::prelude::*;

fn begin() -> Begin {
    Begin {
        fs: "00ff".into(),
        metadata_only: false,
    }
}

/// The stream of these entries, each with data that its number and place decide.
fn stream(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &begin()).unwrap();
    for (n, entry) in entries.iter().enumerate() {
        writer.entry(entry).unwrap();
        let data = bytes(n, entry);
        for piece in data.chunks(777) {
            writer.data(piece).unwrap();
        }
    }
    writer.end().unwrap().0
}

fn bytes(n: usize, entry: &Entry) -> Vec<u8> {
    (0..entry.stored()).map(|i| (i * 7 + n as u64) as u8).collect()
}

fn read(stream: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, StreamError> {
    let mut reader = Reader::new(stream)?;
    assert_eq!(reader.begin(), &begin());
    let mut found = Vec::new();
    loop {
        match reader.next()? {
            Next::End(end) => {
                assert_eq!(end.entries, found.len() as u64);
                return Ok(found);
            }
            Next::Entry(entry) => {
                let (mut data, mut buffer) = (Vec::new(), [0; 1000]);
                loop {
                    match reader.data(&mut buffer)? {
                        0 => break,
                        n => data.extend_from_slice(&buffer[..n]),
                    }
                }
                found.push((entry, data));
            }
        }
    }
}

fn sample() -> Vec<Entry> {
    let file = |path: &str, size, extents: &[(u64, u64)]| Entry {
        size,
        extents: extents.to_vec(),
        perm: 0o4755,
        mtime: Timestamp {
            secs: -2,
            nanos: 500_000_000,
        },
        atime: Timestamp {
            secs: 1 << 40,
            nanos: 1,
        },
        ..Entry::new(path, FileKind::Regular)
    };
    let mut odd = file("a/\u{e4} \n=", 3, &[(0, 3)]);
    odd.path.extend_from_slice(b"\xff\xfe");
    let mut owned = file("a/owned", 0, &[]);
    (owned.uid, owned.gid, owned.ino, owned.nlink) = (u32::MAX - 1, 0o7_777_777, u64::MAX >> 1, 7);
    owned.xattrs = vec![
        (b"user.x=%y\n".to_vec(), b"\0\n=1".to_vec()),
        (b"user.z".to_vec(), Vec::new()),
    ];
    vec![
        Entry {
            perm: 0o1777,
            ..Entry::new("", FileKind::Directory)
        },
        Entry::new("a", FileKind::Directory),
        odd,
        owned,
        file("a/holes", 1 << 50, &[(4096, 10), (8192, 1), ((1 << 50) - 5, 5)]),
        file("a/tail", 10_000, &[(0, 512)]),
        Entry {
            has_data: false,
            ..file("a/metadata", 77, &[])
        },
        Entry {
            target: b"../\xff/x".to_vec(),
            ..Entry::new("a/link", FileKind::Symlink)
        },
        Entry {
            target: b"a/owned".to_vec(),
            link: true,
            ..Entry::new("a/second", FileKind::Regular)
        },
        Entry {
            device: (8, 1),
            ..Entry::new("a/device", FileKind::BlockDevice)
        },
        Entry::new("a/fifo", FileKind::Fifo),
        file("z", 70_000, &[(0, 70_000)]),
    ]
}

#[test]
fn what_is_written_is_read() {
    let entries = sample();
    let found = read(&stream(&entries)).unwrap();
    for (n, (entry, (again, data))) in entries.iter().zip(&found).enumerate() {
        assert_eq!(entry, again);
        assert_eq!(&bytes(n, entry), data);
    }
    assert_eq!(entries.len(), found.len());
}

#[test]
fn every_cut_is_noticed() {
    let whole = stream(&sample()[..8]);
    for len in 0..whole.len() {
        match read(&whole[..len]) {
            Err(StreamError::NotADump(_)) => assert_eq!(len, 0),
            Err(StreamError::Truncated { at, .. }) => assert_eq!(at, len as u64),
            other => panic!("cut at {len}: {other:?}"),
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let whole = stream(&sample()[..8]);
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        let found = read(&damaged);
        assert!(found.is_err(), "byte {at}");
        if let Err(StreamError::Damaged { at: noticed, .. }) = found {
            assert!(noticed >= at as u64, "byte {at} was noticed at {noticed}");
        }
    }
}

#[test]
fn what_is_no_dump() {
    let first = |bytes: &[u8]| match Reader::new(bytes) {
        Err(e) => e,
        Ok(_) => panic!("taken for a dump"),
    };
    assert!(matches!(first(b""), StreamError::NotADump(_)));
    assert!(matches!(first(&[b'x'; 2000]), StreamError::NotADump(_)));
    let mut other = stream(&[]);
    let at = other.windows(7).position(|w| w == b"pando=1").unwrap();
    other[at + 6] = b'2';
    assert!(matches!(first(&other), StreamError::Version(2)));
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    for path in ["..", "a/../b", "a//b", "/a", "a/", ".", "a/./b", "a\0b"] {
        let mut writer = Writer::new(Vec::new(), &begin()).unwrap();
        let entry = Entry::new(path, FileKind::Regular);
        assert!(
            matches!(writer.entry(&entry), Err(StreamError::Entry { .. })),
            "{path:?}"
        );
        let link = Entry {
            target: path.into(),
            link: true,
            ..Entry::new("x", FileKind::Regular)
        };
        assert!(writer.entry(&link).is_err(), "{path:?}");
    }
    let long = [b'x'; 256].to_vec();
    let mut writer = Writer::new(Vec::new(), &begin()).unwrap();
    assert!(writer.entry(&Entry::new(long, FileKind::Regular)).is_err());
    assert!(writer.entry(&Entry::new("s", FileKind::Socket)).is_err());
}

/// Puts every check right again, so that what comes behind the checks is tried too.
fn repair(stream: &mut [u8]) {
    let mut hash = Hasher::new();
    let (mut at, mut upto) = (0, 0);
    let digits = |hash: &Hasher| hash.finalize().to_hex()[..32].to_owned();
    while stream.len() >= at + BLOCK {
        seal(&mut stream[at..at + BLOCK]);
        let block: [u8; BLOCK] = stream[at..at + BLOCK].try_into().unwrap();
        let Some(header) = Header::parse(&block) else {
            return;
        };
        let size = usize::try_from(header.size).unwrap();
        let end = at + BLOCK + size.next_multiple_of(BLOCK);
        if header.flag == b'x' || header.flag == b'g' {
            if stream.len() < end + BLOCK {
                return;
            }
            seal(&mut stream[end..end + BLOCK]);
            hash.update(&stream[upto..at]);
            upto = at;
            let (own, next) = stream[at + BLOCK..].split_at_mut(size);
            put(own, b" before=", &digits(&hash));
            let from = own.windows(8).rposition(|w| w == b"comment=").unwrap_or(0);
            let record = own[..from].iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
            let mut this = Hasher::new();
            this.update(&own[..record])
                .update(&next[end - at - BLOCK - size..][..BLOCK]);
            if header.flag == b'x' {
                put(own, b" this=", &digits(&this));
            }
        }
        at = end;
    }
}

fn seal(block: &mut [u8]) {
    // The end of an archive is blocks of zeros.
    if block.iter().all(|b| *b == 0) {
        return;
    }
    let whole: [u8; BLOCK] = (&*block).try_into().unwrap();
    block[148..156].copy_from_slice(pax::checksum(&whole).as_bytes());
}

fn put(records: &mut [u8], word: &[u8], check: &str) {
    if let Some(at) = records.windows(word.len()).rposition(|w| w == word)
        && let Some(place) = records.get_mut(at + word.len()..at + word.len() + check.len())
    {
        place.copy_from_slice(check.as_bytes());
    }
}

#[test]
fn a_sound_stream_needs_no_repair() {
    let whole = stream(&sample()[..4]);
    let mut repaired = whole.clone();
    repair(&mut repaired);
    assert!(read(&repaired).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_passes_the_checks_makes_sense(changes in prop::collection::vec((0usize..20_000, any::<u8>()), 1..6)) {
        let mut whole = stream(&sample()[..11]);
        // The header of the whole has a check of its own.
        for (at, byte) in changes {
            let at = 2 * BLOCK + at % (whole.len() - 2 * BLOCK);
            whole[at] = byte;
        }
        repair(&mut whole);
        if let Ok(found) = read(&whole) {
            let entries: Vec<Entry> = found.into_iter().map(|(e, _)| e).collect();
            let again = read(&stream(&entries)).unwrap();
            prop_assert!(again.iter().map(|(e, _)| e).eq(entries.iter()));
        }
    }
}

proptest! {
    #[test]
    fn any_entry_is_read_as_it_was_written(
        parts in prop::collection::vec(prop::collection::vec(1u8..=255, 1..40), 0..5),
        perm in 0u16..0o10000, uid: u32, gid: u32, ino in 0..=(u64::MAX >> 1), nlink: u32,
        secs in -(1i64 << 60)..(1 << 60), nanos in 0u32..1_000_000_000,
        pieces in prop::collection::vec((1u64..5000, 1u64..3000), 0..6), tail in 0u64..5000,
    ) {
        let parts: Vec<Vec<u8>> = parts
            .into_iter()
            .map(|p| p.into_iter().map(|b| if b == b'/' { b'_' } else { b }).collect::<Vec<u8>>())
            .filter(|p| p != b"." && p != b"..")
            .collect();
        let mut entry = Entry::new(parts.join(&b'/'), FileKind::Regular);
        (entry.perm, entry.uid, entry.gid, entry.ino, entry.nlink) = (perm, uid, gid, ino, nlink);
        entry.mtime = Timestamp { secs, nanos };
        let mut end = 0;
        for (gap, len) in pieces {
            entry.extents.push((end + gap, len));
            end += gap + len;
        }
        entry.size = end + tail;
        let found = read(&stream(std::slice::from_ref(&entry))).unwrap();
        prop_assert_eq!(&found[0].1, &bytes(0, &entry));
        prop_assert_eq!(&found[0].0, &entry);
    }
}
