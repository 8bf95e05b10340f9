//! Records that expire, against a model, in virtual time, over several runs.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use punctual_engines::lmdb::LmdbOptions;
use punctual_engines::{Lmdb, Memory};
use punctual_os::Os;
use punctual_store::engine::{Durability, Engine, EngineError, Read, Table, Write};
use punctual_store::expiry::{EXPIRING_KEY_MAX_LEN, SWEPT_EVERY, SWEPT_MAX};
use punctual_store::temporal::ClockOrigin;
use punctual_store::watch::{Change, WatchTarget};
use punctual_store::{Deadline, Store, StoreError, StoreOptions};
use punctual_testing::VirtualOs;
use punctual_units::{Clock, Nanos};

use crate::witnessed::{Step, Witness, WitnessedEngine};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

#[derive(Clone, Debug)]
enum Act {
    Put(u8),
    /// For so many milliseconds.
    PutFor(u8, u64),
    Delete(u8),
    /// Another life, in milliseconds, or none that ends.
    SetLife(u8, Option<u64>),
    Abort,
    Commit,
    Sleep(u64),
    Sweep,
    /// Closes the store and opens it: with the same clock, another one, or one that is not known.
    Reopen(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0u8..20).prop_map(Act::Put),
        12 => (0u8..20, 1u64..50).prop_map(|(key, life)| Act::PutFor(key, life)),
        1 => (0u8..20).prop_map(Act::Delete),
        3 => (0u8..20, prop::option::of(1u64..50)).prop_map(|(key, life)| Act::SetLife(key, life)),
        1 => Just(Act::Abort),
        3 => Just(Act::Commit),
        2 => (0u64..40).prop_map(Act::Sleep),
        1 => Just(Act::Sweep),
        1 => (0u8..3).prop_map(Act::Reopen),
    ]
}

/// A record's life and when it is due, in nanoseconds; none where it does not expire.
type Model = BTreeMap<Vec<u8>, Option<(u64, u64)>>;

/// Every record that is not due is there, and no other; once all is swept, the index has no entry more.
fn compare(store: &Store<punctual_engines::Lmdb, VirtualOs>, model: &Model, swept: bool) {
    let now = store.os().since_boot().0;
    let transaction = store.read_transaction(Deadline::NONE).unwrap();
    let keys = transaction
        .records(ALL)
        .unwrap()
        .map(|record| record.unwrap().0.to_vec());
    let found: Vec<Vec<u8>> = keys.collect();
    let live = model.iter().filter(|(_, term)| term.is_none_or(|(_, due)| due > now));
    let live: Vec<Vec<u8>> = live.map(|(key, _)| key.clone()).collect();
    for key in &found {
        let left = model[key].map(|(_, due)| Nanos(due.saturating_sub(now)));
        assert_eq!(transaction.life_left(key).unwrap(), left, "{}", key.escape_ascii());
    }
    assert_eq!(found, live);
    if swept {
        let snapshot = store.engine().snapshot().unwrap();
        let all = snapshot
            .scan(Table::Data, ALL)
            .unwrap()
            .map(|record| record.unwrap().0.to_vec());
        let hidden = all
            .filter(|key| key.starts_with(b"\0punctual/") && !key.ends_with(b"/runs"))
            .count();
        let expiring = model.values().flatten().filter(|(_, due)| *due > now).count();
        assert_eq!(
            hidden,
            2 * expiring,
            "an entry for each record that expires, and one that leads there"
        );
    }
}

proptest! {
    #[test]
    fn a_record_lives_as_long_as_it_was_told_and_is_swept_then(acts in vec(act(), 0..60)) {
        let directory = punctual_testing::shared_folder();
        let os = VirtualOs::new(1);
        os.sleep(Nanos::from_millis(7));
        let open = |origin: u8| {
            let options = LmdbOptions { durability: Durability::Volatile, quota: 4 << 20, ..LmdbOptions::default() };
            let clock_origin = match origin {
                0 => ClockOrigin::UNKNOWN,
                number => ClockOrigin::named(&[number]),
            };
            let engine = options.open(directory.path()).unwrap();
            Store::open(engine, os.clone(), StoreOptions { clock_origin, ..StoreOptions::default() }).unwrap()
        };
        let (mut store, mut origin) = (open(1), 1);
        let mut model = Model::new();
        for act in acts {
            let now = os.since_boot().0;
            let change = |changes: &[(u8, Option<u64>, bool)], commit: bool, model: &mut Model| {
                let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
                assert!(transaction.swept() <= SWEPT_MAX);
                for (key, life, delete) in changes {
                    let key = vec![b'k', *key];
                    match life {
                        Some(life) => transaction.put_for(&key, b"1", Nanos(*life)).unwrap(),
                        None if *delete => drop(transaction.delete(&key).unwrap()),
                        None => transaction.put(&key, b"1").unwrap(),
                    }
                    if !commit {
                        continue;
                    }
                    if *delete {
                        model.remove(&key);
                    } else {
                        model.insert(key, life.map(|life| (life, now + life)));
                    }
                }
                if commit {
                    transaction.commit().unwrap();
                }
            };
            match act {
                Act::Put(key) => change(&[(key, None, false)], true, &mut model),
                Act::PutFor(key, ms) => change(&[(key, Some(ms * 1_000_000), false)], true, &mut model),
                Act::Delete(key) => change(&[(key, None, true)], true, &mut model),
                Act::SetLife(key, ms) => {
                    let key = vec![b'k', key];
                    let life = ms.map(Nanos::from_millis);
                    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
                    let is_there = transaction.get(&key).unwrap().is_some();
                    assert_eq!(transaction.set_life(&key, life).unwrap(), is_there);
                    if is_there {
                        assert_eq!(transaction.life_left(&key).unwrap(), life);
                        model.insert(key, life.map(|life| (life.0, now + life.0)));
                    }
                    transaction.commit().unwrap();
                }
                Act::Abort => change(&[(3, Some(5), false), (4, None, true), (5, None, false)], false, &mut model),
                Act::Commit => {
                    let several = [(6, Some(3_000_000), false), (6, None, false), (7, None, true), (7, Some(9_000_000), false)];
                    change(&several, true, &mut model);
                }
                Act::Sleep(ms) => os.sleep(Nanos::from_millis(ms)),
                Act::Sweep => {
                    store.sweep_expired().unwrap();
                    compare(&store, &model, true);
                    model.retain(|_, term| term.is_none_or(|(_, due)| due > now));
                }
                Act::Reopen(next) => {
                    drop(store);
                    // What is due is swept by the old clock before, so that the model knows of each whether it is
                    // there.
                    store = open(origin);
                    if origin != 0 {
                        store.sweep_expired().unwrap();
                        model.retain(|_, term| term.is_none_or(|(_, due)| due > now));
                    } else {
                        store.sweep_expired().unwrap();
                        model.values_mut().flatten().for_each(|(life, due)| *due = now + *life);
                        let found = store.read_transaction(Deadline::NONE).unwrap();
                        model.retain(|key, _| found.get(key).unwrap().is_some());
                        drop(found);
                    }
                    drop(store);
                    let anew = next != origin || next == 0;
                    origin = next;
                    store = open(origin);
                    store.sweep_expired().unwrap();
                    if anew {
                        model.values_mut().flatten().for_each(|(life, due)| *due = now + *life);
                    }
                    compare(&store, &model, true);
                }
            }
            compare(&store, &model, false);
        }
    }
}

/// Number of steps of write transactions.
#[derive(Default)]
struct Steps(AtomicU64);

impl Witness for Steps {
    fn before(&self, step: Step<'_>) -> Result<(), EngineError> {
        if !matches!(step, Step::Commit) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

type Counting = WitnessedEngine<Steps>;

/// A store in memory with this many due records, whose keys are their numbers from 1 on.
fn with_due(records: usize) -> (Store<Counting, VirtualOs>, VirtualOs) {
    let os = VirtualOs::new(1);
    let store = Store::open(Counting::default(), os.clone(), StoreOptions::default()).unwrap();
    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
    for number in 1..=records as u32 {
        let life = Nanos::from_millis(5);
        transaction.put_for(number.to_be_bytes(), b"1", life).unwrap();
    }
    transaction.commit().unwrap();
    os.sleep(Nanos::from_millis(5));
    (store, os)
}

fn records(store: &Store<Counting, VirtualOs>) -> usize {
    let transaction = store.read_transaction(Deadline::NONE).unwrap();
    transaction.records(ALL).unwrap().count()
}

/// Number of records in the engine, entries of the index among them.
fn kept(store: &Store<Counting, VirtualOs>) -> usize {
    store
        .engine()
        .snapshot()
        .unwrap()
        .scan(Table::Data, ALL)
        .unwrap()
        .count()
}

#[test]
fn no_read_finds_a_record_after_its_life() {
    let (store, os) = with_due(0);
    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
    for key in [&b"a"[..], b"b", b"c"] {
        transaction.put_for(key, b"1", Nanos::from_millis(5)).unwrap();
    }
    transaction.put_for(b"d", b"1", Nanos::from_millis(50)).unwrap();
    transaction.commit().unwrap();
    let before = store.read_transaction(Deadline::NONE).unwrap();
    assert!(before.get(b"a").unwrap().is_some());
    let mut iterator = before.records(ALL).unwrap();
    assert_eq!(&*iterator.next().unwrap().unwrap().0, b"a");
    os.sleep(Nanos::from_millis(5));

    let keys_of = |found: &mut dyn Iterator<Item = Vec<u8>>| found.collect::<Vec<_>>();
    let look = |transaction: &punctual_store::ReadTransaction<'_, Counting, VirtualOs>| {
        assert_eq!(transaction.get(b"a").unwrap(), None);
        assert_eq!(transaction.get_with(b"a", |_| ()).unwrap(), None);
        assert_eq!(transaction.get(b"d").unwrap().as_deref(), Some(&b"1"[..]));
        let mut scanned = Vec::new();
        let scan = transaction.scan(ALL, |key, _| {
            scanned.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        });
        scan.unwrap();
        assert_eq!(scanned, [b"d"]);
        let all = || {
            transaction
                .records(ALL)
                .unwrap()
                .map(|record| record.unwrap().0.to_vec())
        };
        assert_eq!(keys_of(&mut all()), [b"d"]);
        let back = transaction.records(ALL).unwrap().rev();
        assert_eq!(keys_of(&mut back.map(|record| record.unwrap().0.to_vec())), [b"d"]);
    };
    look(&before);
    assert_eq!(
        iterator.next().map(|record| record.unwrap().0.to_vec()),
        Some(b"d".to_vec())
    );
    look(&store.read_transaction(Deadline::NONE).unwrap());
    assert_eq!(store.get(b"a").unwrap(), None);

    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
    assert_eq!(transaction.get(b"c").unwrap(), None);
    assert_eq!(transaction.records(ALL).unwrap().count(), 1);
    assert!(!transaction.delete(b"c").unwrap());
    assert!(!transaction.set_life(b"b", None).unwrap());
    transaction.put(b"b", b"anew").unwrap();
    assert!(transaction.get(b"b").unwrap().is_some());
    transaction.commit().unwrap();
    // The snapshot from before shows what another transaction has removed or written anew since.
    store.sweep_expired().unwrap();
    look(&before);
    assert_eq!(store.get(b"b").unwrap().as_deref(), Some(&b"anew"[..]));
}

/// Steps of the engine, counted: what a put costs beside thousands of due records.
#[test]
fn a_put_pays_a_bounded_number_of_steps_for_due_records() {
    let count = |due: usize| {
        let (store, _os) = with_due(due);
        let mut steps = Vec::new();
        for number in 0..100u32 {
            let before = store.engine().witness.0.load(Ordering::Relaxed);
            store
                .put([&b"other"[..], &number.to_be_bytes()].concat(), b"1")
                .unwrap();
            steps.push(store.engine().witness.0.load(Ordering::Relaxed) - before);
        }
        steps
    };
    let (none, many) = (count(1), count(3_000));
    let (sum, all) = (|steps: &[u64]| steps.iter().sum::<u64>(), many.len() as u64);
    // An index entry, a record and its entry are removed by one of four puts, which reads two entries ahead, and
    // whether the record leads to the first.
    assert!(many.iter().zip(&none).all(|(many, none)| *many <= none + 7), "{many:?}");
    assert!(sum(&many) <= sum(&none) + all * 7 / SWEPT_EVERY, "{many:?}");
}

#[test]
fn a_transaction_that_makes_leases_removes_more_than_it_makes() {
    let (store, os) = with_due(300);
    for number in 0..600u32 {
        let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
        let key = [&b"new"[..], &number.to_be_bytes()].concat();
        transaction.put_for(&key, b"1", Nanos::from_millis(5)).unwrap();
        transaction.commit().unwrap();
        os.sleep(Nanos::from_millis(1));
    }
    assert!(kept(&store) < 60, "{} records and entries", kept(&store));
}

#[test]
fn due_records_are_removed_in_turn_and_a_watch_is_told() {
    let due = 2 * SWEPT_MAX + 1;
    let (store, _os) = with_due(due);
    let mut watch = store.watch(WatchTarget::Prefix(b""), 64).unwrap();
    assert_eq!(records(&store), 0);
    let swept = || {
        let transaction = store.write_transaction(Deadline::NONE).unwrap();
        let swept = transaction.swept();
        transaction.commit().unwrap();
        swept
    };
    let round: usize = (0..SWEPT_EVERY).map(|_| swept()).sum();
    assert_eq!(round, 1);
    // What a transaction undoes a later one does.
    for _ in 0..SWEPT_EVERY {
        store.write_transaction(Deadline::NONE).unwrap().abort();
    }
    assert_eq!(store.sweep_expired().unwrap(), due - 1);
    assert_eq!(kept(&store), 1, "the number of the run");
    for number in 1..=due as u32 {
        let key = &number.to_be_bytes()[..];
        assert_eq!(watch.take(), Some(Change::Expired { key }));
    }
    assert_eq!(watch.take(), None);
}

/// A refused put is undone with what it has swept: the records must go in a commit of their own.
#[test]
fn a_store_that_is_full_of_due_records_takes_puts() {
    let directory = punctual_testing::shared_folder();
    let os = VirtualOs::new(1);
    let store = small(directory.path(), &os, b"1");
    let full = (0u32..).find(|number| lease(&store, &number.to_be_bytes(), 500, Nanos::from_secs(1)).is_err());
    assert!(full.unwrap() > 1_000);
    let mut watch = store.watch(WatchTarget::Prefix(b""), 4_096).unwrap();
    os.sleep(Nanos::from_secs(2));
    let refused = (0..20)
        .take_while(|_| store.put(b"other", [1; 100_000]).is_err())
        .count();
    assert!(refused < 20);
    let deleted = std::iter::from_fn(|| watch.take().map(|change| matches!(change, Change::Expired { .. })));
    assert!(deleted.filter(|deleted| *deleted).count() > 100);
}

/// A store of 2 MiB in `directory`, whose clock has this origin.
fn small(directory: &Path, os: &VirtualOs, origin: &[u8]) -> Store<Lmdb, VirtualOs> {
    let options = LmdbOptions {
        durability: Durability::Volatile,
        quota: 2 << 20,
        ..LmdbOptions::default()
    };
    let engine = options.open(directory).unwrap();
    let options = StoreOptions {
        clock_origin: ClockOrigin::named(origin),
        ..StoreOptions::default()
    };
    Store::open(engine, os.clone(), options).unwrap()
}

fn lease(store: &Store<Lmdb, VirtualOs>, key: &[u8], len: usize, life: Nanos) -> Result<(), StoreError> {
    let mut transaction = store.write_transaction(Deadline::NONE)?;
    transaction.put_for(key, vec![1; len], life)?;
    transaction.commit().map(drop)
}

/// Keys of the engine's records that begin with `prefix`.
fn hidden(store: &Store<Lmdb, VirtualOs>, prefix: &[u8]) -> Vec<Vec<u8>> {
    let snapshot = store.engine().snapshot().unwrap();
    let all = snapshot.scan(Table::Data, ALL).unwrap();
    let keys = all.map(|record| record.unwrap().0.to_vec());
    keys.filter(|key| key.starts_with(prefix)).collect()
}

/// At a full quota no life can be begun anew, because that is a put: once it is over, the record is removed.
#[test]
fn a_store_full_of_another_clocks_leases_takes_puts_once_their_lives_are_over() {
    for swept_before in [true, false] {
        let directory = punctual_testing::shared_folder();
        let os = VirtualOs::new(1);
        let store = small(directory.path(), &os, b"1");
        let life = Nanos::from_secs(1);
        let full = (0u32..).find(|number| lease(&store, &number.to_be_bytes(), 500, life).is_err());
        drop(store);
        let store = small(directory.path(), &os, b"2");
        let plain = |number: &u32| store.put([&b"plain"[..], &number.to_be_bytes()].concat(), b"1").is_ok();
        let plain = (0u32..).take_while(plain).count();
        if swept_before {
            assert_eq!(store.sweep_expired().unwrap(), 0);
            let found = store
                .read_transaction(Deadline::NONE)
                .unwrap()
                .records(ALL)
                .unwrap()
                .count();
            assert_eq!(found, full.unwrap() as usize + plain);
        }
        os.sleep(Nanos::from_secs(2));
        assert_eq!(store.get(0u32.to_be_bytes()).unwrap(), None);
        let refused = (0..20)
            .take_while(|_| store.put(b"other", [1; 100_000]).is_err())
            .count();
        assert!(refused < 20);
        store.sweep_expired().unwrap();
        assert_eq!(hidden(&store, b"").len(), 1 + plain, "no lease");
        assert_eq!(store.get(b"other").unwrap().map(|value| value.len()), Some(100_000));
    }
}

/// An expiry of which a full quota let in the first entry only.
#[test]
fn an_expiry_to_which_the_record_does_not_lead_removes_no_record() {
    for origin in [b"1", b"2"] {
        let directory = punctual_testing::shared_folder();
        let os = VirtualOs::new(1);
        let store = small(directory.path(), &os, b"1");
        lease(&store, b"later", 1, Nanos::from_secs(100)).unwrap();
        lease(&store, b"key", 1, Nanos::from_secs(1)).unwrap();
        let mut engine = store.engine().write().unwrap();
        assert!(engine.delete(Table::Data, b"\0punctual/term/key").unwrap());
        engine.commit().unwrap();
        store.put(b"key", b"plain").unwrap();
        drop(store);
        let store = small(directory.path(), &os, origin);
        let mut watch = store.watch(WatchTarget::Prefix(b""), 64).unwrap();
        for _ in 0..2 {
            assert_eq!(store.sweep_expired().unwrap(), 0);
            assert_eq!(store.get(b"key").unwrap().as_deref(), Some(&b"plain"[..]));
            os.sleep(Nanos::from_secs(2));
        }
        assert_eq!(hidden(&store, b"\0punctual/due/").len(), 1, "of the other record");
        assert_eq!(watch.take(), None);
    }
}

#[test]
fn keys_that_cannot_expire_are_refused() {
    let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default()).unwrap();
    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
    let life = Nanos::from_millis(1);
    assert!(matches!(
        transaction.put_for([1; EXPIRING_KEY_MAX_LEN + 1], b"1", life),
        Err(StoreError::ExpiringKey { .. })
    ));
    transaction
        .put_for([1; EXPIRING_KEY_MAX_LEN], b"1", Nanos::MAX)
        .unwrap();
    assert!(matches!(
        transaction.put_for(b"\0punctual/due/", b"1", life),
        Err(StoreError::ReservedKey { .. })
    ));
    transaction.commit().unwrap();
    assert_eq!(store.sweep_expired().unwrap(), 0);
}
