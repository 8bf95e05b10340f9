//! Places the tasks of a run beside the real-time work of other programs, and announces them.
//!
//! Other programs announce their real-time tasks in the ledger. Tasks get cores without such work while there are some;
//! where there are none, they run below the tasks that are there, if these cores hold both by response-time analysis. A
//! run that does not fit is refused with the name of the process that has the core.

use std::collections::BTreeSet;

use punctual_cores::{Limits, PlaceError, Placement, PlacementRequest, Seat, Sporadic, Unfit, place};
use punctual_platform::linux::starvation::filled_cores;
use punctual_platform::linux::{AnnouncedTask, LinuxMachine, Others};
use punctual_platform::{Machine, Refusal};
use punctual_units::{CoreId, Nanos, Share};
use punctual_workload::UpdateMode;

use super::TASK_PRIORITY;
use super::shared::{protection, unprotected};
use crate::error::RuntimeError;
use crate::report::{LoadReport, Protection, unfit};

/// The span over which sensor updates are announced as one task: its period and its deadline.
const UPDATES_SPAN: Nanos = Nanos::from_millis(100);

/// A placement beside other programs.
pub struct PlacedBeside {
    /// Its tasks are announced.
    pub placement: Placement,
    /// The limits of the placement, with the tasks of other programs.
    pub limits: Limits,
    /// Report entries: cores that other programs have, or share with these tasks.
    pub protections: Vec<Protection>,
}

/// Share of a core that sensor updates need, each a transaction of its own; memory-first ones need none.
pub(super) fn update_share(load: &LoadReport) -> Share {
    match load.update_mode {
        UpdateMode::Transaction => Share::clamped(load.updates_per_s * load.update_us * 1e-6),
        UpdateMode::MemoryFirst => Share::ZERO,
    }
}

/// Places `tasks` beside those that other programs have announced, and announces the first `own` of them in place of
/// those announced before; the others stand for tasks that come later. `updates` is the share of their core that sensor
/// updates need.
///
/// # Errors
/// [`RuntimeError::Place`] if the cores that tasks name contradict each other or the machine. [`RuntimeError::Machine`]
/// if another program has a core that a task names for itself alone, or if the cores do not hold the tasks beside those
/// of other programs; it names the process.
pub fn place_beside(
    machine: &LinuxMachine,
    tasks: &[(String, PlacementRequest)],
    own: usize,
    limits: &Limits,
    updates: Share,
) -> Result<PlacedBeside, RuntimeError> {
    let requests: Vec<PlacementRequest> = tasks.iter().map(|(_, request)| *request).collect();
    let names: Vec<&str> = tasks.iter().map(|(name, _)| name.as_str()).collect();
    let filled = filled_beside(machine);
    let decided = machine.journal().announce(|others| {
        let others = &Others {
            claims: others.claims.iter().chain(&filled).cloned().collect(),
            ..others.clone()
        };
        for (name, request) in tasks {
            check_claims(name, request, others)?;
        }
        let mut protections = Vec::new();
        let cores = unclaimed(&machine.offers().cores, others, &requests, &mut protections);
        let limits = limits_of(limits, &cores, others);
        let placement = place(&requests, &cores, &limits).map_err(|error| refused(error, &names, others))?;
        let updates = (placement.update_core(), updates);
        let announced = announced(&requests[..own], &placement.seats, updates);
        protections.extend(shared(&announced, others));
        protections.extend(apart(&announced, others));
        if !placement.refused.is_empty() {
            protections.extend(barred(others));
        }
        let unseen = others.unseen.clone();
        protections.extend(unseen.map(|why| protection("real-time work of other users' programs".into(), Err(why))));
        let placed = PlacedBeside {
            placement,
            limits,
            protections,
        };
        Ok::<_, RuntimeError>((announced, placed))
    });
    let (mut placed, full) = decided?;
    placed
        .protections
        .extend(full.map(|why| protection(why.what.clone(), Err(why))));
    Ok(placed)
}

/// Cores that real-time threads fill of which the ledger does not know. Cores of other runs are not tried.
fn filled_beside(machine: &LinuxMachine) -> Vec<(CoreId, Refusal)> {
    let others = machine.journal().others();
    let claimed = others.claims.iter().map(|(core, _)| *core);
    let taken: BTreeSet<CoreId> = claimed.chain(used(&others).into_iter().map(|(core, _)| core)).collect();
    let cores = machine.offers().cores.iter().copied();
    let tried: Vec<CoreId> = cores.filter(|core| !taken.contains(core)).collect();
    filled_cores(&tried, TASK_PRIORITY)
}

/// Adds the tasks of other programs to `limits`. Tasks that came after this program's ones on their core go after them,
/// but bar exclusive ones.
pub(super) fn limits_of(limits: &Limits, cores: &[CoreId], others: &Others) -> Limits {
    let beside = others.tasks.iter().map(|(task, _)| (task.core, sporadic(task)));
    let is_barred = |core: &CoreId| others.later.iter().any(|(task, _)| task.core == *core);
    let from_the_end = || cores.iter().rev().copied().collect();
    let open = match others.later.is_empty() {
        true => limits.exclusive.clone(),
        false => Some(limits.exclusive.clone().unwrap_or_else(from_the_end)),
    };
    Limits {
        beside: beside.collect(),
        exclusive: open.map(|open| open.into_iter().filter(|core| !is_barred(core)).collect()),
        ..limits.clone()
    }
}

/// Refuses a task that names a core which another program claims for itself alone.
pub(super) fn check_claims(name: &str, request: &PlacementRequest, others: &Others) -> Result<(), RuntimeError> {
    let claimed = others.claims.iter().find(|(core, _)| request.core == Some(*core));
    claimed.map_or(Ok(()), |(core, refusal)| {
        Err(RuntimeError::Machine(Refusal {
            what: format!("{name}: running on core {core}"),
            ..refusal.clone()
        }))
    })
}

fn sporadic(task: &AnnouncedTask) -> Option<Sporadic> {
    Some(Sporadic {
        execution: task.execution?,
        deadline: task.deadline,
        period: task.period,
    })
}

/// The tasks with real-time seats on no exclusive core, and the share of a core that sensor updates need.
pub(super) fn announced(
    requests: &[PlacementRequest],
    seats: &[Seat],
    (core, updates): (CoreId, Share),
) -> Vec<AnnouncedTask> {
    let one = |(request, seat): (&PlacementRequest, &Seat)| match seat {
        Seat::RealTime(chair) => Some(AnnouncedTask {
            core: chair.core,
            execution: request.execution,
            deadline: request.class.deadline()?,
            period: request.arrival.gap_min(request.execution.unwrap_or_default()),
        }),
        Seat::Exclusive(_) | Seat::BestEffort(_) => None,
    };
    let updates = (updates > Share::ZERO).then(|| AnnouncedTask {
        core,
        execution: Some(UPDATES_SPAN.scaled(updates.get())),
        deadline: UPDATES_SPAN,
        period: UPDATES_SPAN,
    });
    let tasks = requests.iter().zip(seats).filter_map(one);
    tasks.chain(updates).collect()
}

/// The cores that no other process has claimed; adds to `protections` which process claims the others. A core that a
/// running task names counts as free.
pub(super) fn unclaimed(
    all: &[CoreId],
    others: &Others,
    requests: &[PlacementRequest],
    protections: &mut Vec<Protection>,
) -> Vec<CoreId> {
    let named = |core: CoreId| requests.iter().any(|request| request.core == Some(core));
    let claims: Vec<&(CoreId, Refusal)> = others.claims.iter().filter(|(core, _)| !named(*core)).collect();
    let claimed = |core: &CoreId| claims.iter().any(|(it, _)| it == core);
    if all.iter().all(claimed) {
        return all.to_vec(); // this process may use no other
    }
    let lost = claims.iter().filter(|(core, _)| all.contains(core));
    protections.extend(lost.map(|(core, refusal)| protection(format!("core {core}"), Err(refusal.clone()))));
    all.iter().copied().filter(|core| !claimed(core)).collect()
}

/// Entries for the cores on which `own` tasks run beside those of other programs.
fn shared(own: &[AnnouncedTask], others: &Others) -> Vec<Protection> {
    let mut cores: Vec<CoreId> = own.iter().map(|task| task.core).collect();
    cores.sort_unstable();
    cores.dedup();
    let one = |core: &CoreId| {
        let (task, process) = others.tasks.iter().find(|(task, _)| task.core == *core)?;
        let there = || {
            others
                .tasks
                .iter()
                .map(|(task, _)| task)
                .filter(|task| task.core == *core)
        };
        let needs = match there().map(sporadic).collect::<Option<Vec<Sporadic>>>() {
            Some(tasks) => {
                let load: f64 = tasks.iter().map(Sporadic::utilisation).sum();
                format!("which needs up to {:.0} % of it and goes first", load * 100.0)
            }
            None => "of unknown length, so this run may be late whatever it does".into(),
        };
        Some(unprotected(
            format!("core {} for the real-time work of this run only", task.core),
            format!("{process} has real-time work there, {needs}"),
            "give each program cores of its own (taskset -c), or run one at a time",
        ))
    };
    cores.iter().filter_map(one).collect()
}

/// Entries for the cores that are left to the tasks of other programs.
fn apart(own: &[AnnouncedTask], others: &Others) -> Vec<Protection> {
    let mut left = used(others);
    left.retain(|(core, _)| own.iter().all(|task| task.core != *core));
    let one = |(core, process)| protection(format!("core {core} left to the real-time work of {process}"), Ok(()));
    left.into_iter().map(one).collect()
}

/// The cores of the tasks of other programs, with the processes that have them.
fn used(others: &Others) -> BTreeSet<(CoreId, &String)> {
    let tasks = others.tasks.iter().chain(&others.later);
    tasks.map(|(task, process)| (task.core, process)).collect()
}

/// Entries for the cores that become no exclusive ones because of tasks of other programs.
fn barred(others: &Others) -> Vec<Protection> {
    let remedy = "wait until it has ended, or run only one at a time on this machine";
    let one = |(core, process): (CoreId, &String)| {
        let why = format!("{process} has real-time work there");
        unprotected(format!("core {core} for exclusive tasks"), why, remedy)
    };
    used(others).into_iter().map(one).collect()
}

/// The error for the caller, with the name of the process that has the core.
pub(super) fn refused(error: PlaceError, names: &[&str], others: &Others) -> RuntimeError {
    let name = error.task().and_then(|task| names.get(task));
    let name = name.map_or("placement", |name| name).to_owned();
    let PlaceError::Occupied { core, why, .. } = error else {
        return RuntimeError::Place { name, error };
    };
    let process = others.tasks.iter().find(|(task, _)| task.core == core);
    let process = process.map_or("another program", |(_, process)| process);
    let why = match why {
        Unfit::NotGranted => String::new(),
        why => format!(", and the core does not hold both: {}", unfit(names, why)),
    };
    RuntimeError::Machine(Refusal {
        what: format!("{name}: running on core {core}"),
        why: format!("{process} has real-time work there{why}"),
        remedy: "wait until it has ended or end it, name another core, or do less here".into(),
    })
}

#[cfg(test)]
mod tests {
    use punctual_workload::{Arrival, Class};

    use super::*;

    const MS: Nanos = Nanos::from_millis(1);

    fn task(execution: Option<u64>, core: Option<u32>) -> (String, PlacementRequest) {
        let request = PlacementRequest {
            class: Class::RealTime { deadline: MS * 50 },
            arrival: Arrival::Periodic { period: MS * 100 },
            execution: execution.map(|execution| MS * execution),
            core: core.map(CoreId),
            cores: None,
        };
        ("analysis".into(), request)
    }

    fn others(tasks: &[(u32, Option<u64>)]) -> Others {
        let one = |(core, execution): &(u32, Option<u64>)| {
            let announced = AnnouncedTask {
                core: CoreId(*core),
                execution: execution.map(|execution| MS * execution),
                deadline: MS * 50,
                period: MS * 100,
            };
            (announced, "radio (process 77)".to_owned())
        };
        Others {
            tasks: tasks.iter().map(one).collect(),
            ..Others::default()
        }
    }

    #[test]
    fn updates_are_announced_with_the_tasks_on_their_core() {
        let requests = [task(Some(20), None).1];
        let cores = [CoreId(0), CoreId(1)];
        let placement = place(&requests, &cores, &Limits::default()).unwrap();
        let load = LoadReport {
            updates_per_s: 50_000.0,
            update_us: 10.0,
            update_mode: UpdateMode::Transaction,
            ..LoadReport::default()
        };
        let updates = (placement.update_core(), update_share(&load));
        let tasks = announced(&requests, &placement.seats, updates);
        let shown: Vec<_> = tasks.iter().map(|it| (it.core.0, it.execution, it.deadline)).collect();
        assert_eq!(shown, [(1, Some(MS * 20), MS * 50), (1, Some(MS * 50), MS * 100)]);
        let memory_first = LoadReport {
            update_mode: UpdateMode::MemoryFirst,
            ..load
        };
        assert_eq!(update_share(&memory_first), Share::ZERO);
    }

    #[test]
    fn a_refusal_names_the_process_and_a_shared_core_is_reported_with_its_load() {
        let (others, own) = (others(&[(1, Some(40))]), others(&[(1, None)]).tasks[0].0);
        let occupied = PlaceError::Occupied {
            task: 0,
            core: CoreId(1),
            why: Unfit::Utilisation,
        };
        let RuntimeError::Machine(refusal) = refused(occupied, &["analysis"], &others) else {
            panic!("another error");
        };
        assert!(
            refusal.what.contains("analysis") && refusal.why.contains("radio (process 77)"),
            "{refusal}"
        );
        let shared = shared(&[own], &others);
        let why = &shared[0].refused.as_ref().unwrap().why;
        assert!(why.contains("process 77") && why.contains("40 %"), "{why}");
        assert_eq!(apart(&[own], &others), []);
        let elsewhere = AnnouncedTask { core: CoreId(0), ..own };
        let apart = apart(&[elsewhere], &others);
        assert!(apart.len() == 1 && apart[0].what.contains("process 77"), "{apart:?}");
        let barred = barred(&others);
        assert!(
            barred[0].refused.as_ref().unwrap().why.contains("process 77"),
            "{barred:?}"
        );
    }

    #[test]
    fn a_core_that_another_process_has_alone_is_no_core_of_this_run_unless_a_task_names_it() {
        let all = [CoreId(0), CoreId(1)];
        let refusal = Refusal {
            what: String::new(),
            why: "taken".into(),
            remedy: String::new(),
        };
        let claimed = |cores: &[u32]| Others {
            claims: cores.iter().map(|core| (CoreId(*core), refusal.clone())).collect(),
            ..Others::default()
        };
        let left = |others: &Others, core| {
            let mut protections = Vec::new();
            let left = unclaimed(&all, others, &[task(None, core).1], &mut protections);
            (left, protections.len())
        };
        assert_eq!(left(&claimed(&[1]), None), (vec![CoreId(0)], 1));
        assert_eq!(left(&claimed(&[1]), Some(1)), (all.to_vec(), 0));
        assert_eq!(left(&claimed(&[0, 1]), None), (all.to_vec(), 0));
        let check = |core| check_claims("analysis", &task(None, Some(core)).1, &claimed(&[1]));
        assert!(check(0).is_ok());
        let RuntimeError::Machine(refusal) = check(1).unwrap_err() else {
            panic!("another error");
        };
        assert!(refusal.what.contains("analysis") && refusal.why == "taken", "{refusal}");
    }

    #[test]
    fn tasks_that_came_later_bar_exclusive_ones_and_rank_below() {
        let all = [CoreId(0), CoreId(1), CoreId(2)];
        let (earlier, later) = (others(&[(0, Some(1))]), others(&[(2, Some(99))]));
        let others = Others {
            later: later.tasks,
            ..earlier
        };
        let limits = limits_of(&Limits::default(), &all, &others);
        let beside: Vec<CoreId> = limits.beside.iter().map(|(core, _)| *core).collect();
        assert_eq!(
            (beside, limits.exclusive),
            (vec![CoreId(0)], Some(vec![CoreId(1), CoreId(0)]))
        );
    }
}
