//! One core: what runs on it, how far it has come, and when it will be done.
//!
//! Between two changes of the machine's mix a segment progresses at a constant pace, so its end is known. Progress is
//! booked only when the pace or the occupant changes.

use punctual_units::{Nanos, Time};

use crate::leases::Lease;
use crate::model::Effort;
use crate::queue::Queued;
use crate::split::Holding;

/// Which tasks may run on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// A job of this runner.
    Runner(usize),
    /// The update on its way into the store.
    Installer,
    /// The group commit of memory-first updates.
    Committer,
    /// The change from the tasks that the core was lent to back to its own.
    TakeBack,
}

impl Occupant {
    /// Whether the store takes the core for its own work: then no job runs there.
    pub fn is_store(self) -> bool {
        matches!(self, Occupant::Installer | Occupant::Committer)
    }
}

/// A piece of work on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Segment {
    /// What follows the clock, the cache and the memory.
    pub effort: Effort,
    /// What follows none of them, in nanoseconds; infinite where it cannot get ahead.
    pub fixed_ns: f64,
    /// The part still to do, from 1 down to 0.
    pub left: f64,
}

impl Segment {
    pub const fn new(effort: Effort) -> Segment {
        Segment {
            effort,
            fixed_ns: 0.0,
            left: 1.0,
        }
    }

    /// Takes so long whatever the machine does.
    pub fn lasting(span: Nanos) -> Segment {
        Segment {
            fixed_ns: span.0 as f64,
            ..Segment::new(Effort::default())
        }
    }
}

/// What a core that is not idle does for its occupant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// The occupant's own work.
    Work,
    /// Fills ways that it gained; the occupant stands still.
    Fill,
    /// Changes to the occupant.
    Switch,
    /// Polls for the end of the occupant's request.
    Poll,
}

/// What a core did with its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTimes {
    /// Working.
    pub working: Nanos,
    /// Standing still until ways that it gained are filled.
    pub filling: Nanos,
    /// Changing from one job to another, or being taken back.
    pub switching: Nanos,
    /// Polling for the end of a request.
    pub polling: Nanos,
}

impl CoreTimes {
    /// Everything but idling.
    pub fn busy(&self) -> Nanos {
        self.working + self.filling + self.switching + self.polling
    }

    fn of(&mut self, doing: Doing) -> &mut Nanos {
        match doing {
            Doing::Work => &mut self.working,
            Doing::Fill => &mut self.filling,
            Doing::Switch => &mut self.switching,
            Doing::Poll => &mut self.polling,
        }
    }
}

/// One core.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    running: Option<(Occupant, Segment)>,
    doing: Doing,
    /// Nanoseconds that the whole running segment would take at the present rates; NaN until it is paced.
    pace: f64,
    /// Up to when progress is booked in the running segment.
    booked: Time,
    /// When the running segment ends at this pace.
    segment_end: Time,
    /// When the core is to be looked at again: the segment's end, or the slice's.
    finish: Time,
    /// The end of the slice of the occupant's own work.
    slice_end: Time,
    /// What it did up to `since`, from which it does the same without a break.
    times: CoreTimes,
    since: Time,
    /// Its part of the cache and of the bandwidth to memory, where they are split.
    pub holding: Holding,
    /// Its place in a queue that cores share.
    pub queued: Queued,
    /// Whether it is lent, where cores have tasks of their own.
    pub lease: Lease,
}

impl Core {
    pub fn new() -> Core {
        Core {
            running: None,
            doing: Doing::Work,
            pace: f64::NAN,
            booked: Time::ZERO,
            segment_end: Time::MAX,
            finish: Time::MAX,
            slice_end: Time::MAX,
            times: CoreTimes::default(),
            since: Time::ZERO,
            holding: Holding::default(),
            queued: Queued::default(),
            lease: Lease::default(),
        }
    }

    pub fn occupant(&self) -> Option<Occupant> {
        self.running.map(|(occupant, _)| occupant)
    }

    /// What it does for its occupant; of no meaning without one.
    pub fn doing(&self) -> Doing {
        self.doing
    }

    /// The running segment.
    pub fn segment(&self) -> Option<&Segment> {
        self.running.as_ref().map(|(_, segment)| segment)
    }

    /// The part of the running segment that is still to do, 1 down to 0.
    pub fn left(&self, now: Time) -> f64 {
        let mut core = self.clone();
        core.book(now);
        core.running.map_or(0.0, |(_, segment)| segment.left)
    }

    /// When the running segment ends, or its slice; never without one.
    pub fn finish(&self) -> Time {
        self.finish
    }

    /// Whether the running segment has ended by `now`.
    pub fn has_ended(&self, now: Time) -> bool {
        self.segment_end <= now
    }

    /// For how long it has been doing what it does.
    pub fn since(&self, now: Time) -> Nanos {
        now.since(self.since)
    }

    /// The end of the slice of the occupant's own work.
    pub fn slice_end(&self) -> Time {
        self.slice_end
    }

    /// The occupant's own work is to be looked at again then.
    pub fn slice_until(&mut self, end: Time) {
        self.slice_end = end;
        self.look_again();
    }

    fn look_again(&mut self) {
        // An idle core has nothing to be looked at: its last slice is over, or ended with a job that blocked at once.
        let slice_end = match (&self.running, self.doing) {
            (Some(_), Doing::Work) => self.slice_end,
            (Some(_), Doing::Fill | Doing::Switch | Doing::Poll) | (None, _) => Time::MAX,
        };
        self.finish = self.segment_end.min(slice_end);
    }

    /// What it did since the start.
    pub fn times(&self, now: Time) -> CoreTimes {
        let mut times = self.times;
        if self.running.is_some() {
            *times.of(self.doing) += now.since(self.since);
        }
        times
    }

    /// Puts `occupant` on an empty core; [`Core::pace_at`] follows before time passes.
    pub fn start(&mut self, occupant: Occupant, doing: Doing, segment: Segment, now: Time) {
        self.running = Some((occupant, segment));
        self.doing = doing;
        self.pace = f64::NAN;
        self.booked = now;
        self.since = now;
    }

    /// Takes the occupant off, with what is left of its segment.
    pub fn stop(&mut self, now: Time) -> Option<(Occupant, Segment)> {
        self.book(now);
        self.times = self.times(now);
        self.segment_end = Time::MAX;
        self.finish = Time::MAX;
        self.running.take()
    }

    /// From `now` on, the whole segment would take `pace` nanoseconds. Nothing happens where it is so already, so that
    /// an undisturbed segment is never rounded twice.
    pub fn pace_at(&mut self, pace: f64, now: Time) {
        if pace == self.pace {
            return;
        }
        self.book(now);
        self.pace = pace;
        if let Some((_, segment)) = &self.running {
            // To the nearest nanosecond, so that rounding adds up to nothing; at least one, so that time passes. A time
            // is not negative, so half a nanosecond more, cut off, is rounded (`f64::round` is a call on most
            // machines).
            let left = Nanos((segment.left * pace + 0.5).max(1.0) as u64);
            self.segment_end = now + left;
            self.look_again();
        }
    }

    fn book(&mut self, now: Time) {
        if let Some((_, segment)) = &mut self.running {
            let done = now.since(self.booked).0 as f64 / self.pace;
            // A segment that was just started has no pace, and has done nothing.
            segment.left = if now >= self.segment_end {
                0.0
            } else {
                (segment.left - done.max(0.0)).max(0.0)
            };
            self.booked = now;
        }
    }
}
