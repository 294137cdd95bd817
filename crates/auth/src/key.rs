//! Keys that prove who somebody is.

use crate::secret::{SecretError, from_hex, to_hex};
use std::fmt;

/// 256 random bits that two sides share: a client's with the servers, or that of the servers among
/// themselves.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// From random bytes. REQUIRES: they come from a source fit for keys.
    pub fn new(random: [u8; 32]) -> Key {
        Key(random)
    }

    /// From its text form.
    pub fn from_hex(text: &str) -> Result<Key, SecretError> {
        from_hex(text).map(Key)
    }

    /// The text form: for the file that keeps it, never for logs.
    pub fn to_hex(&self) -> String {
        to_hex(&self.0)
    }

    /// Its bytes, to store and to wrap.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Tells keys of one owner apart and says nothing about them.
    pub fn name(&self) -> u64 {
        let hash = blake3::derive_key("pando key name v1", &self.0);
        let mut name = [0; 8];
        name.copy_from_slice(&hash[..8]);
        u64::from_le_bytes(name)
    }

    /// What handshakes are computed with.
    pub(crate) fn handshake(&self) -> [u8; 32] {
        blake3::derive_key("pando handshake v2", &self.0)
    }
}

/// Names a certificate's public key: what an identity's record holds in mode `tls`. Not a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Of a public key as it stands in certificates (SubjectPublicKeyInfo, DER). A certificate that is
    /// renewed for the same key keeps it.
    pub fn of(public_key: &[u8]) -> Fingerprint {
        Fingerprint(blake3::derive_key("pando public key v1", public_key))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:016x}..)", self.name())
    }
}
