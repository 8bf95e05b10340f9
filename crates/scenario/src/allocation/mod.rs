//! Cache ways and bandwidth: turns a request into options for the loop, which splits them, and for the simulated
//! machine, on which tasks compute what their profiles say.
//!
//! **Which part acts on what.** The split is decided when a job begins, ends or enters another phase; the clock and the
//! admitted share once a window, by a control law that shares no knob and no state with it. The law sees the gain of a
//! split as jobs that are early, and takes it back by a lower clock; the clock in force comes with each event. How
//! stable that is: decision 6.

mod request;

use punctual_allocation::{AllocatorSettings, Base, Objective, PeriodicTask, Pool, Profile, Programs, Refill, Share};
use punctual_cores::Placement;
use punctual_loop::SplitOptions;
use punctual_sim::{MachineModel, SplitLoad, split};
use punctual_units::{Nanos, Time};
use punctual_workload::TaskSpec;

use request::check_lengths;
pub use request::{AllocationError, AllocationRequest, Changes};

/// Ways that a core keeps at least while a job runs: the fifth paper's, if there are enough.
const LEAST_WAYS: u8 = 3;
/// Least time between two decisions: the fifth paper's.
const GAP: Nanos = Nanos::from_millis(1);

/// Options of the loop and load of the simulated machine for `request`, with the tasks of a scenario.
///
/// # Errors
/// [`AllocationError`].
pub(crate) fn splitting(
    request: &AllocationRequest,
    tasks: &[TaskSpec],
    model: &MachineModel,
    placement: &Placement,
) -> Result<(SplitOptions, SplitLoad), AllocationError> {
    let cores = model.cores as usize;
    let (mut options, program_of) = options_for(request, tasks, cores, placement)?;
    // Where refilling is free, every change of the split pays: there is nothing to look ahead for.
    if options.settings.refill.is_some() {
        options.settings.base = Base::Ahead;
    }
    let programs = Programs::new(&options.profiles, Objective::Speed)?;
    let load = SplitLoad {
        model: machine(&programs, cores, request.refill),
        programs: { options.profiles.iter().cloned() }
            .map(split::RunnableProfile::new)
            .collect::<Result<_, _>>()?,
        program_of,
    };
    Ok((options, load))
}

/// Options of the loop for `request` on a machine with `cores` cores, from an even split, and the program of each task.
///
/// # Errors
/// [`AllocationError`].
pub(crate) fn options_for(
    request: &AllocationRequest,
    tasks: &[TaskSpec],
    cores: usize,
    placement: &Placement,
) -> Result<(SplitOptions, Vec<Option<usize>>), AllocationError> {
    request.check_names(tasks)?;
    let profiles: Vec<Profile> = request.profiles.iter().map(|(_, profile)| profile.clone()).collect();
    let programs = Programs::new(&profiles, Objective::Speed)?;
    let named = |spec: &TaskSpec| request.profiles.iter().position(|(task, _)| *task == spec.name);
    let program_of: Vec<Option<usize>> = tasks.iter().map(named).collect();
    check_lengths(tasks, &program_of, &programs, placement)?;
    let settings = AllocatorSettings {
        pool: pool(&programs, cores),
        cores,
        policy: request.policy,
        base: Base::Even,
        // Without the cost of a way, a policy changes the split at every occasion.
        refill: request.refill.filter(|_| request.changes == Changes::Paying),
        gap: GAP,
    };
    let (tasks, of) = periodic(tasks, &program_of, &programs, placement);
    settings
        .check(&programs, &tasks)
        .map_err(|error| AllocationError(format!("allocation: {error}")))?;
    let options = SplitOptions {
        profiles,
        tasks,
        settings,
        first: None,
        of,
    };
    Ok((options, program_of))
}

/// The machine's grid, and the cost of a way that changes hands.
fn machine(programs: &Programs, cores: usize, refill: Option<Refill>) -> split::SplitModel {
    let Refill {
        way_bytes,
        partition_bytes_per_second,
    } = refill.unwrap_or(Refill::PAPER);
    split::SplitModel {
        grid: programs.grid(),
        cores,
        way_bytes,
        partition_bandwidth: partition_bytes_per_second,
        refill: match refill {
            Some(_) => split::Refill::Charged,
            None => split::Refill::Free,
        },
        decision_gap: GAP,
    }
}

/// Ways and bandwidth to hand out on a machine whose profiles are of `programs`.
fn pool(programs: &Programs, cores: usize) -> Pool {
    let grid = programs.grid();
    let even = (usize::from(grid.ways) / cores.max(1)) as u8;
    let one = Share { ways: 1, partitions: 1 };
    Pool {
        grid,
        least: Share {
            ways: LEAST_WAYS.min(even).max(1),
            ..one
        },
        idle: one,
    }
}

/// The periodic tasks with profiles, on the cores where they were placed, and for each task of a run on Linux its index
/// among them. A task without a period (its jobs follow each other) counts as always under way.
fn periodic(
    tasks: &[TaskSpec],
    program_of: &[Option<usize>],
    programs: &Programs,
    placement: &Placement,
) -> (Vec<PeriodicTask>, Vec<Option<usize>>) {
    let (mut all, mut of) = (Vec::new(), Vec::new());
    for ((spec, program), seat) in tasks.iter().zip(program_of).zip(&placement.seats) {
        for core in 0..seat.cores().len() {
            let index = program.map(|_| all.len() + core);
            of.extend(std::iter::repeat_n(index, spec.per_core as usize));
        }
        let Some(program) = *program else { continue };
        let shortest = Nanos::from_secs_f64(programs.duration(program, programs.grid().all()));
        let period = spec.arrival.gap_min(shortest);
        all.extend(seat.cores().iter().map(|core| {
            PeriodicTask {
                weight: if spec.deadline().is_some() { 1.0 } else { 0.0 },
                from: Time::ZERO + spec.active.from,
                until: Time::ZERO + spec.active.until,
                program,
                period: period.max(Nanos(1)),
                deadline: Some(spec.deadline().map_or(Nanos::MAX, |deadline| deadline.max(Nanos(1)))),
                // A profile holds computing only.
                data: spec.demand.data,
                core: core.0 as usize,
                rank: Some(seat.chair().map_or(u32::MAX, |chair| chair.rank as u32)),
            }
        }));
    }
    (all, of)
}
