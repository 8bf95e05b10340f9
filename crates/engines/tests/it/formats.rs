//! Stores that earlier versions wrote. `data/format-1.mdb` was written by the last version with format 1, which had no
//! checksums: 40 small records, a large one, and one temporal object.

#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;

use punctual_engines::Lmdb;
use punctual_engines::lmdb::{LmdbOptions, Verify};
use punctual_os::LinuxOs;
use punctual_store::engine::EngineError;
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Freshness, Store, StoreOptions};
use punctual_testing::shared_folder;
use punctual_units::Nanos;

fn open(directory: &Path) -> Store<Lmdb, LinuxOs> {
    let sensor = ObjectSpec {
        key: b"sensor/1".to_vec(),
        avi: Nanos::from_secs(1),
        period: Nanos::from_secs(1),
        max_len: 16,
        history: 1,
    };
    let engine = LmdbOptions::default().open(directory).unwrap();
    Store::open(engine, LinuxOs, StoreOptions::from([sensor])).unwrap()
}

#[test]
fn a_store_of_format_1_is_opened_whole_and_its_temporal_records_get_checksums() {
    let folder = shared_folder();
    fs::write(folder.path().join("data.mdb"), include_bytes!("../data/format-1.mdb")).unwrap();
    for again in [false, true] {
        let store = open(folder.path());
        assert!(!store.engine().has_checksums());
        for number in 0..40 {
            let value = store.get(format!("key {number:02}").as_bytes()).unwrap().unwrap();
            assert_eq!(value, format!("value {number}").repeat(3).as_bytes());
        }
        assert_eq!(store.get(b"large").unwrap().unwrap(), vec![7; 9_000]);
        let sensor = store.object(b"sensor/1").unwrap();
        let mut value = Vec::new();
        assert!(store.read(sensor, &mut value).unwrap().is_some());
        assert_eq!(value, b"21.5 C");
        // The clock that sampled it is not known.
        let stale = store.get_fresh(b"sensor/1", Nanos::MAX).unwrap();
        assert!(matches!(stale, Freshness::Stale { .. }), "{stale:?}");
        assert_eq!(store.get(b"new").unwrap().is_some(), again);
        store.put(b"new", b"written by this version").unwrap();
    }
    // One bit of the temporal value: it is told now.
    let path = folder.path().join("data.mdb");
    let mut bytes = fs::read(&path).unwrap();
    for at in 0..bytes.len() - 6 {
        if bytes[at..].starts_with(b"21.5 C") {
            bytes[at] ^= 1;
        }
    }
    fs::write(&path, bytes).unwrap();
    let refused = LmdbOptions::default().open(folder.path()).map(drop).unwrap_err();
    assert!(refused.to_string().contains("sensor/1"), "{refused}");
}

/// Its temporal records are read by LMDB as they get their checksums, whatever is asked for.
#[test]
fn a_damaged_store_of_format_1_is_told_without_a_check_too() {
    let mut bytes = include_bytes!("../data/format-1.mdb").to_vec();
    let leaves = (0..bytes.len() / 4096).map(|page| page * 4096);
    let is_of = |page: &[u8], what: &[u8]| page.windows(what.len()).any(|bytes| bytes == what);
    let temporal: Vec<usize> = leaves.filter(|at| is_of(&bytes[*at..*at + 4096], b"21.5 C")).collect();
    assert!(!temporal.is_empty());
    for begin in temporal {
        // The first node of its table lies beyond its end.
        bytes[begin + 16..begin + 18].copy_from_slice(&0xFFF0u16.to_le_bytes());
    }
    let folder = shared_folder();
    fs::write(folder.path().join("data.mdb"), bytes).unwrap();
    let options = LmdbOptions {
        verify: Verify::None,
        ..LmdbOptions::default()
    };
    let refused = options.open(folder.path()).map(drop).unwrap_err();
    assert!(matches!(refused, EngineError::Corrupt { .. }), "{refused}");
}

#[test]
fn a_new_store_has_checksums_unless_it_is_made_without() {
    for checksums in [true, false] {
        let folder = shared_folder();
        let options = |checksums| LmdbOptions {
            checksums,
            ..LmdbOptions::default()
        };
        drop(options(checksums).open(folder.path()).unwrap());
        // Later, the store knows better than its options.
        let engine = options(!checksums).open(folder.path()).unwrap();
        assert_eq!(engine.has_checksums(), checksums);
    }
}
