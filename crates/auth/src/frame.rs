//! Frames of authenticated connections: a MAC in place of the checksum.
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | length of the payload, little-endian |
//! | 16 | SipHash-2-4-128 under the key of this connection and direction, over the frame's number (8), the length (8) and the payload |
//! | n | payload |
//!
//! The number is not sent: both sides count. So a frame that is changed, left out, repeated, moved or sent
//! back does not match, and ends the connection.

use pando_types::plant;
use pando_wire::{FRAME_MAX, FrameError};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

/// Length of a MAC.
pub const MAC: usize = 16;
/// Bytes before the payload of an authenticated frame.
const HEADER: usize = 4 + MAC;

/// Compares in constant time, so that nobody learns how much of a guess was right.
pub(crate) fn same(a: u128, b: u128) -> bool {
    let difference = a ^ b;
    std::hint::black_box((difference >> 64) as u64 | difference as u64) == 0
}

/// The key of one direction of one connection, and how many frames went that way.
pub struct FrameKey {
    key: [u8; 16],
    number: u64,
}

/// Both directions, as one side uses them.
pub struct FrameKeys {
    /// What goes out.
    pub send: FrameKey,
    /// What comes in.
    pub receive: FrameKey,
}

impl FrameKey {
    pub(crate) fn new(key: [u8; 16]) -> FrameKey {
        FrameKey { key, number: 0 }
    }

    fn mac(&self, payload: &[u8]) -> u128 {
        let mut h = SipHasher24::new_with_key(&self.key);
        let mut head = [0; 16];
        if !plant!(G44) {
            head[..8].copy_from_slice(&self.number.to_le_bytes());
        }
        head[8..].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        h.write(&head);
        h.write(payload);
        h.finish128().as_u128()
    }

    /// Appends the next frame.
    pub fn encode(&mut self, out: &mut Vec<u8>, payload: &[u8]) {
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.mac(payload).to_le_bytes());
        out.extend_from_slice(payload);
        self.number += 1;
    }

    /// The payload of the first frame of `bytes`, and how many bytes it took; `None` while it is not
    /// complete.
    pub fn cut<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(&'a [u8], usize)>, FrameError> {
        let Some((len, rest)) = bytes.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*len) as usize;
        if len > FRAME_MAX {
            return Err(FrameError::TooLong(len));
        }
        let Some((mac, rest)) = rest.split_first_chunk::<MAC>() else {
            return Ok(None);
        };
        let Some(payload) = rest.get(..len) else {
            return Ok(None);
        };
        if !same(self.mac(payload), u128::from_le_bytes(*mac)) && !plant!(G43) {
            return Err(FrameError::Mac);
        }
        self.number += 1;
        Ok(Some((payload, HEADER + len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> FrameKey {
        FrameKey::new([n; 16])
    }

    /// Three frames, and where each begins.
    fn stream(key: &mut FrameKey) -> (Vec<u8>, Vec<usize>) {
        let (mut out, mut at) = (Vec::new(), Vec::new());
        for payload in [b"one".as_slice(), b"", b"three three"] {
            at.push(out.len());
            key.encode(&mut out, payload);
        }
        (out, at)
    }

    fn read(key: &mut FrameKey, mut bytes: &[u8]) -> Result<Vec<Vec<u8>>, FrameError> {
        let mut all = Vec::new();
        while let Some((payload, used)) = key.cut(bytes)? {
            all.push(payload.to_vec());
            bytes = &bytes[used..];
        }
        Ok(all)
    }

    #[test]
    fn what_was_sent_arrives_and_nothing_else() {
        let (sent, at) = stream(&mut key(1));
        assert_eq!(
            read(&mut key(1), &sent).unwrap(),
            [b"one".to_vec(), vec![], b"three three".to_vec()]
        );
        for cut in 0..sent.len() {
            // A stream that ends early is not read further than its last whole frame.
            let whole = at.iter().skip(1).filter(|a| **a <= cut).count();
            assert_eq!(read(&mut key(1), &sent[..cut]).unwrap().len(), whole, "{cut}");
        }
        for bit in 0..sent.len() * 8 {
            let mut damaged = sent.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let read = read(&mut key(1), &damaged).unwrap_or_default();
            assert!(read.len() < 3, "bit {bit}");
        }
        assert_eq!(
            read(&mut key(2), &sent),
            Err(FrameError::Mac),
            "another connection"
        );
        let repeated = [&sent[..at[1]], &sent[..at[1]]].concat();
        assert_eq!(read(&mut key(1), &repeated), Err(FrameError::Mac), "replayed");
        assert_eq!(
            read(&mut key(1), &sent[at[1]..]),
            Err(FrameError::Mac),
            "left out"
        );
        let moved = [&sent[at[1]..at[2]], &sent[..at[1]]].concat();
        assert_eq!(read(&mut key(1), &moved), Err(FrameError::Mac), "moved");
    }
}
