//! The exclusive core by cgroup version 2: a cpuset partition of its own.
//!
//! A group below the one that this process is in becomes a *partition* with the core as its only one
//! (Documentation/admin-guide/cgroup-v2.rst, "cpuset.cpus.partition"): the kernel takes the core from every other group and moves
//! their threads away by itself. `isolated` also keeps the load balancer off, `root` is tried next. Below a group that is no partition
//! (the usual case) the core must be exclusive in every group from the topmost one down, a *remote* partition. The kernel answers a partition that it will
//! not have with `KIND invalid (reason)` in the same file. The group is threaded, so that single threads of this process enter it.

use std::path::{Path, PathBuf};

use punctual_units::CoreId;

use super::super::cgroup::{SUBTREE_CONTROL, Version, enable_below, locate_controller, mount_point};
use super::super::journal::Journal;
use super::super::thread::{CoreMask, Tid, affinity_of, set_affinity};
use super::super::tree::{read_trimmed, write_existing};
use super::super::{KernelTree, cores, refused};
use super::population::everybody;
use crate::Refusal;

/// Kinds of partition, the better one first.
const KINDS: [&str; 2] = ["isolated", "root"];
const PARTITION: &str = "cpuset.cpus.partition";
const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
/// The first kernel that has partitions below groups that are none.
const REMOTE: (u32, u32) = (6, 7);
/// The first kernel in which threads keep their own choice of cores when their group's change (`user_cpus_ptr`).
const KEEPS_CHOICES: (u32, u32) = (6, 2);

/// The partition.
#[derive(Debug)]
pub(super) struct Partition {
    folder: PathBuf,
    kind: &'static str,
}

impl Partition {
    /// Makes the partition, without threads.
    pub(super) fn create(tree: &KernelTree, journal: &Journal, core: CoreId) -> Result<Partition, Refusal> {
        let (top, home) = groups(tree)?;
        let folder = home.join(super::group_name(core));
        let choices = remember_choices(tree, journal);
        let made = Partition::set_up(&top, &home, &folder, journal, core);
        made.inspect_err(|_| {
            drop(journal.restore_below(&folder));
            choose_again(&choices);
        })
    }

    fn set_up(top: &Path, home: &Path, folder: &Path, journal: &Journal, core: CoreId) -> Result<Partition, Refusal> {
        let core = core.0.to_string();
        let mut way: Vec<&Path> = home.ancestors().take_while(|group| group.starts_with(top)).collect();
        way.reverse();
        for group in way {
            enable_below(group, "cpuset", journal)?;
            let exclusive = group.join(EXCLUSIVE);
            match read_trimmed(&exclusive) {
                // Empty files cannot be put back by writing nothing.
                Ok(found) if found.is_empty() => journal.switch(&exclusive, &core, "\n")?,
                Ok(found) if found != core => journal.write(&exclusive, &format!("{found},{core}"))?,
                _ => {} // the topmost group has none; kernels before 6.7 know no remote partitions
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
        let mut answers = Vec::new();
        for kind in KINDS {
            match ask(journal, &folder.join(PARTITION), kind).and_then(|()| granted(folder, kind)) {
                Ok(()) => {
                    return Ok(Partition {
                        folder: folder.to_owned(),
                        kind,
                    });
                }
                Err(answer) => answers.push(answer),
            }
        }
        Err(refuse(answers.join("; ")))
    }

    /// Its group.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// `isolated` or `root`.
    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    /// Lets `thread`, of this process, into the partition.
    pub(super) fn enter(&self, thread: Tid) -> std::io::Result<()> {
        write_existing(&self.folder.join("cgroup.threads"), &thread.0.to_string())
    }

    /// Dissolves the partition, or makes it again.
    pub(super) fn set_lent(&self, lent: bool) -> std::io::Result<()> {
        if lent {
            return write_existing(&self.folder.join(PARTITION), "member");
        }
        become_partition(&self.folder, self.kind).map_err(std::io::Error::other)
    }
}

/// The topmost group, and the one that this process is in.
fn groups(tree: &KernelTree) -> Result<(PathBuf, PathBuf), Refusal> {
    let text = |file: &str| tree.read(file).unwrap_or_default();
    let mountinfo = text("/proc/self/mountinfo");
    let top = mount_point(None, &mountinfo).ok_or_else(|| refuse("cgroup version 2 is not mounted"))?;
    let home = locate_controller("cpuset", &text("/proc/self/cgroup"), &mountinfo)
        .filter(|location| location.version == Version::V2)
        .ok_or_else(|| refuse("the cpuset controller belongs to cgroup version 1"))?;
    Ok((tree.path(top), tree.path(home.folder)))
}

/// Whether a partition seems to be had, found out without making one.
pub(super) fn likely(tree: &KernelTree) -> bool {
    groups(tree).is_ok_and(|(top, home)| {
        let controllers = read_trimmed(&top.join("cgroup.controllers")).unwrap_or_default();
        let writable = || std::fs::OpenOptions::new().write(true).open(home.join(SUBTREE_CONTROL));
        controllers.split_whitespace().any(|it| it == "cpuset")
            && (home == top || tree.release() >= Some(REMOTE))
            && writable().is_ok()
    })
}

/// Records where threads run that do not run everywhere, before the partition and so undone after it: up to Linux 6.1 the kernel gives
/// every thread all cores of its group once a partition comes or goes. Since 6.2 it remembers each one's own choice.
fn remember_choices(tree: &KernelTree, journal: &Journal) -> Vec<(Tid, CoreMask)> {
    if !tree.is_live() || tree.release() >= Some(KEEPS_CHOICES) {
        return Vec::new();
    }
    let all = cores::usable(tree);
    let choice = |thread| Some((thread, affinity_of(thread).ok()?));
    let narrowed = |(_, mask): &(Tid, CoreMask)| all.iter().any(|core| !mask.has(*core));
    let choices: Vec<_> = everybody(tree)
        .into_iter()
        .filter_map(choice)
        .filter(narrowed)
        .collect();
    for (thread, mask) in &choices {
        // A full journal or a thread that has ended: then that choice is lost, as it would be without us.
        let _ = journal.remember_mask(*thread, mask);
    }
    choices
}

/// Undoes what the attempt made the kernel forget, for the next way to find it. The records stay: at the end it will forget again.
fn choose_again(choices: &[(Tid, CoreMask)]) {
    for (thread, mask) in choices {
        if affinity_of(*thread).is_ok_and(|now| now != *mask) {
            // Who has ended meanwhile needs none.
            let _ = set_affinity(*thread, mask);
        }
    }
}

/// Asks for a partition of `kind` and has it dissolved before its group goes: going alone dissolves it some time later only.
///
/// It is made once more before that. A process that is killed while it lends the core leaves the kernel with a dissolved partition whose
/// core is still kept from unbound work ("Interrupted when creating a worker thread", Linux 6.12); dissolving it again mends that.
fn ask(journal: &Journal, file: &Path, kind: &str) -> Result<(), String> {
    let asked = journal
        .switch(file, kind, "member")
        .and_then(|()| journal.switch(file, kind, kind));
    asked.map_err(|refusal| refusal.why)
}

/// Asks for a partition of `kind`.
fn become_partition(folder: &Path, kind: &str) -> Result<(), String> {
    write_existing(&folder.join(PARTITION), kind).map_err(|why| why.to_string())?;
    granted(folder, kind)
}

/// Whether the group is a partition of `kind`: what the kernel says of it is believed.
fn granted(folder: &Path, kind: &str) -> Result<(), String> {
    match read_trimmed(&folder.join(PARTITION)) {
        Ok(answer) if answer == kind => Ok(()),
        Ok(answer) => Err(answer),
        Err(why) => Err(why.to_string()),
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
        let journal = Journal::open(false).unwrap();
        let partition = Partition::create(&tree, &journal, CoreId(1)).unwrap();
        let content = |file: &str| tree.read(format!("/cg/{file}")).unwrap();
        assert_eq!(partition.kind(), "isolated");
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
        partition.set_lent(true).unwrap();
        assert_eq!(ours(PARTITION), "member");
        partition.set_lent(false).unwrap();
        assert_eq!(ours(PARTITION), "isolated");
        std::fs::remove_dir_all(&partition.folder).unwrap();
        assert_eq!(journal.restore(), []);
        assert_eq!(content("user.slice/cpuset.cpus.exclusive"), "");
        assert_eq!(content("cgroup.subtree_control"), "-cpuset");
    }

    #[test]
    fn without_the_controller_it_is_refused_and_nothing_stays_changed() {
        let (_folder, tree) = hierarchy();
        std::fs::write(tree.path("/cg/cgroup.controllers"), "cpu memory\n").unwrap();
        let journal = Journal::open(false).unwrap();
        let refusal = Partition::create(&tree, &journal, CoreId(1)).unwrap_err();
        assert!(refusal.why.contains("no cpuset controller"), "{refusal}");
        assert_eq!(tree.read("/cg/cgroup.subtree_control").unwrap(), "cpu");
    }

    #[test]
    fn a_kernel_that_will_not_have_the_partition_is_quoted() {
        let folder = testing::folder();
        // A folder in place of the file: neither kind can be written.
        std::fs::create_dir(folder.path().join(PARTITION)).unwrap();
        assert!(become_partition(folder.path(), "isolated").is_err());
    }
}
