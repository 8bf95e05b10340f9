//! The third paper's evaluation on this machine: Figs. 4 and 5, Table 1 and loads above capacity, with nodes and
//! balancers as processes and the stock trading service as their load.
//!
//! **Scale.** The paper has a machine for each slave. Here all share one, so a query keeps a thread of its slave for
//! [`ITEM`] an item without the processor: slaves serve as if each had cores of its own. Time runs at twice the
//! paper's speed ([`TARGET`], [`PERIOD`]), with half of the connections that it must have had ([`CLIENTS`]). The
//! master serves queries, too. Records are in memory, so no query is cheaper where its data was read before.
//!
//! **Deadlines.** The paper's servers know none. Requests under its policies carry [`PATIENCE`], and are judged by
//! [`TARGET`], the deadline that requests under ours carry.
//!
//! The caller runs the processes ([`run`]); here are the plan, the claims and the outcome. Labels: `policy`, `slaves`,
//! `load` (times of what the slaves serve), `removed` (slaves killed half-way, or `master`).

use punctual_federation::admission::AdmissionKind;
use punctual_federation::balancer::BalancerKind;
use punctual_units::Nanos;

use super::Part;
use super::paper::POLICIES;
use super::rows::values;
use crate::claims::judge;
use crate::outcome::{Bars, Chart, Figure, FigureTable};
use crate::qedb::{means, of_first_seed};
use crate::samples::{Labels, Replication, Run, failures, labels as labelled};
use crate::stats::{Spread, median};
use crate::{ExperimentError, Outcome, Progress, Settings, Testbed};

/// The claims in the form in which they are judged here, written before the first run.
pub const CLAIMS: &str = include_str!("../../data/chronos-linux-claims.toml");
/// Reasons why some claims do not hold, as far as known.
pub const REASONS: &str = include_str!("../../data/chronos-linux-reasons.toml");

/// The parts that can be measured.
pub const PARTS: [Part; 4] = [Part::Scale, Part::Delay, Part::Failure, Part::Overload];

/// Time for which an item keeps a thread of a slave: the simulation's, which was fitted to Table 1.
pub const ITEM: Nanos = Nanos::from_micros(205);
/// Bound of a timely answer, and mean delay for which the paper's law sets the bound: the paper has 1 s.
pub const TARGET: Nanos = Nanos::from_millis(500);
/// Period of the law and of balancers that decide once a period.
pub const PERIOD: Nanos = Nanos::from_millis(500);
/// Deadline of requests under the paper's policies: longer than all clients of a slave wait.
pub const PATIENCE: Nanos = Nanos::from_secs(4);
/// Clients of each slave, with a request at a time.
pub const CLIENTS: u32 = 150;

/// Samples of a run, one each but for `transient_ms`, one for each second; the others without the first seconds, in
/// which queues grow. Rates are a second, and `_share` of all that was offered; `of_capacity` is over
/// `capacity_items_per_s`, what the slaves served when that was measured. `told_share` is of the samples of
/// `transient_ms`, `orders_share` of transactions that were answered. `master_ms` is what a transaction takes,
/// `node_off` the largest difference of a node's mean delay from that of all, relative; `cpu` are shares of a core: of
/// the balancer's process, and of the law on a node. Of a run with a removal, timely items before and after it.
pub const SERIES: [&str; 22] = [
    "offered_per_s",
    "unsent_share",
    "items_per_s",
    "items_timely_per_s",
    "capacity_items_per_s",
    "of_capacity",
    "of_served",
    "answered_share",
    "orders_share",
    "told_share",
    "refused_share",
    "delay_ms",
    "delay_ms.p99",
    "stale_share",
    "updates_per_s",
    "master_ms",
    "transient_ms",
    "node_off",
    "balancer_cpu",
    "law_cpu",
    "timely_before",
    "timely_after",
];

/// A run of the plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Number of slaves, 1 to 5; one of them is the master.
    pub slaves: u32,
    /// Name of the approach.
    pub policy: &'static str,
    /// Load, in times of what the slaves serve.
    pub load: f64,
    /// Processes that are killed half-way.
    pub removed: Removal,
}

/// Processes that are killed half-way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// This number of slaves, none of which is the master.
    Slaves(u32),
    /// The master, as the paper never does.
    Master,
}

impl Trial {
    /// The balancer and the admission of its policy.
    pub fn policies(&self) -> (BalancerKind, AdmissionKind) {
        match self.policy {
            "rr" => (BalancerKind::RoundRobin, AdmissionKind::Open),
            "prop" => (BalancerKind::Prop, AdmissionKind::Open),
            "fc-prop" => (BalancerKind::FcProp, AdmissionKind::Paper),
            "fc-hash" => (BalancerKind::FcHash, AdmissionKind::Paper),
            "p2c" => (BalancerKind::P2c, AdmissionKind::Timely),
            "bounded" => (BalancerKind::Bounded, AdmissionKind::Timely),
            _ => (BalancerKind::Home, AdmissionKind::Timely),
        }
    }

    /// Labels of the run.
    pub fn labels(&self) -> Labels {
        let removed = match self.removed {
            Removal::Slaves(count) => count.to_string(),
            Removal::Master => "master".into(),
        };
        labelled([
            ("policy", self.policy),
            ("slaves", &self.slaves.to_string()),
            ("load", &self.load.to_string()),
            ("removed", &removed),
        ])
    }
}

/// Runs the processes of a part's trials with a seed.
pub type RunTrials<'r> = &'r mut dyn FnMut(&[Trial], u64, Progress) -> Vec<Result<Run, String>>;

/// The runs of a part.
pub fn plan(part: Part) -> Vec<Trial> {
    let of = |slaves, load, removed, policies: &[&'static str]| -> Vec<Trial> {
        let trial = |policy: &&'static str| Trial {
            slaves,
            policy,
            load,
            removed,
        };
        policies.iter().map(trial).collect()
    };
    let none = Removal::Slaves(0);
    match part {
        Part::Scale => (1..=5).flat_map(|slaves| of(slaves, 2.0, none, &POLICIES)).collect(),
        Part::Delay => of(5, 2.0, none, &POLICIES),
        Part::Failure => [Removal::Slaves(1), Removal::Slaves(2), Removal::Master]
            .into_iter()
            .flat_map(|removed| of(5, 2.0, removed, &POLICIES))
            .collect(),
        Part::Overload => {
            let policies = [&POLICIES[..], &["p2c", "bounded"]].concat();
            let of_load = |load| of(2, load, none, &policies);
            [1.5, 2.0, 3.0].into_iter().flat_map(of_load).collect()
        }
        Part::Identify | Part::Nodes => Vec::new(),
    }
}

/// Measures `parts` once for each seed of `settings`: `measure` runs the processes of a part's trials.
///
/// # Errors
/// [`ExperimentError`] before any measurement starts. A measurement that fails is part of the outcome.
pub fn run(
    parts: &[Part],
    settings: &Settings,
    setting: Vec<(String, String)>,
    progress: Progress,
    measure: RunTrials<'_>,
) -> Result<Outcome, ExperimentError> {
    settings.claims.check_experiments(&PARTS.map(Part::name))?;
    for part in PARTS {
        let labels: Vec<Labels> = plan(part).iter().map(Trial::labels).collect();
        settings.claims.check_names(part.name(), &SERIES, &labels)?;
    }
    let parts: Vec<Part> = parts.iter().copied().filter(|part| PARTS.contains(part)).collect();
    if parts.is_empty() || settings.seeds == 0 {
        let measured = PARTS.map(Part::name).join(", ");
        return Err(ExperimentError::Settings(format!(
            "{measured} are measured on this machine, at least once; the others are simulated: leave out --platform"
        )));
    }
    let mut replications = Vec::new();
    for seed in settings.seeds() {
        let runs = parts.iter().flat_map(|part| measure(&plan(*part), seed, progress));
        replications.push(Replication::of(
            "this machine",
            seed,
            runs.collect::<Vec<_>>().into_iter(),
        ));
    }
    let claims = parts.iter().flat_map(|part| settings.claims.of(part.name()));
    let all = ("setting", "this machine, with slaves that wait instead of computing");
    let setting = [(all.0.to_owned(), all.1.to_owned())].into_iter().chain(setting);
    Ok(Outcome {
        name: match parts.as_slice() {
            [one] => one.name(),
            _ => "chronos",
        }
        .into(),
        platform: "linux".into(),
        testbed: Testbed::Machine,
        machines: vec!["this machine".into()],
        seeds: settings.seeds().collect(),
        setting: setting.collect(),
        claims: claims
            .map(|claim| judge(claim, &replications, &settings.reasons))
            .collect(),
        measures: Vec::new(),
        tables: parts.iter().map(|part| table(*part, &replications)).collect(),
        figures: parts.iter().map(|part| figure(*part, &replications)).collect(),
        means: means(&replications),
        failures: failures(&replications),
        samples: of_first_seed(replications, settings.seed),
    })
}

fn table(part: Part, replications: &[Replication]) -> FigureTable {
    let row = |trial: Trial| {
        let labels = trial.labels();
        let name: Vec<&str> = ["slaves", "load", "removed", "policy"]
            .map(|key| labels[key].as_str())
            .into();
        let figures = SERIES.map(|series| median(&values(replications, &labels, series)));
        (name.join(" "), figures.to_vec())
    };
    FigureTable {
        title: format!("{}: slaves, load, removed, policy; medians over the seeds", part.name()),
        columns: SERIES.map(String::from).to_vec(),
        rows: plan(part).into_iter().map(row).collect(),
    }
}

/// Timely items of each policy, a series for each setting.
fn figure(part: Part, replications: &[Replication]) -> Figure {
    let plan = plan(part);
    let mut groups: Vec<&str> = Vec::new();
    let mut bars: Vec<Bars> = Vec::new();
    for trial in &plan {
        let labels = trial.labels();
        let name = format!(
            "{} slaves, load {}, removed {}",
            labels["slaves"], labels["load"], labels["removed"]
        );
        if !groups.contains(&trial.policy) {
            groups.push(trial.policy);
        }
        if bars.last().is_none_or(|bars| bars.name != name) {
            let values = Vec::new();
            bars.push(Bars { name, values });
        }
        let spread = Spread::of(&values(replications, &labels, "items_timely_per_s"));
        bars.last_mut().into_iter().for_each(|bars| bars.values.push(spread));
    }
    Figure {
        experiment: part.name().into(),
        title: "Timely items a second, by policy".into(),
        chart: Chart::Bars {
            groups: groups.into_iter().map(String::from).collect(),
            bars,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Claims, Verdict};

    #[test]
    fn claims_name_what_is_measured_and_a_ratio_to_almost_nothing_is_not_judged() {
        let claims = Claims::parse(CLAIMS, "x").unwrap();
        let settings = Settings {
            machines: Vec::new(),
            profiles: Vec::new(),
            seed: 1,
            seeds: 1,
            sets: 1,
            claims,
            reasons: crate::claims::reasons(REASONS, "x").unwrap(),
            workers: None,
        };
        // All serve almost nothing in time, and refuse almost everything at once.
        let mut measure = |trials: &[Trial], _: u64, _: Progress| {
            let run = |trial: &Trial| Run {
                labels: trial.labels(),
                settled_from: 0,
                series: SERIES.map(|name| (name.to_owned(), vec![Some(0.001); 5])).into(),
            };
            trials.iter().map(|trial| Ok(run(trial))).collect()
        };
        let outcome = run(&Part::ALL, &settings, Vec::new(), &|_| {}, &mut measure).unwrap();
        assert_eq!(
            (outcome.tables.len(), outcome.figures.len()),
            (PARTS.len(), PARTS.len())
        );
        let judged = [
            "linux-scale-over-rr",
            "linux-scale-over-prop",
            "linux-sla-fc-prop",
            "linux-transient-fc-prop",
            "linux-nodes-alike",
            "linux-master-delay",
            "linux-twice-after-removal",
            "linux-overload-over-rr",
            "linux-overload-over-prop",
        ]
        .map(|id| outcome.claims.iter().find(|result| result.claim.id == id).unwrap());
        for result in judged {
            assert!(result.failed_premise.is_some(), "{}", result.claim.id);
            assert_ne!(result.outcome, Verdict::Holds, "{}", result.claim.id);
        }
        let refused = run(&[Part::Nodes], &settings, Vec::new(), &|_| {}, &mut measure);
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .starts_with("chronos-scale, chronos-delay, ")
        );
    }
}
