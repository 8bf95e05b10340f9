//! Reduces task sets to runs with labels and columns, on which claims are evaluated.

use std::collections::BTreeMap;

use crate::samples::{Labels, Run};

use super::carry::SetResults;
use super::measured::{SetFigures, mean, quantile};
use super::policy::Policy;
use super::variant::{VC2M, Variant};

/// The quantile of response times that the paper evaluates.
pub const TAIL: f64 = 0.9999;

/// Columns of a run of task sets, one sample per set.
pub const PER_SET: [&str; 17] = [
    "schedulable",
    "misses",
    "latency",
    "tail",
    "worst",
    "relative-latency",
    "misses-over-static",
    "misses-over-fewest",
    "misses-over-vc2m",
    "misses-over-dna",
    "latency-over-static",
    "schedulable-over-vc2m",
    "even-utilisation",
    "decisions",
    "changes",
    "ways-moved",
    "refilling",
];

/// Further columns: a check for faults (`too-fast`), and figures over the jobs of all sets together.
pub const FURTHER: [&str; 4] = ["too-fast", "latency-pooled", "tail-pooled", "worst-pooled"];

/// Text of a utilisation in labels, with one decimal.
pub fn utilisation_label(utilisation: f64) -> String {
    format!("{utilisation:.1}")
}

/// The labels of the sets of `utilisation` under `variant`.
pub fn labels_of(profiles: &str, utilisation: f64, variant: Variant) -> Labels {
    let mut labels = variant.labels();
    let range = if utilisation < 2.7 {
        "to-2.6"
    } else if utilisation < 3.1 {
        "middle"
    } else {
        "from-3.2"
    };
    for (key, value) in [
        ("part", "sets"),
        ("profiles", profiles),
        ("util", &utilisation_label(utilisation)),
        ("range", range),
    ] {
        labels.insert(key.into(), value.into());
    }
    labels
}

/// The run of all sets of one utilisation under `variant`.
pub fn run(profiles: &str, utilisation: f64, variant: Variant, sets: &[&SetResults]) -> Run {
    let mut series: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
    for set in sets {
        for (name, value) in row(set, variant) {
            series.entry(name.into()).or_default().push(value);
        }
    }
    let pooled = pooled(sets, variant);
    for (name, value) in FURTHER[1..].iter().zip(pooled) {
        let column = std::iter::once(value).chain(std::iter::repeat(None)).take(sets.len());
        series.insert((*name).into(), column.collect());
    }
    Run {
        labels: labels_of(profiles, utilisation, variant),
        settled_from: 0,
        series,
    }
}

/// The columns of one set.
fn row(set: &SetResults, variant: Variant) -> Vec<(&'static str, Option<f64>)> {
    let own = set.of(variant);
    let beside = |policy| set.of(variant.beside(policy));
    let verdict = |measured: &SetFigures| f64::from(measured.is_schedulable());
    let over = |of: fn(&SetFigures) -> f64, policy| Some(of(own?) - of(beside(policy)?));
    let latency = |measured: &SetFigures| mean(&measured.responses);
    let dna = match variant.policy.is_published() {
        true => Policy::DnaPaper,
        false => Policy::Dna,
    };
    let values = [
        own.map(verdict),
        own.map(SetFigures::misses),
        own.map(latency),
        own.map(|own| quantile(&own.responses, TAIL)),
        own.map(|own| quantile(&own.responses, 1.0)),
        own.map(|own| mean(&own.relative)),
        over(SetFigures::misses, Policy::StaticBest),
        over(SetFigures::misses, Policy::StaticFewest),
        over(SetFigures::misses, VC2M),
        over(SetFigures::misses, dna).filter(|_| !variant.policy.is_static()),
        own.zip(beside(Policy::StaticBest))
            .map(|(own, other)| latency(own) / latency(other)),
        own.zip(beside(VC2M)).map(|(own, other)| verdict(own) - verdict(other)),
        Some(set.even_utilisation),
        own.map(|own| own.decisions),
        own.map(|own| own.changes),
        own.map(|own| own.ways_moved),
        own.map(|own| own.refilling),
    ];
    let too_fast = own.map(|own| own.too_fast as f64);
    PER_SET
        .into_iter()
        .zip(values)
        .chain([(FURTHER[0], too_fast)])
        .collect()
}

/// Mean, tail and worst response time of the jobs of all sets.
fn pooled(sets: &[&SetResults], variant: Variant) -> [Option<f64>; 3] {
    let mut all: Vec<f32> = sets
        .iter()
        .filter_map(|set| set.of(variant))
        .flat_map(|measured| measured.responses.iter().copied())
        .collect();
    if all.is_empty() {
        return [None; 3];
    }
    all.sort_by(f32::total_cmp);
    [mean(&all), quantile(&all, TAIL), quantile(&all, 1.0)].map(Some)
}
