//! Fig. 10 with a user's scenario on this machine: best-effort tasks come and go under each controller in turn.
//!
//! The paper's claims are about its machine and its setting, so there are no claims here: settling, overshoot and
//! misses are measured. Controllers are interleaved, so that a slow change of the machine affects all of them alike.

use std::ops::ControlFlow;

use punctual_scenario::{ControllerSource, RunError, RunRequest, identify, run};
use punctual_units::Nanos;
use punctual_workload::{Active, Class, ControllerKind, Pace, Scenario};

use super::columns::columns;
use crate::claims::Formula;
use crate::outcome::{Chart, Curve, Figure, Measure};
use crate::samples::{Replication, Run, labels};
use crate::stats::Spread;
use crate::{Outcome, Progress};

/// The controllers that are compared: the paper's.
pub const CONTROLLERS: [ControllerKind; 4] = [
    ControllerKind::Open,
    ControllerKind::Clock,
    ControllerKind::Qod,
    ControllerKind::Mimo,
];

/// Duration of a run, and the part of it in which best-effort tasks are active.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    /// Duration of one run.
    pub duration: Nanos,
    /// Time range of the disturbance.
    pub disturbance: Active,
    /// Duration of the recording from which the model is learnt.
    pub identification: Nanos,
}

impl Default for Course {
    /// Half a minute with the disturbance in its middle third, and a model from 80 s.
    fn default() -> Course {
        Course {
            duration: Nanos::from_secs(30),
            disturbance: Active {
                from: Nanos::from_secs(10),
                until: Nanos::from_secs(20),
            },
            identification: Nanos::from_secs(80),
        }
    }
}

/// Learns a model with `request`'s scenario, then runs the scenario `repetitions` times under each controller, with its
/// best-effort tasks switched on and off.
///
/// # Errors
/// [`RunError`]; the machine has been restored.
pub fn disturbed(
    request: &RunRequest,
    course: Course,
    repetitions: u32,
    progress: Progress,
) -> Result<Outcome, RunError> {
    let mut request = request.clone();
    request.record = false;
    request.scenario.duration = course.identification;
    progress("learning a model");
    let (model, report) = identify(&request, &mut |_| ControlFlow::Continue(()))?;
    request.controller = Some(ControllerSource::Model(model));
    request.scenario = switched(&request.scenario, course);
    let mut replications = Vec::new();
    for repetition in 0..repetitions {
        let mut runs = Vec::new();
        for kind in CONTROLLERS {
            progress(&format!(
                "repetition {} of {repetitions}: {}",
                repetition + 1,
                kind.name()
            ));
            runs.push(one(&request, kind, repetition)?);
        }
        replications.push(Replication {
            machine: report.header.machine.clone(),
            seed: request.scenario.seed.wrapping_add(repetition.into()),
            runs,
            failures: Vec::new(),
        });
    }
    Ok(outcome(&request, course, replications))
}

/// The scenario with its best-effort tasks active during the disturbance only.
fn switched(scenario: &Scenario, course: Course) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.duration = course.duration;
    for task in scenario.tasks.iter_mut().filter(|task| task.class == Class::BestEffort) {
        task.active = course.disturbance;
    }
    scenario
}

fn one(request: &RunRequest, kind: ControllerKind, repetition: u32) -> Result<Run, RunError> {
    let mut request = request.clone();
    request.scenario.control.kind = kind;
    request.scenario.seed = request.scenario.seed.wrapping_add(repetition.into());
    let report = run(&request, &mut |_| ControlFlow::Continue(()))?.report;
    let settled = report
        .samples
        .iter()
        .position(|sample| sample.t_s >= report.header.settle_s);
    Ok(Run {
        labels: labels([("approach", kind.name())]),
        settled_from: settled.unwrap_or(report.samples.len()),
        series: columns(&report.samples),
    })
}

fn outcome(request: &RunRequest, course: Course, replications: Vec<Replication>) -> Outcome {
    let scenario = &request.scenario;
    Outcome {
        name: "qedb-transient".into(),
        platform: request.platform.name().into(),
        testbed: crate::Testbed::Machine,
        machines: replications
            .first()
            .map(|replication| replication.machine.clone())
            .into_iter()
            .collect(),
        seeds: replications.iter().map(|replication| replication.seed).collect(),
        setting: vec![
            ("scenario".into(), scenario.name.clone()),
            ("goal".into(), format!("tardiness {}", scenario.goal.tasks.nominal())),
            (
                "best-effort tasks".into(),
                format!("from {} to {}", course.disturbance.from, course.disturbance.until),
            ),
        ],
        claims: Vec::new(),
        tables: Vec::new(),
        measures: measures(scenario, course, &replications),
        figures: figures(scenario, course, &replications),
        means: super::means(&replications),
        samples: replications,
        failures: Vec::new(),
    }
}

/// The measures for each controller, each with its formula.
fn measures(scenario: &Scenario, course: Course, replications: &[Replication]) -> Vec<Measure> {
    let [on, off] = [course.disturbance.from, course.disturbance.until].map(|at| sample_at(scenario, at));
    let goal = scenario.goal.tasks.nominal();
    let of_controller = |kind: ControllerKind| {
        let (name, during) = (kind.name(), format!("from={on}, to={off}"));
        [
            (
                "settling, samples",
                format!("settling(tardiness, approach={name}, {during}, goal={goal}, band=0.1)"),
            ),
            (
                "overshoot",
                format!("overshoot(tardiness, approach={name}, {during}, goal={goal})"),
            ),
            ("late share before", format!("mean(misses, approach={name}, to={on})")),
            ("late share during", format!("mean(misses, approach={name}, {during})")),
            ("late share after", format!("mean(misses, approach={name}, from={off})")),
            ("fresh share during", format!("mean(fresh, approach={name}, {during})")),
        ]
        .map(|(what, formula)| measure(format!("{name}: {what}"), formula, replications))
    };
    CONTROLLERS.into_iter().flat_map(of_controller).collect()
}

fn measure(name: String, formula: String, replications: &[Replication]) -> Measure {
    let parsed = Formula::parse(&formula).ok();
    let value = |replication: &Replication| parsed.as_ref()?.evaluate(&replication.runs).ok();
    let values: Vec<f64> = replications.iter().filter_map(value).collect();
    Measure {
        name,
        formula,
        spread: Spread::of(&values),
    }
}

/// Index of the first sample whose window begins at or after `at`.
fn sample_at(scenario: &Scenario, at: Nanos) -> u64 {
    let period = match scenario.control.pace {
        Pace::Period(period) => period,
        // At every job: the tasks' release rate, or a sample a second where that is not known.
        Pace::Job => scenario
            .tasks
            .iter()
            .filter(|task| task.deadline().is_some())
            .find_map(period_of)
            .unwrap_or(Nanos::from_secs(1)),
    };
    at.0.div_ceil(period.0.max(1))
}

fn period_of(task: &punctual_workload::TaskSpec) -> Option<Nanos> {
    match task.arrival {
        punctual_workload::Arrival::Periodic { period } => Some(period),
        _ => None,
    }
}

/// Tardiness, fresh share and clock over time, with one curve per controller, from the first repetition.
fn figures(scenario: &Scenario, course: Course, replications: &[Replication]) -> Vec<Figure> {
    let Some(first) = replications.first() else {
        return Vec::new();
    };
    let length = course.duration.as_secs_f64();
    let chart = |series: &str| {
        let curve = |run: &Run| {
            let samples = run.series.get(series).map_or(&[][..], Vec::as_slice);
            let at = |k: usize| (k + 1) as f64 * length / samples.len() as f64;
            Curve {
                name: run.labels.get("approach").cloned().unwrap_or_default(),
                points: samples.iter().enumerate().map(|(k, value)| (at(k), *value)).collect(),
            }
        };
        let goal = ("goal".to_string(), scenario.goal.tasks.nominal());
        Figure {
            experiment: "qedb-transient".into(),
            title: series.into(),
            chart: Chart::Curves {
                x_unit: "s".into(),
                length,
                curves: first.runs.iter().map(curve).collect(),
                levels: if series == "tardiness" { vec![goal] } else { Vec::new() },
                band: Some((
                    course.disturbance.from.as_secs_f64(),
                    course.disturbance.until.as_secs_f64(),
                )),
            },
        }
    };
    ["tardiness", "drr", "fresh", "clock", "misses"].map(chart).to_vec()
}
