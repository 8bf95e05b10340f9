//! Surroundings of the simulated machine in experiments: a governor of the kernel, and faults of knobs and meters.

use punctual_platform::{Applied, Plan, Readings};
use punctual_scenario::{Environment, RunRequest, WithoutEffect};
use punctual_sim::Simulation;
use punctual_units::Time;
use punctual_workload::JobOutcome;

use crate::faults::{Failing, Faults, Faulty};
use crate::governor::KernelGovernor;

/// A governor and faults, with their state in a run.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Governor that sets the clock while no controller does; `None` leaves the clock at its highest step.
    governor: Option<KernelGovernor>,
    faulty: Faulty,
}

impl Surroundings {
    /// Surroundings with this governor and these faults.
    pub fn new(governor: Option<KernelGovernor>, faults: Faults) -> Surroundings {
        Surroundings {
            governor,
            faulty: Faulty::new(faults),
        }
    }
}

impl Environment for Surroundings {
    fn without_effect(&self, request: &RunRequest) -> Vec<WithoutEffect> {
        let scenario = &request.scenario;
        let kind = scenario.control.kind;
        let mut found = Vec::new();
        if let Some(governor) = self.governor.filter(|_| kind.turns_clock()) {
            let why = format!(
                "`{}` sets the clock; leave the governor out, or choose a controller that does not, such as `qod`",
                kind.name()
            );
            found.push(WithoutEffect::of(format!("--governor {governor}"), why));
        }
        for fault in self.faulty.faults() {
            let of_clock_knob = matches!(fault.failing, Failing::StuckClock | Failing::RefusedClock);
            if fault.from >= scenario.duration {
                let why = format!("the run ends at {}, before it begins", scenario.duration);
                found.push(WithoutEffect::of(format!("--fault {fault}"), why));
            } else if of_clock_knob && !kind.turns_clock() {
                let why = format!(
                    "`{}` never sets the clock, so the run never meets a knob that fails",
                    kind.name()
                );
                found.push(WithoutEffect::of(format!("--fault {fault}"), why));
            }
        }
        found
    }

    fn begin(&mut self, machine: &mut Simulation, is_clock_set: bool) -> Vec<String> {
        if let Some(governor) = self.governor {
            machine.govern_with(governor.start());
        }
        let governor = self.governor.filter(|_| !is_clock_set);
        let governor = governor.map(|governor| format!("the clock was left to the governor {governor}"));
        let fault = |fault| format!("a fault was simulated: {fault}");
        governor
            .into_iter()
            .chain(self.faulty.faults().iter().map(fault))
            .collect()
    }

    fn apply(&mut self, machine: &mut Simulation, plan: &Plan) -> Applied {
        self.faulty.apply(machine, plan)
    }

    fn read(&mut self, machine: &mut Simulation) -> Readings {
        self.faulty.read(machine)
    }

    fn observe(&mut self, outcome: JobOutcome, now: Time) -> Option<JobOutcome> {
        self.faulty.observe(outcome, now)
    }

    fn overdue(&mut self, now: Time) -> Vec<JobOutcome> {
        self.faulty.overdue(now)
    }

    fn boxed(&self) -> Box<dyn Environment> {
        Box::new(self.clone())
    }
}
