//! Energy with and without prices, at a goal of 1 % late jobs and the same minimum of fresh data, beside disturbances.
//!
//! Each machine runs its job every 100 ms under every disturbance of `Disturbance`: with prices by default
//! (`priced`), without prices and with the data response ratio of scenario files (`default`) or of the paper
//! (`nominal`). `searched` is the best fixed setting, found by trying: every clock of `PINNED`, and the law every
//! 200 ms at every set point of `SET_POINTS`, both with the least updates; the least power among those that keep the
//! goal over all seeds. It is judged on the runs in which it was found, which favours it.

use super::{GoalSums, failed, learn, seen};
use crate::controllers::disturbance::{Disturbance, LASTS, SETTLED, tasks};
use crate::outcome::Measure;
use crate::parallel::in_order;
use crate::qedb::{self, Clocking, SeededSubject, identify_ask, places};
use crate::stats::Spread;
use crate::{Experiment, ExperimentError, Outcome, Progress, Settings};

use std::ops::ControlFlow;

use punctual_loop::ModelDocument;
use punctual_scenario::ControllerSource;
use punctual_units::{Hertz, Nanos, Share};
use punctual_workload::{Active, Class, ControllerKind, Pace, Prices, TaskGoal};

pub const EXPERIMENT: Experiment = Experiment {
    name: "prices",
    about: "energy with prices, beside set points by default and the best fixed setting found by search",
    run,
};

/// Share of jobs that may be late.
const ASKED: f64 = 0.01;
/// Clocks that are tried, in MHz, and set points of mean tardiness.
const PINNED: [u64; 9] = [500, 600, 700, 800, 1000, 1200, 1500, 1800, 2000];
const SET_POINTS: [f64; 5] = [0.7, 0.8, 0.85, 0.9, 0.95];
/// Set points of the data response ratio: of scenario files by default, and of the paper; and one of it and of mean
/// tardiness that shed all that may be shed.
const DRR: [f64; 2] = [0.62, 0.28];
const SHEDS: [f64; 2] = [0.05, 0.45];

/// A run of one machine, seed and disturbance.
#[derive(Clone, Copy, Debug)]
enum Way {
    Priced,
    SetPoint(f64),
    Pinned(u64),
    Tuned(f64),
}

fn ways() -> Vec<Way> {
    let first = [Way::Priced].into_iter().chain(DRR.map(Way::SetPoint));
    let tried = PINNED.map(Way::Pinned).into_iter().chain(SET_POINTS.map(Way::Tuned));
    first.chain(tried).collect()
}

/// Sums of every way, and the least share of fresh data.
type Judged = Result<Vec<(GoalSums, f64)>, String>;

fn run(settings: &Settings, progress: Progress) -> Result<Outcome, ExperimentError> {
    settings.check()?;
    let places = places(settings);
    let seeds = settings.seeds().count();
    let machines: Vec<&SeededSubject> = places.iter().step_by(seeds).collect();
    let models = in_order(&machines, settings.workers(), |place| learn(place), &|_| {});
    let all = Disturbance::ALL.map(|disturbance| {
        places
            .iter()
            .enumerate()
            .map(move |(i, it)| (i / seeds, it, disturbance))
    });
    let runs: Vec<(usize, &SeededSubject, Disturbance)> = all.into_iter().flatten().collect();
    let judge = |(machine, place, disturbance): &(usize, &SeededSubject, Disturbance)| -> Judged {
        let model = models[*machine].as_ref().map_err(String::clone)?;
        ways()
            .into_iter()
            .map(|way| judged(place, model, *disturbance, way))
            .collect()
    };
    let count = runs.len();
    let seen = in_order(&runs, settings.workers(), judge, &|done| {
        progress(&format!("{done} of {count}"))
    });
    let names = settings.machine_names();
    let cases = Disturbance::ALL
        .into_iter()
        .flat_map(|disturbance| names.iter().map(move |name| (disturbance, name)));
    let failures = seen.iter().filter_map(|seen| seen.as_ref().err().cloned()).collect();
    let measures = cases
        .zip(seen.chunks(seeds))
        .flat_map(|((disturbance, name), seeds)| measures(&format!("{}, {name}", disturbance.name()), seeds));
    let mut measures: Vec<Measure> = measures.collect();
    for what in ["power over default", "power over nominal", "power over searched"] {
        let own = measures.iter().filter(|one| one.name.ends_with(what));
        let ratios: Vec<f64> = own.filter_map(|one| Some(one.spread?.median)).collect();
        measures.push(measure("all", what, Spread::of(&ratios)));
    }
    Ok(Outcome {
        name: EXPERIMENT.name.into(),
        platform: "sim".into(),
        testbed: crate::Testbed::Machine,
        machines: settings.machine_names(),
        seeds: settings.seeds().collect(),
        setting: vec![("goal".into(), "late 1 %, half of the data fresh".into())],
        claims: Vec::new(),
        tables: Vec::new(),
        measures,
        figures: Vec::new(),
        means: Vec::new(),
        failures,
        samples: Vec::new(),
    })
}

fn judged(
    place: &SeededSubject,
    model: &ModelDocument,
    disturbance: Disturbance,
    way: Way,
) -> Result<(GoalSums, f64), String> {
    let ask = qedb::Ask {
        interference: Some(qedb::Interference {
            mix: qedb::Mix(50),
            cores: 3,
            active: Active::ALWAYS,
            dense: false,
        }),
        ..identify_ask(place.subject.job, place.seed)
    };
    let clocking = match way {
        Way::Pinned(mhz) => Clocking::Pinned(Hertz::from_mhz(mhz)),
        _ => Clocking::Law,
    };
    let mut request = qedb::request(place, &ask, clocking);
    let scenario = &mut request.scenario;
    scenario.duration = SETTLED + LASTS * 2;
    scenario.goal.tasks = TaskGoal::Late(Share::clamped(ASKED));
    let control = &mut scenario.control;
    (control.kind, control.pace, control.within) = (ControllerKind::Mimo, Pace::Job, true);
    let every = Pace::Period(Nanos::from_millis(200));
    match way {
        Way::Priced => control.prices = Some(Prices::default()),
        Way::SetPoint(drr) => scenario.goal.drr = drr,
        Way::Pinned(_) => {
            (control.kind, control.pace, control.within) = (ControllerKind::Qod, every, false);
            scenario.goal.tasks = TaskGoal::Tardiness(SHEDS[1]);
        }
        Way::Tuned(set_point) => {
            (control.pace, control.within) = (every, false);
            (scenario.goal.tasks, scenario.goal.drr) = (TaskGoal::Tardiness(set_point), SHEDS[0]);
        }
    }
    let stretches = disturbance.stretches(place.seed);
    let mut disturbing = Vec::new();
    scenario.tasks.retain(|task| {
        if task.class == Class::BestEffort {
            disturbing = tasks(task, &stretches);
        }
        task.class != Class::BestEffort
    });
    scenario.tasks.extend(disturbing);
    request.controller = Some(ControllerSource::Model(model.clone()));
    let finished = punctual_scenario::run(&request, &mut |_| ControlFlow::Continue(()));
    let report = finished
        .map_err(|error| failed(place, &format!("{way:?}"), &error))?
        .report;
    let fresh = report.summary.fresh_share_min.unwrap_or(0.0);
    Ok((seen(&report, SETTLED.as_secs_f64(), 0), fresh))
}

/// The measures of one machine and disturbance, of all seeds together.
fn measures(case: &str, seeds: &[Judged]) -> Vec<Measure> {
    let seeds: Vec<_> = seeds.iter().flatten().collect();
    let pooled = |way: usize| {
        let sums = seeds.iter().map(|seen| seen[way]);
        sums.fold(
            (GoalSums::default(), 1.0),
            |(sum, least), (seen, fresh): (GoalSums, f64)| (sum + seen, fresh.min(least)),
        )
    };
    let power = |way: usize| pooled(way).0.energy_j / pooled(way).0.seconds;
    let late = |way: usize| pooled(way).0.late / pooled(way).0.jobs;
    let searched = (1 + DRR.len()..ways().len()).filter(|way| late(*way) <= ASKED);
    let searched = searched.min_by(|a, b| power(*a).total_cmp(&power(*b)));
    let spread = |value: f64| Spread {
        median: value,
        low: value,
        high: value,
    };
    let measure = |what: &str, value: Option<f64>| measure(case, what, value.map(spread));
    vec![
        measure("power, W", Some(power(0))),
        measure("power over default", Some(power(0) / power(1))),
        measure("power over nominal", Some(power(0) / power(2))),
        measure("power over searched", searched.map(|way| power(0) / power(way))),
        measure("late", Some(late(0))),
        measure("late, default", Some(late(1))),
        measure("late, searched", searched.map(late)),
        measure("fresh at least", Some(pooled(0).1)),
    ]
}

fn measure(case: &str, what: &str, spread: Option<Spread>) -> Measure {
    Measure {
        name: format!("{case}: {what}"),
        formula: "lab/evaluation/src/goals/prices.rs".into(),
        spread,
    }
}
