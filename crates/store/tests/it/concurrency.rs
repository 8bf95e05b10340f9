//! Updaters, helpers, feeders and writers at the same time: no update hides, and every wait ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_engines::Memory;
use punctual_engines::lmdb::LmdbOptions;
use punctual_os::{LinuxOs, Os, Thread};
use punctual_store::engine::{Durability, Engine, EngineError};
use punctual_store::temporal::ObjectSpec;
use punctual_store::{Deadline, Store, StoreError, StoreOptions, UpdateMode};
use punctual_testing::{SetOnDrop, VirtualOs};
use punctual_units::{Clock, Nanos, ObjectId, SensorId, Seq};

const SENSORS: u32 = 8;
const UPDATES: u64 = 300;
/// No update expires, and no transaction is late, within a test.
const LONG: Nanos = Nanos::from_secs(60);

fn options(update_mode: UpdateMode) -> StoreOptions {
    let spec = |sensor| ObjectSpec {
        key: format!("sensor/{sensor}").into(),
        avi: LONG,
        period: Nanos::from_millis(10),
        max_len: 8,
        history: 1,
    };
    StoreOptions {
        objects: (0..SENSORS).map(spec).collect(),
        update_mode,
        lock_wait_max: Nanos::from_secs(60),
        ..StoreOptions::default()
    }
}

fn seq_in(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
}

/// A thread that reads after an update was admitted sees it, or a newer one, whichever threads install, write or flush.
fn readers_see_what_was_admitted<E: Engine>(engine: E, mode: UpdateMode) {
    let store = Store::open(engine, LinuxOs, options(mode)).unwrap();
    let admitted: Vec<AtomicU64> = (0..SENSORS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                store.install_pending(3).unwrap();
                store.commit_group().unwrap();
            }
        });
        scope.spawn(|| {
            for number in 0u64.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let sensor = number % u64::from(SENSORS);
                let before = admitted[sensor as usize].load(Ordering::SeqCst);
                let mut transaction = store.write_transaction(Deadline::soft(LinuxOs.now() + LONG)).unwrap();
                let found = seq_in(
                    transaction
                        .get(format!("sensor/{sensor}").as_bytes())
                        .unwrap()
                        .as_deref(),
                );
                assert!(
                    found >= before,
                    "{mode:?}, writer, sensor {sensor}: saw {found} after {before}"
                );
                transaction.put(b"plain", before.to_le_bytes()).unwrap();
                transaction.commit().unwrap();
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let before: Vec<u64> = admitted.iter().map(|seq| seq.load(Ordering::SeqCst)).collect();
                        let transaction = store.read_transaction(Deadline::soft(LinuxOs.now() + LONG)).unwrap();
                        for (sensor, before) in before.into_iter().enumerate() {
                            let value = match transaction.get(format!("sensor/{sensor}").as_bytes()) {
                                // Where the machine keeps this thread waiting, its snapshot keeps more than all data.
                                Err(StoreError::Engine(EngineError::SnapshotEnded { .. })) => break,
                                value => value.unwrap(),
                            };
                            let found = seq_in(value.as_deref());
                            assert!(found >= before, "{mode:?}, sensor {sensor}: saw {found} after {before}");
                        }
                    }
                })
            })
            .collect();
        for seq in 1..=UPDATES {
            for sensor in 0..SENSORS {
                let (id, now) = (SensorId(sensor), LinuxOs.now());
                store.offer(id, Seq(seq), now, &seq.to_le_bytes()).unwrap();
                admitted[sensor as usize].store(seq, Ordering::SeqCst);
            }
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    store.install_pending(usize::MAX).unwrap();
    let (counts, balance) = (store.counts(), store.reconcile());
    assert_eq!(counts.offered, UPDATES * u64::from(SENSORS));
    assert_eq!(counts.offered, counts.installed + counts.shed + counts.superseded);
    assert!(balance.balances(), "{balance:?}");
    let mut value = Vec::new();
    for object in 0..SENSORS {
        assert_eq!(
            store.read(ObjectId(object), &mut value).unwrap().unwrap().seq,
            Seq(UPDATES)
        );
    }
}

#[test]
fn readers_see_what_was_admitted_in_memory_first_mode() {
    readers_see_what_was_admitted(Memory::default(), UpdateMode::MemoryFirst);
}

#[test]
fn readers_see_what_was_admitted_in_transaction_mode() {
    let directory = punctual_testing::shared_folder();
    let options = LmdbOptions {
        durability: Durability::Volatile,
        ..LmdbOptions::default()
    };
    readers_see_what_was_admitted(options.open(directory.path()).unwrap(), UpdateMode::Transaction);
}

/// In transaction mode a slot holds no value. A group commit that finds one being overwritten, which is nearly always
/// so among these many objects, must not write that emptiness in the place of the record.
#[test]
fn a_group_commit_leaves_the_records_of_transaction_mode_alone() {
    const OBJECTS: u32 = 20_000;
    let spec = |sensor: u32| ObjectSpec::number(format!("sensor/{sensor}")).valid_for(LONG);
    let options = StoreOptions {
        objects: (0..OBJECTS).map(spec).collect(),
        ..options(UpdateMode::Transaction)
    };
    let store = Store::open(Memory::default(), LinuxOs, options).unwrap();
    let (last, key) = (SensorId(OBJECTS - 1), format!("sensor/{}", OBJECTS - 1));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let grouped = scope.spawn(|| {
            let mut objects = 0;
            while !done.load(Ordering::Relaxed) {
                objects += store.commit_group().unwrap().objects;
            }
            objects
        });
        let _done = SetOnDrop(&done);
        for seq in 1..=3_000u64 {
            store.offer(last, Seq(seq), LinuxOs.now(), &seq.to_le_bytes()).unwrap();
            store.install_pending(1).unwrap();
            assert_eq!(seq_in(store.get(&key).unwrap().as_deref()), seq);
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(grouped.join().unwrap(), 0, "objects written by group commits");
    });
}

#[test]
fn a_wait_for_the_write_lock_ends_at_its_bound_or_at_the_firm_deadline() {
    let bounded = StoreOptions {
        lock_wait_max: Nanos::from_millis(2),
        ..StoreOptions::default()
    };
    let store = Store::open(Memory::default(), LinuxOs, bounded).unwrap();
    let held = store.write_transaction(Deadline::NONE).unwrap();
    let me = LinuxOs.this_thread();
    std::thread::scope(|scope| {
        let wait = |deadline| store.write_transaction(deadline).map(drop).unwrap_err();
        let soft = scope.spawn(move || wait(Deadline::soft(LinuxOs.now()))).join().unwrap();
        assert!(
            matches!(soft, StoreError::LockTimeout { waited, .. } if waited == Nanos::from_millis(2)),
            "{soft}"
        );
        // The message names the thread that is in the way.
        let name = std::fs::read_to_string(format!("/proc/self/task/{me}/comm")).unwrap();
        let said = soft.to_string();
        let holder = format!("thread {me} ({})", name.trim());
        assert!(said.contains(&holder), "{said}");
        let firm = Deadline::firm(LinuxOs.now() + Nanos::from_micros(500));
        let firm = scope.spawn(move || wait(firm)).join().unwrap();
        assert!(matches!(firm, StoreError::DeadlinePassed { .. }), "{firm}");
    });
    drop(held);
    store.put(b"key", b"value").unwrap();
}

#[test]
fn a_write_within_a_write_of_the_same_thread_is_told_at_once() {
    let patient = StoreOptions {
        lock_wait_max: Nanos::MAX,
        ..StoreOptions::default()
    };
    let store = Store::open(Memory::default(), LinuxOs, patient).unwrap();
    let mut open = store.write_transaction(Deadline::NONE).unwrap();
    open.put(b"key", b"first").unwrap();
    let nested = |answer: Result<(), StoreError>| assert!(matches!(answer, Err(StoreError::NestedWrite)), "{answer:?}");
    let soon = Deadline::firm(LinuxOs.now() + Nanos::from_secs(3_600));
    nested(store.write_transaction(soon).map(drop));
    nested(store.put(b"key", b"second"));
    nested(store.delete(b"key").map(drop));
    open.commit().unwrap();
    store.put(b"key", b"third").unwrap();
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"third");
}

#[test]
fn a_read_with_a_firm_deadline_waits_for_no_writer_while_no_update_is_pending() {
    for mode in [UpdateMode::MemoryFirst, UpdateMode::Transaction] {
        let os = VirtualOs::new(1);
        let store = Store::open(Memory::default(), os.clone(), options(mode)).unwrap();
        let writing = store.write_transaction(Deadline::NONE).unwrap();
        os.together(vec![Thread::new("reads", || {
            let before = os.now();
            let reading = store
                .read_transaction(Deadline::firm(before + Nanos::from_secs(5)))
                .unwrap();
            assert_eq!(reading.get("plain").unwrap(), None);
            assert_eq!(os.now(), before, "{mode:?}: it waited");
        })]);
        drop(writing);
    }
}
