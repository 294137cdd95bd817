//! Frames: how messages stand in a byte stream.
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | length of the payload, little-endian |
//! | 4 | CRC-32C of the payload |
//! | n | payload |
//!
//! The hello that opens a connection has the same form; its payload starts with the magic `PNDO`. On connections that were
//! authenticated by a key, a MAC stands in place of the checksum (`pando-auth`).

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

/// Cuts a byte stream into payloads. Holds at most one partial frame.
#[derive(Default)]
pub struct FrameReader {
    buffer: Vec<u8>,
    start: usize,
}

impl FrameReader {
    /// Adds bytes read from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        } else if self.start > 64 * 1024 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole payload, if there is one.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let rest = &self.buffer[self.start..];
        let Some(header) = rest.get(..FRAME_HEADER) else {
            return Ok(None);
        };
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let sum = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        if len > FRAME_MAX {
            return Err(FrameError::TooLong(len));
        }
        if rest.len() < FRAME_HEADER + len {
            return Ok(None);
        }
        let from = self.start + FRAME_HEADER;
        self.start = from + len;
        let payload = &self.buffer[from..from + len];
        if crc32c::crc32c(payload) != sum {
            return Err(FrameError::Checksum);
        }
        Ok(Some(payload))
    }

    /// Bytes held.
    pub fn buffered(&self) -> usize {
        self.buffer.len() - self.start
    }
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
            let mut reader = FrameReader::default();
            let mut seen = Vec::new();
            for part in stream.chunks(step) {
                reader.push(part);
                while let Ok(Some(p)) = reader.next_frame() {
                    seen.push(p.len());
                }
            }
            assert_eq!(seen, [0, 1, 7, 5000]);
            assert_eq!(reader.buffered(), 0);
        }
    }

    #[test]
    fn damage_and_length_are_refused() {
        let mut stream = Vec::new();
        encode_frame(&mut stream, b"hello");
        stream[9] ^= 1;
        let mut reader = FrameReader::default();
        reader.push(&stream);
        assert_eq!(reader.next_frame(), Err(FrameError::Checksum));
        let mut reader = FrameReader::default();
        reader.push(b"GET / HTTP/1.1\r\n");
        assert!(matches!(reader.next_frame(), Err(FrameError::TooLong(_))));
    }
}
