//! The rule: lend bandwidth, move ways where it pays, make no job later.

use punctual_units::Time;

use super::Refill;
use super::bandwidth::{NOTHING, PARTITIONS_MAX, Worth, best, hand_out, least};
use super::shadow::Shadow;
use super::ways::{Claim, WAYS_MAX, place};
use crate::allocator::Plan;
use crate::grid::Share;
use crate::masks::WayMask;
use crate::policy::slack_seconds;
use crate::pool::Pool;
use crate::programs::Programs;
use crate::running::Running;

/// Where bandwidth goes that no core needs to keep its pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To the largest average gain of speed, one partition at a time: as in DNA.
    Gradient,
    /// First to jobs that would otherwise be late, as in DADNA; then as [`Aim::Gradient`].
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

type Cores<'a> = [Option<Running<'a>>];

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
    pub fn decide(&mut self, programs: &Programs, cores: &Cores, now: Time) -> Option<&Plan> {
        assert_eq!(cores.len(), self.cores.len(), "one place for each core");
        self.pass(programs, cores, now);
        let mut plan = if self.must_return(cores) {
            self.lend(programs, cores, now, self.base.masks.clone())
        } else {
            let stay = self.lend(programs, cores, now, self.plan.masks.clone());
            self.moved(programs, cores, now, &stay).unwrap_or(stay)
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
    fn pass(&mut self, programs: &Programs, cores: &Cores, now: Time) {
        let seconds = now.since(self.at).as_secs_f64();
        self.at = now;
        for ((standing, job), share) in self.cores.iter_mut().zip(cores).zip(&self.plan.shares) {
            let bandwidth = self.refill.bandwidth(share.partitions);
            if standing.busy {
                standing.cold = (standing.cold - seconds * bandwidth).max(0.0);
            }
            standing.busy = job.is_some();
            standing.shadow.follow(programs, job.as_ref(), now);
            let ahead = |job| standing.shadow.ahead(programs, job, standing.cold / bandwidth) - Keeper::MARGIN;
            standing.ahead = job.as_ref().map_or(0.0, ahead).max(0.0);
        }
    }

    /// Whether a core that has lent ways cannot do without them any longer.
    fn must_return(&self, cores: &Cores) -> bool {
        let lacks = |core: usize| {
            let ways = self.plan.shares[core].ways;
            cores[core].is_some() && ways < self.base.shares[core].ways && self.cores[core].ahead < self.having_back(core, ways)
        };
        (0..cores.len()).any(lacks)
    }

    /// Seconds to fill what `ways` lack of the base's.
    fn having_back(&self, core: usize, ways: u8) -> f64 {
        let base = self.base.shares[core];
        self.refill.seconds(base.ways.saturating_sub(ways), base.partitions)
    }

    /// The plan with `masks` and the bandwidth that goes best with them.
    fn lend(&self, programs: &Programs, cores: &Cores, now: Time, masks: Vec<WayMask>) -> Plan {
        let mut worth: Vec<Worth> = Vec::with_capacity(cores.len());
        worth.extend((0..cores.len()).map(|core| self.worth(programs, cores, core, masks[core])));
        let partitions = self.share_out(programs, cores, now, &masks, &worth);
        let share = |(mask, partitions): (&WayMask, u8)| Share {
            ways: mask.count(),
            partitions,
        };
        Plan {
            // Where no sharing out keeps everybody's pace, the base's comes closest to it.
            shares: match partitions {
                Some(partitions) => masks.iter().zip(partitions).map(share).collect(),
                None => masks.iter().zip(self.base.shares.iter().map(|base| base.partitions)).map(share).collect(),
            },
            masks,
        }
    }

    /// The speed of a core with `mask` and each number of partitions, where it can afford that number.
    fn worth(&self, programs: &Programs, cores: &Cores, core: usize, mask: WayMask) -> Worth {
        let all = usize::from(self.pool.grid.partitions).min(PARTITIONS_MAX);
        let mut worth = NOTHING;
        let Some(job) = &cores[core] else {
            worth[1..=all].fill(0.0);
            return worth;
        };
        let (ways, standing) = (mask.count(), &self.cores[core]);
        let gained = f64::from(mask.gained(self.plan.masks[core])) * self.refill.way_bytes;
        let pace = programs.rate(job.program, job.progress, self.base.shares[core]);
        let left = programs.phase_left(job.program, job.progress, self.base.shares[core]);
        let spare = (standing.ahead - self.having_back(core, ways)).max(0.0);
        for partitions in 1..=all as u8 {
            let share = Share { ways, partitions };
            let rate = programs.rate(job.program, job.progress, share);
            let loses = left * (pace / rate - 1.0) + gained / self.refill.bandwidth(partitions);
            if loses <= spare {
                worth[usize::from(partitions)] = programs.speed(job.program, job.progress, share);
            }
        }
        worth
    }

    fn share_out(&self, programs: &Programs, cores: &Cores, now: Time, masks: &[WayMask], worth: &[Worth]) -> Option<Vec<u8>> {
        let all = self.pool.grid.partitions;
        if self.aim == Aim::Speed {
            return best(worth, all);
        }
        let mut shares = least(worth, all)?;
        if self.aim == Aim::Deadlines {
            self.rescue(programs, cores, now, masks, &mut shares);
        }
        hand_out(worth, &mut shares, all);
        Some(shares)
    }

    /// Gives to jobs that would be late, but not with all that is left, until they are not: the one that lacks most first.
    fn rescue(&self, programs: &Programs, cores: &Cores, now: Time, masks: &[WayMask], shares: &mut [u8]) {
        let mut left = self.pool.grid.partitions - shares.iter().sum::<u8>();
        while left > 0 {
            let lacks = |(core, job): (usize, &Option<Running<'_>>)| {
                let job = job.as_ref()?;
                let slack = slack_seconds(programs, job, now);
                let late = |partitions| {
                    let share = Share {
                        ways: masks[core].count(),
                        partitions,
                    };
                    programs.time_left(job.program, job.progress, share) - slack
                };
                let lacks = late(shares[core]);
                (lacks > 0.0 && late(shares[core] + left) <= 0.0).then_some((core, lacks))
            };
            let most = cores.iter().enumerate().filter_map(lacks).max_by(|a, b| a.1.total_cmp(&b.1));
            let Some((core, _)) = most else { return };
            shares[core] += 1;
            left -= 1;
        }
    }

    /// Another placement of the ways, if it saves enough over the phases at hand, compared with the plan `stay`.
    fn moved(&self, programs: &Programs, cores: &Cores, now: Time, stay: &Plan) -> Option<Plan> {
        let claims: Vec<Claim> = (0..cores.len()).map(|core| self.claim(programs, cores, core, stay)).collect();
        let masks = place(&claims, self.pool.grid.ways)?;
        if masks == stay.masks {
            return None;
        }
        let other = self.lend(programs, cores, now, masks);
        let until_end = |plan: &Plan| -> f64 {
            let of = |(core, job): (usize, &Option<Running<'_>>)| {
                let (job, share) = (job.as_ref()?, plan.shares[core]);
                let gained = plan.masks[core].gained(self.plan.masks[core]);
                Some(programs.phase_left(job.program, job.progress, share) + self.refill.seconds(gained, share.partitions))
            };
            cores.iter().enumerate().filter_map(of).sum()
        };
        (until_end(stay) - until_end(&other) > Keeper::SAVED_MIN).then_some(other)
    }

    /// What a core makes of ways, with the bandwidth that it has in `stay`.
    fn claim(&self, programs: &Programs, cores: &Cores, core: usize, stay: &Plan) -> Claim {
        let (base, partitions) = (self.base.shares[core], stay.shares[core].partitions);
        let mut claim = Claim {
            saved: [0.0; WAYS_MAX + 1],
            risk: [f64::INFINITY; WAYS_MAX + 1],
            fill: self.refill.seconds(1, partitions),
            credit: self.cores[core].ahead,
            before: self.plan.masks[core],
        };
        let Some(job) = &cores[core] else {
            // A core at rest keeps what its next job will want.
            claim.risk[usize::from(base.ways.min(claim.before.count()))..].fill(0.0);
            return claim;
        };
        let pace = programs.time_left(job.program, job.progress, base);
        for ways in self.pool.least.ways..=self.pool.grid.ways {
            let with = |partitions| Share { ways, partitions };
            let loses = programs.time_left(job.program, job.progress, with(base.partitions)) - pace;
            let at = usize::from(ways);
            claim.saved[at] = -programs.phase_left(job.program, job.progress, with(partitions));
            claim.risk[at] = loses.max(0.0) + self.having_back(core, ways);
        }
        claim
    }
}
