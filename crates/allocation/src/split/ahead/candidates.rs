//! The candidates of a look ahead: the static splits of a task set, each once, found in pieces.

use super::SPLITS;
use crate::allocator::CoreShares;
use crate::policy::optimum::SplitSearch;
use crate::policy::{Loads, PeriodicTask, equal, loads};
use crate::pool::Pool;
use crate::programs::Programs;
use crate::settings::Base;

/// Shares under which the loads of a task count as a unit of work.
const SHARES_A_UNIT: usize = 128;

/// A search for the candidates of one task set.
#[derive(Clone, Debug)]
pub(super) struct Candidates {
    pool: Pool,
    loads: Loads,
    /// Tasks that are not among the loads yet, the next one last.
    rest: Vec<PeriodicTask>,
    /// Search for the split that comes next in [`SPLITS`].
    search: Option<SplitSearch>,
    /// Number of splits in [`SPLITS`] that are found.
    done: usize,
    found: Vec<(Base, CoreShares)>,
}

impl Candidates {
    /// # Panics
    /// Later, if a task is on a core, or of a program, that does not exist.
    pub fn new(tasks: &[PeriodicTask], pool: Pool, cores: usize) -> Candidates {
        let mut rest: Vec<PeriodicTask> = loads::counted(tasks).copied().collect();
        rest.reverse();
        Candidates {
            pool,
            loads: Loads::none(pool.grid, cores),
            rest,
            search: None,
            done: 0,
            found: Vec::new(),
        }
    }

    /// Works until `left` units are used up; returns the splits once all are found.
    pub fn advance(&mut self, programs: &Programs, left: &mut u64) -> Option<Vec<(Base, CoreShares)>> {
        let (pool, cores) = (self.pool, self.loads.cores());
        while *left > 0 {
            if let Some(task) = self.rest.pop() {
                self.loads.add(programs, &task);
                *left = left.saturating_sub(1 + (pool.grid.len() / SHARES_A_UNIT) as u64);
                continue;
            }
            let Some(base) = SPLITS.get(self.done) else {
                return Some(std::mem::take(&mut self.found));
            };
            let shares = match base.objectives() {
                None => equal(pool, cores),
                Some(objectives) => {
                    let search = || SplitSearch::new(pool, cores, objectives);
                    self.search.get_or_insert_with(search).advance(&self.loads, left)?
                }
            };
            (self.search, self.done) = (None, self.done + 1);
            let plan = CoreShares::side_by_side(shares);
            if !self.found.iter().any(|(_, other)| *other == plan) {
                self.found.push((*base, plan));
            }
        }
        None
    }
}
