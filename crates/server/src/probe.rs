//! Answers to guesses: entries of directories the asker has no statement for (InfiniFS §3.3.2), sealed (H99).

use crate::execute::{Asked, Basis};
use crate::statements::Dirs;
use crate::{Failure, MetaServer};
use pando_auth::seal;
use pando_format::Codec;
use pando_format::codec::Blob;
use pando_store::Level;
use pando_types::{Bearer, Cred, Generation, plant};
use pando_wire::{Answer, EntryView, Op, Probe, Refusal, Response, Statement};

/// Most guesses of one message.
const MOST: usize = 256;

impl MetaServer {
    pub(crate) async fn probe(
        &self,
        message: u64,
        (holder, cred): (Bearer, &Cred),
        probes: Vec<Probe>,
    ) -> Result<Response, Failure> {
        if !self.knows_enough() && !plant!(H15) {
            return Err(Failure::Refused(Refusal::NotReady));
        }
        if probes.len() > MOST {
            return Err(Failure::Refused(Refusal::Invalid));
        }
        if probes.iter().any(|p| self.owner(p.dir.slot()) != self.id) {
            return Err(Failure::Refused(Refusal::NotOwner(self.map.epoch)));
        }
        let mut answers = Vec::new();
        for probe in probes {
            answers.push(Blob(self.sealed(message, (holder, cred), probe).await?));
        }
        // Nothing is shown that could still be lost (rule 8).
        self.safe(self.store.applied(), Level::Durable).await?;
        Ok(Response::Sealed(answers))
    }

    /// The entry under the key of its directory; for all else as many random bytes.
    async fn sealed(&self, message: u64, asker: (Bearer, &Cred), probe: Probe) -> Result<Vec<u8>, Failure> {
        let dir = probe.dir;
        let found = match self.guessed(message, asker, probe).await {
            Ok(found) => found,
            // A lock was not free: as good as nothing.
            Err(Failure::Refused(_)) => None,
            Err(e) => return Err(e),
        };
        let (generation, seal_number, text) = match found {
            Some((dir, entry)) => (dir.generation, dir.seal, entry.to_bytes()),
            // Sealed all the same, under a key that nobody gets.
            None => (Generation(self.world.random()), 0, Vec::new()),
        };
        if plant!(H99) {
            return Ok(text);
        }
        let key = self.keys.seal_key(dir, generation, seal_number, asker.0.identity);
        // An entry that is too long is looked up in the usual way.
        let sealed = seal::seal(&key, self.nonce(), &text).or_else(|| seal::seal(&key, self.nonce(), &[]));
        Ok(sealed.unwrap_or_default())
    }

    /// A lookup on nobody's behalf: who may hear of it is decided by who has the key.
    pub(crate) async fn guessed(
        &self,
        message: u64,
        (holder, cred): (Bearer, &Cred),
        probe: Probe,
    ) -> Result<Option<(Statement, EntryView)>, Failure> {
        let Some(head) = self.read_head(probe.dir).await? else {
            return Ok(None);
        };
        let dir = Statement {
            id: probe.dir,
            generation: head.generation,
            ino: head.ino,
            salt: head.salt,
            seal: head.seal,
            realm: head.realm,
            ..Statement::above_root()
        };
        let op = Op::Lookup {
            dir: dir.clone(),
            name: probe.name,
        };
        let asked = Asked {
            message,
            request: None,
            holder,
            cred: &Cred::root(),
            op: &op,
            dirs: Dirs::of(&op),
            told: cred,
            basis: Basis::Guess,
        };
        match self.execute(&asked, false).await?.outcome {
            Ok(Answer::Entry(entry)) => Ok(Some((dir, entry))),
            _ => Ok(None),
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
