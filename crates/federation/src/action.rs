//! The events that a node gets, and the actions that it returns.

use std::sync::Arc;

use punctual_logs::{AppendResult, LogError, LogState};
use punctual_store::batch::{Image, WriteSet};
use punctual_units::Nanos;

use crate::entry::{Entry, KeyEvent};
use crate::follower::NumberedEntry;
use crate::ids::{BatchId, NodeId, Revision};
use crate::message::{ClientCommand, Heartbeat, Key, Message, Output, Refusal, Reign, Reply, Request, Stop, Value};

/// The number under which an answer is expected.
pub type Ticket = u64;

/// Origin of a request, and destination of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// A client's connection, as the process numbers it.
    Client(u64),
    /// The node that passed the request on.
    Node(NodeId),
}

/// An event of a node.
#[derive(Clone, Debug)]
pub enum Event {
    /// An instant has come, for example [`crate::node::Node::wake_at`].
    Wake,
    /// A client sent a request.
    Request(u64, Request),
    /// A peer sent a message.
    Message(NodeId, Message),
    /// The connection to a peer was reset.
    Reset(NodeId),
    /// The log was opened, again after each connection that broke. Comes before all answers over that connection.
    Opened(LogState),
    /// The log answered, or failed to.
    Log(Ticket, Result<LogAnswer, LogError>),
    /// The log has new entries: in order, but perhaps not all, and perhaps not for the first time.
    Watched(Vec<NumberedEntry>),
    /// A batch was executed. None of its changes is visible yet.
    Executed(BatchId, Vec<Execution>),
    /// The entry at this revision was applied.
    Applied(Revision),
    /// A query was answered from one snapshot.
    Queried(Ticket, Revision, Vec<Option<Value>>),
    /// All entries up to this revision are on disk.
    Synced(Revision),
    /// An image was made for a peer.
    Copied(NodeId, Arc<Image>),
    /// An image was installed. `Reign` is the term that the records name; until all records are here it need not be the
    /// term of that revision.
    Installed(Revision, Reign),
    /// An operator has the node pause: it finishes its requests, and takes no new ones.
    Pause,
    /// An operator has the node resume.
    Resume,
    /// An operator has the node leave: it pauses, and may be ended after [`Action::Left`].
    Leave,
    /// The log has an entry that this node cannot apply.
    Unreadable(Stop),
}

/// A call of the log.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Append `entry` if the log ends at `last`.
    Append {
        /// Revision at which the log must end.
        last: Revision,
        entry: Arc<Entry>,
    },
    /// A linearizable read of entries.
    Read {
        /// Revision before the first entry to read.
        after: Revision,
        /// Most entries to read.
        max: usize,
    },
    /// Remove the oldest entries.
    Trim {
        /// Revision of the last entry to remove.
        upto: Revision,
    },
}

/// An answer of the log.
#[derive(Clone, Debug)]
pub enum LogAnswer {
    Appended(AppendResult),
    /// Answer to a read.
    Read {
        /// The entries, without a gap.
        entries: Vec<NumberedEntry>,
        /// Revision of the log's last entry.
        last: Revision,
    },
    Trimmed,
}

/// Outcome of one request of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Execution {
    /// The request was executed.
    Done {
        /// Result for the client.
        output: Output,
        /// Changes of the request; without any there is nothing to log.
        set: WriteSet,
        /// See [`LoggedTransaction::events`](crate::entry::LoggedTransaction::events).
        events: Vec<KeyEvent>,
    },
    /// The request was undone; the others of the batch were not.
    Refused(Refusal),
    /// The batch was full before: the request was not executed.
    NotRun,
}

/// An action that a node wants carried out. All may be done at once and in any order, except the answers to one caller.
#[derive(Clone, Debug)]
pub enum Action {
    Send(NodeId, Message),
    Reply(u64, Reply),
    /// Send a heartbeat to all connected balancers.
    Tell(Heartbeat),
    /// Call the log; [`Event::Log`] answers.
    Log(Ticket, Ask),
    /// Execute requests one after the other, as the entry at that revision will contain them; [`Event::Executed`]
    /// answers. None of their changes may be visible until the entry is applied.
    Execute(BatchId, Revision, Vec<Request>),
    /// Write the changes of an entry in one commit, its revision included; [`Event::Applied`] answers.
    Apply(Revision, Arc<Entry>),
    /// Read records from one snapshot, and readings of at most that age; [`Event::Queried`] answers.
    Query(Ticket, Vec<Key>, Nanos),
    /// Carry out a command that changes nothing; [`Event::Queried`] answers.
    Look(Ticket, ClientCommand),
    /// Write all applied entries to disk; [`Event::Synced`] answers.
    Sync,
    /// Copy the records behind that key from one snapshot, for a peer: some of them,
    /// [`IMAGE_BYTES_MAX`](crate::copying::IMAGE_BYTES_MAX) or less; [`Event::Copied`] answers.
    Copy(NodeId, Option<Key>),
    /// Replace the records in an image's range by the image; [`Event::Installed`] answers.
    Install(Arc<Image>),
    /// The node has left: no client waits for it, and all that it has applied is on disk. It may be ended.
    Left,
    /// The node has stopped for this reason, which the process must report. It takes no further events.
    Stop(Stop),
}
