//! Several temporal objects at once, and what they were before: on both engines, in both update modes, against models.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use punctual_engines::Memory;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::{LinuxOs, Os};
use punctual_store::engine::{Durability, EndedBecause, Engine, EngineError};
use punctual_store::readers::HELD_AFTER;
use punctual_store::temporal::{ClockOrigin, ObjectSpec, ReadingBuffer};
use punctual_store::together::INSTALLED_TOGETHER_MAX;
use punctual_store::{Freshness, Store, StoreError, StoreOptions, Together, UpdateMode};
use punctual_testing::VirtualOs;
use punctual_units::{Clock, Nanos, ObjectId, SensorId, Seq, Share, Time};

const PERIOD: Nanos = Nanos::from_millis(10);

fn options(objects: usize, kept: usize, update_mode: UpdateMode) -> StoreOptions {
    let spec = |number| ObjectSpec {
        max_len: 64,
        ..ObjectSpec::number(format!("object {number}"))
            .period(PERIOD)
            .keeping(kept)
    };
    StoreOptions {
        objects: (0..objects).map(spec).collect(),
        update_mode,
        lock_wait_max: Nanos::from_secs(60),
        clock_origin: ClockOrigin::named(b"this boot"),
        ..StoreOptions::default()
    }
}

fn lmdb(directory: &std::path::Path) -> punctual_engines::Lmdb {
    let options = LmdbOptions {
        durability: Durability::Volatile,
        quota: 16 << 20,
        ..LmdbOptions::default()
    };
    options.open(directory).unwrap()
}

fn all<'v>(objects: &[ObjectId], value: &'v [u8]) -> Vec<Together<'v>> {
    let one = |object: &ObjectId| Together {
        object: *object,
        sampled_at: None,
        value,
    };
    objects.iter().map(one).collect()
}

/// What `read` answers. It reads again where the store ended its snapshot by its rules: that of a thread which a busy
/// machine puts off while others write.
fn kept<T>(mut read: impl FnMut() -> Result<T, StoreError>) -> T {
    loop {
        match read() {
            Err(StoreError::Engine(EngineError::SnapshotEnded { age, why }))
                if age > HELD_AFTER || why == EndedBecause::Quota => {}
            found => return found.unwrap(),
        }
    }
}

/// A writer, single updates beside it, and readers: all of a group is of one install. Lengths differ, so that a torn
/// value shows.
fn groups_are_seen_whole<E: Engine>(engine: E, update_mode: UpdateMode, installs: u64) {
    let store = Store::open(engine, LinuxOs, options(4, 3, update_mode)).unwrap();
    let objects: Vec<ObjectId> = (0..4).map(ObjectId).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut readings, mut last) = (ReadingBuffer::default(), 0);
                while !over.load(Ordering::Relaxed) {
                    kept(|| store.read_together(&objects[..3], &mut readings));
                    let seen: Vec<_> = (0..3)
                        .map(|at| readings.get(at).map(|(_, value)| value.to_vec()))
                        .collect();
                    assert!(seen.iter().all(|value| *value == seen[0]), "{seen:?}");
                    let Some(value) = &seen[0] else { continue };
                    let number = u64::from_le_bytes(value[..8].try_into().unwrap());
                    assert!(value[8..].iter().all(|byte| u64::from(*byte) == number % 256));
                    assert!(number >= last, "{number} after {last}");
                    // What was read by itself is not older, and what is read together then is not older than that.
                    let mut alone = Vec::new();
                    kept(|| store.read(objects[1], &mut alone));
                    let alone = u64::from_le_bytes(alone[..8].try_into().unwrap());
                    assert!(alone >= number);
                    last = alone;
                    kept(|| store.history(objects[0], &mut readings));
                    let numbers: Vec<u64> = readings.iter().map(|(sample, _)| sample.seq.0).collect();
                    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                store.offer_next(SensorId(3), None, b"alone").unwrap();
                store.install_pending(1).unwrap();
            }
        });
        for number in 1..=installs {
            let len = (number % 50) as usize;
            let value = [&number.to_le_bytes()[..], &vec![number as u8; len]].concat();
            store.install_together(&all(&objects[..3], &value)).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(store.reconcile().balances());
    let counts = store.counts();
    assert!(counts.installed >= 3 * installs);
    let mut readings = ReadingBuffer::default();
    store.history(objects[0], &mut readings).unwrap();
    let numbers: Vec<u64> = readings.iter().map(|(sample, _)| sample.seq.0).collect();
    assert_eq!(numbers, [installs - 2, installs - 1, installs]);
}

#[test]
fn groups_are_seen_whole_in_memory() {
    groups_are_seen_whole(Memory::default(), UpdateMode::MemoryFirst, 20_000);
}

#[test]
fn groups_are_seen_whole_in_snapshots_of_either_engine() {
    groups_are_seen_whole(Memory::default(), UpdateMode::Transaction, 500);
    let directory = tempfile::tempdir().unwrap();
    groups_are_seen_whole(lmdb(directory.path()), UpdateMode::Transaction, 500);
}

/// A group commit may run at any moment: what the engine has afterwards is of one install.
#[test]
fn a_group_is_kept_whole() {
    let directory = tempfile::tempdir().unwrap();
    let objects: Vec<ObjectId> = (0..3).map(ObjectId).collect();
    for round in 0u64..20 {
        let store = Store::open(lmdb(directory.path()), LinuxOs, options(3, 1, UpdateMode::MemoryFirst)).unwrap();
        let over = AtomicBool::new(false);
        store.install_together(&all(&objects, b"first")).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0u64.. {
                    let value = [round.to_le_bytes(), number.to_le_bytes()].concat();
                    store.install_together(&all(&objects, &value)).unwrap();
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for _ in 0..5 {
                store.commit_group().unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        drop(store); // what was installed since the last group commit is lost
        let store = Store::open(lmdb(directory.path()), LinuxOs, options(3, 1, UpdateMode::MemoryFirst)).unwrap();
        let mut readings = ReadingBuffer::default();
        store.read_together(&objects, &mut readings).unwrap();
        let kept: Vec<_> = (0..3)
            .map(|at| readings.get(at).map(|(_, value)| value.to_vec()))
            .collect();
        assert!(kept.iter().all(|value| *value == kept[0]), "{kept:?}");
        assert!(kept[0].is_some());
    }
}

#[test]
fn what_cannot_be_installed_together_changes_nothing() {
    let store = Store::open(
        Memory::default(),
        VirtualOs::new(1),
        options(2, 1, UpdateMode::MemoryFirst),
    )
    .unwrap();
    let [first, second] = [ObjectId(0), ObjectId(1)];
    let long = [0; 65];
    let one = |object, value| Together {
        object,
        sampled_at: None,
        value,
    };
    let refused = |values: &[Together<'_>]| store.install_together(values).unwrap_err();
    assert!(matches!(
        refused(&[one(first, b"1"), one(second, &long)]),
        StoreError::ValueTooLong {
            len: 65,
            max_len: 64,
            ..
        }
    ));
    assert!(matches!(
        refused(&[one(first, b"1"), one(ObjectId(2), b"1")]),
        StoreError::UnknownObject(ObjectId(2))
    ));
    assert!(matches!(
        refused(&[one(first, b"1"), one(first, b"2")]),
        StoreError::DuplicateObject { .. }
    ));
    let many = vec![one(first, b"1"); INSTALLED_TOGETHER_MAX + 1];
    assert!(matches!(refused(&many), StoreError::TooManyTogether { .. }));
    let mut readings = ReadingBuffer::default();
    assert!(matches!(
        store.read_together(&[first, ObjectId(2)], &mut readings),
        Err(StoreError::UnknownObject(_))
    ));
    store.read_together(&[first, second], &mut readings).unwrap();
    assert_eq!((readings.len(), readings.iter().count()), (2, 0));
    assert_eq!(store.counts().offered, 0);
    store.install_together(&[]).unwrap();
}

#[test]
fn an_update_that_waits_is_superseded_and_the_next_one_follows() {
    let store = Store::open(
        Memory::default(),
        VirtualOs::new(1),
        options(1, 1, UpdateMode::Transaction),
    )
    .unwrap();
    store.offer(SensorId(0), Seq(5), Time(0), b"waits").unwrap();
    store.install_together(&all(&[ObjectId(0)], b"direct")).unwrap();
    store.install_pending(1).unwrap();
    let mut value = Vec::new();
    assert_eq!(store.read(ObjectId(0), &mut value).unwrap().unwrap().seq, Seq(6));
    assert_eq!(value, b"direct");
    assert!(store.offer(SensorId(0), Seq(6), Time(0), b"twice").is_err());
    store.offer_next(SensorId(0), None, b"next").unwrap();
    store.install_pending(1).unwrap();
    assert_eq!(store.read(ObjectId(0), &mut value).unwrap().unwrap().seq, Seq(7));
    assert!(store.reconcile().balances());
    assert_eq!((store.counts().installed, store.counts().superseded), (2, 1));
}

#[derive(Clone, Debug)]
enum Act {
    /// A reading, sampled so many milliseconds ago.
    Offer(u8, u64),
    Direct(u8),
    Sleep(u64),
    At(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (any::<u8>(), 0u64..40).prop_map(|(value, ago)| Act::Offer(value, ago)),
        1 => any::<u8>().prop_map(Act::Direct),
        2 => (0u64..30).prop_map(Act::Sleep),
        2 => (0u64..200).prop_map(Act::At),
    ];
    prop::collection::vec(act, 0..60)
}

proptest! {
    /// Against a list of all that was ever installed, whose end is compared.
    #[test]
    fn a_history_is_the_end_of_all_that_was_installed(kept in 1usize..6, acts in acts(), memory_first: bool) {
        let update_mode = if memory_first { UpdateMode::MemoryFirst } else { UpdateMode::Transaction };
        let os = VirtualOs::new(1);
        os.sleep(Nanos::from_secs(1));
        let store = Store::open(Memory::default(), os.clone(), options(1, kept, update_mode)).unwrap();
        let mut model: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
        let (object, mut readings) = (ObjectId(0), ReadingBuffer::default());
        for act in acts {
            match act {
                Act::Offer(value, ago) => {
                    let at = Time(os.now().0 - ago * 1_000_000);
                    store.offer_next(SensorId(0), Some(at), &[value]).unwrap();
                    store.install_pending(1).unwrap();
                    model.push_back((at.0, vec![value]));
                }
                Act::Direct(value) => {
                    store.install_together(&all(&[object], &[value])).unwrap();
                    model.push_back((os.now().0, vec![value]));
                }
                Act::Sleep(ms) => os.sleep(Nanos::from_millis(ms)),
                Act::At(ago) => {
                    let at = os.since_boot().0.saturating_sub(ago * 1_000_000);
                    let valid = model.iter().filter(|(sampled, _)| *sampled <= at).max_by_key(|(sampled, _)| *sampled);
                    let expected = match valid {
                        None => Freshness::NotFound,
                        Some((sampled, value)) if at - sampled <= 2 * PERIOD.0 => Freshness::Fresh {
                            value: value.clone(),
                            age: Nanos(at - sampled),
                        },
                        Some((sampled, _)) => Freshness::Stale {
                            age: Nanos(at - sampled),
                            sampled_at: Some(Time(*sampled)),
                        },
                    };
                    prop_assert_eq!(store.value_at(object, Time(at)).unwrap(), expected);
                }
            }
            model.drain(..model.len().saturating_sub(kept));
            store.history(object, &mut readings).unwrap();
            let found = readings.iter().map(|(sample, value)| (sample.sampled_at.unwrap().0, value.to_vec()));
            prop_assert_eq!(found.collect::<Vec<_>>(), Vec::from(model.clone()));
            let fresh = model.back().filter(|(sampled, _)| os.now().0 - sampled <= 2 * PERIOD.0);
            prop_assert_eq!(store.fresh_share(os.now()), Share::of(fresh.iter().count(), 1));
        }
        prop_assert!(store.reconcile().balances());
    }
}
