//! Where the thread of a late job was while it was not on its core, by the kernel's account of the thread.
//!
//! It was ready and another thread had the core (`run_queue`), or it was not ready: asleep past its release, waiting
//! for a device or a lock (`asleep`). Before that, it may have been busy with the job before (`behind`). What the
//! hypervisor gave to other guests is told apart: the kernel counts it per core, mostly as time that the thread ran.

use punctual_platform::linux::run_queue::RunQueue;
use punctual_units::{Nanos, Time};
use punctual_workload::JobOutcome;

use crate::figures::OffCore;

/// The account of a task's thread, read at the end of each of its jobs: one system call, no allocation.
#[derive(Debug)]
pub(super) struct Lateness {
    queue: RunQueue,
    /// How long the thread had waited for its core at the end of the job before.
    waited: Nanos,
    /// When that ended.
    ended: Time,
}

impl Lateness {
    /// Of the calling thread; `None` where the kernel keeps no account.
    pub(super) fn of_this_thread() -> Option<Lateness> {
        let queue = RunQueue::of_this_thread()?;
        Some(Lateness {
            waited: queue.waited()?,
            queue,
            ended: Time::ZERO,
        })
    }

    /// Takes the end of a job; where the thread was, if the job is late.
    pub(super) fn ended(&mut self, job: &JobOutcome) -> Option<OffCore> {
        let waited = self.queue.waited()?;
        let waits = waited.saturating_sub(std::mem::replace(&mut self.waited, waited));
        let before = std::mem::replace(&mut self.ended, job.finished);
        job.overrun().map(|_| off_core(job, before, waits))
    }
}

/// Of a job whose thread ended the one before at `before`, and has waited for its core for `waits` since then.
fn off_core(job: &JobOutcome, before: Time, waits: Nanos) -> OffCore {
    let late = job.split.released_late;
    let behind = before.since(job.released).min(late);
    let off = late.saturating_sub(behind) + job.split.preempted;
    // Waits before the release are no part of the job.
    let run_queue = waits.min(off);
    OffCore {
        behind,
        run_queue,
        asleep: off.saturating_sub(run_queue),
        stolen: None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_units::TaskId;
    use punctual_workload::Split;

    use super::*;

    fn job(released: u64, released_late: u64, preempted: u64, computation: u64) -> JobOutcome {
        let split = Split {
            released_late: Nanos(released_late),
            preempted: Nanos(preempted),
            computation: Nanos(computation),
            ..Split::default()
        };
        JobOutcome {
            task: TaskId(0),
            job: 1,
            released: Time(released),
            deadline: Some(Nanos(1)),
            finished: Time(released) + split.response(),
            split,
        }
    }

    #[test]
    fn a_job_is_behind_the_one_before_then_ready_and_asleep_for_the_rest() {
        let told = off_core(&job(10_000, 5_000, 2_000, 3_000), Time(12_000), Nanos(4_000));
        let expected = OffCore {
            behind: Nanos(2_000),
            run_queue: Nanos(4_000),
            asleep: Nanos(1_000),
            stolen: None,
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn only_late_jobs_are_told_of() {
        let Some(mut lateness) = Lateness::of_this_thread() else {
            return eprintln!("skipped: this kernel keeps no account");
        };
        let late = job(10, 5, 0, 5);
        let in_time = JobOutcome {
            deadline: Some(Nanos(1_000)),
            ..late
        };
        assert_eq!(lateness.ended(&in_time), None);
        assert!(lateness.ended(&late).is_some());
    }

    proptest! {
        /// Whatever the kernel says.
        #[test]
        fn the_parts_add_up_to_what_was_not_work(
            released in 0u64..1000, released_late in 0u64..1000, preempted in 0u64..1000, before in 0u64..3000,
            waits in 0u64..3000,
        ) {
            let told = off_core(&job(released, released_late, preempted, 7), Time(before), Nanos(waits));
            let parts = told.behind + told.run_queue + told.asleep;
            prop_assert_eq!(parts, Nanos(released_late + preempted));
        }
    }
}
