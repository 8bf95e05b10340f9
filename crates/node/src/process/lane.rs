//! Requests that wait for a state machine's turn.
//!
//! **Problem.** The event loop of a node or a balancer that is busy finds hundreds of requests each time it looks.
//! Carried out all at once, they keep readings, heartbeats and answers waiting that come meanwhile.
//!
//! **Method.** The loop carries out all other events first, then at most [`TURN_MAX`] requests before it looks again.
//! Readings do not wait here. The time for which a request waits is subtracted from its time left.

use std::collections::VecDeque;

use punctual_federation::message::Request;
use punctual_units::Time;

/// The most requests that are carried out before the loop looks for other work again.
pub(super) const TURN_MAX: usize = 64;

/// Requests in the order of their arrival, each with its ticket. A client has one at a time, and balancers have bounds
/// of their own.
#[derive(Default)]
pub(super) struct RequestLane(VecDeque<(Time, u64, Request)>);

impl RequestLane {
    /// Adds a request whose time left counts from `now`.
    pub fn push(&mut self, ticket: u64, request: Request, now: Time) {
        self.0.push_back((now, ticket, request));
    }

    /// Takes the next request, with the time that it has left at `now`.
    pub fn next(&mut self, now: Time) -> Option<(u64, Request)> {
        let (since, ticket, mut request) = self.0.pop_front()?;
        request.time_left = request.time_left - now.since(since);
        Some((ticket, request))
    }

    /// Whether the loop may wait for events, as far as this lane is concerned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use punctual_federation::ids::{RequestId, Revision};
    use punctual_federation::message::Work;
    use punctual_units::Nanos;

    use super::*;

    #[test]
    fn waiting_is_taken_off_what_is_left() {
        let mut lane = RequestLane::default();
        for ticket in 1..=3 {
            let request = Request {
                id: RequestId::default(),
                work: Work::Open,
                time_left: Nanos::from_millis(ticket),
                seen: Revision::ZERO,
            };
            lane.push(ticket, request, Time(0));
        }
        let left = |lane: &mut RequestLane, now| lane.next(now).map(|(ticket, request)| (ticket, request.time_left));
        assert_eq!(left(&mut lane, Time(0)), Some((1, Nanos::from_millis(1))));
        assert_eq!(left(&mut lane, Time(500_000)), Some((2, Nanos::from_micros(1500))));
        assert!(!lane.is_empty());
        assert_eq!(
            left(&mut lane, Time(4_000_000)),
            Some((3, Nanos::ZERO)),
            "and none has less"
        );
        assert!(lane.is_empty() && lane.next(Time(0)).is_none());
    }
}
