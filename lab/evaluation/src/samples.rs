//! Results of experiments: runs with labels, and columns of samples.
//!
//! A *run* is one scenario under one approach. A *replication* is all runs of one machine and one seed: a claim is
//! evaluated in each by itself, so that its spread is the spread over machines and seeds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Labels that identify a run, such as `approach = mimo`, `cores = 3`.
pub type Labels = BTreeMap<String, String>;

/// Makes labels from (key, value) pairs.
pub fn labels<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Labels {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

/// The samples of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Labels that identify the run.
    pub labels: Labels,
    /// Index of the first sample that counts for means: before it, the loop has not settled.
    pub settled_from: usize,
    /// Columns of samples by name, all of one length; sample number k has index k. `None` where nothing was measured.
    pub series: BTreeMap<String, Vec<Option<f64>>>,
}

impl Run {
    /// Whether this run has all of these labels.
    pub fn is(&self, labels: &Labels) -> bool {
        labels.iter().all(|(key, value)| self.labels.get(key) == Some(value))
    }

    /// The measured samples of a column from sample `from` up to, not including, sample `to`.
    pub fn window(&self, series: &str, from: usize, to: usize) -> Vec<f64> {
        let column = self.series.get(series).map_or(&[][..], Vec::as_slice);
        let to = to.min(column.len());
        column
            .get(from.min(to)..to)
            .unwrap_or_default()
            .iter()
            .flatten()
            .copied()
            .collect()
    }
}

/// All runs of one machine and one seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replication {
    pub machine: String,
    /// Seed of all random draws.
    pub seed: u64,
    /// The runs, in the order of the plan.
    pub runs: Vec<Run>,
    /// Messages of failed runs, each with its cause.
    pub failures: Vec<String>,
}

impl Replication {
    /// Splits the results of the plan's runs into runs and failures.
    pub(crate) fn of(machine: &str, seed: u64, results: impl Iterator<Item = Result<Run, String>>) -> Replication {
        let mut all = Replication {
            machine: machine.into(),
            seed,
            ..Replication::default()
        };
        results.for_each(|result| match result {
            Ok(run) => all.runs.push(run),
            Err(failure) => all.failures.push(failure),
        });
        all
    }
}

/// Messages of failed runs, of all replications.
pub(crate) fn failures(replications: &[Replication]) -> Vec<String> {
    let of = |replication: &Replication| replication.failures.clone();
    replications.iter().flat_map(of).collect()
}
