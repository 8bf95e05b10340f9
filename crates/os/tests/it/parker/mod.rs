//! Every order of the stores of a parking place, and every order in which another core may see them, under the model
//! checker `loom`. And the place itself, which hands on what no atomic guards: under Miri and ThreadSanitizer an access
//! that is not ordered is told (`.ci/nightly miri`, `.ci/nightly tsan`).

#![cfg(target_os = "linux")]
#![allow(dead_code, reason = "the model does not use all of it")]
#![allow(clippy::duplicate_mod, reason = "once with each set of atomics")]

use std::sync::Arc; // loom's own cannot be dropped once a deadlock was found

use loom::cell::UnsafeCell;
use loom::thread;
use punctual_os::Wake;
use punctual_units::Time;

/// Loom's atomics, in the place of those of the standard library, and a modelled kernel.
#[path = "."]
mod sound {
    #[path = "../../modelled/futex.rs"]
    pub mod futex;
    #[path = "../../../src/linux/parker.rs"]
    pub mod parker;

    mod atomics {
        pub(super) use loom::sync::atomic::{AtomicU32, Ordering};
    }
}

/// Planted: giving a permit releases nothing.
#[path = "."]
mod relaxed {
    #[path = "../../modelled/futex.rs"]
    pub mod futex;
    #[path = "../../../src/linux/parker.rs"]
    pub mod parker;

    #[allow(non_upper_case_globals, reason = "in the place of the variants of an enum")]
    mod atomics {
        pub(super) use loom::sync::atomic::AtomicU32;

        pub(super) struct Ordering;
        impl Ordering {
            pub const Relaxed: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Relaxed;
            pub const Acquire: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Acquire;
            pub const Release: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Relaxed;
        }
    }
}

/// Planted: the word is looked at, and then set.
#[path = "."]
mod torn {
    #[path = "../../modelled/torn.rs"]
    mod atomics;
    #[path = "../../modelled/futex.rs"]
    pub mod futex;
    #[path = "../../../src/linux/parker.rs"]
    pub mod parker;
}

/// A place, and what is handed on there.
struct HandedValue<P> {
    place: P,
    content: UnsafeCell<u64>,
}

// SAFETY: loom tells of an access to the content that is not ordered.
unsafe impl<P: Sync> Sync for HandedValue<P> {}
// SAFETY: as above.
unsafe impl<P: Send> Send for HandedValue<P> {}

impl<P> HandedValue<P> {
    fn put(&self) {
        // SAFETY: as above.
        self.content.with_mut(|content| unsafe { *content = 1 });
    }

    fn look(&self) {
        // SAFETY: as above.
        assert_eq!(self.content.with(|content| unsafe { *content }), 1);
    }
}

macro_rules! model {
    ($set:ident, $until:expr) => {{
        use $set::{futex::expire, parker::Parker};
        loom::model(|| {
            let handed = Arc::new(HandedValue {
                place: Parker::new(),
                content: UnsafeCell::new(0),
            });
            let gives = {
                let handed = Arc::clone(&handed);
                thread::spawn(move || {
                    handed.put();
                    handed.place.unpark();
                })
            };
            let waits = thread::spawn(move || {
                // A wait that ended by its deadline leaves the permit to the next one.
                if handed.place.park_until($until) == Wake::TimedOut {
                    assert_eq!(handed.place.park_until(Time::MAX), Wake::Woken);
                }
                handed.look();
            });
            if $until != Time::MAX {
                expire();
            }
            gives.join().unwrap();
            waits.join().unwrap();
        });
    }};
}

#[test]
fn what_was_written_before_a_permit_is_seen_after_it() {
    model!(sound, Time::MAX);
}

#[test]
fn a_permit_that_comes_with_the_deadline_is_taken_or_kept() {
    model!(sound, Time(1));
}

#[test]
#[should_panic]
fn planted_fault_a_permit_that_releases_nothing_is_found() {
    model!(relaxed, Time::MAX);
}

#[test]
#[should_panic(expected = "deadlock")]
fn planted_fault_a_permit_that_is_overwritten_is_found() {
    model!(torn, Time::MAX);
}

/// How often the place itself hands something on.
const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };

/// The place as it is: two threads hand a number to and fro, and each adds one.
#[test]
fn real_places_hand_on_what_no_atomic_guards() {
    use punctual_os::linux::sync::Parker;

    struct Number(std::cell::UnsafeCell<u64>);
    // SAFETY: the places say which thread may touch the number; Miri and ThreadSanitizer tell where they do not.
    unsafe impl Sync for Number {}

    let (number, places) = (Number(0.into()), [Parker::new(), Parker::new()]);
    let add = |own: usize| {
        for _ in 0..ROUNDS {
            assert_eq!(places[own].park_until(Time::MAX), Wake::Woken);
            let number = &number;
            // SAFETY: as above.
            unsafe { *number.0.get() += 1 };
            places[1 - own].unpark();
        }
    };
    places[0].unpark();
    std::thread::scope(|scope| {
        scope.spawn(|| add(0));
        add(1);
    });
    // SAFETY: no other thread is left.
    assert_eq!(unsafe { *number.0.get() }, 2 * ROUNDS);
}
