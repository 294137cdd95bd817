//! Making a new, empty filesystem.

use pando_cluster::ClusterMap;
use pando_format::{
    AccessRecord, Batch, Entry, FORMAT_VERSION, Head, Key, Marks, Mutation, Record, Superblock, Target, Touch,
};
use pando_store::{Lsn, Store, StoreError};
use pando_types::{
    Birth, BootEpoch, DirId, DirStat, Generation, Ino, Name, Perm, Realm, ServerId, Timestamp,
};

/// What a store says of itself before it was ever started.
pub fn superblock(id: ServerId, map: &ClusterMap) -> Superblock {
    Superblock {
        format: FORMAT_VERSION,
        fs: map.fs,
        server: id,
        boot: BootEpoch(0),
        name_bits: map.name_bits,
        id_bits: map.id_bits,
        clean: true,
    }
}

/// Writes (or replaces) the superblock of server `id` and, where its slots are, the root directory, owned by
/// `uid` and `gid`. REQUIRES: the store is empty. The caller waits for the returned position to be synced.
pub fn format_store(
    store: &dyn Store,
    id: ServerId,
    map: &ClusterMap,
    now: Timestamp,
    (uid, gid): (u32, u32),
) -> Result<Lsn, StoreError> {
    let salt = (map.fs.0 >> 64) as u64 ^ map.fs.0 as u64;
    let mut batch = vec![Mutation::Update {
        key: Key::Superblock,
        record: Record::Superblock(superblock(id, map)),
    }];
    let mut insert = |key: Key, record: Record| {
        if map.home(&key) == id {
            batch.push(Mutation::Insert { key, record });
        }
    };
    let access = AccessRecord {
        id: DirId::ROOT,
        generation: Generation::ROOT,
        ino: Ino::ROOT,
        perm: Perm::new(0o755),
        uid,
        gid,
        ctime: now,
        realm: Realm(0),
        salt,
        version: 0,
        marks: Marks::NONE,
        seal: 0,
        acls: Default::default(),
    };
    let name = Name::root();
    insert(
        Key::Entry {
            part: DirId::ABOVE_ROOT.into(),
            hash: map.widths().name(0, &name),
            name: name.clone(),
        },
        // Ordinal 3: the first three positions are reserved.
        Record::Entry(Entry {
            ordinal: 3,
            target: Target::Dir(access),
        }),
    );
    let head = Head {
        generation: Generation::ROOT,
        ino: Ino::ROOT,
        birth: Birth {
            parent: DirId::ABOVE_ROOT,
            name: name.clone(),
            version: 0,
        },
        parent: DirId::ABOVE_ROOT,
        parent_generation: Generation::ABOVE_ROOT,
        name,
        realm: Realm(0),
        salt,
        split: 0,
        seal: 0,
        listed: false,
    };
    insert(Key::Head(DirId::ROOT.into()), Record::Head(head));
    let stat = DirStat::born(now);
    insert(
        Key::Touch(DirId::ROOT.into()),
        Record::Touch(Touch {
            stat,
            explicit: false,
        }),
    );
    store.apply(&Batch::of(batch))
}
