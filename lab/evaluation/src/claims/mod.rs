//! The claims of a paper: statement, the formula that computes our value from the samples, and whether it holds.
//!
//! **Problem.** A reproduction is only worth something if its criteria cannot be bent afterwards. So every claim is a
//! row of a file that is written before the runs: the paper's statement in our words, its place in the paper, its
//! figure, the formula, and how far our value may be off.
//!
//! **Terms.** A *quantitative* claim has a figure. Its formula is evaluated in each replication (one machine, one
//! seed). The claim holds if the **median** over all replications keeps the tolerance (or the bound, where the paper
//! states one: "less than 20 %", taken at its word), and **half** of the replications or more do so by themselves.
//! Otherwise the mean of two sets of programs could hold where neither does. A *structural* claim is a comparison; it
//! holds if it holds in **every** replication. The *role* of a claim is its use before the runs. Claims to which
//! machines were fitted, which settled a point that the paper leaves open, or which were added after the first run are
//! no predictions and are counted apart.
//!
//! **Premises.** A figure says something about a claim only if it was measured: if the load ran at its rate, if a model
//! fits at all, if a share is at most what there is. A claim may name such conditions (`premise`, comparisons like its
//! formula) and the range that its figure cannot leave (`plausible`). Where one fails in a replication, the claim is
//! *not judged*, and the row says which, with the figure. A claim that only restates the setting is no finding, and a
//! claim about runs that there are not is *left out*: see [`Verdict`].
//!
//! Claims are never adapted to results. Reasons why a claim does not hold are in a file of their own, written
//! afterwards; their figures are computed from the runs.

mod file;
mod formula;
mod judge;
mod reason;
mod verdict;

use serde::Serialize;

pub use file::{ClaimError, Claims, Reasons, reasons};
pub use formula::{Aggregate, Formula, FormulaError, Missing, Query, STEADY};
pub use judge::{ByMachine, ClaimResult, judge, left_out};
pub use verdict::{Goal, Premise, Verdict};

/// A claim of a paper, as written in the claims file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Name that is unique within its file.
    pub id: String,
    /// The experiment whose runs the claim is about.
    pub experiment: String,
    pub kind: Nature,
    /// Use of the claim before the runs.
    pub role: Role,
    /// Place in the paper, for example a section or a figure.
    pub source: String,
    /// The paper's statement in our words.
    pub text: String,
    /// The paper's figure, or its finding.
    pub paper: Paper,
    /// Computes our value from the samples.
    pub formula: Formula,
    /// Rule by which our value is compared with the paper's.
    pub rule: Rule,
    /// Comparisons that must hold in every replication, or the claim is not judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub premises: Vec<Formula>,
    /// Range of our value; outside of it, the measurement failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plausible: Option<[f64; 2]>,
    /// Place of the experiment's name: file, line and key.
    #[serde(skip)]
    pub experiment_place: String,
    /// Place of the formula: file, line and key.
    #[serde(skip)]
    pub formula_place: String,
}

/// The kind of statement that a claim makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nature {
    /// A comparison of two quantities.
    Structural,
    /// A figure of the paper.
    Quantitative,
}

/// Use of a claim before the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// No use: the claim is a prediction.
    #[default]
    Prediction,
    /// Machines were fitted to it.
    Calibration,
    /// The claim settled a part of the setting that the paper does not state.
    Setting,
    /// The claim was added after the first run, when results were known.
    Added,
}

/// The paper's result to compare with.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Paper {
    Figure(f64),
    /// A finding, in our words.
    Finding(String),
}

/// Rule by which a value, of one replication or the median, satisfies a claim.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The comparison in the formula holds.
    Comparison,
    /// Our value is off by at most this share of the paper's figure.
    Within(f64),
    /// For shares: ours is off by at most this difference; 0.1 means ten percentage points.
    Points(f64),
    /// Our value is at most the paper's figure.
    AtMost,
    /// Our value is at least the paper's figure.
    AtLeast,
}

/// Allowance for rounding in a difference of shares: 0.6 counts as ten points from 0.5.
const ROUNDING: f64 = 1e-9;

impl Rule {
    /// Whether `ours` keeps the rule against the paper's figure; always false for `Rule::Comparison`.
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
