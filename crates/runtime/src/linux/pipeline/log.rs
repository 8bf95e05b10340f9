//! What happened to stages: hand-overs and restarts, in shared memory, a bounded number of them until they are fetched.

use std::sync::atomic::Ordering;

use punctual_units::{Nanos, Time};

use super::shared::{Note, Shared};

/// Words of an entry.
const ENTRY: usize = 8;
/// The first entry's place is for the count.
const FIRST: usize = ENTRY;

/// Why a stage has another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It began.
    Began,
    /// It was moved or replaced.
    Moved,
    /// Its process died.
    Died,
}

/// A stage got another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The stage's number.
    pub stage: usize,
    /// Why.
    pub cause: Cause,
    /// The slot of the new process.
    pub slot: u8,
    /// From the announcement until the old process was asked to yield; zero where it was not announced.
    pub lead: Nanos,
    /// From then until it yielded, between two steps.
    pub freeze: Nanos,
    /// From then (or from the kill, where the process was killed on purpose) until the new process was awake.
    pub wake: Nanos,
    /// From then until it had read the state.
    pub copy: Nanos,
    /// The time in which no process could carry out steps: `wake` and `copy`.
    pub blackout: Nanos,
    /// When the new process could go on.
    pub at: Time,
}

impl Shared {
    /// Notes that the process in `slot`, awake since `woke`, has the stage and its state.
    pub(super) fn log_taken(&self, stage: usize, slot: u8, woke: Time) {
        let now = self.now();
        let stamp = |note| self.take_stamp(stage, note);
        let (announced, asked) = (stamp(Note::AnnouncedAt), stamp(Note::AskedAt));
        let (yielded, killed) = (stamp(Note::YieldedAt), stamp(Note::KilledAt));
        let (cause, from) = match (killed, yielded) {
            (Some(killed), _) => (2, killed),
            (_, Some(yielded)) => (1, yielded),
            // Its process died by itself: when is not known.
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

    /// Notes that the owner has done, at a checkpoint and since `began`, what it was asked to besides.
    pub(super) fn log_besides(&self, stage: usize, slot: u8, began: Time) {
        let now = self.now().0;
        let (what, span) = (
            stage as u64 | u64::from(slot) << 16 | 1 << 32,
            now.saturating_sub(began.0),
        );
        self.log_entry([what, 0, 0, span, 0, span, now]);
    }

    fn log_entry(&self, values: [u64; 7]) {
        let log = self.layout.log(&self.region);
        let number = log[0].fetch_add(1, Ordering::AcqRel) as usize;
        let places = (log.len() - FIRST) / ENTRY;
        let at = FIRST + number % places * ENTRY;
        for (word, value) in log[at + 1..].iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        // Tells that the entry is whole.
        log[at].store(number as u64 + 1, Ordering::Release);
    }

    /// The entries from number `from` on that are whole, and the number of the next one. Those that were written over
    /// before they were fetched are left out.
    pub(super) fn fetch_log(&self, from: u64) -> (Vec<Handover>, u64) {
        let log = self.layout.log(&self.region);
        let places = ((log.len() - FIRST) / ENTRY) as u64;
        let count = log[0].load(Ordering::Acquire);
        let first = from.max(count.saturating_sub(places));
        let mut fetched = Vec::new();
        for number in first..count {
            let at = FIRST + (number % places) as usize * ENTRY;
            if log[at].load(Ordering::Acquire) < number + 1 {
                return (fetched, number); // still being written
            }
            let word = |of: usize| log[at + 1 + of].load(Ordering::Relaxed);
            fetched.push(Handover {
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
            });
        }
        (fetched, count)
    }
}
