//! Any keys, plain and of named tables: a write transaction of LMDB's beside a model that is a map. Keys that no record
//! can have are refused, and nothing else is; records come in the order of their keys from both ends and any key.
#![no_main]

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::OnceLock;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use punctual_engines::Lmdb;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::LinuxOs;
use punctual_store::engine::{Durability, EngineError, KEY_MAX_LEN};
use punctual_store::tables::NAME_MAX_LEN;
use punctual_store::{Deadline, Store, StoreError, StoreOptions};

#[derive(Arbitrary, Debug)]
enum Step {
    Put(Vec<u8>, u8),
    Get(Vec<u8>),
    Delete(Vec<u8>),
    PutIn(bool, Vec<u8>, u8),
    GetIn(bool, Vec<u8>),
    DeleteIn(bool, Vec<u8>),
    /// All records of a range: plain ones, or of a table.
    Range(Option<bool>, Limit, Limit, Vec<Move>),
    /// All plain records with a prefix.
    Prefix(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
enum Limit {
    None,
    Included(Vec<u8>),
    Excluded(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
enum Move {
    Next,
    Back,
    Seek(Vec<u8>),
    SeekBack(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
struct Input {
    names: [String; 2],
    steps: Vec<Step>,
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

static STORE: OnceLock<(tempfile::TempDir, Store<Lmdb, LinuxOs>)> = OnceLock::new();
/// How the store's own keys begin.
const REGION: &[u8] = b"\0punctual/";

impl Limit {
    fn bound(&self) -> Bound<&[u8]> {
        match self {
            Limit::None => Bound::Unbounded,
            Limit::Included(key) => Bound::Included(key),
            Limit::Excluded(key) => Bound::Excluded(key),
        }
    }
}

/// Whether a record can have this plain key.
fn possible(key: &[u8]) -> bool {
    (1..=KEY_MAX_LEN).contains(&key.len()) && !key.starts_with(REGION)
}

/// Goes through `records` as `moves` say, beside `map`.
macro_rules! follow {
    ($records:expr, $map:expr, $range:expr, $moves:expr) => {{
        let (mut records, map, range) = ($records, $map, $range);
        let (mut low, mut high): (Bound<Vec<u8>>, Bound<Vec<u8>>) = (Bound::Unbounded, Bound::Unbounded);
        for step in $moves {
            let inside = |key: &&Vec<u8>| {
                let key: &[u8] = key;
                let left = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
                RangeBounds::<[u8]>::contains(&left, key) && RangeBounds::<[u8]>::contains(&range, key)
            };
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
                Move::Next => (map.keys().find(inside), records.next()),
                Move::Back => (map.keys().rfind(inside), records.next_back()),
            };
            let found = found.map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap());
            assert_eq!(found, expected.map(|key| (key.clone(), map[key].clone())));
            let Some((key, _)) = found else { continue };
            match step {
                Move::Next => low = Bound::Excluded(key),
                _ => high = Bound::Excluded(key),
            }
        }
    }};
}

fuzz_target!(|input: Input| {
    let (_, store) = STORE.get_or_init(|| {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
        let options = LmdbOptions {
            durability: Durability::Volatile,
            quota: 16 << 20,
            ..LmdbOptions::default()
        };
        let engine = options.open(folder.path()).expect("a new store");
        let store = Store::open(engine, LinuxOs, StoreOptions::default()).expect("a new store");
        (folder, store)
    });
    let sound = |name: &String| {
        let sound = (1..=NAME_MAX_LEN).contains(&name.len()) && !name.contains('\0');
        assert_eq!(store.table(name).is_ok(), sound, "{name:?}");
        if sound { name.clone() } else { "table".to_owned() }
    };
    let tables = [sound(&input.names[0]), sound(&input.names[1])];
    let at = |second: bool| usize::from(second && tables[0] != tables[1]);
    let mut plain = Map::new();
    let mut maps = [Map::new(), Map::new()];
    let mut transaction = store.write_transaction(Deadline::NONE).expect("the only writer");
    for step in &input.steps {
        match step {
            Step::Put(key, value) => match transaction.put(key, &[*value]) {
                Ok(()) => {
                    assert!(possible(key), "{key:?} was taken");
                    plain.insert(key.clone(), vec![*value]);
                }
                Err(StoreError::Engine(EngineError::KeyLength { .. }) | StoreError::ReservedKey { .. }) => {
                    assert!(!possible(key), "{key:?} was refused");
                }
                Err(other) => panic!("{other}"),
            },
            Step::Get(key) => {
                match transaction.get(key) {
                    Ok(found) => assert_eq!(found.as_deref(), plain.get(key).map(Vec::as_slice), "{key:?}"),
                    Err(StoreError::Engine(EngineError::KeyLength { .. }) | StoreError::ReservedKey { .. }) => {
                        assert!(!possible(key), "{key:?} was refused");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Delete(key) => match transaction.delete(key) {
                Ok(was) => assert_eq!(was, plain.remove(key).is_some(), "{key:?}"),
                Err(StoreError::Engine(EngineError::KeyLength { .. }) | StoreError::ReservedKey { .. }) => {
                    assert!(!possible(key), "{key:?} was refused");
                }
                Err(other) => panic!("{other}"),
            },
            Step::PutIn(second, key, value) => {
                let at = at(*second);
                let mut table = transaction.table(&tables[at]).expect("a sound name");
                let fits = (1..=table.key_max()).contains(&key.len());
                match table.put(key, [*value]) {
                    Ok(()) => {
                        assert!(fits, "{key:?} was taken");
                        maps[at].insert(key.clone(), vec![*value]);
                    }
                    Err(StoreError::TableKey { .. }) => assert!(!fits, "{key:?} was refused"),
                    Err(other) => panic!("{other}"),
                }
            }
            Step::GetIn(second, key) => {
                let at = at(*second);
                match transaction.table(&tables[at]).expect("a sound name").get(key) {
                    Ok(found) => assert_eq!(found.as_deref(), maps[at].get(key).map(Vec::as_slice), "{key:?}"),
                    Err(StoreError::TableKey { .. }) => assert!(!maps[at].contains_key(key)),
                    Err(other) => panic!("{other}"),
                }
            }
            Step::DeleteIn(second, key) => {
                let at = at(*second);
                match transaction.table(&tables[at]).expect("a sound name").delete(key) {
                    Ok(was) => assert_eq!(was, maps[at].remove(key).is_some(), "{key:?}"),
                    Err(StoreError::TableKey { .. }) => assert!(!maps[at].contains_key(key)),
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Range(table, low, high, moves) => {
                let range = (low.bound(), high.bound());
                match table {
                    None => follow!(transaction.records(range).expect("a scan"), &plain, range, moves),
                    Some(second) => {
                        let at = at(*second);
                        let table = transaction.table(&tables[at]).expect("a sound name");
                        match table.range::<&[u8]>(range) {
                            Ok(records) => follow!(records.raw(), &maps[at], range, moves),
                            Err(StoreError::ReversedRange { low, high }) => assert!(low > high),
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            }
            Step::Prefix(prefix) => {
                let found = transaction.prefix(prefix).expect("a scan");
                let found: Map = found
                    .map(|record| {
                        record
                            .map(|(key, value)| (key.to_vec(), value.to_vec()))
                            .expect("a record")
                    })
                    .collect();
                let expected = plain.iter().filter(|(key, _)| key.starts_with(prefix));
                assert_eq!(
                    found,
                    expected.map(|(key, value)| (key.clone(), value.clone())).collect()
                );
            }
        }
    }
    transaction.abort();
});
