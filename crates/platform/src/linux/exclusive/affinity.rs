//! The exclusive core without cgroups: narrows the affinity of every movable thread, one by one.
//!
//! Each thread's mask is recorded, then written without the core (sched_setaffinity(2)), once: lending changes the
//! affinity of borrowers only (`lendees.rs`).
//!
//! **Heirs.** A thread that a confined program starts inherits its narrow mask. So a thread counts as confined, too, if
//! it was started since the core was taken and has exactly the mask that we gave its own process, its parent or, where
//! the parent has ended, any thread. Its former mask is that of the thread that it inherits from. Heirs of the last
//! [`SWEEP_PERIOD`](super::SWEEP_PERIOD) are found when the core is released (`heirs.rs`). Threads of processes in the
//! ledger are no heirs: such a process places its own threads.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_custody::core_mask::{CoreMask, affinity_of, allowed_to};
use punctual_custody::journal::Journal;
use punctual_custody::tree::{folders_in, read_trimmed};
use punctual_units::CoreId;

use super::super::thread::{self, Tid};
use super::super::{KernelTree, cores, refused};
use super::fence::{FenceRequest, Sweep};
use super::population::{Identity, Roll, Status, StayRules, threads, unmoved};
use super::{CPUS, Census, list};
use crate::{Refusal, Why};

/// Upper bound on the different former masks that are kept of threads that have ended: a machine has few.
const FORMER_MAX: usize = 64;

/// The method by affinity masks: narrows that of every other thread.
#[derive(Debug)]
pub(super) struct Affinity {
    tree: KernelTree,
    journal: Journal,
    exclusive: Vec<CoreId>,
    others: CoreMask,
    spared: StayRules,
    /// Groups that borrow the cores, with the cores that they had: the group's list takes the core from their members.
    groups: Vec<(PathBuf, Vec<CoreId>)>,
    /// Groups that share the cores all the time.
    shared: Vec<PathBuf>,
    /// Start time of the youngest thread before any was confined, in ticks since boot: an older thread has inherited
    /// nothing.
    since: u64,
    roll: Mutex<Roll>,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    confined: HashMap<Identity, ConfinedThread>,
    /// Threads that stay, and why: they cannot be moved, or are not to be.
    settled: HashMap<Identity, Why>,
    /// Different masks of all threads that were ever confined, before that.
    former: Vec<CoreMask>,
}

#[derive(Clone, Copy, Debug)]
struct ConfinedThread {
    /// The thread's mask before it was confined.
    found: CoreMask,
    process: i32,
}

impl Affinity {
    /// Prepares the method, and shrinks the groups to lend to; confines no thread yet.
    pub(super) fn new(tree: &KernelTree, journal: &Journal, wanted: &FenceRequest) -> Result<Affinity, Refusal> {
        let refusal =
            |why: &str, remedy: &str| Err(refused("moving threads off the exclusive core (affinity)", why, remedy));
        if !tree.is_live() {
            return refusal("this tree is a record", "run on the machine itself");
        }
        // Refused as a whole if some threads could not be moved: a core that only some leave is not exclusive.
        if !thread::may_move_others() {
            return refusal(
                "this user may not move the threads of others",
                "run as root, or grant CAP_SYS_NICE (setcap cap_sys_nice+ep on the program)",
            );
        }
        Ok(Affinity {
            tree: tree.clone(),
            journal: journal.clone(),
            exclusive: wanted.exclusive.to_vec(),
            others: wanted.others.iter().copied().collect(),
            spared: wanted.spared.clone(),
            groups: shrink_groups(journal, wanted)?,
            shared: wanted.share_with.to_vec(),
            since: youngest(tree),
            roll: Mutex::default(),
            threads: Mutex::default(),
        })
    }

    /// Confines `thread`; `former` is its former mask if it has inherited its present one.
    pub(super) fn confine(&self, thread: Identity, former: Option<CoreMask>) -> io::Result<()> {
        let found = former.map_or_else(|| allowed_to(&self.tree, thread.tid), Ok)?;
        let process = Status::read(&self.tree, thread.tid).map_or(thread.tid.0, |status| status.process);
        let mut threads = self.threads();
        if threads.confined.contains_key(&thread) {
            return Ok(());
        }
        self.journal.confine(thread.tid, &found, &self.kept_off(&found))?;
        threads.confined.insert(thread, ConfinedThread { found, process });
        if threads.former.len() < FORMER_MAX && !threads.former.contains(&found) {
            threads.former.push(found);
        }
        Ok(())
    }

    /// The former mask of the confined thread from which `thread` inherited its mask; `None` if `thread` inherited none
    /// of ours, or belongs to one of the `placed` processes.
    fn inherited(&self, thread: Identity, placed: &[i32]) -> Option<CoreMask> {
        if thread.started < self.since {
            return None;
        }
        let mask = allowed_to(&self.tree, thread.tid).ok()?;
        let status = Status::read(&self.tree, thread.tid).filter(|status| !placed.contains(&status.process))?;
        let gives_it = |found: &CoreMask| *found != mask && self.kept_off(found) == mask;
        self.threads().ancestor(&status, gives_it)
    }

    /// All threads of the machine, except those in groups that borrow or share the cores.
    fn here(&self) -> HashSet<Identity> {
        let mut roll = self.roll.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = threads(&self.tree);
        let named = self.groups.iter().map(|(group, _)| group).chain(&self.shared);
        let theirs: HashSet<Tid> = named.flat_map(|group| members_within(group)).collect();
        all.retain(|thread| !theirs.contains(thread));
        roll.call(&self.tree, &all).into_iter().collect()
    }

    fn has_exclusive(&self, mask: &CoreMask) -> bool {
        self.exclusive.iter().any(|core| mask.has(*core))
    }

    /// `found` without the exclusive cores; all other cores for a thread that had only exclusive ones.
    fn kept_off(&self, found: &CoreMask) -> CoreMask {
        let mut mask = *found;
        self.exclusive.iter().for_each(|core| mask.set(*core, false));
        if mask.is_empty() { self.others } else { mask }
    }

    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sweep for Affinity {
    /// Confines every movable thread that may run on an exclusive core, heirs included. Holds the lock for one thread
    /// at a time, because the thread that takes the core back waits for it.
    fn sweep(&self) -> Census {
        let mut census = Census::default();
        let (here, placed) = (self.here(), self.journal.processes());
        self.threads().forget_all_but(&here);
        for thread in here {
            if self.threads().knows(&thread) {
                continue;
            }
            let former = self.inherited(thread, &placed);
            if former.is_none() && !affinity_of(thread.tid).is_ok_and(|mask| self.has_exclusive(&mask)) {
                continue;
            }
            let mut stays = self.spared.why(thread.tid);
            if stays.is_none() {
                match self.confine(thread, former) {
                    Ok(()) => census.moved += 1,
                    Err(answer) => stays = unmoved(&answer),
                }
            }
            if let Some(why) = stays {
                census.count(why);
                self.threads().settled.insert(thread, why);
            }
        }
        census
    }

    fn admit(&self, thread: Tid) -> io::Result<()> {
        if let Some(identity) = Identity::of(&self.tree, thread) {
            self.threads().settled.insert(identity, Why::Own);
        }
        Ok(())
    }

    fn dismiss(&self, thread: Tid) {
        let mut threads = self.threads();
        threads
            .settled
            .retain(|identity, why| identity.tid != thread || *why != Why::Own);
        // The thread may have been confined before it came, and gets its whole mask back.
        threads.confined.retain(|identity, _| identity.tid != thread);
    }

    fn settled(&self) -> HashMap<Tid, Why> {
        let threads = self.threads();
        threads.settled.iter().map(|(thread, why)| (thread.tid, *why)).collect()
    }

    fn groups(&self, _: &[PathBuf]) -> Vec<(PathBuf, Vec<CoreId>)> {
        self.groups
            .iter()
            .map(|(group, cores)| (group.join(CPUS), cores.clone()))
            .collect()
    }
}

impl Threads {
    fn knows(&self, thread: &Identity) -> bool {
        self.confined.contains_key(thread) || self.settled.contains_key(thread)
    }

    fn forget_all_but(&mut self, here: &HashSet<Identity>) {
        self.confined.retain(|thread, _| here.contains(thread));
        self.settled.retain(|thread, _| here.contains(thread));
    }

    /// The former mask, satisfying `gives_it`, of a confined thread: of the process of `status`, else of its parent,
    /// else of any thread; of several the widest, which most threads had.
    fn ancestor(&self, status: &Status, gives_it: impl Fn(&CoreMask) -> bool) -> Option<CoreMask> {
        let of = |process: i32| {
            let its = self.confined.values().filter(|it| it.process == process);
            its.map(|it| it.found).find(&gives_it)
        };
        let any = || self.former.iter().copied().filter(&gives_it).max_by_key(CoreMask::len);
        of(status.process).or_else(|| of(status.parent)).or_else(any)
    }
}

/// Removes the exclusive cores from the groups to lend to (cgroup version 2), and returns the cores that each had.
/// Groups inside them have no more cores than they have.
fn shrink_groups(journal: &Journal, wanted: &FenceRequest) -> Result<Vec<(PathBuf, Vec<CoreId>)>, Refusal> {
    let shrink = |group: &PathBuf| {
        let cores = cores::in_file(&group.join("cpuset.cpus.effective"));
        let left = cores.iter().filter(|core| !wanted.exclusive.contains(core));
        let left: Vec<CoreId> = left.copied().collect();
        if left.is_empty() {
            let what = format!("lending to the control group {}", group.display());
            let remedy = "name a group that has other cores, too";
            return Err(refused(what, "it has no other core", remedy));
        }
        let file = group.join(CPUS);
        journal.write(&file, &list(&left))?;
        Ok((group.clone(), cores))
    };
    wanted.lend_to.iter().map(shrink).collect()
}

/// The threads of `group` and of all groups inside it.
pub(super) fn members_within(group: &Path) -> Vec<Tid> {
    let mut groups = vec![group.to_owned()];
    let mut members = Vec::new();
    while let Some(group) = groups.pop() {
        // Version 2 has the former file, version 1 the latter.
        let threads = read_trimmed(&group.join("cgroup.threads")).or_else(|_| read_trimmed(&group.join("tasks")));
        let threads = threads.unwrap_or_default();
        members.extend(threads.lines().filter_map(|line| line.parse().ok().map(Tid)));
        groups.extend(folders_in(&group));
    }
    members
}

/// Start time of the youngest thread, in ticks since boot: no later thread is older.
fn youngest(tree: &KernelTree) -> u64 {
    let threads = threads(tree).into_iter();
    let started = threads.filter_map(|tid| Identity::of(tree, tid)).map(|it| it.started);
    started.max().unwrap_or(0)
}
