//! Records that expire, against a model, in virtual time, over several runs.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::collection::vec;
use proptest::prelude::*;
use punctual_engines::Memory;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::Os;
use punctual_store::engine::{Durability, Engine, Read, Table};
use punctual_store::expiry::{EXPIRING_KEY_MAX_LEN, SWEPT_MAX};
use punctual_store::temporal::ClockOrigin;
use punctual_store::watch::{Change, WatchTarget};
use punctual_store::{Deadline, Store, StoreError, StoreOptions};
use punctual_testing::VirtualOs;
use punctual_units::{Clock, Nanos};

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

/// Every record that is not due is there; once all is swept, no other is, and the index has no entry more.
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
    if swept {
        assert_eq!(found, live);
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
    } else {
        assert!(live.iter().all(|key| found.contains(key)), "{live:?} of {found:?}");
        assert!(found.iter().all(|key| model.contains_key(key)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
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

#[test]
fn one_transaction_sweeps_so_many_and_a_watch_is_told() {
    let os = VirtualOs::new(1);
    let store = Store::open(Memory::default(), os.clone(), StoreOptions::default()).unwrap();
    let records = 2 * SWEPT_MAX + 1;
    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
    for number in 0..records {
        transaction
            .put_for(&[number as u8 + 1], b"1", Nanos::from_millis(5))
            .unwrap();
    }
    transaction.commit().unwrap();
    let mut watch = store.watch(WatchTarget::Prefix(b""), 64).unwrap();
    os.sleep(Nanos::from_millis(5));
    let swept = || {
        let transaction = store.write_transaction(Deadline::NONE).unwrap();
        let swept = transaction.swept();
        transaction.commit().unwrap();
        swept
    };
    // What a transaction undoes the next one does.
    store.write_transaction(Deadline::NONE).unwrap().abort();
    assert_eq!([swept(), swept(), swept(), swept()], [SWEPT_MAX, SWEPT_MAX, 1, 0]);
    for number in 0..records {
        assert_eq!(
            watch.take(),
            Some(Change::Deleted {
                key: &[number as u8 + 1]
            })
        );
    }
    assert_eq!(watch.take(), None);
    assert_eq!(
        store
            .read_transaction(Deadline::NONE)
            .unwrap()
            .records(ALL)
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn keys_that_cannot_expire_are_refused() {
    let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default()).unwrap();
    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
    let life = Nanos::from_millis(1);
    for key in [vec![], vec![1; EXPIRING_KEY_MAX_LEN + 1]] {
        assert!(matches!(
            transaction.put_for(&key, b"1", life),
            Err(StoreError::ExpiringKey { .. })
        ));
    }
    transaction
        .put_for(&[1; EXPIRING_KEY_MAX_LEN], b"1", Nanos::MAX)
        .unwrap();
    assert!(matches!(
        transaction.put_for(b"\0punctual/due/", b"1", life),
        Err(StoreError::ReservedKey { .. })
    ));
    transaction.commit().unwrap();
    assert_eq!(store.sweep_expired().unwrap(), 0);
}
