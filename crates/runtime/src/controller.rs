//! The four controllers of the first paper as one: which meters a law reads and which knobs it turns.
//!
//! | name    | reads            | turns                 | in the paper |
//! |---------|------------------|-----------------------|--------------|
//! | `open`  | nothing          | nothing               | Open         |
//! | `qod`   | tardiness        | admitted share        | QoDxxx       |
//! | `clock` | tardiness        | clock                 | DVFSonly     |
//! | `mimo`  | tardiness, drr   | clock, admitted share | MIMO         |
//!
//! The laws are LQR-PI of `punctual-control`; `qod` and `clock` are its one-by-one case. Knobs are shares of their
//! range: the clock as a share of the top clock, so that a model says the same on machines of different speed.

use punctual_control::{Knob, LqrPi};
use punctual_platform::{ClockOffer, Offers};
use punctual_workload::{ControllerKind, Goal};

use crate::document::{ADMITTED, CLOCK, ControllerDocument, DRR, Mismatch, TARDINESS};
use crate::event::Window;

/// Meters that there are.
pub const METERS_MAX: usize = 2;
/// Knobs that there are.
pub const KNOBS_MAX: usize = 2;

/// Knob positions as shares of their range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knobs {
    /// The clock over the top clock; none leaves it as it was found.
    pub clock: Option<f64>,
    /// The admitted share of sensor updates.
    pub admitted: f64,
}

/// A controller at work.
#[derive(Clone, Debug)]
pub struct Controller {
    law: Option<Law>,
    /// Where the knobs are, as far as known.
    held: Knobs,
    /// Where knobs belong that the law does not turn.
    rest: Knobs,
}

#[derive(Clone, Debug)]
struct Law {
    pi: LqrPi,
    meters: Vec<MeterName>,
    knobs: Vec<KnobName>,
    goal: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum MeterName {
    Tardiness,
    Drr,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum KnobName {
    Clock,
    Admitted,
}

impl Controller {
    /// The controller `kind` at rest at its operating point.
    ///
    /// # Errors
    /// [`Mismatch`] where a design is missing, does not fit, or needs a clock knob that the machine lacks.
    pub fn new(
        kind: ControllerKind,
        goal: Goal,
        offers: &Offers,
        document: Option<&ControllerDocument>,
    ) -> Result<Controller, Mismatch> {
        let rest = Knobs {
            clock: None,
            admitted: 1.0,
        };
        let design = match (kind, document) {
            (ControllerKind::Open, _) => {
                return Ok(Controller {
                    law: None,
                    held: rest,
                    rest,
                });
            }
            (_, None) => {
                return Err(Mismatch::NoDesign {
                    controller: kind.name(),
                });
            }
            (ControllerKind::Qod, Some(document)) => &document.qod,
            (ControllerKind::Clock, Some(document)) => &document.clock,
            (ControllerKind::Mimo, Some(document)) => &document.mimo,
        };
        let meters = design
            .outputs
            .iter()
            .map(|name| meter(name))
            .collect::<Result<Vec<_>, _>>()?;
        let knobs = design
            .inputs
            .iter()
            .map(|name| knob(name))
            .collect::<Result<Vec<_>, _>>()?;
        if meters.len() > METERS_MAX || knobs.len() > KNOBS_MAX {
            return Err(Mismatch::TooMany {
                meters: meters.len(),
                knobs: knobs.len(),
            });
        }
        let ranges = knobs
            .iter()
            .map(|knob| range(*knob, offers.clock.as_ref(), kind))
            .collect::<Result<Vec<_>, _>>()?;
        let goal = meters.iter().map(|meter| {
            if *meter == MeterName::Tardiness {
                goal.tardiness
            } else {
                goal.drr
            }
        });
        let law = Law {
            pi: LqrPi::new(design, ranges)?,
            goal: goal.collect(),
            meters,
            knobs,
        };
        let held = law.merge(rest);
        Ok(Controller {
            law: Some(law),
            held,
            rest,
        })
    }

    /// Where the knobs are held until the law takes over, and where it starts from.
    pub fn operating_point(&self) -> Knobs {
        self.held
    }

    /// Whether this controller turns anything.
    pub fn turns_knobs(&self) -> bool {
        self.law.is_some()
    }

    /// The knobs for the next window. A window without a finished job teaches nothing: the knobs stay.
    pub fn step(&mut self, window: &Window) -> Knobs {
        let Some(law) = &mut self.law else { return self.held };
        if let Some(y) = law.measured(window) {
            law.account(self.held, window.forced);
            // An unusable value leaves the law as it was; the regulator reports it as a fault of the meter.
            let _ = law.pi.step(&y[..law.meters.len()], &law.goal);
            self.held = law.merge(self.held);
        }
        self.held
    }

    /// Where the machine really put the knobs.
    pub fn applied(&mut self, knobs: Knobs) {
        if self.law.is_some() {
            self.held = knobs;
        }
    }

    /// Goes on from `knobs` without a jolt: after warm-up and fallback.
    pub fn resume(&mut self, knobs: Knobs) {
        if let Some(law) = &mut self.law {
            let settings = law.settings(knobs);
            // Settings come from the law's own knobs, so they are usable.
            let _ = law.pi.resume(&settings[..law.knobs.len()]);
            self.held = law.merge(self.rest);
        }
    }
}

impl Law {
    /// What the law reads, in its order; only the first as many as it has meters count. Arrays, so that a step allocates
    /// nothing.
    fn measured(&self, window: &Window) -> Option<[f64; METERS_MAX]> {
        let read = |meter: &MeterName| match meter {
            MeterName::Tardiness => window.tardiness,
            MeterName::Drr => window.drr,
        };
        let mut y = [0.0; METERS_MAX];
        for (y, meter) in y.iter_mut().zip(&self.meters) {
            *y = read(meter)?;
        }
        Some(y)
    }

    /// Tells the law where the knobs really were in the window that was measured: on the machine's steps, and with
    /// what admission let in where the freshness minimum forced it to let in more than asked.
    fn account(&mut self, held: Knobs, forced: f64) {
        let admitted = (held.admitted + forced).min(1.0);
        let settings = self.settings(Knobs { admitted, ..held });
        let _ = self.pi.applied(&settings[..self.knobs.len()]);
    }

    fn settings(&self, knobs: Knobs) -> [f64; KNOBS_MAX] {
        let position = |knob: &KnobName| match knob {
            KnobName::Clock => knobs.clock.unwrap_or(1.0),
            KnobName::Admitted => knobs.admitted,
        };
        let mut settings = [0.0; KNOBS_MAX];
        for (setting, knob) in settings.iter_mut().zip(&self.knobs) {
            *setting = position(knob);
        }
        settings
    }

    /// `held`, with the law's settings for the knobs that it turns.
    fn merge(&self, mut held: Knobs) -> Knobs {
        for (knob, setting) in self.knobs.iter().zip(self.pi.settings()) {
            match knob {
                KnobName::Clock => held.clock = Some(*setting),
                KnobName::Admitted => held.admitted = *setting,
            }
        }
        held
    }
}

fn meter(name: &str) -> Result<MeterName, Mismatch> {
    match name {
        TARDINESS => Ok(MeterName::Tardiness),
        DRR => Ok(MeterName::Drr),
        other => Err(Mismatch::UnknownName { name: other.into() }),
    }
}

fn knob(name: &str) -> Result<KnobName, Mismatch> {
    match name {
        CLOCK => Ok(KnobName::Clock),
        ADMITTED => Ok(KnobName::Admitted),
        other => Err(Mismatch::UnknownName { name: other.into() }),
    }
}

/// A knob's range in shares, and how finely it can be set: the widest gap between two clock steps.
fn range(knob: KnobName, clock: Option<&ClockOffer>, kind: ControllerKind) -> Result<Knob, Mismatch> {
    let knob = match knob {
        KnobName::Admitted => Knob::new(0.0, 1.0, 0.0),
        KnobName::Clock => {
            let offer = clock.ok_or(Mismatch::NoClock {
                controller: kind.name(),
            })?;
            let gaps = offer
                .steps
                .windows(2)
                .map(|pair| (pair[1].0 - pair[0].0) as f64 / offer.top().0 as f64);
            Knob::new(offer.bottom().ratio(offer.top()), 1.0, gaps.fold(0.0, f64::max))
        }
    };
    Ok(knob?)
}
