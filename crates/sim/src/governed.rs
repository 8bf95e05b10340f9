//! A governor inside the machine: when it samples, the loads that it gets, and the clock that follows.

use punctual_units::{Hertz, Nanos, Time};

use crate::cores::Occupant;
use crate::engine::Simulation;
use crate::governor::{CoreLoad, Governing, Governor, Pelt};

/// A governor and the state of its sampling.
#[derive(Clone, Debug)]
pub(crate) struct GovernedClock {
    rule: Governing,
    /// Whether a caller sets the clock in the governor's place.
    suspended: bool,
    steps: Vec<Hertz>,
    transition: Nanos,
    /// When the latest sample was taken, and when the next is due; `None` without samples.
    sampled: Time,
    due: Option<Time>,
    /// Busy time of each core at the latest sample.
    busy: Vec<Nanos>,
    /// The scheduler's estimate of each core's utilisation.
    pelt: Vec<Pelt>,
}

impl GovernedClock {
    /// When the next sample is due; `None` while suspended or without samples.
    fn due(&self) -> Option<Time> {
        self.due.filter(|_| !self.suspended)
    }
}

impl Simulation<'_> {
    /// Lets a governor of the kernel set the clock from now on, until [`punctual_platform::Machine::apply`] sets it.
    pub fn govern_with(&mut self, governor: Governor) {
        let steps: Vec<Hertz> = self.model.steps.iter().map(|step| step.clock).collect();
        self.clock.governed = Some(GovernedClock {
            rule: governor.start(&steps),
            suspended: false,
            steps,
            transition: Nanos::from_secs_f64(self.model.transition_us * 1e-6),
            sampled: self.now,
            due: None,
            busy: Vec::new(),
            pelt: vec![Pelt::default(); self.cores.len()],
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
        let busy = self.busy();
        let Some(governed) = &mut self.clock.governed else {
            return;
        };
        governed.suspended = false;
        governed.sampled = self.now;
        governed.busy = busy;
        governed.due = governed
            .rule
            .sampling(governed.transition)
            .map(|period| self.now + period);
        if let Governing::Fixed(clock) = governed.rule {
            let step = self.nearest_step(clock);
            self.retune(step);
        }
    }

    /// When the governor samples next. Never while all cores are idle: see [`crate::governor`].
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
        let loads = busy.iter().zip(&governed.busy).zip(&governed.pelt).zip(real_time);
        let load = |(((busy, before), pelt), real_time): (((&Nanos, &Nanos), &Pelt), bool)| CoreLoad {
            busy: *busy - *before,
            utilisation: pelt.at(now),
            real_time,
        };
        let loads: Vec<CoreLoad> = loads.map(load).collect();
        let elapsed = now.since(governed.sampled);
        let clock = governed
            .rule
            .decide(&loads, elapsed, current, &governed.steps, governed.transition);
        governed.busy = busy;
        governed.sampled = now;
        governed.due = governed.rule.sampling(governed.transition).map(|period| now + period);
        let step = self.nearest_step(clock);
        self.retune(step);
    }

    /// Updates the scheduler's averages with the activity of each core from now on.
    pub(crate) fn track_utilisation(&mut self) {
        let Some(governed) = &mut self.clock.governed else {
            return;
        };
        if !matches!(governed.rule, Governing::Schedutil(_)) {
            return;
        }
        let working = self.clock.step.clock.ratio(self.model.top().clock);
        for (pelt, core) in governed.pelt.iter_mut().zip(&self.cores) {
            pelt.work(if core.occupant().is_some() { working } else { 0.0 }, self.now);
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
