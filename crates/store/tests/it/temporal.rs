//! Temporal objects: freshness, both update modes, helping, group commit, and what a restart keeps.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use punctual_engines::Memory;
use punctual_engines::lmdb::{Lmdb, LmdbOptions};
use punctual_os::Os;
use punctual_store::engine::{Durability, Engine};
use punctual_store::sensors::Offer;
use punctual_store::temporal::{ClockOrigin, ObjectSpec, Sample};
use punctual_store::updates::{AdmissionEvent, SensorSpec, Shedding, Updates};
use punctual_store::{
    Deadline, FlushResult, Freshness, GROUP_OBJECTS_MAX, Store, StoreError, StoreOptions, UpdateMode,
};
use punctual_testing::VirtualOs;
use punctual_units::{Clock, Nanos, ObjectId, SensorId, Seq, Share, Time};

const AVI: Nanos = Nanos(1_000);
const MODES: [UpdateMode; 2] = [UpdateMode::MemoryFirst, UpdateMode::Transaction];

fn spec(number: usize) -> ObjectSpec {
    ObjectSpec {
        key: format!("sensor/{number:04}").into(),
        avi: AVI,
        period: Nanos(500),
        max_len: 16,
        history: 1,
    }
}

fn options(update_mode: UpdateMode, objects: usize) -> StoreOptions {
    StoreOptions {
        objects: (0..objects).map(spec).collect(),
        update_mode,
        clock_origin: ClockOrigin::named(b"this boot"),
        ..StoreOptions::default()
    }
}

fn open<E: Engine>(engine: E, clock: &VirtualOs, options: StoreOptions) -> Store<E, VirtualOs> {
    Store::open(engine, clock.clone(), options).unwrap()
}

fn lmdb(directory: &std::path::Path, durability: Durability) -> Lmdb {
    LmdbOptions {
        durability,
        ..LmdbOptions::default()
    }
    .open(directory)
    .unwrap()
}

/// Offers an update and installs it.
fn update<E: Engine>(store: &Store<E, VirtualOs>, sensor: u32, seq: u64, at: Time, value: &[u8]) {
    store.offer(SensorId(sensor), Seq(seq), at, value).unwrap();
    store.install_pending(usize::MAX).unwrap();
}

fn fresh(value: &[u8], age: Nanos) -> Freshness<Vec<u8>> {
    Freshness::Fresh {
        value: value.to_vec(),
        age,
    }
}

#[test]
fn updates_offered_together_count_up_to_the_first_that_is_refused() {
    let clock = VirtualOs::new(0);
    let store = open(Memory::default(), &clock, options(UpdateMode::MemoryFirst, 2));
    let offer = |sensor: u32, seq: u64| Offer {
        sensor: SensorId(sensor),
        seq: Seq(seq),
        sampled_at: Time(0),
        value: b"21.5",
    };
    let admitted = store.offer_together(&[offer(0, 1), offer(1, 1)], clock.now());
    assert_eq!(admitted.unwrap(), 2);
    let refused = store.offer_together(&[offer(0, 2), offer(9, 1), offer(1, 2)], clock.now());
    assert!(matches!(refused, Err(StoreError::Offer(_))), "{refused:?}");
    store.install_pending(usize::MAX).unwrap();
    let seqs = [0, 1].map(|object| store.sample(ObjectId(object)).unwrap().unwrap().seq);
    assert_eq!(seqs, [Seq(2), Seq(1)]);
}

#[test]
fn a_value_is_fresh_up_to_the_age_asked_for_and_stale_beyond() {
    for mode in MODES {
        let clock = VirtualOs::new(0);
        let store = open(Memory::default(), &clock, options(mode, 2));
        assert_eq!(store.get_fresh(b"sensor/0000", AVI).unwrap(), Freshness::NotFound);
        update(&store, 0, 1, Time(0), b"21.5");
        clock.sleep_until(Time(1_000));
        assert_eq!(
            store.get_fresh(b"sensor/0000", Nanos(1_000)).unwrap(),
            fresh(b"21.5", Nanos(1_000))
        );
        let stale = Freshness::Stale {
            age: Nanos(1_000),
            sampled_at: Some(Time(0)),
        };
        assert_eq!(store.get_fresh(b"sensor/0000", Nanos(999)).unwrap(), stale);
        assert!(matches!(
            store.get_fresh(b"no sensor", AVI),
            Err(StoreError::NotTemporal { .. })
        ));
        assert_eq!(store.fresh_share(clock.now()), Share::clamped(0.5));
        assert_eq!(store.fresh_share(Time(1_001)), Share::ZERO);
    }
}

proptest! {
    /// The share is a count: now - sampled-at <= avi.
    #[test]
    fn the_fresh_share_is_what_its_definition_says(
        instants in vec(prop::option::of(0u64..4_000), 1..20), now in 4_000u64..6_000, transaction: bool,
    ) {
        let clock = VirtualOs::new(0);
        clock.sleep_until(Time(4_000));
        let store = open(Memory::default(), &clock, options(MODES[usize::from(transaction)], instants.len()));
        for (sensor, at) in instants.iter().enumerate() {
            if let Some(at) = at {
                update(&store, sensor as u32, 1, Time(*at), b"value");
            }
        }
        let fresh = instants.iter().flatten().filter(|at| now - **at <= AVI.0).count();
        prop_assert_eq!(store.fresh_share(Time(now)), Share::of(fresh, instants.len()));
    }
}

#[test]
fn one_keyspace_holds_both_kinds_and_each_is_changed_in_its_own_way() {
    for mode in MODES {
        let clock = VirtualOs::new(0);
        let store = open(Memory::default(), &clock, options(mode, 3));
        update(&store, 0, 1, Time(0), b"zero");
        update(&store, 2, 1, Time(0), b"two");
        store.put(b"sensor/0001b", b"plain").unwrap();
        store.put(b"a", b"first").unwrap();
        store.put(b"z", b"last").unwrap();
        let scan = |low, high| {
            let mut found = Vec::new();
            let visit = |key: &[u8], value: &[u8]| {
                found.push((
                    String::from_utf8(key.to_vec()).unwrap(),
                    String::from_utf8(value.to_vec()).unwrap(),
                ));
                ControlFlow::Continue(())
            };
            store.scan((low, high), visit).unwrap();
            found
                .into_iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let all = "a=first sensor/0000=zero sensor/0001b=plain sensor/0002=two z=last";
        assert_eq!(scan(Bound::Unbounded, Bound::Unbounded), all);
        let some = "sensor/0001b=plain sensor/0002=two";
        assert_eq!(
            scan(Bound::Excluded(b"sensor/0000"), Bound::Included(b"sensor/0002")),
            some
        );
        assert_eq!(scan(Bound::Included(b"z"), Bound::Excluded(b"a")), "");
        let mut visits = 0;
        let stop = |_: &[u8], _: &[u8]| {
            visits += 1;
            if visits == 2 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        store.scan((Bound::Unbounded, Bound::Unbounded), stop).unwrap();
        assert_eq!(visits, 2);
        assert!(matches!(
            store.put(b"sensor/0000", b"x"),
            Err(StoreError::Temporal { .. })
        ));
        assert!(matches!(store.delete(b"sensor/0001"), Err(StoreError::Temporal { .. })));
        assert_eq!(store.get(b"sensor/0002").unwrap().as_deref(), Some(&b"two"[..]));
        assert!(store.delete(b"a").unwrap());
    }
}

#[test]
fn a_record_from_before_its_key_became_temporal_is_hidden() {
    let clock = VirtualOs::new(0);
    let engine = Arc::new(Memory::default());
    open(
        SharedEngine(engine.clone()),
        &clock,
        options(UpdateMode::MemoryFirst, 0),
    )
    .put(b"sensor/0000", b"old")
    .unwrap();
    let store = open(SharedEngine(engine), &clock, options(UpdateMode::MemoryFirst, 1));
    update(&store, 0, 1, Time(0), b"new");
    let mut found = Vec::new();
    let visit = |_: &[u8], value: &[u8]| {
        found.push(value.to_vec());
        ControlFlow::Continue(())
    };
    store.scan((Bound::Unbounded, Bound::Unbounded), visit).unwrap();
    assert_eq!(found, [b"new"]);
}

#[test]
fn a_transaction_sees_every_update_admitted_before_it_began() {
    for mode in MODES {
        let clock = VirtualOs::new(0);
        let store = open(Memory::default(), &clock, options(mode, 2));
        store.offer(SensorId(0), Seq(1), Time(0), b"seen").unwrap();
        let reading = store.read_transaction(Deadline::NONE).unwrap();
        assert_eq!(reading.get(b"sensor/0000").unwrap().as_deref(), Some(&b"seen"[..]));
        drop(reading);
        store.offer(SensorId(1), Seq(1), Time(0), b"seen, too").unwrap();
        let writing = store.write_transaction(Deadline::NONE).unwrap();
        assert_eq!(writing.get(b"sensor/0001").unwrap().as_deref(), Some(&b"seen, too"[..]));
        drop(writing);
        assert_eq!((store.pending(), store.counts().installed), (0, 2));

        let alone = open(
            Memory::default(),
            &clock,
            StoreOptions {
                helping: false,
                ..options(mode, 1)
            },
        );
        alone.offer(SensorId(0), Seq(1), Time(0), b"queued").unwrap();
        let queued = usize::from(mode == UpdateMode::Transaction);
        let seen = alone
            .read_transaction(Deadline::NONE)
            .unwrap()
            .get(b"sensor/0000")
            .unwrap();
        assert_eq!(usize::from(seen.is_none()), queued, "{mode:?}");
        assert_eq!(
            (alone.pending(), alone.install_pending(8).unwrap(), alone.pending()),
            (queued, queued, 0)
        );
    }
}

#[test]
fn updates_in_transaction_mode_belong_to_the_snapshot() {
    let clock = VirtualOs::new(0);
    let store = open(Memory::default(), &clock, options(UpdateMode::Transaction, 1));
    update(&store, 0, 1, Time(0), b"before");
    let reading = store.read_transaction(Deadline::NONE).unwrap();
    assert_eq!(reading.get(b"sensor/0000").unwrap().as_deref(), Some(&b"before"[..]));
    update(&store, 0, 2, Time(0), b"after");
    assert_eq!(reading.get(b"sensor/0000").unwrap().as_deref(), Some(&b"before"[..]));
    drop(reading);
    let mut value = Vec::new();
    let sample = store.read(ObjectId(0), &mut value).unwrap();
    assert_eq!((sample.unwrap().seq, value.as_slice()), (Seq(2), &b"after"[..]));
}

#[test]
fn reads_by_handle_or_key_are_counted_and_unknown_objects_refused() {
    for mode in MODES {
        let store = open(Memory::default(), &VirtualOs::new(0), options(mode, 1));
        update(&store, 0, 1, Time(0), b"value");
        let object = store.object(b"sensor/0000").unwrap();
        let mut value = Vec::new();
        assert_eq!(
            store.read(object, &mut value).unwrap(),
            Some(Sample {
                seq: Seq(1),
                sampled_at: Some(Time(0))
            })
        );
        assert_eq!(value, b"value");
        store.get(b"sensor/0000").unwrap();
        store.flush().unwrap();
        assert_eq!(store.reads(object).unwrap(), 2, "a group commit is no read");
        assert_eq!(store.object(b"sensor/0001"), None);
        assert!(matches!(
            store.read(ObjectId(1), &mut value),
            Err(StoreError::UnknownObject(ObjectId(1)))
        ));
    }
}

#[test]
fn ranking_counts_the_reads_since_the_last_one() {
    for (shedding, ranks) in [(Shedding::ColdestFirst, true), (Shedding::Uniform, false)] {
        let mut options = options(UpdateMode::MemoryFirst, 2);
        options.admission.shedding = shedding;
        let store = open(Memory::default(), &VirtualOs::new(0), options);
        update(&store, 1, 1, Time(0), b"value");
        let mut value = Vec::new();
        for (reads, expected) in [(3, vec![0, 3]), (0, vec![0, 0]), (2, vec![0, 2])] {
            for _ in 0..reads {
                store.read(ObjectId(1), &mut value).unwrap();
            }
            store.keep_admission_log();
            store.rebalance();
            let told = store.take_admission_log();
            let ranked = AdmissionEvent::Rebalanced(expected);
            let has = told.iter().any(|step| step.event == ranked);
            assert_eq!(has, ranks, "{shedding:?}: {told:?}");
        }
    }
}

/// Offers of several threads are numbered and logged in the order in which they were decided, and the log replays to
/// the same verdicts, whatever clock each of them came with.
#[test]
fn the_log_of_admission_replays_where_a_live_sensor_and_a_feeder_offer() {
    MODES.into_iter().for_each(the_log_of_admission_replays);
}

fn the_log_of_admission_replays(mode: UpdateMode) {
    let os = VirtualOs::new(0);
    let options = options(mode, 2);
    let specs: Vec<SensorSpec> = options
        .objects
        .iter()
        .map(|object| SensorSpec {
            period: object.period,
            avi: object.avi,
            value_bytes_max: object.max_len as u32,
        })
        .collect();
    let admission = options.admission;
    let store = open(Memory::default(), &os, options);
    store.keep_admission_log();
    for n in 1..=50u64 {
        os.advance(Nanos::from_millis(7));
        store.set_admitted_share(Share::of(n as usize % 5, 4));
        store.offer_next(SensorId(0), None, b"live").unwrap();
        // The feeder read its clock before the live sensor's offer was decided.
        let earlier = Time(os.now().0 - 1_000_000);
        let fed = Offer {
            sensor: SensorId(1),
            seq: Seq(n),
            sampled_at: earlier,
            value: b"fed",
        };
        store.offer_together(&[fed], earlier).unwrap();
        // A slow updater: the least share is adapted, and the log has it.
        os.advance(Nanos::from_millis(40));
        store.install_pending(2).unwrap();
        store.rebalance();
    }
    let mut replayed = Updates::new(&specs, admission);
    let log = store.take_admission_log();
    assert!(log.is_sorted_by_key(|step| step.now), "instants do not run backwards");
    for step in &log {
        assert_eq!(replayed.step(&step.event, step.now), step.admitted, "{step:?}");
    }
    let count = |of: fn(&AdmissionEvent) -> bool| log.iter().filter(|step| of(&step.event)).count();
    let offered = count(|event| matches!(event, AdmissionEvent::Offered { .. }));
    let delays = count(|event| matches!(event, AdmissionEvent::Delay(_)));
    assert_eq!(offered, 100);
    // An update that is installed as it is offered waits for no updater.
    assert_eq!(delays > 0, mode == UpdateMode::Transaction, "{delays} changes of delay");
    assert_eq!(replayed.counts().shed, store.counts().shed);
    assert_eq!(replayed.least_share(), store.least_share());
    assert_eq!(store.counts().offered, 100);
    assert!(store.take_admission_log().is_empty(), "no more is kept");
}

#[test]
fn durability_is_acknowledged_after_the_commit_or_the_sync_and_not_before() {
    let object = ObjectId(0);
    for (durability, durable_at_commit) in [
        (Durability::Durable, true),
        (Durability::NoMetaSync, false),
        (Durability::Volatile, false),
    ] {
        for mode in MODES {
            let directory = punctual_testing::shared_folder();
            let store = open(lmdb(directory.path(), durability), &VirtualOs::new(0), options(mode, 1));
            update(&store, 0, 1, Time(0), b"value");
            let by_itself = mode == UpdateMode::Transaction && durable_at_commit;
            assert_eq!(store.durable_seq(object).unwrap(), Seq(u64::from(by_itself)));
            let objects = usize::from(mode == UpdateMode::MemoryFirst);
            assert_eq!(
                store.commit_group().unwrap(),
                FlushResult {
                    objects,
                    durable: durable_at_commit
                }
            );
            assert_eq!(store.durable_seq(object).unwrap(), Seq(u64::from(durable_at_commit)));
            let flushed = store.flush();
            if durability == Durability::Volatile {
                let refused = matches!(
                    flushed,
                    Err(StoreError::Engine(punctual_store::engine::EngineError::Volatile { .. }))
                );
                assert!(refused && store.sync().is_err(), "{flushed:?}");
                assert_eq!(store.durable_seq(object).unwrap(), Seq(0));
                continue;
            }
            let (objects, durable) = (0, true);
            assert_eq!(flushed.unwrap(), FlushResult { objects, durable });
            assert_eq!(store.durable_seq(object).unwrap(), Seq(1));
        }
    }
}

#[test]
fn a_group_larger_than_one_transaction_is_written_whole() {
    let objects = 2 * GROUP_OBJECTS_MAX + 1;
    let directory = punctual_testing::shared_folder();
    let clock = VirtualOs::new(0);
    let store = open(
        lmdb(directory.path(), Durability::Volatile),
        &clock,
        options(UpdateMode::MemoryFirst, objects),
    );
    for sensor in 0..objects as u32 {
        update(&store, sensor, 1, Time(0), &sensor.to_le_bytes());
    }
    assert_eq!(store.commit_group().unwrap().objects, objects);
    drop(store);
    let store = open(
        lmdb(directory.path(), Durability::Volatile),
        &clock,
        options(UpdateMode::MemoryFirst, objects),
    );
    let mut value = Vec::new();
    for object in 0..objects as u32 {
        store.read(ObjectId(object), &mut value).unwrap();
        assert_eq!(value, object.to_le_bytes());
    }
}

#[test]
fn after_a_restart_a_value_is_fresh_only_if_its_instant_is_known() {
    for (before, after) in [MODES, [UpdateMode::Transaction, UpdateMode::MemoryFirst]].map(|[a, b]| (a, b)) {
        let directory = punctual_testing::shared_folder();
        let clock = VirtualOs::new(0);
        clock.sleep_until(Time(5_000));
        let engine = || lmdb(directory.path(), Durability::Durable);
        let store = open(engine(), &clock, options(before, 1));
        update(&store, 0, 7, Time(4_900), b"kept");
        store.flush().unwrap();
        drop(store);

        let store = open(engine(), &clock, options(after, 1));
        assert_eq!(
            store.get_fresh(b"sensor/0000", Nanos(100)).unwrap(),
            fresh(b"kept", Nanos(100))
        );
        assert_eq!(store.fresh_share(clock.now()), Share::ONE);
        drop(store);

        // After a reboot the clock begins anew: even an instant that seems recent means nothing.
        let rebooted = StoreOptions {
            clock_origin: ClockOrigin::named(b"next boot"),
            ..options(after, 1)
        };
        let store = open(engine(), &clock, rebooted);
        let unknown = Freshness::Stale {
            age: Nanos::MAX,
            sampled_at: None,
        };
        assert_eq!(store.get_fresh(b"sensor/0000", Nanos::MAX).unwrap(), unknown);
        assert_eq!(store.get(b"sensor/0000").unwrap().as_deref(), Some(&b"kept"[..]));
        assert_eq!(store.fresh_share(clock.now()), Share::ZERO);
        // The sensor counts from 1 again, and is believed.
        update(&store, 0, 1, clock.now(), b"new");
        assert_eq!(
            store.get_fresh(b"sensor/0000", AVI).unwrap(),
            fresh(b"new", Nanos::ZERO)
        );
    }
}

/// Such an object was accepted once, and then no group commit of its group ever succeeded.
#[test]
fn an_object_whose_key_no_record_can_have_is_refused_and_the_longest_key_is_kept() {
    let open_with = |len| {
        let mut options = options(UpdateMode::MemoryFirst, 2);
        options.objects[1].key = vec![b'k'; len];
        Store::open(Memory::default(), VirtualOs::new(1), options)
    };
    for len in [0, 512] {
        let refused = open_with(len).map(drop).unwrap_err();
        assert!(
            matches!(&refused, StoreError::ObjectKey { key } if key.len() == len),
            "{refused}"
        );
    }
    let store = open_with(511).unwrap();
    update(&store, 1, 1, Time(1), b"kept");
    assert_eq!(store.flush().unwrap().objects, 1);
}

#[test]
fn senseless_registrations_are_refused_by_name() {
    let clock = VirtualOs::new(0);
    let twice = StoreOptions {
        objects: vec![spec(3), spec(3)],
        ..StoreOptions::default()
    };
    let error = Store::open(Memory::default(), clock.clone(), twice)
        .map(drop)
        .unwrap_err();
    assert!(
        matches!(&error, StoreError::DuplicateObject { key } if key == b"sensor/0003"),
        "{error}"
    );

    let engine = Arc::new(Memory::default());
    let store = open(
        SharedEngine(engine.clone()),
        &clock,
        options(UpdateMode::MemoryFirst, 1),
    );
    update(&store, 0, 1, Time(0), b"0123456789");
    store.flush().unwrap();
    let shorter = StoreOptions {
        objects: vec![ObjectSpec { max_len: 4, ..spec(0) }],
        ..StoreOptions::default()
    };
    let error = Store::open(SharedEngine(engine), clock, shorter).map(drop).unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::ValueTooLong {
                len: 10,
                max_len: 4,
                ..
            }
        ),
        "{error}"
    );
    let error = store.offer(SensorId(0), Seq(2), Time(0), &[0; 17]).unwrap_err();
    assert!(matches!(error, StoreError::Offer(_)), "{error}");
}

proptest! {
    /// Whatever is offered, shed, superseded and installed, in whatever order: the account balances, and each object
    /// holds the newest update that was installed.
    #[test]
    fn updates_are_never_lost(
        steps in vec((0u32..4, 0u64..100, any::<bool>()), 1..80), share in 0.0..=1.0f64, transaction: bool,
    ) {
        let clock = VirtualOs::new(0);
        let store = open(Memory::default(), &clock, options(MODES[usize::from(transaction)], 4));
        store.set_admitted_share(Share::clamped(share));
        let mut offered = [0u64; 4];
        for (sensor, wait, installs) in steps {
            clock.advance(Nanos(wait));
            let seq = &mut offered[sensor as usize];
            *seq += 1;
            store.offer(SensorId(sensor), Seq(*seq), clock.now(), &seq.to_le_bytes()).unwrap();
            if installs {
                store.install_pending(2).unwrap();
            }
            let mut value = Vec::new();
            if let Some(sample) = store.read(ObjectId(sensor), &mut value).unwrap() {
                prop_assert_eq!(value, sample.seq.0.to_le_bytes());
            }
        }
        store.install_pending(usize::MAX).unwrap();
        let (counts, balance) = (store.counts(), store.reconcile());
        prop_assert_eq!(counts.offered, offered.iter().sum::<u64>());
        prop_assert_eq!(counts.offered, counts.installed + counts.shed + counts.superseded);
        prop_assert!(balance.balances(), "{balance:?}");
    }
}

/// Lets two stores follow each other on one engine in memory.
struct SharedEngine(Arc<Memory>);

impl Engine for SharedEngine {
    type Snapshot<'e> = <Memory as Engine>::Snapshot<'e>;
    type Write<'e> = <Memory as Engine>::Write<'e>;

    fn snapshot_for(
        &self,
        reader: punctual_store::engine::Reader,
    ) -> Result<Self::Snapshot<'_>, punctual_store::engine::EngineError> {
        self.0.snapshot_for(reader)
    }

    fn snapshots(&self) -> Vec<punctual_store::engine::OpenSnapshot> {
        self.0.snapshots()
    }

    fn end(
        &self,
        snapshot: punctual_store::engine::SnapshotId,
        age: Nanos,
        why: punctual_store::engine::EndedBecause,
    ) -> bool {
        self.0.end(snapshot, age, why)
    }

    fn space(&self) -> Result<punctual_store::engine::Space, punctual_store::engine::EngineError> {
        self.0.space()
    }

    fn write(&self) -> Result<Self::Write<'_>, punctual_store::engine::EngineError> {
        self.0.write()
    }

    fn sync(&self) -> Result<(), punctual_store::engine::EngineError> {
        self.0.sync()
    }

    fn durability(&self) -> Durability {
        self.0.durability()
    }

    fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

/// Objects that become dirty while a flush waits for the write lock do not take the place of those that it promised.
#[cfg(target_os = "linux")]
#[test]
fn what_was_dirty_before_a_flush_is_durable_after_it_whatever_comes_meanwhile() {
    use punctual_os::LinuxOs;

    let directory = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        // A busy machine may put off the holder of the lock for seconds.
        lock_wait_max: Nanos::from_secs(60),
        ..options(UpdateMode::MemoryFirst, 300)
    };
    let store = Store::open(lmdb(directory.path(), Durability::Durable), LinuxOs, options).unwrap();
    let offer = |object: u32| {
        store.offer(SensorId(object), Seq(1), LinuxOs.now(), b"value").unwrap();
    };
    (50..300).for_each(offer);
    let thread = std::sync::atomic::AtomicI32::new(0);
    std::thread::scope(|scope| {
        let writer = store.write_transaction(Deadline::NONE).unwrap();
        let flushed = scope.spawn(|| {
            // SAFETY: plain system call.
            thread.store(unsafe { libc::gettid() }, std::sync::atomic::Ordering::Release);
            store.flush().unwrap()
        });
        let mut quiet = 0;
        punctual_testing::wait_until("it waits for the write lock", || {
            let tid = thread.load(std::sync::atomic::Ordering::Acquire);
            let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
            // Other waits are short.
            quiet = if stat.is_ok_and(|stat| stat.contains(") S ")) {
                quiet + 1
            } else {
                0
            };
            quiet >= 5
        });
        (0..20).for_each(offer);
        drop(writer);
        assert_eq!(flushed.join().unwrap().objects, 250);
    });
    let late = (50..300).filter(|object| store.durable_seq(ObjectId(*object)).unwrap() != Seq(1));
    assert_eq!(late.collect::<Vec<_>>(), Vec::<u32>::new());
}
