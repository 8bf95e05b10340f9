//! Snapshots of machine state that an exclusive core may have changed, read independently of the code that changes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";
const WORK: &str = "/sys/devices/virtual/workqueue/cpumask";
/// Files of a group with its cores and the controllers that it delegates.
const OF_A_GROUP: [&str; 4] = [
    "cpuset.cpus",
    "cpuset.cpus.exclusive",
    "cpuset.cpus.partition",
    "cgroup.subtree_control",
];

/// Affinity, policy and group of every thread, the affinity of every interrupt, the mask of unbound work, the cores of
/// every control group, and the bound on each core's idle states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Threads by number and start time, without those of this process.
    threads: BTreeMap<(i32, u64), String>,
    files: BTreeMap<PathBuf, String>,
}

/// A change between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The thread or the file that differs.
    pub what: String,
    pub before: String,
    pub after: String,
}

impl Snapshot {
    /// Reads the present state of the machine.
    pub fn take() -> Snapshot {
        let interrupts = below(Path::new("/proc/irq")).into_iter();
        let interrupts = interrupts.map(|folder| folder.join("smp_affinity_list"));
        let of_groups = groups()
            .into_iter()
            .flat_map(|group| OF_A_GROUP.map(|file| group.join(file)));
        let cores = below(Path::new("/sys/devices/system/cpu")).into_iter();
        let idle = cores.map(|core| core.join("power/pm_qos_resume_latency_us"));
        let files = interrupts.chain([WORK.into()]).chain(of_groups).chain(idle);
        let files = files.filter_map(|file| Some((file.clone(), fs::read_to_string(file).ok()?)));
        Snapshot {
            threads: threads(),
            files: files.collect(),
        }
    }

    /// Differences to `after`: of threads that are in both snapshots, and of all files.
    pub fn differences(&self, after: &Snapshot) -> Vec<Difference> {
        let threads = self.threads.iter().filter_map(|(thread, before)| {
            let after = after.threads.get(thread)?;
            (before != after).then(|| Difference::of(format!("thread {}", thread.0), before, after))
        });
        let nothing = String::from("nothing");
        let names = self
            .files
            .keys()
            .chain(after.files.keys().filter(|file| !self.files.contains_key(*file)));
        let files = names.filter_map(|file| {
            let [before, after] = [self, after].map(|all| all.files.get(file).unwrap_or(&nothing));
            (before != after).then(|| Difference::of(file.display().to_string(), before, after))
        });
        threads.chain(files).collect()
    }
}

impl Difference {
    fn of(what: String, before: &str, after: &str) -> Difference {
        Difference {
            what,
            before: before.trim().into(),
            after: after.trim().into(),
        }
    }
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn groups() -> Vec<PathBuf> {
    let (mut groups, mut next) = (vec![PathBuf::from(GROUPS)], 0);
    while let Some(group) = groups.get(next) {
        let more = below(group);
        groups.extend(more);
        next += 1;
    }
    groups
}

fn threads() -> BTreeMap<(i32, u64), String> {
    let own = std::process::id().to_string();
    let processes = below(Path::new("/proc")).into_iter();
    let others = processes.filter(|process| {
        let name = process.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.bytes().all(|digit| digit.is_ascii_digit()) && name != own
    });
    others
        .flat_map(|process| below(&process.join("task")))
        .filter_map(|thread| of_thread(&thread))
        .collect()
}

/// The flag of a thread whose affinity only the kernel changes (PF_NO_SETAFFINITY in include/linux/sched.h).
const PLACED_BY_THE_KERNEL: u64 = 0x0400_0000;

/// The thread's number and start time, and its compared state (proc_pid_stat(5), proc_pid_status(5)); `None` for a
/// thread that the kernel places.
fn of_thread(folder: &Path) -> Option<((i32, u64), String)> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let groups = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
    // Skips the name, which may contain blanks and parentheses; the next field is the state, field 3 of
    // proc_pid_stat(5).
    let (number, fields) = (stat.split(' ').next()?, stat.rsplit_once(") ")?.1);
    let field = |number: usize| fields.split(' ').nth(number - 3);
    // The affinity of an interrupt's thread follows the interrupt's (irq_thread_check_affinity() in
    // kernel/irq/manage.c), which is compared itself.
    if field(9)?.parse::<u64>().ok()? & PLACED_BY_THE_KERNEL != 0 || stat.contains("(irq/") {
        return None;
    }
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let cpuset = groups
        .lines()
        .find(|line| line.contains(":cpuset:") || line.starts_with("0::"));
    let seen = format!(
        "cores {}, priority {} of policy {}, group {}",
        allowed.trim(),
        field(40)?,
        field(41)?,
        cpuset.unwrap_or_default()
    );
    Some(((number.parse().ok()?, field(22)?.parse().ok()?), seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_found_and_threads_that_have_ended_are_none() {
        let of = |threads: &[(i32, &str)], files: &[(&str, &str)]| Snapshot {
            threads: threads
                .iter()
                .map(|(tid, seen)| ((*tid, 0), (*seen).to_owned()))
                .collect(),
            files: files
                .iter()
                .map(|(file, text)| ((*file).into(), (*text).to_owned()))
                .collect(),
        };
        let before = of(&[(1, "cores 0-1"), (2, "cores 0-1")], &[("/a", "0-1\n"), ("/b", "3")]);
        let after = of(&[(2, "cores 0"), (3, "cores 0")], &[("/a", "0\n"), ("/c", "1")]);
        let found = before.differences(&after);
        let names: Vec<&str> = found.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(names, ["thread 2", "/a", "/b", "/c"]);
        assert_eq!((found[1].before.as_str(), found[1].after.as_str()), ("0-1", "0"));
        assert_eq!(
            (found[2].after.as_str(), found[3].before.as_str()),
            ("nothing", "nothing")
        );
        assert_eq!(before.differences(&before), []);
    }

    #[test]
    fn this_machine_has_threads_and_their_affinity_is_seen() {
        let seen = Snapshot::take();
        assert!(seen.threads.values().any(|seen| seen.starts_with("cores ")), "{seen:?}");
    }
}
