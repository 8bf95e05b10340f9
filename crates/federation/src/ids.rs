//! Ids, one type per kind of thing.

use std::fmt;

pub use punctual_logs::{FederationId, Revision};
use punctual_units::id;
use serde::{Deserialize, Serialize};

id!(
    /// A node of a federation. The number belongs to the machine for as long as it is a member.
    NodeId(u32)
);
id!(
    /// A start of a node: a new number at every start, unchanged for as long as the process lives.
    Boot(u64)
);
id!(
    /// The term of a master: each takeover begins the next. 0: before the first term.
    Epoch(u64)
);
id!(
    /// A client's session: the order in which the client sees its requests. 0 belongs to clients that have none yet.
    SessionId(u64)
);

/// A node and its process. A master is identified by both, since a restarted node knows nothing of its former term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    pub node: NodeId,
    pub boot: Boot,
}

/// A batch of transactions, named by its master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchId {
    /// The process that made it. The term alone is no name: two nodes may try for the same one.
    pub member: Member,
    /// The term in which it was made; for the record that begins a term, that one.
    pub epoch: Epoch,
    /// Number of the batch among all that the process made, from 1.
    pub number: u64,
}

/// A client's request: its session, and its number in the session. A client never uses a number twice for different
/// work, and sends its transactions in the order of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId {
    pub session: SessionId,
    /// Number of the request within the session, from 1.
    pub number: u64,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.boot)
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.member, self.epoch, self.number)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.session, self.number)
    }
}
