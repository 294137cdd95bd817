//! The repository as the rules see it: text files by path.

use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// What others wrote, patched: it keeps their style.
const FOREIGN: &str = "third_party/";

/// All text files of ours that are tracked, or would be by `git add .`.
#[derive(Default)]
pub struct Repo {
    /// Paths of all files, binary and foreign ones too.
    paths: BTreeSet<String>,
    files: BTreeMap<String, String>,
    sources: BTreeMap<String, Result<Source, String>>,
}

impl Repo {
    /// Reads a work tree.
    pub fn load(root: &Path) -> Result<Repo, String> {
        let listed = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .map_err(|e| format!("git cannot be run ({e}); it is needed to know which files belong here"))?;
        if !listed.status.success() {
            return Err(format!(
                "git ls-files failed in {}: {}",
                root.display(),
                String::from_utf8_lossy(&listed.stderr)
            ));
        }
        let mut repo = Repo::default();
        let listed = String::from_utf8_lossy(&listed.stdout);
        // Deleted but still tracked files and binary files are nobody's violation.
        for path in listed
            .split('\0')
            .filter(|p| !p.is_empty() && root.join(p).exists())
        {
            repo.paths.insert(path.into());
            if path.starts_with(FOREIGN) && !path.ends_with(".md") {
                continue;
            }
            if let Ok(text) = std::fs::read_to_string(root.join(path)) {
                repo.add(path, &text);
            }
        }
        Ok(repo)
    }

    /// Adds, or replaces, one file.
    pub fn add(&mut self, path: &str, text: &str) {
        if path.ends_with(".rs") {
            self.sources.insert(path.into(), Source::parse(text));
        }
        self.paths.insert(path.into());
        self.files.insert(path.into(), text.into());
    }

    /// Every file: path and text.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// One file's text.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether this is a file, or a folder with files.
    pub(crate) fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let mut from = self.paths.range(folder.clone()..);
        self.paths.contains(path) || from.next().is_some_and(|p| p.starts_with(&folder))
    }

    /// Every Rust file: path and what was found in it, or why it cannot be read.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, &Result<Source, String>)> {
        self.sources.iter().map(|(path, source)| (path.as_str(), source))
    }

    /// Every Rust file that parses.
    pub(crate) fn parsed(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.sources()
            .filter_map(|(path, source)| source.as_ref().ok().map(|s| (path, s)))
    }

    /// Every manifest of a member: the crate's short name, the path, the text.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.files().filter_map(|(path, text)| {
            let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!name.contains('/')).then_some((name, path, text))
        })
    }
}

/// The short name of the crate a file belongs to.
pub(crate) fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split('/').next()
}

/// Whether a whole file is test code: integration tests, benches, examples, fuzz targets, and `tests.rs`
/// modules.
pub(crate) fn is_test_file(path: &str) -> bool {
    let mut parts = path.split('/');
    let file = parts.next_back().unwrap_or(path);
    file == "tests.rs"
        || file.ends_with("_tests.rs")
        || parts.any(|p| matches!(p, "tests" | "benches" | "examples" | "fuzz"))
}

/// The first line (from 1) of `text` that contains `what`; 0 if none does.
pub(crate) fn line_of(text: &str, what: &str) -> usize {
    text.lines().position(|l| l.contains(what)).map_or(0, |n| n + 1)
}
