//! Sealed answers: what a server says to a caller who has shown no right to hear it (H99). Only who was told
//! the key of the directory and generation, by a lookup that its permissions allowed, can open it; to anybody
//! else an entry that exists, one that does not and one in a directory that does not are the same number of
//! random bytes.

use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use pando_wire::SealKey;

/// Longest text that can be sealed.
pub const TEXT: usize = 1022;
/// Length of everything sealed: nonce, length and padded text, tag.
pub const SEALED: usize = NONCE + 2 + TEXT + 16;
const NONCE: usize = 24;

/// Seals a text under a nonce that is used once. `None` if it is too long.
pub fn seal(key: &SealKey, nonce: [u8; NONCE], text: &[u8]) -> Option<Vec<u8>> {
    let len = u16::try_from(text.len())
        .ok()
        .filter(|n| usize::from(*n) <= TEXT)?;
    let mut padded = vec![0; 2 + TEXT];
    padded[..2].copy_from_slice(&len.to_le_bytes());
    padded[2..2 + text.len()].copy_from_slice(text);
    let sealed = cipher(key)
        .encrypt(&XNonce::from(nonce), padded.as_slice())
        .ok()?;
    Some([&nonce[..], &sealed].concat())
}

/// Opens what was sealed under this key. `None` for everything else.
pub fn open(key: &SealKey, sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
    let padded = cipher(key).decrypt(&XNonce::from(*nonce), sealed).ok()?;
    let (len, text) = padded.split_first_chunk::<2>()?;
    text.get(..usize::from(u16::from_le_bytes(*len)))
        .map(<[u8]>::to_vec)
}

fn cipher(key: &SealKey) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&key.0.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> SealKey {
        SealKey(std::array::from_fn(|i| if i == 0 { n } else { 7 }))
    }

    #[test]
    fn only_the_key_opens() {
        for text in [&b""[..], b"x", &[9; TEXT]] {
            let sealed = seal(&key(1), [3; 24], text).unwrap();
            assert_eq!(sealed.len(), SEALED);
            assert_eq!(open(&key(1), &sealed).as_deref(), Some(text));
            assert_eq!(open(&key(2), &sealed), None);
            for i in [0, 23, 24, 26, SEALED - 1] {
                let mut damaged = sealed.clone();
                damaged[i] ^= 1;
                assert_eq!(open(&key(1), &damaged), None, "byte {i}");
            }
            assert_eq!(open(&key(1), &sealed[..SEALED - 1]), None);
        }
        assert_eq!(seal(&key(1), [3; 24], &[0; TEXT + 1]), None);
        assert_eq!(open(&key(1), b""), None);
        assert_eq!(open(&key(1), &[0; 30]), None);
    }
}
