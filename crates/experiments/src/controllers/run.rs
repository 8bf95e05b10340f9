//! The plan on one machine with one seed: learn models at both paces, spoil them where the case asks for it, run.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use punctual_control::ArxModel;
use punctual_runtime::report::RunReport;
use punctual_runtime::{ControllerSource, Event, EventLog, Finished, ModelDocument, RunError, RunRequest};
use punctual_units::Nanos;
use punctual_workload::{Class, Pace};

use super::disturbance::{LASTS, SETTLED, tasks};
use super::metrics::{Job, Transient, transient};
use super::plan::{Case, Law, Planned};
use crate::qedb::{self, Clocking, Place, identify_ask, weights};
use crate::samples::Run;

/// Columns of every run, of one sample each: what [`Transient`] says of the time from the onset to the disturbance's
/// end; misses, the mean fresh share and the mean power from the onset to the end of the run; the overshoot of the last
/// quarter of the disturbance; windows in fallback.
pub const SERIES: [&str; 11] = [
    "iae",
    "iae-means",
    "first-job",
    "first-second",
    "overshoot",
    "settled-jobs",
    "misses",
    "fresh",
    "power",
    "end-overshoot",
    "fallback",
];

/// Set point of tardiness: the default of the scenarios, where a job is late because of a disturbance and not because
/// half of them are to be.
const TARDINESS: f64 = 0.85;

/// Models of one machine and one workload, at both paces.
#[derive(Clone, Debug)]
pub struct Models {
    /// At the paper's sample.
    period: ModelDocument,
    /// At every job.
    job: ModelDocument,
    /// The job's nominal data response ratio.
    nominal_drr: f64,
}

impl Models {
    /// Learns both, and profiles the job.
    ///
    /// # Errors
    /// What failed, in words.
    pub fn learn(place: &Place) -> Result<Models, String> {
        let learnt = place.learn();
        let period = learnt.laws.and_then(|laws| laws.model);
        let period = period.ok_or_else(|| learnt.failures.join("; "))?;
        let mut request = qedb::request(place, &identify_ask(place.subject.job, place.seed), Clocking::Law);
        request.scenario.control.pace = Pace::Job;
        let job = punctual_runtime::identify(&request, &mut |_| ControlFlow::Continue(()));
        let (job, _) = job.map_err(|error| failed(place, "identification at every job", &error))?;
        Ok(Models {
            period: *period,
            job,
            nominal_drr: learnt.nominal_drr,
        })
    }

    /// What a law is designed from in this case.
    fn source(&self, law: Law, case: Case) -> Result<ControllerSource, RunError> {
        let model = match law.pace() {
            Pace::Job => &self.job,
            Pace::Period(_) => &self.period,
        };
        let spoilt = |model: &ArxModel| model.with_gain(case.gain());
        let model = ModelDocument {
            made_for: model.made_for.clone(),
            mimo: spoilt(&model.mimo),
            tardiness: spoilt(&model.tardiness),
        };
        // Gains, not a model: a model of the wrong sign would be refused.
        Ok(ControllerSource::Controller(model.design_with(weights)?))
    }
}

/// Carries out one run.
///
/// # Errors
/// What failed, in words.
pub fn run(place: &Place, planned: &Planned, models: &Models) -> Result<Run, String> {
    let says = |error: &dyn std::fmt::Display| failed(place, &format!("{:?}", planned.labels()), error);
    let mut request = asked(place, planned, models);
    let source = models.source(planned.law, planned.case).map_err(|error| says(&error))?;
    request.controller = Some(source);
    request.record = true;
    let goal = request.scenario.goal.tardiness;
    let onset = planned.disturbance.onset(place.seed);
    let finished = punctual_runtime::run(&request, &mut |_| ControlFlow::Continue(()));
    let Finished { report, log } = finished.map_err(|error| says(&error))?;
    let jobs = jobs(&log.ok_or_else(|| says(&"no log was kept"))?);
    let [from, until] = [onset, onset + LASTS].map(Nanos::as_secs_f64);
    let seen = transient(&jobs, goal, from, until).ok_or_else(|| says(&"too few jobs to judge by"))?;
    let last = until - LASTS.as_secs_f64() / 4.0;
    let ending = transient(&jobs, goal, last, until).map(|end| end.overshoot);
    Ok(Run {
        labels: planned.labels(),
        settled_from: 0,
        series: columns(&seen, ending, &jobs, &report, from),
    })
}

/// The run without its gains.
fn asked(place: &Place, planned: &Planned, models: &Models) -> RunRequest {
    let mut ask = identify_ask(place.subject.job, place.seed);
    ask.interference = ask.interference.map(|beside| qedb::Interference {
        mix: planned.case.mix(),
        ..beside
    });
    let mut request = qedb::request(place, &ask, Clocking::Law);
    let scenario = &mut request.scenario;
    scenario.duration = SETTLED + LASTS * 2;
    scenario.control.kind = planned.law.kind();
    scenario.control.pace = planned.law.pace();
    scenario.goal.tardiness = planned.front.map_or(TARDINESS, |point| point.tardiness);
    scenario.goal.drr = (models.nominal_drr * planned.front.map_or(1.0, |point| point.drr)).min(0.95);
    let stretches = planned.disturbance.stretches(place.seed);
    let mut disturbing = Vec::new();
    scenario.tasks.retain_mut(|task| match task.class {
        Class::RealTime { .. } | Class::Exclusive { .. } => {
            task.demand.compute = task.demand.compute.scaled(planned.case.job());
            task.demand.data = task.demand.data.scaled(planned.case.job());
            true
        }
        Class::BestEffort => {
            disturbing = tasks(task, &stretches);
            false
        }
    });
    scenario.tasks.extend(disturbing);
    request
}

/// The real-time jobs of a log, in the order of their ends.
fn jobs(log: &EventLog) -> Vec<Job> {
    let job = |event: &Event| match event {
        Event::Completed(outcome) => Some(Job {
            at_s: outcome.finished.since(log.regulator.start).as_secs_f64(),
            tardiness: outcome.tardiness()?,
        }),
        _ => None,
    };
    log.steps.iter().filter_map(|step| job(&step.event)).collect()
}

fn columns(
    seen: &Transient,
    ending: Option<f64>,
    jobs: &[Job],
    report: &RunReport,
    from_s: f64,
) -> BTreeMap<String, Vec<Option<f64>>> {
    let since: Vec<_> = report.samples.iter().filter(|sample| sample.t_s > from_s).collect();
    let count = since.len().max(1) as f64;
    let fresh = since.iter().map(|sample| sample.fresh_share).sum::<f64>() / count;
    let seconds = report.samples.last().map_or(0.0, |sample| sample.t_s) - from_s;
    let energy: Option<f64> = since.iter().map(|sample| sample.energy_j).sum();
    let judged: Vec<_> = jobs.iter().filter(|job| job.at_s > from_s).collect();
    let late = judged.iter().filter(|job| job.tardiness > 1.0).count() as f64;
    let settled = seen.settled_jobs.unwrap_or((LASTS.as_secs_f64() * 10.0) as usize);
    let fallback = report.samples.iter().filter(|sample| sample.fallback.is_some()).count() as f64;
    let values = [
        Some(seen.iae),
        Some(seen.iae_means),
        Some(seen.first_job),
        Some(seen.first_second),
        Some(seen.overshoot),
        Some(settled as f64),
        Some(late / judged.len().max(1) as f64),
        Some(fresh),
        energy.map(|joules| joules / seconds.max(1e-9)),
        ending,
        Some(fallback / report.samples.len().max(1) as f64),
    ];
    SERIES
        .into_iter()
        .zip(values)
        .map(|(name, value)| (name.to_string(), vec![value]))
        .collect()
}

fn failed(place: &Place, what: &str, error: &dyn std::fmt::Display) -> String {
    format!("{}, seed {}: {what}: {error}", place.subject.machine.name, place.seed)
}
