//! Scheduling of threads, their names, and their CPU times.
//!
//! All of this belongs to the thread and ends with it; nothing is left on the machine.

use punctual_units::Nanos;

use super::{clock, errno, last_error, refused};
use crate::{REAL_TIME_PRIORITIES, Refusal, Scheduling, Tid};

impl Tid {
    /// Id of the calling thread.
    pub fn current() -> Tid {
        // SAFETY: gettid takes nothing and cannot fail.
        Tid(unsafe { libc::gettid() })
    }
}

const GRANT_REAL_TIME: &str = "run as root, grant CAP_SYS_NICE (setcap cap_sys_nice+ep on the program), or grant an \
     rtprio limit (a line such as '@realtime - rtprio 99' in /etc/security/limits.d, LimitRTPRIO= in a systemd unit); \
     inside of a cgroup v1 cpu group, give the group a cpu.rt_runtime_us";

/// Gives the calling thread real-time scheduling: `SCHED_FIFO` at `priority`, 1 (low) to 99 (high).
///
/// Threads started afterwards by this thread inherit it. `RealTimeLimits` in `punctual-platform` reports the kernel's
/// limits on real-time threads.
///
/// # Errors
/// [`Refusal`] without permission, or for a priority out of range.
pub fn real_time(priority: u8) -> Result<(), Refusal> {
    set_scheduling(Tid::current(), Scheduling::Fifo(priority))
}

/// Scheduling of `thread`, as set: a boost by priority inheritance does not show here.
///
/// # Errors
/// [`Refusal`] where there is no such thread, or [`Scheduling`] has no variant for its policy.
pub fn scheduling(thread: Tid) -> Result<Scheduling, Refusal> {
    let what = || format!("reading the scheduling of thread {thread}");
    let gone = |why: std::io::Error| refused(what(), why, "name a thread that is alive");
    let (policy, priority) = policy_of(thread)
        .map_err(std::io::Error::from_raw_os_error)
        .map_err(gone)?;
    let priority = u8::try_from(priority).unwrap_or(0);
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
            "leave threads under SCHED_DEADLINE and sched_ext to the program that set them up",
        )),
    }
}

/// Scheduling for the thread that `thread` waits for. A thread under `SCHED_DEADLINE` has a runtime and a period that
/// are admitted for it alone; it lends the highest priority instead, above all other threads that could delay it.
///
/// # Errors
/// As for [`scheduling`].
pub fn scheduling_to_lend(thread: Tid) -> Result<Scheduling, Refusal> {
    match policy_of(thread) {
        Ok((policy, _)) if policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_DEADLINE => {
            Ok(Scheduling::Fifo(*REAL_TIME_PRIORITIES.end()))
        }
        _ => scheduling(thread),
    }
}

/// Name of `thread`, of any process; at most 15 bytes (prctl(2), `PR_SET_NAME`), those that are no UTF-8 replaced.
/// `None` once the thread has ended.
pub fn name_of(thread: Tid) -> Option<String> {
    let name = std::fs::read(format!("/proc/{thread}/comm")).ok()?;
    let name = String::from_utf8_lossy(name.trim_ascii_end());
    (!name.is_empty()).then(|| name.into_owned())
}

/// Sets the scheduling of `thread`, and keeps its reset-on-fork flag.
///
/// # Errors
/// [`Refusal`] without permission, for a priority or a nice value out of range, or where there is no such thread; its
/// policy is then unchanged.
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
    let reset_on_fork = policy_of(thread)
        .map_err(std::io::Error::from_raw_os_error)
        .map_err(refusal_of)?
        .0
        & libc::SCHED_RESET_ON_FORK;
    // Nice first: should the policy be refused afterwards, the thread still runs under its old one. The kernel keeps
    // nice values across policies, and setting an unchanged value could be refused for nothing.
    if let Some(nice) = nice
        && nice_of(thread).map_err(refusal_of)? != nice
    {
        set_nice(thread, nice).map_err(refusal_of)?;
    }
    let wanted = (policy | reset_on_fork, i32::from(priority));
    set_policy(thread, wanted)
        .map_err(std::io::Error::from_raw_os_error)
        .map_err(refusal_of)
}

/// Policy of `thread`, with its flags, and its real-time priority (sched_getscheduler(2)).
///
/// # Errors
/// The error number of the system (errno(3)). Nothing is allocated: a child may call this between fork and exec.
pub fn policy_of(thread: Tid) -> Result<(i32, i32), i32> {
    let mut priority = 0_i32;
    // SAFETY: a number, and a valid `sched_param`, of which the kernel knows the priority alone. System calls, because
    // the functions of musl's library of these names refuse all threads.
    unsafe {
        match libc::syscall(libc::SYS_sched_getscheduler, thread.0) {
            policy if policy >= 0 && libc::syscall(libc::SYS_sched_getparam, thread.0, &mut priority) == 0 => {
                Ok((policy as i32, priority))
            }
            _ => Err(errno()),
        }
    }
}

/// Sets the policy of `thread`, with its flags, and its real-time priority (sched_setscheduler(2)).
///
/// # Errors
/// As of [`policy_of`].
pub fn set_policy(thread: Tid, (policy, priority): (i32, i32)) -> Result<(), i32> {
    // SAFETY: numbers, and a valid `sched_param`, which the call only reads; see `policy_of`.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread.0, policy, &priority) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

fn nice_of(thread: Tid) -> std::io::Result<i32> {
    // SAFETY: plain numbers. -1 is both a value and a failure, so errno is cleared to distinguish them.
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

/// CPU time of the calling thread since its start, in user and kernel mode.
pub fn thread_cpu_time() -> Nanos {
    clock::read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(Nanos::ZERO)
}

/// CPU time of `thread`, which belongs to this process, since its start; `None` once it has ended.
pub fn cpu_time_of(thread: Tid) -> Option<Nanos> {
    /// Clock of one thread, in scheduler time: CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED, beside the complement of its
    /// number (linux/posix-timers.h; glibc's pthread_getcpuclockid makes the same number).
    const OF_A_THREAD: libc::clockid_t = 4 | 2;
    clock::read((!thread.0) << 3 | OF_A_THREAD)
}

/// CPU time of a process, any of this machine, since its start; `None` once it has ended.
pub fn process_cpu_time_of(process: u32) -> Option<Nanos> {
    /// Clock of all threads of a process: CPUCLOCK_SCHED.
    const OF_A_PROCESS: libc::clockid_t = 2;
    clock::read((!i32::try_from(process).ok()?) << 3 | OF_A_PROCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `body` on a thread of its own: scheduling and affinity are a thread's.
    fn on_a_thread(body: impl FnOnce() + Send + 'static) {
        std::thread::spawn(body).join().unwrap();
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
        let own = [
            thread_cpu_time(),
            cpu_time_of(Tid::current()).unwrap(),
            thread_cpu_time(),
        ];
        assert!(own.is_sorted(), "{own:?}");
        drop(end);
        worker.join().unwrap();
    }

    #[test]
    fn cpu_time_passes_by_work_and_not_by_sleep() {
        let before = thread_cpu_time();
        // The time that must not be counted.
        std::thread::sleep(std::time::Duration::from_millis(30));
        let slept = thread_cpu_time();
        assert!(slept - before < Nanos::from_millis(30), "sleeping is not CPU time");
        // Bounded by the clock under test: work until it has moved.
        let of_all = process_cpu_time_of(std::process::id()).unwrap();
        assert!(of_all >= slept, "this thread is one of them");
        assert_eq!(process_cpu_time_of(u32::MAX), None);
        while thread_cpu_time() == slept {
            std::hint::spin_loop();
        }
    }
}
