//! The loop, as one state machine. Both machines drive it, and a recorded log replays through it.
//!
//! ```text
//! job outcome ─► monitor, goals: windows ─► mode.next ─► controller.step(leading task) ─► plan(limits) ─► knobs
//!      ▲                                                                                                 │
//!      └────────────────────────── only through the next window ───────────────────────────────────────┘
//! ```
//!
//! [`Regulator::step`] takes an [`Event`] and the time and returns an [`Answer`]: no clock, no file, no thread. The
//! machine's answer to a plan comes back as [`Event::Applied`], so that the integrators never count on a knob that did
//! not turn.
//!
//! The law follows the task that is furthest from its goal (`goals.rs`). Where a task asks for a share of late jobs,
//! the loop starts up at the safe setting (full clock, the least updates that keep data fresh) and eases from there.
//!
//! Where jobs are paced from within, a checkpoint of a job is answered with another clock for its rest (`pacing.rs`).
//! Between jobs, the clock falls to what sensor updates need, until the next release (`idle.rs`).
//!
//! Where cores split cache ways and bandwidth, a change of what they run is answered with another split (`split/`).
//!
//! Where shedding leaves as many jobs late, it is taken back (`give_back.rs`).
//!
//! Without a model the knobs move in steps, by the signs of their effects (`stepwise.rs`). So they do for stages of a
//! pipeline: each knob has the safer of the positions that the law of the tasks and the steps for stages ask for.
//!
//! Where energy has a price, dear clock steps are left out ([`ClockOffer::economical`]). With prices, `mimo` finds the
//! admitted share by them (`prices.rs`).
//!
//! A law whose model turns out to be wrong is a fault like a broken meter: the safe setting takes over, for longer each
//! time (`distrust.rs`).

use punctual_platform::{Applied, ClockOffer, KnobId, MeterId, Offers, Plan, Provenance, Value};
use punctual_units::{Hertz, Nanos, Share, TaskId, Time};
use punctual_workload::{ControllerKind, Excitation, Goal, JobOutcome, JobProgress, Prices, TaskGoal};
use serde::{Deserialize, Serialize};

use crate::controller::{Controller, Knobs, SetPoints, knobs_of};
use crate::document::{ControllerDocument, Mismatch, law_kind};
use crate::event::{Answer, Event, Step, Vitals, Window};
use crate::exciter::Exciter;
use crate::give_back::{GiveBack, SheddingReview};
use crate::goals::{Goals, TaskWindow};
use crate::idle::{Idle, JobRelease};
use crate::mode::{Mode, ModeName};
use crate::monitor::Monitor;
use crate::pacing::{Forecast, Pacing};
use crate::prices::Pricing;
use crate::reach::Unheld;
use crate::split::{SplitOptions, Splitting};
use crate::staircase::{BestEffortRange, Staircase};
use crate::stepwise::Stepwise;

mod distrust;

use distrust::Distrust;

/// Part of the admitted share's range above the safe end that counts as near it: a law that also holds a data response
/// ratio trades one goal for the other, and stays above the end while jobs are late.
const NEAR: f64 = 0.5;

/// Pressure over the nominal one from which a goal counts as missed: paced jobs end within about 2 % of it.
const MISSED: f64 = 1.03;

/// All that a regulator is made from: with the log of a run, enough to replay it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegulatorOptions {
    /// The control law that decides.
    pub kind: ControllerKind,
    /// Goals of all tasks, and the least share of fresh data.
    pub goal: Goal,
    /// Goal of each task, by its id, where it is known before the first job; further tasks ask for [`Goal::tasks`].
    /// Best-effort tasks have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<Option<TaskGoal>>,
    /// Goals of the stages of a pipeline beside the tasks: the knobs are turned for them as for tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<TaskGoal>,
    /// Knobs and meters that the machine offers.
    pub offers: Offers,
    /// When the run began; times in samples count from here.
    pub start: Time,
    /// How long the loop starts up: the knobs stand at the safe setting where a task asks for a share of late jobs,
    /// else at the operating point.
    pub warm_up: Nanos,
    /// Without a finished real-time job for this long, tardiness counts as lost.
    pub silence: Nanos,
    /// Whether silence also speaks against the law's model: where the loop steps at every job and is asked when none
    /// ended, a law that lets jobs take that long holds the clock where they are late.
    #[serde(default)]
    pub impatient: bool,
    /// Whether jobs are paced from within.
    #[serde(default)]
    pub within: bool,
    /// Gains of the controller; without them it moves its knobs in steps.
    pub design: Option<ControllerDocument>,
    /// Range of the share of best-effort work; `None` leaves it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_effort: Option<BestEffortRange>,
    /// Settings for splitting cache ways and memory bandwidth; `None` leaves both alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitOptions>,
    /// Prices of what goals leave open. `None`: all clock steps are used, the law's clock stays between jobs, and the
    /// goal's data response ratio is the set point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Whether the clock may fall between jobs, where energy has a price.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle_clock: bool,
    /// Moves the knobs to learn a model, instead of controlling.
    pub excite: Option<Excitation>,
}

/// Refusal of a price of something that the machine does not measure.
const UNMETERED: &str = "control.prices: `freshness` is weighed against energy, and this machine has no meter of that: \
                         leave it out, or set `energy = 0` for all updates that goals permit";

impl RegulatorOptions {
    /// Whether energy has a price.
    fn saves(&self) -> bool {
        self.excite.is_none() && self.prices.is_some_and(|prices| prices.energy > 0.0)
    }

    /// Prices that find the admitted share, if any do.
    fn pricing(&self) -> Result<Option<Prices>, Mismatch> {
        let prices = self
            .prices
            .filter(|_| self.kind == ControllerKind::Mimo && self.excite.is_none());
        match prices {
            Some(it) if it.energy > 0.0 && it.freshness > 0.0 && !self.offers.reads(MeterId::Energy) => {
                Err(Mismatch(UNMETERED.into()))
            }
            prices => Ok(prices),
        }
    }

    /// Whether the clock falls between jobs, so that the loop needs their begins ([`Event::Begun`]).
    pub fn rests(&self) -> bool {
        let late = |goal: &TaskGoal| goal.late().is_some();
        let real = |clock: &ClockOffer| clock.is_turnable() && clock.provenance != Provenance::Emulated;
        let asked = match self.goals.iter().flatten().next() {
            Some(_) => self.goals.iter().flatten().any(late),
            None => late(&self.goal.tasks),
        };
        let may = self.idle_clock && self.within && self.design.is_some() && self.kind.turns_clock();
        let may = may && self.stages.is_empty() && self.offers.clock().is_some_and(real);
        may && self.saves() && asked
    }
}

/// The loop's state between two events.
#[derive(Clone, Debug)]
pub struct Regulator {
    /// Least admitted share that keeps the minimum of fresh data, as admission last reported it.
    least: Share,
    clock: Option<ClockOffer>,
    mode: Mode,
    monitor: Monitor,
    goals: Goals,
    /// Whether the loop starts up at the safe setting.
    cautious: bool,
    /// Turns the best-effort share, where the loop does.
    best_effort: Option<Staircase>,
    /// Gives back what was shed for nothing; `None` where no updates are shed for late jobs.
    give_back: Option<GiveBack>,
    /// Whether all knobs but the best-effort share stand near the safe setting, or where going there does not help.
    others_safe: bool,
    /// The clock that the law asked for last, for the task that leads.
    law_clock: Option<f64>,
    /// Since when the knobs have stood at the safe setting, if they do.
    safe_since: Option<Time>,
    driver: Driver,
    /// Bounds the knobs for stages; `None` where there are none, or no knob is turned.
    for_stages: Option<Stepwise>,
    pacing: Option<Pacing>,
    /// Turns the clock between jobs; `None`: it stays at the law's.
    idle: Option<Idle>,
    /// Share of data that is to be fresh.
    min_fresh: Share,
    /// Turns the admitted share, where prices do.
    pricing: Option<Pricing>,
    /// Turns ways and bandwidth, where cores split them.
    splitting: Option<Box<Splitting>>,
    /// All knobs but those of the split.
    plan: Plan,
    refused: Option<String>,
    /// Whether the law's model is to be left alone for a while.
    distrust: Distrust,
    /// When a window last held a finished job.
    heard: Time,
    /// Whether the loop is in fallback because of silence.
    was_silent: bool,
    silence: Nanos,
    impatient: bool,
}

/// Decides on the knobs while running.
#[derive(Clone, Debug)]
enum Driver {
    Control(Box<Controller>),
    /// Controls without a model.
    Steps(Box<Stepwise>),
    Excite(Exciter),
}

impl Regulator {
    /// A regulator in warm-up.
    ///
    /// # Errors
    /// [`Mismatch`] where the design has no gains for this controller, is for another model, or needs a knob that the
    /// machine lacks.
    pub fn new(options: RegulatorOptions) -> Result<Regulator, Mismatch> {
        let (rests, saves, pricing) = (options.rests(), options.saves(), options.pricing()?);
        let RegulatorOptions {
            kind,
            goal,
            goals: asked,
            stages,
            offers,
            start,
            warm_up,
            silence,
            impatient,
            within,
            design,
            best_effort,
            split,
            excite,
            prices: _,
            idle_clock: _,
        } = options;
        // Before the knobs visit their levels, too: what they teach could not be used.
        if kind.turns_clock() && !offers.clock().is_some_and(ClockOffer::is_turnable) {
            return Err(Mismatch::no_clock(kind));
        }
        let (goals, asked_kind) = (Goals::new(&asked, goal.tasks, &stages, silence), kind);
        let offers = if saves { offers.economical() } else { offers };
        let kind = match &design {
            Some(design) if excite.is_none() => design.law_of(kind, pricing)?,
            _ => law_kind(kind, pricing),
        };
        let set_points = SetPoints {
            tardiness: goals.nominal(),
            drr: goal.drr,
        };
        let driver = match (excite, &design) {
            (Some(levels), _) => Driver::Excite(Exciter::new(&levels)?),
            (None, None) if kind != ControllerKind::Open => {
                Driver::Steps(Box::new(Stepwise::new(kind, goals.nominal(), &offers)))
            }
            (None, design) => Driver::Control(Box::new(Controller::new(kind, set_points, &offers, design.as_ref())?)),
        };
        let cautious = driver.controls() && goals.any_late();
        let knobs = if cautious {
            driver.safe(Share::ZERO)
        } else {
            driver.operating_point()
        };
        let mut plan = Plan::default();
        replan(&mut plan, knobs, offers.clock());
        // The range is asked for by itself, so the share is turned without a controller, too.
        let turned = offers.range(KnobId::BestEffortShare).is_some() && !matches!(driver, Driver::Excite(_));
        let best_effort = best_effort.filter(|_| turned).map(Staircase::new);
        if let Some(law) = &best_effort {
            plan.set(KnobId::BestEffortShare, Value::Share(law.share()));
        }
        let splitting = split.map(|split| Splitting::new(&split, &offers, start)).transpose()?;
        let paced = offers
            .clock()
            .zip(knobs.get(KnobId::CLOCK))
            .filter(|_| within && matches!(&driver, Driver::Control(controller) if controller.turns_knobs()));
        let idle = paced
            .as_ref()
            .filter(|_| rests)
            .map(|(offer, _)| Idle::new(offer, start));
        let pricing = pricing.map(|prices| Pricing::new(prices, start));
        let sheds = match &pricing {
            Some(pricing) => cautious && pricing.buys(),
            None => (cautious || !stages.is_empty()) && driver.sheds(),
        };
        let mut regulator = Regulator {
            // Admission adds what the minimum needs until it has reported how much that is.
            least: Share::ZERO,
            goals,
            cautious,
            best_effort,
            give_back: sheds.then(|| GiveBack::new(start, stages.len())),
            others_safe: false,
            law_clock: None,
            safe_since: None,
            pacing: paced.map(|(offer, share)| Pacing::new(offer, share, start)),
            idle,
            min_fresh: goal.min_fresh,
            pricing,
            splitting: splitting.map(Box::new),
            for_stages: (!stages.is_empty() && driver.controls()).then(|| Stepwise::new(asked_kind, 1.0, &offers)),
            clock: offers.clock().cloned(),
            mode: Mode::WarmUp { until: start + warm_up },
            monitor: Monitor::default(),
            driver,
            plan,
            refused: None,
            distrust: Distrust::default(),
            heard: start,
            was_silent: false,
            silence,
            impatient,
        };
        regulator.watch_safety(start);
        Ok(regulator)
    }

    /// The plan in force; before the first step, the one for start-up.
    pub fn plan(&self) -> Plan {
        let split = self.splitting.as_ref().map(|splitting| splitting.plan());
        self.plan.iter().chain(split.iter().flat_map(Plan::iter)).collect()
    }

    /// When [`look`](Self::look) has something to do; `None`: not before an event.
    pub fn split_due(&self) -> Option<Time> {
        self.splitting.as_ref()?.due()
    }

    /// Does a piece of a look ahead for a split, if one is due: a bounded count of steps in the model, mostly below
    /// 50 us, for instants at which no event waits. A runtime on Linux does not call it yet.
    /// Returns the `foreseen` of [`Event::Jobs`] where that is due although no job has changed: a look is at its end,
    /// tasks come or go, or a change came too soon after a decision. Pieces are no part of the log.
    pub fn look(&mut self, now: Time) -> Option<bool> {
        self.splitting.as_mut()?.look(now)
    }

    /// Takes over the split of `other`, which decided before, with a look ahead that is under way. For loops that are
    /// made anew once a law is learnt.
    pub fn take_split(&mut self, other: &mut Regulator) {
        self.splitting = other.splitting.take();
    }

    /// Result of a look ahead for the split that was not asked for before, as a line for the report.
    pub fn split_forecast(&mut self) -> Option<String> {
        self.splitting.as_mut()?.forecast()
    }

    /// The jobs of each task in the window that was closed last, without tasks that had none.
    pub fn task_windows(&self) -> &[TaskWindow] {
        self.goals.windows()
    }

    /// The goals of late jobs that the safe setting did not hold so far, so that no setting can.
    pub fn unheld(&self) -> impl Iterator<Item = Unheld> {
        self.goals.unheld()
    }

    /// Takes one event; answers [`Event::Period`] with a step, [`Event::Progressed`] where the clock is to change, and
    /// [`Event::Jobs`] where the split is.
    pub fn step(&mut self, event: &Event, now: Time) -> Option<Answer> {
        match event {
            Event::Begun(begun) => {
                let clock = Value::Clock(self.idle.as_mut()?.begun(begun, now)?);
                self.plan.set(KnobId::CLOCK, clock);
                return Some(Answer::Turn(Plan::of(KnobId::CLOCK, clock)));
            }
            Event::Progressed(job) => return self.pace(job).map(Answer::Turn),
            Event::Jobs { clock, cores, foreseen } => {
                let splitting = self.splitting.as_mut()?;
                return splitting.decide(cores, *foreseen, *clock, now).map(Answer::Turn);
            }
            Event::Ended { task } => self.splitting.as_mut()?.ended(*task, now),
            Event::Spared { task, job } => {
                if let Some(pacing) = &mut self.pacing {
                    pacing.spared(*task, *job);
                }
            }
            Event::Completed(job) => self.completed(job),
            Event::Frame { stage, tardiness } => self.goals.frame(*stage, *tardiness, self.stages_have_all()),
            Event::Missing {
                stage,
                frames,
                tardiness,
            } => {
                let safe = self.stages_have_all();
                self.goals.missing(*stage, *frames, *tardiness, safe);
            }
            Event::Overdue {
                task,
                released,
                deadline,
                ..
            } => {
                let (safe, so_far) = (self.safe_over(*released), now.since(*released).ratio(*deadline));
                self.goals.overdue(*task, *released, so_far, safe);
            }
            Event::Added { task, goal } => self.goals.added(*task, *goal),
            Event::Skipped { task, jobs } => self.goals.skipped(*task, *jobs, self.safe_since.is_some()),
            Event::Applied(applied) => self.settle(applied, now),
            Event::Period(vitals) => return Some(Answer::Step(self.decide(vitals, now))),
        }
        None
    }

    fn completed(&mut self, job: &JobOutcome) {
        self.monitor.observe(job);
        self.goals.completed(job, self.safe_over(job.released));
        if let Some(pacing) = &mut self.pacing {
            pacing.completed(job);
        }
        if let Some(idle) = &mut self.idle {
            idle.completed(job);
        }
    }

    /// Whether the safe setting has been in force ever since `released`.
    fn safe_over(&self, released: Time) -> bool {
        self.safe_since.is_some_and(|since| since <= released)
    }

    /// Whether nothing is left to be done for stages.
    fn stages_have_all(&self) -> bool {
        let reported = self.goals.reports_missing();
        let bounds = self.for_stages.as_ref().filter(|_| reported);
        let best_effort = self.best_effort.as_ref().is_none_or(|law| law.share() <= law.least());
        reported && self.safe_since.is_some() || best_effort && bounds.is_none_or(Stepwise::is_spent)
    }

    /// The positions of the knobs that stages need at least, while they have frames.
    fn stage_bounds(&self) -> Option<Knobs> {
        self.goals.stage_pressure().filter(|_| self.goals.reports_missing())?;
        self.for_stages.as_ref().map(Stepwise::knobs)
    }

    /// Takes note of whether the plan is the safe setting, from `now` on. A knob that the controller does not turn is
    /// ignored.
    fn watch_safety(&mut self, now: Time) {
        let mut safe = self.driver.safe(self.least);
        let planned = self.planned(&Plan::default());
        let turns = match self.pricing {
            Some(_) => knobs_of(ControllerKind::Mimo),
            None => self.driver.turns(),
        };
        let controls = !turns.is_empty();
        let all_safe = turns.iter().all(|knob| planned.as_safe_as(&safe, *knob));
        // For best-effort work, shedding that did not help is not to be done first.
        safe.raise(KnobId::AdmittedShare, self.floor());
        let near = safe
            .get(KnobId::AdmittedShare)
            .map(|share| share + (1.0 - share) * NEAR);
        safe.set(KnobId::AdmittedShare, near);
        self.others_safe = turns.iter().all(|knob| planned.as_safe_as(&safe, *knob));
        let share = self.plan.share(KnobId::BestEffortShare);
        let best_effort = self
            .best_effort
            .as_ref()
            .is_none_or(|law| share.is_some_and(|share| share <= law.least()));
        self.safe_since = (controls && all_safe && best_effort).then(|| self.safe_since.unwrap_or(now));
    }

    /// Takes a job's progress. While the law runs, returns the plan with the clock that the rest of the job needs, if
    /// it is another one.
    fn pace(&mut self, job: &JobProgress) -> Option<Plan> {
        let set_point = self.goals.set_point(job.task);
        let pacing = self.pacing.as_mut()?;
        let wanted = pacing.progressed(job, set_point);
        // A pacer sees one job: of several tasks only the law knows how they are in each other's way, and jobs only ask
        // for more.
        let floor = self.law_clock.filter(|_| !self.goals.one_task());
        let floor = floor
            .into_iter()
            .chain(self.stage_bounds().and_then(|bounds| bounds.get(KnobId::CLOCK)));
        let floor = floor.fold(0.0, f64::max);
        let wanted = wanted.map(|wanted| wanted.max(floor));
        let wanted = wanted.filter(|_| self.mode == Mode::Running)?;
        let clock = on_step(wanted, self.clock.as_ref()?);
        if self.plan.clock() == Some(clock) {
            return None;
        }
        let clock = Value::Clock(clock);
        self.plan.set(KnobId::CLOCK, clock);
        self.watch_safety(job.at);
        Some(Plan::of(KnobId::CLOCK, clock))
    }

    /// Whether checkpoints may change the clock now; otherwise they only teach.
    pub fn paces(&self) -> bool {
        self.pacing.is_some() && self.mode == Mode::Running
    }

    /// When the checkpoints that the job has left may come without a change of the clock, after this one was taken and
    /// the machine has answered. `None` where the job is not paced, or not by a running law.
    pub fn forecast(&self, job: &JobProgress) -> Option<Forecast> {
        let pacing = self.pacing.as_ref().filter(|_| self.paces())?;
        pacing.forecast(job, self.goals.set_point(job.task))
    }

    /// When checkpoints of further jobs of `task` may come so, if these begin at the clock in force. `None` while that
    /// is the clock between jobs, and beside other tasks: a job that reports nothing does not hold up the clock that
    /// one of them raised.
    pub fn forecast_next(&self, task: TaskId) -> Option<Forecast> {
        let is_below = |law: Hertz| Some(law) != self.plan.clock();
        if self.idle.as_ref().and_then(Idle::law_clock).is_some_and(is_below) {
            return None;
        }
        let pacing = self.pacing.as_ref().filter(|_| self.paces() && self.goals.one_task())?;
        pacing.forecast_next(task, self.goals.set_point(task))
    }

    /// When the checkpoints of the job that has begun may come so, after its release was taken and the machine has
    /// restored the law's clock. `None` beside other tasks.
    pub fn forecast_begun(&self, begun: &JobRelease) -> Option<Forecast> {
        let pacing = self.pacing.as_ref().filter(|_| self.paces() && self.goals.one_task())?;
        pacing.forecast_begun(begun, self.goals.set_point(begun.task))
    }

    /// Senses and decides; the caller acts.
    fn decide(&mut self, vitals: &Vitals, now: Time) -> Step {
        let window = Window {
            clock: self.pacing.as_mut().and_then(Pacing::mean_clock),
            ..self.monitor.close_window(vitals)
        };
        self.least = vitals.updates_least;
        let lead = self.goals.close(now);
        // The law reads the leading task alone. A window in which that task was not measured teaches nothing.
        let read = Window {
            tardiness: lead.map(|lead| lead.pressure),
            drr: lead.and_then(|lead| lead.drr).or(window.drr),
            ..window
        };
        let was_running = self.mode == Mode::Running;
        let shedding = self.review_shedding(&window, was_running, now);
        let doubt = was_running.then(|| self.doubt(&read, now)).flatten();
        let doubts = doubt.is_some();
        let distrusted = self.distrust.next(doubt, was_running);
        let failed = self.fault(&window, vitals, now);
        // A law that is doubted only now says more than the silence that it led to.
        let fault = if doubts {
            distrusted.or(failed)
        } else {
            failed.or(distrusted)
        };
        let late = self.goals.windows().iter().any(|task| task.late > 0);
        let good = !(self.was_silent && late);
        self.mode = std::mem::replace(&mut self.mode, Mode::Running).next(fault, good, now);
        self.was_silent &= self.mode.name() == ModeName::Fallback;
        if self.mode == Mode::Running && !was_running {
            let planned = self.planned(&Plan::default());
            self.driver.resume(planned);
            self.for_stages.iter_mut().for_each(|law| law.resume(planned));
        }
        let mut knobs = match &self.mode {
            Mode::WarmUp { .. } if !self.cautious => self.driver.operating_point(),
            Mode::Running => self.step_law(&read, lead.is_some(), vitals, now),
            Mode::WarmUp { .. } | Mode::Fallback { .. } => self.driver.safe(self.least),
        };
        if let (Some(pricing), false) = (&mut self.pricing, self.mode == Mode::Running) {
            pricing.restart(now);
        }
        // Jobs of other tasks may be under way: the clock that an unfinished job needs says more than a window without
        // it.
        if let (Mode::Running, Some(wanted)) = (&self.mode, self.pacing.as_ref().and_then(Pacing::wanted)) {
            knobs.set(KnobId::CLOCK, knobs.get(KnobId::CLOCK).map(|clock| clock.max(wanted)));
        }
        if self.mode == Mode::Running {
            if let Some(bounds) = self.stage_bounds() {
                knobs.make_as_safe_as(&bounds);
            }
            knobs.raise(KnobId::AdmittedShare, self.floor());
        }
        replan(&mut self.plan, knobs, self.clock.as_ref());
        if let Some(share) = self.best_effort_share(&read) {
            self.plan.set(KnobId::BestEffortShare, Value::Share(share));
        }
        self.rest(vitals, now);
        self.watch_safety(now);
        Step {
            window,
            lead,
            stage_pressure: self
                .goals
                .stage_pressure()
                .filter(|_| self.goals.reports_missing())
                .map(|(it, _)| it),
            plan: self.plan,
            mode: self.mode.name(),
            fallback: self.mode.reason().map(String::from),
            shedding,
        }
    }

    /// Takes the window, which the law ran in or not, into the experiment on shedding.
    fn review_shedding(&mut self, window: &Window, ran: bool, now: Time) -> Option<SheddingReview> {
        // In logs before version 10 nothing was given back for stages alone.
        let reviews = self.cautious || self.goals.reports_missing();
        let give_back = self.give_back.as_mut().filter(|_| reviews)?;
        if !ran {
            self.goals.take_lateness(now).for_each(drop);
            give_back.skip(now);
            return None;
        }
        if !give_back.ends_span(self.plan.share(KnobId::AdmittedShare)?, now) {
            return None;
        }
        give_back.step(self.goals.take_lateness(now), window.fresh, self.least, now)
    }

    /// The share below which updates are not shed, because that would not help.
    fn floor(&self) -> Share {
        self.give_back.as_ref().map_or(Share::ZERO, GiveBack::floor)
    }

    /// The share of best-effort work for the next window; `None` where the loop does not turn it.
    fn best_effort_share(&mut self, read: &Window) -> Option<Share> {
        let law = self.best_effort.as_mut()?;
        Some(match self.mode {
            Mode::WarmUp { .. } => law.share(),
            Mode::Running => {
                let task = read.tardiness.map(|pressure| pressure / self.goals.nominal());
                let stage = self.goals.stage_pressure();
                match stage {
                    // The share stays until the next frame tells.
                    Some((pressure, new)) if self.goals.task_pressure().is_none_or(|task| pressure > task) => match new
                    {
                        true => law.step(Some(pressure), self.others_safe || !self.goals.reports_missing()),
                        false => law.share(),
                    },
                    _ => law.step(task, self.others_safe),
                }
            }
            Mode::Fallback { .. } => law.least(),
        })
    }

    /// The law's settings; between two measurements of the leading task, those of the first.
    fn step_law(&mut self, read: &Window, measured: bool, vitals: &Vitals, now: Time) -> Knobs {
        let floor = Share::clamped(self.least.get().max(self.floor().get()));
        let mut knobs = self.driver.step(read, floor);
        if let Some(law) = &mut self.for_stages {
            let stage = self.goals.stage_pressure().filter(|(_, new)| *new);
            law.step(stage.map(|(pressure, _)| pressure), floor);
        }
        if measured {
            self.law_clock = knobs.get(KnobId::CLOCK);
        } else if let (Some(_), true) = (&self.pacing, read.jobs > 0) {
            // Jobs of other tasks were paced meanwhile: that clock was for them.
            knobs.set(KnobId::CLOCK, self.law_clock.or(knobs.get(KnobId::CLOCK)));
        }
        if let Some(pricing) = &mut self.pricing {
            let pressure = read.tardiness.map(|pressure| pressure / self.goals.nominal());
            let at_top = knobs.get(KnobId::CLOCK).is_none_or(|clock| clock >= 1.0);
            let share = pricing.step(pressure, at_top, floor, vitals, now);
            knobs.set(KnobId::AdmittedShare, Some(share.get()));
        }
        knobs
    }

    /// Takes the machine's answer to the plan: the controller gets the knobs, and a refusal becomes a fault.
    fn settle(&mut self, applied: &Applied, now: Time) {
        // Within a job the clock may be turned again before the window ends: what was refused once stays a fault of
        // this window.
        let split = || applied.failed(&self.splitting.as_ref()?.plan());
        self.refused = applied.failed(&self.plan).or_else(split).or(self.refused.take());
        if let (Some(pacing), Some(clock), Some(offer)) = (&mut self.pacing, applied.obtained.clock(), &self.clock) {
            pacing.turned(clock.ratio(offer.top()), now);
        }
        let knobs = self.planned(&applied.obtained);
        self.driver.applied(knobs);
    }

    /// Lowers the clock of the plan where no job is under way and none misses its goal.
    fn rest(&mut self, vitals: &Vitals, now: Time) {
        let (Some(idle), Some(law)) = (&mut self.idle, self.plan.clock()) else {
            return;
        };
        idle.count(vitals, self.min_fresh.get(), now);
        if self.mode != Mode::Running || self.goals.task_pressure() > Some(MISSED) {
            idle.stop();
        } else if let Some(clock) = idle.between(law) {
            self.plan.set(KnobId::CLOCK, Value::Clock(clock));
        }
    }

    /// The positions that were obtained, or else planned, with the clock of jobs.
    fn planned(&self, obtained: &Plan) -> Knobs {
        let mut knobs = to_knobs(&self.plan, obtained, self.clock.as_ref());
        let law = self.idle.as_ref().and_then(Idle::law_clock);
        if let Some((law, offer)) = law.zip(self.clock.as_ref()) {
            knobs.set(KnobId::CLOCK, Some(law.ratio(offer.top())));
        }
        knobs
    }

    /// Reason to doubt the law's model after this window, in which it ran.
    fn doubt(&mut self, window: &Window, now: Time) -> Option<String> {
        if let Driver::Steps(_) = self.driver {
            return None;
        }
        let watched = self.driver.watch(window);
        let silent = now.since(self.heard);
        let law_clock = self.idle.as_ref().and_then(Idle::law_clock);
        let at_top = law_clock.or(self.plan.clock()) == self.clock.as_ref().map(ClockOffer::top);
        let silenced = self.impatient && window.jobs == 0 && silent >= self.silence && !at_top;
        watched.or_else(|| {
            silenced.then(|| {
                format!(
                    "the model is wrong here, or the machine stood still: under the law's settings no real-time job \
                 ended for {silent}"
                )
            })
        })
    }

    /// Fault of this window, if any.
    fn fault(&mut self, window: &Window, vitals: &Vitals, now: Time) -> Option<String> {
        if window.jobs > 0 {
            self.heard = now;
        }
        let silent = now.since(self.heard);
        if let Some(refused) = self.refused.take() {
            return Some(refused);
        }
        if let (true, Some(Err(why))) = (self.clock.is_some(), vitals.machine.get(MeterId::Clock)) {
            return Some(format!("clock meter: {why}"));
        }
        let senseless = |mean: Option<f64>| mean.is_some_and(|mean| !mean.is_finite());
        if senseless(window.tardiness) || senseless(window.drr) {
            return Some("the response-time meter gave a senseless value".into());
        }
        let is_silent = silent >= self.silence;
        self.was_silent |= is_silent;
        is_silent.then(|| format!("no real-time job ended for {silent}"))
    }
}

impl Driver {
    fn controls(&self) -> bool {
        match self {
            Driver::Control(controller) => controller.turns_knobs(),
            Driver::Steps(_) => true,
            Driver::Excite(_) => false,
        }
    }

    /// Whether it controls, and cuts the admitted share.
    fn sheds(&self) -> bool {
        self.controls() && self.turns().contains(&KnobId::AdmittedShare)
    }

    /// Knobs that this driver moves.
    fn turns(&self) -> &[KnobId] {
        match self {
            Driver::Control(controller) => controller.turns(),
            Driver::Steps(law) => law.turns(),
            Driver::Excite(_) => knobs_of(ControllerKind::Mimo),
        }
    }

    fn operating_point(&self) -> Knobs {
        match self {
            Driver::Control(controller) => controller.operating_point(),
            Driver::Steps(law) => law.knobs(),
            Driver::Excite(exciter) => exciter.operating_point(),
        }
    }

    fn step(&mut self, window: &Window, floor: Share) -> Knobs {
        match self {
            Driver::Control(controller) => controller.step(window),
            Driver::Steps(law) => law.step(window.tardiness, floor),
            Driver::Excite(exciter) => exciter.step(),
        }
    }

    /// Why the law's model is not to be trusted, if this window says so.
    fn watch(&mut self, window: &Window) -> Option<String> {
        match self {
            Driver::Control(controller) => controller.watch(window).map(|doubt| controller.explain(doubt)),
            Driver::Steps(_) | Driver::Excite(_) => None,
        }
    }

    fn applied(&mut self, knobs: Knobs) {
        match self {
            Driver::Control(controller) => controller.applied(knobs),
            Driver::Steps(law) => law.applied(knobs),
            Driver::Excite(_) => {}
        }
    }

    fn resume(&mut self, knobs: Knobs) {
        match self {
            Driver::Control(controller) => controller.resume(knobs),
            Driver::Steps(law) => law.resume(knobs),
            Driver::Excite(_) => {}
        }
    }

    /// The setting that is right whatever failed ([`Knobs::safe`]). An open-loop run stays open-loop in fallback.
    fn safe(&self, least: Share) -> Knobs {
        match self {
            Driver::Control(controller) if !controller.turns_knobs() => controller.operating_point(),
            _ => Knobs::safe(least),
        }
    }
}

/// The step of the clock that is nearest to this share of the top one.
fn on_step(ratio: f64, clock: &ClockOffer) -> Hertz {
    clock.nearest(clock.top().scaled(ratio))
}

/// Plans these positions, as the machine can take them, and nothing else. In place: copies of plans are most of the
/// memory that a decision would touch.
fn replan(plan: &mut Plan, knobs: Knobs, clock: Option<&ClockOffer>) {
    plan.clear();
    for (knob, position) in knobs.iter() {
        match (knob, clock) {
            (KnobId::Clock(_), Some(offer)) => plan.set(knob, Value::Clock(on_step(position, offer))),
            (KnobId::Clock(_), None) => false,
            _ => plan.set(knob, Value::Share(Share::clamped(position))),
        };
    }
}

/// The inverse of [`replan`]; an obtained value counts before a planned one, and a knob without either is at rest.
fn to_knobs(plan: &Plan, obtained: &Plan, clock: Option<&ClockOffer>) -> Knobs {
    Knobs::each(|knob| match obtained.get(knob).or(plan.get(knob))? {
        Value::Clock(set) => Some(set.ratio(clock?.top())),
        Value::Share(share) => Some(share.get()),
        Value::Ways(_) | Value::Parts(_) | Value::Lent(_) | Value::Items(_) => None,
    })
}

#[cfg(test)]
mod tests;
