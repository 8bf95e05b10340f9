//! Figs. 2 and 7: the cost of a move by the size of the task.
//!
//! A stage between an idle source and an idle sink moves to another core; its freeze is measured in cycles of the
//! lowest clock. Labels: `mechanism` (`replica`, `recreate`), `kib`.

use punctual_allocation::mapping::{Configuration, Idle, Mapping, Move, MoveCost};
use punctual_mpsoc::{MigrationModel, Mpsoc, PipelineModel, PipelineSim, StepCost};
use punctual_pipelines::{EdgeSpec, Graph, StageSpec, WhenFull};
use punctual_units::{Nanos, Time};

use super::single;
use crate::samples::{Labels, Run, labels as labelled};

/// Sizes of tasks, in KiB, in even steps, so that a linear relation shows as a straight line.
pub const KIB: [u64; 8] = [64, 128, 192, 256, 320, 384, 448, 512];
/// The two mechanisms of migration in the paper.
pub const MECHANISMS: [&str; 2] = ["replica", "recreate"];
/// `cycles`: duration of the freeze, in cycles of the lowest clock.
pub const SERIES: [&str; 1] = ["cycles"];

pub fn labels_of(mechanism: &str, kib: u64) -> Labels {
    labelled([("mechanism", mechanism), ("kib", &kib.to_string())])
}

fn planned() -> impl Iterator<Item = (&'static str, u64)> {
    MECHANISMS
        .into_iter()
        .flat_map(|mechanism| KIB.map(|kib| (mechanism, kib)))
}

pub fn labels() -> Vec<Labels> {
    planned().map(|(mechanism, kib)| labels_of(mechanism, kib)).collect()
}

pub fn runs(machine: &Mpsoc, seed: u64) -> Vec<Result<Run, String>> {
    let run = |(mechanism, kib): (&'static str, u64)| {
        let cost = match mechanism {
            "replica" => machine.replication,
            _ => machine.recreated(),
        };
        let cycles = freeze_cycles(machine, cost, kib * 1024, seed)?;
        Ok(single(labels_of(mechanism, kib), [("cycles", cycles)]))
    };
    planned().map(run).collect()
}

fn freeze_cycles(machine: &Mpsoc, cost: MoveCost, bytes: u64, seed: u64) -> Result<f64, String> {
    let cores = machine.with_clocks(&[machine.least_mhz]);
    let pipeline = pipeline(bytes)?;
    let start = Configuration {
        mapping: Mapping::of([0, 1, 0]),
        steps: cores.domains.iter().map(|_| 0).collect(),
    };
    let mechanism = MigrationModel {
        cost,
        transfer: Nanos::ZERO,
        boost: false,
    };
    let ground = (cores, Idle::AlwaysOn, machine.thermal);
    let mut simulated = PipelineSim::new(pipeline, ground, mechanism, &start, 10.0, seed);
    simulated.run_until(Time::ZERO + Nanos::from_millis(50));
    let moved = Move {
        stage: 1,
        from: 1,
        to: 2,
    };
    simulated.order(&[moved], &start.steps);
    simulated.run_until(Time::ZERO + Nanos::from_secs(10));
    let report = simulated.report();
    let freeze = report.freezes.first().ok_or("the move was not made within 10 s")?;
    Ok(freeze.until.since(freeze.from).as_secs_f64() * machine.least_mhz as f64 * 1e6)
}

/// A stage with `bytes` bytes of state, between a source and a sink.
fn pipeline(bytes: u64) -> Result<PipelineModel, String> {
    let edge = EdgeSpec {
        slots: 4,
        frame_bytes: 64,
        full: WhenFull::Wait,
    };
    let graph = Graph::builder("three")
        .stage(StageSpec::new("source").makes(&[1]))
        .stage(StageSpec::new("moved").takes(&[1]).makes(&[1]).state(bytes as usize))
        .stage(StageSpec::new("sink").takes(&[1]))
        .edge(("source", 0), ("moved", 0), edge)
        .edge(("moved", 0), ("sink", 0), edge)
        .build();
    let cost = StepCost {
        cycles: 1000.0,
        spread: 0.0,
    };
    let graph = graph.map_err(|error| error.to_string())?;
    PipelineModel::new(&graph, vec![cost; 3]).map_err(|error| error.to_string())
}
