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
            pub const SeqCst: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::SeqCst;
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
                match $reads {
                    Reads::Together => {
                        let cut = installs.cut();
                        if let (Ok(first), Ok(second)) = (left.sample_at(cut), right.sample_at(cut)) {
                            assert_eq!(first, second, "one new, one old");
                            assert_eq!(first.map_or(0, |sample| sample.seq.0), cut, "not the newest of the cut");
                        }
                    }
                    Reads::OneByOne => {
                        assert_eq!(left.sample(), right.sample(), "one new, one old");
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
            let read = right.sample_at(installs.cut());
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

/// Installs of one object each, and one of both, beside a reader of both that keeps what it finds at a second look.
fn singles(looks_twice: bool) {
    use sound::slot::{Installs, ReadingBuffer, Sample, Slot};
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let sample = |number| Sample {
            seq: punctual_units::Seq(number),
            sampled_at: None,
        };
        let slots = Arc::new((Slot::new(0), Slot::new(0), Installs::default()));
        let writer = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                let (left, right, installs) = &*slots;
                installs.install_one(left, sample(1), &[]);
                installs.install_one(right, sample(1), &[]);
                // Both once more, at the next cut.
                installs.install([(left, sample(2), &[][..]), (right, sample(2), &[])]);
            })
        };
        let reader = thread::spawn(move || {
            let (left, right, installs) = &*slots;
            let (cut, mut readings) = (installs.cut(), ReadingBuffer::default());
            let both = || [left, right].into_iter();
            let is_kept = match looks_twice {
                true => installs.read_latest(both, &mut readings, 2),
                false => both()
                    .try_for_each(|slot| readings.append(|bytes| slot.append_at(cut, bytes)))
                    .is_ok(),
            };
            if is_kept {
                let found = [0, 1].map(|at| readings.get(at).map_or(0, |(sample, _)| sample.seq.0));
                let instants = [[0, 0], [1, 0], [1, 1], [2, 2]];
                assert!(instants.contains(&found), "never were: {found:?}");
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn values_that_stay_for_a_second_look_were_there_at_one_instant() {
    singles(true);
}

#[test]
#[should_panic(expected = "never were")]
fn planted_fault_one_look_is_not_enough() {
    singles(false);
}

/// As below, beside a reader of the history, which has no gap.
#[test]
fn a_history_of_the_present_cut_has_no_gap() {
    use sound::slot::{Installs, ReadingBuffer, Sample, Slot};
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| {
        let shared = Arc::new((Slot::keeping(2, 0), Installs::default()));
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for number in 1..=4 {
                    let sample = Sample {
                        seq: punctual_units::Seq(number),
                        sampled_at: None,
                    };
                    shared.1.install_one(&shared.0, sample, &[]);
                }
            })
        };
        let reader = thread::spawn(move || {
            let mut readings = ReadingBuffer::default();
            if shared.0.history_at(shared.1.cut(), &mut readings).is_ok() {
                let found: Vec<u64> = readings.iter().map(|(sample, _)| sample.seq.0).collect();
                assert!(found.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap: {found:?}");
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

/// Values of one cut, one after the other into the same copies, beside a reader.
#[test]
fn a_value_of_the_present_cut_is_read_whole() {
    use sound::slot::{Installs, Sample, Slot};
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| {
        let shared = Arc::new((Slot::new(1), Installs::default()));
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for number in 1..=3 {
                    let sample = Sample {
                        seq: punctual_units::Seq(number),
                        sampled_at: None,
                    };
                    shared.1.install_one(&shared.0, sample, &[number as u8]);
                }
            })
        };
        let reader = thread::spawn(move || {
            let (slot, installs) = &*shared;
            let mut last = 0;
            for _ in 0..2 {
                let mut value = Vec::new();
                if let Ok(Some(sample)) = slot.read_at(installs.cut(), &mut value) {
                    assert_eq!(value, [sample.seq.0 as u8], "two values in one");
                    assert!(last <= sample.seq.0, "{} after {last}", sample.seq.0);
                    last = sample.seq.0;
                }
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
    });
}
