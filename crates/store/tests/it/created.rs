//! Temporal objects that are created while the store is open.

use std::ops::{Bound, ControlFlow};

use punctual_engines::Memory;
use punctual_engines::lmdb::LmdbOptions;
use punctual_store::batch::{BatchBounds, WriteSet};
use punctual_store::engine::Engine;
use punctual_store::temporal::{Creation, Installation, ObjectSpec, Sample};
use punctual_store::{Deadline, Freshness, Store, StoreError, StoreOptions};
use punctual_testing::VirtualOs;
use punctual_units::{Clock, Nanos, ObjectId, ObjectName, Revision, SensorId, Seq, Share};

const PERIOD: Nanos = Nanos::from_millis(100);

fn open<E: Engine>(engine: E) -> Store<E, VirtualOs> {
    let options = StoreOptions {
        objects: ["m", "c"].map(|key| ObjectSpec::number(key).period(PERIOD)).into(),
        replicated: true,
        created_max: 3,
        ..StoreOptions::default()
    };
    Store::open(engine, VirtualOs::new(1), options).unwrap()
}

fn made(source: u32, boot: u64, sequence: u64) -> ObjectName {
    ObjectName { source, boot, sequence }
}

fn creation(made: ObjectName, key: &str) -> Creation {
    Creation {
        made,
        spec: ObjectSpec::number(key).period(PERIOD),
    }
}

/// The write set of a transaction that creates these.
fn creates<E: Engine>(store: &Store<E, VirtualOs>, creations: &[Creation]) -> Result<Vec<WriteSet>, StoreError> {
    let mut batch = store.batch(BatchBounds::default())?;
    let mut transaction = batch.transaction(Deadline::NONE)?;
    for creation in creations {
        transaction.create(creation.clone())?;
    }
    transaction.keep()?;
    Ok(batch.close())
}

fn reading<E: Engine>(store: &Store<E, VirtualOs>, object: ObjectId, seq: u64, value: f64) -> Installation {
    let sample = Sample {
        seq: Seq(seq),
        sampled_at: Some(store.os().now()),
    };
    store.install_from_peer(object, sample, &value.to_le_bytes()).unwrap()
}

fn value<E: Engine>(store: &Store<E, VirtualOs>, key: &str) -> Option<f64> {
    let bytes = store.get(key.as_bytes()).unwrap()?;
    Some(f64::from_le_bytes(bytes.try_into().unwrap()))
}

fn keys<E: Engine>(store: &Store<E, VirtualOs>) -> String {
    let mut keys = String::new();
    let visit = |key: &[u8], _: &[u8]| {
        keys += std::str::from_utf8(key).unwrap();
        ControlFlow::Continue(())
    };
    store.scan((Bound::Excluded(b"a"), Bound::Unbounded), visit).unwrap();
    keys
}

#[test]
fn a_created_object_is_there_from_its_entry_on_and_lives_as_others_do() {
    let store = open(Memory::default());
    let written = creates(&store, &[creation(made(1, 1, 1), "k"), creation(made(1, 1, 2), "a")]).unwrap();
    assert_eq!(
        (store.object(b"k"), store.objects()),
        (None, 2),
        "the log has not answered"
    );
    store.apply(Revision(1), &written).unwrap();
    let object = store.object(b"k").unwrap();
    assert_eq!(store.object_made(made(1, 1, 1)), Some(object));
    assert_eq!((object, store.objects()), (ObjectId(2), 4));
    assert_eq!(value(&store, "k"), None);

    assert_eq!(reading(&store, object, 1, 1.5), Installation::Installed);
    assert_eq!(reading(&store, object, 1, 2.5), Installation::Overtaken);
    assert_eq!(value(&store, "k"), Some(1.5));
    let fresh = store.get_fresh(b"k", PERIOD).unwrap();
    assert!(matches!(fresh, Freshness::Fresh { age: Nanos::ZERO, .. }));
    assert_eq!(store.fresh_share(store.os().now()), Share::of(1, 4));

    // Beside registered objects and plain records, in the order of keys.
    let now = store.os().now();
    store.offer(SensorId(0), Seq(1), now, &0f64.to_le_bytes()).unwrap();
    let mut batch = store.batch(BatchBounds::default()).unwrap();
    let mut transaction = batch.transaction(Deadline::NONE).unwrap();
    transaction.put(b"l", b"").unwrap();
    assert!(matches!(transaction.put(b"k", b""), Err(StoreError::Temporal { .. })));
    transaction.keep().unwrap();
    store.apply(Revision(2), &batch.close()).unwrap();
    assert_eq!(keys(&store), "klm");
    assert_eq!(store.commit_group().unwrap().objects, 2);
}

#[test]
fn what_was_created_and_its_value_are_back_after_a_restart_and_at_a_joiner() {
    let directory = punctual_testing::shared_folder();
    let engine = || LmdbOptions::default().open(directory.path()).unwrap();
    let first = creation(made(7, 1, 1), "k");
    let store = open(engine());
    assert_eq!((store.count_boot(0).unwrap(), store.count_boot(1).unwrap()), (1, 2));
    store
        .apply(Revision(1), &creates(&store, std::slice::from_ref(&first)).unwrap())
        .unwrap();
    reading(&store, ObjectId(2), 9, 1.5);
    store.flush().unwrap();
    let image = store.image().unwrap();
    drop(store);

    let store = open(engine());
    assert_eq!(store.count_boot(0).unwrap(), 3, "boots are counted across restarts");
    assert_eq!((store.count_boot(70).unwrap(), store.count_boot(70).unwrap()), (70, 71));
    assert_eq!(store.object_made(first.made), Some(ObjectId(2)));
    assert_eq!(value(&store, "k"), Some(1.5));
    assert_eq!(store.image().unwrap(), image);

    let joiner = open(Memory::default());
    joiner.install_image(&image).unwrap();
    assert_eq!(joiner.object_made(first.made), Some(ObjectId(2)));
    assert_eq!(joiner.image().unwrap(), image);
    let again = creates(&joiner, &[first]);
    assert!(matches!(again, Err(StoreError::DuplicateObject { .. })));
}

#[test]
fn a_source_that_restarted_takes_its_object_over_and_counts_from_one() {
    let store = open(Memory::default());
    let create = |revision, creation| {
        let written = creates(&store, &[creation])?;
        store.apply(Revision(revision), &written)
    };
    create(1, creation(made(1, 1, 5), "k")).unwrap();
    let object = store.object(b"k").unwrap();
    reading(&store, object, 40, 1.0);
    create(2, creation(made(1, 2, 1), "k")).unwrap();
    assert_eq!((store.object(b"k"), store.objects()), (Some(object), 3));
    assert_eq!(
        store.object_made(made(1, 1, 5)),
        None,
        "a report of the boot before finds nothing"
    );
    assert_eq!(store.object_made(made(1, 2, 1)), Some(object));
    assert_eq!(reading(&store, object, 1, 2.0), Installation::Installed);
    assert_eq!(value(&store, "k"), Some(2.0));

    let refused = |creation| matches!(create(3, creation), Err(StoreError::DuplicateObject { .. }));
    assert!(refused(creation(made(1, 2, 1), "k")), "the same name");
    assert!(refused(creation(made(1, 1, 9), "k")), "an older boot");
    assert!(refused(creation(made(1, 2, 1), "n")), "a name that is used");
    assert!(refused(creation(made(1, 2, 2), "m")), "a registered object");
    let mut longer = creation(made(1, 3, 1), "k");
    longer.spec.max_len = 9;
    assert!(refused(longer), "not the same object");
}

/// A sensor's client speaks to another node from now on.
#[test]
fn another_source_takes_an_object_over_and_counts_from_one() {
    let store = open(Memory::default());
    let create = |revision, creation| {
        let written = creates(&store, &[creation])?;
        store.apply(Revision(revision), &written)
    };
    create(1, creation(made(1, 9, 1), "k")).unwrap();
    let object = store.object(b"k").unwrap();
    reading(&store, object, 40, 1.0);
    create(2, creation(made(2, 3, 1), "k")).unwrap();
    assert_eq!(store.object_made(made(1, 9, 1)), None, "the source before is none");
    assert_eq!(store.created(), [(b"k".to_vec(), made(2, 3, 1))]);
    assert_eq!(reading(&store, object, 1, 2.0), Installation::Installed);
    create(3, creation(made(1, 9, 2), "k")).unwrap();
    assert_eq!(reading(&store, object, 1, 3.0), Installation::Installed);
    assert_eq!((value(&store, "k"), store.objects()), (Some(3.0), 3));
}

#[test]
fn room_keys_and_lengths_have_bounds() {
    let store = open(Memory::default());
    let all = ["d", "e", "f", "g"]
        .iter()
        .zip(1..)
        .map(|(key, at)| creation(made(1, 1, at), key));
    let all: Vec<Creation> = all.collect();
    assert!(matches!(
        creates(&store, &all),
        Err(StoreError::TooManyObjects { max: 3 })
    ));
    store.apply(Revision(1), &creates(&store, &all[..3]).unwrap()).unwrap();
    assert!(matches!(
        creates(&store, &all[3..]),
        Err(StoreError::TooManyObjects { max: 3 })
    ));
    // From a log that another node filled: refused, and nothing of the entry is there.
    let written = vec![WriteSet {
        changes: [(b"x".to_vec(), Some(b"y".to_vec()))].into(),
        created: all[3..].to_vec(),
        read: Vec::new(),
    }];
    assert!(matches!(
        store.apply(Revision(2), &written),
        Err(StoreError::TooManyObjects { .. })
    ));
    assert_eq!((store.get(b"x").unwrap(), store.revision()), (None, Revision(1)));

    let other = open(Memory::default());
    assert!(matches!(
        creates(&other, &[creation(made(1, 1, 1), "")]),
        Err(StoreError::Engine(_))
    ));
    let twice = [creation(made(1, 1, 1), "d"), creation(made(1, 1, 2), "d")];
    assert!(matches!(
        creates(&other, &twice),
        Err(StoreError::DuplicateObject { .. })
    ));
    let reserved = creation(made(1, 1, 1), "\0punctual/x");
    assert!(matches!(
        creates(&other, &[reserved]),
        Err(StoreError::ReservedKey { .. })
    ));
    let mut huge = creation(made(1, 1, 1), "d");
    huge.spec.max_len = 32 << 20;
    assert!(matches!(
        creates(&other, &[huge.clone()]),
        Err(StoreError::BatchFull { .. })
    ));
    huge.spec.max_len = usize::MAX;
    assert!(matches!(creates(&other, &[huge]), Err(StoreError::ObjectSize { .. })));
    let sample = Sample {
        seq: Seq(1),
        sampled_at: None,
    };
    let long = other.install_from_peer(ObjectId(0), sample, &[0; 9]);
    assert!(matches!(long, Err(StoreError::ValueTooLong { len: 9, max_len: 8, .. })));
    let unknown = other.install_from_peer(ObjectId(2), sample, &[]);
    assert!(matches!(unknown, Err(StoreError::UnknownObject(ObjectId(2)))));
    // An unknown instant is stale.
    other.install_from_peer(ObjectId(0), sample, &[0; 8]).unwrap();
    assert!(matches!(other.get_fresh(b"m", Nanos::MAX), Ok(Freshness::Stale { .. })));
}

#[test]
fn threads_read_while_objects_are_created() {
    let store = open(Memory::default());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for key in ["d", "e", "f"] {
                        if let Some(object) = store.object(key.as_bytes()) {
                            assert!(store.sample(object).is_ok());
                        }
                    }
                }
            });
        }
        for (key, revision) in ["d", "e", "f"].into_iter().zip(1..) {
            let written = creates(&store, &[creation(made(1, 1, revision), key)]).unwrap();
            store.apply(Revision(revision), &written).unwrap();
            std::thread::yield_now();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(store.objects(), 5);
}
