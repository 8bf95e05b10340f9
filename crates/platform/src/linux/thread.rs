//! Where and how a thread runs: its core, its scheduling, its memory, the time it used.
//!
//! All of this belongs to the thread or to the process and ends with it; nothing is left on the machine.

use std::fs;
use std::mem;

use punctual_units::{CoreId, Nanos};
use serde::{Deserialize, Serialize};

use super::core_mask::{CoreMask, set_affinity};
use super::{clock, last_error, refused};
use crate::Refusal;

/// A thread, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tid(pub i32);

impl Tid {
    /// The calling thread.
    pub fn current() -> Tid {
        // SAFETY: gettid takes nothing and cannot fail.
        Tid(unsafe { libc::gettid() })
    }
}

impl std::fmt::Display for Tid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How the kernel schedules a thread (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// `SCHED_OTHER`: a fair share; nice -20 (most) to 19 (least).
    Other {
        /// The nice value.
        nice: i32,
    },
    /// `SCHED_BATCH`: a fair share without a claim to wake early.
    Batch {
        /// The nice value.
        nice: i32,
    },
    /// `SCHED_IDLE`: only what nobody else wants.
    Idle,
    /// `SCHED_FIFO`: real time, 1 (low) to 99 (high), until it blocks or yields.
    Fifo(u8),
    /// `SCHED_RR`: real time, 1 to 99, in turns among equals.
    RoundRobin(u8),
}

/// Priorities that `SCHED_FIFO` and `SCHED_RR` have on Linux (sched_get_priority_min(2), _max(2)).
pub const REAL_TIME_PRIORITIES: std::ops::RangeInclusive<u8> = 1..=99;

const GRANT_REAL_TIME: &str = "run as root, grant CAP_SYS_NICE (setcap cap_sys_nice+ep on the program), or grant an rtprio limit \
     (a line such as '@realtime - rtprio 99' in /etc/security/limits.d, LimitRTPRIO= in a systemd unit); inside of a \
     cgroup v1 cpu group, give the group a cpu.rt_runtime_us";

/// Binds the calling thread to `core`.
///
/// # Errors
/// [`Refusal`] where the core is not online or not allowed to this process.
pub fn pin(core: CoreId) -> Result<(), Refusal> {
    pin_to(&[core])
}

/// Lets the calling thread run on any of `cores`.
///
/// # Errors
/// [`Refusal`] where none of them is online and allowed to this process.
pub fn pin_to(cores: &[CoreId]) -> Result<(), Refusal> {
    let what = || format!("running on cores {cores:?}");
    if cores.iter().any(|core| core.index() >= libc::CPU_SETSIZE as usize) {
        return Err(refused(
            what(),
            format!("core numbers end at {}", libc::CPU_SETSIZE - 1),
            "choose a core listed in /sys/devices/system/cpu/online",
        ));
    }
    let mut mask = CoreMask::default();
    cores.iter().for_each(|core| mask.set(*core, true));
    set_affinity(Tid(0), &mask).map_err(|why| {
        refused(
            what(),
            why,
            "choose a core listed in Cpus_allowed_list of /proc/self/status, or widen the cpuset or taskset of this process",
        )
    })
}

/// The cores that the calling thread may run on, ascending.
pub fn allowed_cores() -> Vec<CoreId> {
    // SAFETY: an all-zero cpu_set_t is the empty set, and the call fills at most its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set);
        set
    };
    (0..libc::CPU_SETSIZE as u32)
        .map(CoreId)
        // SAFETY: every index is below CPU_SETSIZE.
        .filter(|core| unsafe { libc::CPU_ISSET(core.index(), &set) })
        .collect()
}

/// Gives the calling thread real-time scheduling: `SCHED_FIFO` at `priority`, 1 (low) to 99 (high).
///
/// Threads started afterwards by this thread inherit it. What the kernel keeps back from real-time threads is told by
/// [`RealTimeLimits`](super::real_time::RealTimeLimits).
///
/// # Errors
/// [`Refusal`] without permission, or for a priority out of range.
pub fn real_time(priority: u8) -> Result<(), Refusal> {
    set_scheduling(Tid::current(), Scheduling::Fifo(priority))
}

/// How `thread` is scheduled, as set: a boost by priority inheritance does not show here.
///
/// # Errors
/// [`Refusal`] where there is no such thread, or its policy is none of [`Scheduling`]'s.
pub fn scheduling(thread: Tid) -> Result<Scheduling, Refusal> {
    let what = || format!("reading the scheduling of thread {thread}");
    let gone = |why: std::io::Error| refused(what(), why, "name a thread that is alive");
    let policy = policy_of(thread).map_err(gone)?;
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` is valid and filled by the call.
    if unsafe { libc::sched_getparam(thread.0, &mut param) } != 0 {
        return Err(gone(last_error()));
    }
    let priority = u8::try_from(param.sched_priority).unwrap_or(0);
    match policy & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_OTHER => Ok(Scheduling::Other {
            nice: nice_of(thread).map_err(gone)?,
        }),
        libc::SCHED_BATCH => Ok(Scheduling::Batch {
            nice: nice_of(thread).map_err(gone)?,
        }),
        libc::SCHED_IDLE => Ok(Scheduling::Idle),
        libc::SCHED_FIFO => Ok(Scheduling::Fifo(priority)),
        libc::SCHED_RR => Ok(Scheduling::RoundRobin(priority)),
        other => Err(refused(
            what(),
            format!("its policy, number {other}, is not one that we can set again"),
            "leave threads under SCHED_DEADLINE and sched_ext to whoever set them up",
        )),
    }
}

/// Schedules `thread` as told, and keeps its reset-on-fork flag.
///
/// # Errors
/// [`Refusal`] without permission, for a priority or a nice value out of range, or where there is no such thread;
/// its policy has not changed then.
pub fn set_scheduling(thread: Tid, scheduling: Scheduling) -> Result<(), Refusal> {
    let (policy, priority, nice) = match scheduling {
        Scheduling::Other { nice } => (libc::SCHED_OTHER, 0, Some(nice)),
        Scheduling::Batch { nice } => (libc::SCHED_BATCH, 0, Some(nice)),
        Scheduling::Idle => (libc::SCHED_IDLE, 0, None),
        Scheduling::Fifo(priority) => (libc::SCHED_FIFO, priority, None),
        Scheduling::RoundRobin(priority) => (libc::SCHED_RR, priority, None),
    };
    let refusal = |why: &dyn std::fmt::Display, remedy: &str| {
        refused(format!("scheduling thread {thread} as {scheduling:?}"), why, remedy)
    };
    if nice.is_none() && policy != libc::SCHED_IDLE && !REAL_TIME_PRIORITIES.contains(&priority) {
        return Err(refusal(
            &"there is no such priority",
            "choose a priority from 1 (low) to 99 (high)",
        ));
    }
    if nice.is_some_and(|nice| !(-20..=19).contains(&nice)) {
        return Err(refusal(
            &"there is no such nice value",
            "choose a nice value from -20 (most) to 19 (least)",
        ));
    }
    let refusal_of = |why: std::io::Error| match why.raw_os_error() {
        Some(libc::ESRCH) => refusal(&why, "name a thread that is alive"),
        _ => refusal(&why, GRANT_REAL_TIME),
    };
    let reset_on_fork = policy_of(thread).map_err(refusal_of)? & libc::SCHED_RESET_ON_FORK;
    // Nice first: should the policy be refused afterwards, the thread still runs under the one it had. The kernel
    // keeps nice values across policies, and setting an unchanged one could be refused for nothing.
    if let Some(nice) = nice
        && nice_of(thread).map_err(refusal_of)? != nice
    {
        set_nice(thread, nice).map_err(refusal_of)?;
    }
    let param = libc::sched_param {
        sched_priority: i32::from(priority),
    };
    // SAFETY: `param` is valid; the call only reads it.
    match unsafe { libc::sched_setscheduler(thread.0, policy | reset_on_fork, &param) } {
        0 => Ok(()),
        _ => Err(refusal_of(last_error())),
    }
}

/// The policy number of `thread`, with its reset-on-fork flag.
fn policy_of(thread: Tid) -> std::io::Result<i32> {
    // SAFETY: takes and returns plain numbers.
    let policy = unsafe { libc::sched_getscheduler(thread.0) };
    if policy < 0 { Err(last_error()) } else { Ok(policy) }
}

fn nice_of(thread: Tid) -> std::io::Result<i32> {
    // SAFETY: plain numbers. -1 is both an answer and a failure, so errno is cleared to tell them apart.
    let (nice, errno) = unsafe {
        *libc::__errno_location() = 0;
        let nice = libc::getpriority(libc::PRIO_PROCESS, thread.0 as libc::id_t);
        (nice, *libc::__errno_location())
    };
    if nice == -1 && errno != 0 {
        Err(std::io::Error::from_raw_os_error(errno))
    } else {
        Ok(nice)
    }
}

fn set_nice(thread: Tid, nice: i32) -> std::io::Result<()> {
    // SAFETY: plain numbers.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, thread.0 as libc::id_t, nice) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Locks all memory of the process, present and future, so that a real-time thread never waits for a page.
///
/// Raises the limit on locked memory first where that is allowed. Without such permission this refuses even if what
/// is mapped now would fit: a limit under `MCL_FUTURE` makes a later allocation fail, hours into a run.
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

/// Whether [`lock_memory`] is allowed, found out without locking anything.
pub fn may_lock_memory() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid and filled in by the call.
    let unlimited =
        unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) == 0 && limit.rlim_max == libc::RLIM_INFINITY };
    unlimited || has_capability(CAP_IPC_LOCK) || has_capability(CAP_SYS_RESOURCE)
}

/// Whether this user may set where and how the threads of others run.
pub(super) fn may_move_others() -> bool {
    has_capability(CAP_SYS_NICE)
}

/// Undoes [`lock_memory`].
pub fn unlock_memory() {
    // SAFETY: changes only how pages are kept.
    unsafe { libc::munlockall() };
}

/// Raises the limit on locked memory as far as allowed; whether there is none any more.
fn raise_memlock_limit() -> bool {
    let unlimited = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `unlimited` is valid; the call only reads it.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &unlimited) == 0 }
}

/// Bits in a capability mask (capabilities(7), linux/capability.h).
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_NICE: u32 = 23;
const CAP_SYS_RESOURCE: u32 = 24;

/// Whether the calling thread holds a capability, by the mask in its `/proc/<tid>/status`: rights are a thread's (capabilities(7)).
fn has_capability(bit: u32) -> bool {
    fs::read_to_string("/proc/thread-self/status").is_ok_and(|status| effective_capabilities(&status) >> bit & 1 == 1)
}

/// The mask of effective capabilities in the text of a `/proc/<pid>/status`; none where it does not say.
fn effective_capabilities(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// The CPU time that the calling thread has used since it started, in user and kernel mode.
pub fn thread_cpu_time() -> Nanos {
    clock::read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(Nanos::ZERO)
}

/// The CPU time that `thread`, one of this process, has used since it started; none once it has ended.
pub fn cpu_time_of(thread: Tid) -> Option<Nanos> {
    /// The clock of one thread, in scheduler time: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED, beside the complement of
    /// its number (linux/posix-timers.h; glibc's pthread_getcpuclockid makes the same number).
    const OF_A_THREAD: libc::clockid_t = 4 | 2;
    clock::read((!thread.0) << 3 | OF_A_THREAD)
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
    fn real_time_is_obtained_or_refused_with_a_remedy_and_can_be_given_back() {
        on_a_thread(|| {
            let found = scheduling(Tid::current()).unwrap();
            match real_time(10) {
                Ok(()) => {
                    assert_eq!(scheduling(Tid::current()), Ok(Scheduling::Fifo(10)));
                    set_scheduling(Tid::current(), found).unwrap();
                }
                Err(refusal) => {
                    eprintln!("skipped obtaining SCHED_FIFO: {refusal}");
                    assert!(refusal.remedy.contains("CAP_SYS_NICE"), "{refusal}");
                }
            }
            assert_eq!(scheduling(Tid::current()), Ok(found));
        });
    }

    #[test]
    fn any_thread_may_give_way() {
        on_a_thread(|| {
            let me = Tid::current();
            for wanted in [
                Scheduling::Batch { nice: 5 },
                Scheduling::Other { nice: 7 },
                Scheduling::Idle,
            ] {
                set_scheduling(me, wanted).unwrap();
                assert_eq!(scheduling(me), Ok(wanted));
            }
        });
    }

    #[test]
    fn values_out_of_range_and_dead_threads_are_refused_before_anything_changes() {
        on_a_thread(|| {
            let me = Tid::current();
            let found = scheduling(me).unwrap();
            for wrong in [
                Scheduling::Fifo(0),
                Scheduling::Fifo(100),
                Scheduling::RoundRobin(0),
                Scheduling::Other { nice: 20 },
            ] {
                assert!(set_scheduling(me, wrong).is_err(), "{wrong:?}");
            }
            assert_eq!(scheduling(me), Ok(found));
        });
        let dead = Tid(i32::MAX); // beyond the kernel's largest pid
        assert!(scheduling(dead).unwrap_err().remedy.contains("alive"));
        assert!(
            set_scheduling(dead, Scheduling::Idle)
                .unwrap_err()
                .remedy
                .contains("alive")
        );
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

    #[test]
    fn the_cpu_time_of_a_thread_is_read_from_another() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            while thread_cpu_time() < Nanos::from_millis(2) {}
            tell.send(Tid::current()).unwrap();
            let _ = ended.recv();
        });
        let worker_tid = told.recv().unwrap();
        assert!(cpu_time_of(worker_tid).is_some_and(|used| used >= Nanos::from_millis(2)));
        let own = [thread_cpu_time(), cpu_time_of(Tid::current()).unwrap(), thread_cpu_time()];
        assert!(own.is_sorted(), "{own:?}");
        drop(end);
        worker.join().unwrap();
    }

    #[test]
    fn cpu_time_passes_by_work_and_not_by_sleep() {
        let before = thread_cpu_time();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let slept = thread_cpu_time();
        assert!(slept - before < Nanos::from_millis(30), "sleeping is not CPU time");
        // Bounded by the clock under test: work until it has moved.
        while thread_cpu_time() == slept {
            std::hint::spin_loop();
        }
    }
}
