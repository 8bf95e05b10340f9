//! Figures of tasks that run beside the server in its process, for INFO and the page of figures. The server does not
//! know how the tasks run: their owner leaves values here.

use std::sync::{Mutex, PoisonError};

use crate::metrics::{figure, label};

/// Figures of one task with a deadline, from the end of its start-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskFigures {
    /// Name of the task, as its program gave it.
    pub name: String,
    /// Relative deadline in microseconds.
    pub deadline_us: f64,
    /// Jobs that ended, and releases that were skipped.
    pub jobs: u64,
    /// Number of `jobs` that were late or skipped.
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
    /// Share of updates that the loop admits, 0 to 1.
    pub admitted: f64,
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
    /// Lines of INFO's section `Tasks`.
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut lines = vec![
            ("tasks".to_owned(), self.tasks.len().to_string()),
            ("loop_mode".to_owned(), self.mode.clone()),
            ("admitted_share".to_owned(), format!("{:.3}", self.admitted)),
            (
                "clock_hz".to_owned(),
                self.clock_hz.map_or("none".into(), |hz| hz.to_string()),
            ),
        ];
        for (number, task) in self.tasks.iter().enumerate() {
            let [p50, p99, max] = task.response_us.unwrap_or_default().map(|span| span.ceil() as u64);
            let cause = task.cause.as_deref().map_or("none".into(), plain);
            let told = format!(
                "name={},deadline_us={},jobs={},late={},failed={},skipped={},response_p50_us={p50},response_p99_us={p99},\
                 response_max_us={max},cause={cause}",
                plain(&task.name),
                task.deadline_us.round(),
                task.jobs,
                task.late,
                task.failed,
                task.skipped,
            );
            lines.push((format!("task{number}"), told));
        }
        lines
    }

    /// Appends the figures of the tasks to the page for Prometheus.
    pub fn metrics(&self, page: &mut String) {
        let of = |value: &dyn Fn(&TaskFigures) -> f64| -> Vec<(String, f64)> {
            let tasks = self.tasks.iter();
            let one = |task: &TaskFigures| (format!("{{task=\"{}\"}}", label(task.name.as_bytes())), value(task));
            tasks.map(one).collect()
        };
        let help = "Jobs of a task of this process that ended, and releases that were skipped.";
        figure(page, "task_jobs_total", "counter", help, &of(&|task| task.jobs as f64));
        let help = "Of these, late: ended after the deadline, or skipped.";
        figure(page, "task_late_total", "counter", help, &of(&|task| task.late as f64));
        let help = "Jobs that failed.";
        figure(
            page,
            "task_failed_total",
            "counter",
            help,
            &of(&|task| task.failed as f64),
        );
        let help = "From a job's release to the instant by which it should end.";
        let deadlines = of(&|task| task.deadline_us / 1e6);
        figure(page, "task_deadline_seconds", "gauge", help, &deadlines);
        let mut responses = Vec::new();
        for task in &self.tasks {
            for (quantile, span) in ["0.5", "0.99", "1"].iter().zip(task.response_us.into_iter().flatten()) {
                let name = label(task.name.as_bytes());
                responses.push((format!("{{task=\"{name}\",quantile=\"{quantile}\"}}"), span / 1e6));
            }
        }
        let help = "From a job's release to its end.";
        figure(page, "task_response_seconds", "gauge", help, &responses);
    }
}

/// Makes a text fit into a comma-separated line of INFO.
fn plain(text: &str) -> String {
    text.replace([',', '=', '\r', '\n'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_within_its_part_and_each_figure_has_its_unit() {
        let now = TasksNow {
            mode: "running".into(),
            admitted: 0.5,
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
        let lines = now.lines();
        let (name, told) = &lines[4];
        assert_eq!(name, "task0");
        assert!(
            told.starts_with("name=a_b_c__\"d\",deadline_us=15000,jobs=9,late=2,"),
            "{told}"
        );
        assert!(
            told.ends_with("response_p99_us=201,response_max_us=16000,cause=preempted"),
            "{told}"
        );
        let mut page = String::new();
        now.metrics(&mut page);
        for line in [
            "punctual_task_late_total{task=\"a,b=c\r\\n\\\"d\\\"\"} 2\n",
            "quantile=\"1\"} 0.016\n",
        ] {
            assert!(page.contains(line), "no {line} in {page}");
        }
    }
}
