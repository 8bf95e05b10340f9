//! Batches on all engines pass one suite, with their write sets encoded on the way; planted faults of the way are
//! caught.

use std::ops::Bound;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use punctual_engines::lmdb::LmdbOptions;
use punctual_engines::{Lmdb, Memory};
use punctual_store::batch::WriteSet;
use punctual_store::engine::{Durability, Engine};
use punctual_store::{Store, StoreOptions};
use punctual_testing::VirtualOs;
use punctual_testing::conformance::batch::{Step, check};

fn replica<E: Engine>(engine: E) -> Store<E, VirtualOs> {
    let options = StoreOptions {
        replicated: true,
        ..StoreOptions::default()
    };
    Store::open(engine, VirtualOs::new(1), options).unwrap()
}

/// Few keys, so that steps meet.
fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(0u8..3, 1..3)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (key(), vec(any::<u8>(), 0..30)).prop_map(|(key, value)| Step::Put(key, value)),
        3 => key().prop_map(Step::Delete),
        2 => key().prop_map(Step::Get),
        2 => (bound(), bound()).prop_map(|(low, high)| Step::Scan(low, high)),
        3 => Just(Step::Keep),
        1 => Just(Step::Undo),
        2 => Just(Step::Commit),
        1 => Just(Step::Abort),
    ];
    vec(step, 0..60)
}

/// The way through a log: encoded, decoded, and no longer than it says.
fn through_a_log(sets: Vec<WriteSet>) -> Vec<WriteSet> {
    let way = |set: WriteSet| {
        let encoded = postcard::to_stdvec(&set).unwrap();
        assert!(
            encoded.len() <= set.bytes(),
            "{} bytes of at most {}",
            encoded.len(),
            set.bytes()
        );
        postcard::from_bytes(&encoded).unwrap()
    };
    sets.into_iter().map(way).collect()
}

/// Runs the suite on fresh stores; the failure, if any, with its shortest steps, which replay it.
fn conforms<E: Engine, F: Engine>(
    cases: u32,
    fresh: impl Fn() -> (Store<E, VirtualOs>, Store<F, VirtualOs>),
    deliver: impl Fn(Vec<WriteSet>) -> Vec<WriteSet>,
) -> Result<(), String> {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&steps(), |steps| {
            let (master, slave) = fresh();
            check(&master, &slave, &deliver, &steps).map_err(TestCaseError::fail)
        })
        .map_err(|failure| failure.to_string())
}

fn in_memory() -> (Store<Memory, VirtualOs>, Store<Memory, VirtualOs>) {
    (replica(Memory::default()), replica(Memory::default()))
}

fn lmdb(directory: &std::path::Path) -> Lmdb {
    let options = LmdbOptions {
        durability: Durability::Volatile,
        quota: 4 << 20,
        readers_max: 8,
        ..LmdbOptions::default()
    };
    options.open(directory).unwrap()
}

#[test]
fn batches_in_memory_conform() {
    conforms(256, in_memory, through_a_log).unwrap();
}

#[test]
fn batches_in_lmdb_conform_beside_a_slave_in_memory() {
    let directory = punctual_testing::shared_folder();
    let number = std::cell::Cell::new(0);
    let fresh = || {
        number.set(number.get() + 1);
        let master = lmdb(&directory.path().join(number.get().to_string()));
        (replica(master), replica(Memory::default()))
    };
    conforms(48, fresh, through_a_log).unwrap();
}

#[cfg(feature = "redb")]
#[test]
fn batches_in_redb_conform_beside_a_slave_in_memory() {
    let directory = punctual_testing::shared_folder();
    let number = std::cell::Cell::new(0);
    let fresh = || {
        number.set(number.get() + 1);
        let options = punctual_engines::redb::RedbOptions {
            durability: Durability::Volatile,
            cache_bytes: 1 << 20,
            ..Default::default()
        };
        let master = options.open(directory.path().join(number.get().to_string())).unwrap();
        (replica(master), replica(Memory::default()))
    };
    conforms(48, fresh, through_a_log).unwrap();
}

#[test]
fn write_sets_that_change_on_their_way_are_caught() {
    let loses_one = |sets: Vec<WriteSet>| sets.into_iter().skip(1).collect();
    let turns_round = |sets: Vec<WriteSet>| sets.into_iter().rev().collect();
    let forgets_deletes = |mut sets: Vec<WriteSet>| {
        sets.iter_mut()
            .for_each(|set| set.changes.retain(|_, value| value.is_some()));
        sets
    };
    for (fault, deliver) in [
        ("loses one", &loses_one as &dyn Fn(Vec<WriteSet>) -> Vec<WriteSet>),
        ("turns them round", &turns_round),
        ("forgets deletes", &forgets_deletes),
    ] {
        assert!(conforms(2_000, in_memory, deliver).is_err(), "{fault}: not caught");
    }
}

#[test]
fn the_revision_is_in_the_commit_and_back_after_a_restart() {
    let directory = punctual_testing::shared_folder();
    let written = {
        let store = replica(lmdb(directory.path()));
        let mut batch = store.batch(Default::default()).unwrap();
        let mut transaction = batch.transaction(punctual_store::Deadline::NONE).unwrap();
        transaction.put(b"door", b"open").unwrap();
        transaction.keep().unwrap();
        batch.close()
    }; // a crash before the log's answer
    let store = replica(lmdb(directory.path()));
    assert_eq!(store.image().unwrap(), Default::default());
    store.apply(punctual_units::Revision(1), &written).unwrap();
    let image = store.image().unwrap();
    drop(store);
    // Without being told that it is a replica: it stays one.
    let store = Store::open(lmdb(directory.path()), VirtualOs::new(1), StoreOptions::default()).unwrap();
    assert_eq!(store.image().unwrap(), image);
    assert!(store.put(b"door", b"shut").is_err());
    assert!(store.apply(punctual_units::Revision(1), &written).is_err());
    store.apply(punctual_units::Revision(2), &[]).unwrap();
}
