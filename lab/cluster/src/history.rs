//! Requests of clients and their answers, in the simulation's own time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_federation::entry::Entry;
use punctual_federation::ids::{NodeId, Revision};
use punctual_federation::message::{Answer, Key, Request, Value};
use punctual_store::batch::Image;
use punctual_units::Time;

/// A request of a client, with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// Number of the client.
    pub client: u32,
    /// The node asked; `None`: a front was asked.
    pub node: Option<NodeId>,
    pub request: Request,
    /// When the request was made.
    pub invoked: Time,
    /// Time and content of the answer; `None`: the client stopped waiting, also after a broken connection.
    pub returned: Option<(Time, Answer)>,
}

/// All records of a node at one instant.
#[derive(Clone, Debug)]
pub struct NodeImage {
    pub node: NodeId,
    pub at: Time,
    /// The node's records and revision.
    pub image: Image,
}

/// All data of a run that the check needs.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Every entry that the log ever had, including trimmed ones, from revision 1 on.
    pub log: Vec<Arc<Entry>>,
    /// When each entry was appended.
    pub logged: Vec<Time>,
    /// Every request, in the order in which they were made.
    pub deeds: Vec<Deed>,
    /// Records of nodes, inspected now and then and at the end.
    pub looks: Vec<NodeImage>,
    /// All readings that sensors ever made, by the key of their object.
    pub sampled: BTreeMap<Key, BTreeSet<Value>>,
}

impl History {
    /// The revision of the last entry.
    pub fn last(&self) -> Revision {
        Revision(self.log.len() as u64)
    }

    /// When the entry at `revision` was appended; `Time::MAX` where unknown.
    pub fn logged(&self, revision: Revision) -> Time {
        let number = revision
            .0
            .checked_sub(1)
            .and_then(|number| usize::try_from(number).ok());
        let at = number.and_then(|number| self.logged.get(number));
        at.copied().unwrap_or(Time::MAX)
    }
}

/// Whether a key belongs to a temporal object: clients use other names for records.
pub fn is_sensor(key: &[u8]) -> bool {
    key.starts_with(b"sensor ")
}
