//! The clock of Linux: `CLOCK_MONOTONIC`, and `CLOCK_BOOTTIME` for ages.
//!
//! Why not the time-stamp counter, when the store stamps every transaction twice? Measured on a virtual machine with
//! an invariant TSC (clock source `tsc`, minimum of 15 runs of a million calls): `clock_gettime` through the vDSO
//! 37.1 ns, a scaled `rdtsc` 23.8 ns, but `rdtscp` 35.7 ns and `lfence; rdtsc` 37.1 ns. Only the unordered read is
//! cheaper, and it may move past the very work that it should time; the ordered ones cost what the vDSO costs. And a
//! private TSC scale drifts away from the clock that [`sleep_until`] and every futex deadline use, because the
//! kernel slews `CLOCK_MONOTONIC` to network time. So there is one clock for instants. Only spans inside of read
//! transactions, where nothing is compared with a deadline, are measured by the unordered read (`stamp.rs`).

use punctual_units::{Nanos, Time};

/// `CLOCK_MONOTONIC`: nanoseconds since boot, without the time spent suspended.
#[inline]
pub(super) fn now() -> Time {
    read(libc::CLOCK_MONOTONIC).map_or(Time::ZERO, |since| Time(since.0))
}

/// `CLOCK_BOOTTIME`: nanoseconds since boot, including the time spent suspended.
#[inline]
pub(super) fn since_boot() -> Time {
    read(libc::CLOCK_BOOTTIME).map_or_else(now, |since| Time(since.0))
}

/// Sleeps until `wake`, not shorter; returns at once if that instant has passed. Signals do not end the sleep early.
///
/// The deadline is absolute, so a periodic sleeper does not drift.
pub(super) fn sleep_until(wake: Time) {
    let wake = timespec(Nanos(wake.0));
    loop {
        // SAFETY: `wake` is a valid timespec for the whole call; an absolute sleep reports no remainder.
        let error =
            unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &wake, std::ptr::null_mut()) };
        if error != libc::EINTR {
            return;
        }
    }
}

/// Value of one of the kernel's clocks; `None` where the kernel has no such clock.
#[inline]
pub(super) fn read(clock: libc::clockid_t) -> Option<Nanos> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec that the call fills in.
    let error = unsafe { libc::clock_gettime(clock, &mut now) };
    (error == 0).then(|| Nanos(now.tv_sec as u64 * NANOS_PER_SEC + now.tv_nsec as u64))
}

/// Converts `span` for the kernel. The longest one is 584 years of seconds: it fits.
pub fn timespec(span: Nanos) -> libc::timespec {
    libc::timespec {
        tv_sec: (span.0 / NANOS_PER_SEC) as _,
        tv_nsec: (span.0 % NANOS_PER_SEC) as libc::c_long,
    }
}

const NANOS_PER_SEC: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn time_never_runs_backwards_across_threads() {
        let seen = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let published = seen.load(Ordering::SeqCst);
                        let now = now().0;
                        assert!(now >= published, "{now} after {published}");
                        seen.fetch_max(now, Ordering::SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn a_sleep_is_never_shorter_than_asked_and_a_past_instant_returns() {
        let wake = now() + Nanos::from_millis(2);
        sleep_until(wake);
        assert!(now() >= wake);
        sleep_until(Time::ZERO);
    }

    static SIGNALS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn count(_: libc::c_int) {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn a_signal_does_not_cut_a_sleep_short() {
        // SAFETY: the handler only touches an atomic, and no other test uses SIGUSR2.
        unsafe { libc::signal(libc::SIGUSR2, count as *const () as libc::sighandler_t) };
        let (send_thread, thread) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            // SAFETY: pthread_self is always valid in its own thread.
            send_thread.send(unsafe { libc::pthread_self() }).unwrap();
            let mut as_long_as_asked = true;
            while as_long_as_asked && SIGNALS.load(Ordering::SeqCst) < 5 {
                let wake = now() + Nanos::from_millis(20);
                sleep_until(wake);
                as_long_as_asked = now() >= wake;
            }
            as_long_as_asked
        });
        let thread = thread.recv().unwrap();
        while SIGNALS.load(Ordering::SeqCst) < 5 && !sleeper.is_finished() {
            sleep_until(now() + Nanos::from_millis(5));
            // SAFETY: the thread has not been joined, so its id is still valid even if it has ended.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR2) };
        }
        assert!(sleeper.join().unwrap());
    }
}
