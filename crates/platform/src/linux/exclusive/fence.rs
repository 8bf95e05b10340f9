//! Chooses the best method of reserving cores that this machine allows.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use punctual_custody::journal::Journal;
use punctual_units::CoreId;

use super::super::thread::{Tid, is_own};
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
    /// Whether threads of other programs will run there.
    pub(super) guests: bool,
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
    /// Sweeps over all threads; [`Mechanism::Isolated`]: over those that were pinned to cores which the kernel was
    /// booted to keep free.
    Swept(Mechanism, Box<dyn Sweep>),
    /// The kernel was booted to keep the cores free, and this user may move no thread.
    AsBooted,
}

/// A method that moves threads away again and again.
pub(super) trait Sweep: std::fmt::Debug + Send + Sync {
    /// Moves away all threads that were not moved yet.
    fn sweep(&self) -> Census;

    /// The threads that stay, and the reason for each.
    fn settled(&self) -> HashMap<Tid, Why>;

    /// Leaves `thread`, of another program, alone from now on.
    fn admit(&self, thread: Tid) -> io::Result<()>;

    /// Lets the next sweep move `thread` again.
    fn dismiss(&self, thread: Tid);

    /// The files `cpuset.cpus` of groups that borrow the cores, `lend_to` and those inside them, with the cores that
    /// each had; the outer ones first.
    fn groups(&self, lend_to: &[PathBuf]) -> Vec<(PathBuf, Vec<CoreId>)>;
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
            _ if wanted.guests => Err(refused(
                "a cpuset partition of its own (cgroup version 2)",
                "it admits no thread of another program",
                "nothing: threads of other programs are to run there",
            )),
            (true, _) => Err(not_with_others(tree, "lent", "lend = false")),
            (false, [_, ..]) => Err(not_with_others(tree, "shared", "share_with = []")),
            (false, []) => {
                let all = wanted.exclusive.iter().map(partition).collect::<Result<_, _>>();
                all.map(Fence::Partition)
            }
        };
        let by_cpuset = |method| Ok(Fence::Swept(method, Box::new(Cpuset::create(tree, journal, wanted)?)));
        let cpuset = || by_cpuset(Mechanism::Cpuset);
        let by_affinity = |method| Ok(Fence::Swept(method, Box::new(Affinity::new(tree, journal, wanted)?)));
        let (affinity, strangers) = (|| by_affinity(Mechanism::Affinity), || by_affinity(Mechanism::Isolated));
        let methods: &[&dyn Fn() -> Result<Fence, Refusal>] = match wanted.isolated {
            true => &[&strangers, &|| Ok(Fence::AsBooted)],
            false => &[&partitions, &cpuset, &affinity],
        };
        better.extend((wanted.isolated && !wanted.share_with.is_empty()).then(not_isolated));
        let (last, before) = methods.split_last().expect("there is a method");
        for method in before {
            match Fence::attempt(journal, method) {
                Err(refusal) => better.push(refusal),
                made => return made,
            }
        }
        Fence::attempt(journal, last)
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
            Fence::Swept(mechanism, _) => *mechanism,
            Fence::AsBooted => Mechanism::Isolated,
        }
    }

    fn swept(&self) -> Option<&dyn Sweep> {
        match self {
            Fence::Swept(_, by) => Some(by.as_ref()),
            Fence::Partition(_) | Fence::AsBooted => None,
        }
    }

    /// Moves away all threads that were not moved yet.
    pub(super) fn sweep(&self) -> Census {
        self.swept().map_or_else(Census::default, Sweep::sweep)
    }

    /// The threads that the sweeps left where they are, and why; empty for a partition, where the kernel moves threads.
    pub(super) fn settled(&self) -> HashMap<Tid, Why> {
        self.swept().map_or_else(HashMap::new, Sweep::settled)
    }

    /// Admits `thread` to `core`: of this process or, but for a partition, of another program.
    pub(super) fn enter(&self, core: CoreId, thread: Tid) -> io::Result<()> {
        match self {
            Fence::Partition(partitions) => of(partitions, core).try_for_each(|partition| partition.enter(thread)),
            // The sweeps leave threads of this process alone anyway.
            Fence::Swept(_, by) if !is_own(thread) => by.admit(thread),
            Fence::Swept(..) | Fence::AsBooted => Ok(()),
        }
    }

    /// Moves `thread`, which has entered `core`, out again.
    pub(super) fn leave(&self, core: CoreId, thread: Tid) -> io::Result<()> {
        self.swept().into_iter().for_each(|by| by.dismiss(thread));
        match self {
            Fence::Partition(partitions) => of(partitions, core).try_for_each(|partition| partition.leave(thread)),
            Fence::Swept(..) | Fence::AsBooted => Ok(()),
        }
    }

    /// The files `cpuset.cpus` of the groups that borrow the cores, with the cores that each had; the outer ones first.
    pub(super) fn groups_to_lend_to(&self, wanted: &FenceRequest) -> Vec<(PathBuf, Vec<CoreId>)> {
        self.swept().map_or_else(Vec::new, |by| by.groups(wanted.lend_to))
    }
}

fn of(partitions: &[(CoreId, Partition)], core: CoreId) -> impl Iterator<Item = &Partition> {
    let its = partitions.iter().filter(move |(of, _)| *of == core);
    its.map(|(_, partition)| partition)
}

/// The refusal to share a core on which the kernel places no thread by itself.
fn not_isolated() -> Refusal {
    let why = "the kernel was booted to place no thread there (isolcpus)";
    let remedy = "name other cores in exclusive.cores, or pin threads of the group there";
    refused("sharing an isolated core", why, remedy)
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
