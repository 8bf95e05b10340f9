//! Evaluation of goals for the share of late jobs: is the asked share reached, and at what energy?
//!
//! **Plan.** Each machine of the ensemble runs its job every 100 ms beside interferers on three cores, with a model
//! that was learnt on it once. The control law is `mimo` with jobs paced from within. Its goal is a late share of 0.1,
//! 1 or 5 %; it gets no other hint.
//!
//! The baseline is the previous version's law: `mimo` every 200 ms on a mean of tardiness, from the same model. Its set
//! point is *tuned by hand*, as a careful engineer would: out of a grid, the set point with the least power at which
//! the jobs of all seeds together keep the goal. The baseline is judged on the runs in which it was tuned, which
//! favours it.
//!
//! **How many jobs.** One seed shows little: at 0.1 %, `LateShareGoal::judged` jobs have two or three late ones. So the
//! jobs of all seeds are pooled, machine by machine: 30 seeds give 75 late jobs of 75,000 where exactly 0.1 % are late,
//! and Wilson's interval at 95 % ([`wilson`]) then reaches from 0.8 to 1.25 of that. The interval assumes independent
//! jobs. Before the first judged job the estimate has `LateShareGoal::learning` jobs to learn the
//! tail.
//!
//! **Figures** of each machine and goal: `late`, the share of late jobs; `of-asked`, that share divided by the asked
//! share, with its interval from `of-asked-low` to `of-asked-high`; `power`, the mean in watts; `power-of-tuned`, that
//! power divided by the tuned law's; `tuned`, the tuned set point; `lowest`, the share of steps at the lowest clock.

pub mod prices;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use punctual_control::intervals::wilson;
use punctual_loop::ModelDocument;
use punctual_runtime::report::RunReport;
use punctual_scenario::{ControllerSource, RunRequest};
use punctual_units::{Nanos, Share};
use punctual_workload::{Active, ControllerKind, Pace, TaskGoal};

use crate::claims::judge;
use crate::outcome::{Bars, Chart, Figure, Measure};
use crate::parallel::in_order;
use crate::qedb::{self, Clocking, PERIOD, SeededSubject, identify_ask, means, places};
use crate::samples::{Labels, Replication, Run, failures, labels};
use crate::stats::Spread;
use crate::{Experiment, ExperimentError, Outcome, Progress, Settings};

/// The goals, as claims that were written before the first run.
pub const CLAIMS: &str = include_str!("../../data/goals-claims.toml");
/// Reasons why some goals are not reached; none are known.
pub const REASONS: &str = "";

pub const EXPERIMENT: Experiment = Experiment {
    name: "goals",
    about: "goals of 0.1, 1 and 5 % late jobs: the share reached, and the energy beside a set point tuned by hand",
    run,
};

/// Columns of every run.
const SERIES: [&str; 8] = [
    "late",
    "of-asked",
    "of-asked-low",
    "of-asked-high",
    "power",
    "power-of-tuned",
    "tuned",
    "lowest",
];

/// A goal: the permitted share of late jobs.
struct LateShareGoal {
    /// The share in percent, for labels.
    name: &'static str,
    share: f64,
    /// Number of jobs of each seed before the first judged job.
    learning: u64,
    /// Number of judged jobs of each seed.
    judged: u64,
}

const ASKED: [LateShareGoal; 3] = [
    LateShareGoal {
        name: "0.1",
        share: 0.001,
        learning: 2500,
        judged: 2500,
    },
    LateShareGoal {
        name: "1",
        share: 0.01,
        learning: 500,
        judged: 500,
    },
    LateShareGoal {
        name: "5",
        share: 0.05,
        learning: 500,
        judged: 500,
    },
];

/// Set points that are tried by hand; the least is above the tardiness of the slowest machine's job, alone at full
/// clock.
const GRID: [f64; 12] = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.96, 1.0];
/// Judged jobs of each seed at each set point, and jobs before them: the law has nothing to learn but the values of its
/// integrators.
const GRID_JUDGED: u64 = 400;
const GRID_LEARNING: u64 = 50;
/// Period of the previous version's law.
const BEFORE: Pace = Pace::Period(Nanos::from_millis(200));

/// Largest permitted deviation of the reached share from the asked share, as a factor.
const WITHIN: f64 = 1.5;
/// Share of steps at the lowest clock from which on no cheaper setting was left.
const LOWEST: f64 = 0.9;

/// Number of cores with an interferer.
const CORES: u32 = 3;

/// Sums over the judged part of one run, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct GoalSums {
    late: f64,
    jobs: f64,
    energy_j: f64,
    seconds: f64,
    /// Number of steps at the lowest clock, and of all steps.
    lowest: f64,
    steps: f64,
}

impl std::ops::Add for GoalSums {
    type Output = GoalSums;
    fn add(self, other: GoalSums) -> GoalSums {
        GoalSums {
            late: self.late + other.late,
            jobs: self.jobs + other.jobs,
            energy_j: self.energy_j + other.energy_j,
            seconds: self.seconds + other.seconds,
            lowest: self.lowest + other.lowest,
            steps: self.steps + other.steps,
        }
    }
}

/// A run of one law with one goal.
#[derive(Clone, Copy, Debug)]
struct PlannedRun {
    goal: TaskGoal,
    /// Whether the law is the previous version's.
    before: bool,
    learning: u64,
    judged: u64,
}

/// Sums of each planned run, of one seed or of all seeds; or an error message.
type OfMachine = Result<Vec<GoalSums>, String>;

/// Runs the plan on every machine with every seed.
///
/// # Errors
/// [`ExperimentError`] before anything runs. A run that fails is part of the outcome.
pub fn run(settings: &Settings, progress: Progress) -> Result<Outcome, ExperimentError> {
    settings.check()?;
    let all: Vec<Labels> = ASKED.iter().map(|asked| labels([("asked", asked.name)])).collect();
    settings.claims.check_names(EXPERIMENT.name, &SERIES, &all)?;
    let seen = carry_out(settings, progress);
    let replications: Vec<Replication> = settings
        .machine_names()
        .into_iter()
        .zip(seen)
        .map(|(machine, seen)| replication(machine, settings.seed, seen))
        .collect();
    Ok(Outcome {
        name: EXPERIMENT.name.into(),
        platform: "sim".into(),
        testbed: crate::Testbed::Machine,
        machines: settings.machine_names(),
        seeds: settings.seeds().collect(),
        setting: vec![
            ("law".into(), "mimo, jobs paced from within".into()),
            ("tuned by hand".into(), "mimo every 200 ms on a mean".into()),
            ("interferers".into(), format!("C50-D50 on {CORES} cores, all the while")),
            ("set points tried by hand".into(), format!("{GRID:?}")),
        ],
        claims: settings
            .claims
            .of(EXPERIMENT.name)
            .map(|claim| judge(claim, &replications, &settings.reasons))
            .collect(),
        tables: Vec::new(),
        measures: measures(&replications),
        figures: vec![figure(&replications)],
        means: means(&replications),
        failures: failures(&replications),
        samples: replications,
    })
}

/// The runs of the goals, then those of the grid.
fn plan() -> Vec<PlannedRun> {
    let goal = |asked: &LateShareGoal| PlannedRun {
        goal: TaskGoal::Late(Share::clamped(asked.share)),
        before: false,
        learning: asked.learning,
        judged: asked.judged,
    };
    let by_hand = |set_point: f64| PlannedRun {
        goal: TaskGoal::Tardiness(set_point),
        before: true,
        learning: GRID_LEARNING,
        judged: GRID_JUDGED,
    };
    ASKED.iter().map(goal).chain(GRID.map(by_hand)).collect()
}

/// Runs the plan. The results are machine by machine, in the order of `settings`.
fn carry_out(settings: &Settings, progress: Progress) -> Vec<OfMachine> {
    let places = places(settings);
    let seeds = settings.seeds().count();
    let plan = plan();
    let machines: Vec<&SeededSubject> = places.iter().step_by(seeds).collect();
    let learnt = in_order(&machines, settings.workers(), |place| learn(place), &|count| {
        progress(&format!("learnt {count} of {} models", machines.len()));
    });
    let runs: Vec<(usize, &SeededSubject)> = places.iter().enumerate().map(|(i, place)| (i / seeds, place)).collect();
    let done = |count: usize| {
        progress(&format!(
            "{count} of {} replications, {} runs each",
            runs.len(),
            plan.len()
        ));
    };
    let replicate = |(machine, place): &(usize, &SeededSubject)| -> OfMachine {
        let model = learnt[*machine].as_ref().map_err(String::clone)?;
        plan.iter().map(|planned| judged(place, model, planned)).collect()
    };
    let seen: Vec<OfMachine> = in_order(&runs, settings.workers(), replicate, &done);
    seen.chunks(seeds).map(pooled).collect()
}

/// Adds up the runs of all seeds.
fn pooled(seeds: &[OfMachine]) -> OfMachine {
    let mut sum = vec![GoalSums::default(); plan().len()];
    for seed in seeds {
        let seed = seed.as_ref().map_err(String::clone)?;
        sum.iter_mut().zip(seed).for_each(|(sum, seen)| *sum = *sum + *seen);
    }
    Ok(sum)
}

fn failed(place: &SeededSubject, what: &str, error: &dyn std::fmt::Display) -> String {
    format!("{}, seed {}: {what}: {error}", place.subject.machine.name, place.seed)
}

/// Learns the model that both laws are designed from: the job alone, every 200 ms.
fn learn(place: &SeededSubject) -> Result<ModelDocument, String> {
    let ask = identify_ask(place.subject.job, place.seed);
    let mut request = qedb::request(place, &ask, Clocking::Law);
    request.scenario.control.pace = BEFORE;
    let learnt = punctual_scenario::identify(&request, &mut |_| ControlFlow::Continue(()));
    learnt
        .map(|(model, _)| model)
        .map_err(|error| failed(place, "identification", &error))
}

fn judged(place: &SeededSubject, model: &ModelDocument, planned: &PlannedRun) -> Result<GoalSums, String> {
    let mut request = request(place, planned);
    request.controller = Some(ControllerSource::Model(model.clone()));
    let finished = punctual_scenario::run(&request, &mut |_| ControlFlow::Continue(()));
    let report = finished
        .map_err(|error| failed(place, &planned.goal.to_string(), &error))?
        .report;
    let steps = place.subject.machine.steps.iter();
    let lowest = steps.map(|step| step.clock.0).min().unwrap_or_default();
    Ok(seen(&report, (PERIOD * planned.learning).as_secs_f64(), lowest))
}

fn seen(report: &RunReport, from: f64, lowest_hz: u64) -> GoalSums {
    let jobs = report.jobs.iter().filter(|job| job.t_s > from);
    let late = jobs.clone().filter(|job| job.tardiness > 1.0).count();
    let since: Vec<_> = report.samples.iter().filter(|sample| sample.t_s > from).collect();
    let lowest = since.iter().filter(|sample| sample.clock_hz == Some(lowest_hz)).count();
    GoalSums {
        late: late as f64,
        jobs: jobs.count() as f64,
        energy_j: since.iter().filter_map(|sample| sample.energy_j).sum(),
        seconds: since.last().map_or(0.0, |last| last.t_s - from),
        lowest: lowest as f64,
        steps: since.len() as f64,
    }
}

/// The request of a planned run, without a model.
fn request(place: &SeededSubject, planned: &PlannedRun) -> RunRequest {
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
    scenario.duration = PERIOD * (planned.learning + planned.judged);
    scenario.goal.tasks = planned.goal;
    scenario.control.kind = ControllerKind::Mimo;
    (scenario.control.pace, scenario.control.within) = match planned.before {
        true => (BEFORE, false),
        false => (Pace::Job, true),
    };
    request
}

/// Computes the figures of all runs of one machine.
fn replication(machine: String, seed: u64, seen: OfMachine) -> Replication {
    let mut replication = Replication {
        machine,
        seed,
        ..Replication::default()
    };
    match seen {
        Err(failure) => replication.failures.push(failure),
        Ok(seen) => {
            let (goals, grid) = seen.split_at(ASKED.len());
            let run = |(asked, seen): (&LateShareGoal, &GoalSums)| Run {
                labels: labels([("asked", asked.name)]),
                settled_from: 0,
                series: columns(asked.share, seen, grid),
            };
            replication.runs = ASKED.iter().zip(goals).map(run).collect();
        }
    }
    replication
}

/// The values of [`SERIES`] for one goal.
fn columns(asked: f64, seen: &GoalSums, grid: &[GoalSums]) -> BTreeMap<String, Vec<Option<f64>>> {
    let power = |seen: &GoalSums| seen.energy_j / seen.seconds;
    let keeps = |(_, tried): &(&f64, &GoalSums)| tried.late <= asked * tried.jobs;
    let by_power = |a: &(&f64, &GoalSums), b: &(&f64, &GoalSums)| power(a.1).total_cmp(&power(b.1));
    let tuned = GRID.iter().zip(grid).filter(keeps).min_by(by_power);
    let [low, high] = wilson(seen.late, seen.jobs).map(|share| share / asked);
    let late = seen.late / seen.jobs;
    let values = [
        Some(late),
        Some(late / asked),
        Some(low),
        Some(high),
        Some(power(seen)),
        tuned.map(|(_, tuned)| power(seen) / power(tuned)),
        tuned.map(|(set_point, _)| *set_point),
        Some(seen.lowest / seen.steps),
    ];
    let column = |(name, value): (&str, Option<f64>)| (name.to_string(), vec![value]);
    SERIES.into_iter().zip(values).map(column).collect()
}

/// Text for a reached share. At its lowest clock the machine has no cheaper setting: fewer late jobs than the goal
/// permits count as no miss there.
fn verdict(of_asked: f64, lowest: f64) -> &'static str {
    if of_asked > WITHIN {
        "too many late"
    } else if of_asked >= 1.0 / WITHIN {
        "reached"
    } else if lowest >= LOWEST {
        "nothing cheaper: the lowest clock"
    } else {
        "too few late"
    }
}

fn value(run: &Run, series: &str) -> Option<f64> {
    *run.series.get(series)?.first()?
}

/// The measures of every machine and goal.
fn measures(replications: &[Replication]) -> Vec<Measure> {
    let runs = replications
        .iter()
        .flat_map(|one| one.runs.iter().map(move |run| (&one.machine, run)));
    runs.flat_map(|(machine, run)| of_run(machine, run)).collect()
}

fn of_run(machine: &str, run: &Run) -> Vec<Measure> {
    let get = |series| value(run, series);
    let one = |value: f64| Spread {
        median: value,
        low: value,
        high: value,
    };
    let share = get("of-asked").zip(get("of-asked-low").zip(get("of-asked-high")));
    let share = share.map(|(median, (low, high))| Spread { median, low, high });
    let judged = get("of-asked").zip(get("lowest"));
    let verdict = judged.map_or("nothing to judge by", |(of_asked, lowest)| verdict(of_asked, lowest));
    let asked = &run.labels["asked"];
    let measure = |what: String, spread| Measure {
        name: format!("{asked} %, {machine}: {what}"),
        formula: "lab/evaluation/src/goals/mod.rs".into(),
        spread,
    };
    vec![
        measure(format!("late over asked ({verdict})"), share),
        measure("power, W".into(), get("power").map(one)),
        measure("power over tuned by hand".into(), get("power-of-tuned").map(one)),
        measure("set point tuned by hand".into(), get("tuned").map(one)),
    ]
}

fn figure(replications: &[Replication]) -> Figure {
    let of = |asked: &LateShareGoal| {
        let wanted = labels([("asked", asked.name)]);
        let runs = replications
            .iter()
            .flat_map(|one| &one.runs)
            .filter(|run| run.is(&wanted));
        Spread::of(&runs.filter_map(|run| value(run, "of-asked")).collect::<Vec<_>>())
    };
    Figure {
        experiment: EXPERIMENT.name.into(),
        title: "reached share of late jobs over the asked one, all seeds of a machine together".into(),
        chart: Chart::Bars {
            groups: ASKED.iter().map(|asked| format!("{} %", asked.name)).collect(),
            bars: vec![Bars {
                name: "mimo within jobs".into(),
                values: ASKED.iter().map(of).collect(),
            }],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_reached_within_a_factor_and_the_lowest_clock_is_no_miss() {
        let told = [(2.0, 1.0), (1.2, 0.0), (0.7, 0.0), (0.2, 0.95), (0.2, 0.1)];
        let told = told.map(|(of_asked, lowest)| verdict(of_asked, lowest));
        let expected = [
            "too many late",
            "reached",
            "reached",
            "nothing cheaper: the lowest clock",
            "too few late",
        ];
        assert_eq!(told, expected);
    }
}
