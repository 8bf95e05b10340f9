//! What every [`Os`] must do: [`check`] tries it, on real threads or virtual ones.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use punctual_units::{Nanos, Time};

use punctual_os::{Lock, Os, Park, Scheduling, Thread, Tid, Wake};

/// What an os did that it must not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Two threads held one lock.
    #[error("two threads were inside of one critical section")]
    TwoInside,
    /// `try_lock` gave out a lock that was held, or kept back one that was free.
    #[error("try_lock does not tell whether the lock is free")]
    TryLock,
    /// The thread that holds a lock locked it again, and nothing happened.
    #[error("a lock was given out twice to one thread")]
    LockedTwice,
    /// A lock stayed locked after a panic inside of it.
    #[error("a panic inside of the critical section did not unlock")]
    LeftLocked,
    /// A holder did not run as urgently as the thread that waited for it.
    #[error("the holder of a lock did not inherit the priority of a thread that waited for it")]
    NotInherited,
    /// A permit was lost, or what was written before it was not seen.
    #[error("a wake-up was lost")]
    Lost,
    /// A permit came from nowhere.
    #[error("a thread was woken without a permit")]
    Invented,
    /// A wait ended before its instant.
    #[error("a wait with a deadline ended before it")]
    TooShort,
    /// The clock ran backwards.
    #[error("the clock ran backwards")]
    Backwards,
}

/// How often each race is tried.
const ROUNDS: u64 = 500;
/// A wait that nothing else bounds ends after this time, and is a lost wake-up then.
const PATIENCE: Nanos = Nanos::from_secs(crate::WAIT_MAX.as_secs());

/// Tries everything but inheritance.
///
/// # Errors
/// The first [`Violation`].
pub fn check<O: Os>(os: &O) -> Result<(), Violation> {
    one_thread_is_inside(os)?;
    try_lock_tells(os)?;
    locking_twice_panics(os)?;
    a_panic_unlocks(os)?;
    early_permits_are_kept_and_count_once(os)?;
    deadlines_end_waits(os)?;
    no_wake_up_is_lost(os)?;
    time_goes_on(os)
}

fn holds(condition: bool, otherwise: Violation) -> Result<(), Violation> {
    if condition { Ok(()) } else { Err(otherwise) }
}

fn one_thread_is_inside<O: Os>(os: &O) -> Result<(), Violation> {
    let lock = os.new_lock(0u64);
    let (inside, clash) = (AtomicBool::new(false), AtomicBool::new(false));
    let body = || {
        for round in 0..ROUNDS {
            let mut count = lock.lock();
            clash.fetch_or(inside.swap(true, Ordering::SeqCst), Ordering::SeqCst);
            let seen = *count;
            if round % 64 == 0 {
                os.sleep(Nanos::from_micros(1)); // others run, or try to
            }
            *count = seen + 1;
            inside.store(false, Ordering::SeqCst);
        }
    };
    let threads = (0..4).map(|number| Thread::new(format!("contender {number}"), body));
    os.together(threads.collect());
    holds(!clash.into_inner() && *lock.lock() == 4 * ROUNDS, Violation::TwoInside)
}

fn try_lock_tells<O: Os>(os: &O) -> Result<(), Violation> {
    let lock = os.new_lock(());
    let given_out = AtomicBool::new(false);
    let held = lock.lock();
    let attempt = || given_out.store(lock.try_lock().is_some(), Ordering::SeqCst);
    os.together(vec![Thread::new("tries", attempt)]);
    drop(held);
    holds(!given_out.into_inner() && lock.try_lock().is_some(), Violation::TryLock)
}

fn locking_twice_panics<O: Os>(os: &O) -> Result<(), Violation> {
    let lock = os.new_lock(());
    let held = lock.lock();
    let again = catch_unwind(AssertUnwindSafe(|| drop(lock.lock())));
    drop(held);
    holds(again.is_err(), Violation::LockedTwice)
}

fn a_panic_unlocks<O: Os>(os: &O) -> Result<(), Violation> {
    let lock = os.new_lock(1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        *lock.lock() = 2;
        let _held = lock.lock();
        std::panic::resume_unwind(Box::new("inside of the critical section"));
    }));
    let kept = lock.try_lock().map(|value| *value);
    holds(panicked.is_err() && kept == Some(2), Violation::LeftLocked)
}

fn early_permits_are_kept_and_count_once<O: Os>(os: &O) -> Result<(), Violation> {
    let place = os.new_parker();
    place.unpark();
    place.unpark();
    let first = place.park_until(os.now() + PATIENCE);
    holds(first == Wake::Woken, Violation::Lost)?;
    holds(place.park_until(Time::ZERO) == Wake::TimedOut, Violation::Invented)
}

fn deadlines_end_waits<O: Os>(os: &O) -> Result<(), Violation> {
    let place = os.new_parker();
    for micros in [0, 1, 200, 2_000] {
        let deadline = os.now() + Nanos::from_micros(micros);
        holds(place.park_until(deadline) == Wake::TimedOut, Violation::Invented)?;
        holds(os.now() >= deadline, Violation::TooShort)?;
        let wake = os.now() + Nanos::from_micros(micros);
        os.sleep_until(wake);
        holds(os.now() >= wake, Violation::TooShort)?;
    }
    os.sleep_until(Time::ZERO); // an instant that has passed
    Ok(())
}

/// Two threads wake each other in turn; one of them waits with deadlines so short that many pass.
fn no_wake_up_is_lost<O: Os>(os: &O) -> Result<(), Violation> {
    let (ping, pong, written) = (os.new_parker(), os.new_parker(), AtomicU64::new(0));
    let verdict = Mutex::new(Ok(()));
    let blame = |violation| *verdict.lock().unwrap() = Err(violation);
    let answers = || {
        for round in 1..=ROUNDS {
            if ping.park_until(os.now() + PATIENCE) == Wake::TimedOut {
                return blame(Violation::Lost);
            }
            if written.load(Ordering::Relaxed) != round {
                return blame(Violation::Invented);
            }
            pong.unpark();
        }
    };
    let asks = || {
        for round in 1..=ROUNDS {
            written.store(round, Ordering::Relaxed);
            ping.unpark();
            let patience = os.now() + PATIENCE;
            while pong.park_until(os.now() + Nanos::from_micros(round % 50)) == Wake::TimedOut {
                if os.now() > patience {
                    return blame(Violation::Lost);
                }
                os.sleep(Nanos(1));
            }
        }
    };
    os.together(vec![Thread::new("answers", answers), Thread::new("asks", asks)]);
    verdict.into_inner().unwrap()
}

fn time_goes_on<O: Os>(os: &O) -> Result<(), Violation> {
    let latest = AtomicU64::new(0);
    let backwards = AtomicBool::new(false);
    let body = || {
        for round in 0..ROUNDS {
            let published = latest.load(Ordering::SeqCst);
            let now = os.now().0;
            backwards.fetch_or(now < published, Ordering::SeqCst);
            latest.fetch_max(now, Ordering::SeqCst);
            if round % 64 == 0 {
                os.sleep(Nanos(1));
            }
        }
    };
    let threads = (0..2).map(|number| Thread::new(format!("reader {number}"), body));
    os.together(threads.collect());
    holds(!backwards.into_inner(), Violation::Backwards)
}

/// The priorities of the threads in [`check_inheritance`].
const LOW: u8 = 10;
const MIDDLE: u8 = 15;
const HIGH: u8 = 20;

/// A low thread holds a lock that a high one waits for, while a middle one wants to run: the low one must be seen to
/// run as the high one. `runs_as` answers for a thread of this os as what it runs right now, inherited priorities
/// included. Says `false` where threads may not have real-time priorities, so that there is nothing to check.
///
/// # Errors
/// [`Violation::NotInherited`].
pub fn check_inheritance<O: Os>(
    os: &O,
    patience: Nanos,
    runs_as: impl Fn(Tid) -> u8 + Sync,
) -> Result<bool, Violation> {
    let lock = os.new_lock(());
    let (locked, release) = (os.new_parker(), os.new_parker());
    let holder = AtomicU32::new(0);
    let (permitted, inherited) = (AtomicBool::new(true), AtomicBool::new(false));
    let becomes = |priority| {
        let me = os.this_thread();
        os.set_scheduling(me, Scheduling::Fifo(priority)).is_ok()
    };
    let low = || {
        permitted.store(becomes(LOW), Ordering::SeqCst);
        let _held = lock.lock();
        holder.store(os.this_thread().0 as u32, Ordering::SeqCst);
        locked.unpark();
        release.park_until(os.now() + PATIENCE);
    };
    let high = || {
        if permitted.load(Ordering::SeqCst) && becomes(HIGH) {
            drop(lock.lock());
        }
    };
    let middle = || {
        becomes(MIDDLE);
        let tid = Tid(holder.load(Ordering::SeqCst) as i32);
        let until = os.now() + patience;
        while !inherited.load(Ordering::SeqCst) && permitted.load(Ordering::SeqCst) && os.now() < until {
            inherited.store(runs_as(tid) == HIGH, Ordering::SeqCst);
            os.sleep(Nanos::from_micros(500));
        }
        release.unpark();
    };
    let after = || {
        locked.park_until(os.now() + PATIENCE);
        os.together(vec![Thread::new("high", high), Thread::new("middle", middle)]);
    };
    os.together(vec![Thread::new("low", low), Thread::new("first", after)]);
    if !permitted.into_inner() {
        return Ok(false);
    }
    holds(inherited.into_inner(), Violation::NotInherited).map(|()| true)
}
