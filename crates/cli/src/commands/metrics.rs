//! Metrics of a run while it goes on, where `--metrics` asks for them, and ports of pages.

use std::net::SocketAddr;

use punctual_files::failure::Failure;
use punctual_runtime::report::{Progress, TaskReport};
use punctual_server::figures::prometheus;
use punctual_server::metrics::{Page, PublishedFigures};
use punctual_server::tasks::{TaskFigures, TasksNow};

/// Binds the port of the page that `asked` asks for, if there is to be one.
///
/// # Errors
/// [`Failure::Input`] if the port is taken, or may not be bound.
pub fn bind(asked: &str, address: Option<SocketAddr>) -> Result<Option<Page>, Failure> {
    let bound = address.map(|address| {
        Page::bind(address)
            .map_err(|error| format!("{asked}: cannot listen at {address}: {error}; name a free port of this machine"))
    });
    bound.transpose().map_err(Failure::of)
}

/// State of a run that a page of metrics shows; without a page nothing is kept.
pub struct RunMetrics {
    page: PublishedFigures<TasksNow>,
    has_sensors: bool,
    now: TasksNow,
}

impl RunMetrics {
    /// Serves the page at a loopback address until this is dropped, and prints its address; without sensors there are
    /// no shares of updates.
    ///
    /// # Errors
    /// As of [`bind`]; [`Failure`] if there is no thread for the page.
    pub fn serve(address: Option<SocketAddr>, has_sensors: bool) -> Result<RunMetrics, Failure> {
        let text = |now: &TasksNow| prometheus("", &now.figures());
        let page = PublishedFigures::serve(bind("metrics", address)?, text);
        let page = page.map_err(|error| Failure::of(format!("metrics: no thread for the page: {error}")))?;
        if let Some(address) = page.address {
            super::print(&format!("figures on http://{address}/metrics\n"))?;
        }
        Ok(RunMetrics {
            page,
            has_sensors,
            now: TasksNow::default(),
        })
    }

    /// Takes news of the run; the page shows them from the next figures of the tasks on: about twice a second, every
    /// 5 s of a simulated run. None come while a model is learnt.
    pub fn see(&mut self, progress: &Progress<'_>) {
        match progress {
            _ if self.page.address.is_none() => {}
            Progress::Sample(sample) => {
                self.now.mode = sample.mode.as_str().into();
                self.now.admitted = self.has_sensors.then_some(sample.admitted_share);
                self.now.fresh = self.has_sensors.then_some(sample.fresh_share);
                self.now.clock_hz = sample.clock_hz;
            }
            Progress::Tasks(tasks) => {
                self.now.tasks = tasks.iter().map(figures_of).collect();
                self.page.publish(|| self.now.clone());
            }
            _ => {}
        }
    }
}

/// Figures of a task for the page and INFO.
pub fn figures_of(task: &TaskReport) -> TaskFigures {
    TaskFigures {
        name: task.name.clone(),
        deadline_us: task.deadline_us,
        jobs: task.jobs,
        late: task.late,
        failed: task.failed,
        skipped: task.skipped,
        response_us: task.response_us.map(|times| [times.p50, times.p99, times.max]),
        cause: task.causes.first().map(|cause| cause.cause.words().into()),
    }
}
