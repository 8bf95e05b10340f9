//! Facts about a job that only its thread can read beside the split: the kernel's statistics of the thread.
//!
//! A late job was ready while another thread had the core, or it was not ready: asleep past its release, or waiting for
//! a page, a device or a lock. Before that, its thread may have been busy with the previous job.

use punctual_platform::linux::run_queue::RunQueue;
use punctual_platform::linux::thread::{PageFaults, Tid};
use punctual_store::permit::WaitedFor;
use punctual_units::{Nanos, Time};
use punctual_workload::{JobMeasurements, JobOutcome};

use crate::causes::SkippedWhile;

/// Facts that a job's thread reports beside its outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobFacts {
    pub(super) known: JobMeasurements,
    /// The job's thread; `None` for a job without a deadline.
    pub(super) thread: Option<Tid>,
    /// The thread for which the job waited longest to write.
    pub(super) waited_for: Option<WaitedFor>,
    /// Whether checkpoints of the job came as forecast, and were not reported.
    pub(super) spared: bool,
}

/// Statistics of a task's thread, read at the end of each of its jobs: two system calls, no allocation.
#[derive(Debug)]
pub(super) struct Accounts {
    thread: Tid,
    /// `None` if the kernel keeps no such statistics.
    queue: Option<RunQueue>,
    /// Total time for which the thread had waited for its core by the end of the previous job.
    waited: Nanos,
    faults: PageFaults,
    /// End of the previous job.
    ended: Time,
    syncs: bool,
}

impl Accounts {
    /// For the calling thread; `syncs`: its commits wait for the medium.
    pub(super) fn of_this_thread(syncs: bool) -> Accounts {
        let queue = RunQueue::of_this_thread();
        Accounts {
            thread: Tid::current(),
            waited: queue.as_ref().and_then(RunQueue::waited).unwrap_or_default(),
            queue,
            faults: PageFaults::of_this_thread(),
            ended: Time::ZERO,
            syncs,
        }
    }

    /// Why the thread has not run for `span`, after which it runs again: if it was ready for most of it, it had no
    /// core; else its process stood still, or the whole machine.
    pub(super) fn stood_still(&self, span: Nanos) -> SkippedWhile {
        let waited = self.queue.as_ref().and_then(RunQueue::waited);
        match waited.map(|waited| waited.saturating_sub(self.waited)) {
            Some(ready) if ready * 2 < span => SkippedWhile::Stopped,
            _ => SkippedWhile::NotRun,
        }
    }

    /// Returns the facts about a job that has just ended; `waited_for` is the thread that held its lock longest.
    pub(super) fn ended(&mut self, job: &JobOutcome, waited_for: Option<WaitedFor>) -> JobFacts {
        let waited = self.queue.as_ref().and_then(RunQueue::waited);
        let ready = waited.map(|waited| waited.saturating_sub(std::mem::replace(&mut self.waited, waited)));
        let faults = PageFaults::of_this_thread();
        let before = std::mem::replace(&mut self.faults, faults);
        let ended = std::mem::replace(&mut self.ended, job.finished);
        JobFacts {
            known: JobMeasurements {
                behind: ended.since(job.released),
                // Waits before the release are not part of the job: `JobMeasurements::spans` bounds this.
                ready,
                major_faults: faults.major.saturating_sub(before.major),
                minor_faults: faults.minor.saturating_sub(before.minor),
                syncs: self.syncs,
                ..JobMeasurements::default()
            },
            thread: Some(self.thread),
            waited_for,
            spared: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_units::TaskId;
    use punctual_workload::{Cause, Split};

    use super::*;

    #[test]
    fn a_job_is_behind_the_one_before_then_ready_and_asleep_for_the_rest() {
        let split = Split {
            released_late: Nanos(5_000),
            preempted: Nanos(2_000),
            computation: Nanos(3_000),
            ..Split::default()
        };
        let job = JobOutcome {
            task: TaskId(0),
            job: 1,
            released: Time(10_000),
            deadline: Some(Nanos(1)),
            finished: Time(10_000) + split.response(),
            split,
        };
        let mut accounts = Accounts::of_this_thread(false);
        accounts.ended = Time(12_000);
        let JobFacts { known, thread, .. } = accounts.ended(&job, None);
        assert_eq!((known.behind, thread), (Nanos(2_000), Some(Tid::current())));
        let known = JobMeasurements {
            ready: Some(Nanos(4_000)),
            major_faults: 0,
            ..known
        };
        let spans = known.spans(&split);
        let found = [Cause::Queue, Cause::Preempted, Cause::Asleep].map(|cause| spans.of(cause));
        assert_eq!(found, [Nanos(2_000), Nanos(4_000), Nanos(1_000)]);
        assert_eq!(accounts.ended, job.finished);
    }
}
