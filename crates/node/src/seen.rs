//! Notices of a node for the process that started it: the phases of an outage, instant by instant.

use punctual_federation::ids::{Epoch, NodeId, Revision};
use punctual_units::Time;
use serde::{Deserialize, Serialize};

/// An event in the life of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The node counts on this master from now on.
    Trusts(NodeId),
    /// The node counts on no master any more.
    Suspects,
    /// The node has the whole log, and asks to become the master.
    CaughtUp(Revision),
    /// The node is the master, in this term.
    Reigns(Epoch),
    /// The node is no longer the master.
    Cedes,
    /// The node takes requests from now on.
    Serves,
    /// Other nodes copy the records to this one; the number of bytes received so far.
    Copying(u64),
    /// The process may be ended: no client waits, and all data is on disk.
    Left,
    /// A message for the operator.
    Note(String),
    /// Real time was refused to the thread of heartbeats; the reason and a remedy.
    Ordinary(String),
}

/// A notice with its time, on the clock that all processes of the machine share (`CLOCK_MONOTONIC`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedNotice {
    /// When the event happened.
    pub at: Time,
    /// The event that happened.
    pub what: What,
}
