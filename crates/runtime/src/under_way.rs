//! Jobs of real-time tasks that are under way, so that a job past its deadline is reported while it still runs.

use std::collections::VecDeque;

use punctual_loop::Event;
use punctual_units::{Nanos, TaskId, Time};
use punctual_workload::JobProgress;

/// The jobs of each real-time task that were released and are not complete, oldest first. Their number equals the
/// machine's backlog.
#[derive(Clone, Debug)]
pub struct UnderWay {
    tasks: Vec<Task>,
}

#[derive(Clone, Debug, Default)]
struct Task {
    deadline: Option<Nanos>,
    jobs: VecDeque<(u64, Time)>,
    /// Number of the last job that was reported as overdue.
    told: Option<u64>,
}

impl UnderWay {
    /// Begins with these deadlines, indexed by [`TaskId`]; best-effort tasks have none.
    pub fn new(deadlines: impl IntoIterator<Item = Option<Nanos>>) -> UnderWay {
        let task = |deadline| Task {
            deadline,
            jobs: VecDeque::new(),
            told: None,
        };
        UnderWay {
            tasks: deadlines.into_iter().map(task).collect(),
        }
    }

    /// Adds a task with its deadline; `None`: best effort.
    pub fn watch(&mut self, task: TaskId, deadline: Option<Nanos>) {
        let tasks = self.tasks.len().max(task.index() + 1);
        self.tasks.resize_with(tasks, Task::default);
        self.tasks[task.index()].deadline = deadline;
    }

    /// Records that a job has reached a checkpoint. Where releases are not reported, a job becomes known here.
    pub fn progressed(&mut self, progress: &JobProgress) {
        let known = self.tasks.get(progress.task.index());
        if known.is_some_and(|task| task.jobs.back().is_none_or(|(job, _)| *job < progress.job)) {
            self.released(progress.task, progress.job, progress.released);
        }
    }

    /// Records the release of a job. Best-effort jobs are skipped, because they have no deadline.
    pub fn released(&mut self, task: TaskId, job: u64, at: Time) {
        if let Some(task) = self.tasks.get_mut(task.index())
            && task.deadline.is_some()
        {
            task.jobs.push_back((job, at));
        }
    }

    /// Forgets a job, because it is complete.
    pub fn completed(&mut self, task: TaskId, job: u64) {
        if let Some(task) = self.tasks.get_mut(task.index()) {
            task.jobs.retain(|(released, _)| *released != job);
        }
    }

    /// Finds a task whose oldest job is past its deadline at `now` and was not reported before; each job is reported
    /// once.
    pub fn overdue(&mut self, now: Time) -> Option<Event> {
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
