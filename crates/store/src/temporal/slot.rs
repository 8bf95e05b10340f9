//! One temporal object in memory: readers never wait, not even for a writer that lost its core.
//!
//! **Problem.** A sensor's value is read by jobs of higher priority than the thread that installs it. A plain seqlock
//! makes a reader spin while a write is under way; where the reader has the higher priority and shares the writer's
//! core, it spins for ever, because the writer never runs again.
//!
//! **Method.** Two copies and a version, as in the kernel's `seqcount_latch`. The writer of version v+1 fills copy
//! (v+1) mod 2 and then publishes the version; readers use copy v mod 2, which is left alone until version v+1 is
//! out. A reader repeats only if a newer version was *published* while it copied, so some writer has finished: the
//! read is lock-free. The words are atomics, and the fences are those of H.-J. Boehm, "Can seqlocks get along with
//! programming language memory models?" (MSPC 2012), section 4: there is no data race to be undefined.
//!
//! Reads and installs of one slot are linearizable: both take effect at the load, or the store, of the version.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use punctual_units::{Seq, Time};

/// The words of a copy before the value: sequence number, sampling instant, length in bytes.
const HEADER_WORDS: usize = 3;
const WORD: usize = size_of::<u64>();
/// A sampling instant that is not known in terms of this machine's clock; no true instant lies 584 years after boot.
const UNKNOWN: u64 = u64::MAX;

/// What is known of a value: which update it is, and when it was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The update's number within its sensor's stream; 0 for a value kept from an earlier run.
    pub seq: Seq,
    /// When the sensor took it, on the clock that goes on while the machine is suspended
    /// ([`Clock::since_boot`](punctual_units::Clock::since_boot)); `None` where that is not known, then it counts as
    /// stale.
    pub sampled_at: Option<Time>,
}

/// What became of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installation {
    /// It is the object's value now.
    Installed,
    /// The object already holds an equally new or newer update: nothing changed.
    Overtaken,
    /// Another thread is installing into this slot right now: nothing changed. The store serializes installs, and
    /// never sees it.
    Busy,
}

/// A register for one value of bounded length.
///
/// ```
/// use punctual_store::temporal::{Installation, Sample, Slot};
/// use punctual_units::{Seq, Time};
/// let slot = Slot::new(16);
/// let sample = Sample { seq: Seq(1), sampled_at: Some(Time(5)) };
/// assert_eq!(slot.install(sample, b"21.5 C"), Installation::Installed);
/// let mut value = Vec::new();
/// assert_eq!(slot.read(&mut value), Some(sample));
/// assert_eq!(value, b"21.5 C");
/// ```
#[derive(Debug)]
pub struct Slot {
    /// How many values have been published; the latest is in copy `version % 2`. 0: none yet.
    version: AtomicU64,
    installing: AtomicBool,
    reads: AtomicU64,
    /// Both copies, each a header and the value's words.
    words: Box<[AtomicU64]>,
    max_len: usize,
}

impl Slot {
    /// An empty slot for values of up to `max_len` bytes.
    pub fn new(max_len: usize) -> Slot {
        let copy = HEADER_WORDS + max_len.div_ceil(WORD);
        Slot {
            version: AtomicU64::new(0),
            installing: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            words: (0..2 * copy).map(|_| AtomicU64::new(0)).collect(),
            max_len,
        }
    }

    /// The longest value it takes, in bytes.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// How often it was [read](Slot::read).
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Counts a read that was served from elsewhere.
    pub(crate) fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes `value` the slot's value, unless it holds an equally new or newer one.
    ///
    /// # Panics
    /// If `value` is longer than [`max_len`](Slot::max_len): the caller has checked it.
    pub fn install(&self, sample: Sample, value: &[u8]) -> Installation {
        assert!(
            value.len() <= self.max_len,
            "a value of {} bytes in a slot for {}",
            value.len(),
            self.max_len
        );
        if self.installing.swap(true, Ordering::Acquire) {
            return Installation::Busy;
        }
        let installation = self.install_alone(sample, value);
        self.installing.store(false, Ordering::Release);
        installation
    }

    fn install_alone(&self, sample: Sample, value: &[u8]) -> Installation {
        let version = self.version.load(Ordering::Relaxed); // only this thread changes it
        if version > 0 && sample.seq.0 <= self.copy(version)[0].load(Ordering::Relaxed) {
            return Installation::Overtaken;
        }
        // A reader that sees one of the words below sees at least this version when it looks again: with its acquire
        // fence, this fence orders the version's last store before them.
        fence(Ordering::Release);
        let copy = self.copy(version + 1);
        let header = [
            sample.seq.0,
            sample.sampled_at.map_or(UNKNOWN, |at| at.0),
            value.len() as u64,
        ];
        for (word, content) in copy.iter().zip(header.into_iter().chain(words_of(value))) {
            word.store(content, Ordering::Relaxed);
        }
        self.version.store(version + 1, Ordering::Release);
        Installation::Installed
    }

    /// Copies the latest value into `value`, whose old content is lost, and counts the read; `None` if there is none
    /// yet.
    ///
    /// Repeats as often as a newer value is published meanwhile: a handful of nanoseconds against the period of a
    /// sensor.
    #[inline]
    pub fn read(&self, value: &mut Vec<u8>) -> Option<Sample> {
        self.count_read();
        self.peek(value)
    }

    /// Like [`read`](Slot::read), and not counted.
    #[inline]
    pub(crate) fn peek(&self, value: &mut Vec<u8>) -> Option<Sample> {
        self.consistent(|copy| {
            let len = copy[2].load(Ordering::Relaxed) as usize;
            value.clear();
            // A length from one version beside the words of another may be too long, and is thrown away below.
            for word in &copy[HEADER_WORDS..][..len.div_ceil(WORD).min(copy.len() - HEADER_WORDS)] {
                value.extend_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            value.truncate(len);
        })
    }

    /// What is known of the latest value, without the value; not counted as a read.
    #[inline]
    pub fn sample(&self) -> Option<Sample> {
        self.consistent(|_| ())
    }

    #[inline]
    fn consistent(&self, mut look: impl FnMut(&[AtomicU64])) -> Option<Sample> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version == 0 {
                return None;
            }
            let copy = self.copy(version);
            let (seq, sampled_at) = (copy[0].load(Ordering::Relaxed), copy[1].load(Ordering::Relaxed));
            look(copy);
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return Some(Sample {
                    seq: Seq(seq),
                    sampled_at: (sampled_at != UNKNOWN).then_some(Time(sampled_at)),
                });
            }
        }
    }

    /// The copy that holds `version`.
    #[inline]
    fn copy(&self, version: u64) -> &[AtomicU64] {
        let len = self.words.len() / 2;
        &self.words[(version % 2) as usize * len..][..len]
    }
}

/// The bytes as words, the last one padded with zeroes.
fn words_of(value: &[u8]) -> impl Iterator<Item = u64> {
    value.chunks(WORD).map(|chunk| {
        let mut bytes = [0; WORD];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(bytes)
    })
}
