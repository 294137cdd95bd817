//! Lists of what was there before its rule: by file, how much of it. They may only get shorter.

use super::error;
use crate::{Finding, Repo};
use std::collections::BTreeMap;

/// One of those lists, and what it counts.
pub(crate) struct Known {
    /// The list: `file number`, one a line.
    pub list: &'static str,
    /// What every other file may have.
    pub most: usize,
    /// What is counted, after its number.
    pub of: &'static str,
    /// What to do about it.
    pub instead: &'static str,
}

/// What a file has of what is counted.
pub(crate) struct Count<'a> {
    pub file: &'a str,
    pub count: usize,
    /// The line to look at first; 0: no single one.
    pub line: usize,
}

impl Known {
    /// Findings for files that have more than they may, and for lines of the list that are not needed any
    /// more.
    pub fn check<'a>(
        &self,
        repo: &Repo,
        rule: &'static str,
        counts: impl Iterator<Item = Count<'a>>,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut listed = self.listed(repo.file(self.list).unwrap_or_default());
        for c in counts.filter(|c| c.count > self.most) {
            let may = listed.remove(c.file).unwrap_or(self.most);
            if c.count > may {
                let what = format!("{} {}, and may have {may}", c.count, self.of);
                findings.push(error(rule, c.file, c.line, what, self.instead));
            }
        }
        for (file, _) in listed {
            let what = format!(
                "{file} has no more than {} {}, or is not there",
                self.most, self.of
            );
            findings.push(error(rule, self.list, 0, what, "take it off the list"));
        }
        findings
    }

    fn listed(&self, text: &str) -> BTreeMap<String, usize> {
        let lines = text.lines().filter(|l| !l.starts_with('#'));
        lines
            .filter_map(|l| l.split_once(' '))
            .filter_map(|(file, number)| Some((file.to_owned(), number.trim().parse().ok()?)))
            .collect()
    }
}
