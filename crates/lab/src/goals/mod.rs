//! Goals of late jobs: is the share that is reached the one that is asked for, and at what energy?
//!
//! **Plan.** Each machine of the ensemble runs its job every 100 ms beside interferers on three cores. The law is
//! `mimo` with jobs paced from within. It is asked for a late share of 0.1, 1 and 5 %, which is all that it is told.
//! Beside it the same law holds fixed means of tardiness: a grid of set points, of which a careful engineer takes the
//! highest that keeps the goal in a run like the judged one (*tuned by hand*). Both see the same seed, so the
//! comparison favours the tuned one: it is judged on the run that it was tuned in.
//!
//! **Figures**, one of each per run: `late`, the share of late jobs after the start-up; `of-asked`, the same over the
//! asked share; `power`, the mean over the run in watts; `power-of-tuned`, over that of the tuned set point of the same
//! machine and seed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use punctual_runtime::report::RunReport;
use punctual_scenario::RunRequest;
use punctual_units::{Nanos, Share};
use punctual_workload::{Active, TaskGoal};

use crate::claims::judge;
use crate::controllers::{Case, Law, Models};
use crate::outcome::{Bars, Chart, Figure, Measure};
use crate::parallel::in_order;
use crate::qedb::{self, Clocking, Place, identify_ask, means, of_first_seed, places};
use crate::samples::{Labels, Replication, Run, failures, labels};
use crate::stats::Spread;
use crate::{Experiment, ExperimentError, Outcome, Progress, Settings};

/// What is to be achieved, as written before the first run.
pub const CLAIMS: &str = include_str!("../../data/goals-claims.toml");
/// Why some of it is not, as far as known.
pub const REASONS: &str = "";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "goals",
    about: "goals of 0.1, 1 and 5 % late jobs: the share reached, and the energy beside a set point tuned by hand",
    run,
};

/// The columns of every run.
const SERIES: [&str; 4] = ["late", "of-asked", "power", "power-of-tuned"];

/// A late share that is asked for: its name, and how long a run has to be to tell it.
const ASKED: [(&str, f64, Nanos); 3] = [
    ("0.1", 0.001, Nanos::from_secs(2000)),
    ("1", 0.01, Nanos::from_secs(600)),
    ("5", 0.05, Nanos::from_secs(300)),
];

/// Set points that are tried by hand.
const GRID: [f64; 8] = [0.75, 0.8, 0.84, 0.88, 0.91, 0.94, 0.97, 1.0];

/// Cores with an interferer.
const CORES: u32 = 3;

/// Runs the plan on every machine with every seed.
///
/// # Errors
/// [`ExperimentError`] before anything runs. A run that fails is part of the outcome.
pub fn run(settings: &Settings, progress: Progress) -> Result<Outcome, ExperimentError> {
    settings.check()?;
    let all: Vec<Labels> = ASKED.iter().map(|(name, ..)| labels([("asked", *name)])).collect();
    settings.claims.check_names(EXPERIMENT.name, &SERIES, &all)?;
    let places = places(settings);
    let done = |count: usize| progress(&format!("{count} of {} replications", places.len()));
    let replications = in_order(&places, settings.workers(), replicate, &done);
    Ok(Outcome {
        name: EXPERIMENT.name.into(),
        platform: "sim".into(),
        testbed: crate::Testbed::Machine,
        machines: settings.machine_names(),
        seeds: settings.seeds().collect(),
        setting: vec![
            ("law".into(), "mimo, jobs paced from within".into()),
            ("interferers".into(), format!("C50-D50 on {CORES} cores, all the while")),
            ("set points tried by hand".into(), format!("{GRID:?}")),
        ],
        claims: settings
            .claims
            .of(EXPERIMENT.name)
            .map(|claim| judge(claim, &replications, &settings.reasons))
            .collect(),
        measures: measures(&replications),
        figures: vec![figure(
            "reached share of late jobs over the asked one",
            "of-asked",
            &replications,
        )],
        means: means(&replications),
        failures: failures(&replications),
        samples: of_first_seed(replications, settings.seed),
    })
}

fn replicate(place: &Place) -> Replication {
    let mut replication = Replication {
        machine: place.subject.machine.name.clone(),
        seed: place.seed,
        ..Replication::default()
    };
    let models = match Models::learn(place) {
        Ok(models) => models,
        Err(failure) => {
            replication.failures.push(failure);
            return replication;
        }
    };
    for (name, asked, duration) in ASKED {
        match columns(place, &models, asked, duration) {
            Ok(values) => replication.runs.push(Run {
                labels: labels([("asked", name)]),
                settled_from: 0,
                series: SERIES.iter().zip(values).map(column).collect::<BTreeMap<_, _>>(),
            }),
            Err(failure) => replication.failures.push(format!(
                "{}, seed {}, {name} %: {failure}",
                place.subject.machine.name, place.seed
            )),
        }
    }
    replication
}

fn column((name, value): (&&str, Option<f64>)) -> (String, Vec<Option<f64>>) {
    ((*name).to_string(), vec![value])
}

/// The values of [`SERIES`] for one goal.
fn columns(place: &Place, models: &Models, asked: f64, duration: Nanos) -> Result<[Option<f64>; 4], String> {
    let goal = TaskGoal::Late(Share::clamped(asked));
    let (late, power) = judged(place, models, goal, duration)?;
    let mut tuned = None;
    for set_point in GRID {
        let (fixed_late, fixed_power) = judged(place, models, TaskGoal::Tardiness(set_point), duration)?;
        if fixed_late <= asked {
            tuned = Some(fixed_power);
        }
    }
    Ok([
        Some(late),
        Some(late / asked),
        Some(power),
        tuned.map(|tuned| power / tuned),
    ])
}

/// Late share after the start-up, and mean power, of one run.
fn judged(place: &Place, models: &Models, goal: TaskGoal, duration: Nanos) -> Result<(f64, f64), String> {
    let mut request = asked(place, duration);
    request.scenario.goal.tasks = goal;
    let source = models.source(Law::MimoWithin, Case::Own);
    request.controller = Some(source.map_err(|error| error.to_string())?);
    let finished = punctual_scenario::run(&request, &mut |_| ControlFlow::Continue(()));
    let report = finished.map_err(|error| error.to_string())?.report;
    late_and_power(&report, request.scenario.control.warm_up.as_secs_f64()).ok_or_else(|| "nothing to judge by".into())
}

fn late_and_power(report: &RunReport, from: f64) -> Option<(f64, f64)> {
    let jobs: Vec<f64> = report
        .jobs
        .iter()
        .filter(|job| job.t_s > from)
        .map(|job| job.tardiness)
        .collect();
    let late = jobs.iter().filter(|tardiness| **tardiness > 1.0).count();
    let since: Vec<_> = report.samples.iter().filter(|sample| sample.t_s > from).collect();
    let energy: f64 = since.iter().filter_map(|sample| sample.energy_j).sum();
    let seconds = since.last()?.t_s - from;
    (!jobs.is_empty() && seconds > 0.0).then(|| (late as f64 / jobs.len() as f64, energy / seconds))
}

/// The request without its goal and gains.
fn asked(place: &Place, duration: Nanos) -> RunRequest {
    let ask = qedb::Ask {
        interference: Some(qedb::Interference {
            mix: qedb::Mix(50),
            cores: CORES,
            active: Active::ALWAYS,
            dense: false,
        }),
        ..identify_ask(place.subject.job, place.seed)
    };
    let mut request = qedb::request(place, &ask, Clocking::Law);
    let scenario = &mut request.scenario;
    scenario.duration = duration;
    let law = Law::MimoWithin;
    (scenario.control.kind, scenario.control.pace, scenario.control.within) = (law.kind(), law.pace(), law.within());
    request
}

/// The spread of a column over all replications.
fn spread(asked: &str, series: &str, replications: &[Replication]) -> Option<Spread> {
    let wanted = labels([("asked", asked)]);
    let runs = replications
        .iter()
        .flat_map(|one| &one.runs)
        .filter(|run| run.is(&wanted));
    let values: Vec<f64> = runs.filter_map(|run| *run.series.get(series)?.first()?).collect();
    Spread::of(&values)
}

fn measures(replications: &[Replication]) -> Vec<Measure> {
    let what = [
        ("late", "share of late jobs"),
        ("of-asked", "share of late jobs over the asked one"),
        ("power", "mean power, W"),
        ("power-of-tuned", "power over that of the set point tuned by hand"),
    ];
    let measure = |asked: &str, (series, what): (&str, &str)| Measure {
        name: format!("{asked} % asked: {what}"),
        formula: format!("mean({series}, asked={asked})"),
        spread: spread(asked, series, replications),
    };
    ASKED
        .iter()
        .flat_map(|(asked, ..)| what.map(|what| measure(asked, what)))
        .collect()
}

fn figure(title: &str, series: &str, replications: &[Replication]) -> Figure {
    Figure {
        experiment: EXPERIMENT.name.into(),
        title: title.into(),
        chart: Chart::Bars {
            groups: ASKED.iter().map(|(asked, ..)| format!("{asked} %")).collect(),
            bars: vec![Bars {
                name: "mimo within jobs".into(),
                values: ASKED
                    .iter()
                    .map(|(asked, ..)| spread(asked, series, replications))
                    .collect(),
            }],
        },
    }
}
