//! What excuses a late job: the probe on its core saw the core taken away for as long as the job was late. And how much
//! of the core the hypervisor gave to other guests meanwhile.

use punctual_platform::linux::probe::GapProbe;
use punctual_platform::linux::thread::{Tid, cpu_time_of};
use punctual_platform::linux::{KernelTree, busy};
use punctual_units::{CoreId, Nanos, TaskId};
use punctual_workload::JobOutcome;

/// The probe, and our own real-time threads on its core, which the kernel throttles if they fill it.
pub(super) struct Witness<'p> {
    probe: Option<&'p GapProbe>,
    /// The probe's core.
    core: CoreId,
    /// Tasks on other cores: what the probe sees does not excuse them.
    elsewhere: Vec<TaskId>,
    threads: Vec<Tid>,
    /// Stolen time of the core at the last look, since boot.
    stolen: Option<Nanos>,
}

impl<'p> Witness<'p> {
    /// The witness of `core`, where `probe` runs if the kernel allowed it, and without tasks that are `elsewhere`.
    pub(super) fn new(core: CoreId, probe: Option<&'p GapProbe>, elsewhere: Vec<TaskId>) -> Witness<'p> {
        Witness {
            probe,
            core,
            elsewhere,
            threads: probe.map(GapProbe::tid).into_iter().collect(),
            stolen: stolen_from(core),
        }
    }

    /// Counts the CPU time of those of these real-time threads that have the probe's core.
    pub(super) fn count(&mut self, threads: impl IntoIterator<Item = (CoreId, Tid)>) {
        let here = threads.into_iter().filter(|(core, _)| *core == self.core);
        self.threads.extend(here.map(|(_, thread)| thread));
    }

    /// Takes note of a task that was added on `core`.
    pub(super) fn watch(&mut self, task: TaskId, core: CoreId) {
        if core != self.core {
            self.elsewhere.push(task);
        }
    }

    /// Looks at the stolen time of the core, so that [`Witness::stolen`] counts from now on.
    pub(super) fn look(&mut self) {
        self.stolen = stolen_from(self.core);
    }

    /// What the hypervisor has taken from the core of `task` since the last look, in ticks of 10 ms, and looks. `None`
    /// for a task on another core, and where the kernel does not say.
    pub(super) fn stolen(&mut self, task: TaskId) -> Option<Nanos> {
        if self.elsewhere.contains(&task) {
            return None;
        }
        let before = self.stolen;
        self.look();
        Some(self.stolen?.saturating_sub(before?))
    }

    /// CPU time that the counted threads have used since they started.
    pub(super) fn used(&self) -> Nanos {
        self.threads.iter().filter_map(|thread| cpu_time_of(*thread)).sum()
    }

    /// Whether a gap at least as long as the job's overrun lies between its release and its end.
    pub(super) fn explains(&self, job: &JobOutcome) -> bool {
        let (Some(probe), Some(overrun)) = (self.probe, job.overrun()) else {
            return false;
        };
        !self.elsewhere.contains(&job.task) && probe.longest_gap(job.released, job.finished) >= overrun
    }
}

fn stolen_from(core: CoreId) -> Option<Nanos> {
    let times = busy::read(&KernelTree::default()).ok()?;
    times.iter().find(|times| times.core == core).map(|times| times.steal)
}
