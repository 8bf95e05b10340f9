//! Why a job was late: which cause took more of its time than usual.
//!
//! The split of a job says in which of its phases the time went ([`Split`]); the machine knows more of some of them:
//! how long the job before was still running, how long the thread was ready, whether a page had to be read from a disk
//! ([`JobMeasurements`]). Both together make [`CauseSpans`]: one for each [`Cause`], in sum the response time. The
//! cause of a late job is the span that exceeds most what the same span usually is in jobs that end in time
//! ([`Usual`]): computation, which is the largest of all in most jobs, is thus no cause of a job that waited for a
//! lock.

use punctual_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::outcome::Split;

punctual_units::named! {
    /// Cause of a late job; of equal ones the first in this order is named.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Cause by words {
        /// The release was skipped, because too many jobs of the task waited already.
        Skipped = "skipped",
        /// The job has not ended, or waits behind one that has not.
        Unfinished = "job has not ended",
        /// The thread has not begun the job, although the one before has ended; releases behind it count as well.
        NotRun = "thread did not run",
        /// The job before was not done yet.
        Queue = "behind the job before",
        /// Another thread held the write lock.
        Lock = "waiting for the lock",
        /// Pages had to be read from a disk, or from where they were swapped to.
        PageFault = "page faults",
        /// A commit that waits for the medium.
        Sync = "syncing",
        /// A commit that waits for no medium.
        Commit = "committing",
        /// The job was ready, and another thread had its core.
        Preempted = "preempted",
        /// The job was ready, and the kernel kept real-time threads off its core for a while: the core idled, or
        /// ordinary threads of other processes had it. An ordinary thread of the same process counts as preempting,
        /// because it may have inherited a priority.
        Throttled = "throttled",
        /// The threads of the process were stopped together: by a signal (SIGSTOP) or a freezer.
        Stopped = "process stopped",
        /// The core was taken from all threads: by the hypervisor, the firmware, or interrupts.
        Stolen = "core taken from all threads",
        /// The thread was not ready to run, and no cause above explains it: it slept, or waited for a device or
        /// another lock than the store's.
        Asleep = "not ready to run",
        /// The job's calls of the store took longer.
        Data = "store access",
        /// The job's own computation took longer.
        Computation = "computation",
    }
}

impl Cause {
    /// Number of possible causes.
    pub const COUNT: usize = Self::ALL.len();

    /// Whether it is a part of a job's response time.
    pub const fn is_span(self) -> bool {
        !matches!(self, Cause::Skipped | Cause::Unfinished | Cause::NotRun)
    }

    /// Whether the job works meanwhile, in place of waiting.
    pub const fn is_own_work(self) -> bool {
        matches!(self, Cause::Data | Cause::Computation)
    }
}

/// Knowledge of the machine about a job, beside its split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobMeasurements {
    /// Time after the release until the job before ended.
    pub behind: Nanos,
    /// Time ready to run without a core; `None` where unknown, and then all time off the core counts as ready.
    pub ready: Option<Nanos>,
    /// Part of `ready` in which real-time threads were kept off the core.
    pub throttled: Nanos,
    /// Time for which the process was stopped meanwhile, as a probe measured it.
    pub stopped: Nanos,
    /// Time for which the core was taken from all threads meanwhile, as a probe measured it.
    pub stolen: Nanos,
    /// Pages that had to be read from a disk.
    pub major_faults: u64,
    /// Pages that were there, or had to be filled with zeros.
    pub minor_faults: u64,
    /// Whether commits wait for the medium.
    pub syncs: bool,
}

impl JobMeasurements {
    /// Where the time of a job with this split went, cause by cause; in sum its response time.
    ///
    /// Time off the core in which the thread was not ready goes to page faults where there were any, because the kernel
    /// does not report how long one took. A page fault within a call of the store that waits for the lock or commits
    /// counts as these. Time that was taken from all threads is deducted where the kernel reports no other thread:
    /// first from the time in which the thread was not ready, then from the job's own work, as which most kernels count
    /// it.
    pub fn spans(&self, split: &Split) -> CauseSpans {
        let behind = self.behind.min(split.released_late);
        let off = split.released_late - behind + split.preempted;
        let ready = self.ready.unwrap_or(off).min(off);
        let throttled = self.throttled.min(ready);
        let idle = off - ready;
        let faulted = if self.major_faults > 0 { idle } else { Nanos::ZERO };
        let asleep = idle - faulted;
        // Nothing else in these spans goes on while the process is stopped.
        let of_each = |mut left: Nanos, spans: [Nanos; 5]| {
            spans.map(|span| {
                let of_it = left.min(span);
                left = left - of_it;
                of_it
            })
        };
        let stopped = of_each(self.stopped, [asleep, faulted, split.commit, split.lock, split.data]);
        let [asleep, faulted, committing, locked, data] = {
            let [asleep_stopped, faulted_stopped, commit, lock, data] = stopped;
            [
                asleep - asleep_stopped,
                faulted - faulted_stopped,
                split.commit - commit,
                split.lock - lock,
                split.data - data,
            ]
        };
        let stolen = [asleep, split.computation, data, Nanos::ZERO, Nanos::ZERO];
        let [of_asleep, of_computation, of_data, ..] = of_each(self.stolen, stolen);
        let commit = if self.syncs { Cause::Sync } else { Cause::Commit };
        let mut spans = CauseSpans::default();
        for (cause, span) in [
            (Cause::Queue, behind),
            (Cause::Lock, locked),
            (Cause::PageFault, faulted),
            (commit, committing),
            (Cause::Preempted, ready - throttled),
            (Cause::Throttled, throttled),
            (Cause::Stopped, stopped.into_iter().sum()),
            (Cause::Stolen, of_asleep + of_computation + of_data),
            (Cause::Asleep, asleep - of_asleep),
            (Cause::Data, data - of_data),
            (Cause::Computation, split.computation - of_computation),
        ] {
            spans.0[cause as usize] = span;
        }
        spans
    }
}

/// A job's time, cause by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseSpans([Nanos; Cause::COUNT]);

impl CauseSpans {
    /// Time that one cause took.
    pub const fn of(&self, cause: Cause) -> Nanos {
        self.0[cause as usize]
    }

    /// The sum: the response time.
    pub fn response(&self) -> Nanos {
        self.0.iter().copied().sum()
    }

    /// Cause that exceeded its usual time by most, so that the job was late. Of equal ones the earlier in
    /// [`Cause::ALL`].
    ///
    /// Where no job has ended in time yet there is nothing to compare with. Then the cause is the largest span that is
    /// not the job's own work, if the job would have met its `deadline` without all of these; else the largest of all.
    pub fn cause(&self, usual: &Usual, deadline: Nanos) -> Cause {
        let own_work = self.of(Cause::Data) + self.of(Cause::Computation);
        let waits = usual.jobs == 0 && own_work <= deadline;
        let excess = |cause: Cause| self.of(cause).0 as f64 - usual.mean_ns[cause as usize];
        let larger = |best: Cause, cause: Cause| if excess(cause) > excess(best) { cause } else { best };
        let causes = Cause::ALL.into_iter().filter(|cause| cause.is_span());
        let causes = causes.filter(|cause| !(waits && cause.is_own_work()));
        causes.reduce(larger).unwrap_or(Cause::Computation)
    }
}

/// Usual time of each cause in a job that ends in time: the mean over the latest [`Usual::JOBS`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usual {
    mean_ns: [f64; Cause::COUNT],
    /// Number of jobs in the mean, at most [`Usual::JOBS`].
    jobs: u32,
}

impl Usual {
    /// Jobs in the mean: the latest counts 1 / 256, so that the usual times follow the day.
    pub const JOBS: u32 = 256;

    /// Takes a job that ended in time.
    pub fn add(&mut self, spans: &CauseSpans) {
        self.jobs = (self.jobs + 1).min(Self::JOBS);
        for (mean, span) in self.mean_ns.iter_mut().zip(spans.0) {
            *mean += (span.0 as f64 - *mean) / f64::from(self.jobs);
        }
    }

    /// Usual time of `cause`; `None` where no job has ended in time, for causes that take no part of a job's time, and
    /// for [`Cause::Throttled`], [`Cause::Stopped`] and [`Cause::Stolen`]: only late jobs are examined for these, and
    /// jobs in time count them as other causes.
    pub fn of(&self, cause: Cause) -> Option<Nanos> {
        let examined = matches!(cause, Cause::Throttled | Cause::Stopped | Cause::Stolen);
        let known = cause.is_span() && !examined;
        (known && self.jobs > 0).then(|| Nanos(self.mean_ns[cause as usize].round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    const DEADLINE: Nanos = Nanos(100);

    /// A job that usually computes for 60 and reads for 20, and is late for one reason more.
    fn late(known: JobMeasurements, more: [u64; 6]) -> Cause {
        let parts = [0, 0, 0, 20, 60, 0];
        let mut usual = Usual::default();
        (0..3).for_each(|_| usual.add(&JobMeasurements::default().spans(&split(parts))));
        let mut i = 0;
        let late = parts.map(|part| {
            i += 1;
            part + more[i - 1]
        });
        known.spans(&split(late)).cause(&usual, DEADLINE)
    }

    #[test]
    fn each_reason_is_found_by_its_name() {
        let known = JobMeasurements {
            ready: Some(Nanos::ZERO),
            ..JobMeasurements::default()
        };
        let behind = |behind| JobMeasurements {
            behind: Nanos(behind),
            ..known
        };
        let ready = |ready, throttled| JobMeasurements {
            ready: Some(Nanos(ready)),
            throttled: Nanos(throttled),
            ..known
        };
        let read = JobMeasurements {
            major_faults: 3,
            ..known
        };
        let stolen = JobMeasurements {
            stolen: Nanos(10_000),
            ..known
        };
        let durable = JobMeasurements { syncs: true, ..known };
        let halted = JobMeasurements {
            stopped: Nanos(40),
            ..known
        };
        for (known, more, cause) in [
            (behind(40), [40, 0, 0, 0, 0, 0], Cause::Queue),
            (known, [0, 0, 40, 0, 0, 0], Cause::Lock),
            (read, [0, 40, 0, 0, 0, 0], Cause::PageFault),
            (durable, [0, 0, 0, 0, 0, 40], Cause::Sync),
            (known, [0, 0, 0, 0, 0, 40], Cause::Commit),
            (ready(40, 0), [0, 40, 0, 0, 0, 0], Cause::Preempted),
            (JobMeasurements::default(), [0, 40, 0, 0, 0, 0], Cause::Preempted),
            (ready(40, 30), [40, 0, 0, 0, 0, 0], Cause::Throttled),
            (stolen, [0, 40, 0, 0, 0, 0], Cause::Stolen),
            (halted, [0, 40, 0, 0, 0, 0], Cause::Stopped),
            (halted, [0, 0, 40, 0, 0, 0], Cause::Stopped),
            (known, [40, 0, 0, 0, 0, 0], Cause::Asleep),
            (known, [0, 0, 0, 40, 0, 0], Cause::Data),
            (known, [0, 0, 0, 0, 40, 0], Cause::Computation),
        ] {
            assert_eq!(late(known, more), cause, "{known:?} and {more:?}");
        }
    }

    #[test]
    fn without_a_job_in_time_waits_come_first_if_the_work_alone_would_do() {
        let cause = |parts, deadline| {
            let spans = JobMeasurements::default().spans(&split(parts));
            spans.cause(&Usual::default(), Nanos(deadline))
        };
        assert_eq!(cause([0, 5, 30, 40, 55, 0], 100), Cause::Lock);
        assert_eq!(cause([0, 5, 30, 40, 55, 0], 90), Cause::Computation);
    }

    #[test]
    fn what_is_usual_follows_the_latest_jobs() {
        let spans = |computation| JobMeasurements::default().spans(&split([0, 0, 0, 0, computation, 0]));
        let mut usual = Usual::default();
        assert_eq!(usual.of(Cause::Computation), None);
        [10, 20, 30].iter().for_each(|work| usual.add(&spans(*work)));
        assert_eq!(usual.of(Cause::Computation), Some(Nanos(20)), "a plain mean at first");
        (0..100 * Usual::JOBS).for_each(|_| usual.add(&spans(70)));
        assert_eq!(usual.of(Cause::Computation), Some(Nanos(70)));
        assert_eq!(usual.of(Cause::Stolen), None, "not looked for in jobs that end in time");
    }

    fn known() -> impl Strategy<Value = JobMeasurements> {
        let span = || (0u64..1 << 40).prop_map(Nanos);
        let numbers = (span(), prop::option::of(span()), span(), span(), span());
        (numbers, 0u64..3, any::<bool>()).prop_map(
            |((behind, ready, throttled, stopped, stolen), major_faults, syncs)| JobMeasurements {
                behind,
                ready,
                throttled,
                stopped,
                stolen,
                major_faults,
                minor_faults: 0,
                syncs,
            },
        )
    }

    proptest! {
        /// Whatever the machine says of a job: each nanosecond is explained once, and none that was not there.
        #[test]
        fn spans_add_up_to_the_response_time(parts in prop::array::uniform6(0u64..1 << 40), known in known()) {
            let split = split(parts);
            let spans = known.spans(&split);
            prop_assert_eq!(spans.response(), split.response());
            prop_assert_eq!(spans.of(Cause::Skipped), Nanos::ZERO);
        }

        /// No other cause exceeds its usual span by more.
        #[test]
        fn the_cause_is_the_largest_excess(
            in_time in prop::collection::vec((prop::array::uniform6(0u64..1 << 30), known()), 1..5),
            parts in prop::array::uniform6(0u64..1 << 30),
            known in known(),
        ) {
            let mut usual = Usual::default();
            in_time.iter().for_each(|(parts, known)| usual.add(&known.spans(&split(*parts))));
            let spans = known.spans(&split(parts));
            let excess = |cause: Cause| spans.of(cause).0 as f64 - usual.mean_ns[cause as usize];
            let cause = spans.cause(&usual, Nanos(1));
            prop_assert!(Cause::ALL.iter().all(|other| *other == Cause::Skipped || excess(*other) <= excess(cause)));
        }

        /// A span that alone grew is the cause.
        #[test]
        fn the_span_that_grew_is_found(parts in prop::array::uniform6(0u64..1 << 30), grown in 0usize..6, by in 1u64..1 << 30) {
            let known = JobMeasurements { ready: Some(Nanos(u64::MAX)), ..JobMeasurements::default() };
            let mut usual = Usual::default();
            usual.add(&known.spans(&split(parts)));
            let mut more = parts;
            more[grown] += by;
            let expected = [
                Cause::Preempted, Cause::Preempted, Cause::Lock, Cause::Data, Cause::Computation, Cause::Commit,
            ];
            prop_assert_eq!(known.spans(&split(more)).cause(&usual, Nanos(1)), expected[grown]);
        }
    }
}
