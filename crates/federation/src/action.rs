//! What a node is told, and what it wants done.

use std::sync::Arc;

use punctual_logs::{Appended, LogError};
use punctual_store::batch::{Image, WriteSet};
use punctual_units::Nanos;

use crate::entry::Entry;
use crate::follower::Placed;
use crate::ids::{BatchId, NodeId, Revision};
use crate::message::{Command, Heartbeat, Key, Message, Output, Refusal, Reign, Reply, Request, Stop, Value};

/// The caller's name for something that it wants answered.
pub type Ticket = u64;

/// Where a request came from, and where its answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// A client's connection, as the shell numbers it.
    Client(u64),
    /// A node that passed it on.
    Node(NodeId),
}

/// Something that happened to a node.
#[derive(Clone, Debug)]
pub enum Event {
    /// An instant has come, [`crate::node::Node::wake_at`] for example.
    Wake,
    /// A client sent a request.
    Request(u64, Request),
    /// A peer sent a message.
    Message(NodeId, Message),
    /// The connection to a peer was reset.
    Reset(NodeId),
    /// The log answered.
    Log(Ticket, Result<LogAnswer, LogError>),
    /// The log has new entries: in order, but perhaps not all, and perhaps not for the first time.
    Watched(Vec<Placed>),
    /// A batch was executed. Nothing of it is to be seen yet.
    Executed(BatchId, Vec<Performed>),
    /// An entry was applied.
    Applied(Revision),
    /// A query was answered from one snapshot.
    Queried(Ticket, Revision, Vec<Option<Value>>),
    /// What was applied up to here is on disk.
    Synced(Revision),
    /// A copy was made for a peer.
    Copied(NodeId, Arc<Image>),
    /// An image is installed. Which reign the records tell of: it need not be that of the revision before all of them
    /// are here.
    Installed(Revision, Reign),
    /// An operator has it pause: it finishes what it has, and takes nothing new.
    Pause,
    /// An operator has it go on.
    Resume,
    /// An operator has it leave: it pauses, and may be ended after [`Action::Left`].
    Leave,
    /// The log has an entry that this node must not take for its own.
    Unreadable(Stop),
}

/// What a log was asked.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Append if the log ends at `last`.
    Append {
        /// Where it is to end.
        last: Revision,
        /// The entry.
        entry: Arc<Entry>,
    },
    /// A linearizable read.
    Read {
        /// Of the entries after this revision.
        after: Revision,
        /// At most so many.
        max: usize,
    },
    /// Trim up to here.
    Trim {
        /// The last revision to go.
        upto: Revision,
    },
}

/// What a log answered.
#[derive(Clone, Debug)]
pub enum LogAnswer {
    /// To an append.
    Appended(Appended),
    /// To a read.
    Read {
        /// The entries, without a gap.
        entries: Vec<Placed>,
        /// The log's last revision.
        last: Revision,
    },
    /// To a trim.
    Trimmed,
}

/// What became of one request of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Performed {
    /// It was executed.
    Done {
        /// What it returns.
        output: Output,
        /// What it did; without changes there is nothing to log.
        set: WriteSet,
    },
    /// It was undone, alone.
    Refused(Refusal),
    /// The batch was full before: it was not executed.
    NotRun,
}

/// Something that a node wants done. All of it may be done at once and in any order, but for the answers of one caller.
#[derive(Clone, Debug)]
pub enum Action {
    /// Send a message to a peer.
    Send(NodeId, Message),
    /// Answer a client.
    Reply(u64, Reply),
    /// Tell all balancers that are connected.
    Tell(Heartbeat),
    /// Ask the log; [`Event::Log`] answers.
    Log(Ticket, Ask),
    /// Execute requests one after the other, as the entry at the revision will have them; [`Event::Executed`] answers.
    /// Nothing may be to be seen of it until the entry is applied.
    Execute(BatchId, Revision, Vec<Request>),
    /// Write what an entry says in one commit, its revision inside; [`Event::Applied`] answers.
    Apply(Revision, Arc<Entry>),
    /// Read records from one snapshot, and readings that are at most so old; [`Event::Queried`] answers.
    Query(Ticket, Vec<Key>, Nanos),
    /// Carry out a command that changes nothing; [`Event::Queried`] answers.
    Look(Ticket, Command),
    /// Write what was applied to disk; [`Event::Synced`] answers.
    Sync,
    /// Copy the records behind that key from one snapshot, for a peer: some of them,
    /// [`IMAGE_BYTES_MAX`](crate::copying::IMAGE_BYTES_MAX) or less; [`Event::Copied`] answers.
    Copy(NodeId, Option<Key>),
    /// Put an image in the place of the records that it is about; [`Event::Installed`] answers.
    Install(Arc<Image>),
    /// The node has left: no client waits for it, and what it has applied is on disk. It may be ended.
    Left,
    /// The node has stopped: tell why. It does nothing any more.
    Stop(Stop),
}
