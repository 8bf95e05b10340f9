//! Places the tasks of a run on this machine, and measures the cost of lending their exclusive cores.
//!
//! `punctual_cores::place` computes the placement, beside the work of other programs (`beside.rs`). If the kernel
//! refuses the exclusive cores, the tasks are placed again on a machine without exclusive cores. If it grants them, the
//! cost of waking up there is measured, and the tasks are placed once more with that cost added to each job. A task
//! that is refused a core runs as a real-time task; that is reported, and an error only if it names a core that another
//! program has.

use punctual_cores::{
    Bandwidth, Chair, LearntCosts, LendingCosts, Limits, Placement, PlacementRequest, Seat, TASKS_PER_CORE_MAX,
};
use punctual_platform::linux::exclusive::{ExclusiveCore, candidates, quieter, stays_told};
use punctual_platform::linux::real_time::{RealTimeLimits, Throttling};
use punctual_platform::linux::{KernelTree, LinuxMachine};
use punctual_platform::{Neighbours, Refusal};
use punctual_units::{CoreId, Nanos, Share};
use punctual_workload::{Arrival, Class};

use super::beside::{PlacedBeside, place_beside, update_share};
use super::shared::protection;
use super::tenancy::{Accountant, LendingMeasured, Tenancy, measure_lending};
use super::{TASK_PRIORITY, UPDATER_PRIORITY};
use crate::error::RuntimeError;
use crate::report::{LoadReport, Protection, refused};

// Every task of a core has its own priority, above the updater's.
const _: () = assert!(TASKS_PER_CORE_MAX <= (TASK_PRIORITY - UPDATER_PRIORITY) as usize);

/// The kernel's limits on real-time threads of this machine.
pub fn limits() -> Limits {
    Limits {
        bandwidth: bandwidth(RealTimeLimits::read(&KernelTree::default())),
        ..Limits::default()
    }
}

/// Adds to `limits` the cores that may become exclusive.
///
/// # Errors
/// [`Refusal`] if cores are requested that cannot become exclusive here.
pub fn limits_beside(neighbours: &Neighbours) -> Result<Limits, Refusal> {
    let mut exclusive = candidates(&KernelTree::default(), &neighbours.cores)?;
    exclusive.retain(|core| !neighbours.stages.contains(core));
    Ok(Limits {
        exclusive: Some(exclusive),
        ..limits()
    })
}

/// Share of each core that the kernel allows to real-time threads; `None`: unlimited or unknown.
fn bandwidth(limits: RealTimeLimits) -> Option<Bandwidth> {
    match limits.throttling {
        Throttling::Bounded { runtime, period } | Throttling::Possible { runtime, period } => {
            Some(Bandwidth { runtime, period })
        }
        Throttling::Off | Throttling::Unknown => None,
    }
}

/// SCHED_FIFO priority of a task with this chair.
pub(super) fn priority(chair: Chair) -> u8 {
    let rank = chair.rank.min(TASKS_PER_CORE_MAX - 1) as u8;
    TASK_PRIORITY - rank
}

/// Placement of every task, and the exclusive cores taken.
pub(super) struct TaskPlacement {
    pub(super) placement: Placement,
    pub(super) exclusive: Option<Exclusive>,
    /// Limits for placing tasks that come later.
    pub(super) limits: Limits,
    /// Exclusive cores without a task, reserved for tasks that come later.
    pub(super) kept: Vec<CoreId>,
}

/// The tasks to place, with entries from index `own` on that stand for tasks that come later.
pub(super) struct AskedTasks<'r> {
    machine: &'r LinuxMachine,
    tasks: Vec<(String, PlacementRequest)>,
    own: usize,
    /// Share of its core that sensor updates need.
    updates: Share,
}

impl<'r> AskedTasks<'r> {
    /// `tasks`, and the exclusive cores of `keep`, named or not, for later ones, in a run with this `load`.
    pub(super) fn new(
        machine: &'r LinuxMachine,
        tasks: &[(String, PlacementRequest)],
        keep: &[Option<CoreId>],
        load: &LoadReport,
    ) -> AskedTasks<'r> {
        let later = keep.iter().map(|core| (KEPT.to_owned(), kept(*core)));
        AskedTasks {
            machine,
            tasks: tasks.iter().cloned().chain(later).collect(),
            own: tasks.len(),
            updates: update_share(load),
        }
    }

    fn place(&self, limits: &Limits) -> Result<PlacedBeside, RuntimeError> {
        place_beside(self.machine, &self.tasks, self.own, limits, self.updates)
    }
}

impl TaskPlacement {
    /// Places the tasks of `asked` and takes the exclusive cores that they need. Adds to `protections` what was
    /// obtained, and why a task was refused a core.
    ///
    /// # Errors
    /// As for [`place_beside`].
    pub(super) fn take(
        asked: &AskedTasks<'_>,
        neighbours: &Neighbours,
        limits: Limits,
        protections: &mut Vec<Protection>,
    ) -> Result<TaskPlacement, RuntimeError> {
        let exclusive = |(_, request): &(String, PlacementRequest)| matches!(request.class, Class::Exclusive { .. });
        let lendable = asked.tasks[..asked.own].iter().any(exclusive);
        let wanted = asked.place(&limits)?;
        // The last core first: the probe runs on the first of the cores taken.
        let cores: Vec<CoreId> = wanted.placement.exclusive.iter().rev().copied().collect();
        if cores.is_empty() {
            protections.extend(refusals(&asked.tasks, &wanted.placement));
            return Ok(TaskPlacement::without(wanted, asked.own, protections));
        }
        // Lending needs a thread or group that can use the core; without one, better protection may be available.
        let best_effort = |(_, request): &(String, PlacementRequest)| request.class == Class::BestEffort;
        let has_borrower = !neighbours.lend_to.is_empty() || asked.tasks.iter().any(best_effort);
        let lend = lendable && neighbours.lend && has_borrower;
        let neighbours = Neighbours {
            lend,
            ..neighbours.clone()
        };
        match asked.machine.exclusive_cores(&cores, &neighbours) {
            Ok(cores) => TaskPlacement::on(cores, lend, asked, limits, protections),
            Err(refusal) => {
                protections.push(protection("a core of its own for exclusive tasks".into(), Err(refusal)));
                let limits = Limits {
                    exclusive: Some(Vec::new()),
                    ..limits
                };
                Ok(TaskPlacement::without(asked.place(&limits)?, asked.own, protections))
            }
        }
    }

    /// Result without exclusive cores.
    fn without(placed: PlacedBeside, own: usize, protections: &mut Vec<Protection>) -> TaskPlacement {
        let PlacedBeside {
            mut placement,
            limits,
            protections: more,
        } = placed;
        protections.extend(more);
        placement.seats.truncate(own);
        placement.refused.retain(|(task, _)| *task < own);
        TaskPlacement {
            placement,
            exclusive: None,
            limits: Limits {
                exclusive: Some(Vec::new()),
                ..limits
            },
            kept: Vec::new(),
        }
    }

    /// Places the tasks of `asked` on a machine that keeps `cores` free for exclusive ones.
    fn on(
        cores: Vec<ExclusiveCore>,
        lend: bool,
        asked: &AskedTasks<'_>,
        limits: Limits,
        protections: &mut Vec<Protection>,
    ) -> Result<TaskPlacement, RuntimeError> {
        let (tasks, own) = (&asked.tasks, asked.own);
        protections.extend(cores.iter().flat_map(protected));
        let better = cores.iter().take(1).flat_map(|core| &core.obtained().refused);
        let taken: Vec<CoreId> = cores.iter().map(|core| core.obtained().core).collect();
        let hint = quieter(&KernelTree::default(), &taken);
        let lacking = better.cloned().chain(hint);
        protections.extend(lacking.map(|refusal| protection(refusal.what.clone(), Err(refusal))));
        let measured: Vec<Result<LendingMeasured, Refusal>> = cores
            .iter()
            .map(|core| measure_lending(core, TASK_PRIORITY, lend))
            .collect();
        let overhead = measured.iter().flatten().map(LendingMeasured::waking).max();
        let limits = Limits {
            overhead: overhead.unwrap_or_default(),
            exclusive: Some(cores.iter().map(|core| core.obtained().core).collect()),
            ..limits
        };
        let PlacedBeside {
            mut placement,
            limits,
            protections: more,
        } = asked.place(&limits)?;
        protections.extend(more.into_iter().chain(refusals(tasks, &placement)));
        let (mut homes, mut kept) = (Vec::new(), Vec::new());
        for (core, measured) in cores.into_iter().zip(measured) {
            let here = occupants(&placement, core.obtained().core);
            if here.is_empty() {
                // No task is left that would take it back.
                let what = format!(
                    "core {} lent to best-effort tasks to the end: no exclusive task fits",
                    core.obtained().core
                );
                protections.push(protection(what, core.lend()));
                continue;
            }
            let id = core.obtained().core;
            let later = here.iter().any(|(task, _)| *task >= own);
            if later {
                protections.push(protection(
                    format!("core {id} kept for tasks and threads that come"),
                    Ok(()),
                ));
                kept.push(id);
                homes.push(Home {
                    core,
                    tenancies: Vec::new(),
                });
                continue;
            }
            let admitted = |(task, chair): &(usize, Chair)| admitted(&tasks[*task], chair, here.len());
            protections.extend(here.iter().map(admitted));
            homes.push(Home::new(core, lend, measured, here.len(), protections));
        }
        placement.seats.truncate(own);
        placement.refused.retain(|(task, _)| *task < own);
        Ok(TaskPlacement {
            limits: Limits {
                exclusive: Some(homes.iter().map(|home: &Home| home.core.obtained().core).collect()),
                ..limits
            },
            exclusive: (!homes.is_empty()).then_some(Exclusive { homes }),
            placement,
            kept,
        })
    }
}

/// How the core is protected, and which programs may still run there.
fn protected(core: &ExclusiveCore) -> [Protection; 2] {
    let obtained = core.obtained();
    let may = format!(
        "may still run on core {}: {}",
        obtained.core,
        stays_told(&obtained.stays)
    );
    let stays = Protection {
        stays: obtained.stays.clone(),
        ..protection(may, Ok(()))
    };
    [protection(obtained.to_string(), Ok(())), stays]
}

/// Name in the report of a core that is reserved for tasks and threads that come later.
const KEPT: &str = "a core for tasks that come later";

/// Request that stands for a task or thread that comes later: it has a core alone, `core` if that is given.
pub(super) fn kept(core: Option<CoreId>) -> PlacementRequest {
    PlacementRequest {
        class: Class::Exclusive { deadline: Nanos::MAX },
        arrival: Arrival::Periodic { period: Nanos::MAX },
        execution: None,
        core,
        cores: Some(1),
    }
}

/// Exclusive tasks on `core`, with their indices in the list.
fn occupants(placement: &Placement, core: CoreId) -> Vec<(usize, Chair)> {
    let there = |(task, seat): (usize, &Seat)| match seat {
        Seat::Exclusive(chair) if chair.core == core => Some((task, *chair)),
        _ => None,
    };
    placement.seats.iter().enumerate().filter_map(there).collect()
}

/// The exclusive cores taken, the last core of the machine first.
pub(super) struct Exclusive {
    homes: Vec<Home>,
}

struct Home {
    core: ExclusiveCore,
    /// Leases for the tasks there that have not asked yet; empty if the core cannot be lent.
    tenancies: Vec<Tenancy>,
}

impl Home {
    fn new(
        core: ExclusiveCore,
        lend: bool,
        measured: Result<LendingMeasured, Refusal>,
        occupants: usize,
        protections: &mut Vec<Protection>,
    ) -> Home {
        let costs = measured.map(|measured| measured.costs());
        let at_first = costs.as_ref().map(LearntCosts::costs).map_err(Clone::clone);
        protections.push(lending(core.obtained().core, lend, &at_first));
        Home {
            tenancies: match costs {
                Ok(costs) if lend => Tenancy::shared(core.clone(), costs, occupants),
                _ => Vec::new(),
            },
            core,
        }
    }
}

impl Exclusive {
    /// The cores taken, the last one of the machine first.
    pub(super) fn cores(&self) -> impl Iterator<Item = &ExclusiveCore> {
        self.homes.iter().map(|home| &home.core)
    }

    /// Readers of each core's lending statistics; call this before `tenancy`.
    pub(super) fn accountants(&self) -> Vec<Accountant> {
        let one = |home: &Home| home.tenancies.first().map(Tenancy::accountant);
        self.homes.iter().filter_map(one).collect()
    }

    /// A task's share in the lease of `core`; call this once for each task there.
    pub(super) fn tenancy(&mut self, core: CoreId) -> Option<Tenancy> {
        let home = self.homes.iter_mut().find(|home| home.core.obtained().core == core)?;
        home.tenancies.pop()
    }
}

fn admitted((name, request): &(String, PlacementRequest), chair: &Chair, tasks: usize) -> Protection {
    let Chair { core, response, .. } = chair;
    let beside = match tasks - 1 {
        0 => "alone".to_owned(),
        1 => "beside 1 other".to_owned(),
        others => format!("beside {others} others"),
    };
    let deadline = request.class.deadline().unwrap_or_default();
    let response = match response {
        Some(response) => format!("done within {response} of {deadline} by response-time analysis"),
        None => "its execution time is unknown".into(),
    };
    protection(format!("{name}: admitted to core {core} {beside}, {response}"), Ok(()))
}

fn lending(core: CoreId, lend: bool, costs: &Result<LendingCosts, Refusal>) -> Protection {
    let what = match costs {
        _ if !lend => return protection(format!("core {core} is not lent"), Ok(())),
        Ok(costs) => format!(
            "core {core} lent while idle, taken back {} before a release at first (p99 here), then as long as it takes in the run",
            costs.take_back
        ),
        Err(_) => format!("lending core {core}"),
    };
    protection(what, costs.as_ref().map(drop).map_err(Clone::clone))
}

/// Tasks that are refused a core, with reasons.
fn refusals(tasks: &[(String, PlacementRequest)], placement: &Placement) -> Vec<Protection> {
    let names: Vec<&str> = tasks.iter().map(|(name, _)| name.as_str()).collect();
    refused(&names, placement)
}

#[cfg(test)]
mod tests {
    use punctual_cores::{Unfit, place};

    use super::*;

    const MS: Nanos = Nanos::from_millis(1);

    fn task(number: usize, execution: Option<u64>, every: u64) -> (String, PlacementRequest) {
        let request = PlacementRequest {
            class: Class::Exclusive { deadline: MS * every },
            arrival: Arrival::Periodic { period: MS * every },
            execution: execution.map(|execution| MS * execution),
            core: None,
            cores: None,
        };
        (format!("task {number}"), request)
    }

    fn placed(tasks: &[(String, PlacementRequest)], cores: u32, limits: &Limits) -> Placement {
        let requests: Vec<PlacementRequest> = tasks.iter().map(|(_, request)| *request).collect();
        let cores: Vec<CoreId> = (0..cores).map(CoreId).collect();
        place(&requests, &cores, limits).expect("no task names a core")
    }

    #[test]
    fn waking_up_is_part_of_every_job_and_the_shorter_deadline_has_the_higher_priority() {
        let tasks = [task(0, Some(15), 40), task(1, Some(5), 20), task(2, Some(9), 36)];
        let three = placed(&tasks, 4, &Limits::default());
        assert_eq!(three.exclusive, [CoreId(3)], "15 + 9 + 2 * 5 = 34 of 40 ms");
        let priorities: Vec<u8> = three.seats.iter().filter_map(Seat::chair).map(priority).collect();
        assert_eq!(priorities, [78, 80, 79]);
        let overhead = MS * 2;
        // 17 + 11 + 2 * 7 = 42 ms.
        let burdened = placed(
            &tasks,
            4,
            &Limits {
                overhead,
                ..Limits::default()
            },
        );
        assert_eq!(burdened.exclusive, [CoreId(2), CoreId(3)]);
    }

    #[test]
    fn a_refused_task_is_reported_with_the_reason() {
        let tasks = [task(0, Some(15), 40), task(1, None, 20), task(2, Some(30), 40)];
        let protections = refusals(&tasks, &placed(&tasks, 2, &Limits::default()));
        let why: Vec<&str> = protections
            .iter()
            .filter_map(|protection| Some(protection.refused.as_ref()?.why.as_str()))
            .collect();
        assert_eq!(why, [Unfit::Utilisation.to_string(), Unfit::Unknown.to_string()]);
    }

    #[test]
    fn the_kernels_bound_counts() {
        let bandwidth = Some(Bandwidth {
            runtime: MS * 950,
            period: MS * 1000,
        });
        let placement = placed(
            &[task(0, Some(39), 40)],
            2,
            &Limits {
                bandwidth,
                ..Limits::default()
            },
        );
        assert!(
            matches!(placement.refused[0], (0, Unfit::Throttled { .. })),
            "{placement:?}"
        );
    }

    #[test]
    fn every_task_of_a_core_has_a_priority_of_its_own() {
        let tasks: Vec<(String, PlacementRequest)> = (0..TASKS_PER_CORE_MAX + 1)
            .map(|number| task(number, Some(1), 100))
            .collect();
        let placement = placed(&tasks, 2, &Limits::default());
        assert_eq!(placement.refused.len(), 1);
        let chairs = occupants(&placement, CoreId(1));
        let mut priorities: Vec<u8> = chairs.into_iter().map(|(_, chair)| priority(chair)).collect();
        priorities.sort_unstable();
        priorities.dedup();
        assert_eq!(priorities.len(), TASKS_PER_CORE_MAX);
        assert!(priorities[0] > UPDATER_PRIORITY);
    }
}
