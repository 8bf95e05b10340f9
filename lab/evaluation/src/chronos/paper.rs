//! The paper's testbed: Figs. 4 to 6 and Table 1.
//!
//! The four approaches of the paper, and ours in the same place. Labels: `policy`; of Fig. 4 `slaves`; of Figs. 5 and 6
//! `clients` (`places`: 300 connections a node and a new try after 3 s; `taken`: as described, each node takes every
//! connection), `service` (`random`, or `arrival`: first come, first served) and `reading` (of equation 5: `once`,
//! `twice`); of Table 1 `removed`.

use punctual_cluster_sim::load::{ConnectionLimit, GateKind, NodeChange, QueryPolicy, Second, Setup, Summary};
use punctual_federation::admission::ServiceOrder;
use punctual_federation::balancer::BalancerKind;
use punctual_units::Time;

use super::identify::{LearnedModel, learn};
use super::rows::{Capacity, KEYS, row, run};
use crate::samples::{Labels, Run, labels as labelled};

/// Names of the approaches.
pub const POLICIES: [&str; 5] = ["rr", "prop", "fc-prop", "fc-hash", "ours"];
const SLAVES: [usize; 5] = [1, 2, 3, 4, 5];
const REMOVED: [usize; 2] = [1, 2];
/// Instant at which slaves are removed, and start of the burst (shorter think times), in seconds.
const REMOVAL: usize = 400;
const BURST: usize = 200;
/// Seconds after a removal over which `recovered` is computed.
const BACK: std::ops::Range<usize> = 1..11;
/// Think time in the burst, in seconds. Every slave has 1500 clients; 90 % of their requests are queries.
const THINK_S: f64 = 1.25;

/// Series beside those of the table. `items_per_s` answered and `items_timely_per_s` with a delay of at most 1 s as
/// nodes measure it, which the paper reports too; `node_delay_s`, their mean delay; `littles_delay_s`, the delay that
/// Little's law gives for the throughput. Second by second `transient_s`, the mean delay of the first slave. Of Table
/// 1: items a second before and after the removal, timely items of all 600 s, and `recovered`: timely queries from a
/// second after the removal, over the most that any approach then serves.
const SERIES: [&str; 11] = [
    "items_per_s",
    "items_timely_per_s",
    "node_delay_s",
    "littles_delay_s",
    "transient_s",
    "timely_before",
    "timely_after",
    "total_before",
    "total_after",
    "timely_600",
    "recovered",
];

pub fn series() -> Vec<&'static str> {
    KEYS.into_iter().chain(SERIES).collect()
}

/// The setting as (name, value) pairs for the report.
pub fn setting() -> Vec<(String, String)> {
    let setup = Setup::paper(5);
    let ConnectionLimit::Places { places, retry } = setup.waiting else {
        return Vec::new();
    };
    [
        (
            "item",
            format!(
                "{} us, {} less where cached",
                setup.work.cost.as_micros_f64(),
                setup.work.saved
            ),
        ),
        (
            "keys",
            format!("{}, of which a node caches {}", setup.work.keys, setup.work.cached),
        ),
        ("connections of a node", format!("{places}, a new try after {retry}")),
        (
            "most that five slaves serve",
            format!("{:.0} queries/s", setup.capacity()),
        ),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .to_vec()
}

/// The balancer and the gate of an approach.
fn policy(name: &str, learned: &LearnedModel, reading: &str) -> QueryPolicy {
    let (balancer, gate) = match name {
        "rr" => (BalancerKind::RoundRobin, GateKind::Open),
        "prop" => (BalancerKind::Prop, GateKind::Open),
        "fc-prop" => (BalancerKind::FcProp, learned.gate(reading)),
        "fc-hash" => (BalancerKind::FcHash, learned.gate(reading)),
        _ => (BalancerKind::Home, GateKind::Timely),
    };
    QueryPolicy {
        balancer: balancer.into(),
        gate,
    }
}

/// A planned run: its labels and all that determines it but the seed.
struct PlannedRun {
    labels: Labels,
    policy: &'static str,
    reading: &'static str,
    setup: Setup,
}

pub fn scale_labels() -> Vec<Labels> {
    scale().map(|planned| planned.labels).collect()
}

pub fn scale_runs(seed: u64) -> Vec<Result<Run, String>> {
    by_load(scale().collect(), "slaves", seed, |_, _| Vec::new())
}

fn scale() -> impl Iterator<Item = PlannedRun> {
    SLAVES.into_iter().flat_map(|slaves| {
        POLICIES.map(|policy| PlannedRun {
            labels: labelled([("policy", policy), ("slaves", &slaves.to_string())]),
            policy,
            reading: "once",
            setup: Setup::paper(slaves),
        })
    })
}

pub fn delay_labels() -> Vec<Labels> {
    delay().into_iter().map(|planned| planned.labels).collect()
}

pub fn delay_runs(seed: u64) -> Vec<Result<Run, String>> {
    by_load(delay(), "clients", seed, |summary, _| {
        let transient = summary.first_node.iter().map(|sample| sample.delay);
        vec![("transient_s", transient.collect())]
    })
}

/// Varies where clients wait, how threads are served and how equation 5 is read.
fn delay() -> Vec<PlannedRun> {
    let mut plan: Vec<PlannedRun> = POLICIES.map(|policy| with(policy, "places", "random", "once")).into();
    plan.extend(["rr", "prop"].map(|policy| with(policy, "taken", "arrival", "once")));
    plan.extend(["fc-prop", "fc-hash"].map(|policy| with(policy, "places", "arrival", "once")));
    plan.extend(["fc-prop", "fc-hash"].map(|policy| with(policy, "places", "random", "twice")));
    plan
}

fn with(policy: &'static str, clients: &'static str, service: &'static str, reading: &'static str) -> PlannedRun {
    let mut setup = Setup::paper(5);
    if clients == "taken" {
        setup.waiting = ConnectionLimit::Taken;
    }
    if service == "arrival" {
        setup.order = ServiceOrder::Arrival;
    }
    let labels = [
        ("policy", policy),
        ("clients", clients),
        ("service", service),
        ("reading", reading),
    ];
    PlannedRun {
        labels: labelled(labels),
        policy,
        reading,
        setup,
    }
}

pub fn failure_labels() -> Vec<Labels> {
    failure().map(|planned| planned.labels).collect()
}

pub fn failure_runs(seed: u64) -> Vec<Result<Run, String>> {
    by_load(failure().collect(), "removed", seed, |summary, all| {
        let seconds = &summary.second_by_second;
        let rate = |of: fn(&Second) -> u32, range: std::ops::Range<usize>| {
            let count = range.len() as f64;
            let part = seconds.get(range).unwrap_or_default();
            part.iter().map(|second| f64::from(of(second))).sum::<f64>() / count
        };
        let before = BURST..REMOVAL;
        let after = REMOVAL..seconds.len();
        let one = |name, value| (name, vec![Some(value)]);
        vec![
            one("timely_before", rate(|second| second.items_timely, before.clone())),
            one("timely_after", rate(|second| second.items_timely, after.clone())),
            one("total_before", rate(|second| second.items, before)),
            one("total_after", rate(|second| second.items, after)),
            one(
                "timely_600",
                rate(|second| second.items_timely, 0..seconds.len()) * seconds.len() as f64,
            ),
            ("recovered", vec![recovered(summary, all, REMOVAL)]),
        ]
    })
}

fn failure() -> impl Iterator<Item = PlannedRun> {
    REMOVED.into_iter().flat_map(|removed| {
        POLICIES.map(|policy| {
            let mut setup = Setup::paper(5);
            let at = Time(REMOVAL as u64 * 1_000_000_000);
            setup.changes = (0..removed).map(|slave| (at, NodeChange::Crash(4 - slave))).collect();
            PlannedRun {
                labels: labelled([("policy", policy), ("removed", &removed.to_string())]),
                policy,
                reading: "once",
                setup,
            }
        })
    })
}

/// Timely queries from a second after the change at second `at`, over the most that any of `all` serves then. Queries
/// at nodes that are leaving count in neither.
pub fn recovered(summary: &Summary, all: &[&Summary], at: usize) -> Option<f64> {
    let range = at + BACK.start..at + BACK.end;
    let sum = |summary: &Summary, of: fn(&Second) -> u32| {
        let part = summary.second_by_second.get(range.clone()).unwrap_or_default();
        part.iter().map(|second| f64::from(of(second))).sum::<f64>()
    };
    let most = all
        .iter()
        .map(|one| sum(one, |second| second.served - second.served_gone))
        .fold(0.0, f64::max);
    (most > 0.0).then(|| sum(summary, |second| second.timely - second.timely_gone) / most)
}

type Series = Vec<(&'static str, Vec<Option<f64>>)>;

/// Carries out the plan; runs with the same value of the label `load` have the same load. `more` adds to the samples of
/// a run, given all runs under its load.
fn by_load(
    plan: Vec<PlannedRun>,
    load: &str,
    seed: u64,
    more: impl Fn(&Summary, &[&Summary]) -> Series,
) -> Vec<Result<Run, String>> {
    let learned = match learn(seed) {
        Ok(learned) => learned,
        Err(why) => return vec![Err(format!("no law: {why}"))],
    };
    let summary = |planned: &PlannedRun| {
        let policy = policy(planned.policy, &learned, planned.reading);
        planned.setup.run(&policy, seed).map_err(|error| error.to_string())
    };
    let summaries: Vec<Result<Summary, String>> = plan.iter().map(summary).collect();
    let result = |(planned, summary): (&PlannedRun, &Result<Summary, String>)| {
        let summary = summary.as_ref().map_err(String::clone)?;
        let same = plan.iter().zip(&summaries);
        let same = same.filter(|(other, _)| other.labels.get(load) == planned.labels.get(load));
        let same: Vec<&Summary> = same.filter_map(|(_, summary)| summary.as_ref().ok()).collect();
        let mut result = run(planned.labels.clone(), row(summary, Capacity::of(same.iter().copied())));
        let own = figures(&planned.setup, summary)
            .into_iter()
            .map(|(name, value)| (name, vec![value]));
        for (name, values) in own.chain(more(summary, &same)) {
            result.series.insert(name.into(), values);
        }
        Ok(result)
    };
    plan.iter().zip(&summaries).map(result).collect()
}

/// The figures that the paper reports for a run.
fn figures(setup: &Setup, summary: &Summary) -> [(&'static str, Option<f64>); 4] {
    let clients = 1500.0 * setup.nodes.len() as f64;
    let queries = summary.per_second(summary.served + summary.refused);
    [
        ("items_per_s", Some(summary.per_second(summary.items))),
        ("items_timely_per_s", Some(summary.per_second(summary.items_timely))),
        ("node_delay_s", summary.node_delay()),
        (
            "littles_delay_s",
            (queries > 0.0).then(|| clients * 0.9 / queries - THINK_S),
        ),
    ]
}
