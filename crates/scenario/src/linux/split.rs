//! Cache ways and bandwidth by the profiles of tasks on Linux, where resctrl divides them.
//!
//! The split is that of the run's start: nothing follows the phases of a job here yet, so a policy that changes it
//! keeps its first one.

use punctual_cores::Placement;
use punctual_loop::{Regulator, RegulatorOptions, SplitOptions};
use punctual_platform::linux::resctrl::{Partitions, Rehearsal};
use punctual_platform::linux::{KernelTree, LinuxMachine, cores};
use punctual_platform::{KnobId, Machine, Offers, Plan, Range};
use punctual_runtime::linux::limits_beside;
use punctual_runtime::report::Protection;
use punctual_units::Time;
use punctual_workload::{ControllerKind, Problem};

use super::unfit_cores;
use crate::allocation::{AllocationRequest, options_for};
use crate::run::{RunError, RunSetup};

const WHAT: &str = "cache ways and bandwidth by the profiles of tasks";

/// Options of the loop for the split that is asked for, if the machine offers ways.
///
/// # Errors
/// The profiles are of another number of ways or partitions, or fit neither the tasks nor the cores.
pub(super) fn split(
    setup: &RunSetup,
    offers: &Offers,
    partitions: Option<&Partitions>,
    placement: &Placement,
) -> Result<Option<SplitOptions>, RunError> {
    let Some(request) = &setup.request.allocation else {
        return Ok(None);
    };
    let cores = &offers.cores;
    let Some(first) = cores.first() else { return Ok(None) };
    let Some(Range::Ways(ways, _)) = offers.range(KnobId::Ways(*first)) else {
        return Ok(None);
    };
    let parts = match offers.range(KnobId::Bandwidth(*first)) {
        Some(Range::Parts(parts, _)) => *parts,
        _ => 0,
    };
    check_grid(request, *ways, parts)?;
    let caches = partitions.and_then(|partitions| partitions.layout().ways.as_ref());
    let mut caches = caches.into_iter().flat_map(|ways| ways.domains.values());
    let one = caches.next();
    if caches.any(|other| Some(other) != one) {
        let what = "the cores of this process have several last caches, and a split is of one: start it by taskset on \
                    the cores of one cache";
        return Err(Problem::new("allocation", what).into());
    }
    if !cores.iter().zip(0..).all(|(core, number)| core.0 == number) {
        let what = "the cores of this process are not numbered from 0: run it where it may use all cores";
        return Err(Problem::new("allocation", what).into());
    }
    let (options, _) = options_for(request, &setup.scenario().tasks, cores.len(), placement)?;
    Ok(Some(options))
}

/// Refuses profiles of other ways or partitions than this machine has: scaling them would guess.
fn check_grid(request: &AllocationRequest, ways: u8, partitions: u8) -> Result<(), Problem> {
    let grids = request.profiles.iter().map(|(task, profile)| (task, profile.grid));
    for (task, grid) in grids {
        if grid.ways != ways || partitions != 0 && grid.partitions != partitions {
            let what = format!(
                "the profile of \"{task}\" has {} ways and {} partitions of the bandwidth, this machine {ways} and \
                 {partitions}: write its profile anew (punctual profile --ways {ways}) and set allocation.ways = {ways}, \
                 allocation.partitions = {partitions}",
                grid.ways, grid.partitions
            );
            return Err(Problem::new("allocation.ways", what));
        }
    }
    Ok(())
}

/// The report's lines about the split: how it is kept, and what is refused; none if none is asked for.
pub(super) fn protection(setup: &RunSetup, machine: &LinuxMachine, splits: bool) -> Vec<Protection> {
    if setup.request.allocation.is_none() {
        return Vec::new();
    }
    let line = |what: &str, refused| Protection {
        what: what.into(),
        refused,
        stays: Vec::new(),
    };
    let kept = splits.then(|| {
        line(
            &format!("{WHAT}, as at the start (phases are not followed on Linux)"),
            None,
        )
    });
    let refused = machine
        .refusals()
        .iter()
        .filter(|refusal| refusal.what.contains("resctrl"));
    kept.into_iter()
        .chain(refused.map(|refusal| line(WHAT, Some(refusal.clone()))))
        .collect()
}

/// The split at the start of a run.
fn first(options: &RegulatorOptions) -> Result<Plan, RunError> {
    if options.split.is_none() {
        return Ok(Plan::default());
    }
    let plan = Regulator::new(options.clone())?.plan();
    let splits = |knob| matches!(knob, KnobId::Ways(_) | KnobId::Bandwidth(_));
    Ok(plan.iter().filter(|(knob, _)| splits(*knob)).collect())
}

/// Sets the split of the start, so that a machine that refuses it ends the run before it begins.
///
/// # Errors
/// The first refusal, or the reason why the options do not fit.
pub(super) fn begin(machine: &mut LinuxMachine, options: &RegulatorOptions) -> Result<(), RunError> {
    match machine.apply(&first(options)?).refused.into_iter().next() {
        Some((_, refusal)) => Err(refusal.into()),
        None => Ok(()),
    }
}

/// Commands by which a run of this scenario would set ways and bandwidth, with none carried out.
///
/// # Errors
/// The machine divides neither, or the profiles are for another machine.
pub(crate) fn rehearse(setup: &RunSetup) -> Result<Vec<String>, RunError> {
    let tree = KernelTree::default();
    let mut partitions = Partitions::seen(&tree)?;
    let cores = cores::usable(&tree);
    let limits = limits_beside(&setup.request.neighbours).map_err(|refusal| unfit_cores(&refusal))?;
    let placement = setup.place(&cores, &limits)?;
    let offers = Offers {
        machine: String::new(),
        knobs: partitions.offers(&cores),
        cores,
        meters: Vec::new(),
        domains: Vec::new(),
    };
    let options = RegulatorOptions {
        kind: ControllerKind::Open,
        split: split(setup, &offers, Some(&partitions), &placement)?,
        ..setup.regulator(&offers, Time::ZERO)
    };
    let plan = first(&options)?;
    let mut rehearsal = Rehearsal::default();
    let results = partitions.apply(&plan, &mut |access| rehearsal.note(&tree, access));
    results.into_iter().try_for_each(|(_, result)| result.map(drop))?;
    Ok(rehearsal.commands)
}
