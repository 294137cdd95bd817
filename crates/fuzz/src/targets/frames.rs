//! Frames: with checksums, as strangers send them, and with the MACs of a connection.

use super::hello::shaken;
use crate::memory::bounded;
use pando_types::FsId;
use pando_wire::{FRAME_HEADER, FRAME_MAX, FrameError, cut_frame, encode_frame};

/// The filesystem that the hellos of the corpus mean.
pub(crate) const FS: FsId = FsId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);

/// A byte stream in pieces: the first byte says how many lengths of pieces follow, then comes the stream.
/// However it is cut, it consists of the same frames and ends in the same error.
pub(crate) fn frames(input: &[u8]) {
    let Some((count, rest)) = input.split_first() else {
        return;
    };
    let (cuts, stream) = rest.split_at(usize::from(count % 16).min(rest.len()));
    let whole = cut_all([stream]);
    let mut pieces = Vec::new();
    let mut left = stream;
    for cut in cuts {
        let (piece, after) = left.split_at(usize::from(*cut).min(left.len()));
        pieces.push(piece);
        left = after;
    }
    pieces.push(left);
    authenticated(*count, stream, &pieces);
    assert_eq!(cut_all(pieces), whole, "frames depend on how the stream arrives");
    // Bytes that end no frame are not taken; frames are what their encoding says.
    let (payloads, end) = &whole;
    let mut encoded = Vec::new();
    for payload in payloads {
        encode_frame(&mut encoded, payload);
    }
    assert!(stream.starts_with(&encoded));
    if end.is_none() {
        let held = &stream[encoded.len()..];
        let announced = held.first_chunk().map_or(0, |l| u32::from_le_bytes(*l) as usize);
        assert!(held.len() < FRAME_HEADER + announced || held.len() < FRAME_HEADER);
        assert!(announced <= FRAME_MAX || held.len() < FRAME_HEADER);
    }
    // The same bytes as payloads: what is framed is cut out again, and no damage to it passes.
    let mut framed = Vec::new();
    encode_frame(&mut framed, stream);
    assert_eq!(cut_frame(&framed, FRAME_MAX), Ok(Some((stream, framed.len()))));
    let at = usize::from(*count) % framed.len();
    framed[at] ^= 1 << (count % 8);
    assert!(!matches!(cut_frame(&framed, FRAME_MAX), Ok(Some((_, n))) if n == framed.len()));
}

type Cut = (Vec<Vec<u8>>, Option<FrameError>);

/// As `net` does it: what is left of one piece is joined with the next.
fn cut_all<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Cut {
    let (mut held, mut payloads) = (Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            match bounded(0, || cut_frame(&held, FRAME_MAX)) {
                Ok(Some((payload, used))) => {
                    payloads.push(payload.to_vec());
                    held.drain(..used);
                }
                Ok(None) => break,
                Err(e) => return (payloads, Some(e)),
            }
        }
    }
    (payloads, None)
}

/// The same stream on a connection whose frames are authenticated: its bytes are no frame of ours, and its
/// pieces, sent in frames, arrive as they are and no other way.
fn authenticated(count: u8, stream: &[u8], pieces: &[&[u8]]) {
    let (mut ours, theirs) = shaken();
    let mut receive = theirs.receive;
    let arbitrary = bounded(0, || receive.cut(stream));
    assert!(!matches!(arbitrary, Ok(Some(_))), "a frame that nobody sent");
    let mut sent = Vec::new();
    for piece in pieces {
        ours.send.encode(&mut sent, piece);
    }
    // Sent back, they are nobody's.
    assert!(!matches!(ours.receive.cut(&sent), Ok(Some(_))), "reflected");
    let mut damaged = sent.clone();
    let at = usize::from(count) * 31 % damaged.len();
    damaged[at] ^= 1 << (count % 8);
    let (mut before, mut rest) = (0, damaged.as_slice());
    let (_, theirs) = shaken();
    let mut other = theirs.receive;
    while let Ok(Some((payload, used))) = other.cut(rest) {
        assert_eq!(Some(&payload), pieces.get(before));
        before += 1;
        rest = &rest[used..];
    }
    assert!(before < pieces.len(), "damage passes");
    // Cut anywhere, as `net` does it.
    let (mut held, mut arrived) = (Vec::new(), Vec::new());
    for part in sent.chunks(usize::from(count) + 1) {
        held.extend_from_slice(part);
        while let Ok(Some((payload, used))) = receive.cut(&held) {
            arrived.push(payload.to_vec());
            held.drain(..used);
        }
    }
    assert!(held.is_empty() && arrived == *pieces);
}
