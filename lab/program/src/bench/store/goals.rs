//! The goals of the store's speed, beside what this run has measured.

use std::fmt::Write as _;

use super::cases::{
    COPIED, GET, OFFER, OFFER_FOUR, OFFER_PAPER, PUT_DURABLE, PUT_DURABLE_EIGHT, PUTS, SCAN_LONG, TEMPORAL,
};
use super::ours;
use super::rounds::OperationFigures;
use Figure::{PerSecond, Rate, ToHeed};

/// A figure of our store, of operations by their names.
#[derive(Clone, Copy)]
enum Figure {
    /// Time of an operation to bare heed's: the goal is the most.
    ToHeed(&'static str),
    /// Rate of the first operation to that of the second: the goal is the least.
    Rate(&'static str, &'static str),
    /// Operations a second: the goal is the least.
    PerSecond(&'static str),
}

/// Figures, the bytes of the records that they are for (0: any), and their goals.
const GOALS: [(Figure, usize, f64); 11] = [
    (ToHeed(SCAN_LONG), 100, 1.15),
    (ToHeed(SCAN_LONG), 1000, 1.3),
    (ToHeed(GET), 1000, 1.1),
    (ToHeed(COPIED), 1000, 1.15),
    (ToHeed(PUT_DURABLE), 0, 0.55),
    (ToHeed(PUTS), 0, 0.9),
    (ToHeed(TEMPORAL), 0, 0.1),
    (Rate(PUT_DURABLE_EIGHT, PUT_DURABLE), 0, 4.0),
    (Rate(OFFER, OFFER_PAPER), 0, 20.0),
    (PerSecond(OFFER), 0, 1e6),
    (PerSecond(OFFER_FOUR), 0, 1e6),
];

/// A line for each goal that records of `bytes` bytes can show.
pub fn told(figures: &[OperationFigures], bytes: usize) -> String {
    let of = |operation| {
        let is_it = |of: &&OperationFigures| of.contender == ours::NAME && of.operation == operation;
        figures.iter().find(is_it)
    };
    let nanos = |operation| of(operation)?.batch_median_ns;
    let mut text = format!("\n{:<78}{:>10}{:>10}\n", "goals of our store", "measured", "goal");
    for (figure, _, goal) in GOALS.iter().filter(|(_, of, _)| [0, bytes].contains(of)) {
        let (what, found) = match *figure {
            ToHeed(one) => (
                format!("{one}, to bare heed"),
                of(one).and_then(|of| Some(of.ratio.as_ref()?.median)),
            ),
            Rate(one, other) => (
                format!("rate of {one}, to {other}"),
                nanos(other).zip(nanos(one)).map(|(a, b)| a / b),
            ),
            PerSecond(one) => (format!("{one}: a second"), nanos(one).map(|ns| 1e9 / ns)),
        };
        let Some(found) = found else { continue };
        let is_met = if matches!(figure, ToHeed(_)) {
            found <= *goal
        } else {
            found >= *goal
        };
        let is_met = if is_met { "met" } else { "NOT met" };
        let _ = writeln!(text, "{what:<78}{found:>10.2}{goal:>10}   {is_met}");
    }
    text
}
