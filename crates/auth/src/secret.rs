//! The secrets all servers of a filesystem share.

use crate::{Key, StatementKeys};
use pando_types::FsId;
use std::fmt;
use thiserror::Error;

/// 256 random bits that every server of a filesystem has and no client.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// Why a text is not a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a secret is 64 hexadecimal digits on a line of its own")]
pub struct SecretError;

impl Secret {
    /// From random bytes. REQUIRES: they come from a source fit for keys.
    pub fn new(random: [u8; 32]) -> Secret {
        Secret(random)
    }

    /// From its text form.
    pub fn from_hex(text: &str) -> Result<Secret, SecretError> {
        from_hex(text).map(Secret)
    }

    /// The secrets of a file, one on a line, the newest first. There may be none.
    pub fn from_lines(text: &str) -> Result<Vec<Secret>, SecretError> {
        text.lines().map(|line| Secret::from_hex(line.trim())).collect()
    }

    /// The text form: for the file that keeps it, never for logs.
    pub fn to_hex(&self) -> String {
        to_hex(&self.0)
    }

    /// The key by which servers and operators of a filesystem know each other.
    fn cluster_key(&self, fs: FsId) -> Key {
        Key::new(self.derive("pando cluster key v1", fs))
    }

    /// A key for one purpose and one filesystem: what is signed under it means nothing elsewhere.
    pub(crate) fn derive(&self, purpose: &str, fs: FsId) -> [u8; 32] {
        let mut h = blake3::Hasher::new_derive_key(purpose);
        h.update(&self.0);
        h.update(&fs.0.to_le_bytes());
        *h.finalize().as_bytes()
    }
}

/// All secrets that a filesystem's servers accept: the newest is used, the others are old or yet to come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Secrets {
    fs: FsId,
    newest: Secret,
    others: Vec<Secret>,
    credulous: bool,
}

impl Secrets {
    /// The one in use, and the others.
    pub fn new(fs: FsId, newest: Secret, others: Vec<Secret>) -> Secrets {
        Secrets {
            fs,
            newest,
            others,
            credulous: false,
        }
    }

    /// Of servers that neither sign nor check statements. Only for a benchmark, which runs such servers in
    /// its own process to see what statements cost: whoever reaches them can read and change everything.
    pub fn without_statements(self) -> Secrets {
        Secrets {
            credulous: true,
            ..self
        }
    }

    /// What this process proves with that it is a server or an operator.
    pub fn cluster_key(&self) -> Key {
        self.newest.cluster_key(self.fs)
    }

    /// What other servers and operators may prove it with.
    pub fn cluster_keys(&self) -> Vec<Key> {
        let all = std::iter::once(&self.newest).chain(&self.others);
        all.map(|s| s.cluster_key(self.fs)).collect()
    }

    /// What signs statements.
    pub fn statement_keys(&self) -> StatementKeys {
        let keys = StatementKeys::new(self.fs, &self.newest, &self.others);
        if self.credulous { keys.credulous() } else { keys }
    }
}

pub(crate) fn from_hex(text: &str) -> Result<[u8; 32], SecretError> {
    let digits = text.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() {
        return Err(SecretError);
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let nibble = |c: u8| char::from(c).to_digit(16).ok_or(SecretError);
        *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
    }
    Ok(bytes)
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let secret = Secret::new(std::array::from_fn(|i| i as u8 * 7));
        assert_eq!(Secret::from_hex(&secret.to_hex()), Ok(secret.clone()));
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let zeros = "0".repeat(64);
        for bad in [
            "",
            "00",
            &zeros[1..],
            &format!("{zeros}0"),
            &format!("g{}", &zeros[1..]),
            &"é".repeat(32),
        ] {
            assert_eq!(Secret::from_hex(bad), Err(SecretError), "{bad}");
        }
    }
}
