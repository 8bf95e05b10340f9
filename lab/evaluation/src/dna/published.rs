//! DNA and DADNA as published (fifth paper, sections V and VI), beside the product's `dna` and `dadna`.
//!
//! **DNA** (Algorithm 1) hands out one partition at a time to the core that gains most, over instructions per second,
//! to the last partition, whether it gains or not. The published code compares the gains of both resources even when
//! one is used up, and divides by 0 where a delta is 0; here what is used up is no choice, and the factor 0 is left
//! out.
//!
//! **DADNA** (Algorithm 2). Every job begins with the least. Jobs that would be late with it, but not with all that is
//! spare, come first: the one of the largest TimeLeft - slack gets a partition, of the resource that gains it more,
//! until it is in time or nothing is left. The rest is handed out as in DNA. TimeLeft is over the current and the
//! coming phases; slack is until the virtual deadline, for which waiting jobs have the whole machine. Where the text is
//! silent: "all the available resources" of line 19 are the job's least and all that is spare once every job has its
//! least; in the order of the text they would depend on the order of the cores.
//!
//! Both reallocate whatever refilling costs, every time a core changes its job, and else once a millisecond.

use punctual_allocation::{
    CoreShares, Levels, PerCore, Pool, Programs, RunningJob, Share, placed, virtual_deadline_with,
};
use punctual_units::{Nanos, Time};

/// Resources that have not been handed out yet.
#[derive(Clone, Copy)]
struct Spare {
    ways: usize,
    partitions: usize,
}

/// The jobs that run, apart from the cores that rest, and what they get.
struct Handing<'a> {
    /// Core and job of each busy core.
    jobs: PerCore<(usize, &'a RunningJob<'a>)>,
    /// Rates of each job's phase.
    levels: PerCore<&'a Levels>,
    shares: PerCore<Share>,
    spare: Spare,
}

impl<'a> Handing<'a> {
    /// Every busy core has its least.
    fn new(programs: &'a Programs, pool: Pool, cores: &'a [Option<RunningJob<'a>>]) -> Handing<'a> {
        let busy = cores.iter().enumerate();
        let jobs: PerCore<_> = busy.filter_map(|(core, job)| Some((core, job.as_ref()?))).collect();
        let levels = jobs
            .iter()
            .map(|(_, job)| programs.levels(job.program, job.progress))
            .collect();
        let idle = cores.len() - jobs.len();
        let left = |all: u8, least: u8, kept: u8| {
            usize::from(all).saturating_sub(jobs.len() * usize::from(least) + idle * usize::from(kept))
        };
        Handing {
            levels,
            shares: PerCore::from_elem(pool.least, jobs.len()),
            spare: Spare {
                ways: left(pool.grid.ways, pool.least.ways, pool.idle.ways),
                partitions: left(pool.grid.partitions, pool.least.partitions, pool.idle.partitions),
            },
            jobs,
        }
    }

    fn is_left(&self) -> bool {
        self.spare.ways > 0 || self.spare.partitions > 0
    }

    /// Gives one partition of the resource that gains more to a job (`GiveResourceTo`). Both averages are multiplied by
    /// the same positive factor, so that they compare without a division.
    fn give(&mut self, job: usize) {
        let (share, spare) = (&mut self.shares[job], &mut self.spare);
        let ways = gain(self.levels[job], *share, spare.ways, 0) * spare.partitions.max(1) as i64;
        let partitions = gain(self.levels[job], *share, 0, spare.partitions) * spare.ways.max(1) as i64;
        if spare.partitions == 0 || (spare.ways > 0 && partitions < ways) {
            share.ways += 1;
            spare.ways -= 1;
        } else {
            share.partitions += 1;
            spare.partitions -= 1;
        }
    }

    /// Hands out all, each partition to the job that gains most; of equals to the first. Returns the shares of all
    /// cores.
    fn all(mut self, pool: Pool, cores: usize) -> PerCore<Share> {
        while self.is_left() {
            let gain = |job: usize| {
                gain(
                    self.levels[job],
                    self.shares[job],
                    self.spare.ways,
                    self.spare.partitions,
                )
            };
            let gains = (0..self.jobs.len()).map(|job| (job, gain(job)));
            let Some((job, _)) = gains.reduce(|best, next| if next.1 > best.1 { next } else { best }) else {
                break;
            };
            self.give(job);
        }
        let mut all = PerCore::from_elem(pool.idle, cores);
        for ((core, _), share) in self.jobs.iter().zip(&self.shares) {
            all[*core] = *share;
        }
        all
    }
}

/// The double sum of theta: theta times its divisor, which is the same for all jobs.
fn gain(job: &Levels, share: Share, ways: usize, partitions: usize) -> i64 {
    let terms = ((ways + 1) * (partitions + 1)) as i64;
    i64::from(job.sum(share, ways, partitions)) - terms * i64::from(job.at(share))
}

/// Splits `pool` after Algorithm 1 among the jobs that run on `cores`.
pub fn dna_paper(programs: &Programs, pool: Pool, cores: &[Option<RunningJob<'_>>]) -> PerCore<Share> {
    Handing::new(programs, pool, cores).all(pool, cores.len())
}

/// Splits `pool` after Algorithm 2 among the jobs that run on `cores` at `now`.
pub fn dadna_paper(programs: &Programs, pool: Pool, cores: &[Option<RunningJob<'_>>], now: Time) -> PerCore<Share> {
    let mut handing = Handing::new(programs, pool, cores);
    let most = Share {
        ways: pool.least.ways + handing.spare.ways as u8,
        partitions: pool.least.partitions + handing.spare.partitions as u8,
    };
    let jobs = handing.jobs.clone();
    let slack: PerCore<f64> = jobs.iter().map(|(_, job)| slack_seconds(programs, job, now)).collect();
    // Seconds by which a job ends after its virtual deadline, with a share; negative: before it.
    let late_by = |job: usize, share: Share| {
        let running = jobs[job].1;
        programs.time_left(running.program, running.progress, share) - slack[job]
    };
    let is_first = |&job: &usize| late_by(job, pool.least) > 0.0 && late_by(job, most) <= 0.0;
    let mut first: PerCore<usize> = (0..jobs.len()).filter(is_first).collect();
    while handing.is_left() {
        let needs = |&job: &usize| late_by(job, handing.shares[job]);
        // Of equals the first.
        let most_late = first
            .iter()
            .copied()
            .reduce(|best, other| if needs(&other) > needs(&best) { other } else { best });
        let Some(job) = most_late else { break };
        handing.give(job);
        if late_by(job, handing.shares[job]) <= 0.0 {
            first.retain(|other| *other != job);
        }
    }
    handing.all(pool, cores.len())
}

/// From `now` until the virtual deadline of `job`, if those that wait then have everything; negative if that has
/// passed.
fn slack_seconds(programs: &Programs, job: &RunningJob<'_>, now: Time) -> f64 {
    let then = virtual_deadline_with(job, programs, programs.grid().all());
    if then >= now {
        then.since(now).as_secs_f64()
    } else {
        -now.since(then).as_secs_f64()
    }
}

/// Decides as the paper does when to split anew.
#[derive(Clone, Debug)]
pub struct PaperAllocator {
    knows_deadlines: bool,
    pool: Pool,
    /// Time between two decisions while no core changes its job.
    gap: Nanos,
    pub plan: CoreShares,
    pub decided: Option<Time>,
    /// Time at which to ask again; `None`: once what runs has changed.
    pub due: Option<Time>,
    /// Phase, and deadline and program, of each core's job at the last decision; `None`: the core was at rest.
    seen: PerCore<Option<(usize, (Time, usize))>>,
}

impl PaperAllocator {
    /// Begins with `plan`; Algorithm 2 knows deadlines.
    pub fn new(knows_deadlines: bool, pool: Pool, gap: Nanos, plan: CoreShares) -> PaperAllocator {
        PaperAllocator {
            knows_deadlines,
            pool,
            gap,
            plan,
            decided: None,
            due: None,
            seen: PerCore::new(),
        }
    }

    /// Splits anew if that is due; returns whether the plan is another one.
    pub fn step(&mut self, programs: &Programs, cores: &[Option<RunningJob<'_>>], now: Time) -> bool {
        if !self.is_due(programs, cores, now) {
            return false;
        }
        self.decided = Some(now);
        self.seen.clear();
        self.seen.extend(cores.iter().map(|job| state(programs, job)));
        let wanted = match self.knows_deadlines {
            true => dadna_paper(programs, self.pool, cores, now),
            false => dna_paper(programs, self.pool, cores),
        };
        let proposed = placed(&wanted, &self.plan, self.pool);
        let another = proposed != self.plan;
        self.plan = proposed;
        another
    }

    /// Whether to decide at `now`; sets when to ask again.
    fn is_due(&mut self, programs: &Programs, cores: &[Option<RunningJob<'_>>], now: Time) -> bool {
        let asked = self.due.take();
        let current = || cores.iter().map(|job| state(programs, job));
        let same_jobs = { self.seen.iter().map(|seen| seen.map(|seen| seen.1)) }.eq(current().map(|job| Some(job?.1)));
        // Without deadlines the same phases give the same split.
        if !self.knows_deadlines && same_jobs && self.seen.iter().copied().eq(current()) {
            return false;
        }
        let tick = Time(now.0.next_multiple_of(self.gap.0.max(1)));
        let next = if tick > now { tick } else { now + self.gap };
        let due = !same_jobs || asked.is_some_and(|asked| asked <= now) || tick == now;
        let busy = cores.iter().any(Option::is_some);
        self.due = (busy && self.gap > Nanos::ZERO && (!due || self.knows_deadlines)).then_some(next);
        due
    }
}

/// Phase, and deadline and program, of a core's job.
fn state(programs: &Programs, job: &Option<RunningJob<'_>>) -> Option<(usize, (Time, usize))> {
    let job = job.as_ref()?;
    Some((
        programs.phase_at(job.program, job.progress),
        (job.deadline, job.program),
    ))
}

#[cfg(test)]
mod tests {
    use punctual_allocation::policy::summed;
    use punctual_allocation::{Objective, Profile};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::super::decide::POOL;
    use super::super::tests::SHIPPED;
    use super::*;

    /// Algorithm 1 term by term, without tables of sums, until nothing is left.
    fn algorithm_1(programs: &Programs, jobs: &[RunningJob<'_>]) -> Vec<Share> {
        let count = jobs.len() as u8;
        let (mut ways, mut partitions) = (20 - count * POOL.least.ways, 20 - count * POOL.least.partitions);
        let mut shares = vec![POOL.least; jobs.len()];
        let rho = |job: usize, ways, partitions| summed(programs, &[Some(jobs[job])], &[Share { ways, partitions }]);
        let theta = |job: usize, has: Share, ways: u8, partitions: u8| -> i64 {
            let terms = (0..=ways).flat_map(|j| (0..=partitions).map(move |k| (j, k)));
            let now = rho(job, has.ways, has.partitions);
            terms
                .map(|(j, k)| rho(job, has.ways + j, has.partitions + k) - now)
                .sum()
        };
        while ways > 0 || partitions > 0 {
            let mut best = 0;
            for job in 1..jobs.len() {
                if theta(job, shares[job], ways, partitions) > theta(best, shares[best], ways, partitions) {
                    best = job;
                }
            }
            let of_ways = theta(best, shares[best], ways, 0) as f64 / f64::from(ways.max(1));
            let of_partitions = theta(best, shares[best], 0, partitions) as f64 / f64::from(partitions.max(1));
            if partitions == 0 || (ways > 0 && of_partitions < of_ways) {
                (shares[best].ways, ways) = (shares[best].ways + 1, ways - 1);
            } else {
                (shares[best].partitions, partitions) = (shares[best].partitions + 1, partitions - 1);
            }
        }
        shares
    }

    #[test]
    fn it_is_algorithm_1_and_without_haste_algorithm_2_is_the_same() {
        let profiles: Vec<Profile> = SHIPPED.iter().find(|set| set.name == "full").unwrap().profiles.clone();
        let programs = Programs::new(&profiles, Objective::Instructions).unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..8 {
            let jobs: Vec<RunningJob<'_>> = (0..4)
                .map(|_| RunningJob {
                    program: random.random_range(0..programs.len()),
                    progress: random.random(),
                    deadline: Time::MAX,
                    waiting: &[],
                })
                .collect();
            let cores: Vec<_> = jobs.iter().copied().map(Some).collect();
            let split = dna_paper(&programs, POOL, &cores);
            assert_eq!(split.to_vec(), algorithm_1(&programs, &jobs));
            assert_eq!(dadna_paper(&programs, POOL, &cores, Time(0)), split);
        }
    }
}
