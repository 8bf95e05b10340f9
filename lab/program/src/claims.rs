//! Claims for people: the table on the terminal, and the cells that it shares with the page.

use std::fmt::Write;

use punctual_evaluation::claims::{ClaimResult, Nature, Paper, Role, Rule, Verdict};
use punctual_evaluation::{FigureTable, Measure, Outcome};

/// A figure with three decimal places, or a dash.
pub fn figure(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.3}"))
}

/// The paper's value, with its tolerance or bound.
pub fn paper(row: &ClaimResult) -> String {
    match (&row.claim.paper, row.claim.rule) {
        (Paper::Figure(figure), Rule::Within(tolerance)) => format!("{figure} ± {:.0} %", tolerance * 100.0),
        (Paper::Figure(figure), Rule::Points(points)) => format!("{figure} ± {points}"),
        (Paper::Figure(figure), Rule::AtMost) => format!("at most {figure}"),
        (Paper::Figure(figure), Rule::AtLeast) => format!("at least {figure}"),
        (Paper::Figure(figure), Rule::Comparison) => figure.to_string(),
        (Paper::Finding(finding), _) => finding.clone(),
    }
}

/// The range over machines and seeds.
pub fn range(row: &ClaimResult) -> String {
    row.ours_range
        .map_or("-".into(), |[low, high]| format!("{low:.3} .. {high:.3}"))
}

/// Number of replications in which the claim holds by itself, and of all.
pub fn held(row: &ClaimResult) -> String {
    format!("{} of {}", row.held, row.of)
}

/// A line for each claim, by experiment, and the number that hold.
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    let width = outcome.claims.iter().map(|row| row.claim.id.len()).max().unwrap_or(0);
    let papers = outcome.claims.iter().map(|row| paper(row).len()).max().unwrap_or(0);
    let mut experiment = "";
    for row in &outcome.claims {
        if row.claim.experiment != experiment {
            experiment = &row.claim.experiment;
            let _ = writeln!(text, "\n{experiment} ({})", platform(outcome));
            let _ = writeln!(
                text,
                "  {:<5} {:<width$} {:>papers$}  {:>8}  {:>22}  {:>10}",
                "holds", "claim", "paper", "ours", "range", "runs"
            );
        }
        let holds = row.outcome.cell();
        let note = match (row.claim.role, &row.note) {
            (Role::Calibration, _) => "  (fitted)",
            (Role::Setting, _) => "  (setting)",
            (Role::Added, _) => "  (added)",
            (Role::Prediction, Some(_)) => "  *",
            (Role::Prediction, None) => "",
        };
        let _ = writeln!(
            text,
            "  {holds:<5} {:<width$} {:>papers$}  {:>8}  {:>22}  {:>10}{note}",
            row.claim.id,
            paper(row),
            figure(row.ours),
            range(row),
            held(row)
        );
    }
    text + &notes(outcome) + &tables(outcome) + &measures(outcome) + &reasons(outcome) + &count(outcome)
}

/// Notes that explain the marked figures.
fn notes(outcome: &Outcome) -> String {
    let mut notes: Vec<&str> = outcome.claims.iter().filter_map(|row| row.note.as_deref()).collect();
    notes.dedup();
    notes.iter().map(|note| format!("  * {note}\n")).collect()
}

/// Reasons for verdicts; claims with the same reason together.
fn reasons(outcome: &Outcome) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &outcome.claims {
        let Some(why) = row.why.as_deref().or(row.missing.as_deref()) else {
            continue;
        };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, ids)) => ids.push(&row.claim.id),
            None => reasons.push((why, vec![&row.claim.id])),
        }
    }
    let row = |(why, ids): &(&str, Vec<&str>)| format!("  {}: {why}\n", ids.join(", "));
    match reasons.as_slice() {
        [] => String::new(),
        reasons => String::from("\nwhy not\n") + &reasons.iter().map(row).collect::<String>(),
    }
}

/// The figures of every run.
fn tables(outcome: &Outcome) -> String {
    outcome.tables.iter().map(|one| lines(one, platform(outcome))).collect()
}

fn lines(table: &FigureTable, platform: &str) -> String {
    let names = table.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let cells = table.columns.iter().map(|column| column.len()).collect::<Vec<_>>();
    let mut text = format!("\n{} ({platform})\n  {:<names$}", table.title, "");
    for column in &table.columns {
        let _ = write!(text, "  {column}");
    }
    for (name, values) in &table.rows {
        let _ = write!(text, "\n  {name:<names$}");
        for (value, width) in values.iter().zip(&cells) {
            let _ = write!(text, "  {:>width$}", figure(*value));
        }
    }
    text + "\n"
}

/// Measured figures without a claim.
fn measures(outcome: &Outcome) -> String {
    let width = outcome
        .measures
        .iter()
        .map(|measure| measure.name.len())
        .max()
        .unwrap_or(0);
    let row = |measure: &Measure| {
        let spread = measure.spread.map_or("-".into(), |s| {
            format!("{:>8.3}  {:.3} .. {:.3}", s.median, s.low, s.high)
        });
        format!("  {:<width$}  {spread}\n", measure.name)
    };
    let title = format!("\n{} ({}): median and range\n", outcome.name, platform(outcome));
    match outcome.measures.as_slice() {
        [] => String::new(),
        measures => title + &measures.iter().map(row).collect::<String>(),
    }
}

fn platform(outcome: &Outcome) -> &'static str {
    if outcome.platform == "sim" {
        "simulated"
    } else {
        "measured"
    }
}

/// The number of claims of a kind that hold, and of those that were judged.
fn of(outcome: &Outcome, asked: impl Fn(&ClaimResult) -> bool) -> (usize, usize) {
    let asked = || outcome.claims.iter().filter(|row| asked(row));
    let judged = |row: &&ClaimResult| !matches!(row.outcome, Verdict::NotJudged | Verdict::LeftOut);
    let held = |row: &&ClaimResult| matches!(row.outcome, Verdict::Holds | Verdict::Setting);
    (asked().filter(held).count(), asked().filter(judged).count())
}

/// Claims that are no predictions, by kind; empty if there are none.
pub fn apart(outcome: &Outcome) -> String {
    let sorts: [(&[Role], &str); 2] = [
        (
            &[Role::Calibration, Role::Setting],
            "were fitted or settled the setting",
        ),
        (&[Role::Added], "were added after the first run"),
    ];
    let sort = |(roles, what): (&[Role], &str)| match of(outcome, |row| roles.contains(&row.claim.role)) {
        (_, 0) => None,
        (held, all) => Some(format!("{held} of {all} that {what}")),
    };
    let sorts: Vec<String> = sorts.into_iter().filter_map(sort).collect();
    let apart = match sorts.as_slice() {
        [] => String::new(),
        sorts => format!("; counted apart, {}", sorts.join(", ")),
    };
    apart + &unjudged(outcome)
}

/// The numbers of claims without a verdict; empty if there are none.
fn unjudged(outcome: &Outcome) -> String {
    let sort = |verdict: Verdict| match outcome.claims.iter().filter(|row| row.outcome == verdict).count() {
        0 => String::new(),
        count => format!("; {count} {}", verdict.word()),
    };
    sort(Verdict::NotJudged) + &sort(Verdict::LeftOut)
}

/// The number of predictions that hold, and of those that were judged.
pub fn predictions(outcome: &Outcome) -> (usize, usize) {
    of(outcome, |row| row.claim.role == Role::Prediction)
}

fn count(outcome: &Outcome) -> String {
    if outcome.claims.is_empty() {
        return String::new();
    }
    let predicted = |kind: Nature| {
        let (held, all) = of(outcome, |row| {
            row.claim.kind == kind && row.claim.role == Role::Prediction
        });
        format!("{held} of {all}")
    };
    let (testbeds, seeds) = outcome.extent();
    format!(
        "\n{} structural claims hold on every {} with every seed; by the median, {} figures that are predictions{};\n{testbeds}, {seeds}\n",
        predicted(Nature::Structural),
        outcome.testbed.one(),
        predicted(Nature::Quantitative),
        apart(outcome)
    )
}
