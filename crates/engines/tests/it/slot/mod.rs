//! Every order of the stores of a slot, and every order in which another core may see them, under the model checker
//! `loom`: a reader calls, leaves and closes while another thread ends its snapshot and uses its pages again.

// Models run on stacks of their own, which ThreadSanitizer cannot follow.
#![cfg(not(sanitized))]
#![allow(dead_code, reason = "the model does not use all of a slot")]
#![allow(clippy::duplicate_mod, reason = "once with each set of atomics")]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Loom's atomics, in the place of those of the standard library.
#[path = "."]
mod sound {
    #[path = "../../../src/slot.rs"]
    pub mod slot;

    mod atomics {
        pub(crate) use loom::cell::UnsafeCell;
        pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
        pub(crate) use loom::thread::yield_now as wait_a_little;
    }
}

/// Planted: leaving a call releases nothing.
#[path = "."]
mod relaxed {
    #[path = "../../../src/slot.rs"]
    pub mod slot;

    #[allow(non_upper_case_globals, reason = "in the place of the variants of an enum")]
    mod atomics {
        pub(crate) use loom::cell::UnsafeCell;
        pub(crate) use loom::sync::atomic::AtomicU64;
        pub(crate) use loom::thread::yield_now as wait_a_little;

        pub(crate) struct Ordering;
        impl Ordering {
            pub const Relaxed: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Relaxed;
            pub const Acquire: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Acquire;
            pub const Release: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Relaxed;
            pub const AcqRel: loom::sync::atomic::Ordering = loom::sync::atomic::Ordering::Acquire;
        }
    }
}

/// Planted: the word is looked at, and then set.
#[path = "."]
mod torn {
    #[path = "../../../src/slot.rs"]
    pub mod slot;

    mod atomics {
        pub(crate) use loom::cell::UnsafeCell;
        pub(crate) use loom::sync::atomic::Ordering;
        pub(crate) use loom::thread::yield_now as wait_a_little;

        #[derive(Debug)]
        pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);
        impl AtomicU64 {
            pub fn new(value: u64) -> AtomicU64 {
                AtomicU64(loom::sync::atomic::AtomicU64::new(value))
            }
            pub fn load(&self, order: Ordering) -> u64 {
                self.0.load(order)
            }
            pub fn store(&self, value: u64, order: Ordering) {
                self.0.store(value, order);
            }
            pub fn compare_exchange(&self, old: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
                let now = self.0.load(Ordering::Acquire);
                if now != old {
                    return Err(now);
                }
                self.0.store(new, Ordering::Release);
                Ok(now)
            }
        }
    }
}

/// How often a thread is interrupted in one history: more find nothing new here, and take minutes.
const PREEMPTIONS: usize = 2;

/// A page of an engine's: read by a snapshot, written when it is used again. Loom tells of each access that is not
/// ordered after the one before.
struct Page(UnsafeCell<u64>);

/// What keeps the page from reuse. Dropping it is the engine's leave to write to the page.
struct Pin(Arc<Page>);

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: loom tells of an access that is not ordered.
        self.0.0.with_mut(|content| unsafe { *content += 1 });
    }
}

macro_rules! model {
    ($slot:path) => {{
        use $slot::{EndOutcome, EndReason, SlotReader, SnapshotSlot};
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(PREEMPTIONS);
        model.check(|| {
            let slot = Arc::new(SnapshotSlot::<Pin>::default());
            let page = Arc::new(Page(UnsafeCell::new(0)));
            let reader = {
                let (slot, page) = (Arc::clone(&slot), Arc::clone(&page));
                thread::spawn(move || {
                    let ticket = slot.claim().unwrap();
                    let reader = SlotReader::open(Arc::clone(&slot), ticket, Pin(page), [0; 4]);
                    let read = |within: &dyn Fn()| {
                        let inside = reader.enter()?;
                        within();
                        // SAFETY: as above.
                        Ok::<u64, EndReason>(inside.with(|pin| pin.0.0.with(|content| unsafe { *content })))
                    };
                    // A call within a call: whatever the other thread wishes meanwhile, the pin stays for both.
                    let again = || assert_eq!(read(&|| ()), Ok(0), "the reader is inside of a call");
                    let (first, second) = (read(&again), read(&|| ()));
                    assert!(!matches!(first, Ok(1)), "a page was read that was used again");
                    assert!(!(first.is_err() && second.is_ok()), "an ended snapshot reads on");
                    assert!(!matches!(second, Ok(1)), "a page was read that was used again");
                    reader.close();
                    assert!(slot.claim().is_some(), "any thread may open the next one");
                })
            };
            let ender = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    // The first snapshot, and no other.
                    match slot.look() {
                        Some((ticket, _)) if ticket.generation() == 1 => slot.end(ticket, [7, 0]) == EndOutcome::Done,
                        _ => false,
                    }
                })
            };
            reader.join().unwrap();
            ender.join().unwrap();
            // SAFETY: both threads have ended.
            let freed = page.0.with(|content| unsafe { *content });
            assert_eq!(freed, 1, "freed once");
        });
    }};
}

/// A scan that lends a record: it stays inside beyond the call that began it, looks again, and leaves. With the planted
/// fault it leaves before it looks again.
fn lends(leaves_early: bool) {
    use sound::slot::{EndOutcome, SlotReader, SnapshotSlot};
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let slot = Arc::new(SnapshotSlot::<Pin>::default());
        let page = Arc::new(Page(UnsafeCell::new(0)));
        // SAFETY: loom tells of an access that is not ordered.
        let content = |pin: &Pin| pin.0.0.with(|content| unsafe { *content });
        let reader = {
            let (slot, page) = (Arc::clone(&slot), Arc::clone(&page));
            thread::spawn(move || {
                let ticket = slot.claim().unwrap();
                let reader = SlotReader::open(slot, ticket, Pin(Arc::clone(&page)), [0; 4]);
                if let Ok(call) = reader.enter() {
                    assert_eq!(call.with(content), 0);
                    call.stay();
                    if leaves_early {
                        reader.leave();
                    }
                    // The record that was lent, and another call meanwhile.
                    // SAFETY: as above.
                    let read = page.0.with(|content| unsafe { *content });
                    assert_eq!(read, 0, "a lent page was used again");
                    if !leaves_early {
                        let again = reader.enter().map(|call| call.with(content));
                        assert_eq!(again, Ok(0), "the reader is inside of a call");
                        let asked = reader.is_asked();
                        reader.leave();
                        assert!(!asked || reader.enter().is_err(), "an ended snapshot reads on");
                    }
                }
                reader.close();
            })
        };
        let ender = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                let open = slot.look().filter(|(ticket, _)| ticket.generation() == 1);
                let Some((ticket, _)) = open else { return };
                let (first, second) = (slot.end(ticket, [7, 0]), slot.end(ticket, [7, 0]));
                assert!(
                    first == EndOutcome::Missed || second == EndOutcome::Gone,
                    "an end counts once"
                );
            })
        };
        reader.join().unwrap();
        ender.join().unwrap();
        // SAFETY: both threads have ended.
        assert_eq!(page.0.with(|content| unsafe { *content }), 1, "freed once");
    });
}

#[test]
fn a_record_is_lent_until_its_scan_leaves() {
    lends(false);
}

#[test]
#[should_panic]
fn planted_fault_a_scan_that_leaves_before_its_record_is_read_is_found() {
    lends(true);
}

/// Two threads want the slot for a snapshot of their own, one after the other or not at all.
macro_rules! claims {
    ($set:ident) => {{
        use $set::slot::{SlotReader, SnapshotSlot};
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(PREEMPTIONS);
        model.check(|| {
            let slot = Arc::new(SnapshotSlot::<u64>::default());
            let reads = |pin| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    let Some(ticket) = slot.claim() else { return };
                    let reader = SlotReader::open(slot, ticket, pin, [0; 4]);
                    let seen = reader.enter().map(|call| call.with(|pin| *pin));
                    assert_eq!(seen, Ok(pin), "another one's snapshot");
                    reader.close();
                })
            };
            let (one, other) = (reads(1), reads(2));
            one.join().unwrap();
            other.join().unwrap();
        });
    }};
}

#[test]
fn a_slot_has_one_owner() {
    claims!(sound);
}

#[test]
#[should_panic]
fn planted_fault_a_slot_that_two_threads_claim_is_found() {
    claims!(torn);
}

#[test]
fn a_snapshot_that_is_ended_is_never_read_and_freed_once() {
    model!(sound::slot);
}

#[test]
#[should_panic]
fn planted_fault_a_call_that_releases_nothing_is_found() {
    model!(relaxed::slot);
}

#[test]
#[should_panic]
fn planted_fault_a_word_that_is_looked_at_and_then_set_is_found() {
    model!(torn::slot);
}
