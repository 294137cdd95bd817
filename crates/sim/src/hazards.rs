//! The page of hazards, as the simulator reads it: which bugs can be planted, and which the default workload
//! must find.

use crate::settings::System;

const PAGE: &str = include_str!("../../../docs/hazards.md");

/// Checks of the hostile client's grid that the default workload finds missing, too.
const OF_THE_GRID: &[&str] = &["G1", "G5", "G15", "G21", "G22", "G35", "G43", "G47", "G53"];

/// A bug that can be planted, as its section of the page has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plant {
    /// The hazard's number.
    pub name: &'static str,
    /// What goes wrong.
    pub bug: String,
    /// The rule that is taken out.
    pub rule: String,
    /// With whose choices the seeds run that look for it.
    pub system: System,
}

/// All that the default workload must find, in the page's order.
pub fn plants() -> Vec<Plant> {
    let planted = hazards().filter(|h| h.is_planted);
    planted
        .map(|h| h.plant)
        .filter(|p| p.name.starts_with('H') || OF_THE_GRID.contains(&p.name))
        .collect()
}

/// Whether the page knows a hazard of this name.
pub(crate) fn is_known(name: &str) -> bool {
    hazards().any(|h| h.plant.name == name)
}

/// With whose choices the seeds run that look for a bug.
pub(crate) fn system_of(name: &str) -> System {
    let found = hazards().find(|h| h.plant.name == name);
    found.map_or(System::Pando, |h| h.plant.system)
}

/// A section of the page.
struct Hazard {
    plant: Plant,
    /// Whether a plant shows it, and not something else.
    is_planted: bool,
}

fn hazards() -> impl Iterator<Item = Hazard> {
    PAGE.split("\n### ").skip(1).filter_map(hazard)
}

/// `H44 A few words`, then `- Harm: ...`, `- Rule: ...`, `- Where: ...`, `- Shown by: plant`, or `plant in
/// indexfs`.
fn hazard(section: &'static str) -> Option<Hazard> {
    let (title, body) = section.split_once('\n')?;
    let name = title.split(' ').next()?;
    name.strip_prefix(['H', 'G'])?.parse::<u32>().ok()?;
    let shown_by = labelled(body, "Shown by")?;
    let system = shown_by.strip_prefix("plant in ").and_then(System::of_word);
    let plant = Plant {
        name,
        system: system.unwrap_or(System::Pando),
        bug: labelled(body, "Harm")?,
        rule: labelled(body, "Rule")?,
    };
    let is_planted = shown_by == "plant" || system.is_some();
    Some(Hazard { plant, is_planted })
}

/// The text of `- label: text`, whose later lines are indented, in one line.
fn labelled(body: &str, label: &str) -> Option<String> {
    let begin = format!("- {label}: ");
    let mut lines = body.lines().skip_while(|l| !l.starts_with(&begin));
    let mut text = lines.next()?.strip_prefix(&begin)?.to_owned();
    for line in lines.map_while(|l| l.strip_prefix("  ")) {
        text.push(' ');
        text.push_str(line);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_is_planted() {
        let all = plants();
        let create = all.iter().find(|p| p.name == "H44").expect("a section of H44");
        assert!(create.bug.contains("EEXIST"), "{create:?}");
        assert!(all.iter().all(|p| !p.bug.is_empty() && !p.rule.is_empty()));
        for name in OF_THE_GRID {
            assert!(all.iter().any(|p| p.name == *name), "{name} has no section");
        }
        let names: std::collections::BTreeSet<_> = all.iter().map(|p| p.name).collect();
        assert_eq!(names.len(), all.len(), "a section stands twice");
    }

    #[test]
    fn a_section_is_read_to_its_end() {
        let text =
            "H7 A title\n\n- Harm: one\n  two\n- Rule: three\n- Where: `a`\n- Shown by: plant\n\n## Next\n";
        let found = hazard(text).expect("a section");
        assert_eq!((found.plant.name, found.plant.bug.as_str()), ("H7", "one two"));
        assert_eq!((found.plant.rule.as_str(), found.is_planted), ("three", true));
        let elsewhere = text.replace("plant", "plant in indexfs");
        assert_eq!(found.plant.system, System::Pando);
        let leaked: &'static str = Box::leak(elsewhere.into_boxed_str());
        assert_eq!(
            hazard(leaked).map(|h| (h.is_planted, h.plant.system)),
            Some((true, System::IndexFs))
        );
        assert!(hazard("Another heading\n\n- Harm: x\n").is_none());
        assert!(is_known("H50"), "a hazard without a plant");
    }
}
