//! The MAC of statements: what a lookup said about a directory can be shown to any server of the filesystem, and
//! nobody without its secret can make one up (H98).

use crate::Secret;
use crate::frame::{MAC, same};
use pando_format::Codec;
use pando_types::{DirId, FsId, Generation, IdentityId, Ino};
use pando_wire::{Handle, SealKey, Statement};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

/// The keys of one filesystem: the newest signs, all are accepted.
#[derive(Clone)]
pub struct StatementKeys {
    newest: [u8; 16],
    older: Vec<[u8; 16]>,
    /// What handles are signed with, the newest first.
    handles: Vec<[u8; 16]>,
    /// What the keys of directories are derived from.
    seals: [u8; 32],
}

impl std::fmt::Debug for StatementKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StatementKeys(.., {} older)", self.older.len())
    }
}

impl StatementKeys {
    /// From the secrets, the newest first.
    pub fn new(fs: FsId, newest: &Secret, older: &[Secret]) -> StatementKeys {
        let of = |secret: &Secret, purpose| {
            let mut key = [0; 16];
            key.copy_from_slice(&secret.derive(purpose, fs)[..16]);
            key
        };
        let key = |secret: &Secret| of(secret, "pando statement mac v1");
        let all = std::iter::once(newest).chain(older);
        let handles = all.map(|s| of(s, "pando handle mac v1")).collect();
        StatementKeys {
            newest: key(newest),
            older: older.iter().map(key).collect(),
            handles,
            seals: newest.derive("pando seal keys v1", fs),
        }
    }

    /// One identity's key of a directory in one incarnation: what is sealed about it for that identity opens with it.
    pub fn seal_key(&self, dir: DirId, generation: Generation, holder: IdentityId) -> SealKey {
        let mut text = [0; 28];
        text[..16].copy_from_slice(&dir.0.to_le_bytes());
        text[16..24].copy_from_slice(&generation.0.to_le_bytes());
        text[24..].copy_from_slice(&holder.0.to_le_bytes());
        SealKey(*blake3::keyed_hash(&self.seals, &text).as_bytes())
    }

    /// A handle of a file that an identity opened for writing.
    pub fn handle(&self, file: (Ino, Generation), holder: IdentityId) -> Handle {
        Handle(
            self.handles
                .first()
                .map_or(0, |key| handle_mac(key, file, holder)),
        )
    }

    /// Whether a server gave this handle of this file to this identity.
    pub fn opened(&self, handle: Handle, file: (Ino, Generation), holder: IdentityId) -> bool {
        self.handles
            .iter()
            .any(|key| same(handle_mac(key, file, holder), handle.0))
    }

    /// Signs a statement for one identity.
    pub fn sign(&self, s: &mut Statement, holder: IdentityId) {
        s.mac = mac(&self.newest, s, holder);
    }

    /// Whether a server of this filesystem gave the statement, as it is, to this identity. The one of the place above
    /// the root is known to all and needs no signature.
    pub fn made(&self, s: &Statement, holder: IdentityId) -> bool {
        let signed = std::iter::once(&self.newest)
            .chain(&self.older)
            .any(|key| same(mac(key, s, holder), s.mac));
        signed || *s == Statement::above_root()
    }
}

fn handle_mac(key: &[u8; 16], (ino, generation): (Ino, Generation), holder: IdentityId) -> u128 {
    let mut h = SipHasher24::new_with_key(key);
    h.write(&(ino, (generation, holder)).to_bytes());
    h.finish128().as_u128()
}

/// Over the statement as it is sent, but for the MAC itself, which stands last; after the number of whom it was given.
fn mac(key: &[u8; 16], s: &Statement, holder: IdentityId) -> u128 {
    let mut text = Vec::with_capacity(256);
    holder.put(&mut text);
    s.put(&mut text);
    text.truncate(text.len() - MAC);
    let mut h = SipHasher24::new_with_key(key);
    h.write(&text);
    h.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::{Name, Perm, Realm};

    fn statement() -> Statement {
        Statement {
            parent: DirId(10),
            parent_generation: Generation(11),
            name: Name::new(b"name").unwrap(),
            id: DirId(12),
            generation: Generation(13),
            ino: Ino(14),
            salt: 15,
            perm: Perm::new(0o750),
            uid: 16,
            gid: 17,
            acl: 18,
            realm: Realm(19),
            version: 20,
            mac: 0,
        }
    }

    fn keys(fs: u128, newest: u8, older: &[u8]) -> StatementKeys {
        let secret = |b: &u8| Secret::new([*b; 32]);
        let older: Vec<Secret> = older.iter().map(secret).collect();
        StatementKeys::new(FsId(fs), &secret(&newest), &older)
    }

    #[test]
    fn any_other_field_is_another_statement() {
        let keys = keys(1, 1, &[]);
        let me = IdentityId(7);
        assert!(!keys.made(&statement(), me));
        let mut signed = statement();
        keys.sign(&mut signed, me);
        assert!(keys.made(&signed, me));
        assert!(!keys.made(&signed, IdentityId(8)), "somebody else's");
        let changes: [fn(&mut Statement); 14] = [
            |s| s.parent.0 ^= 1,
            |s| s.parent_generation.0 ^= 1,
            |s| s.name = Name::new(b"namf").unwrap(),
            |s| s.id.0 ^= 1 << 100,
            |s| s.generation.0 ^= 1 << 40,
            |s| s.ino.0 ^= 1,
            |s| s.salt ^= 1,
            |s| s.perm = Perm::new(0o777),
            |s| s.uid = 1000,
            |s| s.gid = 1000,
            |s| s.acl = 0,
            |s| s.realm = Realm(0),
            |s| s.version += 1,
            |s| s.mac ^= 1,
        ];
        for (i, change) in changes.iter().enumerate() {
            let mut forged = signed.clone();
            change(&mut forged);
            assert!(!keys.made(&forged, me), "change {i}");
        }
    }

    #[test]
    fn handles_are_of_one_file_and_one_identity() {
        let (file, me) = ((Ino(1), Generation(2)), IdentityId(3));
        let handle = keys(1, 1, &[]).handle(file, me);
        assert!(keys(1, 1, &[]).opened(handle, file, me));
        assert!(
            keys(1, 2, &[1]).opened(handle, file, me),
            "a restart with a newer secret"
        );
        for (h, f, i) in [
            (handle, file, IdentityId(4)),
            (handle, (Ino(2), Generation(2)), me),
            (handle, (Ino(1), Generation(3)), me),
            (Handle(handle.0 ^ 1), file, me),
            (Handle(0), file, me),
        ] {
            assert!(!keys(1, 1, &[]).opened(h, f, i));
        }
        assert!(!keys(2, 1, &[]).opened(handle, file, me));
        assert!(!keys(1, 2, &[]).opened(handle, file, me));
    }

    #[test]
    fn other_filesystems_and_secrets_are_strangers_and_old_ones_are_not() {
        let mut signed = statement();
        let me = IdentityId::ANYONE;
        keys(1, 1, &[]).sign(&mut signed, me);
        assert!(!keys(2, 1, &[]).made(&signed, me));
        assert!(!keys(1, 2, &[3]).made(&signed, me));
        assert!(keys(1, 2, &[3, 1]).made(&signed, me));
        assert!(keys(1, 2, &[]).made(&Statement::above_root(), me));
    }
}
