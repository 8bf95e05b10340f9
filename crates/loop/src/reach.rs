//! Whether a goal of late jobs is within reach: how late a task's jobs were at the safe setting, and whether the goal
//! was held later.
//!
//! At the safe setting (full clock, the least updates that keep data fresh) no law can do more. If more jobs are late
//! there than a goal allows, beyond what chance explains, the report gives the outcome of the setting.
//! `punctual_workload::late` reports why single jobs were late, with evidence. Both are observations, not forecasts: a
//! machine that was busy at first may be idle later. So the jobs after the last late one of that kind are counted as
//! well, and if they held the goal the report says so.

use punctual_units::{Nanos, Share, TaskId};
use punctual_workload::{JobOutcome, TaskGoal};
use serde::{Deserialize, Serialize};

/// Buckets of the histogram: an eighth of an octave each, from 1/16 of the deadline to 16 times of it.
const BUCKETS: usize = 64;
/// Buckets of an octave.
const PER_OCTAVE: f64 = 8.0;
/// Octaves below the deadline that the first bucket begins at.
const OCTAVES_BELOW: f64 = 4.0;
/// Late jobs at least before a goal counts as out of reach.
const LATE_MIN: u32 = 3;
/// Probability, for each task and run, that a goal that can be held is called out of reach by chance.
const CHANCE: f64 = 0.001;
/// Late jobs that the goal must allow of the later ones, before these can show that it was held: where the goal is just
/// missed, there is one chance in seven that none of them is late.
const LATER_MIN: f64 = 2.0;

/// A goal that the safe setting did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unheld {
    pub task: TaskId,
    /// The share of late jobs that was asked for.
    pub asked: Share,
    /// Jobs at the safe setting.
    pub jobs: u32,
    /// Late jobs among them.
    pub late: u32,
    /// Response time that 99 of a hundred of them kept, to an eighth of an octave above.
    pub p99: Nanos,
    /// Deadline of the task.
    pub deadline: Nanos,
    /// Jobs at any setting after the safe setting was last found not to hold the goal, and the late ones among them;
    /// `None` where they did not hold it.
    pub later: Option<[u32; 2]>,
}

impl Unheld {
    /// Message to the user about the task of this name.
    pub fn told(&self, task: &str) -> String {
        let goal = TaskGoal::Late(self.asked);
        let Unheld {
            late,
            jobs,
            p99,
            deadline,
            ..
        } = self;
        match self.later {
            Some([after, missed]) => format!(
                "goal {goal} of \"{task}\" was missed for a while: at the safest setting {late} of {jobs} jobs were \
                 late, start-up included; it was held later, with {missed} late ones of {after} jobs"
            ),
            None => format!(
                "goal {goal} was not held at the safest setting of this controller: the p99 of \"{task}\" was {p99} \
                 there, its deadline is {deadline}, and {late} of {jobs} jobs were late, start-up included; \
                 ask for less, or for a later deadline"
            ),
        }
    }
}

/// The jobs of one task that ran at the safe setting from release to end, and those after them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    histogram: [u32; BUCKETS],
    jobs: u32,
    /// Late jobs among them.
    late: u32,
    deadline: Nanos,
    /// Jobs at any setting since the safe one was last found not to hold the goal, and the late ones among them.
    later: [u32; 2],
}

impl Default for Reach {
    fn default() -> Reach {
        Reach {
            histogram: [0; BUCKETS],
            jobs: 0,
            late: 0,
            deadline: Nanos::ZERO,
            later: [0; 2],
        }
    }
}

impl Reach {
    /// Counts a complete job of a task that asks for the share `asked` of late jobs; `safe`: the safe setting was in
    /// force from its release to its end.
    pub(crate) fn observe(&mut self, job: &JobOutcome, tardiness: f64, safe: bool, asked: f64) {
        let Some(deadline) = job.deadline else { return };
        let late = tardiness > 1.0;
        let [jobs, missed] = &mut self.later;
        (*jobs, *missed) = (jobs.saturating_add(1), missed.saturating_add(u32::from(late)));
        if !safe {
            return;
        }
        self.deadline = deadline;
        self.jobs = self.jobs.saturating_add(1);
        let bucket = &mut self.histogram[bucket(tardiness)];
        *bucket = bucket.saturating_add(1);
        self.late = self.late.saturating_add(u32::from(late));
        if late && self.beyond_chance(asked) {
            self.later = [0; 2];
        }
    }

    fn beyond_chance(&self, asked: f64) -> bool {
        self.late >= LATE_MIN && at_least(self.late, asked * f64::from(self.jobs)) < CHANCE
    }

    /// Report on a goal of `asked` late jobs, if the safe setting did not hold it.
    pub(crate) fn unheld(&self, task: TaskId, asked: f64) -> Option<Unheld> {
        let [after, missed] = self.later;
        let allowed = asked * f64::from(after);
        let held_later = allowed >= LATER_MIN && f64::from(missed) <= allowed;
        self.beyond_chance(asked).then(|| Unheld {
            task,
            asked: Share::clamped(asked),
            jobs: self.jobs,
            late: self.late,
            p99: self.deadline.scaled(self.quantile(0.99)),
            deadline: self.deadline,
            later: held_later.then_some(self.later),
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

/// Index of the bucket for jobs of this tardiness; the last one takes all that is beyond.
fn bucket(tardiness: f64) -> usize {
    let eighths = (tardiness.max(f64::MIN_POSITIVE).log2() + OCTAVES_BELOW) * PER_OCTAVE;
    // Casts to integers saturate, and NaN becomes 0.
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
    use punctual_workload::Split;

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

    /// Tells `reach` of so many jobs, each `every`-th of which is late.
    fn observe(reach: &mut Reach, jobs: u32, every: u32, safe: bool) {
        for k in 0..jobs {
            let tardiness = if (k + 1) % every == 0 { 1.3 } else { 0.8 };
            reach.observe(&job(tardiness), tardiness, safe, ASKED);
        }
    }

    const ASKED: f64 = 0.01;

    #[test]
    fn a_goal_that_the_safe_setting_holds_is_not_complained_about_and_another_is() {
        let mut reach = Reach::default();
        observe(&mut reach, 1000, 20, true);
        assert_eq!(reach.unheld(TaskId(0), 0.05), None);
        let unheld = reach.unheld(TaskId(0), ASKED).unwrap();
        assert_eq!((unheld.jobs, unheld.late, unheld.later), (1000, 50, None));
        let p99 = unheld.p99.ratio(unheld.deadline);
        assert!((1.3..=1.3 * 1.1).contains(&p99), "{p99}");
        let told = unheld.told("analysis");
        assert!(
            told.contains("was not held") && told.contains("50 of 1000 jobs were late, start-up included"),
            "{told}"
        );
    }

    /// 5 of the first 62 jobs were late, then none: that is history once enough jobs have shown it, at whatever
    /// setting.
    #[test]
    fn what_is_held_later_is_told_as_history() {
        for safe in [true, false] {
            let mut reach = Reach::default();
            observe(&mut reach, 62, 12, true);
            observe(&mut reach, 100, u32::MAX, safe);
            let later = reach.unheld(TaskId(0), ASKED).and_then(|unheld| unheld.later);
            assert_eq!(later, None, "too few to tell");
            observe(&mut reach, 430, u32::MAX, safe);
            let told = reach.unheld(TaskId(0), ASKED).map(|unheld| unheld.told("analysis"));
            assert!(
                told.iter().all(|told| told.contains("was missed for a while")),
                "{told:?}"
            );
            observe(&mut reach, 400, 10, false);
            let told = reach.unheld(TaskId(0), ASKED).map(|unheld| unheld.told("analysis"));
            assert!(told.iter().all(|told| told.contains("was not held")), "{told:?}");
        }
    }
}
