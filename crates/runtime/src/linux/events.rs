//! Release times of jobs that events release: values in, values out.
//!
//! **Problem.** The kernel reports that an event has come, not when. And admission assumes that events keep their gap,
//! but a device need not.
//!
//! **Method.** An event for which the thread slept is released when the thread saw it: the wake-up is not in the
//! response time, unless the job reports the event's own instant ([`Job::happened_at`](super::Job::happened_at)). An
//! event that was pending when the previous job ended may have come at any time since: it is released at the earliest
//! instant that the gap allows, so that waiting is never hidden.
//!
//! Events may be ahead of their gaps by one gap, because the previous wake-up may have been late and this one is not.
//! An event that is further ahead is put off until it no longer is, and counted. This is the generic cell rate
//! algorithm (ITU-T I.371, annex A) with a tolerance of one gap, so any span of time has at most one job more than the
//! gaps allow, however fast the events come. Events that come meanwhile are merged.

use punctual_units::{Nanos, Time};

/// Computes the release times of one task.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventReleases {
    gap: Nanos,
    /// Release of the previous job.
    last: Option<Time>,
    /// When the next event would come if all kept their gaps.
    due: Time,
}

/// Release of the job of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// Instant from which the job's response time counts.
    pub(super) at: Time,
    /// Whether the job is put off to that instant, which is in the future.
    pub(super) put_off: bool,
}

impl EventReleases {
    /// State before the first event; `gap` is the least time between events.
    pub(super) fn new(gap: Nanos) -> EventReleases {
        EventReleases {
            gap,
            last: None,
            due: Time::ZERO,
        }
    }

    /// Computes the release of an event seen at `now`; `found`: it was pending before the thread could sleep.
    pub(super) fn seen(&mut self, now: Time, found: bool) -> Release {
        let allowed = self.due - self.gap;
        let earliest = self.last.map(|last| last + self.gap).filter(|_| found);
        let at = earliest.unwrap_or(now).min(now).max(allowed);
        self.last = Some(at);
        self.due = self.due.max(at) + self.gap;
        Release { at, put_off: at > now }
    }

    /// Earliest instant of the next event, if all keep their gaps.
    pub(super) fn next(&self) -> Time {
        self.last.map_or(Time::ZERO, |last| last + self.gap)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GAP: Nanos = Nanos(100);

    fn at(at: u64) -> Release {
        Release {
            at: Time(at),
            put_off: false,
        }
    }

    #[test]
    fn an_event_that_a_thread_slept_for_is_released_when_it_is_seen() {
        let mut releases = EventReleases::new(GAP);
        assert_eq!(releases.seen(Time(1000), false), at(1000));
        // 30 too late, then on time: the wake-up was late, not the event early.
        assert_eq!(releases.seen(Time(1130), false), at(1130));
        assert_eq!(releases.seen(Time(1200), false), at(1200));
        assert_eq!(releases.next(), Time(1300));
    }

    #[test]
    fn an_event_that_waited_for_the_job_before_has_waited_since_its_gap_was_over() {
        let mut releases = EventReleases::new(GAP);
        assert_eq!(releases.seen(Time(1000), false), at(1000));
        assert_eq!(releases.seen(Time(1450), true), at(1100), "the job took 450");
        assert_eq!(releases.seen(Time(1460), true), at(1200));
        // Not before it was seen, though.
        assert_eq!(releases.seen(Time(1290), true), at(1290));
    }

    #[test]
    fn a_source_that_is_a_little_too_fast_is_put_off_in_the_end() {
        let mut releases = EventReleases::new(GAP);
        let put_off: Vec<u64> = (0..40u64)
            .filter(|event| releases.seen(Time(1000 + event * 90), false).put_off)
            .collect();
        assert_eq!(put_off.first(), Some(&11), "10 gaps of 90 lack 100");
    }

    /// Whether any span of these releases has more than one job above what the gaps allow.
    fn exceeds(all: &[Time]) -> bool {
        let too_many = |(from, first): (usize, &Time)| {
            let spans = all[from..].iter().enumerate();
            { spans }.any(|(more, last)| more as u64 > last.since(*first).0 / GAP.0 + 1)
        };
        all.iter().enumerate().any(too_many)
    }

    /// A planted fault: every event served when it is seen.
    #[test]
    fn a_storm_that_is_served_as_it_comes_is_found_out() {
        let storm = |events: u64| -> Vec<Time> { (0..events).map(|event| Time(1000 + event * 60)).collect() };
        assert!(exceeds(&storm(4)) && !exceeds(&storm(3)));
    }

    proptest! {
        /// However fast events come, any span has one job more than the gaps allow, at most; jobs run in order; none is
        /// released before the event can have come, nor put off while its gap is kept.
        #[test]
        fn a_storm_has_one_job_more_than_the_gaps_allow(
            steps in prop::collection::vec((0u64..250, any::<bool>()), 1..80),
        ) {
            let mut releases = EventReleases::new(GAP);
            let (mut now, mut all) = (Time(1_000), Vec::new());
            for (step, found) in steps {
                now = now + Nanos(step);
                let before = releases.next();
                let release = releases.seen(now, found);
                prop_assert!(!release.put_off || now < before, "{:?} at {:?}", release, now);
                prop_assert!(all.last().is_none_or(|last| *last <= release.at));
                all.push(release.at);
                now = now.max(release.at);
            }
            prop_assert!(!exceeds(&all), "{:?}", all);
        }
    }
}
