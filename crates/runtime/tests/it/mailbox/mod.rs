//! Every order of the stores of the control thread's mailbox under the model checker `loom`: what is put in comes out,
//! in order, and the thread that waits for it is woken.

// Models run on stacks of their own, which ThreadSanitizer cannot follow.
#![cfg(not(sanitized))]
#![cfg(target_os = "linux")]
#![allow(dead_code, reason = "the model does not use all of it")]
#![allow(clippy::duplicate_mod, reason = "once with each set of atomics")]

use std::sync::Arc; // loom's own cannot be dropped once a deadlock was found

use loom::thread;
use punctual_os::Wake;
use punctual_units::Time;

/// A lock of the model's.
#[derive(Debug)]
pub(crate) struct ModelLock<T>(loom::sync::Mutex<T>);

impl<T> ModelLock<T> {
    fn new(data: T) -> Self {
        ModelLock(loom::sync::Mutex::new(data))
    }

    fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// Loom's atomics, in the place of those of the standard library, and a modelled kernel.
#[path = "."]
mod sound {
    #[path = "../../../../os/tests/modelled/futex.rs"]
    pub mod futex;
    #[path = "../../../src/linux/mailbox.rs"]
    pub mod mailbox;
    #[path = "../../../../os/src/linux/parker.rs"]
    pub mod parker;

    mod atomics {
        pub(super) use loom::sync::atomic::{AtomicU32, Ordering};
    }
    mod sync {
        pub(crate) use super::parker::Parker;
        pub(crate) use crate::mailbox::ModelLock as PiMutex;
        pub(crate) use punctual_os::Wake;
    }
}

/// Planted: a place that loses a wake-up.
#[path = "."]
mod torn {
    #[path = "../../../../os/tests/modelled/torn.rs"]
    mod atomics;
    #[path = "../../../../os/tests/modelled/futex.rs"]
    pub mod futex;
    #[path = "../../../src/linux/mailbox.rs"]
    pub mod mailbox;
    #[path = "../../../../os/src/linux/parker.rs"]
    pub mod parker;

    mod sync {
        pub(crate) use super::parker::Parker;
        pub(crate) use crate::mailbox::ModelLock as PiMutex;
        pub(crate) use punctual_os::Wake;
    }
}

/// How often a thread is interrupted in one history: more take minutes.
const PREEMPTIONS: usize = 3;

/// So many letters fit.
const ROOM: usize = 2;

/// Two threads with a letter each, and a thread that waits until it has both.
macro_rules! all_come {
    ($set:ident) => {{
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(PREEMPTIONS);
        model.check(|| {
            let mailbox = Arc::new($set::mailbox::Mailbox::new(ROOM));
            let writers = [0, 1].map(|letter| {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || assert!(mailbox.put(letter), "there was room"))
            });
            let reader = {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || {
                    let mut taken = [mailbox.wait(Time::MAX), mailbox.wait(Time::MAX)];
                    taken.sort_unstable();
                    assert_eq!(taken, [Some(0), Some(1)]);
                })
            };
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            reader.join().unwrap();
            assert_eq!(mailbox.take(), None);
        });
    }};
}

#[test]
fn the_thread_that_waits_gets_every_letter() {
    all_come!(sound);
}

#[test]
#[should_panic(expected = "deadlock")]
fn planted_fault_a_wake_up_that_is_lost_is_found() {
    all_come!(torn);
}

/// A thread with more letters than there is room for, and a thread that waits until an instant: what was taken in comes
/// out, in order, and the rest was refused.
#[test]
fn a_letter_comes_out_or_was_refused() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| {
        let mailbox = Arc::new(sound::mailbox::Mailbox::new(ROOM));
        let writer = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                (0..=ROOM as u32)
                    .filter(|letter| mailbox.put(*letter))
                    .collect::<Vec<_>>()
            })
        };
        let reader = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || [mailbox.wait(Time(1)), mailbox.wait(Time(1))])
        };
        sound::futex::expire();
        let put = writer.join().unwrap();
        let mut taken: Vec<u32> = reader.join().unwrap().into_iter().flatten().collect();
        taken.extend(std::iter::from_fn(|| mailbox.take()));
        assert!(put.len() >= ROOM, "refused although there was room: {put:?}");
        assert_eq!(taken, put);
    });
}

/// Letters that may wait: the reader sleeps until half of the room is in use, and then gets each of them.
#[test]
fn letters_that_may_wait_come_with_the_one_that_fills_half() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| {
        let mailbox = Arc::new(sound::mailbox::Mailbox::new(2 * ROOM));
        let writers = [0, 1].map(|letter| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || assert!(mailbox.leave(letter), "there was room"))
        });
        let reader = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                // Taken at once by a reader that was awake, the first letter leaves too few for another wake-up.
                let first = mailbox.wait(Time::MAX);
                let second = mailbox.take();
                (first, second)
            })
        };
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let (first, second) = reader.join().unwrap();
        let mut taken: Vec<i32> = [first, second, mailbox.take()].into_iter().flatten().collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}
