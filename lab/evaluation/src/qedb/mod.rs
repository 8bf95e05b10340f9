//! The evaluation of the first paper: QeDB with MIMO control (W. Kang and J. Chung, 2015), Figs. 3, 4 and 6 to 10.
//!
//! `setting` has the paper's parameters, and those that were chosen where it is silent; `plan` lists the runs;
//! `replicate` performs them on one machine with one seed; `figures` lists the charts. All runs have the same Q, R and
//! excitation.

mod approach;
mod columns;
mod disturbed;
mod ensemble;
mod figures;
mod plan;
mod replicate;
mod request;
mod setting;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::claims::{ClaimResult, judge};
use crate::parallel::in_order;
use crate::samples::{Labels, Replication, Run, failures};
use crate::stats::{Spread, mean};
use crate::{Experiment, ExperimentError, Outcome, Progress, Settings, Subject};

pub use approach::{Approach, DrrGoal};
pub use columns::SERIES;
pub use disturbed::{CONTROLLERS, Course, disturbed};
pub use ensemble::{FIRST_MACHINES, ensemble};
pub use plan::{Part, PlannedRun, plan};
pub use replicate::IDENTIFIED;
pub use setting::{Interference, JobTimes, Mix};

pub(crate) use plan::identify_ask;
pub(crate) use replicate::SeededSubject;
pub(crate) use request::{Clocking, request};
pub(crate) use setting::{Ask, CONTROL_PERIOD, CONTROLLERS_JOB, PERIOD, rows, weights};

use plan::{identify_labels, longest, needs_model};
use replicate::IdentificationResult;

/// The claims of the paper, as written before the first run.
pub const CLAIMS: &str = include_str!("../../data/qedb-claims.toml");
/// Reasons why some claims do not hold, as far as known.
pub const REASONS: &str = include_str!("../../data/qedb-reasons.toml");

/// The paper's experiments, and one for all of them together.
pub const EXPERIMENTS: [Experiment; 7] = [
    Experiment {
        name: "qedb-interference",
        about: "Fig. 3: what interfering cores do to a job, by clock",
        run: |settings, progress| run(&[Part::Interference], settings, progress),
    },
    Experiment {
        name: "qedb-qod",
        about: "Fig. 4: what fewer updates do to its data accesses",
        run: |settings, progress| run(&[Part::Qod], settings, progress),
    },
    Experiment {
        name: "qedb-identify",
        about: "Fig. 6: a model by least squares, and the law designed from it",
        run: |settings, progress| run(&[Part::Identify], settings, progress),
    },
    Experiment {
        name: "qedb-average",
        about: "Fig. 7: five approaches beside five mixes on one core",
        run: |settings, progress| run(&[Part::Average], settings, progress),
    },
    Experiment {
        name: "qedb-cores",
        about: "Figs. 8 and 9: the same beside one to three cores",
        run: |settings, progress| run(&[Part::Cores], settings, progress),
    },
    Experiment {
        name: "qedb-transient",
        about: "Fig. 10: a disturbance comes and goes",
        run: |settings, progress| run(&[Part::Transient], settings, progress),
    },
    Experiment {
        name: "qedb",
        about: "all of them, no run twice",
        run: |settings, progress| run(&Part::ALL, settings, progress),
    },
];

/// Runs `parts` on every machine with every seed.
///
/// # Errors
/// [`ExperimentError`] before any run starts. A run that fails is part of the outcome.
pub fn run(parts: &[Part], settings: &Settings, progress: Progress) -> Result<Outcome, ExperimentError> {
    settings.check()?;
    let plan = plan(parts);
    check_claims(parts, settings, &plan)?;
    let places = places(settings);
    let learnt = learn(parts, &places, settings.workers(), progress);
    let mut replications = carry_out(&plan, &places, &learnt, settings.workers(), progress);
    for (replication, learnt) in replications.iter_mut().zip(learnt) {
        replication.runs.extend(learnt.run);
        replication.failures.splice(0..0, learnt.failures);
    }
    let claims = judged(parts, settings, &replications);
    Ok(Outcome {
        name: name(parts).into(),
        platform: "sim".into(),
        testbed: crate::Testbed::Machine,
        machines: settings.machine_names(),
        seeds: settings.seeds().collect(),
        setting: rows(setting::EVALUATION_JOB, setting::TARDINESS),
        claims,
        tables: Vec::new(),
        measures: Vec::new(),
        figures: figures::figures(parts, &replications),
        means: means(&replications),
        failures: failures(&replications),
        samples: of_first_seed(replications, settings.seed),
    })
}

fn name(parts: &[Part]) -> &'static str {
    match parts {
        [one] => one.name(),
        _ => "qedb",
    }
}

/// Checks that every formula names existing samples and runs; claims about parts that do not run are checked as well.
fn check_claims(parts: &[Part], settings: &Settings, planned: &[PlannedRun]) -> Result<(), ExperimentError> {
    let known: Vec<&str> = Part::ALL.iter().map(|part| part.name()).collect();
    settings.claims.check_experiments(&known)?;
    let everything = if parts.len() < Part::ALL.len() {
        plan(&Part::ALL)
    } else {
        planned.to_vec()
    };
    let mut labels: Vec<Labels> = everything.into_iter().map(|run| run.labels).collect();
    labels.push(identify_labels());
    let series: Vec<&str> = SERIES.into_iter().chain(IDENTIFIED).collect();
    for part in Part::ALL {
        settings.claims.check_names(part.name(), &series, &labels)?;
    }
    Ok(())
}

/// Every pair of machine and seed; all machines share the readings of a seed.
pub(crate) fn places(settings: &Settings) -> Vec<SeededSubject> {
    let traces: BTreeMap<u64, _> = settings
        .seeds()
        .map(|seed| (seed, Arc::new(setting::trace(longest(), seed))))
        .collect();
    let place = |subject: &Arc<Subject>, (seed, trace): (&u64, &Arc<_>)| SeededSubject {
        subject: Arc::clone(subject),
        seed: *seed,
        trace: Arc::clone(trace),
    };
    let subjects: Vec<Arc<Subject>> = settings.machines.iter().cloned().map(Arc::new).collect();
    subjects
        .iter()
        .flat_map(|subject| traces.iter().map(move |entry| place(subject, entry)))
        .collect()
}

fn learn(parts: &[Part], places: &[SeededSubject], workers: usize, progress: Progress) -> Vec<IdentificationResult> {
    if !needs_model(parts) {
        return places.iter().map(|_| IdentificationResult::nothing()).collect();
    }
    let done = |count: usize| progress(&format!("learnt {count} of {} models", places.len()));
    in_order(places, workers, SeededSubject::learn, &done)
}

fn carry_out(
    plan: &[PlannedRun],
    places: &[SeededSubject],
    learnt: &[IdentificationResult],
    workers: usize,
    progress: Progress,
) -> Vec<Replication> {
    let jobs: Vec<(usize, &PlannedRun)> = (0..places.len())
        .flat_map(|i| plan.iter().map(move |run| (i, run)))
        .collect();
    let done = |count: usize| progress(&format!("{count} of {} runs", jobs.len()));
    let carry_out = |(i, planned): &(usize, &PlannedRun)| places[*i].run(planned, &learnt[*i]);
    let mut results = in_order(&jobs, workers, carry_out, &done).into_iter();
    let replication = |place: &SeededSubject| {
        let results = results.by_ref().take(plan.len());
        Replication::of(&place.subject.machine.name, place.seed, results)
    };
    places.iter().map(replication).collect()
}

fn judged(parts: &[Part], settings: &Settings, replications: &[Replication]) -> Vec<ClaimResult> {
    let claims = parts.iter().flat_map(|part| settings.claims.of(part.name()));
    claims
        .map(|claim| judge(claim, replications, &settings.reasons))
        .collect()
}

/// The mean of each series of each run after settling, over all replications.
pub(crate) fn means(replications: &[Replication]) -> Vec<(Labels, Vec<(String, Spread)>)> {
    let Some(first) = replications.iter().max_by_key(|replication| replication.runs.len()) else {
        return Vec::new();
    };
    let of_run = |run: &Run| {
        let series = run.series.keys().filter_map(|series| {
            let means = means_of(replications, &run.labels, series);
            Some((series.clone(), Spread::of(&means)?))
        });
        (run.labels.clone(), series.collect())
    };
    first.runs.iter().map(of_run).collect()
}

/// The mean of one series after settling of the run with exactly these labels, replication by replication.
fn means_of(replications: &[Replication], labels: &Labels, series: &str) -> Vec<f64> {
    let runs = replications
        .iter()
        .filter_map(|replication| replication.runs.iter().find(|run| run.labels == *labels));
    runs.filter_map(|run| mean(run.window(series, run.settled_from, usize::MAX)))
        .collect()
}

pub(crate) fn of_first_seed(replications: Vec<Replication>, seed: u64) -> Vec<Replication> {
    replications
        .into_iter()
        .filter(|replication| replication.seed == seed)
        .collect()
}

#[cfg(test)]
mod tests;
