//! Loads and checkers for the tests of this crate.
#![allow(dead_code)] // each test file uses its part

use punctual_platform::Machine;
use punctual_sim::{MachineModel, Simulation, SimulationEvent, SimulationLoad};
use punctual_store::updates::AdmissionOptions;
use punctual_testing::task_by_hand;
use punctual_units::{Nanos, Share, Time};
use punctual_workload::{
    Arrival, Class, JobOutcome, ObjectSet, Op, Program, Reading, Sensor, SensorStream, TaskSpec, Trace, UpdateMode,
};

pub const PERIOD: Nanos = Nanos::from_millis(100);

/// A trace of which no update arrives within a test.
pub fn silence() -> Trace {
    readings(&[(3_600_000_000_000, 0)])
}

/// Readings at these nanoseconds of these sensors, valid for a second.
pub fn readings(rows: &[(u64, u32)]) -> Trace {
    let sensors = rows.iter().map(|row| row.1).max().map_or(0, |last| last + 1);
    let sensor = Sensor {
        period: Nanos::from_millis(500),
        avi: Nanos::from_secs(1),
    };
    let reading = |&(at, sensor)| Reading {
        at: Nanos(at),
        sensor,
        value: 1.0,
    };
    Trace {
        sensors: vec![sensor; sensors as usize],
        readings: rows.iter().map(reading).collect(),
    }
}

/// A task with a deadline of half a period, released every period.
pub fn real_time(ops: &[Op]) -> (TaskSpec, Program) {
    let deadline = Nanos::from_millis(50);
    let spec = task_by_hand(
        "analysis",
        Class::RealTime { deadline },
        Arrival::Periodic { period: PERIOD },
    );
    (spec, Program { ops: ops.to_vec() })
}

/// A task that never rests, on every other core.
pub fn interferer(ops: &[Op]) -> (TaskSpec, Program) {
    let pauses = Arrival::AfterCompletion {
        pause_min: Nanos::ZERO,
        pause_max: Nanos::from_micros(1),
    };
    let spec = task_by_hand("browse", Class::BestEffort, pauses);
    (spec, Program { ops: ops.to_vec() })
}

pub fn compute(cycles: u64) -> Op {
    Op::Compute { cycles }
}

pub fn get(count: u32) -> Op {
    Op::Get {
        table: ObjectSet::Sensors,
        count,
    }
}

pub fn put(count: u32) -> Op {
    Op::Put { count, bytes: 100 }
}

/// Updates as transactions, no freshness minimum, seed 1.
pub fn load(trace: &Trace, tasks: Vec<(TaskSpec, Program)>) -> SimulationLoad {
    SimulationLoad {
        tasks,
        placement: None,
        stream: SensorStream::new(trace.clone(), 1.0, 1),
        admission: AdmissionOptions {
            minimum_fresh: Share::ZERO,
            ..AdmissionOptions::default()
        },
        update_mode: UpdateMode::Transaction,
        group_commit: Nanos::from_millis(50),
        value_bytes: 64,
        split: None,
        seed: 1,
    }
}

/// The model without a cache: every access goes to memory, so that times are worked out by hand.
pub fn bare(mut model: MachineModel) -> MachineModel {
    model.cache.size_kib = 0.0;
    model
}

/// Two cores and no cache.
pub fn bare_duo() -> MachineModel {
    bare(MachineModel::duo())
}

pub fn machine(model: MachineModel, load: SimulationLoad) -> Simulation {
    Simulation::new(model, load).unwrap()
}

/// Everything that happens until `end`.
pub fn run(machine: &mut Simulation, end: Nanos) -> Vec<SimulationEvent> {
    let end = Time::ZERO + end;
    let events = std::iter::from_fn(|| match machine.run_until(end) {
        SimulationEvent::Reached => None,
        event => Some(event),
    });
    events.collect()
}

/// The real-time jobs that are complete at `end`.
pub fn jobs(machine: &mut Simulation, end: Nanos) -> Vec<JobOutcome> {
    let outcome = |event| match event {
        SimulationEvent::Completed(outcome) if outcome.deadline.is_some() => Some(outcome),
        _ => None,
    };
    run(machine, end).into_iter().filter_map(outcome).collect()
}

pub fn busy(machine: &mut Simulation) -> Vec<Nanos> {
    machine.read().busy().unwrap().to_vec()
}

pub fn energy(machine: &mut Simulation) -> f64 {
    machine.read().energy_j().unwrap()
}

/// Whether two numbers agree to one part in a million.
pub fn alike(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}
