//! The hostile client's grid, with all checks in place (stage 50 takes each out), and its table in the
//! documents.

use pando_sim::{grid, plants};

#[test]
fn no_attack_gains_anything() {
    let verdicts: Vec<_> = grid::cells().map(grid::run).collect();
    assert!(verdicts.len() >= 60, "{} cells", verdicts.len());
    let wrong: Vec<String> = verdicts.iter().filter(|v| !v.ok()).map(|v| v.text()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_in_the_documents_is_the_grid() {
    let page = include_str!("../../../docs/security.md");
    let table = grid::table();
    assert!(page.contains(&table), "put this into docs/security.md:\n{table}");
    let hazards = include_str!("../../../docs/hazards.md");
    for check in grid::cells().flat_map(|c| c.checks) {
        assert!(hazards.contains(&format!("\n### {check} ")), "{check}");
    }
    // What is documented as a check of the grid is found by it, or by the default workload.
    let documented = hazards
        .lines()
        .filter_map(|l| l.strip_prefix("### G")?.split(' ').next());
    for check in documented.map(|n| format!("G{n}")) {
        let in_grid = grid::cells().any(|c| c.checks.contains(&check.as_str()));
        assert!(in_grid || plants().iter().any(|p| p.name == check), "{check}");
    }
}
