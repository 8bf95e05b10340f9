//! Admission to an exclusive core: the test for earliest deadline first, and first fit with that or another test.
//!
//! Under preemptive EDF on one core all deadlines of sporadic tasks hold if and only if for every t > 0 the demand
//! dbf(t) = sum over tasks of max(0, floor((t - D) / T) + 1) C is at most t (S. Baruah, L. Rosier and R. Howell, 1990).
//! It suffices to look within the synchronous busy period, and there only at few points: QPA (F. Zhang and A. Burns,
//! "Schedulability Analysis for Real-Time Systems with EDF Scheduling", IEEE Trans. Computers 2009) walks backwards
//! from its end.

use punctual_units::{CoreId, Nanos};
use thiserror::Error;

use super::budget::{Budget, LOOKS_MAX};

/// Tasks that may be offered for exclusive cores at once.
pub const TASKS_MAX: usize = 1024;
/// Bound on the steps of each of the two iterations; a set that takes more is refused as undecided. A handful is usual;
/// without the bound, a set of utilisation close to 1 with incommensurable periods would hardly end.
const STEPS_MAX: u32 = 100_000;

/// A task that releases jobs at least a period apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sporadic {
    /// The longest time that one job keeps the core: computation and polling.
    pub execution: Nanos,
    /// From a job's release, above 0.
    pub deadline: Nanos,
    /// Least time between two releases, above 0.
    pub period: Nanos,
}

/// Why tasks cannot share a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    /// A period or a deadline of zero.
    #[error("task {task} has a period or a deadline of zero")]
    Zero {
        /// Index of the task in the caller's list.
        task: usize,
    },
    /// The tasks together need more than one core.
    #[error("together they need more than the whole core")]
    Utilisation,
    /// More falls due within a span than fits into it.
    #[error("{demand} of work can fall due within {span}")]
    Demand {
        span: Nanos,
        /// The most work that can fall due within `span`.
        demand: Nanos,
    },
    /// A job can end after its deadline.
    #[error("task {task} can take {response} or more, its deadline is {deadline}")]
    Response {
        /// Index of the task in the caller's list.
        task: usize,
        /// From release to completion.
        response: Nanos,
        deadline: Nanos,
    },
    /// Real-time throttling by the kernel would take the core away for a while.
    #[error("{demand} of work can come up within {span}, of which real-time threads get {runtime}")]
    Throttled {
        /// The most work that can be pending within `span`.
        demand: Nanos,
        /// The period of the throttling.
        span: Nanos,
        /// Time within `span` that the kernel leaves to real-time threads.
        runtime: Nanos,
    },
    /// The execution time of the task's jobs is not known.
    #[error("its execution time is unknown, so it needs a core to itself, and none is free")]
    Unknown,
    /// There are too many tasks already, or no core at all.
    #[error("there is no room for it on any core")]
    NoCore,
    /// The machine has one core.
    #[error("the machine has only one core, which other work needs as well")]
    OnlyCore,
    /// The machine does not keep the core free that the task names.
    #[error("the machine does not keep the core free that the task names")]
    NotGranted,
    /// The test reached its bound of steps.
    #[error("the test did not end within its bound; lower the load or make periods multiples of each other")]
    Undecided,
}

/// Why tasks cannot be placed on the exclusive cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FirstFitError {
    /// The task fits on no core beside the tasks placed before it.
    #[error("task {task} fits on none of the {cores} exclusive cores: {why}; name more cores, or make it shorter")]
    Task {
        /// Index of the task in the caller's list.
        task: usize,
        /// How many exclusive cores there are.
        cores: usize,
        /// Reason on the last of these cores.
        why: Unfit,
    },
    /// There are tasks, and no cores.
    #[error("there are no exclusive cores; name at least one")]
    NoCores,
    /// The list is longer than [`TASKS_MAX`].
    #[error("{0} tasks are more than the {TASKS_MAX} that can be placed")]
    TooMany(usize),
}

impl Sporadic {
    /// Returns the task with `overhead` more in each job, such as its two context switches or the time to take the core
    /// back.
    pub fn with_overhead(self, overhead: Nanos) -> Sporadic {
        Sporadic {
            execution: self.execution + overhead,
            ..self
        }
    }

    /// Share of the core that the task needs, C / T.
    pub fn utilisation(&self) -> f64 {
        self.execution.ratio(self.period)
    }

    /// The key that orders tasks, whatever their order in a list: the shorter deadline first, as for priorities.
    pub(crate) fn order(&self) -> [Nanos; 3] {
        [self.deadline, self.period, self.execution]
    }

    /// Whether the task has a period of 0 (endless releases) or a deadline of 0 (due at once).
    pub(crate) fn is_degenerate(&self) -> bool {
        self.period.0 == 0 || self.deadline.0 == 0
    }

    /// Upper bound on the work of this task's jobs that are both released and due within any span of `t`.
    fn demand(&self, t: u64) -> u128 {
        match t.checked_sub(self.deadline.0) {
            Some(past) => u128::from(past / self.period.0 + 1) * u128::from(self.execution.0),
            None => 0,
        }
    }

    /// The last absolute deadline before `t` where the first release is at 0.
    fn deadline_before(&self, t: u64) -> Option<u64> {
        let past = t.checked_sub(1)?.checked_sub(self.deadline.0)?;
        Some(past / self.period.0 * self.period.0 + self.deadline.0)
    }
}

/// Whether preemptive EDF on one core meets every deadline of `tasks`, whenever their jobs are released.
///
/// # Errors
/// [`Unfit`], with the span in which too much can fall due.
///
/// ```
/// use punctual_cores::{Sporadic, fits};
/// use punctual_units::Nanos;
/// let ms = Nanos::from_millis;
/// let player = Sporadic { execution: ms(18), deadline: ms(41), period: ms(41) };
/// let loop_ = Sporadic { execution: ms(5), deadline: ms(10), period: ms(10) };
/// assert!(fits(&[player, loop_]).is_ok());
/// assert!(fits(&[player, player, loop_]).is_err());
/// ```
pub fn fits(tasks: &[Sporadic]) -> Result<(), Unfit> {
    fits_within(tasks, &Budget::of(LOOKS_MAX))
}

/// [`fits`], as one of several tests that share a budget.
fn fits_within(tasks: &[Sporadic], budget: &Budget) -> Result<(), Unfit> {
    budget.spend(tasks.len())?;
    if let Some(task) = tasks.iter().position(Sporadic::is_degenerate) {
        return Err(Unfit::Zero { task });
    }
    let Some(shortest) = tasks.iter().map(|task| task.deadline.0).min() else {
        return Ok(());
    };
    let busy = busy_period(tasks, budget)?;
    let demand = |t: u64| tasks.iter().map(|task| task.demand(t)).sum::<u128>();
    let before = |t: u64| tasks.iter().filter_map(|task| task.deadline_before(t)).max();
    // QPA, from the last deadline within the busy period down to the shortest relative deadline. The busy period ends
    // with work done, so a deadline at its very end matters as well.
    let mut t = match before(busy.saturating_add(1)) {
        Some(last) => last,
        None => return Ok(()),
    };
    for _ in 0..STEPS_MAX {
        budget.spend(tasks.len())?;
        let due = demand(t);
        if due > u128::from(t) {
            return Err(Unfit::Demand {
                span: Nanos(t),
                demand: Nanos(u64::try_from(due).unwrap_or(u64::MAX)),
            });
        }
        if due <= u128::from(shortest) {
            return Ok(());
        }
        t = match before(t) {
            // due <= t fits into 64 bits.
            _ if due < u128::from(t) => due as u64,
            Some(earlier) => earlier,
            None => return Ok(()),
        };
    }
    Err(Unfit::Undecided)
}

/// Whether `tasks` need more than a core.
pub(crate) fn overloaded(tasks: &[Sporadic]) -> bool {
    tasks.iter().map(Sporadic::utilisation).sum::<f64>() > 1.0 + 1e-12
}

/// The longest stretch for which the core is never idle: all tasks released at once and as often as they may.
fn busy_period(tasks: &[Sporadic], budget: &Budget) -> Result<u64, Unfit> {
    if overloaded(tasks) {
        return Err(Unfit::Utilisation);
    }
    let mut length: u128 = tasks.iter().map(|task| u128::from(task.execution.0)).sum();
    for _ in 0..STEPS_MAX {
        budget.spend(tasks.len())?;
        let work = |task: &Sporadic| length.div_ceil(u128::from(task.period.0)) * u128::from(task.execution.0);
        let next = tasks.iter().map(work).sum::<u128>();
        if next == length {
            return u64::try_from(length).map_err(|_| Unfit::Undecided);
        }
        length = next;
    }
    Err(Unfit::Undecided)
}

/// Puts each task on one of `cores`: the largest utilisation first, on the first core on which it fits beside what is
/// there under earliest deadline first (first fit decreasing). Cores at the end of the list stay free of tasks where
/// few suffice. Returns the core of each task, in the order of `tasks`.
///
/// # Errors
/// [`FirstFitError`]: the first task that fits nowhere, and why.
pub fn first_fit(tasks: &[Sporadic], cores: &[CoreId]) -> Result<Vec<CoreId>, FirstFitError> {
    if tasks.len() > TASKS_MAX {
        return Err(FirstFitError::TooMany(tasks.len()));
    }
    if cores.is_empty() && !tasks.is_empty() {
        return Err(FirstFitError::NoCores);
    }
    let budget = Budget::of(LOOKS_MAX);
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    // Ties keep the order of the list: the sort is stable.
    order.sort_by(|a, b| tasks[*b].utilisation().total_cmp(&tasks[*a].utilisation()));
    let mut placed = vec![Err(Unfit::NoCore); tasks.len()];
    let mut on_core: Vec<Vec<Sporadic>> = vec![Vec::new(); cores.len()];
    for task in order {
        for (core, there) in cores.iter().zip(&mut on_core) {
            there.push(tasks[task]);
            placed[task] = fits_within(there, &budget).map(|()| *core);
            if placed[task].is_ok() {
                break;
            }
            there.pop();
        }
    }
    let core = |(task, placed): (usize, Result<CoreId, Unfit>)| {
        let cores = cores.len();
        placed.map_err(|why| FirstFitError::Task { task, cores, why })
    };
    placed.into_iter().enumerate().map(core).collect()
}

impl Unfit {
    /// Replaces each task index `task` by `places[task]`, its index in a longer list.
    pub(crate) fn of_places(self, places: &[usize]) -> Unfit {
        match self {
            Unfit::Zero { task } => Unfit::Zero { task: places[task] },
            Unfit::Response {
                task,
                response,
                deadline,
            } => Unfit::Response {
                task: places[task],
                response,
                deadline,
            },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::{horizon, task};
    use proptest::prelude::*;

    /// EDF, unit by unit, all tasks released together and as often as they may: the worst case. Twice the hyperperiod
    /// and the longest deadline are enough to see every miss of a set that does not overload the core.
    fn simulated(tasks: &[Sporadic]) -> bool {
        let Some(horizon) = horizon(tasks) else {
            return false;
        };
        let mut jobs: Vec<(u64, u64)> = Vec::new(); // absolute deadline, left to do
        for now in 0..horizon {
            for task in tasks.iter().filter(|task| now % task.period.0 == 0) {
                jobs.push((now + task.deadline.0, task.execution.0));
            }
            jobs.sort_unstable();
            if let Some(job) = jobs.first_mut() {
                job.1 -= 1;
            }
            jobs.retain(|job| job.1 > 0);
            if jobs.iter().any(|job| job.0 <= now + 1) {
                return false;
            }
        }
        true
    }

    proptest! {
        #[test]
        fn the_test_agrees_with_the_schedule(tasks in prop::collection::vec(task(), 1..4)) {
            prop_assert_eq!(fits(&tasks).is_ok(), simulated(&tasks), "{:?}", fits(&tasks));
        }

        #[test]
        fn every_core_fits_what_is_placed_on_it(tasks in prop::collection::vec(task(), 0..8), cores in 1u32..4) {
            let cores: Vec<CoreId> = (0..cores).map(CoreId).collect();
            if let Ok(placed) = first_fit(&tasks, &cores) {
                for core in &cores {
                    let there: Vec<Sporadic> =
                        tasks.iter().zip(&placed).filter(|(_, on)| *on == core).map(|(t, _)| *t).collect();
                    prop_assert_eq!(fits(&there), Ok(()));
                }
            }
        }

        #[test]
        fn one_core_takes_a_set_that_fits(tasks in prop::collection::vec(task(), 1..4)) {
            let alone = first_fit(&tasks, &[CoreId(3)]).is_ok();
            prop_assert_eq!(alone, fits(&tasks).is_ok());
        }

        #[test]
        fn less_work_never_stops_fitting(tasks in prop::collection::vec(task(), 1..4), which in 0usize..4) {
            if fits(&tasks).is_ok() {
                let mut less = tasks.clone();
                let task = &mut less[which % tasks.len()];
                task.execution = task.execution - Nanos(1);
                prop_assert!(fits(&less).is_ok());
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
        let decided = |looks| fits_within(&tasks, &Budget::of(looks)) != Err(Unfit::Undecided);
        let enough = (0..10_000).find(|looks| decided(*looks)).unwrap();
        assert!(enough > 4, "more than a look at each");
        assert!(decided(enough + 1) && !decided(enough - 1));
        let shared = Budget::of(2 * enough - 1);
        assert_eq!(fits_within(&tasks, &shared), fits(&tasks));
        assert_eq!(fits_within(&tasks, &shared), Err(Unfit::Undecided));
        assert_eq!(fits_within(&tasks, &shared), Err(Unfit::Undecided), "it stays spent");
    }

    #[test]
    fn impossible_tasks_are_refused() {
        let long = Sporadic {
            execution: Nanos(9),
            deadline: Nanos(8),
            period: Nanos(20),
        };
        assert_eq!(
            fits(&[long]),
            Err(Unfit::Demand {
                span: Nanos(8),
                demand: Nanos(9)
            })
        );
        let error = first_fit(&[long], &[CoreId(1)]).unwrap_err();
        assert!(
            matches!(error, FirstFitError::Task { task: 0, cores: 1, .. }),
            "{error}"
        );
        assert_eq!(first_fit(&[long], &[]), Err(FirstFitError::NoCores));
        let endless = Sporadic {
            period: Nanos::ZERO,
            ..long
        };
        assert_eq!(fits(&[endless]), Err(Unfit::Zero { task: 0 }));
    }
}
