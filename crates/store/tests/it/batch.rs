//! Batches: bounds, deadlines, temporal values, refusals, and engines that fail.

use std::sync::atomic::{AtomicBool, Ordering};

use punctual_engines::Memory;
use punctual_os::{Os, Thread};
use punctual_store::batch::{BatchBounds, Image, TemporalRead, WriteSet};
use punctual_store::engine::{Engine, EngineError};
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Freshness, Store, StoreError, StoreOptions, UpdateMode};
use punctual_testing::VirtualOs;
use punctual_units::{Clock, Nanos, Revision, SensorId, Seq, Time};

use crate::witnessed::{Step, Witness, WitnessedEngine};

fn options() -> StoreOptions {
    StoreOptions {
        objects: vec![ObjectSpec::number("speed").period(Nanos::from_millis(100))],
        replicated: true,
        ..StoreOptions::default()
    }
}

fn replica() -> Store<Memory, VirtualOs> {
    Store::open(Memory::default(), VirtualOs::new(1), options()).unwrap()
}

/// The write sets of one transaction that puts each of these records.
fn puts<E: Engine>(store: &Store<E, VirtualOs>, records: &[(&[u8], &[u8])]) -> Vec<WriteSet> {
    let mut batch = store.batch(BatchBounds::default()).unwrap();
    let mut transaction = batch.transaction(Deadline::NONE).unwrap();
    for (key, value) in records {
        transaction.put(key, value).unwrap();
    }
    transaction.keep().unwrap();
    batch.close()
}

#[test]
fn the_temporal_values_that_a_transaction_read_are_in_its_write_set() {
    let store = replica();
    let mut batch = store.batch(BatchBounds::default()).unwrap();
    let transaction = batch.transaction(Deadline::NONE).unwrap();
    assert_eq!(transaction.get(b"speed").unwrap().as_deref(), None);
    transaction.keep().unwrap();

    let now = store.os().now();
    store.offer(SensorId(0), Seq(7), now, &1.5f64.to_le_bytes()).unwrap();
    let transaction = batch.transaction(Deadline::NONE).unwrap(); // it installs what is pending
    let seen = transaction.get_fresh(b"speed", Nanos::from_secs(1)).unwrap();
    assert!(matches!(seen, Freshness::Fresh { value, .. } if *value == 1.5f64.to_le_bytes()));
    let mut scanned = 0;
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    transaction
        .scan(all, |_, _| {
            scanned += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    transaction.keep().unwrap();

    let written = batch.close();
    let none = TemporalRead {
        key: b"speed".to_vec(),
        seq: Seq(0),
        age: Nanos::MAX,
        value: None,
    };
    let read = TemporalRead {
        seq: Seq(7),
        age: Nanos::ZERO,
        value: Some(1.5f64.to_le_bytes().to_vec()),
        ..none.clone()
    };
    assert_eq!(scanned, 1);
    assert_eq!(written[0].read, [none]);
    assert_eq!(written[1].read, [read.clone(), read]);
}

#[test]
fn a_transaction_that_does_not_fit_leaves_the_batch_as_it_was() {
    let store = replica();
    let bounds = BatchBounds {
        transactions: 2,
        bytes: 200,
    };
    let mut batch = store.batch(bounds).unwrap();
    let mut small = batch.transaction(Deadline::NONE).unwrap();
    small.put(b"a", b"1").unwrap();
    small.put(b"a", b"2").unwrap(); // takes the room of the first
    small.keep().unwrap();
    let bytes = batch.bytes();
    assert_eq!(bytes, puts(&store, &[(b"a", b"2")])[0].bytes());

    let mut large = batch.transaction(Deadline::NONE).unwrap();
    let refused = large.put(b"b", &[0; 200]).unwrap_err();
    assert!(
        matches!(refused, StoreError::BatchFull { transactions: 2, .. }),
        "{refused}"
    );
    drop(large);
    assert_eq!((batch.kept(), batch.bytes()), (1, bytes));

    batch.transaction(Deadline::NONE).unwrap().keep().unwrap();
    assert!(matches!(
        batch.transaction(Deadline::NONE).map(drop),
        Err(StoreError::BatchFull { transactions: 3, .. })
    ));
    assert!(bounds.check(&batch.close()).is_ok());
    assert!(bounds.check(&vec![WriteSet::default(); 3]).is_err());
}

#[test]
fn a_firm_deadline_undoes_its_transaction_only() {
    let store = replica();
    let os = store.os().clone();
    let mut batch = store.batch(BatchBounds::default()).unwrap();
    let deadline = Deadline::firm(os.now() + Nanos::from_millis(1));
    let mut late = batch.transaction(deadline).unwrap();
    late.put(b"a", b"1").unwrap();
    os.together(vec![Thread::new("sleeps", || {
        os.sleep_until(os.now() + Nanos::from_millis(2));
    })]);
    assert!(matches!(late.keep(), Err(StoreError::DeadlinePassed { .. })));
    assert!(matches!(
        batch.transaction(deadline).map(drop),
        Err(StoreError::DeadlinePassed { .. })
    ));
    batch.transaction(Deadline::soft(Time::ZERO)).unwrap().keep().unwrap();
    assert_eq!(batch.close(), [WriteSet::default()]);
}

#[test]
fn what_is_no_batch_is_refused_on_a_replica_and_the_reverse() {
    let store = replica();
    assert!(matches!(store.put(b"a", b"1"), Err(StoreError::Replicated)));
    assert!(matches!(store.delete(b"a"), Err(StoreError::Replicated)));
    let mut batch = store.batch(BatchBounds::default()).unwrap();
    let mut transaction = batch.transaction(Deadline::NONE).unwrap();
    assert!(matches!(
        transaction.put(b"speed", b"1"),
        Err(StoreError::Temporal { .. })
    ));
    assert!(matches!(transaction.delete(b"speed"), Err(StoreError::Temporal { .. })));
    assert!(matches!(
        transaction.get_fresh(b"a", Nanos::MAX),
        Err(StoreError::NotTemporal { .. })
    ));
    let no_key = transaction.put(b"", b"1").unwrap_err();
    assert!(matches!(no_key, StoreError::Engine(EngineError::KeyLength { len: 0 })));

    for key in [&b""[..], &[1; 512], b"\0punctual/revision"] {
        let mut batch = store.batch(BatchBounds::default()).unwrap();
        let mut transaction = batch.transaction(Deadline::NONE).unwrap();
        let of = |answer: Result<(), StoreError>| answer.unwrap_err().to_string();
        let put = of(transaction.put(key, b"1"));
        assert_eq!(of(transaction.get(key).map(drop)), put);
        assert_eq!(of(transaction.delete(key).map(drop)), put);
    }

    let plain = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default()).unwrap();
    assert!(matches!(
        plain.batch(BatchBounds::default()).map(drop),
        Err(StoreError::NotReplicated)
    ));
    assert!(matches!(plain.apply(Revision(1), &[]), Err(StoreError::NotReplicated)));

    let with = |change: fn(&mut StoreOptions)| {
        let mut options = options();
        change(&mut options);
        Store::open(Memory::default(), VirtualOs::new(1), options).map(drop)
    };
    let transaction_mode = with(|options| options.update_mode = UpdateMode::Transaction);
    assert!(matches!(transaction_mode, Err(StoreError::NotMemoryFirst)));
    let reserved = with(|options| options.objects[0].key = b"\0punctual/revision".to_vec());
    assert!(matches!(reserved, Err(StoreError::ReservedKey { .. })));
}

#[test]
fn an_entry_that_changes_a_temporal_object_here_is_refused_and_changes_nothing() {
    let plain = StoreOptions {
        replicated: true,
        ..StoreOptions::default()
    };
    let without_sensor = Store::open(Memory::default(), VirtualOs::new(1), plain).unwrap();
    let written = puts(&without_sensor, &[(b"a", b"1"), (b"speed", b"2")]);
    let store = replica();
    assert!(matches!(
        store.apply(Revision(1), &written),
        Err(StoreError::Temporal { .. })
    ));
    assert_eq!(store.image().unwrap(), Image::default());
}

#[test]
fn a_joiner_goes_on_where_an_image_ends() {
    let (old, new) = (replica(), replica());
    old.apply(Revision(1), &puts(&old, &[(b"a", b"1"), (b"b", b"2")]))
        .unwrap();
    let image = old.image().unwrap();
    new.apply(Revision(1), &puts(&new, &[(b"gone", b"1")])).unwrap();
    assert!(matches!(
        new.install_image(&image),
        Err(StoreError::AlreadyApplied { .. })
    ));
    old.apply(Revision(2), &puts(&old, &[(b"a", b"3")])).unwrap();
    old.apply(Revision(3), &[]).unwrap();

    let reads = |store: &Store<Memory, VirtualOs>| {
        let transaction = store.read_transaction(Deadline::NONE).unwrap();
        let seen = transaction.get(b"a").unwrap().map(|value| value.to_vec());
        (transaction.revision().unwrap(), seen)
    };
    new.install_image(&old.image().unwrap()).unwrap();
    assert_eq!(reads(&new), (Revision(3), Some(b"3".to_vec())));
    assert_eq!(new.get(b"gone").unwrap(), None);
    new.apply(Revision(4), &puts(&old, &[(b"b", b"4")])).unwrap();
    assert_eq!(new.get(b"b").unwrap().as_deref(), Some(&b"4"[..]));
}

/// Whether the disk is full.
#[derive(Default)]
struct Full(AtomicBool);

impl Witness for Full {
    fn before(&self, step: Step<'_>) -> Result<(), EngineError> {
        match step {
            Step::Commit if self.0.load(Ordering::Relaxed) => Err(EngineError::DiskFull {
                path: "(memory)".into(),
            }),
            _ => Ok(()),
        }
    }
}

#[test]
fn an_entry_whose_commit_fails_can_be_applied_again() {
    let store = Store::open(WitnessedEngine::<Full>::default(), VirtualOs::new(1), options()).unwrap();
    let written = puts(&store, &[(b"a", b"1")]);
    store.engine().witness.0.store(true, Ordering::Relaxed);
    assert!(matches!(store.apply(Revision(1), &written), Err(StoreError::Engine(_))));
    assert_eq!(store.image().unwrap(), Image::default());
    assert_eq!(store.revision(), Revision::ZERO);
    store.engine().witness.0.store(false, Ordering::Relaxed);
    store.apply(Revision(1), &written).unwrap();
    assert_eq!(store.revision(), Revision(1));
}
