//! Figures of tasks that run beside the server in its process, for INFO and the page of figures. The server does not
//! know how the tasks run: their owner leaves values here.

use std::sync::{Mutex, PoisonError};

use punctual_units::Nanos;

use crate::figures::{Figure, FigureValue, figure, or_none, row, section, word};

/// Figures of one task with a deadline, from the end of its start-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskFigures {
    /// Name of the task, as its program gave it.
    pub name: String,
    /// Relative deadline in microseconds.
    pub deadline_us: f64,
    /// Jobs that ended, and releases that were skipped or are overdue.
    pub jobs: u64,
    /// Number of `jobs` that were late or skipped, or are overdue: past their deadline, and their job has not ended.
    pub late: u64,
    /// Jobs that ended with an error.
    pub failed: u64,
    /// Releases without a job; `late` counts them too.
    pub skipped: u64,
    /// Response time that 50, 99 and 100 % of the jobs did not exceed, in microseconds; `None` before the first job.
    pub response_us: Option<[f64; 3]>,
    /// The commonest cause of lateness; `None` without late jobs.
    pub cause: Option<String>,
}

/// State of the tasks and of their control loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TasksNow {
    /// Mode of the loop: `warm-up`, `running`, `fallback`.
    pub mode: String,
    /// Share of updates that the loop admits, 0 to 1; `None`: there are no sensors.
    pub admitted: Option<f64>,
    /// Share of the temporal objects that are fresh, 0 to 1; `None`: not known here, or there are none.
    pub fresh: Option<f64>,
    /// The clock that the loop has set, in hertz; `None`: it sets none.
    pub clock_hz: Option<u64>,
    /// Figures of each task, in the order of INFO.
    pub tasks: Vec<TaskFigures>,
}

/// Holds the latest state, which one thread leaves and others read.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<TasksNow>);

impl Tasks {
    /// Replaces the state by `now`.
    pub fn leave(&self, now: TasksNow) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Returns the state that was left last.
    pub fn now(&self) -> TasksNow {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TasksNow {
    /// The figures: INFO's section `Tasks`, and `task_..` on the page.
    pub fn figures(&self) -> Vec<Figure> {
        let none = || FigureValue::from("none");
        let admitted = |share| FigureValue::Number(share, format!("{share:.3}"));
        let admitted = self.admitted.map_or_else(none, admitted);
        let clock = self.clock_hz.map_or_else(none, FigureValue::from);
        let fresh = self.fresh.map(|fresh| {
            figure(
                "fresh_share",
                fresh,
                "Share of the temporal objects of a run that are fresh",
            )
        });
        let of_all = [
            word("tasks", self.tasks.len()),
            word("loop_mode", self.mode.as_str()),
            figure(
                "admitted_share",
                admitted,
                "Share of the sensor updates that the control loop admits",
            ),
            figure(
                "clock_hz",
                clock,
                "Processor clock: of the last window in a run, as the loop set it in a server",
            )
            .named("clock_hertz"),
        ];
        let of_all = of_all.into_iter().chain(fresh);
        let tasks = self.tasks.iter().enumerate();
        let of_each = tasks.flat_map(|(number, task)| row("Tasks", format!("task{number}"), task.figures()));
        section("Tasks", of_all).chain(of_each).collect()
    }
}

impl TaskFigures {
    #[rustfmt::skip] // a figure a line
    fn figures(&self) -> [Figure; 10] {
        let span = |us: f64| Nanos((us * 1e3).round() as u64);
        let response = |key, place: usize, quantile| {
            let response = self.response_us.map(|responses| span(responses[place]));
            let response = figure(key, response, "Time from a job's release to its end");
            response.named("task_response_seconds").of("task", &self.name).of("quantile", quantile)
        };
        let of = |figure: Figure, name| figure.named(name).of("task", &self.name);
        let jobs = "Jobs of a task of this process that ended, and releases that were skipped or are overdue";
        let deadline = "Time from a job's release to its deadline";
        [
            word("name", self.name.as_str()),
            of(figure("deadline_us", span(self.deadline_us), deadline), "task_deadline_seconds"),
            of(figure("jobs", self.jobs, jobs), "task_jobs_total"),
            of(figure("late", self.late, "Releases whose deadline passed before their job ended, and skipped ones"), "task_late_total"),
            of(figure("failed", self.failed, "Jobs that failed"), "task_failed_total"),
            of(figure("skipped", self.skipped, "Releases without a job"), "task_skipped_total"),
            response("response_p50_us", 0, "0.5"),
            response("response_p99_us", 1, "0.99"),
            response("response_max_us", 2, "1"),
            word("cause", or_none(self.cause.as_ref())),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{info, prometheus};

    #[test]
    fn a_name_stays_within_its_part_and_each_figure_has_its_unit() {
        let now = TasksNow {
            mode: "running".into(),
            admitted: Some(0.5),
            fresh: Some(0.75),
            clock_hz: None,
            tasks: vec![TaskFigures {
                name: "a,b=c\r\n\"d\"".into(),
                deadline_us: 15_000.0,
                jobs: 9,
                late: 2,
                response_us: Some([100.0, 200.4, 16_000.0]),
                cause: Some("preempted".into()),
                ..TaskFigures::default()
            }],
        };
        let info = info(&now.figures(), &[]);
        let task = info.lines().last().unwrap();
        assert!(
            task.starts_with("task0:name=a_b_c__\"d\",deadline_us=15000,jobs=9,late=2,"),
            "{task}"
        );
        assert!(
            task.ends_with("response_p99_us=201,response_max_us=16000,cause=preempted"),
            "{task}"
        );
        let page = prometheus("", &now.figures());
        for line in [
            "punctual_task_late_total{task=\"a,b=c\r\\n\\\"d\\\"\"} 2\n",
            "quantile=\"1\"} 0.016\n",
            "punctual_admitted_share 0.5\n",
            "punctual_fresh_share 0.75\n",
        ] {
            assert!(page.contains(line), "no {line} in {page}");
        }
    }
}
