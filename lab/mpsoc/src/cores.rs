//! A core of a pipeline: work, energy and temperature.

use std::collections::VecDeque;

use punctual_units::{Hertz, Nanos, Time};

/// Thermal model of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Thermal {
    /// Temperature around the machine, in degrees Celsius.
    pub ambient_celsius: f64,
    /// Settled temperature above ambient, in kelvin per watt of the core.
    pub kelvin_per_watt: f64,
    /// Time constant in seconds: 63 % of a change are done after one.
    pub tau_seconds: f64,
}

/// Kinds of work of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoreTask {
    /// A step of this stage.
    Step(usize),
    /// Writing the state of this stage, on its old core.
    Save(usize),
    /// Reading the state of this stage, on its new core.
    Restore(usize),
    /// A run of this daemon.
    Daemon(usize),
}

/// Working time of a core by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time for steps of stages.
    pub steps: Nanos,
    /// Time for moves, on either side.
    pub moves: Nanos,
    /// Time for runs of daemons.
    pub daemons: Nanos,
}

/// Energy, temperature and times of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreReport {
    /// Energy used, in joules.
    pub joules: f64,
    /// Present temperature, in degrees Celsius.
    pub celsius: f64,
    /// Highest temperature, in degrees Celsius.
    pub peak_celsius: f64,
    /// Working time by kind; the rest of the time the core was idle.
    pub times: Times,
}

/// Work in progress, with its begin and end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RunningTask {
    pub task: CoreTask,
    pub begun: Time,
    pub ends: Time,
}

/// State of one core.
#[derive(Clone, Debug, Default)]
pub(super) struct PipelineCore {
    pub work: Option<RunningTask>,
    /// Migrations of stages and runs of daemons that wait, each with the cycles left; at most one a stage and a daemon.
    pub urgent: VecDeque<(CoreTask, f64)>,
    pub report: CoreReport,
    watts: f64,
    since: Time,
}

/// Time of `cycles` cycles; at least a nanosecond, so that time passes.
pub(super) fn span(cycles: f64, clock: Hertz) -> Nanos {
    Nanos::from_secs_f64(cycles / clock.0 as f64).max(Nanos(1))
}

impl PipelineCore {
    pub fn at(ambient: f64) -> PipelineCore {
        let mut core = PipelineCore::default();
        core.report.celsius = ambient;
        core.report.peak_celsius = ambient;
        core
    }

    pub fn begin(&mut self, task: CoreTask, cycles: f64, clock: Hertz, now: Time) {
        self.work = Some(RunningTask {
            task,
            begun: now,
            ends: now + span(cycles, clock),
        });
    }

    /// Ends the work that is over by `now`, and returns it.
    pub fn end(&mut self, now: Time) -> Option<CoreTask> {
        let work = self.work.take_if(|work| work.ends <= now)?;
        let took = work.ends.since(work.begun);
        let times = &mut self.report.times;
        match work.task {
            CoreTask::Step(_) => times.steps += took,
            CoreTask::Save(_) | CoreTask::Restore(_) => times.moves += took,
            CoreTask::Daemon(_) => times.daemons += took,
        }
        Some(work.task)
    }

    /// Continues the work in progress at another clock.
    pub fn retune(&mut self, from: Hertz, to: Hertz, now: Time) {
        if let Some(work) = &mut self.work {
            work.ends = now + work.ends.since(now).scaled(from.ratio(to));
        }
    }

    /// Sets the power from `now` on, in watts.
    pub fn draw(&mut self, watts: f64, now: Time, thermal: &Thermal) {
        if watts != self.watts {
            self.settle(now, thermal);
            self.watts = watts;
        }
    }

    /// Updates energy and temperature to `now`. At constant power the temperature moves towards one value, so its
    /// highest value lies at either end.
    pub fn settle(&mut self, now: Time, thermal: &Thermal) {
        let seconds = now.since(self.since).as_secs_f64();
        let report = &mut self.report;
        report.joules += self.watts * seconds;
        let settled = thermal.ambient_celsius + thermal.kelvin_per_watt * self.watts;
        report.celsius = settled + (report.celsius - settled) * (-seconds / thermal.tau_seconds).exp();
        report.peak_celsius = report.peak_celsius.max(report.celsius);
        self.since = now;
    }

    /// Clears the report, except for the temperature.
    pub fn forget(&mut self, now: Time, thermal: &Thermal) {
        self.settle(now, thermal);
        self.report = CoreReport {
            celsius: self.report.celsius,
            peak_celsius: self.report.celsius,
            ..CoreReport::default()
        };
    }
}
