//! Figs. 6 and 16: the share of a core that the daemons use, and the cost of checkpoints for each task.
//!
//! Labels of daemons: `hz`, `tasks`. A slave daemon runs on every core, the master on the first; the share is that of a
//! core at the lowest clock. Labels of checkpoints: `task`. The same frames run with and without a checkpoint.

use punctual_allocation::mapping::{Configuration, Idle};
use punctual_mpsoc::{Daemon, MigrationModel, Mpsoc, PipelineReport, PipelineSim};
use punctual_units::{Nanos, Time};

use super::radio::{TASK_BYTES, WORKERS, mapping, radio_of};
use super::single;
use crate::samples::{Labels, Run, labels as labelled};

/// Frequencies of the daemons, in hertz, and numbers of tasks (Fig. 6).
pub const HERTZ: [u64; 5] = [1, 10, 20, 50, 100];
pub const TASKS: [u64; 2] = [8, 16];
/// The tasks of Fig. 16.
pub const NAMES: [&str; 4] = ["low-pass", "demodulator", "band-pass", "consumer"];
/// `slave` and `master`: share of a core that a daemon uses. `overhead`: share of a task's cycles that checkpoints add.
pub const SERIES: [&str; 3] = ["slave", "master", "overhead"];
const SPAN: Nanos = Nanos::from_secs(10);

pub fn daemon_labels_of(hertz: u64, tasks: u64) -> Labels {
    labelled([("hz", hertz.to_string().as_str()), ("tasks", &tasks.to_string())])
}

fn daemons() -> impl Iterator<Item = (u64, u64)> {
    TASKS.into_iter().flat_map(|tasks| HERTZ.map(|hertz| (hertz, tasks)))
}

pub fn daemon_labels() -> Vec<Labels> {
    daemons().map(|(hertz, tasks)| daemon_labels_of(hertz, tasks)).collect()
}

pub fn daemon_runs(machine: &Mpsoc, seed: u64) -> Vec<Result<Run, String>> {
    let run = |(hertz, tasks): (u64, u64)| {
        let model = machine.daemon;
        let every = Nanos::from_secs_f64(1.0 / hertz as f64);
        let slave = model.slave_cycles + model.slave_cycles_per_task * tasks as f64;
        let master = model.master_cycles + model.master_cycles_per_task * tasks as f64;
        let share = |cycles| {
            let daemon = Daemon { core: 2, every, cycles };
            let report = radio_run(machine, &[daemon], 0.0, seed)?;
            Ok::<f64, String>(report.cores[2].times.daemons.ratio(SPAN))
        };
        Ok(single(
            daemon_labels_of(hertz, tasks),
            [("slave", share(slave)?), ("master", share(master)?)],
        ))
    };
    daemons().map(run).collect()
}

pub fn checkpoint_labels_of(task: &str) -> Labels {
    labelled([("task", task)])
}

pub fn checkpoint_labels() -> Vec<Labels> {
    NAMES.map(checkpoint_labels_of).to_vec()
}

pub fn checkpoint_runs(machine: &Mpsoc, seed: u64) -> Vec<Result<Run, String>> {
    let run = |(number, name): (usize, &str)| {
        // The stage is alone on its core, so that the core's time is the task's.
        let stage = [0, 1, 2, 2 + WORKERS][number];
        let without = alone(machine, stage, 0.0, seed)?;
        let with = alone(machine, stage, machine.checkpoint.cycles, seed)?;
        Ok(single(checkpoint_labels_of(name), [("overhead", with / without - 1.0)]))
    };
    NAMES.into_iter().enumerate().map(run).collect()
}

/// Busy time per step, in seconds, of a stage that has the third core to itself; `more` adds cycles to each step.
fn alone(machine: &Mpsoc, stage: usize, more: f64, seed: u64) -> Result<f64, String> {
    let cores = machine.with_clocks(&[machine.least_mhz]);
    let place = |number: usize| if number == stage { 2 } else { 0 };
    let start = Configuration {
        mapping: punctual_allocation::mapping::Mapping::of((0..WORKERS + 3).map(place)),
        steps: cores.domains.iter().map(|_| 0).collect(),
    };
    let report = simulate(machine, &start, &[], more, seed)?;
    Ok(report.cores[2].times.steps.as_secs_f64() / report.steps[stage].max(1) as f64)
}

fn radio_run(machine: &Mpsoc, daemons: &[Daemon], more: f64, seed: u64) -> Result<PipelineReport, String> {
    let start = Configuration {
        mapping: mapping(WORKERS, 3),
        steps: (0..machine.cores).map(|_| 0).collect(),
    };
    simulate(machine, &start, daemons, more, seed)
}

fn simulate(
    machine: &Mpsoc,
    start: &Configuration,
    daemons: &[Daemon],
    more: f64,
    seed: u64,
) -> Result<PipelineReport, String> {
    let cores = machine.with_clocks(&[machine.least_mhz]);
    let mechanism = MigrationModel {
        cost: machine.replication,
        transfer: Nanos::ZERO,
        boost: false,
    };
    let ground = (cores, Idle::AlwaysOn, machine.thermal);
    let pipeline = radio_of(WORKERS, 14, TASK_BYTES, 0.0, more)?;
    let mut simulated = PipelineSim::new(pipeline, ground, mechanism, start, 450.0, seed).with_daemons(daemons);
    simulated.run_until(Time::ZERO + SPAN);
    Ok(simulated.report())
}
