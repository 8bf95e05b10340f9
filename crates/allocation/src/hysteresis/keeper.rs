//! The rule: lend bandwidth, move ways where it pays, make no job later.

use punctual_units::Time;

use super::Refill;
use super::bandwidth::{NOTHING, PARTITIONS_MAX, Worth, best, hand_out, least};
use super::shadow::Shadow;
use super::ways::{Claim, WAYS_MAX, place};
use crate::allocator::Plan;
use crate::grid::Share;
use crate::masks::WayMask;
use crate::policy::{Outlook, rescued};
use crate::pool::Pool;
use crate::programs::{Here, Programs};
use crate::running::Running;

/// Where bandwidth goes that no core needs to keep its pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To the largest average gain of speed, one partition at a time: as in DNA.
    Gradient,
    /// The same, but sooner to jobs that would otherwise be late, at the cost of who can afford it: as in DADNA.
    Deadlines,
    /// To the largest sum of speeds that there is.
    Speed,
}

/// Splits a machine so that no job ends later than under a base split, and as many as can be earlier.
#[derive(Clone, Debug)]
pub struct Keeper {
    pool: Pool,
    refill: Refill,
    aim: Aim,
    base: Plan,
    plan: Plan,
    cores: Vec<Standing>,
    at: Time,
}

/// One core since the last decision.
#[derive(Clone, Debug)]
struct Standing {
    shadow: Shadow,
    /// Bytes of its ways that are not filled yet.
    cold: f64,
    busy: bool,
    /// Seconds that its jobs can lose.
    ahead: f64,
}

/// What a decision is about.
struct Scene<'s> {
    programs: &'s Programs,
    cores: &'s [Option<Running<'s>>],
    /// Where each job is in its run.
    here: Vec<Option<Here<'s>>>,
    now: Time,
}

impl Keeper {
    /// Seconds that moving ways must save: the least time between two decisions, below which what is known of phases is not exact.
    pub const SAVED_MIN: f64 = 1e-3;

    /// Seconds of being ahead that are never spent: a decision may come so much too late, at a release and at a phase's end.
    pub const MARGIN: f64 = 2e-3;

    /// Keeps to `base`, which hands out all ways of `pool` side by side; ways that change hands cost `refill`.
    pub fn new(base: Plan, pool: Pool, refill: Refill, aim: Aim) -> Keeper {
        let standing = |share: &Share| Standing {
            shadow: Shadow::new(*share),
            cold: 0.0,
            busy: false,
            ahead: 0.0,
        };
        Keeper {
            pool,
            refill,
            aim,
            cores: base.shares.iter().map(standing).collect(),
            plan: base.clone(),
            base,
            at: Time::ZERO,
        }
    }

    /// What is in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Decides, given what runs on each core at `now`. The new plan, if it is another one.
    ///
    /// # Panics
    /// If `cores` are not as many as the base's, or a program does not exist.
    pub fn decide(&mut self, programs: &Programs, cores: &[Option<Running<'_>>], now: Time) -> Option<&Plan> {
        assert_eq!(cores.len(), self.cores.len(), "one place for each core");
        let here = |job: &Option<Running<'_>>| job.as_ref().map(|job| programs.here(job.program, job.progress));
        let scene = Scene {
            programs,
            cores,
            here: cores.iter().map(here).collect(),
            now,
        };
        self.pass(&scene);
        let mut plan = if self.must_return(&scene) {
            self.lend(&scene, self.base.masks.clone())
        } else {
            let stay = self.lend(&scene, self.plan.masks.clone());
            self.moved(&scene, &stay).unwrap_or(stay)
        };
        if plan == self.plan {
            return None;
        }
        for (core, standing) in self.cores.iter_mut().enumerate() {
            let gained = plan.masks[core].gained(self.plan.masks[core]);
            let whole = f64::from(plan.shares[core].ways) * self.refill.way_bytes;
            standing.cold = (standing.cold + f64::from(gained) * self.refill.way_bytes).min(whole);
        }
        std::mem::swap(&mut self.plan, &mut plan);
        Some(&self.plan)
    }

    /// Brings up to `now` what is cold, and how far each core is ahead.
    fn pass(&mut self, scene: &Scene) {
        let seconds = scene.now.since(self.at).as_secs_f64();
        self.at = scene.now;
        for ((standing, job), share) in self.cores.iter_mut().zip(scene.cores).zip(&self.plan.shares) {
            let bandwidth = self.refill.bandwidth(share.partitions);
            if standing.busy {
                standing.cold = (standing.cold - seconds * bandwidth).max(0.0);
            }
            standing.busy = job.is_some();
            standing.shadow.follow(scene.programs, job.as_ref(), scene.now);
            let ahead = |job| standing.shadow.ahead(scene.programs, job, standing.cold / bandwidth) - Keeper::MARGIN;
            standing.ahead = job.as_ref().map_or(0.0, ahead).max(0.0);
        }
    }

    /// Whether a core that has lent ways cannot do without them any longer.
    fn must_return(&self, scene: &Scene) -> bool {
        let lacks = |core: usize| {
            let ways = self.plan.shares[core].ways;
            scene.here[core].is_some()
                && ways < self.base.shares[core].ways
                && self.cores[core].ahead < self.having_back(core, ways)
        };
        (0..self.cores.len()).any(lacks)
    }

    /// Seconds to fill what `ways` lack of the base's.
    fn having_back(&self, core: usize, ways: u8) -> f64 {
        let base = self.base.shares[core];
        self.refill.seconds(base.ways.saturating_sub(ways), base.partitions)
    }

    /// The plan with `masks` and the bandwidth that goes best with them.
    fn lend(&self, scene: &Scene, masks: Vec<WayMask>) -> Plan {
        let worth: Vec<Worth> = (0..masks.len())
            .map(|core| self.worth(scene, core, masks[core]))
            .collect();
        let partitions = self.share_out(scene, &masks, &worth);
        let share = |(mask, partitions): (&WayMask, u8)| Share {
            ways: mask.count(),
            partitions,
        };
        Plan {
            // Where no sharing out keeps everybody's pace, the base's comes closest to it.
            shares: match partitions {
                Some(partitions) => masks.iter().zip(partitions).map(share).collect(),
                None => masks
                    .iter()
                    .zip(self.base.shares.iter().map(|base| base.partitions))
                    .map(share)
                    .collect(),
            },
            masks,
        }
    }

    /// The speed of a core with `mask` and each number of partitions, where it can afford that number.
    fn worth(&self, scene: &Scene, core: usize, mask: WayMask) -> Worth {
        let all = usize::from(self.pool.grid.partitions).min(PARTITIONS_MAX);
        let mut worth = NOTHING;
        let Some(here) = &scene.here[core] else {
            worth[1..=all].fill(0.0);
            return worth;
        };
        let (ways, standing) = (mask.count(), &self.cores[core]);
        let gained = f64::from(mask.gained(self.plan.masks[core])) * self.refill.way_bytes;
        let left = here.phase_left(self.base.shares[core]);
        let spare = (standing.ahead - self.having_back(core, ways)).max(0.0);
        for partitions in 1..=all as u8 {
            let share = Share { ways, partitions };
            let loses = here.phase_left(share) - left + gained / self.refill.bandwidth(partitions);
            if loses <= spare {
                worth[usize::from(partitions)] = here.speed(share);
            }
        }
        worth
    }

    fn share_out(&self, scene: &Scene, masks: &[WayMask], worth: &[Worth]) -> Option<Vec<u8>> {
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

    /// What `split` gives with the weights that help who would be late; cores at rest count as jobs with time in plenty.
    fn rescued(&self, scene: &Scene, masks: &[WayMask], split: impl Fn(&dyn Fn(usize) -> i64) -> Vec<u8>) -> Vec<u8> {
        let outlook = |core: usize| match &scene.cores[core] {
            Some(job) => {
                let (ways, partitions) = (masks[core].count(), self.pool.grid.partitions);
                let most = Share { ways, partitions };
                Outlook::of(scene.programs, job, scene.now, most, self.base.shares[core])
            }
            None => Outlook::AT_REST,
        };
        let outlooks: Vec<Outlook> = (0..masks.len()).map(outlook).collect();
        let time_left = |core: usize, partitions: &Vec<u8>| {
            let (ways, partitions) = (masks[core].count(), partitions[core]);
            let here = scene.here[core].as_ref();
            here.map_or(0.0, |here| here.time_left(Share { ways, partitions }))
        };
        rescued(&outlooks, time_left, split)
    }

    /// Another placement of the ways, if it saves enough over the phases at hand, compared with the plan `stay`.
    fn moved(&self, scene: &Scene, stay: &Plan) -> Option<Plan> {
        let claims: Vec<Claim> = (0..self.cores.len())
            .map(|core| self.claim(scene, core, stay))
            .collect();
        // Nobody saves enough even with all ways: not worth placing.
        let saves = |claim: &Claim| {
            let most = claim.saved[usize::from(self.pool.grid.ways)] - claim.saved[usize::from(claim.before.count())];
            claim.credit > 0.0 && most > Keeper::SAVED_MIN
        };
        if !claims.iter().any(saves) {
            return None;
        }
        let masks = place(&claims, self.pool.grid.ways)?;
        if masks == stay.masks {
            return None;
        }
        let other = self.lend(scene, masks);
        let until_end = |plan: &Plan| -> f64 {
            let of = |(core, here): (usize, &Option<Here>)| {
                let share = plan.shares[core];
                let gained = plan.masks[core].gained(self.plan.masks[core]);
                Some(here.as_ref()?.phase_left(share) + self.refill.seconds(gained, share.partitions))
            };
            scene.here.iter().enumerate().filter_map(of).sum()
        };
        (until_end(stay) - until_end(&other) > Keeper::SAVED_MIN).then_some(other)
    }

    /// What a core makes of ways, with the bandwidth that it has in `stay`.
    fn claim(&self, scene: &Scene, core: usize, stay: &Plan) -> Claim {
        let (base, partitions) = (self.base.shares[core], stay.shares[core].partitions);
        let mut claim = Claim {
            saved: [0.0; WAYS_MAX + 1],
            risk: [f64::INFINITY; WAYS_MAX + 1],
            fill: self.refill.seconds(1, partitions),
            credit: self.cores[core].ahead,
            before: self.plan.masks[core],
        };
        let Some(here) = &scene.here[core] else {
            // A core at rest keeps what its next job will want.
            claim.risk[usize::from(base.ways.min(claim.before.count()))..].fill(0.0);
            return claim;
        };
        let pace = here.time_left(base);
        for ways in self.pool.least.ways..=self.pool.grid.ways {
            let with = |partitions| Share { ways, partitions };
            let loses = here.time_left(with(base.partitions)) - pace;
            let at = usize::from(ways);
            claim.saved[at] = -here.phase_left(with(partitions));
            claim.risk[at] = loses.max(0.0) + self.having_back(core, ways);
        }
        claim
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
