//! Writing a batch, and telling the store which reply record it makes obsolete.

use crate::pipeline::Asked;
use crate::{Failure, MetaServer};
use pando_format::{Batch, Key, Mutation, Scan};
use pando_store::{Lsn, StoreError};
use pando_types::plant;
use std::time::Duration;

impl MetaServer {
    /// Applies a batch, remembering where its session has a reply record.
    pub(crate) fn apply(&self, batch: &Batch) -> Result<Lsn, Failure> {
        if let Some(reply) = &batch.reply
            && let Key::Reply(slot, session, _) = reply.key
        {
            self.admission.sessions.borrow_mut().wrote(session, slot);
        }
        self.apply_noted(batch)
    }

    /// The same for what a request does that runs here. Its lane's last reply record is not needed any more
    /// then (H46), but for what may be asked of a coordinator: the next one may be asked too, late, and looks
    /// for the record here.
    pub(in crate::pipeline) fn apply_asked(&self, asked: &Asked<'_>, batch: &Batch) -> Result<Lsn, Failure> {
        let coordinated = asked.op.traits().coordinated;
        let (Some(request), Some(reply), false) = (asked.request, &batch.reply, coordinated) else {
            return self.apply(batch);
        };
        let (ran_here, last) = self
            .admission
            .sessions
            .borrow_mut()
            .replies(request, reply.key.slot());
        if !ran_here {
            return self.apply(batch);
        }
        if let Some((slot, sequence)) = last {
            let key = Key::Reply(slot, request.session, request.slot);
            self.store.obsolete(&key, sequence.0);
        }
        self.apply_noted(batch)
    }

    fn apply_noted(&self, batch: &Batch) -> Result<Lsn, Failure> {
        if plant!(H3) || plant!(H4) {
            self.end_wrongly(batch)?;
        }
        self.change(batch)
    }

    /// Planted: with a directory go the rename lists of births in it (H3), or its content is deleted a second
    /// time, later and whatever is there by then (H4).
    fn end_wrongly(&self, batch: &Batch) -> Result<(), StoreError> {
        for m in &batch.mutations {
            if let Mutation::Delete { key: Key::Head(part) } = m {
                if plant!(H3) {
                    self.store.delete_range(&Scan::RenameLists(part.dir))?;
                } else {
                    let late = Batch::of(vec![m.clone()]);
                    self.spawn(|me| {
                        Box::pin(async move {
                            me.pause(Duration::from_millis(20)).await;
                            let _ = me.store.apply(&late);
                        })
                    });
                }
            }
        }
        Ok(())
    }
}
