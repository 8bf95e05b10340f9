//! The loop, as one state machine. Both machines drive it, and a recorded log replays through it.
//!
//! ```text
//! job outcome ─► monitor.close_window ─► mode.next ─► controller.step(window, goal) ─► plan(limits) ─► knobs
//!      ▲                                                                                               │
//!      └──────────────────────── only through the next window ────────────────────────────────────────┘
//! ```
//!
//! [`Regulator::step`] takes an [`Event`] and the time and returns an [`Answer`]: no clock, no file, no thread. What the
//! machine made of the plan comes back as [`Event::Applied`], so that the integrators never count on a knob that did
//! not turn.
//!
//! Where jobs are paced from within, a checkpoint of a job is answered with another clock for its rest (`pacing.rs`).
//!
//! A law whose model turns out to be wrong is a fault like a broken meter: the safe setting takes over, for longer each
//! time (`distrust.rs`).

use punctual_platform::{ClockOffer, Meter, Offers};
use punctual_units::{Nanos, Share, Time};
use punctual_workload::{ControllerKind, Excitation, Goal, JobProgress};
use serde::{Deserialize, Serialize};

use crate::controller::{Controller, Knobs};
use crate::document::{ControllerDocument, Mismatch};
use crate::event::{Answer, Applied, Event, Plan, Step, Vitals, Window};
use crate::exciter::Exciter;
use crate::mode::Mode;
use crate::monitor::Monitor;
use crate::pacing::Pacing;

mod distrust;

use distrust::Distrust;

/// All that a regulator is made from: with the log of a run, enough to replay it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegulatorOptions {
    /// Who decides.
    pub kind: ControllerKind,
    /// Set points and minimum.
    pub goal: Goal,
    /// What the machine has to turn.
    pub offers: Offers,
    /// When the run began; times in samples count from here.
    pub start: Time,
    /// How long the operating point is held at first.
    pub warm_up: Nanos,
    /// Without a finished real-time job for this long, tardiness counts as lost.
    pub silence: Nanos,
    /// Whether silence also speaks against the law's model: where the loop steps at every job and is asked when none ended,
    /// a law that lets jobs take that long holds the clock where they are late.
    #[serde(default)]
    pub impatient: bool,
    /// Whether jobs are paced from within.
    #[serde(default)]
    pub within: bool,
    /// Gains, for every controller but `open`.
    pub design: Option<ControllerDocument>,
    /// Instead of controlling, move the knobs to learn a model.
    pub excite: Option<Excitation>,
}

/// The loop's state between two events.
#[derive(Clone, Debug)]
pub struct Regulator {
    goal: Goal,
    clock: Option<ClockOffer>,
    mode: Mode,
    monitor: Monitor,
    driver: Driver,
    pacing: Option<Pacing>,
    plan: Plan,
    refused: Option<String>,
    /// Whether the law's model is to be left alone for a while.
    distrust: Distrust,
    /// When a window last held a finished job.
    heard: Time,
    silence: Nanos,
    impatient: bool,
}

/// Who moves the knobs while running.
#[derive(Clone, Debug)]
enum Driver {
    Control(Box<Controller>),
    Excite(Exciter),
}

impl Regulator {
    /// A regulator in warm-up.
    ///
    /// # Errors
    /// [`Mismatch`] where the design is missing, is for another model, or needs a knob that the machine lacks.
    pub fn new(options: RegulatorOptions) -> Result<Regulator, Mismatch> {
        let RegulatorOptions {
            kind,
            goal,
            offers,
            start,
            warm_up,
            silence,
            impatient,
            within,
            design,
            excite,
        } = options;
        let driver = match excite {
            Some(levels) => Driver::Excite(Exciter::new(&levels)?),
            None => Driver::Control(Box::new(Controller::new(kind, goal, &offers, design.as_ref())?)),
        };
        let knobs = driver.operating_point();
        let plan = to_plan(knobs, offers.clock.as_ref());
        let paced = offers
            .clock
            .as_ref()
            .zip(knobs.clock)
            .filter(|_| within && driver.controls());
        Ok(Regulator {
            goal,
            pacing: paced.map(|(offer, share)| Pacing::new(offer, share, start)),
            clock: offers.clock,
            mode: Mode::WarmUp { until: start + warm_up },
            monitor: Monitor::default(),
            driver,
            plan,
            refused: None,
            distrust: Distrust::default(),
            heard: start,
            silence,
            impatient,
        })
    }

    /// The plan in force: at first, the operating point.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Takes one event; answers [`Event::Period`] with a step, and [`Event::Progressed`] where the clock is to change.
    pub fn step(&mut self, event: &Event, now: Time) -> Option<Answer> {
        match event {
            Event::Progressed(job) => return self.pace(job).map(Answer::Pace),
            Event::Completed(job) => {
                self.monitor.observe(job);
                if let Some(pacing) = &mut self.pacing {
                    pacing.completed(job);
                }
            }
            Event::Applied(applied) => self.settle(applied, now),
            Event::Period(vitals) => return Some(Answer::Step(self.decide(vitals, now))),
        }
        None
    }

    /// Learns how far a job is; while the law runs, the plan with the clock that the rest of the job needs, if it is another.
    fn pace(&mut self, job: &JobProgress) -> Option<Plan> {
        let wanted = self.pacing.as_mut()?.progressed(job, self.goal.tasks.nominal());
        let knobs = Knobs {
            clock: Some(wanted.filter(|_| self.mode == Mode::Running)?),
            admitted: self.plan.admitted.get(),
        };
        let plan = to_plan(knobs, self.clock.as_ref());
        (plan.clock != self.plan.clock).then(|| {
            self.plan.clock = plan.clock;
            self.plan
        })
    }

    /// Sense, decide; the caller acts.
    fn decide(&mut self, vitals: &Vitals, now: Time) -> Step {
        let window = Window {
            clock: self.pacing.as_mut().and_then(Pacing::mean_clock),
            ..self.monitor.close_window(vitals)
        };
        let was_running = self.mode == Mode::Running;
        let doubt = was_running.then(|| self.doubt(&window, now)).flatten();
        let doubts = doubt.is_some();
        let distrusted = self.distrust.next(doubt, was_running);
        let failed = self.fault(&window, vitals, now);
        // A law that is doubted only now says more than the silence that it led to.
        let fault = if doubts {
            distrusted.or(failed)
        } else {
            failed.or(distrusted)
        };
        self.mode = std::mem::replace(&mut self.mode, Mode::Running).next(fault, now);
        if self.mode == Mode::Running && !was_running {
            self.driver.resume(to_knobs(self.plan, self.clock.as_ref()));
        }
        let mut knobs = match &self.mode {
            Mode::WarmUp { .. } => self.driver.operating_point(),
            Mode::Running => self.driver.step(&window),
            Mode::Fallback { .. } => self.driver.safe(),
        };
        // Jobs of other tasks may be under way, and one without a result has more to say than the window without it.
        if let (Mode::Running, Some(wanted)) = (&self.mode, self.pacing.as_ref().and_then(Pacing::wanted)) {
            knobs.clock = knobs.clock.map(|clock| clock.max(wanted));
        }
        self.plan = to_plan(knobs, self.clock.as_ref());
        Step {
            window,
            plan: self.plan,
            mode: self.mode.name(),
            fallback: self.mode.reason().map(String::from),
        }
    }

    /// What the machine made of the plan: kept for the controller, and as a fault where a knob refused.
    fn settle(&mut self, applied: &Applied, now: Time) {
        // Within a job the clock may be turned again before anybody asks: what was refused once stays a fault of this window.
        self.refused = applied.refused.clone().or(self.refused.take());
        let clock = applied.clock.or(self.plan.clock);
        let knobs = to_knobs(Plan { clock, ..self.plan }, self.clock.as_ref());
        if let (Some(pacing), Some(share), Some(_)) = (&mut self.pacing, knobs.clock, applied.clock) {
            pacing.turned(share, now);
        }
        self.driver.applied(knobs);
    }

    /// What speaks against the law's model after this window, in which it ran.
    fn doubt(&mut self, window: &Window, now: Time) -> Option<String> {
        let watched = self.driver.watch(window);
        let silent = now.since(self.heard);
        let at_top = self.plan.clock == self.clock.as_ref().map(ClockOffer::top);
        let silenced = self.impatient && window.jobs == 0 && silent >= self.silence && !at_top;
        watched.or_else(|| silenced.then(|| format!(
                "the model is wrong here, or the machine stood still: under the law's settings no real-time job ended for {silent}"
            )))
    }

    /// What went wrong in this window, if anything.
    fn fault(&mut self, window: &Window, vitals: &Vitals, now: Time) -> Option<String> {
        if window.jobs > 0 {
            self.heard = now;
        }
        let silent = now.since(self.heard);
        if let Some(refused) = self.refused.take() {
            return Some(refused);
        }
        if let (true, Meter::Failed(why)) = (self.clock.is_some(), &vitals.machine.clock) {
            return Some(format!("clock meter: {why}"));
        }
        let senseless = |mean: Option<f64>| mean.is_some_and(|mean| !mean.is_finite());
        if senseless(window.tardiness) || senseless(window.drr) {
            return Some("the response-time meter gave a senseless value".into());
        }
        (silent >= self.silence).then(|| format!("no real-time job ended for {silent}"))
    }
}

impl Driver {
    fn controls(&self) -> bool {
        matches!(self, Driver::Control(controller) if controller.turns_knobs())
    }

    fn operating_point(&self) -> Knobs {
        match self {
            Driver::Control(controller) => controller.operating_point(),
            Driver::Excite(exciter) => exciter.operating_point(),
        }
    }

    fn step(&mut self, window: &Window) -> Knobs {
        match self {
            Driver::Control(controller) => controller.step(window),
            Driver::Excite(exciter) => exciter.step(),
        }
    }

    /// Why the law's model is not to be trusted, if this window says so.
    fn watch(&mut self, window: &Window) -> Option<String> {
        match self {
            Driver::Control(controller) => controller.watch(window).map(|doubt| controller.explain(doubt)),
            Driver::Excite(_) => None,
        }
    }

    fn applied(&mut self, knobs: Knobs) {
        if let Driver::Control(controller) = self {
            controller.applied(knobs);
        }
    }

    fn resume(&mut self, knobs: Knobs) {
        if let Driver::Control(controller) = self {
            controller.resume(knobs);
        }
    }

    /// The setting that is right whatever failed: full clock, and only the updates that the user's minimum needs, which
    /// admission adds to a knob at 0. An open-loop run stays open-loop in fallback.
    fn safe(&self) -> Knobs {
        match self {
            Driver::Control(controller) if !controller.turns_knobs() => controller.operating_point(),
            _ => Knobs {
                clock: Some(1.0),
                admitted: 0.0,
            },
        }
    }
}

/// Knob positions as the machine can take them: the clock on one of its steps.
fn to_plan(knobs: Knobs, clock: Option<&ClockOffer>) -> Plan {
    let clock = knobs
        .clock
        .zip(clock)
        .map(|(ratio, offer)| offer.nearest(offer.top().scaled(ratio)));
    Plan {
        clock,
        admitted: Share::clamped(knobs.admitted),
    }
}

/// The inverse of [`to_plan`].
fn to_knobs(plan: Plan, clock: Option<&ClockOffer>) -> Knobs {
    let ratio = plan.clock.zip(clock).map(|(set, offer)| set.ratio(offer.top()));
    Knobs {
        clock: ratio,
        admitted: plan.admitted.get(),
    }
}

#[cfg(test)]
mod tests;
