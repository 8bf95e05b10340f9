//! Ids, one type per kind of thing.

use std::fmt;

pub use punctual_logs::{FederationId, Revision};
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A node of a federation. The number belongs to the machine for as long as it is a member.
    NodeId(u32)
);
id!(
    /// One start of a node: another number at every start, the same for as long as the process lives.
    Boot(u64)
);
id!(
    /// The reign of one master: each takeover begins the next. 0 is before the first.
    Epoch(u64)
);
id!(
    /// A client's session: what one client sees in order. 0 belongs to clients that have none yet.
    SessionId(u64)
);

/// One node as one process: what a master is, since a node that was started again knows nothing of its former reign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Its start.
    pub boot: Boot,
}

/// A batch of transactions, named by its master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchId {
    /// The process that made it. A reign alone does not name it: two nodes may try for the same one.
    pub member: Member,
    /// The reign in which it was made; for the record that begins a reign, that one.
    pub epoch: Epoch,
    /// Its number among all that the process made, from 1.
    pub number: u64,
}

/// A client's request: its session, and its number in the session. A client never uses one twice for different work,
/// and sends its transactions in the order of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// The session.
    pub session: SessionId,
    /// The number within the session, from 1.
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
