//! What came of a job: when it was released and finished, and where its time went.

use std::ops::{Add, AddAssign};

use punctual_units::{Nanos, TaskId, Time};
use serde::{Deserialize, Serialize};

/// Where the time of a transaction, or of a whole job, went. The parts add up to the response time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// From release to the first instruction: the scheduler's part.
    pub wait: Nanos,
    /// Waiting for the write permit.
    pub lock: Nanos,
    /// Inside store calls, without lock and commit.
    pub data: Nanos,
    /// Everything else: the job's own computation.
    pub computation: Nanos,
    /// Committing.
    pub commit: Nanos,
}

impl Split {
    /// The sum of all parts: the response time r of the paper.
    pub fn response(&self) -> Nanos {
        self.wait + self.data_response() + self.computation
    }

    /// Time spent inside store calls: the data response time d of the paper.
    pub fn data_response(&self) -> Nanos {
        self.lock + self.data + self.commit
    }
}

impl Add for Split {
    type Output = Split;
    fn add(self, other: Split) -> Split {
        Split {
            wait: self.wait + other.wait,
            lock: self.lock + other.lock,
            data: self.data + other.data,
            computation: self.computation + other.computation,
            commit: self.commit + other.commit,
        }
    }
}

impl AddAssign for Split {
    fn add_assign(&mut self, other: Split) {
        *self = *self + other;
    }
}

/// What came of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// Whose job.
    pub task: TaskId,
    /// Counts up from 0 within the task.
    pub job: u64,
    /// When the job was released.
    pub released: Time,
    /// Relative deadline; none for best-effort jobs.
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

    /// r / D: 1 finishes exactly at its deadline; none without a deadline.
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

    proptest! {
        #[test]
        fn the_parts_add_up_and_ratios_stay_in_range(parts in prop::array::uniform5(0u64..1 << 40), deadline in 1u64..1 << 40) {
            let [wait, lock, data, computation, commit] = parts.map(Nanos);
            let split = Split { wait, lock, data, computation, commit };
            prop_assert_eq!(split.response().0, parts.iter().sum::<u64>());
            let outcome = JobOutcome {
                task: TaskId(0), job: 0, released: Time(7), deadline: Some(Nanos(deadline)), finished: Time(7) + split.response(), split,
            };
            prop_assert!((0.0..=1.0).contains(&outcome.drr()));
            prop_assert_eq!(outcome.tardiness().unwrap() > 1.0, outcome.overrun().is_some());
        }
    }
}
