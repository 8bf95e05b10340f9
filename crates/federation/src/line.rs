//! A node's line to the log: one question at a time, with a bound on the wait for its answer.

use punctual_units::{Nanos, Time};

use crate::action::{Action, Ask, Ticket};
use crate::outbox::Outbox;

/// How long a node waits for an answer of the log before it takes it for lost: 100 times what an append takes.
pub const ANSWER_MAX: Nanos = Nanos::from_millis(100);
/// How long a node waits before it asks again where the log said at once that it has no answer.
pub const ASK_AGAIN: Nanos = Nanos::from_millis(5);

/// The line.
#[derive(Clone, Debug, Default)]
pub struct Line {
    tickets: Ticket,
    asked: Option<(Ticket, Time)>,
    later: Option<(Time, Ask)>,
    /// Until when nothing is to be asked.
    rests_until: Option<Time>,
    /// Since when it has asked without an answer.
    silent_since: Option<Time>,
}

impl Line {
    /// A name that was not used before.
    pub fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        self.tickets
    }

    /// Asks the log. An answer to an earlier question will be ignored.
    pub fn ask(&mut self, ask: Ask, now: Time, out: &mut Outbox) {
        let ticket = self.ticket();
        self.asked = Some((ticket, now));
        self.later = None;
        self.silent_since.get_or_insert(now);
        out.push(Action::Log(ticket, ask));
    }

    /// Asks the log in a while.
    pub fn ask_later(&mut self, ask: Ask, now: Time) {
        self.asked = None;
        self.later = Some((now + ASK_AGAIN, ask));
    }

    /// Asks nothing for a while: the log said at once that it has no answer, and would say so again.
    pub fn rest(&mut self, now: Time) {
        self.rests_until = Some(now + ASK_AGAIN);
    }

    /// Forgets all questions: their answers no longer matter.
    pub fn forget(&mut self) {
        self.asked = None;
        self.later = None;
        self.rests_until = None;
        self.silent_since = None;
    }

    /// Whether no question is open, and one may be asked.
    pub fn idle(&self) -> bool {
        self.asked.is_none() && self.later.is_none() && self.rests_until.is_none()
    }

    /// Whether this is the answer to the open question, which is then closed.
    pub fn answered(&mut self, ticket: Ticket) -> bool {
        self.asked.take_if(|(asked, _)| *asked == ticket).is_some()
    }

    /// The log has said something.
    pub fn heard(&mut self) {
        self.silent_since = None;
    }

    /// For how long the log has been asked without an answer.
    pub fn silent_for(&self, now: Time) -> Nanos {
        self.silent_since.map_or(Nanos::ZERO, |since| now.since(since))
    }

    /// Asks what was to be asked by now; true if the open question has waited too long, and is closed.
    pub fn wake(&mut self, now: Time, out: &mut Outbox) -> bool {
        self.rests_until.take_if(|until| *until <= now);
        if let Some((_, ask)) = self.later.take_if(|(at, _)| *at <= now) {
            self.ask(ask, now, out);
        }
        self.asked
            .take_if(|(_, asked)| now.since(*asked) >= ANSWER_MAX)
            .is_some()
    }

    /// When [`wake`](Line::wake) has something to do.
    pub fn next_due(&self) -> Time {
        let asked = self.asked.map(|(_, asked)| asked + ANSWER_MAX);
        let later = self.later.as_ref().map(|(at, _)| *at);
        asked
            .into_iter()
            .chain(later)
            .chain(self.rests_until)
            .min()
            .unwrap_or(Time::MAX)
    }
}
