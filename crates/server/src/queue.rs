//! Which job is next? Earliest deadline first, first come first served among equals. Pure.
//!
//! Jobs without a deadline are last, and yet get one turn in [`ORDINARY_EVERY`] while they wait, as writers of the
//! store do. Jobs that write have a lane of their own, because one thread at a time can write: meanwhile other threads
//! take jobs that read, in place of waiting.

use std::collections::{BTreeMap, VecDeque};

pub use punctual_store::permit::ORDINARY_EVERY;
use punctual_units::Time;

/// The threads that may take a job at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Jobs that read: any number of threads at a time.
    Read,
    /// Jobs that may write: one thread at a time.
    Write,
}

/// The lanes from which a thread takes jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// The next job of either lane.
    Both,
    /// The next job of this lane only.
    Only(Lane),
}

/// A queue of bounded length, ordered by deadline and arrival.
///
/// ```
/// use punctual_server::queue::{Lane, Open, Queue};
/// use punctual_units::Time;
/// let mut queue = Queue::new(10);
/// queue.push(Lane::Read, Time::MAX, "some day")?;
/// queue.push(Lane::Write, Time(20), "soon")?;
/// queue.push(Lane::Read, Time(10), "now")?;
/// assert_eq!(queue.pop(Open::Both), Some("now"));
/// assert_eq!(queue.pop(Open::Only(Lane::Read)), Some("some day"));
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug)]
pub struct Queue<T> {
    lanes: [Waiting<T>; 2],
    length: usize,
    capacity: usize,
    arrived: u64,
    /// Number of turns in a row that went to jobs with a deadline while others waited.
    passed: u32,
}

#[derive(Debug)]
struct Waiting<T> {
    /// Jobs with a deadline, by deadline and arrival.
    urgent: BTreeMap<(Time, u64), T>,
    ordinary: VecDeque<(u64, T)>,
}

impl<T> Queue<T> {
    /// Makes a queue with room for `capacity` jobs.
    pub fn new(capacity: usize) -> Queue<T> {
        let lane = || Waiting {
            urgent: BTreeMap::new(),
            ordinary: VecDeque::new(),
        };
        Queue {
            lanes: [lane(), lane()],
            length: 0,
            capacity,
            arrived: 0,
            passed: 0,
        }
    }

    /// Number of jobs that wait, in both lanes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no job waits in either lane.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds a job; [`Time::MAX`] is no deadline.
    ///
    /// # Errors
    /// The job itself, where the queue is full.
    pub fn push(&mut self, lane: Lane, deadline: Time, work: T) -> Result<(), T> {
        if self.length >= self.capacity {
            return Err(work);
        }
        self.push_again(lane, deadline, work);
        Ok(())
    }

    /// Adds a job that is partly done and left its slot to others meanwhile, even to a full queue. There are at most as
    /// many of them as connections.
    pub fn push_again(&mut self, lane: Lane, deadline: Time, work: T) {
        self.length += 1;
        self.arrived += 1;
        let waiting = &mut self.lanes[lane as usize];
        if deadline == Time::MAX {
            waiting.ordinary.push_back((self.arrived, work));
        } else {
            waiting.urgent.insert((deadline, self.arrived), work);
        }
    }

    /// Takes the next job of the open lanes.
    pub fn pop(&mut self, open: Open) -> Option<T> {
        let is_open = |lane: usize| match open {
            Open::Both => true,
            Open::Only(only) => only as usize == lane,
        };
        let least = |lanes: [Option<(Time, u64)>; 2]| {
            let found = (0..2)
                .filter(|lane| is_open(*lane))
                .filter_map(|lane| Some((lanes[lane]?, lane)));
            found.min().map(|(_, lane)| lane)
        };
        let urgent = least(
            self.lanes
                .each_ref()
                .map(|lane| Some(*lane.urgent.first_key_value()?.0)),
        );
        let ordinary = least(
            self.lanes
                .each_ref()
                .map(|lane| Some((Time::MAX, lane.ordinary.front()?.0))),
        );
        let (lane, is_urgent) = match (urgent, ordinary) {
            (Some(_), Some(lane)) if self.passed + 1 >= ORDINARY_EVERY => (lane, false),
            (Some(lane), _) => (lane, true),
            (None, lane) => (lane?, false),
        };
        // A lane that is closed now keeps its claim to the turn of jobs without a deadline.
        let passes_some = is_urgent && self.lanes.iter().any(|lane| !lane.ordinary.is_empty());
        self.passed = if passes_some { self.passed.saturating_add(1) } else { 0 };
        self.length -= 1;
        let waiting = &mut self.lanes[lane];
        if is_urgent {
            waiting.urgent.pop_first().map(|(_, work)| work)
        } else {
            waiting.ordinary.pop_front().map(|(_, work)| work)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(Lane, u64),
        Pop(Open),
    }

    fn step() -> impl Strategy<Value = Step> {
        let lane = prop_oneof![Just(Lane::Read), Just(Lane::Write)];
        let deadline = prop_oneof![3 => 0u64..8, 1 => Just(u64::MAX)];
        let open = prop_oneof![2 => Just(Open::Both), 1 => lane.clone().prop_map(Open::Only)];
        prop_oneof![
            (lane, deadline).prop_map(|(lane, at)| Step::Push(lane, at)),
            open.prop_map(Step::Pop)
        ]
    }

    proptest! {
        /// The reference is a list that is searched as a whole.
        #[test]
        fn serves_in_the_order_of_the_reference(steps in prop::collection::vec(step(), 0..300)) {
            const CAPACITY: usize = 20;
            let mut queue = Queue::new(CAPACITY);
            let mut reference: Vec<(u64, usize, Lane)> = Vec::new();
            let mut turns = 0;
            for (arrival, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(lane, deadline) => {
                        let fits = reference.len() < CAPACITY;
                        prop_assert_eq!(queue.push(lane, Time(deadline), arrival).is_ok(), fits);
                        if fits {
                            reference.push((deadline, arrival, lane));
                        }
                    }
                    Step::Pop(open) => {
                        let is_open = |entry: &&(u64, usize, Lane)| open == Open::Both || open == Open::Only(entry.2);
                        let order = |entry: &&(u64, usize, Lane)| (entry.0, entry.1);
                        let ordinary = reference.iter().filter(is_open).filter(|entry| entry.0 == u64::MAX);
                        let ordinary = ordinary.min_by_key(order).copied();
                        let first = reference.iter().filter(is_open).min_by_key(order).copied();
                        let next = if ordinary.is_some() && turns + 1 >= ORDINARY_EVERY { ordinary } else { first };
                        if next.is_some() {
                            let passes_some = reference.iter().any(|entry| entry.0 == u64::MAX) && next != ordinary;
                            turns = if passes_some { turns + 1 } else { 0 };
                        }
                        prop_assert_eq!(queue.pop(open), next.map(|(_, arrival, _)| arrival));
                        reference.retain(|entry| Some(*entry) != next);
                    }
                }
                prop_assert_eq!(queue.len(), reference.len());
            }
        }
    }

    /// A lane that is closed now and then loses no claim to threads that pass it over.
    #[test]
    fn writes_without_a_deadline_have_their_turn_beside_urgent_reads() {
        let mut queue = Queue::new(1000);
        queue.push(Lane::Write, Time::MAX, true).unwrap();
        let mut rounds = 0;
        loop {
            rounds += 1;
            for lane in [Lane::Read, Lane::Write] {
                queue.push(lane, Time(rounds), false).unwrap();
            }
            queue.pop(Open::Only(Lane::Read)).unwrap();
            if queue.pop(Open::Both).unwrap() {
                break;
            }
            assert!(rounds < u64::from(ORDINARY_EVERY), "it waits for ever");
        }
    }

    #[test]
    fn one_turn_in_ten_is_of_work_without_a_deadline() {
        let mut queue = Queue::new(1000);
        for _ in 0..10 {
            queue.push(Lane::Write, Time::MAX, true).unwrap();
        }
        let mut turns = Vec::new();
        for round in 0..100 {
            queue.push(Lane::Read, Time(round), false).unwrap();
            turns.push(queue.pop(Open::Both).unwrap());
        }
        let expected: Vec<bool> = (1..=100).map(|turn| turn % ORDINARY_EVERY == 0).collect();
        assert_eq!(turns, expected);
    }
}
