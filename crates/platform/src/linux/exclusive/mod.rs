//! A core for real-time work alone: all other threads are moved away. While idle it is lent to the borrowers
//! (`Lendee`): the threads and groups named for that (`lendees.rs`), and no others.
//!
//! **Problem.** A real-time thread preempts ordinary ones, but not the kernel's work for them on its core, and it
//! suffers from their data in its caches (the second paper, Sect. 2). **Method.** The best available of three methods
//! to reserve a core, in this order; the refusal of each better one is reported:
//!
//! 1. a cpuset *partition* (cgroup version 2; `partition.rs`): the kernel keeps other threads out,
//! 2. a *cpuset* without the core for all other threads (version 1; `cpuset.rs`),
//! 3. the *affinity* of every thread, one by one (`affinity.rs`).
//!
//! A core that the kernel was booted to keep free (`isolcpus`) needs none of these: there the affinity of threads that
//! were pinned to it is narrowed, and no other thread is placed on it.
//!
//! A partition cannot be lent, so it is tried only if lending is not wanted. In the last two methods, a sweep every
//! [`SWEEP_PERIOD`] finds threads that start later. Interrupts and work that is bound to no core move too
//! (`kernel_work.rs`). Some threads stay: this process's own, which it places itself, those that the kernel binds to
//! the core, and those of `population.rs`; `stays.rs` names them.
//!
//! Several cores are reserved by the same method, with one group or sweep for all; each is lent separately.
//!
//! All changes are in the journal: on exit, panic and Ctrl-C this process restores them, after a kill the guardian.
//! Drop every [`ExclusiveCore`] first: otherwise the sweep would move threads that the journal has just restored.

mod affinity;
mod choice;
mod cpuset;
mod fence;
mod hints;
mod idle;
mod kernel_work;
mod lendees;
mod likely;
mod obtained;
mod partition;
pub(super) mod population;
mod stays;
mod sweeper;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_custody::core_mask::CoreMask;
use punctual_custody::groups::group_name;
use punctual_custody::journal::Journal;
use punctual_custody::tree::read_trimmed;
use punctual_units::{CoreId, Nanos};

use self::fence::{Fence, FenceRequest};
use self::idle::IdleBound;
use self::lendees::Lendees;
use self::population::StayRules;
use self::stays::{Present, programs_on};
use self::sweeper::Sweeper;
use super::cgroup::of_this_process;
use super::real_time::RealTimeLimits;
use super::thread::Tid;
use super::{KernelTree, cores, refused};
use crate::{Neighbours, Refusal, Why};

pub use choice::candidates;
pub use hints::quieter;
pub use lendees::Lendee;
pub use likely::likely;
pub use obtained::{Census, CoreProtection, Mechanism, STAYS_MAX};
pub use stays::{staying, told as stays_told};

/// Longest time until a newly started thread is moved away.
pub const SWEEP_PERIOD: Nanos = Nanos::from_millis(100);

/// The file with a group's list of cores.
const CPUS: &str = "cpuset.cpus";

/// The environment variable that names programs to be left where they are, as in `ps -o comm`, separated by commas.
pub const SPARE: &str = "PUNCTUAL_SPARE";

/// The names of programs in [`SPARE`].
pub fn spared() -> Vec<String> {
    let names = std::env::var(SPARE).unwrap_or_default();
    names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(Into::into)
        .collect()
}

/// A core of this process. Clones refer to the same core. After all are dropped, [`Journal::restore`] releases it.
#[derive(Clone, Debug)]
pub struct ExclusiveCore {
    obtained: Arc<CoreProtection>,
    fence: Arc<Fence>,
    lendees: Arc<Lendees>,
    _sweeper: Option<Arc<Sweeper>>,
    _idle: Arc<Vec<IdleBound>>,
}

impl ExclusiveCore {
    /// Reserves `core` for this process.
    ///
    /// # Errors
    /// [`Refusal`] if there is no such core, no other core, or no method to reserve it; nothing has changed then.
    pub fn take(
        tree: &KernelTree,
        journal: &Journal,
        core: CoreId,
        neighbours: &Neighbours,
    ) -> Result<ExclusiveCore, Refusal> {
        let refusal = |why: &str| refused(keeping(&[core]), why, "this is a defect worth reporting");
        let taken = ExclusiveCore::take_all(tree, journal, &[core], neighbours)?;
        taken.into_iter().next().ok_or_else(|| refusal("none was obtained"))
    }

    /// Reserves all of `exclusive` by the same method; returns them in this order. A process may do this once.
    ///
    /// # Errors
    /// [`Refusal`] if a core does not exist, none is left to others, there is no method to reserve them, or a group to
    /// lend to does not exist or cannot borrow; nothing has changed then.
    pub fn take_all(
        tree: &KernelTree,
        journal: &Journal,
        exclusive: &[CoreId],
        neighbours: &Neighbours,
    ) -> Result<Vec<ExclusiveCore>, Refusal> {
        let machine = cores::online(tree);
        let there = exclusive.iter().all(|core| machine.contains(core));
        if there && machine.iter().any(|core| !exclusive.contains(core)) {
            // Claims first: another process, even a dead one, may have this process within its fence.
            journal.claim(exclusive, &machine)?;
        }
        let taken = ExclusiveCore::take_claimed(tree, journal, exclusive, &machine, neighbours);
        taken.inspect_err(|_| journal.release(exclusive))
    }

    fn take_claimed(
        tree: &KernelTree,
        journal: &Journal,
        exclusive: &[CoreId],
        machine: &[CoreId],
        neighbours: &Neighbours,
    ) -> Result<Vec<ExclusiveCore>, Refusal> {
        let others = OtherCores::beside(tree, journal, exclusive, machine)?;
        let spared = StayRules::new(tree, neighbours);
        let steered = kernel_work::named(tree, &neighbours.interrupts)?;
        let isolated = cores::isolated(tree);
        let mut better = Vec::new();
        let wanted = FenceRequest {
            exclusive,
            others: &others.machine,
            spared: &spared,
            isolated: exclusive.iter().all(|core| isolated.contains(core)),
            lend: neighbours.lend,
            guests: neighbours.guests,
            lend_to: &groups(tree, &neighbours.lend_to, GroupUse::Lent)?,
            share_with: &groups(tree, &neighbours.share_with, GroupUse::Shared)?,
        };
        let mark = journal.mark();
        let (fence, threads) = Fence::best(tree, journal, &wanted, &mut better)?;
        let borrowers = fence.groups_to_lend_to(&wanted);
        borrowers.iter().for_each(|(cpus, _)| journal.writes_itself(cpus));
        let lendees = Lendees::new(exclusive, &others.usable, borrowers).map_err(|why| {
            drop(journal.restore_since(mark));
            let why = format!("a group to lend to: {why}");
            refused(keeping(exclusive), why, "run as root, or name groups of this user's")
        })?;
        let limits = RealTimeLimits::read(tree);
        let idle: Vec<_> = exclusive.iter().map(|core| idle::bound(tree, journal, *core)).collect();
        let (own, settled) = (std::process::id() as i32, fence.settled());
        let ours: CoreMask = exclusive.iter().copied().collect();
        let sharing: HashSet<Tid> = { wanted.share_with.iter() }
            .flat_map(|group| affinity::members_within(group))
            .collect();
        let why = |present: &Present| match present.status {
            status if status.process == own => None,
            _ if present.of_kernel || present.mask.without(&ours).is_empty() => Some(Why::Bound),
            _ if sharing.contains(&present.thread) => Some(Why::Shares),
            _ if matches!(fence, Fence::AsBooted) => Some(Why::NotPermitted),
            _ => settled.get(&present.thread).copied(),
        };
        let mut steering = kernel_work::steer(tree, journal, exclusive.first(), &steered);
        let kept = exclusive.iter().zip(&idle).map(|(core, idle)| CoreProtection {
            core: *core,
            mechanism: fence.mechanism(),
            threads,
            stays: programs_on(tree, *core, why),
            interrupts: kernel_work::move_interrupts(tree, journal, *core, &steered),
            // Only the first core has steered interrupts.
            steered: std::mem::take(&mut steering.0),
            unbound_work: kernel_work::move_unbound_work(tree, journal, *core),
            idle_exit_max_us: idle.is_ok().then_some(idle::IDLE_EXIT_MAX_US),
            limits,
            refused: better
                .iter()
                .chain(idle.as_ref().err())
                .cloned()
                .chain(std::mem::take(&mut steering.1))
                .collect(),
        });
        let kept: Vec<CoreProtection> = kept.collect();
        lendees.leave(others.claimed.into_iter().collect());
        let (fence, lendees) = (Arc::new(fence), Arc::new(lendees));
        let idle = Arc::new(idle.into_iter().flatten().collect());
        let sweeper = Sweeper::start(&fence, &lendees, journal, &others.own).map(Arc::new);
        let cores = kept.into_iter().map(|obtained| ExclusiveCore {
            obtained: Arc::new(obtained),
            fence: Arc::clone(&fence),
            lendees: Arc::clone(&lendees),
            _sweeper: sweeper.clone(),
            _idle: Arc::clone(&idle),
        });
        Ok(cores.collect())
    }

    /// The protection that the core obtained.
    pub fn obtained(&self) -> &CoreProtection {
        &self.obtained
    }

    /// Admits `thread` to the core: of this process or, if [`Neighbours::guests`] says so, of another program. It still
    /// has to be pinned there. Other threads of this process must be pinned elsewhere.
    ///
    /// # Errors
    /// [`Refusal`] if the kernel does not admit the thread.
    pub fn enter(&self, thread: Tid) -> Result<(), Refusal> {
        let entered = self.fence.enter(self.obtained.core, thread);
        entered.map_err(|why| self.refuse("entering", thread, why))
    }

    /// Moves `thread`, which has entered, out again; the caller decides where it runs then.
    ///
    /// # Errors
    /// [`Refusal`] if the kernel does not move the thread.
    pub fn leave(&self, thread: Tid) -> Result<(), Refusal> {
        let left = self.fence.leave(self.obtained.core, thread);
        left.map_err(|why| self.refuse("leaving", thread, why))
    }

    /// Takes `thread`, of this process, off the core, and makes it a borrower until the result is dropped. If a
    /// partition keeps the core, the thread never gets it.
    ///
    /// # Errors
    /// [`Refusal`] if the kernel does not move the thread.
    pub fn lend_to(&self, thread: Tid) -> Result<Lendee, Refusal> {
        let added = self.lendees.add(thread);
        added.map_err(|why| self.refuse("leaving", thread, why))
    }

    /// Whether the core can be lent now: there is a borrower, and no partition keeps the core.
    pub fn lendable(&self) -> bool {
        !matches!(*self.fence, Fence::Partition(_)) && self.lendees.any()
    }

    /// Lends the core to its borrowers. Lending twice is harmless.
    ///
    /// # Errors
    /// [`Refusal`] if the kernel refuses a borrower the core.
    pub fn lend(&self) -> Result<(), Refusal> {
        self.set_lent(true)
    }

    /// Takes the core back; when this returns, all borrowers have left it.
    ///
    /// # Errors
    /// [`Refusal`] if the kernel leaves the core to a borrower.
    pub fn take_back(&self) -> Result<(), Refusal> {
        self.set_lent(false)
    }

    fn set_lent(&self, lent: bool) -> Result<(), Refusal> {
        let what = if lent { "lending" } else { "taking back" };
        let set = || self.lendees.set_lent(self.obtained.core, lent);
        // A group made meanwhile inside a borrowing group prevents taking it back: the sweep shrinks that group.
        let done = set().or_else(|why| {
            if lent {
                Err(why)
            } else {
                self.fence.sweep();
                set()
            }
        });
        done.map_err(|why| {
            let remedy = "this is a defect worth reporting, with the kernel's version";
            refused(format!("{what} core {}", self.obtained.core), why, remedy)
        })
    }

    fn refuse(&self, what: &str, thread: Tid, why: std::io::Error) -> Refusal {
        let what = format!("thread {thread} {what} core {}", self.obtained.core);
        let remedy = "name a thread of this process that is alive, and run as root";
        refused(what, why, remedy)
    }
}

/// The cores that remain beside the exclusive ones: our own threads stay within the cores of this process, all other
/// threads get the whole machine without the exclusive cores of any process.
struct OtherCores {
    /// Cores of this process, those included that other processes have claimed.
    usable: Vec<CoreId>,
    /// Of `usable`, those that no other process has claimed; not empty.
    own: Vec<CoreId>,
    /// Cores of the machine that no process has claimed.
    machine: Vec<CoreId>,
    /// Cores that other processes have claimed.
    claimed: Vec<CoreId>,
}

impl OtherCores {
    /// # Errors
    /// [`Refusal`] if this process may not use one of `exclusive`, or has no other core.
    fn beside(
        tree: &KernelTree,
        journal: &Journal,
        exclusive: &[CoreId],
        machine: &[CoreId],
    ) -> Result<OtherCores, Refusal> {
        let mut usable = cores::usable(tree);
        let refusal = |why: String, remedy: &str| refused(keeping(exclusive), why, remedy);
        if exclusive.iter().any(|core| !usable.contains(core)) {
            return Err(refusal(
                format!("this process may use cores {}", list(&usable)),
                "choose among these",
            ));
        }
        let claimed: Vec<CoreId> = journal.claims_of_others().into_iter().map(|(core, _)| core).collect();
        usable.retain(|other| !exclusive.contains(other));
        let unclaimed = |core: &CoreId| !claimed.contains(core);
        let own: Vec<CoreId> = usable.iter().copied().filter(unclaimed).collect();
        if own.is_empty() {
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
        let others = machine.iter().copied().filter(|core| !exclusive.contains(core));
        Ok(OtherCores {
            machine: others.filter(unclaimed).collect(),
            usable,
            own,
            claimed,
        })
    }
}

/// Checks that the interrupts to steer onto a core exist.
///
/// # Errors
/// [`Refusal`] if one does not exist, with a list of those that do.
pub fn check_interrupts(tree: &KernelTree, neighbours: &Neighbours) -> Result<(), Refusal> {
    kernel_work::named(tree, &neighbours.interrupts).map(drop)
}

/// How a control group may use the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupUse {
    /// The group borrows the cores while they are idle.
    Lent,
    /// The group shares the cores all the time.
    Shared,
}

/// Checks that the groups that borrow or share the cores exist.
///
/// # Errors
/// [`Refusal`] if one does not exist, or cannot borrow.
pub fn check_groups(tree: &KernelTree, named: &[PathBuf], how: GroupUse) -> Result<(), Refusal> {
    groups(tree, named, how).map(drop)
}

/// The folders of such groups.
fn groups(tree: &KernelTree, named: &[PathBuf], how: GroupUse) -> Result<Vec<PathBuf>, Refusal> {
    let (doing, key) = match how {
        GroupUse::Lent => ("lending to", "exclusive.lend_to"),
        GroupUse::Shared => ("sharing with", "exclusive.share_with"),
    };
    let root = tree.hierarchy(Some("cpuset")).or_else(|| tree.hierarchy(None));
    let home = of_this_process(tree, "cpuset").map(|home| tree.path(home.folder));
    let folder = |group: &PathBuf| {
        let refusal = |why: String, remedy: &str| {
            let what = format!("{doing} the control group {}", group.display());
            Err(refused(what, why, remedy))
        };
        let Some(root) = &root else {
            return refusal("no control groups are mounted".into(), &format!("leave {key} out"));
        };
        let below = group.strip_prefix("/").unwrap_or(group);
        let folder = root.join(below);
        let within = |home: &PathBuf| home.starts_with(&folder);
        if below.as_os_str().is_empty() || home.as_ref().is_some_and(within) {
            return refusal("this program is in it".into(), "name a group of other programs");
        }
        let list = folder.join(CPUS);
        let cores = match read_trimmed(&list) {
            Ok(cores) => cores,
            Err(why) => {
                return refusal(
                    format!("{}: {why}", list.display()),
                    "name a group as /proc/PID/cgroup shows it, with the cpuset controller enabled in the group above",
                );
            }
        };
        // In version 2 a group may have no list of its own. Once it has one, it cannot drop it again while a process is
        // in it: the kernel answers ENOSPC (validate_change() in kernel/cgroup/cpuset.c).
        if cores.is_empty() && how == GroupUse::Lent {
            let all = read_trimmed(&folder.join("cpuset.cpus.effective")).unwrap_or_default();
            return refusal(
                "it has no list of cores of its own, and could not be left without one again".into(),
                &format!(
                    "give it one: echo {all} > {}, or for a systemd unit: systemctl set-property UNIT AllowedCPUs={all}",
                    list.display()
                ),
            );
        }
        Ok(folder)
    };
    named.iter().map(folder).collect()
}

fn keeping(exclusive: &[CoreId]) -> String {
    let s = if exclusive.len() == 1 { "" } else { "s" };
    format!("keeping core{s} {} for real-time work", list(exclusive))
}

/// `cores` in the kernel's format, e.g. "0-2,5".
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
