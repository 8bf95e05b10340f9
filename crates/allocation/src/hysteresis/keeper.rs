//! Keeper: exploration.
#![allow(missing_docs)]
use punctual_units::Time;

use super::Refill;
use super::bandwidth::{PARTITIONS_MAX, share_out};
use super::shadow::Shadow;
use super::ways::{self, Claim, WAYS_MAX};
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
    /// Bytes to fill.
    cold: Vec<f64>,
    busy: Vec<bool>,
    at: Time,
    jobs: Vec<Option<(usize, Time)>>,
    kappa: f64,
    mode: u32,
    fixed: f64,
}

fn knob(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|m| m.parse().ok()).unwrap_or(default)
}

impl Keeper {
    pub fn new(base: Plan, pool: Pool, refill: Refill) -> Keeper {
        Keeper {
            pool,
            refill,
            shadows: base.shares.iter().map(|share| Shadow::new(*share)).collect(),
            cold: vec![0.0; base.shares.len()],
            busy: vec![false; base.shares.len()],
            jobs: vec![None; base.shares.len()],
            at: Time::ZERO,
            plan: base.clone(),
            base,
            kappa: knob("KAPPA", 1.0),
            mode: knob("MODE", 0.0) as u32,
            fixed: knob("FIXED", 0.001),
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn released(&mut self, programs: &Programs, core: usize, program: usize, deadline: Time, at: Time) {
        self.shadows[core].released(programs, program, deadline, at);
    }

    fn bandwidth(&self, partitions: u8) -> f64 {
        f64::from(partitions) * self.refill.partition_bytes_per_second
    }

    pub fn decide(&mut self, programs: &Programs, cores: &[Option<Running<'_>>], now: Time) -> Option<&Plan> {
        let passed = now.since(self.at).as_secs_f64();
        self.at = now;
        for core in 0..cores.len() {
            self.shadows[core].pass(now);
            if self.busy[core] {
                self.cold[core] =
                    (self.cold[core] - passed * self.bandwidth(self.plan.shares[core].partitions)).max(0.0);
            }
            self.busy[core] = cores[core].is_some();
        }
        let jobs: Vec<Option<(usize, Time)>> = cores
            .iter()
            .map(|job| job.as_ref().map(|job| (job.program, job.deadline)))
            .collect();
        let switched = jobs != self.jobs;
        self.jobs = jobs;
        let ahead: Vec<f64> = cores
            .iter()
            .enumerate()
            .map(|(core, job)| {
                job.as_ref().map_or(0.0, |job| {
                    let owed = self.cold[core] / self.bandwidth(self.plan.shares[core].partitions);
                    self.shadows[core].ahead(programs, job, owed)
                })
            })
            .collect();
        let short = (0..cores.len()).any(|core| {
            cores[core].is_some()
                && self.plan.shares[core].ways < self.base.shares[core].ways
                && ahead[core] < self.reserve(core, self.plan.shares[core].ways) + 0.002
        });
        let stay = if short {
            self.base.masks.clone()
        } else {
            self.plan.masks.clone()
        };
        let mut plan = self.lend(programs, cores, &ahead, stay);
        if self.mode & 4 == 0 && !short && (switched || self.mode & 1 == 1) {
            let masks = self.place(programs, cores, &ahead, &plan);
            if masks != plan.masks {
                let other = self.lend(programs, cores, &ahead, masks);
                let left = |core: usize, job: &Running<'_>, plan: &Plan| {
                    let share = plan.shares[core];
                    let gained = plan.masks[core].gained(self.plan.masks[core]);
                    programs.phase_left(job.program, job.progress, share)
                        + self.refill.seconds(gained, share.partitions)
                };
                let gain: f64 = cores
                    .iter()
                    .enumerate()
                    .filter_map(|(core, job)| {
                        let job = job.as_ref()?;
                        Some(left(core, job, &plan) - left(core, job, &other))
                    })
                    .sum();
                if gain > self.fixed {
                    plan = other;
                }
            }
        }
        if plan == self.plan {
            return None;
        }
        for core in 0..cores.len() {
            let gained = plan.masks[core].gained(self.plan.masks[core]);
            self.cold[core] = (self.cold[core] + f64::from(gained) * self.refill.way_bytes)
                .min(f64::from(plan.masks[core].count()) * self.refill.way_bytes);
        }
        self.plan = plan;
        Some(&self.plan)
    }

    fn lend(
        &self,
        programs: &Programs,
        cores: &[Option<Running<'_>>],
        ahead: &[f64],
        masks: Vec<crate::WayMask>,
    ) -> Plan {
        let mut worth = vec![[f64::NEG_INFINITY; PARTITIONS_MAX + 1]; cores.len()];
        let all = usize::from(self.pool.grid.partitions);
        for (core, job) in cores.iter().enumerate() {
            let base = self.base.shares[core];
            let Some(job) = job else {
                worth[core][1..=all].fill(0.0);
                continue;
            };
            let floor = programs.rate(job.program, job.progress, base);
            let floor_left = programs.phase_left(job.program, job.progress, base);
            let best = programs.rate(job.program, job.progress, self.pool.grid.all());
            let ways = masks[core].count();
            let spare = ahead[core] - self.reserve(core, ways) - 0.002;
            for partitions in 1..=all {
                let share = Share {
                    partitions: partitions as u8,
                    ways,
                };
                let rate = programs.rate(job.program, job.progress, share);
                let filling = (self.cold[core]
                    + f64::from(masks[core].gained(self.plan.masks[core])) * self.refill.way_bytes)
                    / self.bandwidth(partitions as u8);
                let loss = floor_left * (floor / rate - 1.0) + filling;
                if loss <= spare.max(0.0) {
                    worth[core][partitions] = rate / best;
                }
            }
        }
        let partitions = match share_out(&worth, self.pool.grid.partitions) {
            Some((_, partitions)) => partitions,
            None => {
                // Nothing is allowed: closest to the base.
                self.base.shares.iter().map(|share| share.partitions).collect()
            }
        };
        let shares = masks
            .iter()
            .zip(partitions)
            .map(|(mask, partitions)| Share {
                ways: mask.count(),
                partitions,
            })
            .collect();
        Plan { shares, masks }
    }

    /// Seconds to have missing ways back.
    fn reserve(&self, core: usize, ways: u8) -> f64 {
        let base = self.base.shares[core];
        self.refill.seconds(base.ways.saturating_sub(ways), base.partitions)
    }

    fn place(
        &self,
        programs: &Programs,
        cores: &[Option<Running<'_>>],
        ahead: &[f64],
        lent: &Plan,
    ) -> Vec<crate::WayMask> {
        let ways = usize::from(self.pool.grid.ways);
        let claim = |core: usize| {
            let base = self.base.shares[core];
            let mut claim = Claim {
                saved: [0.0; WAYS_MAX + 1],
                risk: [0.0; WAYS_MAX + 1],
                fill: self.refill.seconds(1, lent.shares[core].partitions),
                credit: 0.0,
                before: self.plan.masks[core],
            };
            claim.risk[..usize::from(base.ways)].fill(f64::INFINITY);
            let Some(job) = &cores[core] else { return claim };
            claim.credit = ahead[core] - 0.002;
            let left = |program, progress, share| {
                let phase = programs.phase_left(program, progress, share);
                phase + self.kappa * (programs.time_left(program, progress, share) - phase)
            };
            for w in usize::from(self.pool.least.ways)..=ways {
                let share = Share {
                    ways: w as u8,
                    partitions: lent.shares[core].partitions,
                };
                let mut saved = -left(job.program, job.progress, share);
                if self.mode & 2 == 2 {
                    for job in job.waiting {
                        saved -= left(job.program, job.progress, share);
                    }
                }
                claim.saved[w] = saved;
                let share = Share { ways: w as u8, ..base };
                let loss = programs.time_left(job.program, job.progress, share)
                    - programs.time_left(job.program, job.progress, base);
                claim.risk[w] = loss.max(0.0) + self.reserve(core, w as u8);
            }
            claim
        };
        let claims: Vec<Claim> = (0..cores.len()).map(claim).collect();
        let stay: f64 = claims
            .iter()
            .map(|claim| claim.saved[usize::from(claim.before.count())])
            .sum();
        match ways::place(&claims, self.pool.grid.ways) {
            Some((sum, masks)) if sum > stay + self.fixed => masks,
            Some(_) => self.plan.masks.clone(),
            None => self.base.masks.clone(),
        }
    }
}
