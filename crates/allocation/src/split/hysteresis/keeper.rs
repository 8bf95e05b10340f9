//! The rule: lend bandwidth, and ways where it pays, within what each core can afford.

use punctual_units::{Nanos, Time};

use super::Refill;
use super::account::CoreDebt;
use super::bandwidth::{NOTHING, PARTITIONS_MAX, Worth, best, hand_out, least};
use super::ways::{WayGains, place};
use crate::allocator::CoreShares;
use crate::grid::Share;
use crate::here::Here;
use crate::masks::WayMask;
use crate::policy::{Outlook, rescued};
use crate::pool::{PerCore, Pool};
use crate::programs::Programs;
use crate::running::RunningJob;

/// Where bandwidth goes that no core needs to keep its pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To the largest average gain of speed, one partition at a time: as in DNA.
    Gradient,
    /// As `Gradient`, but sooner to jobs that would otherwise be late, at the cost of jobs that can afford it: as in
    /// DADNA.
    Deadlines,
    /// To the largest sum of speeds that there is.
    Speed,
}

/// Splits a machine so that jobs end earlier than under a base split, and none much later (the bound: [module](super)).
#[derive(Clone, Debug)]
pub struct Keeper {
    pool: Pool,
    aim: Aim,
    /// Least saving, in seconds, for which ways are moved: the least time between two decisions, below which the
    /// knowledge of phases is not exact.
    saved_min: f64,
    base: CoreShares,
    plan: CoreShares,
    accounts: Vec<CoreDebt>,
    at: Time,
}

/// Input of one decision.
struct Scene<'s> {
    programs: &'s Programs,
    cores: &'s [Option<RunningJob<'s>>],
    /// Position of each job in its run.
    here: PerCore<Option<Here<'s>>>,
    now: Time,
}

impl Keeper {
    /// Starts with `base`, which hands out all of `pool`, ways side by side. Ways that change hands cost `refill`, and
    /// a decision may come `gap` after its event.
    pub fn new(base: CoreShares, pool: Pool, refill: Refill, aim: Aim, gap: Nanos) -> Keeper {
        let account = |(share, own): (&Share, &WayMask)| CoreDebt::new(*share, *own, refill, gap);
        Keeper {
            pool,
            aim,
            saved_min: gap.as_secs_f64(),
            accounts: base.shares.iter().zip(&base.masks).map(account).collect(),
            plan: base.clone(),
            base,
            at: Time::ZERO,
        }
    }

    /// Goes on from `plan`, which is in force at `now`, with the jobs that are on `cores`: none is ahead or behind.
    #[must_use]
    pub fn going_on(
        mut self,
        plan: CoreShares,
        programs: &Programs,
        cores: &[Option<RunningJob<'_>>],
        now: Time,
    ) -> Keeper {
        for (core, (account, job)) in self.accounts.iter_mut().zip(cores).enumerate() {
            let has = (plan.masks[core], plan.shares[core].partitions);
            account.go_on(programs, job.as_ref(), has, now);
        }
        (self.plan, self.at) = (plan, now);
        self
    }

    /// The plan in force.
    pub fn plan(&self) -> &CoreShares {
        &self.plan
    }

    /// Decides from the job on each core at `now`. Returns the plan if it has changed.
    ///
    /// # Panics
    /// If there are more or fewer `cores` than in the base, or a program does not exist.
    pub fn decide(&mut self, programs: &Programs, cores: &[Option<RunningJob<'_>>], now: Time) -> Option<&CoreShares> {
        assert_eq!(cores.len(), self.accounts.len(), "one place for each core");
        let here = |job: &Option<RunningJob<'_>>| job.as_ref().map(|job| programs.here(job.program, job.progress));
        let scene = Scene {
            programs,
            cores,
            here: cores.iter().map(here).collect(),
            now,
        };
        for (account, job) in self.accounts.iter_mut().zip(cores) {
            account.pass(programs, job.as_ref(), self.at, now);
        }
        self.at = now;
        let plan = match self.lend(&scene, self.plan.masks.clone()) {
            Some(stay) => self.moved(&scene, &stay).unwrap_or(stay),
            // A core that has lent ways cannot do without them any longer. The base itself is always affordable.
            None => self
                .lend(&scene, self.base.masks.clone())
                .unwrap_or_else(|| self.base.clone()),
        };
        for ((account, mask), share) in self.accounts.iter_mut().zip(&plan.masks).zip(&plan.shares) {
            account.take(*mask, share.partitions);
        }
        let before = std::mem::replace(&mut self.plan, plan);
        (before != self.plan).then_some(&self.plan)
    }

    /// The plan with `masks` and the bandwidth that goes best with them; `None` if a core cannot afford them.
    fn lend(&self, scene: &Scene, masks: PerCore<WayMask>) -> Option<CoreShares> {
        let worth: PerCore<Worth> = (0..masks.len())
            .map(|core| self.worth(scene, core, masks[core]))
            .collect();
        let partitions = self.share_out(scene, &masks, &worth)?;
        let share = |(mask, partitions): (&WayMask, u8)| Share {
            ways: mask.count(),
            partitions,
        };
        Some(CoreShares {
            shares: masks.iter().zip(partitions).map(share).collect(),
            masks,
        })
    }

    /// The speed of a core with `mask` and each number of partitions, where it can afford that number.
    fn worth(&self, scene: &Scene, core: usize, mask: WayMask) -> Worth {
        let mut worth = NOTHING;
        let (here, base) = (scene.here[core].as_ref(), self.base.shares[core]);
        let least = match here {
            Some(_) => self.pool.least.partitions,
            None => self.pool.idle.partitions,
        };
        let all = usize::from(self.pool.grid.partitions).min(PARTITIONS_MAX) as u8;
        let (affords, ways) = (self.accounts[core].affords(here, mask), mask.count());
        for partitions in least.min(base.partitions)..=all {
            if affords(partitions) {
                worth[usize::from(partitions)] = here.map_or(0.0, |here| here.speed(Share { ways, partitions }));
            }
        }
        worth
    }

    fn share_out(&self, scene: &Scene, masks: &[WayMask], worth: &[Worth]) -> Option<PerCore<u8>> {
        let all = self.pool.grid.partitions;
        if self.aim == Aim::Speed {
            return best(worth, all);
        }
        let least = least(worth, all)?;
        let split = |weight: &dyn Fn(usize) -> i64| {
            let mut shares = least.clone();
            hand_out(worth, &mut shares, all, weight);
            shares
        };
        Some(match self.aim {
            Aim::Deadlines => self.rescued(scene, masks, split),
            _ => split(&|_| 1),
        })
    }

    /// The split with the weights that help jobs that would be late; cores at rest count as jobs with ample time.
    fn rescued(
        &self,
        scene: &Scene,
        masks: &[WayMask],
        split: impl Fn(&dyn Fn(usize) -> i64) -> PerCore<u8>,
    ) -> PerCore<u8> {
        let outlook = |core: usize| match &scene.cores[core] {
            Some(job) => {
                let (ways, partitions) = (masks[core].count(), self.pool.grid.partitions);
                let most = Share { ways, partitions };
                Outlook::of(scene.programs, job, scene.now, most, self.base.shares[core])
            }
            None => Outlook::AT_REST,
        };
        let outlooks: PerCore<Outlook> = (0..masks.len()).map(outlook).collect();
        let time_left = |core: usize, partitions: &PerCore<u8>| {
            let (ways, partitions) = (masks[core].count(), partitions[core]);
            let here = scene.here[core].as_ref();
            here.map_or(0.0, |here| here.time_left(Share { ways, partitions }))
        };
        rescued(&outlooks, time_left, split)
    }

    /// Another placement of the ways, if it saves enough over the phases at hand, compared with the plan `stay`.
    fn moved(&self, scene: &Scene, stay: &CoreShares) -> Option<CoreShares> {
        if stay.masks == self.base.masks && !self.accounts.iter().any(CoreDebt::may_owe_a_way) {
            return None;
        }
        let claims: PerCore<WayGains> = (0..self.accounts.len())
            .map(|core| self.claim(scene, core, stay))
            .collect();
        // No core saves enough even with all ways: not worth placing.
        let saves = |claim: &WayGains| {
            let most = claim.saved[usize::from(self.pool.grid.ways)] - claim.saved[usize::from(claim.before.count())];
            most > self.saved_min
        };
        if !claims.iter().any(saves) {
            return None;
        }
        let masks = place(&claims, self.pool.grid.ways)?;
        if masks == stay.masks {
            return None;
        }
        let other = self.lend(scene, masks)?;
        let until_end = |plan: &CoreShares| -> f64 {
            let of = |(core, here): (usize, &Option<Here>)| {
                let (mask, share) = (plan.masks[core], plan.shares[core]);
                Some(self.accounts[core].until_phase_end(here.as_ref()?, mask, share.partitions))
            };
            scene.here.iter().enumerate().filter_map(of).sum()
        };
        (until_end(stay) - until_end(&other) > self.saved_min).then_some(other)
    }

    /// Gain of a core by each number of ways, with the bandwidth that it has in `stay`. A core at rest keeps the ways
    /// that a job needs: a job may come faster than ways are filled.
    fn claim(&self, scene: &Scene, core: usize, stay: &CoreShares) -> WayGains {
        let (here, partitions) = (scene.here[core].as_ref(), stay.shares[core].partitions);
        let least = self.pool.least.ways.min(self.base.shares[core].ways);
        self.accounts[core].claim(here, partitions, least, self.pool.grid.ways)
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
