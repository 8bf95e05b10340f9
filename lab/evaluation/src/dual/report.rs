//! The report of a simulation.

use punctual_machine::media::{DeviceReport, MediaDevice};
use punctual_sim::{CoreTimes, Simulation};
use punctual_units::{Clock, Nanos, Time};
use punctual_workload::JobOutcome;

/// Times and counts of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DualReport {
    /// End of the run: the end of the last real-time job, or the limit.
    pub ended: Time,
    /// Outcomes of real-time jobs in the order in which they ended.
    pub jobs: Vec<JobOutcome>,
    /// Number of real-time jobs that had not ended at the limit.
    pub unfinished: usize,
    /// Times of each core by activity.
    pub cores: Vec<CoreTimes>,
    /// Computation time of each task.
    pub computed: Vec<Nanos>,
    /// Number of interactive jobs that ended, for each task.
    pub interactive_jobs: Vec<u64>,
    pub devices: Vec<DeviceReport>,
    /// Write amplification of each device; `None`: not flash.
    pub write_amplification: Vec<Option<f64>>,
    /// Number of requests submitted.
    pub io_begun: u64,
    /// Number of completed requests after which the job continued.
    pub io_ended: u64,
    /// Number of requests for which jobs were waiting at the end.
    pub io_pending: u64,
    /// Time for which some core idled while a job waited that might have run there: zero where scheduling is
    /// work-conserving.
    pub idle_while_ready: Nanos,
}

impl DualReport {
    /// Fills in the figures that `machine` has at its end.
    pub(super) fn of(self, machine: &Simulation) -> DualReport {
        let now = machine.now();
        DualReport {
            ended: now,
            cores: machine.core_times(),
            computed: machine.worked(),
            devices: machine.devices().map(MediaDevice::report).collect(),
            write_amplification: machine.devices().map(MediaDevice::write_amplification).collect(),
            io_begun: machine.requests_begun(),
            io_ended: machine.requests_ended(),
            io_pending: machine.io_pending(),
            idle_while_ready: machine.idle_beside_work(),
            ..self
        }
    }

    /// The time of all cores together.
    fn total(&self) -> Nanos {
        self.ended.since(Time::ZERO) * self.cores.len() as u64
    }

    /// Share of all cores' time in which jobs were computing, in `[0, 1]`: the CPU utilisation, which excludes polling.
    pub fn utilisation(&self) -> f64 {
        self.part(|core| core.working)
    }

    /// Share of all cores' time in which they did nothing, in `[0, 1]`.
    pub fn idle(&self) -> f64 {
        let (total, busy) = (self.total(), self.cores.iter().map(CoreTimes::busy).sum());
        if total == Nanos::ZERO {
            0.0
        } else {
            (total - busy).ratio(total)
        }
    }

    /// Share of all cores' time that `of` selects, in `[0, 1]`; 0 if the run took no time.
    pub fn part(&self, of: impl Fn(&CoreTimes) -> Nanos) -> f64 {
        let total = self.total();
        let part: Nanos = self.cores.iter().map(of).sum();
        if total == Nanos::ZERO { 0.0 } else { part.ratio(total) }
    }
}
