//! Predicts the method of reserving a core that this user has here, without reserving one.

use std::path::{Path, PathBuf};

use punctual_custody::tree::{has_word, writable};

use super::super::{KernelTree, cores, refused, thread};
use super::Mechanism;
use super::partition::{REMOTE, groups};
use crate::Refusal;

/// The best method of reserving a core that this machine seems to offer this user. Changes nothing; the kernel may
/// still refuse an attempt.
///
/// # Errors
/// [`Refusal`] if this user may neither make a cpuset nor move the threads of others.
pub fn likely(tree: &KernelTree) -> Result<Mechanism, Refusal> {
    if !cores::isolated(tree).is_empty() {
        return Ok(Mechanism::Isolated);
    }
    let partition = partition(tree);
    if partition.is_ok() {
        return Ok(Mechanism::Partition);
    }
    let cpuset = cpuset(tree);
    if cpuset.is_ok() {
        return Ok(Mechanism::Cpuset);
    }
    if thread::may_move_others() {
        return Ok(Mechanism::Affinity);
    }
    let reasons: Vec<String> = [partition.err(), cpuset.err()].into_iter().flatten().collect();
    let why = format!("{}; this user may not move the threads of others", reasons.join("; "));
    let remedy = "run as root, or grant CAP_SYS_NICE";
    Err(refused("keeping a core for real-time work", why, remedy))
}

/// Checks whether the files of a partition could be written; the error says why not.
pub(super) fn partition(tree: &KernelTree) -> Result<(), String> {
    let (top, home) = groups(tree).map_err(|refusal| refusal.why)?;
    if home != top && tree.release() < Some(REMOTE) {
        return Err("a kernel before 6.7 has partitions in the topmost group only".into());
    }
    let lists_it = |file: PathBuf| has_word(&file, "cpuset");
    for group in home.ancestors().take_while(|group| group.starts_with(&top)) {
        // A group has the controllers that the group above hands down, which it can be made to do.
        if group == top && !lists_it(group.join("cgroup.controllers")) {
            return Err(format!("{} has no cpuset controller", group.display()));
        }
        if !lists_it(group.join("cgroup.subtree_control")) {
            may_write(&group.join("cgroup.subtree_control"))?;
        }
        let exclusive = group.join("cpuset.cpus.exclusive"); // none in the topmost group, nor before 6.7
        if exclusive.exists() {
            may_write(&exclusive)?;
        }
    }
    may_write(&home)
}

/// Checks whether a group could be made and other users' threads moved into it; the error says why not.
fn cpuset(tree: &KernelTree) -> Result<(), String> {
    let root = tree.hierarchy(Some("cpuset"));
    let root = root.ok_or("no cpuset of cgroup version 1 is mounted")?;
    may_write(&root)?;
    may_write(&root.join("tasks"))?;
    if thread::may_move_others() {
        Ok(())
    } else {
        Err("cpusets take the threads of others from root only".into())
    }
}

fn may_write(path: &Path) -> Result<(), String> {
    writable(path).map_err(|why| format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    const V2: &str = "29 23 0:26 / /cg rw - cgroup2 cgroup2 rw";
    const V1: &str = "30 24 0:27 / /cpuset rw - cgroup cgroup rw,cpuset";

    fn unified(controllers: &str) -> (tempfile::TempDir, KernelTree) {
        of_release("6.12.1", controllers)
    }

    fn of_release(release: &str, controllers: &str) -> (tempfile::TempDir, KernelTree) {
        testing::tree(&[
            ("/proc/sys/kernel/osrelease", release),
            ("/proc/self/mountinfo", V2),
            ("/proc/self/cgroup", "0::/user.slice"),
            ("/cg/cgroup.controllers", "cpu cpuset"),
            ("/cg/cgroup.subtree_control", "cpu"),
            ("/cg/user.slice/cgroup.controllers", controllers),
            ("/cg/user.slice/cgroup.subtree_control", ""),
        ])
    }

    /// What `likely` answers to a user without any rights: those of a thread are its own (capabilities(7)).
    fn without_rights(tree: &KernelTree) -> Option<Result<Mechanism, Refusal>> {
        let asked = |tree: KernelTree| testing::as_user_without_rights(move || likely(&tree));
        asked(tree.clone())
    }

    #[test]
    fn what_this_machine_seems_to_offer_is_told() {
        assert_eq!(likely(&unified("cpuset cpu").1), Ok(Mechanism::Partition));
        let (_folder, older) = of_release("6.6.0", "cpuset cpu");
        assert_ne!(likely(&older), Ok(Mechanism::Partition));
        std::fs::write(older.path("/proc/self/cgroup"), "0::/").unwrap();
        assert_eq!(likely(&older), Ok(Mechanism::Partition), "in the topmost group");
        std::fs::write(older.path("/proc/self/cgroup"), "0::/absent").unwrap();
        assert_ne!(likely(&older), Ok(Mechanism::Partition));
        let (_folder, tree) = testing::tree(&[("/proc/self/mountinfo", V1), ("/cpuset/tasks", "")]);
        if thread::may_move_others() {
            assert_eq!(likely(&tree), Ok(Mechanism::Cpuset));
            let (_folder, tree) = unified("cpu");
            assert_eq!(
                likely(&tree),
                Ok(Mechanism::Partition),
                "the group above can hand it down"
            );
            std::fs::write(tree.path("/cg/cgroup.controllers"), "cpu").unwrap();
            assert_eq!(likely(&tree), Ok(Mechanism::Affinity), "no cpuset controller at all");
        }
    }

    #[test]
    fn a_user_without_rights_is_offered_nothing() {
        for (folder, tree) in [
            unified("cpuset cpu"),
            testing::tree(&[("/proc/self/mountinfo", V1), ("/cpuset/tasks", "")]),
        ] {
            let Some(answer) = without_rights(&tree) else {
                return eprintln!("skipped: not root");
            };
            let refusal = answer.unwrap_err();
            assert!(
                refusal.why.contains("denied") && refusal.remedy.contains("CAP_SYS_NICE"),
                "{refusal}"
            );
            drop(folder);
        }
        let refusal = without_rights(&KernelTree::default()).map(Result::unwrap_err);
        eprintln!("this machine to no user: {refusal:?}");
    }
}
