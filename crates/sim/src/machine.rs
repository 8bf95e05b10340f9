//! The simulated machine behind the same contract as a real one.

use punctual_platform::{ClockOffer, Machine, Meter, Offers, Provenance, Readings, Refusal, Setting};
use punctual_units::{Clock, CoreId, Hertz, Share, Time};

use crate::engine::Simulation;
use crate::model::{ClockStep, MachineModel};

impl Clock for Simulation<'_> {
    fn now(&self) -> Time {
        self.now
    }
}

impl Simulation<'_> {
    /// The step nearest to `wanted`.
    pub(crate) fn nearest_step(&self, wanted: Hertz) -> ClockStep {
        let nearest = self.offers.clock.as_ref().map(|clock| clock.nearest(wanted));
        let step = self.model.steps.iter().find(|step| Some(step.clock) == nearest);
        step.copied().unwrap_or(self.step)
    }
}

/// Knobs act at once, but for a clock whose machine says that it takes time (`clock-change-us`). Who sets the clock takes it from the
/// governor; [`Machine::restore`] gives it back.
impl Machine for Simulation<'_> {
    fn offers(&self) -> &Offers {
        &self.offers
    }

    fn apply(&mut self, setting: Setting) -> Result<Setting, Refusal> {
        match setting {
            Setting::Clock(wanted) => {
                let step = self.nearest_step(wanted);
                self.suspend_governor();
                self.retune(step);
                Ok(Setting::Clock(step.clock))
            }
            Setting::BestEffortShare(share) => {
                self.throttle.share = share;
                self.stale = true;
                Ok(setting)
            }
        }
    }

    fn read(&mut self) -> Readings {
        Readings {
            at: self.now,
            clock: Meter::Value(self.step.clock),
            busy: Meter::Value(self.cores.iter().map(|core| core.times(self.now).busy()).collect()),
            energy_j: Meter::Value(self.energy().total()),
        }
    }

    fn restore(&mut self) -> Vec<Refusal> {
        self.throttle.share = Share::ONE;
        self.stale = true;
        self.retune(self.model.top());
        self.resume_governor();
        Vec::new()
    }
}

/// What this machine offers.
pub(crate) fn offers(model: &MachineModel) -> Offers {
    Offers {
        machine: format!("{} (simulated)", model.name),
        cores: (0..model.cores).map(CoreId).collect(),
        clock: Some(ClockOffer {
            steps: model.steps.iter().map(|step| step.clock).collect(),
            provenance: Provenance::Simulated,
        }),
        best_effort_share: Some(Provenance::Simulated),
        energy: Some(Provenance::Simulated),
    }
}
