//! Which threads the machine has, and which of them are left where they are.
//!
//! Left alone are this process and its children, which it places itself; a child has this program's name until it
//! executes its own. So are process 1 and the processes that started this one, because what they start later would
//! inherit a confinement that no process is left to lift. And so are programs that the user names; what such a program
//! starts is moved at the next sweep.

use std::collections::{BTreeSet, HashMap};

use super::super::KernelTree;
use super::super::thread::Tid;
use super::super::undo::start_time;

/// How far up the parents of this process are followed: deeper than any session.
const ANCESTORS_MAX: usize = 64;

/// A thread, told from a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) tid: Tid,
    /// When it started, in ticks since boot (proc_pid_stat(5), field 22).
    pub(super) started: u64,
}

impl Identity {
    /// None of a thread that has ended.
    pub(super) fn of(tree: &KernelTree, tid: Tid) -> Option<Identity> {
        let stat = std::fs::read(tree.path(format!("/proc/{tid}/stat"))).ok()?;
        let started = std::str::from_utf8(start_time(&stat)?).ok()?.parse().ok()?;
        Some(Identity { tid, started })
    }
}

/// Looking at every thread's start is most of a sweep's cost, so it is remembered for as long as the number is listed.
/// The kernel gives numbers in turn (pid_max in proc_sys_kernel(5)), so that one is hardly given again between two
/// sweeps; each number is looked at again in one sweep of so many.
const RECHECK_EVERY: i32 = 32;

/// The threads that were there at the last sweep.
#[derive(Debug, Default)]
pub(super) struct Roll {
    started: HashMap<Tid, u64>,
    round: i32,
}

impl Roll {
    /// The threads of these numbers, without those that have ended.
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

/// Why a thread was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmoved {
    /// It has ended.
    Ended,
    /// It is not this user's to move.
    NotOurs,
    /// The kernel binds it where it runs.
    Bound,
}

impl Unmoved {
    /// By what the kernel answered to moving it (sched_setaffinity(2), cgroups(7)).
    pub(super) fn by(why: &std::io::Error) -> Unmoved {
        match why.raw_os_error() {
            Some(libc::ESRCH) => Unmoved::Ended,
            Some(libc::EPERM | libc::EACCES) => Unmoved::NotOurs,
            _ => Unmoved::Bound,
        }
    }
}

/// The threads that stay.
#[derive(Clone, Debug)]
pub(super) struct Spared {
    tree: KernelTree,
    /// This process.
    own: i32,
    processes: BTreeSet<i32>,
    programs: Vec<String>,
}

impl Spared {
    /// This process, its children, those above it, and the programs of these names (as `ps -o comm` shows them).
    pub(super) fn new(tree: &KernelTree, programs: &[String]) -> Spared {
        let own = std::process::id() as i32;
        let mut processes = BTreeSet::from([1]);
        let mut process = own;
        for _ in 0..ANCESTORS_MAX {
            processes.insert(process);
            match Status::read(tree, Tid(process)) {
                Some(status) if status.parent > 1 => process = status.parent,
                _ => break,
            }
        }
        Spared {
            tree: tree.clone(),
            own,
            processes,
            programs: programs.to_vec(),
        }
    }

    /// Whether `thread` stays; so does one that has ended.
    pub(super) fn has(&self, thread: Tid) -> bool {
        let Some(status) = Status::read(&self.tree, thread) else {
            return true;
        };
        // The first thread's name is the program's.
        let program = || Status::read(&self.tree, Tid(status.process)).map(|process| process.name);
        self.processes.contains(&status.process)
            || status.parent == self.own
            || !self.programs.is_empty() && program().is_none_or(|name| self.programs.contains(&name))
    }
}

/// What is asked of `/proc/<tid>/status` (proc_pid_status(5)).
pub(super) struct Status {
    name: String,
    /// The process that it is a thread of, by its first thread.
    pub(super) process: i32,
    /// The process that started that one.
    pub(super) parent: i32,
}

impl Status {
    pub(super) fn read(tree: &KernelTree, thread: Tid) -> Option<Status> {
        let text = tree.read(format!("/proc/{thread}/status")).ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        Some(Status {
            name: field("Name")?.to_owned(),
            process: field("Tgid")?.parse().ok()?,
            parent: field("PPid")?.parse().ok()?,
        })
    }
}

/// Every thread of the machine, by `/proc`.
pub(super) fn threads(tree: &KernelTree) -> Vec<Tid> {
    let processes = numbers(tree.path("/proc"));
    processes.flat_map(|process| threads_of(tree, process)).collect()
}

/// Every thread of this process.
pub(super) fn own_threads(tree: &KernelTree) -> Vec<Tid> {
    threads_of(tree, std::process::id() as i32).collect()
}

fn threads_of(tree: &KernelTree, process: i32) -> impl Iterator<Item = Tid> + use<> {
    numbers(tree.path(format!("/proc/{process}/task"))).map(Tid)
}

fn numbers(folder: std::path::PathBuf) -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    #[test]
    fn this_process_its_ancestors_and_named_programs_stay() {
        let me = std::process::id();
        let status =
            |name: &str, process: i32, parent: i32| format!("Name:\t{name}\nTgid:\t{process}\nPPid:\t{parent}");
        let files = [
            (format!("/proc/{me}/status"), status("punctual", me as i32, 70_001)),
            ("/proc/70001/status".into(), status("bash", 70_001, 70_002)),
            ("/proc/70002/status".into(), status("sshd", 70_002, 1)),
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
        let spared = Spared::new(&tree, &["chronyd".into()]);
        let stays = |tid| spared.has(Tid(tid));
        assert!([me as i32, 70_001, 70_002, 70_003, 70_004].into_iter().all(stays));
        assert!(stays(70_006), "a child of this process");
        assert!(!stays(70_005) && !stays(70_007));
        assert!(stays(79_999), "one that has ended");
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
