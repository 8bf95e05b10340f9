//! A node's intake as a machine of the control loop: the bound of its backlog is a knob.

use punctual_platform::{
    Applied, KnobId, KnobOffer, Machine, Offers, Plan, Provenance, Range, Readings, Refusal, Value,
};
use punctual_units::{Clock, CoreId, Time};

use super::Intake;

/// The largest bound that can be planned, in items: more than [`super::QUEUE_MAX`] requests of any sensible size, so in
/// effect no bound.
pub const BACKLOG_MAX: u64 = 1 << 40;

/// An intake whose bound changes by plans alone. Its cores are its executors. It has no clock of its own:
/// [`BacklogMachine::at`] sets the time.
#[derive(Clone, Debug)]
pub struct BacklogMachine<T> {
    intake: Intake<T>,
    offers: Offers,
    /// The bound before the first plan, to restore.
    found: u64,
    now: Time,
}

impl<T> BacklogMachine<T> {
    /// The machine called `name`; `provenance` says whether the node is real or simulated.
    pub fn new(name: impl Into<String>, intake: Intake<T>, provenance: Provenance) -> BacklogMachine<T> {
        BacklogMachine {
            found: intake.backlog_max(),
            offers: Offers {
                machine: name.into(),
                cores: (0..intake.executors() as u32).map(CoreId).collect(),
                knobs: vec![KnobOffer {
                    knob: KnobId::Backlog,
                    range: Range::Items(1, BACKLOG_MAX, provenance),
                }],
                meters: Vec::new(),
                domains: Vec::new(),
            },
            now: Time::ZERO,
            intake,
        }
    }

    /// Sets the present time.
    pub fn at(&mut self, now: Time) {
        self.now = now;
    }

    /// The intake before the executors.
    pub fn intake(&self) -> &Intake<T> {
        &self.intake
    }

    /// The intake, for requests to come, start and end. Its bound must be changed by [`Machine::apply`] only.
    pub fn intake_mut(&mut self) -> &mut Intake<T> {
        &mut self.intake
    }
}

impl<T> Clock for BacklogMachine<T> {
    fn now(&self) -> Time {
        self.now
    }
}

impl<T> Machine for BacklogMachine<T> {
    fn offers(&self) -> &Offers {
        &self.offers
    }

    fn apply(&mut self, plan: &Plan) -> Applied {
        let mut applied = Applied::default();
        for (knob, value) in plan.iter() {
            let result = match (knob, value) {
                (KnobId::Backlog, Value::Items(wanted)) => {
                    let items = wanted.clamp(1, BACKLOG_MAX);
                    self.intake.set_backlog_max(items);
                    Ok(Value::Items(items))
                }
                _ => Err(Refusal {
                    what: knob.to_string(),
                    why: "a node of a federation has only the bound of its backlog to turn".into(),
                    remedy: "plan `backlog` in items, or run on a machine that offers this knob".into(),
                }),
            };
            applied.note(knob, result);
        }
        applied
    }

    fn read(&mut self) -> Readings {
        Readings {
            at: self.now,
            meters: Vec::new(),
        }
    }

    fn restore(&mut self) -> Vec<Refusal> {
        self.intake.set_backlog_max(self.found);
        Vec::new()
    }
}
