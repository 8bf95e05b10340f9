//! The exclusive core by cgroup version 1: everybody else in a cpuset without it.
//!
//! One group `punctual-<pid>-core-<n>` below the topmost one takes every movable thread of the machine, whatever the number of
//! exclusive cores (Documentation/admin-guide/cgroup-v1/cpusets.rst). Groups that are there already and have such a core lose it for the while. The
//! kernel remembers which cores a thread had chosen for itself and gives them back with the former group (`user_cpus_ptr`, since
//! Linux 6.2); for older kernels the choices of narrowed threads are recorded beside.
//!
//! Lending is one write of a longer list to `cpuset.cpus`; taking back is one of the shorter list, which returns once every
//! member has left the core. `sched_load_balance` is off in the group, so that neither makes the kernel rebuild its
//! scheduling domains; the topmost group's flag, left on, keeps balancing all the same.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use punctual_units::CoreId;

use super::super::cgroup::mount_point;
use super::super::journal::Journal;
use super::super::thread::{Tid, affinity_of};
use super::super::tree::{read_trimmed, write_existing};
use super::super::{KernelTree, cores, refused};
use super::population::Spared;
use super::{Census, list};
use crate::Refusal;

/// Groups that are looked at for the core: more than a machine full of containers has.
const GROUPS_MAX: usize = 1024;

/// Everybody else's group.
#[derive(Debug)]
pub(super) struct Cpuset {
    root: PathBuf,
    folder: PathBuf,
    others: Vec<CoreId>,
    /// The exclusive cores that are lent.
    lent: Mutex<BTreeSet<CoreId>>,
    spared: Spared,
    /// Threads that cannot be moved or are not to be.
    settled: Mutex<HashSet<Tid>>,
}

impl Cpuset {
    /// Makes the group, empty.
    pub(super) fn create(
        tree: &KernelTree,
        journal: &Journal,
        exclusive: &[CoreId],
        others: &[CoreId],
        spared: Spared,
    ) -> Result<Cpuset, Refusal> {
        let mountinfo = tree.read("/proc/self/mountinfo").unwrap_or_default();
        let root = mount_point(Some("cpuset"), &mountinfo)
            .map(|point| tree.path(point))
            .ok_or_else(|| refuse("no cpuset hierarchy of cgroup version 1 is mounted"))?;
        let all: Vec<CoreId> = others.iter().chain(exclusive).copied().collect();
        let group = Cpuset {
            folder: root.join(super::group_name(exclusive.last().copied().unwrap_or_default())),
            root,
            others: others.to_vec(),
            lent: Mutex::default(),
            spared,
            settled: Mutex::default(),
        };
        if tree.is_live() {
            group.remember_narrowed(journal, &all);
        }
        group
            .set_up(journal, exclusive)
            .inspect_err(|_| drop(journal.restore_below(&group.folder)))?;
        Ok(group)
    }

    fn set_up(&self, journal: &Journal, exclusive: &[CoreId]) -> Result<(), Refusal> {
        journal.make_dir(&self.folder)?;
        journal.move_tasks_back(&self.folder.join("tasks"), &self.root.join("tasks"))?;
        let memory = read_trimmed(&self.root.join("cpuset.mems")).map_err(refuse)?;
        let write = |file: &str, content: &str| write_existing(&self.folder.join(file), content).map_err(refuse);
        write("cpuset.mems", &memory)?;
        write("cpuset.sched_load_balance", "0")?;
        write("cpuset.cpus", &list(&self.others))?;
        self.shrink_others(journal, exclusive);
        Ok(())
    }

    /// Takes the cores from groups that are there already; one that has no others keeps them.
    fn shrink_others(&self, journal: &Journal, exclusive: &[CoreId]) {
        let mut groups = vec![self.root.clone()];
        let mut next = 0;
        while next < groups.len() && groups.len() < GROUPS_MAX {
            let below = std::fs::read_dir(&groups[next]).into_iter().flatten().flatten();
            groups.extend(
                below
                    .map(|entry| entry.path())
                    .filter(|path| path.is_dir() && *path != self.folder),
            );
            next += 1;
        }
        // A group must have what the groups in it have: the inner ones first.
        for group in groups.iter().skip(1).rev() {
            let file = group.join("cpuset.cpus");
            let mut has = cores::parse_list(&read_trimmed(&file).unwrap_or_default());
            let had = has.len();
            has.retain(|it| !exclusive.contains(it));
            if !has.is_empty() && has.len() < had {
                let _ = journal.write(&file, &list(&has));
            }
        }
    }

    /// Records the choices of threads that do not run everywhere, before anybody is moved: they are undone after the moves.
    fn remember_narrowed(&self, journal: &Journal, all: &[CoreId]) {
        for thread in self.members_of(&self.root) {
            let narrowed = affinity_of(thread).is_ok_and(|mask| all.iter().any(|core| !mask.has(*core)));
            if narrowed && !self.spared.has(thread) {
                let _ = journal.remember_affinity(thread);
            }
        }
    }

    fn members_of(&self, group: &Path) -> Vec<Tid> {
        let tasks = read_trimmed(&group.join("tasks")).unwrap_or_default();
        tasks.lines().filter_map(|line| line.parse().ok().map(Tid)).collect()
    }

    /// Moves everybody who is not in the group yet and may be moved.
    pub(super) fn sweep(&self) -> Census {
        let mut census = Census::default();
        let mut settled = self.settled.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for thread in self.members_of(&self.root) {
            if settled.contains(&thread) {
                continue;
            }
            if self.spared.has(thread) {
                census.spared += 1;
                settled.insert(thread);
                continue;
            }
            match self.confine(thread) {
                Ok(()) => census.moved += 1,
                Err(why) if why.raw_os_error() == Some(libc::ESRCH) => {}
                Err(_) => {
                    census.kept += 1;
                    settled.insert(thread);
                }
            }
        }
        census
    }

    /// Puts `thread` among those who get the core lent only.
    pub(super) fn confine(&self, thread: Tid) -> std::io::Result<()> {
        write_existing(&self.folder.join("tasks"), &thread.0.to_string())
    }

    /// Lends `core` to the group, or takes it back.
    pub(super) fn set_lent(&self, core: CoreId, lent: bool) -> std::io::Result<()> {
        // Held while writing: of two lists the one that is written last counts.
        let mut now_lent = self.lent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match lent {
            true => now_lent.insert(core),
            false => now_lent.remove(&core),
        };
        let cores: Vec<CoreId> = self.others.iter().chain(now_lent.iter()).copied().collect();
        write_existing(&self.folder.join("cpuset.cpus"), &list(&cores))
    }
}

fn refuse(why: impl std::fmt::Display) -> Refusal {
    refused(
        "a cpuset without the exclusive core (cgroup version 1)",
        why,
        "run as root; in a container, share the host's /sys/fs/cgroup/cpuset, writable",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::linux::testing;

    /// A hierarchy in which a container has both cores, and one holds the exclusive core alone.
    fn hierarchy() -> (tempfile::TempDir, KernelTree) {
        let group = format!("/cpuset/{}", super::super::group_name(CoreId(1)));
        let files = [
            (
                "/proc/self/mountinfo".to_owned(),
                "30 24 0:27 / /cpuset rw - cgroup cgroup rw,cpuset",
            ),
            ("/cpuset/cpuset.mems".into(), "0"),
            ("/cpuset/tasks".into(), "70001\n70002"),
            ("/proc/70001/status".into(), "Name:\tbrowser\nTgid:\t70001\nPPid:\t1"),
            ("/proc/70002/status".into(), "Name:\tchronyd\nTgid:\t70002\nPPid:\t1"),
            ("/cpuset/box/cpuset.cpus".into(), "0-1"),
            ("/cpuset/box/inner/cpuset.cpus".into(), "0,1"),
            ("/cpuset/holder/cpuset.cpus".into(), "1"),
            (format!("{group}/cpuset.mems"), ""),
            (format!("{group}/cpuset.cpus"), ""),
            (format!("{group}/cpuset.sched_load_balance"), "1"),
            (format!("{group}/tasks"), ""),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        testing::tree(&files)
    }

    #[test]
    fn everybody_who_may_be_moved_is_and_other_groups_lose_the_core_for_the_while() {
        let (_folder, tree) = hierarchy();
        let journal = Journal::open(false).unwrap();
        let spared = Spared::new(&tree, &["chronyd".into()]);
        let cpuset = Cpuset::create(&tree, &journal, &[CoreId(1)], &[CoreId(0)], spared).unwrap();
        let content = |file: &str| tree.read(format!("/cpuset/{file}")).unwrap();
        assert_eq!(
            (content("box/cpuset.cpus"), content("box/inner/cpuset.cpus")),
            ("0".into(), "0".into())
        );
        assert_eq!(content("holder/cpuset.cpus"), "1", "it has no other");
        let census = cpuset.sweep();
        assert_eq!((census.moved, census.spared, census.kept), (1, 1, 0));
        let ours = |file: &str| read_trimmed(&cpuset.folder.join(file)).unwrap();
        assert_eq!(
            (ours("tasks"), ours("cpuset.cpus"), ours("cpuset.mems")),
            ("70001".into(), "0".into(), "0".into())
        );
        cpuset.set_lent(CoreId(1), true).unwrap();
        assert_eq!(ours("cpuset.cpus"), "0-1");
        cpuset.set_lent(CoreId(1), false).unwrap();
        assert_eq!(ours("cpuset.cpus"), "0");
        fs::remove_dir_all(&cpuset.folder).unwrap(); // ordinary files do not vanish with a folder as the kernel's do
        assert_eq!(journal.restore(), []);
        assert_eq!(
            (content("box/cpuset.cpus"), content("box/inner/cpuset.cpus")),
            ("0-1".into(), "0,1".into())
        );
    }

    #[test]
    fn several_cores_are_kept_by_one_group_and_lent_one_by_one() {
        let group = format!("/cpuset/{}", super::super::group_name(CoreId(3)));
        let files = [
            (
                "/proc/self/mountinfo".to_owned(),
                "30 24 0:27 / /cpuset rw - cgroup cgroup rw,cpuset",
            ),
            ("/cpuset/cpuset.mems".into(), "0"),
            ("/cpuset/tasks".into(), ""),
            ("/cpuset/box/cpuset.cpus".into(), "1-3"),
            ("/cpuset/holder/cpuset.cpus".into(), "2-3"),
            (format!("{group}/cpuset.mems"), ""),
            (format!("{group}/cpuset.cpus"), ""),
            (format!("{group}/cpuset.sched_load_balance"), "1"),
            (format!("{group}/tasks"), ""),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (_folder, tree) = testing::tree(&files);
        let journal = Journal::open(false).unwrap();
        let [exclusive, others] = [[CoreId(2), CoreId(3)], [CoreId(0), CoreId(1)]];
        let cpuset = Cpuset::create(&tree, &journal, &exclusive, &others, Spared::new(&tree, &[])).unwrap();
        let has = || read_trimmed(&cpuset.folder.join("cpuset.cpus")).unwrap();
        assert_eq!(has(), "0-1");
        assert_eq!(tree.read("/cpuset/box/cpuset.cpus").unwrap(), "1");
        assert_eq!(
            tree.read("/cpuset/holder/cpuset.cpus").unwrap(),
            "2-3",
            "it has no others"
        );
        let lend = |core, lent| {
            cpuset.set_lent(CoreId(core), lent).unwrap();
            has()
        };
        assert_eq!(lend(3, true), "0-1,3");
        assert_eq!(lend(2, true), "0-3");
        assert_eq!(lend(3, false), "0-2");
        assert_eq!(lend(2, false), "0-1");
    }

    #[test]
    fn a_machine_without_the_hierarchy_is_told_so() {
        let (_folder, tree) = testing::tree(&[("/proc/self/mountinfo", "")]);
        let journal = Journal::open(false).unwrap();
        let spared = Spared::new(&tree, &[]);
        let refusal = Cpuset::create(&tree, &journal, &[CoreId(1)], &[CoreId(0)], spared).unwrap_err();
        assert!(refusal.why.contains("no cpuset hierarchy"), "{refusal}");
    }
}
