//! Who gets a core, and who loses one.
//!
//! **The fair class** is that of Linux' CFS without weights: every job counts its running time, whoever has the least of it is next, and
//! who wakes is set to at most [`SLEEPER_BONUS`] before the least of those that run or wait, so that sleep is not saved up.

use punctual_cores::{Lease, NextRelease, lend};
use punctual_units::{Nanos, Time};

use super::cores::{Core, Doing};
use super::engine::Engine;
use super::state::{Poll, State};
use super::{Management, Scheduling};

/// Half of CFS' scheduling latency of 6 ms: what a sleeper is given before others.
const SLEEPER_BONUS: Nanos = Nanos::from_millis(3);
/// CFS' wake-up granularity: who ran less by this much preempts.
const WAKEUP_GRANULARITY: Nanos = Nanos::from_millis(1);

impl Engine<'_> {
    pub fn ready(&mut self, id: usize) {
        self.tasks[id].state = State::Ready;
        let no_core_idle = self.cores.iter().all(|core| !core.is_idle());
        match self.management {
            Management::Shared(Scheduling::QuantumAfter(wait)) if self.tasks[id].is_real_time() && no_core_idle => {
                self.tasks[id].state = State::Held(self.now + *wait);
            }
            Management::Shared(scheduling) if self.is_fair(id) => {
                self.place_in_fair_class(id);
                if scheduling.preempts() && no_core_idle {
                    self.preempt_for_fair(id);
                }
            }
            Management::Dual(decided) if self.is_lent_out(self.tasks[id].place) && decided.wait > Nanos::ZERO => {
                self.tasks[id].state = State::Held(self.now + decided.wait);
            }
            _ if self.is_fair(id) => self.place_in_fair_class(id),
            _ => {}
        }
    }

    fn place_in_fair_class(&mut self, id: usize) {
        let others = (0..self.tasks.len()).filter(|other| *other != id && self.is_fair(*other));
        let runnable = others.filter(|other| matches!(self.tasks[*other].state, State::Ready | State::On(_)));
        if let Some(least) = runnable.map(|other| self.tasks[other].virtual_runtime).min() {
            let runtime = &mut self.tasks[id].virtual_runtime;
            *runtime = (*runtime).max(least.saturating_sub(SLEEPER_BONUS.0));
        }
    }

    /// Whether a task is in the fair class.
    fn is_fair(&self, id: usize) -> bool {
        !self.tasks[id].is_real_time() || *self.management == Management::Shared(Scheduling::Fair)
    }

    /// Whoever ran longest in the fair class gives way, if `id` ran less by the granularity.
    fn preempt_for_fair(&mut self, id: usize) {
        let runtime = |core: &Core| {
            let task = core.task().filter(|task| self.is_fair(*task))?;
            Some(self.tasks[task].virtual_runtime)
        };
        let longest = (0..self.cores.len())
            .filter_map(|core| Some((runtime(&self.cores[core])?, core)))
            .max();
        if let Some((longest, core)) = longest
            && longest > self.tasks[id].virtual_runtime.saturating_add(WAKEUP_GRANULARITY.0)
        {
            self.preempt(core);
        }
    }

    /// Real-time jobs that need not wait for the end of a quantum take their core.
    pub fn preempt_for_real_time(&mut self) {
        match self.management {
            Management::Shared(Scheduling::Fifo | Scheduling::QuantumAfter(_)) => {
                let waiting: Vec<usize> = (0..self.tasks.len())
                    .filter(|id| self.tasks[*id].is_real_time() && self.tasks[*id].state == State::Ready)
                    .collect();
                let idle = self.cores.iter().filter(|core| core.is_idle()).count();
                for id in waiting.into_iter().skip(idle) {
                    let interactive = |core: &usize| {
                        let task = self.cores[*core].task();
                        task.is_some_and(|task| !self.tasks[task].is_real_time())
                    };
                    let last = self.tasks[id].last.filter(interactive);
                    let victim = last.or_else(|| (0..self.cores.len()).find(interactive));
                    if let Some(core) = victim {
                        self.preempt(core);
                    }
                }
            }
            Management::Shared(Scheduling::Quantum | Scheduling::Fair) => {}
            Management::Dual(_) => {
                for core in 0..self.cores.len() {
                    let Some(first) = self.first_placed(core) else { continue };
                    let Some(running) = self.cores[core].task() else {
                        continue;
                    };
                    if self.tasks[running].deadline() > self.tasks[first].deadline() {
                        self.preempt(core);
                    }
                }
            }
        }
    }

    fn preempt(&mut self, core: usize) {
        if let Some(id) = self.cores[core].task() {
            debug_assert!(
                !matches!(self.cores[core].doing, Doing::Running { .. }) || self.tasks[id].left > Nanos::ZERO,
                "a step that has ended is settled before anybody is preempted"
            );
            if let Doing::Polling { until, done, .. } = self.cores[core].doing {
                self.tasks[id].polled = Some(Poll { until, done });
            }
            self.tasks[id].state = State::Ready;
            self.cores[core].doing = Doing::Nothing;
        }
    }

    /// The task that is first to run on this core, if any may: its own real-time tasks, or those of the queue, or those it is lent to.
    fn choose(&mut self, core: usize) -> Option<usize> {
        if !self.cores[core].exclusive {
            return self.choose_shared();
        }
        if let Some(first) = self.first_placed(core) {
            return Some(first);
        }
        self.cores[core].lease_end = self.lease(core)?;
        self.first_fair()
    }

    pub fn choose_shared(&self) -> Option<usize> {
        let waiting = |id: &usize| self.tasks[*id].state == State::Ready && self.tasks[*id].place.is_none();
        let real_time = (0..self.tasks.len()).filter(waiting).filter(|id| !self.is_fair(*id));
        real_time
            .min_by_key(|id| self.tasks[*id].deadline())
            .or_else(|| self.first_fair())
    }

    fn first_fair(&self) -> Option<usize> {
        let waiting = (0..self.tasks.len()).filter(|id| self.tasks[*id].state == State::Ready && self.is_fair(*id));
        waiting.min_by_key(|id| self.tasks[*id].virtual_runtime)
    }

    /// Of the real-time tasks of an exclusive core that are ready, the one with the earliest deadline.
    fn first_placed(&self, core: usize) -> Option<usize> {
        let here = (0..self.tasks.len()).filter(|id| self.tasks[*id].place == Some(core));
        here.filter(|id| self.tasks[*id].state == State::Ready)
            .min_by_key(|id| self.tasks[*id].deadline())
    }

    /// Until when an idle exclusive core is lent, if it is.
    fn lease(&self, core: usize) -> Option<Time> {
        let Management::Dual(decided) = self.management else {
            return None;
        };
        let mut next = NextRelease::Never;
        for task in self.tasks.iter().filter(|task| task.place == Some(core)) {
            next = match (task.state, next) {
                (State::Finished, next) => next,
                (State::Sleeping(at), NextRelease::Never) => NextRelease::At(at),
                (State::Sleeping(at), NextRelease::At(other)) => NextRelease::At(at.min(other)),
                // A job that blocked may be back any time: the policy does not know the device's schedule.
                _ => NextRelease::Anytime { slack: decided.slack },
            };
        }
        match lend(self.now, next, decided.costs) {
            Lease::Keep => None,
            Lease::Until(end) => Some(end),
            Lease::UntilReleased => Some(Time::MAX),
        }
    }

    /// Switches a core to the real-time tasks whose it is, as the policy expects: so that it is ready as the next one is released.
    fn take_back(&mut self, core: usize) {
        if let Management::Dual(decided) = self.management {
            let until = self.cores[core].lease_end + decided.costs.take_back;
            self.cores[core].doing = Doing::TakingBack { until };
        }
    }

    /// Whether interactive work is on this exclusive core, and not about to end by itself.
    fn is_lent_out(&self, place: Option<usize>) -> bool {
        let others = |core: &Core| core.task().is_some_and(|task| !self.tasks[task].is_real_time());
        place.is_some_and(|core| others(&self.cores[core]) && self.cores[core].until() > Some(self.now))
    }

    /// Gives an idle core to somebody.
    pub fn dispatch(&mut self, core: usize) {
        // Bounded: where a switch costs nothing, a job may end or block at once, and then it is not ready.
        while self.cores[core].is_idle() {
            let Some(task) = self.choose(core) else { return };
            self.tasks[task].state = State::On(core);
            self.tasks[task].last = Some(core);
            let taken_back = std::mem::take(&mut self.cores[core].taken_back) && self.tasks[task].place == Some(core);
            let until = if taken_back { self.now } else { self.now + self.switch };
            self.cores[core].slice_end = self.slice_end(core, task, until);
            self.cores[core].doing = Doing::Switching { task, until };
            self.settle(core);
        }
    }

    /// The end of a slice that begins at `from`.
    fn slice_end(&self, core: usize, task: usize, from: Time) -> Time {
        if !self.is_fair(task) {
            return Time::MAX;
        }
        let quantum = from + self.quantum;
        if self.cores[core].exclusive {
            quantum.min(self.cores[core].lease_end)
        } else {
            quantum
        }
    }

    /// Ends the slice of whoever runs on this core, if it is over: a lent core is taken back at the end of its lease.
    pub fn end_slice(&mut self, core: usize) {
        let Doing::Running { task, until } = self.cores[core].doing else {
            return;
        };
        if until > self.now {
            return;
        }
        let Core {
            exclusive, lease_end, ..
        } = self.cores[core];
        let next = if exclusive {
            self.first_fair()
        } else {
            self.choose_shared()
        };
        let gives_way = next.is_some_and(|next| {
            let ran = |id: usize| self.tasks[id].virtual_runtime;
            !self.is_fair(next) || ran(next) <= ran(task)
        });
        if exclusive && lease_end <= self.now {
            self.preempt(core);
            self.take_back(core);
        } else if gives_way {
            self.preempt(core);
        } else {
            self.cores[core].slice_end = self.slice_end(core, task, self.now);
            self.keep_running(core, task);
        }
    }
}
