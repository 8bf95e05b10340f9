//! What tasks have come to that run beside the server in its process, for INFO and the page of figures. The server does
//! not know how they run: what looks after them leaves values here.

use std::sync::{Mutex, PoisonError};

use crate::metrics::{figure, label};

/// What one task with a deadline has come to, from the end of its start-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskFigures {
    /// Its name.
    pub name: String,
    /// Its relative deadline in microseconds.
    pub deadline_us: f64,
    /// Jobs that ended, and releases that were skipped.
    pub jobs: u64,
    /// Of these, late.
    pub late: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Releases without a job; they are late.
    pub skipped: u64,
    /// From release to end in microseconds: half of the jobs, 99 of 100 and all took no longer.
    pub response_us: Option<[f64; 3]>,
    /// Why most of the late jobs were late.
    pub cause: Option<String>,
}

/// How tasks and their loop stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TasksNow {
    /// What the loop is doing: `warm-up`, `running`, `fallback`.
    pub mode: String,
    /// The share of updates that it lets in.
    pub admitted: f64,
    /// Where it has set the clock, in hertz.
    pub clock_hz: Option<u64>,
    /// Each task.
    pub tasks: Vec<TaskFigures>,
}

/// The place where that is left.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<TasksNow>);

impl Tasks {
    /// Leaves what is known now.
    pub fn leave(&self, now: TasksNow) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// What was left last.
    pub fn now(&self) -> TasksNow {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TasksNow {
    /// As INFO has it, in its section `Tasks`.
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

    /// As the page of figures has it.
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

/// A text within a line of parts.
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
