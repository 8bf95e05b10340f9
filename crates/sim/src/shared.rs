//! A rule from outside of this crate by which all cores share their jobs, and its view of the machine.
//!
//! The machine runs, blocks and ends jobs. The rule says which job holds which core, for how long, and when it is
//! preempted. A job *holds* its core from when it gets it until it blocks, ends or is preempted; each change of the job
//! on a core costs a *switch*.
//!
//! **At each event** steps that have ended are settled before any job wakes: a job that wakes may preempt, and a job
//! that lost its core at the instant at which its step ended would do that step again. Slices end last, so that jobs
//! that woke can get the core, too.

use std::fmt;

use punctual_units::{Nanos, Time};

use crate::cores::{CoreActivity, Occupant, Segment};
use crate::engine::Simulation;

/// Rule by which all cores share their jobs.
pub trait SharingRule: fmt::Debug + Send + Sync {
    /// Ends slices, preempts jobs, and assigns jobs to idle cores.
    fn schedule(&mut self, machine: &mut SharedCores<'_>);

    /// Handles a job of this runner that has become ready.
    fn ready(&mut self, runner: usize, machine: &mut SharedCores<'_>);

    /// Whether a core idles while a job waits that might run there.
    fn idles_beside_work(&self, machine: &SharedCores<'_>) -> bool;

    /// Returns a copy in the same state, for a copy of the machine.
    fn boxed(&self) -> Box<dyn SharingRule>;
}

impl Clone for Box<dyn SharingRule> {
    fn clone(&self) -> Self {
        (**self).boxed()
    }
}

/// The rule by which all cores share their jobs, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedJobs {
    /// The rule; `None` also while it acts.
    rule: Option<Box<dyn SharingRule>>,
    pub has_rule: bool,
    /// Time that a core idled while a job waited that might have run there.
    pub idle_beside_work: Nanos,
}

impl SharedJobs {
    /// Sharing by this rule, before the first event.
    pub fn by(rule: Option<Box<dyn SharingRule>>) -> SharedJobs {
        SharedJobs {
            has_rule: rule.is_some(),
            rule,
            idle_beside_work: Nanos::ZERO,
        }
    }
}

/// The machine as a [`SharingRule`] sees it. Runners are tasks, by index.
pub struct SharedCores<'a>(&'a mut Simulation);

/// A runner as a [`SharingRule`] sees it.
#[derive(Clone, Copy, Debug)]
pub struct SharedRunner {
    /// Relative deadline of its jobs; `None` for interactive ones.
    pub deadline: Option<Nanos>,
    /// Whether it stays on `core`.
    pub pinned: bool,
    /// The core to which it is pinned, or on which it ran last.
    pub core: usize,
    /// Release of its present job.
    pub released: Option<Time>,
    /// Whether that job is ready, and is not put off by [`SharedCores::hold`].
    pub ready: bool,
    /// Release of the next job; [`Time::MAX`] while a job must end first.
    pub next_release: Time,
    /// Whether no job is left, and none follows.
    pub finished: bool,
    /// Time worked since the start.
    pub worked: Nanos,
}

/// A core as a [`SharingRule`] sees it.
#[derive(Clone, Copy, Debug)]
pub struct SharedCore {
    /// Runner whose job holds the core.
    pub holder: Option<usize>,
    /// Whether the core does anything, switches included.
    pub occupied: bool,
    /// Whether it does a job's own work.
    pub works: bool,
    /// End of the present activity or of its slice.
    pub finish: Time,
    /// End of the slice.
    pub slice_end: Time,
}

impl SharedCores<'_> {
    pub fn now(&self) -> Time {
        self.0.now
    }

    /// Number of cores; their indices begin at 0.
    pub fn cores(&self) -> usize {
        self.0.cores.len()
    }

    /// Number of runners, one for each task.
    pub fn runners(&self) -> usize {
        self.0.runners.len()
    }

    pub fn runner(&self, r: usize) -> SharedRunner {
        let runner = &self.0.runners[r];
        let job = runner.job.as_ref();
        SharedRunner {
            deadline: runner.deadline,
            pinned: runner.pinned,
            core: runner.core,
            released: job.map(|job| job.released),
            ready: runner.held.is_none() && job.is_some_and(|job| job.blocked_until().is_none()),
            next_release: runner.next_release,
            finished: runner.is_finished(),
            worked: runner.worked + self.0.works_since(r),
        }
    }

    pub fn core(&self, core: usize) -> SharedCore {
        let core = &self.0.cores[core];
        let occupied = core.occupant().is_some();
        SharedCore {
            holder: core.holder,
            occupied,
            works: occupied && core.doing() == CoreActivity::Work,
            finish: core.finish(),
            slice_end: core.slice_end(),
        }
    }

    /// Keeps the job of a runner from being ready for `wait`.
    pub fn hold(&mut self, r: usize, wait: Nanos) {
        let until = self.0.now + wait;
        self.0.runners[r].held = Some(until);
        self.0.next_wake = self.0.next_wake.min(until);
    }

    /// Takes a core from the job that holds it; the rest of its work stays.
    pub fn preempt(&mut self, core: usize) {
        self.0.put_off(core);
        self.0.cores[core].holder = None;
    }

    /// Gives an idle core to the job of a runner, after a `switch`, with a slice that ends at `slice_end`.
    pub fn give(&mut self, core: usize, r: usize, switch: Nanos, slice_end: Time) {
        let now = self.0.now;
        self.0.runners[r].core = core;
        self.0.cores[core].holder = Some(r);
        self.slice_until(core, slice_end);
        match switch {
            Nanos::ZERO => self.0.go_on(core, r),
            switch => {
                self.0.cores[core].start(Occupant::Runner(r), CoreActivity::Switch, Segment::lasting(switch), now)
            }
        }
    }

    /// Sets the end of the slice of the job that holds a core.
    pub fn slice_until(&mut self, core: usize, end: Time) {
        self.0.cores[core].slice_until(end);
    }

    /// Keeps an idle core busy for `span` with the switch back to its own tasks.
    pub fn take_back(&mut self, core: usize, span: Nanos) {
        let now = self.0.now;
        self.0.cores[core].start(Occupant::TakeBack, CoreActivity::Switch, Segment::lasting(span), now);
    }
}

impl Simulation {
    /// Has the rule act on the machine; `None` without one. Meanwhile the machine is without its rule.
    pub(crate) fn by_rule<T>(
        &mut self,
        act: impl FnOnce(&mut dyn SharingRule, &mut SharedCores<'_>) -> T,
    ) -> Option<T> {
        debug_assert_eq!(self.sharing.rule.is_some(), self.sharing.has_rule);
        let mut rule = self.sharing.rule.take()?;
        let result = act(rule.as_mut(), &mut SharedCores(self));
        self.sharing.rule = Some(rule);
        Some(result)
    }

    /// Continues the job that holds this core; releases the core if the job blocks, or has ended without a successor.
    pub(crate) fn go_on(&mut self, core: usize, r: usize) {
        match self.urge(r) {
            Some(occupant) => self.start(core, occupant),
            None => self.cores[core].holder = None,
        }
    }

    /// How long this runner's job has been working without a break.
    pub(crate) fn works_since(&self, r: usize) -> Nanos {
        let core = &self.cores[self.runners[r].core];
        let works = core.occupant() == Some(Occupant::Runner(r)) && core.doing() == CoreActivity::Work;
        if works { core.since(self.now) } else { Nanos::ZERO }
    }

    /// Absolute deadline of this runner's job; `Time::MAX` for interactive jobs.
    pub(crate) fn due(&self, r: usize) -> Time {
        let runner = &self.runners[r];
        let due = runner.deadline.zip(runner.job.as_ref());
        due.map_or(Time::MAX, |(deadline, job)| job.released + deadline)
    }
}
