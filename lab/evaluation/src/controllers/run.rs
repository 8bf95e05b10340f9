//! Performs the plan on one machine with one seed: learns models at both paces, falsifies them where the case says so,
//! runs.

use std::ops::ControlFlow;

use punctual_control::ArxModel;
use punctual_loop::ModelDocument;
use punctual_scenario::{ControllerSource, RunError, RunRequest};
use punctual_workload::{Active, Class, ControllerKind, Pace, TaskGoal};

use super::columns::columns;
use super::disturbance::{LASTS, SETTLED, tasks};
use super::plan::{Case, Law, PlannedRun};
use crate::qedb::{self, Clocking, SeededSubject, identify_ask, weights};
use crate::samples::Run;

/// Set point of tardiness: the default of the scenarios. Below 1, so that jobs are late because of a disturbance and
/// not because the set point makes half of them late.
pub(super) const TARDINESS: f64 = 0.85;

/// Number of interferers of a disturbance at its largest.
const CORES: u32 = 3;

/// Models of one machine and one workload, at both paces, from which laws are designed.
#[derive(Clone, Debug)]
pub struct Models {
    /// Model at the paper's sample.
    period: ModelDocument,
    job: ModelDocument,
    /// The job's nominal data response ratio.
    nominal_drr: f64,
}

impl Models {
    /// Learns both models, and profiles the job.
    ///
    /// # Errors
    /// A message that names the failed steps.
    pub fn learn(place: &SeededSubject) -> Result<Models, String> {
        let learnt = place.learn();
        let period = learnt.laws.and_then(|laws| laws.model);
        let period = period.ok_or_else(|| learnt.failures.join("; "))?;
        let mut request = qedb::request(place, &identify_ask(place.subject.job, place.seed), Clocking::Law);
        request.scenario.control.pace = Pace::Job;
        let job = punctual_scenario::identify(&request, &mut |_| ControlFlow::Continue(()));
        let (job, _) = job.map_err(|error| failed(place, "identification at every job", &error))?;
        Ok(Models {
            period: *period,
            job,
            nominal_drr: learnt.nominal_drr,
        })
    }

    /// Takes models that were learnt elsewhere.
    pub fn new(period: ModelDocument, job: ModelDocument, nominal_drr: f64) -> Models {
        Models {
            period,
            job,
            nominal_drr,
        }
    }

    /// The controller of `law` in this case, designed from the model with its gain changed by the case.
    ///
    /// # Errors
    /// [`RunError::Model`] where no control law exists for the model.
    pub fn source(&self, law: Law, case: Case) -> Result<ControllerSource, RunError> {
        let model = match law.pace() {
            Pace::Job => &self.job,
            Pace::Period(_) => &self.period,
        };
        let spoilt = |model: &ArxModel| model.with_gain(case.gain());
        let model = ModelDocument {
            made_for: model.made_for.clone(),
            mimo: model.mimo.as_ref().map(spoilt),
            tardiness: spoilt(&model.tardiness),
        };
        // Returns gains instead of a model, because a run refuses a model of the wrong sign.
        Ok(ControllerSource::Controller(model.design_with(weights)?))
    }
}

/// Performs one run.
///
/// # Errors
/// A message that names the run and the failure.
pub fn run(place: &SeededSubject, planned: &PlannedRun, models: &Models) -> Result<Run, String> {
    let says = |error: &dyn std::fmt::Display| failed(place, &format!("{:?}", planned.labels()), error);
    let mut request = asked(place, planned, models.nominal_drr);
    let source = models.source(planned.law, planned.case).map_err(|error| says(&error))?;
    request.controller = Some(source);
    // Models of the wrong gain are part of the experiment.
    request.force = true;
    let onset = planned.disturbance.onset(place.seed);
    let finished = punctual_scenario::run(&request, &mut |_| ControlFlow::Continue(()));
    let report = finished.map_err(|error| says(&error))?.report;
    let disturbed = Active {
        from: onset,
        until: onset + LASTS,
    };
    Ok(Run {
        labels: planned.labels(),
        settled_from: 0,
        series: columns(&report, disturbed).ok_or_else(|| says(&"too few jobs to judge by"))?,
    })
}

/// The request of a run, without its controller.
fn asked(place: &SeededSubject, planned: &PlannedRun, nominal_drr: f64) -> RunRequest {
    let ask = qedb::Ask {
        interference: Some(qedb::Interference {
            mix: planned.case.mix(),
            cores: CORES,
            active: Active::ALWAYS,
            dense: false,
        }),
        ..identify_ask(place.subject.job, place.seed)
    };
    let mut request = qedb::request(place, &ask, Clocking::Law);
    let scenario = &mut request.scenario;
    scenario.duration = SETTLED + LASTS * 2;
    scenario.control.kind = ControllerKind::Mimo;
    scenario.control.pace = planned.law.pace();
    scenario.control.within = planned.law.within();
    scenario.goal.tasks = TaskGoal::Tardiness(planned.front.map_or(TARDINESS, |point| point.tardiness));
    scenario.goal.drr = (nominal_drr * planned.front.map_or(1.0, |point| point.drr)).min(0.95);
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

fn failed(place: &SeededSubject, what: &str, error: &dyn std::fmt::Display) -> String {
    format!("{}, seed {}: {what}: {error}", place.subject.machine.name, place.seed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use punctual_units::Nanos;
    use punctual_workload::Trace;

    use super::super::plan::plan;
    use super::*;
    use crate::Subject;

    /// Without interferers every claim would hold, and say nothing.
    #[test]
    fn every_run_is_disturbed() {
        let seconds = Nanos::from_secs;
        let place = SeededSubject {
            subject: Arc::new(qedb::ensemble().into_iter().next().expect("the ensemble is shipped")),
            seed: 1,
            trace: Arc::new(Trace::synthetic(8, seconds(1), seconds(2), seconds(4), 1)),
        };
        let Subject { job, .. } = *place.subject;
        for planned in plan() {
            let tasks = asked(&place, &planned, 0.25).scenario.tasks;
            let (interferers, jobs): (Vec<_>, Vec<_>) = tasks.iter().partition(|task| task.class == Class::BestEffort);
            assert_eq!(jobs.len(), 1, "{planned:?}");
            let stretches = planned.disturbance.stretches(place.seed);
            assert_eq!(interferers.len(), stretches.len(), "{planned:?}");
            assert!(
                interferers
                    .iter()
                    .all(|task| task.demand.data > Nanos::ZERO && task.active.from >= SETTLED)
            );
            assert!(jobs[0].demand.compute >= job.compute, "{planned:?}");
        }
    }
}
