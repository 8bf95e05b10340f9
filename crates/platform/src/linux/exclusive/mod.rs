//! A core that belongs to real-time work: all other threads are moved away, and have it lent while it is not needed.
//!
//! **Problem.** A real-time thread preempts ordinary ones, but not what they have the kernel do on its core, nor their
//! traces in its caches (the second paper, Sect. 2). **Method.** The best of three ways to keep a core for oneself, in
//! this order, each better one's refusal kept and told:
//!
//! 1. a cpuset *partition* (cgroup version 2; `partition.rs`): the kernel keeps other threads out,
//! 2. a *cpuset* without the core for all other threads (version 1; `cpuset.rs`),
//! 3. the *affinity* of every thread, one by one (`affinity.rs`).
//!
//! In the last two, threads that start later are found by a sweep every [`SWEEP_PERIOD`]. Interrupts and work that is
//! bound to no core move too (`kernel_work.rs`). What stays: this process's own threads, which it places itself,
//! threads that the kernel binds to the core, and those of `population.rs`.
//!
//! Several cores are kept in the same way, by one group or sweep for all; each is lent by itself.
//!
//! All of it is in the journal: on exit, panic and Ctrl-C this process puts it back, after a kill the guardian. Drop
//! every [`ExclusiveCore`] first: otherwise the sweep would move threads that the journal has just restored.

mod affinity;
mod cpuset;
mod fence;
mod kernel_work;
mod likely;
mod obtained;
mod partition;
mod population;
mod sweeper;

use std::sync::Arc;

use punctual_units::{CoreId, Nanos};

use self::fence::Fence;
use self::population::Spared;
use self::sweeper::Sweeper;
use super::journal::Journal;
use super::real_time::RealTimeLimits;
use super::thread::Tid;
use super::{KernelTree, cores, refused};
use crate::Refusal;

pub use likely::likely;
pub use obtained::{Census, Mechanism, Obtained};

/// How soon a thread that was started meanwhile is moved away.
pub const SWEEP_PERIOD: Nanos = Nanos::from_millis(100);

/// The environment variable that names programs that stay where they are, as `ps -o comm` shows them, with commas
/// between.
pub const SPARE: &str = "PUNCTUAL_SPARE";

/// The programs that [`SPARE`] names.
pub fn spared() -> Vec<String> {
    let names = std::env::var(SPARE).unwrap_or_default();
    names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(Into::into)
        .collect()
}

/// A core that is ours. Clones are the same core. Once all are dropped, [`Journal::restore`] gives it back.
#[derive(Clone, Debug)]
pub struct ExclusiveCore {
    obtained: Arc<Obtained>,
    fence: Arc<Fence>,
    _sweeper: Option<Arc<Sweeper>>,
}

impl ExclusiveCore {
    /// Takes `core` for this process; the programs named in `spare` (as `ps -o comm` shows them) are left where they
    /// are.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such core, no other one, or no way to keep it; nothing has changed then.
    pub fn take(
        tree: &KernelTree,
        journal: &Journal,
        core: CoreId,
        spare: &[String],
    ) -> Result<ExclusiveCore, Refusal> {
        let refusal = |why: &str| refused(keeping(&[core]), why, "this is a defect worth reporting");
        let taken = ExclusiveCore::take_all(tree, journal, &[core], spare)?;
        taken.into_iter().next().ok_or_else(|| refusal("none was obtained"))
    }

    /// Takes all of `exclusive`, in one way; answers them in this order. A process takes cores once.
    ///
    /// # Errors
    /// [`Refusal`] where one of them is not there, none is left to others, or there is no way to keep them; nothing has
    /// changed then.
    pub fn take_all(
        tree: &KernelTree,
        journal: &Journal,
        exclusive: &[CoreId],
        spare: &[String],
    ) -> Result<Vec<ExclusiveCore>, Refusal> {
        let machine = cores::online(tree);
        let there = exclusive.iter().all(|core| machine.contains(core));
        if there && machine.iter().any(|core| !exclusive.contains(core)) {
            // First of all: another process, even a dead one, may have this process within its fence.
            journal.claim(exclusive, &machine)?;
        }
        let taken = ExclusiveCore::take_claimed(tree, journal, exclusive, &machine, spare);
        taken.inspect_err(|_| journal.release(exclusive))
    }

    fn take_claimed(
        tree: &KernelTree,
        journal: &Journal,
        exclusive: &[CoreId],
        machine: &[CoreId],
        spare: &[String],
    ) -> Result<Vec<ExclusiveCore>, Refusal> {
        // Our own threads stay within the cores of this process; all other threads have the whole machine but these.
        let mut own_others = cores::usable(tree);
        let all = list(&own_others);
        let refusal = |why: String, remedy: &str| refused(keeping(exclusive), why, remedy);
        if exclusive.iter().any(|core| !own_others.contains(core)) {
            return Err(refusal(
                format!("this process may use cores {all}"),
                "choose among these",
            ));
        }
        own_others.retain(|other| !exclusive.contains(other));
        if own_others.is_empty() {
            return Err(match exclusive {
                [_] => refusal(
                    "it is the only one: everything else would have nowhere to run".into(),
                    "run on a machine with two cores or more, let this process use them (taskset, cpuset), or make the task's class \"real-time\"",
                ),
                _ => refusal(
                    "there are no others: everything else would have nowhere to run".into(),
                    "leave at least one core to others",
                ),
            });
        }
        let mut others = machine.to_vec();
        others.retain(|other| !exclusive.contains(other));
        let spared = Spared::new(tree, spare);
        let mut better = Vec::new();
        let (fence, threads) = Fence::best(tree, journal, exclusive, &others, &spared, &mut better)?;
        let limits = RealTimeLimits::read(tree);
        let kept = exclusive.iter().map(|core| Obtained {
            core: *core,
            mechanism: fence.mechanism(),
            threads,
            interrupts: kernel_work::move_interrupts(tree, journal, *core),
            unbound_work: kernel_work::move_unbound_work(tree, journal, *core),
            limits,
            refused: better.clone(),
        });
        let kept: Vec<Obtained> = kept.collect();
        let fence = Arc::new(fence);
        let sweeper = Sweeper::start(&fence, &own_others).map(Arc::new);
        let cores = kept.into_iter().map(|obtained| ExclusiveCore {
            obtained: Arc::new(obtained),
            fence: Arc::clone(&fence),
            _sweeper: sweeper.clone(),
        });
        Ok(cores.collect())
    }

    /// What protection was really obtained.
    pub fn obtained(&self) -> &Obtained {
        &self.obtained
    }

    /// Lets `thread`, of this process, onto the core; it still has to be pinned there. Others of this process stay off
    /// it by being pinned elsewhere.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel does not let it in.
    pub fn enter(&self, thread: Tid) -> Result<(), Refusal> {
        let entered = self.fence.enter(self.obtained.core, thread);
        entered.map_err(|why| self.refuse("entering", thread, why))
    }

    /// Puts `thread`, of this process, among those that have the core only while it is lent.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel does not move it.
    pub fn confine(&self, thread: Tid) -> Result<(), Refusal> {
        let confined = self.fence.confine(thread);
        confined.map_err(|why| self.refuse("leaving", thread, why))
    }

    /// Lends the core to all other threads. Lending twice is harmless.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel does not take it.
    pub fn lend(&self) -> Result<(), Refusal> {
        self.set_lent(true)
    }

    /// Takes the core back; when this returns, all threads that were moved away have left it.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel does not give it.
    pub fn take_back(&self) -> Result<(), Refusal> {
        self.set_lent(false)
    }

    fn set_lent(&self, lent: bool) -> Result<(), Refusal> {
        let what = if lent { "lending" } else { "taking back" };
        let done = self.fence.set_lent(self.obtained.core, lent);
        done.map_err(|why| {
            refused(
                format!("{what} core {}", self.obtained.core),
                why,
                "this is a defect worth reporting, with the kernel's version",
            )
        })
    }

    fn refuse(&self, what: &str, thread: Tid, why: std::io::Error) -> Refusal {
        refused(
            format!("thread {thread} {what} core {}", self.obtained.core),
            why,
            "name a thread of this process that is alive, and run as root",
        )
    }
}

fn keeping(exclusive: &[CoreId]) -> String {
    let s = if exclusive.len() == 1 { "" } else { "s" };
    format!("keeping core{s} {} for real-time work", list(exclusive))
}

/// What the group of a core is called: a process keeps each core once.
fn group_name(core: CoreId) -> String {
    format!("punctual-{}-core-{core}", std::process::id())
}

/// `cores` as the kernel takes them, e.g. "0-2,5".
pub(super) fn list(cores: &[CoreId]) -> String {
    let mut sorted: Vec<u32> = cores.iter().map(|core| core.0).collect();
    sorted.sort_unstable();
    let runs = sorted.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
