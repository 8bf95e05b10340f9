//! Reasons in words with figures: texts whose formulas are evaluated on the runs.
//!
//! A text may begin with `if FORMULA: `; it then explains the runs only if the comparison holds, by the median. Each
//! `{FORMULA}` in it stands for the median over all replications; `{FORMULA %}` for a share in percent. A text with a
//! figure that the runs do not have explains nothing.

use super::Formula;
use crate::samples::Replication;
use crate::stats::median;

/// A parsed piece of a text.
enum Piece<'t> {
    Text(&'t str),
    Figure { formula: Formula, is_percent: bool },
}

/// The text with its figures on these runs; `None` if it does not explain them.
pub fn explained(text: &str, replications: &[Replication]) -> Option<String> {
    let (guard, pieces) = parse(text).ok()?;
    if let Some(guard) = guard
        && over(&guard, replications)? < 0.5
    {
        return None;
    }
    let shown = |piece: &Piece| match piece {
        Piece::Text(text) => Some((*text).to_owned()),
        Piece::Figure { formula, is_percent } => {
            let value = over(formula, replications)?;
            Some(match is_percent {
                true => format!("{} %", figure(value * 100.0)),
                false => figure(value),
            })
        }
    };
    pieces.iter().map(shown).collect()
}

/// Checks the formulas of a text.
///
/// # Errors
/// The first error of a formula, or a brace that is not closed.
pub fn check(text: &str) -> Result<(), String> {
    parse(text).map(drop)
}

fn parse(text: &str) -> Result<(Option<Formula>, Vec<Piece<'_>>), String> {
    let formula = |text: &str| Formula::parse(text).map_err(|error| format!("{text}: {error}"));
    let (guard, mut rest) = match text.strip_prefix("if ") {
        Some(guarded) => {
            let (guard, rest) = guarded.split_once(": ").ok_or("`if FORMULA` ends with \": \"")?;
            (Some(formula(guard)?), rest)
        }
        None => (None, text),
    };
    let mut pieces = Vec::new();
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, after) = after.split_once('}').ok_or("a { has no }")?;
        let share = inside.strip_suffix(" %");
        pieces.push(Piece::Text(before));
        pieces.push(Piece::Figure {
            formula: formula(share.unwrap_or(inside))?,
            is_percent: share.is_some(),
        });
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    Ok((guard, pieces))
}

/// The median of a formula over the replications that have it.
fn over(formula: &Formula, replications: &[Replication]) -> Option<f64> {
    let values = replications.iter().filter_map(|one| formula.evaluate(&one.runs).ok());
    median(&values.filter(|value| value.is_finite()).collect::<Vec<_>>())
}

/// A figure with three significant digits, or all digits before its point.
pub fn figure(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size => (2 - size.log10().floor() as i32).clamp(0, 9),
    };
    format!("{value:.*}", digits as usize)
}
