//! From event to event.

use super::core::{Core, Job, Reached};
use super::error::PartitionedError;
use super::machine::{Machine, Refill, Slice};
use super::outcome::{Done, Finished};
use super::program::Program;

/// A run is given up when it lasts this many times as long as jobs are released: a task that never ends.
const LASTS_MAX: f64 = 100.0;

/// Most jobs of a run, which keeps one record of each: 0.3 GB.
const JOBS_MAX: f64 = 1e7;

/// How far a job may undercut its envelope by rounding.
const ROUNDING: f64 = 1e-6;

/// A periodic task with its deadline at the end of its period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// Its program's number.
    pub program: usize,
    /// Between two releases (s); the relative deadline, too.
    pub period: f64,
    /// The core that it is pinned to.
    pub core: usize,
}

/// What an allocator sees.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'m> {
    /// When (s).
    pub now: f64,
    /// The machine.
    pub machine: &'m Machine,
    /// The programs, by number.
    pub programs: &'m [Program],
    /// The tasks, by number.
    pub tasks: &'m [Task],
    /// When each task is released next (s).
    pub next_release: &'m [f64],
    /// The cores.
    pub cores: &'m [Core],
}

/// Runs `tasks`, all released first at 0 and last before `duration` (s), until every job has ended. `allocate` is asked after releases,
/// completions and phase changes for a slice per core; none leaves everything as it is.
///
/// # Errors
/// [`PartitionedError`]; a run that would not end is given up.
pub fn simulate(
    machine: &Machine,
    programs: &[Program],
    tasks: &[Task],
    duration: f64,
    mut allocate: impl FnMut(&Moment) -> Option<Vec<Option<Slice>>>,
) -> Result<Finished, PartitionedError> {
    check(machine, programs, tasks)?;
    check_length(tasks, duration)?;
    let mut run = Run {
        machine,
        programs,
        tasks,
        duration,
        now: 0.0,
        cores: vec![Core::default(); machine.cores],
        next_release: vec![0.0; tasks.len()],
        first_release: 0.0,
        last_decision: f64::NEG_INFINITY,
        stale: false,
        finished: Finished::default(),
    };
    run.release_due();
    loop {
        run.decide(&mut allocate)?;
        let next = run.next_event();
        if next == f64::INFINITY {
            return run.end();
        }
        if next > duration * LASTS_MAX {
            return Err(run.given_up(next));
        }
        run.pass_until(next);
    }
}

struct Run<'r> {
    machine: &'r Machine,
    programs: &'r [Program],
    tasks: &'r [Task],
    duration: f64,
    now: f64,
    cores: Vec<Core>,
    next_release: Vec<f64>,
    /// The earliest of `next_release`.
    first_release: f64,
    last_decision: f64,
    /// Whether anything has changed since the last decision.
    stale: bool,
    finished: Finished,
}

impl Run<'_> {
    /// When something happens next (s); never, if all is done or all stand still.
    fn next_event(&self) -> f64 {
        let of_cores = self.cores.iter().map(Core::until_event).fold(f64::INFINITY, f64::min);
        let release = if self.first_release < self.duration {
            self.first_release
        } else {
            f64::INFINITY
        };
        let decision = if self.stale {
            self.last_decision + self.machine.decision_gap
        } else {
            f64::INFINITY
        };
        (self.now + of_cores).min(release).min(decision)
    }

    fn pass_until(&mut self, next: f64) {
        let seconds = (next - self.now).max(0.0);
        self.now = next;
        for core in &mut self.cores {
            if core.running().is_some() {
                self.finished.busy += seconds;
            }
            if core.is_refilling() {
                self.finished.refilling += seconds;
            }
            match core.pass(seconds, self.programs) {
                Reached::Nothing => {}
                Reached::Phase => self.stale = true,
                Reached::End(job) => {
                    self.stale = true;
                    let fast = job.executed < self.programs[job.program].envelope() * (1.0 - ROUNDING);
                    debug_assert!(!fast, "{job:?} is faster than the uncontended machine");
                    self.finished.too_fast += u64::from(fast);
                    self.finished.jobs.push(Done {
                        task: job.task,
                        released: job.released,
                        response: next - job.released,
                        deadline: self.tasks[job.task].period,
                    });
                }
            }
        }
        if self.first_release <= next {
            self.release_due();
        }
    }

    fn release_due(&mut self) {
        for (number, task) in self.tasks.iter().enumerate() {
            let due = &mut self.next_release[number];
            while *due <= self.now && *due < self.duration {
                let job = Job {
                    task: number,
                    program: task.program,
                    released: *due,
                    deadline: *due + task.period,
                    phase: 0,
                    left: self.programs[task.program].length(0),
                    executed: 0.0,
                };
                self.cores[task.core].release(job, self.programs);
                *due += task.period;
                self.stale = true;
            }
        }
        self.first_release = self.next_release.iter().copied().fold(f64::INFINITY, f64::min);
    }

    fn decide(
        &mut self,
        allocate: &mut impl FnMut(&Moment) -> Option<Vec<Option<Slice>>>,
    ) -> Result<(), PartitionedError> {
        if !self.stale || self.now < self.last_decision + self.machine.decision_gap {
            return Ok(());
        }
        let first = self.last_decision == f64::NEG_INFINITY;
        (self.last_decision, self.stale) = (self.now, false);
        self.finished.decisions += 1;
        let moment = Moment {
            now: self.now,
            machine: self.machine,
            programs: self.programs,
            tasks: self.tasks,
            next_release: &self.next_release,
            cores: &self.cores,
        };
        let Some(slices) = allocate(&moment) else {
            return Ok(());
        };
        if !self.machine.holds(&slices) {
            return Err(PartitionedError::Overdrawn {
                now: self.now,
                slices: format!("{slices:?}"),
            });
        }
        if self.cores.iter().map(Core::slice).eq(slices.iter().copied()) {
            return Ok(());
        }
        let charged = !first && self.machine.refill == Refill::Charged;
        self.finished.changes += 1;
        for (core, slice) in self.cores.iter_mut().zip(slices) {
            let gained = core.give(slice, charged, self.machine, self.programs);
            if !first {
                self.finished.ways_moved += u64::from(gained);
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<Finished, PartitionedError> {
        if self.cores.iter().any(|core| core.running().is_some()) {
            return Err(self.given_up(self.now));
        }
        self.finished.ended = self.now;
        Ok(self.finished)
    }

    /// Of the first core with a job that is not done.
    fn given_up(&self, now: f64) -> PartitionedError {
        let job = self.cores.iter().find_map(Core::running);
        PartitionedError::NeverEnds {
            task: job.map_or(0, |job| job.task),
            released: job.map_or(0.0, |job| job.released),
            now,
        }
    }
}

fn check(machine: &Machine, programs: &[Program], tasks: &[Task]) -> Result<(), PartitionedError> {
    let refuse = |what: &str| Err(PartitionedError::Machine(what.into()));
    if machine.cores == 0 || machine.grid.is_empty() || machine.grid.ways > 64 {
        return refuse("it needs a core, and 1 to 64 ways and bandwidth partitions");
    }
    if !(machine.way_bytes >= 0.0 && machine.partition_bandwidth > 0.0 && machine.decision_gap >= 0.0) {
        return refuse("sizes and times are not negative, and bandwidth is positive");
    }
    for (number, task) in tasks.iter().enumerate() {
        let refuse = |what: String| Err(PartitionedError::Task { task: number, what });
        let Some(program) = programs.get(task.program) else {
            return refuse(format!("there is no program number {}", task.program));
        };
        if program.profile().grid != machine.grid {
            return refuse(format!(
                "{} was profiled on {:?}, the machine has {:?}",
                program.profile().name,
                program.profile().grid,
                machine.grid
            ));
        }
        if task.core >= machine.cores {
            return refuse(format!("core {} of {} cores", task.core, machine.cores));
        }
        if !(task.period > 0.0 && task.period.is_finite()) {
            return refuse(format!("a period of {} s", task.period));
        }
    }
    Ok(())
}

/// Whether `duration` ends, and releases no more jobs than can be kept: a period that time does not resolve releases without end.
fn check_length(tasks: &[Task], duration: f64) -> Result<(), PartitionedError> {
    if !(duration >= 0.0 && duration.is_finite()) {
        return Err(PartitionedError::Duration(duration));
    }
    let jobs: f64 = tasks.iter().map(|task| (duration / task.period).ceil()).sum();
    if jobs > JOBS_MAX {
        return Err(PartitionedError::Jobs { jobs, most: JOBS_MAX });
    }
    Ok(())
}
