//! A node's calls of the log: one at a time, with a bound on the wait for its answer.

use punctual_logs::LogError;
use punctual_units::{Nanos, Time};

use crate::action::{Action, Ask, LogAnswer, Ticket};
use crate::liveness::Excuse;
use crate::outbox::Outbox;

/// Wait after which an answer of the log is treated as lost: 100 times the time of an append.
pub const ANSWER_MAX: Nanos = Nanos::from_millis(100);
/// Wait before the next call if the log failed at once, without an answer.
pub const ASK_AGAIN: Nanos = Nanos::from_millis(5);

/// The open call of the log, if any, and the next one.
#[derive(Clone, Debug, Default)]
pub struct LogCalls {
    tickets: Ticket,
    asked: Option<(Ticket, Time)>,
    later: Option<(Time, Ask)>,
    /// No call is made before this instant.
    rests_until: Option<Time>,
    /// Instant of the first of the calls since the last end of a silence.
    silent_since: Option<Time>,
    excuse: Excuse,
    /// Whether the medium of the log was full at the last append.
    is_full: bool,
}

impl LogCalls {
    /// A ticket that was not used before.
    pub fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        self.tickets
    }

    /// Calls the log. An answer to an earlier call will be ignored.
    pub fn ask(&mut self, ask: Ask, now: Time, out: &mut Outbox) {
        let ticket = self.ticket();
        self.asked = Some((ticket, now));
        self.later = None;
        if self.silent_since.is_none() {
            (self.silent_since, self.excuse) = (Some(now), Excuse::default());
        }
        out.push(Action::Log(ticket, ask));
    }

    /// Calls the log after `ASK_AGAIN`.
    pub fn ask_later(&mut self, ask: Ask, now: Time) {
        self.asked = None;
        self.later = Some((now + ASK_AGAIN, ask));
    }

    /// Makes no call for `ASK_AGAIN`: the log failed at once, and would do so again.
    pub fn rest(&mut self, now: Time) {
        self.rests_until = Some(now + ASK_AGAIN);
    }

    /// Forgets all calls: their answers no longer matter.
    pub fn forget(&mut self) {
        self.asked = None;
        self.later = None;
        self.rests_until = None;
        self.silent_since = None;
        self.is_full = false;
    }

    /// Whether no call is open, and one may be made.
    pub fn idle(&self) -> bool {
        self.asked.is_none() && self.later.is_none() && self.rests_until.is_none()
    }

    /// Takes an answer; returns whether `ticket` is that of the open call, which is then closed. That ends a silence,
    /// but not one that heartbeats report (`is_reported`), unless only room is missing: a read alone commits nothing.
    pub fn answered(&mut self, ticket: Ticket, answer: &Result<LogAnswer, LogError>, is_reported: bool) -> bool {
        match answer {
            Err(LogError::NoRoom) => self.is_full = true,
            Ok(LogAnswer::Appended(_)) => self.is_full = false,
            _ => {}
        }
        let is_open = self.asked.take_if(|(asked, _)| *asked == ticket).is_some();
        let ends_silence = match answer {
            Err(LogError::NoAnswer) => false,
            Err(LogError::NoRoom) => true,
            _ => !is_reported,
        };
        self.silent_since.take_if(|_| is_open && ends_silence);
        is_open
    }

    /// Ends a silence if no call followed the answer: a master asks on until its batch is decided.
    pub fn settle(&mut self) {
        if self.idle() {
            self.silent_since = None;
        }
    }

    /// Does not count `span`, for which this node itself did not run, as silence of the log.
    pub fn excuse(&mut self, span: Nanos) {
        self.excuse.add(span);
    }

    /// Whether the medium of the log was full at the last append of this node.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// How long the log has been called without an answer that ends its silence.
    pub fn silent_for(&self, now: Time) -> Nanos {
        self.silent_since
            .map_or(Nanos::ZERO, |since| now.since(since + self.excuse.0))
    }

    /// Makes the postponed call if it is due; returns true if the open call has waited too long, and closes that.
    pub fn wake(&mut self, now: Time, out: &mut Outbox) -> bool {
        self.rests_until.take_if(|until| *until <= now);
        if let Some((_, ask)) = self.later.take_if(|(at, _)| *at <= now) {
            self.ask(ask, now, out);
        }
        self.asked
            .take_if(|(_, asked)| now.since(*asked) >= ANSWER_MAX)
            .is_some()
    }

    /// The next instant at which [`wake`](LogCalls::wake) has something to do.
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
