//! Whether a goal of late jobs can be held at all: what a task's jobs did at the safe setting.
//!
//! At the safe setting (full clock, the least updates that keep data fresh) no law can do more. If more jobs are late
//! there than a goal allows, beyond what chance explains, the goal is out of reach, and the report says what the
//! setting gives.

use punctual_units::{Nanos, Share, TaskId};
use punctual_workload::{JobOutcome, Split, TaskGoal};
use serde::{Deserialize, Serialize};

/// Buckets of the histogram: an eighth of an octave each, from 1/16 of the deadline to 16 times of it.
const BUCKETS: usize = 64;
/// Buckets of an octave.
const PER_OCTAVE: f64 = 8.0;
/// Octaves below the deadline that the first bucket begins at.
const OCTAVES_BELOW: f64 = 4.0;
/// Late jobs at least before a goal counts as out of reach.
const LATE_MIN: u32 = 3;
/// How seldom a goal that can be held may be called out of reach by chance, once for each task and run.
const CHANCE: f64 = 0.001;

/// A goal that the safe setting did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unheld {
    /// Whose.
    pub task: TaskId,
    /// The share of late jobs that was asked for.
    pub asked: Share,
    /// Jobs at the safe setting.
    pub jobs: u32,
    /// Of those, late.
    pub late: u32,
    /// Response time that 99 of a hundred of them kept, to an eighth of an octave above.
    pub p99: Nanos,
    /// The task's deadline.
    pub deadline: Nanos,
    /// Where the time of the late ones went.
    pub split: Split,
}

impl Unheld {
    /// What a user has to know of it, of the task of this name.
    pub fn told(&self, task: &str) -> String {
        format!(
            "goal {} cannot be held: at the safest setting of this controller the p99 of \"{task}\" is {} of its deadline {}, and {} of {} jobs were late there; ask for less, or for a later deadline",
            TaskGoal::Late(self.asked),
            self.p99,
            self.deadline,
            self.late,
            self.jobs
        )
    }
}

/// The jobs of one task that ran at the safe setting from release to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    histogram: [u32; BUCKETS],
    jobs: u32,
    late: u32,
    split: Split,
    deadline: Nanos,
}

impl Default for Reach {
    fn default() -> Reach {
        Reach {
            histogram: [0; BUCKETS],
            jobs: 0,
            late: 0,
            split: Split::default(),
            deadline: Nanos::ZERO,
        }
    }
}

impl Reach {
    pub(crate) fn observe(&mut self, job: &JobOutcome, tardiness: f64) {
        let Some(deadline) = job.deadline else { return };
        self.deadline = deadline;
        self.jobs = self.jobs.saturating_add(1);
        let bucket = &mut self.histogram[bucket(tardiness)];
        *bucket = bucket.saturating_add(1);
        if tardiness > 1.0 {
            self.late = self.late.saturating_add(1);
            self.split += job.split;
        }
    }

    /// What is to be said of a goal of `asked` late jobs, if it was not held.
    pub(crate) fn unheld(&self, task: TaskId, asked: f64) -> Option<Unheld> {
        let expected = asked * f64::from(self.jobs);
        let beyond_chance = self.late >= LATE_MIN && at_least(self.late, expected) < CHANCE;
        beyond_chance.then(|| Unheld {
            task,
            asked: Share::clamped(asked),
            jobs: self.jobs,
            late: self.late,
            p99: self.deadline.scaled(self.quantile(0.99)),
            deadline: self.deadline,
            split: self.split,
        })
    }

    /// The upper edge of the bucket that holds the `part`-quantile, in deadlines.
    fn quantile(&self, part: f64) -> f64 {
        let wanted = part * f64::from(self.jobs);
        let mut seen = 0.0;
        let reached = self.histogram.iter().position(|count| {
            seen += f64::from(*count);
            seen >= wanted
        });
        let above = reached.unwrap_or(BUCKETS - 1) as f64 + 1.0;
        (above / PER_OCTAVE - OCTAVES_BELOW).exp2()
    }
}

/// Which bucket counts jobs of this tardiness; the last one takes all that is beyond.
fn bucket(tardiness: f64) -> usize {
    let eighths = (tardiness.max(f64::MIN_POSITIVE).log2() + OCTAVES_BELOW) * PER_OCTAVE;
    // Casts to integers saturate, and a number that is none becomes 0.
    (eighths as usize).min(BUCKETS - 1)
}

/// The probability that at least `count` of jobs are late where `expected` are on average: Poisson's law.
fn at_least(count: u32, expected: f64) -> f64 {
    let mut term = (-expected).exp();
    let mut below = 0.0;
    for k in 0..count {
        below += term;
        term *= expected / f64::from(k + 1);
    }
    (1.0 - below).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_units::Time;

    fn job(tardiness: f64) -> JobOutcome {
        let deadline = Nanos::from_millis(50);
        let released = Time(0);
        JobOutcome {
            task: TaskId(0),
            job: 0,
            released,
            deadline: Some(deadline),
            finished: released + deadline.scaled(tardiness),
            split: Split::default(),
        }
    }

    #[test]
    fn chance_is_poisson_s() {
        assert!((at_least(0, 1.0) - 1.0).abs() < 1e-12);
        assert!((at_least(1, 1.0) - (1.0 - (-1.0f64).exp())).abs() < 1e-12);
        assert!((at_least(7, 4.8) - 0.2092).abs() < 1e-3, "{}", at_least(7, 4.8));
    }

    #[test]
    fn a_goal_that_the_safe_setting_holds_is_not_complained_about_and_another_is() {
        let mut reach = Reach::default();
        for k in 0..1000 {
            let tardiness = if k % 20 == 0 { 1.3 } else { 0.8 };
            reach.observe(&job(tardiness), tardiness);
        }
        assert_eq!(reach.unheld(TaskId(0), 0.05), None);
        let unheld = reach.unheld(TaskId(0), 0.01).unwrap();
        assert_eq!((unheld.jobs, unheld.late), (1000, 50));
        let p99 = unheld.p99.ratio(unheld.deadline);
        assert!((1.3..=1.3 * 1.1).contains(&p99), "{p99}");
    }
}
