//! Cutting frames out of received bytes without copying them first.

use crate::conn::Conn;
use pando_auth::HELLO_MAX;
use pando_wire::{FRAME_HEADER, FRAME_MAX, FrameError};

/// As [`cut`], of a connection: by its keys if it has any, and strangers are not given more room than they need.
pub(crate) fn next<'a>(conn: &mut Conn, bytes: &'a [u8]) -> Result<Option<(&'a [u8], usize)>, FrameError> {
    match (&mut conn.keys, conn.stage.is_open()) {
        (Some(keys), true) => keys.receive.cut(bytes),
        (_, true) => cut(bytes, FRAME_MAX),
        (_, false) => cut(bytes, HELLO_MAX),
    }
}

/// The payload of the first frame of `bytes`, and how many bytes it took; `None` while it is not complete.
fn cut(bytes: &[u8], max: usize) -> Result<Option<(&[u8], usize)>, FrameError> {
    let Some((header, rest)) = bytes.split_first_chunk::<FRAME_HEADER>() else {
        return Ok(None);
    };
    let [l0, l1, l2, l3, c0, c1, c2, c3] = *header;
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if len > max.min(FRAME_MAX) {
        return Err(FrameError::TooLong(len));
    }
    let Some(payload) = rest.get(..len) else {
        return Ok(None);
    };
    if crc32c::crc32c(payload) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(FrameError::Checksum);
    }
    Ok(Some((payload, FRAME_HEADER + len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_wire_crate() {
        let mut stream = Vec::new();
        for n in [0usize, 1, 300] {
            pando_wire::encode_frame(&mut stream, &vec![n as u8; n]);
        }
        let mut at = 0;
        let mut seen = Vec::new();
        while let Ok(Some((payload, used))) = cut(&stream[at..], FRAME_MAX) {
            seen.push(payload.len());
            at += used;
        }
        assert_eq!((seen, at), (vec![0, 1, 300], stream.len()));
        assert_eq!(cut(&stream[17..19], FRAME_MAX), Ok(None));
        let last = stream.len() - 1;
        stream[last] ^= 1;
        assert_eq!(cut(&stream[17..], FRAME_MAX), Err(FrameError::Checksum));
        assert_eq!(cut(&stream[17..], HELLO_MAX), Err(FrameError::TooLong(300)));
    }
}
