//! Implements the contract of real machines for the simulated one.

use punctual_platform::{
    Applied, ClockOffer, KnobId, KnobOffer, Machine, Measure, MeterId, Offers, Plan, Provenance, Range, Readings,
    Refusal, Value,
};
use punctual_units::{Clock, CoreId, Hertz, Nanos, Share, Time};

use crate::engine::Simulation;
use crate::model::{ClockStep, MachineModel};
use crate::power::Activity;

impl Clock for Simulation {
    fn now(&self) -> Time {
        self.now
    }
}

impl Simulation {
    /// The clock step nearest to `wanted`.
    pub(crate) fn nearest_step(&self, wanted: Hertz) -> ClockStep {
        let nearest = self.offers.clock().map(|clock| clock.nearest(wanted));
        let step = self.model.steps.iter().find(|step| Some(step.clock) == nearest);
        step.copied().unwrap_or(self.clock.step)
    }

    fn set_clock(&mut self, wanted: Hertz) -> Value {
        let step = self.nearest_step(wanted);
        self.suspend_governor();
        self.retune(step);
        Value::Clock(step.clock)
    }
}

/// Knobs act at once, except the clock of a machine with a delay (`clock-change-us`). A caller that sets the clock
/// takes it from the governor; [`Machine::restore`] gives it back.
impl Machine for Simulation {
    fn offers(&self) -> &Offers {
        &self.offers
    }

    fn apply(&mut self, plan: &Plan) -> Applied {
        let mut applied = Applied::default();
        let mut split = None;
        for (knob, value) in plan.iter() {
            let result = match (knob, value) {
                (KnobId::CLOCK, Value::Clock(wanted)) => Ok(self.set_clock(wanted)),
                (KnobId::AdmittedShare, Value::Share(share)) => {
                    self.updates().set_admitted_share(share);
                    Ok(value)
                }
                (KnobId::BestEffortShare, Value::Share(share)) => {
                    self.throttle.share = share;
                    self.stale = true;
                    Ok(value)
                }
                (KnobId::Ways(_) | KnobId::Bandwidth(_), _) if self.offers.range(knob).is_some() => {
                    let turned = split.get_or_insert_with(|| self.turn_split(plan));
                    turned.clone().map(|()| value)
                }
                (KnobId::Lease(core), Value::Lent(lend)) if self.offers.range(knob).is_some() => {
                    self.turn_lease(core.index(), lend);
                    Ok(value)
                }
                _ => Err(Refusal {
                    what: format!("setting the {knob} to {value}"),
                    why: "this machine has no such knob".into(),
                    remedy: "leave it out of the plan, or use a machine that offers it".into(),
                }),
            };
            applied.note(knob, result);
        }
        applied
    }

    fn read(&mut self) -> Readings {
        let busy = self.cores.iter().map(|core| core.times(self.now).busy());
        Readings {
            at: self.now,
            meters: vec![
                (MeterId::Clock, Ok(Measure::Clock(self.clock.step.clock))),
                (MeterId::Busy, Ok(Measure::Busy(busy.collect()))),
                (MeterId::Energy, Ok(Measure::Joules(self.energy().total()))),
            ],
        }
    }

    fn restore(&mut self) -> Vec<Refusal> {
        self.throttle.share = Share::ONE;
        self.stale = true;
        (0..self.cores.len()).for_each(|core| self.turn_lease(core, false));
        self.restore_split();
        self.retune(self.model.top());
        self.resume_governor();
        Vec::new()
    }
}

/// Knobs and meters of this machine.
pub(crate) fn offers(model: &MachineModel) -> Offers {
    let one_busy = Activity {
        busy: 1,
        ..Activity::default()
    };
    let watts = |step: &ClockStep| model.power.watts(*step, model.cores as usize, one_busy).total();
    let steps = model.steps.iter().map(|step| step.clock).collect();
    let clock = ClockOffer {
        microwatts: model
            .steps
            .iter()
            .map(|step| (watts(step) * 1e6).round() as u32)
            .collect(),
        change: Nanos::from_secs_f64(model.clock_change_us * 1e-6),
        ..ClockOffer::new(steps, Provenance::Simulated)
    };
    Offers {
        machine: format!("{} (simulated)", model.name),
        cores: (0..model.cores).map(CoreId).collect(),
        knobs: [
            (KnobId::CLOCK, Range::Clock(clock)),
            (KnobId::AdmittedShare, Range::Share(Provenance::Simulated)),
            (KnobId::BestEffortShare, Range::Share(Provenance::Simulated)),
        ]
        .map(|(knob, range)| KnobOffer { knob, range })
        .into(),
        domains: Vec::new(),
        meters: vec![(MeterId::Energy, Provenance::Simulated)],
    }
}
