//! Translates sampling instants to a clock that goes on while the machine is suspended.
//!
//! **Problem.** Deadlines, and the instants that sensors report, count on a clock that stands still while the machine
//! is suspended (`CLOCK_MONOTONIC`): no deadline passes in a sleep. Ages must not stand still: a value from before the
//! sleep is old. So slots and records keep instants of the other clock, the clock of ages ([`Clock::since_boot`]), and
//! an instant of the first must be translated, for samples that were taken before the machine slept, too.
//!
//! **Method.** The difference of the two clocks grows at a suspension, and at no other time. Each offer of an update
//! reads both clocks, and records when the difference has grown. The difference at an earlier instant is that of the
//! last entry before it. A sample that was taken after a suspension and before the next offer counts as taken before
//! it: older than it is, never younger.

use std::collections::VecDeque;

use punctual_units::{Clock, Time};

/// Most suspensions that are kept; instants before all of them cannot be translated.
const KEPT_MAX: usize = 16;
/// Smaller growths of the difference, in nanoseconds, are the time between reading the two clocks.
const LEAST: i64 = 1_000_000;

/// The suspensions that were noticed, oldest first.
#[derive(Debug)]
pub(crate) struct Suspensions {
    /// Instant of each notice, and the difference of the clocks from then on, in nanoseconds. Not empty.
    noticed: VecDeque<(Time, i64)>,
}

/// Now, and the lead of the clock of ages in nanoseconds, never more than the true one: the clock of ages is read
/// first. Negative in some time namespaces.
pub(crate) fn ahead(clock: &impl Clock) -> (Time, i64) {
    let aged = clock.since_boot();
    let now = clock.now();
    (now, (aged.0 as i64).wrapping_sub(now.0 as i64))
}

/// The translation since the last suspension that was noticed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Translation {
    since: Time,
    difference: i64,
}

impl Translation {
    /// Translates `at` while the clocks differ by `difference`; `None` where the machine has slept since, which must be
    /// [noticed](Suspensions::notice), or where `at` may lie before it.
    #[inline]
    pub fn since_boot(&self, at: Time, difference: i64) -> Option<Time> {
        let slept = difference.saturating_sub(self.difference) > LEAST;
        let later = at > self.since || self.since == Time::ZERO;
        (later && !slept).then(|| Time(at.0.saturating_add_signed(self.difference)))
    }
}

impl Suspensions {
    /// Begins with the present difference of the clocks.
    pub fn new(clock: &impl Clock) -> Suspensions {
        let (now, difference) = ahead(clock);
        // A difference of 0 means that the machine has never slept: it was 0 at all earlier instants, too.
        let since = if difference.abs() < LEAST { Time::ZERO } else { now };
        Suspensions {
            noticed: VecDeque::from([(since, difference)]),
        }
    }

    /// The translation since the last suspension.
    pub fn last(&self) -> Translation {
        let last = self.noticed.back();
        last.map_or_else(Translation::default, |&(since, difference)| Translation {
            since,
            difference,
        })
    }

    /// Reads both clocks, and records a suspension if their difference has grown; returns whether it has.
    pub fn notice(&mut self, clock: &impl Clock) -> bool {
        let (now, difference) = ahead(clock);
        let last = self.noticed.back().map_or(i64::MIN, |(_, difference)| *difference);
        let slept = difference.saturating_sub(last) > LEAST;
        if slept {
            if self.noticed.len() == KEPT_MAX {
                self.noticed.pop_front();
            }
            self.noticed.push_back((now, difference));
        }
        slept
    }

    /// Translates `at` to the clock of ages; `None` if it lies before the first entry.
    pub fn since_boot(&self, at: Time) -> Option<Time> {
        let (first, difference) = self.noticed.front()?;
        // At the very instant of an entry, the sample may have been taken before the machine slept.
        let later = self.noticed.iter().skip(1).rev().find(|(since, _)| *since < at);
        let difference = later.map_or(*difference, |(_, difference)| *difference);
        (*first <= at).then(|| Time(at.0.saturating_add_signed(difference)))
    }
}

/// Translates `at` to the clock of ages, for an instant since which the machine has not slept.
pub(crate) fn on_clock_of_ages(at: Time, clock: &impl Clock) -> Time {
    Time(at.0.saturating_add_signed(ahead(clock).1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Clocks(Cell<u64>, Cell<u64>);

    impl Clock for Clocks {
        fn now(&self) -> Time {
            Time(self.0.get())
        }

        fn since_boot(&self) -> Time {
            Time(self.1.get())
        }
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn an_instant_keeps_the_difference_that_it_had() {
        let clocks = Clocks(Cell::new(10 * SECOND), Cell::new(13 * SECOND));
        let mut suspensions = Suspensions::new(&clocks);
        assert_eq!(suspensions.since_boot(Time(9 * SECOND)), None);
        assert_eq!(suspensions.since_boot(Time(11 * SECOND)), Some(Time(14 * SECOND)));
        clocks.0.set(12 * SECOND);
        clocks.1.set(115 * SECOND);
        suspensions.notice(&clocks);
        assert_eq!(suspensions.since_boot(Time(11 * SECOND)), Some(Time(14 * SECOND)));
        assert_eq!(suspensions.since_boot(Time(12 * SECOND)), Some(Time(15 * SECOND)));
        assert_eq!(
            suspensions.since_boot(Time(12 * SECOND + 1)),
            Some(Time(115 * SECOND + 1))
        );
    }

    #[test]
    fn what_was_before_the_suspensions_that_are_kept_is_not_known() {
        let clocks = Clocks(Cell::new(SECOND), Cell::new(SECOND));
        let mut suspensions = Suspensions::new(&clocks);
        for number in 2..2 + KEPT_MAX as u64 {
            clocks.0.set(number * SECOND);
            clocks.1.set(2 * number * SECOND);
            suspensions.notice(&clocks);
        }
        assert_eq!(suspensions.noticed.len(), KEPT_MAX);
        assert_eq!(suspensions.since_boot(Time(SECOND)), None);
        assert_eq!(suspensions.since_boot(Time(2 * SECOND)), Some(Time(4 * SECOND)));
    }
}
