//! Readings of memory-first objects from many threads, beside all that may hold them up: none is lost, none is read
//! before an older one, none is missed by a watch; and shedding keeps its authority.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use punctual_engines::Memory;
use punctual_os::{LinuxOs, Os, Thread};
use punctual_store::temporal::{ObjectSpec, ReadingBuffer};
use punctual_store::updates::{AdmissionOptions, OfferError, Receipt, SensorSpec, Updates};
use punctual_store::watch::{Change, WatchTarget};
use punctual_store::{Store, StoreError, StoreOptions, Together};
use punctual_testing::VirtualOs;
use punctual_units::{Clock, Nanos, ObjectId, SensorId, Seq, Share, Time};

const SENSORS: u32 = 70; // more than there are lanes
const PERIOD: Nanos = Nanos::from_millis(10);

fn object(sensor: u32) -> ObjectSpec {
    ObjectSpec::bytes(format!("sensor/{sensor:02}"), 16).period(PERIOD)
}

fn open<O: Os>(os: O) -> Store<Memory, O> {
    let options = StoreOptions {
        objects: (0..SENSORS).map(object).collect(),
        ..StoreOptions::default()
    };
    Store::open(Memory::default(), os, options).unwrap()
}

/// Offers, a knob that moves, groups of two objects, group commits, a log, accounts: all at the same time.
#[test]
fn nothing_is_lost_whatever_else_goes_on() {
    const OFFERS: u64 = 4000;
    let store = open(LinuxOs);
    let over = AtomicBool::new(false);
    let (direct, shed) = (AtomicU64::new(0), AtomicU64::new(0));
    let beside = |turn: &dyn Fn(u64)| (0..).take_while(|_| !over.load(Ordering::Relaxed)).for_each(turn);
    std::thread::scope(|scope| {
        let offer = |from: u64| {
            for n in from..from + OFFERS {
                // All threads offer for the same sensors.
                let sensor = (n * 37 % u64::from(SENSORS)) as u32;
                match store.offer_next(SensorId(sensor), None, &n.to_le_bytes()).unwrap() {
                    Receipt::Admitted => {}
                    Receipt::Shed => drop(shed.fetch_add(1, Ordering::Relaxed)),
                }
            }
        };
        let offering: Vec<_> = (0..3).map(|thread| scope.spawn(move || offer(thread * 7))).collect();
        scope.spawn(|| {
            beside(&|turn| {
                store.set_admitted_share([Share::ONE, Share::clamped(0.4)][usize::from(turn % 40 == 0)]);
                store.rebalance();
                if turn % 50 == 7 {
                    store.keep_admission_log();
                    store.take_admission_log();
                }
                assert!(store.reconcile().balances());
                store.commit_group().unwrap();
            });
        });
        scope.spawn(|| {
            let pair = [ObjectId(3), ObjectId(67)]; // of one lane
            beside(&|turn| {
                let value = turn.to_le_bytes();
                let values = pair.map(|object| Together {
                    object,
                    sampled_at: None,
                    value: &value,
                });
                store.install_together(&values).unwrap();
                direct.fetch_add(2, Ordering::Relaxed);
            });
        });
        scope.spawn(|| {
            let mut readings = ReadingBuffer::default();
            let mut last = vec![Seq(0); SENSORS as usize];
            let all: Vec<ObjectId> = (0..SENSORS).map(ObjectId).collect();
            let mut value = Vec::new();
            while !over.load(Ordering::Relaxed) {
                store.read_together(&all, &mut readings).unwrap();
                for (object, last) in all.iter().zip(&mut last) {
                    let together = readings.get(object.index()).map_or(Seq(0), |(sample, _)| sample.seq);
                    let alone = store
                        .read(*object, &mut value)
                        .unwrap()
                        .map_or(Seq(0), |sample| sample.seq);
                    assert!(
                        *last <= together && together <= alone,
                        "{object}: {last} {together} {alone}"
                    );
                    *last = alone;
                }
            }
        });
        offering.into_iter().for_each(|thread| thread.join().unwrap());
        over.store(true, Ordering::Relaxed);
    });
    let counts = store.counts();
    assert_eq!(counts.offered, 3 * OFFERS + direct.load(Ordering::Relaxed));
    assert_eq!(counts.shed, shed.load(Ordering::Relaxed));
    assert_eq!(
        (counts.offered, counts.pending, counts.in_flight),
        (counts.installed + counts.shed, 0, 0)
    );
    assert!(store.reconcile().balances());
    let last = |sensor| store.sample(ObjectId(sensor)).unwrap().unwrap().seq.0;
    let numbered: u64 = (0..SENSORS).map(last).sum();
    assert!(
        numbered <= counts.offered && numbered > counts.offered / 2,
        "{numbered} of {}",
        counts.offered
    );
}

/// Readings that several threads install as they offer them are logged in the order of their decisions: the log replays
/// to the same verdicts and to the same counts of each sensor.
#[test]
fn the_log_of_offers_by_several_threads_replays() {
    const OFFERS: u64 = 500;
    let options = StoreOptions {
        objects: (0..SENSORS).map(object).collect(),
        admission: AdmissionOptions {
            minimum_fresh: Share::clamped(0.0), // the knob alone decides
            ..AdmissionOptions::default()
        },
        ..StoreOptions::default()
    };
    let admission = options.admission;
    let store = Store::open(Memory::default(), LinuxOs, options).unwrap();
    store.set_admitted_share(Share::clamped(0.3));
    store.keep_admission_log();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let store = &store;
            scope.spawn(move || {
                for n in thread..thread + OFFERS {
                    let sensor = SensorId((n * 37 % u64::from(SENSORS)) as u32);
                    store.offer_next(sensor, None, &n.to_le_bytes()).unwrap();
                    if thread == 0 && n % 50 == 0 {
                        store.set_admitted_share(Share::of(n as usize % 7, 7));
                        store.rebalance();
                    }
                }
            });
        }
    });
    let log = store.take_admission_log();
    let spec = SensorSpec {
        period: PERIOD,
        avi: PERIOD * 2,
        value_bytes_max: 16,
    };
    let mut replayed = Updates::new(&[spec; SENSORS as usize], admission);
    for step in &log {
        assert_eq!(replayed.step(&step.event, step.now), step.admitted, "{step:?}");
    }
    let (found, counts) = (replayed.counts(), store.counts());
    assert_eq!((found.offered, found.shed), (3 * OFFERS, counts.shed));
    assert!(counts.shed > 0 && counts.installed > 0, "{counts:?}");
    let last = |sensor| replayed.last(SensorId(sensor)).unwrap();
    assert!((0..SENSORS).all(|sensor| store.sample(ObjectId(sensor)).unwrap().unwrap().seq <= last(sensor)));
}

/// A watch that is there gets each install in its order, from whichever thread.
#[test]
fn a_watch_gets_each_install_of_all_threads_in_the_order_of_each_sensor() {
    const OFFERS: u64 = 300;
    let store = open(LinuxOs);
    let mut watch = store.watch(WatchTarget::Prefix(b"sensor/"), 2000).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                (0..OFFERS).for_each(|n| {
                    assert_eq!(
                        store.offer_next(SensorId((n % 5) as u32), None, b"1").unwrap(),
                        Receipt::Admitted
                    )
                })
            });
        }
    });
    let mut next = [1; 5];
    while let Some(change) = watch.take() {
        let Change::Updated { key, sample } = change else {
            panic!("{change:?}")
        };
        let sensor = usize::from(key[8] - b'0');
        assert_eq!((key[7], sample.seq), (b'0', Seq(next[sensor])));
        next[sensor] += 1;
    }
    assert_eq!(next, [3 * OFFERS / 5 + 1; 5]);
}

/// Two virtual threads, by many seeds: a watch that begins beside an offer gets its note, or the value was there.
#[test]
fn a_watch_that_begins_beside_offers_misses_none() {
    for seed in 0..200 {
        let os = VirtualOs::new(seed);
        let store = open(os.clone());
        let found = std::sync::Mutex::new(Vec::new());
        os.together(vec![
            Thread::new("offers", || {
                (0..3).for_each(|_| assert_eq!(store.offer_next(SensorId(1), None, b"1").unwrap(), Receipt::Admitted));
            }),
            Thread::new("watches", || {
                let mut watch = store.watch(WatchTarget::Object(ObjectId(1)), 8).unwrap();
                let before = store.sample(ObjectId(1)).unwrap().map_or(0, |sample| sample.seq.0);
                while let Some(Change::Updated { sample, .. }) = watch.wait(os.now() + PERIOD) {
                    found.lock().unwrap().push(sample.seq.0);
                }
                let found = found.lock().unwrap();
                assert!(
                    (before + 1..=3).all(|seq| found.contains(&seq)),
                    "{seed}: {before}, then {found:?}"
                );
            }),
        ]);
    }
}

#[test]
fn the_knob_sheds_as_soon_as_it_is_set_and_lanes_open_again_once_it_stays_at_one() {
    let os = VirtualOs::new(1);
    let store = open(os.clone());
    let round = || {
        os.advance(PERIOD);
        for sensor in 0..SENSORS {
            store.offer_next(SensorId(sensor), None, b"1").unwrap();
        }
        store.rebalance();
    };
    (0..3).for_each(|_| round());
    assert_eq!(store.counts().shed, 0);
    store.set_admitted_share(Share::ZERO);
    (0..20).for_each(|_| round());
    let shed = store.counts().shed;
    assert!(shed > 0);
    // The minimum is kept from the first reading on: those from before the knob was set are known.
    assert!(store.fresh_share(os.now()) >= Share::clamped(0.5));
    store.set_admitted_share(Share::ONE);
    (0..20).for_each(|_| round());
    assert_eq!(store.counts().shed, shed);
    store.keep_admission_log();
    round();
    assert_eq!(store.take_admission_log().len(), SENSORS as usize + 1);
    assert!(store.reconcile().balances());
}

#[test]
fn refused_offers_change_nothing() {
    let store = open(VirtualOs::new(1));
    let refused = |seq: u64, sensor: u32, value: &[u8]| match store
        .offer(SensorId(sensor), Seq(seq), Time(0), value)
        .unwrap_err()
    {
        StoreError::Offer(error) => error,
        error => panic!("{error}"),
    };
    store.offer(SensorId(2), Seq(7), Time(0), b"seven").unwrap();
    assert!(matches!(
        refused(7, 2, b""),
        OfferError::SeqNotIncreasing { last: Seq(7), .. }
    ));
    assert!(matches!(
        refused(8, 2, &[0; 17]),
        OfferError::ValueTooLong { len: 17, max: 16, .. }
    ));
    assert!(matches!(
        refused(1, SENSORS, b""),
        OfferError::UnknownSensor { sensors: 70, .. }
    ));
    assert!(matches!(refused(1, u32::MAX, b""), OfferError::UnknownSensor { .. }));
    store.offer(SensorId(2), Seq(u64::MAX), Time(0), b"the last").unwrap();
    let next = store.offer_next(SensorId(2), None, b"none is left").unwrap_err();
    assert!(
        matches!(next, StoreError::Offer(OfferError::SeqNotIncreasing { .. })),
        "{next}"
    );
    let counts = store.counts();
    assert_eq!((counts.offered, counts.installed), (2, 2));
    assert!(store.reconcile().balances());
}

proptest! {
    /// The order of offers and of moves of the knob makes no difference to the account.
    #[test]
    fn the_account_balances_at_every_instant(steps in prop::collection::vec((0u32..4, 0u8..12), 1..80)) {
        let os = VirtualOs::new(3);
        let store = open(os.clone());
        let mut offered = 0;
        for (sensor, act) in steps {
            os.advance(Nanos::from_millis(3));
            match act {
                0 => store.set_admitted_share(Share::clamped(0.3)),
                1 => store.set_admitted_share(Share::ONE),
                2 => (0..10).for_each(|_| store.rebalance()),
                _ => {
                    offered += 1;
                    store.offer_next(SensorId(sensor), None, b"1").unwrap();
                }
            }
            let counts = store.counts();
            prop_assert_eq!(counts.offered, offered);
            prop_assert_eq!(counts.offered, counts.installed + counts.shed);
            prop_assert!(store.reconcile().balances());
        }
    }
}
