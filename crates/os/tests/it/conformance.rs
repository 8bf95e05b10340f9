//! Both operating systems pass the conformance suite, and the suite catches what is planted.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use punctual_os::{Lock, Os, Park, Refusal, Scheduling, Thread, Tid, Wake};
use punctual_testing::conformance::os::{Violation, check, check_inheritance};
use punctual_testing::{VirtualLock, VirtualOs, VirtualParker, explore};
use punctual_units::{Clock, Nanos, Time};

const SEEDS: u64 = 20;

#[test]
fn virtual_systems_conform() {
    explore(0..SEEDS, |os| assert_eq!(check(os), Ok(())));
}

#[test]
fn virtual_holders_inherit() {
    explore(0..SEEDS, |os| {
        let runs_as = |thread| os.runs_as(thread);
        assert_eq!(check_inheritance(os, Nanos::from_secs(1), runs_as), Ok(true));
    });
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::Mutex;

    use punctual_os::LinuxOs;

    use super::*;

    #[test]
    fn linux_conforms() {
        assert_eq!(check(&LinuxOs), Ok(()));
    }

    /// The kernel's `prio` of a thread: field 18 of `/proc/<pid>/task/<tid>/stat`, -1 - priority under real time
    /// (proc(5)).
    fn runs_as(thread: Tid) -> u8 {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let after_name = &stat[stat.rfind(')').unwrap() + 2..];
        let priority: i32 = after_name.split(' ').nth(18 - 3).unwrap().parse().unwrap();
        u8::try_from(-1 - priority).unwrap_or(0)
    }

    #[test]
    fn linux_holders_inherit_where_real_time_is_permitted() {
        let answer = check_inheritance(&LinuxOs, Nanos::from_secs(20), runs_as);
        assert!(answer.is_ok(), "{answer:?}");
    }

    #[test]
    fn planted_fault_a_mutex_of_the_standard_library_does_not_inherit() {
        let answer = check_inheritance(&Std, Nanos::from_millis(200), runs_as);
        assert!(matches!(answer, Err(Violation::NotInherited) | Ok(false)), "{answer:?}");
    }

    /// Linux with the standard library's mutex.
    #[derive(Clone)]
    struct Std;
    struct StdLock<T>(Mutex<T>);

    impl<T: Send> Lock<T> for StdLock<T> {
        type Guard<'l>
            = std::sync::MutexGuard<'l, T>
        where
            Self: 'l;
        fn lock(&self) -> Self::Guard<'_> {
            self.0.lock().unwrap()
        }
        fn try_lock(&self) -> Option<Self::Guard<'_>> {
            self.0.try_lock().ok()
        }
    }

    impl Clock for Std {
        fn now(&self) -> Time {
            LinuxOs.now()
        }
    }

    impl Os for Std {
        type Lock<T: Send> = StdLock<T>;
        type Parker = <LinuxOs as Os>::Parker;
        fn new_lock<T: Send>(&self, data: T) -> StdLock<T> {
            StdLock(Mutex::new(data))
        }
        fn new_parker(&self) -> Self::Parker {
            LinuxOs.new_parker()
        }
        fn sleep_until(&self, wake: Time) {
            LinuxOs.sleep_until(wake);
        }
        fn this_thread(&self) -> Tid {
            LinuxOs.this_thread()
        }
        fn scheduling(&self, thread: Tid) -> Result<Scheduling, Refusal> {
            LinuxOs.scheduling(thread)
        }
        fn set_scheduling(&self, thread: Tid, scheduling: Scheduling) -> Result<(), Refusal> {
            LinuxOs.set_scheduling(thread, scheduling)
        }
        fn together(&self, threads: Vec<Thread<'_>>) {
            LinuxOs.together(threads);
        }
    }
}

/// What is wrong with a planted system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Its locks let every thread in.
    Open,
    /// `try_lock` finds every lock held.
    Shy,
    /// The thread that holds a lock gets it again.
    Reentrant,
    /// A lock that a thread leaves by a panic stays locked.
    Poisoned,
    /// A thread that waits for a lock looks again and again instead of lining up.
    Polls,
    /// A permit that comes before its thread parks is lost.
    Forgets,
    /// Parked threads wake without a permit.
    Nervous,
    /// Waits with a deadline end one nanosecond early.
    Early,
    /// Threads read clocks that differ.
    Skewed,
}

#[test]
fn planted_faults_are_caught() {
    let planted = [
        (Fault::Open, Violation::TwoInside),
        (Fault::Shy, Violation::TryLock),
        (Fault::Reentrant, Violation::LockedTwice),
        (Fault::Poisoned, Violation::LeftLocked),
        (Fault::Forgets, Violation::Lost),
        (Fault::Nervous, Violation::Invented),
        (Fault::Early, Violation::TooShort),
        (Fault::Skewed, Violation::Backwards),
    ];
    for (fault, violation) in planted {
        let verdict = |seed| check(&FaultyOs(VirtualOs::new(seed), fault));
        let caught = (0..SEEDS).any(|seed| verdict(seed) == Err(violation));
        assert!(caught, "{fault:?}: {:?} with seed 0", verdict(0));
    }
}

#[test]
fn planted_fault_a_lock_that_polls_does_not_inherit() {
    explore(0..SEEDS, |os| {
        let runs_as = |thread| os.runs_as(thread);
        let found = check_inheritance(&FaultyOs(os.clone(), Fault::Polls), Nanos::from_millis(10), runs_as);
        assert_eq!(found, Err(Violation::NotInherited));
    });
}

/// A virtual system with a fault.
#[derive(Clone)]
struct FaultyOs(VirtualOs, Fault);

struct PlantedLock<T> {
    os: FaultyOs,
    lock: VirtualLock<()>,
    holder: AtomicI32,
    data: UnsafeCell<T>,
}

// SAFETY: threads of a virtual system run one at a time, and guards make references for single expressions only, in
// which no thread is changed: even a lock that lets every thread in makes no two references at a time.
unsafe impl<T: Send> Sync for PlantedLock<T> {}

struct PlantedGuard<'l, T> {
    held: Option<<VirtualLock<()> as Lock<()>>::Guard<'l>>,
    lock: &'l PlantedLock<T>,
}

const NO_HOLDER: i32 = -1;

impl<T: Send> Lock<T> for PlantedLock<T> {
    type Guard<'l>
        = PlantedGuard<'l, T>
    where
        Self: 'l;

    fn lock(&self) -> PlantedGuard<'_, T> {
        let FaultyOs(os, fault) = &self.os;
        let me = os.this_thread().0;
        let held = match fault {
            Fault::Open => None,
            Fault::Reentrant if self.holder.load(Ordering::Relaxed) == me => None,
            Fault::Polls => loop {
                match self.lock.try_lock() {
                    Some(held) => break Some(held),
                    None => os.sleep(Nanos::from_micros(1)),
                }
            },
            _ => Some(self.lock.lock()),
        };
        self.holder.store(me, Ordering::Relaxed);
        PlantedGuard { held, lock: self }
    }

    fn try_lock(&self) -> Option<PlantedGuard<'_, T>> {
        match self.os.1 {
            Fault::Shy => None,
            _ => self.lock.try_lock().map(|held| PlantedGuard {
                held: Some(held),
                lock: self,
            }),
        }
    }
}

impl<T> Deref for PlantedGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: as for `Sync` above.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T> DerefMut for PlantedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `Sync` above.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T> Drop for PlantedGuard<'_, T> {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.lock.holder.store(NO_HOLDER, Ordering::Relaxed);
        }
        if self.lock.os.1 == Fault::Poisoned && std::thread::panicking() {
            std::mem::forget(self.held.take());
        }
    }
}

struct PlantedParker {
    fault: Fault,
    place: VirtualParker,
    parked: AtomicBool,
}

impl Park for PlantedParker {
    fn park_until(&self, deadline: Time) -> Wake {
        let deadline = match self.fault {
            Fault::Nervous => return Wake::Woken,
            Fault::Early => deadline - Nanos(1),
            _ => deadline,
        };
        self.parked.store(true, Ordering::Relaxed);
        let wake = self.place.park_until(deadline);
        self.parked.store(false, Ordering::Relaxed);
        wake
    }

    fn unpark(&self) {
        if self.fault != Fault::Forgets || self.parked.load(Ordering::Relaxed) {
            self.place.unpark();
        }
    }
}

impl Clock for FaultyOs {
    fn now(&self) -> Time {
        let error = match self.1 {
            Fault::Skewed => Nanos(self.0.this_thread().0 as u64 * 1_000),
            _ => Nanos::ZERO,
        };
        self.0.now() + error
    }
}

impl Os for FaultyOs {
    type Lock<T: Send> = PlantedLock<T>;
    type Parker = PlantedParker;

    fn new_lock<T: Send>(&self, data: T) -> PlantedLock<T> {
        PlantedLock {
            os: self.clone(),
            lock: self.0.new_lock(()),
            holder: AtomicI32::new(NO_HOLDER),
            data: UnsafeCell::new(data),
        }
    }

    fn new_parker(&self) -> PlantedParker {
        PlantedParker {
            fault: self.1,
            place: self.0.new_parker(),
            parked: AtomicBool::new(false),
        }
    }

    fn sleep_until(&self, wake: Time) {
        self.0.sleep_until(wake);
    }

    fn this_thread(&self) -> Tid {
        self.0.this_thread()
    }

    fn scheduling(&self, thread: Tid) -> Result<Scheduling, Refusal> {
        self.0.scheduling(thread)
    }

    fn set_scheduling(&self, thread: Tid, scheduling: Scheduling) -> Result<(), Refusal> {
        self.0.set_scheduling(thread, scheduling)
    }

    fn together(&self, threads: Vec<Thread<'_>>) {
        self.0.together(threads);
    }
}
