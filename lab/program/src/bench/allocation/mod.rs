//! `punctual-lab bench allocation`: the cost of a decision, and the distance of each policy from the optimum.
//!
//! Costs are those of instants that runs of the simulated machine passed to the allocator ([`runs`]), decided again in
//! their order ([`timing`]) beside a control that decides nothing: figures below the control's mean nothing. Nearness
//! is measured at random instants of many more task sets ([`instants`]), the same for every policy.

mod instants;
mod nearness;
mod policies;
mod runs;
mod table;
mod timing;

use punctual_allocation::policy::Exact;
use punctual_allocation::{Objective, Pool, Programs, Share};
use punctual_evaluation::claims::Goal;
use punctual_evaluation::dna::{ProfileSet, shipped};
use serde::Serialize;

use super::series::Interrupt;
use crate::args::AllocationBench;
use crate::profiles;
use instants::Instants;
use nearness::{Nearness, nearness};
use punctual_cli::commands::print;
use punctual_files::failure::Failure;
use punctual_report::output::OutputFile;
use runs::{Bench, CONTROL, DECIDERS, RecordedRun};
use timing::Cost;

/// Utilisation of a core, in reference WCETs: the fifth paper's 2.6 on four cores.
const UTILISATION_OF_A_CORE: f64 = 0.65;
/// Goal: upper bound on the size of all tables, in bytes.
const TABLE_BYTES_MAX: usize = 64 << 20;
/// Goal: least average speed of dna relative to the optimum.
const DNA_OF_EXACT: f64 = 0.97;

/// A machine, and the bounds on a decision's cost there.
struct Setting {
    cores: usize,
    pool: Pool,
    median_us: f64,
    p99_us: f64,
}

const SETTINGS: [Setting; 2] = [
    Setting {
        cores: 4,
        pool: Pool::PAPER,
        median_us: 2.0,
        p99_us: 5.0,
    },
    Setting {
        cores: 8,
        pool: Pool {
            least: Share { ways: 1, partitions: 1 },
            ..Pool::PAPER
        },
        median_us: 20.0,
        p99_us: f64::INFINITY,
    },
];

/// Policies whose costs are judged; the others are only for comparison.
const JUDGED: [&str; 6] = [
    "dna",
    "dadna",
    "exact",
    "dna, hysteresis",
    "dadna, hysteresis",
    "exact, hysteresis",
];

#[derive(Debug, Serialize)]
struct AllocationReport {
    seed: u64,
    rounds: u32,
    machines: Vec<Machine>,
}

#[derive(Debug, Serialize)]
struct Machine {
    profiles: String,
    programs: Vec<String>,
    cores: usize,
    ways: u8,
    partitions: u8,
    least_ways: u8,
    utilisation: f64,
    /// Number of task sets that were run, and seconds during which each released jobs.
    task_sets: usize,
    seconds: f64,
    costs: Vec<CostOf>,
    /// Number of random instants, and of the task sets from which they were drawn.
    instants: usize,
    instants_task_sets: usize,
    nearness: Vec<Nearness>,
    /// Bytes of all tables, after every pair of phases was met.
    table_bytes: usize,
    goals: Vec<Goal>,
}

/// Costs of one policy's decisions.
#[derive(Debug, Serialize)]
struct CostOf {
    name: &'static str,
    is_control: bool,
    /// Number of decisions in its runs.
    decisions: usize,
    /// Number of decisions that changed the split.
    changes: u64,
    #[serde(flatten)]
    cost: Cost,
}

/// Carries out `punctual-lab bench allocation`.
pub fn allocation(arguments: &AllocationBench) -> Result<(), Failure> {
    let output = OutputFile::report(arguments.json.as_ref())?;
    let sets = match &arguments.profiles {
        Some(folder) => profiles::folder(folder)?,
        None => shipped().map_err(|error| Failure::Internal(error.to_string()))?,
    };
    let interrupt = Interrupt::listen()?;
    let mut machines = Vec::new();
    for set in &sets {
        let programs = Programs::new(&set.profiles, Objective::Speed).map_err(Failure::of)?;
        for setting in &SETTINGS {
            machines.push(measured(setting, set, &programs, arguments, &interrupt)?);
        }
    }
    let report = AllocationReport {
        seed: arguments.seed,
        rounds: arguments.repetitions,
        machines,
    };
    print(&table::told(&report))?;
    output.map_or(Ok(()), |file| file.json(&report))
}

fn measured(
    setting: &Setting,
    set: &ProfileSet,
    programs: &Programs,
    arguments: &AllocationBench,
    interrupt: &Interrupt,
) -> Result<Machine, Failure> {
    let Setting { cores, pool, .. } = *setting;
    if pool.grid != programs.grid() {
        let (grid, needed) = (programs.grid(), pool.grid);
        return Err(Failure::of(format!(
            "these profiles are of {} ways and {} partitions, the bounds are for {} and {}: give profiles of such a machine",
            grid.ways, grid.partitions, needed.ways, needed.partitions
        )));
    }
    let utilisation = UTILISATION_OF_A_CORE * cores as f64;
    let bench = Bench::new(set, programs, (cores, pool), utilisation, arguments.seed)?;
    let runs = DECIDERS
        .iter()
        .map(|decider| bench.run(*decider))
        .collect::<Result<Vec<Vec<RecordedRun>>, _>>()?;
    let stopped = "stopped before all was measured; nothing is left behind";
    let costs = timing::measure(programs, &runs, arguments.repetitions, arguments.seed, interrupt)
        .ok_or_else(|| Failure::of(stopped))?;
    let costs: Vec<CostOf> = DECIDERS
        .iter()
        .zip(&runs)
        .zip(costs)
        .map(|((decider, runs), cost)| CostOf {
            name: decider.name,
            is_control: decider.name == CONTROL,
            decisions: runs.iter().map(|run| run.instants.len()).sum(),
            changes: runs.iter().map(|run| run.changes).sum(),
            cost,
        })
        .collect();
    let instants = Instants::draw(programs, pool, cores, utilisation, arguments.seed);
    let mut exact = Exact::new(programs, pool, cores);
    exact.fill(programs);
    let table_bytes = programs.bytes() + exact.bytes();
    let nearness = nearness(programs, pool, exact, &instants);
    Ok(Machine {
        profiles: set.name.clone(),
        programs: set.profiles.iter().map(|profile| profile.name.clone()).collect(),
        cores,
        ways: pool.grid.ways,
        partitions: pool.grid.partitions,
        least_ways: pool.least.ways,
        utilisation,
        task_sets: runs::TASK_SETS,
        seconds: runs::RELEASES.as_secs_f64(),
        instants: instants.len(),
        instants_task_sets: instants.task_sets(),
        goals: goals(setting, &costs, &nearness, table_bytes),
        costs,
        nearness,
        table_bytes,
    })
}

fn goals(setting: &Setting, costs: &[CostOf], nearness: &[Nearness], table_bytes: usize) -> Vec<Goal> {
    let of = |cost: &CostOf| {
        let what = |quantile: &str| format!("{}: {quantile} of a decision, us", cost.name);
        let median = (what("median"), cost.cost.median_ns * 1e-3, setting.median_us);
        [median, (what("p99"), cost.cost.p99_ns * 1e-3, setting.p99_us)]
    };
    let judged = costs.iter().filter(|cost| JUDGED.contains(&cost.name));
    let mb = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let size = ("all tables, MB".into(), mb(table_bytes), mb(TABLE_BYTES_MAX));
    // An infinite bound is no goal.
    let bounded = judged
        .flat_map(of)
        .chain([size])
        .filter(|(.., bound)| bound.is_finite());
    let at_most = |(what, value, bound): (String, f64, f64)| {
        Goal::of(what, format!("{value:.2} (at most {bound})"), value <= bound, None)
    };
    let mut goals: Vec<Goal> = bounded.map(at_most).collect();
    let dna = nearness.iter().find(|nearness| nearness.name == "dna");
    goals.extend(dna.map(|dna| {
        let measured = format!("{:.2} (at least {DNA_OF_EXACT})", dna.of_exact);
        Goal::of("dna: mean of the optimum", measured, dna.of_exact >= DNA_OF_EXACT, None)
    }));
    goals
}

#[cfg(test)]
mod tests;
