//! Scheduling of a worker and of the stages that it starts.
//!
//! **Problem.** A stage that spins at a real-time priority keeps its core from everything below, and from its equals: a
//! worker of the same priority never runs again, and cannot even be killed, because a killed process dies only where
//! it runs. **Method.** A worker runs one priority above its stages, so it preempts each of them. A stage may raise its
//! own priority, or stay when its worker is gone: therefore the kernel itself kills a process of a stage that computes
//! for long without blocking (`RLIMIT_RTTIME`). A stage that has frames without end blocks briefly now and then
//! ([`Breath`]), so that only one that spins is killed.

use std::time::Duration;

use punctual_platform::linux::thread::{self, REAL_TIME_PRIORITIES, Scheduling, Tid};
use punctual_units::{Nanos, Time};

use super::shared::Segment;

/// Time by which the kernel's limit exceeds the longest time that a stage may compute without blocking: its worker
/// kills it earlier, and counts that.
const KERNEL_LATER: Nanos = Nanos::from_secs(1);
/// Time for which a stage blocks now and then: longer than a wait that the kernel ends at once.
const BREATH: Nanos = Nanos::from_micros(50);

/// Gives the calling worker a priority above that of its stages, which is `asked` or, without it, the one that this
/// process has inherited. Returns the scheduling of the stages; `None`: as this process has.
///
/// Where `asked` is the highest priority that is permitted, the worker gets it, and the stages one less.
pub(super) fn above_stages(asked: Option<u8>) -> Option<Scheduling> {
    let inherited = thread::scheduling(Tid::current()).map_or(0, Scheduling::rank);
    let stages = asked.or_else(|| (inherited > 0).then_some(inherited))?;
    let above = stages.saturating_add(1).min(*REAL_TIME_PRIORITIES.end());
    let worker = [above, stages].into_iter().find(|it| thread::real_time(*it).is_ok())?;
    Some(below(worker))
}

/// Scheduling one below a worker of that priority.
fn below(worker: u8) -> Scheduling {
    match worker - 1 {
        0 => Scheduling::Other { nice: 0 },
        stage => Scheduling::Fifo(stage),
    }
}

/// Settings of the process of a stage, made in that process before it runs the stage's code. Makes system calls only.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageSettings {
    scheduling: Option<Scheduling>,
    limit: Nanos,
}

impl StageSettings {
    pub(super) fn new(shared: &Segment, stage: usize, scheduling: Option<Scheduling>) -> StageSettings {
        let (start, step) = (shared.start_max(stage).0, shared.step_max().0);
        let limit = Nanos(start.saturating_add(step).saturating_add(KERNEL_LATER.0));
        StageSettings { scheduling, limit }
    }

    pub(super) fn set(self) {
        thread::limit_real_time(self.limit);
        if let Some(scheduling) = self.scheduling {
            // A lower priority is never refused.
            let _ = thread::set_scheduling(Tid::current(), scheduling);
        }
    }
}

/// Makes the process of a stage block at least once in every longest time of a step.
#[derive(Debug)]
pub(super) struct Breath {
    every: Nanos,
    last: Time,
}

impl Breath {
    pub(super) fn new(shared: &Segment, now: Time) -> Breath {
        Breath {
            every: shared.step_max(),
            last: now,
        }
    }

    /// The process has waited from `since` to `now`, if the kernel did not end the wait at once.
    pub(super) fn waited(&mut self, since: Time, now: Time) {
        if now.since(since) >= BREATH {
            self.last = now;
        }
    }

    /// Blocks, if the process has not for too long.
    pub(super) fn look(&mut self, now: Time) {
        if now.since(self.last) >= self.every {
            // The kernel's count of time without blocking begins anew with each sleep.
            std::thread::sleep(Duration::from_nanos(BREATH.0));
            self.last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_below_their_worker_at_every_priority() {
        for worker in REAL_TIME_PRIORITIES {
            assert_eq!(below(worker).rank(), worker - 1);
        }
    }
}
