//! Random transactions of all sizes on a store that is kept full: a delete never fails, and an empty store takes a put.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_engines::lmdb::LmdbOptions;
use punctual_store::engine::{Durability, Engine, EngineError, Read, Table, Write};
use punctual_testing::SetOnDrop;

use crate::bad_input::on_small_disk;
use crate::common;

use common::Choices;

/// In memory where the machine has that: thousands of syncs.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Lengths of the records at the brim, by number.
type Model = BTreeMap<u32, usize>;

/// What a run at the brim counted.
#[derive(Debug, Default)]
struct RunCounts {
    operations: u64,
    refused: u64,
    emptied: u64,
    /// Longest the file was, in bytes.
    file_len: u64,
}

/// A number from 1 to `max`, each order of magnitude as likely as the next.
fn size(random: &mut Choices, max: u64) -> usize {
    let bits = random.below(u64::from(max.ilog2()) + 1);
    (1 + random.below(1 << bits)) as usize
}

fn value_len(random: &mut Choices) -> usize {
    match random.below(20) {
        0 => random.below(12_000) as usize,
        1..4 => random.below(3_000) as usize,
        _ => random.below(200) as usize,
    }
}

fn is_full<T>(answer: &Result<T, EngineError>) -> bool {
    matches!(
        answer,
        Err(EngineError::QuotaFull { .. } | EngineError::DiskFull { .. })
    )
}

/// Makes `operations` puts and deletes. `bytes_max` bounds the values where the engine has no quota.
fn run<E: Engine>(engine: &E, file: &Path, operations: u64, bytes_max: usize, seed: u64) -> RunCounts {
    let mut random = Choices::new(seed);
    let (mut model, mut counted) = (Model::new(), RunCounts::default());
    while counted.operations < operations {
        let place = || format!("TEST_SEED={seed}, operation {}", counted.operations);
        if model.is_empty() {
            counted.emptied += 1;
            let mut transaction = engine.write().unwrap();
            let put = transaction.put(Table::Data, &[0; 4], &[0; 100]);
            put.unwrap_or_else(|error| panic!("{}: an empty store refused a put: {error}", place()));
            transaction.commit().unwrap();
            model.insert(0, 100);
        }
        let mut changed = model.clone();
        let mut transaction = engine.write().unwrap();
        // Half of the transactions put; most of them until they are refused. One in 20 deletes all, in random order.
        let deletes = random.below(2) == 0;
        let fills = random.below(4) > 0;
        let all = deletes && random.below(10) == 0;
        let mut keys: Vec<u32> = changed.keys().copied().collect();
        let changes = match deletes {
            true if all => keys.len(),
            false if fills => usize::MAX,
            _ => size(&mut random, 1 << 14),
        };
        let mut bytes: usize = changed.values().sum();
        let mut refused = 0;
        for _ in 0..changes {
            counted.operations += 1;
            if deletes && !keys.is_empty() {
                let number = keys.swap_remove(random.below(keys.len() as u64) as usize);
                let deleted = transaction.delete(Table::Data, &number.to_be_bytes());
                let was_there = deleted.unwrap_or_else(|error| panic!("TEST_SEED={seed}: a delete failed: {error}"));
                assert_eq!(was_there, changed.remove(&number).is_some(), "TEST_SEED={seed}");
                continue;
            }
            let (number, len) = (random.below(1 << 16) as u32, value_len(&mut random));
            if bytes + len > bytes_max {
                break;
            }
            let put = transaction.put(Table::Data, &number.to_be_bytes(), &vec![number as u8; len]);
            if is_full(&put) {
                refused += 1;
                if refused > 8 {
                    break;
                }
                continue;
            }
            put.unwrap();
            bytes += len;
            changed.insert(number, len);
        }
        if random.below(10) == 0 {
            drop(transaction);
        } else {
            match transaction.commit() {
                Err(EngineError::DiskFull { .. }) if !deletes => refused += 1,
                committed => {
                    committed
                        .unwrap_or_else(|error| panic!("TEST_SEED={seed}, operation {}: {error}", counted.operations));
                    model = changed;
                }
            }
        }
        counted.refused += refused;
        counted.file_len = counted.file_len.max(std::fs::metadata(file).unwrap().len());
    }
    let snapshot = engine.snapshot().unwrap();
    for (number, len) in &model {
        let found = snapshot.get(Table::Data, &number.to_be_bytes()).unwrap();
        assert_eq!(
            found.as_deref(),
            Some(&vec![*number as u8; *len][..]),
            "TEST_SEED={seed}"
        );
    }
    counted
}

fn operations(default: u64) -> u64 {
    let given = std::env::var("BRIM_OPERATIONS").ok();
    given.and_then(|given| given.parse().ok()).unwrap_or(default)
}

fn on_lmdb(operations: u64) {
    let seed = common::seed();
    for quota in [1 << 20, 8 << 20] {
        let directory = folder();
        let options = LmdbOptions {
            durability: Durability::NoMetaSync,
            quota,
            ..LmdbOptions::default()
        };
        let engine = options.open(directory.path()).unwrap();
        let counted = run(
            &engine,
            &directory.path().join("data.mdb"),
            operations,
            usize::MAX,
            seed,
        );
        println!("quota {quota}: {counted:?}");
        assert!(counted.refused > 0, "{counted:?}");
        assert!(counted.file_len <= 3 * quota as u64, "{counted:?}");
        drop(engine);
        options.open(directory.path()).unwrap();
    }
}

#[test]
fn at_the_brim_no_delete_fails_and_an_empty_store_takes_a_put() {
    on_lmdb(operations(60_000));
}

#[cfg(feature = "redb")]
#[test]
fn on_redb_no_delete_fails_and_an_empty_store_takes_a_put() {
    let seed = common::seed();
    let directory = folder();
    let options = punctual_engines::redb::RedbOptions {
        durability: Durability::Volatile,
        ..Default::default()
    };
    let engine = options.open(directory.path()).unwrap();
    let counted = run(
        &engine,
        &directory.path().join("data.redb"),
        operations(60_000),
        8 << 20,
        seed,
    );
    println!("{counted:?}");
}

/// Whatever emptied the store, and however large the first record is: its pages are free, but of the last commit.
#[test]
fn a_store_that_one_transaction_has_emptied_takes_puts() {
    for (quota, len, large) in [
        (1 << 20, 50, 12_000),
        (1 << 20, 3_000, 100_000),
        (8 << 20, 700, 3 << 20),
    ] {
        for reopened in [false, true] {
            let directory = folder();
            let options = LmdbOptions {
                durability: Durability::NoMetaSync,
                quota,
                ..LmdbOptions::default()
            };
            let mut engine = options.open(directory.path()).unwrap();
            let put = |engine: &punctual_engines::Lmdb, key: &[u8], len: usize| {
                let mut transaction = engine.write().unwrap();
                transaction.get(Table::Data, key).unwrap();
                transaction.put(Table::Data, key, &vec![1; len])?;
                transaction.commit()
            };
            let mut numbers: Vec<u32> = (0u32..)
                .take_while(|number| {
                    let put = put(&engine, &number.to_be_bytes(), len);
                    assert!(put.is_ok() || is_full(&put));
                    put.is_ok()
                })
                .collect();
            let mut random = Choices::new(quota as u64);
            let mut transaction = engine.write().unwrap();
            while !numbers.is_empty() {
                let number = numbers.swap_remove(random.below(numbers.len() as u64) as usize);
                assert!(transaction.delete(Table::Data, &number.to_be_bytes()).unwrap());
            }
            transaction.commit().unwrap();
            if reopened {
                drop(engine);
                engine = options.open(directory.path()).unwrap();
            }
            put(&engine, b"large", large).unwrap();
            put(&engine, b"small", 10).unwrap();
        }
    }
}

/// The disk is full below the quota, of the store's records and of other files.
#[test]
fn deletes_of_any_size_succeed_on_a_full_disk_and_an_empty_store_takes_a_put() {
    let (seed, mut ran) = (common::seed(), true);
    for (disk, ballast) in [(1 << 20, 0), (4 << 20, 0), (4 << 20, 1 << 20)] {
        ran &= on_small_disk(disk, |folder| {
            std::fs::write(folder.join("ballast"), vec![1; ballast]).unwrap();
            let options = LmdbOptions {
                durability: Durability::NoMetaSync,
                quota: 64 << 20,
                ..LmdbOptions::default()
            };
            let engine = options.open(folder).unwrap();
            let counted = run(&engine, &folder.join("data.mdb"), operations(20_000), usize::MAX, seed);
            println!("disk {disk}: {counted:?}");
            assert!(counted.refused > 0, "{counted:?}");
            // Another program takes what is left.
            let _ = std::fs::write(folder.join("more"), vec![1; disk]);
            let snapshot = engine.snapshot().unwrap();
            let records = snapshot
                .scan(Table::Data, (Bound::Unbounded, Bound::Unbounded))
                .unwrap();
            let mut keys: Vec<_> = records.map(|record| record.unwrap().0).collect();
            drop(snapshot);
            let mut random = Choices::new(seed);
            for part in [2, 1] {
                let mut transaction = engine.write().unwrap();
                for _ in 0..keys.len() / part {
                    let key = keys.swap_remove(random.below(keys.len() as u64) as usize);
                    assert!(transaction.delete(Table::Data, &key).unwrap());
                }
                transaction.commit().unwrap();
            }
            let mut transaction = engine.write().unwrap();
            transaction.put(Table::Data, b"first", &[1; 100]).unwrap();
            transaction.commit().unwrap();
        });
    }
    if !ran {
        eprintln!("skipped: mounting a file system needs CAP_SYS_ADMIN");
    }
}

/// Several writers without the store's write lock: another one comes in between the empty commit and what follows.
#[test]
fn a_transaction_that_begins_behind_an_empty_commit_is_not_lost_to_another_writer() {
    let directory = folder();
    let options = LmdbOptions {
        durability: Durability::Volatile,
        quota: 1 << 20,
        ..LmdbOptions::default()
    };
    let engine = options.open(directory.path()).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&over);
        for writer in [1u8, 2] {
            let (engine, over) = (&engine, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let mut transaction = engine.write().expect("a transaction begins");
                    transaction.put(Table::Temporal, &[writer], &[writer; 10]).unwrap();
                    transaction.commit().unwrap();
                }
            });
        }
        for round in 0..300 {
            let mut transaction = engine.write().unwrap_or_else(|lost| panic!("{round}: {lost}"));
            // It may turn over as well, and has read something then.
            if transaction.put(Table::Data, b"large", &vec![1; 500_000]).is_ok() {
                transaction.commit().unwrap();
            }
            let mut transaction = engine.write().unwrap_or_else(|lost| panic!("{round}: {lost}"));
            transaction.delete(Table::Data, b"large").unwrap();
            transaction.commit().unwrap();
            // Refused, where no other writer came since the pages were freed: the next transaction turns over.
            let mut transaction = engine.write().unwrap_or_else(|lost| panic!("{round}: {lost}"));
            transaction.put(Table::Data, b"small", &[1; 10]).unwrap();
            let put = transaction.put(Table::Data, b"large", &vec![1; 700_000]);
            assert!(put.is_ok() || is_full(&put));
        }
    });
}

/// The refused put comes second: its transaction cannot turn over, and the next one does.
#[test]
fn a_transaction_that_was_refused_once_fits_the_next_time() {
    let directory = folder();
    let options = LmdbOptions {
        durability: Durability::NoMetaSync,
        quota: 1 << 20,
        ..LmdbOptions::default()
    };
    let engine = options.open(directory.path()).unwrap();
    let fill = |len: usize| {
        let mut transaction = engine.write().unwrap();
        transaction.put(Table::Data, b"first", &[1; 10])?;
        transaction.put(Table::Data, b"second", &vec![1; len])?;
        transaction.commit()
    };
    fill(500_000).unwrap();
    let mut transaction = engine.write().unwrap();
    transaction.delete(Table::Data, b"first").unwrap();
    transaction.delete(Table::Data, b"second").unwrap();
    transaction.commit().unwrap();
    let second = (0..2).map(|_| fill(700_000)).find(Result::is_ok);
    second.expect("an empty store of a mebibyte").unwrap();
}
