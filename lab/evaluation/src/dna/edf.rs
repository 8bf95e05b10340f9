//! Checks whether one core keeps all deadlines under EDF, by running the schedule.
//!
//! **Method.** Preemptive earliest-deadline-first from a common release at 0, event by event, until the hyperperiod or
//! the horizon has passed, whichever is first. With each job at its WCET and deadlines equal to periods this agrees
//! with the exact test, utilisation at most 1 (Liu and Layland, 1973). With other execution times (from a simulation of
//! phases) it answers a question for which no closed form exists. The fifth paper proposes it as its schedulability
//! analysis (section VI, remarks).
//!
//! **Used** by the experiments' tests: under a split that never changes, the simulated machine must reach the same
//! verdict on every core of a task set.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use punctual_units::{Nanos, Time};

/// A periodic task; each job is due at the next release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Worst-case execution time of a job.
    pub wcet: Nanos,
    /// Time between releases; more than 0.
    pub period: Nanos,
}

/// Verdict on the tasks of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedulability {
    /// Every deadline was kept.
    Schedulable {
        /// Whether a whole hyperperiod was run: then the verdict holds without limit if execution times repeat with it;
        /// else only until the horizon.
        for_ever: bool,
    },
    /// A job was late; the fields name the first.
    Late {
        /// Index of the task, from 0.
        task: usize,
        /// Index of the job among those of its task, from 0.
        job: u64,
    },
}

/// A pending job: deadline, task and number order jobs; the last field is its remaining execution time.
type Job = Reverse<(Time, usize, u64, Nanos)>;

/// Runs `tasks` on one core until a hyperperiod has passed or `horizon`. `execution` returns the execution time of a
/// job of a task: `|task, _| tasks[task].wcet` for the worst case. Every job until `horizon` is simulated, so `horizon`
/// bounds the computation.
///
/// # Panics
/// If a period is 0.
pub fn run(tasks: &[Timing], horizon: Nanos, mut execution: impl FnMut(usize, u64) -> Nanos) -> Schedulability {
    assert!(
        tasks.iter().all(|task| task.period > Nanos::ZERO),
        "a period is more than 0"
    );
    let periods = tasks.iter().map(|task| task.period.0);
    let hyperperiod = periods.fold(1, |whole: u64, period| lcm(whole, period));
    let for_ever = hyperperiod <= horizon.0;
    let end = Time(hyperperiod.min(horizon.0));
    let mut releases: BinaryHeap<Reverse<(Time, usize, u64)>> =
        (0..tasks.len()).map(|task| Reverse((Time(0), task, 0))).collect();
    let mut ready: BinaryHeap<Job> = BinaryHeap::new();
    let mut now = Time(0);
    loop {
        while let Some(&Reverse((at, task, job))) = releases.peek() {
            if at > now || at >= end {
                break;
            }
            releases.pop();
            let next = at + tasks[task].period;
            releases.push(Reverse((next, task, job + 1)));
            ready.push(Reverse((next, task, job, execution(task, job))));
        }
        let release = releases.peek().map(|Reverse((at, ..))| *at).filter(|at| *at < end);
        match (ready.pop(), release) {
            (None, None) => return Schedulability::Schedulable { for_ever },
            (None, Some(at)) => now = at,
            (Some(Reverse((deadline, task, job, left))), release) => {
                let done = now + left;
                match release.filter(|at| *at < done) {
                    Some(at) => {
                        ready.push(Reverse((deadline, task, job, left - at.since(now))));
                        now = at;
                    }
                    None => now = done,
                }
                if now > deadline {
                    return Schedulability::Late { task, job };
                }
            }
        }
    }
}

/// The least common multiple; `u64::MAX` where it does not fit.
fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn worst_case(tasks: &[Timing]) -> Schedulability {
        run(tasks, Nanos(1_000_000), |task, _| tasks[task].wcet)
    }

    proptest! {
        #[test]
        fn at_the_worst_case_it_is_the_utilisation_that_decides(
            tasks in proptest::collection::vec((1_u64..8, 0_usize..6), 1..5),
        ) {
            // Periods that divide 240, so that the hyperperiod is run in whole.
            let tasks: Vec<Timing> = tasks
                .into_iter()
                .map(|(wcet, period)| Timing { wcet: Nanos(wcet), period: Nanos([8, 10, 12, 16, 20, 24][period]) })
                .collect();
            let needed: u64 = tasks.iter().map(|task| task.wcet.0 * 240 / task.period.0).sum();
            let verdict = worst_case(&tasks);
            if needed <= 240 {
                prop_assert_eq!(verdict, Schedulability::Schedulable { for_ever: true });
            } else {
                prop_assert!(matches!(verdict, Schedulability::Late { .. }), "{:?}", verdict);
            }
        }
    }

    #[test]
    fn execution_times_may_come_from_elsewhere() {
        let task = |period| Timing {
            wcet: Nanos(100),
            period: Nanos(period),
        };
        let (tasks, horizon) = ([task(10), task(40)], Nanos(1_000));
        assert_eq!(
            run(&tasks, horizon, |_, _| Nanos(1)),
            Schedulability::Schedulable { for_ever: true }
        );
        let long = |task, job| Nanos(if (task, job) == (0, 3) { 11 } else { 1 });
        assert_eq!(run(&tasks, horizon, long), Schedulability::Late { task: 0, job: 3 });
    }

    #[test]
    fn a_horizon_ends_what_would_run_for_long() {
        let task = |period| Timing {
            wcet: Nanos(1),
            period: Nanos(period),
        };
        let tasks = [task(1_000_003), task(999_983)];
        assert_eq!(
            run(&tasks, Nanos(5_000_000), |task, _| tasks[task].wcet),
            Schedulability::Schedulable { for_ever: false }
        );
    }
}
