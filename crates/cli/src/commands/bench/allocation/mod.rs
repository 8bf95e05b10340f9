//! `punctual bench allocation`: what a decision costs, and how near each policy comes to the optimum.
//!
//! Decided are instants of many task sets ([`instants`]). Every policy decides in every round, in an order drawn anew,
//! beside one that decides nothing: nothing below its figures means anything. Each decision is of another instant than the
//! one before, so tables are read as they are on a machine whose programs change phase; and once more after the caches
//! were swept, as if the programs had run in between.

mod instants;
mod policies;
mod timing;

use std::fmt::Write;

use punctual_allocation::policy::{Exact, summed};
use punctual_allocation::{Objective, Pool, Programs, Share};
use punctual_experiments::dna::{ProfileSet, shipped};
use serde::Serialize;

use super::columns::columns;
use super::series::Interrupt;
use crate::args::AllocationBench;
use crate::failure::Failure;
use crate::output::Output;
use crate::profiles;
use crate::summary::count;
use instants::Instants;
use policies::Decide;

/// Utilisation of a core, in the reference WCETs: the fifth paper's 2.6 on four.
const UTILISATION_OF_A_CORE: f64 = 0.65;
/// Most bytes that tables may take.
const TABLE_BYTES_MAX: usize = 64 << 20;

/// A machine, and what a decision on it may cost.
struct Setting {
    cores: usize,
    pool: Pool,
    bounds: &'static [Bound],
}

/// What a policy's decision may take: the bounds.
struct Bound {
    policy: &'static str,
    median_us: f64,
    p99_us: f64,
}

const SETTINGS: [Setting; 2] = [
    Setting {
        cores: 4,
        pool: Pool::PAPER,
        bounds: &[
            Bound {
                policy: "dna",
                median_us: 2.0,
                p99_us: 5.0,
            },
            Bound {
                policy: "exact",
                median_us: 2.0,
                p99_us: 5.0,
            },
        ],
    },
    Setting {
        cores: 8,
        pool: Pool {
            least: Share { ways: 1, partitions: 1 },
            ..Pool::PAPER
        },
        bounds: &[
            Bound {
                policy: "dna",
                median_us: 20.0,
                p99_us: f64::INFINITY,
            },
            Bound {
                policy: "exact",
                median_us: 20.0,
                p99_us: f64::INFINITY,
            },
        ],
    },
];

#[derive(Debug, Serialize)]
struct Report {
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
    task_sets: usize,
    instants: usize,
    table_bytes: usize,
    policies: Vec<Figures>,
    bounds: Vec<Kept>,
}

/// What was measured of one policy.
#[derive(Debug, Serialize)]
struct Figures {
    name: &'static str,
    is_control: bool,
    #[serde(flatten)]
    cost: timing::Cost,
    /// Mean of the summed speed over the optimum's; none of the control.
    of_exact: Option<f64>,
    /// The same where it is least.
    of_exact_least: Option<f64>,
}

/// Whether a bound was kept, by the medians and 99th percentiles with caches as they are between decisions.
#[derive(Debug, Serialize)]
struct Kept {
    policy: &'static str,
    median_us_max: f64,
    p99_us_max: Option<f64>,
    kept: bool,
}

/// Carries out `punctual bench allocation`.
pub fn allocation(arguments: &AllocationBench) -> Result<(), Failure> {
    let output = Output::prepare_some(arguments.json.as_ref())?;
    let sets = match &arguments.profiles {
        Some(folder) => profiles::folder(folder)?,
        None => shipped().map_err(|error| Failure::Internal(error.to_string()))?,
    };
    let interrupt = Interrupt::listen()?;
    let mut machines = Vec::new();
    for set in &sets {
        let programs =
            Programs::new(&set.profiles, Objective::Speed).map_err(|error| Failure::input([error.to_string()]))?;
        for setting in &SETTINGS {
            match measured(setting, set, &programs, arguments, &interrupt)? {
                Some(machine) => machines.push(machine),
                None => {
                    return Err(Failure::input([
                        "stopped before all was measured; nothing is left behind",
                    ]));
                }
            }
        }
    }
    let report = Report {
        seed: arguments.seed,
        rounds: arguments.rounds,
        machines,
    };
    super::super::print(&told(&report))?;
    output.map_or(Ok(()), |file| file.json(&report))
}

/// None if the user broke it off.
fn measured(
    setting: &Setting,
    set: &ProfileSet,
    programs: &Programs,
    arguments: &AllocationBench,
    interrupt: &Interrupt,
) -> Result<Option<Machine>, Failure> {
    let Setting { cores, pool, bounds } = *setting;
    if pool.grid != programs.grid() {
        let (grid, needed) = (programs.grid(), pool.grid);
        return Err(Failure::input([format!(
            "these profiles are of {} ways and {} partitions, the bounds are for {} and {}: give profiles of such a machine",
            grid.ways, grid.partitions, needed.ways, needed.partitions
        )]));
    }
    let utilisation = UTILISATION_OF_A_CORE * cores as f64;
    let instants = Instants::draw(programs, pool, cores, utilisation, arguments.seed);
    let mut exact = Exact::new(programs, pool, cores);
    exact.fill(programs);
    let table_bytes = programs.bytes() + exact.bytes();
    let mut policies = policies::all(programs, pool, exact, &instants);
    let cores_of: Vec<_> = instants.iter().collect();
    let Some(costs) = timing::measure(&mut policies, &cores_of, arguments.rounds, arguments.seed, interrupt) else {
        return Ok(None);
    };
    let ratios = ratios(&mut policies, programs, &cores_of);
    let figures: Vec<Figures> = policies
        .iter()
        .zip(costs)
        .zip(ratios)
        .map(|((policy, cost), ratio)| Figures {
            name: policy.name,
            is_control: policy.is_control,
            cost,
            of_exact: ratio.map(|(mean, _)| mean),
            of_exact_least: ratio.map(|(_, least)| least),
        })
        .collect();
    let kept = bounds.iter().map(|bound| kept(bound, &figures)).collect();
    Ok(Some(Machine {
        profiles: set.name.clone(),
        programs: set.profiles.iter().map(|profile| profile.name.clone()).collect(),
        cores,
        ways: pool.grid.ways,
        partitions: pool.grid.partitions,
        least_ways: pool.least.ways,
        task_sets: instants.task_sets(),
        instants: cores_of.len(),
        table_bytes,
        policies: figures,
        bounds: kept,
    }))
}

/// The mean and the least of each policy's summed speed over the optimum's; none of the control.
fn ratios(
    policies: &mut [Decide<'_>],
    programs: &Programs,
    instants: &[instants::Cores<'_>],
) -> Vec<Option<(f64, f64)>> {
    let sums: Vec<Vec<f64>> = policies
        .iter_mut()
        .map(|policy| {
            let sum = |(number, cores): (usize, &instants::Cores<'_>)| {
                summed(programs, cores, &(policy.decide)(number, cores)) as f64
            };
            instants.iter().enumerate().map(sum).collect()
        })
        .collect();
    let exact = policies.iter().position(|policy| policy.name == policies::EXACT);
    let ratio = |(policy, sums_of): (&Decide<'_>, &Vec<f64>)| {
        let best = &sums[exact.filter(|_| !policy.is_control)?];
        // At an instant at which every core rests there is nothing to compare.
        let busy = sums_of.iter().zip(best).filter(|(_, best)| **best > 0.0);
        let ratios: Vec<f64> = busy.map(|(sum, best)| sum / best).collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        Some((mean, ratios.iter().copied().fold(f64::INFINITY, f64::min)))
    };
    policies.iter().zip(&sums).map(ratio).collect()
}

fn kept(bound: &Bound, figures: &[Figures]) -> Kept {
    let within = |figures: &Figures| {
        figures.cost.median_ns <= bound.median_us * 1e3 && figures.cost.one_p99_ns <= bound.p99_us * 1e3
    };
    Kept {
        policy: bound.policy,
        median_us_max: bound.median_us,
        p99_us_max: bound.p99_us.is_finite().then_some(bound.p99_us),
        kept: figures
            .iter()
            .any(|figures| figures.name == bound.policy && within(figures)),
    }
}

fn told(report: &Report) -> String {
    let mut text = format!("{} rounds\n", report.rounds);
    for machine in &report.machines {
        let _ = writeln!(
            text,
            "\nprofiles {} ({}): {} cores, {} ways (at least {}), {} partitions; {} instants of {} task sets of utilisation {:.1}; tables of {:.1} MB (at most {} MB)\n",
            machine.profiles,
            machine.programs.join(", "),
            machine.cores,
            machine.ways,
            machine.least_ways,
            machine.partitions,
            count(machine.instants as u64),
            machine.task_sets,
            UTILISATION_OF_A_CORE * machine.cores as f64,
            machine.table_bytes as f64 / f64::from(1 << 20),
            TABLE_BYTES_MAX >> 20,
        );
        let head = ["", "median", "p99 of one", "swept: median", "p99", "of exact", "least"];
        let mut rows = vec![head.map(String::from).to_vec()];
        rows.extend(machine.policies.iter().map(row));
        text.push_str(&columns(&rows));
        text.push('\n');
        for bound in &machine.bounds {
            let p99 = bound
                .p99_us_max
                .map_or(String::new(), |p99| format!(", p99 at most {p99} us"));
            let verdict = if bound.kept { "kept" } else { "NOT kept" };
            let _ = writeln!(
                text,
                "{}: median at most {} us{p99}: {verdict}",
                bound.policy, bound.median_us_max
            );
        }
    }
    text.push_str(
        "\nMedians are of batches without reading the clock; what is timed one by one, or after the caches were swept, contains\nit: the control's figures are the floor. \"of exact\": summed speed over the optimum's, mean and least over the instants.\n",
    );
    text
}

fn row(figures: &Figures) -> Vec<String> {
    let cost = &figures.cost;
    let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
    vec![
        figures.name.to_string(),
        super::nanos(cost.median_ns),
        super::nanos(cost.one_p99_ns),
        super::nanos(cost.swept_median_ns),
        super::nanos(cost.swept_p99_ns),
        ratio(figures.of_exact),
        ratio(figures.of_exact_least),
    ]
}

#[cfg(test)]
mod tests;
