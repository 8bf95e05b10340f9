//! The state machine that decides what each core has, from event to event.
//!
//! ```text
//! what runs ─► policy (gains) ─► placed (few ways change hands) ─► plan        where changing is free
//! what runs ─► keeper (lend bandwidth, move ways where it pays) ─► plan        where refilling ways costs
//! ```
//!
//! It reads no clock: `now` comes with each question, and if it decided less than [`AllocatorSettings::gap`] ago it
//! only says when it wants to be asked again ([`Allocator::due`]).

use punctual_units::Time;

use crate::grid::Share;
use crate::hysteresis::{Aim, Keeper};
use crate::masks::{WayMask, place, side_by_side};
use crate::policy::{Exact, Loads, PeriodicTask, Policy, dadna, dna, equal, static_best, static_fewest, vc2m};
use crate::pool::{PerCore, Pool};
use crate::programs::Programs;
use crate::running::RunningJob;
use crate::settings::{AllocatorSettings, Base, SettingsError};

/// Ways and bandwidth of each core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreShares {
    /// Number of ways and of bandwidth partitions, core by core.
    pub shares: PerCore<Share>,
    /// The ways themselves; each mask has as many as the core's share says.
    pub masks: PerCore<WayMask>,
}

impl CoreShares {
    /// Places the ways of `shares` side by side, in the order of the cores.
    ///
    /// # Panics
    /// If a core has no way, or all together have more than 64.
    pub fn side_by_side(shares: PerCore<Share>) -> CoreShares {
        let ways: PerCore<u8> = shares.iter().map(|share| share.ways).collect();
        CoreShares {
            shares,
            masks: side_by_side(&ways),
        }
    }

    /// Number of ways of each core that it did not have in `before`.
    pub fn gained<'a>(&'a self, before: &'a CoreShares) -> impl Iterator<Item = u8> + 'a {
        self.masks
            .iter()
            .zip(&before.masks)
            .map(|(now, then)| now.gained(*then))
    }
}

/// Decides the share of each core.
///
/// ```
/// use punctual_allocation::{
///     Allocator, AllocatorSettings, Grid, Objective, PeriodicTask, Phase, Policy, Pool, Profile, Programs, RateTable,
///     RunningJob,
/// };
/// use punctual_units::{Nanos, Time};
///
/// // A program that gains from ways alone, and one that gains from nothing.
/// let program = |name: &str, per_way: f32| Profile {
///     name: name.into(),
///     grid: Grid::PAPER,
///     instructions: 1e8,
///     phases: vec![Phase {
///         ends: 1.0,
///         rates: RateTable::new(Grid::PAPER, |share| 1e9 + per_way * f32::from(share.ways)),
///     }],
/// };
/// let programs = Programs::new(&[program("eager", 1e8), program("content", 0.0)], Objective::Speed)?;
/// let period = Nanos::from_millis(500);
/// let tasks = [PeriodicTask { program: 0, period, core: 0 }, PeriodicTask { program: 1, period, core: 1 }];
/// let settings = AllocatorSettings { cores: 2, ..AllocatorSettings::paper(Policy::Dna) };
/// let mut allocator = Allocator::new(&programs, &tasks, settings)?;
///
/// let job = |program| Some(RunningJob { program, progress: 0.0, deadline: Time(500_000_000), waiting: &[] });
/// allocator.step(&programs, &[job(0), job(1)], Time(0));
/// let shares: Vec<u8> = allocator.plan().shares.iter().map(|share| share.ways).collect();
/// assert_eq!(shares, [17, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Allocator {
    settings: AllocatorSettings,
    plan: CoreShares,
    /// The tables of [`Policy::Exact`].
    exact: Option<Exact>,
    decided: Option<Time>,
    due: Option<Time>,
    /// Decides where refilling ways costs.
    keeper: Option<Keeper>,
    /// Phase of each core at the last decision; `None`: the core was at rest.
    seen: PerCore<Option<usize>>,
}

impl Allocator {
    /// Begins with the policy's split if it is a static one, and with the base otherwise.
    ///
    /// # Errors
    /// [`SettingsError`] says what does not fit.
    pub fn new(
        programs: &Programs,
        tasks: &[PeriodicTask],
        settings: AllocatorSettings,
    ) -> Result<Allocator, SettingsError> {
        settings.check(programs, tasks)?;
        let AllocatorSettings {
            pool,
            cores,
            policy,
            base,
            ..
        } = settings;
        let loads = Loads::new(programs, tasks, cores);
        let shares = match (policy, base) {
            (Policy::Equal, _) => equal(pool, cores),
            (Policy::Vc2m(leftovers), _) => vc2m(&loads, pool, leftovers),
            (Policy::StaticBest, _) => static_best(&loads, pool),
            (Policy::StaticFewest, _) | (_, Base::StaticFewest) => static_fewest(&loads, pool),
            (_, Base::Even) => equal(pool, cores),
        };
        let plan = CoreShares::side_by_side(shares);
        let keeper = |refill| Keeper::new(plan.clone(), pool, refill, aim(policy), settings.gap);
        // Fills all tables in advance: in a run of seconds nearly every pair of phases meets for the first time, and no
        // decision should wait for its table.
        let filled = || {
            let mut exact = Exact::new(programs, pool, cores);
            exact.fill(programs);
            exact
        };
        Ok(Allocator {
            settings,
            keeper: settings.refill.map(keeper),
            plan,
            exact: (policy == Policy::Exact && settings.refill.is_none()).then(filled),
            decided: None,
            due: None,
            seen: PerCore::new(),
        })
    }

    /// The plan in force.
    pub fn plan(&self) -> &CoreShares {
        &self.plan
    }

    /// Time at which to ask again; `None` unless the last question came too soon after a decision.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// Decides anew from the job on each core (`None`: at rest). Returns the new plan, or `None` if the plan stays or
    /// the last decision is too recent. The caller asks when a job was released, has ended or has entered another
    /// phase, when the clock has changed, and when [`due`](Self::due) says so.
    ///
    /// While every core stays in its phase, the allocator decides anew only if its policy knows deadlines or refilling
    /// costs.
    ///
    /// # Panics
    /// If there are more or fewer `cores` than in the settings, or a program does not exist.
    pub fn step(&mut self, programs: &Programs, cores: &[Option<RunningJob<'_>>], now: Time) -> Option<&CoreShares> {
        assert_eq!(cores.len(), self.settings.cores, "one place for each core");
        if self.settings.policy.is_static() {
            return None;
        }
        let by_deadline = self.settings.policy == Policy::Dadna;
        let state = |job: &Option<RunningJob<'_>>| job.as_ref().map(|job| programs.state(job.program, job.progress));
        let all_the_same = || self.seen.iter().copied().eq(cores.iter().map(state));
        let by_phases = !by_deadline && self.keeper.is_none() && self.due.is_none();
        if by_phases && all_the_same() {
            return None;
        }
        let next = self.decided.map_or(now, |decided| decided + self.settings.gap);
        if now < next {
            self.due = Some(next);
            return None;
        }
        (self.decided, self.due) = (Some(now), None);
        self.seen.clear();
        self.seen.extend(cores.iter().map(state));
        if let Some(keeper) = &mut self.keeper {
            self.plan = keeper.decide(programs, cores, now)?.clone();
            return Some(&self.plan);
        }
        let proposed = placed(&self.wanted(programs, cores, now), &self.plan, self.settings.pool);
        if proposed == self.plan {
            return None;
        }
        self.plan = proposed;
        Some(&self.plan)
    }

    /// Share of each core that the policy wants.
    fn wanted(&mut self, programs: &Programs, cores: &[Option<RunningJob<'_>>], now: Time) -> PerCore<Share> {
        let pool = self.settings.pool;
        match self.settings.policy {
            Policy::Equal | Policy::Vc2m(_) | Policy::StaticBest | Policy::StaticFewest => self.plan.shares.clone(),
            Policy::Dna => dna(programs, pool, cores),
            Policy::Dadna => dadna(programs, pool, cores, now),
            Policy::Exact => match &mut self.exact {
                Some(exact) => exact.decide(programs, cores),
                None => self.plan.shares.clone(),
            },
        }
    }
}

/// Gives every core what it wants. Ways and partitions that no core wants stay with the core that had them, where
/// possible; further partitions go to the cores with the fewest.
pub fn placed(wanted: &[Share], before: &CoreShares, pool: Pool) -> CoreShares {
    let ways: PerCore<u8> = wanted.iter().map(|share| share.ways).collect();
    let masks = place(&ways, &before.masks, pool.grid);
    let mut shares: PerCore<Share> = wanted
        .iter()
        .zip(&masks)
        .map(|(share, mask)| Share {
            ways: mask.count(),
            ..*share
        })
        .collect();
    let taken: usize = wanted.iter().map(|share| usize::from(share.partitions)).sum();
    let mut spare = usize::from(pool.grid.partitions).saturating_sub(taken) as u8;
    for (share, before) in shares.iter_mut().zip(&before.shares) {
        let back = before.partitions.saturating_sub(share.partitions).min(spare);
        share.partitions += back;
        spare -= back;
    }
    while spare > 0 {
        if let Some(poorest) = shares.iter_mut().min_by_key(|share| share.partitions) {
            poorest.partitions += 1;
        }
        spare -= 1;
    }
    CoreShares { shares, masks }
}

/// How the keeper hands out bandwidth that no core needs, under each policy.
fn aim(policy: Policy) -> Aim {
    match policy {
        Policy::Dadna => Aim::Deadlines,
        Policy::Exact => Aim::Speed,
        _ => Aim::Gradient,
    }
}
