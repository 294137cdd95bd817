//! The MAC of statements: what a lookup said about a directory can be shown to any server of the filesystem,
//! and nobody without its secret can make one up (H98).

use crate::Secret;
use crate::frame::{MAC, same};
use pando_format::Codec;
use pando_types::{Bearer, DirId, FsId, Generation, IdentityId, Ino, plant};
use pando_wire::{Handle, Said, SealKey, Statement};
use siphasher::sip128::{Hasher128, SipHasher24};
use std::cell::Cell;
use std::hash::Hasher;

/// The keys of one filesystem: the newest signs, all are accepted.
#[derive(Clone)]
pub struct StatementKeys {
    newest: [u8; 16],
    older: Vec<[u8; 16]>,
    /// What handles are signed with, the newest first.
    handles: Vec<[u8; 16]>,
    /// What proofs of an open are signed with, the newest first.
    proofs: Vec<[u8; 16]>,
    /// What the keys of directories are derived from.
    seals: [u8; 32],
    /// What the tags of directories are made with, the newest first.
    tags: Vec<[u8; 16]>,
    scratch: Scratch,
    /// Nothing is signed and everything is believed; only to measure what signing costs.
    credulous: bool,
}

/// Where statements are written out to be hashed: kept, so that checking one allocates nothing.
#[derive(Default)]
struct Scratch(Cell<Vec<u8>>);

impl Clone for Scratch {
    fn clone(&self) -> Scratch {
        Scratch::default()
    }
}

impl Scratch {
    /// Hands out the text that the MAC of a statement covers: its bearer, and all of it as it is sent but for
    /// the MAC itself, which stands last.
    fn with<T>(&self, s: &Statement, holder: Bearer, f: impl FnOnce(&[u8]) -> T) -> T {
        let mut text = self.0.take();
        text.clear();
        let identity = if plant!(G15) {
            IdentityId::ANYONE
        } else {
            holder.identity
        };
        let instance = if plant!(G16) {
            Default::default()
        } else {
            holder.instance
        };
        Bearer { identity, instance }.put(&mut text);
        if plant!(G66) {
            let bare = Said {
                acls: Default::default(),
                ..Said::clone(s)
            };
            bare.put(&mut text);
        } else {
            s.put(&mut text);
        }
        text.truncate(text.len() - MAC);
        let result = f(&text);
        self.0.set(text);
        result
    }
}

impl std::fmt::Debug for StatementKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StatementKeys(.., {} older)", self.older.len())
    }
}

impl StatementKeys {
    /// From the secrets, the newest first.
    pub fn new(fs: FsId, newest: &Secret, older: &[Secret]) -> StatementKeys {
        let fs = if plant!(G17) { FsId(0) } else { fs };
        let short = |secret: &Secret, purpose: &str| {
            let mut key = [0; 16];
            key.copy_from_slice(&secret.derive(purpose, fs)[..16]);
            key
        };
        let mac = |secret: &Secret| short(secret, "pando statement mac v1");
        let all = std::iter::once(newest).chain(older);
        let handles = all.clone().map(|s| short(s, "pando handle mac v1")).collect();
        let proofs = all.clone().map(|s| short(s, "pando proof mac v1")).collect();
        StatementKeys {
            newest: mac(newest),
            older: older.iter().map(mac).collect(),
            handles,
            proofs,
            seals: newest.derive("pando seal keys v1", fs),
            tags: all.map(|secret| short(secret, "pando tags v1")).collect(),
            scratch: Scratch::default(),
            credulous: false,
        }
    }

    /// The same, to measure what statements cost: they are neither signed nor checked.
    pub(crate) fn credulous(self) -> StatementKeys {
        StatementKeys {
            credulous: true,
            ..self
        }
    }

    /// The tag of a directory in one incarnation, as it stands in statements made from now on. Who has no key
    /// learns nothing from it.
    pub fn tag(&self, dir: DirId, generation: Generation) -> u64 {
        self.tags(dir, generation).next().unwrap_or(0)
    }

    /// All tags the directory may have in statements that are accepted.
    pub fn tags(&self, dir: DirId, generation: Generation) -> impl Iterator<Item = u64> {
        self.tags.iter().map(move |key| {
            let mut h = SipHasher24::new_with_key(key);
            h.write(&dir.0.to_le_bytes());
            h.write(&generation.0.to_le_bytes());
            // 0 is nobody's: it stands for all.
            (h.finish128().as_u128() as u64).max(1)
        })
    }

    /// One identity's key of a directory in one incarnation, while who may search it does not change: what is
    /// sealed about it for that identity opens with it.
    pub fn seal_key(&self, dir: DirId, generation: Generation, seal: u64, whose: IdentityId) -> SealKey {
        let mut text = [0; 36];
        if !plant!(H6) {
            text[..16].copy_from_slice(&dir.0.to_le_bytes());
            text[16..24].copy_from_slice(&generation.0.to_le_bytes());
            text[24..32].copy_from_slice(&seal.to_le_bytes());
            if !plant!(G32) {
                text[32..].copy_from_slice(&whose.0.to_le_bytes());
            }
        }
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

    /// Shows that an identity opened a file, for whatever: it may be told where that is.
    pub fn proof(&self, file: (Ino, Generation), holder: IdentityId) -> Handle {
        Handle(self.proofs.first().map_or(0, |key| handle_mac(key, file, holder)))
    }

    /// Whether a server gave this proof of this file to this identity.
    pub fn proved(&self, proof: Handle, file: (Ino, Generation), holder: IdentityId) -> bool {
        self.proofs
            .iter()
            .any(|key| same(handle_mac(key, file, holder), proof.0))
    }

    /// Signs a statement for whom it is given to.
    pub fn sign(&self, s: &mut Statement, holder: Bearer) {
        if self.credulous {
            return;
        }
        s.mac = self.scratch.with(s, holder, |text| mac(&self.newest, text));
    }

    /// Whether a server of this filesystem gave the statement, as it is, to who shows it. The one of the
    /// place above the root is known to all and needs no signature.
    pub fn made(&self, s: &Statement, holder: Bearer) -> bool {
        if self.credulous {
            return true;
        }
        let mut keys = std::iter::once(&self.newest).chain(&self.older);
        let signed = |text: &[u8]| keys.any(|key| same(mac(key, text), s.mac));
        self.scratch.with(s, holder, signed) || *s == Statement::above_root()
    }
}

fn handle_mac(key: &[u8; 16], (ino, generation): (Ino, Generation), holder: IdentityId) -> u128 {
    let mut h = SipHasher24::new_with_key(key);
    let file = if plant!(G13) {
        Default::default()
    } else {
        (ino, generation)
    };
    let holder = if plant!(G12) { IdentityId::ANYONE } else { holder };
    h.write(&(file.0, (file.1, holder)).to_bytes());
    h.finish128().as_u128()
}

fn mac(key: &[u8; 16], text: &[u8]) -> u128 {
    let mut h = SipHasher24::new_with_key(key);
    h.write(text);
    h.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_types::{Acl, Acls, Instance, Name, Perm, Realm, Watermark};
    use pando_wire::Scope;

    fn lists() -> Acls {
        let list = Acl::parse("u::7,u:18:5,g::5,o::0").unwrap();
        Acls {
            access: list.split().1,
            default: Some(list),
        }
    }

    fn statement() -> Statement {
        Statement::from(Said {
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
            acls: lists(),
            realm: Realm(19),
            seal: 20,
            scope: Scope::Link,
            way: vec![21, 22],
            at: Watermark(23),
            mac: 0,
        })
    }

    fn keys(fs: u128, newest: u8, older: &[u8]) -> StatementKeys {
        let secret = |b: &u8| Secret::new([*b; 32]);
        let older: Vec<Secret> = older.iter().map(secret).collect();
        StatementKeys::new(FsId(fs), &secret(&newest), &older)
    }

    const A: Bearer = Bearer {
        identity: IdentityId(1),
        instance: Instance(1),
    };

    #[test]
    fn any_other_field_is_another_statement() {
        let keys = keys(1, 1, &[]);
        assert!(!keys.made(&statement(), A));
        let mut signed = statement();
        keys.sign(&mut signed, A);
        assert!(keys.made(&signed, A));
        let changes: [fn(&mut Statement); 20] = [
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
            |s| s.acls.access = None,
            |s| s.acls.default = None,
            |s| s.realm = Realm(0),
            |s| s.seal += 1,
            |s| s.scope = Scope::Way,
            |s| s.way[0] ^= 1,
            |s| s.way.swap(0, 1),
            |s| s.way.truncate(1),
            |s| s.at.0 += 1,
            |s| s.mac ^= 1,
        ];
        for (i, change) in changes.iter().enumerate() {
            let mut forged = signed.clone();
            change(&mut forged);
            assert!(!keys.made(&forged, A), "change {i}");
        }
        let b = Bearer {
            instance: Instance(2),
            ..A
        };
        let c = Bearer {
            identity: IdentityId(2),
            ..A
        };
        assert!(
            !keys.made(&signed, b) && !keys.made(&signed, c),
            "somebody else's"
        );
    }

    /// What is written out for one statement is not in the way of the next, of another length.
    #[test]
    fn one_after_the_other() {
        let keys = keys(1, 1, &[]);
        let mut long = statement();
        long.way = (0..2048).collect();
        let mut short = statement();
        short.way = vec![1];
        for _ in 0..2 {
            for s in [&mut long, &mut short] {
                keys.sign(s, A);
                assert!(keys.made(s, A));
            }
        }
        assert_eq!(keys.clone().made(&long, A), keys.made(&long, A));
        short.mac = long.mac;
        assert!(!keys.made(&short, A));
    }

    #[test]
    fn a_proof_of_opening_is_no_handle() {
        let (file, me) = ((Ino(1), Generation(2)), IdentityId(3));
        let proof = keys(1, 1, &[]).proof(file, me);
        assert!(keys(1, 2, &[1]).proved(proof, file, me));
        assert!(!keys(1, 1, &[]).opened(proof, file, me));
        let handle = keys(1, 1, &[]).handle(file, me);
        assert!(!keys(1, 1, &[]).proved(handle, file, me));
        assert!(!keys(1, 1, &[]).proved(proof, file, IdentityId(4)));
        assert!(!keys(1, 1, &[]).proved(proof, (Ino(2), Generation(2)), me));
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
        keys(1, 1, &[]).sign(&mut signed, A);
        assert!(!keys(2, 1, &[]).made(&signed, A));
        assert!(!keys(1, 2, &[3]).made(&signed, A));
        assert!(keys(1, 2, &[3, 1]).made(&signed, A));
        assert!(keys(1, 2, &[]).made(&Statement::above_root(), A));
    }
}
