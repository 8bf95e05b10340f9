//! What decisions cost: all policies interleaved, in rounds.

use std::hint::black_box;
use std::time::Instant;

use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::super::rounds::quantile;
use super::super::series::Interrupt;
use super::instants::Cores;
use super::policies::Decide;

/// Decisions timed together in each round.
const BATCH: usize = 100;
/// Decisions timed one by one in each round.
const SINGLES: usize = 50;
/// Decisions after the caches were swept, in each round.
const SWEPT: usize = 4;
/// What is written to sweep a core's own caches: twice the second-level cache of today's large cores.
const SWEEP_BYTES: usize = 4 << 20;
/// Bytes of a cache line.
const LINE: usize = 64;

/// What a decision costs, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// Median over the rounds of the time per decision of a batch.
    pub median_ns: f64,
    /// 99th percentile of decisions timed one by one, with the time that reading the clock takes.
    pub one_p99_ns: f64,
    /// Median of decisions after the core's own caches were swept, timed one by one.
    pub swept_median_ns: f64,
    /// 99th percentile of these.
    pub swept_p99_ns: f64,
}

/// Measures in `rounds` rounds after one that only warms up; none if the user broke it off.
pub fn measure(
    policies: &mut [Decide<'_>],
    instants: &[Cores<'_>],
    rounds: u32,
    seed: u64,
    interrupt: &Interrupt,
) -> Option<Vec<Cost>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..policies.len()).collect();
    let mut sweep = vec![0_u8; SWEEP_BYTES];
    let mut batches = vec![Vec::new(); policies.len()];
    // With two significant digits, up to what a signed 64-bit span holds: cannot be refused.
    let empty = Histogram::<u64>::new(2).ok()?;
    let mut singles = vec![empty.clone(); policies.len()];
    let mut swept = vec![empty; policies.len()];
    let mut at = 0;
    for round in 0..=rounds {
        if interrupt.asked() {
            return None;
        }
        order.shuffle(&mut rng);
        for &policy in &order {
            let mut next = || {
                at = (at + 1) % instants.len();
                (at, &instants[at])
            };
            let decide = &mut policies[policy].decide;
            let start = Instant::now();
            for _ in 0..BATCH {
                let (number, cores) = next();
                black_box(decide(number, black_box(cores)));
            }
            let each = start.elapsed().as_nanos() as f64 / BATCH as f64;
            let mut one = || {
                let (number, cores) = next();
                let start = Instant::now();
                black_box(decide(number, black_box(cores)));
                start.elapsed().as_nanos() as u64
            };
            let warm: Vec<u64> = (0..SINGLES).map(|_| one()).collect();
            let cold: Vec<u64> = (0..SWEPT)
                .map(|_| {
                    sweep
                        .iter_mut()
                        .step_by(LINE)
                        .for_each(|byte| *byte = byte.wrapping_add(1));
                    black_box(&sweep);
                    one()
                })
                .collect();
            if round > 0 {
                batches[policy].push(each);
                warm.iter().for_each(|ns| singles[policy] += *ns);
                cold.iter().for_each(|ns| swept[policy] += *ns);
            }
        }
    }
    let cost = |policy: usize| Cost {
        median_ns: quantile(&batches[policy], 0.5),
        one_p99_ns: singles[policy].value_at_quantile(0.99) as f64,
        swept_median_ns: swept[policy].value_at_quantile(0.5) as f64,
        swept_p99_ns: swept[policy].value_at_quantile(0.99) as f64,
    };
    Some((0..policies.len()).map(cost).collect())
}
