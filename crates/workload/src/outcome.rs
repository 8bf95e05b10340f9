//! Outcome of a job: when it was released and finished, and where its time went.

use std::ops::{Add, AddAssign};

use punctual_units::{Nanos, TaskId, Time};
use serde::{Deserialize, Serialize};

/// Where the time of a transaction, or of a whole job, went. The six parts add up to the response time.
///
/// The simulated machine knows each part from its scheduler. On Linux a job measures them, and `preempted` is the
/// least that fits: see [`Split::preempting`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// From the release to the first instruction: an earlier job of the task was not done, or another thread had the
    /// core.
    pub released_late: Nanos,
    /// Begun and ready, but another thread, or none, had the core.
    pub preempted: Nanos,
    /// Waiting for the write lock.
    pub lock: Nanos,
    /// Inside store calls, without lock and commit.
    pub data: Nanos,
    /// Everything else: the job's own computation.
    pub computation: Nanos,
    /// Committing, with the wait for the medium.
    pub commit: Nanos,
    /// Part of `preempted` that fell into store calls. Not a part of its own: the paper's data response time, which is
    /// measured from call to return, counts it.
    #[serde(default)]
    pub preempted_in_store: Nanos,
}

punctual_units::named! {
    /// A part of a job's response time, named as in `Split`; in the order of a job's life.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Part by words {
        ReleasedLate = "released late",
        Preempted = "preempted",
        Lock = "waiting for the lock",
        Data = "store access",
        Computation = "computation",
        Commit = "committing",
    }
}

impl Split {
    /// The sum of all parts: the response time r of the paper.
    pub fn response(&self) -> Nanos {
        Part::ALL.iter().map(|part| self.part(*part)).sum()
    }

    /// Time from the calls of store operations to their returns: the data response time d of the paper.
    pub fn data_response(&self) -> Nanos {
        self.lock + self.data + self.commit + self.preempted_in_store
    }

    /// Returns the time of `part`.
    pub const fn part(&self, part: Part) -> Nanos {
        match part {
            Part::ReleasedLate => self.released_late,
            Part::Preempted => self.preempted,
            Part::Lock => self.lock,
            Part::Data => self.data,
            Part::Computation => self.computation,
            Part::Commit => self.commit,
        }
    }

    /// The split with `f` of each part.
    pub fn map(self, f: impl Fn(Nanos) -> Nanos) -> Split {
        self.with(self, |part, _| f(part))
    }

    /// The split with `f` of each part of both.
    fn with(self, other: Split, f: impl Fn(Nanos, Nanos) -> Nanos) -> Split {
        Split {
            released_late: f(self.released_late, other.released_late),
            preempted: f(self.preempted, other.preempted),
            lock: f(self.lock, other.lock),
            data: f(self.data, other.data),
            computation: f(self.computation, other.computation),
            commit: f(self.commit, other.commit),
            preempted_in_store: f(self.preempted_in_store, other.preempted_in_store),
        }
    }

    /// The split of a job that ran on its core for `cpu` since its first instruction, where this split counts all time
    /// off the core as data, computation, lock or commit.
    ///
    /// Time off the core is put down to waiting for the lock and to committing first, and what is left to preemption;
    /// it is taken from `data` and `computation` in proportion, because a job does not learn when it was off the core.
    /// The response time and the data response time stay as they are.
    ///
    /// This cannot distinguish three things. A preemption while the job waits for the lock or commits counts as these
    /// (`preempted` is a lower bound). Whatever else takes the job off its core counts as `preempted`: another thread,
    /// the kernel's real-time throttling, a page fault that reads from a disk, a closure that sleeps. Time that the
    /// hypervisor or an interrupt took counts as `preempted` only where the kernel leaves it out of a thread's CPU
    /// time, and as `data` or `computation` elsewhere.
    pub fn preempting(self, cpu: Nanos) -> Split {
        let movable = self.data + self.computation;
        let since_begun = self.response().saturating_sub(self.released_late);
        let off_core = since_begun.saturating_sub(cpu);
        let preempted = off_core.saturating_sub(self.lock + self.commit).min(movable);
        if preempted == Nanos::ZERO {
            return self;
        }
        let in_store = preempted.scaled(self.data.ratio(movable)).min(self.data).min(preempted);
        // Rounding may leave more for computation than it has.
        let in_store = in_store.max(preempted.saturating_sub(self.computation));
        Split {
            preempted: self.preempted + preempted,
            preempted_in_store: self.preempted_in_store + in_store,
            data: self.data - in_store,
            computation: self.computation - (preempted - in_store),
            ..self
        }
    }
}

impl Add for Split {
    type Output = Split;
    fn add(self, other: Split) -> Split {
        self.with(other, Add::add)
    }
}

impl AddAssign for Split {
    fn add_assign(&mut self, other: Split) {
        *self = *self + other;
    }
}

/// The splits of several jobs, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitSum {
    /// Sum of the splits, part by part.
    pub sum: Split,
    /// Number of jobs in the sum.
    pub jobs: u64,
}

impl SplitSum {
    /// Adds a job's split.
    pub fn add(&mut self, split: &Split) {
        self.sum += *split;
        self.jobs += 1;
    }

    /// The mean of one part, in nanoseconds; 0 without a job.
    pub fn mean_ns(&self, part: Part) -> f64 {
        self.sum.part(part).0 as f64 / self.jobs.max(1) as f64
    }
}

/// Outcome of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// The task whose job it was.
    pub task: TaskId,
    /// Counts up from 0 within the task.
    pub job: u64,
    /// When the job was released.
    pub released: Time,
    /// Deadline, relative to the release; `None` for best-effort jobs.
    pub deadline: Option<Nanos>,
    /// When the job was complete.
    pub finished: Time,
    /// Where the time went.
    pub split: Split,
}

impl JobOutcome {
    /// Release to completion: r.
    pub fn response(&self) -> Nanos {
        self.finished.since(self.released)
    }

    /// r / D: 1 finishes exactly at its deadline; `None` without a deadline.
    pub fn tardiness(&self) -> Option<f64> {
        Some(self.response().ratio(self.deadline?))
    }

    /// Data response ratio d / r, 0 to 1; 0 for a job that took no time.
    pub fn drr(&self) -> f64 {
        match self.response() {
            Nanos::ZERO => 0.0,
            response => self.split.data_response().ratio(response).min(1.0),
        }
    }

    /// By how much the deadline was missed, if it was.
    pub fn overrun(&self) -> Option<Nanos> {
        let over = self.response().saturating_sub(self.deadline?);
        (over > Nanos::ZERO).then_some(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split([released_late, preempted, lock, data, computation, commit]: [u64; 6]) -> Split {
        Split {
            released_late: Nanos(released_late),
            preempted: Nanos(preempted),
            lock: Nanos(lock),
            data: Nanos(data),
            computation: Nanos(computation),
            commit: Nanos(commit),
            preempted_in_store: Nanos::ZERO,
        }
    }

    proptest! {
        #[test]
        fn the_parts_add_up_and_ratios_stay_in_range(
            parts in prop::array::uniform6(0u64..1 << 40), in_store in 0u64..1 << 40, deadline in 1u64..1 << 40,
        ) {
            let preempted_in_store = Nanos(in_store.min(parts[1]));
            let split = Split { preempted_in_store, ..split(parts) };
            prop_assert_eq!(split.response().0, parts.iter().sum::<u64>());
            prop_assert!(split.data_response() <= split.response());
            let outcome = JobOutcome {
                task: TaskId(0),
                job: 0,
                released: Time(7),
                deadline: Some(Nanos(deadline)),
                finished: Time(7) + split.response(),
                split,
            };
            prop_assert!((0.0..=1.0).contains(&outcome.drr()));
            prop_assert_eq!(outcome.tardiness().unwrap() > 1.0, outcome.overrun().is_some());
        }

        /// Whatever the thread's clock says, the response time and the paper's data response time stay, and no more is
        /// called preempted than the thread was off its core.
        #[test]
        fn time_off_the_core_is_moved_not_made(parts in prop::array::uniform6(0u64..1 << 40), cpu in 0u64..1 << 42) {
            let [released_late, _, lock, data, computation, commit] = parts;
            let before = split([released_late, 0, lock, data, computation, commit]);
            let after = before.preempting(Nanos(cpu));
            prop_assert_eq!(after.response(), before.response());
            prop_assert_eq!(after.data_response(), before.data_response());
            prop_assert!(after.preempted_in_store <= after.preempted);
            let begun = before.response() - before.released_late;
            prop_assert!(after.preempted <= begun.saturating_sub(Nanos(cpu)));
            let kept = [Part::ReleasedLate, Part::Lock, Part::Commit];
            prop_assert!(kept.iter().all(|part| after.part(*part) == before.part(*part)));
            let known = Nanos(cpu) + before.lock + before.commit;
            if known >= begun {
                prop_assert_eq!(after.preempted, Nanos::ZERO);
            }
        }
    }
}
