//! A store is closed while threads that have read it end: LMDB's slot of such a thread lies in memory that closing
//! unmaps, and is written after the thread's closure has returned.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use punctual_engines::lmdb::{Lmdb, LmdbOptions, Verify};
use punctual_store::engine::{Durability, Engine, Read, Table};

const OPTIONS: LmdbOptions = LmdbOptions {
    durability: Durability::Volatile,
    quota: 1 << 20,
    readers_max: 16,
    checksums: true,
    quota_max: None,
    verify: Verify::Full,
};

fn open(directory: &Path) -> Lmdb {
    OPTIONS.open(directory).expect("a new store opens")
}

fn read(engine: &Lmdb) {
    let snapshot = engine.snapshot().expect("a slot is free");
    let nothing = snapshot.get(Table::Data, b"nothing").expect("reads");
    assert_eq!(nothing, None);
}

/// The crash itself needs a thread to be interrupted between two instructions of the C library; seen in 4 of 320 runs
/// of the conformance suite on a busy machine. Here it may show; what surely shows is
/// [`closing_waits_for_a_thread_that_ends`].
#[test]
fn a_store_is_closed_right_after_a_scope_of_readers() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..500 {
        let engine = open(directory.path());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| read(&engine));
            }
        });
    }
}

#[test]
fn closing_waits_for_a_thread_that_ends() {
    /// What a thread still does between the end of its closure and the clearing of its slot.
    struct Slow(mpsc::Sender<()>, Arc<AtomicBool>);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).expect("the test waits");
            thread::sleep(Duration::from_millis(100));
            self.1.store(true, Ordering::SeqCst);
        }
    }
    thread_local! { static SLOW: RefCell<Option<Slow>> = const { RefCell::new(None) } }
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let (begun, begins) = mpsc::channel();
    let over = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let (engine, slow) = (&engine, Slow(begun, Arc::clone(&over)));
        // Set before the first read: thread locals are dropped in reverse order.
        scope.spawn(move || {
            SLOW.set(Some(slow));
            read(engine);
        });
    });
    begins.recv().expect("the thread begins to end");
    drop(engine);
    assert!(
        over.load(Ordering::SeqCst),
        "closed while a thread's slot was still to be cleared"
    );
}

#[test]
fn the_last_handle_goes_with_a_thread_that_ends() {
    thread_local! { static KEPT: RefCell<Option<Arc<Lmdb>>> = const { RefCell::new(None) } }
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..100 {
        let engine = Arc::new(open(directory.path()));
        let keepers: Vec<_> = (0..4)
            .map(|_| Arc::clone(&engine))
            .map(|engine| {
                thread::spawn(move || {
                    read(&engine);
                    KEPT.set(Some(engine));
                })
            })
            .collect();
        drop(engine);
        keepers.into_iter().for_each(|keeper| keeper.join().unwrap());
    }
}

#[test]
fn a_thread_that_reads_many_stores_in_turn_keeps_reading() {
    let directory = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let lasting = open(other.path());
    for _ in 0..50 {
        let engine = open(directory.path());
        read(&engine);
        read(&lasting);
        read(&engine);
    }
}

#[test]
fn a_thread_local_that_reads_as_it_is_dropped_is_served_or_refused() {
    struct Late(Arc<Lmdb>);
    impl Drop for Late {
        fn drop(&mut self) {
            match self.0.snapshot() {
                Ok(snapshot) => drop(snapshot),
                Err(refused) => assert!(refused.to_string().contains("about to end"), "{refused}"),
            }
        }
    }
    thread_local! { static LATE: RefCell<Option<Late>> = const { RefCell::new(None) } }
    let directory = tempfile::tempdir().unwrap();
    for reads_before in [false, true] {
        let engine = Arc::new(open(directory.path()));
        let late = Late(Arc::clone(&engine));
        let thread = thread::spawn(move || {
            if reads_before {
                read(&late.0);
            }
            LATE.set(Some(late));
        });
        thread.join().unwrap();
        let _all_slots_are_free = Arc::try_unwrap(engine).ok().expect("the thread's handle is gone");
    }
}
