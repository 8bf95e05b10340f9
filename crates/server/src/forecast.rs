//! Which jobs still end in time? The cost of each command is learned from its past runs.
//!
//! **Problem.** Under overload, a queue in the order of deadlines serves each request at the last moment: begun in
//! time, answered too late. And requests that get no turn are answered only once their time is over.
//!
//! **Method.** [`Costs`] has the time that a command takes a thread, by verb, and the time that a turn of writes takes.
//! The time of waiting jobs is summed up by deadline ([`Ahead`]). A job with a deadline is refused on arrival if the
//! jobs served before it take longer than it has; and it begins only while it can still end in time. A part of each
//! request's time ([`RESERVE`]) is kept for the work that no thread of the pool sees: sockets, the event loop, the
//! network to the client. While anything waits the threads are busy, so a reserve costs no work that would be done
//! otherwise.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_units::{Nanos, Time};

use crate::commands::{TABLE, Verb};

/// Divisor: a request's time over this is kept for sockets, event loop and network.
pub const RESERVE: u64 = 20;
/// Reads that one thread takes together are forecast to take at most this long: no reply waits longer for reads behind
/// it.
pub const TOGETHER: Nanos = Nanos::from_millis(1);
/// Divisor: a new sample has this part of the average.
const LEARNED: u64 = 16;
/// Deadlines are resolved to 2^24 ns, 17 ms.
const TICK: u32 = 24;

/// The part of `time` that is kept for sockets, event loop and network.
pub fn reserve(time: Nanos) -> Nanos {
    Nanos(time.0 / RESERVE)
}

/// Learned costs of commands; zero at first, so that each command is tried.
#[derive(Debug)]
pub struct Costs {
    /// Cost in nanoseconds, by verb.
    each: [AtomicU64; TABLE.len()],
    turn: AtomicU64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            each: [const { AtomicU64::new(0) }; TABLE.len()],
            turn: AtomicU64::new(0),
        }
    }
}

/// Moves an average towards `taken`. Threads that learn at once may lose a sample, which does not matter.
fn follow(known: &AtomicU64, taken: Nanos) {
    let before = known.load(Ordering::Relaxed);
    let after = before - before / LEARNED + taken.0.min(u64::MAX / 2) / LEARNED;
    known.store(after, Ordering::Relaxed);
}

impl Costs {
    /// Time that a command of this verb takes a thread.
    pub fn of(&self, verb: Verb) -> Nanos {
        Nanos(self.each[verb as usize].load(Ordering::Relaxed))
    }

    /// Adds a sample for a command of this verb.
    pub fn learn(&self, verb: Verb, taken: Nanos) {
        follow(&self.each[verb as usize], taken);
    }

    /// Time that a turn of writes takes, up to its commit.
    pub fn turn(&self) -> Nanos {
        Nanos(self.turn.load(Ordering::Relaxed))
    }

    /// Adds a sample for a turn of writes.
    pub fn learn_turn(&self, taken: Nanos) {
        follow(&self.turn, taken);
    }

    /// The last instant to begin a command that was read at `arrived`; [`Time::MAX`] is no deadline. A command that is
    /// alone is tried whatever it costs: a command that was expensive once would never be tried again otherwise.
    pub fn begin_by(&self, verb: Verb, arrived: Time, deadline: Time, is_alone: bool) -> Time {
        if deadline == Time::MAX {
            return deadline;
        }
        let cost = if is_alone { Nanos::ZERO } else { self.of(verb) };
        deadline - reserve(deadline.since(arrived)) - cost
    }
}

/// Forecast time of the jobs with a deadline that wait in one lane, by deadline.
#[derive(Debug, Default)]
pub struct Ahead {
    /// Nanoseconds and number of jobs, by tick.
    ticks: BTreeMap<u64, (u64, usize)>,
}

impl Ahead {
    /// Adds a job that begins to wait.
    pub fn add(&mut self, deadline: Time, cost: Nanos) {
        if deadline < Time::MAX {
            let tick = self.ticks.entry(deadline.0 >> TICK).or_default();
            *tick = (tick.0.saturating_add(cost.0), tick.1 + 1);
        }
    }

    /// Removes a job that was added.
    pub fn remove(&mut self, deadline: Time, cost: Nanos) {
        let at = deadline.0 >> TICK;
        if let Some((sum, pieces)) = self.ticks.get_mut(&at) {
            *sum = sum.saturating_sub(cost.0);
            *pieces -= 1;
            if *pieces == 0 {
                self.ticks.remove(&at);
            }
        }
    }

    /// Forecast time of the jobs that are served before a job of this deadline. Counting stops once the sum exceeds
    /// `enough`.
    pub fn before(&self, deadline: Time, enough: Nanos) -> Nanos {
        let mut sum = 0u64;
        for (cost, _) in self.ticks.range(..=deadline.0 >> TICK).map(|(_, tick)| tick) {
            sum = sum.saturating_add(*cost);
            if sum > enough.0 {
                break;
            }
        }
        Nanos(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The reference is a list of what waits.
        #[test]
        fn what_is_ahead_is_the_sum_of_what_waits(
            steps in prop::collection::vec((any::<bool>(), 0u64..1 << 28, 0u64..1000), 0..200),
            asked in 0u64..1 << 28,
        ) {
            let (mut ahead, mut reference) = (Ahead::default(), Vec::new());
            for (adds, deadline, cost) in steps {
                if adds || reference.is_empty() {
                    ahead.add(Time(deadline), Nanos(cost));
                    reference.push((deadline, cost));
                } else {
                    let (deadline, cost) = reference.swap_remove(deadline as usize % reference.len());
                    ahead.remove(Time(deadline), Nanos(cost));
                }
                let before = reference.iter().filter(|(deadline, _)| deadline >> TICK <= asked >> TICK);
                let sum: u64 = before.map(|(_, cost)| cost).sum();
                prop_assert_eq!(ahead.before(Time(asked), Nanos::MAX), Nanos(sum));
                let enough = Nanos(sum / 2);
                prop_assert!(sum == 0 || ahead.before(Time(asked), enough) > enough);
            }
            prop_assert!(ahead.ticks.len() <= reference.len());
        }
    }

    #[test]
    fn what_commands_take_is_learned() {
        let costs = Costs::default();
        assert_eq!(costs.of(Verb::Get), Nanos::ZERO);
        (0..200).for_each(|_| costs.learn(Verb::Get, Nanos(1_000_000)));
        assert!(
            costs.of(Verb::Get).0.abs_diff(1_000_000) < 10_000,
            "{:?}",
            costs.of(Verb::Get)
        );
        assert_eq!(costs.of(Verb::Set), Nanos::ZERO);
    }

    #[test]
    fn a_command_is_begun_while_it_can_end() {
        let costs = Costs::default();
        (0..1000).for_each(|_| costs.learn(Verb::Get, Nanos(100_000)));
        let cost = costs.of(Verb::Get);
        let (arrived, deadline) = (Time(1_000_000), Time(21_000_000));
        let last = deadline - Nanos(1_000_000);
        assert_eq!(costs.begin_by(Verb::Get, arrived, deadline, false), last - cost);
        assert_eq!(costs.begin_by(Verb::Get, arrived, deadline, true), last);
        assert_eq!(costs.begin_by(Verb::Set, arrived, deadline, false), last);
        assert_eq!(costs.begin_by(Verb::Set, arrived, Time::MAX, false), Time::MAX);
    }
}
