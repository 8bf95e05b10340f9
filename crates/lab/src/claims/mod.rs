//! The claims of a paper: what it says, the formula that computes ours from the samples, and whether it holds.
//!
//! **Problem.** A reproduction is worth what it cannot bend. So every claim is a row of a file that is written before
//! the runs: the paper's statement in our words, where it stands, its figure, the formula, and how far ours may be off.
//!
//! **Terms.** A *quantitative* claim has a figure. Its formula is evaluated in each replication (one machine, one
//! seed); it holds if the **median** over all replications keeps the tolerance, or the bound where the paper states one
//! ("less than 20 %", taken at its word), and **half** of them or more do by themselves. Otherwise the mean of two sets
//! of programs could hold where neither does. A *structural* claim is a comparison; it holds if it holds in **every**
//! replication. What a claim was used for is its *role*: a claim that machines were fitted to, that settled what
//! the paper leaves open, or that was added after the first run is no prediction and is counted apart.
//!
//! Claims are never adapted to what came out. Why one does not hold is kept in a file of its own, written afterwards.

mod file;
mod formula;
mod judge;

use serde::{Deserialize, Serialize};

pub use file::{ClaimError, Claims, Reasons};
pub use formula::{Aggregate, Formula, FormulaError, Missing, Query, STEADY};
pub use judge::{ByMachine, ClaimResult, judge};

/// One claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// A name of its own.
    pub id: String,
    /// The experiment whose runs it is about.
    pub experiment: String,
    /// What it states.
    pub kind: Kind,
    /// What it was used for before the runs.
    pub role: Role,
    /// Where the paper has it.
    pub source: String,
    /// What the paper says, in our words.
    pub text: String,
    /// The paper's figure, or its finding.
    pub paper: Paper,
    /// Ours, from the samples.
    pub formula: Formula,
    /// How the paper's figure binds ours.
    pub rule: Rule,
    /// The line of the formula in its file, from 1.
    #[serde(skip)]
    pub line: usize,
}

/// What a claim states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// How things compare.
    Structural,
    /// A figure.
    Quantitative,
}

/// What a claim was used for before the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Nothing: it is a prediction.
    #[default]
    Prediction,
    /// Machines were fitted to it.
    Calibration,
    /// It settled a part of the setting that the paper does not state.
    Setting,
    /// It was added after the first run, whose outcome was known.
    Added,
}

/// What the paper has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Paper {
    /// A figure.
    Figure(f64),
    /// A finding, in our words.
    Finding(String),
}

/// When a claim holds in one replication, or of a median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The comparison holds.
    Comparison,
    /// Ours is off by at most this share of the paper's figure.
    Within(f64),
    /// Both are shares, and ours is off by at most this: 0.1 are ten percentage points.
    Points(f64),
    /// Ours is at most the paper's figure.
    AtMost,
    /// Ours is at least the paper's figure.
    AtLeast,
}

/// What rounding may add to a difference of shares: 0.6 is ten points from 0.5.
const ROUNDING: f64 = 1e-9;

impl Rule {
    /// Whether `ours` keeps the rule against the paper's figure; never a comparison.
    pub fn keeps(self, ours: f64, paper: f64) -> bool {
        match self {
            Rule::Comparison => false,
            Rule::Within(tolerance) => (ours - paper).abs() <= tolerance * paper.abs(),
            Rule::Points(points) => (ours - paper).abs() <= points + ROUNDING,
            Rule::AtMost => ours <= paper,
            Rule::AtLeast => ours >= paper,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rule;

    #[test]
    fn shares_are_judged_in_points_and_other_figures_by_their_size() {
        assert!(Rule::Points(0.1).keeps(0.6, 0.5) && !Rule::Points(0.1).keeps(0.61, 0.5));
        assert!(Rule::Points(0.1).keeps(0.1, 0.2) && !Rule::Within(0.25).keeps(0.1, 0.2));
        assert!(Rule::Within(0.25).keeps(0.62, 0.5) && !Rule::Within(0.25).keeps(0.63, 0.5));
    }
}
