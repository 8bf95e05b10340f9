//! Whether tasks fit on one core under preemptive fixed priorities, which is what Linux runs (`SCHED_FIFO`, sched(7)).
//!
//! Priorities are deadline-monotonic: the shorter the relative deadline the higher, which is optimal where no deadline
//! exceeds its period (J. Leung and J. Whitehead, 1982). A task's jobs run one after the other, so one that outlives
//! its period delays the next; its worst-case response time is then the largest of the jobs in its busy period (K.
//! Tindell, A. Burns and A. Wellings, "An Extendible Approach for Analyzing Fixed Priority Hard Real-Time Tasks",
//! Real-Time Systems 1994, without jitter and blocking):
//!
//! w(q) = (q + 1) C + sum over higher priorities j of ceil(w(q) / T_j) C_j, R = max over q of w(q) - q T, until w(q) <=
//! (q + 1) T.
//!
//! Exact for sporadic tasks that start at any time and do not block each other.

use punctual_units::Nanos;

use super::budget::{Budget, LOOKS_MAX};
use crate::sporadic::{Sporadic, Unfit, overloaded};

/// Real-time throttling (sched(7)): the kernel leaves all real-time threads of a core `runtime` of each `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    pub runtime: Nanos,
    /// The span over which the kernel counts, above 0.
    pub period: Nanos,
}

/// Indices of `tasks` by priority, the highest first; equal deadlines keep the order of the list.
fn by_deadline(tasks: &[Sporadic]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|task| tasks[*task].deadline);
    order
}

/// Whether preemptive deadline-monotonic scheduling on one core meets every deadline of `tasks`, whenever their jobs
/// are released, and never needs more than `bandwidth`, where there is such a bound. Returns each worst-case response
/// time, in the order of `tasks`.
///
/// # Errors
/// [`Unfit`]: the task that could be late, or why the whole set does not fit.
///
/// ```
/// use punctual_cores::{Sporadic, responses};
/// use punctual_units::Nanos;
/// let task = |c, d| Sporadic { execution: Nanos(c), deadline: Nanos(d), period: Nanos(d) };
/// assert_eq!(responses(&[task(3, 12), task(2, 4)], None), Ok(vec![Nanos(7), Nanos(2)]));
/// // Earliest deadline first would meet these; fixed priorities do not.
/// assert!(responses(&[task(2, 4), task(3, 6)], None).is_err());
/// ```
pub fn responses(tasks: &[Sporadic], bandwidth: Option<Bandwidth>) -> Result<Vec<Nanos>, Unfit> {
    responses_below(&[], tasks, bandwidth, &Budget::of(LOOKS_MAX))
}

/// [`responses`] of `tasks` whose priorities are all below those of the tasks `above`, as one of several tests that
/// share a budget.
pub(crate) fn responses_below(
    above: &[Sporadic],
    tasks: &[Sporadic],
    bandwidth: Option<Bandwidth>,
    budget: &Budget,
) -> Result<Vec<Nanos>, Unfit> {
    if let Some(task) = tasks.iter().position(Sporadic::is_degenerate) {
        return Err(Unfit::Zero { task });
    }
    let all = [above, tasks].concat();
    if overloaded(&all) {
        return Err(Unfit::Utilisation);
    }
    let order = by_deadline(tasks);
    let mut responses = vec![Nanos::ZERO; tasks.len()];
    for (rank, task) in order.iter().enumerate() {
        let higher = order[..rank].iter().map(|task| tasks[*task]);
        let higher: Vec<Sporadic> = above.iter().copied().chain(higher).collect();
        let response = response(&tasks[*task], &higher, budget).map_err(|Late(response)| match response {
            Some(response) => Unfit::Response {
                task: *task,
                response,
                deadline: tasks[*task].deadline,
            },
            None => Unfit::Undecided,
        })?;
        responses[*task] = response;
    }
    bandwidth.map_or(Ok(()), |bandwidth| throttled(&all, bandwidth))?;
    Ok(responses)
}

/// A response time beyond the deadline; `None` where the iteration ran out of budget.
struct Late(Option<Nanos>);

fn response(task: &Sporadic, higher: &[Sporadic], budget: &Budget) -> Result<Nanos, Late> {
    let interference = |w: u128| -> u128 {
        let of = |task: &Sporadic| w.div_ceil(u128::from(task.period.0)) * u128::from(task.execution.0);
        higher.iter().map(of).sum()
    };
    let [execution, deadline, period] = [task.execution, task.deadline, task.period].map(|span| u128::from(span.0));
    let mut longest = 0;
    let mut w = execution;
    let mut q = 0;
    loop {
        budget.spend(higher.len() + 1).map_err(|_| Late(None))?;
        let next = (q + 1) * execution + interference(w);
        let response = next - q * period;
        if response > deadline {
            return Err(Late(u64::try_from(response).ok().map(Nanos)));
        }
        if next > w {
            w = next;
            continue;
        }
        longest = longest.max(response);
        if w <= (q + 1) * period {
            // At most the deadline, which has 64 bits.
            return Ok(Nanos(u64::try_from(longest).unwrap_or(u64::MAX)));
        }
        q += 1;
        w = next + execution;
    }
}

/// Refuses a set that throttling could stop. A set whose deadlines hold does at most ceil((P + D) / T) jobs of each
/// task within any span of P: those released within it, and those that were released before and are not due yet. If
/// that work is no more than the runtime, the kernel never steps in. Sufficient, not necessary.
fn throttled(tasks: &[Sporadic], bandwidth: Bandwidth) -> Result<(), Unfit> {
    let within = |task: &Sporadic| {
        let span = u128::from(bandwidth.period.0) + u128::from(task.deadline.0);
        span.div_ceil(u128::from(task.period.0)) * u128::from(task.execution.0)
    };
    let demand = tasks.iter().map(within).sum::<u128>();
    if demand <= u128::from(bandwidth.runtime.0) {
        return Ok(());
    }
    Err(Unfit::Throttled {
        demand: Nanos(u64::try_from(demand).unwrap_or(u64::MAX)),
        span: bandwidth.period,
        runtime: bandwidth.runtime,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::drawn::{horizon, task};

    /// Fixed priorities, unit by unit, all tasks released together and as often as they may, the jobs of a task one
    /// after the other: the longest response of each task over twice the hyperperiod and the longest deadline; `None`
    /// where one is late or the core is overloaded.
    fn simulated(tasks: &[Sporadic]) -> Option<Vec<u64>> {
        let horizon = horizon(tasks)?;
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        order.sort_by_key(|task| (tasks[*task].deadline, *task));
        // For each task, the jobs that wait: when released, and what is left.
        let mut waiting: Vec<std::collections::VecDeque<(u64, u64)>> = vec![Default::default(); tasks.len()];
        let mut worst = vec![0; tasks.len()];
        for now in 0..horizon {
            for (jobs, task) in waiting.iter_mut().zip(tasks) {
                if now % task.period.0 == 0 {
                    jobs.push_back((now, task.execution.0));
                }
            }
            let Some(task) = order.iter().copied().find(|task| !waiting[*task].is_empty()) else {
                continue;
            };
            let job = &mut waiting[task][0];
            job.1 -= 1;
            if job.1 == 0 {
                worst[task] = worst[task].max(now + 1 - job.0);
                waiting[task].pop_front();
            }
        }
        let in_time = worst.iter().zip(tasks).all(|(worst, task)| *worst <= task.deadline.0);
        in_time.then_some(worst)
    }

    proptest! {
        #[test]
        fn the_test_agrees_with_the_schedule(tasks in prop::collection::vec(task(), 1..4)) {
            let told =
                responses(&tasks, None).ok().map(|all| all.iter().map(|response| response.0).collect::<Vec<_>>());
            prop_assert_eq!(told, simulated(&tasks), "{:?}", responses(&tasks, None));
        }

        #[test]
        fn no_task_gains_by_more_work(tasks in prop::collection::vec(task(), 1..4), which in 0usize..4) {
            let mut more = tasks.clone();
            let task = &mut more[which % tasks.len()];
            task.execution += Nanos(1);
            if let Ok(after) = responses(&more, None) {
                let before = responses(&tasks, None).unwrap();
                prop_assert!(before.iter().zip(&after).all(|(before, after)| before <= after));
            }
        }

        /// The kernel's account: no span as long as its period holds more work than the bound that was accepted.
        #[test]
        fn an_accepted_set_is_never_throttled(
            tasks in prop::collection::vec(task(), 1..4),
            runtime in 1u64..40,
            period in 1u64..40,
        ) {
            let bandwidth = Bandwidth { runtime: Nanos(runtime), period: Nanos(period) };
            if responses(&tasks, Some(bandwidth)).is_ok() {
                // Busy units of the worst case, whichever task has them.
                let mut left = 0;
                let busy: Vec<u64> = (0..600u64).map(|now| {
                    left +=
                        tasks.iter().filter(|task| now % task.period.0 == 0).map(|task| task.execution.0).sum::<u64>();
                    let working = left.min(1);
                    left -= working;
                    working
                }).collect();
                for window in busy.windows(period as usize) {
                    prop_assert!(window.iter().sum::<u64>() <= runtime);
                }
            }
        }
    }

    #[test]
    fn what_is_spent_on_one_test_is_missing_to_the_next() {
        // The looks that one test takes are enough for it, and one less is not.
        let task = |execution, period| Sporadic {
            execution: Nanos(execution),
            deadline: Nanos(period),
            period: Nanos(period),
        };
        let tasks = [task(499, 1_000), task(5_000, 10_007)];
        let within = |budget: &Budget| responses_below(&[], &tasks, None, budget);
        let decided = |looks| within(&Budget::of(looks)) != Err(Unfit::Undecided);
        let enough = (0..10_000).find(|looks| decided(*looks)).unwrap();
        assert!(enough > 3, "more than a look at each");
        assert!(decided(enough + 1) && !decided(enough - 1));
        let shared = Budget::of(2 * enough - 1);
        assert_eq!(within(&shared), responses(&tasks, None));
        assert_eq!(within(&shared), Err(Unfit::Undecided));
        assert_eq!(within(&shared), Err(Unfit::Undecided), "it stays spent");
    }

    #[test]
    fn a_task_that_could_be_late_is_named_with_how_late() {
        let task = |c, d, t| Sporadic {
            execution: Nanos(c),
            deadline: Nanos(d),
            period: Nanos(t),
        };
        let tasks = [task(3, 6, 6), task(2, 4, 4)];
        assert_eq!(
            responses(&tasks, None),
            Err(Unfit::Response {
                task: 0,
                response: Nanos(7),
                deadline: Nanos(6)
            })
        );
        // Of two with the same deadline the first one listed comes first.
        assert_eq!(
            responses(&[task(2, 9, 9), task(3, 9, 9)], None),
            Ok(vec![Nanos(2), Nanos(5)])
        );
        let bandwidth = Bandwidth {
            runtime: Nanos(95),
            period: Nanos(100),
        };
        assert_eq!(
            responses(&[task(10, 10, 10)], Some(bandwidth)),
            Err(Unfit::Throttled {
                demand: Nanos(110),
                span: Nanos(100),
                runtime: Nanos(95)
            })
        );
    }
}
