//! What a node tells the process that started it: what an outage is made of, instant by instant.

use punctual_federation::ids::{Epoch, NodeId, Revision};
use punctual_units::Time;
use serde::{Deserialize, Serialize};

/// Something that happened to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// It counts on this master.
    Trusts(NodeId),
    /// It no longer counts on a master.
    Suspects,
    /// It has the whole log, and asks for the reign.
    CaughtUp(Revision),
    /// It is the master.
    Reigns(Epoch),
    /// It no longer is.
    Cedes,
    /// It takes requests.
    Serves,
    /// It is being given the records by others; of this copy, so many bytes have come.
    Copying(u64),
    /// It may be ended: no client waits, and all is on disk.
    Left,
    /// Something that its operator should know.
    Note(String),
}

/// That, and when by the clock that all processes of the machine share (`CLOCK_MONOTONIC`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// When.
    pub at: Time,
    /// What.
    pub what: What,
}
