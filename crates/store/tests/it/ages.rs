//! No old value is reported fresh: the machine sleeps, clocks differ by a time namespace, and stores are opened again.

use std::collections::BTreeMap;

use punctual_engines::Memory;
use punctual_os::{Os, Refusal, Scheduling, Thread, Tid};
use punctual_store::temporal::{ClockOrigin, ObjectSpec};
use punctual_store::{Freshness, Store, StoreOptions, UpdateMode};
use punctual_testing::{VirtualLock, VirtualOs, VirtualParker};
use punctual_units::{Clock, Nanos, SensorId, Seq, Share, Time};

const AVI: Nanos = Nanos::from_secs(1);
const KEY: &[u8] = b"sensor";
const MODES: [UpdateMode; 2] = [UpdateMode::MemoryFirst, UpdateMode::Transaction];

fn options(update_mode: UpdateMode, origin: &[u8]) -> StoreOptions {
    let object = ObjectSpec {
        key: KEY.to_vec(),
        avi: AVI,
        period: AVI,
        max_len: 8,
        history: 1,
    };
    StoreOptions {
        objects: vec![object],
        update_mode,
        clock_origin: ClockOrigin::named(origin),
        ..StoreOptions::default()
    }
}

/// An operating system whose clock of ages stands still while the machine sleeps: the planted fault.
#[derive(Clone)]
struct Forgetful(VirtualOs);

impl Clock for Forgetful {
    fn now(&self) -> Time {
        self.0.now()
    }
}

impl Os for Forgetful {
    type Lock<T: Send> = VirtualLock<T>;
    type Parker = VirtualParker;

    fn new_lock<T: Send>(&self, data: T) -> VirtualLock<T> {
        self.0.new_lock(data)
    }

    fn new_parker(&self) -> VirtualParker {
        self.0.new_parker()
    }

    fn sleep_until(&self, wake: Time) {
        self.0.sleep_until(wake);
    }

    fn this_thread(&self) -> Tid {
        self.0.this_thread()
    }

    fn scheduling(&self, thread: Tid) -> Result<Scheduling, Refusal> {
        self.0.scheduling(thread)
    }

    fn set_scheduling(&self, thread: Tid, scheduling: Scheduling) -> Result<(), Refusal> {
        self.0.set_scheduling(thread, scheduling)
    }

    fn together(&self, threads: Vec<Thread<'_>>) {
        self.0.together(threads);
    }
}

/// A machine that works, sleeps, samples, offers, installs and reads as a seed says; the first value that is reported
/// fresh and is not, or is younger than it can be.
fn first_lie<O: Os>(seed: u64, mode: UpdateMode, machine: &VirtualOs, os: O) -> Option<String> {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut below = |end: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % end
    };
    machine.advance(Nanos(below(3_000_000_000)));
    let store = Store::open(Memory::default(), os, options(mode, b"boot")).expect("opens");
    // Samples that were taken and not offered yet; and when each was taken, by a clock that nothing stops.
    let (mut taken, mut truth, mut seq) = (Vec::new(), BTreeMap::new(), 0);
    for _ in 0..60 {
        match below(6) {
            0 => machine.advance(Nanos(below(700_000_000))),
            1 => machine.suspend(Nanos(1_000_001 + below(3_000_000_000))),
            2 => {
                seq += 1;
                truth.insert(seq, machine.since_boot());
                taken.push((seq, machine.now()));
                machine.advance(Nanos(1)); // no two things at one instant
            }
            3 => {
                for (seq, at) in taken.drain(..) {
                    store
                        .offer(SensorId(0), Seq(seq), at, &seq.to_le_bytes())
                        .expect("offered");
                }
            }
            4 => drop(store.install_pending(1).expect("installed")),
            _ => {
                let Freshness::Fresh { value, age } = store.get_fresh(KEY, AVI).expect("read") else {
                    continue;
                };
                let seq = u64::from_le_bytes(value.try_into().expect("8 bytes"));
                let true_age = machine.since_boot().since(truth[&seq]);
                // A sleep of under a millisecond goes unnoticed; here there is none.
                if true_age > age {
                    return Some(format!("seed {seq}, {mode:?}: {true_age} old, said to be {age}"));
                }
            }
        }
    }
    None
}

#[test]
fn whatever_the_machine_does_no_old_value_is_reported_fresh() {
    for seed in 1..300 {
        for mode in MODES {
            for ahead in [0, 3_000_000_000, -3_000_000_000] {
                let machine = VirtualOs::new(seed).in_time_namespace(ahead);
                machine.advance(Nanos::from_secs(10));
                assert_eq!(
                    first_lie(seed, mode, &machine, machine.clone()),
                    None,
                    "seed {seed}, {ahead} ahead"
                );
            }
        }
    }
}

#[test]
fn ages_that_stand_still_in_a_sleep_are_caught() {
    let lie = |seed| {
        let machine = VirtualOs::new(seed);
        first_lie(seed, MODES[0], &machine, Forgetful(machine.clone()))
    };
    assert!((1..300).any(|seed| lie(seed).is_some()));
}

/// The promise is worth something only if values are fresh, too.
#[test]
fn a_value_is_as_old_as_it_is_before_a_sleep_and_after_it() {
    for mode in MODES {
        for ahead in [0, 3_000_000_000, -3_000_000_000] {
            let machine = VirtualOs::new(1).in_time_namespace(ahead);
            machine.advance(Nanos::from_secs(10));
            let store = Store::open(Memory::default(), machine.clone(), options(mode, b"boot")).unwrap();
            let offer = |seq| store.offer(SensorId(0), Seq(seq), machine.now(), b"value").unwrap();
            let age = || match store.get_fresh(KEY, AVI).unwrap() {
                Freshness::Fresh { age, .. } => Ok(age),
                Freshness::Stale { age, .. } => Err(age),
                Freshness::NotFound => Err(Nanos::MAX),
            };
            offer(1);
            machine.advance(Nanos::from_millis(5));
            assert_eq!(age(), Ok(Nanos::from_millis(5)), "{mode:?}, {ahead}");
            assert_eq!(store.fresh_share(machine.now()), Share::ONE);
            machine.suspend(Nanos::from_secs(3));
            assert_eq!(age(), Err(Nanos::from_millis(3_005)));
            assert_eq!(store.fresh_share(machine.now()), Share::ZERO);
            offer(2); // for all that the store knows, it was taken before the sleep
            assert_eq!(age(), Err(Nanos::from_secs(3)));
            machine.advance(Nanos::from_millis(1));
            offer(3);
            machine.advance(Nanos::from_millis(7));
            assert_eq!(age(), Ok(Nanos::from_millis(7)));
        }
    }
}
