//! The state machine that decides what each core has, from event to event.
//!
//! ```text
//! what runs ─► policy (gains) ─► placed (few ways change hands) ─► plan        where changing is free
//! what runs ─► keeper (lend bandwidth, move ways where it pays) ─► plan        where refilling ways costs
//! the tasks ─► ahead (which split to start from, and whether to lend) ─► keeper
//! ```
//!
//! It reads no clock: `now` comes with each question, and if it decided less than [`AllocatorSettings::gap`] ago it
//! only says when it wants to be asked again ([`Allocator::due`]). A look ahead is done in pieces between questions
//! ([`Allocator::look`]), so that a decision waits for one piece at most; the question after the last takes it up.

use punctual_units::{Nanos, Time};

use crate::ahead::{Ahead, Foresight, active};
use crate::grid::Share;
use crate::hysteresis::{Aim, Keeper};
use crate::masks::{WayMask, place, side_by_side};
use crate::policy::{Exact, Loads, PeriodicTask, Policy, dadna, dna};
use crate::pool::{PerCore, Pool};
use crate::profile::SplitError;
use crate::programs::Programs;
use crate::running::RunningJob;
use crate::settings::{AllocatorSettings, Base};

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
/// let tasks = [PeriodicTask::new(0, period, 0), PeriodicTask::new(1, period, 1)];
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
    tasks: Vec<PeriodicTask>,
    plan: CoreShares,
    /// The tables of [`Policy::Exact`].
    exact: Option<Exact>,
    decided: Option<Time>,
    due: Option<Time>,
    /// Decides where refilling ways costs.
    keeper: Option<Keeper>,
    /// Phase of each core at the last decision; `None`: the core was at rest.
    seen: PerCore<Option<usize>>,
    /// Time of the last question.
    asked: Time,
    /// Whether a task has ended early since then.
    ended: bool,
    /// A look ahead that is under way, and when its next piece is due.
    ahead: Option<(Time, Box<Ahead>)>,
    /// Result of a look ahead that the next question takes up.
    found: Option<Foresight>,
    forecast: Option<Foresight>,
}

/// Units of work in a piece of a look ahead: mostly below 50 us, more where many jobs wait.
pub(crate) const PIECE: u64 = 32;
/// Pieces in the gap between two decisions: the core that looks has most of its time for other work.
const PIECES_A_GAP: u64 = 8;

impl Allocator {
    /// Begins with the policy's split if it is a static one, and with the base otherwise. Looks ahead for it, where
    /// [`Base::Ahead`] says so: that takes up to two seconds.
    ///
    /// # Errors
    /// [`SplitError`] says what does not fit.
    pub fn new(
        programs: &Programs,
        tasks: &[PeriodicTask],
        settings: AllocatorSettings,
    ) -> Result<Allocator, SplitError> {
        let mut allocator = Allocator::starting(programs, tasks, settings, None)?;
        let none: PerCore<Option<RunningJob<'_>>> = (0..settings.cores).map(|_| None).collect();
        allocator.look_ahead(programs, None, &none, Time::ZERO);
        allocator.advance(programs, Time::ZERO, u64::MAX);
        if let Some(found) = allocator.found.take() {
            allocator.plan = found.plan.clone();
            allocator.keeper = settings.keeper(found.plan.clone());
            allocator.forecast = Some(found);
        }
        Ok(allocator)
    }

    /// Begins without a look ahead: with the split of `first`, which one has found, or else of the policy or base.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn starting(
        programs: &Programs,
        tasks: &[PeriodicTask],
        settings: AllocatorSettings,
        first: Option<Base>,
    ) -> Result<Allocator, SplitError> {
        settings.check(programs, tasks)?;
        let AllocatorSettings {
            pool, cores, policy, ..
        } = settings;
        let split = |base: Base, tasks: &[PeriodicTask]| base.split(&Loads::new(programs, tasks, cores), pool);
        let plan = match (policy, first) {
            (Policy::Equal, _) => split(Base::Even, tasks),
            (Policy::StaticBest, _) => split(Base::StaticBest, tasks),
            (Policy::StaticOverload, _) => split(Base::StaticOverload, tasks),
            (Policy::StaticFewest, _) => split(Base::StaticFewest, tasks),
            (_, None) => split(settings.base, tasks),
            (_, Some(first)) => split(first, &active(tasks, Time::ZERO)),
        };
        // Fills all tables in advance: in a run of seconds nearly every pair of phases meets for the first time, and no
        // decision should wait for its table.
        let filled = || {
            let mut exact = Exact::new(programs, pool, cores);
            exact.fill(programs);
            exact
        };
        Ok(Allocator {
            settings,
            tasks: tasks.to_vec(),
            keeper: settings.keeper(plan.clone()),
            plan,
            exact: (policy == Policy::Exact && settings.refill.is_none()).then(filled),
            decided: None,
            due: None,
            seen: PerCore::new(),
            asked: Time::ZERO,
            ended: false,
            ahead: None,
            found: None,
            forecast: None,
        })
    }

    /// The plan in force.
    pub fn plan(&self) -> &CoreShares {
        &self.plan
    }

    /// Result of the last look ahead; `None`: the base was given.
    pub fn forecast(&self) -> Option<&Foresight> {
        self.forecast.as_ref()
    }

    /// Time of the last decision.
    pub fn decided(&self) -> Option<Time> {
        self.decided
    }

    /// Time at which to [look](Self::look), or to ask again; `None`: once what runs has changed.
    pub fn due(&self) -> Option<Time> {
        let look = self.ahead.as_ref().map(|(due, _)| *due);
        self.step_due().into_iter().chain(look).min()
    }

    /// Time at which a decision that was put off is due, or tasks come or go that a look ahead follows.
    fn step_due(&self) -> Option<Time> {
        let looks = self.settings.looks().is_some();
        let ended = (looks && self.ended).then_some(self.asked);
        let changes = self.tasks.iter().flat_map(|task| [task.from, task.until]);
        let changes = changes.filter(|at| looks && self.asked < *at && *at < Time::MAX);
        changes.chain(self.due).chain(ended).min()
    }

    /// [`Programs::slowdown`] that holds for the look ahead that is under way.
    pub fn look_slowdown(&self) -> Option<f64> {
        self.ahead.as_ref().map(|(_, ahead)| ahead.slowdown())
    }

    /// Does a piece of the look ahead that is under way, if one is due: `PIECE` units of work, for instants at which no
    /// event waits. Returns whether the next [`step`](Self::step) takes up its result; `None`: no step is due.
    pub fn look(&mut self, programs: &Programs, now: Time) -> Option<bool> {
        if self.ahead.as_ref().is_some_and(|(due, _)| *due <= now) {
            self.advance(programs, now, PIECE);
        }
        let found = self.found.is_some();
        (found || self.step_due().is_some_and(|due| due <= now)).then_some(found)
    }

    /// Does `work` units of the look ahead that is under way, if there is one: a replay all at once.
    pub fn advance(&mut self, programs: &Programs, now: Time, work: u64) {
        let next = now + Nanos(self.settings.gap.0 / PIECES_A_GAP);
        let Some((due, ahead)) = &mut self.ahead else { return };
        (*due, self.found) = (next, ahead.advance(programs, work));
        if self.found.is_some() {
            self.ahead = None;
        }
    }

    /// Removes task number `task` at `now`, if there is one.
    pub fn end_task(&mut self, task: usize, now: Time) {
        if let Some(task) = self.tasks.get_mut(task).filter(|task| task.until > now) {
            (task.until, self.ended) = (now, true);
        }
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
        let another = match self.looked_ahead(programs, cores, now) {
            true => self.take_up(programs, cores, now),
            false => self.decide(programs, cores, now),
        };
        another.then_some(&self.plan)
    }

    /// Decides, if that is due; returns whether the plan is another one.
    fn decide(&mut self, programs: &Programs, cores: &[Option<RunningJob<'_>>], now: Time) -> bool {
        let fixed = self.forecast.as_ref().is_some_and(|forecast| !forecast.lends) && self.ahead.is_none();
        if fixed || self.settings.base == Base::AheadStatic {
            // A decision that was put off will not be made: its time would stay due without end.
            self.due = None;
            return false;
        }
        if !self.is_due(programs, cores, now) {
            return false;
        }
        self.decided = Some(now);
        self.seen.clear();
        self.seen.extend(cores.iter().map(|job| state(programs, job)));
        if let Some(keeper) = &mut self.keeper {
            let Some(plan) = keeper.decide(programs, cores, now) else {
                return false;
            };
            self.plan = plan.clone();
            return true;
        }
        let proposed = placed(&self.wanted(programs, cores, now), &self.plan, self.settings.pool);
        let another = proposed != self.plan;
        self.plan = proposed;
        another
    }

    /// Whether to decide at `now`; sets when to ask again.
    fn is_due(&mut self, programs: &Programs, cores: &[Option<RunningJob<'_>>], now: Time) -> bool {
        let AllocatorSettings { policy, gap, .. } = self.settings;
        let same_phases = self
            .seen
            .iter()
            .copied()
            .eq(cores.iter().map(|job| state(programs, job)));
        let asked = self.due.take();
        if policy != Policy::Dadna && self.keeper.is_none() && asked.is_none() && same_phases {
            return false;
        }
        let next = self.decided.map_or(now, |decided| decided + gap);
        self.due = (now < next).then_some(next);
        now >= next
    }

    /// Share of each core that the policy wants.
    fn wanted(&mut self, programs: &Programs, cores: &[Option<RunningJob<'_>>], now: Time) -> PerCore<Share> {
        let pool = self.settings.pool;
        match (self.settings.policy, &mut self.exact) {
            (Policy::Dna, _) => dna(programs, pool, cores),
            (Policy::Dadna, _) => dadna(programs, pool, cores, now),
            (Policy::Exact, Some(exact)) => exact.decide(programs, cores),
            _ => self.plan.shares.clone(),
        }
    }
}

/// The part that looks ahead, at the start and when the task set changes.
impl Allocator {
    /// Begins to look ahead for the tasks that are active at `now`, if the settings ask for it; a look for others ends.
    fn look_ahead(
        &mut self,
        programs: &Programs,
        in_force: Option<&CoreShares>,
        cores: &[Option<RunningJob<'_>>],
        now: Time,
    ) {
        (self.ahead, self.found) = (None, None);
        let refill = self.settings.looks();
        if let Some(refill) = refill.filter(|_| self.tasks.iter().any(|task| task.is_active(now))) {
            let ahead = Ahead::new(programs, &self.tasks, (&self.settings, refill), in_force, cores, now);
            self.ahead = Some((now, Box::new(ahead)));
        }
    }

    /// Begins to look ahead when the task set has changed; returns whether the result of a look is there.
    fn looked_ahead(&mut self, programs: &Programs, cores: &[Option<RunningJob<'_>>], now: Time) -> bool {
        let changed = self.tasks.iter().any(|task| task.changes_within(self.asked, now));
        if std::mem::take(&mut self.ended) || changed {
            let plan = self.plan.clone();
            self.look_ahead(programs, Some(&plan), cores, now);
            // The forecast of before does not hold for these tasks: until there is another one, lending decides.
            if self.forecast.as_ref().is_some_and(|forecast| !forecast.lends) {
                let keeper = self.settings.keeper(plan.clone());
                self.keeper = keeper.map(|keeper| keeper.going_on(plan, programs, cores, now));
            }
        }
        self.asked = now;
        let found = self.found.take();
        let is_new = found.is_some();
        self.forecast = found.or(self.forecast.take());
        is_new
    }

    /// Takes up the base of the forecast; returns whether the plan is another one.
    fn take_up(&mut self, programs: &Programs, cores: &[Option<RunningJob<'_>>], now: Time) -> bool {
        let Some(Foresight { plan, lends, .. }) = self.forecast.clone() else {
            return false;
        };
        let keeper = self.settings.keeper(plan.clone());
        if lends {
            let in_force = self.plan.clone();
            self.keeper = keeper.map(|keeper| keeper.going_on(in_force, programs, cores, now));
            return self.decide(programs, cores, now);
        }
        self.keeper = keeper;
        self.due = None;
        std::mem::replace(&mut self.plan, plan) != self.plan
    }
}

/// Number of the phase that a core's job is in.
fn state(programs: &Programs, job: &Option<RunningJob<'_>>) -> Option<usize> {
    job.as_ref().map(|job| programs.state(job.program, job.progress))
}

impl AllocatorSettings {
    /// The rule that lends from `base`, where refilling costs and the policy weighs that.
    fn keeper(&self, base: CoreShares) -> Option<Keeper> {
        let AllocatorSettings { pool, policy, gap, .. } = *self;
        let lends = !policy.is_static() && self.base != Base::AheadStatic;
        let refill = self.refill.filter(|_| lends)?;
        Some(Keeper::new(base, pool, refill, aim(policy), gap))
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
pub(crate) fn aim(policy: Policy) -> Aim {
    match policy {
        Policy::Dadna => Aim::Deadlines,
        Policy::Exact => Aim::Speed,
        _ => Aim::Gradient,
    }
}
