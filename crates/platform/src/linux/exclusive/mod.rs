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
//! Several cores are kept in the same way, by one group or sweep for all; each is lent by itself.
//!
//! All of it is in the journal: on exit, panic and Ctrl-C this process puts it back, after a kill the guardian. Drop every
//! [`ExclusiveCore`] first: the sweep would move away again whom the journal brings back.

mod affinity;
mod cpuset;
mod kernel_work;
mod partition;
mod population;
mod sweeper;

use std::fmt;
use std::sync::Arc;

use punctual_units::{CoreId, Nanos};
use serde::{Deserialize, Serialize};

use self::affinity::Affinity;
use self::cpuset::Cpuset;
use self::partition::Partition;
use self::population::Spared;
use self::sweeper::Sweeper;
use super::cgroup::mount_point;
use super::journal::Journal;
use super::real_time::RealTimeLimits;
use super::thread::{self, Tid};
use super::{KernelTree, cores, refused};
use crate::Refusal;

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

/// How a core is kept, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// A cpuset partition without load balancing (cgroup version 2).
    IsolatedPartition,
    /// A cpuset partition (cgroup version 2).
    Partition,
    /// Everybody else in a cpuset without the core (cgroup version 1).
    Cpuset,
    /// The affinity of every thread.
    Affinity,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mechanism::IsolatedPartition => "isolated cpuset partition (cgroup v2)",
            Mechanism::Partition => "cpuset partition (cgroup v2)",
            Mechanism::Cpuset => "cpuset (cgroup v1)",
            Mechanism::Affinity => "affinity of every thread",
        })
    }
}

/// How many threads a sweep met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// Moved away.
    pub moved: usize,
    /// Bound to the core by the kernel, or not ours to move.
    pub kept: usize,
    /// Left alone on purpose.
    pub spared: usize,
}

/// What protection the core really has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obtained {
    /// Which core.
    pub core: CoreId,
    /// How it is kept.
    pub mechanism: Mechanism,
    /// The threads met when it was taken; all zero for a partition, where the kernel moves them itself.
    pub threads: Census,
    /// Interrupts that left it, and interrupts that would not.
    pub interrupts: (usize, usize),
    /// Whether kernel work that is bound to no core stays off it.
    pub unbound_work: bool,
    /// What bounds real-time threads on it.
    pub limits: RealTimeLimits,
    /// Better mechanisms, and why they were not to be had.
    pub refused: Vec<Refusal>,
}

impl fmt::Display for Obtained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "core {} kept by {}", self.core, self.mechanism)?;
        if self.threads != Census::default() {
            let Census { moved, kept, spared } = self.threads;
            write!(
                f,
                "; {moved} threads moved away, {kept} bound to their cores, {spared} left alone"
            )?;
        }
        let (moved, kept) = self.interrupts;
        write!(f, "; {moved} interrupts moved, {kept} not; ")?;
        f.write_str(match self.unbound_work {
            true => "unbound kernel work elsewhere; ",
            false => "unbound kernel work anywhere; ",
        })?;
        write!(f, "{}", self.limits)
    }
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
    /// One for each core.
    Partition(Vec<(CoreId, Partition)>),
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
        let refusal = |why: &str| refused(keeping(&[core]), why, "this is a defect worth reporting");
        let taken = ExclusiveCore::take_all(tree, journal, &[core], spare)?;
        taken.into_iter().next().ok_or_else(|| refusal("none was obtained"))
    }

    /// Takes all of `exclusive`, in one way; answers them in this order. A process takes cores once.
    ///
    /// # Errors
    /// [`Refusal`] where one of them is not there, none is left to others, or there is no way to keep them; nothing has changed then.
    pub fn take_all(
        tree: &KernelTree,
        journal: &Journal,
        exclusive: &[CoreId],
        spare: &[String],
    ) -> Result<Vec<ExclusiveCore>, Refusal> {
        let mut others = cores::usable(tree);
        let all = list(&others);
        let refusal = |why: String, remedy: &str| refused(keeping(exclusive), why, remedy);
        if exclusive.iter().any(|core| !others.contains(core)) {
            return Err(refusal(
                format!("this process may use cores {all}"),
                "choose among these",
            ));
        }
        others.retain(|other| !exclusive.contains(other));
        if others.is_empty() {
            return Err(match exclusive {
                [_] => refusal(
                    "it is the only one: everything else would have nowhere to run".into(),
                    "run on a machine with two cores or more, or make the task's class \"real-time\"",
                ),
                _ => refusal(
                    "there are no others: everything else would have nowhere to run".into(),
                    "leave at least one core to others",
                ),
            });
        }
        let spared = Spared::new(tree, spare);
        let mut better = Vec::new();
        let fence = Fence::best(tree, journal, exclusive, &others, &spared, &mut better)?;
        // Threads that are started while others are moved: the sweeper finds them.
        let threads = fence.sweep();
        let limits = RealTimeLimits::read(tree);
        let kept = exclusive.iter().map(|core| Obtained {
            core: *core,
            mechanism: fence.mechanism(),
            threads,
            interrupts: kernel_work::move_interrupts(tree, journal, *core, &others),
            unbound_work: kernel_work::move_unbound_work(tree, journal, *core),
            limits,
            refused: better.clone(),
        });
        let kept: Vec<Obtained> = kept.collect();
        let fence = Arc::new(fence);
        let sweeper = Sweeper::start(&fence, &others).map(Arc::new);
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

    /// Lets `thread`, of this process, onto the core; it still has to be pinned there. Others of this process stay off it by being
    /// pinned elsewhere.
    ///
    /// # Errors
    /// [`Refusal`] where the kernel does not let it in.
    pub fn enter(&self, thread: Tid) -> Result<(), Refusal> {
        match &*self.fence {
            Fence::Partition(partitions) => partitions
                .iter()
                .filter(|(core, _)| *core == self.obtained.core)
                .try_for_each(|(_, partition)| partition.enter(thread))
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
        let this = self.obtained.core;
        let done = match &*self.fence {
            Fence::Partition(partitions) => partitions
                .iter()
                .filter(|(core, _)| *core == this)
                .try_for_each(|(_, partition)| partition.set_lent(lent)),
            Fence::Cpuset(cpuset) => cpuset.set_lent(this, lent),
            Fence::Affinity(affinity) => {
                affinity.set_lent(this, lent);
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
    /// The best way to be had for all of `exclusive`; why better ones were not goes to `better`.
    fn best(
        tree: &KernelTree,
        journal: &Journal,
        exclusive: &[CoreId],
        others: &[CoreId],
        spared: &Spared,
        better: &mut Vec<Refusal>,
    ) -> Result<Fence, Refusal> {
        match partitions(tree, journal, exclusive) {
            Ok(partitions) => return Ok(Fence::Partition(partitions)),
            Err(refusal) => better.push(refusal),
        }
        match Cpuset::create(tree, journal, exclusive, others, spared.clone()) {
            Ok(cpuset) => return Ok(Fence::Cpuset(cpuset)),
            Err(refusal) => better.push(refusal),
        }
        Affinity::new(tree, journal, exclusive, others, spared.clone()).map(Fence::Affinity)
    }

    fn mechanism(&self) -> Mechanism {
        match self {
            Fence::Partition(partitions) if partitions.iter().all(|(_, it)| it.kind() == "isolated") => {
                Mechanism::IsolatedPartition
            }
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

/// A partition for each core, or none at all.
fn partitions(tree: &KernelTree, journal: &Journal, exclusive: &[CoreId]) -> Result<Vec<(CoreId, Partition)>, Refusal> {
    let mut made: Vec<(CoreId, Partition)> = Vec::new();
    for core in exclusive {
        match Partition::create(tree, journal, *core) {
            Ok(partition) => made.push((*core, partition)),
            Err(refusal) => {
                let undone = made.iter().rev().map(|(_, partition)| partition.folder());
                undone.for_each(|folder| drop(journal.restore_below(folder)));
                return Err(refusal);
            }
        }
    }
    Ok(made)
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

/// The best way to keep a core that this machine seems to offer, found out without keeping one.
///
/// # Errors
/// [`Refusal`] where this user may not move the threads of others.
pub fn likely(tree: &KernelTree) -> Result<Mechanism, Refusal> {
    let mountinfo = tree.read("/proc/self/mountinfo").unwrap_or_default();
    if partition::likely(tree) {
        return Ok(Mechanism::Partition);
    }
    if mount_point(Some("cpuset"), &mountinfo).is_some_and(|top| tree.path(top).join("tasks").exists()) {
        return Ok(Mechanism::Cpuset);
    }
    if thread::may_move_others() {
        return Ok(Mechanism::Affinity);
    }
    Err(refused(
        "keeping a core for real-time work",
        "no cpuset is mounted, and this user may not move the threads of others",
        "run as root, or grant CAP_SYS_NICE",
    ))
}

#[cfg(test)]
mod tests;
