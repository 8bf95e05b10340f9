//! State of a core: its occupant, the occupant's progress, and when it ends.
//!
//! Between two changes of the machine's mix a segment progresses at a constant pace, so its end is known. Progress is
//! booked only when the pace or the occupant changes.

use punctual_units::{Nanos, Time};

use crate::leases::Lease;
use crate::model::Effort;
use crate::split::Holding;

/// Kinds of work that run on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// A job of this runner, by index.
    Runner(usize),
    /// The update on its way into the store.
    Installer,
    /// The group commit of memory-first updates.
    Committer,
    /// The switch from the tasks that borrowed the core back to its own.
    TakeBack,
}

impl Occupant {
    /// Whether the store uses the core for its own work: then no job runs there.
    pub fn is_store(self) -> bool {
        matches!(self, Occupant::Installer | Occupant::Committer)
    }
}

/// Work that a core does without a decision in between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Segment {
    /// Work that depends on clock, cache and memory.
    pub effort: Effort,
    /// Time that depends on none of them, in nanoseconds; infinite where the segment cannot progress.
    pub fixed_ns: f64,
    /// Fraction still to do, from 1 down to 0.
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

    /// A segment of a fixed duration, whatever the machine does.
    pub fn lasting(span: Nanos) -> Segment {
        Segment {
            fixed_ns: span.0 as f64,
            ..Segment::new(Effort::default())
        }
    }
}

/// Activity of a core that is not idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CoreActivity {
    /// The occupant's own work.
    Work,
    /// Fills ways that the core gained; the occupant stands still.
    Fill,
    /// Switches to the occupant.
    Switch,
    /// Polls for the end of the occupant's request.
    Poll,
}

/// Time of a core by activity, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTimes {
    /// Time of the jobs' own work.
    pub working: Nanos,
    /// Time in which the job stood still until ways that the core gained were filled.
    pub filling: Nanos,
    /// Time of switching from one job to another, or of being taken back.
    pub switching: Nanos,
    /// Time of polling for the end of a request.
    pub polling: Nanos,
}

impl CoreTimes {
    /// All time except idling.
    pub fn busy(&self) -> Nanos {
        self.working + self.filling + self.switching + self.polling
    }

    fn of(&mut self, doing: CoreActivity) -> &mut Nanos {
        match doing {
            CoreActivity::Work => &mut self.working,
            CoreActivity::Fill => &mut self.filling,
            CoreActivity::Switch => &mut self.switching,
            CoreActivity::Poll => &mut self.polling,
        }
    }
}

/// State of one core.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    running: Option<(Occupant, Segment)>,
    doing: CoreActivity,
    /// Nanoseconds that the whole running segment would take at the present rates; NaN until the pace is set.
    pace: f64,
    /// Instant up to which progress is booked in the running segment.
    booked: Time,
    /// When the running segment ends at this pace.
    segment_end: Time,
    /// When the core needs a decision: the end of the segment or of the slice.
    finish: Time,
    /// End of the time slice for the occupant's own work.
    slice_end: Time,
    /// Times up to `since`; from then on the core has done the same without a break.
    times: CoreTimes,
    since: Time,
    /// Ways and bandwidth of the core, where cores split cache and memory.
    pub holding: Holding,
    /// Runner whose job holds the core, where a rule shares jobs among cores.
    pub holder: Option<usize>,
    /// Lending state, where cores have tasks of their own.
    pub lease: Lease,
    /// Where jobs without a deadline take turns, because some are called: the runner whose turn it is, or was last, and
    /// the end of its slice.
    pub turn: Option<(usize, Time)>,
}

impl Core {
    pub fn new() -> Core {
        Core {
            running: None,
            doing: CoreActivity::Work,
            pace: f64::NAN,
            booked: Time::ZERO,
            segment_end: Time::MAX,
            finish: Time::MAX,
            slice_end: Time::MAX,
            times: CoreTimes::default(),
            since: Time::ZERO,
            holding: Holding::default(),
            holder: None,
            lease: Lease::default(),
            turn: None,
        }
    }

    pub fn occupant(&self) -> Option<Occupant> {
        self.running.map(|(occupant, _)| occupant)
    }

    /// Activity for the occupant; meaningless without one.
    pub fn doing(&self) -> CoreActivity {
        self.doing
    }

    pub fn segment(&self) -> Option<&Segment> {
        self.running.as_ref().map(|(_, segment)| segment)
    }

    /// Fraction of the running segment still to do, 1 down to 0.
    pub fn left(&self, now: Time) -> f64 {
        let mut core = self.clone();
        core.book(now);
        core.running.map_or(0.0, |(_, segment)| segment.left)
    }

    /// When the running segment or its slice ends; `Time::MAX` without a segment.
    pub fn finish(&self) -> Time {
        self.finish
    }

    /// Whether the running segment has ended by `now`.
    pub fn has_ended(&self, now: Time) -> bool {
        self.segment_end <= now
    }

    /// How long the present activity has lasted.
    pub fn since(&self, now: Time) -> Nanos {
        now.since(self.since)
    }

    /// End of the time slice for the occupant's own work.
    pub fn slice_end(&self) -> Time {
        self.slice_end
    }

    /// Ends the time slice for the occupant's own work at `end`.
    pub fn slice_until(&mut self, end: Time) {
        self.slice_end = end;
        self.look_again();
    }

    fn look_again(&mut self) {
        // An idle core needs no decision: its last slice is over, or ended with a job that blocked at once.
        let slice_end = match (&self.running, self.doing) {
            (Some(_), CoreActivity::Work) => self.slice_end,
            (Some(_), CoreActivity::Fill | CoreActivity::Switch | CoreActivity::Poll) | (None, _) => Time::MAX,
        };
        self.finish = self.segment_end.min(slice_end);
    }

    /// Times by activity since the start.
    pub fn times(&self, now: Time) -> CoreTimes {
        let mut times = self.times;
        if self.running.is_some() {
            *times.of(self.doing) += now.since(self.since);
        }
        times
    }

    /// Puts `occupant` on an empty core; [`Core::pace_at`] must follow before time passes.
    pub fn start(&mut self, occupant: Occupant, doing: CoreActivity, segment: Segment, now: Time) {
        self.running = Some((occupant, segment));
        self.doing = doing;
        self.pace = f64::NAN;
        self.booked = now;
        self.since = now;
    }

    /// Takes the occupant off the core and returns it with the rest of its segment.
    pub fn stop(&mut self, now: Time) -> Option<(Occupant, Segment)> {
        self.book(now);
        self.times = self.times(now);
        self.segment_end = Time::MAX;
        self.finish = Time::MAX;
        self.running.take()
    }

    /// From `now` on, the whole segment takes `pace` nanoseconds. An unchanged pace is ignored, so that an undisturbed
    /// segment is never rounded twice.
    pub fn pace_at(&mut self, pace: f64, now: Time) {
        if pace == self.pace {
            return;
        }
        self.book(now);
        self.pace = pace;
        if let Some((_, segment)) = &self.running {
            // To the nearest nanosecond, so that rounding errors do not add up; at least one, so that time passes. A
            // time is not negative, so half a nanosecond more, truncated, is rounding (`f64::round` is a call on most
            // machines).
            let left = Nanos((segment.left * pace + 0.5).max(1.0) as u64);
            self.segment_end = now + left;
            self.look_again();
        }
    }

    fn book(&mut self, now: Time) {
        if let Some((_, segment)) = &mut self.running {
            let done = now.since(self.booked).0 as f64 / self.pace;
            // A segment that was just started has no pace yet, and no progress.
            segment.left = if now >= self.segment_end {
                0.0
            } else {
                (segment.left - done.max(0.0)).max(0.0)
            };
            self.booked = now;
        }
    }
}
