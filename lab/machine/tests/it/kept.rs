//! What `punctual_allocation::hysteresis` promises, job by job: none ends much later than under the base split.

use proptest::prelude::*;
use punctual_allocation::hysteresis::{Aim, Keeper};
use punctual_allocation::{
    Base, CoreShares, Grid, Loads, Objective, PeriodicTask, Phase, Pool, Profile, Programs, RateTable, Refill as Cost,
    Share,
};
use punctual_machine::split::run;
use punctual_sim::split::{Instant, Refill, RunnableProfile, Slice, SplitModel, slices};
use punctual_units::Nanos;
use punctual_workload::JobOutcome;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Seconds by which rounding may delay a job: a microsecond is the rule's, the rest is for some thousand events.
const ROUNDING: f64 = 1e-5;

/// A task set on a machine, and the split that it is compared with.
#[derive(Debug)]
pub struct Case {
    pub machine: SplitModel,
    pub pool: Pool,
    pub programs: Vec<RunnableProfile>,
    pub tasks: Vec<PeriodicTask>,
    pub base: CoreShares,
    pub aim: Aim,
}

/// When a job was due, and when it ended under each (s).
struct JobComparison {
    core: usize,
    task: usize,
    released: f64,
    deadline: f64,
    under_base: f64,
    kept: f64,
}

/// A program whose phases gain by ways, by bandwidth, by both or by nothing, up to some number of them.
fn program(random: &mut ChaCha8Rng, grid: Grid) -> RunnableProfile {
    let phases = random.random_range(1..=4);
    let mut ends: Vec<f64> = (1..phases).map(|_| random.random_range(0.01..0.99)).collect();
    ends.push(1.0);
    ends.sort_by(f64::total_cmp);
    ends.dedup();
    let mut phase = |ends: f64| {
        let gains: [f32; 2] =
            [(0.0, 0.0), (2.0, 0.0), (0.0, 2.0), (2.0, 2.0), (2.0, 0.6)][random.random_range(0..5)].into();
        let enough = [grid.ways, grid.partitions].map(|all| f32::from(random.random_range(2..=all)));
        let lacks = move |kind: usize, has: u8| gains[kind] * (enough[kind] - f32::from(has)).max(0.0) / enough[kind];
        Phase {
            ends,
            rates: RateTable::new(grid, |share| {
                1e9 / (1.0 + lacks(0, share.ways) + lacks(1, share.partitions))
            }),
        }
    };
    let phases = ends.into_iter().map(&mut phase).collect();
    let profile = Profile {
        name: "random".into(),
        grid,
        instructions: 10_f64.powf(random.random_range(7.0..8.8)),
        phases,
    };
    RunnableProfile::new(profile).unwrap()
}

/// `all` in as many parts as cores, each at least `least`.
fn parts(random: &mut ChaCha8Rng, cores: usize, all: u8, least: u8) -> Vec<u8> {
    let mut parts = vec![least; cores];
    for _ in 0..usize::from(all) - cores * usize::from(least) {
        parts[random.random_range(0..cores)] += 1;
    }
    parts
}

pub fn compiled(programs: &[RunnableProfile]) -> Programs {
    let profiles: Vec<Profile> = programs.iter().map(|program| program.profile().clone()).collect();
    Programs::new(&profiles, Objective::Speed).unwrap()
}

/// Two to four cores, gaps of 1 and 10 ms, ways that take from 10 us to 50 ms to fill with one partition, loads from
/// light to overload. The base of one half of the cases is drawn, that of the other half gives up as few cores as it
/// can.
pub fn case(seed: u64) -> Case {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let cores = random.random_range(2..=4);
    let least = Share {
        ways: random.random_range(1..=3),
        partitions: random.random_range(1..=3),
    };
    let all = |least: u8, more: u8| least * cores as u8 + more;
    let grid = Grid {
        ways: all(least.ways, random.random_range(0..=6)),
        partitions: all(least.partitions, random.random_range(0..=6)),
    };
    let idle = Share {
        ways: random.random_range(1..=least.ways),
        partitions: random.random_range(1..=least.partitions),
    };
    let machine = SplitModel {
        grid,
        cores,
        way_bytes: 10_f64.powf(random.random_range(-5.0..-1.3)) * 1e8,
        partition_bandwidth: 1e8,
        refill: Refill::Charged,
        decision_gap: [1, 10].map(Nanos::from_millis)[random.random_range(0..2)],
    };
    let programs: Vec<RunnableProfile> = (0..3).map(|_| program(random, grid)).collect();
    let ways = parts(random, cores, grid.ways, least.ways);
    let partitions = parts(random, cores, grid.partitions, least.partitions);
    let share = |(ways, partitions): (u8, u8)| Share { ways, partitions };
    let base = CoreShares::side_by_side(ways.into_iter().zip(partitions).map(share).collect());
    let mut tasks = Vec::new();
    for core in 0..cores {
        for _ in 0..random.random_range(1..=3) {
            let program = random.random_range(0..programs.len());
            let utilisation = random.random_range(0.1..0.5);
            let period = Nanos::from_secs_f64(programs[program].profile().duration(base.shares[core]) / utilisation);
            tasks.push(PeriodicTask::new(program, period, core));
        }
    }
    let pool = Pool { grid, least, idle };
    let base = match random.random_bool(0.5) {
        true => Base::StaticFewest.split(&Loads::new(&compiled(&programs), &tasks, cores), pool),
        false => base,
    };
    Case {
        machine,
        pool,
        programs,
        tasks,
        base,
        aim: [Aim::Gradient, Aim::Deadlines, Aim::Speed][random.random_range(0..3)],
    }
}

/// What `keeper` decides at `instant`.
fn kept(keeper: &mut Keeper, compiled: &Programs, instant: &Instant) -> Vec<Option<Slice>> {
    keeper.decide(compiled, &instant.cores(), instant.now);
    slices(keeper.plan())
}

/// Runs `case` under its base and under a keeper that believes in these costs and this gap.
fn compared(case: &Case, cost: Cost, gap: Nanos) -> Vec<JobComparison> {
    let compiled = compiled(&case.programs);
    let mut keeper = Keeper::new(case.base.clone(), case.pool, cost, case.aim, gap);
    let longest = case.tasks.iter().map(|task| task.period).max().unwrap();
    let run = |allocate: &mut dyn FnMut(&Instant) -> Option<Vec<Option<Slice>>>| {
        let mut jobs = run(&case.machine, &case.programs, &case.tasks, longest * 4, allocate)
            .unwrap()
            .jobs;
        jobs.sort_by_key(|job| (job.task, job.job));
        jobs
    };
    let base = run(&mut |_| Some(slices(&case.base)));
    let kept = run(&mut |instant| Some(self::kept(&mut keeper, &compiled, instant)));
    assert_eq!(base.len(), kept.len());
    let pair = |(base, kept): (&JobOutcome, &JobOutcome)| JobComparison {
        core: case.tasks[base.task.index()].core,
        task: base.task.index(),
        released: base.released.as_secs_f64(),
        deadline: (base.released + base.deadline.unwrap()).as_secs_f64(),
        under_base: base.finished.as_secs_f64(),
        kept: kept.finished.as_secs_f64(),
    };
    base.iter().zip(&kept).map(pair).collect()
}

/// Seconds by which the job that is delayed most ends later than under the base, jobs with earlier deadlines apart that
/// were released since it ended there.
fn delay(case: &Case, jobs: &[JobComparison]) -> f64 {
    let of = |job: &JobComparison| {
        let before = |other: &&JobComparison| {
            other.core == job.core
                && other.deadline < job.deadline
                && (job.under_base..job.kept).contains(&other.released)
        };
        let takes = |other: &JobComparison| {
            let program = case.programs[case.tasks[other.task].program].profile();
            program.duration(case.base.shares[other.core])
        };
        job.kept - job.under_base - jobs.iter().filter(before).map(takes).sum::<f64>()
    };
    jobs.iter().map(of).fold(f64::NEG_INFINITY, f64::max)
}

/// Seconds by which the job that is late most is so beyond what is due by then under the base.
fn lateness(jobs: &[JobComparison]) -> f64 {
    let of = |job: &JobComparison| {
        let due = |other: &&JobComparison| other.core == job.core && other.deadline <= job.deadline;
        let base = jobs.iter().filter(due).map(|other| other.under_base);
        job.kept - base.fold(job.deadline, f64::max)
    };
    jobs.iter().map(of).fold(f64::NEG_INFINITY, f64::max)
}

pub fn cost(machine: &SplitModel) -> Cost {
    Cost {
        way_bytes: machine.way_bytes,
        partition_bytes_per_second: machine.partition_bandwidth,
    }
}

/// The worst delay or lateness of `case` (s), if the keeper believes that ways cost `part` of what they do, and that
/// decisions come `gaps` times as late as they do.
fn worst(case: &Case, part: f64, gaps: f64) -> f64 {
    let real = cost(&case.machine);
    let believed = Cost {
        way_bytes: real.way_bytes * part,
        ..real
    };
    let jobs = compared(case, believed, case.machine.decision_gap.scaled(gaps));
    delay(case, &jobs).max(lateness(&jobs))
}

fn bound(case: &Case) -> f64 {
    2.0 * case.machine.decision_gap.as_secs_f64() + ROUNDING
}

proptest! {
    /// The bound of the rule: two decision gaps.
    #[test]
    fn no_job_ends_much_later_than_under_the_base(seed in any::<u64>()) {
        let case = case(seed);
        let (worst, bound) = (worst(&case, 1.0, 1.0), bound(&case));
        prop_assert!(worst <= bound, "{worst} s later, of {bound}");
    }
}

/// Of the first cases, how many are over the bound, by seed.
fn over_the_bound(part: f64, gaps: f64) -> usize {
    let over = |seed: &u64| {
        let case = case(*seed);
        worst(&case, part, gaps) > bound(&case)
    };
    (0..200).filter(over).count()
}

/// Without a bound of its debt, a core lends as long as it is ahead, and the job that is released next pays.
#[test]
fn a_rule_that_does_not_bound_what_is_owed_is_noticed() {
    assert!(over_the_bound(1.0, 10.0) > 5);
}

#[test]
fn a_rule_that_does_not_know_what_ways_cost_is_noticed() {
    assert!(over_the_bound(0.1, 1.0) > 5);
}

/// To keep the base would keep the promise, too: jobs must end earlier, in sum.
#[test]
fn jobs_end_earlier_than_under_the_base() {
    let (mut sooner, mut under_base) = (0.0, 0.0);
    for seed in 0..100 {
        let case = case(seed);
        for job in compared(&case, cost(&case.machine), case.machine.decision_gap) {
            sooner += job.under_base - job.kept;
            under_base += job.under_base - job.released;
        }
    }
    assert!(sooner > 0.05 * under_base, "{sooner} of {under_base}");
}
