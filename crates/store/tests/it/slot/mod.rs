//! Every order of the stores of temporal slots, and every order in which another core may see them, under the model
//! checker `loom`: a writer installs a pair, again and again, while a reader reads the pair at one cut.

// Models run on stacks of their own, which ThreadSanitizer cannot follow.
#![cfg(not(sanitized))]
#![allow(dead_code, reason = "the model does not use all of a slot")]
#![allow(clippy::duplicate_mod, reason = "once with each set of atomics")]

use loom::sync::Arc;
use loom::thread;

/// Loom's atomics, in the place of those of the standard library.
#[path = "."]
mod sound {
    #[path = "../../../src/temporal/slot.rs"]
    pub mod slot;

    mod atomics {
        pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
    }
}

/// Planted: a copy that is being written tells nothing of what was written before.
#[path = "."]
mod relaxed {
    #[path = "../../../src/temporal/slot.rs"]
    pub mod slot;

    #[allow(non_upper_case_globals, reason = "in the place of the variants of an enum")]
    mod atomics {
        pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, fence};

        pub(crate) struct Ordering;
        impl Ordering {
            pub const Relaxed: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Relaxed;
            pub const Acquire: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Acquire;
            pub const Release: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Relaxed;
        }
    }
}

/// How often a thread is interrupted in one history: more find nothing new here, and take minutes.
const PREEMPTIONS: usize = 2;

/// What a reader of two slots does.
enum Reads {
    /// Both at one cut; what was overwritten meanwhile is left out.
    Together,
    /// The latest of each, one by one.
    OneByOne,
    /// Their histories at one cut.
    Histories,
}

macro_rules! model {
    ($slot:path, $reads:expr, $installs:expr) => {{
        use $slot::{Installs, ReadingBuffer, Sample, Slot};
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(PREEMPTIONS);
        model.check(|| {
            let kept = if matches!($reads, Reads::Histories) { 2 } else { 1 };
            let slots = Arc::new((
                Slot::keeping(kept, kept - 1),
                Slot::keeping(kept, kept - 1),
                Installs::default(),
            ));
            let writer = {
                let slots = Arc::clone(&slots);
                thread::spawn(move || {
                    let (left, right, installs) = &*slots;
                    for number in 1..=$installs {
                        let sample = Sample {
                            seq: punctual_units::Seq(number),
                            sampled_at: None,
                        };
                        let value = &[number as u8][..kept - 1];
                        installs.install([(left, sample, value), (right, sample, value)]);
                    }
                })
            };
            let reader = Arc::clone(&slots);
            let reads = move || {
                let (left, right, installs) = &*reader;
                let (mut one, mut other) = (Vec::new(), Vec::new());
                match $reads {
                    Reads::Together => {
                        let cut = installs.cut();
                        let both = (left.read_at(cut, &mut one), right.read_at(cut, &mut other));
                        if let (Ok(first), Ok(second)) = both {
                            assert_eq!((first, &one), (second, &other), "one new, one old");
                            assert_eq!(first.map_or(0, |sample| sample.seq.0), cut, "not the newest of the cut");
                        }
                    }
                    Reads::OneByOne => {
                        let both = (left.read(&mut one), right.read(&mut other));
                        assert_eq!((both.0, &one), (both.1, &other), "one new, one old");
                    }
                    Reads::Histories => {
                        let (cut, mut readings) = (installs.cut(), ReadingBuffer::default());
                        if left.history_at(cut, &mut readings).is_ok() {
                            let found: Vec<u64> = readings.iter().map(|(_, value)| u64::from(value[0])).collect();
                            let expected: Vec<u64> = (cut.saturating_sub(1).max(1)..=cut).collect();
                            assert_eq!(found, expected, "not the last ones of the cut");
                        }
                    }
                }
            };
            let reader = thread::spawn(reads);
            writer.join().unwrap();
            reader.join().unwrap();
            let (_, right, installs) = &*slots;
            let mut last = Vec::new();
            let read = right.read_at(installs.cut(), &mut last);
            assert_eq!(
                read.unwrap().map(|sample| sample.seq.0),
                Some($installs),
                "no writer is beside it"
            );
        });
    }};
}

#[test]
fn a_pair_is_read_as_it_was_installed_or_not_at_all() {
    model!(sound::slot, Reads::Together, 3);
}

#[test]
fn a_history_is_the_last_values_of_a_cut_or_nothing() {
    model!(sound::slot, Reads::Histories, 4);
}

/// A writer that is interrupted between the number of a value and its publication.
#[test]
fn no_read_of_the_latest_value_finds_an_older_one_than_the_read_before() {
    use sound::slot::{Sample, Slot};
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| {
        let slot = Arc::new(Slot::new(0));
        let sample = |number| Sample {
            seq: punctual_units::Seq(number),
            sampled_at: None,
        };
        slot.install(sample(1), &[]);
        let reader = Arc::clone(&slot);
        let reader = thread::spawn(move || {
            let read = || reader.read(&mut Vec::new()).map_or(0, |sample| sample.seq.0);
            let (first, second) = (read(), read());
            assert!(first <= second, "{second} after {first}");
        });
        let writer = thread::spawn(move || {
            slot.install(sample(2), &[]);
            slot.install(sample(3), &[]);
        });
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "one new, one old")]
fn planted_fault_reads_one_by_one_are_found() {
    model!(sound::slot, Reads::OneByOne, 2);
}

#[test]
#[should_panic]
fn planted_fault_a_write_that_releases_nothing_is_found() {
    model!(relaxed::slot, Reads::Together, 3);
}
