//! Slots are linearizable registers: a checker of concurrent histories, and broken slots that it catches.
//!
//! One thread installs updates 1, 2, 3, ... whose bytes all follow from their number. Each read is recorded with the
//! numbers that bound it in real time. It must return one whole update. That update is not older than any that was
//! complete when the read began or that the same reader has seen, and had begun when the read ended. For a register
//! with one writer these conditions are equivalent to linearizability: reads can be ordered by the update they return,
//! each between its bounds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

use punctual_store::temporal::{Installation, Sample, Slot};
use punctual_units::{Seq, Time};

/// Miri carries out some thousand times fewer instructions in a second.
const UPDATES: u64 = if cfg!(miri) { 25 } else { 20_000 };
const READERS: usize = 3;
const LEN_MAX: u64 = 96;

trait Register: Sync {
    fn install(&self, seq: u64, value: &[u8]);
    fn read(&self, value: &mut Vec<u8>) -> Option<u64>;
}

#[derive(Debug, PartialEq, Eq)]
enum Violation {
    Torn { seq: u64 },
    OlderThanComplete { seq: u64, complete: u64 },
    OlderThanSeen { seq: u64, seen: u64 },
    FromTheFuture { seq: u64, begun: u64 },
}

/// The value of an update: its length and each of its bytes follow from the number.
fn value_of(seq: u64, value: &mut Vec<u8>) {
    value.clear();
    value.extend((0..1 + seq.wrapping_mul(7) % LEN_MAX).map(|at| (seq.wrapping_mul(31) + at) as u8));
}

/// Runs the history; the first violation that any reader saw.
fn check(register: &dyn Register) -> Option<Violation> {
    let (begun, complete, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let violation = Mutex::new(None);
    let start = Barrier::new(READERS + 1);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let (mut value, mut expected, mut seen) = (Vec::new(), Vec::new(), 0);
                start.wait();
                while !done.load(Ordering::Relaxed) {
                    let before = complete.load(Ordering::SeqCst);
                    let seq = register.read(&mut value).unwrap_or(0);
                    let after = begun.load(Ordering::SeqCst);
                    value_of(seq, &mut expected);
                    let wrong = if seq > 0 && value != expected {
                        Some(Violation::Torn { seq })
                    } else if seq < before {
                        Some(Violation::OlderThanComplete { seq, complete: before })
                    } else if seq < seen {
                        Some(Violation::OlderThanSeen { seq, seen })
                    } else if seq > after {
                        Some(Violation::FromTheFuture { seq, begun: after })
                    } else {
                        None
                    };
                    seen = seq;
                    if wrong.is_some() {
                        violation.lock().unwrap().get_or_insert_with(|| wrong.unwrap());
                        done.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut value = Vec::new();
        start.wait();
        for seq in 1..=UPDATES {
            if done.load(Ordering::Relaxed) {
                break;
            }
            value_of(seq, &mut value);
            begun.store(seq, Ordering::SeqCst);
            register.install(seq, &value);
            complete.store(seq, Ordering::SeqCst);
            if seq % 64 == 0 {
                std::thread::yield_now(); // readers on the same core get their turn in the middle, too
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    violation.into_inner().unwrap()
}

impl Register for Slot {
    fn install(&self, seq: u64, value: &[u8]) {
        let sample = Sample {
            seq: Seq(seq),
            sampled_at: Some(Time(seq)),
        };
        assert_eq!(Slot::install(self, sample, value), Installation::Installed);
    }

    fn read(&self, value: &mut Vec<u8>) -> Option<u64> {
        let sample = Slot::read(self, value)?;
        assert_eq!(
            sample.sampled_at,
            Some(Time(sample.seq.0)),
            "number and instant belong together"
        );
        Some(sample.seq.0)
    }
}

/// One copy, without a version: a reader may see half of each of two updates.
struct Torn {
    seq: AtomicU64,
    len: AtomicU64,
    bytes: Box<[AtomicU64]>,
}

impl Register for Torn {
    fn install(&self, seq: u64, value: &[u8]) {
        self.seq.store(seq, Ordering::SeqCst);
        self.len.store(value.len() as u64, Ordering::SeqCst);
        for (at, byte) in value.iter().enumerate() {
            self.bytes[at].store(u64::from(*byte), Ordering::SeqCst);
            if at == value.len() / 2 && seq.is_multiple_of(16) {
                std::thread::yield_now(); // the writer loses its core
            }
        }
    }

    fn read(&self, value: &mut Vec<u8>) -> Option<u64> {
        value.clear();
        let seq = self.seq.load(Ordering::SeqCst);
        let len = self.len.load(Ordering::SeqCst) as usize;
        value.extend(self.bytes[..len].iter().map(|byte| byte.load(Ordering::SeqCst) as u8));
        (seq > 0).then_some(seq)
    }
}

/// Gives out the update before the latest.
struct Behind {
    latest: Mutex<(u64, u64)>,
}

impl Register for Behind {
    fn install(&self, seq: u64, _: &[u8]) {
        let mut latest = self.latest.lock().unwrap();
        *latest = (latest.1, seq);
    }

    fn read(&self, value: &mut Vec<u8>) -> Option<u64> {
        let seq = self.latest.lock().unwrap().0;
        value_of(seq, value);
        Some(seq)
    }
}

#[test]
fn slots_are_linearizable() {
    assert_eq!(check(&Slot::new(LEN_MAX as usize)), None);
}

#[test]
fn a_torn_slot_is_caught() {
    let bytes = (0..LEN_MAX).map(|_| AtomicU64::new(0)).collect();
    let torn = Torn {
        seq: AtomicU64::new(0),
        len: AtomicU64::new(0),
        bytes,
    };
    assert!(matches!(check(&torn), Some(Violation::Torn { .. })));
}

#[test]
fn a_slot_that_lags_behind_is_caught() {
    let behind = Behind {
        latest: Mutex::default(),
    };
    assert!(matches!(check(&behind), Some(Violation::OlderThanComplete { .. })));
}

#[test]
fn an_older_update_never_replaces_a_newer_one() {
    let slot = Slot::new(8);
    let sample = |seq| Sample {
        seq: Seq(seq),
        sampled_at: None,
    };
    assert_eq!(slot.sample(), None);
    assert_eq!(slot.install(sample(0), b"kept"), Installation::Installed); // from an earlier run
    assert_eq!(slot.install(sample(2), b"second"), Installation::Installed);
    assert_eq!(slot.install(sample(1), b"first"), Installation::Overtaken);
    assert_eq!(slot.install(sample(2), b"again"), Installation::Overtaken);
    let mut value = Vec::new();
    assert_eq!(slot.read(&mut value), Some(sample(2)));
    assert_eq!(value, b"second");
    assert_eq!(slot.reads(), 1);
}
