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

use punctual_cores::LendingCosts;
use punctual_sim::{SharedCores, SharingRule};
use punctual_units::{CoreId, Nanos, Time};

/// Advance of a sleeper before others: half of CFS' scheduling latency of 6 ms.
const SLEEPER_BONUS: Nanos = Nanos::from_millis(3);
/// CFS' wake-up granularity: a job preempts if it ran less by this much.
const WAKEUP_GRANULARITY: Nanos = Nanos::from_millis(1);

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

impl Sharing {
    /// Whether interactive jobs are preempted by others that wake.
    const fn preempts(self) -> bool {
        matches!(self, Sharing::Fair | Sharing::Fifo)
    }
}

/// Policy for lending exclusive cores.
#[derive(Clone, Debug, PartialEq)]
pub struct Lending {
    /// The exclusive cores, by number.
    pub cores: Vec<CoreId>,
    /// Costs of lending. A lease that ends before a known release is followed by `take_back`, in which the core is
    /// switched; a job that takes its core back itself costs a usual switch.
    pub costs: LendingCosts,
    /// The least slack of the real-time tasks: deadline less response bound.
    pub slack: Nanos,
    /// Time that a real-time job waits if it becomes ready while its core is lent. Zero: it takes its core at once.
    pub wait: Nanos,
}

impl Lending {
    /// End of a lease of a core that is idle at `now`; `None`: not lent.
    fn lease_end(&self, now: Time, next: NextRelease) -> Option<Time> {
        match next {
            NextRelease::Never => Some(Time::MAX),
            // Taking back delays the job, which its slack has to cover.
            NextRelease::Anytime => (self.slack >= self.costs.take_back).then_some(Time::MAX),
            NextRelease::At(release) => self.costs.lease_end(now, release),
        }
    }
}

/// A queue that cores share, except exclusive cores, on which the tasks pinned there come first, by earliest deadline.
#[derive(Clone, Debug)]
pub struct SharedQueue {
    sharing: Sharing,
    /// Time that a job of the fair class keeps its core while others wait, above 0.
    quantum: Nanos,
    /// Time of a change of the job on a core.
    switch: Nanos,
    lending: Option<Lending>,
    /// End of each core's lease, while the core is lent.
    lease_ends: Vec<Time>,
    /// Whether each core was taken back and no job has run since: its own task then needs no switch.
    taken_back: Vec<bool>,
    /// Running time in the fair class with which each runner was credited.
    credits: Vec<Nanos>,
}

impl SharedQueue {
    /// A queue for these numbers of cores and runners, before the first event.
    pub fn new(
        sharing: Sharing,
        [quantum, switch]: [Nanos; 2],
        lending: Option<Lending>,
        [cores, runners]: [usize; 2],
    ) -> SharedQueue {
        SharedQueue {
            sharing,
            quantum,
            switch,
            lending,
            lease_ends: vec![Time::MAX; cores],
            taken_back: vec![false; cores],
            credits: vec![Nanos::ZERO; runners],
        }
    }

    /// Keeps the running time of a runner that wakes from being far below that of all others.
    fn place_in_fair_class(&mut self, r: usize, machine: &SharedCores<'_>) {
        let others = (0..machine.runners()).filter(|other| *other != r && self.is_fair(machine, *other));
        let runnable = others.filter(|other| holds_core(machine, *other) || waits(machine, *other));
        if let Some(least) = runnable.map(|other| self.ran(machine, other)).min() {
            let behind = (least - SLEEPER_BONUS) - self.ran(machine, r);
            self.credits[r] += behind;
        }
    }

    /// Whether a runner is in the fair class.
    fn is_fair(&self, machine: &SharedCores<'_>, r: usize) -> bool {
        let runner = machine.runner(r);
        self.sharing == Sharing::Fair && !runner.pinned || runner.deadline.is_none()
    }

    /// Running time of this runner in the fair class.
    fn ran(&self, machine: &SharedCores<'_>, r: usize) -> Nanos {
        self.credits[r] + machine.runner(r).worked
    }

    fn is_exclusive(&self, core: usize) -> bool {
        let lends = |lending: &Lending| lending.cores.iter().any(|lent| lent.index() == core);
        self.lending.as_ref().is_some_and(lends)
    }

    /// Preempts the job that ran longest in the fair class, if `r` ran less by the granularity.
    fn preempt_for_fair(&self, r: usize, machine: &mut SharedCores<'_>) {
        let runtime = |core: usize| {
            let holder = machine
                .core(core)
                .holder
                .filter(|holder| self.is_fair(machine, *holder))?;
            Some((self.ran(machine, holder), core))
        };
        let longest = (0..machine.cores()).filter_map(runtime).max();
        if let Some((longest, core)) = longest
            && longest > self.ran(machine, r) + WAKEUP_GRANULARITY
        {
            machine.preempt(core);
        }
    }

    /// Gives cores to real-time jobs that need not wait for the end of a quantum.
    fn preempt_for_real_time(&self, machine: &mut SharedCores<'_>) {
        if self.lending.is_some() {
            (0..machine.cores()).for_each(|core| preempt_for_owner(machine, core));
        } else if matches!(self.sharing, Sharing::Fifo | Sharing::QuantumAfter(_)) {
            preempt_interactive(machine);
        }
    }

    /// The next runner for this core, if any: a pinned one first; otherwise from the queue, or, while the core is lent,
    /// from the fair class.
    fn next_on(&mut self, core: usize, machine: &SharedCores<'_>) -> Option<usize> {
        if !self.is_exclusive(core) {
            return self.first_shared(machine);
        }
        if let Some(first) = first_pinned(machine, core) {
            return Some(first);
        }
        self.lease_ends[core] = self.lease(core, machine)?;
        self.first_fair(machine)
    }

    fn first_shared(&self, machine: &SharedCores<'_>) -> Option<usize> {
        let real_time = |r: &usize| !machine.runner(*r).pinned && !self.is_fair(machine, *r) && waits(machine, *r);
        let real_time = (0..machine.runners()).filter(real_time);
        real_time
            .min_by_key(|r| due(machine, *r))
            .or_else(|| self.first_fair(machine))
    }

    fn first_fair(&self, machine: &SharedCores<'_>) -> Option<usize> {
        let waiting = (0..machine.runners()).filter(|r| self.is_fair(machine, *r) && waits(machine, *r));
        waiting.min_by_key(|r| self.ran(machine, *r))
    }

    /// Until when an idle exclusive core is lent; `None`: not lent.
    fn lease(&self, core: usize, machine: &SharedCores<'_>) -> Option<Time> {
        let lending = self.lending.as_ref()?;
        let mut next = NextRelease::Never;
        let runners = (0..machine.runners()).map(|r| machine.runner(r));
        for runner in runners.filter(|runner| runner.pinned && runner.core == core) {
            next = match (runner.released, next) {
                _ if runner.finished => next,
                (None, NextRelease::Never) => NextRelease::At(runner.next_release),
                (None, NextRelease::At(other)) => NextRelease::At(runner.next_release.min(other)),
                // A job that blocked may return any time: the policy does not know the device's schedule.
                _ => NextRelease::Anytime,
            };
        }
        lending.lease_end(machine.now(), next)
    }

    /// Assigns jobs to an idle core until it is busy or no job is left.
    fn dispatch(&mut self, core: usize, machine: &mut SharedCores<'_>) {
        // Bounded: where a switch costs nothing, a job may end or block at once, and is then no longer ready.
        while is_idle(machine, core) {
            let Some(r) = self.next_on(core, machine) else { return };
            let ready = std::mem::take(&mut self.taken_back[core]) && machine.runner(r).pinned;
            let switch = if ready { Nanos::ZERO } else { self.switch };
            let slice_end = self.slice_end(core, r, machine.now() + switch, machine);
            machine.give(core, r, switch, slice_end);
        }
    }

    /// End of a slice that begins at `from`.
    fn slice_end(&self, core: usize, r: usize, from: Time, machine: &SharedCores<'_>) -> Time {
        match self.is_fair(machine, r) {
            false => Time::MAX,
            true if self.is_exclusive(core) => (from + self.quantum).min(self.lease_ends[core]),
            true => from + self.quantum,
        }
    }

    /// Ends the slice of the job on this core, if its time is over; a lent core is taken back at the end of its lease.
    fn end_slice(&mut self, core: usize, machine: &mut SharedCores<'_>) {
        let (this, now) = (machine.core(core), machine.now());
        let Some(holder) = this.holder else { return };
        if !this.works || this.slice_end > now {
            return;
        }
        let exclusive = self.is_exclusive(core);
        let next = if exclusive {
            self.first_fair(machine)
        } else {
            self.first_shared(machine)
        };
        let gives_way = next
            .is_some_and(|next| !self.is_fair(machine, next) || self.ran(machine, next) <= self.ran(machine, holder));
        if exclusive && self.lease_ends[core] <= now {
            machine.preempt(core);
            self.take_back(core, machine);
        } else if gives_way {
            machine.preempt(core);
        } else {
            let slice_end = self.slice_end(core, holder, now, machine);
            machine.slice_until(core, slice_end);
        }
    }

    /// Switches a core back to its own real-time tasks, as the policy expects: so that the core is ready when the next
    /// job is released.
    fn take_back(&mut self, core: usize, machine: &mut SharedCores<'_>) {
        let Some(lending) = &self.lending else { return };
        let until = self.lease_ends[core] + lending.costs.take_back;
        self.taken_back[core] = true;
        match until.since(machine.now()) {
            Nanos::ZERO => {}
            span => machine.take_back(core, span),
        }
    }
}

/// Knowledge about a core's next real-time job.
#[derive(Clone, Copy)]
enum NextRelease {
    /// Released at this instant.
    At(Time),
    /// Released any time from now on: a job that waits for its medium.
    Anytime,
    /// No further job comes.
    Never,
}

impl SharingRule for SharedQueue {
    fn schedule(&mut self, machine: &mut SharedCores<'_>) {
        (0..machine.cores()).for_each(|core| self.end_slice(core, machine));
        self.preempt_for_real_time(machine);
        (0..machine.cores()).for_each(|core| self.dispatch(core, machine));
    }

    fn ready(&mut self, r: usize, machine: &mut SharedCores<'_>) {
        let no_core_idle = (0..machine.cores()).all(|core| !is_idle(machine, core));
        let runner = machine.runner(r);
        let lent_for = self.lending.as_ref().map_or(Nanos::ZERO, |lending| lending.wait);
        match self.sharing {
            Sharing::QuantumAfter(wait) if runner.deadline.is_some() && no_core_idle => machine.hold(r, wait),
            sharing if self.is_fair(machine, r) => {
                self.place_in_fair_class(r, machine);
                if sharing.preempts() && no_core_idle {
                    self.preempt_for_fair(r, machine);
                }
            }
            _ if runner.pinned && lent_for > Nanos::ZERO && is_lent_out(machine, runner.core) => {
                machine.hold(r, lent_for);
            }
            _ => {}
        }
    }

    /// Never, under work-conserving scheduling.
    fn idles_beside_work(&self, machine: &SharedCores<'_>) -> bool {
        let idle = |core: usize| is_idle(machine, core) && !self.is_exclusive(core);
        (0..machine.cores()).any(idle) && self.first_shared(machine).is_some()
    }

    fn boxed(&self) -> Box<dyn SharingRule> {
        Box::new(self.clone())
    }
}

fn holds_core(machine: &SharedCores<'_>, r: usize) -> bool {
    machine.core(machine.runner(r).core).holder == Some(r)
}

/// Whether this runner has a job that is ready, but no core.
fn waits(machine: &SharedCores<'_>, r: usize) -> bool {
    machine.runner(r).ready && !holds_core(machine, r)
}

fn is_idle(machine: &SharedCores<'_>, core: usize) -> bool {
    let core = machine.core(core);
    core.holder.is_none() && !core.occupied
}

/// Absolute deadline of this runner's job; `Time::MAX` for interactive jobs.
fn due(machine: &SharedCores<'_>, r: usize) -> Time {
    let runner = machine.runner(r);
    let due = runner.deadline.zip(runner.released);
    due.map_or(Time::MAX, |(deadline, released)| released + deadline)
}

/// The runner pinned to this core that waits and has the earliest deadline.
fn first_pinned(machine: &SharedCores<'_>, core: usize) -> Option<usize> {
    let here = |r: &usize| {
        let runner = machine.runner(*r);
        runner.pinned && runner.core == core && waits(machine, *r)
    };
    (0..machine.runners()).filter(here).min_by_key(|r| due(machine, *r))
}

/// Preempts the job that holds this core for one that is pinned here and due earlier.
fn preempt_for_owner(machine: &mut SharedCores<'_>, core: usize) {
    let holder = machine.core(core).holder;
    if let (Some(first), Some(holder)) = (first_pinned(machine, core), holder)
        && due(machine, holder) > due(machine, first)
    {
        machine.preempt(core);
    }
}

/// Takes a core from an interactive job for each real-time job for which no core is idle: the one on which it ran last,
/// or else another.
fn preempt_interactive(machine: &mut SharedCores<'_>) {
    let is_waiting = |r: &usize| machine.runner(*r).deadline.is_some() && waits(machine, *r);
    let waiting: Vec<usize> = (0..machine.runners()).filter(is_waiting).collect();
    let idle = (0..machine.cores()).filter(|core| is_idle(machine, *core)).count();
    for r in waiting.into_iter().skip(idle) {
        let interactive = |core: &usize| is_held_by_interactive(machine, *core);
        let last = Some(machine.runner(r).core).filter(interactive);
        if let Some(core) = last.or_else(|| (0..machine.cores()).find(interactive)) {
            machine.preempt(core);
        }
    }
}

fn is_held_by_interactive(machine: &SharedCores<'_>, core: usize) -> bool {
    let holder = machine.core(core).holder;
    holder.is_some_and(|holder| machine.runner(holder).deadline.is_none())
}

/// Whether an interactive job holds this exclusive core, and does not end now anyway.
fn is_lent_out(machine: &SharedCores<'_>, core: usize) -> bool {
    is_held_by_interactive(machine, core) && machine.core(core).finish > machine.now()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_unknown_release_is_risked_only_within_the_slack(slack in 0u64..300, take_back in 0u64..300) {
            let costs = LendingCosts { hand_over: Nanos::ZERO, take_back: Nanos(take_back) };
            let lending = Lending { cores: Vec::new(), costs, slack: Nanos(slack), wait: Nanos::ZERO };
            let lent = lending.lease_end(Time(7), NextRelease::Anytime) == Some(Time::MAX);
            prop_assert_eq!(lent, take_back <= slack);
        }
    }
}
