//! Figures to which every run is reduced, and the table of them.

use std::collections::BTreeMap;

use punctual_cluster_sim::load::Summary;

use super::Part;
use crate::outcome::FigureTable;
use crate::samples::{Labels, Replication, Run};
use crate::stats::{mean, median};

/// The figures of a run under one policy, and of all policies under the same load.
pub const KEYS: [&str; 15] = [
    "offered_per_s",
    "capacity_per_s",
    "served_per_s",
    "timely_per_s",
    "timely_of_capacity",
    "timely_of_served",
    "refused_share",
    "delay_s.mean",
    "delay_s.p50",
    "delay_s.p99",
    "cached_share",
    "again_share",
    "late_refusals",
    "items_of_capacity",
    "busy_executors",
];

/// The most that any policy served under one load, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    queries: f64,
    items: f64,
}

impl Capacity {
    /// The maximum over runs under the same load. Answers of a node that has announced that it leaves do not count: the
    /// other nodes could not have served its remaining queue.
    pub fn of<'s>(summaries: impl Iterator<Item = &'s Summary>) -> Capacity {
        let none = Capacity {
            queries: 0.0,
            items: 0.0,
        };
        summaries.fold(none, |most, summary| Capacity {
            queries: most.queries.max(summary.per_second(summary.served_here())),
            items: most.items.max(summary.per_second(summary.items_here)),
        })
    }
}

/// The figures of `summary`; `capacity` is the maximum over all runs under the same load.
pub fn row(summary: &Summary, capacity: Capacity) -> Vec<(&'static str, Option<f64>)> {
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let of = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
    let values = [
        Some(summary.per_second(summary.offered)),
        Some(capacity.queries),
        Some(summary.per_second(summary.served)),
        Some(summary.per_second(summary.timely)),
        of(summary.per_second(summary.timely_here()), capacity.queries),
        Some(summary.timely_of_served()),
        Some(summary.refused_share()),
        summary.mean_delay(),
        summary.percentile(0.5),
        summary.percentile(0.99),
        share(summary.cached, summary.started),
        share(summary.again, summary.offered),
        Some(summary.late_refusals as f64),
        of(summary.per_second(summary.items_timely_here), capacity.items),
        Some(summary.busy_executors()),
    ];
    KEYS.into_iter().zip(values).collect()
}

/// A run with one sample of each figure.
pub fn run(labels: Labels, values: impl IntoIterator<Item = (&'static str, Option<f64>)>) -> Run {
    let series = values.into_iter().map(|(name, value)| (name.to_string(), vec![value]));
    Run {
        labels,
        settled_from: 0,
        series: series.collect(),
    }
}

/// Tables of the figures, one for each part: medians over the seeds, one row for each run that has any.
pub fn tables(parts: &[Part], replications: &[Replication]) -> Vec<FigureTable> {
    parts.iter().filter_map(|part| table(*part, replications)).collect()
}

fn table(part: Part, replications: &[Replication]) -> Option<FigureTable> {
    let mut rows: Vec<(String, Vec<Option<f64>>)> = Vec::new();
    for labels in part.labels() {
        let values = |key: &&str| median(&values(replications, &labels, key));
        let row: Vec<Option<f64>> = KEYS.iter().map(values).collect();
        if row.iter().any(Option::is_some) {
            rows.push((name(&labels), row));
        }
    }
    (!rows.is_empty()).then(|| FigureTable {
        title: format!("{}: medians over the seeds", part.name()),
        columns: KEYS.map(String::from).to_vec(),
        rows,
    })
}

/// The mean of a series in the run with exactly these labels, one value for each replication that has it.
pub fn values(replications: &[Replication], labels: &Labels, series: &str) -> Vec<f64> {
    let of = |replication: &Replication| {
        let run = replication.runs.iter().find(|run| run.labels == *labels)?;
        mean(run.window(series, 0, usize::MAX))
    };
    replications.iter().filter_map(of).collect()
}

fn name(labels: &BTreeMap<String, String>) -> String {
    labels.values().cloned().collect::<Vec<_>>().join(" ")
}
