//! Compares the control laws with a user's scenario on this machine, under a surge of work that comes and goes.
//!
//! Interference from another core hardly affects a job on many machines (a virtual machine with two cores among them),
//! so the disturbance is one that every machine has: for a while each real-time job has more to do, and the control law
//! is not informed. On Linux that is real work under the real scheduler, at the emulated clock where the machine's
//! clock cannot be set.
//!
//! The figures are those of the simulated runs, from single jobs (`metrics.rs`). There are no claims. The laws are
//! interleaved, so that a slow change of the machine affects all of them alike.

use std::ops::ControlFlow;

use punctual_loop::ModelDocument;
use punctual_runtime::report::RunReport;
use punctual_scenario::{RunError, RunRequest, identify};
use punctual_units::Nanos;
use punctual_workload::{Active, ControllerKind, Pace, Surge};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::columns::columns;
use super::plan::{Case, Law};
use super::run::Models;
use crate::outcome::{Bars, Chart, Figure, Measure};
use crate::samples::{Replication, Run, labels};
use crate::stats::Spread;
use crate::{Outcome, Progress};

/// Durations of the runs, and the surge that disturbs them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    /// Duration of one run.
    pub duration: Nanos,
    /// Earliest onset of the surge. It begins up to [`Course::PHASE`] later, drawn for each repetition, so that no
    /// law's samples keep step with it.
    pub from: Nanos,
    /// Duration of the surge.
    pub lasts: Nanos,
    /// Factor on the work of a job during the surge.
    pub factor: f64,
    /// Durations of the identification runs: at the paper's sample, and at every job.
    pub identification: [Nanos; 2],
}

impl Default for Course {
    /// Half a minute, with 15 % more work for ten seconds of it. The fire scenario meets its goal near 0.85 of the top
    /// clock, so no law could compensate for a much larger surge.
    fn default() -> Course {
        Course {
            duration: Nanos::from_secs(30),
            from: Nanos::from_secs(11),
            lasts: Nanos::from_secs(10),
            factor: 1.15,
            identification: [Nanos::from_secs(60), Nanos::from_secs(40)],
        }
    }
}

impl Course {
    /// Range over which the onset is drawn: a sample of the paper.
    pub const PHASE: Nanos = Nanos::from_secs(1);

    /// The surge of this repetition.
    fn surge(self, seed: u64) -> Surge {
        let phase = ChaCha8Rng::seed_from_u64(seed).random_range(0..Course::PHASE.0);
        let from = self.from + Nanos(phase);
        Surge {
            active: Active {
                from,
                until: from + self.lasts,
            },
            factor: self.factor,
        }
    }
}

/// Learns a model at each pace with `request`'s scenario, then runs the scenario `repetitions` times under each law.
///
/// # Errors
/// [`RunError`]; the machine has been restored.
pub fn on_machine(
    request: &RunRequest,
    course: Course,
    repetitions: u32,
    progress: Progress,
) -> Result<Outcome, RunError> {
    let mut request = request.clone();
    request.record = false;
    let models = learn(&request, course, progress)?;
    request.scenario.duration = course.duration;
    let mut replications = Vec::new();
    for repetition in 0..repetitions {
        let seed = request.scenario.seed.wrapping_add(repetition.into());
        let mut replication = Replication {
            seed,
            ..Replication::default()
        };
        for law in rotated(repetition) {
            progress(&format!(
                "repetition {} of {repetitions}: {}",
                repetition + 1,
                law.name()
            ));
            let report = one(&request, law, course.surge(seed), &models, seed)?;
            replication.machine.clone_from(&report.header.machine);
            match columns(&report, course.surge(seed).active) {
                Some(series) => replication.runs.push(Run {
                    labels: labels([("law", law.name())]),
                    settled_from: 0,
                    series,
                }),
                None => replication
                    .failures
                    .push(format!("{}, seed {seed}: too few jobs to judge by", law.name())),
            }
        }
        replications.push(replication);
    }
    Ok(outcome(&request, course, replications))
}

/// All laws, starting with another in each repetition.
fn rotated(repetition: u32) -> impl Iterator<Item = Law> {
    let first = repetition as usize % Law::ALL.len();
    Law::ALL.into_iter().cycle().skip(first).take(Law::ALL.len())
}

fn learn(request: &RunRequest, course: Course, progress: Progress) -> Result<Models, RunError> {
    let model = |pace: Pace, duration: Nanos| -> Result<ModelDocument, RunError> {
        let mut request = request.clone();
        request.scenario.control.pace = pace;
        request.scenario.control.within = false;
        request.scenario.duration = duration;
        let (model, _) = identify(&request, &mut |_| ControlFlow::Continue(()))?;
        model.check_nature(ControllerKind::Mimo)?;
        Ok(model)
    };
    let [period, job] = course.identification;
    progress("learning a model at the paper's sample");
    let period = model(Law::Paper.pace(), period)?;
    progress("learning a model at every job");
    let job = model(Pace::Job, job)?;
    Ok(Models::new(period, job, request.scenario.goal.drr))
}

fn one(request: &RunRequest, law: Law, surge: Surge, models: &Models, seed: u64) -> Result<RunReport, RunError> {
    let mut request = request.clone();
    let control = &mut request.scenario.control;
    (control.kind, control.pace, control.within) = (ControllerKind::Mimo, law.pace(), law.within());
    request.scenario.seed = seed;
    request.surge = Some(surge);
    request.controller = Some(models.source(law, Case::Own)?);
    Ok(punctual_scenario::run(&request, &mut |_| ControlFlow::Continue(()))?.report)
}

fn outcome(request: &RunRequest, course: Course, replications: Vec<Replication>) -> Outcome {
    let scenario = &request.scenario;
    let machine = replications.first().map(|replication| replication.machine.clone());
    Outcome {
        name: super::EXPERIMENT.name.into(),
        platform: request.platform.name().into(),
        testbed: crate::Testbed::Machine,
        machines: machine.into_iter().collect(),
        seeds: replications.iter().map(|replication| replication.seed).collect(),
        setting: vec![
            ("scenario".into(), scenario.name.clone()),
            ("goal".into(), format!("tardiness {}", scenario.goal.tasks.nominal())),
            (
                "disturbance".into(),
                format!(
                    "real-time jobs have {} times as much to do for {}, from {} to {} on",
                    course.factor,
                    course.lasts,
                    course.from,
                    course.from + Course::PHASE
                ),
            ),
        ],
        claims: Vec::new(),
        tables: Vec::new(),
        measures: Law::ALL
            .into_iter()
            .flat_map(|law| MEASURED.map(|(series, what)| measure(law, series, what, &replications)))
            .filter(|measure| measure.spread.is_some())
            .collect(),
        figures: MEASURED[..6]
            .iter()
            .map(|(series, what)| figure(series, what, &replications))
            .collect(),
        means: crate::qedb::means(&replications),
        failures: replications.iter().flat_map(|one| one.failures.clone()).collect(),
        samples: replications,
    }
}

/// Columns that are reported for each law, with their descriptions.
const MEASURED: [(&str, &str); 14] = [
    ("first-job", "first job above the goal, relative to it"),
    ("first-second", "first second's mean above the goal"),
    ("overshoot", "largest second's mean above the goal"),
    ("settled-jobs", "jobs until settled"),
    ("settled-s", "seconds until settled"),
    ("iae", "integral of |tardiness - goal| during the surge, s"),
    ("misses", "late share, from the onset on"),
    ("worst-job", "largest tardiness of a job, likewise"),
    ("fresh", "fresh share, likewise"),
    ("clock", "mean clock over its top, likewise"),
    ("fallback", "share of windows in fallback"),
    ("clock-changes", "changes of the clock within a job, per job"),
    ("decision-us", "median decision, us"),
    ("pacing-us", "median time from a checkpoint to the changed clock, us"),
];

fn spread(law: Law, series: &str, replications: &[Replication]) -> Option<Spread> {
    let wanted = labels([("law", law.name())]);
    let runs = replications
        .iter()
        .filter_map(|one| one.runs.iter().find(|run| run.is(&wanted)));
    let values: Vec<f64> = runs.filter_map(|run| super::value(run, series)).collect();
    Spread::of(&values)
}

fn measure(law: Law, series: &str, what: &str, replications: &[Replication]) -> Measure {
    Measure {
        name: format!("{}: {what}", law.name()),
        formula: format!("mean({series}, law={})", law.name()),
        spread: spread(law, series, replications),
    }
}

fn figure(series: &str, what: &str, replications: &[Replication]) -> Figure {
    let bars = |law: Law| Bars {
        name: law.name().into(),
        values: vec![spread(law, series, replications)],
    };
    Figure {
        experiment: super::EXPERIMENT.name.into(),
        title: what.into(),
        chart: Chart::Bars {
            groups: vec!["surge".into()],
            bars: Law::ALL.map(bars).to_vec(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use punctual_workload::TaskGoal;

    use super::*;
    use crate::qedb::{self, Clocking, SeededSubject, identify_ask};

    /// The whole course on a simulated machine: a run of each law in each repetition, the surge is felt, and jobs paced
    /// from within feel it least.
    #[test]
    fn a_surge_is_felt_by_every_law_and_least_within_jobs() {
        let seconds = Nanos::from_secs;
        let subject = Arc::new(qedb::ensemble().into_iter().next().expect("the ensemble is shipped"));
        let trace = punctual_workload::Trace::synthetic(64, seconds(1), seconds(4), seconds(30), 1);
        let place = SeededSubject {
            seed: 1,
            trace: Arc::new(trace),
            subject,
        };
        let mut request = qedb::request(&place, &identify_ask(place.subject.job, 1), Clocking::Law);
        request.scenario.goal.tasks = TaskGoal::Tardiness(0.85);
        let course = Course {
            duration: seconds(16),
            from: seconds(8),
            lasts: seconds(5),
            factor: 1.3,
            identification: [seconds(180), seconds(60)],
        };
        let outcome = on_machine(&request, course, 2, &|_| {}).unwrap();
        assert_eq!((outcome.seeds.len(), outcome.failures.len()), (2, 0));
        assert!(
            outcome
                .samples
                .iter()
                .all(|replication| replication.runs.len() == Law::ALL.len())
        );
        let worst = |law| spread(law, "worst-job", &outcome.samples).unwrap().median;
        let [paper, within] = [Law::Paper, Law::MimoWithin].map(worst);
        assert!(within < 0.95 && paper > 1.05, "within {within}, paper {paper}");
    }
}
