//! One core: what runs on it, how far it has come, and when it will be done.
//!
//! Between two changes of the machine's mix a segment progresses at a constant pace, so its end is known. Progress is
//! booked only when the pace or the occupant changes.

use punctual_units::{Nanos, Time};

use crate::model::Effort;

/// Who may run on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// A job of this runner.
    Runner(usize),
    /// The update on its way into the store.
    Installer,
    /// The group commit of memory-first updates.
    Committer,
}

/// A piece of work on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Segment {
    pub effort: Effort,
    /// The part still to do, from 1 down to 0.
    pub left: f64,
}

impl Segment {
    pub const fn new(effort: Effort) -> Segment {
        Segment { effort, left: 1.0 }
    }
}

/// One core.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    running: Option<(Occupant, Segment)>,
    /// Nanoseconds that the whole running segment would take at the present rates; NaN until it is paced.
    pace: f64,
    /// Up to when progress is booked in the running segment.
    booked: Time,
    /// When the running segment ends at this pace.
    finish: Time,
    /// Busy time up to `busy_since`, from which the core is busy without a break if it is.
    busy: Nanos,
    busy_since: Time,
    /// How many times as long as its cycles alone the running segment computes; see `stall.rs`.
    stretch: f64,
}

impl Core {
    pub fn new() -> Core {
        Core {
            running: None,
            pace: f64::NAN,
            booked: Time::ZERO,
            finish: Time::MAX,
            busy: Nanos::ZERO,
            busy_since: Time::ZERO,
            stretch: 1.0,
        }
    }

    pub fn occupant(&self) -> Option<Occupant> {
        self.running.map(|(occupant, _)| occupant)
    }

    /// What the running segment needs in all, stalls counted as cycles.
    pub fn effort(&self) -> Option<Effort> {
        self.running.map(|(_, segment)| Effort {
            cycles: segment.effort.cycles * self.stretch,
            ..segment.effort
        })
    }

    /// From the next pace on, cycles take so many times as long.
    pub fn stretch(&mut self, stretch: f64) {
        self.stretch = stretch;
    }

    /// The part of the running segment that is still to do, 1 down to 0.
    pub fn left(&self, now: Time) -> f64 {
        let mut core = self.clone();
        core.book(now);
        core.running.map_or(0.0, |(_, segment)| segment.left)
    }

    /// When the running segment ends; never without one.
    pub fn finish(&self) -> Time {
        self.finish
    }

    /// Busy time since the start.
    pub fn busy(&self, now: Time) -> Nanos {
        match self.running {
            Some(_) => self.busy + now.since(self.busy_since),
            None => self.busy,
        }
    }

    /// Puts `occupant` on an empty core; [`Core::pace_at`] follows before time passes.
    pub fn start(&mut self, occupant: Occupant, segment: Segment, now: Time) {
        self.running = Some((occupant, segment));
        self.pace = f64::NAN;
        self.booked = now;
        self.busy_since = now;
    }

    /// Takes the occupant off, with what is left of its segment.
    pub fn stop(&mut self, now: Time) -> Option<(Occupant, Segment)> {
        self.book(now);
        self.busy = self.busy(now);
        self.finish = Time::MAX;
        self.running.take()
    }

    /// From `now` on, the whole segment would take `pace` nanoseconds. Nothing happens where it is so already, so that an
    /// undisturbed segment is never rounded twice.
    pub fn pace_at(&mut self, pace: f64, now: Time) {
        if pace == self.pace {
            return;
        }
        self.book(now);
        self.pace = pace;
        if let Some((_, segment)) = &self.running {
            // To the nearest nanosecond, so that rounding adds up to nothing; at least one, so that time passes. A time is
            // not negative, so half a nanosecond more, cut off, is rounded (`f64::round` is a call on most machines).
            let left = Nanos((segment.left * pace + 0.5).max(1.0) as u64);
            self.finish = now + left;
        }
    }

    fn book(&mut self, now: Time) {
        if let Some((_, segment)) = &mut self.running {
            let done = now.since(self.booked).0 as f64 / self.pace;
            // A segment that was just started has no pace, and has done nothing.
            segment.left = if now >= self.finish {
                0.0
            } else {
                (segment.left - done.max(0.0)).max(0.0)
            };
            self.booked = now;
        }
    }
}
