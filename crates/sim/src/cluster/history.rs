//! What clients did and were told, in the simulation's own time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_federation::entry::Entry;
use punctual_federation::ids::{NodeId, Revision};
use punctual_federation::message::{Answer, Key, Request, Value};
use punctual_store::batch::Image;
use punctual_units::Time;

/// One request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// The client.
    pub client: u32,
    /// The node that it asked; `None`: it asked a front.
    pub node: Option<NodeId>,
    /// What it asked.
    pub request: Request,
    /// When.
    pub invoked: Time,
    /// When the answer came, and which; `None`: the client gave up, as it does where a connection breaks.
    pub returned: Option<(Time, Answer)>,
}

/// All records of a node at one instant.
#[derive(Clone, Debug)]
pub struct Look {
    /// The node.
    pub node: NodeId,
    /// When.
    pub at: Time,
    /// Its records.
    pub image: Image,
}

/// All that a run leaves behind for its check.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Every entry that the log ever had, trimmed ones included, from revision 1 on.
    pub log: Vec<Arc<Entry>>,
    /// When each of them was appended.
    pub logged: Vec<Time>,
    /// Every request, in the order in which they were made.
    pub deeds: Vec<Deed>,
    /// Records of nodes now and then, and at the end.
    pub looks: Vec<Look>,
    /// All that sensors ever said, by the key of their object.
    pub sampled: BTreeMap<Key, BTreeSet<Value>>,
}

impl History {
    /// The revision of the last entry.
    pub fn last(&self) -> Revision {
        Revision(self.log.len() as u64)
    }

    /// When the entry at `revision` was appended; the end of time where that is not known.
    pub fn logged(&self, revision: Revision) -> Time {
        let number = revision
            .0
            .checked_sub(1)
            .and_then(|number| usize::try_from(number).ok());
        let at = number.and_then(|number| self.logged.get(number));
        at.copied().unwrap_or(Time::MAX)
    }
}

/// Whether a key is that of a temporal object: clients name records otherwise.
pub fn is_sensor(key: &[u8]) -> bool {
    key.starts_with(b"sensor ")
}
