//! Builds the request of a run for the runtime.

use std::sync::Arc;

use punctual_machine::governor::Ondemand;
use punctual_machine::{Faults, KernelGovernor, Surroundings};
use punctual_scenario::{PlatformChoice, RunRequest};
use punctual_units::Hertz;

use super::approach::Approach;
use super::replicate::SeededSubject;
use super::setting::{Ask, scenario};

/// Mechanism that sets the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Clocking {
    /// The control law of the run.
    Law,
    /// The `ondemand` governor, which keeps the utilisation between 20 and 90 % (section 5.2), as it was in the kernels
    /// that ran on the paper's board (3.10).
    Ondemand,
    /// The clock stays at this step.
    Pinned(Hertz),
}

impl Clocking {
    /// The mechanism that sets the clock under this approach.
    pub fn of(approach: Approach) -> Clocking {
        match approach {
            Approach::Open => Clocking::Ondemand,
            Approach::DvfsOnly | Approach::Mimo(_) => Clocking::Law,
            Approach::Qod(mhz) | Approach::Pinned(mhz) => Clocking::Pinned(Hertz::from_mhz(mhz)),
        }
    }

    fn governor(self) -> Option<KernelGovernor> {
        match self {
            Clocking::Law => None,
            Clocking::Ondemand => Some(KernelGovernor::Ondemand(Ondemand::old_between(20, 90))),
            Clocking::Pinned(clock) => Some(KernelGovernor::Userspace(clock)),
        }
    }
}

/// The request of a run, without the gains of its law.
pub fn request(place: &SeededSubject, ask: &Ask, clocking: Clocking) -> RunRequest {
    RunRequest {
        machine: Some(place.subject.machine.clone()),
        environment: Box::new(Surroundings::new(clocking.governor(), Faults::default())),
        ..RunRequest::new(scenario(ask), Arc::clone(&place.trace), PlatformChoice::Sim)
    }
}
