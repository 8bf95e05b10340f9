//! Cost of decisions: every run is decided again, instant by instant and in order, all policies interleaved.
//!
//! Each time a run is decided again, the allocator begins in its original state: with the tables that it makes at its
//! beginning, and no others. So computation at the first meeting of two phases is part of the decision. Decisions
//! follow each other faster than in the run, in which programs would use the caches in between: so every
//! [`SWEEP_EVERY`]th decision comes after the core's own caches were swept.

use std::hint::black_box;
use std::time::Instant;

use hdrhistogram::Histogram;
use punctual_allocation::{Programs, RunningJob};
use punctual_units::Time;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::super::series::Interrupt;
use super::runs::{RecordedRun, step};

/// Decisions per sweep of the caches: fewer than a hundred, so that the 99th percentile includes swept ones.
pub const SWEEP_EVERY: usize = 64;
/// Bytes written to sweep a core's own caches: twice the second-level cache of today's large cores.
const SWEEP_BYTES: usize = 4 << 20;
/// Size of a cache line, in bytes.
const LINE: usize = 64;

/// Cost of a decision in nanoseconds, including the time of reading the clock.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// Median of all decisions.
    pub median_ns: f64,
    /// 99th percentile of all decisions.
    pub p99_ns: f64,
    /// Time of the longest decision.
    pub max_ns: f64,
    /// Median of the decisions after a sweep of the caches.
    pub swept_median_ns: f64,
    /// 99th percentile of the decisions after a sweep.
    pub swept_p99_ns: f64,
}

/// Times of one policy's decisions, in nanoseconds.
struct DecisionTimes {
    all: Histogram<u64>,
    swept: Histogram<u64>,
}

/// Decides the runs of each policy `rounds` times, after a warm-up round; `None` if the user broke it off.
pub fn measure(
    programs: &Programs,
    policies: &[Vec<RecordedRun>],
    rounds: u32,
    seed: u64,
    interrupt: &Interrupt,
) -> Option<Vec<Cost>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..policies.len()).collect();
    let mut sweep = vec![0_u8; SWEEP_BYTES];
    // Two significant digits, up to the longest signed 64-bit span: cannot be refused.
    let empty = Histogram::<u64>::new(2).ok()?;
    let new = || DecisionTimes {
        all: empty.clone(),
        swept: empty.clone(),
    };
    let mut timed: Vec<DecisionTimes> = policies.iter().map(|_| new()).collect();
    for round in 0..=rounds {
        order.shuffle(&mut rng);
        for &policy in &order {
            if interrupt.asked() {
                return None;
            }
            let mut unused = new();
            let into = if round > 0 { &mut timed[policy] } else { &mut unused };
            policies[policy]
                .iter()
                .for_each(|run| decide_again(run, programs, &mut sweep, into));
        }
    }
    let at = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64;
    let cost = |DecisionTimes { all, swept }: &DecisionTimes| Cost {
        median_ns: at(all, 0.5),
        p99_ns: at(all, 0.99),
        max_ns: all.max() as f64,
        swept_median_ns: at(swept, 0.5),
        swept_p99_ns: at(swept, 0.99),
    };
    Some(timed.iter().map(cost).collect())
}

/// Times every decision of `run`, in order.
fn decide_again(run: &RecordedRun, programs: &Programs, sweep: &mut [u8], timed: &mut DecisionTimes) {
    let mut allocator = run.allocator.clone();
    let instants: Vec<(Time, Vec<Option<RunningJob<'_>>>)> = run
        .instants
        .iter()
        .map(|instant| (instant.now, instant.cores()))
        .collect();
    for (number, (now, cores)) in instants.iter().enumerate() {
        let swept = number % SWEEP_EVERY == SWEEP_EVERY - 1;
        if swept {
            let lines = sweep.iter_mut().step_by(LINE);
            lines.for_each(|byte| *byte = byte.wrapping_add(1));
            black_box(&sweep);
        }
        let begun = Instant::now();
        black_box(step(&mut allocator, programs, black_box(cores), *now));
        let ns = begun.elapsed().as_nanos() as u64;
        timed.all += ns;
        if swept {
            timed.swept += ns;
        }
    }
}
