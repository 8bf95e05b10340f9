//! Which threads the machine has, and which of them are left where they are.
//!
//! Left alone are: this process, which places its own threads; process 1 and those who started this process, because what
//! they start later would inherit a confinement that nobody is left to lift; and programs that the user names. What such a program
//! starts is moved at the next sweep.

use std::collections::BTreeSet;

use super::super::KernelTree;
use super::super::thread::Tid;

/// How far up the parents of this process are followed: deeper than any session.
const ANCESTORS_MAX: usize = 64;

/// Who stays.
#[derive(Clone, Debug)]
pub(super) struct Spared {
    tree: KernelTree,
    processes: BTreeSet<i32>,
    programs: Vec<String>,
}

impl Spared {
    /// This process, those above it, and the programs of these names (as `ps -o comm` shows them).
    pub(super) fn new(tree: &KernelTree, programs: &[String]) -> Spared {
        let mut processes = BTreeSet::from([1]);
        let mut process = std::process::id() as i32;
        for _ in 0..ANCESTORS_MAX {
            processes.insert(process);
            match Status::read(tree, Tid(process)) {
                Some(status) if status.parent > 1 => process = status.parent,
                _ => break,
            }
        }
        Spared {
            tree: tree.clone(),
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
            || !self.programs.is_empty() && program().is_none_or(|name| self.programs.contains(&name))
    }
}

/// What is asked of `/proc/<tid>/status` (proc_pid_status(5)).
struct Status {
    name: String,
    process: i32,
    parent: i32,
}

impl Status {
    fn read(tree: &KernelTree, thread: Tid) -> Option<Status> {
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
pub(super) fn everybody(tree: &KernelTree) -> Vec<Tid> {
    let numbers = |folder: std::path::PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
    };
    numbers(tree.path("/proc"))
        .flat_map(|process| numbers(tree.path(format!("/proc/{process}/task"))))
        .map(Tid)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::testing;

    #[test]
    fn this_process_and_who_started_it_and_named_programs_stay() {
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
        ];
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        let (_folder, tree) = testing::tree(&files);
        let spared = Spared::new(&tree, &["chronyd".into()]);
        let stays = |tid| spared.has(Tid(tid));
        assert!([me as i32, 70_001, 70_002, 70_003, 70_004].into_iter().all(stays));
        assert!(!stays(70_005));
        assert!(stays(79_999), "one that has ended");
    }

    #[test]
    fn everybody_includes_this_thread() {
        assert!(everybody(&KernelTree::default()).contains(&Tid::current()));
    }
}
