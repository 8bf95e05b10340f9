//! A core that belongs to real-time work: everybody else is moved away, and gets it lent while it is not needed.
//!
//! **Problem.** A real-time thread preempts ordinary ones, but not what they have the kernel do on its core, nor their traces in its
//! caches (the second paper, Sect. 2). **Method.** The best of three ways to keep a core for oneself, in this order, each
//! better one's refusal kept and told:
//!
//! 1. a cpuset *partition* (cgroup version 2; `partition.rs`): the kernel keeps everybody out,
//! 2. a *cpuset* without the core for everybody else (version 1; `cpuset.rs`),
//! 3. the *affinity* of every thread, one by one (`affinity.rs`).
//!
//! In the last two, threads that start later are found by a sweep every [`SWEEP_PERIOD`]. Interrupts and work that is bound to no
//! core move too (`kernel_work.rs`). What stays: this process's own threads, which it places itself, threads that the kernel
//! binds to the core, and those of `population.rs`.
//!
//! All of it is in the journal: on exit, panic and Ctrl-C this process puts it back, after a kill the guardian. Drop every
//! [`ExclusiveCore`] first: the sweep would move away again whom the journal brings back.

mod affinity;
mod cpuset;
mod kernel_work;
mod likely;
mod obtained;
mod partition;
mod population;
mod sweeper;

use std::sync::Arc;

use punctual_units::{CoreId, Nanos};

use self::affinity::Affinity;
use self::cpuset::Cpuset;
use self::partition::Partition;
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

/// The environment variable that names programs, as `ps -o comm` shows them and with commas between, that are left where they are.
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

/// The way in use.
#[derive(Debug)]
enum Fence {
    Partition(Partition),
    Cpuset(Cpuset),
    Affinity(Affinity),
}

impl ExclusiveCore {
    /// Takes `core` for this process; the programs named in `spare` (as `ps -o comm` shows them) are left where they are.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such core, no other one, or no way to keep it; nothing has changed then.
    pub fn take(
        tree: &KernelTree,
        journal: &Journal,
        core: CoreId,
        spare: &[String],
    ) -> Result<ExclusiveCore, Refusal> {
        // Our own threads stay within the cores of this process; everybody else has the whole machine but the core.
        let mut own_others = cores::usable(tree);
        let all = list(&own_others);
        let refusal =
            |why: String, remedy: &str| refused(format!("keeping core {core} for real-time work"), why, remedy);
        if !own_others.contains(&core) {
            return Err(refusal(
                format!("this process may use cores {all}"),
                "choose one of these",
            ));
        }
        own_others.retain(|other| *other != core);
        if own_others.is_empty() {
            return Err(refusal(
                "it is the only one: everything else would have nowhere to run".into(),
                "let this process run on two cores or more (taskset, cpuset), or make the task's class \"real-time\"",
            ));
        }
        let mut others = cores::online(tree);
        others.retain(|other| *other != core);
        let spared = Spared::new(tree, spare);
        let mut better = Vec::new();
        let (fence, threads) = Fence::best(tree, journal, core, &others, &spared, &mut better)?;
        let interrupts = kernel_work::move_interrupts(tree, journal, core, &others);
        let obtained = Obtained {
            core,
            mechanism: fence.mechanism(),
            threads,
            interrupts,
            unbound_work: kernel_work::move_unbound_work(tree, journal, core),
            limits: RealTimeLimits::read(tree),
            refused: better,
        };
        let fence = Arc::new(fence);
        Ok(ExclusiveCore {
            obtained: Arc::new(obtained),
            _sweeper: Sweeper::start(&fence, &own_others).map(Arc::new),
            fence,
        })
    }

    /// What protection was really obtained.
    pub fn obtained(&self) -> &Obtained {
        &self.obtained
    }

    /// Lets `thread`, of this process, onto the core; it still has to be pinned there. Others of this process stay off it by being
    /// pinned elsewhere.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel does not let it in.
    pub fn enter(&self, thread: Tid) -> Result<(), Refusal> {
        match &*self.fence {
            Fence::Partition(partition) => partition
                .enter(thread)
                .map_err(|why| self.refuse("entering", thread, why)),
            Fence::Cpuset(_) | Fence::Affinity(_) => Ok(()),
        }
    }

    /// Puts `thread`, of this process, among those who get the core only while it is lent.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel does not move it.
    pub fn confine(&self, thread: Tid) -> Result<(), Refusal> {
        match &*self.fence {
            Fence::Partition(_) => Ok(()), // everybody outside of it is
            Fence::Cpuset(cpuset) => cpuset
                .confine(thread)
                .map_err(|why| self.refuse("leaving", thread, why)),
            Fence::Affinity(affinity) => affinity.confine(thread),
        }
    }

    /// Lends the core to everybody else. Lending twice is harmless.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel does not take it.
    pub fn lend(&self) -> Result<(), Refusal> {
        self.set_lent(true)
    }

    /// Takes the core back; when this returns, everybody who was moved away has left it.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel does not give it.
    pub fn take_back(&self) -> Result<(), Refusal> {
        self.set_lent(false)
    }

    fn set_lent(&self, lent: bool) -> Result<(), Refusal> {
        let what = if lent { "lending" } else { "taking back" };
        let done = match &*self.fence {
            Fence::Partition(partition) => partition.set_lent(lent),
            Fence::Cpuset(cpuset) => cpuset.set_lent(self.obtained.core, lent),
            Fence::Affinity(affinity) => {
                affinity.set_lent(self.obtained.core, lent);
                Ok(())
            }
        };
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

impl Fence {
    /// The best way to be had, and whom it moved; why better ones were not goes to `better`.
    fn best(
        tree: &KernelTree,
        journal: &Journal,
        core: CoreId,
        others: &[CoreId],
        spared: &Spared,
        better: &mut Vec<Refusal>,
    ) -> Result<(Fence, Census), Refusal> {
        let partition = || Partition::create(tree, journal, core).map(Fence::Partition);
        let cpuset = || Cpuset::create(tree, journal, &[core], others, spared.clone()).map(Fence::Cpuset);
        let affinity = || Affinity::new(tree, journal, &[core], others, spared.clone()).map(Fence::Affinity);
        Fence::attempt(journal, partition)
            .or_else(|refusal| {
                better.push(refusal);
                Fence::attempt(journal, cpuset)
            })
            .or_else(|refusal| {
                better.push(refusal);
                Fence::attempt(journal, affinity)
            })
    }

    /// One way: made, and everybody moved. Where that fails, all that it changed is put back.
    fn attempt(journal: &Journal, make: impl FnOnce() -> Result<Fence, Refusal>) -> Result<(Fence, Census), Refusal> {
        let mark = journal.mark();
        let made = make().and_then(|fence| {
            // Threads that are started while others are moved: the sweeper finds them.
            let census = fence.sweep();
            judge(fence.mechanism(), census).map(|()| (fence, census))
        });
        made.inspect_err(|_| drop(journal.restore_since(mark)))
    }

    fn mechanism(&self) -> Mechanism {
        match self {
            Fence::Partition(partition) if partition.kind() == "isolated" => Mechanism::IsolatedPartition,
            Fence::Partition(_) => Mechanism::Partition,
            Fence::Cpuset(_) => Mechanism::Cpuset,
            Fence::Affinity(_) => Mechanism::Affinity,
        }
    }

    fn sweep(&self) -> Census {
        match self {
            Fence::Partition(_) => Census::default(),
            Fence::Cpuset(cpuset) => cpuset.sweep(),
            Fence::Affinity(affinity) => affinity.sweep(),
        }
    }
}

/// A way by which nobody may be moved keeps nothing.
fn judge(mechanism: Mechanism, census: Census) -> Result<(), Refusal> {
    if census.moved > 0 || census.not_ours == 0 {
        return Ok(());
    }
    Err(refused(
        format!("keeping the core by {mechanism}"),
        format!("none of {} threads is this user's to move", census.not_ours),
        "run as root",
    ))
}

/// What the group of a core is called: a process keeps each core once.
fn group_name(core: CoreId) -> String {
    format!("punctual-{}-core-{core}", std::process::id())
}

/// `cores` as the kernel takes them, e.g. "0-2,5".
fn list(cores: &[CoreId]) -> String {
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
