//! The hostile client's grid: what a program that speaks the protocol by hand may try, object by object and
//! manipulation by manipulation, with the check that stops each.
//!
//! Every cell runs twice against real servers on a simulated network, in a small filesystem of mode `key` of
//! its own. With all checks in place the attack gains nothing, the judge of the simulator has nothing to say,
//! all records but the attackers' own sessions are what they were, and who was attacked goes on. With the
//! checks that the cell names taken out (the cargo feature `plant`) it succeeds: so it is these checks that
//! stop it.

mod acls;
mod arena;
mod bulk;
mod hello;
mod holds;
mod homes;
mod locks;
mod peers;
mod perms;
mod requests;
mod sessions;
mod speaker;
mod statements;
mod tables;
mod xattrs;

pub(crate) use arena::Arena;

use crate::report::quote;
use pando_env::LocalFuture;
use std::rc::Rc;

/// An attack: prepares, says [`Arena::mark`], and tries. `Some`: it gained what it wanted.
pub(crate) type Attack = fn(Rc<Arena>) -> LocalFuture<Option<()>>;

/// How the directories of an arena are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// IDs are predicted, as InfiniFS does.
    Predicted,
    /// IDs are placed: directories can be localised.
    Placed,
    /// The same, and directories of more than a few entries are split.
    Split,
}

/// One attack of the grid.
pub struct Cell {
    layout: Layout,
    /// What is manipulated.
    pub object: &'static str,
    /// How.
    pub manipulation: &'static str,
    /// The checks that stop it, by the names under which they can be taken out. Of several each stops it by
    /// itself.
    pub checks: &'static [&'static str],
    /// What it would gain.
    pub gain: &'static str,
    attack: Attack,
}

/// What became of a cell.
pub struct Verdict {
    /// Which.
    pub cell: &'static Cell,
    /// What the attacker was told, with the checks in place.
    pub told: String,
    /// What is wrong; nothing, if it is as it should be.
    pub wrong: Vec<String>,
}

/// A cell of the table.
macro_rules! cell {
    ($object:literal, $($rest:tt)+) => {
        $crate::grid::cell!($crate::grid::Layout::Predicted, $object, $($rest)+)
    };
    ($layout:expr, $object:literal, $manipulation:literal, [$($check:literal),+], $gain:literal, $attack:expr) => {
        $crate::grid::Cell {
            layout: $layout,
            object: $object,
            manipulation: $manipulation,
            checks: &[$($check),+],
            gain: $gain,
            attack: |a| Box::pin($attack(a)),
        }
    };
}
pub(crate) use cell;

/// All cells.
pub fn cells() -> impl Iterator<Item = &'static Cell> {
    let tables = [
        hello::CELLS,
        statements::CELLS,
        statements::KEYS,
        requests::CELLS,
        perms::CELLS,
        homes::CELLS,
        holds::CELLS,
        xattrs::CELLS,
        acls::CELLS,
        sessions::CELLS,
        locks::CELLS,
        peers::CELLS,
        bulk::CELLS,
    ];
    tables.into_iter().flatten()
}

/// Runs one cell, with its checks and (if this build can) without them.
pub fn run(cell: &'static Cell) -> Verdict {
    let mut wrong = Vec::new();
    let safe = arena::play(cell, &[]);
    if safe.gained {
        wrong.push("the attack succeeds".into());
    }
    if !safe.prepared {
        wrong.push("the attack was not prepared".into());
    }
    wrong.extend(safe.wrong);
    if cfg!(feature = "plant") {
        let planted = arena::play(cell, cell.checks);
        if !planted.gained {
            wrong.push(format!("without its checks the attack fails: {}", planted.told));
        }
        if cell.checks.len() > 1 {
            for left in cell.checks {
                let others: Vec<&str> = cell.checks.iter().copied().filter(|c| c != left).collect();
                if arena::play(cell, &others).gained {
                    wrong.push(format!("{left} does not stop it by itself"));
                }
            }
        }
    }
    Verdict {
        cell,
        told: safe.told,
        wrong,
    }
}

/// The table for people, as `docs/security.md` has it.
pub fn table() -> String {
    let mut text = String::from("| object | manipulation | would gain | stopped by |\n|---|---|---|---|\n");
    for c in cells() {
        let line = format!(
            "| {} | {} | {} | {} |\n",
            c.object,
            c.manipulation,
            c.gain,
            c.checks.join(", ")
        );
        text.push_str(&line);
    }
    text
}

impl Verdict {
    /// Whether it is as it should be.
    pub fn ok(&self) -> bool {
        self.wrong.is_empty()
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let c = self.cell;
        let state = if self.ok() {
            "ok".to_string()
        } else {
            format!("WRONG: {}", self.wrong.join("; "))
        };
        format!(
            "{:12} {:52} {:10} {:28} {state}",
            c.object,
            c.manipulation,
            c.checks.join("+"),
            self.told
        )
    }

    /// One JSON object.
    pub fn json(&self) -> String {
        let c = self.cell;
        let checks: Vec<String> = c.checks.iter().map(|n| quote(n)).collect();
        format!(
            "{{\"object\":{},\"manipulation\":{},\"gain\":{},\"checks\":[{}],\"told\":{},\"ok\":{},\"wrong\":{}}}",
            quote(c.object),
            quote(c.manipulation),
            quote(c.gain),
            checks.join(","),
            quote(&self.told),
            self.ok(),
            quote(&self.wrong.join("; "))
        )
    }
}
