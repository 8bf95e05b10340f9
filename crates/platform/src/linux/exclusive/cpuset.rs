//! The exclusive core by cgroup version 1: moves all other threads to cpusets without it.
//!
//! The kernel lets a thread run on the cores of its group only (Documentation/admin-guide/cgroup-v1/cpusets.rst). So,
//! where *our path* is the groups from the topmost one down to that of this process:
//!
//! - *Groups on our path keep the core*, else this process could not be pinned there. In each of them a *pen*
//!   `punctual-pen`, without the core, takes every movable thread, whatever the number of exclusive cores. In most
//!   cases that is one pen, in the topmost group. All processes that keep cores share it: it has none of their cores,
//!   and is removed with the last of them.
//! - *All other groups lose the core* meanwhile, even with spared programs in them; a group without another core keeps
//!   it. The sweep finds groups that are made later.
//! - *Groups that share the cores*, as the user asked, stay unchanged. The groups above them keep the cores, too.
//! - *Another process that keeps cores* places its own threads: they stay in their groups, and only lose our core if
//!   they have it. A process that another one has put into its pen moves its threads out first.
//!
//! The kernel remembers which cores a thread had chosen for itself and gives them back with the former group
//! (`user_cpus_ptr`, since Linux 6.2); for older kernels the choices of narrowed threads are recorded as well.
//!
//! Lending a core changes none of this: only borrowers get it (`lendees.rs`). A borrowing group is off our path; the
//! groups above it keep the core like those on our path, because a group must have the cores of the groups inside it.
//! `sched_load_balance` is off in the pens, so that they do not make the kernel rebuild its scheduling domains; the
//! topmost group's flag stays on, which keeps balancing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_custody::core_mask::{CoreMask, affinity_of, allowed_to};
use punctual_custody::groups::PEN;
use punctual_custody::journal::Journal;
use punctual_custody::tree::{folders_in, read_trimmed, write_existing};
use punctual_units::CoreId;

use super::super::cgroup::{CgroupVersion, of_this_process};
use super::super::thread::Tid;
use super::super::{KernelTree, cores, refused};
use super::fence::{FenceRequest, Sweep};
use super::population::{Identity, Roll, Status, StayRules, own_threads, unmoved};
use super::{CPUS, Census, list};
use crate::{Refusal, Why};

/// Upper bound on groups that are searched for the core: more than a machine full of containers has.
const GROUPS_MAX: usize = 1024;

/// The pens and the shrunk groups of all other threads.
#[derive(Debug)]
pub(super) struct Cpuset {
    tree: KernelTree,
    journal: Journal,
    exclusive: Vec<CoreId>,
    /// Pens from the topmost group down.
    pens: Vec<Pen>,
    /// Groups that lost the core, with their former cores: outer groups come before those inside them.
    shrunk: Mutex<BTreeMap<PathBuf, Vec<CoreId>>>,
    spared: StayRules,
    /// Groups that share the cores all the time.
    shared: Vec<PathBuf>,
    /// Threads that stay, and why: they cannot be moved, or are not to be.
    settled: Mutex<HashMap<Identity, Why>>,
}

/// A group of ours for all movable threads of the group above it.
#[derive(Debug)]
struct Pen {
    above: PathBuf,
    folder: PathBuf,
    /// Cores of the group above.
    cores: Vec<CoreId>,
    roll: Mutex<Roll>,
}

impl Cpuset {
    /// Makes the pens, empty; a topmost group without a list of cores has all of the machine.
    pub(super) fn create(tree: &KernelTree, journal: &Journal, wanted: &FenceRequest) -> Result<Cpuset, Refusal> {
        let FenceRequest { exclusive, others, .. } = *wanted;
        let root = tree
            .hierarchy(Some("cpuset"))
            .ok_or_else(|| refuse("no cpuset hierarchy of cgroup version 1 is mounted"))?;
        let home = of_this_process(tree, "cpuset")
            .filter(|location| location.version == CgroupVersion::V1)
            .map_or_else(|| root.clone(), |location| tree.path(location.folder));
        // Another process may have put this one into its pen: the home group is the one above.
        let home = match home.parent() {
            Some(above) if home.ends_with(PEN) => above.to_owned(),
            _ => home,
        };
        let all: Vec<CoreId> = others.iter().chain(exclusive).copied().collect();
        let named = wanted.lend_to.iter().chain(wanted.share_with);
        let above = named.filter_map(|group| group.parent());
        let way = above.chain([home.as_path()]).flat_map(Path::ancestors);
        let way: BTreeSet<&Path> = way.filter(|group| group.starts_with(&root)).collect();
        let pens = way.into_iter().map(|above| Pen {
            above: above.to_owned(),
            folder: above.join(PEN),
            cores: Some(cores::in_file(&above.join(CPUS)))
                .filter(|cores| !cores.is_empty())
                .unwrap_or_else(|| all.clone()),
            roll: Mutex::default(),
        });
        let cpuset = Cpuset {
            tree: tree.clone(),
            journal: journal.clone(),
            // A group without another core has no core for a pen.
            pens: pens
                .filter(|pen| pen.cores.iter().any(|core| !exclusive.contains(core)))
                .collect(),
            exclusive: exclusive.to_vec(),
            shrunk: Mutex::default(),
            spared: wanted.spared.clone(),
            shared: wanted.share_with.to_vec(),
            settled: Mutex::default(),
        };
        if cpuset.pens.is_empty() {
            return Err(refuse("no group above this process has another core"));
        }
        if tree.is_live() {
            cpuset.pens.iter().for_each(|pen| cpuset.remember_narrowed(pen));
        }
        cpuset.pens.iter().try_for_each(|pen| cpuset.set_up(pen))?;
        cpuset.shrink_others();
        Ok(cpuset)
    }

    fn set_up(&self, pen: &Pen) -> Result<(), Refusal> {
        self.journal.make_dir(&pen.folder)?;
        self.journal
            .move_tasks_back(&pen.folder.join("tasks"), &pen.above.join("tasks"))?;
        let memory = read_trimmed(&pen.above.join("cpuset.mems")).map_err(refuse)?;
        let write = |file: &str, content: &str| write_existing(&pen.folder.join(file), content).map_err(refuse);
        write("cpuset.mems", &memory)?;
        write("cpuset.sched_load_balance", "0")?;
        self.journal.list_unclaimed(&pen.folder.join(CPUS), &list(&pen.cores))?;
        pen.release_own(&self.tree);
        Ok(())
    }

    /// Takes the cores from groups that are no pens and not on our path, unless they have no others.
    fn shrink_others(&self) {
        let mut shrunk = self.shrunk();
        shrunk.retain(|group, _| group.is_dir());
        // A group must have the cores of the groups inside it: the inner ones first.
        for group in self.other_groups().into_iter().rev() {
            if shrunk.contains_key(&group) {
                continue;
            }
            let has = cores::in_file(&group.join(CPUS));
            let loses = has.iter().any(|core| self.exclusive.contains(core));
            let keeps = has.iter().any(|core| !self.exclusive.contains(core));
            let file = group.join(CPUS);
            let lose = |core: &CoreId| self.journal.keep_off_list(&file, *core).is_ok();
            if loses && keeps && self.exclusive.iter().all(lose) {
                shrunk.insert(group, has);
            }
        }
    }

    /// Groups that are no pens, are not on our path and do not share the cores; the outer ones first.
    fn other_groups(&self) -> Vec<PathBuf> {
        let is_pen = |group: &Path| self.pens.iter().any(|pen| pen.folder == group);
        let stays = |group: &PathBuf| is_pen(group) || self.shared.contains(group);
        let mut groups: Vec<PathBuf> = self.pens.iter().take(1).map(|pen| pen.above.clone()).collect();
        let mut next = 0;
        while next < groups.len() && groups.len() < GROUPS_MAX {
            groups.extend(folders_in(&groups[next]).filter(|group| !stays(group)));
            next += 1;
        }
        groups.retain(|group| !self.pens.iter().any(|pen| pen.above == *group));
        groups
    }

    /// Records the affinities of narrowed threads before any thread is moved, so that they are restored after the
    /// threads have moved back.
    fn remember_narrowed(&self, pen: &Pen) {
        for thread in members_of(&pen.above) {
            let narrowed = affinity_of(thread).is_ok_and(|mask| pen.cores.iter().any(|core| !mask.has(*core)));
            if narrowed && self.spared.why(thread).is_none() {
                let _ = self.journal.remember_affinity(thread);
            }
        }
    }

    /// Whether `thread` belongs to a process that keeps cores itself; it then loses our cores, if it has them.
    fn is_placed_by(&self, neighbours: &[(i32, CoreMask)], thread: Tid) -> bool {
        let process = |thread| Status::read(&self.tree, thread).map(|status| status.process);
        if neighbours.is_empty() || !process(thread).is_some_and(|it| neighbours.iter().any(|(pid, _)| *pid == it)) {
            return false;
        }
        let ours: CoreMask = self.exclusive.iter().copied().collect();
        if let Ok(mask) = allowed_to(&self.tree, thread)
            && mask.first_shared(&ours).is_some()
            && !mask.without(&ours).is_empty()
        {
            // Fails for a thread that has ended, and for one that the kernel binds to its core; nothing can be done
            // then.
            let _ = self.journal.confine(thread, &mask, &mask.without(&ours));
        }
        true
    }

    fn shrunk(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Vec<CoreId>>> {
        self.shrunk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sweep for Cpuset {
    /// Moves every movable thread that is in no pen yet, and takes the core from groups that were made meanwhile.
    fn sweep(&self) -> Census {
        self.shrink_others();
        let mut census = Census::default();
        let mut here = HashSet::new();
        let neighbours = self.journal.neighbours();
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        for pen in &self.pens {
            if !neighbours.is_empty() {
                pen.release_own(&self.tree);
            }
            let members = pen.members(&self.tree);
            for thread in &members {
                if settled.contains_key(thread) {
                    continue;
                }
                let mut stays = self.spared.why(thread.tid);
                if stays.is_none() {
                    if self.is_placed_by(&neighbours, thread.tid) {
                        continue; // checked in each sweep again: it may be placed elsewhere meanwhile
                    }
                    match pen.take(thread.tid) {
                        Ok(()) => census.moved += 1,
                        Err(answer) => stays = unmoved(&answer),
                    }
                }
                if let Some(why) = stays {
                    census.count(why);
                    settled.insert(*thread, why);
                }
            }
            here.extend(members);
        }
        settled.retain(|identity, _| here.contains(identity));
        census
    }

    /// Moves `thread`, of another program, out of the pen that it is in, and leaves it alone from now on.
    fn admit(&self, thread: Tid) -> io::Result<()> {
        let Some(identity) = Identity::of(&self.tree, thread) else {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        };
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let its = |pen: &&Pen| members_of(&pen.folder).contains(&thread);
        if let Some(pen) = self.pens.iter().find(its) {
            write_existing(&pen.above.join("tasks"), &thread.0.to_string())?;
        }
        settled.insert(identity, Why::Own);
        Ok(())
    }

    fn dismiss(&self, thread: Tid) {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.retain(|identity, why| identity.tid != thread || *why != Why::Own);
    }

    fn settled(&self) -> HashMap<Tid, Why> {
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.iter().map(|(thread, why)| (thread.tid, *why)).collect()
    }

    fn groups(&self, lend_to: &[PathBuf]) -> Vec<(PathBuf, Vec<CoreId>)> {
        let shrunk = self.shrunk();
        let within = lend_to
            .iter()
            .flat_map(|group| shrunk.iter().filter(move |(folder, _)| folder.starts_with(group)));
        within
            .map(|(folder, cores)| (folder.join(CPUS), cores.clone()))
            .collect()
    }
}

impl Pen {
    /// The threads in the group above that still run.
    fn members(&self, tree: &KernelTree) -> Vec<Identity> {
        let mut roll = self.roll.lock().unwrap_or_else(PoisonError::into_inner);
        roll.call(tree, &members_of(&self.above))
    }

    fn take(&self, thread: Tid) -> io::Result<()> {
        write_existing(&self.folder.join("tasks"), &thread.0.to_string())
    }

    /// Moves the threads of this process out, if another process has put them in.
    fn release_own(&self, tree: &KernelTree) {
        let own: HashSet<Tid> = own_threads(tree).into_iter().collect();
        for thread in members_of(&self.folder)
            .into_iter()
            .filter(|thread| own.contains(thread))
        {
            // Fails only for a thread that has ended.
            let _ = write_existing(&self.above.join("tasks"), &thread.0.to_string());
        }
    }
}

fn members_of(group: &Path) -> Vec<Tid> {
    let tasks = read_trimmed(&group.join("tasks")).unwrap_or_default();
    tasks.lines().filter_map(|line| line.parse().ok().map(Tid)).collect()
}

fn refuse(why: impl std::fmt::Display) -> Refusal {
    let what = "a cpuset without the exclusive core (cgroup version 1)";
    let remedy = "run as root; in a container, share the host's /sys/fs/cgroup/cpuset, writable";
    refused(what, why, remedy)
}

#[cfg(test)]
mod tests;
