//! The memory of all connections, and its limits.

use std::collections::HashMap;

use super::connection::{Connection, REPLIES_PAUSE};

/// Drops a subscriber that leaves more than this many bytes unread: messages come without its asking.
pub const HEARD_MAX: usize = 8 << 20;

/// Limits of the memory of all connections together, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// Limit of requests, replies, watched records and subscriptions. Beyond it, a connection with more than its share
    /// is dropped, and none of its requests begins. Work whose connection has ended may take as much again.
    pub all: usize,
    /// Limit of requests that are read but not begun, beside `short` bytes of each connection: endless input of some
    /// clients does not keep other clients' short requests from being read. Beyond it, a connection with as much is not
    /// read further, and one in the middle of a request is dropped as stalled.
    pub requests: usize,
    /// Limit of unsent replies, beside `short` bytes of each connection: long replies that some clients do not read
    /// keep no other client from short ones. A backend drops a long reply that does not fit. Beyond the limit, a
    /// connection's next request waits until all of its replies are sent.
    pub replies: usize,
    /// The longest requests and replies that count as short.
    pub short: usize,
}

impl MemoryLimits {
    /// No limits: a base for those of a backend.
    pub const NONE: MemoryLimits = MemoryLimits {
        all: usize::MAX,
        requests: usize::MAX,
        replies: usize::MAX,
        short: usize::MAX,
    };
}

/// Bytes of one connection, or of all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByteCounts {
    pub all: usize,
    /// Requests that are read but not begun.
    pub requests: usize,
    /// Replies that the socket has not taken.
    pub replies: usize,
}

/// Memory that all connections take.
pub(super) struct MemoryUse {
    pub limits: MemoryLimits,
    /// Bytes that each connection may have even if all together exceed their limit.
    pub share: usize,
    pub counted: ByteCounts,
    /// Bytes of work whose connection has ended, by the connection's number.
    pub orphans: HashMap<u64, usize>,
}

impl MemoryUse {
    /// Updates the counts of a connection; returns whether it exceeds its share while all together exceed the limit.
    pub fn count(&mut self, connection: &mut Connection) -> bool {
        let now = connection.counts();
        self.counted.moves(connection.counted, now);
        connection.counted = now;
        self.counted.all > self.limits.all && now.all > self.share
    }

    /// Forgets the counts of a connection that ends; if its work goes on (`is_orphan`), that stays counted.
    pub fn ends(&mut self, connection: &Connection, is_orphan: bool) {
        self.counted.moves(connection.counted, ByteCounts::default());
        if is_orphan {
            let (id, bytes) = (connection.session.id, connection.away_bytes);
            self.orphans.insert(id, bytes);
            self.counted.all += bytes;
        }
    }

    /// Forgets the bytes of work that is done, if its connection has ended meanwhile.
    pub fn forget(&mut self, id: u64) {
        self.counted.all -= self.orphans.remove(&id).unwrap_or(0);
    }

    /// Stops reading from a connection, and beginning its requests, while more bytes of its replies are unsent.
    pub fn pause(&self) -> usize {
        if self.counted.replies >= self.limits.replies {
            0
        } else {
            REPLIES_PAUSE
        }
    }

    /// Whether requests of more than `short` bytes are read.
    pub fn has_room_for_requests(&self) -> bool {
        self.counted.requests < self.limits.requests
    }

    /// Bytes of the longest reply that fits.
    pub fn room(&self) -> usize {
        let free = self.limits.replies.saturating_sub(self.counted.replies);
        free.max(self.limits.short)
    }

    /// The most unread bytes of a connection to which messages are delivered.
    pub fn heard_max(&self) -> usize {
        if self.counted.replies > self.limits.replies {
            self.limits.short
        } else {
            HEARD_MAX
        }
    }
}

impl ByteCounts {
    /// Replaces the part `was` of these counts by `now`.
    fn moves(&mut self, was: ByteCounts, now: ByteCounts) {
        self.all = self.all - was.all + now.all;
        self.requests = self.requests - was.requests + now.requests;
        self.replies = self.replies - was.replies + now.replies;
    }
}
