//! Turns demands in time into programs in cycles and accesses, for one machine.
//!
//! The user says "14 ms of computation and 14 ms of data accesses at full clock, alone". Only the machine knows how
//! many cycles and how many gets that is: its [`Costs`] are measured at start-up on Linux and come from the machine
//! file in `sim`. The work compiled here stays the same for the whole run, whatever it then costs.

use punctual_units::{Hertz, Nanos};
use serde::{Deserialize, Serialize};

use crate::program::{Op, Program};
use crate::scenario::{Demand, Scenario, TaskSpec, Volume};

/// Costs of store accesses on a machine at full clock with nothing else running; all in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The top clock, by which times become cycles.
    pub top: Hertz,
    /// Beginning and ending a read transaction.
    pub read_txn_ns: f64,
    /// A get inside of a transaction.
    pub get_ns: f64,
    /// Beginning and committing a write transaction.
    pub write_txn_ns: f64,
    /// A put inside of a transaction.
    pub put_ns: f64,
    /// Installing one sensor update, in the update mode of the scenario.
    pub update_ns: f64,
}

/// A scenario made concrete for one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompiledScenario {
    /// Programs of the tasks, in the scenario's order.
    pub programs: Vec<Program>,
    /// How many copies of the sensors stream in.
    pub replicas: u32,
}

/// A demand that no program can meet on this machine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("task \"{task}\": {what}")]
pub struct ImpossibleDemand {
    pub task: String,
    /// Why, and what to change.
    pub what: String,
}

/// Turns `scenario` into programs for a machine with these `costs`; `source_rate` is the readings per second of one
/// copy of the source at speed-up 1.
///
/// # Errors
/// [`ImpossibleDemand`] where a task's data time does not even cover its transactions.
pub fn compile(scenario: &Scenario, costs: &Costs, source_rate: f64) -> Result<CompiledScenario, ImpossibleDemand> {
    let programs = scenario
        .tasks
        .iter()
        .map(|task| program(task, scenario.store.object_bytes, costs))
        .collect::<Result<_, _>>()?;
    Ok(CompiledScenario {
        programs,
        replicas: replicas(scenario, costs, source_rate),
    })
}

/// Replicas so that updates take the wanted share of a core: utilisation = replicas * rate * cost.
fn replicas(scenario: &Scenario, costs: &Costs, source_rate: f64) -> u32 {
    match scenario.sensors.volume {
        Volume::Replicas(replicas) => replicas,
        Volume::Utilisation(utilisation) => {
            let of_one = source_rate * scenario.sensors.speedup * costs.update_ns * 1e-9;
            (utilisation / of_one).round().clamp(1.0, 1000.0) as u32
        }
    }
}

fn program(task: &TaskSpec, object_bytes: u32, costs: &Costs) -> Result<Program, ImpossibleDemand> {
    let Demand {
        compute,
        data,
        rounds,
        reads,
        writes,
    } = task.demand;
    let n = f64::from(rounds);
    let fixed = n * costs.read_txn_ns
        + if writes > 0 {
            costs.write_txn_ns + f64::from(writes) * costs.put_ns
        } else {
            0.0
        };
    let gets = ((data.0 as f64 - fixed) / (n * costs.get_ns)).floor();
    let cycles = (compute.as_secs_f64() / n * costs.top.0 as f64).round() as u64;
    if data > Nanos::ZERO && gets < 1.0 {
        return Err(ImpossibleDemand {
            task: task.name.clone(),
            what: format!(
                "{data} of data accesses do not cover {rounds} transactions and {writes} writes, which cost {} here; raise `data`, or lower `rounds` or `writes`",
                Nanos(fixed as u64)
            ),
        });
    }
    let mut ops = Vec::with_capacity(2 * rounds as usize + 1);
    for _ in 0..rounds {
        if data > Nanos::ZERO {
            ops.push(Op::Get {
                table: reads,
                count: gets.min(f64::from(u32::MAX)) as u32,
            });
        }
        if cycles > 0 {
            ops.push(Op::Compute { cycles });
        }
    }
    if writes > 0 {
        ops.push(Op::Put {
            count: writes,
            bytes: object_bytes,
        });
    }
    Ok(Program { ops })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ObjectSet;
    use crate::scenario::tests::example;
    use proptest::prelude::*;

    const COSTS: Costs = Costs {
        top: Hertz::from_mhz(2000),
        read_txn_ns: 200.0,
        get_ns: 500.0,
        write_txn_ns: 8000.0,
        put_ns: 900.0,
        update_ns: 9000.0,
    };

    /// What a program costs on the machine it was compiled for: the inverse of compiling.
    fn cost_ns(program: &Program) -> (f64, f64) {
        let (mut compute, mut data) = (0.0, 0.0);
        for op in &program.ops {
            match op {
                Op::Get { count, .. } => data += COSTS.read_txn_ns + f64::from(*count) * COSTS.get_ns,
                Op::Put { count, .. } => data += COSTS.write_txn_ns + f64::from(*count) * COSTS.put_ns,
                Op::Compute { cycles } => compute += *cycles as f64 / COSTS.top.0 as f64 * 1e9,
            }
        }
        (compute, data)
    }

    proptest! {
        #[test]
        fn a_compiled_program_costs_what_was_demanded(
            compute_us in 0u64..50_000,
            data_us in 100u64..50_000,
            rounds in 1u32..64,
            writes in 0u32..20,
        ) {
            let mut task = example().tasks[0].clone();
            task.demand = Demand {
                compute: Nanos::from_micros(compute_us), data: Nanos::from_micros(data_us), rounds, reads: ObjectSet::Sensors, writes,
            };
            if let Ok(program) = program(&task, 100, &COSTS) {
                let (compute, data) = cost_ns(&program);
                prop_assert!((compute - task.demand.compute.0 as f64).abs() <= f64::from(rounds));
                // Rounding down loses less than one get a round.
                let short = task.demand.data.0 as f64 - data;
                prop_assert!((-1.0..=f64::from(rounds) * COSTS.get_ns).contains(&short), "short by {short} ns");
            }
        }

        #[test]
        fn replicas_give_the_wanted_utilisation(wanted in 0.05f64..1.0, rate in 100.0f64..500.0) {
            let mut scenario = example();
            scenario.sensors.volume = Volume::Utilisation(wanted);
            scenario.sensors.speedup = 20.0;
            let one = rate * 20.0 * COSTS.update_ns * 1e-9;
            let got = f64::from(replicas(&scenario, &COSTS, rate)) * one;
            prop_assert!((got - wanted).abs() <= one / 2.0 + 1e-9);
        }
    }

    #[test]
    fn data_time_that_does_not_cover_the_transactions_is_refused() {
        let mut scenario = example();
        scenario.tasks[0].demand.data = Nanos::from_micros(5);
        let error = compile(&scenario, &COSTS, 275.0).unwrap_err();
        assert_eq!(error.task, "analysis");
    }
}
