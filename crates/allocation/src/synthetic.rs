//! Programs that nobody has measured, for tests and benchmarks where no profiles are at hand.
//!
//! **Model.** A phase is how many cycles an instruction takes that hits, how often it goes to the last-level cache, and one
//! or two working sets: the part of the requests that still misses falls at a way count of its own, steeply or not at
//! all before it. Time is the larger of latency and bandwidth,
//!
//! ```text
//! cycles(c, b) = max(CPI + (r - m) L_hit + m L_miss, 64 m f / (b B))
//! ```
//!
//! for r requests and m(c) misses an instruction. So there are plateaus, knees, and resources that help only together: what
//! makes allocation hard.

use crate::grid::Grid;
use crate::profile::{Phase, Profile};
use crate::table::RateTable;

const CLOCK_HZ: f64 = 2.1e9;
const HIT_CYCLES: f64 = 40.0;
const MISS_CYCLES: f64 = 200.0;
const LINE_BYTES: f64 = 64.0;
/// Bytes per second of one bandwidth partition: the fifth paper's.
const PARTITION: f64 = 72e6;

/// A program of `phases` phases of unequal length; the same for the same `seed`.
pub fn program(grid: Grid, phases: usize, seed: u64) -> Profile {
    let mut draw = Draw(seed);
    let lengths: Vec<f64> = (0..phases.max(1)).map(|_| 0.1 + draw.unit()).collect();
    let whole: f64 = lengths.iter().sum();
    let mut until = 0.0;
    let mut phase = |length: &f64| {
        until += length / whole;
        Phase {
            ends: until,
            rates: rates(grid, &mut draw),
        }
    };
    let mut phases: Vec<Phase> = lengths.iter().map(&mut phase).collect();
    if let Some(last) = phases.last_mut() {
        last.ends = 1.0;
    }
    Profile {
        name: format!("synthetic-{seed}"),
        grid,
        instructions: 1e8 * (1.0 + 9.0 * draw.unit()),
        phases,
    }
}

fn rates(grid: Grid, draw: &mut Draw) -> RateTable {
    let ways = f64::from(grid.ways);
    let cycles_at_best = 0.4 + 0.8 * draw.unit();
    let requests = 0.03 * draw.unit().powi(3);
    let knees = [(); 2].map(|()| (ways * draw.unit(), draw.unit()));
    let always = 0.2 * draw.unit();
    let missed = |share: f64| {
        // Each working set is half of the requests; it is held where the ways are enough for it.
        let held = knees.map(|(knee, slope)| if share >= knee { 1.0 } else { slope * share / knee });
        always + (1.0 - always) * (1.0 - (held[0] + held[1]) / 2.0)
    };
    RateTable::new(grid, |share| {
        let misses = requests * missed(f64::from(share.ways));
        let latency = cycles_at_best + (requests - misses) * HIT_CYCLES + misses * MISS_CYCLES;
        let bandwidth = LINE_BYTES * misses * CLOCK_HZ / (f64::from(share.partitions) * PARTITION);
        (CLOCK_HZ / latency.max(bandwidth)) as f32
    })
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): one word of state is enough for made-up programs.
struct Draw(u64);

impl Draw {
    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_can_be_and_more_is_never_slower() {
        for seed in 0..50 {
            let profile = program(Grid::PAPER, 20, seed);
            assert_eq!(profile.check(), Ok(()));
            for phase in &profile.phases {
                assert_eq!(phase.rates, phase.rates.monotone());
            }
        }
        assert_ne!(program(Grid::PAPER, 3, 1), program(Grid::PAPER, 3, 2));
    }
}
