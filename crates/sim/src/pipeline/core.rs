//! One core: what it does, what it draws, and how warm it is.

use std::collections::VecDeque;

use punctual_units::{Hertz, Nanos, Time};
use serde::{Deserialize, Serialize};

/// How a core warms up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Thermal {
    /// Around the machine, in degrees Celsius.
    pub ambient_celsius: f64,
    /// Kelvin above that for each watt of the core, once they are settled.
    pub kelvin_per_watt: f64,
    /// The time constant, in seconds: 63 % of a change are done after one.
    pub tau_seconds: f64,
}

/// What a core is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// A stage's step.
    Step(usize),
    /// Writing a stage's state.
    Save(usize),
    /// Reading it.
    Restore(usize),
    /// A daemon, by number.
    Daemon(usize),
}

/// Where a core's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Steps of stages.
    pub steps: Nanos,
    /// Moves, on either side.
    pub moves: Nanos,
    /// Daemons.
    pub daemons: Nanos,
}

/// What is told of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreReport {
    /// Energy, in joules.
    pub joules: f64,
    /// The temperature now, in degrees Celsius.
    pub celsius: f64,
    /// The highest one.
    pub peak_celsius: f64,
    /// Where its time went; the rest it was idle.
    pub times: Times,
}

/// A piece of work under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    pub task: Task,
    pub begun: Time,
    pub ends: Time,
}

/// A core.
#[derive(Clone, Debug, Default)]
pub(super) struct Core {
    pub work: Option<Work>,
    /// Moves and daemons that wait, at most one of each stage and daemon.
    pub urgent: VecDeque<(Task, f64)>,
    pub report: CoreReport,
    watts: f64,
    since: Time,
}

/// How long so many cycles take; at least a nanosecond, so that time passes.
pub(super) fn span(cycles: f64, clock: Hertz) -> Nanos {
    Nanos::from_secs_f64(cycles / clock.0 as f64).max(Nanos(1))
}

impl Core {
    pub fn at(ambient: f64) -> Core {
        let mut core = Core::default();
        core.report.celsius = ambient;
        core.report.peak_celsius = ambient;
        core
    }

    pub fn begin(&mut self, task: Task, cycles: f64, clock: Hertz, now: Time) {
        self.work = Some(Work {
            task,
            begun: now,
            ends: now + span(cycles, clock),
        });
    }

    /// The work that has ended by `now`.
    pub fn end(&mut self, now: Time) -> Option<Task> {
        let work = self.work.take_if(|work| work.ends <= now)?;
        let took = work.ends.since(work.begun);
        let times = &mut self.report.times;
        match work.task {
            Task::Step(_) => times.steps += took,
            Task::Save(_) | Task::Restore(_) => times.moves += took,
            Task::Daemon(_) => times.daemons += took,
        }
        Some(work.task)
    }

    /// The work under way goes on at another clock.
    pub fn retune(&mut self, from: Hertz, to: Hertz, now: Time) {
        if let Some(work) = &mut self.work {
            work.ends = now + work.ends.since(now).scaled(from.ratio(to));
        }
    }

    /// From `now` on, so many watts are drawn.
    pub fn draw(&mut self, watts: f64, now: Time, thermal: &Thermal) {
        if watts != self.watts {
            self.settle(now, thermal);
            self.watts = watts;
        }
    }

    /// Energy and temperature up to `now`. The temperature moves towards one value at constant power, so that its
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

    /// Forgets what was, but for the temperature.
    pub fn forget(&mut self, now: Time, thermal: &Thermal) {
        self.settle(now, thermal);
        self.report = CoreReport {
            celsius: self.report.celsius,
            peak_celsius: self.report.celsius,
            ..CoreReport::default()
        };
    }
}
