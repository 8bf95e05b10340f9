//! Measures the time of a decision, at the instants of a run at utilisation 2.6.
//!
//! These are the only figures of the experiments that are measured on this machine: they differ from run to run, and
//! are kept apart from the samples. A decision is timed alone, without actuation, which costs nothing on the simulated
//! machine.

use std::time::Instant;

use punctual_machine::split::run;
use punctual_sim::split::Refill;

use super::carry::DURATION;
use super::decide::Decider;
use super::measured::quantile;
use super::policy::Policy;
use super::profiles::RunSet;
use super::tasksets;
use super::variant::{Rule, Variant};
use crate::claims::Claim;
use crate::outcome::Measure;
use crate::samples::{Labels, Replication, Run, labels as of};
use crate::stats::Spread;

/// Note beside claims about these runs.
pub const NOTE: &str = "measured, not simulated; without actuation, not comparable with the paper's, which include it";

/// Columns of these runs, in microseconds.
pub const SERIES: [&str; 2] = ["cost", "cost-p99"];

/// The utilisation of the timed run.
const UTILISATION: f64 = 2.6;

/// The policies and rules that are timed.
const TIMED: [(Policy, Rule); 6] = [
    (Policy::DnaPaper, Rule::EveryChange),
    (Policy::DadnaPaper, Rule::EveryChange),
    (Policy::Exact, Rule::EveryChange),
    (Policy::Dna, Rule::Hysteresis),
    (Policy::Dadna, Rule::Hysteresis),
    (Policy::Exact, Rule::Hysteresis),
];

/// The labels of the timed runs.
pub fn labels() -> Vec<Labels> {
    TIMED
        .into_iter()
        .map(|(policy, rule)| labels_of(policy, rule))
        .collect()
}

/// Whether `claim` is about these runs.
pub fn judges(claim: &Claim) -> bool {
    let ours = |series: &String| SERIES.contains(&series.as_str());
    claim.formula.queries().iter().any(|query| ours(&query.series))
}

fn labels_of(policy: Policy, rule: Rule) -> Labels {
    // Claims refer to the paper's rule by its policy alone, so its label has no suffix.
    let part = if rule == Rule::EveryChange {
        "cost"
    } else {
        "cost-hysteresis"
    };
    of([("part", part), ("policy", policy.name())])
}

/// Times every decision for one task set on each set of profiles; costs are in microseconds.
pub fn runs(prepared: &[RunSet], seed: u64) -> Vec<Replication> {
    let replication = |prepared: &RunSet| {
        let mut replication = Replication {
            machine: prepared.name.clone(),
            seed,
            ..Replication::default()
        };
        for (policy, rule) in TIMED {
            match timed(prepared, seed, policy, rule) {
                Ok(run) => replication.runs.push(run),
                Err(failure) => replication.failures.push(format!(
                    "{}, utilisation {UTILISATION}, decisions of {} timed: {failure}",
                    prepared.name,
                    policy.name()
                )),
            }
        }
        replication
    };
    prepared.iter().map(replication).collect()
}

fn timed(prepared: &RunSet, seed: u64, policy: Policy, rule: Rule) -> Result<Run, String> {
    let set = tasksets::draw(&prepared.programs, prepared.machine.cores, UTILISATION, seed, 0)?;
    let variant = Variant {
        policy,
        refill: Refill::Charged,
        rule,
    };
    let mut machine = prepared.machine;
    // The paper's rule is timed with free refilling, so that refilling does not slow its run.
    if rule == Rule::EveryChange {
        machine.refill = Refill::Free;
    }
    let mut decider = Decider::new(prepared, &mut machine, &set.tasks, variant)?;
    let mut costs: Vec<f32> = Vec::new();
    run(&machine, &prepared.programs, &set.tasks, DURATION, |instant| {
        let begun = Instant::now();
        let answer = decider.decide(instant);
        if !answer.put_off {
            costs.push(begun.elapsed().as_secs_f32() * 1e6);
        }
        answer
    })
    .map_err(|error| error.to_string())?;
    let mut rising = costs.clone();
    rising.sort_by(f32::total_cmp);
    let p99 = quantile(&rising, 0.99);
    Ok(Run {
        labels: labels_of(policy, rule),
        settled_from: 0,
        series: [
            (
                "cost".to_string(),
                costs.iter().map(|cost| Some(f64::from(*cost))).collect(),
            ),
            ("cost-p99".to_string(), vec![Some(p99)]),
        ]
        .into(),
    })
}

/// Median, and the range from the first to the 99th percentile, of each timed run.
pub fn measures(replication: &Replication) -> Vec<Measure> {
    let measure = |run: &Run| {
        let mut rising: Vec<f32> = run
            .window("cost", 0, usize::MAX)
            .iter()
            .map(|cost| *cost as f32)
            .collect();
        rising.sort_by(f32::total_cmp);
        let name = run.labels.get("policy").map_or("", String::as_str);
        let rule = match run.labels.get("part").map(String::as_str) {
            Some("cost") => "",
            _ => ", hysteresis",
        };
        Measure {
            name: format!("{}: us per decision, {name}{rule}, measured", replication.machine),
            formula: "median, 1st to 99th percentile".into(),
            spread: (!rising.is_empty()).then(|| Spread {
                median: quantile(&rising, 0.5),
                low: quantile(&rising, 0.01),
                high: quantile(&rising, 0.99),
            }),
        }
    };
    replication.runs.iter().map(measure).collect()
}
