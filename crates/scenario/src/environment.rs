//! Surroundings of the simulated machine in a run: the clock's governor while no controller sets it, and faults of
//! knobs and meters.
//!
//! The product has none ([`MachineAlone`]); experiments bring theirs along.

use std::fmt;

use punctual_platform::{Applied, Machine, Plan, Readings};
use punctual_sim::Simulation;
use punctual_units::Time;
use punctual_workload::JobOutcome;

use crate::run::RunRequest;
use crate::without_effect::WithoutEffect;

/// Surroundings of the simulated machine. Each function is that of a machine on its own, unless it says otherwise.
pub trait Environment: fmt::Debug + Send + Sync {
    /// Settings of these surroundings that change nothing in this run on the simulated machine.
    fn without_effect(&self, _request: &RunRequest) -> Vec<WithoutEffect> {
        Vec::new()
    }

    /// Prepares the machine before its first event, and returns notes for the report.
    fn begin(&mut self, _machine: &mut Simulation, _is_clock_set: bool) -> Vec<String> {
        Vec::new()
    }

    /// Turns knobs as [`Machine::apply`] does.
    fn apply(&mut self, machine: &mut Simulation, plan: &Plan) -> Applied {
        machine.apply(plan)
    }

    /// Reads meters as [`Machine::read`] does.
    fn read(&mut self, machine: &mut Simulation) -> Readings {
        machine.read()
    }

    /// Outcome that the loop is given of a job that just ended; `None`: nothing, or later.
    fn observe(&mut self, outcome: JobOutcome, _now: Time) -> Option<JobOutcome> {
        Some(outcome)
    }

    /// Returns earlier outcomes that the loop is given only now.
    fn overdue(&mut self, _now: Time) -> Vec<JobOutcome> {
        Vec::new()
    }

    /// Returns a copy in the same state, for another run.
    fn boxed(&self) -> Box<dyn Environment>;
}

impl Clone for Box<dyn Environment> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

/// No surroundings: the machine alone.
#[derive(Clone, Copy, Debug)]
pub struct MachineAlone;

impl Environment for MachineAlone {
    fn boxed(&self) -> Box<dyn Environment> {
        Box::new(*self)
    }
}
