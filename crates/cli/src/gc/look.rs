//! One look at the records of all servers, for files that somebody speaks of.

use crate::connect::Connection;
use crate::fsck::{Collector, Unread};
use pando_client::Client;
use pando_data::{FileKey, StoredFile};
use pando_env::Env;
use pando_format::{Key, KeyRange, LOCAL_SLOT, Mutation, Record, Target};
use pando_types::{SLOTS, Slot};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Files with blocks that nobody has spoken of yet.
pub type Known = BTreeMap<FileKey, StoredFile>;

/// Strikes out all files that a record speaks of. Slot by slot, up or down; what is on its way between
/// servers is looked at before and after. It rests after each slot, for `pause`.
pub async fn look(
    conn: &Connection,
    upwards: bool,
    known: &mut Known,
    pause: Duration,
) -> Result<(), Unread> {
    let client = &conn.client;
    local(client, known).await?;
    for n in 0..SLOTS {
        let slot = Slot(if upwards { n } else { SLOTS - 1 - n });
        let server = client.map().owner(slot);
        let start = slot.0.to_be_bytes().to_vec();
        let end = (slot.0 + 1).to_be_bytes().to_vec();
        strike(client, server, KeyRange { start, end }, known).await?;
        if !pause.is_zero() {
            conn.reactor.sleep(pause).await;
        }
    }
    local(client, known).await
}

/// What servers have beside slots: prepared parts.
async fn local(client: &Rc<Client>, known: &mut Known) -> Result<(), Unread> {
    let servers: Vec<_> = client.map().servers.iter().map(|s| s.id).collect();
    for server in servers {
        let start = LOCAL_SLOT.0.to_be_bytes().to_vec();
        let end = vec![0xFF, 0xFF, 0xFF];
        strike(client, server, KeyRange { start, end }, known).await?;
    }
    Ok(())
}

async fn strike(
    client: &Rc<Client>,
    server: pando_types::ServerId,
    range: KeyRange,
    known: &mut Known,
) -> Result<(), Unread> {
    let mut damaged = false;
    Collector::new(client.clone())
        .stream(
            server,
            range,
            &mut |key, record| {
                speaks_of(&key, &record, &mut |file| {
                    known.remove(&file);
                })
            },
            &mut |_| damaged = true,
        )
        .await?;
    match damaged {
        true => Err(Unread::Damaged),
        false => Ok(()),
    }
}

/// The files that a record speaks of.
fn speaks_of(key: &Key, record: &Record, each: &mut dyn FnMut(FileKey)) {
    match (key, record) {
        (_, Record::Entry(entry)) => {
            // Names of files with several speak of them too: they come and go in other slots.
            let (ino, generation) = entry.target.identity();
            if !matches!(entry.target, Target::Dir(_)) {
                each(FileKey { ino, generation });
            }
        }
        (Key::Garbage(_, ino, generation), _) => each(FileKey {
            ino: *ino,
            generation: *generation,
        }),
        (_, Record::Prepared(part)) => {
            for mutation in &part.mutations {
                if let Mutation::Insert { key, record } | Mutation::Update { key, record } = mutation {
                    speaks_of(key, record, each);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_format::{GarbageRecord, PreparedRecord};
    use pando_types::{BootEpoch, Generation, Ino, ServerId, TxId};

    #[test]
    fn garbage_and_what_is_prepared_count() {
        let file = FileKey {
            ino: Ino(5),
            generation: Generation(9),
        };
        let key = Key::Garbage(Slot(1), file.ino, file.generation);
        let record = Record::Garbage(GarbageRecord {
            size: 0,
            block_size: 0,
            holder: None,
        });
        let spoken = |key: &Key, record: &Record| {
            let mut all = Vec::new();
            speaks_of(key, record, &mut |f| all.push(f));
            all
        };
        assert_eq!(spoken(&key, &record), [file]);
        let tx = TxId {
            coordinator: ServerId(0),
            boot: BootEpoch(1),
            number: 1,
        };
        let prepared = |mutations| {
            Record::Prepared(PreparedRecord {
                mutations,
                reply: None,
            })
        };
        let inserts = prepared(vec![Mutation::Insert {
            key: key.clone(),
            record,
        }]);
        assert_eq!(spoken(&Key::Prepared(Slot(1), tx), &inserts), [file]);
        let deletes = prepared(vec![Mutation::Delete { key }]);
        assert_eq!(spoken(&Key::Prepared(Slot(1), tx), &deletes), []);
    }
}
