//! Frames: how messages stand in a byte stream.
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | length of the payload, little-endian |
//! | 4 | CRC-32C of the payload |
//! | n | payload |
//!
//! The hello that opens a connection has the same form; its payload starts with the magic `PNDO`. On
//! connections that were authenticated by a key, a MAC stands in place of the checksum (`pando-auth`).

use thiserror::Error;

/// Bytes before the payload.
pub const FRAME_HEADER: usize = 8;
/// Largest payload accepted.
pub const FRAME_MAX: usize = 4 * 1024 * 1024;

/// Why a stream cannot be read on. The connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// Longer than [`FRAME_MAX`].
    #[error("a frame of {0} bytes (at most {FRAME_MAX} are accepted): not a pando peer?")]
    TooLong(usize),
    /// The checksum does not match.
    #[error("frame checksum mismatch: not a pando peer, or a damaged stream")]
    Checksum,
    /// The MAC does not match.
    #[error("frame MAC mismatch: the stream was damaged or tampered with")]
    Mac,
}

/// Appends a frame around what `body` writes.
pub fn encode_frame(out: &mut Vec<u8>, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    out.extend_from_slice(payload);
}

/// The payload of the first frame of `bytes`, and how many bytes it took; `None` while it is not complete. A
/// payload longer than `max` is refused before it is there.
pub fn cut_frame(bytes: &[u8], max: usize) -> Result<Option<(&[u8], usize)>, FrameError> {
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
    fn frames_survive_any_cut() {
        let mut stream = Vec::new();
        for n in [0usize, 1, 7, 5000] {
            encode_frame(&mut stream, &vec![n as u8; n]);
        }
        for step in [1, 3, 8, 4096, stream.len()] {
            let (mut held, mut seen) = (Vec::new(), Vec::new());
            for part in stream.chunks(step) {
                held.extend_from_slice(part);
                while let Ok(Some((payload, used))) = cut_frame(&held, FRAME_MAX) {
                    seen.push(payload.len());
                    held.drain(..used);
                }
            }
            assert_eq!((seen, held.len()), (vec![0, 1, 7, 5000], 0));
        }
    }

    #[test]
    fn damage_and_length_are_refused() {
        let mut stream = Vec::new();
        encode_frame(&mut stream, b"hello");
        assert_eq!(cut_frame(&stream, 5), Ok(Some((&b"hello"[..], 13))));
        assert_eq!(cut_frame(&stream, 4), Err(FrameError::TooLong(5)));
        stream[9] ^= 1;
        assert_eq!(cut_frame(&stream, FRAME_MAX), Err(FrameError::Checksum));
        assert!(matches!(
            cut_frame(b"GET / HTTP/1.1\r\n", FRAME_MAX),
            Err(FrameError::TooLong(_))
        ));
    }
}
