//! Coordinator data in shared memory: settings that users change, the worker that decides, and the measurements.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use punctual_allocation::mapping::{MappingDecision, MappingPolicy};
use punctual_units::{Hertz, Nanos, Time};

use super::entries::EntryLog;
use super::shared::{CORES_MAX, Segment};
use crate::SLOTS_MAX;
use crate::region::{load_bytes, store_bytes};

/// Default time for which policies leave all stages alone after a user has migrated one.
pub const HOLD: Nanos = Nanos::from_secs(10);
/// Default period at which the policy is asked.
pub const PERIOD: Nanos = Nanos::from_millis(100);

/// Time for which statistics are maintained after a request.
const WATCHED: Nanos = Nanos::from_secs(3);

/// Single words of the coordinator data.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum Word {
    /// Packed [`Role`] of the coordinator.
    Role,
    /// When the coordinator was last active.
    Beat,
    /// Index of the policy in `MappingPolicy::ALL`.
    Policy,
    /// Requested frames per second, as a double; 0: as they come.
    Rate,
    /// Time for which a user's migration holds, in nanoseconds.
    Hold,
    /// When a user last migrated a stage; 0: never.
    UserMoved,
    /// Period of the policy, in nanoseconds.
    Period,
    /// Frames per second that leave the pipeline, as a double.
    Fps,
    /// Number of migrations begun by policies.
    Moves,
    /// Number of decisions logged.
    Decisions,
    /// 1 if the caller's process sets clocks, else 0.
    Turned,
    /// When a user or the program last requested statistics; 0: never.
    Watched,
}

/// Clock of each core in hertz, 0 if unknown.
const CLOCKS: usize = 16;
/// Words of each stage's measurements.
const STAGES: usize = 64;
const STAGE_WORDS: usize = 8;
/// Log of decisions: number of places, and words of each.
const DECISIONS: usize = STAGES + crate::STAGES_MAX * STAGE_WORDS;
const PLACES: usize = 64;
const PLACE_WORDS: usize = 64;
/// CPU time of the process in each slot of each stage, as counted so far.
const COUNTED: usize = DECISIONS + PLACES * PLACE_WORDS;
/// Bytes for a decision: a place's first word marks it as complete, the second is its length.
const PLACE_BYTES: usize = (PLACE_WORDS - 2) * 8;

/// Measurements of a stage.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum StageMeasure {
    /// Share of a core that the stage's process uses, as a double.
    Load,
    /// CPU time of all its processes so far, in nanoseconds.
    Cpu,
    /// Resident memory of its process, in bytes.
    Memory,
    /// Cycles per second that its process uses, as a double.
    Cycles,
}

/// The worker that is the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Role {
    /// Number of coordinators so far; 0: none yet.
    pub(super) epoch: u64,
    /// Index of the worker's core.
    pub(super) core: usize,
}

impl Role {
    fn word(self) -> u64 {
        self.epoch << 8 | self.core as u64
    }

    fn of(word: u64) -> Role {
        Role {
            epoch: word >> 8,
            core: (word & 0xff) as usize,
        }
    }
}

impl Segment {
    fn desk(&self) -> &[AtomicU64] {
        self.layout.desk(&self.region)
    }

    pub(super) fn desk_word(&self, word: Word) -> &AtomicU64 {
        &self.desk()[word as usize]
    }

    fn double(&self, word: Word) -> f64 {
        f64::from_bits(self.desk_word(word).load(Relaxed))
    }

    pub(super) fn role(&self) -> Role {
        Role::of(self.desk_word(Word::Role).load(Acquire))
    }

    /// Makes the worker of `core` the coordinator after `before`; `None` if another worker was first.
    pub(super) fn take_role(&self, before: Role, core: usize) -> Option<Role> {
        let next = Role {
            epoch: before.epoch + 1,
            core,
        };
        let word = self.desk_word(Word::Role);
        let taken = word.compare_exchange(before.word(), next.word(), AcqRel, Relaxed);
        taken.ok().map(|_| next)
    }

    pub(super) fn policy(&self) -> MappingPolicy {
        let number = self.desk_word(Word::Policy).load(Relaxed) as usize;
        MappingPolicy::ALL.get(number).copied().unwrap_or_default()
    }

    pub(super) fn set_policy(&self, policy: MappingPolicy) {
        let number = MappingPolicy::ALL.iter().position(|it| *it == policy).unwrap_or(0);
        self.desk_word(Word::Policy).store(number as u64, Relaxed);
        self.ring_workers();
    }

    /// Requested frames per second, if any.
    pub(super) fn rate(&self) -> Option<f64> {
        Some(self.double(Word::Rate)).filter(|rate| *rate > 0.0)
    }

    pub(super) fn set_rate(&self, rate: Option<f64>) {
        self.desk_word(Word::Rate).store(rate.unwrap_or(0.0).to_bits(), Relaxed);
    }

    pub(super) fn span_of(&self, word: Word) -> Nanos {
        Nanos(self.desk_word(word).load(Relaxed))
    }

    /// Whether a user has migrated a stage within the hold time before `now`.
    pub(super) fn is_held(&self, now: Time) -> bool {
        let moved = self.desk_word(Word::UserMoved).load(Relaxed);
        moved != 0 && now.0.saturating_sub(moved) < self.span_of(Word::Hold).0
    }

    /// Whether a policy or a user needs statistics.
    pub(super) fn is_watched(&self, now: Time) -> bool {
        let watched = self.desk_word(Word::Watched).load(Relaxed);
        self.policy() != MappingPolicy::None || (watched != 0 && now.0.saturating_sub(watched) < WATCHED.0)
    }

    /// Makes workers maintain statistics for `WATCHED`; wakes them if they did not.
    pub(super) fn watch(&self, now: Time) {
        let watched = self.is_watched(now);
        self.desk_word(Word::Watched).store(now.0, Relaxed);
        if !watched {
            self.ring_workers();
        }
    }

    pub(super) fn ring_workers(&self) {
        (0..self.cores()).for_each(|core| self.ring(self.worker_bell(core)));
    }

    /// Frames per second that leave the pipeline.
    pub(super) fn fps(&self) -> f64 {
        self.double(Word::Fps)
    }

    pub(super) fn measured(&self, stage: usize, what: StageMeasure) -> &AtomicU64 {
        &self.desk()[STAGES + stage * STAGE_WORDS + what as usize]
    }

    /// CPU time counted for the process in a slot, in nanoseconds.
    pub(super) fn counted(&self, stage: usize, slot: u8) -> &AtomicU64 {
        &self.desk()[COUNTED + stage * SLOTS_MAX + usize::from(slot) % SLOTS_MAX]
    }

    /// Records that the process in a slot has run for `ran` since it began. Both the process and its worker call this;
    /// time that one has counted is not counted again.
    pub(super) fn count_ran(&self, stage: usize, slot: u8, ran: Nanos) {
        let before = self.counted(stage, slot).fetch_max(ran.0, Relaxed);
        let since = ran.0.saturating_sub(before);
        self.measured(stage, StageMeasure::Cpu).fetch_add(since, Relaxed);
    }

    /// Share of a core that a stage's process uses.
    pub(super) fn load(&self, stage: usize) -> f64 {
        f64::from_bits(self.measured(stage, StageMeasure::Load).load(Relaxed))
    }

    /// Cycles per second that a stage's process uses.
    pub(super) fn cycles(&self, stage: usize) -> f64 {
        f64::from_bits(self.measured(stage, StageMeasure::Cycles).load(Relaxed))
    }

    /// Whether a thread sets clocks by the rows of a table.
    pub(super) fn turns_clocks(&self) -> bool {
        self.desk_word(Word::Turned).load(Relaxed) == 1
    }

    pub(super) fn set_turns_clocks(&self, turned: bool) {
        self.desk_word(Word::Turned).store(turned.into(), Relaxed);
    }

    pub(super) fn clock_of(&self, core: usize) -> Option<Hertz> {
        Some(Hertz(self.desk()[CLOCKS + core % CORES_MAX].load(Relaxed))).filter(|clock| clock.0 > 0)
    }

    pub(super) fn set_clock_of(&self, core: usize, clock: Option<Hertz>) {
        self.desk()[CLOCKS + core % CORES_MAX].store(clock.map_or(0, |clock| clock.0), Relaxed);
    }

    fn decisions(&self) -> EntryLog<'_> {
        EntryLog {
            count: self.desk_word(Word::Decisions),
            words: &self.desk()[DECISIONS..COUNTED],
            place_words: PLACE_WORDS,
        }
    }

    /// Logs a decision for readers that fetch it in time: the last 64 are kept. A decision too long for its place is
    /// omitted, which shows as a gap.
    pub(super) fn log_decision(&self, decision: &MappingDecision) {
        let mut bytes = [0u8; PLACE_BYTES];
        let Ok(bytes) = postcard::to_slice(decision, &mut bytes) else {
            return;
        };
        self.decisions().add(|words| {
            words[0].store(bytes.len() as u64, Relaxed);
            store_bytes(&words[1..], bytes);
        });
    }

    /// The decisions from number `from` on, and the number of the next one. Overwritten decisions are omitted.
    pub(super) fn fetch_decisions(&self, from: u64) -> (Vec<MappingDecision>, u64) {
        self.decisions().fetch(from, |words| {
            let bytes = load_bytes(&words[1..], words[0].load(Relaxed) as usize);
            postcard::from_bytes(&bytes).ok()
        })
    }
}
