//! Assigns every task of a run to cores; the result is one value that both machines obey.
//!
//! **Problem.** Exclusive tasks want cores that nothing else uses, real-time tasks must not overload theirs, and
//! best-effort tasks need a core as well. Decided one by one, these wishes contradict each other.
//!
//! **Terms.** A task *names* a core (`core = 2`) or leaves the choice open. Cores are taken *from the end*, the last
//! one first, because the kernel handles most interrupts on the first one; exclusive ones in the order that
//! [`Limits::exclusive`] gives. A core *holds* tasks if every deadline is met by response-time analysis
//! ([`responses`](crate::responses)).
//!
//! **Method.**
//! 1. The lowest core that no exclusive task names stays with the rest of the machine, if no other one does.
//! 2. Exclusive tasks get the fewest cores that hold them, from the end. A task that fits on none is refused, and
//!    placed as a real-time task; a task of unknown execution time has its core to itself.
//! 3. Real-time tasks share the last core that is not exclusive. Where it cannot hold them, they are spread over the
//!    last two, three and so on, worst fit by utilisation, but the lowest core stays with the rest if there is another
//!    one. Where no number of cores holds them all, the number counts that leaves the fewest tasks on overloaded cores,
//!    then the fewest on cores that do not hold their tasks, then the smallest.
//! 4. Best-effort tasks have all other cores; where none is left, the lowest one that is not exclusive.
//!
//! A core with real-time tasks of other programs ([`Limits::beside`]) becomes neither exclusive nor a best-effort core
//! while there is another one, and real-time tasks get it last. There they have priorities below those tasks, which so
//! keep their response times. If such a core does not hold them, they are refused.
//!
//! The search behind 2 and 3 (`packing.rs`) is complete but for a bound on its steps. Tasks are put into an order of
//! their own first, so that the order of the list decides only between tasks that are alike.

use punctual_units::{CoreId, Nanos};
use punctual_workload::{Arrival, Class, TaskSpec};
use thiserror::Error;

use crate::budget::{Budget, LOOKS_MAX};
use crate::fixed_priority::{Bandwidth, responses, responses_below};
use crate::packing::{Item, pack, spread};
use crate::sporadic::{Sporadic, TASKS_MAX, Unfit, overloaded};

/// Bound on the real-time tasks of one core: each has a priority of its own, because tasks of equal priority would run
/// in the order of their releases, which the analysis does not assume. Linux has this many priorities between the
/// tasks' highest and the updater's.
pub const TASKS_PER_CORE_MAX: usize = 30;

/// A task as placement sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementRequest {
    /// Class of the task, with its deadline if it has one.
    pub class: Class,
    /// When jobs are released.
    pub arrival: Arrival,
    /// Longest time that a job keeps its core, at full clock; `None` where not known.
    pub execution: Option<Nanos>,
    /// The core that the task names; `None`: any.
    pub core: Option<CoreId>,
    /// Number of best-effort cores to run on, the first ones; `None`: all. Best-effort only.
    pub cores: Option<u32>,
}

impl From<&TaskSpec> for PlacementRequest {
    fn from(task: &TaskSpec) -> PlacementRequest {
        PlacementRequest {
            class: task.class,
            arrival: task.arrival,
            execution: Some(task.demand.compute + task.demand.data),
            core: task.core,
            cores: task.cores,
        }
    }
}

impl PlacementRequest {
    /// The task as the analysis sees it, with `overhead` more in each job; `None` for best-effort tasks and where the
    /// execution time is not known.
    fn sporadic(&self, overhead: Nanos) -> Option<Sporadic> {
        let (deadline, execution) = (self.class.deadline()?, self.execution?);
        let task = Sporadic {
            execution,
            deadline,
            // A shorter job may come again sooner, but never needs a larger share of the core.
            period: self.arrival.gap_min(execution),
        };
        Some(task.with_overhead(overhead))
    }

    /// The key that orders tasks, whatever their order in the list, also where execution times are not known: the
    /// shorter deadline first.
    fn order(&self) -> (Option<Nanos>, Nanos, Option<Nanos>, bool, Option<CoreId>) {
        (
            self.class.deadline(),
            self.arrival.gap_min(self.execution.unwrap_or_default()),
            self.execution,
            !self.is_exclusive(),
            self.core,
        )
    }

    fn is_exclusive(&self) -> bool {
        matches!(self.class, Class::Exclusive { .. })
    }
}

/// Cores and time that the machine leaves to tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Time that each job on an exclusive core needs beside its own work: the wake-up.
    pub overhead: Nanos,
    /// Share of a core that the kernel leaves to real-time threads; `None`: all of it.
    pub bandwidth: Option<Bandwidth>,
    /// The cores that may be exclusive, in the order in which they are taken; `None`: any, the last one first.
    pub exclusive: Option<Vec<CoreId>>,
    /// Real-time tasks of other programs, with their cores; `None`: of unknown times.
    pub beside: Vec<(CoreId, Option<Sporadic>)>,
}

/// The cores of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seat {
    /// On a core that only exclusive tasks use.
    Exclusive(Chair),
    /// On a core for real-time tasks.
    RealTime(Chair),
    /// One copy on each of these cores, ascending.
    BestEffort(Vec<CoreId>),
}

/// A real-time task's place on its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chair {
    pub core: CoreId,
    /// Number of tasks of the core with a higher priority: those of other programs, and those with a shorter deadline.
    pub rank: usize,
    /// Longest time from release to completion, where the analysis bounds it within the deadline.
    pub response: Option<Nanos>,
}

impl Seat {
    /// The cores on which a copy of the task runs.
    pub fn cores(&self) -> &[CoreId] {
        match self {
            Seat::Exclusive(chair) | Seat::RealTime(chair) => std::slice::from_ref(&chair.core),
            Seat::BestEffort(cores) => cores,
        }
    }

    /// The core and rank of a task with a deadline; `None` for best-effort tasks.
    pub fn chair(&self) -> Option<Chair> {
        match self {
            Seat::Exclusive(chair) | Seat::RealTime(chair) => Some(*chair),
            Seat::BestEffort(_) => None,
        }
    }
}

/// The cores of every task of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Seats in the order of the tasks.
    pub seats: Vec<Seat>,
    /// Cores that only exclusive tasks use, ascending.
    pub exclusive: Vec<CoreId>,
    /// Cores of real-time tasks, ascending, at least one; without such tasks the last core that is not exclusive.
    /// Sensor updates that are transactions of their own are installed on the last of these.
    pub real_time: Vec<CoreId>,
    /// Cores of best-effort tasks, ascending, at least one. The runtime's own threads run on the first of these.
    pub rest: Vec<CoreId>,
    /// Exclusive tasks that are seated as real-time ones: index in the list, and reason.
    pub refused: Vec<(usize, Unfit)>,
    /// Cores whose real-time tasks (at least two) need the whole core or more, and the share that they need.
    pub overloaded: Vec<(CoreId, f64)>,
}

impl Placement {
    /// The core on which sensor updates are installed where each is a transaction.
    pub fn update_core(&self) -> CoreId {
        self.real_time.last().copied().unwrap_or_default()
    }

    /// The core of the runtime's own threads.
    pub fn house(&self) -> CoreId {
        self.rest.first().copied().unwrap_or_default()
    }
}

/// Tasks whose wishes contradict each other or the machine. Tasks are given by their index in the list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlaceError {
    /// The machine has no core.
    #[error("the machine has no core to run on")]
    NoCores,
    /// The list is longer than [`TASKS_MAX`].
    #[error("{0} tasks are more than the {TASKS_MAX} that can be placed; remove some")]
    TooMany(usize),
    /// The task names a core that the machine does not have.
    #[error("there is no core {core} here; name one of {cores}, or remove this key")]
    NoSuchCore {
        /// The task that names it.
        task: usize,
        /// The core that it names.
        core: CoreId,
        /// The machine's cores, in words.
        cores: String,
    },
    /// Exclusive tasks name every core.
    #[error("exclusive tasks name every core of the machine; leave at least one to other work, or remove this key")]
    NoneLeft {
        /// The last of these tasks.
        task: usize,
    },
    /// A task that is not exclusive names a core that an exclusive one names.
    #[error(
        "core {core} is named by an exclusive task, so only exclusive tasks can have it; name another core, or remove this key"
    )]
    Taken {
        /// The task that is not exclusive.
        task: usize,
        core: CoreId,
    },
    /// Two exclusive tasks name one core that cannot hold both.
    #[error(
        "core {core} cannot hold this task beside the other exclusive tasks that name it: {why}; name another core, or remove this key"
    )]
    Crowded {
        /// The first of these tasks, in their order, that the core cannot hold beside those before it.
        task: usize,
        core: CoreId,
        /// Result of the admission test.
        why: Unfit,
    },
    /// The only cores that could have the task have real-time tasks of other programs, beside which it does not fit.
    #[error(
        "core {core} has real-time work of another program and cannot hold this task beside it: {why}; name another core, or wait until that program has ended"
    )]
    Occupied {
        task: usize,
        core: CoreId,
        /// Result of the admission test.
        why: Unfit,
    },
}

impl PlaceError {
    /// The error of a task that names `core` on a machine with `cores`.
    pub fn no_such_core(task: usize, core: CoreId, cores: &[CoreId]) -> PlaceError {
        let cores = in_words(cores);
        PlaceError::NoSuchCore { task, core, cores }
    }

    /// Index of the task that the error is about; `None` where it is about no single task.
    pub fn task(&self) -> Option<usize> {
        match self {
            PlaceError::NoCores | PlaceError::TooMany(_) => None,
            PlaceError::NoSuchCore { task, .. }
            | PlaceError::NoneLeft { task }
            | PlaceError::Taken { task, .. }
            | PlaceError::Crowded { task, .. }
            | PlaceError::Occupied { task, .. } => Some(*task),
        }
    }
}

/// Places `tasks` on `cores` (ascending); see the rules above.
///
/// # Errors
/// [`PlaceError`] where the cores that tasks name contradict each other or the machine. An exclusive task without a
/// core is no error: see [`Placement::refused`].
///
/// ```
/// use punctual_cores::{Limits, PlacementRequest, Seat, place};
/// use punctual_units::{CoreId, Nanos};
/// use punctual_workload::{Arrival, Class};
/// let ms = Nanos::from_millis;
/// let task = |class| PlacementRequest {
///     class,
///     arrival: Arrival::Periodic { period: ms(100) },
///     execution: Some(ms(60)),
///     core: None,
///     cores: None,
/// };
/// let exclusive = task(Class::Exclusive { deadline: ms(100) });
/// let cores: Vec<CoreId> = (0..4).map(CoreId).collect();
/// // Two of 60 % do not fit on one core, so they take two.
/// let placement = place(&[exclusive, exclusive, task(Class::BestEffort)], &cores, &Limits::default())?;
/// assert_eq!(placement.exclusive, [CoreId(2), CoreId(3)]);
/// assert_eq!(placement.seats[2], Seat::BestEffort(vec![CoreId(0), CoreId(1)]));
/// # Ok::<(), punctual_cores::PlaceError>(())
/// ```
pub fn place(tasks: &[PlacementRequest], cores: &[CoreId], limits: &Limits) -> Result<Placement, PlaceError> {
    check(tasks, cores)?;
    let placer = Placer {
        tasks,
        cores,
        limits,
        budget: Budget::of(LOOKS_MAX),
    };
    placer.check_named()?;
    let Exclusives { on, refused } = placer.exclusive();
    let exclusive = distinct(on.iter().flatten().copied());
    let on = placer.real_time(on, &exclusive);
    let real_time = distinct((0..tasks.len()).filter_map(|task| on[task].filter(|core| !exclusive.contains(core))));
    placer.check_occupied(&on)?;
    let free = placer.quiet(&exclusive);
    // The last core is apart even without a task with a deadline: sensor updates are installed there.
    let apart = match (exclusive.is_empty(), real_time.is_empty()) {
        (true, true) => free.last().copied().into_iter().collect(),
        _ => real_time.clone(),
    };
    let rest = match without(&free, &apart) {
        left if left.is_empty() => free.iter().take(1).copied().collect(),
        left => left,
    };
    let real_time = match real_time.is_empty() {
        true => free.last().copied().into_iter().collect(),
        false => real_time,
    };
    let seats = (0..tasks.len())
        .map(|task| placer.seat(task, &on, &exclusive, &rest))
        .collect();
    Ok(Placement {
        seats,
        overloaded: placer.overloaded(&on, &without(cores, &exclusive)),
        exclusive,
        real_time,
        rest,
        refused,
    })
}

/// The core that is reserved first where only one is needed: the last one. `None` on a machine without cores.
pub fn first_set_apart(cores: &[CoreId]) -> Option<CoreId> {
    cores.iter().max().copied()
}

/// Refuses named cores that contradict each other or the machine. Only the scenario's figures count: no overhead, no
/// bandwidth.
fn check(tasks: &[PlacementRequest], cores: &[CoreId]) -> Result<(), PlaceError> {
    if cores.is_empty() {
        return Err(PlaceError::NoCores);
    }
    if tasks.len() > TASKS_MAX {
        return Err(PlaceError::TooMany(tasks.len()));
    }
    let named = |exclusive: bool| {
        let of = move |(task, request): (usize, &PlacementRequest)| {
            request
                .core
                .filter(|_| request.is_exclusive() == exclusive)
                .map(|core| (task, core))
        };
        tasks.iter().enumerate().filter_map(of)
    };
    if let Some((task, core)) = named(true).chain(named(false)).find(|(_, core)| !cores.contains(core)) {
        return Err(PlaceError::no_such_core(task, core, cores));
    }
    let exclusive = distinct(named(true).map(|(_, core)| core));
    if let (Some((task, _)), true) = (named(true).next_back(), exclusive.len() == cores.len()) {
        return Err(PlaceError::NoneLeft { task });
    }
    if let Some((task, core)) = named(false).find(|(_, core)| exclusive.contains(core)) {
        return Err(PlaceError::Taken { task, core });
    }
    exclusive.iter().try_for_each(|core| {
        let there: Vec<usize> = named(true)
            .filter(|(_, named)| named == core)
            .map(|(task, _)| task)
            .collect();
        check_together(tasks, *core, &there)
    })
}

/// Refuses exclusive tasks `there` that all name `core` if it cannot hold them together.
fn check_together(tasks: &[PlacementRequest], core: CoreId, there: &[usize]) -> Result<(), PlaceError> {
    for (number, task) in there.iter().enumerate().skip(1) {
        let together: Option<Vec<Sporadic>> = there[..=number]
            .iter()
            .map(|task| tasks[*task].sporadic(Nanos::ZERO))
            .collect();
        let held = match together {
            Some(_) if number >= TASKS_PER_CORE_MAX => Err(Unfit::NoCore),
            Some(together) => responses(&together, None).map(drop).map_err(|why| why.of_places(there)),
            None => Err(Unfit::Unknown),
        };
        held.map_err(|why| PlaceError::Crowded { task: *task, core, why })?;
    }
    Ok(())
}

/// Formats "cores 0 to 3", or a list where some are missing.
fn in_words(cores: &[CoreId]) -> String {
    match (cores.first(), cores.last()) {
        (Some(first), Some(last)) if (last.0 - first.0) as usize + 1 == cores.len() && cores.len() > 1 => {
            format!("cores {first} to {last}")
        }
        _ => {
            let cores: Vec<String> = cores.iter().map(CoreId::to_string).collect();
            format!("cores {}", cores.join(", "))
        }
    }
}

fn distinct(cores: impl Iterator<Item = CoreId>) -> Vec<CoreId> {
    let mut cores: Vec<CoreId> = cores.collect();
    cores.sort_unstable();
    cores.dedup();
    cores
}

fn without(cores: &[CoreId], taken: &[CoreId]) -> Vec<CoreId> {
    cores.iter().copied().filter(|core| !taken.contains(core)).collect()
}

/// Inputs of all steps of one placement.
struct Placer<'p> {
    tasks: &'p [PlacementRequest],
    cores: &'p [CoreId],
    limits: &'p Limits,
    /// Shared by all tests of the placement.
    budget: Budget,
}

/// The core of each exclusive task, and the refused ones.
struct Exclusives {
    /// Indexed by task; `None` for all others.
    on: Vec<Option<CoreId>>,
    refused: Vec<(usize, Unfit)>,
}

impl Exclusives {
    fn refuse(&mut self, tasks: impl IntoIterator<Item = usize>, why: Unfit) {
        self.refused.extend(tasks.into_iter().map(|task| (task, why)));
    }

    fn taken(&self) -> Vec<CoreId> {
        distinct(self.on.iter().flatten().copied())
    }
}

impl Placer<'_> {
    /// The cores that exclusive tasks may take: those that they name first, then from the end.
    fn candidates(&self) -> Vec<CoreId> {
        let named = |exclusive: bool| {
            let of = self.tasks.iter().filter(|task| task.is_exclusive() == exclusive);
            distinct(of.filter_map(|task| task.core))
        };
        let (ours, theirs) = (named(true), named(false));
        let from_the_end = || self.cores.iter().rev().copied().collect();
        let granted: Vec<CoreId> = self.limits.exclusive.clone().unwrap_or_else(from_the_end);
        let open = |core: &CoreId| {
            self.cores.contains(core) && !ours.contains(core) && !theirs.contains(core) && !self.is_occupied(*core)
        };
        // The lowest core stays with the rest, whether or not another task names it, where no other one does.
        let left = without(self.cores, &ours);
        let lowest = left.first().filter(|_| left.iter().all(|core| granted.contains(core)));
        let named = ours.iter().filter(|core| granted.contains(core));
        let open = granted.iter().filter(|core| open(core) && Some(*core) != lowest);
        named.chain(open).copied().collect()
    }

    fn exclusive(&self) -> Exclusives {
        let mut exclusives = Exclusives {
            on: vec![None; self.tasks.len()],
            refused: Vec::new(),
        };
        let candidates = self.candidates();
        let granted = |task: &usize| self.tasks[*task].core.is_none_or(|core| candidates.contains(&core));
        let asking = (0..self.tasks.len()).filter(|task| self.tasks[*task].is_exclusive());
        let (asking, not_granted): (Vec<usize>, Vec<usize>) = asking.partition(granted);
        exclusives.refuse(not_granted, Unfit::NotGranted);
        let mut unknown = asking.clone();
        unknown.retain(|task| self.burdened(*task).is_none());
        unknown.sort_by_key(|task| (self.tasks[*task].order(), *task));
        // A task of unknown execution time that names a core has that core to itself: `check` ensures this.
        unknown
            .iter()
            .for_each(|task| exclusives.on[*task] = self.tasks[*task].core);
        let open = without(&candidates, &exclusives.taken());
        let known = self.items(&asking, self.limits.overhead, &open);
        let places: Vec<usize> = known.iter().map(|item| item.task).collect();
        for (task, core) in places.iter().zip(pack(&known, open.len(), &|_, there| {
            self.holds(&[], there, &self.budget)
        })) {
            match core {
                Ok(core) => exclusives.on[*task] = Some(open[core]),
                Err(why) => exclusives.refuse([*task], why.of_places(&places)),
            }
        }
        let mut left = without(&open, &exclusives.taken()).into_iter();
        for task in unknown.into_iter().filter(|task| self.tasks[*task].core.is_none()) {
            match left.next() {
                Some(core) => exclusives.on[task] = Some(core),
                None => exclusives.refuse([task], Unfit::Unknown),
            }
        }
        if self.cores.len() == 1 {
            exclusives
                .refused
                .iter_mut()
                .for_each(|(_, why)| *why = Unfit::OnlyCore);
        }
        exclusives.refused.sort_by_key(|(task, _)| *task);
        exclusives
    }

    /// Adds the cores of real-time tasks, and of refused exclusive ones, to those of exclusive tasks.
    fn real_time(&self, mut on: Vec<Option<CoreId>>, exclusive: &[CoreId]) -> Vec<Option<CoreId>> {
        let free = self.quiet(exclusive);
        let asking: Vec<usize> = (0..on.len())
            .filter(|task| on[*task].is_none() && self.tasks[*task].class.deadline().is_some())
            .collect();
        let named = distinct(asking.iter().filter_map(|task| self.tasks[*task].core));
        // The lowest core stays with the rest, if there is another one.
        let lowest = without(&free, &named).first().copied();
        let lowest = lowest.filter(|core| free.len() > 1 && !self.is_occupied(*core));
        let mut open = without(self.cores, exclusive);
        open.retain(|core| Some(*core) != lowest);
        open.reverse();
        open.sort_by(|a, b| self.load_beside(*a).total_cmp(&self.load_beside(*b)));
        for task in &asking {
            let named = self.tasks[*task].core.filter(|core| open.contains(core));
            on[*task] = named.or(open.first().copied());
        }
        let items = self.items(&asking, Nanos::ZERO, &open);
        let alike = open.iter().take_while(|core| !self.is_occupied(**core)).count();
        let above: Vec<Vec<Sporadic>> = open.iter().map(|core| self.above(*core)).collect();
        let holds = |core: usize, there: &[Sporadic]| self.holds(&above[core], there, &self.budget);
        let not_overloaded = |core: usize, there: &[Sporadic]| match overloaded(&[&above[core], there].concat()) {
            true => Err(Unfit::Utilisation),
            false => Ok(()),
        };
        for (item, core) in items
            .iter()
            .zip(spread(&items, open.len(), alike, &holds, &not_overloaded))
        {
            on[item.task] = open.get(core).copied();
        }
        on
    }

    /// Returns the tasks whose execution time is known, the largest utilisation first; the order of the list matters
    /// only between tasks that are alike. A core that a task names binds only if it is in `open`.
    fn items(&self, tasks: &[usize], overhead: Nanos, open: &[CoreId]) -> Vec<Item> {
        let place = |core| open.iter().position(|open| *open == core);
        let item = |task: &usize| {
            let request = &self.tasks[*task];
            Some(Item {
                task: *task,
                needs: request.sporadic(overhead)?,
                fixed: request.core.and_then(place),
            })
        };
        let mut items: Vec<Item> = tasks.iter().filter_map(item).collect();
        items.sort_by(|a, b| {
            let by_load = b.needs.utilisation().total_cmp(&a.needs.utilisation());
            by_load.then_with(|| self.tasks[a.task].order().cmp(&self.tasks[b.task].order()))
        });
        items
    }

    fn burdened(&self, task: usize) -> Option<Sporadic> {
        self.tasks[task].sporadic(self.limits.overhead)
    }

    fn holds(&self, above: &[Sporadic], there: &[Sporadic], budget: &Budget) -> Result<(), Unfit> {
        if above.len() + there.len() > TASKS_PER_CORE_MAX {
            return Err(Unfit::NoCore);
        }
        responses_below(above, there, self.limits.bandwidth, budget).map(drop)
    }

    /// Whether other programs have real-time tasks on `core`.
    fn is_occupied(&self, core: CoreId) -> bool {
        self.limits.beside.iter().any(|(theirs, _)| *theirs == core)
    }

    /// The tasks of other programs on `core` whose times are known.
    fn above(&self, core: CoreId) -> Vec<Sporadic> {
        let there = self.limits.beside.iter().filter(|(theirs, _)| *theirs == core);
        there.filter_map(|(_, task)| *task).collect()
    }

    /// Share of `core` that tasks of other programs need; those of unknown times count as a whole core.
    fn load_beside(&self, core: CoreId) -> f64 {
        let there = self.limits.beside.iter().filter(|(theirs, _)| *theirs == core);
        there.map(|(_, task)| task.map_or(1.0, |task| task.utilisation())).sum()
    }

    /// The cores that are not exclusive and have no tasks of other programs; if each has some, all that are not
    /// exclusive.
    fn quiet(&self, exclusive: &[CoreId]) -> Vec<CoreId> {
        let free = without(self.cores, exclusive);
        let quiet: Vec<CoreId> = free.iter().copied().filter(|core| !self.is_occupied(*core)).collect();
        if quiet.is_empty() { free } else { quiet }
    }

    /// Refuses exclusive tasks that name a core with tasks of other programs.
    fn check_named(&self) -> Result<(), PlaceError> {
        let exclusive = self.tasks.iter().enumerate().filter(|(_, task)| task.is_exclusive());
        let mut named = exclusive.filter_map(|(task, request)| Some((task, request.core?)));
        let occupied = named.find(|(_, core)| self.is_occupied(*core));
        let why = Unfit::NotGranted;
        occupied.map_or(Ok(()), |(task, core)| Err(PlaceError::Occupied { task, core, why }))
    }

    /// Refuses tasks on a core that does not hold them beside those of other programs, as far as times are known.
    fn check_occupied(&self, on: &[Option<CoreId>]) -> Result<(), PlaceError> {
        for core in distinct(self.limits.beside.iter().map(|(core, _)| *core)) {
            let there: Vec<usize> = (0..on.len()).filter(|task| on[*task] == Some(core)).collect();
            let needs = there.iter().filter_map(|task| self.tasks[*task].sporadic(Nanos::ZERO));
            let needs: Vec<Sporadic> = needs.collect();
            let known = needs.len() == there.len() && self.above(core).len() == self.count_beside(core);
            if let (Some(task), true) = (there.first(), known) {
                // Whatever the search before has spent.
                let held = self.holds(&self.above(core), &needs, &Budget::of(LOOKS_MAX));
                let held = held.map_err(|why| why.of_places(&there));
                held.map_err(|why| PlaceError::Occupied { task: *task, core, why })?;
            }
        }
        Ok(())
    }

    fn count_beside(&self, core: CoreId) -> usize {
        self.limits.beside.iter().filter(|(theirs, _)| *theirs == core).count()
    }

    fn seat(&self, task: usize, on: &[Option<CoreId>], exclusive: &[CoreId], rest: &[CoreId]) -> Seat {
        let request = &self.tasks[task];
        let Some(core) = on[task] else {
            let most = request.cores.map_or(rest.len(), |cores| rest.len().min(cores as usize));
            return Seat::BestEffort(match request.core {
                Some(core) => vec![core],
                None => rest[..most].to_vec(),
            });
        };
        let there: Vec<usize> = (0..on.len()).filter(|other| on[*other] == Some(core)).collect();
        let alone = exclusive.contains(&core);
        let chair = self.chair(task, core, &there, alone);
        match alone {
            true => Seat::Exclusive(chair),
            false => Seat::RealTime(chair),
        }
    }

    /// The rank of `task` among the tasks `there`, by deadline, including tasks of unknown execution time.
    fn chair(&self, task: usize, core: CoreId, there: &[usize], alone: bool) -> Chair {
        let overhead = if alone { self.limits.overhead } else { Nanos::ZERO };
        let mut order = there.to_vec();
        order.sort_by_key(|task| (self.tasks[*task].order(), *task));
        let needs: Option<Vec<Sporadic>> = order.iter().map(|task| self.tasks[*task].sporadic(overhead)).collect();
        let rank = order.iter().position(|other| *other == task).unwrap_or_default();
        let (above, beside) = (self.above(core), self.count_beside(core));
        let bounds = needs.filter(|_| above.len() == beside).and_then(|needs| {
            let budget = Budget::of(LOOKS_MAX);
            responses_below(&above, &needs, self.limits.bandwidth, &budget).ok()
        });
        Chair {
            core,
            rank: beside + rank,
            response: bounds.and_then(|bounds| bounds.get(rank).copied()),
        }
    }

    /// Cores of `free` with at least two tasks that together need the whole core or more.
    fn overloaded(&self, on: &[Option<CoreId>], free: &[CoreId]) -> Vec<(CoreId, f64)> {
        let load = |core: &CoreId| {
            let there = (0..on.len()).filter(|task| on[*task] == Some(*core));
            let needs: Vec<f64> = there
                .filter_map(|task| Some(self.tasks[task].sporadic(Nanos::ZERO)?.utilisation()))
                .collect();
            let load: f64 = needs.iter().sum();
            (needs.len() > 1 && load >= 1.0).then_some((*core, load))
        };
        free.iter().filter_map(load).collect()
    }
}
