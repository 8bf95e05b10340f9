//! The exclusive core by cgroup version 2: a cpuset partition of its own.
//!
//! A group below the one that this process is in becomes a *partition* with the core as its only one
//! (Documentation/admin-guide/cgroup-v2.rst, "cpuset.cpus.partition"): the kernel takes the core from every other group
//! and moves their threads away by itself. Below a group that is no partition (the usual case) the core must be
//! exclusive in every group from the topmost one down, a *remote* partition. The kernel answers an invalid partition
//! with `KIND invalid (reason)` in the same file. The group is threaded, so that single threads of this process enter
//! it.
//!
//! **Kind.** A partition of one core has nothing to balance, whether it is a `root` or an `isolated` one; the latter is
//! spared a little more of the kernel's own work. But a partition that changes which cores are isolated can stop every
//! fork of the machine (seen on Linux 6.12, decision 50): since 6.8 the kernel starts workers for unbound work
//! meanwhile, under the lock of cpusets. So the chosen kind leaves the set of isolated cores unchanged ([`kind_of`]).

use std::path::{Path, PathBuf};

use punctual_custody::core_mask::affinity_of;
use punctual_custody::journal::Journal;
use punctual_custody::tree::{read_trimmed, write_existing};
use punctual_units::CoreId;

use super::super::cgroup::{CgroupVersion, enable_below, of_this_process};
use super::super::thread::Tid;
use super::super::{KernelTree, cores, refused};
use super::population::threads;
use crate::Refusal;

const ROOT: &str = "root";
pub(super) const ISOLATED: &str = "isolated";
const PARTITION: &str = "cpuset.cpus.partition";
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
/// The first kernel with partitions below groups that are none.
pub(super) const REMOTE: (u32, u32) = (6, 7);
/// The first kernel in which threads keep their own choice of cores when their group's cores change (`user_cpus_ptr`).
const KEEPS_CHOICES: (u32, u32) = (6, 2);

/// The group of an exclusive core, and its kind of partition.
#[derive(Debug)]
pub(super) struct Partition {
    folder: PathBuf,
    kind: &'static str,
}

impl Partition {
    /// Makes the partition, without threads. After a refusal, groups above it may have been changed: the caller must
    /// undo the journal's changes since.
    pub(super) fn create(tree: &KernelTree, journal: &Journal, core: CoreId) -> Result<Partition, Refusal> {
        let (top, home) = groups(tree)?;
        let above = read_trimmed(&home.join(PARTITION)).unwrap_or_default();
        let kind = kind_of(&above, cores::isolated(tree).contains(&core));
        let folder = home.join(super::group_name(core));
        remember_choices(tree, journal);
        Partition { folder, kind }.set_up(&top, &home, journal, core)
    }

    fn set_up(self, top: &Path, home: &Path, journal: &Journal, core: CoreId) -> Result<Partition, Refusal> {
        let Partition { folder, kind } = &self;
        let core = core.0.to_string();
        let mut way: Vec<&Path> = home.ancestors().take_while(|group| group.starts_with(top)).collect();
        way.reverse();
        for group in way {
            enable_below(group, "cpuset", journal)?;
            let exclusive = group.join(EXCLUSIVE);
            // The root cgroup has no such file; kernels before 6.7 have no remote partitions.
            if exclusive.exists() {
                journal.add_to_list(&exclusive)?;
            }
        }
        journal.make_dir(folder)?;
        journal.move_tasks_back(&folder.join("cgroup.threads"), &home.join("cgroup.threads"))?;
        let write = |file: &str, content: &str| write_existing(&folder.join(file), content).map_err(refuse);
        write("cgroup.type", "threaded")?;
        write("cpuset.cpus", &core)?;
        if folder.join(EXCLUSIVE).exists() {
            write(EXCLUSIVE, &core)?;
        }
        ask(journal, &folder.join(PARTITION), kind).map_err(refuse)?;
        granted(folder, kind).map_err(refuse)?;
        Ok(self)
    }

    /// The kind as written to the kernel: `isolated` or `root`.
    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    /// Moves `thread` out of the partition, into this process's group.
    pub(super) fn leave(&self, thread: Tid) -> std::io::Result<()> {
        let home = self.folder.parent().unwrap_or(&self.folder);
        write_existing(&home.join("cgroup.threads"), &thread.0.to_string())
    }

    /// Moves `thread`, of this process, into the partition.
    pub(super) fn enter(&self, thread: Tid) -> std::io::Result<()> {
        write_existing(&self.folder.join("cgroup.threads"), &thread.0.to_string())
    }
}

/// The topmost group, and the group of this process.
pub(super) fn groups(tree: &KernelTree) -> Result<(PathBuf, PathBuf), Refusal> {
    let top = tree.hierarchy(None);
    let top = top.ok_or_else(|| refuse("cgroup version 2 is not mounted"))?;
    let home = of_this_process(tree, "cpuset")
        .filter(|location| location.version == CgroupVersion::V2)
        .ok_or_else(|| refuse("the cpuset controller belongs to cgroup version 1"))?;
    Ok((top, tree.path(home.folder)))
}

/// Records the affinity of threads that do not run everywhere, before the partition and so undone after it: up to Linux
/// 6.1 the kernel gives every thread all cores of its group when a partition is made or dissolved. Since 6.2 it keeps
/// each thread's own choice. If the partition is refused, the affinities are restored last.
fn remember_choices(tree: &KernelTree, journal: &Journal) {
    if !tree.is_live() || tree.release() >= Some(KEEPS_CHOICES) {
        return;
    }
    let all = cores::usable(tree);
    for thread in threads(tree) {
        let narrowed = affinity_of(thread).is_ok_and(|mask| all.iter().any(|core| !mask.has(*core)));
        if narrowed {
            // Fails if the journal is full or the thread has ended; its choice is then lost, as by any other partition.
            let _ = journal.remember_affinity(thread);
        }
    }
}

/// The kind of partition that leaves the set of isolated cores unchanged: the kind of `above`, from which the core is
/// taken, and `isolated` for cores that were isolated at boot, of which the kernel makes no other kind.
fn kind_of(above: &str, isolated_at_boot: bool) -> &'static str {
    match above == ISOLATED || isolated_at_boot {
        true => ISOLATED,
        false => ROOT,
    }
}

/// Asks for a partition of `kind`, and records that it must be dissolved before its group is removed: removal alone
/// dissolves it only some time later.
fn ask(journal: &Journal, file: &Path, kind: &str) -> Result<(), String> {
    let asked = journal.switch(file, kind, "member");
    asked.map_err(|refusal| format!("{kind}: {}", refusal.why))
}

/// Whether the kernel says that the group is a partition of `kind`.
fn granted(folder: &Path, kind: &str) -> Result<(), String> {
    let answer = read_trimmed(&folder.join(PARTITION)).map_err(|why| format!("{kind}: {why}"))?;
    judge(kind, &answer)
}

/// Whether `answer`, read from `cpuset.cpus.partition` after `kind` was written, names such a partition; the kernel's
/// reason if not. The kernel answers "KIND invalid (reason)" if it refuses the partition, or has dissolved it.
fn judge(kind: &str, answer: &str) -> Result<(), String> {
    match answer.strip_prefix(kind).map(str::trim) {
        Some("") => Ok(()),
        Some(invalid) if invalid.starts_with("invalid") => Err(format!("{kind}: {invalid}")),
        _ => Err(format!("{kind}: the kernel made it '{answer}'")),
    }
}

fn refuse(why: impl std::fmt::Display) -> Refusal {
    refused(
        "a cpuset partition of its own (cgroup version 2)",
        why,
        "boot with the unified hierarchy and Linux 6.7 or later, and run as root with the cpuset controller enabled in every group above",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    /// A unified hierarchy as systemd lays it out, in which partitions come about by being written.
    fn hierarchy() -> (tempfile::TempDir, KernelTree) {
        let group = format!("/cg/user.slice/{}", super::super::group_name(CoreId(1)));
        let files = [
            (
                "/proc/self/mountinfo".to_owned(),
                "29 23 0:26 / /cg rw - cgroup2 cgroup2 rw",
            ),
            ("/proc/self/cgroup".into(), "0::/user.slice"),
            ("/cg/cgroup.controllers".into(), "cpuset cpu"),
            ("/cg/cgroup.subtree_control".into(), "cpu"),
            ("/cg/user.slice/cgroup.controllers".into(), "cpuset cpu"),
            ("/cg/user.slice/cgroup.subtree_control".into(), ""),
            ("/cg/user.slice/cpuset.cpus.exclusive".into(), ""),
            ("/cg/user.slice/cgroup.threads".into(), ""),
            (format!("{group}/cgroup.type"), "domain"),
            (format!("{group}/cgroup.threads"), ""),
            (format!("{group}/cpuset.cpus"), ""),
            (format!("{group}/cpuset.cpus.exclusive"), ""),
            (format!("{group}/cpuset.cpus.partition"), "member"),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        testing::tree(&files)
    }

    #[test]
    fn a_partition_is_exclusive_all_the_way_down_and_given_back() {
        let (_folder, tree) = hierarchy();
        let journal = testing::journal_claiming(&[1], 2);
        let partition = Partition::create(&tree, &journal, CoreId(1)).unwrap();
        let content = |file: &str| tree.read(format!("/cg/{file}")).unwrap();
        assert_eq!(partition.kind(), ROOT);
        assert_eq!(content("cgroup.subtree_control"), "+cpuset");
        assert_eq!(content("user.slice/cgroup.subtree_control"), "+cpuset");
        assert_eq!(content("user.slice/cpuset.cpus.exclusive"), "1");
        let ours = |file: &str| read_trimmed(&partition.folder.join(file)).unwrap();
        assert_eq!(
            (ours("cgroup.type"), ours("cpuset.cpus")),
            ("threaded".into(), "1".into())
        );
        partition.enter(Tid(42)).unwrap();
        assert_eq!(ours("cgroup.threads"), "42");
        assert_eq!(ours(PARTITION), ROOT);
        std::fs::remove_dir_all(&partition.folder).unwrap();
        assert_eq!(journal.restore(), []);
        assert_eq!(content("user.slice/cpuset.cpus.exclusive"), "");
        assert_eq!(content("cgroup.subtree_control"), "-cpuset");
    }

    #[test]
    fn no_kind_changes_which_cores_are_isolated() {
        for (above, at_boot, kind) in [
            ("member", false, ROOT),
            ("", false, ROOT), // the topmost group has no such file
            ("root", false, ROOT),
            ("root invalid (Parent is not a partition root)", false, ROOT),
            ("isolated", false, ISOLATED),
            ("member", true, ISOLATED),
        ] {
            assert_eq!(
                kind_of(above, at_boot),
                kind,
                "below '{above}', isolated at boot: {at_boot}"
            );
        }
    }

    #[test]
    fn without_the_controller_it_is_refused_and_nothing_stays_changed() {
        let (_folder, tree) = hierarchy();
        std::fs::write(tree.path("/cg/cgroup.controllers"), "cpu memory\n").unwrap();
        let journal = testing::journal_claiming(&[1], 2);
        let refusal = Partition::create(&tree, &journal, CoreId(1)).unwrap_err();
        assert!(refusal.why.contains("no cpuset controller"), "{refusal}");
        assert_eq!(tree.read("/cg/cgroup.subtree_control").unwrap(), "cpu");
    }

    #[test]
    fn a_partition_that_is_refused_late_leaves_no_group_above_changed() {
        let (_folder, tree) = hierarchy();
        // All is there but the last file, in which a kernel without partitions has nothing either.
        let group = tree.path("/cg/user.slice").join(super::super::group_name(CoreId(1)));
        std::fs::remove_file(group.join(PARTITION)).unwrap();
        let journal = testing::journal_claiming(&[1], 2);
        let mark = journal.mark();
        let refusal = Partition::create(&tree, &journal, CoreId(1)).unwrap_err();
        assert!(refusal.why.contains("root: "), "{refusal}");
        let content = |file: &str| tree.read(format!("/cg/{file}")).unwrap();
        assert_eq!(content("user.slice/cpuset.cpus.exclusive"), "1", "changed on the way");
        std::fs::remove_dir_all(&group).unwrap();
        assert_eq!(journal.restore_since(mark), []);
        assert_eq!(content("user.slice/cpuset.cpus.exclusive"), "");
        assert_eq!(content("user.slice/cgroup.subtree_control"), "-cpuset");
        assert_eq!(content("cgroup.subtree_control"), "-cpuset");
    }

    #[test]
    fn what_the_kernel_answers_is_judged() {
        for (kind, another) in [(ROOT, ISOLATED), (ISOLATED, ROOT)] {
            assert_eq!(judge(kind, kind), Ok(()));
            for other in [another, "member", "", "iso"] {
                assert!(judge(kind, other).is_err(), "{kind} answered by {other}");
            }
        }
        let told = judge("isolated", "isolated invalid (Cpu list in cpuset.cpus not exclusive)").unwrap_err();
        assert!(told.starts_with("isolated: invalid (Cpu list"), "{told}");
        assert!(
            judge("root", "root invalid").is_err(),
            "kernels before 5.19 give no reason"
        );
        assert!(judge("root", "rooted").is_err());
    }

    #[test]
    fn a_kernel_that_will_not_have_the_partition_is_quoted() {
        let folder = testing::folder();
        let why = granted(folder.path(), "isolated").unwrap_err();
        assert!(why.contains("No such file"), "{why}");
    }
}
