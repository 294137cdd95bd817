//! Which identities records speak of: what is counted as given out is not only what has a name.

use pando_format::{Key, Mutation, Record};
use pando_types::{Generation, Ino, Slot};

/// Every identity in a record, also of what is removed, has no name, or is prepared and not decided.
pub fn identities(key: &Key, record: Option<&Record>, each: &mut dyn FnMut(Ino, Generation)) {
    if let Key::Garbage(_, ino, generation) | Key::Orphan(_, ino, generation) = key {
        each(*ino, *generation);
    }
    match record {
        Some(Record::Entry(entry)) => {
            let (ino, generation) = entry.target.identity();
            each(ino, generation);
        }
        Some(Record::Head(head)) => each(head.ino, head.generation),
        Some(Record::Owed(content)) => each(content.head.ino, content.head.generation),
        Some(Record::Prepared(part)) => {
            for mutation in &part.mutations {
                let record = match mutation {
                    Mutation::Insert { record, .. } | Mutation::Update { record, .. } => Some(record),
                    _ => None,
                };
                identities(&mutation.key(), record, each);
            }
        }
        _ => {}
    }
}

/// The ownership epoch in which a slot gave this generation, if it did.
pub fn epoch_of(generation: Generation, slot: Slot) -> Option<u16> {
    (generation.slot() == slot).then_some((generation.0 >> 48) as u16)
}
