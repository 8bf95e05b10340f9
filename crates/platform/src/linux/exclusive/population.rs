//! The threads of the machine, and those that are left where they are.
//!
//! This process and its children stay, because it places them itself; a child has this program's name until it executes
//! its own. So do programs that the user names; threads that such a program starts as another one are moved at the next
//! sweep. And so does process 1, unless the user has it moved: every service that it starts meanwhile would be confined
//! as well.
//!
//! The programs that started this one (a shell, a terminal) are moved like all others. Programs that they start
//! meanwhile are in the same pen, or inherit the same affinity, and are restored with them (`heirs.rs`).

use std::collections::HashMap;

use punctual_custody::stat;
use punctual_custody::tree::{entries, field};

use super::super::KernelTree;
use super::super::thread::Tid;
use crate::{Neighbours, Why};

/// A thread, distinguished from a later one of the same number by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) tid: Tid,
    /// Start time of the thread, in ticks since boot (proc_pid_stat(5), field 22).
    pub(super) started: u64,
}

impl Identity {
    /// The identity of a living thread; `None` if it has ended.
    pub(super) fn of(tree: &KernelTree, tid: Tid) -> Option<Identity> {
        let stat = std::fs::read(tree.path(format!("/proc/{tid}/stat"))).ok()?;
        stat::started(&stat).map(|started| Identity { tid, started })
    }
}

/// Reading every thread's start time is most of a sweep's cost, so it is kept while the number is listed. The kernel
/// assigns numbers in turn (pid_max in proc_sys_kernel(5)), so one is hardly reused between two sweeps; each number is
/// read again in one sweep out of this many.
const RECHECK_EVERY: i32 = 32;

/// The threads of the last sweep, with their start times.
#[derive(Debug, Default)]
pub(super) struct Roll {
    started: HashMap<Tid, u64>,
    round: i32,
}

impl Roll {
    /// The identities of these threads, without those that have ended.
    pub(super) fn call(&mut self, tree: &KernelTree, tids: &[Tid]) -> Vec<Identity> {
        self.round = (self.round + 1) % RECHECK_EVERY;
        let before = std::mem::take(&mut self.started);
        let known = |tid: &Tid| before.get(tid).filter(|_| tid.0 % RECHECK_EVERY != self.round);
        let here = tids.iter().filter_map(|tid| match known(tid) {
            Some(started) => Some(Identity {
                tid: *tid,
                started: *started,
            }),
            None => Identity::of(tree, *tid),
        });
        let here: Vec<Identity> = here.collect();
        self.started = here.iter().map(|thread| (thread.tid, thread.started)).collect();
        here
    }
}

/// The reason why a thread was not moved, by the kernel's error (sched_setaffinity(2), cgroups(7)); `None` for a thread
/// that has ended.
pub(super) fn unmoved(answer: &std::io::Error) -> Option<Why> {
    match answer.raw_os_error() {
        Some(libc::ESRCH) => None,
        Some(libc::EPERM | libc::EACCES) => Some(Why::NotPermitted),
        _ => Some(Why::Bound),
    }
}

/// Pid of the process that the kernel starts first.
pub(super) const INIT: i32 = 1;

/// Rules for the threads that stay although they could be moved.
#[derive(Clone, Debug)]
pub(super) struct StayRules {
    tree: KernelTree,
    /// Process id of this process.
    own: i32,
    move_init: bool,
    programs: Vec<String>,
}

impl StayRules {
    /// Spares this process, its children, process 1 unless it is to be moved, and the programs that `neighbours` names.
    pub(super) fn new(tree: &KernelTree, neighbours: &Neighbours) -> StayRules {
        StayRules {
            tree: tree.clone(),
            own: std::process::id() as i32,
            move_init: neighbours.move_init,
            programs: neighbours.spare.clone(),
        }
    }

    /// Why `thread` stays; `None` if it is to be moved, or has ended.
    pub(super) fn why(&self, thread: Tid) -> Option<Why> {
        let status = Status::read(&self.tree, thread)?;
        // The first thread's name is the program's.
        let program = || Status::read(&self.tree, Tid(status.process)).map(|process| process.name);
        match () {
            () if status.process == self.own || status.parent == self.own => Some(Why::Own),
            () if status.process == INIT && !self.move_init => Some(Why::Init),
            () if !self.programs.is_empty() && program().is_some_and(|name| self.programs.contains(&name)) => {
                Some(Why::Spared)
            }
            () => None,
        }
    }
}

/// The fields used of a thread's `/proc/<tid>/status` (proc_pid_status(5)).
pub(super) struct Status {
    pub(super) name: String,
    /// Process id of the thread's process.
    pub(super) process: i32,
    /// Process id of that process's parent.
    pub(super) parent: i32,
    /// Real user id of the thread.
    pub(super) user: u32,
}

impl Status {
    pub(super) fn read(tree: &KernelTree, thread: Tid) -> Option<Status> {
        let text = tree.read(format!("/proc/{thread}/status")).ok()?;
        let user = field(&text, "Uid").and_then(|users| users.split_whitespace().next()?.parse().ok());
        Some(Status {
            name: field(&text, "Name")?.to_owned(),
            process: field(&text, "Tgid")?.parse().ok()?,
            parent: field(&text, "PPid")?.parse().ok()?,
            user: user.unwrap_or(0),
        })
    }
}

/// Every thread of the machine, by `/proc`.
pub(super) fn threads(tree: &KernelTree) -> Vec<Tid> {
    processes(tree).flat_map(|process| threads_of(tree, process)).collect()
}

/// Every thread of this process.
pub(super) fn own_threads(tree: &KernelTree) -> Vec<Tid> {
    threads_of(tree, std::process::id() as i32).collect()
}

/// Every process of the machine, by `/proc`.
pub(in crate::linux) fn processes(tree: &KernelTree) -> impl Iterator<Item = i32> + use<> {
    numbers(tree.path("/proc"))
}

/// Every thread of `process`.
pub(in crate::linux) fn threads_of(tree: &KernelTree, process: i32) -> impl Iterator<Item = Tid> + use<> {
    numbers(tree.path(format!("/proc/{process}/task"))).map(Tid)
}

fn numbers(folder: std::path::PathBuf) -> impl Iterator<Item = i32> {
    entries(&folder).filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    #[test]
    fn this_process_its_children_and_named_programs_stay_and_those_that_started_it_do_not() {
        let me = std::process::id();
        let status =
            |name: &str, process: i32, parent: i32| format!("Name:\t{name}\nTgid:\t{process}\nPPid:\t{parent}");
        let files = [
            (format!("/proc/{me}/status"), status("punctual", me as i32, 70_001)),
            ("/proc/70001/status".into(), status("bash", 70_001, 70_002)),
            ("/proc/70002/status".into(), status("sshd", 70_002, 1)),
            ("/proc/1/status".into(), status("systemd", 1, 0)),
            ("/proc/70003/status".into(), status("chronyd", 70_003, 1)),
            // A thread of chronyd with a name of its own.
            ("/proc/70004/status".into(), status("worker", 70_003, 1)),
            ("/proc/70005/status".into(), status("browser", 70_005, 1)),
            // A child that has not yet executed its own program.
            ("/proc/70006/status".into(), status("punctual", 70_006, me as i32)),
            // Another run of this program, and what it started.
            ("/proc/70007/status".into(), status("punctual", 70_007, 70_001)),
        ];
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        let (_folder, tree) = testing::tree(&files);
        let why = |neighbours: &Neighbours, tid| StayRules::new(&tree, neighbours).why(Tid(tid));
        let neighbours = Neighbours {
            spare: vec!["chronyd".into()],
            ..Neighbours::default()
        };
        assert_eq!(
            [me as i32, 70_006].map(|tid| why(&neighbours, tid)),
            [Some(Why::Own); 2]
        );
        assert_eq!(
            [70_003, 70_004].map(|tid| why(&neighbours, tid)),
            [Some(Why::Spared); 2]
        );
        let moved = [70_001, 70_002, 70_005, 70_007, 79_999];
        assert_eq!(moved.map(|tid| why(&neighbours, tid)), [None; 5]);
        assert_eq!(why(&neighbours, 1), Some(Why::Init));
        let all = Neighbours {
            spare: vec!["sshd".into()],
            move_init: true,
            ..neighbours
        };
        assert_eq!((why(&all, 1), why(&all, 70_002)), (None, Some(Why::Spared)));
    }

    #[test]
    fn a_thread_is_told_from_a_later_one_of_its_number() {
        let stat = |started: &str| format!("42 (a (strange) name) S 1{} {started} 0", " 0".repeat(17));
        let of = |started: &str| {
            let (_folder, tree) = testing::tree(&[("/proc/42/stat", stat(started).as_str())]);
            Identity::of(&tree, Tid(42))
        };
        assert_eq!(of("77").map(|identity| identity.started), Some(77));
        assert_ne!(of("77"), of("78"));
        assert_eq!(of("never"), None);
        let me = Tid::current();
        let live = KernelTree::default();
        assert_eq!(Identity::of(&live, me), Identity::of(&live, me));
        assert!(Identity::of(&live, me).is_some() && Identity::of(&live, Tid(i32::MAX)).is_none());
    }

    #[test]
    fn a_number_that_is_given_again_is_noticed_at_once_after_a_gap_and_in_a_few_rounds_without() {
        let stat = |started: &str| format!("42 (name) S 1{} {started} 0", " 0".repeat(17));
        let (_folder, tree) = testing::tree(&[("/proc/42/stat", stat("1").as_str())]);
        let again = |started: &str| std::fs::write(tree.path("/proc/42/stat"), stat(started)).unwrap();
        let mut roll = Roll::default();
        let mut started = |tids: &[Tid]| roll.call(&tree, tids).first().map(|thread| thread.started);
        assert_eq!(started(&[Tid(42)]), Some(1));
        assert_eq!(started(&[]), None);
        again("2");
        assert_eq!(started(&[Tid(42)]), Some(2), "it was not there in between");
        again("3");
        assert!((0..RECHECK_EVERY).any(|_| started(&[Tid(42)]) == Some(3)));
        std::fs::remove_file(tree.path("/proc/42/stat")).unwrap();
        assert!(
            (0..RECHECK_EVERY).any(|_| started(&[Tid(42)]).is_none()),
            "it has ended"
        );
    }

    #[test]
    fn the_threads_include_this_one() {
        assert!(threads(&KernelTree::default()).contains(&Tid::current()));
    }
}
