//! The log: `B task number operation…` before an operation is sent, `A task number` after it was
//! acknowledged, `X task number why` after an outcome that must not be.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt;

/// Which of a task's two directories, on different servers as a rule.
pub type Side = u8;

/// One operation of a task on its own names. Every one of them must succeed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Exclusive create.
    Create(Side, String),
    /// Directory.
    Mkdir(Side, String),
    /// Remove a file.
    Unlink(Side, String),
    /// Remove a directory.
    Rmdir(Side, String),
    /// Set permission bits.
    Chmod(Side, String, u16),
    /// Publish this content.
    Write(Side, String, String),
    /// Rename, within or across directories.
    Rename(Side, String, Side, String),
}

/// What a name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thing {
    /// A directory?
    pub dir: bool,
    /// Permission bits.
    pub perm: u16,
    /// Content of a file.
    pub content: String,
}

/// All names of a task.
pub type State = BTreeMap<(Side, String), Thing>;

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Create(s, n) => write!(f, "create {s} {n}"),
            Step::Mkdir(s, n) => write!(f, "mkdir {s} {n}"),
            Step::Unlink(s, n) => write!(f, "unlink {s} {n}"),
            Step::Rmdir(s, n) => write!(f, "rmdir {s} {n}"),
            Step::Chmod(s, n, p) => write!(f, "chmod {s} {n} {p}"),
            Step::Write(s, n, c) => write!(f, "write {s} {n} {c}"),
            Step::Rename(s, n, t, m) => write!(f, "rename {s} {n} {t} {m}"),
        }
    }
}

impl Step {
    fn parse(words: &[&str]) -> Result<Step> {
        let name = |i: usize| words.get(i).map(|w| (*w).to_owned()).context("missing name");
        let side = |i: usize| -> Result<Side> { Ok(words.get(i).context("missing side")?.parse()?) };
        Ok(match *words.first().context("empty step")? {
            "create" => Step::Create(side(1)?, name(2)?),
            "mkdir" => Step::Mkdir(side(1)?, name(2)?),
            "unlink" => Step::Unlink(side(1)?, name(2)?),
            "rmdir" => Step::Rmdir(side(1)?, name(2)?),
            "chmod" => Step::Chmod(side(1)?, name(2)?, name(3)?.parse()?),
            "write" => Step::Write(side(1)?, name(2)?, name(3)?),
            "rename" => Step::Rename(side(1)?, name(2)?, side(3)?, name(4)?),
            other => bail!("unknown step \"{other}\""),
        })
    }

    /// Does it to a state.
    pub fn apply(&self, state: &mut State) {
        let thing = |dir, perm| Thing {
            dir,
            perm,
            content: String::new(),
        };
        match self {
            Step::Create(s, n) => {
                state.insert((*s, n.clone()), thing(false, 0o644));
            }
            Step::Mkdir(s, n) => {
                state.insert((*s, n.clone()), thing(true, 0o755));
            }
            Step::Unlink(s, n) | Step::Rmdir(s, n) => {
                state.remove(&(*s, n.clone()));
            }
            Step::Chmod(s, n, p) => {
                if let Some(t) = state.get_mut(&(*s, n.clone())) {
                    t.perm = *p;
                }
            }
            Step::Write(s, n, c) => {
                if let Some(t) = state.get_mut(&(*s, n.clone())) {
                    t.content = c.clone();
                }
            }
            Step::Rename(s, n, t, m) => {
                if let Some(thing) = state.remove(&(*s, n.clone())) {
                    state.insert((*t, m.clone()), thing);
                }
            }
        }
    }
}

/// A task as its log tells it.
#[derive(Default, Debug)]
pub struct History {
    /// Steps that were sent, in order, with whether they were acknowledged.
    pub steps: Vec<(Step, bool)>,
}

/// A whole log.
#[derive(Default, Debug)]
pub struct Log {
    /// The run's directory.
    pub name: String,
    /// By task.
    pub tasks: BTreeMap<u32, History>,
    /// Outcomes that must not be.
    pub wrong: Vec<String>,
}

impl Log {
    /// Reads a log. A last line that was cut is left out: its operation counts as not sent or not
    /// acknowledged.
    pub fn parse(text: &str) -> Result<Log> {
        let mut log = Log::default();
        let whole = &text[..text.rfind('\n').map_or(0, |i| i + 1)];
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["N", name] => log.name = name.to_owned(),
                ["B", task, _, ref step @ ..] => {
                    let step = Step::parse(step).with_context(|| format!("log line \"{line}\""))?;
                    log.tasks
                        .entry(task.parse()?)
                        .or_default()
                        .steps
                        .push((step, false));
                }
                ["A", task, number] => {
                    let history = log.tasks.entry(task.parse()?).or_default();
                    let number: usize = number.parse()?;
                    history
                        .steps
                        .get_mut(number)
                        .with_context(|| format!("log line \"{line}\""))?
                        .1 = true;
                }
                ["X", ..] => log.wrong.push(line.to_owned()),
                _ => bail!("unknown log line \"{line}\""),
            }
        }
        Ok(log)
    }

    /// Acknowledged operations.
    pub fn acknowledged(&self) -> usize {
        self.tasks
            .values()
            .flat_map(|h| &h.steps)
            .filter(|(_, acked)| *acked)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_survives_being_cut() {
        let text = "N r1\nB 0 0 create 0 f0\nA 0 0\nB 0 1 rename 0 f0 1 f1\nB 1 0 mkdi";
        let log = Log::parse(text).expect("parses");
        assert_eq!(log.acknowledged(), 1);
        assert_eq!(log.tasks[&0].steps.len(), 2);
        assert!(!log.tasks.contains_key(&1));
        let mut state = State::new();
        for (step, _) in &log.tasks[&0].steps {
            step.apply(&mut state);
        }
        assert_eq!(
            state.keys().cloned().collect::<Vec<_>>(),
            vec![(1, "f1".to_owned())]
        );
    }
}
