//! The order of the waiting threads: earliest deadline first, first come first served among equals.

use punctual_units::Time;

/// Most threads that may wait at once. More would mean that more threads share the store than it can serve in time.
pub const WAITERS_MAX: usize = 256;

/// While a thread without a deadline waits, one turn in this many goes to such a thread. The others lose a tenth of the
/// turns at most, and only while it waits.
pub const ORDINARY_EVERY: u32 = 10;

/// A position in the queue; numbered in order of arrival, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// A bounded queue of waiting `T`.
///
/// ```
/// use punctual_store::permit::WaitQueue;
/// use punctual_units::Time;
/// let mut queue = WaitQueue::default();
/// queue.push(Time(20), "relaxed");
/// queue.push(Time(10), "urgent");
/// assert_eq!(queue.pop().map(|(_, waiter)| waiter), Some("urgent"));
/// ```
#[derive(Debug)]
pub struct WaitQueue<T> {
    /// Latest deadline first, so that the next waiter to go is the last element.
    waiting: Vec<(Time, Ticket, T)>,
    issued: u64,
    /// Turns in a row that went to waiters with a deadline while one without waited.
    passed: u32,
}

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        // Allocates everything now: no thread allocates under the lock.
        WaitQueue {
            waiting: Vec::with_capacity(WAITERS_MAX),
            issued: 0,
            passed: 0,
        }
    }
}

impl<T> WaitQueue<T> {
    /// Adds a waiter behind all deadlines that are not later; `None` if [`WAITERS_MAX`] wait already.
    pub fn push(&mut self, deadline: Time, waiter: T) -> Option<Ticket> {
        if self.waiting.len() == WAITERS_MAX {
            return None;
        }
        self.issued += 1;
        let ticket = Ticket(self.issued);
        let at = self.waiting.partition_point(|(other, ..)| *other > deadline);
        self.waiting.insert(at, (deadline, ticket, waiter));
        Some(ticket)
    }

    /// Removes and returns the next waiter to go.
    pub fn pop(&mut self) -> Option<(Ticket, T)> {
        // Waiters without a deadline are the first elements; the longest waiting of them is the last of these.
        let ordinary = self.waiting.partition_point(|(deadline, ..)| *deadline == Time::MAX);
        let (_, ticket, waiter) = match ordinary.checked_sub(1) {
            Some(at) if self.passed + 1 >= ORDINARY_EVERY => {
                self.passed = 0;
                self.waiting.remove(at)
            }
            Some(_) if ordinary < self.waiting.len() => {
                self.passed += 1;
                self.waiting.pop()?
            }
            _ => {
                self.passed = 0;
                self.waiting.pop()?
            }
        };
        Some((ticket, waiter))
    }

    /// Removes a waiter before its turn; `None` if its turn has come already.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let at = self.waiting.iter().position(|(_, other, _)| *other == ticket)?;
        Some(self.waiting.remove(at).2)
    }

    /// Whether a waiter has a deadline.
    pub fn has_deadline(&self) -> bool {
        self.waiting.last().is_some_and(|(deadline, ..)| *deadline != Time::MAX)
    }

    /// All waiters, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter().map(|(.., waiter)| waiter)
    }

    /// All waiters, to be changed, in no particular order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.waiting.iter_mut().map(|(.., waiter)| waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Pop,
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let deadline = prop_oneof![4 => 0u64..8, 1 => Just(u64::MAX)];
        prop_oneof![3 => deadline.prop_map(Step::Push), 2 => Just(Step::Pop), 1 => (0usize..40).prop_map(Step::Remove)]
    }

    proptest! {
        /// The reference searches the whole list for the least (deadline, arrival), or each tenth time, while one
        /// without a deadline waits, for the least arrival among those.
        #[test]
        fn serves_in_the_order_of_the_reference(steps in prop::collection::vec(step(), 0..200)) {
            let mut queue = WaitQueue::default();
            let mut reference: Vec<(u64, usize)> = Vec::new();
            let mut tickets = Vec::new();
            let mut turns = 0;
            for step in steps {
                match step {
                    Step::Push(deadline) => {
                        let arrival = tickets.len();
                        tickets.push(queue.push(Time(deadline), arrival).unwrap());
                        reference.push((deadline, arrival));
                    }
                    Step::Pop => {
                        let ordinary = reference.iter().filter(|(deadline, _)| *deadline == u64::MAX).min().copied();
                        turns = if ordinary.is_some() { turns + 1 } else { 0 };
                        let next = if turns == 10 { ordinary } else { reference.iter().min().copied() };
                        turns = if next == ordinary { 0 } else { turns };
                        reference.retain(|entry| Some(*entry) != next);
                        prop_assert_eq!(queue.pop().map(|(_, waiter)| waiter), next.map(|(_, arrival)| arrival));
                    }
                    Step::Remove(arrival) => {
                        let Some(ticket) = tickets.get(arrival) else { continue };
                        let waits = reference.iter().any(|(_, other)| *other == arrival);
                        reference.retain(|(_, other)| *other != arrival);
                        prop_assert_eq!(queue.remove(*ticket), waits.then_some(arrival));
                    }
                }
            }
        }
    }

    #[test]
    fn one_turn_in_ten_is_of_a_waiter_without_a_deadline() {
        let mut queue = WaitQueue::default();
        for _ in 0..20 {
            queue.push(Time::MAX, true);
        }
        let mut turns = Vec::new();
        for round in 0..200 {
            queue.push(Time(round), false);
            turns.push(queue.pop().is_some_and(|(_, ordinary)| ordinary));
        }
        let expected: Vec<bool> = (1..=200).map(|turn| turn % ORDINARY_EVERY == 0).collect();
        assert_eq!(turns, expected);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut queue = WaitQueue::default();
        for _ in 0..WAITERS_MAX {
            assert!(queue.push(Time::ZERO, ()).is_some());
        }
        assert!(queue.push(Time::ZERO, ()).is_none());
    }
}
