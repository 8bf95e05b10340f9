//! Control laws of this project against the first paper's law: every disturbance, right and wrong models, and energy at
//! equal quality.
//!
//! `plan` lists the runs, `disturbance` the disturbances; `run` performs a run on one machine with one seed, `metrics`
//! judges it job by job, `fronts` compares energy. `on_machine` does the same with a user's scenario on this machine.
//! The machines, the job and the weights are those of the first paper's experiments; the set point of tardiness is the
//! default of the scenarios.

mod columns;
pub(crate) mod disturbance;
mod fronts;
mod metrics;
mod on_machine;
mod plan;
mod run;

use crate::claims::judge;
use crate::outcome::{Bars, Chart, Curve, Figure, Measure};
use crate::parallel::in_order;
use crate::qedb::{SeededSubject, means, of_first_seed, places};
use crate::samples::{Replication, Run, failures};
use crate::stats::{Spread, mean};
use crate::{Experiment, ExperimentError, Outcome, Progress, Settings};

use columns::SERIES;
use disturbance::Disturbance;
use fronts::{Point, front, power_ratios};
use plan::{PlannedRun, plan};

pub(crate) use plan::{Case, Law};
pub(crate) use run::Models;

pub use on_machine::{Course, on_machine};

/// The goals, as claims that were written before the first run.
pub const CLAIMS: &str = include_str!("../../data/controllers-claims.toml");
/// Reasons why some goals are not reached, as far as known.
pub const REASONS: &str = include_str!("../../data/controllers-reasons.toml");

pub const EXPERIMENT: Experiment = Experiment {
    name: "controllers",
    about: "the paper's law at a sample of a second against laws at every job and within jobs",
    run,
};

/// Runs the plan on every machine with every seed.
///
/// # Errors
/// [`ExperimentError`] before anything runs. A run that fails is part of the outcome.
pub fn run(settings: &Settings, progress: Progress) -> Result<Outcome, ExperimentError> {
    settings.check()?;
    let plan = plan();
    let labels: Vec<_> = plan.iter().map(PlannedRun::labels).collect();
    settings.claims.check_names(EXPERIMENT.name, &SERIES, &labels)?;
    let places = places(settings);
    let replications = carry_out(&plan, &places, settings.workers(), progress);
    Ok(Outcome {
        name: EXPERIMENT.name.into(),
        platform: "sim".into(),
        testbed: crate::Testbed::Machine,
        machines: settings.machine_names(),
        seeds: settings.seeds().collect(),
        setting: crate::qedb::rows(crate::qedb::CONTROLLERS_JOB, run::TARDINESS),
        claims: settings
            .claims
            .of(EXPERIMENT.name)
            .map(|claim| judge(claim, &replications, &settings.reasons))
            .collect(),
        tables: Vec::new(),
        measures: measures(&plan, &replications),
        figures: figures(&plan, &replications),
        means: means(&replications),
        failures: failures(&replications),
        samples: of_first_seed(replications, settings.seed),
    })
}

/// Runs the replications in parallel, each as a whole: its models are learnt once, for all of its runs.
fn carry_out(plan: &[PlannedRun], places: &[SeededSubject], workers: usize, progress: Progress) -> Vec<Replication> {
    let done = |count: usize| {
        progress(&format!(
            "{count} of {} replications, {} runs each",
            places.len(),
            plan.len()
        ))
    };
    in_order(places, workers, |place| replicate(plan, place), &done)
}

fn replicate(plan: &[PlannedRun], place: &SeededSubject) -> Replication {
    let results = match Models::learn(place) {
        Err(failure) => vec![Err(failure)],
        Ok(models) => plan.iter().map(|planned| run::run(place, planned, &models)).collect(),
    };
    Replication::of(&place.subject.machine.name, place.seed, results.into_iter())
}

/// The single sample of a series of a run.
fn value(run: &Run, series: &str) -> Option<f64> {
    run.series.get(series)?.first().copied().flatten()
}

/// The spread of `series` over all replications of one planned run.
fn spread(replications: &[Replication], planned: &PlannedRun, series: &str) -> Option<Spread> {
    let labels = planned.labels();
    let runs = replications
        .iter()
        .filter_map(|one| one.runs.iter().find(|run| run.labels == labels));
    Spread::of(&runs.filter_map(|run| value(run, series)).collect::<Vec<_>>())
}

fn figures(plan: &[PlannedRun], replications: &[Replication]) -> Vec<Figure> {
    let bars = |title: &str, series: &str| {
        let of_law = |law: Law| Bars {
            name: law.name().into(),
            values: Disturbance::ALL
                .map(|disturbance| {
                    let planned = PlannedRun {
                        law,
                        disturbance,
                        case: Case::Own,
                        front: None,
                    };
                    spread(replications, &planned, series)
                })
                .to_vec(),
        };
        Figure {
            experiment: EXPERIMENT.name.into(),
            title: title.into(),
            chart: Chart::Bars {
                groups: Disturbance::ALL.map(|disturbance| disturbance.name().into()).to_vec(),
                bars: Law::ALL.map(of_law).to_vec(),
            },
        }
    };
    vec![
        bars(
            "integral of |tardiness - goal| during the disturbance, in seconds",
            "iae",
        ),
        bars("jobs until settled", "settled-jobs"),
        bars("overshoot of a second's mean, relative to the goal", "overshoot"),
        bars("share of late jobs", "misses"),
        bars("mean fresh share", "fresh"),
        bars("mean power, in watts", "power"),
        fronts_figure(plan, replications),
    ]
}

/// The points of a control law's front in one replication.
fn points_in(plan: &[PlannedRun], replication: &Replication, law: Law) -> Vec<Point> {
    let of = |planned: &PlannedRun| {
        let labels = planned.labels();
        let run = replication.runs.iter().find(|run| run.labels == labels)?;
        Some(Point {
            misses: value(run, "misses")?,
            fresh: value(run, "fresh")?,
            power: value(run, "power")?,
        })
    };
    let on_front = plan.iter().filter(|run| run.law == law && run.front.is_some());
    on_front.filter_map(of).collect()
}

/// The points of a control law's front: medians over all replications of each set point.
fn points(plan: &[PlannedRun], replications: &[Replication], law: Law) -> Vec<Point> {
    let of = |planned: &PlannedRun| {
        let median = |series| Some(spread(replications, planned, series)?.median);
        Some(Point {
            misses: median("misses")?,
            fresh: median("fresh")?,
            power: median("power")?,
        })
    };
    plan.iter()
        .filter(|planned| planned.law == law && planned.front.is_some())
        .filter_map(of)
        .collect()
}

/// Power of the law relative to the baseline's at equal quality, and the share of the baseline's front that it reaches.
/// The power is the ratio in every replication, averaged over the reached points of the baseline's front there.
fn at_equal_quality(plan: &[PlannedRun], replications: &[Replication], law: Law) -> [Option<Spread>; 2] {
    let ratios = replications.iter().map(|replication| {
        let [baseline, own] = [Law::Paper, law].map(|law| points_in(plan, replication, law));
        power_ratios(&baseline, &own)
    });
    let judged: Vec<(Option<f64>, f64)> = ratios
        .filter(|ratios| !ratios.is_empty())
        .map(|ratios| {
            let matched: Vec<f64> = ratios.iter().flatten().copied().collect();
            (mean(&matched), matched.len() as f64 / ratios.len() as f64)
        })
        .collect();
    let powers: Vec<f64> = judged.iter().filter_map(|(ratio, _)| *ratio).collect();
    let reached: Vec<f64> = judged.iter().map(|(_, part)| *part).collect();
    [Spread::of(&powers), Spread::of(&reached)]
}

/// Measures without a claim: energy at equal quality, and the worst effects of a wrong model.
fn measures(plan: &[PlannedRun], replications: &[Replication]) -> Vec<Measure> {
    let of_law = |law: Law| {
        let [power, reached] = at_equal_quality(plan, replications, law);
        let measure = |what: &str, spread| Measure {
            name: format!("{}: {what}", law.name()),
            formula: "lab/evaluation/src/controllers/fronts.rs".into(),
            spread,
        };
        [
            measure("power over the paper's at equal late jobs and fresh share", power),
            measure("part of the paper's front that it reaches", reached),
        ]
    };
    let strange = plan.iter().filter(|run| run.front.is_none() && run.case != Case::Own);
    let worst = |planned: &PlannedRun| {
        let (law, case) = (planned.law.name(), planned.case.name());
        [
            ("worst-job", "largest tardiness of a job"),
            ("fallback", "share of windows in fallback"),
        ]
        .map(|(series, what)| Measure {
            name: format!("{law}, {case}: {what}"),
            formula: format!("mean({series}, law={law}, case={case})"),
            spread: spread(replications, planned, series),
        })
    };
    let fronts = Law::ALL.into_iter().flat_map(of_law);
    fronts.chain(strange.flat_map(worst)).collect()
}

/// Power by late jobs; the curves' names have the law's power relative to the baseline's at equal quality.
fn fronts_figure(plan: &[PlannedRun], replications: &[Replication]) -> Figure {
    let curve = |law: Law| {
        let own = points(plan, replications, law);
        let [power, _] = at_equal_quality(plan, replications, law);
        let ratio = power.map_or("no match".into(), |s| {
            format!("{:.3} ({:.3} to {:.3}) of the power", s.median, s.low, s.high)
        });
        let mut points: Vec<(f64, Option<f64>)> =
            front(&own).iter().map(|p| (100.0 * p.misses, Some(p.power))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Curve {
            name: format!("{}: {ratio}", law.name()),
            points,
        }
    };
    let curves: Vec<Curve> = Law::ALL.map(curve).to_vec();
    let length = curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|(x, _)| *x)
        .fold(1.0, f64::max);
    Figure {
        experiment: EXPERIMENT.name.into(),
        title: "power in watts by late jobs, random disturbance, points that nothing beats in late jobs, fresh data and power".into(),
        chart: Chart::Curves {
            x_unit: "% late".into(),
            length,
            curves,
            levels: Vec::new(),
            band: None,
        },
    }
}
