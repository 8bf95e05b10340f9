//! A store is closed while threads that have read it end. By itself LMDB would write to such a thread's reader slot
//! after the thread's closure has returned, in memory that closing unmaps; no slot stays with a thread (`seats.rs`).

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::thread;

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

#[test]
fn a_store_is_closed_right_after_a_scope_of_readers() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..100 {
        let engine = open(directory.path());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| read(&engine));
            }
        });
    }
}

#[test]
fn the_last_handle_goes_with_a_thread_that_ends() {
    thread_local! { static KEPT: RefCell<Option<Arc<Lmdb>>> = const { RefCell::new(None) } }
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..30 {
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
fn a_thread_local_that_reads_as_it_is_dropped_is_served() {
    struct Late(Arc<Lmdb>);
    impl Drop for Late {
        fn drop(&mut self) {
            read(&self.0);
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
