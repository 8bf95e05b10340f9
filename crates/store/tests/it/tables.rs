//! Tables with types and without, beside maps; and input that they refuse.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use punctual_engines::Memory;
use punctual_engines::lmdb::LmdbOptions;
use punctual_engines::redb::RedbOptions;
use punctual_os::{LinuxOs, Os};
use punctual_store::engine::{Durability, Engine, EngineError};
use punctual_store::tables::DELETED_TOGETHER;
use punctual_store::temporal::ObjectSpec;
use punctual_store::watch::{Change, WatchTarget};
use punctual_store::{Codec, Encode, Postcard, Store, StoreError, StoreOptions};
use punctual_testing::VirtualOs;
use punctual_units::Nanos;

fn store() -> (Store<Memory, VirtualOs>, VirtualOs) {
    let os = VirtualOs::new(1);
    let options = StoreOptions::from([ObjectSpec::number("pose").period(Nanos(10))]);
    (Store::open(Memory::default(), os.clone(), options).unwrap(), os)
}

#[derive(Clone, Debug)]
enum Step {
    Put(i16, String),
    PutFor(i16, String),
    Delete(i16),
    Compare(i16, Option<String>, Option<String>),
    DeleteRange(i16, i16),
    /// Longer than any life.
    Sleep,
}

fn step() -> impl Strategy<Value = Step> {
    let (key, text) = (-4..4_i16, "[ab]?");
    prop_oneof![
        4 => (key.clone(), text).prop_map(|(key, value)| Step::Put(key, value)),
        2 => (key.clone(), text).prop_map(|(key, value)| Step::PutFor(key, value)),
        2 => key.clone().prop_map(Step::Delete),
        4 => (key.clone(), prop::option::of(text), prop::option::of(text))
            .prop_map(|(key, expected, value)| Step::Compare(key, expected, value)),
        1 => (key.clone(), key).prop_map(|(low, high)| Step::DeleteRange(low.min(high), low.max(high))),
        1 => Just(Step::Sleep),
    ]
}

const LIFE: Nanos = Nanos::from_secs(1);

fn does_what_a_map_does<E: Engine>(
    store: &Store<E, VirtualOs>,
    os: &VirtualOs,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let table = store.table("temperatures").unwrap().typed::<i16, str>().unwrap();
    table.clear().unwrap(); // of a case that failed
    let mut map = BTreeMap::new();
    let mut expiring = Vec::new();
    for step in steps {
        match step {
            Step::Put(key, value) => {
                table.put(key, &value).unwrap();
                expiring.retain(|other| *other != key);
                map.insert(key, value);
            }
            Step::PutFor(key, value) => {
                table.put_for(key, &value, LIFE).unwrap();
                expiring.push(key);
                map.insert(key, value);
            }
            Step::Delete(key) => prop_assert_eq!(table.delete(key).unwrap(), map.remove(&key).is_some()),
            Step::Compare(key, expected, value) => {
                let same = map.get(&key) == expected.as_ref();
                prop_assert_eq!(table.compare_and_set(key, expected, value.clone()).unwrap(), same);
                if same {
                    expiring.retain(|other| *other != key);
                    match value {
                        Some(value) => _ = map.insert(key, value),
                        None => _ = map.remove(&key),
                    }
                }
            }
            Step::DeleteRange(low, high) => {
                let before = map.len();
                map.retain(|key, _| !(low..high).contains(key));
                prop_assert_eq!(table.delete_range(low..high).unwrap(), (before - map.len()) as u64);
            }
            Step::Sleep => {
                os.sleep(LIFE + Nanos(1));
                expiring.drain(..).for_each(|key| _ = map.remove(&key));
            }
        }
        let all: Vec<_> = map.clone().into_iter().collect();
        prop_assert_eq!(table.first().unwrap(), all.first().cloned());
        prop_assert_eq!(table.last().unwrap(), all.last().cloned());
        prop_assert_eq!(table.len().unwrap(), all.len() as u64);
        prop_assert_eq!(table.is_empty().unwrap(), all.is_empty());
        let back: Vec<_> = map
            .range(-2..)
            .rev()
            .map(|(key, value)| (*key, value.clone()))
            .collect();
        prop_assert_eq!(table.rev(-2..).unwrap(), back);
        prop_assert_eq!(
            table.range(-2..=1).unwrap(),
            map.range(-2..=1)
                .map(|(key, value)| (*key, value.clone()))
                .collect::<Vec<_>>()
        );
    }
    table.clear().unwrap();
    prop_assert!(table.is_empty().unwrap() && store.default_table().is_empty().unwrap());
    Ok(())
}

proptest! {
    #[test]
    fn a_table_does_what_a_map_does(steps in prop::collection::vec(step(), 0..40)) {
        let (store, os) = store();
        does_what_a_map_does(&store, &os, steps)?;
    }

    #[test]
    fn integers_sort_as_numbers_do(left: i64, right: i64) {
        let written = |number: i64| Encode::<i64>::encode(&number).unwrap().into_owned();
        prop_assert_eq!(written(left).cmp(&written(right)), left.cmp(&right));
        prop_assert_eq!(<i64 as Codec>::decode(&written(left)), Ok(left));
    }
}

fn conforms<E: Engine>(engine: E) {
    let os = VirtualOs::new(1);
    let store = Store::open(engine, os.clone(), StoreOptions::default()).unwrap();
    // One store for all cases: each leaves the table empty.
    let mut runner = TestRunner::new(ProptestConfig::with_cases(32));
    let steps = prop::collection::vec(step(), 0..40);
    runner
        .run(&steps, |steps| does_what_a_map_does(&store, &os, steps))
        .unwrap();
}

#[test]
fn a_table_on_lmdb_does_what_a_map_does() {
    let directory = tempfile::tempdir().unwrap();
    let options = LmdbOptions {
        durability: Durability::Volatile,
        ..LmdbOptions::default()
    };
    conforms(options.open(directory.path()).unwrap());
}

#[test]
fn a_table_on_redb_does_what_a_map_does() {
    let directory = tempfile::tempdir().unwrap();
    let options = RedbOptions {
        durability: Durability::Volatile,
        cache_bytes: 1 << 20,
        ..RedbOptions::default()
    };
    conforms(options.open(directory.path()).unwrap());
}

#[test]
fn the_default_table_has_the_histories_of_temporal_objects() {
    let os = VirtualOs::new(1);
    let pose = ObjectSpec::number("pose").period(Nanos(10)).keeping(3);
    let store = Store::open(Memory::default(), os.clone(), StoreOptions::from([pose])).unwrap();
    for number in 1..=5_u64 {
        store
            .offer_next(punctual_units::SensorId(0), None, &number.to_be_bytes())
            .unwrap();
    }
    let table = store.default_table().typed::<str, u64>().unwrap();
    let history = table.history("pose").unwrap();
    let numbers: Vec<_> = history.iter().map(|(sample, value)| (sample.seq.0, *value)).collect();
    assert_eq!(numbers, [(3, 3), (4, 4), (5, 5)]);
    table.put("door", 1).unwrap();
    let refused = table.history("door").unwrap_err();
    assert!(
        matches!(&refused, StoreError::NotTemporal { key } if key == b"door"),
        "{refused}"
    );
}

#[test]
fn a_table_has_the_types_that_it_was_first_used_with() {
    let (store, _) = store();
    let open = || store.table("counts").unwrap();
    open().typed::<str, u64>().unwrap().put("a", 1).unwrap();
    let refused = open().typed::<str, str>().map(drop).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "table counts has the types text to u64, not text to text: use those, or another table"
    );
    let within = store.update(|tx| tx.table("counts")?.typed::<u64, u64>().map(drop));
    assert!(matches!(within, Err(StoreError::TableTypes { .. })));
    let seen = store.view(|tx| tx.table("counts")?.typed::<u64, u64>().map(drop));
    assert!(matches!(seen, Err(StoreError::TableTypes { .. })));
    assert_eq!(open().typed::<str, u64>().unwrap().get("a").unwrap(), Some(1));
    assert_eq!(open().get("a").unwrap().as_deref(), Some(&1_u64.to_be_bytes()[..]));
}

#[test]
fn bytes_that_are_no_value_of_the_type_are_an_error_of_that_read() {
    let (store, _) = store();
    let raw = store.table("counts").unwrap();
    raw.put("a", [1, 2, 3]).unwrap();
    let counts = store.table("counts").unwrap().typed::<str, u64>().unwrap();
    assert_eq!(
        counts.get("a").unwrap_err().to_string(),
        "table counts: a value is no u64 (3 bytes, not 8): use the type that the record was written with"
    );
    raw.put([0xff], 1_u64.to_be_bytes()).unwrap();
    raw.delete("a").unwrap();
    assert!(matches!(counts.last(), Err(StoreError::Codec { part: "key", .. })));
    let poses = store
        .table("poses")
        .unwrap()
        .typed::<u8, Postcard<(f64, Vec<u8>)>>()
        .unwrap();
    poses.put(7, (0.5, vec![1, 2])).unwrap();
    let shorter = store.table("poses").unwrap().typed::<u8, Postcard<f64>>().unwrap();
    assert!(matches!(shorter.get(7), Err(StoreError::Codec { part: "value", .. })));
    assert_eq!(poses.get(7).unwrap(), Some((0.5, vec![1, 2])));
}

#[test]
fn a_reversed_range_is_refused_and_an_empty_one_is_empty() {
    let (store, _) = store();
    let table = store.table("a").unwrap();
    table.put("b", "1").unwrap();
    assert_eq!(
        table.range("c".."b").unwrap_err().to_string(),
        "the range begins at c and ends before that, at b: exchange its bounds"
    );
    assert_eq!(table.range("b".."b").unwrap(), []);
    assert!(matches!(
        store.view(|tx| tx.range("c".."b").map(drop)),
        Err(StoreError::ReversedRange { .. })
    ));
    assert!(matches!(
        table.delete_range("c".."b"),
        Err(StoreError::ReversedRange { .. })
    ));
}

/// Reads and writes answer alike.
#[test]
fn a_key_that_cannot_exist_is_the_same_error_for_every_call() {
    let (store, _) = store();
    for key in [&b""[..], &[1; 512], b"\0punctual/due/x"] {
        let of = |answer: Result<(), StoreError>| answer.unwrap_err().to_string();
        let put = of(store.put(key, "1"));
        assert_eq!(of(store.get(key).map(drop)), put);
        assert_eq!(of(store.delete(key).map(drop)), put);
        assert_eq!(of(store.contains_key(key).map(drop)), put);
        assert_eq!(of(store.compare_and_set(key, None, Some("1")).map(drop)), put);
        assert_eq!(of(store.put_for(key, "1", LIFE)), put);
        assert_eq!(of(store.view(|tx| tx.life_left(key).map(drop))), put);
    }
    let table = store.table("a").unwrap();
    let longest = vec![1; table.key_max()];
    table.put(&longest, "1").unwrap();
    for key in [vec![], [longest, vec![1]].concat()] {
        assert!(matches!(table.put(&key, "1"), Err(StoreError::TableKey { .. })));
        assert!(matches!(table.get(&key), Err(StoreError::TableKey { .. })));
        assert!(matches!(table.delete(&key), Err(StoreError::TableKey { .. })));
    }
    let StoreError::ExpiringKey { len, max } = table.put_for([1; 478], "1", LIFE).unwrap_err() else {
        panic!("a key that is too long to expire")
    };
    assert_eq!(len, 478);
    table.put_for(vec![1; max], "1", LIFE).unwrap();
    assert!(table.set_life(vec![1; max + 1], Some(LIFE)).is_err());
    assert_eq!(table.life_left(vec![1; max]).unwrap(), Some(LIFE));
    assert_eq!((table.iter().unwrap().len(), table.prefix([1]).unwrap().len()), (2, 2));
    assert!(matches!(
        store.get([1; 512]),
        Err(StoreError::Engine(EngineError::KeyLength { len: 512 }))
    ));
}

#[test]
fn a_record_whose_life_has_ended_compares_as_none() {
    let (store, os) = store();
    let leases = store.table("leases").unwrap();
    leases.put_for("door", "ada", LIFE).unwrap();
    assert!(!leases.compare_and_set("door", None, Some("bob")).unwrap());
    os.sleep(LIFE + Nanos(1));
    assert!(!leases.compare_and_set("door", Some("ada"), Some("ada")).unwrap());
    assert!(leases.compare_and_set("door", None, Some("bob")).unwrap());
    os.sleep(LIFE + Nanos(1));
    assert_eq!(
        leases.get("door").unwrap().as_deref(),
        Some(&b"bob"[..]),
        "the old life is over"
    );
}

#[test]
fn a_watch_of_a_table_names_its_keys_and_no_others() {
    let (store, os) = store();
    let (rooms, near) = (store.table("rooms").unwrap(), store.table("room").unwrap());
    let mut watch = rooms.watch(8).unwrap();
    let mut all = store.watch(WatchTarget::Prefix(b""), 8).unwrap();
    near.put("a", "1").unwrap();
    store.put("b", "1").unwrap();
    rooms.put_for("c", "1", LIFE).unwrap();
    os.sleep(LIFE + Nanos(1));
    store.sweep_expired().unwrap();
    assert_eq!(watch.take(), Some(Change::Put { key: b"c" }));
    assert_eq!(
        watch.take(),
        Some(Change::Expiry {
            key: b"c",
            expires: true
        })
    );
    assert_eq!(watch.take(), Some(Change::Expired { key: b"c" }));
    assert_eq!(watch.take(), None);
    assert_eq!(all.take(), Some(Change::Put { key: b"b" }));
    assert_eq!(all.take(), None);
}

#[test]
fn a_range_of_many_records_is_deleted_in_several_transactions() {
    let (store, os) = store();
    store
        .update(|tx| {
            let mut table = tx.table("log")?.typed::<u32, [u8]>()?;
            (0..2 * DELETED_TOGETHER as u32 + 3).try_for_each(|number| table.put(number, "line"))
        })
        .unwrap();
    let log = store.table("log").unwrap().typed::<u32, [u8]>().unwrap();
    assert_eq!(log.delete_range(1..).unwrap(), 2 * DELETED_TOGETHER as u64 + 2);
    assert_eq!(log.range(..=9).unwrap(), [(0, b"line".to_vec())]);
    // Records whose life has ended go as well, and do not count.
    store
        .update(|tx| {
            let mut table = tx.table("log")?;
            (0..2 * DELETED_TOGETHER as u32).try_for_each(|number| table.put_for(number.to_be_bytes(), "line", LIFE))
        })
        .unwrap();
    os.sleep(LIFE + Nanos(1));
    store.table("log").unwrap().put("z", "line").unwrap();
    assert_eq!(store.table("log").unwrap().clear().unwrap(), 1);
    assert_eq!(store.sweep_expired().unwrap(), 0);
    // Temporal objects stay, whatever the range.
    store.offer_next(punctual_units::SensorId(0), None, b"1").unwrap();
    store.install_pending(1).unwrap();
    store.put("a", "1").unwrap();
    assert_eq!(store.default_table().clear().unwrap(), 1);
    assert!(store.contains_key("pose").unwrap());
}

#[test]
fn threads_that_compare_and_set_one_key_lose_no_change() {
    const EACH: u64 = 200;
    let options = StoreOptions {
        // A busy machine may put off the holder of the lock for seconds.
        lock_wait_max: Nanos::from_secs(60),
        ..StoreOptions::default()
    };
    let store = Store::open(Memory::default(), LinuxOs, options).unwrap();
    let counts = || store.table("counts").unwrap().typed::<str, u64>().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (counts, mut done) = (counts(), 0);
                while done < EACH {
                    let before = counts.get("a").unwrap();
                    let set = counts.compare_and_set("a", before, Some(before.unwrap_or(0) + 1));
                    done += u64::from(set.unwrap());
                }
            });
        }
    });
    assert_eq!(counts().get("a").unwrap(), Some(2 * EACH));
}

#[test]
fn an_error_of_the_closure_undoes_the_transaction() {
    let (store, _) = store();
    let answer: Result<(), StoreError> = store.update(|tx| {
        tx.put("a", "1")?;
        Err(StoreError::other("the door is stuck"))
    });
    assert_eq!(answer.unwrap_err().to_string(), "the door is stuck");
    assert_eq!(store.get("a").unwrap(), None);
}
