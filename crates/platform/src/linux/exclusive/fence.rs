//! Chooses the best method of reserving cores that this machine allows.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use punctual_custody::journal::Journal;
use punctual_units::CoreId;

use super::super::thread::Tid;
use super::super::{KernelTree, refused};
use super::affinity::Affinity;
use super::cpuset::Cpuset;
use super::partition::{self, Partition};
use super::population::StayRules;
use super::{Census, Mechanism, likely};
use crate::{Refusal, Why};

/// The cores to reserve, and the threads and groups that stay.
#[derive(Clone, Copy, Debug)]
pub(super) struct FenceRequest<'w> {
    pub(super) exclusive: &'w [CoreId],
    /// All other cores of the machine.
    pub(super) others: &'w [CoreId],
    pub(super) spared: &'w StayRules,
    /// Whether the kernel was booted to keep all of them free.
    pub(super) isolated: bool,
    /// Whether the cores will be lent.
    pub(super) lend: bool,
    /// Groups that borrow the cores while they are lent.
    pub(super) lend_to: &'w [PathBuf],
    /// Groups that share the cores all the time.
    pub(super) share_with: &'w [PathBuf],
}

/// The method in use.
#[derive(Debug)]
pub(super) enum Fence {
    /// A partition for each core.
    Partition(Vec<(CoreId, Partition)>),
    Cpuset(Box<Cpuset>),
    Affinity(Box<Affinity>),
    /// The kernel was booted to keep the cores free; threads pinned there are moved, if this user may.
    Isolated(Option<Box<Affinity>>),
}

impl Fence {
    /// Applies the best method that this machine allows for all of `exclusive`; also returns the counts of threads met.
    /// `better` gets the refusals of better methods.
    pub(super) fn best(
        tree: &KernelTree,
        journal: &Journal,
        wanted: &FenceRequest,
        better: &mut Vec<Refusal>,
    ) -> Result<(Fence, Census), Refusal> {
        let partition = |core: &CoreId| Partition::create(tree, journal, *core).map(|partition| (*core, partition));
        let partitions = || match (wanted.lend, wanted.share_with) {
            (true, _) => Err(not_with_others(tree, "lent", "lend = false")),
            (false, [_, ..]) => Err(not_with_others(tree, "shared", "share_with = []")),
            (false, []) => {
                let all = wanted.exclusive.iter().map(partition).collect::<Result<_, _>>();
                all.map(Fence::Partition)
            }
        };
        let cpuset = || Cpuset::create(tree, journal, wanted).map(|it| Fence::Cpuset(Box::new(it)));
        let affinity = || Affinity::new(tree, journal, wanted).map(|it| Fence::Affinity(Box::new(it)));
        if wanted.isolated {
            better.extend(wanted.share_with.first().map(|_| not_isolated()));
            let strangers = || Affinity::new(tree, journal, wanted).map(|it| Fence::Isolated(Some(Box::new(it))));
            return Fence::attempt(journal, strangers).or_else(|refusal| {
                better.push(refusal);
                Ok((Fence::Isolated(None), Census::default()))
            });
        }
        Fence::attempt(journal, partitions)
            .or_else(|refusal| {
                better.push(refusal);
                Fence::attempt(journal, cpuset)
            })
            .or_else(|refusal| {
                better.push(refusal);
                Fence::attempt(journal, affinity)
            })
    }

    /// Tries one method, and moves all threads. If that fails, undoes all of its changes.
    fn attempt(journal: &Journal, make: impl FnOnce() -> Result<Fence, Refusal>) -> Result<(Fence, Census), Refusal> {
        let mark = journal.mark();
        let made = make().and_then(|fence| {
            // Misses threads that are started meanwhile; the sweeper finds them.
            let census = fence.sweep();
            judge(fence.mechanism(), census).map(|()| (fence, census))
        });
        made.inspect_err(|_| drop(journal.restore_since(mark)))
    }

    pub(super) fn mechanism(&self) -> Mechanism {
        match self {
            Fence::Partition(partitions) if partitions.iter().all(|(_, it)| it.kind() == partition::ISOLATED) => {
                Mechanism::IsolatedPartition
            }
            Fence::Partition(_) => Mechanism::Partition,
            Fence::Cpuset(_) => Mechanism::Cpuset,
            Fence::Affinity(_) => Mechanism::Affinity,
            Fence::Isolated(_) => Mechanism::Isolated,
        }
    }

    /// Moves away all threads that were not moved yet.
    pub(super) fn sweep(&self) -> Census {
        match self {
            Fence::Partition(_) | Fence::Isolated(None) => Census::default(),
            Fence::Cpuset(cpuset) => cpuset.sweep(),
            Fence::Affinity(affinity) | Fence::Isolated(Some(affinity)) => affinity.sweep(),
        }
    }

    /// The threads that the sweeps left where they are, and why; empty for a partition, where the kernel moves threads.
    pub(super) fn settled(&self) -> HashMap<Tid, Why> {
        match self {
            Fence::Partition(_) | Fence::Isolated(None) => HashMap::new(),
            Fence::Cpuset(cpuset) => cpuset.settled(),
            Fence::Affinity(affinity) | Fence::Isolated(Some(affinity)) => affinity.settled(),
        }
    }

    /// Admits `thread`, of this process, to `core`.
    pub(super) fn enter(&self, core: CoreId, thread: Tid) -> io::Result<()> {
        match self {
            Fence::Partition(partitions) => of(partitions, core).try_for_each(|partition| partition.enter(thread)),
            Fence::Cpuset(_) | Fence::Affinity(_) | Fence::Isolated(_) => Ok(()),
        }
    }

    /// Moves `thread`, which has entered `core`, out again.
    pub(super) fn leave(&self, core: CoreId, thread: Tid) -> io::Result<()> {
        match self {
            Fence::Partition(partitions) => of(partitions, core).try_for_each(|partition| partition.leave(thread)),
            Fence::Cpuset(_) | Fence::Affinity(_) | Fence::Isolated(_) => Ok(()),
        }
    }

    /// The files `cpuset.cpus` of the groups that borrow the cores, with the cores that each had; the outer ones first.
    pub(super) fn groups_to_lend_to(&self, wanted: &FenceRequest) -> Vec<(PathBuf, Vec<CoreId>)> {
        match self {
            Fence::Partition(_) | Fence::Isolated(None) => Vec::new(),
            Fence::Cpuset(cpuset) => {
                let within = wanted.lend_to.iter().flat_map(|group| cpuset.shrunk_within(group));
                within.collect()
            }
            Fence::Affinity(affinity) | Fence::Isolated(Some(affinity)) => affinity.groups(),
        }
    }
}

fn of(partitions: &[(CoreId, Partition)], core: CoreId) -> impl Iterator<Item = &Partition> {
    let its = partitions.iter().filter(move |(of, _)| *of == core);
    its.map(|(_, partition)| partition)
}

/// The refusal to share a core on which the kernel places no thread by itself.
fn not_isolated() -> Refusal {
    refused(
        "sharing an isolated core",
        "the kernel was booted to place no thread there (isolcpus)",
        "name other cores in exclusive.cores, or pin threads of the group there",
    )
}

/// The refusal of a partition for a core that is lent or shared; `key` is the setting that would allow one.
fn not_with_others(tree: &KernelTree, what_for: &str, key: &str) -> Refusal {
    let what = "a cpuset partition of its own (cgroup version 2)";
    match likely::partition(tree) {
        Ok(()) => refused(
            what,
            format!("the kernel keeps a partition's core from all other threads, so it cannot be {what_for}"),
            format!("set exclusive.{key} where better protection is worth more than the time that the core is idle"),
        ),
        Err(why) => {
            let remedy = format!("nothing: the core is to be {what_for}, and a partition cannot be");
            refused(what, why, remedy)
        }
    }
}

/// Refuses a method by which no thread may be moved: it reserves nothing.
pub(super) fn judge(mechanism: Mechanism, census: Census) -> Result<(), Refusal> {
    if census.moved > 0 || census.not_ours == 0 || mechanism == Mechanism::Isolated {
        return Ok(());
    }
    Err(refused(
        format!("keeping the core by {mechanism}"),
        format!("none of {} threads is this user's to move", census.not_ours),
        "run as root",
    ))
}
