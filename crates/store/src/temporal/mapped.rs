//! Values of temporal objects in a mapped file: each is there before its offer is acknowledged.
//!
//! **Problem.** A group commit loses the last values with the process. A commit or a sync of each waits for a device.
//! Stores to mapped memory survive the process, and on persistent memory power cuts, but in any order and word by word:
//! what a kill or a power cut interrupts is there in part (DPS-NV keeps real-time data on such memory).
//!
//! **Method.** Two copies of each object. An update overwrites the older one, from the checksum to the last word, and
//! writes its lines back. So the newest whole copy is the last value that was acknowledged, or the one that was being
//! written. A copy that is not whole has another checksum, but for one in 2^64. Values that are installed together have
//! a common number above that of the header, which the last step raises: until then none of them counts.
//!
//! **Layout**, in words of this machine's byte order: the header (magic, version, hash of the objects' keys and
//! lengths, number of objects; at words 8 and 9 the last number of values installed together), then two copies of each
//! object, each in cache lines of its own: checksum, number of the update, number of the values together or 0, length
//! of the value, then the engine's record (`record.rs`). The magic is written last. A file of zeros is empty.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_os::{MappedWords, Os, Refusal};
use punctual_units::{ObjectId, fnv1a_from, mix};

use super::record::encode_header;
use super::slot::words_of;
use super::{ClockOrigin, ObjectSpec, Sample};

const MAGIC: u64 = u64::from_be_bytes(*b"punctual");
const VERSION: u64 = 1;
const WORD: usize = size_of::<u64>();
/// Words of a cache line.
const LINE: usize = 8;
/// The last number of values installed together, and its copy.
const TOGETHER: usize = LINE;
const HEADER: usize = 2 * LINE;
/// Words of a copy before its record, and of the record before the value.
const BEFORE_RECORD: usize = 4;
const RECORD_HEADER: usize = 3;

/// The copies of all objects that the store was opened with.
#[derive(Debug)]
pub(crate) struct MappedObjects {
    pub memory: Box<dyn MappedWords>,
    objects: Box<[Copies]>,
    origin: ClockOrigin,
}

/// The two copies of an object; the update with number n is in copy n % 2.
#[derive(Debug)]
struct Copies {
    first: usize,
    /// Words of one copy.
    words: usize,
    /// Number of the last update; one writer at a time changes it.
    last: AtomicU64,
}

/// Where the copies of each object are, and the number of all words.
fn layout(specs: &[ObjectSpec]) -> (Box<[Copies]>, usize) {
    let mut end = HEADER;
    let copies = |spec: &ObjectSpec| {
        let (first, last) = (end, AtomicU64::new(0));
        let words = (BEFORE_RECORD + RECORD_HEADER + spec.max_len.div_ceil(WORD)).next_multiple_of(LINE);
        end += 2 * words;
        Copies { first, words, last }
    };
    (specs.iter().map(copies).collect(), end)
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Length of the value of a copy, in bytes, if the copy is whole.
fn whole(copy: &[AtomicU64]) -> Option<usize> {
    let len = usize::try_from(load(&copy[3])).ok()?;
    let content = copy.get(1..BEFORE_RECORD + RECORD_HEADER + len.div_ceil(WORD))?;
    let sum = content.iter().fold(MAGIC, |sum, word| mix(sum ^ load(word)));
    (sum == load(&copy[0])).then_some(len)
}

impl MappedObjects {
    /// Maps the file at `path`, or makes it.
    ///
    /// # Errors
    /// [`Refusal`] of the system; for a file of other objects, another version, another machine, or with damage.
    pub fn open(os: &impl Os, path: &Path, specs: &[ObjectSpec], origin: ClockOrigin) -> Result<Self, Refusal> {
        let memory = os.map(path, layout(specs).1)?;
        MappedObjects::on(memory, specs, origin).map_err(|why| Refusal {
            what: format!("mapping {}", path.display()),
            why,
            remedy: "name another file, or remove this one with the values in it".into(),
        })
    }

    /// # Errors
    /// The reason why the memory holds no values of these objects.
    fn on(memory: Box<dyn MappedWords>, specs: &[ObjectSpec], origin: ClockOrigin) -> Result<MappedObjects, String> {
        let objects = layout(specs).0;
        let mapped = MappedObjects {
            memory,
            objects,
            origin,
        };
        // A kill may have come before the words that are found were written back.
        mapped.memory.write_back(0..mapped.memory.words().len());
        mapped.settle_header(specs)?;
        let [one, two] = [0, 1].map(|at| load(&mapped.memory.words()[TOGETHER + at]));
        if one.abs_diff(two) > 1 {
            return Err("its number of values installed together is damaged".into());
        }
        // A cut may have come between them: all values were there by then.
        mapped.count_together(one.max(two));
        for (copies, spec) in mapped.objects.iter().zip(specs) {
            let damaged = || format!("both copies of {} are damaged", spec.key.escape_ascii());
            mapped.settle(copies).ok_or_else(damaged)?;
        }
        Ok(mapped)
    }

    /// Writes the header of an empty file, or compares that of another.
    fn settle_header(&self, specs: &[ObjectSpec]) -> Result<(), &'static str> {
        let layout = specs.iter().fold(VERSION, |hash, spec| {
            let lengths = [spec.key.len(), spec.max_len].map(|length| (length as u64).to_le_bytes());
            fnv1a_from(hash, lengths.into_iter().flatten().chain(spec.key.iter().copied()))
        });
        let header = [MAGIC, VERSION, layout, specs.len() as u64];
        let words = &self.memory.words()[..header.len()];
        // The maker of zeros, and of a part of the header, was killed before the last step.
        let is_new = load(&words[0]) == 0 && words.iter().zip(header).all(|(word, at)| [0, at].contains(&load(word)));
        if is_new {
            for at in [1, 2, 3, 0] {
                words[at].store(header[at], Ordering::Relaxed);
                self.memory.write_back(at..at + 1);
            }
        }
        match [&words[0], &words[1]].map(load) {
            _ if words.iter().map(load).eq(header) => Ok(()),
            [MAGIC, VERSION] => Err("it belongs to other objects or lengths"),
            [MAGIC, _] => Err("another version of punctual has written it"),
            [magic, _] if magic == MAGIC.swap_bytes() => Err("a machine of the other byte order has written it"),
            _ => Err("it holds something else"),
        }
    }

    fn count_together(&self, number: u64) {
        for word in &self.memory.words()[TOGETHER..][..2] {
            word.store(number, Ordering::Release);
        }
        self.memory.write_back(TOGETHER..TOGETHER + 2);
    }

    /// Finds the last update of an object, and marks other copies as torn: those with a number of values that were not
    /// all written, which later values may get, and those of which a later write may complete the checksum by chance.
    /// `None` where neither copy is whole and both have been written.
    fn settle(&self, copies: &Copies) -> Option<()> {
        let complete = load(&self.memory.words()[TOGETHER]);
        let mut damaged = 0;
        for parity in [0, 1] {
            let (at, copy) = self.copy(copies, parity);
            let is_whole = whole(copy).is_some() && load(&copy[1]) % 2 == parity;
            damaged += usize::from(!is_whole && copy.iter().any(|word| load(word) != 0));
            if is_whole && load(&copy[2]) <= complete {
                copies.last.fetch_max(load(&copy[1]), Ordering::Relaxed);
            } else if copy[0].swap(0, Ordering::Relaxed) != 0 {
                self.memory.write_back(at..at + 1);
            }
        }
        (damaged < 2).then_some(())
    }

    /// Place and words of the copy for updates of odd or even numbers.
    fn copy(&self, copies: &Copies, number: u64) -> (usize, &[AtomicU64]) {
        let at = copies.first + (number % 2) as usize * copies.words;
        (at, &self.memory.words()[at..][..copies.words])
    }

    /// Record of the object's last value, as the engine keeps it.
    pub fn record(&self, object: ObjectId) -> Option<Vec<u8>> {
        let copies = self.objects.get(object.index())?;
        let (_, copy) = self.copy(copies, load(&copies.last));
        let len = whole(copy)?;
        let record = copy[BEFORE_RECORD..].iter().flat_map(|word| load(word).to_ne_bytes());
        Some(record.take(RECORD_HEADER * WORD + len).collect())
    }

    /// Writes an update over the older copy of the object. One caller at a time for each object, which has checked the
    /// value's length. `together`: number of values that are installed together, or 0.
    pub fn write(&self, object: ObjectId, sample: Sample, value: &[u8], together: u64) {
        let copies = &self.objects[object.index()];
        let number = load(&copies.last) + 1;
        let (at, copy) = self.copy(copies, number);
        let header = [number, together, value.len() as u64].into_iter();
        let header = header.chain(encode_header(sample, self.origin).map(u64::to_le));
        let mut sum = MAGIC;
        for (word, content) in copy[1..].iter().zip(header.chain(words_of(value))) {
            sum = mix(sum ^ content);
            word.store(content, Ordering::Relaxed);
        }
        copy[0].store(sum, Ordering::Relaxed);
        let end = BEFORE_RECORD + RECORD_HEADER + value.len().div_ceil(WORD);
        self.memory.write_back(at..at + end);
        copies.last.store(number, Ordering::Relaxed);
    }

    /// Writes updates so that all or none of them are there after a kill. One call at a time, and no other update of
    /// these objects meanwhile.
    pub fn write_together<'v>(&self, values: impl Iterator<Item = (ObjectId, Sample, &'v [u8])>) {
        let number = load(&self.memory.words()[TOGETHER]) + 1;
        for (object, sample, value) in values {
            self.write(object, sample, value, number);
        }
        // A kill leaves stores in program order: the number counts once all copies are there.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        self.count_together(number);
    }
}

#[cfg(test)]
mod tests;
