//! A temporal object in memory: readers never wait, not even for a writer that lost its core.
//!
//! **Problem.** A sensor's value is read by jobs of higher priority than the thread that installs it. A plain seqlock
//! makes a reader spin while a write is under way; where the reader has the higher priority and shares the writer's
//! core, it spins without end, because the writer never runs again. And a reader of several objects, a pose and its
//! covariance, must not see one as it was before an install of both and the other as it is after.
//!
//! **Method.** A ring of copies: one more than values that are kept, hence at least two. An install writes the oldest
//! copy, which is marked as being written meanwhile. The store counts the installs of several objects ([`Installs`]): a
//! reader takes that count, its *cut*, and then from each slot the newest copy with a number up to the cut. Such an
//! install has the next number in all of its copies and is counted when all are written, so each cut has all of it or
//! nothing. An install of one object has the number of the present cut, and appears at once: threads that install into
//! different slots share nothing that they write. A reader of several objects looks at each a second time: where none
//! has a newer value, and the cut is still the same, all of its values were the latest ones at one instant. The copies
//! that a reader needs stay as they are until a later install is complete, and another one has begun: a reader repeats
//! only if writers have made progress meanwhile, so the read is lock-free.
//!
//! The words are atomics, and the fences are those of H.-J. Boehm, "Can seqlocks get along with programming language
//! memory models?" (MSPC 2012), section 4: there is no data race to be undefined. The model checker `loom` tries every
//! order of them (`tests/slot.rs`), with planted faults.
//!
//! Reads and installs are linearizable: an install takes effect when it is counted, that of one object when its copy
//! has its number; a read of several objects does before its second look. Between the two looks, two readers that see
//! two writers' values are ordered by a sequentially consistent fence.

use std::mem::MaybeUninit;
use std::ops::Range;

use punctual_units::{Seq, Time};

use super::atomics::{AtomicBool, AtomicU64, Ordering, fence};

/// The words of a copy before the value: number of the install, sequence number, sampling instant, length in bytes.
const HEADER_WORDS: usize = 4;
const WORD: usize = size_of::<u64>();
/// A sampling instant unknown on this machine's clock; no true instant lies 584 years after boot.
const UNKNOWN: u64 = u64::MAX;
/// The number of a copy that is being written: above all cuts.
const WRITING: u64 = u64::MAX;
/// The cut that includes every install.
const LATEST: u64 = WRITING - 1;

/// Number and sampling instant of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The update's number within its sensor's stream; 0 for a value kept from an earlier run.
    pub seq: Seq,
    /// Sampling instant, on the clock that goes on while the machine is suspended
    /// ([`Clock::since_boot`](punctual_units::Clock::since_boot)); `None` where it is unknown: the value counts as
    /// stale.
    pub sampled_at: Option<Time>,
}

/// Outcome of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installation {
    /// The update is the object's value now.
    Installed,
    /// The object already holds an equally new or newer update: nothing changed.
    Overtaken,
    /// Another thread is installing into this slot right now: nothing changed. The store serializes installs, so it
    /// never gets this answer.
    Busy,
}

/// The value of a cut was overwritten by later installs: take another cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwritten;

/// The number of complete installs of several objects, over all slots of a store.
///
/// ```
/// use punctual_store::temporal::{Installs, Sample, Slot};
/// use punctual_units::{Seq, Time};
/// let sample = |seq| Sample { seq: Seq(seq), sampled_at: Some(Time(5)) };
/// let (installs, pose, covariance) = (Installs::default(), Slot::new(8), Slot::new(8));
/// installs.install([(&pose, sample(1), &b"pose 1"[..]), (&covariance, sample(1), b"cov 1")]);
/// let cut = installs.cut();
/// installs.install([(&pose, sample(2), &b"pose 2"[..]), (&covariance, sample(2), b"cov 2")]);
/// let mut value = Vec::new();
/// assert_eq!(pose.read_at(cut, &mut value), Ok(Some(sample(1))));
/// assert_eq!(covariance.read_at(cut, &mut value), Ok(Some(sample(1))));
/// ```
// On a cache line of its own: every read of a value loads it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Installs {
    complete: AtomicU64,
}

impl Installs {
    /// The number of complete installs of several objects: reads at this cut see these and no others.
    #[inline]
    pub fn cut(&self) -> u64 {
        self.complete.load(Ordering::Acquire)
    }

    /// Installs each value in its slot, unless the slot holds an equally new or newer one. All values appear at once:
    /// no cut has some of them without the others. The caller makes one call at a time, and keeps other installs out of
    /// these slots until it returns.
    ///
    /// # Panics
    /// If a value is longer than its slot's [`max_len`](Slot::max_len): the caller must check it.
    pub fn install<'s>(&self, values: impl IntoIterator<Item = (&'s Slot, Sample, &'s [u8])>) -> Installation {
        let number = self.complete.load(Ordering::Relaxed) + 1; // only this thread changes it
        let mut all = Installation::Overtaken;
        for (slot, sample, value) in values {
            match slot.install_numbered(Some(number), sample, value) {
                Installation::Overtaken => {}
                other => all = other,
            }
        }
        if all == Installation::Installed {
            self.complete.store(number, Ordering::Release);
        }
        all
    }

    /// Installs one value, unless the slot holds an equally new or newer one: it appears at once, at the present cut.
    /// Any number of threads, each in another slot.
    ///
    /// # Panics
    /// If the value is longer than the slot's [`max_len`](Slot::max_len): the caller must check it.
    #[inline]
    pub fn install_one(&self, slot: &Slot, sample: Sample, value: &[u8]) -> Installation {
        slot.install_numbered(Some(self.cut()), sample, value)
    }

    /// Reads the values of one cut that were the latest of all these slots at one instant: in passes, each of which
    /// reads again what has changed since the one before. A pass that finds nothing changed began at that instant.
    /// False after `passes`.
    pub fn read_latest<'s, S: Iterator<Item = &'s Slot>>(
        &self,
        slots: impl Fn() -> S,
        readings: &mut ReadingBuffer,
        passes: usize,
    ) -> bool {
        readings.clear();
        readings.spans.extend(slots().map(|_| (None, 0..0)));
        for _ in 0..passes {
            let (cut, mut changed) = (self.cut(), false);
            fence(Ordering::SeqCst);
            for (at, slot) in slots().enumerate() {
                if slot.sample_at(cut) != Ok(readings.spans[at].0) {
                    changed = true;
                    // A slot that is overwritten right now is read in the next pass.
                    let _ = readings.take_again(at, |bytes| slot.append_at(cut, bytes));
                }
            }
            if !changed && self.cut() == cut {
                return true;
            }
        }
        false
    }
}

/// Lets the next writer of a slot in when it is dropped.
struct Alone<'s>(&'s AtomicBool);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A register for one value of bounded length, and for a number of earlier ones.
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
    /// Values published so far; value i is in copy `i % copies` until it is overwritten. 0: none yet.
    version: AtomicU64,
    installing: AtomicBool,
    reads: AtomicU64,
    /// All copies; each has a header and the value's words.
    words: Box<[AtomicU64]>,
    copies: u64,
    copy_words: usize,
    max_len: usize,
}

impl Slot {
    /// An empty slot that keeps one value of up to `max_len` bytes.
    pub fn new(max_len: usize) -> Slot {
        Slot::keeping(1, max_len)
    }

    /// An empty slot that keeps the last `values` values, at least one, of up to `max_len` bytes each.
    pub fn keeping(values: usize, max_len: usize) -> Slot {
        let copies = values.max(1) + 1;
        let copy = HEADER_WORDS + max_len.div_ceil(WORD);
        Slot {
            version: AtomicU64::new(0),
            installing: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            words: (0..copies * copy).map(|_| AtomicU64::new(0)).collect(),
            copies: copies as u64,
            copy_words: copy,
            max_len,
        }
    }

    /// The longest value that fits, in bytes.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// Number of values that the slot keeps, the latest included.
    pub fn kept(&self) -> usize {
        self.copies as usize - 1
    }

    /// Number of [reads](Slot::read) since the slot was made.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Counts a read that was answered by [`read_at`](Slot::read_at), or from the engine.
    #[inline]
    pub(crate) fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Installs `value`, unless the slot holds an equally new or newer one: for a slot that no [`Installs`] count.
    ///
    /// # Panics
    /// If `value` is longer than [`max_len`](Slot::max_len): the caller must check it.
    pub fn install(&self, sample: Sample, value: &[u8]) -> Installation {
        self.install_numbered(None, sample, value)
    }

    fn install_numbered(&self, number: Option<u64>, sample: Sample, value: &[u8]) -> Installation {
        assert!(
            value.len() <= self.max_len,
            "a value of {} bytes in a slot for {}",
            value.len(),
            self.max_len
        );
        self.install_words(number, sample, value.len(), words_of(value))
    }

    /// Installs a value of `len` bytes, whose words are taken one by one.
    #[inline]
    pub(super) fn install_words(
        &self,
        number: Option<u64>,
        sample: Sample,
        len: usize,
        words: impl Iterator<Item = u64>,
    ) -> Installation {
        if self.installing.swap(true, Ordering::Acquire) {
            return Installation::Busy;
        }
        // Released by a panic, too: the copy is not published then, and the next install writes it anew.
        let _alone = Alone(&self.installing);
        let version = self.version.load(Ordering::Relaxed); // only this thread changes it
        if version > 0 && sample.seq.0 <= self.copy(version)[1].load(Ordering::Relaxed) {
            return Installation::Overtaken;
        }
        let copy = self.copy(version + 1);
        // A reader that sees this store sees all installs before, so it knows that its cut is old. A reader that sees
        // one of the words below sees at least this when it looks again: with its acquire fence, this fence orders
        // them.
        copy[0].store(WRITING, Ordering::Release);
        fence(Ordering::Release);
        let header = [sample.seq.0, sample.sampled_at.map_or(UNKNOWN, |at| at.0), len as u64];
        for (word, content) in copy[1..].iter().zip(header.into_iter().chain(words)) {
            word.store(content, Ordering::Relaxed);
        }
        // The number publishes the value, so it comes last: a reader that finds a value finds no older one later.
        self.version.store(version + 1, Ordering::Release);
        copy[0].store(number.unwrap_or(version + 1), Ordering::Release);
        Installation::Installed
    }

    /// Copies the latest value into `value`, whose old content is lost, and counts the read; `None` if there is none
    /// yet.
    ///
    /// Repeats if a newer value is published meanwhile: a handful of nanoseconds against the period of a sensor.
    #[inline]
    pub fn read(&self, value: &mut Vec<u8>) -> Option<Sample> {
        self.count_read();
        self.latest(|| self.read_at(LATEST, value))
    }

    /// Copies the value of `cut` into `value`, whose old content is lost; `None` if there was none yet. Not counted as
    /// a read.
    ///
    /// # Errors
    /// [`Overwritten`].
    #[inline]
    pub fn read_at(&self, cut: u64, value: &mut Vec<u8>) -> Result<Option<Sample>, Overwritten> {
        value.clear();
        self.append_at(cut, value)
    }

    /// As [`read_at`](Slot::read_at), but appends to `value`.
    #[inline]
    pub(crate) fn append_at(&self, cut: u64, value: &mut Vec<u8>) -> Result<Option<Sample>, Overwritten> {
        let newest = self.newest_at(cut)?;
        newest.map(|(_, copy)| append(copy, cut, value)).transpose()
    }

    /// Number and sampling instant of the latest value; not counted as a read.
    #[inline]
    pub fn sample(&self) -> Option<Sample> {
        self.latest(|| self.sample_at(LATEST))
    }

    /// The result of `read`, repeated while newer values are published meanwhile.
    #[inline]
    fn latest<T>(&self, mut read: impl FnMut() -> Result<T, Overwritten>) -> T {
        loop {
            if let Ok(found) = read() {
                return found;
            }
        }
    }

    /// Number and sampling instant of the value of `cut`; `None` if there was none yet.
    ///
    /// # Errors
    /// [`Overwritten`].
    #[inline]
    pub fn sample_at(&self, cut: u64) -> Result<Option<Sample>, Overwritten> {
        let newest = self.newest_at(cut)?;
        newest.map(|(_, copy)| consistent(copy, cut, || ())).transpose()
    }

    /// Appends the last values of `cut` to `readings`, the oldest first, at most as many as are [kept](Slot::kept).
    ///
    /// # Errors
    /// [`Overwritten`]: `readings` may hold some of them.
    pub fn history_at(&self, cut: u64, readings: &mut ReadingBuffer) -> Result<(), Overwritten> {
        let Some((newest, _)) = self.newest_at(cut)? else {
            return Ok(());
        };
        let oldest = newest.saturating_sub(self.copies - 2).max(1);
        (oldest..=newest)
            .try_for_each(|version| readings.append(|bytes| append(self.copy(version), cut, bytes).map(Some)))?;
        // Values of one cut have one number: whole ones that came into the copies of the oldest show by the version.
        match self.version.load(Ordering::Acquire) <= newest + 1 {
            true => Ok(()),
            false => Err(Overwritten),
        }
    }

    /// Version and copy of the newest value whose number is at most `cut`; `None` if there was none yet.
    #[inline]
    fn newest_at(&self, cut: u64) -> Result<Option<(u64, &[AtomicU64])>, Overwritten> {
        let version = self.version.load(Ordering::Acquire);
        let mut behind = 0;
        while behind < self.copies.min(version) {
            let copy = self.copy(version - behind);
            if copy[0].load(Ordering::Acquire) <= cut {
                return Ok(Some((version - behind, copy)));
            }
            behind += 1;
        }
        // No copy has a number up to the cut: there was no value at the cut, unless copies have been written a second
        // time.
        if self.version.load(Ordering::Acquire) < self.copies {
            Ok(None)
        } else {
            Err(Overwritten)
        }
    }

    /// The copy that holds the value of this version.
    #[inline]
    fn copy(&self, version: u64) -> &[AtomicU64] {
        // Most slots have two copies, and a division takes longer than all the rest of this function.
        let at = if self.copies == 2 {
            version % 2
        } else {
            version % self.copies
        };
        &self.words[at as usize * self.copy_words..][..self.copy_words]
    }
}

/// Appends the value of `copy`, if its number is at most `cut`, to `value`.
#[inline]
fn append(copy: &[AtomicU64], cut: u64, value: &mut Vec<u8>) -> Result<Sample, Overwritten> {
    consistent(copy, cut, || {
        // A length read beside the words of another value may be too long; the result is discarded below.
        let words = &copy[HEADER_WORDS..];
        let len = (copy[3].load(Ordering::Relaxed) as usize).min(words.len() * WORD);
        let words = &words[..len.div_ceil(WORD)];
        value.reserve(words.len() * WORD);
        let room = &mut value.spare_capacity_mut().as_chunks_mut().0[..words.len()];
        // Four words at a time: to count them takes longer than to copy them.
        let ((rooms, room), (blocks, words)) = (room.as_chunks_mut(), words.as_chunks::<4>());
        for (room, words) in rooms.iter_mut().zip(blocks) {
            *room = words.each_ref().map(bytes_of);
        }
        for (room, word) in room.iter_mut().zip(words) {
            *room = bytes_of(word);
        }
        // `resize` would first write zeroes.
        // SAFETY: the spare bytes of all words are initialised, and `len` is at most their number.
        unsafe { value.set_len(value.len() + len) };
    })
}

#[inline]
fn consistent(copy: &[AtomicU64], cut: u64, look: impl FnOnce()) -> Result<Sample, Overwritten> {
    // In this order: a number that was there before a newer sequence number is not found after it.
    let (seq, number) = (copy[1].load(Ordering::Acquire), copy[0].load(Ordering::Acquire));
    if number > cut {
        return Err(Overwritten);
    }
    let sampled_at = copy[2].load(Ordering::Relaxed);
    look();
    fence(Ordering::Acquire);
    // Values between two installs of several objects have one number, but each has a sequence number of its own.
    if copy[0].load(Ordering::Acquire) != number || copy[1].load(Ordering::Relaxed) != seq {
        return Err(Overwritten);
    }
    Ok(Sample {
        seq: Seq(seq),
        sampled_at: (sampled_at != UNKNOWN).then_some(Time(sampled_at)),
    })
}

/// The bytes of a word, for uninitialised memory.
#[inline]
fn bytes_of(word: &AtomicU64) -> [MaybeUninit<u8>; WORD] {
    word.load(Ordering::Relaxed).to_ne_bytes().map(MaybeUninit::new)
}

/// The bytes as words, the last one padded with zeroes.
pub(super) fn words_of(value: &[u8]) -> impl Iterator<Item = u64> {
    value.chunks(WORD).map(|chunk| {
        let mut bytes = [0; WORD];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(bytes)
    })
}

/// Sample of a value, and where its bytes are.
type Reading = (Option<Sample>, Range<usize>);

/// Several values with their numbers and sampling instants, in memory that is used again.
#[derive(Clone, Debug, Default)]
pub struct ReadingBuffer {
    /// Sample of each value, and where its bytes are; `None` for an object without a value.
    spans: Vec<Reading>,
    /// Bytes of all values, and of those that were read again.
    pub(super) bytes: Vec<u8>,
}

impl ReadingBuffer {
    /// Number of readings, those without a value included.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are no readings at all.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Reading number `at`, from 0; `None` where there is no such reading, or no value.
    pub fn get(&self, at: usize) -> Option<(Sample, &[u8])> {
        let (sample, span) = self.spans.get(at)?;
        Some(((*sample)?, &self.bytes[span.clone()]))
    }

    /// All readings that have a value, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Sample, &[u8])> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// The last reading that was sampled at `instant` or before, on the clock of [`Sample::sampled_at`]. Among readings
    /// of the same instant, the last.
    pub fn at(&self, instant: Time) -> Option<(Sample, &[u8])> {
        let sampled = self
            .iter()
            .filter(|(sample, _)| sample.sampled_at.is_some_and(|at| at <= instant));
        sampled.max_by_key(|(sample, _)| sample.sampled_at)
    }

    /// Removes all readings, and keeps the memory.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.bytes.clear();
    }

    /// Adds a reading, whose bytes `read` appends.
    pub(crate) fn append<F>(&mut self, read: impl FnOnce(&mut Vec<u8>) -> Result<Option<Sample>, F>) -> Result<(), F> {
        let reading = self.take(read)?;
        self.spans.push(reading);
        Ok(())
    }

    /// Reads the bytes of one value behind all others.
    fn take<F>(&mut self, read: impl FnOnce(&mut Vec<u8>) -> Result<Option<Sample>, F>) -> Result<Reading, F> {
        let begin = self.bytes.len();
        match read(&mut self.bytes) {
            Ok(sample) => Ok((sample, begin..self.bytes.len())),
            Err(why) => {
                self.bytes.truncate(begin);
                Err(why)
            }
        }
    }

    /// Reads one value again, in the place of the one before if it is not longer.
    fn take_again<F>(
        &mut self,
        at: usize,
        read: impl FnOnce(&mut Vec<u8>) -> Result<Option<Sample>, F>,
    ) -> Result<(), F> {
        let (sample, mut span) = self.take(read)?;
        let before = self.spans[at].1.clone();
        if span.len() <= before.len() {
            let (behind, end) = (span.start, before.start + span.len());
            self.bytes.copy_within(span, before.start);
            self.bytes.truncate(behind);
            span = before.start..end;
        }
        self.spans[at] = (sample, span);
        Ok(())
    }
}
