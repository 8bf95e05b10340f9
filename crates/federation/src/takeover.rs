//! How a slave becomes the master.
//!
//! 1. It suspects the master, and waits for as many [`STEP`]s as live nodes should go before it: the one that has
//!    applied the most goes first, because it has the least to catch up.
//! 2. It reads the log to its end (a linearizable read), and applies it.
//! 3. It appends the record of a new reign where it believes the end to be. If the log has moved, it goes back to 2.
//! 4. Once its record is applied, it is the master.
//!
//! The old master's next append fails, since the log has moved past what it knows. None of this reads a clock but 1,
//! and 1 is about when to begin, not about what is safe.

use std::sync::Arc;

use punctual_units::{Nanos, Time};

use crate::entry::{Body, Entry};
use crate::follower::Follower;
use crate::ids::{BatchId, Epoch, Member, Revision};
use crate::liveness::SUSPECT_AFTER;

/// The head start of each node over the next: time enough for a read, an append, and a heartbeat that tells.
pub const STEP: Nanos = Nanos::from_millis(30);

/// Since when a node has been without a master that it can count on.
#[derive(Clone, Copy, Debug)]
pub struct Suspicion {
    started: Time,
    since: Option<Time>,
}

impl Suspicion {
    /// A node that started now: it listens for a while before it suspects any.
    pub fn new(started: Time) -> Suspicion {
        Suspicion { started, since: None }
    }

    /// Takes note of whether the master is there.
    pub fn observe(&mut self, trusted: bool, now: Time) {
        match trusted {
            true => self.since = None,
            false => _ = self.since.get_or_insert(now),
        }
    }

    /// When a node before which `rank` others should go may take over; never, while the master is there.
    pub fn due(&self, rank: u64) -> Time {
        let listened = self.started + SUSPECT_AFTER;
        self.since.map_or(Time::MAX, |since| since.max(listened) + STEP * rank)
    }
}

/// A takeover under way.
#[derive(Clone, Debug)]
pub struct Takeover {
    /// The log must be read, to learn where it ends or what became of the record.
    read_first: bool,
    /// The record of the new reign, and the end of the log that it was made for.
    record: Option<(Revision, Arc<Entry>)>,
}

impl Default for Takeover {
    fn default() -> Takeover {
        Takeover {
            read_first: true,
            record: None,
        }
    }
}

impl Takeover {
    /// Whether the log must be read before anything else.
    pub fn reads(&self) -> bool {
        self.read_first
    }

    /// The log was read to its end, as far as the follower knows.
    pub fn read(&mut self) {
        self.read_first = false;
    }

    /// The record was not appended, or no answer came: the log tells.
    pub fn unresolved(&mut self) {
        self.read_first = true;
    }

    /// The record that was to be appended.
    pub fn record(&self) -> Option<&(Revision, Arc<Entry>)> {
        self.record.as_ref()
    }

    /// The record to append now, and the end of the log that it is for; `None` while there is something to read or
    /// apply first. As long as the log does not move, it is the same record.
    pub fn append(
        &mut self,
        follower: &Follower,
        member: Member,
        next: Epoch,
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
            let entry = Arc::new(Entry { id, body: Body::Reign });
            self.record = Some((last, entry));
        }
        self.record.clone()
    }
}
