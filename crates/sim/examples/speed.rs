//! How fast the simulated machine runs: simulated seconds per wall second, for a load like the first paper's on the
//! shipped machine, each sensor update a transaction: with about 50,000 updates a second, and with the paper's periods.
//!
//! `cargo run --release -p punctual-sim --example speed`

use std::time::Instant;

use punctual_platform::Machine;
use punctual_sim::{MachineModel, Simulation, SimulationEvent, SimulationLoad};
use punctual_store::updates::AdmissionOptions;
use punctual_testing::task_by_hand;
use punctual_units::{Nanos, Time};
use punctual_workload::{Arrival, Class, ObjectSet, Op, Program, SensorStream, Trace, UpdateMode};

const SECONDS: u64 = 60;

fn main() -> Result<(), punctual_sim::SimulationError> {
    // 1024 sensors: once with the shipped scenario's order of updates, once with the paper's periods.
    simulate("about 50,000 updates/s", Nanos::from_millis(18), Nanos::from_millis(23))?;
    simulate("the paper's 1 to 10 s", Nanos::from_secs(1), Nanos::from_secs(10))
}

/// Runs a minute with sensors of these periods and prints how long that took.
fn simulate(name: &str, period_min: Nanos, period_max: Nanos) -> Result<(), punctual_sim::SimulationError> {
    let get = Op::Get {
        table: ObjectSet::Sensors,
        count: 500,
    };
    let rounds = [get, Op::Compute { cycles: 3_000_000 }].repeat(4);
    let deadline = Nanos::from_millis(50);
    let period = Nanos::from_millis(100);
    let (pause_min, pause_max) = (Nanos::from_millis(50), Nanos::from_millis(150));
    let program = |ops: &[Op]| Program { ops: ops.to_vec() };
    let analysis = task_by_hand("analysis", Class::RealTime { deadline }, Arrival::Periodic { period });
    let browse = task_by_hand(
        "browse",
        Class::BestEffort,
        Arrival::AfterCompletion { pause_min, pause_max },
    );
    let tasks = vec![(analysis, program(&rounds)), (browse, program(&rounds))];
    let trace = Trace::synthetic(1024, period_min, period_max, Nanos::from_secs(10), 1);
    let load = SimulationLoad {
        tasks,
        placement: None,
        stream: SensorStream::new(trace, 1.0, 1),
        admission: AdmissionOptions::default(),
        update_mode: UpdateMode::Transaction,
        group_commit: Nanos::from_millis(50),
        value_bytes: 64,
        split: None,
        seed: 1,
    };
    let mut machine = Simulation::new(MachineModel::exynos5422_a15(), load)?;
    let end = Time::ZERO + Nanos::from_secs(SECONDS);
    let (mut tardiness, mut jobs) = (0.0, 0u32);

    let begun = Instant::now();
    loop {
        match machine.run_until(end) {
            SimulationEvent::Completed(outcome) => {
                tardiness += outcome.tardiness().unwrap_or(0.0);
                jobs += u32::from(outcome.deadline.is_some());
            }
            SimulationEvent::Reached => break,
            SimulationEvent::Released { .. } | SimulationEvent::Progressed(_) | SimulationEvent::Skipped { .. } => {}
        }
    }
    let wall = begun.elapsed().as_secs_f64();

    let counts = machine.updates().counts();
    println!(
        "{name}: {SECONDS} simulated seconds in {wall:.2} s: {:.0} simulated seconds per wall second",
        SECONDS as f64 / wall
    );
    println!(
        "{} updates offered, {} installed, {} superseded; lost: {}",
        counts.offered,
        counts.installed,
        counts.superseded,
        machine.updates().reconcile().lost,
    );
    println!("{jobs} jobs, mean tardiness {:.3}", tardiness / f64::from(jobs));
    println!("energy {:?} J", machine.read().energy_j());
    Ok(())
}
