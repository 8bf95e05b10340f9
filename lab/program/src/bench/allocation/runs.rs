//! The instants at which a run calls an allocator: the job on each core, its progress and deadline, and the jobs
//! waiting behind it.
//!
//! Every policy has runs of its own, of the same task sets, because the policy that splits the machine decides the
//! jobs' progress at the next instant. A policy that reallocates at every change runs on a machine on which gaining a
//! way costs nothing, because it would otherwise spend its time refilling ways; the rule with hysteresis runs on one
//! with real costs.

use punctual_allocation::{Allocator, AllocatorSettings, Base, CoreShares, Policy, Pool, Programs, Refill, RunningJob};
use punctual_evaluation::dna::{ProfileSet, TaskSet, draw};
use punctual_sim::split::{self, Instant, RunnableProfile, SplitModel, slices};
use punctual_units::{Nanos, Time};

use punctual_files::failure::Failure;

/// Number of task sets that are run.
pub const TASK_SETS: usize = 4;
/// Duration for which each run releases jobs.
pub const RELEASES: Nanos = Nanos::from_secs(5);

/// A policy, and whether it knows the cost of a gained way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedDecider {
    pub name: &'static str,
    pub policy: Policy,
    pub hysteresis: bool,
}

/// Name of the control, which decides nothing: the cost of its steps is that of timing.
pub const CONTROL: &str = "control: a split that stays";

/// All timed policies, the control first.
pub const DECIDERS: [TimedDecider; 7] = {
    const fn of(name: &'static str, policy: Policy, hysteresis: bool) -> TimedDecider {
        TimedDecider {
            name,
            policy,
            hysteresis,
        }
    }
    let (dna, dadna) = (Policy::Dna, Policy::Dadna);
    [
        of(CONTROL, Policy::Equal, false),
        of("dna", dna, false),
        of("dadna", dadna, false),
        of("exact", Policy::Exact, false),
        of("dna, hysteresis", dna, true),
        of("dadna, hysteresis", dadna, true),
        of("exact, hysteresis", Policy::Exact, true),
    ]
};

/// A machine, its programs and its task sets.
pub struct Bench<'b> {
    pub programs: &'b Programs,
    pub pool: Pool,
    machine: SplitModel,
    simulated: Vec<RunnableProfile>,
    pub sets: Vec<TaskSet>,
}

/// The recorded run of one task set, for deciding again.
pub struct RecordedRun {
    /// The allocator before the first instant.
    pub allocator: Allocator,
    pub instants: Vec<Instant>,
    /// Number of decisions that changed the split.
    pub changes: u64,
    /// The split in force at the end.
    pub last: CoreShares,
}

impl<'b> Bench<'b> {
    /// A machine of `cores` cores that splits `pool` among task sets of `utilisation`, drawn as in the fifth paper.
    ///
    /// # Errors
    /// [`Failure::Input`] naming the profile that cannot be run, or if no task set fits.
    pub fn new(
        set: &ProfileSet,
        programs: &'b Programs,
        (cores, pool): (usize, Pool),
        utilisation: f64,
        seed: u64,
    ) -> Result<Bench<'b>, Failure> {
        let simulated = set.profiles.iter().cloned().map(RunnableProfile::new);
        let simulated: Vec<RunnableProfile> = simulated.collect::<Result<_, _>>().map_err(Failure::of)?;
        let set_of = |number| draw(&simulated, cores, utilisation, seed, number);
        let sets = (0..TASK_SETS).map(set_of).collect::<Result<_, String>>();
        Ok(Bench {
            sets: sets.map_err(Failure::of)?,
            programs,
            pool,
            machine: SplitModel {
                cores,
                grid: pool.grid,
                way_bytes: set.way_bytes,
                ..SplitModel::PAPER
            },
            simulated,
        })
    }

    /// Runs every task set under `decider`.
    ///
    /// # Errors
    /// [`Failure`] for an impossible machine or task set.
    pub fn run(&self, decider: TimedDecider) -> Result<Vec<RecordedRun>, Failure> {
        self.sets.iter().map(|set| self.run_set(decider, set)).collect()
    }

    /// Runs one task set under `decider`.
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn run_set(&self, decider: TimedDecider, set: &TaskSet) -> Result<RecordedRun, Failure> {
        let machine = SplitModel {
            refill: match decider.hysteresis {
                true => split::Refill::Charged,
                false => split::Refill::Free,
            },
            ..self.machine
        };
        let allocator = self.allocator(decider, set)?;
        let mut deciding = allocator.clone();
        let mut run = RecordedRun {
            last: allocator.plan().clone(),
            allocator,
            instants: Vec::new(),
            changes: 0,
        };
        let ended = punctual_machine::split::run(&machine, &self.simulated, &set.tasks, RELEASES, |instant| {
            let changed = step(&mut deciding, self.programs, &instant.cores(), instant.now);
            run.changes += u64::from(changed);
            run.instants.push(instant.clone());
            // The machine begins without a split.
            (changed || run.instants.len() == 1).then(|| slices(deciding.plan()))
        });
        ended.map_err(Failure::of)?;
        run.last = deciding.plan().clone();
        Ok(run)
    }

    fn allocator(&self, decider: TimedDecider, set: &TaskSet) -> Result<Allocator, Failure> {
        let refill = Refill {
            way_bytes: self.machine.way_bytes,
            partition_bytes_per_second: self.machine.partition_bandwidth,
        };
        let settings = AllocatorSettings {
            pool: self.pool,
            cores: self.machine.cores,
            policy: decider.policy,
            base: Base::StaticFewest,
            refill: decider.hysteresis.then_some(refill),
            // The machine enforces the gap itself.
            gap: Nanos::ZERO,
        };
        Allocator::new(self.programs, &set.tasks, settings).map_err(Failure::of)
    }
}

/// Makes a decision; returns whether it changed the split.
pub fn step(allocator: &mut Allocator, programs: &Programs, cores: &[Option<RunningJob<'_>>], now: Time) -> bool {
    allocator.step(programs, cores, now).is_some()
}
