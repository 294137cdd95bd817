//! A localised directory (IndexFS §II-D): what is made below it is made here, by the product's own
//! operations, and inserted in bulk.
//!
//! What was made is durable, and others see it, when it was given back ([`Localised::give_back`]); a program
//! that dies before loses what was not inserted. The server decides: if the lease is over, what was not
//! inserted is refused as a whole (ESTALE), whatever the clocks say.

mod tree;

use crate::Client;
use crate::file::block_errno;
use pando_data::{Blocks, FileKey};
use pando_format::NumberRun;
use pando_types::{Cred, DirId, Errno, Generation, Ino, Mono, Timestamp};
use pando_wire::{Answer, Bulk, Bulked, Op, Outcome, Statement};
use std::rc::Rc;
use std::time::Duration;
use tree::{Here, Tree};

/// A table is inserted when it has so many bytes, unless [`Localised::insert_after`] says another number,
const BYTES: usize = 4 << 20;
/// or records,
const RECORDS: usize = 16_384;
/// or adds to so many directories that are there.
const BASES: usize = 48;
/// Numbers are asked for when fewer are left.
const SPARE: u64 = 64;

/// Whether more can be made in a localised directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Going {
    /// It can.
    On,
    /// Others want to come in: all was inserted, and the directory given back.
    Over,
}

/// A directory that this client has for itself.
pub struct Localised {
    client: Rc<Client>,
    blocks: Rc<dyn Blocks>,
    cred: Cred,
    dir: Statement,
    lease: Generation,
    table: Ino,
    batch: u64,
    tree: Tree,
    renew_at: Mono,
    /// The server's calendar time, and when it was heard.
    time: (Timestamp, Mono),
    over: bool,
    entries: u64,
    /// Bytes after which a table is inserted.
    bytes: usize,
}

impl Client {
    /// Localises an empty directory. ENOTSUP: this filesystem, or this directory, cannot be. ENOTEMPTY: there
    /// is something in it. While somebody else has it, it is waited for.
    pub async fn localize(
        self: &Rc<Self>,
        cred: &Cred,
        dir: &Statement,
        blocks: Rc<dyn Blocks>,
    ) -> Result<Localised, Errno> {
        let asked = self.world.mono();
        match self.step(cred, dir, Bulk::Localize).await? {
            Bulked::Localized {
                lease,
                table,
                millis,
                now,
                numbers,
            } => Ok(Localised {
                client: self.clone(),
                blocks,
                cred: cred.clone(),
                dir: dir.clone(),
                lease,
                table,
                batch: 0,
                tree: Tree::new(dir, numbers, now),
                renew_at: renewal(asked, millis),
                time: (now, self.world.mono()),
                over: false,
                entries: 0,
                bytes: BYTES,
            }),
            _ => Err(Errno::Io),
        }
    }

    async fn step(&self, cred: &Cred, dir: &Statement, step: Bulk) -> Result<Bulked, Errno> {
        let dir = dir.clone();
        match self.op(cred, Op::Bulk { dir, step }).await? {
            Answer::Bulk(bulked) => Ok(bulked),
            _ => Err(Errno::Io),
        }
    }
}

/// When a lease is renewed that was asked for then.
fn renewal(asked: Mono, millis: u32) -> Mono {
    asked.after(Duration::from_millis(u64::from(millis) / 3))
}

impl Localised {
    /// The directory.
    pub fn dir(&self) -> &Statement {
        &self.dir
    }

    /// The number of its lease.
    pub fn lease(&self) -> Generation {
        self.lease
    }

    /// Entries that were inserted so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// A table is inserted when it has so many bytes: fewer are lost with a client that dies, and more are
    /// inserted with less work.
    pub fn insert_after(&mut self, bytes: usize) {
        self.bytes = bytes.min(BYTES);
    }

    /// Carries out an operation here. Statements in its answers are good for operations here alone. EBUSY: it
    /// concerns what was inserted before, or the directory was given back: it is to be asked of the servers.
    /// ENOTSUP: it is none that can be done here.
    pub fn carry_out(&mut self, op: &Op) -> Outcome {
        if self.over {
            return Err(Errno::Busy);
        }
        let map = self.client.map();
        let here = Here {
            cred: &self.cred,
            map: &map,
            now: self.now(),
            salt: self.client.world.random(),
        };
        self.tree.carry_out(op, &here)
    }

    /// By the server's clock.
    fn now(&self) -> Timestamp {
        let (then, heard) = self.time;
        let since = self.client.world.mono().since(heard);
        Timestamp::from_nanos(then.as_nanos() + since.as_nanos() as i128)
    }

    /// Nothing more is made in this directory, which is below the localised one.
    pub fn is_done(&mut self, dir: DirId) {
        self.tree.is_done(dir);
    }

    /// Does what is due: inserts what there is, if that is much, and renews the lease. To be called often.
    pub async fn tend(&mut self) -> Result<Going, Errno> {
        if self.over {
            return Ok(Going::Over);
        }
        let more = self.tree.numbers() < SPARE;
        if more || self.tree.is_full(self.bytes, RECORDS, BASES) {
            self.insert().await?;
        }
        let asked = self.client.world.mono();
        if !more && asked < self.renew_at {
            return Ok(Going::On);
        }
        let renew = Bulk::Renew {
            lease: self.lease,
            more,
        };
        match self.client.step(&self.cred, &self.dir, renew).await? {
            Bulked::Renewed { millis: 0, .. } => {
                self.end().await?;
                Ok(Going::Over)
            }
            Bulked::Renewed { millis, now, numbers } => {
                self.time = (now, self.client.world.mono());
                self.renew_at = renewal(asked, millis);
                self.renumber(numbers);
                Ok(Going::On)
            }
            Bulked::Localized { .. } | Bulked::Inserted { .. } | Bulked::Returned => Err(Errno::Io),
        }
    }

    fn renumber(&mut self, numbers: Option<NumberRun>) {
        if let Some(numbers) = numbers {
            self.tree.renumber(numbers);
        }
    }

    /// Inserts what there is. When this returns it is durable.
    pub async fn insert(&mut self) -> Result<(), Errno> {
        if self.over || self.tree.is_empty() {
            return Ok(());
        }
        let packed = self.tree.pack();
        let file = FileKey {
            ino: self.table,
            generation: self.lease,
        };
        let block_size = self.client.map().block_size as usize;
        for (n, block) in packed.bytes.chunks(block_size.max(1)).enumerate() {
            let written = self.blocks.write(file, n as u64, 0, block.to_vec()).await;
            written.map_err(block_errno)?;
        }
        let insert = Bulk::Insert {
            lease: self.lease,
            batch: self.batch,
            bytes: u32::try_from(packed.bytes.len()).map_err(|_| Errno::TooBig)?,
            sum: packed.sum,
        };
        match self.client.step(&self.cred, &self.dir, insert).await? {
            Bulked::Inserted { entries } => {
                self.entries += entries;
                self.batch += 1;
                self.tree.inserted();
                Ok(())
            }
            Bulked::Localized { .. } | Bulked::Renewed { .. } | Bulked::Returned => Err(Errno::Io),
        }
    }

    async fn end(&mut self) -> Result<(), Errno> {
        if self.over {
            return Ok(());
        }
        self.insert().await?;
        let lease = self.lease;
        self.client
            .step(&self.cred, &self.dir, Bulk::Return { lease })
            .await?;
        self.over = true;
        Ok(())
    }

    /// Inserts what is left and gives the directory back. When this returns everything is durable.
    pub async fn give_back(mut self) -> Result<u64, Errno> {
        self.end().await?;
        Ok(self.entries)
    }
}
