//! Files of a store with some bytes changed: refused, told when they are read, or right; and no signal, whatever is
//! read and written afterwards. A single change of up to four bytes is never read as data where records have checksums.
//!
//! The input is a byte that chooses the store and the check, and changes of 4 bytes each: where, and the new byte.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::ops::Bound;
use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use punctual_engines::Lmdb;
use punctual_engines::lmdb::{LmdbOptions, Verify};
use punctual_store::engine::{Durability, Engine, EngineError, Read, Table, Write};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;
const TABLES: [Table; 2] = [Table::Data, Table::Temporal];
const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
const CHANGE_LEN: usize = 4;

/// A store: its file, and what it holds.
struct Whole {
    bytes: Vec<u8>,
    records: [Records; 2],
}

/// With checksums, and without.
static STORES: OnceLock<[Whole; 2]> = OnceLock::new();
static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();

fn options(checksums: bool, verify: Verify) -> LmdbOptions {
    LmdbOptions {
        durability: Durability::Volatile,
        quota: 2 << 20,
        readers_max: 4,
        checksums,
        verify,
        ..LmdbOptions::default()
    }
}

/// Trees of two levels, a value of several pages, and pages to reuse.
fn whole(checksums: bool) -> Whole {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let engine = options(checksums, Verify::Full)
        .open(folder.path())
        .expect("a new store");
    for round in 0..3u8 {
        let mut transaction = engine.write().expect("a transaction");
        for number in 0..60u8 {
            let len = if number == 9 { 9_000 } else { 40 };
            transaction
                .put(Table::Data, &[number, 1], &vec![round + number; len])
                .expect("room");
            transaction
                .put(Table::Temporal, &[&[number][..], &[7; 90]].concat(), &[round; 20])
                .expect("room");
        }
        for number in (round..60).step_by(7) {
            transaction.delete(Table::Data, &[number, 1]).expect("it is there");
        }
        transaction.commit().expect("a commit");
    }
    let records = TABLES.map(|table| read(&engine, table).expect("a whole store"));
    drop(engine);
    let bytes = fs::read(folder.path().join("data.mdb")).expect("a file");
    Whole { bytes, records }
}

fn read(engine: &Lmdb, table: Table) -> Result<Records, EngineError> {
    let snapshot = engine.snapshot()?;
    let (mut forth, mut back) = (Records::new(), Records::new());
    for record in snapshot.scan(table, ALL)? {
        let (key, value) = record?;
        forth.insert(key.to_vec(), value.to_vec());
    }
    for record in snapshot.scan_back(table, ALL)? {
        let (key, value) = record?;
        back.insert(key.to_vec(), value.to_vec());
    }
    assert_eq!(forth, back, "a scan from the end has other records");
    Ok(forth)
}

/// What no damage may turn into a signal.
fn change(engine: &Lmdb) -> Result<(), EngineError> {
    for round in 0..2u8 {
        let mut transaction = engine.write()?;
        for number in (round..70).step_by(3) {
            transaction.put(Table::Data, &[number, 1], &[round; 300])?;
            transaction.delete(Table::Temporal, &[&[number][..], &[7; 90]].concat())?;
        }
        transaction.commit()?;
    }
    Ok(())
}

fn check(folder: &Path, whole: &Whole, checksums: bool, verify: Verify, strict: bool) -> Result<(), EngineError> {
    let engine = options(checksums, verify).open(folder)?;
    for (table, expected) in TABLES.into_iter().zip(&whole.records) {
        let found = read(&engine, table)?;
        assert!(!strict || found == *expected, "read as data: {table:?}");
        let snapshot = engine.snapshot()?;
        for (key, value) in expected {
            let found = snapshot.get(table, key)?;
            assert!(
                !strict || found.as_deref() == Some(value.as_slice()),
                "read as data: {key:?}"
            );
        }
    }
    change(&engine)
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, changes)) = input.split_first() else {
        return;
    };
    let stores = STORES.get_or_init(|| [true, false].map(whole));
    let folder = FOLDER.get_or_init(|| tempfile::tempdir_in("/dev/shm").expect("a folder in memory"));
    let checksums = choice & 1 == 0;
    let verify = if choice & 2 == 0 {
        Verify::Full
    } else {
        Verify::Structure
    };
    let whole = &stores[usize::from(!checksums)];
    let mut bytes = whole.bytes.clone();
    let (mut first, mut last) = (usize::MAX, 0);
    for change in changes.chunks_exact(CHANGE_LEN) {
        let at = usize::from(change[0]) | usize::from(change[1]) << 8 | usize::from(change[2]) << 16;
        let at = at % bytes.len();
        bytes[at] = change[3];
        (first, last) = (first.min(at), last.max(at));
    }
    if choice & 4 != 0 {
        // Cut off.
        bytes.truncate(last);
    }
    let strict = checksums && choice & 4 == 0 && last.saturating_sub(first) < 4;
    fs::write(folder.path().join("data.mdb"), &bytes).expect("room in memory");
    let _ = check(folder.path(), whole, checksums, verify, strict);
    for entry in fs::read_dir(folder.path()).expect("a folder").flatten() {
        let _ = fs::remove_file(entry.path());
    }
});
