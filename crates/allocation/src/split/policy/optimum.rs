//! The best of all splits, by dynamic programming over the cores.
//!
//! **Method.** best_n(c, b) is the best that the first n cores can do with c ways and b partitions beyond their least:
//!
//! ```text
//! best_n(c, b) = min over c' <= c, b' <= b of join(best_(n-1)(c - c', b - b'), cost_n(c', b'))
//! ```
//!
//! with `join` the sum or the larger of both. Every split is looked at; nothing is assumed about the costs. For N cores
//! and S = c b spare shares this takes about N S^2 / 4 steps: some hundred microseconds for 4 cores on 20 by 20.
//! Decisions that must be quick use [`super::exact`] instead.

use crate::grid::Share;
use crate::pool::{PerCore, Pool, Spare};

/// Joins costs to their sum.
pub(crate) fn plus(one: f64, other: f64) -> f64 {
    one + other
}

/// Joins costs to the larger one.
pub(crate) fn worst(one: f64, other: f64) -> f64 {
    one.max(other)
}

/// All splits of a pool among cores that are all busy.
pub(crate) struct Splitter {
    pool: Pool,
    cores: usize,
    spare: Spare,
}

impl Splitter {
    pub fn new(pool: Pool, cores: usize) -> Splitter {
        let spare = pool.spare(cores, 0);
        Splitter { pool, cores, spare }
    }

    /// The split of the least joined cost. All is handed out; what no core needs goes to the first core.
    pub fn least(&self, cost: impl Fn(usize, Share) -> f64, join: fn(f64, f64) -> f64) -> PerCore<Share> {
        let all = self.spare.cells();
        let costs = |core| -> Vec<f64> {
            let at = |cell| cost(core, self.share(cell));
            (0..all).map(at).collect()
        };
        let mut best = costs(0);
        let mut gave = Vec::new();
        for core in 1..self.cores {
            let (next, given) = self.join(&best, &costs(core), join);
            best = next;
            gave.push(given);
        }
        let mut shares = PerCore::from_elem(self.pool.least, self.cores);
        let mut cell = self.spare.cell(self.spare);
        for (core, given) in gave.iter().enumerate().rev() {
            let taken = given[cell];
            shares[core + 1] = self.share(taken);
            cell -= taken;
        }
        shares[0] = self.share(cell);
        shares
    }

    /// Share of a core that gets this cell beyond the least.
    fn share(&self, cell: usize) -> Share {
        self.spare.part(cell).beyond(self.pool.least)
    }

    /// For each cell, the best joined cost and what the later core takes for it. Cells subtract as their coordinates
    /// do.
    fn join(&self, before: &[f64], costs: &[f64], join: fn(f64, f64) -> f64) -> (Vec<f64>, Vec<usize>) {
        let cells = self.spare.cells();
        let (mut best, mut given) = (vec![f64::INFINITY; cells], vec![0; cells]);
        for cell in 0..cells {
            let part = self.spare.part(cell);
            for ways in 0..=part.ways {
                for partitions in 0..=part.partitions {
                    let taken = self.spare.cell(Spare { ways, partitions });
                    let joined = join(before[cell - taken], costs[taken]);
                    if joined < best[cell] {
                        (best[cell], given[cell]) = (joined, taken);
                    }
                }
            }
        }
        (best, given)
    }
}
