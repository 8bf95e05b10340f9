//! A task as tests of admission see it, and why tasks cannot share a core.

use punctual_units::Nanos;
use thiserror::Error;

/// Tasks that may be offered for exclusive cores at once.
pub const TASKS_MAX: usize = 1024;

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
}

/// Whether `tasks` need more than a core.
pub(crate) fn overloaded(tasks: &[Sporadic]) -> bool {
    tasks.iter().map(Sporadic::utilisation).sum::<f64>() > 1.0 + 1e-12
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
