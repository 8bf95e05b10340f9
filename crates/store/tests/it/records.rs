//! Iterators over records, from both ends and from any key, against a model that is a list; on both engines.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

use proptest::collection::vec;
use proptest::prelude::*;
use punctual_engines::lmdb::LmdbOptions;
use punctual_engines::{Lmdb, Memory};
use punctual_os::Os;
use punctual_store::engine::{Durability, EndedBecause, Engine, EngineError, Read, Table, Write};
use punctual_store::temporal::ObjectSpec;
use punctual_store::watch::{Change, WatchTarget};
use punctual_store::{Deadline, Records, Split, Store, StoreError, StoreOptions, UpdateMode};
use punctual_testing::VirtualOs;
use punctual_units::{Clock, Nanos, SensorId};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

fn lmdb(directory: &std::path::Path) -> Lmdb {
    let options = LmdbOptions {
        durability: Durability::Volatile,
        quota: 16 << 20,
        ..LmdbOptions::default()
    };
    options.open(directory).unwrap()
}

#[derive(Clone, Debug)]
enum Move {
    Next,
    Back,
    Seek(Vec<u8>),
    SeekBack(Vec<u8>),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(0u8..3, 1..4)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => Just(Move::Next),
        4 => Just(Move::Back),
        1 => key().prop_map(Move::Seek),
        1 => key().prop_map(Move::SeekBack),
    ];
    vec(one, 0..40)
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Goes through the records as `moves` say, beside a model that filters all of them anew for each.
fn follow<E: Engine, O: Os, R: Read>(
    mut records: Records<'_, E, O, R>,
    get: impl Fn(&[u8]) -> Option<Vec<u8>>,
    map: &Map,
    range: &Range,
    moves: &[Move],
) {
    let (mut low, mut high) = range.clone();
    for step in moves {
        let left = |key: &&Vec<u8>| (low.clone(), high.clone()).contains(*key) && range.contains(*key);
        let (expected, found) = match step {
            Move::Seek(key) => {
                records.seek(key);
                low = Bound::Included(key.clone());
                continue;
            }
            Move::SeekBack(key) => {
                records.seek_back(key);
                high = Bound::Included(key.clone());
                continue;
            }
            Move::Next => (map.keys().find(left), records.next()),
            Move::Back => (map.keys().rfind(left), records.next_back()),
        };
        let expected = expected.map(|key| (key.clone(), map[key].clone()));
        let found = found.map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap());
        assert_eq!(found, expected);
        let Some((key, value)) = found else { continue };
        // The same transaction, in the middle of its scan.
        assert_eq!(get(&key), Some(value));
        match step {
            Move::Next => low = Bound::Excluded(key),
            _ => high = Bound::Excluded(key),
        }
    }
}

/// As [`follow`], with records that are lent.
fn follow_lent<E: Engine, O: Os, R: Read>(mut records: Records<'_, E, O, R>, map: &Map, range: &Range, moves: &[Move]) {
    let (mut low, mut high) = range.clone();
    for step in moves {
        let left = |key: &&Vec<u8>| (low.clone(), high.clone()).contains(*key) && range.contains(*key);
        let (expected, found) = match step {
            Move::Seek(key) => {
                records.seek(key);
                low = Bound::Included(key.clone());
                continue;
            }
            Move::SeekBack(key) => {
                records.seek_back(key);
                high = Bound::Included(key.clone());
                continue;
            }
            Move::Next => (map.keys().find(left), records.lend()),
            Move::Back => (map.keys().rfind(left), records.lend_back()),
        };
        let found = found.unwrap();
        assert_eq!(found, expected.map(|key| (&**key, &*map[key])));
        let Some((key, _)) = found else { continue };
        match step {
            Move::Next => low = Bound::Excluded(key.to_vec()),
            _ => high = Bound::Excluded(key.to_vec()),
        }
    }
}

fn check<E: Engine>(engine: E, plain: &Map, temporal: &Map, range: &Range, moves: &[Move], update_mode: UpdateMode) {
    let spec = |key: &Vec<u8>| ObjectSpec::number(key).period(Nanos::from_millis(10));
    let mut objects: Vec<ObjectSpec> = temporal.keys().map(spec).collect();
    objects.reverse();
    let values = objects.len();
    let mut before = engine.write().unwrap();
    for (key, value) in plain {
        before.put(Table::Data, key, value).unwrap();
    }
    before.commit().unwrap();
    let options = StoreOptions {
        objects,
        update_mode,
        ..StoreOptions::default()
    };
    let store = Store::open(engine, VirtualOs::new(1), options).unwrap();
    for (number, (_, value)) in temporal.iter().rev().enumerate() {
        // One in four has no value, and hides a plain record all the same.
        if number % 4 != 3 {
            store.offer_next(SensorId(number as u32), None, value).unwrap();
        }
    }
    store.install_pending(values).unwrap();
    let mut map = plain.clone();
    for (number, (key, value)) in temporal.iter().rev().enumerate() {
        match number % 4 {
            3 => map.remove(key),
            _ => map.insert(key.clone(), value.clone()),
        };
    }
    let borrowed = borrowed(range);
    let reading = store.read_transaction(Deadline::NONE).unwrap();
    let get = |key: &[u8]| reading.get(key).unwrap().map(|value| value.into_owned());
    follow(reading.records(borrowed).unwrap(), get, &map, range, moves);
    let mut scanned = Vec::new();
    let visit = |key: &[u8], value: &[u8]| {
        scanned.push((key.to_vec(), value.to_vec()));
        std::ops::ControlFlow::Continue(())
    };
    reading.scan(borrowed, visit).unwrap();
    let mut lent = reading.records(borrowed).unwrap();
    let mut seen = Vec::new();
    while let Some((key, value)) = lent.lend().unwrap() {
        assert_eq!(
            reading.get(key).unwrap().as_deref(),
            Some(value),
            "in the middle of a scan"
        );
        seen.push((key.to_vec(), value.to_vec()));
    }
    assert!(lent.lend().unwrap().is_none() && lent.lend_back().unwrap().is_none());
    assert_eq!(seen, scanned);
    follow_lent(reading.records(borrowed).unwrap(), &map, range, moves);
    let inside = map.iter().filter(|(key, _)| range.contains(*key));
    assert_eq!(
        scanned,
        inside
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<Vec<_>>()
    );

    let mut writing = store.write_transaction(Deadline::NONE).unwrap();
    let own = vec![1, 1, 1, 1];
    writing.put(&own, b"own").unwrap();
    map.insert(own, b"own".to_vec());
    let get = |key: &[u8]| writing.get(key).unwrap().map(|value| value.into_owned());
    follow(writing.records(borrowed).unwrap(), get, &map, range, moves);
}

fn map(len: std::ops::Range<usize>) -> impl Strategy<Value = Map> {
    prop::collection::btree_map(key(), vec(any::<u8>(), 0..8), len)
}

proptest! {
    #[test]
    fn records_come_as_a_list_would_give_them(
        plain in map(0..20), temporal in map(0..6), range in (bound(), bound()), moves in moves(), memory_first: bool,
    ) {
        let update_mode = if memory_first { UpdateMode::MemoryFirst } else { UpdateMode::Transaction };
        check(Memory::default(), &plain, &temporal, &range, &moves, update_mode);
    }
}

proptest! {
    #[test]
    fn records_of_lmdb_do_so_too(
        plain in map(0..20), temporal in map(0..6), range in (bound(), bound()), moves in moves(),
    ) {
        let directory = punctual_testing::shared_folder();
        check(lmdb(directory.path()), &plain, &temporal, &range, &moves, UpdateMode::MemoryFirst);
    }
}

fn borrowed(range: &Range) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice))
}

/// Tables whose names and keys lie close together, and plain keys around the region that tables lie in.
fn check_tables(engine: impl Engine, tables: &[Map; 3], range: &Range, moves: &[Move]) {
    let names = ["a", "a\u{1}", "aa"];
    let store = Store::open(engine, VirtualOs::new(1), StoreOptions::default()).unwrap();
    let mut plain = tables[0].clone();
    plain.extend([&b"\0punctual"[..], b"\0punctual0", b"\0"].map(|key| (key.to_vec(), b"plain".to_vec())));
    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
    for (key, value) in &plain {
        transaction.put(key, value).unwrap();
    }
    for (name, records) in names.iter().zip(tables) {
        let mut table = transaction.table(name).unwrap();
        for (key, value) in records {
            table.put(key, b"before").unwrap();
            assert!(table.delete(key).unwrap());
            table.put(key, value).unwrap();
        }
    }
    macro_rules! look_at {
        ($transaction:expr, $name:expr, $records:expr) => {
            let table = $transaction.table($name).unwrap();
            match table.range::<&[u8]>(borrowed(range)) {
                Ok(found) => follow(found.raw(), |key| table.get(key).unwrap(), $records, range, moves),
                Err(StoreError::ReversedRange { low, high }) => assert!(low > high),
                Err(other) => panic!("{other}"),
            }
        };
    }
    for (name, records) in names.iter().zip(tables) {
        look_at!(transaction, name, records);
    }
    transaction.commit().unwrap();
    let transaction = store.read_transaction(Deadline::NONE).unwrap();
    let get = |key: &[u8]| transaction.get(key).unwrap().map(|value| value.into_owned());
    follow(transaction.records(borrowed(range)).unwrap(), get, &plain, range, moves);
    for (name, records) in names.iter().zip(tables) {
        look_at!(transaction, name, records);
        let table = transaction.table(name).unwrap();
        let all: Result<Vec<_>, _> = table.iter().unwrap().collect();
        assert_eq!(all.unwrap(), records.clone().into_iter().collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn tables_are_apart(
        tables in [map(0..12), map(0..12), map(0..12)], range in (bound(), bound()), moves in moves(), in_lmdb: bool,
    ) {
        if in_lmdb {
            let directory = punctual_testing::shared_folder();
            check_tables(lmdb(directory.path()), &tables, &range, &moves);
        } else {
            check_tables(Memory::default(), &tables, &range, &moves);
        }
    }
}

#[test]
fn names_that_no_table_has_are_refused() {
    let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default()).unwrap();
    for name in ["", "zero\0byte", &"n".repeat(65)] {
        assert!(matches!(store.table(name), Err(StoreError::TableName { .. })));
    }
    assert_eq!(store.table(&"n".repeat(64)).unwrap().name(), "n".repeat(64));
    // Into the tables by their back door.
    let hidden = [&b"\0punctual/table/"[..], b"n\0key"].concat();
    assert!(matches!(store.put(&hidden, b"1"), Err(StoreError::ReservedKey { .. })));
}

/// A watch of everything is told of plain keys only.
#[test]
fn no_watch_is_told_of_tables() {
    let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default()).unwrap();
    let mut watch = store.watch(WatchTarget::Prefix(b""), 4).unwrap();
    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
    transaction.table("a").unwrap().put(b"key", b"1").unwrap();
    transaction.put(b"key", b"1").unwrap();
    transaction.commit().unwrap();
    assert_eq!(watch.take(), Some(Change::Put { key: b"key" }));
    assert_eq!(watch.take(), None);
}

fn three(store: &Store<impl Engine, VirtualOs>) {
    for key in [b"a", b"b", b"c"] {
        store.put(key, b"1").unwrap();
    }
}

/// Ended between two of its records: told once, from whichever end, and then there is no more.
fn an_iterator_of_an_ended_snapshot_says_so_once(engine: impl Engine) {
    let store = Store::open(engine, VirtualOs::new(1), StoreOptions::default()).unwrap();
    three(&store);
    let transaction = store.read_transaction(Deadline::NONE).unwrap();
    let mut records = transaction.records(ALL).unwrap();
    let (first, _) = records.next().unwrap().unwrap();
    let open = store.engine().snapshots();
    assert!(store.engine().end(open[0].id, Nanos(5), EndedBecause::Life));
    // What was read ahead is not passed off as a record of the snapshot's.
    let told = std::iter::from_fn(|| records.next_back()).last().unwrap();
    assert!(
        matches!(
            told,
            Err(StoreError::Engine(EngineError::SnapshotEnded {
                why: EndedBecause::Life,
                ..
            }))
        ),
        "an ended snapshot must say so"
    );
    assert!(records.next().is_none() && records.next_back().is_none());
    assert_eq!(&*first, b"a", "what was read stays");
}

#[test]
fn an_iterator_of_an_ended_snapshot_says_so_once_on_either_engine() {
    an_iterator_of_an_ended_snapshot_says_so_once(Memory::default());
    let directory = tempfile::tempdir().unwrap();
    an_iterator_of_an_ended_snapshot_says_so_once(lmdb(directory.path()));
}

/// Transactions of one thread, nested, each with its own snapshot.
fn a_thread_reads_several_snapshots(engine: impl Engine) {
    let store = Store::open(engine, VirtualOs::new(1), StoreOptions::default()).unwrap();
    three(&store);
    let before = store.read_transaction(Deadline::NONE).unwrap();
    let mut records = before.records(ALL).unwrap();
    records.next().unwrap().unwrap();
    store.put(b"b", b"2").unwrap();
    let after = store.read_transaction(Deadline::NONE).unwrap();
    assert_eq!(after.get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(store.get(b"b").unwrap().as_deref(), Some(&b"2"[..]), "a third one");
    let mut writing = store.write_transaction(Deadline::NONE).unwrap();
    writing.put(b"b", b"3").unwrap();
    assert_eq!(before.get(b"b").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(&*records.next().unwrap().unwrap().1, b"1");
    writing.commit().unwrap();
    drop(after);
    assert_eq!(&*records.next().unwrap().unwrap().0, b"c");
    assert!(records.next().is_none());
}

#[test]
fn a_thread_reads_several_snapshots_of_either_engine() {
    a_thread_reads_several_snapshots(Memory::default());
    let directory = tempfile::tempdir().unwrap();
    a_thread_reads_several_snapshots(lmdb(directory.path()));
}

#[test]
fn a_firm_deadline_ends_an_iterator() {
    let os = VirtualOs::new(1);
    let store = Store::open(Memory::default(), os.clone(), StoreOptions::default()).unwrap();
    three(&store);
    let until = os.now() + Nanos::from_millis(5);
    let transaction = store.read_transaction(Deadline::firm(until)).unwrap();
    let mut records = transaction.records(ALL).unwrap();
    records.next().unwrap().unwrap();
    os.sleep(Nanos::from_millis(6));
    assert!(matches!(records.next(), Some(Err(StoreError::DeadlinePassed { .. }))));
    assert!(records.next().is_none());
}

/// What lies between two records is computation, and reads in a visitor are not counted twice.
#[test]
fn the_time_between_records_is_computation() {
    let os = VirtualOs::new(1);
    let store = Store::open(Memory::default(), os.clone(), StoreOptions::default()).unwrap();
    three(&store);
    let deadline = Deadline::soft(os.now() + Nanos::from_secs(1));
    let transaction = store.read_transaction(deadline).unwrap();
    for record in transaction.records(ALL).unwrap() {
        record.unwrap();
        os.sleep(Nanos::from_millis(2));
    }
    let visit = |key: &[u8], _: &[u8]| {
        os.sleep(Nanos::from_millis(1));
        transaction.get(key).unwrap().unwrap();
        std::ops::ControlFlow::Continue(())
    };
    transaction.scan(ALL, visit).unwrap();
    let Split { data, computation, .. } = transaction.finish();
    assert_eq!((data, computation), (Nanos::from_millis(3), Nanos::from_millis(6)));
}
