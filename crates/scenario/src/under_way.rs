//! Which jobs of real-time tasks are under way, so that one which runs past its deadline is told while it still runs.

use std::collections::VecDeque;

use punctual_loop::Event;
use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::TaskSpec;

/// The jobs of each real-time task that were released and are not complete, oldest first. Their number is that of the machine's
/// backlog.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay {
    /// By [`TaskId`].
    tasks: Vec<Task>,
}

#[derive(Clone, Debug)]
struct Task {
    deadline: Option<Nanos>,
    jobs: VecDeque<(u64, Time)>,
    /// The last job that was told to be overdue.
    told: Option<u64>,
}

impl UnderWay {
    pub(crate) fn new(tasks: &[TaskSpec]) -> UnderWay {
        let task = |spec: &TaskSpec| Task {
            deadline: spec.deadline(),
            jobs: VecDeque::new(),
            told: None,
        };
        UnderWay {
            tasks: tasks.iter().map(task).collect(),
        }
    }

    /// A job is released. Best-effort jobs have no deadline to run past.
    pub(crate) fn released(&mut self, task: TaskId, job: u64, at: Time) {
        if let Some(task) = self.tasks.get_mut(task.index())
            && task.deadline.is_some()
        {
            task.jobs.push_back((job, at));
        }
    }

    /// A job is complete.
    pub(crate) fn completed(&mut self, task: TaskId, job: u64) {
        if let Some(task) = self.tasks.get_mut(task.index()) {
            task.jobs.retain(|(released, _)| *released != job);
        }
    }

    /// A task whose oldest job is past its deadline at `now` and was not told to be; each job is told once.
    pub(crate) fn overdue(&mut self, now: Time) -> Option<Event> {
        self.tasks.iter_mut().zip(0..).find_map(|(task, id)| {
            let (job, released) = *task.jobs.front()?;
            let deadline = task.deadline?;
            let new = task.told.is_none_or(|told| told < job) && now > released + deadline;
            new.then(|| {
                task.told = Some(job);
                Event::Overdue {
                    task: TaskId(id),
                    job,
                    released,
                    deadline,
                }
            })
        })
    }
}
