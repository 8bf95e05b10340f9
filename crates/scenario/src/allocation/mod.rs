//! Cache ways and bandwidth beside the loop: tasks with execution profiles on the simulated machine.
//!
//! **Which part acts on what.** The allocator turns ways and bandwidth partitions of each core, when a job begins, ends
//! or enters another phase. The controller turns the clock and the admitted share, once a window. They share no knob
//! and no state. What the allocator gains, the controller sees as jobs that are early, and takes back by a lower clock;
//! the allocator knows the clock in force, and reckons with it. How stable that is: docs/decisions/0006-allocation.md.
//!
//! **What a profile means here.** With everything there is, a phase takes its instructions over its best rate, at the
//! top clock; that part scales with the clock. What a smaller share makes it slower is waiting for memory, which does
//! not. Ways that a core gained cost it the time to fill them, spread over what is left of its phase.

mod request;

use punctual_allocation::{
    Allocator, Base, Event, Plan, Pool, Profile, Programs, Refill, Running, Settings, Share, Task, Waiting,
};
use punctual_cores::Placement;
use punctual_sim::{JobAt, MachineModel, Simulation};
use punctual_units::{Clock, Hertz, Nanos, Time};
use punctual_workload::{Arrival, Op, Program, TaskSpec};

use request::check_lengths;
pub use request::{AllocationError, AllocationRequest, Changes};

/// Ways that a core keeps at least while a job runs: the fifth paper's, if there are enough.
const LEAST_WAYS: u8 = 3;
/// Least time between two decisions: the fifth paper's.
const GAP: Nanos = Nanos::from_millis(1);

/// The allocator at work.
pub(crate) struct Allocating {
    programs: Programs,
    allocator: Allocator,
    cores: usize,
    /// The machine's top clock.
    top: Hertz,
    refill: Option<Refill>,
    /// The program of each task, if it has a profile.
    program_of: Vec<Option<usize>>,
    /// How many accesses to the store come before the phases of each task.
    ahead: Vec<usize>,
    /// What the cycles of each phase are, by program.
    cycles: Vec<Vec<f64>>,
    /// Progress at each phase's begin, by program; one more for the end.
    bounds: Vec<Vec<f64>>,
    /// The runner on each core and its op, as it was last seen.
    seen: Vec<Option<(usize, usize)>>,
    /// Seconds that each core will wait for ways that it gained, once a job of it computes.
    cold: Vec<f64>,
    /// What the job on each core waits for such ways with each cycle of the phase that it is in, in nanoseconds.
    filling: Vec<f64>,
    /// How far that phase was when that began to hold.
    filling_from: Vec<f64>,
    changes: u64,
}

impl Allocating {
    /// Compiles `request` for the tasks of a scenario on this machine.
    ///
    /// # Errors
    /// [`AllocationError`].
    pub fn new(
        request: &AllocationRequest,
        tasks: &[TaskSpec],
        model: &MachineModel,
        placement: &Placement,
    ) -> Result<Self, AllocationError> {
        request.check_names(tasks)?;
        let profiles: Vec<Profile> = request.profiles.iter().map(|(_, profile)| profile.clone()).collect();
        let programs = Programs::new(&profiles, punctual_allocation::Objective::Speed)?;
        let program_of: Vec<Option<usize>> = tasks
            .iter()
            .map(|spec| request.profiles.iter().position(|(task, _)| *task == spec.name))
            .collect();
        check_lengths(tasks, &program_of, &programs, placement)?;
        let cores = model.cores as usize;
        let settings = Settings {
            pool: pool(&programs, cores),
            cores,
            policy: request.policy,
            // Best-effort tasks have loads, too, and balancing those would slow the real-time ones.
            base: Base::Even,
            // A policy that does not know what a way costs changes at every occasion.
            refill: request.refill.filter(|_| request.changes == Changes::Paying),
            gap: GAP,
        };
        let allocator = Allocator::new(&programs, &periodic(tasks, &program_of, &programs, placement), settings)?;
        let top = model.steps.last().map_or(Hertz(0), |step| step.clock);
        let all = programs.grid().all();
        let seconds = |profile: &Profile| -> Vec<f64> {
            let mut begins = 0.0;
            let phase = |phase: &punctual_allocation::Phase| {
                let length = (phase.ends - begins) * profile.instructions;
                begins = phase.ends;
                length / f64::from(phase.rates.monotone().rate(all))
            };
            profile.phases.iter().map(phase).collect()
        };
        let bounds = |profile: &Profile| {
            [0.0]
                .into_iter()
                .chain(profile.phases.iter().map(|phase| phase.ends))
                .collect()
        };
        Ok(Allocating {
            cycles: profiles
                .iter()
                .map(|profile| {
                    seconds(profile)
                        .iter()
                        .map(|s| (s * top.0 as f64).round().max(1.0))
                        .collect()
                })
                .collect(),
            bounds: profiles.iter().map(bounds).collect(),
            programs,
            allocator,
            cores,
            top,
            refill: request.refill,
            ahead: vec![0; tasks.len()],
            program_of,
            seen: vec![None; cores],
            cold: vec![0.0; cores],
            filling: vec![0.0; cores],
            filling_from: vec![0.0; cores],
            changes: 0,
        })
    }

    /// Lets each task with a profile compute what that describes, an op for each phase: after what its program reads,
    /// before what it writes.
    pub fn replace(&mut self, programs: &mut [Program]) {
        for (task, program) in programs.iter_mut().enumerate() {
            let Some(of) = self.program_of[task] else { continue };
            let (reads, others): (Vec<Op>, Vec<Op>) = program.ops.iter().partition(|op| matches!(op, Op::Get { .. }));
            let writes = others.into_iter().filter(|op| matches!(op, Op::Put { .. }));
            let phases = self.cycles[of]
                .iter()
                .map(|cycles| Op::Compute { cycles: *cycles as u64 });
            self.ahead[task] = reads.len();
            program.ops = reads.into_iter().chain(phases).chain(writes).collect();
        }
    }

    /// The phase that a job computes in; none while it reads or writes.
    fn phase(&self, program: usize, job: &JobAt) -> Option<usize> {
        let phase = job.op.checked_sub(self.ahead[job.task.index()])?;
        (phase < self.cycles[program].len()).then_some(phase)
    }

    /// How often shares changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// When to look again at the latest: a phase may end, or the allocator wants to be asked.
    pub fn next(&self, machine: &mut Simulation<'_>) -> Time {
        let due = self.allocator.due().unwrap_or(Time::MAX);
        machine.next_end().min(due)
    }

    /// Looks at what runs; decides if that has changed, and lets every job run as its share says.
    pub fn step(&mut self, machine: &mut Simulation<'_>) {
        let now = machine.now();
        let mut jobs = machine.jobs();
        // Of each copy of a task the job that is up, as ever: jobs behind it have begun nothing.
        jobs.dedup_by_key(|job| job.runner);
        let mut event = None;
        for core in 0..self.cores {
            let runs = jobs.iter().find(|job| job.core == core && job.runs);
            let sight = runs.map(|job| (job.runner, job.op));
            if sight != self.seen[core] {
                event = Some(match (self.seen[core], sight) {
                    (Some(then), Some(job)) if then.0 == job.0 => Event::PhaseChange(core),
                    (_, Some(_)) => Event::Released(core),
                    (_, None) => Event::Completed(core),
                });
                self.cold[core] += self.unpaid(&jobs, core);
                self.filling[core] = 0.0;
                self.seen[core] = sight;
            }
        }
        let slowdown = self.top.0 as f64 / machine.clock().0 as f64;
        if slowdown != self.programs.slowdown() {
            self.programs.slow_down(slowdown);
            event = event.or(Some(Event::Clock));
        }
        if self.allocator.due().is_some_and(|due| due <= now) {
            event = event.or(Some(Event::Due));
        }
        let Some(event) = event else { return };
        let waiting = self.waiting(&jobs);
        let cores: Vec<Option<Running<'_>>> = waiting
            .iter()
            .enumerate()
            .map(|(core, waiting)| self.running(&jobs, core, waiting))
            .collect();
        let before = self.allocator.plan().clone();
        if self.allocator.step(&self.programs, event, &cores, now).is_some() {
            self.changes += 1;
            self.charge(&before);
        }
        for job in &jobs {
            if let Some(program) = self.program_of[job.task.index()] {
                let stall = self.stall(program, job);
                machine.stall(job.runner, stall);
            }
        }
    }

    /// Seconds of filling that the job which had this core until now has not waited for yet: it was to wait until its
    /// phase ends, and was pushed aside before.
    fn unpaid(&self, jobs: &[JobAt], core: usize) -> f64 {
        let Some((runner, op)) = self.seen[core] else {
            return 0.0;
        };
        let pushed_aside = |job: &&JobAt| !job.runs && (job.runner, job.op) == (runner, op);
        let left = jobs.iter().find(pushed_aside).and_then(|job| {
            let program = self.program_of[job.task.index()]?;
            // One that is less far is the next job of its task: the phase has ended, and all is paid.
            let same = job.done >= self.filling_from[core];
            let cycles = self.cycles[program][self.phase(program, job)?];
            same.then_some(cycles * (1.0 - job.done))
        });
        self.filling[core] * left.unwrap_or(0.0) * 1e-9
    }

    /// The jobs with profiles that wait for each core.
    fn waiting(&self, jobs: &[JobAt]) -> Vec<Vec<Waiting>> {
        let mut waiting = vec![Vec::new(); self.cores];
        for job in jobs.iter().filter(|job| !job.runs) {
            if let Some(program) = self.program_of[job.task.index()] {
                waiting[job.core].push(Waiting {
                    program,
                    progress: self.progress(program, job),
                    deadline: job.deadline.unwrap_or(Time::MAX),
                });
            }
        }
        waiting
    }

    fn running<'w>(&self, jobs: &[JobAt], core: usize, waiting: &'w [Waiting]) -> Option<Running<'w>> {
        let job = jobs.iter().find(|job| job.core == core && job.runs)?;
        let program = self.program_of[job.task.index()]?;
        Some(Running {
            program,
            progress: self.progress(program, job),
            deadline: job.deadline.unwrap_or(Time::MAX),
            waiting,
        })
    }

    /// How far a job has come in its profile: nothing is done before it computes, all but nothing is left after that.
    fn progress(&self, program: usize, job: &JobAt) -> f64 {
        let bounds = &self.bounds[program];
        match self.phase(program, job) {
            // Never quite at the end of the phase: there the next one begins.
            Some(phase) => bounds[phase] + job.done.min(1.0 - 1e-9) * (bounds[phase + 1] - bounds[phase]),
            None if job.op < self.ahead[job.task.index()] => 0.0,
            None => 1.0 - 1e-9,
        }
    }

    /// Nanoseconds that a job waits with each cycle, because its core has not everything and has ways to fill.
    fn stall(&mut self, program: usize, job: &JobAt) -> f64 {
        let Some(phase) = self.phase(program, job) else {
            return 0.0;
        };
        let cycles = self.cycles[program][phase];
        if job.runs {
            // Spread over what is left of the phase, so that it is paid when the phase ends.
            let left = (cycles * (1.0 - job.done)).max(1.0);
            self.filling[job.core] += std::mem::take(&mut self.cold[job.core]) * 1e9 / left;
            self.filling_from[job.core] = job.done;
        }
        let share = self.allocator.plan().shares[job.core];
        let progress = self.progress(program, job);
        let slower = |share: Share| 1.0 / self.programs.progress_rate(program, progress, share);
        let bounds = &self.bounds[program];
        let seconds = (bounds[phase + 1] - bounds[phase]) * (slower(share) - slower(self.programs.grid().all()));
        let filling = if job.runs { self.filling[job.core] } else { 0.0 };
        seconds.max(0.0) * 1e9 / cycles + filling
    }

    /// Takes note of the ways that each core has gained.
    fn charge(&mut self, before: &Plan) {
        let Some(refill) = self.refill else { return };
        let plan = self.allocator.plan();
        for ((cold, gained), share) in self.cold.iter_mut().zip(plan.gained(before)).zip(&plan.shares) {
            *cold += refill.seconds(gained, share.partitions);
        }
    }
}

/// What there is to hand out on a machine whose profiles are of `programs`.
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

/// The periodic tasks with profiles, on the cores where they were placed. What has no period (its jobs follow each
/// other) is taken to be always under way.
fn periodic(tasks: &[TaskSpec], program_of: &[Option<usize>], programs: &Programs, placement: &Placement) -> Vec<Task> {
    let mut all = Vec::new();
    for ((spec, program), seat) in tasks.iter().zip(program_of).zip(&placement.seats) {
        let Some(program) = *program else { continue };
        let period = match spec.arrival {
            Arrival::Periodic { period } => period,
            Arrival::Sporadic { gap_min, .. } => gap_min,
            Arrival::AfterCompletion { pause_min, .. } => {
                pause_min + Nanos::from_secs_f64(programs.duration(program, programs.grid().all()))
            }
        };
        all.extend(seat.cores().iter().map(|core| {
            Task {
                program,
                // A deadline before the next release asks for as much as a period of its length.
                period: spec
                    .deadline()
                    .map_or(period, |deadline| deadline.min(period))
                    .max(Nanos(1)),
                core: core.0 as usize,
            }
        }));
    }
    all
}

#[cfg(test)]
mod tests;
