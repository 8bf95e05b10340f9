//! Formulas of claims: numbers computed from the samples of runs.
//!
//! ```text
//! comparison := sum (("<" | "<=" | ">" | ">=") sum)?          1 where it holds, else 0
//! sum        := product (("+" | "-") product)*
//! product    := factor (("*" | "/") factor)*
//! factor     := "-" factor | number | "(" comparison ")" | function "(" comparison {"," comparison} ")"
//!             | aggregate "(" series {"," key "=" word} ")"
//! ```
//!
//! A *function* combines numbers: `abs(x)`, `least(x, ...)`, `greatest(x, ...)`. An *aggregate* reduces the samples
//! called `series`, of every run that has the given labels (`approach=mimo, cores=3`), to a number; see [`Aggregate`].
//! The keys `from`, `to`, `goal` and `band` are not labels but numbers. Samples count from number `from` (default:
//! where the run has settled) up to, not including, number `to` (default: the end). `goal` and `band` belong to the
//! aggregates that compare with a goal.
//!
//! ```
//! use punctual_evaluation::claims::Formula;
//! use punctual_evaluation::samples::{Run, labels};
//!
//! let run = |cores, watts: f64| Run {
//!     labels: labels([("cores", cores)]),
//!     series: [("power".to_string(), vec![Some(watts); 3])].into(),
//!     ..Run::default()
//! };
//! let ratio = Formula::parse("mean(power, cores=1) / mean(power, cores=0)").unwrap();
//! assert_eq!(ratio.evaluate(&[run("0", 2.0), run("1", 5.0)]), Ok(2.5));
//! ```

mod evaluate;
mod lexer;
mod parser;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Serialize, Serializer};

use crate::samples::Labels;

pub use evaluate::Missing;

/// A parsed formula with its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    root: Node,
    text: String,
}

/// A syntax error, or an unknown name, in a formula.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {}: {what}", .at + 1)]
pub struct FormulaError {
    /// Position of the error, in characters from 0.
    pub at: usize,
    /// The error, and what is expected.
    pub what: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    Negated(Box<Node>),
    Two(Operator, Box<Node>, Box<Node>),
    Function(Function, Vec<Node>),
    Samples(Query),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Abs,
    Least,
    Greatest,
}

/// Method of reducing samples to a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// `mean`: of all samples.
    Mean,
    /// `median`: of all samples.
    Median,
    /// `min`: the smallest sample.
    Min,
    /// `max`: the largest sample.
    Max,
    /// `lowest`: the smallest of the runs' means.
    Lowest,
    /// `highest`: the largest of the runs' means.
    Highest,
    /// `off`: the share of runs whose mean lies further from `goal` than `band` times `goal`.
    Off,
    /// `overshoot`: the largest excess of a sample over `goal`, as a share of `goal`; never negative.
    Overshoot,
    /// `settling`: number of samples, counted from `from`, before [`STEADY`] in a row lie within `band` times `goal` of
    /// `goal`; all samples where that never happens. Of several runs, the slowest.
    Settling,
}

/// Successive samples within the band that count as settled.
pub const STEADY: usize = 3;

/// One aggregate of a formula: selects samples and reduces them to a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub aggregate: Aggregate,
    /// Name of the samples.
    pub series: String,
    /// Labels that a run must have for its samples to count.
    pub labels: Labels,
    from: Option<usize>,
    to: Option<usize>,
    goal: Option<f64>,
    band: Option<f64>,
    /// Position in the formula, in characters from 0.
    at: usize,
}

impl Formula {
    /// The formula as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the formula is a comparison, which holds or does not.
    pub fn is_comparison(&self) -> bool {
        matches!(&self.root, Node::Two(operator, ..) if operator.compares())
    }

    /// Every query in the formula, in order.
    pub fn queries(&self) -> Vec<&Query> {
        let mut found = Vec::new();
        self.root.collect(&mut found);
        found
    }

    /// Refuses names that no planned run has: a series, or labels that select no run.
    ///
    /// # Errors
    /// [`FormulaError`] with the name and the known names.
    pub fn check(&self, series: &[&str], planned: &[Labels]) -> Result<(), FormulaError> {
        self.queries()
            .into_iter()
            .try_for_each(|query| query.check(series, planned))
    }
}

impl Serialize for Formula {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Operator {
    fn compares(self) -> bool {
        matches!(
            self,
            Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual
        )
    }
}

impl Aggregate {
    const ALL: [(&'static str, Aggregate); 9] = [
        ("mean", Aggregate::Mean),
        ("median", Aggregate::Median),
        ("min", Aggregate::Min),
        ("max", Aggregate::Max),
        ("lowest", Aggregate::Lowest),
        ("highest", Aggregate::Highest),
        ("off", Aggregate::Off),
        ("overshoot", Aggregate::Overshoot),
        ("settling", Aggregate::Settling),
    ];
}

impl Function {
    const ALL: [(&'static str, Function); 3] = [
        ("abs", Function::Abs),
        ("least", Function::Least),
        ("greatest", Function::Greatest),
    ];
}

impl Node {
    fn collect<'n>(&'n self, found: &mut Vec<&'n Query>) {
        match self {
            Node::Number(_) => {}
            Node::Negated(inner) => inner.collect(found),
            Node::Two(_, left, right) => {
                left.collect(found);
                right.collect(found);
            }
            Node::Function(_, arguments) => arguments.iter().for_each(|argument| argument.collect(found)),
            Node::Samples(query) => found.push(query),
        }
    }
}

impl Query {
    fn check(&self, series: &[&str], planned: &[Labels]) -> Result<(), FormulaError> {
        let refuse = |what| Err(FormulaError { at: self.at, what });
        if !series.contains(&self.series.as_str()) {
            return refuse(format!(
                "there are no samples called `{}`; there are {}",
                self.series,
                series.join(", ")
            ));
        }
        for (key, value) in &self.labels {
            let known = |labels: &Labels| labels.get(key) == Some(value);
            if !planned.iter().any(known) {
                return refuse(format!("no run has {key}={value}; there are {}", values(key, planned)));
            }
        }
        let all = |labels: &Labels| self.labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        if !planned.iter().any(all) {
            let wanted: Vec<String> = self
                .labels
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            return refuse(format!("no run has {} together", wanted.join(" and ")));
        }
        Ok(())
    }
}

/// The values that planned runs have for `key`; where no run has the key, all known keys.
fn values(key: &str, planned: &[Labels]) -> String {
    let mut known: Vec<&str> = planned
        .iter()
        .filter_map(|labels| labels.get(key))
        .map(String::as_str)
        .collect();
    if known.is_empty() {
        known = planned
            .iter()
            .flat_map(|labels| labels.keys())
            .map(String::as_str)
            .collect();
    }
    known.sort_unstable();
    known.dedup();
    known.join(", ")
}
