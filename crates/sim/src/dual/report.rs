//! What a run was like.

use punctual_units::{Nanos, Time};

use crate::media::DeviceReport;

/// One real-time job that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// Its task, by its place in the list.
    pub task: usize,
    /// Which of the task's jobs, from 0.
    pub job: usize,
    /// When it began: its release.
    pub begun: Time,
    /// When it had to end.
    pub deadline: Time,
    /// When it ended.
    pub ended: Time,
    /// In the ready queue.
    pub waited: Nanos,
    /// Waiting for its I/O, blocked or polling.
    pub io: Nanos,
    /// On a core, in its steps.
    pub computed: Nanos,
    /// Being switched to.
    pub switching: Nanos,
    /// I/O requests.
    pub requests: u32,
}

/// What a core did with its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTimes {
    /// Steps of jobs.
    pub computing: Nanos,
    /// Polling for the end of an I/O.
    pub polling: Nanos,
    /// Changing from one job to another, or being taken back.
    pub switching: Nanos,
    /// Nothing.
    pub idle: Nanos,
}

/// What a run was like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// When it ended: with the last real-time job, or at its limit.
    pub ended: Time,
    /// Real-time jobs in the order in which they ended.
    pub jobs: Vec<JobRecord>,
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
    /// For how long some core idled while a job waited that might have run there: zero where scheduling is work-conserving.
    pub idle_while_ready: Nanos,
}

impl JobRecord {
    /// Whether it ended after its deadline.
    pub fn missed(&self) -> bool {
        self.ended > self.deadline
    }

    /// From its begin to its end.
    pub fn response(&self) -> Nanos {
        self.ended.since(self.begun)
    }
}

impl CoreTimes {
    /// Everything together: how long the run was.
    pub fn total(&self) -> Nanos {
        self.computing + self.polling + self.switching + self.idle
    }
}

impl Report {
    /// The part of all cores' time in which jobs were computing, in `[0, 1]`: the CPU utilisation that polling does not add to.
    pub fn utilisation(&self) -> f64 {
        self.part(|core| core.computing)
    }

    /// The part of all cores' time that `of` tells, in `[0, 1]`; 0 of no time.
    pub fn part(&self, of: impl Fn(&CoreTimes) -> Nanos) -> f64 {
        let total: Nanos = self.cores.iter().map(CoreTimes::total).sum();
        let part: Nanos = self.cores.iter().map(of).sum();
        if total == Nanos::ZERO { 0.0 } else { part.ratio(total) }
    }
}
