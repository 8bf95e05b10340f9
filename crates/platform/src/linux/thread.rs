//! Where and how a thread runs: its core and its memory; from `punctual-os`, its scheduling and its CPU time.
//!
//! All of this belongs to the thread or the process and ends with it. Of threads of other programs ([`Guests`]) changes
//! are recorded, because these threads outlive this process.

use std::fs;
use std::mem;

use punctual_custody::core_mask::{CoreMask, affinity_of, set_affinity};
use punctual_custody::journal::Journal;
use punctual_custody::stat;
use punctual_custody::tree::field;
use punctual_units::{CoreId, Nanos};

pub use punctual_os::linux::thread::{cpu_time_of, name_of, real_time, scheduling, set_scheduling, thread_cpu_time};
pub use punctual_os::{REAL_TIME_PRIORITIES, Scheduling, Tid};

use super::{KernelTree, last_error, refused};
use crate::Refusal;

/// Pins the calling thread to `core`.
///
/// # Errors
/// [`Refusal`] where the core is not online or not allowed to this process.
pub fn pin(core: CoreId) -> Result<(), Refusal> {
    pin_to(&[core])
}

/// Lets the calling thread run on any of `cores`.
///
/// # Errors
/// [`Refusal`] if none of them is online and allowed to this process.
pub fn pin_to(cores: &[CoreId]) -> Result<(), Refusal> {
    pin_thread(Tid(0), cores)
}

/// Lets `thread`, of this user, run on any of `cores`.
///
/// # Errors
/// As for [`pin_to`], also if the thread has ended or is another user's.
pub fn pin_thread(thread: Tid, cores: &[CoreId]) -> Result<(), Refusal> {
    let what = || format!("running on cores {cores:?}");
    if cores.iter().any(|core| core.index() >= libc::CPU_SETSIZE as usize) {
        let why = format!("core numbers end at {}", libc::CPU_SETSIZE - 1);
        let remedy = "choose a core listed in /sys/devices/system/cpu/online";
        return Err(refused(what(), why, remedy));
    }
    let mask: CoreMask = cores.iter().copied().collect();
    set_affinity(thread, &mask).map_err(|why| {
        refused(
            what(),
            why,
            "choose a core listed in Cpus_allowed_list of /proc/self/status, or widen the cpuset or taskset of this process",
        )
    })
}

/// Scheduling and affinity of a thread of this process, to be restored.
#[derive(Clone, Debug)]
pub struct AsFound {
    thread: Tid,
    affinity: CoreMask,
    scheduling: Scheduling,
}

impl AsFound {
    /// Reads the present state of `thread`.
    ///
    /// # Errors
    /// [`Refusal`] where this process has no such thread.
    pub fn of(thread: Tid) -> Result<AsFound, Refusal> {
        let refusal = |why: &dyn std::fmt::Display| {
            let remedy = "name a thread of this process that is alive";
            refused(format!("seating thread {thread}"), why, remedy)
        };
        if !is_own(thread) {
            return Err(refusal(&"this process has no such thread"));
        }
        Ok(AsFound {
            thread,
            affinity: affinity_of(thread).map_err(|why| refusal(&why))?,
            scheduling: scheduling(thread)?,
        })
    }

    /// Reads the present state of `thread`, of any process. Change it by [`Guests`], which outlive this process.
    ///
    /// # Errors
    /// [`Refusal`] where there is no such thread, or its scheduling could not be restored.
    pub fn of_guest(thread: Tid) -> Result<AsFound, Refusal> {
        let what = format!("reading where thread {thread} runs");
        Ok(AsFound {
            thread,
            affinity: affinity_of(thread).map_err(|why| refused(what, why, "it has ended"))?,
            scheduling: scheduling(thread)?,
        })
    }

    /// The thread whose state this is.
    pub fn thread(&self) -> Tid {
        self.thread
    }

    /// Restores the thread's scheduling and affinity; does nothing if it has ended.
    pub fn put_back(&self) {
        let _ = set_scheduling(self.thread, self.scheduling);
        let _ = set_affinity(self.thread, &self.affinity);
    }
}

/// Whether `thread` belongs to this process.
pub(super) fn is_own(thread: Tid) -> bool {
    KernelTree::default().path(format!("/proc/self/task/{thread}")).exists()
}

/// Moves threads of other programs to cores and real-time priorities. Each change is recorded before it is made, and
/// so undone with the machine's others, even after a kill.
#[derive(Clone, Debug)]
pub struct Guests(pub(super) Journal);

impl Guests {
    /// Pins the thread of `found` to `core`.
    ///
    /// # Errors
    /// [`Refusal`] where the core is not allowed to the thread, or the thread is another user's or has ended.
    pub fn pin(&self, found: &AsFound, core: CoreId) -> Result<(), Refusal> {
        let wanted = [core].into_iter().collect();
        self.0.confine(found.thread, &found.affinity, &wanted).map_err(|why| {
            let remedy =
                "choose a core in Cpus_allowed_list of the program's /proc/PID/status, and run as its user or root";
            refused(format!("running thread {} on core {core}", found.thread), why, remedy)
        })
    }

    /// Restores what was changed of `thread`, unless it has ended or another program has changed it since.
    pub fn put_back(&self, thread: Tid) {
        drop(self.0.restore_below(std::path::Path::new(&format!("/proc/{thread}"))));
    }

    /// Gives `thread` real-time scheduling (`SCHED_FIFO`) at `priority`, 1 to 99.
    ///
    /// # Errors
    /// [`Refusal`] without permission, or if the thread has ended.
    pub fn real_time(&self, thread: Tid, priority: u8) -> Result<(), Refusal> {
        self.0.run_in_real_time(thread, priority)
    }
}

/// Whether a thread of any process runs or waits to, or its first thread if none is named; false once it has ended,
/// even if its parent does not know yet.
pub fn is_running(process: i32, thread: Option<Tid>) -> bool {
    let thread = thread.unwrap_or(Tid(process));
    fs::read(format!("/proc/{process}/task/{thread}/stat")).is_ok_and(|stat| !stat::ended(&stat))
}

/// Start time of a thread of `process`, in ticks since boot; `None` if the process has no such thread.
pub fn start_of(process: i32, thread: Tid) -> Option<u64> {
    stat::started(&fs::read(format!("/proc/{process}/task/{thread}/stat")).ok()?)
}

/// The core that the calling thread runs on at this instant.
pub fn current_core() -> Option<CoreId> {
    // SAFETY: takes nothing and returns a plain number.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok().map(CoreId)
}

/// The page faults of a thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFaults {
    /// Faults for which the thread waited for a disk.
    pub major: u64,
    /// Faults served from memory.
    pub minor: u64,
}

impl PageFaults {
    /// Faults of the calling thread, by one system call.
    pub fn of_this_thread() -> PageFaults {
        let usage = usage_of_this_thread();
        PageFaults {
            major: count(usage.ru_majflt),
            minor: count(usage.ru_minflt),
        }
    }
}

/// How often the calling thread has given its core up, to sleep, to wait, or because it was stopped.
pub fn voluntary_switches() -> u64 {
    count(usage_of_this_thread().ru_nvcsw)
}

fn usage_of_this_thread() -> libc::rusage {
    // SAFETY: an all-zero rusage is valid, and the call fills at most its size.
    unsafe {
        let mut usage: libc::rusage = mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    }
}

fn count(count: libc::c_long) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// The cores that the calling thread may run on, ascending.
pub fn allowed_cores() -> Vec<CoreId> {
    affinity_of(Tid(0)).map_or_else(|_| Vec::new(), |mask| mask.cores())
}

/// Keeps the threads of this process off `cores`, but for those that may run nowhere else; threads that these start
/// later stay off, too.
pub fn keep_off(cores: &[CoreId]) {
    let cores: CoreMask = cores.iter().copied().collect();
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for thread in threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Tid)) {
        let Ok(found) = affinity_of(thread) else { continue };
        let left = found.without(&cores);
        if !left.is_empty() && left != found {
            // Fails only for a thread that has ended.
            let _ = set_affinity(thread, &left);
        }
    }
}

/// Locks all memory of the process, present and future, so that a real-time thread never waits for a page.
///
/// Raises the limit on locked memory first if that is allowed. Without such permission this refuses even if the present
/// mappings would fit: a limit under `MCL_FUTURE` makes a later allocation fail, hours into a run.
///
/// # Errors
/// [`Refusal`] without permission or without enough memory; nothing is locked then.
pub fn lock_memory() -> Result<(), Refusal> {
    let refusal = |why: &dyn std::fmt::Display| {
        refused(
            "locking memory (mlockall)",
            why,
            "run as root, grant CAP_IPC_LOCK, or lift the limit (ulimit -l unlimited, 'memlock unlimited' in \
             /etc/security/limits.d, LimitMEMLOCK=infinity in a systemd unit)",
        )
    };
    if !raise_memlock_limit() && !has_capability(CAP_IPC_LOCK) {
        return Err(refusal(&"the limit on locked memory would make later allocations fail"));
    }
    // SAFETY: changes only how pages are kept, not what they hold.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } {
        0 => Ok(()),
        _ => {
            let why = last_error();
            unlock_memory(); // a part may have been locked
            Err(refusal(&why))
        }
    }
}

/// Whether [`lock_memory`] would be allowed, without locking anything.
pub fn may_lock_memory() -> bool {
    let mut limit = limit(0);
    // SAFETY: `limit` is valid and filled in by the call.
    let unlimited =
        unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) == 0 && limit.rlim_max == libc::RLIM_INFINITY };
    unlimited || has_capability(CAP_IPC_LOCK) || has_capability(CAP_SYS_RESOURCE)
}

/// Whether this user may set the affinity and scheduling of other users' threads.
pub(super) fn may_move_others() -> bool {
    has_capability(CAP_SYS_NICE)
}

/// Unlocks all memory that [`lock_memory`] locked.
pub fn unlock_memory() {
    // SAFETY: changes only how pages are kept.
    unsafe { libc::munlockall() };
}

/// Raises the limit on locked memory as far as allowed; returns whether it is unlimited now.
fn raise_memlock_limit() -> bool {
    let unlimited = limit(libc::RLIM_INFINITY);
    // SAFETY: `unlimited` is valid; the call only reads it.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &unlimited) == 0 }
}

/// Makes the kernel kill this process, and those that it forks, once a real-time thread of it has used the processor
/// for `span` without blocking (setrlimit(2), `RLIMIT_RTTIME`). The kernel counts in ticks, up to 10 ms each. A lower
/// limit stays. Makes one plain system call, for use between fork and exec.
pub fn limit_real_time(span: Nanos) {
    let limit = limit(span.0 / 1000);
    // SAFETY: `limit` is valid; the call only reads it. A process may always lower its limits; raising one is refused.
    unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, &limit) };
}

fn limit(most: libc::rlim_t) -> libc::rlimit {
    libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    }
}

/// Bit numbers in a capability mask (capabilities(7), linux/capability.h).
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_NICE: u32 = 23;
const CAP_SYS_RESOURCE: u32 = 24;

/// Whether the calling thread has a capability, by the mask in its `/proc/<tid>/status`: capabilities belong to a
/// thread (capabilities(7)).
fn has_capability(bit: u32) -> bool {
    fs::read_to_string("/proc/thread-self/status").is_ok_and(|status| effective_capabilities(&status) >> bit & 1 == 1)
}

/// The mask of effective capabilities in a `/proc/<pid>/status`; 0 if it has none.
fn effective_capabilities(status: &str) -> u64 {
    let mask = field(status, "CapEff").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    mask.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `body` on a thread of its own: scheduling and affinity are a thread's.
    fn on_a_thread(body: impl FnOnce() + Send + 'static) {
        std::thread::spawn(body).join().unwrap();
    }

    #[test]
    fn a_pinned_thread_runs_there_and_nowhere_else() {
        on_a_thread(|| {
            let core = *allowed_cores().last().unwrap();
            pin(core).unwrap();
            assert_eq!(allowed_cores(), [core]);
            // SAFETY: takes nothing.
            assert_eq!(unsafe { libc::sched_getcpu() }, core.0 as i32);
        });
    }

    #[test]
    fn a_core_that_is_not_there_is_refused_with_a_remedy() {
        on_a_thread(|| {
            let before = allowed_cores();
            for core in [CoreId(1023), CoreId(1024), CoreId(u32::MAX)] {
                let refusal = pin(core).unwrap_err();
                assert!(refusal.remedy.contains("core"), "{refusal}");
            }
            assert_eq!(allowed_cores(), before);
        });
    }

    #[test]
    fn memory_is_locked_or_refused_with_a_remedy() {
        let locked_kb = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmLck:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let allowed = may_lock_memory();
        match lock_memory() {
            Ok(()) => {
                assert!(allowed && locked_kb() > 0);
                unlock_memory();
            }
            Err(refusal) => {
                eprintln!("skipped locking memory: {refusal}");
                assert!(refusal.remedy.contains("CAP_IPC_LOCK"), "{refusal}");
            }
        }
        assert_eq!(locked_kb(), 0);
    }

    #[test]
    fn capabilities_are_read_from_the_status_of_a_process() {
        assert_eq!(
            effective_capabilities("CapPrm:\t1\nCapEff:\t0000000000004000\n"),
            1 << 14
        );
        assert_eq!(effective_capabilities("Name:\tpunctual\nCapEff:\tno number"), 0);
    }
}
