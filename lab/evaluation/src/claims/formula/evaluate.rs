//! Evaluates a formula on samples.

use super::{Aggregate, Formula, Function, Node, Operator, Query, STEADY};
use crate::samples::Run;
use crate::stats::{greatest, least, mean, median};

/// The samples that a formula asks for and that do not exist: a run failed, or measured nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no samples of {0}")]
pub struct Missing(pub String);

impl Formula {
    /// The formula's value on these runs; 1 or 0 for a comparison that holds or not.
    ///
    /// # Errors
    /// [`Missing`] names samples that do not exist.
    pub fn evaluate(&self, runs: &[Run]) -> Result<f64, Missing> {
        self.root.value(runs)
    }

    /// The left and right side of a comparison; for any other formula, its value and `None`.
    ///
    /// # Errors
    /// [`Missing`] names samples that do not exist.
    pub fn sides(&self, runs: &[Run]) -> Result<(f64, Option<f64>), Missing> {
        match &self.root {
            Node::Two(operator, left, right) if operator.compares() => {
                Ok((left.value(runs)?, Some(right.value(runs)?)))
            }
            other => Ok((other.value(runs)?, None)),
        }
    }
}

impl Node {
    fn value(&self, runs: &[Run]) -> Result<f64, Missing> {
        Ok(match self {
            Node::Number(number) => *number,
            Node::Negated(inner) => -inner.value(runs)?,
            Node::Two(operator, left, right) => operator.apply(left.value(runs)?, right.value(runs)?),
            Node::Samples(query) => query.value(runs)?,
            Node::Function(function, arguments) => {
                let values = arguments
                    .iter()
                    .map(|argument| argument.value(runs))
                    .collect::<Result<Vec<_>, _>>()?;
                function.apply(&values)
            }
        })
    }
}

impl Operator {
    fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Operator::Add => left + right,
            Operator::Subtract => left - right,
            Operator::Multiply => left * right,
            Operator::Divide => left / right,
            Operator::Less => f64::from(left < right),
            Operator::LessOrEqual => f64::from(left <= right),
            Operator::Greater => f64::from(left > right),
            Operator::GreaterOrEqual => f64::from(left >= right),
        }
    }
}

impl Function {
    /// Applies the function to `values`, which the parser guarantees not to be empty.
    fn apply(self, values: &[f64]) -> f64 {
        let value = match self {
            Function::Abs => values.first().map(|value| value.abs()),
            Function::Least => least(values),
            Function::Greatest => greatest(values),
        };
        value.unwrap_or(f64::NAN)
    }
}

impl Query {
    fn value(&self, runs: &[Run]) -> Result<f64, Missing> {
        let windows: Vec<Vec<f64>> = runs
            .iter()
            .filter(|run| run.is(&self.labels))
            .map(|run| {
                run.window(
                    &self.series,
                    self.from.unwrap_or(run.settled_from),
                    self.to.unwrap_or(usize::MAX),
                )
            })
            .filter(|window| !window.is_empty())
            .collect();
        let value = match self.aggregate {
            Aggregate::Mean => mean(windows.concat()),
            Aggregate::Median => median(&windows.concat()),
            Aggregate::Min => least(&windows.concat()),
            Aggregate::Max => greatest(&windows.concat()),
            Aggregate::Lowest => least(&means(&windows)),
            Aggregate::Highest => greatest(&means(&windows)),
            Aggregate::Off => self.off(&means(&windows)),
            Aggregate::Overshoot => greatest(&windows.concat()).map(|most| (most / self.goal() - 1.0).max(0.0)),
            Aggregate::Settling => {
                let settled: Vec<f64> = windows.iter().map(|window| self.settling(window)).collect();
                greatest(&settled)
            }
        };
        value.ok_or_else(|| Missing(self.to_string()))
    }

    fn off(&self, means: &[f64]) -> Option<f64> {
        let off: Vec<f64> = means.iter().map(|mean| f64::from(!self.within(*mean))).collect();
        mean(&off)
    }

    fn settling(&self, window: &[f64]) -> f64 {
        let steady = |samples: &[f64]| samples.iter().all(|sample| self.within(*sample));
        let first = window.windows(STEADY.min(window.len())).position(steady);
        first.unwrap_or(window.len()) as f64
    }

    fn within(&self, value: f64) -> bool {
        (value - self.goal()).abs() <= self.band.unwrap_or(0.0) * self.goal().abs()
    }

    /// The goal; the parser requires one for every aggregate that needs it.
    fn goal(&self) -> f64 {
        self.goal.unwrap_or(f64::NAN)
    }
}

impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let labels: Vec<String> = self
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        write!(f, "`{}` where {}", self.series, labels.join(", "))
    }
}

fn means(windows: &[Vec<f64>]) -> Vec<f64> {
    windows.iter().filter_map(mean).collect()
}
