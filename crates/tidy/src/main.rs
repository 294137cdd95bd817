//! `pando-tidy [FOLDER]`: checks the repository in FOLDER (default: here) and exits with 1 if a rule is
//! broken.

use pando_tidy::{Repo, Severity, check};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let repo = match Repo::load(Path::new(&folder)) {
        Ok(repo) => repo,
        Err(why) => {
            eprintln!("pando-tidy: {why}");
            return ExitCode::from(2);
        }
    };
    let findings = check(&repo);
    // Errors last: the end of a log is what is shown of it.
    for severity in [Severity::Warning, Severity::Error] {
        for finding in findings.iter().filter(|f| f.severity == severity) {
            println!("{finding}");
        }
    }
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    println!(
        "{} files checked: {errors} violations, {} warnings",
        repo.files().count(),
        findings.len() - errors
    );
    if errors == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
