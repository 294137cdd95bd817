//! Directories in a ring, each of which is moved again and again into what is in the next one, and back.
//! Every move is fine by itself, all of them together make a loop, and no lock keeps them apart: nothing but
//! the order of decisions does (H20-H26).

use crate::opposed::Mover;
use crate::world::MS;
use pando_env::Env;
use pando_env::rng::Rng;
use pando_types::{Errno, Name, Perm};
use pando_wire::{Op, RenameMode, Statement};
use std::time::Duration;

/// The outer directory of a place in the ring.
fn outer(place: u64) -> String {
    format!("r{place}")
}

/// The directory in it, which stays there.
fn inner(place: u64) -> String {
    format!("i{place}")
}

impl Mover {
    /// Works at the ring until it is told to stop.
    pub(crate) async fn go_round(mut self, rng: &mut Rng, length: u64) {
        // Each has its own place first, and helps elsewhere now and then.
        let mine = rng.below(length);
        while self.goes_on() {
            let place = if rng.percent(85) { mine } else { rng.below(length) };
            let mut pause = MS;
            if !self.step(place, length).await {
                // Perhaps a server is away: looking again at once would find no more.
                pause = 50 * MS;
                self.look_around().await;
                self.complete(length).await;
            }
            let pause = rng.skewed(pause);
            self.life.sleep(Duration::from_nanos(pause)).await;
        }
    }

    fn named(&self, name: &str) -> Option<Statement> {
        let named = |p: &&Statement| p.name.as_bytes() == name.as_bytes();
        self.pieces.values().find(named).cloned()
    }

    /// Makes what is missing.
    async fn complete(&mut self, length: u64) {
        let perm = Perm::new(0o700);
        for place in 0..length {
            let Some(top) = self.top.clone() else { return };
            for (name, above) in [(outer(place), None), (inner(place), Some(outer(place)))] {
                let dir = match &above {
                    None => Some(top.clone()),
                    Some(above) => self.named(above),
                };
                let (None, Some(dir), Ok(new)) = (self.named(&name), dir, Name::new(name.as_bytes())) else {
                    continue;
                };
                let op = Op::Mkdir {
                    dir,
                    name: new,
                    mode: perm.into(),
                };
                if let Some(made) = self.dir(op).await
                    && let Some(handle) = self.reopened(&made).await
                {
                    self.pieces.insert(handle.id, handle);
                }
            }
        }
    }

    /// Moves an outer directory from the top into the next one's inner one, or back. False: something of it
    /// is not known.
    async fn step(&mut self, place: u64, length: u64) -> bool {
        let next = (place + 1) % length;
        let (Some(top), Some(moved)) = (self.top.clone(), self.named(&outer(place))) else {
            return false;
        };
        let Some(into) = self.named(&inner(next)) else {
            return false;
        };
        let (src, dst) = match moved.parent == top.id {
            true => (top, into),
            false if moved.parent == into.id => (into, top),
            false => return false,
        };
        let (to, name) = (dst.id, moved.name.clone());
        let op = Op::Rename {
            src,
            src_name: name.clone(),
            dst,
            dst_name: name,
            mode: RenameMode::NoReplace,
            held: false,
        };
        // Whatever comes of it: the judge knows whether that is right.
        match self.op(op).await {
            Ok(_) => {
                if let Some(piece) = self.pieces.get_mut(&moved.id) {
                    piece.parent = to;
                }
                true
            }
            // The next one is in it.
            Err(Errno::Invalid) => true,
            // Somebody else has moved it, or an answer was lost.
            Err(Errno::NotFound | Errno::Exists) => match self.reopened(&moved).await {
                Some(now) => {
                    self.pieces.insert(now.id, now);
                    true
                }
                None => false,
            },
            Err(_) => false,
        }
    }
}
