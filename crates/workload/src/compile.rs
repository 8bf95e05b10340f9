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
    /// Where a program differs from its task's demand, a sentence each.
    pub notes: Vec<String>,
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
/// Costs vary with what else the machine does; `least` are the lowest measured ones, and `costs` themselves where they
/// do not vary. `least` alone decides what is refused or reduced, so that the answer is the same on a busy machine.
///
/// # Errors
/// [`ImpossibleDemand`] where a task's data time does not even cover its transactions at the least costs, and the task
/// is not to fit itself to the machine ([`Demand::fit`]).
pub fn compile(
    scenario: &Scenario,
    costs: &Costs,
    least: &Costs,
    source_rate: f64,
) -> Result<CompiledScenario, ImpossibleDemand> {
    let mut notes = Vec::new();
    let programs = scenario.tasks.iter().map(|task| {
        let (demand, note) = fitted(task, costs, least)?;
        notes.extend(note);
        Ok(program(&demand, scenario.store.object_bytes, costs))
    });
    let programs = programs.collect::<Result<_, _>>()?;
    Ok(CompiledScenario {
        programs,
        replicas: replicas(scenario, costs, source_rate),
        notes,
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

/// Steps in which rounds and writes are reduced to what fits.
const STEPS: u32 = 100;

impl Costs {
    /// Transactions and writes of `demand`, without its gets, in nanoseconds.
    fn fixed_ns(&self, demand: &Demand) -> f64 {
        let written = match demand.writes {
            0 => 0.0,
            writes => self.write_txn_ns + f64::from(writes) * self.put_ns,
        };
        f64::from(demand.rounds) * self.read_txn_ns + written
    }

    /// Transactions and writes of `demand`, with a get a round.
    fn needed(&self, demand: &Demand) -> Nanos {
        Nanos((self.fixed_ns(demand) + f64::from(demand.rounds) * self.get_ns).ceil() as u64)
    }

    /// Whether the data time of `demand` covers what it needs.
    fn cover(&self, demand: &Demand) -> bool {
        demand.data == Nanos::ZERO || self.needed(demand) <= demand.data
    }
}

/// Demand of `task` that fits the machine, and a note where that is not the task's own or takes longer.
fn fitted(task: &TaskSpec, costs: &Costs, least: &Costs) -> Result<(Demand, Option<String>), ImpossibleDemand> {
    let demand = task.demand;
    let (name, data) = (&task.name, demand.data);
    if costs.cover(&demand) {
        return Ok((demand, None));
    }
    let Demand { rounds, writes, .. } = demand;
    if least.cover(&demand) {
        let needed = costs.needed(&demand);
        let note = format!(
            "task \"{name}\": its data accesses take {needed}, not {data}, because the machine is busy with other work"
        );
        return Ok((demand, Some(note)));
    }
    let reduced = |step: u32| {
        let part = |of: u32| (u64::from(of) * u64::from(step) / u64::from(STEPS)) as u32;
        Demand {
            rounds: part(rounds).max(1),
            writes: part(writes).max(writes.min(1)),
            ..demand
        }
    };
    let mut steps = (0..STEPS).rev().filter(|_| demand.fit).map(reduced);
    if let Some(fits) = steps.find(|demand| least.cover(demand)) {
        let note = format!(
            "task \"{name}\" does {} rounds of {rounds} and {} writes of {writes} in each job: more do not fit into {data} of data accesses on this machine",
            fits.rounds, fits.writes
        );
        return Ok((fits, Some(note)));
    }
    let fit = match demand.fit {
        true => "",
        false => ", or add `fit = true`, which lowers them as far as needed",
    };
    Err(ImpossibleDemand {
        task: name.clone(),
        what: format!(
            "{data} of data accesses do not cover {rounds} transactions and {writes} writes, which cost {} here with one object read in each; raise `data`, or lower `rounds` or `writes`{fit}",
            least.needed(&demand)
        ),
    })
}

/// Program of `demand`: as many gets as its data time allows, at least one a round.
fn program(demand: &Demand, object_bytes: u32, costs: &Costs) -> Program {
    let Demand {
        compute,
        data,
        rounds,
        reads,
        writes,
        fit: _,
    } = *demand;
    let n = f64::from(rounds);
    let gets = ((data.0 as f64 - costs.fixed_ns(demand)) / (n * costs.get_ns))
        .floor()
        .max(1.0);
    let cycles = (compute.as_secs_f64() / n * costs.top.0 as f64).round() as u64;
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
    Program { ops }
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
                fit: false,
            };
            if let Ok((demand, None)) = fitted(&task, &COSTS, &COSTS) {
                let program = program(&demand, 100, &COSTS);
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

    /// The example with little time for data accesses.
    fn hasty(data: Nanos, fit: bool) -> Scenario {
        let mut scenario = example();
        (scenario.tasks[0].demand.data, scenario.tasks[0].demand.fit) = (data, fit);
        scenario
    }

    /// Costs on a machine that is busy with other work.
    fn busy() -> Costs {
        Costs {
            read_txn_ns: COSTS.read_txn_ns * 50.0,
            write_txn_ns: COSTS.write_txn_ns * 50.0,
            ..COSTS
        }
    }

    #[test]
    fn data_time_that_does_not_cover_the_transactions_is_refused_on_a_quiet_and_on_a_busy_machine() {
        let scenario = hasty(Nanos::from_micros(5), false);
        let quiet = compile(&scenario, &COSTS, &COSTS, 275.0).unwrap_err();
        assert_eq!(quiet.task, "analysis");
        assert_eq!(compile(&scenario, &busy(), &COSTS, 275.0), Err(quiet));
    }

    #[test]
    fn a_task_that_fits_a_quiet_machine_runs_on_a_busy_one_and_a_note_says_that_it_takes_longer() {
        let scenario = hasty(Nanos::from_micros(30), false);
        let quiet = compile(&scenario, &COSTS, &COSTS, 275.0).unwrap();
        let beside = compile(&scenario, &busy(), &COSTS, 275.0).unwrap();
        assert_eq!((quiet.notes.len(), beside.notes.len()), (0, 1));
        let gets = |compiled: &CompiledScenario| {
            compiled.programs[0]
                .ops
                .iter()
                .filter(|op| matches!(op, Op::Get { .. }))
                .count()
        };
        assert_eq!((gets(&quiet), gets(&beside)), (4, 4));
    }

    #[test]
    fn a_task_that_is_to_fit_does_fewer_rounds_and_writes_unless_not_even_one_of_each_fits() {
        let slow = busy();
        let mut refused = 0;
        for data in [1, 5, 30, 200, 600, 10_000] {
            let scenario = hasty(Nanos::from_micros(data), true);
            let asked = scenario.tasks[0].demand;
            let Ok(compiled) = compile(&scenario, &slow, &slow, 275.0) else {
                assert!(!slow.cover(&Demand {
                    rounds: 1,
                    writes: 1,
                    ..asked
                }));
                refused += 1;
                continue;
            };
            let (fits, note) = fitted(&scenario.tasks[0], &slow, &slow).unwrap();
            assert_eq!(compiled.notes, Vec::from_iter(note.clone()));
            assert!(fits.rounds >= 1 && fits.writes >= 1, "{fits:?}");
            assert_eq!(note.is_none(), fits == asked);
            assert!(slow.cover(&fits), "{fits:?}");
        }
        assert!((1..5).contains(&refused), "{refused}");
    }
}
