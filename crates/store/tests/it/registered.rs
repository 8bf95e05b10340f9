//! Temporal objects and sensors that are registered while the store is open.

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use punctual_engines::Memory;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::{LinuxOs, Os};
use punctual_store::engine::{Durability, Engine, Table, Write};
use punctual_store::temporal::{ClockOrigin, ObjectSpec, ReadingBuffer};
use punctual_store::updates::{AdmissionOptions, SensorSpec, Shedding, Updates};
use punctual_store::watch::{Change, WatchTarget};
use punctual_store::{Deadline, Freshness, Store, StoreError, StoreOptions, UpdateMode};
use punctual_testing::VirtualOs;
use punctual_units::{Nanos, ObjectId, SensorId, Seq, Share, Time};

const PERIOD: Nanos = Nanos::from_millis(10);

fn options(created_max: usize, update_mode: UpdateMode) -> StoreOptions {
    StoreOptions {
        created_max,
        update_mode,
        clock_origin: ClockOrigin::named(b"this boot"),
        ..StoreOptions::from([ObjectSpec::number("first").period(PERIOD)])
    }
}

/// No read finds it, whether it was swept or not.
#[test]
fn a_record_whose_life_has_ended_is_not_in_the_way_of_an_object() {
    let os = VirtualOs::new(1);
    let store = Store::open(Memory::default(), os.clone(), options(1, UpdateMode::MemoryFirst)).unwrap();
    let mut transaction = store.write_transaction(Deadline::NONE).unwrap();
    transaction.put_for(b"late", b"lease", PERIOD).unwrap();
    transaction.commit().unwrap();
    let spec = ObjectSpec::number("late").period(PERIOD);
    let hides = store.register(&spec);
    assert!(matches!(hides, Err(StoreError::PlainRecord { .. })), "{hides:?}");
    os.sleep(PERIOD);
    let mut watch = store.watch(WatchTarget::Key(b"late"), 4).unwrap();
    let object = store.register(&spec).unwrap();
    assert_eq!(watch.take(), Some(Change::Expired { key: b"late" }));
    store.offer_next(SensorId(object.0), None, &[1; 8]).unwrap();
    store.install_pending(1).unwrap();
    assert_eq!(store.sweep_expired().unwrap(), 0);
    assert_eq!(store.get(b"late").unwrap().as_deref(), Some(&[1; 8][..]));
}

/// As those that the store was opened with: offered, read by key and handle, kept, watched, accounted for.
fn a_registered_object_is_as_the_others(update_mode: UpdateMode) {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let engine = LmdbOptions {
            durability: Durability::Durable,
            quota: 4 << 20,
            ..LmdbOptions::default()
        };
        let engine = engine.open(directory.path()).unwrap();
        Store::open(engine, VirtualOs::new(1), options(2, update_mode)).unwrap()
    };
    let spec = ObjectSpec::number("late").period(PERIOD).keeping(2);
    let store = open();
    store.put(b"late", b"plain").unwrap();
    let hides = store.register(&spec);
    assert!(matches!(hides, Err(StoreError::PlainRecord { .. })), "{hides:?}");
    assert_eq!(store.get(b"late").unwrap().as_deref(), Some(&b"plain"[..]));
    store.delete(b"late").unwrap();
    for (max_len, history) in [
        (usize::MAX, 1),
        (1 << 40, 1),
        (8, usize::MAX),
        (usize::MAX / 2, 3),
        (1 << 20, 1 << 20),
    ] {
        let absurd = ObjectSpec {
            max_len,
            history,
            ..spec.clone()
        };
        let refused = store.register(&absurd);
        assert!(matches!(refused, Err(StoreError::ObjectSize { .. })), "{refused:?}");
        let opened = Store::open(Memory::default(), VirtualOs::new(1), [absurd].into());
        assert!(matches!(opened.map(drop), Err(StoreError::ObjectSize { .. })));
    }
    let object = store.register(&spec).unwrap();
    assert_eq!((object, store.object(b"late")), (ObjectId(1), Some(object)));
    let sensor = SensorId(object.0);
    let mut watch = store.watch(WatchTarget::Object(object), 4).unwrap();
    for value in [b"1", b"2", b"3"] {
        store.offer_next(sensor, None, value).unwrap();
        store.install_pending(1).unwrap();
    }
    assert!(matches!(watch.take(), Some(Change::Updated { key: b"late", .. })));
    let fresh = store.get_fresh(b"late", PERIOD).unwrap();
    assert!(matches!(fresh, Freshness::Fresh { .. }), "{fresh:?}");
    assert!(matches!(store.put(b"late", b"no"), Err(StoreError::Temporal { .. })));
    let mut readings = ReadingBuffer::default();
    store.history(object, &mut readings).unwrap();
    assert_eq!(
        readings.iter().map(|(_, value)| value.to_vec()).collect::<Vec<_>>(),
        [b"2", b"3"]
    );
    let transaction = store.read_transaction(Deadline::NONE).unwrap();
    let keys = transaction.prefix(b"").unwrap();
    assert_eq!(
        keys.map(|record| record.unwrap().0.to_vec()).collect::<Vec<_>>(),
        [b"late"]
    );
    drop(transaction);
    assert!(store.reconcile().balances());
    assert_eq!(store.counts().installed, 3);
    store.flush().unwrap();
    assert_eq!(store.durable_seq(object).unwrap(), Seq(3));
    drop(store);

    let store = open();
    let object = store.register(&spec).unwrap();
    let mut value = Vec::new();
    let sample = store.read(object, &mut value).unwrap().expect("it was kept");
    assert_eq!((sample.sampled_at, &value[..]), (Some(Time(0)), &b"3"[..]));
    store.offer_next(SensorId(object.0), None, b"4").unwrap();
    store.install_pending(1).unwrap();
    store.read(object, &mut value).unwrap();
    assert_eq!(value, b"4");
}

#[test]
fn a_registered_object_is_as_the_others_in_either_mode() {
    a_registered_object_is_as_the_others(UpdateMode::MemoryFirst);
    a_registered_object_is_as_the_others(UpdateMode::Transaction);
}

#[test]
fn what_cannot_be_registered_changes_nothing() {
    let engine = Memory::default();
    let mut transaction = engine.write().unwrap();
    // A record of a temporal object: number, instant, origin, and a value of nine bytes.
    transaction.put(Table::Temporal, b"long", &[1; 24 + 9]).unwrap();
    transaction.commit().unwrap();
    let store = Store::open(engine, VirtualOs::new(1), options(1, UpdateMode::MemoryFirst)).unwrap();
    let refused = |key: &[u8]| store.register(&ObjectSpec::number(key).period(PERIOD)).unwrap_err();
    assert!(matches!(refused(b"first"), StoreError::DuplicateObject { .. }));
    assert!(matches!(refused(b""), StoreError::ObjectKey { .. }));
    assert!(matches!(refused(b"\0punctual/x"), StoreError::ReservedKey { .. }));
    assert!(matches!(
        refused(b"long"),
        StoreError::ValueTooLong { len: 9, max_len: 8, .. }
    ));
    store.register(&ObjectSpec::number("second").period(PERIOD)).unwrap();
    assert!(matches!(refused(b"third"), StoreError::TooManyObjects { max: 1 }));
    assert_eq!(store.objects(), 2);
    assert!(store.offer_next(SensorId(2), None, b"1").is_err());
    let replica = StoreOptions {
        replicated: true,
        ..options(1, UpdateMode::MemoryFirst)
    };
    let replica = Store::open(Memory::default(), VirtualOs::new(1), replica).unwrap();
    let refused = replica
        .register(&ObjectSpec::number("late").period(PERIOD))
        .unwrap_err();
    assert!(matches!(refused, StoreError::Replicated));
}

/// Beside threads that offer, install and read.
#[test]
fn objects_are_registered_beside_all_other_calls() {
    const OBJECTS: u32 = 200;
    let store = Store::open(
        Memory::default(),
        LinuxOs,
        options(OBJECTS as usize, UpdateMode::MemoryFirst),
    )
    .unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for sensor in 0..store.objects() as u32 {
                    // Refused where the object is there, and its sensor not yet.
                    let _ = store.offer_next(SensorId(sensor), None, &sensor.to_le_bytes());
                }
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                store.install_pending(16).unwrap();
                store.rebalance();
            }
        });
        scope.spawn(|| {
            let (mut readings, mut value) = (ReadingBuffer::default(), Vec::new());
            while !over.load(Ordering::Relaxed) {
                let objects: Vec<ObjectId> = (0..store.objects() as u32).map(ObjectId).collect();
                store.read_together(&objects, &mut readings).unwrap();
                for (at, object) in objects.iter().enumerate() {
                    let found = [readings.get(at).map(|(_, value)| value.to_vec()), {
                        store.read(*object, &mut value).unwrap().map(|_| value.clone())
                    }];
                    for found in found.into_iter().flatten() {
                        assert_eq!(found, object.0.to_le_bytes(), "another object's value");
                    }
                }
            }
        });
        for number in 1..=OBJECTS {
            let object = store
                .register(&ObjectSpec::number(format!("object {number}")).period(PERIOD))
                .unwrap();
            assert_eq!(object, ObjectId(number));
        }
        over.store(true, Ordering::Relaxed);
    });
    store.install_pending(usize::MAX).unwrap();
    assert!(store.reconcile().balances());
    for sensor in 0..=OBJECTS {
        store.offer_next(SensorId(sensor), None, b"last").unwrap();
    }
}

proptest! {
    /// Sensors that come one by one, before the first reading, are decided on as if they had been there from the start.
    #[test]
    fn added_sensors_are_as_those_of_the_start(
        periods in prop::collection::vec((1u64..50, 1u64..4), 1..8), at_start in 0usize..8,
        share in 0u8..=4, coldest: bool, offers in prop::collection::vec((0usize..8, 1u64..20), 0..120),
    ) {
        let spec = |(period, validity): &(u64, u64)| SensorSpec {
            period: Nanos::from_millis(*period),
            avi: Nanos::from_millis(period * validity),
            value_bytes_max: 8,
        };
        let specs: Vec<SensorSpec> = periods.iter().map(spec).collect();
        let options = AdmissionOptions {
            shedding: if coldest { Shedding::ColdestFirst } else { Shedding::Uniform },
            ..AdmissionOptions::default()
        };
        let share = Share::of(usize::from(share), 4);
        let mut whole = Updates::new(&specs, options);
        whole.set_admitted_share(share);
        let (first, late) = specs.split_at(at_start.min(specs.len()));
        let mut grown = Updates::new(first, options);
        grown.set_admitted_share(share);
        late.iter().for_each(|spec| grown.add_sensor(*spec));
        let (mut now, mut value) = (Time(0), Vec::new());
        for (sensor, ms) in offers {
            now = now + Nanos::from_millis(ms);
            let sensor = SensorId((sensor % specs.len()) as u32);
            let seq = Seq(whole.last(sensor).unwrap().0 + 1);
            let verdicts = [&mut whole, &mut grown].map(|updates| updates.offer(sensor, seq, now, b"value", now));
            prop_assert_eq!(verdicts[0], verdicts[1]);
            let next = [&mut whole, &mut grown].map(|updates| {
                let next = updates.next(&mut value);
                next.iter().for_each(|update| updates.installed(update, now));
                next
            });
            prop_assert_eq!(next[0], next[1]);
        }
        prop_assert_eq!(whole.counts(), grown.counts());
        prop_assert!(grown.reconcile().balances());
    }
}
