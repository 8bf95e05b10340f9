//! A governor inside the machine: when it samples, the loads that it gets, and the clock that follows.

use std::fmt;

use punctual_units::{Hertz, Nanos, Time};

use crate::cores::Occupant;
use crate::engine::Simulation;

/// A governor of the kernel: a state machine that sets the clock from the activity of the cores, and knows no deadline.
///
/// A sample that falls due while every core is idle waits until one works, because the kernel's deferrable timers and
/// scheduler hooks do the same.
pub trait Governor: fmt::Debug + Send + Sync {
    /// Time between samples on a clock with this transition time; `None`: one decision, as the governor starts, is
    /// final.
    fn sampling(&self, transition: Nanos) -> Option<Nanos>;

    /// Decides the clock from now on. The machine rounds it to the nearest step.
    fn decide(&mut self, sample: &LoadSample<'_>) -> Hertz;

    /// Notes that a core works at this share of the top clock from `now` on; 0: it is idle.
    fn track(&mut self, _core: usize, _share: f64, _now: Time) {}

    /// Returns a copy in the same state, for a copy of the machine.
    fn boxed(&self) -> Box<dyn Governor>;
}

impl Clone for Box<dyn Governor> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

/// Input of a governor's decision.
#[derive(Clone, Copy, Debug)]
pub struct LoadSample<'a> {
    /// Instant of the sample.
    pub now: Time,
    /// Time since the sample before.
    pub elapsed: Nanos,
    /// Load of each core in that time; empty in a decision without samples.
    pub loads: &'a [CoreLoad],
    /// Clock in force, in hertz.
    pub current: Hertz,
    /// Steps of the clock, ascending; at least one.
    pub steps: &'a [Hertz],
    /// Transition time of the clock, as the kernel reports it.
    pub transition: Nanos,
}

/// Load of one core since the governor's last sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreLoad {
    /// Time that the core was busy.
    pub busy: Nanos,
    /// Whether a real-time job is running on the core.
    pub real_time: bool,
}

/// A governor and the state of its sampling.
#[derive(Clone, Debug)]
pub(crate) struct GovernedClock {
    governor: Box<dyn Governor>,
    /// Whether a caller sets the clock in the governor's place.
    suspended: bool,
    steps: Vec<Hertz>,
    transition: Nanos,
    /// When the latest sample was taken, and when the next is due; `None` without samples.
    sampled: Time,
    due: Option<Time>,
    /// Busy time of each core at the latest sample.
    busy: Vec<Nanos>,
}

impl GovernedClock {
    /// When the next sample is due; `None` while suspended or without samples.
    fn due(&self) -> Option<Time> {
        self.due.filter(|_| !self.suspended)
    }

    /// Decides the clock `now`, and when the next sample is due.
    fn decide(&mut self, loads: &[CoreLoad], current: Hertz, now: Time) -> Hertz {
        let sample = LoadSample {
            now,
            elapsed: now.since(self.sampled),
            loads,
            current,
            steps: &self.steps,
            transition: self.transition,
        };
        let clock = self.governor.decide(&sample);
        self.sampled = now;
        self.due = self.governor.sampling(self.transition).map(|period| now + period);
        clock
    }
}

impl Simulation {
    /// Lets a governor of the kernel set the clock from now on, until [`punctual_platform::Machine::apply`] sets it.
    pub fn govern_with(&mut self, governor: Box<dyn Governor>) {
        let steps: Vec<Hertz> = self.model.steps.iter().map(|step| step.clock).collect();
        self.clock.governed = Some(GovernedClock {
            governor,
            suspended: false,
            steps,
            transition: Nanos::from_secs_f64(self.model.transition_us * 1e-6),
            sampled: self.now,
            due: None,
            busy: Vec::new(),
        });
        self.resume_governor();
    }

    /// Stops the governor: a caller sets the clock.
    pub(crate) fn suspend_governor(&mut self) {
        if let Some(governed) = &mut self.clock.governed {
            governed.suspended = true;
        }
    }

    /// Starts the governor anew: no caller sets the clock any more.
    pub(crate) fn resume_governor(&mut self) {
        let (busy, now, current) = (self.busy(), self.now, self.clock.step.clock);
        let Some(governed) = &mut self.clock.governed else {
            return;
        };
        governed.suspended = false;
        governed.sampled = now;
        governed.busy = busy;
        let period = governed.governor.sampling(governed.transition);
        governed.due = period.map(|period| now + period);
        if period.is_none() {
            let clock = governed.decide(&[], current, now);
            self.retune(self.nearest_step(clock));
        }
    }

    /// When the governor samples next. Never while all cores are idle: see [`Governor`].
    pub(crate) fn next_sample(&self) -> Time {
        let due = self.clock.governed.as_ref().and_then(GovernedClock::due);
        due.filter(|_| self.works()).unwrap_or(Time::MAX)
    }

    /// Takes the sample that is due, if any, and sets the clock.
    pub(crate) fn govern(&mut self) {
        if self.next_sample() > self.now {
            return;
        }
        let (busy, now, current) = (self.busy(), self.now, self.clock.step.clock);
        let real_time: Vec<bool> = (0..self.cores.len()).map(|core| self.runs_real_time(core)).collect();
        let Some(governed) = &mut self.clock.governed else {
            return;
        };
        let loads = busy.iter().zip(&governed.busy).zip(real_time);
        let load = |((busy, before), real_time): ((&Nanos, &Nanos), bool)| CoreLoad {
            busy: *busy - *before,
            real_time,
        };
        let loads: Vec<CoreLoad> = loads.map(load).collect();
        let clock = governed.decide(&loads, current, now);
        governed.busy = busy;
        self.retune(self.nearest_step(clock));
    }

    /// Reports to the governor at which clock each core works from now on.
    pub(crate) fn track_utilisation(&mut self) {
        let Some(governed) = &mut self.clock.governed else {
            return;
        };
        let working = self.clock.step.clock.ratio(self.model.top().clock);
        for (core, state) in self.cores.iter().enumerate() {
            let share = if state.occupant().is_some() { working } else { 0.0 };
            governed.governor.track(core, share, self.now);
        }
    }

    fn busy(&self) -> Vec<Nanos> {
        self.cores.iter().map(|core| core.times(self.now).busy()).collect()
    }

    fn works(&self) -> bool {
        self.cores.iter().any(|core| core.occupant().is_some())
    }

    fn runs_real_time(&self, core: usize) -> bool {
        let occupant = self.cores[core].occupant();
        matches!(occupant, Some(Occupant::Runner(runner)) if self.runners[runner].deadline.is_some())
    }
}
