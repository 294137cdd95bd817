//! Who works while a server joins.

use super::fill::{base, make_directory, make_file};
use crate::bench::meter::{Measured, Meter};
use crate::bench::{connect, on_threads};
use crate::cluster_dir::ClusterDir;
use crate::connect::Paths;
use crate::crew::Crew;
use anyhow::{Context, Result};
use pando_client::Client;
use pando_types::{Cred, Errno, Name};
use pando_wire::{Op, Statement};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Directories that each task works in, so that every server and many slots have some.
const DIRECTORIES: usize = 16;

/// What is going on.
pub const WARM: u8 = 0;
pub const BEFORE: u8 = 1;
pub const DURING: u8 = 2;
pub const STOP: u8 = 3;

/// How much they do.
#[derive(Clone, Copy)]
pub struct Crowd {
    /// Clients, each a thread.
    pub clients: usize,
    /// Tasks of each, with one operation at a time.
    pub depth: usize,
}

/// The state of those who work, and of what they are to know.
#[derive(Default)]
pub struct Shift {
    phase: AtomicU8,
    ready: AtomicUsize,
    ended: AtomicUsize,
}

impl Shift {
    /// From now on what begins, or is still under way, belongs to this.
    pub fn enter(&self, phase: u8) {
        self.phase.store(phase, Ordering::SeqCst);
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::SeqCst)
    }

    /// Waits until all work, or one has ended, which only happens early when it failed.
    pub fn wait_ready(&self, crowd: Crowd) {
        while self.ready.load(Ordering::SeqCst) < crowd.clients && self.ended.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What one client measures.
struct Notes {
    phase: u8,
    meters: [Meter; 2],
}

impl Notes {
    fn meter(&mut self) -> Option<&mut Meter> {
        match self.phase {
            BEFORE => Some(&mut self.meters[0]),
            DURING => Some(&mut self.meters[1]),
            _ => None,
        }
    }

    /// What goes on has changed.
    fn turn_to(&mut self, phase: u8) {
        if self.phase == phase {
            return;
        }
        if let Some(meter) = self.meter() {
            meter.end(0);
        }
        self.phase = phase;
        if let Some(meter) = self.meter() {
            meter.begin();
        }
    }
}

/// Works until the shift ends: what took how long before, and during.
pub fn work(place: &ClusterDir, crowd: Crowd, shift: &Arc<Shift>) -> Result<[Measured; 2]> {
    let parts = on_threads(crowd.clients, |client| {
        let result = one_client(place, crowd, shift, &format!("/load.{client}"));
        shift.ended.fetch_add(1, Ordering::SeqCst);
        result
    })?;
    let (mut before, mut during) = (Vec::new(), Vec::new());
    for [b, d] in parts {
        before.push(b);
        during.push(d);
    }
    Ok([
        Meter::sum("foreground before", before, false)?,
        Meter::sum("foreground during", during, false)?,
    ])
}

fn one_client(place: &ClusterDir, crowd: Crowd, shift: &Arc<Shift>, path: &str) -> Result<[Meter; 2]> {
    let conn = connect(place, super::WAIT, Paths::default())?;
    let above = base(&conn, path.as_bytes())?;
    let mut dirs = Vec::new();
    for n in 0..crowd.depth * DIRECTORIES {
        let name = format!("d{n}");
        let made = make_directory(&conn.client, above.clone(), &name);
        dirs.push(conn.run(made).context("cannot make a directory to work in")?);
    }
    let notes = Rc::new(RefCell::new(Notes {
        phase: WARM,
        meters: [Meter::new()?, Meter::new()?],
    }));
    let crew = Crew::new(conn.reactor.clone(), crowd.depth);
    shift.ready.fetch_add(1, Ordering::SeqCst);
    for own in dirs.chunks(DIRECTORIES) {
        let (client, own) = (conn.client.clone(), own.to_vec());
        let (notes, shift) = (notes.clone(), shift.clone());
        crew.add(async move { task(&client, &own, &notes, &shift).await });
    }
    conn.run(crew.finished());
    drop(crew);
    let notes = Rc::try_unwrap(notes).ok().context("a task is left")?;
    Ok(notes.into_inner().meters)
}

/// Makes a file, looks at it and removes it, in one directory after the other.
async fn task(client: &Client, dirs: &[Statement], notes: &RefCell<Notes>, shift: &Shift) {
    for (n, dir) in dirs.iter().cycle().enumerate() {
        for step in 0..3 {
            if shift.phase() == STOP {
                notes.borrow_mut().turn_to(STOP);
                return;
            }
            let began = Instant::now();
            let result = operation(client, dir, &format!("f{n}"), step).await;
            // What was begun before and is done during is held up by what goes on now.
            let mut notes = notes.borrow_mut();
            notes.turn_to(shift.phase());
            let Some(meter) = notes.meter() else {
                continue;
            };
            match result {
                Ok(()) => meter.record(began.elapsed()),
                Err(e) => meter.failed(|| format!("{}: {e}", ["create", "stat", "unlink"][step])),
            }
        }
    }
}

async fn operation(client: &Client, dir: &Statement, name: &str, step: usize) -> Result<(), Errno> {
    let cred = Cred::root();
    let (dir, parsed) = (dir.clone(), Name::new(name.as_bytes())?);
    match step {
        0 => make_file(client, &dir, name).await,
        1 => client.lookup(&cred, &dir, &parsed).await.map(drop),
        _ => {
            let op = Op::Unlink {
                dir,
                name: parsed,
                held: false,
            };
            client.op(&cred, op).await.map(drop)
        }
    }
}
