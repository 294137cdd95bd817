//! What a comparison gives: lines of numbers, and the paper's sentences with what was found here.

use crate::args::Args;
use crate::text;
use serde_json::{Map, Value, json};

/// What stands beside a number of which the paper's prose has none.
pub const NOT_IN_TEXT: &str = "not in text";

/// One line: a value of each column.
pub type Line = Vec<(&'static str, Value)>;

/// A sentence of the paper.
pub struct Claim {
    /// What it is about.
    pub about: &'static str,
    /// What the paper says.
    pub paper: &'static str,
    /// What was found.
    pub here: String,
}

/// A comparison: a figure of a paper, or another that has columns of its own.
pub struct Drawn {
    /// Which benchmark made it.
    pub bench: &'static str,
    /// Which figure, if it is one.
    pub figure: Option<&'static str>,
    /// How it was asked.
    pub params: Value,
    /// Its numbers. All lines have the same columns.
    pub lines: Vec<Line>,
    /// What the paper says of them.
    pub claims: Vec<Claim>,
}

impl Drawn {
    /// For scripts.
    fn json(&self) -> Value {
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|l| {
                let fields = l
                    .iter()
                    .map(|(name, v)| (name.replace([' ', '/'], "_"), v.clone()));
                Value::Object(fields.collect::<Map<_, _>>())
            })
            .collect();
        let claims: Vec<Value> = self
            .claims
            .iter()
            .map(|c| json!({ "about": c.about, "paper": c.paper, "here": c.here }))
            .collect();
        json!({
            "bench": self.bench, "figure": self.figure, "commit": option_env!("PANDO_COMMIT").unwrap_or("unknown"),
            "params": self.params, "results": lines, "claims": claims,
        })
    }

    /// Prints it, for scripts or for people.
    pub fn print(&self, args: &Args) {
        if args.json {
            println!("{}", self.json());
        } else {
            print!("{}", self.text());
        }
    }

    /// For people.
    fn text(&self) -> String {
        let head: Vec<&str> = self
            .lines
            .iter()
            .take(1)
            .flatten()
            .map(|(name, _)| *name)
            .collect();
        let cell = |v: &Value| match v {
            Value::String(s) => s.clone(),
            Value::Null => "-".into(),
            v => v.to_string(),
        };
        let rows: Vec<Vec<String>> = self
            .lines
            .iter()
            .map(|l| l.iter().map(|(_, v)| cell(v)).collect())
            .collect();
        let mut out = text::table(&head, &rows);
        for c in &self.claims {
            out += &format!("\n{}\n  paper: {}\n  here:  {}\n", c.about, c.paper, c.here);
        }
        out
    }
}

/// What a number should be at most, or at least.
pub struct Aim {
    /// Of what.
    pub what: String,
    /// What was measured.
    pub found: f64,
    /// At most so much.
    pub most: Option<f64>,
    /// At least so much.
    pub least: Option<f64>,
}

impl Aim {
    /// At most.
    pub fn most(what: impl Into<String>, found: f64, most: f64) -> Aim {
        Aim {
            what: what.into(),
            found,
            most: Some(most),
            least: None,
        }
    }

    /// At least.
    pub fn least(what: impl Into<String>, found: f64, least: f64) -> Aim {
        Aim {
            what: what.into(),
            found,
            most: None,
            least: Some(least),
        }
    }

    /// Whether it is so. What could not be measured is not.
    pub fn is_met(&self) -> bool {
        self.most.is_none_or(|m| self.found <= m)
            && self.least.is_none_or(|l| self.found >= l)
            && self.found.is_finite()
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        json!({
            "what": self.what, "found": round(self.found), "most": self.most, "least": self.least, "met": self.is_met(),
        })
    }
}

/// All of them, for people.
pub fn aims_table(aims: &[Aim]) -> String {
    let rows: Vec<Vec<String>> = aims
        .iter()
        .map(|a| {
            let bound = match (a.most, a.least) {
                (Some(most), _) => format!("at most {most}"),
                (None, Some(least)) => format!("at least {least}"),
                (None, None) => "-".into(),
            };
            let met = if a.is_met() { "met" } else { "missed" };
            vec![a.what.clone(), round(a.found).to_string(), bound, met.to_owned()]
        })
        .collect();
    text::table(&["aim", "found", "bound", ""], &rows)
}

/// Two digits after the point.
pub fn round(x: f64) -> Value {
    json!((x * 100.0).round() / 100.0)
}

/// The middle one.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The least: what it takes when nothing else happens on the machine.
pub fn best(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::NAN, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_what_is_there() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(best(&[3.0, 1.0, 2.0]), 1.0);
        assert!(median(&[]).is_nan() && best(&[]).is_nan());
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        assert!(Aim::most("a", 1.0, 1.0).is_met() && Aim::least("a", 1.0, 1.0).is_met());
        assert!(!Aim::most("a", 1.1, 1.0).is_met() && !Aim::least("a", 0.9, 1.0).is_met());
        assert!(!Aim::most("a", f64::NAN, 1.0).is_met() && !Aim::least("a", f64::INFINITY, 1.0).is_met());
    }

    #[test]
    fn the_same_for_people_and_scripts() {
        let drawn = Drawn {
            bench: "figure",
            figure: Some("f"),
            params: json!({}),
            lines: vec![vec![
                ("renamed", json!(3)),
                ("p50 us", round(1.234)),
                ("paper", Value::Null),
            ]],
            claims: vec![Claim {
                about: "all",
                paper: "well",
                here: "so so".into(),
            }],
        };
        assert_eq!(
            drawn.text(),
            "renamed  p50 us  paper\n      3    1.23  -\n\nall\n  paper: well\n  here:  so so\n"
        );
        let json = drawn.json();
        assert_eq!(json["results"][0]["p50_us"], 1.23);
        assert_eq!(json["claims"][0]["here"], "so so");
    }
}
