//! A queue that cores share: assigns jobs to cores, and preempts them.
//!
//! **Terms.** A *quantum* is the time that a job of the fair class keeps its core while others wait; each change of the
//! job on a core costs a *switch*. A job *holds* its core from when it gets it until it blocks, ends or is preempted.
//! An exclusive core belongs to the real-time tasks that are pinned to it; while none of them is ready it may be lent
//! to the fair class.
//!
//! **The fair class** is that of Linux' CFS without weights. The running time of each job is counted, and the job with
//! the least is next. A job that wakes is set to at most [`SLEEPER_BONUS`] before the least of those that run or wait,
//! so that sleep is not saved up.
//!
//! **At each event** steps that have ended are settled before any job wakes: a job that wakes may preempt, and a job
//! that lost its core at the instant at which its step ended would do that step again. Slices end last, so that jobs
//! that woke can get the core, too.

use punctual_cores::{Completion, Lease, LendingCosts, NextRelease, lend};
use punctual_units::{CoreId, Nanos, Time};

use crate::cores::{CoreActivity, Occupant, Segment};
use crate::engine::Simulation;
use crate::task::Dispatch;

/// Advance of a sleeper before others: half of CFS' scheduling latency of 6 ms.
const SLEEPER_BONUS: Nanos = Nanos::from_millis(3);
/// CFS' wake-up granularity: a job preempts if it ran less by this much.
const WAKEUP_GRANULARITY: Nanos = Nanos::from_millis(1);

/// A queue that cores share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedQueue {
    /// Rule of order and preemption.
    pub sharing: Sharing,
    /// Time that a job of the fair class keeps its core while others wait, above 0.
    pub quantum: Nanos,
    /// Time of a change of the job on a core.
    pub switch: Nanos,
}

/// Rules by which cores are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The second paper's rule: no preemption. When a quantum ends, real-time jobs come first, then the interactive job
    /// that ran least.
    Quantum,
    /// The second paper's Fig. 3(b): where no core is idle, a real-time job waits for this long, and then takes the
    /// core on which it ran last.
    QuantumAfter(Nanos),
    /// Stock Linux, real-time jobs in the fair class: a job that wakes preempts a job that ran longer by more than the
    /// wake-up granularity.
    Fair,
    /// Stock Linux, real-time jobs in `SCHED_FIFO`: they preempt at once. Interactive jobs are treated as under
    /// [`Fair`](Sharing::Fair).
    Fifo,
}

/// Policy for lending exclusive cores, and for the waits of jobs pinned to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Lending {
    /// The exclusive cores, by number.
    pub cores: Vec<CoreId>,
    /// How a job that is pinned to one of them waits for each device, in the order of the devices.
    pub waits: Vec<Completion>,
    /// Costs of lending. A lease that ends before a known release is followed by `take_back`, in which the core is
    /// switched; a job that takes its core back itself costs a usual switch.
    pub costs: LendingCosts,
    /// The least slack of the real-time tasks: deadline less response bound.
    pub slack: Nanos,
    /// Time that a real-time job waits if it becomes ready while its core is lent. Zero: it takes its core at once.
    pub wait: Nanos,
}

/// State of a core in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreState {
    /// Runner whose job holds the core.
    pub holder: Option<usize>,
    /// End of the lease, while the core is lent.
    lease_end: Time,
    /// Whether the core was taken back and no job has run since: its own task then needs no switch.
    pub taken_back: bool,
}

impl Default for CoreState {
    fn default() -> CoreState {
        CoreState {
            holder: None,
            lease_end: Time::MAX,
            taken_back: false,
        }
    }
}

impl Sharing {
    /// Whether interactive jobs are preempted by others that wake.
    const fn preempts(self) -> bool {
        matches!(self, Sharing::Fair | Sharing::Fifo)
    }
}

impl Simulation<'_> {
    /// The queue, where cores share one.
    pub(crate) fn queue(&self) -> Option<SharedQueue> {
        match self.scheduling {
            Dispatch::Queue(queue) => Some(queue),
            Dispatch::FixedPriority | Dispatch::EarliestDeadline => None,
        }
    }

    /// Ends slices, preempts jobs, and assigns jobs to idle cores.
    pub(crate) fn schedule_queue(&mut self, queue: SharedQueue) {
        (0..self.cores.len()).for_each(|core| self.end_slice(queue, core));
        self.preempt_for_real_time(queue.sharing);
        (0..self.cores.len()).for_each(|core| self.dispatch(queue, core));
    }

    /// Handles a job of this runner that has become ready.
    pub(crate) fn ready(&mut self, r: usize) {
        let Some(SharedQueue { sharing, .. }) = self.queue() else {
            return;
        };
        let no_core_idle = (0..self.cores.len()).all(|core| !self.is_idle(core));
        let runner = &self.runners[r];
        let lent_for = self.lending.as_ref().map_or(Nanos::ZERO, |lending| lending.wait);
        match sharing {
            Sharing::QuantumAfter(wait) if runner.deadline.is_some() && no_core_idle => self.hold(r, wait),
            _ if self.is_fair(r) => {
                self.place_in_fair_class(r);
                if sharing.preempts() && no_core_idle {
                    self.preempt_for_fair(r);
                }
            }
            _ if runner.pinned && lent_for > Nanos::ZERO && self.is_lent_out(runner.core) => self.hold(r, lent_for),
            _ => {}
        }
    }

    /// Keeps the job of this runner from taking a core for `wait`.
    fn hold(&mut self, r: usize, wait: Nanos) {
        let until = self.now + wait;
        self.runners[r].held = Some(until);
        self.next_wake = self.next_wake.min(until);
    }

    fn place_in_fair_class(&mut self, r: usize) {
        let others = (0..self.runners.len()).filter(|other| *other != r && self.is_fair(*other));
        let runnable = others.filter(|other| self.holds_core(*other) || self.waits(*other));
        if let Some(least) = runnable.map(|other| self.ran(other)).min() {
            let runtime = &mut self.runners[r].virtual_runtime;
            *runtime = (*runtime).max(least - SLEEPER_BONUS);
        }
    }

    /// Whether a runner is in the fair class.
    fn is_fair(&self, r: usize) -> bool {
        let all = matches!(
            self.queue(),
            Some(SharedQueue {
                sharing: Sharing::Fair,
                ..
            })
        ) && !self.runners[r].pinned;
        all || self.runners[r].deadline.is_none()
    }

    /// Running time of this runner in the fair class.
    fn ran(&self, r: usize) -> Nanos {
        self.runners[r].virtual_runtime + self.works_since(r)
    }

    /// How long this runner's job has been working without a break.
    pub(crate) fn works_since(&self, r: usize) -> Nanos {
        let core = &self.cores[self.runners[r].core];
        let works = core.occupant() == Some(Occupant::Runner(r)) && core.doing() == CoreActivity::Work;
        if works { core.since(self.now) } else { Nanos::ZERO }
    }

    fn holds_core(&self, r: usize) -> bool {
        self.cores[self.runners[r].core].queued.holder == Some(r)
    }

    /// Whether this runner has a job that is ready, but no core.
    fn waits(&self, r: usize) -> bool {
        let runner = &self.runners[r];
        let ready = runner.job.as_ref().is_some_and(|job| job.blocked_until().is_none());
        ready && runner.held.is_none() && !self.holds_core(r)
    }

    fn is_idle(&self, core: usize) -> bool {
        self.cores[core].queued.holder.is_none() && self.cores[core].occupant().is_none()
    }

    fn is_exclusive(&self, core: usize) -> bool {
        let lends = |lending: &crate::Lending| lending.cores.iter().any(|lent| lent.index() == core);
        self.lending.as_ref().is_some_and(lends)
    }

    /// Absolute deadline of this runner's job; `Time::MAX` for interactive jobs.
    fn due(&self, r: usize) -> Time {
        let runner = &self.runners[r];
        let due = runner.deadline.zip(runner.job.as_ref());
        due.map_or(Time::MAX, |(deadline, job)| job.released + deadline)
    }

    /// Preempts the job that ran longest in the fair class, if `r` ran less by the granularity.
    fn preempt_for_fair(&mut self, r: usize) {
        let runtime = |core: usize| {
            let holder = self.cores[core].queued.holder.filter(|holder| self.is_fair(*holder))?;
            Some((self.ran(holder), core))
        };
        let longest = (0..self.cores.len()).filter_map(runtime).max();
        if let Some((longest, core)) = longest
            && longest > self.ran(r) + WAKEUP_GRANULARITY
        {
            self.preempt(core);
        }
    }

    /// Gives cores to real-time jobs that need not wait for the end of a quantum.
    fn preempt_for_real_time(&mut self, sharing: Sharing) {
        if self.lending.is_some() {
            (0..self.cores.len()).for_each(|core| self.preempt_for_owner(core));
        } else if matches!(sharing, Sharing::Fifo | Sharing::QuantumAfter(_)) {
            self.preempt_interactive();
        }
    }

    /// Preempts the job that holds this core for one that is pinned here and due earlier.
    fn preempt_for_owner(&mut self, core: usize) {
        let holder = self.cores[core].queued.holder;
        if let (Some(first), Some(holder)) = (self.first_pinned(core), holder)
            && self.due(holder) > self.due(first)
        {
            self.preempt(core);
        }
    }

    /// Takes a core from an interactive job for each real-time job for which no core is idle: the one on which it ran
    /// last, or else another.
    fn preempt_interactive(&mut self) {
        let waits = |r: &usize| self.runners[*r].deadline.is_some() && self.waits(*r);
        let waiting: Vec<usize> = (0..self.runners.len()).filter(waits).collect();
        let idle = (0..self.cores.len()).filter(|core| self.is_idle(*core)).count();
        for r in waiting.into_iter().skip(idle) {
            let interactive = |core: &usize| {
                let holder = self.cores[*core].queued.holder;
                holder.is_some_and(|holder| self.runners[holder].deadline.is_none())
            };
            let last = Some(self.runners[r].core).filter(interactive);
            if let Some(core) = last.or_else(|| (0..self.cores.len()).find(interactive)) {
                self.preempt(core);
            }
        }
    }

    fn preempt(&mut self, core: usize) {
        self.put_off(core);
        self.cores[core].queued.holder = None;
    }

    /// The next runner for this core, if any: a pinned one first; otherwise from the queue, or, while the core is lent,
    /// from the fair class.
    fn next_on(&mut self, core: usize) -> Option<usize> {
        if !self.is_exclusive(core) {
            return self.first_shared();
        }
        if let Some(first) = self.first_pinned(core) {
            return Some(first);
        }
        self.cores[core].queued.lease_end = self.lease(core)?;
        self.first_fair()
    }

    fn first_shared(&self) -> Option<usize> {
        let real_time = |r: &usize| !self.runners[*r].pinned && !self.is_fair(*r) && self.waits(*r);
        let real_time = (0..self.runners.len()).filter(real_time);
        real_time.min_by_key(|r| self.due(*r)).or_else(|| self.first_fair())
    }

    fn first_fair(&self) -> Option<usize> {
        let waiting = (0..self.runners.len()).filter(|r| self.is_fair(*r) && self.waits(*r));
        waiting.min_by_key(|r| self.ran(*r))
    }

    /// The runner pinned to this core that waits and has the earliest deadline.
    fn first_pinned(&self, core: usize) -> Option<usize> {
        let here = |r: &usize| self.runners[*r].pinned && self.runners[*r].core == core && self.waits(*r);
        (0..self.runners.len()).filter(here).min_by_key(|r| self.due(*r))
    }

    /// Until when an idle exclusive core is lent; `None`: not lent.
    fn lease(&self, core: usize) -> Option<Time> {
        let lending = self.lending.as_ref()?;
        let mut next = NextRelease::Never;
        for runner in self
            .runners
            .iter()
            .filter(|runner| runner.pinned && runner.core == core)
        {
            next = match (&runner.job, next) {
                _ if runner.is_finished() => next,
                (None, NextRelease::Never) => NextRelease::At(runner.next_release),
                (None, NextRelease::At(other)) => NextRelease::At(runner.next_release.min(other)),
                // A job that blocked may return any time: the policy does not know the device's schedule.
                _ => NextRelease::Anytime { slack: lending.slack },
            };
        }
        match lend(self.now, next, lending.costs) {
            Lease::Keep => None,
            Lease::Until(end) => Some(end),
            Lease::UntilReleased => Some(Time::MAX),
        }
    }

    /// Whether an interactive job holds this exclusive core, and does not end now anyway.
    fn is_lent_out(&self, core: usize) -> bool {
        let core = &self.cores[core];
        let others = core
            .queued
            .holder
            .is_some_and(|holder| self.runners[holder].deadline.is_none());
        others && core.finish() > self.now
    }

    /// Assigns jobs to an idle core until it is busy or no job is left.
    fn dispatch(&mut self, queue: SharedQueue, core: usize) {
        // Bounded: where a switch costs nothing, a job may end or block at once, and is then no longer ready.
        while self.is_idle(core) {
            let Some(r) = self.next_on(core) else { return };
            let pinned = self.runners[r].pinned;
            self.runners[r].core = core;
            self.cores[core].queued.holder = Some(r);
            let ready = std::mem::take(&mut self.cores[core].queued.taken_back) && pinned;
            let switch = if ready { Nanos::ZERO } else { queue.switch };
            let slice_end = self.slice_end(queue, core, r, self.now + switch);
            self.cores[core].slice_until(slice_end);
            match switch {
                Nanos::ZERO => self.go_on(core, r),
                switch => self.cores[core].start(
                    Occupant::Runner(r),
                    CoreActivity::Switch,
                    Segment::lasting(switch),
                    self.now,
                ),
            }
        }
    }

    /// Continues the job that holds this core; releases the core if the job blocks, or has ended without a successor.
    pub(crate) fn go_on(&mut self, core: usize, r: usize) {
        match self.urge(r) {
            Some(occupant) => self.start(core, occupant),
            None => self.cores[core].queued.holder = None,
        }
    }

    /// End of a slice that begins at `from`.
    fn slice_end(&self, queue: SharedQueue, core: usize, r: usize, from: Time) -> Time {
        match self.is_fair(r) {
            false => Time::MAX,
            true if self.is_exclusive(core) => (from + queue.quantum).min(self.cores[core].queued.lease_end),
            true => from + queue.quantum,
        }
    }

    /// Ends the slice of the job on this core, if its time is over; a lent core is taken back at the end of its lease.
    fn end_slice(&mut self, queue: SharedQueue, core: usize) {
        let this = &self.cores[core];
        let Some(holder) = this.queued.holder else { return };
        if this.occupant().is_none() || this.doing() != CoreActivity::Work || this.slice_end() > self.now {
            return;
        }
        let (exclusive, lease_end) = (self.is_exclusive(core), this.queued.lease_end);
        let next = if exclusive {
            self.first_fair()
        } else {
            self.first_shared()
        };
        let gives_way = next.is_some_and(|next| !self.is_fair(next) || self.ran(next) <= self.ran(holder));
        if exclusive && lease_end <= self.now {
            self.preempt(core);
            self.take_back(core);
        } else if gives_way {
            self.preempt(core);
        } else {
            let slice_end = self.slice_end(queue, core, holder, self.now);
            self.cores[core].slice_until(slice_end);
        }
    }

    /// Switches a core back to its own real-time tasks, as the policy expects: so that the core is ready when the next
    /// job is released.
    fn take_back(&mut self, core: usize) {
        let Some(lending) = &self.lending else { return };
        let until = self.cores[core].queued.lease_end + lending.costs.take_back;
        match until.since(self.now) {
            Nanos::ZERO => self.cores[core].queued.taken_back = true,
            span => self.cores[core].start(
                Occupant::TakeBack,
                CoreActivity::Switch,
                Segment::lasting(span),
                self.now,
            ),
        }
    }

    /// Whether a core idles while a job waits that might run there; never, under work-conserving scheduling.
    pub(crate) fn idles_beside_work(&self) -> bool {
        let idle = |core: usize| self.is_idle(core) && !self.is_exclusive(core);
        self.queue().is_some() && (0..self.cores.len()).any(idle) && self.first_shared().is_some()
    }
}
