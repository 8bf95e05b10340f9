//! Requests of a user while a run goes on.

use std::ops::ControlFlow;

use punctual_loop::{DeciderEvent, Event};
use punctual_runtime::FinishedRun;
use punctual_runtime::collector::MARKS_MAX;
use punctual_runtime::report::{Progress, RunMark, UserRequest};
use punctual_scenario::RunRequest;
use punctual_units::Share;
use punctual_workload::TaskGoal;

/// A user that marks each instant at which a run takes requests, and at the first changes the goal of the first task.
pub struct User {
    marks: Vec<RunMark>,
    task: String,
    goal: TaskGoal,
}

impl User {
    pub fn of(request: &RunRequest) -> User {
        User {
            marks: Vec::new(),
            task: request.scenario.tasks[0].name.clone(),
            goal: TaskGoal::Late(Share::clamped(0.2)),
        }
    }

    pub fn watch(&mut self, progress: Progress<'_>) -> ControlFlow<()> {
        if let Progress::Requests(requests) = progress {
            let (t_s, text) = (self.marks.len() as f64, "door".to_string());
            self.marks.push(RunMark { t_s, text });
            requests.extend(self.marks.last().cloned().map(UserRequest::Mark));
            if self.marks.len() == 1 {
                requests.push(UserRequest::Goal(self.task.clone(), self.goal));
            }
        }
        ControlFlow::Continue(())
    }

    /// Checks that the run has all marks, to the last one, and the new goal, which its log has once.
    pub fn check(mut self, finished: &FinishedRun) {
        self.marks.truncate(MARKS_MAX);
        assert_eq!(finished.report.marks, self.marks);
        assert_eq!(finished.report.tasks[0].goal(), self.goal);
        let decisions = finished.log.iter().flat_map(|log| &log.decisions);
        let changes = decisions.filter(|it| match &it.event {
            DeciderEvent::Tasks(event) => matches!(**event, Event::Added { goal, .. } if goal == Some(self.goal)),
            _ => false,
        });
        assert_eq!(changes.count(), 1);
    }
}
