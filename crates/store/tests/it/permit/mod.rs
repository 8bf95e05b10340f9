//! Every order of the stores of the permit's queue under the model checker `loom`: one thread at a time has it, each
//! thread that waits gets it or gives up, and nothing is left behind.

// Models run on stacks of their own, which ThreadSanitizer cannot follow.
#![cfg(not(sanitized))]
#![cfg(target_os = "linux")]
#![allow(dead_code, reason = "the model does not use all of it")]
#![allow(clippy::duplicate_mod, reason = "once with each set of atomics")]

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc; // loom's own cannot be dropped once a deadlock was found

use loom::cell::UnsafeCell;
use loom::sync::{Mutex, MutexGuard};
use loom::thread;
use punctual_os::{Lock, Os, Park, Refusal, Scheduling, Thread, Tid, Wake};
use punctual_units::{Clock, Time};

#[path = "../../../src/permit/queue.rs"]
mod queue;

/// The queue with places for few: each place is made anew in each history.
mod short {
    pub(crate) use crate::permit::queue::{Ticket, WaitQueue};
    pub(crate) const WAITERS_MAX: usize = 2;
}

/// Loom's atomics, in the place of those of the standard library, and a modelled kernel.
#[path = "."]
mod sound {
    #[path = "../../../../os/tests/modelled/futex.rs"]
    pub mod futex;
    #[path = "../../../src/permit/granting.rs"]
    pub mod granting;
    #[path = "../../../../os/src/linux/parker.rs"]
    pub mod parker;

    use crate::permit::short as queue;
    mod atomics {
        pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    }

    pub fn free_places<O: punctual_os::Os>(permits: &granting::PermitQueue<O>) -> usize {
        punctual_os::Lock::lock(&permits.state).free_places.len()
    }
}

/// Planted: calling a waiter releases nothing.
#[path = "."]
mod relaxed {
    #[path = "../../../src/permit/granting.rs"]
    pub mod granting;

    use crate::permit::short as queue;
    #[allow(non_upper_case_globals, reason = "in the place of the variants of an enum")]
    mod atomics {
        pub(super) use loom::sync::atomic::AtomicU64;

        pub(super) struct Ordering;
        impl Ordering {
            pub const Acquire: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Acquire;
            pub const Release: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Relaxed;
        }
    }

    pub fn free_places<O: punctual_os::Os>(permits: &granting::PermitQueue<O>) -> usize {
        punctual_os::Lock::lock(&permits.state).free_places.len()
    }
}

/// Planted: places that lose a wake-up.
#[path = "."]
mod torn {
    #[path = "../../../../os/tests/modelled/torn.rs"]
    mod atomics;
    #[path = "../../../../os/tests/modelled/futex.rs"]
    pub mod futex;
    #[path = "../../../../os/src/linux/parker.rs"]
    pub mod parker;
}

/// How often a thread is interrupted in one history: more take minutes.
const PREEMPTIONS: usize = 4;

loom::thread_local! {
    static NUMBER: Cell<i32> = Cell::new(0);
}

/// Threads of the model, whose places are `P`. No priorities are inherited.
struct Model<P>(PhantomData<fn() -> P>);

impl<P> Clone for Model<P> {
    fn clone(&self) -> Self {
        Model(PhantomData)
    }
}

impl<P> Clock for Model<P> {
    fn now(&self) -> Time {
        Time::ZERO
    }
}

struct ModelLock<T>(Mutex<T>);

impl<T: Send> Lock<T> for ModelLock<T> {
    type Guard<'l>
        = MutexGuard<'l, T>
    where
        T: 'l;

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

impl<P: Park + Default + 'static> Os for Model<P> {
    type Lock<T: Send> = ModelLock<T>;
    type Parker = P;

    fn new_lock<T: Send>(&self, data: T) -> ModelLock<T> {
        ModelLock(Mutex::new(data))
    }

    fn new_parker(&self) -> P {
        P::default()
    }

    fn sleep_until(&self, _: Time) {
        thread::yield_now();
    }

    fn this_thread(&self) -> Tid {
        Tid(NUMBER.with(Cell::get))
    }

    fn scheduling(&self, _: Tid) -> Result<Scheduling, Refusal> {
        Err(none())
    }

    fn set_scheduling(&self, _: Tid, _: Scheduling) -> Result<(), Refusal> {
        Err(none())
    }

    fn together(&self, _: Vec<Thread<'_>>) {
        unreachable!("the model spawns its threads itself");
    }
}

fn none() -> Refusal {
    Refusal {
        what: "scheduling".into(),
        why: "the model has none".into(),
        remedy: String::new(),
    }
}

macro_rules! park {
    ($parker:ty) => {
        impl Park for $parker {
            fn park_until(&self, deadline: Time) -> Wake {
                <$parker>::park_until(self, deadline)
            }
            fn unpark(&self) {
                <$parker>::unpark(self);
            }
        }
    };
}
park!(sound::parker::Parker);
park!(torn::parker::Parker);

/// A place that wakes its thread again and again, for no reason and with no order: then all order is the queue's.
#[derive(Default)]
struct Restless;

impl Park for Restless {
    fn park_until(&self, _: Time) -> Wake {
        thread::yield_now();
        Wake::Woken
    }

    fn unpark(&self) {}
}

/// What the permit guards. Loom tells of each access that is not ordered after the one before.
struct GuardedCount<Q> {
    permits: Q,
    count: UnsafeCell<u64>,
}

// SAFETY: loom tells of an access that is not ordered.
unsafe impl<Q: Sync> Sync for GuardedCount<Q> {}
// SAFETY: as above.
unsafe impl<Q: Send> Send for GuardedCount<Q> {}

impl<Q> GuardedCount<Q> {
    fn add(&self) {
        // SAFETY: as above.
        self.count.with_mut(|count| unsafe { *count += 1 });
    }
}

/// Two threads take the permit, the second one until `$until`, and without a bound where that has come.
macro_rules! model {
    ($set:ident, $parker:ty, $until:expr, $passes:expr) => {{
        use $set::granting::{Denied, PermitQueue};
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(PREEMPTIONS);
        model.check(|| {
            let guarded = Arc::new(GuardedCount {
                permits: PermitQueue::new(Model::<$parker>(PhantomData)),
                count: UnsafeCell::new(0),
            });
            let takes = |number: i32, until: Time| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || {
                    NUMBER.with(|own| own.set(number));
                    let deadline = Time(10 - number as u64);
                    let permit = guarded.permits.acquire(deadline, until).or_else(|denied| {
                        assert!(matches!(denied, Denied::TimedOut(held) if held.thread == Tid(1)), "{denied:?}");
                        guarded.permits.acquire(deadline, Time::MAX)
                    });
                    guarded.add();
                    drop(permit.unwrap());
                })
            };
            let threads = [takes(1, Time::MAX), takes(2, $until)];
            $passes();
            for thread in threads {
                thread.join().unwrap();
            }
            let permit = guarded.permits.try_acquire(Time::ZERO).expect("no thread holds it");
            guarded.add();
            // SAFETY: as above.
            assert_eq!(guarded.count.with(|count| unsafe { *count }), 3);
            assert!(!permit.is_wanted());
            drop(permit);
            assert_eq!($set::free_places(&guarded.permits), short::WAITERS_MAX, "a place was lost");
        });
    }};
}

fn never() {}

#[test]
fn one_thread_at_a_time_has_the_permit_and_none_waits_for_ever() {
    model!(sound, sound::parker::Parker, Time::MAX, never);
}

#[test]
fn a_thread_gives_up_or_has_the_permit_that_came_with_its_deadline() {
    model!(sound, sound::parker::Parker, Time(1), sound::futex::expire);
}

#[test]
fn wake_ups_for_no_reason_give_no_permit() {
    model!(sound, Restless, Time::MAX, never);
}

#[test]
#[should_panic]
fn planted_fault_a_call_that_releases_nothing_is_found() {
    model!(relaxed, Restless, Time::MAX, never);
}

#[test]
#[should_panic(expected = "deadlock")]
fn planted_fault_a_wake_up_that_is_lost_is_found() {
    model!(sound, torn::parker::Parker, Time::MAX, never);
}
