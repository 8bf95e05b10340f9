//! Fig. 15: late frames during a move by the size of queues, and the levels of queues during the move.
//!
//! The frame rate rises, and the mapping changes with it; labels: `transition`, `slots` (of every queue). The mappings
//! are the paper's, all cores at the lowest clock: 450 to 900 frames/s as in the paper; from two cores to three at the
//! rate that only three serve at that clock. Tasks have the paper's least size. Further runs move the demodulator with
//! a larger state (label `demodulator`: its size in KiB; queues of [`ENOUGH`] frames).

use punctual_allocation::mapping::{Idle, Move};
use punctual_mpsoc::{MigrationModel, Mpsoc, PipelineModel, PipelineSim};
use punctual_units::{Nanos, Time};

use super::Part;
use super::map::TRANSITIONS;
use super::radio::{TASK_BYTES, WORKERS, clocked, mapping, problem, radio, transition};
use crate::outcome::Measure;
use crate::samples::{Labels, Replication, Run, labels as labelled};
use crate::stats::Spread;

/// Sizes of a queue, in frames.
pub const SLOTS: [u32; 12] = [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20];
/// Size of the paper's queues, in frames.
pub const ENOUGH: u32 = 14;
/// Sizes of the demodulator, in KiB.
pub const KIB: [u64; 10] = [64, 128, 192, 256, 320, 384, 448, 512, 576, 640];
/// Time before the change, in which the queues fill, and after it.
const BEFORE: Nanos = Nanos::from_millis(500);
const AFTER: Nanos = Nanos::from_millis(1500);
/// Interval of samples of the levels.
pub const SAMPLED: Nanos = Nanos::from_micros(500);
/// Number of samples of the levels before and after the move.
const TRACE_BEFORE: u64 = 20;
const TRACE_AFTER: u64 = 280;

/// Of each run: `late` frames, the longest `freeze` and the time from the first freeze to the end of the last
/// (`blackout`) in milliseconds, the lowest level of the queues before the consumer (`last-least`) and of all others
/// (`inner-least`) when a frame was due. Over time: the level of the queue behind the low-pass filter (`q1`), before
/// and behind the first worker (`q2`, `q3`), and of the shortest queue before the consumer (`q4`).
pub const SERIES: [&str; 9] = [
    "late",
    "freeze",
    "blackout",
    "last-least",
    "inner-least",
    "q1",
    "q2",
    "q3",
    "q4",
];

/// The frame rate on `cores` cores at the lowest clock.
fn fps(cores: usize) -> f64 {
    match cores {
        1 => 450.0,
        2 => 900.0,
        _ => 1200.0,
    }
}

pub fn labels_of(change: (usize, usize), slots: u32) -> Labels {
    labelled([
        ("transition", transition(change).as_str()),
        ("slots", &slots.to_string()),
    ])
}

pub fn labels_of_size(kib: u64) -> Labels {
    labelled([("demodulator", kib.to_string().as_str())])
}

fn planned() -> impl Iterator<Item = ((usize, usize), u32)> {
    TRANSITIONS
        .into_iter()
        .flat_map(|transition| SLOTS.map(|slots| (transition, slots)))
}

pub fn labels() -> Vec<Labels> {
    let by_slots = planned().map(|(transition, slots)| labels_of(transition, slots));
    by_slots.chain(KIB.map(labels_of_size)).collect()
}

pub fn runs(machine: &Mpsoc, seed: u64) -> Vec<Result<Run, String>> {
    let by_slots = planned().map(|(change, slots)| {
        let pipeline = radio(WORKERS, slots, TASK_BYTES)?;
        moved(machine, change, pipeline, seed, labels_of(change, slots))
    });
    let by_size = KIB.into_iter().map(|kib| {
        let pipeline = radio(WORKERS, ENOUGH, kib * 1024)?;
        moved(machine, TRANSITIONS[0], pipeline, seed, labels_of_size(kib))
    });
    by_slots.chain(by_size).collect()
}

fn moved(
    machine: &Mpsoc,
    change: (usize, usize),
    pipeline: PipelineModel,
    seed: u64,
    labels: Labels,
) -> Result<Run, String> {
    let (mut simulated, trace, ordered) = simulate(machine, change, pipeline, seed)?;
    let report = simulated.report();
    if report.moves != ordered as u64 {
        return Err(format!("{} of {ordered} moves were made", report.moves));
    }
    let freezes = || report.freezes.iter();
    let longest = freezes().map(|freeze| freeze.until.since(freeze.from)).max();
    let begun = freezes().map(|freeze| freeze.from).min().unwrap_or_default();
    let ended = freezes().map(|freeze| freeze.until).max().unwrap_or_default();
    let edges = simulated.pipeline().edges().iter().zip(&report.least);
    let least = |last: bool| {
        let of = edges
            .clone()
            .filter(|(edge, _)| (edge.to == simulated.pipeline().sink()) == last);
        of.map(|(_, level)| f64::from(*level)).fold(f64::INFINITY, f64::min)
    };
    let mut run = super::single(
        labels,
        [
            ("late", report.late as f64),
            ("freeze", longest.unwrap_or_default().as_millis_f64()),
            ("blackout", ended.since(begun).as_millis_f64()),
            ("last-least", least(true)),
            ("inner-least", least(false)),
        ],
    );
    let names = ["q1", "q2", "q3", "q4"].map(String::from);
    run.series.extend(names.into_iter().zip(trace.0));
    Ok(run)
}

/// Simulates the change. Returns the pipeline, the levels of its queues during the change, and the number of moves.
fn simulate(
    machine: &Mpsoc,
    (from, to): (usize, usize),
    pipeline: PipelineModel,
    seed: u64,
) -> Result<(PipelineSim, Trace, usize), String> {
    let cores = machine.with_clocks(&machine.even_grid(machine.grid_steps[0]));
    let idle = Idle::AlwaysOn;
    let problem = problem(WORKERS, cores.clone(), idle)?;
    let start = clocked(&problem, &mapping(WORKERS, from), fps(from))?;
    let end = clocked(&problem, &mapping(WORKERS, to), fps(to))?;
    let mechanism = MigrationModel {
        cost: machine.replication,
        transfer: Nanos::ZERO,
        boost: false,
    };
    let ground = (cores, idle, machine.thermal);
    let mut simulated = PipelineSim::new(pipeline, ground, mechanism, &start, fps(from), seed);
    simulated.run_until(Time::ZERO + BEFORE - SAMPLED * TRACE_BEFORE);
    simulated.forget();
    let mut trace = Trace::default();
    trace.follow(&mut simulated, TRACE_BEFORE);
    simulated.set_fps(fps(to));
    let moves: Vec<Move> = start.mapping.moves(&end.mapping).collect();
    simulated.order(&moves, &end.steps);
    trace.follow(&mut simulated, TRACE_AFTER);
    simulated.run_until(Time::ZERO + BEFORE + AFTER);
    Ok((simulated, trace, moves.len()))
}

/// Levels of the queues `q1` to `q4` over time.
#[derive(Default)]
struct Trace([Vec<Option<f64>>; 4]);

impl Trace {
    fn follow(&mut self, simulated: &mut PipelineSim, samples: u64) {
        for _ in 0..samples {
            simulated.run_until(simulated.now() + SAMPLED);
            let levels = simulated.levels();
            // Order of `levels`: behind the low-pass filter, then before and behind each worker.
            let last = levels.iter().skip(2).step_by(2).min();
            let sampled = [levels.first(), levels.get(1), levels.get(2), last];
            for (column, level) in self.0.iter_mut().zip(sampled) {
                column.push(level.map(|level| f64::from(*level)));
            }
        }
    }
}

/// The shortest queues with which no frame is late, for each transition, and the largest demodulator.
pub fn measures(parts: &[Part], replications: &[Replication]) -> Vec<Measure> {
    if !parts.contains(&Part::Queues) {
        return Vec::new();
    }
    let fewest = |transition: (usize, usize), replication: &Replication| {
        let late = |slots: u32| value(replication, &labels_of(transition, slots), "late");
        let enough = SLOTS.iter().rev().take_while(|slots| late(**slots) == Some(0.0));
        enough.last().map(|slots| f64::from(*slots))
    };
    let largest = |replication: &Replication| {
        let late = |kib: u64| value(replication, &labels_of_size(kib), "late");
        let unharmed = KIB.iter().take_while(|kib| late(**kib) == Some(0.0));
        unharmed.last().map(|kib| *kib as f64)
    };
    let largest = Measure {
        name: format!("largest demodulator that moves without a late frame, queues of {ENOUGH}, KiB"),
        formula: "the largest of the sizes tried up to which `late` is 0".into(),
        spread: Spread::of(&replications.iter().filter_map(largest).collect::<Vec<_>>()),
    };
    let measure = |transition: (usize, usize)| {
        let values: Vec<f64> = replications.iter().filter_map(|one| fewest(transition, one)).collect();
        Measure {
            name: format!(
                "shortest queues without a late frame, {} to {} cores",
                transition.0, transition.1
            ),
            formula: "the least of the sizes tried from which on `late` is 0".into(),
            spread: Spread::of(&values),
        }
    };
    TRANSITIONS.map(measure).into_iter().chain([largest]).collect()
}

fn value(replication: &Replication, labels: &Labels, series: &str) -> Option<f64> {
    let run = replication.runs.iter().find(|run| run.labels == *labels)?;
    run.series.get(series)?.first().copied().flatten()
}
