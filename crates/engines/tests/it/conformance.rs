//! All engines pass the conformance suite; engines with planted faults do not.

use std::ops::Bound;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use punctual_engines::lmdb::LmdbOptions;
use punctual_engines::{AnyEngine, Memory};
use punctual_store::engine::{
    Cursor, Durability, EndedBecause, Engine, EngineError, KeyRange, OpenSnapshot, Read, Reader, Record, SnapshotId,
    Space, Table, Write,
};
use punctual_store::{OpenEngine, Value};
use punctual_testing::conformance::engine::{Step, check, check_limits};
use punctual_units::Nanos;

fn table() -> impl Strategy<Value = Table> {
    prop_oneof![Just(Table::Data), Just(Table::Temporal)]
}

/// Few keys, so that steps meet; some long, to make pages split.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let short = vec(0u8..3, 1..3);
    let long = (any::<u8>(), 100usize..512).prop_map(|(byte, len)| vec![byte % 8; len]);
    prop_oneof![3 => short, 1 => long]
}

/// Some beyond a page, so that they go to pages of their own.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let large = (any::<u8>(), 2_000usize..20_000).prop_map(|(byte, len)| vec![byte; len]);
    prop_oneof![5 => vec(any::<u8>(), 0..40), 1 => large]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    let edge = prop_oneof![4 => key(), 1 => Just(vec![])];
    prop_oneof![
        edge.clone().prop_map(Bound::Included),
        edge.prop_map(Bound::Excluded),
        Just(Bound::Unbounded)
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (table(), key(), value()).prop_map(|(table, key, value)| Step::Put(table, key, value)),
        3 => (table(), key()).prop_map(|(table, key)| Step::Delete(table, key)),
        2 => (table(), key()).prop_map(|(table, key)| Step::Get(table, key)),
        2 => (table(), bound(), bound()).prop_map(|(table, low, high)| Step::Scan(table, low, high)),
        2 => (table(), bound(), bound()).prop_map(|(table, low, high)| Step::ScanBack(table, low, high)),
        2 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => Just(Step::TakeSnapshot),
        1 => Just(Step::CheckSnapshot),
        1 => Just(Step::EndSnapshot),
    ];
    vec(step, 0..60)
}

/// Runs the suite on fresh engines; the failure, if any, with its shortest steps.
fn conforms<E: Engine>(cases: u32, engine: impl Fn() -> E) -> Result<(), String> {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&steps(), |steps| {
            check(&engine(), &steps).map_err(|violation| TestCaseError::fail(violation.to_string()))
        })
        .map_err(|failure| failure.to_string())
}

#[test]
fn memory_conforms() {
    conforms(256, Memory::default).unwrap();
    check_limits(&Memory::default()).unwrap();
}

proptest! {
    #[test]
    fn memory_counts_the_bytes_that_it_holds(
        transactions in vec((vec((any::<u8>(), prop::option::of(0usize..40)), 0..12), any::<bool>()), 0..20),
    ) {
        let (engine, mut model) = (Memory::default(), std::collections::BTreeMap::new());
        for (changes, commits) in transactions {
            let (mut transaction, mut changed) = (engine.write().unwrap(), model.clone());
            for (key, len) in changes {
                match len {
                    Some(len) => transaction.put(Table::Data, &[key], &vec![key; len]).unwrap(),
                    None => prop_assert_eq!(transaction.delete(Table::Data, &[key]).unwrap(), changed.contains_key(&key)),
                }
                changed.remove(&key);
                changed.extend(len.map(|len| (key, len)));
            }
            if commits {
                transaction.commit().unwrap();
                model = changed;
            }
            let bytes: usize = model.values().map(|len| 1 + len).sum();
            prop_assert_eq!(engine.space().unwrap().data, bytes as u64);
        }
    }
}

#[test]
fn lmdb_conforms() {
    let directory = punctual_testing::shared_folder();
    let number = std::cell::Cell::new(0);
    let fresh = || {
        number.set(number.get() + 1);
        let options = LmdbOptions {
            durability: Durability::Volatile,
            quota: 16 << 20,
            readers_max: 8,
            ..LmdbOptions::default()
        };
        options.open(directory.path().join(number.get().to_string())).unwrap()
    };
    conforms(96, fresh).unwrap();
    check_limits(&fresh()).unwrap();
}

#[cfg(feature = "redb")]
#[test]
fn redb_conforms() {
    use punctual_engines::redb::RedbOptions;
    let directory = punctual_testing::shared_folder();
    let number = std::cell::Cell::new(0);
    let fresh = |durability| {
        number.set(number.get() + 1);
        let options = RedbOptions {
            durability,
            cache_bytes: 1 << 20,
            ..RedbOptions::default()
        };
        options.open(directory.path().join(number.get().to_string())).unwrap()
    };
    conforms(96, || fresh(Durability::Volatile)).unwrap();
    for durability in [Durability::Durable, Durability::NoMetaSync, Durability::Volatile] {
        let engine = fresh(durability);
        assert_eq!(engine.durability(), durability);
        check_limits(&engine).unwrap();
        engine.sync().unwrap();
    }
}

/// Every level of durability runs the same code above the system calls: one sequence each.
#[test]
fn every_durability_level_keeps_the_limits() {
    for durability in [Durability::Durable, Durability::NoMetaSync, Durability::Volatile] {
        let directory = punctual_testing::shared_folder();
        let engine = LmdbOptions {
            durability,
            ..LmdbOptions::default()
        }
        .open(directory.path())
        .unwrap();
        assert_eq!(engine.durability(), durability);
        check_limits(&engine).unwrap();
        let volatile = matches!(engine.sync(), Err(EngineError::Volatile { .. }));
        assert_eq!(
            volatile,
            durability == Durability::Volatile,
            "only a volatile store refuses to sync"
        );
    }
}

/// What a broken engine does otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    DeleteKeepsTheRecord,
    DroppedTransactionIsCommitted,
    SnapshotMovesOn,
    ScanSkipsTheFirst,
    ScanIgnoresItsEnd,
    BackIsForth,
    AnotherSnapshotEndsTheFirst,
    TablesAreOne,
    PutLosesEmptyValues,
    EndIsIgnored,
    EndedSnapshotIsListed,
    EndedSnapshotMovesOn,
}

/// A decorator around the reference engine. Without a fault, proof that engines can be decorated, and that the bytes
/// they return may be their reader's own.
struct Faulty {
    inner: Memory,
    fault: Fault,
    listed: std::sync::Mutex<Vec<OpenSnapshot>>,
}

struct FaultySnapshot<'e> {
    taken: <Memory as Engine>::Snapshot<'e>,
    engine: &'e Faulty,
}

struct FaultyWrite<'e> {
    /// Gone once it is committed.
    inner: Option<<Memory as Engine>::Write<'e>>,
    engine: &'e Faulty,
}

/// Records that were read before.
struct Listed(std::vec::IntoIter<(Value, Value)>, Option<(Value, Value)>);

impl Cursor for Listed {
    fn step(&mut self) -> Result<bool, EngineError> {
        self.1 = self.0.next();
        Ok(self.1.is_some())
    }

    fn record(&self) -> Record<'_> {
        self.1.as_ref().map_or((&[], &[]), |(key, value)| (key, value))
    }
}

fn listed(records: impl Iterator<Item = Result<(Value, Value), EngineError>>) -> Result<Listed, EngineError> {
    let records: Vec<_> = records.collect::<Result<_, _>>()?;
    Ok(Listed(records.into_iter(), None))
}

impl Faulty {
    fn table(&self, table: Table) -> Table {
        if self.fault == Fault::TablesAreOne {
            Table::Data
        } else {
            table
        }
    }

    fn scan(
        &self,
        read: &impl Read,
        table: Table,
        (low, high): KeyRange<'_>,
        back: bool,
    ) -> Result<Listed, EngineError> {
        let high = if self.fault == Fault::ScanIgnoresItsEnd {
            Bound::Unbounded
        } else {
            high
        };
        let skip = usize::from(self.fault == Fault::ScanSkipsTheFirst);
        let table = self.table(table);
        if back && self.fault != Fault::BackIsForth {
            return listed(read.scan_back(table, (low, high))?);
        }
        listed(read.scan(table, (low, high))?.skip(skip))
    }
}

impl Engine for Faulty {
    type Snapshot<'e> = FaultySnapshot<'e>;
    type Write<'e> = FaultyWrite<'e>;

    fn snapshot_for(&self, reader: Reader) -> Result<FaultySnapshot<'_>, EngineError> {
        if self.fault == Fault::AnotherSnapshotEndsTheFirst {
            for open in self.inner.snapshots() {
                self.inner.end(open.id, Nanos(1), EndedBecause::Life);
            }
        }
        Ok(FaultySnapshot {
            taken: self.inner.snapshot_for(reader)?,
            engine: self,
        })
    }

    fn snapshots(&self) -> Vec<OpenSnapshot> {
        let open = self.inner.snapshots();
        if self.fault != Fault::EndedSnapshotIsListed {
            return open;
        }
        let mut listed = self.listed.lock().unwrap();
        listed.extend(open);
        listed.clone()
    }

    fn end(&self, snapshot: SnapshotId, age: Nanos, why: EndedBecause) -> bool {
        self.fault == Fault::EndIsIgnored || self.inner.end(snapshot, age, why)
    }

    fn space(&self) -> Result<Space, EngineError> {
        self.inner.space()
    }

    fn write(&self) -> Result<FaultyWrite<'_>, EngineError> {
        Ok(FaultyWrite {
            inner: Some(self.inner.write()?),
            engine: self,
        })
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }
}

impl FaultySnapshot<'_> {
    /// Reads from the snapshot that was taken, or, with the fault, from a new one.
    fn view<T>(
        &self,
        read: impl Fn(&<Memory as Engine>::Snapshot<'_>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        if self.engine.fault == Fault::SnapshotMovesOn {
            return read(&self.engine.inner.snapshot()?);
        }
        match read(&self.taken) {
            Err(EngineError::SnapshotEnded { .. }) if self.engine.fault == Fault::EndedSnapshotMovesOn => {
                read(&self.engine.inner.snapshot()?)
            }
            answer => answer,
        }
    }
}

impl Read for FaultySnapshot<'_> {
    type Cursor<'t>
        = Listed
    where
        Self: 't;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        let found = self.view(|snapshot| snapshot.get(self.engine.table(table), key))?;
        // The faults are those of snapshots, not of bytes.
        Ok(found.map(|value| look(&value)))
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Listed, EngineError> {
        self.view(|snapshot| self.engine.scan(snapshot, table, range, back))
    }
}

impl<'e> FaultyWrite<'e> {
    fn inner(&self) -> &<Memory as Engine>::Write<'e> {
        self.inner.as_ref().expect("the transaction is open")
    }

    fn inner_mut(&mut self) -> &mut <Memory as Engine>::Write<'e> {
        self.inner.as_mut().expect("the transaction is open")
    }
}

impl Read for FaultyWrite<'_> {
    type Cursor<'t>
        = Listed
    where
        Self: 't;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        self.inner().get_with(self.engine.table(table), key, look)
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Listed, EngineError> {
        self.engine.scan(self.inner(), table, range, back)
    }
}

impl Write for FaultyWrite<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        if self.engine.fault == Fault::PutLosesEmptyValues && value.is_empty() {
            return Ok(());
        }
        let table = self.engine.table(table);
        self.inner_mut().put(table, key, value)
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, EngineError> {
        let table = self.engine.table(table);
        if self.engine.fault == Fault::DeleteKeepsTheRecord {
            return Ok(self.get(table, key)?.is_some());
        }
        self.inner_mut().delete(table, key)
    }

    fn commit(mut self) -> Result<(), EngineError> {
        self.inner.take().expect("the transaction is open").commit()
    }
}

impl Drop for FaultyWrite<'_> {
    fn drop(&mut self) {
        if self.engine.fault == Fault::DroppedTransactionIsCommitted
            && let Some(inner) = self.inner.take()
        {
            inner.commit().expect("memory commits");
        }
    }
}

#[test]
fn a_decorated_engine_conforms_and_every_planted_fault_is_caught() {
    let engine = |fault| {
        move || Faulty {
            inner: Memory::default(),
            fault,
            listed: std::sync::Mutex::default(),
        }
    };
    conforms(64, engine(Fault::None)).unwrap();
    conforms(64, AnyEngine::in_memory).unwrap();
    for fault in [
        Fault::DeleteKeepsTheRecord,
        Fault::DroppedTransactionIsCommitted,
        Fault::SnapshotMovesOn,
        Fault::ScanSkipsTheFirst,
        Fault::ScanIgnoresItsEnd,
        Fault::BackIsForth,
        Fault::AnotherSnapshotEndsTheFirst,
        Fault::TablesAreOne,
        Fault::PutLosesEmptyValues,
        Fault::EndIsIgnored,
        Fault::EndedSnapshotIsListed,
        Fault::EndedSnapshotMovesOn,
    ] {
        assert!(conforms(2_000, engine(fault)).is_err(), "{fault:?} was not caught");
    }
}
