//! Every order of the stores of a watch's queue under the model checker `loom`: what is put in comes out, in order and
//! whole, or is told as missed.

// Models run on stacks of their own, which ThreadSanitizer cannot follow.
#![cfg(not(sanitized))]
#![allow(clippy::duplicate_mod, reason = "once with each set of atomics")]

use loom::sync::Arc;
use loom::thread;

/// Loom's atomics, in the place of those of the standard library.
#[path = "."]
mod sound {
    #[path = "../../../src/watch/ring.rs"]
    pub mod ring;

    mod atomics {
        pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    }
    pub mod slot {
        pub(crate) use punctual_store::temporal::Sample;
    }
}

/// Planted: putting in and taking out release nothing.
#[path = "."]
mod relaxed {
    #[path = "../../../src/watch/ring.rs"]
    pub mod ring;

    #[allow(non_upper_case_globals, reason = "in the place of the variants of an enum")]
    mod atomics {
        pub(crate) use loom::sync::atomic::AtomicU64;

        pub(crate) struct Ordering;
        impl Ordering {
            pub const Relaxed: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Relaxed;
            pub const Acquire: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Acquire;
            pub const Release: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Relaxed;
        }
    }
    pub mod slot {
        pub(crate) use punctual_store::temporal::Sample;
    }
}

macro_rules! model {
    ($ring:path) => {{
        use $ring::{ChangeKind, ChangeRing};
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(5);
        model.check(|| {
            const CHANGES: u64 = 3;
            let ring = Arc::new(ChangeRing::new(2, 8));
            let puts = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || {
                    for number in 1..=CHANGES {
                        ring.put(ChangeKind::Put(0), &[number as u8; 5]);
                    }
                })
            };
            let takes = thread::spawn(move || {
                let (mut told, mut key, mut accounted) = (0, Vec::new(), 0);
                let mut take = || match ring.take(&mut told, &mut key) {
                    None => false,
                    Some(ChangeKind::Missed(count)) => {
                        accounted += count;
                        true
                    }
                    Some(kind) => {
                        accounted += 1;
                        assert_eq!(
                            (kind, &key[..]),
                            (ChangeKind::Put(0), &[accounted as u8; 5][..]),
                            "whole and in order"
                        );
                        true
                    }
                };
                take();
                take();
                puts.join().unwrap();
                while take() {}
                assert_eq!(accounted, CHANGES, "each is taken or told as missed");
            });
            takes.join().unwrap();
        });
    }};
}

#[test]
fn each_change_comes_out_whole_or_is_told_as_missed() {
    model!(sound::ring);
}

#[test]
#[should_panic]
fn planted_fault_a_queue_that_releases_nothing_is_found() {
    model!(relaxed::ring);
}
