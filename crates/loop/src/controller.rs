//! The controllers by name: which meters a control law reads, which knobs it turns, and which law it is.
//!
//! | name    | reads          | turns                 | in the paper |
//! |---------|----------------|-----------------------|--------------|
//! | `open`  | nothing        | nothing               | Open         |
//! | `qod`   | tardiness      | admitted share        | QoDxxx       |
//! | `clock` | tardiness      | clock                 | DVFSonly     |
//! | `mimo`  | tardiness, drr | clock, admitted share | MIMO         |
//!
//! With prices `mimo` runs as `clock`, and the admitted share is found by them.
//!
//! The law is LQR-PI, of `punctual-control`; `qod` and `clock` are the one-by-one case of `mimo`. Knobs are shares of
//! their range: the clock as a share of the top clock, so that a model says the same on machines of different speed.
//!
//! At `pace = "period"` the laws are the paper's, which round the clock only when the plan is made. At `pace = "job"`
//! they know the clock's steps and carry the rounding (a single job answers to a single step, so there is no mean over
//! a period to hide it in), and feed changes of the goal forward. Laws beyond the paper are also watched: see
//! [`Controller::watch`].

use punctual_control::{Actuator, Design, Doubt, Effect, Knob, LqrPi, Supervisor};
use punctual_platform::{ClockOffer, KnobId, Offers};
use punctual_units::Share;
use punctual_workload::{ControllerKind, Pace};

use crate::document::{ADMITTED, CLOCK, ControllerDocument, DRR, Mismatch, ModelDocument, TARDINESS};
use crate::event::Window;

/// Number of meters that laws can read.
pub const METERS_MAX: usize = 2;
/// Number of knobs that laws can turn.
pub const KNOBS_MAX: usize = 2;

/// Distance of mean tardiness from its goal, relative to it, that counts as late or early to the watcher over a model.
const OFF_MARGIN: f64 = 0.1;

/// A knob that control laws turn and models are about. All code that is particular to one knob is here, and in its
/// [`range`].
struct ControlledKnob {
    knob: KnobId,
    /// Name of the knob in models.
    name: &'static str,
    /// Direction in which more of the knob moves tardiness, whatever a record says.
    effect: Effect,
    /// Position while no law turns the knob; `None` leaves it as it was found.
    rest: Option<f64>,
    /// The position that is right whatever failed, given the least share of updates that keeps data fresh.
    safe: fn(Share) -> f64,
}

static KNOBS: [ControlledKnob; KNOBS_MAX] = [
    ControlledKnob {
        knob: KnobId::CLOCK,
        name: CLOCK,
        effect: Effect::Lowers,
        rest: None,
        safe: |_| 1.0,
    },
    ControlledKnob {
        knob: KnobId::AdmittedShare,
        name: ADMITTED,
        effect: Effect::Raises,
        rest: Some(1.0),
        safe: Share::get,
    },
];

/// Positions of the knobs that laws turn, as shares of their range: the clock over the top clock. A knob without one is
/// left as it was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knobs([Option<f64>; KNOBS_MAX]);

impl Knobs {
    /// Sets each knob to `position`, or to rest.
    pub(crate) fn each(position: impl Fn(KnobId) -> Option<f64>) -> Knobs {
        Knobs(KNOBS.each_ref().map(|known| position(known.knob).or(known.rest)))
    }

    /// Every knob at the setting that is right whatever failed: full clock, and the least share of updates that keeps
    /// the minimum of fresh data.
    pub(crate) fn safe(least: Share) -> Knobs {
        Knobs(KNOBS.each_ref().map(|known| Some((known.safe)(least))))
    }

    /// Positions of the knobs while no law turns them.
    fn rest() -> Knobs {
        Knobs::each(|_| None)
    }

    /// Position of `knob`; `None` for one that was left as it was found, or that no law turns.
    pub fn get(&self, knob: KnobId) -> Option<f64> {
        let place = KNOBS.iter().position(|known| known.knob == knob)?;
        self.0[place]
    }

    /// Moves `knob` to this position, if laws turn it.
    pub(crate) fn set(&mut self, knob: KnobId, position: Option<f64>) {
        if let Some(place) = KNOBS.iter().position(|known| known.knob == knob) {
            self.0[place] = position;
        }
    }

    /// Moves `knob` up to `least`, where it has a position below that.
    pub(crate) fn raise(&mut self, knob: KnobId, least: Share) {
        self.set(knob, self.get(knob).map(|position| position.max(least.get())));
    }

    /// Moves each knob that has a position to that of `other`, where that is safer.
    pub(crate) fn make_as_safe_as(&mut self, other: &Knobs) {
        for ControlledKnob { knob, .. } in &KNOBS {
            if !self.as_safe_as(other, *knob) {
                self.set(*knob, other.get(*knob));
            }
        }
    }

    /// The knobs that have a position.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (KnobId, f64)> {
        let all = KNOBS.iter().zip(self.0);
        all.filter_map(|(known, position)| Some((known.knob, position?)))
    }

    /// Whether `knob` is at least as safe here as it is in `safe`; a knob that was left as it was found counts as safe.
    pub(crate) fn as_safe_as(&self, safe: &Knobs, knob: KnobId) -> bool {
        let Some((known, (here, there))) = known(knob).zip(self.get(knob).zip(safe.get(knob))) else {
            return true;
        };
        match known.effect {
            Effect::Lowers => here >= there,
            Effect::Raises => here <= there,
        }
    }
}

/// Set points of the law's meters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SetPoints {
    /// Mean tardiness of the task that leads, scaled to this nominal set point.
    pub(crate) tardiness: f64,
    /// Data response ratio of the same task.
    pub(crate) drr: f64,
}

/// Knobs that the law of a controller turns.
pub const fn knobs_of(kind: ControllerKind) -> &'static [KnobId] {
    match kind {
        ControllerKind::Open => &[],
        ControllerKind::Qod => &[KnobId::AdmittedShare],
        ControllerKind::Clock => &[KnobId::CLOCK],
        ControllerKind::Mimo => &[KnobId::CLOCK, KnobId::AdmittedShare],
    }
}

/// A controller with its law and the knobs' positions.
#[derive(Clone, Debug)]
pub struct Controller {
    law: Option<Law>,
    /// Positions of the knobs, as far as known.
    held: Knobs,
    /// Positions of the knobs that the law does not turn.
    rest: Knobs,
}

#[derive(Clone, Debug)]
struct Law {
    pilot: Box<LqrPi>,
    meters: Vec<MeterName>,
    knobs: Vec<KnobId>,
    goal: Vec<f64>,
    supervisor: Option<Supervisor>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum MeterName {
    Tardiness,
    Drr,
}

impl Controller {
    /// The controller `kind` at rest at its operating point.
    ///
    /// # Errors
    /// [`Mismatch`] where a design is missing, does not fit, or needs a clock knob that the machine lacks. Without any
    /// document, nothing is turned.
    pub fn new(
        kind: ControllerKind,
        goal: SetPoints,
        offers: &Offers,
        document: Option<&ControllerDocument>,
    ) -> Result<Controller, Mismatch> {
        let rest = Knobs::rest();
        let Some(document) = document.filter(|_| kind != ControllerKind::Open) else {
            return Ok(Controller {
                law: None,
                held: rest,
                rest,
            });
        };
        let design = document.design_of(kind).ok_or_else(|| Mismatch::no_design(kind))?;
        let law = Law::lqr_pi(kind, design, goal, offers.clock(), document)?;
        let held = law.merge(rest);
        Ok(Controller {
            law: Some(law),
            held,
            rest,
        })
    }

    /// Positions at which the knobs are held until the law takes over, and from which it starts.
    pub fn operating_point(&self) -> Knobs {
        self.held
    }

    /// Whether this controller turns anything.
    pub fn turns_knobs(&self) -> bool {
        self.law.is_some()
    }

    /// Knobs that the law turns.
    pub(crate) fn turns(&self) -> &[KnobId] {
        self.law.as_ref().map_or(&[], |law| law.knobs.as_slice())
    }

    /// The knobs for the next window. A window without a finished job teaches nothing: the knobs stay.
    pub fn step(&mut self, window: &Window) -> Knobs {
        let Some(law) = &mut self.law else { return self.held };
        if let Some(y) = law.measured(window) {
            law.account(self.held, window);
            // An unusable value leaves the law as it was; the regulator reports it as a fault of the meter.
            let _ = law.pilot.step(&y[..law.meters.len()], &law.goal);
            self.held = law.merge(self.held);
        }
        self.held
    }

    /// Returns a doubt if the window that was just measured, under the knobs that are held, speaks against the law's
    /// model. Ask before [`step`](Self::step), once per window. The paper's laws at a fixed period are not watched:
    /// they are the baseline that others are compared with.
    pub fn watch(&mut self, window: &Window) -> Option<Doubt> {
        let law = self.law.as_mut()?;
        let y = law.measured(window)?;
        let held = over_window(self.held, window);
        let (asked, settings) = (law.settings(held), law.settings(in_force(held, window.forced)));
        let (meters, knobs) = (law.meters.len(), law.knobs.len());
        law.supervisor
            .as_mut()?
            .observe(&y[..meters], law.goal[0], &asked[..knobs], &settings[..knobs])
    }

    /// Words a doubt, with the names of meters and knobs.
    pub fn explain(&self, doubt: Doubt) -> String {
        let law = self.law.as_ref();
        let knob = |i: usize| {
            let knob = law.and_then(|law| law.knobs.get(i));
            knob.and_then(|knob| known(*knob)).map_or("a knob", |known| known.name)
        };
        match doubt {
            Doubt::Mispredicts { missed, residual } => format!(
                "the model is wrong here: it misses changes of tardiness by {missed:.3}, its own record by \
                 {residual:.3}; identify again"
            ),
            Doubt::Swings { knob: i, times } => format!(
                "the model is wrong here: {} swung to and fro {times} times in a row; identify again",
                knob(i)
            ),
            Doubt::Backwards { late, samples } => {
                let (off, more) = if late { ("late", "later") } else { ("early", "earlier") };
                format!(
                    "the model is wrong here: jobs stayed {off} for {samples} windows while the knobs made them \
                     {more}; identify again"
                )
            }
        }
    }

    /// Takes over the positions at which the machine really put the knobs.
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
            let _ = law.pilot.resume(&settings[..law.knobs.len()]);
            if let Some(supervisor) = &mut law.supervisor {
                supervisor.reset();
            }
            self.held = law.merge(self.rest);
        }
    }
}

impl Law {
    /// LQR-PI with the gains of `design`.
    fn lqr_pi(
        kind: ControllerKind,
        design: &Design,
        goal: SetPoints,
        clock: Option<&ClockOffer>,
        document: &ControllerDocument,
    ) -> Result<Law, Mismatch> {
        let (meters, knobs) = names(&design.outputs, &design.inputs)?;
        let pilot = match document.made_for.pace {
            Pace::Period(_) => {
                let ranges = knobs.iter().map(|knob| range(*knob, clock, kind));
                LqrPi::new(design, ranges.collect::<Result<_, _>>()?)?
            }
            Pace::Job => {
                let actuators = knobs.iter().map(|knob| actuator(*knob, clock, kind));
                let law = LqrPi::on_actuators(design, actuators.collect::<Result<_, _>>()?)?;
                match document.model.as_ref().and_then(|model| model.mimo.as_ref()) {
                    Some(model) if design.check_model(model).is_ok() => law.with_model(model, design)?,
                    _ => law,
                }
            }
        };
        let watched = document.made_for.pace == Pace::Job;
        let mut law = Law {
            pilot: Box::new(pilot),
            goal: meters.iter().map(|meter| meter.goal(goal)).collect(),
            meters,
            knobs,
            supervisor: None,
        };
        if let (true, Some(model)) = (watched, &document.model) {
            law.supervisor = law.supervisor(model, clock, kind)?;
        }
        Ok(law)
    }

    /// A watcher with the model of this law's meters and knobs; `None` where tardiness does not come first, or where
    /// the model is about other meters.
    fn supervisor(
        &self,
        model: &ModelDocument,
        clock: Option<&ClockOffer>,
        kind: ControllerKind,
    ) -> Result<Option<Supervisor>, Mismatch> {
        let one_knob = |input: usize| model.tardiness.with_input(input).ok();
        let model = match self.knobs.as_slice() {
            [KnobId::CLOCK, KnobId::AdmittedShare] if self.meters.len() == 2 => model.mimo.clone(),
            [KnobId::CLOCK] => one_knob(0),
            [KnobId::AdmittedShare] => one_knob(1),
            _ => None,
        };
        let ranges = self
            .knobs
            .iter()
            .map(|knob| range(*knob, clock, kind))
            .collect::<Result<Vec<_>, _>>()?;
        let natures = self
            .knobs
            .iter()
            .filter_map(|knob| Some(known(*knob)?.effect))
            .collect();
        let tardiness_first = self.meters.first() == Some(&MeterName::Tardiness);
        let model = model.filter(|model| tardiness_first && model.outputs().len() == self.meters.len());
        Ok(model.and_then(|model| Supervisor::new(&model, ranges, natures, OFF_MARGIN)))
    }

    /// Reads the law's meters, in its order; only the first as many as it has meters count. An array, so that a step
    /// allocates nothing.
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

    /// Reports to the law where the knobs really were in the window that was measured: on the machine's steps, and with
    /// the share that was really admitted where the freshness minimum forced more than asked. Where jobs were paced
    /// from within, the law goes on from the mean clock that they had.
    fn account(&mut self, held: Knobs, window: &Window) {
        let settings = self.settings(in_force(over_window(held, window), window.forced));
        let settings = &settings[..self.knobs.len()];
        let _ = match window.clock {
            Some(_) => self.pilot.follow(settings),
            None => self.pilot.applied(settings),
        };
    }

    fn settings(&self, knobs: Knobs) -> [f64; KNOBS_MAX] {
        let mut settings = [0.0; KNOBS_MAX];
        for (setting, knob) in settings.iter_mut().zip(&self.knobs) {
            // A clock that was left as it was found counts as at its top.
            *setting = knobs.get(*knob).unwrap_or(1.0);
        }
        settings
    }

    /// `held`, with the law's settings for the knobs that it turns.
    fn merge(&self, mut held: Knobs) -> Knobs {
        for (knob, setting) in self.knobs.iter().zip(self.pilot.settings()) {
            held.set(*knob, Some(*setting));
        }
        held
    }
}

impl MeterName {
    const fn goal(self, goal: SetPoints) -> f64 {
        match self {
            MeterName::Tardiness => goal.tardiness,
            MeterName::Drr => goal.drr,
        }
    }
}

/// Entry of a knob in the table; `None` if laws do not turn it.
fn known(knob: KnobId) -> Option<&'static ControlledKnob> {
    KNOBS.iter().find(|known| known.knob == knob)
}

/// The knobs that were held, with the clock at its mean where jobs were paced from within.
fn over_window(mut held: Knobs, window: &Window) -> Knobs {
    let clock = held.get(KnobId::CLOCK);
    held.set(KnobId::CLOCK, clock.map(|clock| window.clock.unwrap_or(clock)));
    held
}

/// The knobs as they really were in a window: more is admitted than asked where the freshness minimum forces it.
fn in_force(mut held: Knobs, forced: f64) -> Knobs {
    let admitted = held.get(KnobId::AdmittedShare);
    held.set(
        KnobId::AdmittedShare,
        admitted.map(|admitted| (admitted + forced).min(1.0)),
    );
    held
}

/// Refuses names of meters and knobs that this version does not know.
pub(crate) fn check_names(outputs: &[String], inputs: &[String]) -> Result<(), Mismatch> {
    names(outputs, inputs).map(|_| ())
}

/// Meters and knobs by their names in a model, in its order.
fn names(outputs: &[String], inputs: &[String]) -> Result<(Vec<MeterName>, Vec<KnobId>), Mismatch> {
    let meters = outputs.iter().map(|name| meter(name)).collect::<Result<Vec<_>, _>>()?;
    let knobs = inputs.iter().map(|name| knob(name)).collect::<Result<Vec<_>, _>>()?;
    if meters.len() > METERS_MAX || knobs.len() > KNOBS_MAX {
        let (meters, knobs) = (meters.len(), knobs.len());
        return Err(Mismatch(format!(
            "the model has {meters} meters and {knobs} knobs, but there are only {METERS_MAX} and {KNOBS_MAX}: identify \
             again"
        )));
    }
    Ok((meters, knobs))
}

fn meter(name: &str) -> Result<MeterName, Mismatch> {
    match name {
        TARDINESS => Ok(MeterName::Tardiness),
        DRR => Ok(MeterName::Drr),
        other => Err(unknown_name(other)),
    }
}

fn knob(name: &str) -> Result<KnobId, Mismatch> {
    let known = KNOBS.iter().find(|known| known.name == name);
    known.map(|known| known.knob).ok_or_else(|| unknown_name(name))
}

/// A knob or meter that this version does not know.
fn unknown_name(name: &str) -> Mismatch {
    Mismatch(format!(
        "the model names \"{name}\", which is neither a knob nor a meter of this version: identify again"
    ))
}

/// A knob's range in shares, and how finely it can be set: the widest gap between two clock steps.
fn range(knob: KnobId, clock: Option<&ClockOffer>, kind: ControllerKind) -> Result<Knob, Mismatch> {
    let knob = match knob {
        KnobId::Clock(_) => {
            let offer = clock.ok_or_else(|| Mismatch::no_clock(kind))?;
            let gaps = offer
                .steps
                .windows(2)
                .map(|pair| (pair[1].0 - pair[0].0) as f64 / offer.top().0 as f64);
            Knob::new(offer.bottom().ratio(offer.top()), 1.0, gaps.fold(0.0, f64::max))
        }
        _ => Knob::new(0.0, 1.0, 0.0),
    };
    Ok(knob?)
}

/// A knob with its steps, as shares of its range.
fn actuator(knob: KnobId, clock: Option<&ClockOffer>, kind: ControllerKind) -> Result<Actuator, Mismatch> {
    match (knob, clock) {
        (KnobId::CLOCK, Some(offer)) => {
            let steps = offer.steps.iter().map(|step| step.ratio(offer.top())).collect();
            Ok(Actuator::on_steps(steps)?)
        }
        _ => Ok(Actuator::from(range(knob, clock, kind)?)),
    }
}
