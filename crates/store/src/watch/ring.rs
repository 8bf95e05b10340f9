//! A bounded queue of changes from one thread to another: neither waits, and changes that do not fit are counted.

use punctual_units::{Seq, Time};

use super::atomics::{AtomicU64, Ordering};
use super::slot::Sample;

/// The words of an entry before the key: kind and length of the key, sequence number, sampling instant, how many
/// changes had been missed before it.
const HEADER_WORDS: usize = 4;
const WORD: usize = size_of::<u64>();
const UNKNOWN: u64 = u64::MAX;

/// The change of a key, with the label of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Put(u8),
    Deleted(u8),
    /// The record's life ended.
    Expired,
    /// The record has another expiry, or none any more.
    Expiry(bool, u8),
    Updated(Sample),
    /// The number of changes that did not fit.
    Missed(u64),
}

/// A ring for one writing and one taking thread at a time. Each writes its own counters, so neither needs a lock.
#[derive(Debug)]
pub(crate) struct ChangeRing {
    words: Box<[AtomicU64]>,
    entry: usize,
    capacity: u64,
    /// Changes put in, taken out, and missed, since the start.
    put: AtomicU64,
    taken: AtomicU64,
    missed: AtomicU64,
}

impl ChangeRing {
    /// Room for `capacity` changes of keys with up to `key_max` bytes; longer keys are cut off.
    pub fn new(capacity: usize, key_max: usize) -> ChangeRing {
        let entry = HEADER_WORDS + key_max.div_ceil(WORD);
        ChangeRing {
            words: (0..capacity * entry).map(|_| AtomicU64::new(0)).collect(),
            entry,
            capacity: capacity as u64,
            put: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        }
    }

    fn entry(&self, number: u64) -> &[AtomicU64] {
        &self.words[(number % self.capacity) as usize * self.entry..][..self.entry]
    }

    /// Puts a change in, or counts it as missed.
    pub fn put(&self, kind: ChangeKind, key: &[u8]) {
        let (put, missed) = (self.put.load(Ordering::Relaxed), self.missed.load(Ordering::Relaxed));
        let (number, seq, sampled_at) = match kind {
            ChangeKind::Put(label) => (0, label.into(), 0),
            ChangeKind::Deleted(label) => (1, label.into(), 0),
            ChangeKind::Expired => (3, 0, 0),
            ChangeKind::Expiry(expires, label) => (4, label.into(), expires.into()),
            ChangeKind::Updated(sample) => (2, sample.seq.0, sample.sampled_at.map_or(UNKNOWN, |at| at.0)),
            ChangeKind::Missed(count) => return self.missed.store(missed + count, Ordering::Release),
        };
        if put - self.taken.load(Ordering::Acquire) == self.capacity {
            return self.missed.store(missed + 1, Ordering::Release);
        }
        let entry = self.entry(put);
        let len = key.len().min((self.entry - HEADER_WORDS) * WORD);
        let header = [number | (len as u64) << 8, seq, sampled_at, missed];
        let words = key[..len].chunks(WORD).map(|chunk| {
            let mut bytes = [0; WORD];
            bytes[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(bytes)
        });
        for (word, content) in entry.iter().zip(header.into_iter().chain(words)) {
            word.store(content, Ordering::Relaxed);
        }
        self.put.store(put + 1, Ordering::Release);
    }

    /// Takes the next change out and puts its key into `key`. `told` counts the missed changes that were reported to
    /// the taker; new ones are reported at the position where they are missing.
    pub fn take(&self, told: &mut u64, key: &mut Vec<u8>) -> Option<ChangeKind> {
        loop {
            let taken = self.taken.load(Ordering::Relaxed);
            if self.put.load(Ordering::Acquire) == taken {
                let missed = self.missed.load(Ordering::Acquire);
                if missed == *told {
                    return None;
                }
                // Between the two loads the ring was filled and changes were missed: those in the ring come first.
                if self.put.load(Ordering::Acquire) != taken {
                    continue;
                }
                return Some(ChangeKind::Missed(missed - std::mem::replace(told, missed)));
            }
            let entry = self.entry(taken);
            let word = |at: usize| entry[at].load(Ordering::Relaxed);
            let missed = word(3);
            if missed != *told {
                return Some(ChangeKind::Missed(missed - std::mem::replace(told, missed)));
            }
            let len = (word(0) >> 8) as usize;
            key.clear();
            for word in &entry[HEADER_WORDS..][..len.div_ceil(WORD)] {
                key.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            key.truncate(len);
            let kind = match word(0) & 0xff {
                0 => ChangeKind::Put(word(1) as u8),
                1 => ChangeKind::Deleted(word(1) as u8),
                3 => ChangeKind::Expired,
                4 => ChangeKind::Expiry(word(2) != 0, word(1) as u8),
                _ => ChangeKind::Updated(Sample {
                    seq: Seq(word(1)),
                    sampled_at: (word(2) != UNKNOWN).then_some(Time(word(2))),
                }),
            };
            self.taken.store(taken + 1, Ordering::Release);
            return Some(kind);
        }
    }
}
