//! The text of every error of the store, an engine and the updates, in `snapshots/`.

use std::fmt::{Debug, Display};

use punctual_os::Tid;
use punctual_store::batch::BatchBounds;
use punctual_store::engine::{EndedBecause, EngineError, Holder, Reader};
use punctual_store::permit::WaitedFor;
use punctual_store::updates::OfferError;
use punctual_store::{LockHolder, StoreError};
use punctual_units::{Nanos, ObjectId, Revision, SensorId, Seq};

/// Name of the variant and its text.
fn line(error: &(impl Debug + Display)) -> String {
    let name = format!("{error:?}");
    let name = name.split([' ', '(']).next().unwrap_or_default();
    format!("{name}\n  => {error}\n")
}

fn lock_timeout(longest: Tid, name: Option<&str>) -> StoreError {
    let longest = WaitedFor {
        thread: longest,
        held: Nanos::from_millis(1),
        committing: None,
    };
    StoreError::LockTimeout {
        waited: Nanos::from_millis(2),
        holder: LockHolder {
            thread: Tid(7),
            name: name.map(String::from),
            held: Nanos::from_micros(500),
            longest,
        },
    }
}

fn store_errors() -> Vec<StoreError> {
    let key = || b"sensor/0003".to_vec();
    let (at, revision) = (Revision(7), Revision(9));
    vec![
        StoreError::DeadlinePassed {
            late: Nanos::from_micros(30),
        },
        lock_timeout(Tid(7), None),
        lock_timeout(Tid(8), Some("logger")),
        StoreError::NestedWrite,
        StoreError::TooManyWaiters,
        StoreError::AlarmPanicked {
            message: "out of range".to_owned(),
        },
        StoreError::Temporal { key: key() },
        StoreError::NotTemporal { key: key() },
        StoreError::UnknownObject(ObjectId(3)),
        StoreError::DuplicateObject { key: key() },
        StoreError::ValueTooLong {
            key: key(),
            len: 9,
            max_len: 8,
        },
        StoreError::ReservedKey {
            key: b"\0punctual/x".to_vec(),
        },
        StoreError::ObjectSize {
            key: key(),
            max_len: usize::MAX,
            history: 2,
        },
        StoreError::PlainRecord { key: key() },
        StoreError::TooManyObjects { max: 10 },
        StoreError::TooManyTogether { max: 10 },
        StoreError::TooManyWatches,
        StoreError::ExpiringKey { len: 0, max: 400 },
        StoreError::TableName { name: String::new() },
        StoreError::TableKey { len: 500, max: 400 },
        StoreError::Replicated,
        StoreError::NotReplicated,
        StoreError::NotMemoryFirst,
        StoreError::Part { path: "folder".into() },
        StoreError::Elsewhere { upto: Some(key()) },
        StoreError::Elsewhere { upto: None },
        StoreError::AlreadyApplied {
            at: revision,
            revision: at,
        },
        StoreError::NotNext { at, revision },
        StoreError::BatchFull {
            transactions: 257,
            bytes: 4096,
            bounds: BatchBounds::default(),
        },
        StoreError::ObjectKey { key: Vec::new() },
    ]
}

fn engine_errors() -> Vec<EngineError> {
    let path = || "folder".into();
    let holder = Holder {
        reader: Reader {
            process: Some(70),
            ..Reader::UNKNOWN
        },
        age: Some(Nanos::from_secs(9)),
        held: 4096,
    };
    let quota = |holder| EngineError::QuotaFull {
        path: path(),
        quota: 65_536,
        holder,
    };
    let ended = |why| EngineError::SnapshotEnded {
        age: Nanos::from_secs(9),
        why,
    };
    vec![
        EngineError::DiskFull { path: path() },
        quota(None),
        quota(Some(holder)),
        EngineError::TransactionTooLarge { path: path() },
        EngineError::ReadOnly { path: path() },
        EngineError::Corrupt {
            path: path(),
            reason: "reason".into(),
        },
        EngineError::Version {
            path: path(),
            found: 2,
            expected: 1,
        },
        EngineError::InUse {
            path: path(),
            pid: Some(70),
        },
        EngineError::InUse {
            path: path(),
            pid: None,
        },
        EngineError::ReadersFull { path: path(), max: 8 },
        EngineError::KeyLength { len: 0 },
        EngineError::ValueLength { len: 1 << 30 },
        EngineError::Broken { path: path() },
        ended(EndedBecause::Deadline),
        ended(EndedBecause::Life),
        ended(EndedBecause::Held),
        ended(EndedBecause::Quota),
        EngineError::SyncFailed { path: path() },
        EngineError::Forked { path: path() },
        EngineError::Volatile { path: path() },
        EngineError::Unsynced { path: path() },
        EngineError::NoStore { path: path() },
        EngineError::DataMissing {
            path: path(),
            what: "is empty",
        },
        EngineError::Overtaken {
            path: path(),
            reason: "reason",
        },
        EngineError::TransactionLost { path: path() },
    ]
}

fn offer_errors() -> Vec<OfferError> {
    let (sensor, seq) = (SensorId(1), Seq(3));
    vec![
        OfferError::UnknownSensor {
            sensor: SensorId(2),
            sensors: 2,
        },
        OfferError::SeqNotIncreasing {
            sensor,
            seq,
            last: Seq(4),
        },
        OfferError::ValueTooLong {
            sensor,
            seq,
            len: 9,
            max: 8,
        },
    ]
}

#[test]
fn every_error_has_its_text() {
    let lines = store_errors().into_iter().map(|error| line(&error));
    let lines = lines.chain(engine_errors().into_iter().map(|error| line(&error)));
    let lines = lines.chain(offer_errors().into_iter().map(|error| line(&error)));
    insta::assert_snapshot!("errors", lines.collect::<String>());
}

#[test]
fn settings_of_the_engine_are_refused_in_memory() {
    type Store = punctual_store::Store<punctual_engines::AnyEngine, punctual_os::LinuxOs>;
    let settings = punctual_engines::lmdb::LmdbOptions::default();
    let refused = Store::in_memory().engine(settings).open().map(drop).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "(memory): engine cannot be set in memory: leave it out, or open the store in a folder"
    );
}
