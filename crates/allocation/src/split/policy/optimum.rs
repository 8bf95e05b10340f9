//! The best of all splits, by dynamic programming over the cores.
//!
//! **Method.** best_n(c, b) is the best that the first n cores can do with c ways and b partitions beyond their least:
//!
//! ```text
//! best_n(c, b) = min over c' <= c, b' <= b of join(best_(n-1)(c - c', b - b'), cost_n(c', b'))
//! ```
//!
//! with `join` the sum or the larger of both. Every split is looked at; nothing is assumed about the costs. For N cores
//! and S = c b spare shares this takes about N S^2 / 4 steps: some hundred microseconds for 4 cores on 20 by 20, which
//! [`SplitSearch::advance`] takes in pieces. Decisions that must be quick use [`super::exact`] instead.

use crate::grid::Share;
use crate::policy::loads::Loads;
use crate::pool::{PerCore, Pool, Spare};

/// Joins costs to their sum.
pub(crate) fn plus(one: f64, other: f64) -> f64 {
    one + other
}

/// Joins costs to the larger one.
pub(crate) fn worst(one: f64, other: f64) -> f64 {
    one.max(other)
}

/// Cost of a core by its utilisation and the bound that an earlier objective has found: the largest utilisation of its
/// split.
pub(crate) type Cost = fn(load: f64, bound: f64) -> f64;

/// Objectives of a search, each with the function that joins its costs; the split is that of the last.
pub(crate) type Objectives = &'static [(Cost, fn(f64, f64) -> f64)];

/// Steps that count as a unit of work.
const STEPS_A_UNIT: usize = 64;

/// A search among all splits of a pool for cores that are all busy. All is handed out; what no core needs goes to the
/// first core.
#[derive(Clone, Debug)]
pub(crate) struct SplitSearch {
    pool: Pool,
    spare: Spare,
    /// The objective at hand, and those that follow.
    objectives: Objectives,
    bound: f64,
    /// Core by core, for each cell: the least joined cost of the cores up to this one, and what this one takes.
    best: Vec<(f64, usize)>,
}

impl SplitSearch {
    pub fn new(pool: Pool, cores: usize, objectives: Objectives) -> SplitSearch {
        SplitSearch {
            pool,
            spare: pool.spare(cores, 0),
            objectives,
            bound: f64::INFINITY,
            best: Vec::new(),
        }
    }

    /// Works until `left` units are used up; returns the split once it is found. `loads` are the same at each call.
    pub fn advance(&mut self, loads: &Loads, left: &mut u64) -> Option<PerCore<Share>> {
        while *left > 0 {
            let steps = if self.best.len() < loads.cores() * self.spare.cells() {
                self.join_cell(loads)
            } else {
                let shares = self.shares(loads.cores());
                let (_, rest) = self.objectives.split_first()?;
                if rest.is_empty() {
                    return Some(shares);
                }
                (self.objectives, self.bound) = (rest, loads.largest(&shares));
                self.best.clear();
                0
            };
            *left = left.saturating_sub(1 + (steps / STEPS_A_UNIT) as u64);
        }
        None
    }

    /// Share of a core that gets this cell beyond the least.
    fn share(&self, cell: usize) -> Share {
        self.spare.part(cell).beyond(self.pool.least)
    }

    /// For the next cell, finds the least joined cost and what the core takes for it; the first core takes all. Cells
    /// subtract as their coordinates do. Returns the number of steps.
    fn join_cell(&mut self, loads: &Loads) -> usize {
        let cells = self.spare.cells();
        let (core, cell) = (self.best.len() / cells, self.best.len() % cells);
        let (of_load, join) = self.objectives[0];
        let cost = |taken| of_load(loads.at(core, self.share(taken)), self.bound);
        let Some(before) = core.checked_sub(1) else {
            self.best.push((cost(cell), cell));
            return 1;
        };
        let (part, mut best) = (self.spare.part(cell), (f64::INFINITY, 0));
        for ways in 0..=part.ways {
            for partitions in 0..=part.partitions {
                let taken = self.spare.cell(Spare { ways, partitions });
                let joined = join(self.best[before * cells + cell - taken].0, cost(taken));
                if joined < best.0 {
                    best = (joined, taken);
                }
            }
        }
        self.best.push(best);
        (part.ways + 1) * (part.partitions + 1)
    }

    /// The split of the least cost, once all cores are joined.
    fn shares(&self, cores: usize) -> PerCore<Share> {
        let mut shares = PerCore::from_elem(self.pool.least, cores);
        let mut cell = self.spare.cells() - 1;
        for (share, of_core) in shares.iter_mut().zip(self.best.chunks(self.spare.cells())).rev() {
            let taken = of_core[cell].1;
            *share = self.share(taken);
            cell -= taken;
        }
        shares
    }
}
