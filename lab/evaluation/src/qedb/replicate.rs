//! Performs the plan on one machine with one seed: learns a model, designs the control laws, profiles the job, runs.

use std::ops::ControlFlow;
use std::sync::Arc;

use punctual_loop::{ControllerDocument, ModelDocument};
use punctual_scenario::{ControllerSource, RunError};
use punctual_workload::Trace;

use super::columns::columns;
use super::plan::{self, NOMINAL_DRR_IN_THE_PAPER, PlannedRun, profile};
use super::request;
use super::setting::{EVALUATION_JOB, weights};
use crate::Subject;
use crate::samples::Run;
use crate::stats::mean;

/// Columns of the identification, of one sample each: R^2, spectral radius of the closed loop, and the elements of B.
pub const IDENTIFIED: [&str; 7] = [
    "r2-tardiness",
    "r2-drr",
    "radius",
    "b-tardiness-clock",
    "b-tardiness-admitted",
    "b-drr-clock",
    "b-drr-admitted",
];

/// A machine and a seed, with the readings that all its runs share.
#[derive(Clone, Debug)]
pub struct SeededSubject {
    pub subject: Arc<Subject>,
    pub seed: u64,
    /// Readings of the sensors.
    pub trace: Arc<Trace>,
}

/// Results of identification, as far as runs need them.
#[derive(Clone, Debug)]
pub struct IdentificationResult {
    /// The control laws; `None` where runs need none, or where none could be designed.
    pub laws: Option<ControllerDocument>,
    /// The job's nominal data response ratio.
    pub nominal_drr: f64,
    /// The run with the columns of `IDENTIFIED`; `None`: not identified.
    pub run: Option<Run>,
    /// The run from which the nominal drr was measured; it is also a run of the plan.
    pub profiled: Option<Run>,
    /// Messages of the steps that failed.
    pub failures: Vec<String>,
}

impl IdentificationResult {
    /// For runs that need no control law: no identification, and the paper's drr.
    pub fn nothing() -> IdentificationResult {
        IdentificationResult {
            laws: None,
            nominal_drr: NOMINAL_DRR_IN_THE_PAPER,
            run: None,
            profiled: None,
            failures: Vec::new(),
        }
    }
}

impl SeededSubject {
    /// Learns a model by exciting both knobs, designs the laws with [`weights`], and profiles the job.
    pub fn learn(&self) -> IdentificationResult {
        let mut learnt = IdentificationResult::nothing();
        match self.identify() {
            Ok((run, laws)) => {
                learnt.run = Some(run);
                learnt.laws = Some(laws);
            }
            Err(error) => learnt.failures.push(self.failed("identification", &error)),
        }
        if learnt.laws.is_some() {
            match self.run(&profile(), &learnt) {
                Ok(run) => {
                    let drr = mean(run.window("drr", run.settled_from, usize::MAX));
                    learnt.nominal_drr = drr.unwrap_or(NOMINAL_DRR_IN_THE_PAPER);
                    learnt.profiled = Some(run);
                }
                Err(failure) => learnt.failures.push(failure),
            }
        }
        learnt
    }

    fn identify(&self) -> Result<(Run, ControllerDocument), RunError> {
        let ask = plan::learning(self.subject.job.scaled(EVALUATION_JOB), self.seed);
        let request = request::request(self, &ask, request::Clocking::Law);
        let (model, report) = punctual_scenario::identify(&request, &mut |_| ControlFlow::Continue(()))?;
        let laws = model.design_with(weights)?;
        let mut run = Run {
            labels: plan::identify_labels(),
            settled_from: 0,
            series: columns(&report.samples),
        };
        for (name, value) in IDENTIFIED.into_iter().zip(identified(&model, &laws)) {
            run.series.insert(name.into(), vec![value]);
        }
        Ok((run, laws))
    }

    /// Performs one run of the plan.
    ///
    /// # Errors
    /// A message that names the machine, the seed, the run and the failure.
    pub fn run(&self, planned: &PlannedRun, learnt: &IdentificationResult) -> Result<Run, String> {
        if let Some(run) = learnt.profiled.as_ref().filter(|run| run.labels == planned.labels) {
            return Ok(run.clone());
        }
        let ask = planned.ask(self.subject.job, self.seed, learnt.nominal_drr);
        let mut request = request::request(self, &ask, request::Clocking::of(planned.approach));
        request.controller = learnt.laws.clone().map(ControllerSource::Controller);
        let finished = punctual_scenario::run(&request, &mut |_| ControlFlow::Continue(()));
        let finished = finished.map_err(|error| self.failed(&format!("{:?}", planned.labels), &error))?;
        Ok(Run {
            labels: planned.labels.clone(),
            settled_from: planned.settled_from,
            series: columns(&finished.report.samples),
        })
    }

    fn failed(&self, what: &str, error: &dyn std::fmt::Display) -> String {
        format!("{}, seed {}: {what}: {error}", self.subject.machine.name, self.seed)
    }
}

/// The values of [`IDENTIFIED`], in its order.
fn identified(model: &ModelDocument, laws: &ControllerDocument) -> [Option<f64>; IDENTIFIED.len()] {
    let both = model.mimo.as_ref();
    let r2 = |output: usize| both?.fit()?.r2.get(output).copied();
    let b = |row: usize, column: usize| Some(both?.b().first()?[(row, column)]);
    let radius = laws.mimo.as_ref().map(|gains| gains.verdict.spectral_radius());
    [r2(0), r2(1), radius, b(0, 0), b(0, 1), b(1, 0), b(1, 1)]
}
