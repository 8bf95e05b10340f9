//! The steps by which a replica becomes the master.
//!
//! 1. It suspects the master, and waits one [`STEP`] for each live node that should go before it: the one that has
//!    applied the most goes first, because it has the least to catch up.
//! 2. It reads the log to its end (a linearizable read), and applies it. If the master is alive, and only says that the
//!    log does not answer it, the node listens to it for [`LISTEN`] more: a log that was stalled, as by its disk,
//!    answers both at once, and the master goes on. If the log falls silent again, it begins anew.
//! 3. It appends the record of a new term where it believes the end to be. If the log has moved, it goes back to 2.
//! 4. Once its record is applied, it is the master.
//!
//! The old master's next append fails, since the log has moved past the end that it knows. Steps 1 and 2 alone read
//! a clock: they decide when to go on, not what is safe.

use std::sync::Arc;

use punctual_logs::HistoryId;
use punctual_units::{Nanos, Time};

use crate::entry::{Body, Entry};
use crate::follower::Follower;
use crate::ids::{BatchId, Epoch, Member, Revision};
use crate::line::ANSWER_MAX;
use crate::liveness::{Excuse, HEARTBEAT, SUSPECT_AFTER};

/// Head start of each node over the next: time enough for a read, an append, and a heartbeat.
pub const STEP: Nanos = Nanos::from_millis(30);

/// Time from the log's answer in which a master that the log answers as well asks it again, and says so: the wait for
/// a call that was lost, and two heartbeats for the calls after it and for the message.
pub const LISTEN: Nanos = Nanos(ANSWER_MAX.0 + HEARTBEAT.0 * 2);

/// How long a node has been without a live master.
#[derive(Clone, Copy, Debug)]
pub struct Suspicion {
    started: Time,
    since: Option<Time>,
}

impl Suspicion {
    /// The state of a node that starts now: it listens for `SUSPECT_AFTER` before it suspects a master.
    pub fn new(started: Time) -> Suspicion {
        Suspicion { started, since: None }
    }

    /// Notes whether the master is alive.
    pub fn observe(&mut self, trusted: bool, now: Time) {
        match trusted {
            true => self.since = None,
            false => _ = self.since.get_or_insert(now),
        }
    }

    /// The instant at which a node may take over if `rank` others should go before it; `Time::MAX` while the master
    /// is alive.
    pub fn due(&self, rank: u64) -> Time {
        let listened = self.started + SUSPECT_AFTER;
        self.since.map_or(Time::MAX, |since| since.max(listened) + STEP * rank)
    }
}

/// A takeover under way.
#[derive(Clone, Debug)]
pub struct Takeover {
    /// Whether the log must be read, to learn where it ends or whether it has the record.
    read_first: bool,
    /// When the log answered first since it was silent, and the time since in which this node did not run.
    read_at: Option<(Time, Excuse)>,
    /// The record of the new term, and the end of the log that it was made for.
    record: Option<(Revision, Arc<Entry>)>,
}

impl Default for Takeover {
    fn default() -> Takeover {
        Takeover {
            read_first: true,
            read_at: None,
            record: None,
        }
    }
}

impl Takeover {
    /// Whether the log must be read before anything else.
    pub fn reads(&self) -> bool {
        self.read_first
    }

    /// Notes that the log was read to its end, as far as the follower knows.
    pub fn read(&mut self, now: Time) {
        self.read_first = false;
        self.read_at.get_or_insert((now, Excuse::default()));
    }

    /// The instant from which on a master that the log answers as well would have said so; `Time::MAX` while the log is
    /// silent.
    pub fn listens_until(&self) -> Time {
        self.read_at.map_or(Time::MAX, |(at, excuse)| at + excuse.0 + LISTEN)
    }

    /// Does not count `span`, for which this node itself did not run, as time of listening.
    pub fn excuse(&mut self, span: Nanos) {
        if let Some((_, excuse)) = &mut self.read_at {
            excuse.add(span);
        }
    }

    /// Notes that the record was not appended, or that no answer came (`is_silent`): the log must be read.
    pub fn unresolved(&mut self, is_silent: bool) {
        self.read_first = true;
        self.read_at.take_if(|_| is_silent);
    }

    /// The record that was to be appended, and its revision's predecessor.
    pub fn record(&self) -> Option<&(Revision, Arc<Entry>)> {
        self.record.as_ref()
    }

    /// The record to append now, and the end of the log that it is for; `None` while entries must be read or applied
    /// first. As long as the log does not move, it is the same record.
    pub fn append(
        &mut self,
        follower: &Follower,
        member: Member,
        (next, history): (Epoch, HistoryId),
        names: &mut u64,
    ) -> Option<(Revision, Arc<Entry>)> {
        let last = follower.applied();
        if self.read_first || follower.busy() || follower.end() > last {
            return None;
        }
        if self.record.as_ref().is_none_or(|(end, _)| *end != last) {
            *names += 1;
            let id = BatchId {
                member,
                epoch: next,
                number: *names,
            };
            let entry = Arc::new(Entry {
                id,
                body: Body::Reign(history),
            });
            self.record = Some((last, entry));
        }
        self.record.clone()
    }
}
