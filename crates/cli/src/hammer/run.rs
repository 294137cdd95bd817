//! The changing half.

use super::log::{State, Step};
use crate::args::Args;
use crate::cluster_dir::ClusterDir;
use crate::connect::{Connection, Party};
use anyhow::{Context, Result};
use pando_client::Client;
use pando_env::Env;
use pando_format::codec::Blob;
use pando_net::{Reactor, Waiting};
use pando_types::{AttrChange, Cred, Errno, Name, Perm};
use pando_wire::{Answer, Content, Object, Op, RenameMode, Statement};
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often in a row directories are opened again: once for each new coordinator, and they do not come that
/// fast.
pub const REOPENS: u32 = 16;

/// One task's view.
struct Task {
    number: u32,
    client: Rc<Client>,
    reactor: Rc<Reactor>,
    dirs: [Statement; 2],
    state: State,
    made: u64,
}

/// Prints one line at once, so that whoever reads the log has it before anything else happens.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that went away ends the run: nothing unlogged may be acknowledged.
    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// A flag that is set when standard input ends.
pub fn end_of_input() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = flag.clone();
    std::thread::Builder::new().name("input".into()).spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        set.store(true, Ordering::Relaxed);
    })?;
    Ok(flag)
}

pub fn run(args: &Args, tasks: u32, seconds: u64, name: &str, stop: Arc<AtomicBool>) -> Result<()> {
    let dir = ClusterDir::of(args)?;
    let connection = Connection::open(&dir, Party::Client, Waiting::default(), Duration::from_secs(120))?;
    let (client, reactor) = (connection.client.clone(), connection.reactor.clone());
    let cred = Cred::root();
    let top = format!("/hammer-{name}");
    say(&format!("N hammer-{name}\n"));
    let mut made = Vec::new();
    for number in 0..tasks {
        let mut dirs = Vec::new();
        for side in 0..2 {
            let path = format!("{top}/t{number}/{side}");
            connection.run(client.mkdir_all(&cred, path.as_bytes(), Perm::new(0o755)))?;
            let found = connection.run(client.hold_path(&cred, path.as_bytes(), true))?;
            dirs.push(found.entry.dir.context("not a directory")?);
        }
        let dirs: [Statement; 2] = dirs.try_into().ok().context("two directories")?;
        let (client, reactor) = (client.clone(), reactor.clone());
        made.push(Task {
            number,
            client,
            reactor,
            dirs,
            state: State::new(),
            made: 0,
        });
    }
    let end = reactor.mono().after(Duration::from_secs(seconds));
    let failed = Rc::new(RefCell::new(None));
    let mut running = Vec::new();
    for mut task in made {
        let failed = failed.clone();
        let (sender, done) = pando_env::sync::oneshot();
        running.push(done);
        let world = reactor.clone();
        let stop = stop.clone();
        reactor.spawn(Box::pin(async move {
            while world.mono() < end && !stop.load(Ordering::Relaxed) && failed.borrow().is_none() {
                if let Err(e) = task.turn().await {
                    *failed.borrow_mut() = Some(e);
                }
            }
            sender.send(());
        }));
    }
    for done in running {
        connection.run(done);
    }
    match failed.take() {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

impl Task {
    async fn turn(&mut self) -> Result<()> {
        let step = self.choose();
        let number = self.made;
        self.made += 1;
        say(&format!("B {} {number} {step}\n", self.number));
        let mut outcome = self.execute(&step).await;
        for _ in 0..REOPENS {
            // Refused, not executed: what is known of the directories is older than the coordinator's log.
            if outcome != Err(Errno::Stale) {
                break;
            }
            for dir in &mut self.dirs {
                *dir = self.client.reopen(dir).await?.dir.ok_or(Errno::NotDir)?;
            }
            outcome = self.execute(&step).await;
        }
        match outcome {
            Ok(()) => {
                step.apply(&mut self.state);
                say(&format!("A {} {number}\n", self.number));
                Ok(())
            }
            Err(e) => {
                // These names are this task's alone: no operation may fail, least of all with EEXIST or
                // ENOENT.
                say(&format!("X {} {number} {step}: {e}\n", self.number));
                anyhow::bail!("task {}: {step}: {e}", self.number)
            }
        }
    }

    fn choose(&self) -> Step {
        let r = self.reactor.random();
        let side = (r & 1) as u8;
        let fresh = format!("n{}", self.made);
        let pick = |dirs: Option<bool>| {
            let fit: Vec<_> = self
                .state
                .iter()
                .filter(|(_, t)| dirs.is_none_or(|d| t.dir == d))
                .collect();
            if fit.is_empty() {
                None
            } else {
                Some(fit[(r >> 16) as usize % fit.len()].0.clone())
            }
        };
        let full = self.state.len() > 20;
        let roll = (r >> 8) as u8 % 100;
        let step = match roll {
            0..=19 if !full => Some(Step::Create(side, fresh.clone())),
            20..=29 if !full => Some(Step::Mkdir(side, fresh.clone())),
            30..=44 => pick(None).map(|(s, n)| Step::Rename(s, n, side, fresh.clone())),
            45..=59 => pick(Some(false)).map(|(s, n)| Step::Unlink(s, n)),
            60..=69 => pick(Some(true)).map(|(s, n)| Step::Rmdir(s, n)),
            70..=84 => pick(Some(false)).map(|(s, n)| Step::Write(s, n, format!("c{}", r >> 40))),
            _ => pick(None).map(|(s, n)| Step::Chmod(s, n, 0o700 | ((r >> 32) & 0o77) as u16)),
        };
        step.unwrap_or(Step::Create(side, fresh))
    }

    async fn execute(&self, step: &Step) -> Result<(), Errno> {
        let dir = |s: u8| self.dirs[usize::from(s & 1)].clone();
        let op = match step {
            Step::Create(s, n) => Op::Create {
                dir: dir(*s),
                name: name(n)?,
                mode: Perm::new(0o644).into(),
                exclusive: true,
                want: 2,
            },
            Step::Mkdir(s, n) => Op::Mkdir {
                dir: dir(*s),
                name: name(n)?,
                mode: Perm::new(0o755).into(),
            },
            Step::Unlink(s, n) => Op::Unlink {
                dir: dir(*s),
                name: name(n)?,
                held: false,
            },
            Step::Rmdir(s, n) => Op::Rmdir {
                dir: dir(*s),
                name: name(n)?,
            },
            Step::Rename(s, n, t, m) => Op::Rename {
                src: dir(*s),
                src_name: name(n)?,
                dst: dir(*t),
                dst_name: name(m)?,
                mode: RenameMode::NoReplace,
                held: false,
            },
            Step::Chmod(s, n, perm) => {
                let (ino, generation) = self.object(&dir(*s), n).await?;
                let change = AttrChange {
                    perm: Some(Perm::new(*perm)),
                    ..AttrChange::default()
                };
                Op::SetAttr {
                    object: Object {
                        dir: dir(*s),
                        name: name(n)?,
                        ino,
                        generation,
                    },
                    change,
                    handle: None,
                }
            }
            Step::Write(s, n, content) => {
                let (ino, generation, handle) = self.opened(&dir(*s), n).await?;
                let data = Content::Inline(Blob(content.clone().into_bytes()));
                let size = content.len() as u64;
                Op::Publish {
                    object: Object {
                        dir: dir(*s),
                        name: name(n)?,
                        ino,
                        generation,
                    },
                    handle,
                    content: data,
                    size,
                    mtime: None,
                    base: None,
                }
            }
        };
        self.client.op(&Cred::root(), op).await.map(|_| ())
    }

    /// A file as a program that is about to write it has it.
    async fn opened(
        &self,
        dir: &Statement,
        n: &str,
    ) -> Result<(pando_types::Ino, pando_types::Generation, pando_wire::Handle), Errno> {
        let open = Op::Open {
            dir: dir.clone(),
            name: name(n)?,
            want: pando_types::Access::WRITE.0,
        };
        match self.client.op(&Cred::root(), open).await? {
            Answer::Opened {
                entry,
                handle: Some(handle),
                ..
            } => Ok((entry.attr.ino, entry.attr.generation, handle)),
            _ => Err(Errno::Io),
        }
    }

    async fn object(
        &self,
        dir: &Statement,
        n: &str,
    ) -> Result<(pando_types::Ino, pando_types::Generation), Errno> {
        match self
            .client
            .op(
                &Cred::root(),
                Op::Lookup {
                    dir: dir.clone(),
                    name: name(n)?,
                },
            )
            .await?
        {
            Answer::Entry(e) => Ok((e.attr.ino, e.attr.generation)),
            _ => Err(Errno::Io),
        }
    }
}

fn name(n: &str) -> Result<Name, Errno> {
    Name::new(n.as_bytes())
}
