//! What a run was like.

use punctual_sim::media::{Device, DeviceReport};
use punctual_sim::{CoreTimes, Simulation};
use punctual_units::{Clock, Nanos, Time};
use punctual_workload::JobOutcome;

/// What a run was like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// When it ended: with the last real-time job, or at its limit.
    pub ended: Time,
    /// Real-time jobs in the order in which they ended.
    pub jobs: Vec<JobOutcome>,
    /// Real-time jobs that had not ended at the limit.
    pub unfinished: usize,
    /// What each core did.
    pub cores: Vec<CoreTimes>,
    /// Computed for each task.
    pub computed: Vec<Nanos>,
    /// Interactive jobs that ended, of each task.
    pub interactive_jobs: Vec<u64>,
    /// What each device did.
    pub devices: Vec<DeviceReport>,
    /// Of each device that is flash.
    pub write_amplification: Vec<Option<f64>>,
    /// Requests submitted.
    pub io_begun: u64,
    /// Requests whose job went on after them.
    pub io_ended: u64,
    /// Requests that jobs were waiting for at the end.
    pub io_pending: u64,
    /// For how long some core idled while a job waited that might have run there: zero where scheduling is
    /// work-conserving.
    pub idle_while_ready: Nanos,
}

impl Report {
    /// With what `machine` tells at its end.
    pub(super) fn of(self, machine: &Simulation<'_>) -> Report {
        let now = machine.now();
        Report {
            ended: now,
            cores: machine.core_times(),
            computed: machine.worked(),
            devices: machine.devices().iter().map(Device::report).collect(),
            write_amplification: machine.devices().iter().map(Device::write_amplification).collect(),
            io_begun: machine.requests_begun(),
            io_ended: machine.requests_ended(),
            io_pending: machine.io_pending(),
            idle_while_ready: machine.idle_beside_work(),
            ..self
        }
    }

    /// All cores' time.
    fn total(&self) -> Nanos {
        self.ended.since(Time::ZERO) * self.cores.len() as u64
    }

    /// The part of all cores' time in which jobs were computing, in `[0, 1]`: the CPU utilisation that polling does not
    /// add to.
    pub fn utilisation(&self) -> f64 {
        self.part(|core| core.working)
    }

    /// The part of all cores' time in which they did nothing, in `[0, 1]`.
    pub fn idle(&self) -> f64 {
        let (total, busy) = (self.total(), self.cores.iter().map(CoreTimes::busy).sum());
        if total == Nanos::ZERO {
            0.0
        } else {
            (total - busy).ratio(total)
        }
    }

    /// The part of all cores' time that `of` tells, in `[0, 1]`; 0 of no time.
    pub fn part(&self, of: impl Fn(&CoreTimes) -> Nanos) -> f64 {
        let total = self.total();
        let part: Nanos = self.cores.iter().map(of).sum();
        if total == Nanos::ZERO { 0.0 } else { part.ratio(total) }
    }
}
