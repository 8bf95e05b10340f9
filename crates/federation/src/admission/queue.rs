//! The order in which admitted requests are served.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use punctual_units::Time;

use super::Ask;

/// Most requests that wait at one node; more are refused, whatever the gate decides. Far more than can end within a
/// sensible deadline: a bound on memory.
pub const QUEUE_MAX: usize = 65_536;

/// The order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceOrder {
    /// In order of arrival.
    Arrival,
    /// Earliest deadline first; equal ones in order of arrival.
    Deadline,
    /// Any waiting request, with equal probability: as threads wait for a lock without queue, for example in a
    /// database.
    Random,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct WaitingRequest<T> {
    pub(super) ask: Ask,
    pub(super) work: T,
    pub(super) since: Time,
    /// Forecast seconds from `since` to its end.
    pub(super) forecast: f64,
    /// Typical error of such a forecast, in seconds.
    pub(super) scale: f64,
    rank: (u64, u64),
}

impl<T> PartialEq for WaitingRequest<T> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}
impl<T> Eq for WaitingRequest<T> {}
impl<T> PartialOrd for WaitingRequest<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for WaitingRequest<T> {
    /// Reversed, because the heap has its greatest element on top and the least rank must come first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.rank.cmp(&self.rank)
    }
}

/// The requests that wait.
#[derive(Clone, Debug)]
pub(super) struct RequestQueue<T> {
    order: ServiceOrder,
    heap: BinaryHeap<WaitingRequest<T>>,
    pool: Vec<WaitingRequest<T>>,
    entered: u64,
    items: u64,
}

impl<T> RequestQueue<T> {
    pub(super) fn new(order: ServiceOrder) -> RequestQueue<T> {
        RequestQueue {
            order,
            heap: BinaryHeap::new(),
            pool: Vec::new(),
            entered: 0,
            items: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len() + self.pool.len()
    }

    /// Items of all waiting requests.
    pub(super) fn items(&self) -> u64 {
        self.items
    }

    pub(super) fn push(&mut self, ask: Ask, work: T, since: Time, forecast: f64, scale: f64) {
        let rank = match self.order {
            ServiceOrder::Deadline => (ask.deadline.0, self.entered),
            ServiceOrder::Arrival | ServiceOrder::Random => (0, self.entered),
        };
        self.entered += 1;
        self.items += u64::from(ask.items);
        let waiting = WaitingRequest {
            ask,
            work,
            since,
            forecast,
            scale,
            rank,
        };
        match self.order {
            ServiceOrder::Random => self.pool.push(waiting),
            ServiceOrder::Arrival | ServiceOrder::Deadline => self.heap.push(waiting),
        }
    }

    /// Removes and returns the next request. `draw` is a random number, for [`ServiceOrder::Random`].
    pub(super) fn pop(&mut self, draw: u64) -> Option<WaitingRequest<T>> {
        let next = match (self.order, self.pool.len() as u64) {
            (ServiceOrder::Random, 0) => None,
            (ServiceOrder::Random, waiting) => Some(self.pool.swap_remove((draw % waiting) as usize)),
            (ServiceOrder::Arrival | ServiceOrder::Deadline, _) => self.heap.pop(),
        }?;
        self.items -= u64::from(next.ask.items);
        Some(next)
    }

    /// The request with the earliest deadline, in `ServiceOrder::Deadline`; otherwise `None`.
    pub(super) fn earliest(&self) -> Option<Ask> {
        match self.order {
            ServiceOrder::Deadline => self.heap.peek().map(|waiting| waiting.ask),
            ServiceOrder::Arrival | ServiceOrder::Random => None,
        }
    }
}
