//! Answers to guesses: entries of directories the asker has no statement for (InfiniFS §3.3.2), sealed (H99).

use crate::account::Notes;
use crate::facts::statements::Dirs;
use crate::pipeline::{Asked, Basis};
use crate::{Failure, MetaServer};
use pando_auth::seal;
use pando_format::Codec;
use pando_format::codec::Blob;
use pando_store::Level;
use pando_types::{Bearer, Cred, Generation, Name, Part, plant};
use pando_wire::{Answer, EntryView, Op, Probe, Refusal, Response, Said, Statement};
use std::cell::Cell;
use std::time::Duration;

/// Most guesses of one message.
const MOST: usize = 256;
/// Answers leave a multiple of so much after their questions came, longer than finding an entry takes: when
/// they come says nothing about what was found (H99).
const TICK: Duration = Duration::from_micros(100);
/// And so much longer for each guess.
const TICK_EACH: Duration = Duration::from_micros(10);
/// And up to so much later, by chance: what is left of the work in caches and queues is drowned in that.
const JITTER: Duration = Duration::from_micros(200);

/// What came of a guess.
#[expect(clippy::large_enum_variant, reason = "it is not kept")]
enum Guessed {
    Entry(Statement, EntryView),
    NoEntry,
    NoDirectory,
}

impl MetaServer {
    pub(crate) async fn probe(
        &self,
        message: u64,
        (holder, cred): (Bearer, &Cred),
        subtree: bool,
        probes: Vec<Probe>,
    ) -> Result<Response, Failure> {
        let came = self.world.mono();
        if !self.knows_enough() && !plant!(H15) {
            return Err(Failure::Refused(Refusal::NotReady));
        }
        if probes.len() > MOST {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        if probes
            .iter()
            .any(|p| self.owner(Part::whole(p.dir).slot()) != self.id)
        {
            return Err(Failure::Refused(Refusal::NotOwner(self.map().epoch)));
        }
        let mut answers = Vec::with_capacity(probes.len());
        for probe in probes {
            answers.push(Blob(self.sealed(message, (holder, cred), probe).await?));
        }
        // Nothing is shown that could still be lost (rule 8).
        self.safe(self.store.applied(), Level::Durable).await?;
        // To whom everything may be shown, nothing is hidden.
        if !cred.is_root() || subtree {
            let tick = TICK + TICK_EACH * answers.len() as u32;
            let spent = self.world.mono().since(came);
            let over = spent.as_nanos() % tick.as_nanos();
            let jitter = Duration::from_nanos(self.world.random() % JITTER.as_nanos() as u64);
            self.pause(tick - Duration::from_nanos(over as u64) + jitter)
                .await;
        }
        Ok(Response::Sealed(answers))
    }

    /// The entry under the key of its directory; for all else as many random bytes, after as much work.
    async fn sealed(&self, message: u64, asker: (Bearer, &Cred), probe: Probe) -> Result<Vec<u8>, Failure> {
        let dir = probe.dir;
        let (generation, seal_number, text) = match self.guessed(message, asker, &probe).await? {
            Guessed::Entry(dir, entry) => {
                let sealed = (dir.generation, dir.seal, entry.to_bytes());
                self.facts.decoy.replace(Some((dir, probe.name)));
                sealed
            }
            missing => {
                self.as_if_found(missing, message, asker).await?;
                // Sealed all the same, under a key that nobody gets.
                (Generation(self.world.random()), 0, Vec::new())
            }
        };
        if plant!(H99) {
            return Ok(text);
        }
        let key = self
            .facts
            .keys
            .seal_key(dir, generation, seal_number, asker.0.identity);
        // An entry that is too long is looked up in the usual way.
        let sealed = seal::seal(&key, self.nonce(), &text).or_else(|| seal::seal(&key, self.nonce(), &[]));
        Ok(sealed.unwrap_or_default())
    }

    /// What finding an entry takes beyond finding none. The grid of time hides the difference on a server
    /// that has nothing else to do; where others wait for the same processor, work itself would show.
    async fn as_if_found(
        &self,
        missing: Guessed,
        message: u64,
        asker: (Bearer, &Cred),
    ) -> Result<(), Failure> {
        let decoy = self.facts.decoy.borrow().clone();
        match (missing, decoy) {
            (Guessed::NoDirectory, Some((dir, name))) => {
                if let Guessed::Entry(_, entry) = self.look(message, asker, dir, &name).await? {
                    std::hint::black_box(entry.to_bytes());
                }
            }
            _ => {
                let mut nobody = Statement::above_root();
                nobody.way = vec![0; 2];
                self.facts.keys.sign(&mut nobody, asker.0);
                std::hint::black_box(nobody.to_bytes());
            }
        }
        Ok(())
    }

    /// A lookup on nobody's behalf: who may hear of it is decided by who has the key.
    async fn guessed(&self, message: u64, asker: (Bearer, &Cred), probe: &Probe) -> Result<Guessed, Failure> {
        let head = match self.read_head(probe.dir, false, &Notes::default()).await {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(Guessed::NoDirectory),
            // A lock was not free (a guess waits for none): as good as nothing.
            Err(Failure::Refused(_)) => return Ok(Guessed::NoEntry),
            Err(e) => return Err(e),
        };
        let dir = Statement::from(Said {
            id: probe.dir,
            generation: head.generation,
            ino: head.ino,
            salt: head.salt,
            seal: head.seal,
            realm: head.realm,
            ..Said::above_root()
        });
        self.look(message, asker, dir, &probe.name).await
    }

    async fn look(
        &self,
        message: u64,
        (holder, cred): (Bearer, &Cred),
        dir: Statement,
        name: &Name,
    ) -> Result<Guessed, Failure> {
        let op = Op::Lookup {
            dir: dir.clone(),
            name: name.clone(),
        };
        let asked = Asked {
            parts: [0, 0],
            keep: None,
            term: self.map().term,
            slot_changes: self.slot_changes(),
            message,
            request: None,
            holder,
            cred: &Cred::root(),
            op: &op,
            dirs: Dirs::of(&op),
            told: cred,
            basis: Basis::Guess,
            notes: &Notes::default(),
            change: Cell::default(),
            leases: Default::default(),
        };
        match self.execute(&asked, false).await.map(|done| done.outcome) {
            Ok(Ok(Answer::Entry(entry))) => Ok(Guessed::Entry(dir, entry)),
            Ok(_) | Err(Failure::Refused(_)) => Ok(Guessed::NoEntry),
            Err(e) => Err(e),
        }
    }

    fn nonce(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.world.random().to_le_bytes());
        }
        bytes
    }
}
