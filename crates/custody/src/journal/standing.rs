//! The changes of this process that stand, in words for a user: the ledger's records, and each thing as it is now.

use std::ffi::{CStr, CString};
use std::path::Path;

use punctual_os::Tid;
use punctual_os::linux::thread::{name_of, policy_of};
use punctual_units::CoreId;

use super::super::core_mask::{CoreMask, affinity_of};
use super::super::ledger::{Kind, TEXT_BYTES, affinity, print_list, scheduling};
use super::super::tree::read_trimmed;
use super::Journal;

/// Value of a thread that has ended.
const ENDED: &str = "ended";

punctual_units::named! {
    /// Property that a change concerns.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Property by name {
        /// A core that the process claims for itself alone.
        Core = "users of core",
        Scheduling = "class and priority of",
        /// Cores of a thread, a group, an interrupt, or of kernel work.
        Cores = "cores of",
        /// Longest exit latency of a core's idle states, in microseconds; 0: no bound.
        Idle = "idle states of",
        /// CPU time of a control group.
        CpuTime = "CPU time of",
        Clock = "clock of",
        /// Cache ways and memory bandwidth (resctrl).
        Cache = "cache ways and bandwidth of",
        /// A control group of ours.
        Group = "new",
        /// A temporary folder of ours.
        Folder = "new folder",
        /// A file of a group by which the kernel lets the run set others.
        Switch = "switch of",
        /// Threads moved into a group of ours.
        Threads = "threads in",
        /// The word by which programs see that their jobs are read.
        Reports = "reports of jobs in",
    }
}

/// A change that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingChange {
    pub property: Property,
    /// The thread with its name, or the group and its file, or else a path; of a core its number.
    pub of: String,
    /// Number of the thread, if it is one.
    pub thread: Option<Tid>,
    /// Value before the change, which restoring sets; lists of cores as the kernel prints them.
    pub before: String,
    /// Value at this instant.
    pub now: String,
}

impl Journal {
    /// The changes that this journal wants, and the cores that it claims, as they are now; none of threads that have
    /// ended. `None` while another process or thread has the ledger: this waits for none of them.
    pub fn standing(&self) -> Option<Vec<StandingChange>> {
        let table = self.0.ledger.try_lock()?;
        let place = self.0.holder.place;
        let mut records = Vec::new();
        for change in table.changes_of(place) {
            let texts = [table.path(change), table.original(change)].map(CStr::to_owned);
            records.extend(table.kind(change).map(|kind| (kind, texts)));
        }
        let cores = table.holder_at(place).map(|holder| holder.exclusive().cores());
        drop(table); // reading files takes time
        let claim = |core: CoreId| change(Property::Core, None, core.to_string(), ["any thread", "this run"]);
        let claims = cores.into_iter().flatten().map(claim);
        let others = records.into_iter().map(standing);
        Some(claims.chain(others.filter(|it| it.now != ENDED)).collect())
    }
}

fn change(property: Property, thread: Option<Tid>, of: String, values: [impl Into<String>; 2]) -> StandingChange {
    let [before, now] = values.map(Into::into);
    StandingChange {
        property,
        of,
        thread,
        before,
        now,
    }
}

fn standing((kind, texts): (Kind, [CString; 2])) -> StandingChange {
    let [path, original] = texts.map(|text| text.to_string_lossy().into_owned());
    let number = path.strip_prefix("/proc/").and_then(|rest| rest.strip_suffix("/stat"));
    let thread = number.and_then(|number| number.parse().ok()).map(Tid);
    let (tid, bytes) = (thread.unwrap_or(Tid(-1)), original.as_bytes());
    let values = match kind {
        Kind::Scheduling => {
            let found = scheduling(bytes).map(|(_, policy, priority)| (policy, priority));
            [found, policy_of(tid).ok()].map(class)
        }
        Kind::Affinity => {
            let found = affinity(bytes).map(|(_, mask)| mask);
            [found, affinity_of(tid).ok()].map(cores)
        }
        Kind::MoveTasks => [named(&original, false), "moved here".into()],
        Kind::MakeDir | Kind::MakeTree => ["none".into(), "made".into()],
        Kind::LockedWord => ["not read".into(), "read by this run".into()],
        Kind::Write | Kind::Switch | Kind::OffList | Kind::OffWords | Kind::OnList => {
            let now = read_trimmed(Path::new(&path));
            [original.trim_end().into(), now.unwrap_or_else(|_| "gone".into())]
        }
    };
    let file = path.rsplit('/').next();
    let property = match kind {
        Kind::Scheduling => Property::Scheduling,
        Kind::Affinity | Kind::OffList | Kind::OffWords | Kind::OnList => Property::Cores,
        _ if file.is_some_and(|file| file.starts_with("cpu.")) => Property::CpuTime,
        _ if path.contains("/cpufreq/") => Property::Clock,
        _ if path.contains("/resctrl/") => Property::Cache,
        Kind::Write if path.ends_with("latency_us") => Property::Idle,
        Kind::Write => Property::Cores,
        Kind::MakeDir => Property::Group,
        Kind::MakeTree => Property::Folder,
        Kind::Switch => Property::Switch,
        Kind::MoveTasks => Property::Threads,
        Kind::LockedWord => Property::Reports,
    };
    change(
        property,
        thread,
        thread.map_or_else(|| named(&path, kind == Kind::MakeDir), name),
        values,
    )
}

/// Class and cores of `thread` as they are now.
pub fn as_found(thread: Tid) -> [StandingChange; 2] {
    let values = [class(policy_of(thread).ok()), cores(affinity_of(thread).ok())];
    let [class, cores] = values.map(|value| [value.clone(), value]);
    let of = |property, values| change(property, Some(thread), name(thread), values);
    [of(Property::Scheduling, class), of(Property::Cores, cores)]
}

fn name(thread: Tid) -> String {
    format!("{} (thread {thread})", name_of(thread).unwrap_or_else(|| ENDED.into()))
}

/// The group, interrupt or core of a kernel's file, and the file unless `path` is a folder; any other path as it is.
fn named(path: &str, is_folder: bool) -> String {
    const KINDS: [(&str, &str); 4] = [
        ("/cgroup/", "group "),
        ("/resctrl/", "group "),
        ("/proc/irq/", "interrupt "),
        ("/system/cpu/", ""),
    ];
    let below = |(folder, kind): &(&str, &'static str)| Some((*kind, path.split_once(folder)?.1));
    match KINDS.iter().find_map(below) {
        None => path.into(),
        Some((kind, rest)) => match rest.rsplit_once('/').filter(|_| !is_folder) {
            Some((of, file)) => format!("{kind}{of} ({file})"),
            None if is_folder => format!("{kind}{rest}"),
            None => path.into(),
        },
    }
}

/// `mask` as the kernel prints it; `None` of a thread that has ended.
fn cores(mask: Option<CoreMask>) -> String {
    let mut list = [0; TEXT_BYTES];
    let printed = mask.and_then(|mask| print_list(&mask, &mut list));
    printed.map_or_else(|| ENDED.into(), |list| String::from_utf8_lossy(list).into_owned())
}

/// Policy and priority in words; the nice value is no part of them, and stays as it is.
fn class(policy: Option<(i32, i32)>) -> String {
    match policy.map(|(policy, priority)| (policy & !libc::SCHED_RESET_ON_FORK, priority)) {
        Some((libc::SCHED_FIFO, priority)) => format!("SCHED_FIFO {priority}"),
        Some((libc::SCHED_RR, priority)) => format!("SCHED_RR {priority}"),
        Some((libc::SCHED_BATCH, _)) => "SCHED_BATCH".into(),
        Some((libc::SCHED_IDLE, _)) => "SCHED_IDLE".into(),
        Some(_) => "ordinary".into(),
        None => ENDED.into(),
    }
}
