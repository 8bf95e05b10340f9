//! Messages that wait to be sent to one peer.
//!
//! A heartbeat replaces the one that waits before it, because an old heartbeat is of no use. Other messages are kept in
//! their order, up to a bound; messages beyond it are dropped and counted, as a network may drop them.

use std::collections::VecDeque;

use punctual_federation::message::Message;
use punctual_units::Time;

/// The most messages that wait for a peer, beside the heartbeat.
pub const WAITING_MAX: usize = 1024;

/// Messages that wait for one peer.
#[derive(Debug, Default)]
pub struct Outgoing {
    heartbeat: Option<Message>,
    waiting: VecDeque<(Message, Time)>,
    superseded: u64,
    dropped: u64,
}

impl Outgoing {
    /// Queues a message, or drops it if the queue is full.
    pub fn push(&mut self, message: Message, now: Time) {
        match message {
            Message::Heartbeat(_) => self.superseded += u64::from(self.heartbeat.replace(message).is_some()),
            message if self.waiting.len() < WAITING_MAX => self.waiting.push_back((message, now)),
            _ => self.dropped += 1,
        }
    }

    /// Returns the next message to send, heartbeats first. Messages without time left are dropped.
    pub fn pop(&mut self, now: Time) -> Option<Message> {
        if let Some(heartbeat) = self.heartbeat.take() {
            return Some(heartbeat);
        }
        while let Some((message, since)) = self.waiting.pop_front() {
            match crate::wire::shortened(message, now.since(since)) {
                None => self.dropped += 1,
                sent => return sent,
            }
        }
        None
    }

    /// Drops all messages that wait, because the connection to the peer has ended.
    pub fn clear(&mut self) {
        self.dropped += self.waiting.len() as u64;
        self.heartbeat = None;
        self.waiting.clear();
    }

    /// Numbers of heartbeats replaced by later ones, and of messages dropped.
    pub fn lost(&self) -> (u64, u64) {
        (self.superseded, self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use punctual_federation::ids::{Epoch, Member, RequestId, Revision};
    use punctual_federation::message::{Heartbeat, Report, Request, Work};
    use punctual_units::Nanos;

    use super::*;

    fn beat(applied: u64) -> Message {
        Message::Heartbeat(Heartbeat {
            from: Member::default(),
            epoch: Epoch(1),
            master: false,
            applied: Revision(applied),
            durable: Revision(0),
            said: Report::default(),
        })
    }

    fn passed(time_left: Nanos) -> Message {
        Message::PassedOn(Request {
            id: RequestId::default(),
            work: Work::Open,
            time_left,
            seen: Revision(0),
        })
    }

    #[test]
    fn the_newest_heartbeat_goes_first_and_alone() {
        let mut out = Outgoing::default();
        out.push(Message::NameTaken(Member::default()), Time(0));
        out.push(beat(1), Time(0));
        out.push(beat(2), Time(0));
        assert_eq!(out.pop(Time(9)), Some(beat(2)));
        assert_eq!(out.pop(Time(9)), Some(Message::NameTaken(Member::default())));
        assert_eq!(out.pop(Time(9)), None);
        assert_eq!(out.lost(), (1, 0));
    }

    #[test]
    fn time_that_was_waited_is_not_left() {
        let mut out = Outgoing::default();
        let ms = Nanos::from_millis;
        out.push(passed(ms(10)), Time(0));
        out.push(passed(ms(30)), Time(0));
        assert_eq!(out.pop(Time::ZERO + ms(10)), Some(passed(ms(20))));
        assert_eq!(out.lost(), (0, 1));
    }

    #[test]
    fn what_comes_on_top_of_the_bound_is_dropped_and_counted() {
        let mut out = Outgoing::default();
        for _ in 0..WAITING_MAX + 5 {
            out.push(Message::NameTaken(Member::default()), Time(0));
        }
        out.push(beat(1), Time(0));
        assert_eq!(out.lost(), (0, 5));
        assert_eq!(out.pop(Time(0)), Some(beat(1)), "a heartbeat has its own place");
    }
}
