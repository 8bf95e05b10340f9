//! Log of handovers and restarts in shared memory, of bounded length: old entries are overwritten.

use std::sync::atomic::Ordering;

use punctual_units::{Nanos, Time};

use super::entries::EntryLog;
use super::shared::{Note, Segment};

/// Words of an entry.
const ENTRY: usize = 8;
/// Offset of the first entry; the first word of the log is the count.
const FIRST: usize = ENTRY;

/// Reason why a stage has another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The stage began to run.
    Began,
    /// The stage was migrated or replaced.
    Moved,
    /// The previous process died.
    Died,
}

/// Log entry: a stage got another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Number of the stage in the graph.
    pub stage: usize,
    /// Reason for the handover.
    pub cause: Cause,
    /// Slot of the new process.
    pub slot: u8,
    /// Time from the announcement until the old process was asked to yield; zero without an announcement.
    pub lead: Nanos,
    /// Time from that request until the old process yielded, between two steps.
    pub freeze: Nanos,
    /// Time from there (or from a deliberate kill) until the new process was awake.
    pub wake: Nanos,
    /// Time from there until the new process had read the state.
    pub copy: Nanos,
    /// Time in which no process could execute steps: `wake` and `copy`.
    pub blackout: Nanos,
    /// When the new process could continue.
    pub at: Time,
}

impl Segment {
    /// Logs that the process in `slot`, awake since `woke`, owns the stage and has its state.
    pub(super) fn log_taken(&self, stage: usize, slot: u8, woke: Time) {
        let now = self.now();
        let stamp = |note| self.take_stamp(stage, note);
        let (announced, asked) = (stamp(Note::AnnouncedAt), stamp(Note::AskedAt));
        let (yielded, killed) = (stamp(Note::YieldedAt), stamp(Note::KilledAt));
        let (cause, from) = match (killed, yielded) {
            (Some(killed), _) => (2, killed),
            (_, Some(yielded)) => (1, yielded),
            // The process died by itself; when is unknown.
            _ if self.control(stage).epoch > 1 => (2, woke),
            _ => (0, woke),
        };
        let span = |from: Option<Time>, to: Option<Time>| match (from, to) {
            (Some(from), Some(to)) => to.0.saturating_sub(from.0),
            _ => 0,
        };
        self.log_entry([
            stage as u64 | u64::from(slot) << 16 | cause << 32,
            span(announced, asked),
            span(asked, yielded),
            woke.0.saturating_sub(from.0),
            now.0.saturating_sub(woke.0),
            now.0.saturating_sub(from.0),
            now.0,
        ]);
    }

    /// Clears the time of a yield that the stage's owner in `slot` has not completed, or that gave it the stage and is
    /// not logged: it has died, and its successor is no migration. Call this before that one owns the stage.
    pub(super) fn forget_yield(&self, stage: usize, slot: u8) {
        if self.control(stage).owner == slot {
            self.take_stamp(stage, Note::YieldedAt);
        }
    }

    /// Logs that the owner served an extra request at a checkpoint, from `began` until now.
    pub(super) fn log_besides(&self, stage: usize, slot: u8, began: Time) {
        let now = self.now().0;
        let (what, span) = (
            stage as u64 | u64::from(slot) << 16 | 1 << 32,
            now.saturating_sub(began.0),
        );
        self.log_entry([what, 0, 0, span, 0, span, now]);
    }

    fn handovers(&self) -> EntryLog<'_> {
        let log = self.layout.log(&self.region);
        EntryLog {
            count: &log[0],
            words: &log[FIRST..],
            place_words: ENTRY,
        }
    }

    fn log_entry(&self, values: [u64; ENTRY - 1]) {
        self.handovers().add(|words| {
            for (word, value) in words.iter().zip(values) {
                word.store(value, Ordering::Relaxed);
            }
        });
    }

    /// The complete entries from number `from` on, and the number of the next one. Overwritten entries are omitted.
    pub(super) fn fetch_log(&self, from: u64) -> (Vec<Handover>, u64) {
        self.handovers().fetch(from, |words| {
            let word = |of: usize| words[of].load(Ordering::Relaxed);
            Some(Handover {
                stage: (word(0) & 0xffff) as usize,
                slot: (word(0) >> 16) as u8,
                cause: match word(0) >> 32 {
                    0 => Cause::Began,
                    1 => Cause::Moved,
                    _ => Cause::Died,
                },
                lead: Nanos(word(1)),
                freeze: Nanos(word(2)),
                wake: Nanos(word(3)),
                copy: Nanos(word(4)),
                blackout: Nanos(word(5)),
                at: Time(word(6)),
            })
        })
    }
}
