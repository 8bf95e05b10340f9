//! A step is committed by storing a single word.
//!
//! **Problem.** A step takes frames, makes frames and changes the stage's state. Its process may be killed between any
//! two instructions, and another process must continue as if nothing had happened: no frame taken twice or lost, none
//! made twice, no half-written state. **Terms.** A stage has a *commit word*, which packs an *epoch* and the number of
//! steps done, and two *records*. A record holds the totals after a number of steps: how many frames were taken from
//! each input and made at each output, and which of two places holds the state. **Method.** The record of step n is in
//! place n mod 2. To commit step n + 1, its process writes the other record, and the state into the other place, and
//! then changes the word from (epoch, n) to (epoch, n + 1). That single store makes all of it valid at once: neighbours
//! compute from the record how many frames an edge holds, so no other count could disagree. A kill before the store
//! leaves the step undone; the bytes already written lie where no process reads. A kill after it leaves the step done.
//!
//! **The epoch.** A process that takes over the stage changes the word's epoch first. The previous owner then fails to
//! commit, and stops: two processes never both make progress.
//!
//! **Reading.** A neighbour reads the word, a field of its record, and the word again. If the word is unchanged, the
//! field belongs to it, because the place is written again only after the next commit. The reader's fences pair with
//! those of [`CommitWord::publish`]. The model checker `loom` tries them (`tests/loom.rs`), also with a fence planted
//! as missing.

use super::atomics::{AtomicU64, Ordering, fence, look_again};
use super::graph::PORTS_MAX;

/// Bits of the step counter: at a million steps a second, it lasts eight years.
const STEP_BITS: u32 = 48;

/// Content of a commit word: an epoch and a number of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Number of takeovers of the stage so far, which identifies the owning process; wraps after 65,535.
    pub epoch: u16,
    /// Steps that the stage has done.
    pub steps: u64,
}

impl Commit {
    /// Packs epoch and steps into one word.
    pub fn word(self) -> u64 {
        u64::from(self.epoch) << STEP_BITS | self.steps & ((1 << STEP_BITS) - 1)
    }

    /// Unpacks a commit word.
    pub fn of(word: u64) -> Commit {
        Commit {
            epoch: (word >> STEP_BITS) as u16,
            steps: word & ((1 << STEP_BITS) - 1),
        }
    }
}

/// A stage's totals after a number of steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Which of the two places holds the state, 0 or 1.
    pub state_at: u64,
    /// Length of the serialized state, in bytes.
    pub state_bytes: u64,
    /// Version of the state's serialized form; in the upper half, the fingerprint of its layout.
    pub state_version: u64,
    /// Number of steps contained in the saved state; 0: none has been saved yet.
    pub state_steps: u64,
    /// 1 if no step will follow, else 0.
    pub ended: u64,
    /// Frames taken from each input, dropped ones included.
    pub taken: [u64; PORTS_MAX],
    /// Of the frames taken, those whose slots are free again, because the saved state includes them.
    pub released: [u64; PORTS_MAX],
    /// Of the frames taken, those that the stage dropped.
    pub dropped: [u64; PORTS_MAX],
    /// Frames made at each output so far.
    pub made: [u64; PORTS_MAX],
}

/// Words of a record before the per-port words.
const FIXED: usize = 5;
const ENDED: usize = 4;

/// Length in words of one record of a stage with `inputs` and `outputs`.
pub(crate) fn record_words(inputs: usize, outputs: usize) -> usize {
    FIXED + 3 * inputs + outputs
}

/// Error of a commit: another process has taken over the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShutOut;

/// The commit word of a stage, and its records.
#[derive(Clone, Copy)]
pub(crate) struct CommitWord<'m> {
    pub(crate) word: &'m AtomicU64,
    pub(crate) records: [&'m [AtomicU64]; 2],
    pub(crate) inputs: usize,
}

impl CommitWord<'_> {
    pub(crate) fn commit(&self) -> Commit {
        Commit::of(self.word.load(Ordering::Acquire))
    }

    /// Begins `epoch` and returns it with the number of steps done.
    pub(crate) fn begin(&self, epoch: u16) -> Commit {
        let in_epoch = |word| Commit {
            epoch,
            ..Commit::of(word)
        };
        let enter = |word| Some(in_epoch(word).word());
        let entered = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
        in_epoch(entered.unwrap_or_else(|word| word))
    }

    /// The whole record; only the process that owns the current epoch may call this.
    pub(crate) fn record(&self) -> Record {
        let words = self.records[usize::from(self.commit().steps % 2 == 1)];
        let mut record = Record::default();
        let inputs = self.inputs;
        each_field(&mut record, inputs, words.len(), |at, field| {
            *field = words[at].load(Ordering::Relaxed)
        });
        record
    }

    /// Whether no step will follow.
    pub(crate) fn has_ended(&self) -> bool {
        self.field(ENDED).1
    }

    /// Frames made at an output, and whether the stage has ended.
    pub(crate) fn made(&self, port: usize) -> (u64, bool) {
        self.field(FIXED + 3 * self.inputs + port)
    }

    /// Frames taken from an input.
    pub(crate) fn taken(&self, port: usize) -> u64 {
        self.field(FIXED + port).0
    }

    /// Frames dropped from an input.
    pub(crate) fn dropped(&self, port: usize) -> u64 {
        self.field(FIXED + 2 * self.inputs + port).0
    }

    /// Frames of an input whose slots are free again, and whether the stage has ended.
    pub(crate) fn released(&self, port: usize) -> (u64, bool) {
        self.field(FIXED + self.inputs + port)
    }

    fn field(&self, at: usize) -> (u64, bool) {
        loop {
            let word = self.word.load(Ordering::Acquire);
            let record = self.records[usize::from(word % 2 == 1)];
            let (field, ended) = (
                record[at].load(Ordering::Relaxed),
                record[ENDED].load(Ordering::Relaxed),
            );
            // Before the second load of the word: a field of a later step is never taken for one of this step.
            fence(Ordering::Acquire);
            if self.word.load(Ordering::Relaxed) == word {
                return (field, ended != 0);
            }
            // The stage has committed a step meanwhile, so retrying means that the pipeline makes progress.
            look_again();
        }
    }

    /// Commits `record` as the step after `before`.
    ///
    /// # Errors
    /// [`ShutOut`] where another process has taken over the stage.
    pub(crate) fn publish(&self, before: Commit, record: &Record) -> Result<Commit, ShutOut> {
        self.publish_with(before, record, Ordering::Release, true)
    }

    /// [`CommitWord::publish`] with its two safeguards as parameters, so that the model checker can show that each is
    /// needed.
    pub(crate) fn publish_with(
        &self,
        before: Commit,
        record: &Record,
        order: Ordering,
        fenced: bool,
    ) -> Result<Commit, ShutOut> {
        let after = Commit {
            epoch: before.epoch,
            steps: before.steps + 1,
        };
        // After the previous commit: a reader that sees a word of this record also sees that commit.
        if fenced {
            fence(Ordering::Release);
        }
        let words = self.records[usize::from(after.steps % 2 == 1)];
        let mut record = record.clone();
        each_field(&mut record, self.inputs, words.len(), |at, field| {
            words[at].store(*field, Ordering::Relaxed)
        });
        let swapped = self
            .word
            .compare_exchange(before.word(), after.word(), order, Ordering::Relaxed);
        swapped.map(|_| after).map_err(|_| ShutOut)
    }
}

/// Calls `each` with the index of every field in a record of `words` words.
fn each_field(record: &mut Record, inputs: usize, words: usize, mut each: impl FnMut(usize, &mut u64)) {
    let outputs = words - FIXED - 3 * inputs;
    let fixed = [
        &mut record.state_at,
        &mut record.state_bytes,
        &mut record.state_version,
        &mut record.state_steps,
        &mut record.ended,
    ];
    let taken = record.taken.iter_mut().take(inputs);
    let released = record.released.iter_mut().take(inputs);
    let dropped = record.dropped.iter_mut().take(inputs);
    let made = record.made.iter_mut().take(outputs);
    let fields = fixed
        .into_iter()
        .chain(taken)
        .chain(released)
        .chain(dropped)
        .chain(made);
    fields.enumerate().for_each(|(at, field)| each(at, field));
}
