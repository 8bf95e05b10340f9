//! Work that a caller releases, such as the steps of a pipeline's stages.
//!
//! Called work runs below real-time jobs. *Urgent* work preempts best-effort jobs, as a thread of Linux with a
//! real-time priority does. Other called work takes turns with them in slices of [`SLICE`], as ordinary threads do, but
//! the bound of their share does not hold it up. No exclusive core is lent to either.

use punctual_units::{CoreId, Nanos, TaskId, Time};
use punctual_workload::Active;

use crate::cores::Occupant;
use crate::engine::Simulation;
use crate::runner::Runner;
use crate::task::{Jobs, Release, Step, Task};

/// Slice of ordinary work that shares a core: about the base slice of Linux 6.6 on four cores (0.75 ms, times one more
/// than the binary logarithm of their number).
const SLICE: Nanos = Nanos::from_micros(2_250);

impl Simulation {
    /// Adds a task on this core whose jobs, of these `steps`, are released by [`call`](Self::call).
    pub fn add_called(&mut self, name: &str, core: CoreId, urgent: bool, steps: Vec<Step>) -> TaskId {
        let id = TaskId(self.released.len() as u32);
        let task = Task {
            name: name.into(),
            deadline: None,
            release: Release::Called,
            active: Active::ALWAYS,
            core: Some(core.index()),
            jobs: Jobs::Alike(steps),
            program: None,
            backlog_max: 0,
        };
        // The seed draws nothing: called work has no gaps and no reads.
        let mut runner = Runner::new(id, &task, 0, self.runners.len());
        runner.urgent = urgent;
        self.runners.push(runner);
        self.released.push(0);
        self.cores[core.index()].turn.get_or_insert((usize::MAX, Time::ZERO));
        id
    }

    /// Releases a job of a called task now; its end is reported. Ignored while one is under way.
    pub fn call(&mut self, task: TaskId) {
        let (now, number) = (self.now, self.released[task.index()]);
        let runner = self.runners.iter_mut().find(|runner| runner.task == task);
        let Some(runner) = runner.filter(|runner| runner.is_called() && runner.job.is_none()) else {
            return;
        };
        runner.release(number, now);
        runner.turn = now;
        self.released[task.index()] += 1;
        self.work_changes += 1;
        self.stale = true;
    }

    /// Where jobs take turns on this core, ends the slice of the one that starts there; one that goes on keeps its own.
    pub(crate) fn begin_slice(&mut self, core: usize, occupant: Occupant) {
        let now = self.now;
        let is_ordinary = |r: usize| self.runners[r].deadline.is_none() && !self.runners[r].urgent;
        let r = match occupant {
            Occupant::Runner(r) if is_ordinary(r) => Some(r),
            _ => None,
        };
        let core = &mut self.cores[core];
        let Some((last, end)) = core.turn else { return };
        let Some(r) = r else { return core.slice_until(Time::MAX) };
        let end = if r == last && end > now { end } else { now + SLICE };
        self.work_changes += u64::from(r != last);
        core.turn = Some((r, end));
        core.slice_until(end);
    }

    /// Puts the job whose slice has ended on this core behind the others there.
    pub(crate) fn end_slice(&mut self, core: usize) {
        let (now, core) = (self.now, &mut self.cores[core]);
        if let (Some(_), Some(Occupant::Runner(r))) = (core.turn, core.occupant()) {
            self.runners[r].turn = now;
            core.turn = Some((r, now + SLICE));
            core.slice_until(now + SLICE);
        }
    }
}
