//! Keeper: v0 exploration.
#![allow(missing_docs)]
use punctual_units::Time;

use super::Refill;
use super::bandwidth::{PARTITIONS_MAX, Worth, share_out};
use super::shadow::Shadow;
use crate::allocator::Plan;
use crate::grid::Share;
use crate::pool::Pool;
use crate::programs::Programs;
use crate::running::Running;

#[derive(Clone, Debug)]
pub struct Keeper {
    pool: Pool,
    refill: Refill,
    base: Plan,
    plan: Plan,
    shadows: Vec<Shadow>,
}

impl Keeper {
    pub fn new(base: Plan, pool: Pool, refill: Refill) -> Keeper {
        Keeper {
            pool,
            refill,
            shadows: base.shares.iter().map(|share| Shadow::new(*share)).collect(),
            plan: base.clone(),
            base,
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn released(&mut self, programs: &Programs, core: usize, program: usize, deadline: Time, at: Time) {
        self.shadows[core].released(programs, program, deadline, at);
    }

    pub fn decide(&mut self, programs: &Programs, cores: &[Option<Running<'_>>], now: Time) -> Option<&Plan> {
        let mode: u32 = std::env::var("MODE").ok().and_then(|m| m.parse().ok()).unwrap_or(0);
        for shadow in &mut self.shadows {
            shadow.pass(now);
        }
        let mut worth = vec![[f64::NEG_INFINITY; PARTITIONS_MAX + 1]; cores.len()];
        for (core, job) in cores.iter().enumerate() {
            let base = self.base.shares[core];
            let all = usize::from(self.pool.grid.partitions);
            let Some(job) = job else {
                worth[core][1..=all].fill(0.0);
                continue;
            };
            let floor = programs.rate(job.program, job.progress, base);
            let ahead = self.shadows[core].ahead(programs, job, 0.0);
            if ahead < -1e-6 { eprintln!("behind {ahead} at {now:?}"); }
            let best = programs.rate(job.program, job.progress, self.pool.grid.all());
            for partitions in 1..=all {
                let share = Share { partitions: partitions as u8, ..base };
                let rate = programs.rate(job.program, job.progress, share);
                let allowed = rate >= floor || (mode & 1 == 1 && ahead > 0.02);
                if allowed {
                    worth[core][partitions] = if mode & 2 == 2 { rate / best } else { rate / floor };
                }
            }
        }
        let (_, partitions) = share_out(&worth, self.pool.grid.partitions)?;
        let mut plan = self.base.clone();
        for (share, partitions) in plan.shares.iter_mut().zip(partitions) {
            share.partitions = partitions;
        }
        if plan == self.plan { return None; }
        self.plan = plan;
        Some(&self.plan)
    }
}
