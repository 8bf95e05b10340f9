//! What bounds claims that do not hold, and what chance does to them, for people: the tables on the terminal.

use std::fmt::Write;

use punctual_lab::Outcome;
use punctual_lab::limits::{Asked, Basis, Chance, Limit};

use crate::columns::columns;

/// What a claim asks for, and what there is.
pub fn bound(limit: &Limit) -> [String; 2] {
    let asked = match limit.asked {
        Asked::AtMost(most) => format!("at most {most:.3}"),
        Asked::AtLeast(least) => format!("at least {least:.3}"),
    };
    [asked, format!("{:.3}", limit.found)]
}

/// From what a bound was computed.
pub fn basis(limit: &Limit) -> String {
    match &limit.basis {
        Basis::Figures { .. } => "the paper's figures".into(),
        Basis::Search { member, tried, rms } => {
            let whose = member.as_deref().unwrap_or("any");
            format!("{whose}: {tried} machines tried, nearest {:.1} % rms", 100.0 * rms)
        }
    }
}

/// Whether the claims are excluded.
pub fn verdict(limit: &Limit) -> &'static str {
    if limit.excluded { "excluded" } else { "possible" }
}

/// The failures of a claim that are chance by its placebo, and the probability of as many.
pub fn placebo(chance: &Chance) -> [String; 2] {
    chance.placebo.map_or(["-".into(), "-".into()], |placebo| {
        [
            format!("{:.1}", placebo.expected),
            format!("{:.2}", placebo.probability),
        ]
    })
}

/// Both tables; nothing where there is nothing to tell.
pub fn tables(outcome: &Outcome) -> String {
    limits(&outcome.limits) + &chances(&outcome.chances)
}

fn limits(limits: &[Limit]) -> String {
    if limits.is_empty() {
        return String::new();
    }
    let heading = ["", "asked", "there is", "computed from"].map(String::from).to_vec();
    let row = |limit: &Limit| {
        let [asked, found] = bound(limit);
        vec![format!("  {}", verdict(limit)), asked, found, basis(limit)]
    };
    let rows: Vec<Vec<String>> = std::iter::once(heading).chain(limits.iter().map(row)).collect();
    let table = columns(&rows);
    let mut lines = table.lines();
    let mut text = format!("\nwhat excludes claims\n{}\n", lines.next().unwrap_or_default());
    for (line, limit) in lines.zip(limits) {
        let _ = writeln!(text, "{line}\n    {}\n    {}", limit.claims.join(", "), limit.what);
    }
    text
}

fn chances(chances: &[Chance]) -> String {
    if chances.is_empty() {
        return String::new();
    }
    let heading = [
        "  comparison",
        "failed",
        "mean course",
        "machines: holds",
        "fails",
        "undecided",
        "by chance",
        "P(as many)",
    ];
    let row = |chance: &Chance| {
        let [expected, probability] = placebo(chance);
        vec![
            format!("  {}", chance.claim),
            format!("{} of {}", chance.failed, chance.of),
            chance.on_mean.to_string(),
            chance.hold.to_string(),
            chance.fail.to_string(),
            chance.undecided.to_string(),
            expected,
            probability,
        ]
    };
    let rows: Vec<Vec<String>> = std::iter::once(heading.map(String::from).to_vec())
        .chain(chances.iter().map(row))
        .collect();
    format!(
        "\nlaw or chance: machines on which the mean course over seeds keeps it, and on which its mean margin does, beyond 3 standard errors\n{}",
        columns(&rows)
    )
}
