//! Figs. 10 to 14: the best mapping and clocks for each frame rate.
//!
//! The paper does not state its clock steps, so results that depend on them are computed on an ensemble: in each
//! replication [`GRIDS`] random grids, and the even ones. Labels: `grids` (`random`, `even`), `workers` (3, 4), `idle`,
//! `mappings` (`paper`: its three; `all`). A sample of these runs is a grid. The energy of moves has labels of its own
//! (`transition`, `mhz`), and so have the curves (`curve`: on 1, 2 or 3 cores, or the best; a sample is a frame rate).

use punctual_allocation::mapping::{Configuration, Idle, Mapping, MappingRow, MappingTable, Problem, Search};
use punctual_mpsoc::Mpsoc;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::radio::{DEMODULATION, FIRST_WORKER, WORKERS, clocked, mapping, problem, transition};
use super::single;
use crate::samples::{Labels, Run, labels as labelled};

/// Number of random grids in each replication.
pub const GRIDS: usize = 50;
/// Clocks at which Fig. 14 shows the energy of moves.
pub const MHZ: [u64; 6] = [100, 200, 320, 400, 450, 496];
/// Changes of the mapping, as numbers of cores before and after.
pub const TRANSITIONS: [(usize, usize); 3] = [(1, 2), (2, 3), (1, 3)];
/// Number of steps of the grid whose curves are drawn, and the difference in frames/s between two samples.
const DRAWN_STEPS: u32 = 5;
pub const DRAWN_EVERY: f64 = 50.0;
/// Number of samples of a curve: up to 6200 frames/s, a little above what three cores serve.
const DRAWN: usize = 124;

/// Names of the series.
///
/// Of each grid: `monotone`: whether the number of cores never falls along the path; `falls`: how often it does.
/// `constant`: whether power is constant while no clock changes. `demodulator-2` and `demodulator-3`: the share of the
/// rates on two and on three cores at which no core has a higher clock than the demodulator's core. `one-at-450` and
/// `two-at-900`: whether one core or two cores, all at the lowest clock, are best. `demodulator-leaves` and
/// `workers-leave`: whether just the demodulator moves away at 900 frames/s, and just two workers at the highest rate.
/// `fps-max-1` and `-2`: the highest rates on 1 and on 2 cores. `move-joules`: the greatest energy of the moves between
/// two rows, and `catch-up` the longest time that idle cycles take to compensate for them, in seconds.
///
/// Of a transition: `joules`. Of a curve: `watts`, `cores`.
pub const SERIES: [&str; 16] = [
    "monotone",
    "falls",
    "constant",
    "demodulator-2",
    "demodulator-3",
    "one-at-450",
    "two-at-900",
    "demodulator-leaves",
    "workers-leave",
    "fps-max-1",
    "fps-max-2",
    "move-joules",
    "catch-up",
    "joules",
    "watts",
    "cores",
];

/// An ensemble of grids with the parameters that its runs share.
#[derive(Clone, Copy)]
struct Ensemble {
    random: bool,
    workers: usize,
    idle: Idle,
    all: bool,
}

impl Ensemble {
    fn every() -> Vec<Ensemble> {
        let mut every = Vec::new();
        for random in [true, false] {
            for workers in [WORKERS, WORKERS + 1] {
                for idle in Idle::ALL {
                    let of = |all| Ensemble {
                        random,
                        workers,
                        idle,
                        all,
                    };
                    every.extend([false, true].map(of));
                }
            }
        }
        every
    }

    fn labels(self) -> Labels {
        labelled([
            ("grids", if self.random { "random" } else { "even" }),
            ("workers", &self.workers.to_string()),
            ("idle", self.idle.name()),
            ("mappings", if self.all { "all" } else { "paper" }),
        ])
    }
}

pub fn transition_labels(change: (usize, usize), mhz: u64) -> Labels {
    labelled([("transition", transition(change).as_str()), ("mhz", &mhz.to_string())])
}

/// Labels of the curve on `cores` cores; `None`: the best of all mappings.
pub fn curve_labels(cores: Option<usize>, idle: Idle) -> Labels {
    let curve = cores.map_or("best".into(), |cores| cores.to_string());
    labelled([("curve", curve.as_str()), ("idle-cores", idle.name())])
}

fn curves() -> impl Iterator<Item = (Option<usize>, Idle)> {
    let of = |idle| [Some(1), Some(2), Some(3), None].map(|cores| (cores, idle));
    Idle::ALL.into_iter().flat_map(of)
}

fn transitions() -> impl Iterator<Item = ((usize, usize), u64)> {
    TRANSITIONS
        .into_iter()
        .flat_map(|transition| MHZ.map(|mhz| (transition, mhz)))
}

pub fn labels() -> Vec<Labels> {
    let ensembles = Ensemble::every().into_iter().map(Ensemble::labels);
    let moves = transitions().map(|(transition, mhz)| transition_labels(transition, mhz));
    ensembles
        .chain(moves)
        .chain(curves().map(|(cores, idle)| curve_labels(cores, idle)))
        .collect()
}

pub fn runs(machine: &Mpsoc, seed: u64) -> Vec<Result<Run, String>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let drawn: Vec<Vec<u64>> = (0..GRIDS).map(|_| machine.random_grid(&mut random)).collect();
    let [fewest, most] = machine.grid_steps;
    let even: Vec<Vec<u64>> = (fewest..=most).map(|steps| machine.even_grid(steps)).collect();
    let grids = |ensemble: Ensemble| if ensemble.random { &drawn } else { &even };
    let ensembles = Ensemble::every()
        .into_iter()
        .map(|one| ensemble(machine, one, grids(one)));
    let moves = transitions().map(|(transition, mhz)| energy(machine, transition, mhz));
    let curves = curves().map(|(cores, idle)| curve(machine, cores, idle));
    ensembles.chain(moves).chain(curves).collect()
}

/// A run with one sample for each grid.
fn ensemble(machine: &Mpsoc, ensemble: Ensemble, grids: &[Vec<u64>]) -> Result<Run, String> {
    let mut run = Run {
        labels: ensemble.labels(),
        ..Run::default()
    };
    for grid in grids {
        for (name, value) in on_grid(machine, ensemble, grid)? {
            run.series.entry(name.into()).or_default().push(value);
        }
    }
    Ok(run)
}

type Samples = Vec<(&'static str, Option<f64>)>;

fn on_grid(machine: &Mpsoc, ensemble: Ensemble, grid: &[u64]) -> Result<Samples, String> {
    let problem = problem(ensemble.workers, machine.with_clocks(grid), ensemble.idle)?;
    let of = |cores| mapping(ensemble.workers, cores);
    let search = match ensemble.all {
        true => Search::new(problem.clone()).map_err(|error| error.to_string())?,
        false => Search::among(problem.clone(), [1, 2, 3].map(of)),
    };
    let table = MappingTable::new(&search, Some(&of(1)));
    let counts: Vec<usize> = table
        .rows()
        .iter()
        .map(|row| row.configuration.mapping.used())
        .collect();
    let falls = counts.windows(2).filter(|pair| pair[1] < pair[0]).count();
    let yes = |holds: bool| Some(f64::from(u8::from(holds)));
    let (energy, catch_up) = moves_between_rows(machine, &problem, &table);
    Ok(vec![
        ("monotone", yes(falls == 0)),
        ("falls", Some(falls as f64)),
        ("constant", yes(is_constant(&problem, &table))),
        ("demodulator-2", demodulator_leads(&problem, &table, 2)),
        ("demodulator-3", demodulator_leads(&problem, &table, 3)),
        ("one-at-450", yes(is_lowest(table.row(450.0), 1))),
        ("two-at-900", yes(is_lowest(table.row(900.0), 2))),
        (
            "demodulator-leaves",
            yes(leaves(table.row(900.0), &of(1), &[DEMODULATION])),
        ),
        (
            "workers-leave",
            yes(leaves(table.rows().last(), &of(2), &[FIRST_WORKER, FIRST_WORKER + 1])),
        ),
        ("fps-max-1", fps_max(&problem, &of(1))),
        ("fps-max-2", fps_max(&problem, &of(2))),
        ("move-joules", Some(energy)),
        ("catch-up", Some(catch_up)),
    ])
}

/// Whether power is the same at both ends of each row, within which no clock changes.
fn is_constant(problem: &Problem, table: &MappingTable) -> bool {
    let constant = |row: &MappingRow| {
        let at = |fps| problem.watts(&row.configuration, fps).unwrap_or(f64::NAN);
        let (low, high) = (at(row.above + (row.up_to - row.above) * 0.01), at(row.up_to));
        (high - low).abs() <= 1e-9 * high
    };
    table.rows().iter().all(constant)
}

/// Share of the rates on `cores` cores at which no core has a higher clock than the demodulator's core; `None` if there
/// are no such rates.
fn demodulator_leads(problem: &Problem, table: &MappingTable, cores: usize) -> Option<f64> {
    let on = |row: &&MappingRow| row.configuration.mapping.used() == cores;
    let width = |row: &MappingRow| row.up_to - row.above;
    let leads = |row: &&MappingRow| {
        let clock = |core| row.configuration.step(problem.cores(), core).clock;
        let own = clock(row.configuration.mapping.core(DEMODULATION));
        row.configuration.mapping.cores().all(|core| clock(core) <= own)
    };
    let whole: f64 = table.rows().iter().filter(on).map(width).sum();
    let led: f64 = table.rows().iter().filter(on).filter(leads).map(width).sum();
    (whole > 0.0).then(|| led / whole)
}

fn is_lowest(row: Option<&MappingRow>, cores: usize) -> bool {
    row.is_some_and(|row| {
        row.configuration.mapping.used() == cores && row.configuration.steps.iter().all(|step| *step == 0)
    })
}

/// Whether `before` becomes the row's mapping by moving exactly these `stages` together to an unused core, up to the
/// numbering of cores.
fn leaves(row: Option<&MappingRow>, before: &Mapping, stages: &[usize]) -> bool {
    let Some(row) = row else { return false };
    let after = &row.configuration.mapping;
    let group = |mapping: &Mapping, stage: usize| -> Vec<bool> {
        mapping.cores().map(|core| core == mapping.core(stage)).collect()
    };
    let moved: Vec<usize> = before.cores().enumerate().map(|(stage, _)| stage).collect();
    let to = after.core(stages[0]);
    let expected = before
        .cores()
        .enumerate()
        .map(|(stage, core)| match stages.contains(&stage) {
            true => before.used(),
            false => core,
        });
    let expected = Mapping::of(expected);
    // Compares the groups of stages that share a core, because cores may be numbered differently.
    stages.iter().all(|stage| after.core(*stage) == to)
        && moved
            .iter()
            .all(|stage| group(&expected, *stage) == group(after, *stage))
}

/// The highest rate of a mapping, with every core at its top clock.
fn fps_max(problem: &Problem, mapping: &Mapping) -> Option<f64> {
    let top = |domain: &punctual_allocation::mapping::Domain| domain.steps.len() as u8 - 1;
    let configuration = Configuration {
        mapping: mapping.clone(),
        steps: problem.cores().domains.iter().map(top).collect(),
    };
    Some(problem.fps_max(&configuration))
}

/// For each pair of successive rows: the greatest energy of the moves, in joules, and the longest time in which the
/// idle cycles of their cores compensate for them, in seconds; at the rate that ends the first row, with the clocks of
/// the second.
fn moves_between_rows(machine: &Mpsoc, problem: &Problem, table: &MappingTable) -> (f64, f64) {
    let mut most = (0.0f64, 0.0f64);
    for pair in table.rows().windows(2) {
        let (before, after) = (&pair[0].configuration, &pair[1].configuration);
        let moves = || before.mapping.moves(&after.mapping);
        let joules = machine.replication.joules(problem, after, moves());
        most.0 = most.0.max(joules);
        let loads = problem.loads(&after.mapping);
        for core in 0..loads.len() {
            let here = moves().filter(|one| one.from == core || one.to == core);
            let cycles: f64 = here
                .map(|one| machine.replication.cycles(problem.stages()[one.stage].state_bytes) / 2.0)
                .sum();
            let idle = after.step(problem.cores(), core).clock.0 as f64 - loads[core].1 as f64 * pair[0].up_to;
            if cycles > 0.0 {
                most.1 = most.1.max(cycles / idle.max(1.0));
            }
        }
    }
    most
}

/// Fig. 14: the energy of the moves of a transition where all cores run at one clock.
fn energy(machine: &Mpsoc, (from, to): (usize, usize), mhz: u64) -> Result<Run, String> {
    let cores = machine.with_clocks(&[mhz]);
    let problem = problem(WORKERS, cores, Idle::ShutdownWhenIdle)?;
    let (before, after) = (mapping(WORKERS, from), mapping(WORKERS, to));
    let configuration = Configuration {
        mapping: after.clone(),
        steps: problem.cores().domains.iter().map(|_| 0).collect(),
    };
    let joules = machine
        .replication
        .joules(&problem, &configuration, before.moves(&after));
    Ok(single(transition_labels((from, to), mhz), [("joules", joules)]))
}

/// Figs. 10 to 13 on one even grid: power over the frame rate.
fn curve(machine: &Mpsoc, cores: Option<usize>, idle: Idle) -> Result<Run, String> {
    let on = machine.with_clocks(&machine.even_grid(DRAWN_STEPS));
    let problem = problem(WORKERS, on, idle)?;
    let table = match cores {
        None => Some(MappingTable::new(
            &Search::new(problem.clone()).map_err(|error| error.to_string())?,
            Some(&mapping(WORKERS, 1)),
        )),
        Some(_) => None,
    };
    let best = |fps: f64| match (&table, cores) {
        (Some(table), _) => table.row(fps).map(|row| row.configuration.clone()),
        (None, cores) => clocked(&problem, &mapping(WORKERS, cores.unwrap_or(1)), fps).ok(),
    };
    let mut run = Run {
        labels: curve_labels(cores, idle),
        ..Run::default()
    };
    let mut sample = |name: &str, value: Option<f64>| run.series.entry(name.into()).or_default().push(value);
    for number in 1..=DRAWN {
        let fps = number as f64 * DRAWN_EVERY;
        let configuration = best(fps);
        sample("watts", configuration.as_ref().and_then(|one| problem.watts(one, fps)));
        sample("cores", configuration.map(|one| one.mapping.used() as f64));
    }
    Ok(run)
}

/// Cores on the grid whose curves are drawn.
#[cfg(test)]
pub fn cores(machine: &Mpsoc) -> punctual_allocation::mapping::Cores {
    machine.with_clocks(&machine.even_grid(DRAWN_STEPS))
}
