//! A store at its quota: puts are refused with the remedy, deletes and group commits go on, nothing has to be reopened.

use std::collections::BTreeMap;
use std::path::Path;

use punctual_engines::Lmdb;
use punctual_engines::lmdb::{LmdbOptions, reserve_of};
use punctual_os::Os;
use punctual_store::engine::{Durability, EndedBecause, Engine, EngineError, Table, Write};
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Store, StoreError};
use punctual_testing::VirtualOs;
use punctual_units::{Clock, Nanos, SensorId, Seq};

use crate::brim::folder;
use crate::common;

use common::Choices;

fn open(directory: &Path, quota: usize) -> Lmdb {
    let options = LmdbOptions {
        durability: Durability::NoMetaSync,
        quota,
        ..LmdbOptions::default()
    };
    options.open(directory).unwrap()
}

fn store(directory: &Path, quota: usize) -> (Store<Lmdb, VirtualOs>, VirtualOs) {
    let os = VirtualOs::new(1);
    let object = ObjectSpec {
        key: b"sensor".into(),
        avi: Nanos::from_secs(1),
        period: Nanos::from_millis(500),
        max_len: 100,
        history: 1,
    };
    let store = Store::open(open(directory, quota), os.clone(), [object].into()).unwrap();
    (store, os)
}

fn is_full<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Engine(EngineError::QuotaFull { .. })))
}

/// Puts records of `len` bytes until one is refused; how many there are.
fn fill(store: &Store<Lmdb, VirtualOs>, len: usize) -> u32 {
    for number in 0..1_000_000u32 {
        let put = store.put(number.to_be_bytes(), vec![number as u8; len]);
        if is_full(&put) {
            return number;
        }
        put.unwrap();
    }
    panic!("never full");
}

fn file_len(directory: &Path) -> u64 {
    std::fs::metadata(directory.join("data.mdb")).unwrap().len()
}

#[test]
fn at_a_full_quota_every_delete_and_flush_succeeds_and_then_puts_do() {
    for (quota, len) in [(1 << 20, 50), (1 << 20, 3_000), (3 << 20, 300), (4 << 20, 40_000)] {
        let directory = folder();
        let (store, os) = store(directory.path(), quota);
        let records = fill(&store, len);
        assert!(
            records as usize * len > quota / 3,
            "{records} of {len} bytes in {quota}"
        );
        for number in 0..records {
            store
                .offer(SensorId(0), Seq(1 + u64::from(number)), os.now(), &[number as u8; 100])
                .unwrap();
            store.install_pending(1).unwrap();
            assert!(store.flush().unwrap().durable);
            assert!(store.delete(number.to_be_bytes()).unwrap());
            assert!(file_len(directory.path()) <= quota as u64);
        }
        for number in 0..records / 2 {
            store.put(number.to_be_bytes(), vec![number as u8; len]).unwrap();
        }
    }
}

/// The forgotten reader keeps what deletes free, so it is ended, however young it is.
#[test]
fn at_a_full_quota_a_reader_that_keeps_what_deletes_need_is_ended() {
    let directory = folder();
    let (store, _os) = store(directory.path(), 2 << 20);
    let records = fill(&store, 200);
    let forgotten = store.read_transaction(Deadline::NONE).unwrap();
    assert!(forgotten.get(0u32.to_be_bytes()).unwrap().is_some());
    for number in 0..records {
        assert!(store.delete(number.to_be_bytes()).unwrap(), "{number} of {records}");
    }
    let told = forgotten.get(b"any").map(drop).unwrap_err();
    let why = EndedBecause::Quota;
    assert!(
        matches!(told, StoreError::Engine(EngineError::SnapshotEnded { why: found, .. }) if found == why),
        "{told}"
    );
    assert_eq!(store.readers_ended().count, 1);
}

#[test]
fn a_refused_put_leaves_its_transaction_and_names_the_reader_that_stands_in_the_way() {
    let directory = folder();
    let (store, os) = store(directory.path(), 2 << 20);
    let forgotten = store.read_transaction(Deadline::NONE).unwrap();
    forgotten.get(b"any").unwrap();
    os.sleep(Nanos::from_secs(3));
    // Always the same record: what is full is what the reader keeps.
    let refused = (0..100_000u32).find_map(|round| store.put(b"key", round.to_be_bytes()).err());
    let told = refused
        .expect("a reader that is within its life keeps all of it")
        .to_string();
    for part in [
        "quota of 2097152 bytes",
        "of thread",
        "open for 3.00 s",
        "keeps",
        "raise quota",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
    assert!(is_full(&transaction.put(b"other", b"value")));
    assert!(transaction.delete(b"key").unwrap());
    transaction.commit().unwrap();
    assert_eq!(
        store.get(b"other").unwrap(),
        None,
        "beside the snapshot that this thread has open"
    );
    drop(forgotten);
    assert_eq!(store.get(b"key").unwrap(), None);
    store.put(b"other", b"value").unwrap();
}

/// A transaction that is larger than all room ends, and only it does: the engine's own refusal.
#[test]
fn a_transaction_that_failed_is_lost_and_the_store_goes_on() {
    let directory = folder();
    let engine = open(directory.path(), 1 << 20);
    let mut transaction = engine.write().unwrap();
    let mut put = |key: u32| transaction.put(Table::Temporal, &key.to_be_bytes(), &[1; 3_000]);
    let refused = (0..1_000).find_map(|key| put(key).err()).expect("more than the quota");
    assert!(
        matches!(refused, EngineError::QuotaFull { holder: None, .. }),
        "{refused:?}"
    );
    let again = put(0).unwrap_err();
    assert!(matches!(again, EngineError::TransactionLost { .. }), "{again:?}");
    assert!(again.to_string().contains("the store itself goes on"));
    drop(transaction);
    let mut transaction = engine.write().unwrap();
    transaction.put(Table::Data, b"key", b"value").unwrap();
    transaction.commit().unwrap();
}

/// What a transaction has put and joined away again stays taken until it ends.
#[test]
fn a_transaction_that_puts_and_deletes_is_counted_by_the_most_that_it_had() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path(), 16 << 20);
    let mut transaction = engine.write().unwrap();
    for number in 0..20_000u32 {
        transaction.put(Table::Data, &number.to_be_bytes(), &[1; 100]).unwrap();
    }
    for number in 0..20_000u32 {
        transaction.delete(Table::Data, &number.to_be_bytes()).unwrap();
    }
    // Each takes pages behind the last one.
    let refused = |error: &EngineError| matches!(error, EngineError::QuotaFull { .. });
    for number in 0..2_000u32 {
        if let Err(error) = transaction.put(Table::Data, &number.to_be_bytes(), &[2; 12_000]) {
            assert!(refused(&error), "{error}");
            break;
        }
    }
    transaction.commit().expect("a refused put leaves what was put before");
    for round in 0..4u32 {
        let mut transaction = engine.write().unwrap();
        for number in 0..2_000u32 {
            let key = [round + 9, number].map(u32::to_be_bytes).concat();
            if let Err(error) = transaction.put(Table::Data, &key, &[3; 1_000]) {
                assert!(refused(&error), "{error}");
                break;
            }
        }
        transaction.commit().expect("a refused put leaves what was put before");
    }
}

/// Random transactions at a small quota against a model: whatever was refused, the rest is right, and a delete of one
/// record is never refused.
#[test]
fn random_changes_at_a_small_quota_match_a_model() {
    let seed = common::seed();
    let mut random = Choices::new(seed);
    let directory = folder();
    let (store, os) = store(directory.path(), 1 << 20);
    let (mut model, mut refused) = (BTreeMap::new(), 0);
    for round in 0..3_000 {
        let mut changed = model.clone();
        let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
        for _ in 0..1 + random.below(5) {
            let key = (random.below(400) as u16).to_be_bytes();
            let value = vec![round as u8; random.below(6_000) as usize];
            match transaction.put(key, &value) {
                Ok(()) => drop(changed.insert(key, value)),
                full if is_full(&full) => refused += 1,
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        match transaction.commit() {
            Ok(_) => model = changed,
            full if is_full(&full) => refused += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
        if round % 3 == 0 {
            let key = (random.below(400) as u16).to_be_bytes();
            let deleted = store
                .delete(key)
                .unwrap_or_else(|error| panic!("seed {seed}: round {round}: {error}"));
            assert_eq!(deleted, model.remove(&key).is_some(), "seed {seed}");
        }
        os.sleep(Nanos::from_micros(100));
    }
    assert!(refused > 100, "seed {seed}: {refused} refused");
    for (key, value) in &model {
        assert_eq!(store.get(key).unwrap().as_ref(), Some(value), "seed {seed}");
    }
    assert!(file_len(directory.path()) <= 1 << 20);
}

/// Planted: LMDB without a reserve. What the tests above ask of a store, it does not do.
#[test]
fn planted_fault_without_a_reserve_a_delete_fails() {
    use heed::types::Bytes;
    let directory = folder();
    let mut options = heed::EnvOpenOptions::new();
    // SAFETY: no other process has the folder.
    let env = unsafe { options.map_size(1 << 20).open(directory.path()) }.unwrap();
    let transaction = env.write_txn().unwrap();
    let created = env.create_databases_and_commit(transaction, |opener, transaction| {
        let table = opener.create_database::<Bytes, Bytes>(transaction, None)?;
        Ok::<_, heed::Error>(heed::CommitOrAbort::<_, std::convert::Infallible>::Commit(table))
    });
    let heed::CommitOrAbort::Commit(table) = created.unwrap();
    let put = |number: u32| {
        let mut transaction = env.write_txn()?;
        table.put(&mut transaction, &number.to_be_bytes(), &[1; 50])?;
        transaction.commit()
    };
    let records = (0..1_000_000u32).find(|number| put(*number).is_err()).expect("full");
    let delete = |number: u32| {
        let mut transaction = env.write_txn()?;
        table.delete(&mut transaction, &number.to_be_bytes())?;
        transaction.commit()
    };
    let failed = (0..records).find(|number| delete(*number).is_err());
    assert!(failed.is_some(), "all {records} deletes succeeded");
}

#[test]
fn a_quota_that_cannot_work_is_refused_with_what_would() {
    let directory = folder();
    {
        let (store, _os) = store(directory.path(), 4 << 20);
        fill(&store, 1_000);
    }
    let refused = |quota| {
        let options = LmdbOptions {
            quota,
            ..LmdbOptions::default()
        };
        options.open(directory.path()).map(drop).unwrap_err().to_string()
    };
    for (quota, part) in [(0, "1 MiB up to"), (70_000, "1 MiB up to"), (usize::MAX, "1 MiB up to")] {
        let told = refused(quota);
        assert!(told.contains("quota cannot be") && told.contains(part), "{told}");
    }
    let told = refused(1 << 20);
    assert!(
        told.contains("bytes already") && told.contains("use at least that"),
        "{told}"
    );
    let (store, _os) = store(directory.path(), 8 << 20);
    store.put(b"more", b"room").unwrap();
}

#[test]
fn a_quota_grows_while_the_store_is_open_up_to_what_was_set_aside() {
    const MIB: usize = 1 << 20;
    let folder = folder();
    let options = LmdbOptions {
        durability: Durability::NoMetaSync,
        quota: 2 * MIB,
        quota_max: Some(8 * MIB),
        ..LmdbOptions::default()
    };
    let store = Store::open(options.open(folder.path()).unwrap(), VirtualOs::new(1), [].into()).unwrap();
    let snapshot = |bytes: usize| store.engine().space().unwrap().quota == Some(bytes as u64);
    let mut number = 0_u32;
    let mut before = 0;
    for quota in [2 * MIB, 3 * MIB, 8 * MIB] {
        store.engine().grow_quota(quota).unwrap();
        assert!(snapshot(quota));
        // Within one transaction, too, once it was refused.
        while !is_full(&store.put(number.to_be_bytes(), [7; 1_000])) {
            number += 1;
        }
        let taken = store.engine().space().unwrap().taken as usize;
        assert!(taken > before && taken <= quota, "{taken} of {quota}");
        before = taken;
    }
    let refused = |bytes: usize| {
        let refused = store.engine().grow_quota(bytes).unwrap_err();
        assert!(
            matches!(refused, EngineError::Setting { setting: "quota", .. }),
            "{refused}"
        );
    };
    [7 * MIB, 9 * MIB, usize::MAX].into_iter().for_each(refused);
    // At the end of what was set aside it is as at any quota: deletes go on.
    for deleted in 0..number {
        assert!(store.delete(deleted.to_be_bytes()).unwrap());
    }
    let below = LmdbOptions {
        quota_max: Some(MIB),
        ..options
    };
    let elsewhere = self::folder();
    assert!(matches!(
        below.open(elsewhere.path()),
        Err(EngineError::Setting {
            setting: "quota_max",
            ..
        })
    ));
}

/// What plain records may still take of a store without readers, in pages.
fn room(engine: &Lmdb) -> u64 {
    let space = engine.space().unwrap();
    let free: u64 = space.freed.iter().map(|(_, bytes)| bytes).sum();
    let quota = space.quota.unwrap();
    (quota - reserve_of(quota) + free).saturating_sub(space.taken) / 4096
}

/// Writes records anew in one transaction, until one is refused; how many.
fn rewrite(engine: &Lmdb, numbers: impl Iterator<Item = u32>, value: &[u8]) -> u32 {
    let mut transaction = engine.write().unwrap();
    let mut written = 0;
    for number in numbers {
        match transaction.put(Table::Data, &number.to_be_bytes(), value) {
            Ok(()) => written += 1,
            Err(EngineError::QuotaFull { .. }) => break,
            Err(other) => panic!("{other}"),
        }
    }
    transaction.commit().unwrap();
    written
}

/// A transaction copies the leaves that it changes, and no others: what fits is not refused, however full the store is.
#[test]
fn a_large_transaction_is_let_in_where_its_pages_are_there() {
    const QUOTA: usize = 16 << 20;
    for percent in [55, 75, 95] {
        let directory = folder();
        let engine = open(directory.path(), QUOTA);
        let all = QUOTA as u64 - reserve_of(QUOTA as u64);
        let mut records = 0;
        while engine.space().unwrap().data * 100 < all * percent {
            assert_eq!(rewrite(&engine, records..records + 200, &[1; 100]), 200, "{percent} %");
            records += 200;
        }
        let of_a_leaf = (u64::from(records) * 4096 / engine.space().unwrap().data) as u32 + 1;
        // Three quarters of what is there, but for what a commit takes itself.
        let leaves = (room(&engine) - 60) as u32 * 3 / 4;
        assert!(leaves > 30, "{percent} %: {leaves}");
        let in_a_row = leaves * of_a_leaf;
        assert_eq!(
            rewrite(&engine, 0..in_a_row.min(records), &[2; 100]),
            in_a_row.min(records),
            "{percent} %, in a row"
        );
        for _ in 0..2 {
            rewrite(&engine, 0..1, &[3; 100]); // what was freed may be used two commits later
        }
        let one_of_each = (0..leaves)
            .map(|leaf| leaf * of_a_leaf)
            .filter(|number| *number < records);
        let expected = one_of_each.clone().count() as u32;
        assert_eq!(
            rewrite(&engine, one_of_each, &[4; 100]),
            expected,
            "{percent} %, one of each leaf"
        );
        // More than fits is refused, and the store goes on.
        let written = rewrite(&engine, 0..records, &[5; 100]);
        assert!(
            written < records && written > leaves,
            "{percent} %: {written} of {records}"
        );
        let mut transaction = engine.write().unwrap();
        for number in 0..records {
            assert!(transaction.delete(Table::Data, &number.to_be_bytes()).unwrap());
        }
        transaction.commit().unwrap();
        assert!(file_len(directory.path()) <= QUOTA as u64);
    }
}
