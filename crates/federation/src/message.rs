//! Requests of clients, answers of nodes, and messages between nodes.

use std::fmt;
use std::sync::Arc;

use punctual_logs::HistoryId;
use punctual_store::batch::Image;
use punctual_store::temporal::Creation;
use punctual_units::{Nanos, Time};
use serde::{Deserialize, Serialize};

use crate::admission::BacklogReport;
pub use crate::admission::Reason;
use crate::ids::{Epoch, Member, NodeId, RequestId, Revision, SessionId};

/// The longest key of a client's record in bytes. An engine allows 511; the first of them may be used by the
/// federation.
pub const KEY_BYTES_MAX: usize = 500;
/// The longest value in bytes: several fit into one entry of the log.
pub const VALUE_BYTES_MAX: usize = 128 << 10;
/// Most bytes that a transaction reads: they travel in one message between processes.
pub const FOUND_BYTES_MAX: usize = 16 << 20;
/// Most bytes that the transactions of a batch read together: the master holds them until the log has the batch.
pub const BATCH_FOUND_BYTES_MAX: usize = 2 * FOUND_BYTES_MAX;
/// The longest reading of a temporal object in bytes: each node reserves this much for each object from the start.
pub const READING_BYTES_MAX: usize = 4096;
/// Most operations of a transaction, and keys of a query.
pub const OPERATIONS_MAX: usize = 128;
/// The longest time that a client may give a request. A longer one would not be about an answer in time, and an
/// unlimited one would stay in every queue without limit.
pub const TIME_LEFT_MAX: Nanos = Nanos::from_secs(3600);

/// The first byte of keys that belong to the federation itself ([`crate::records`]).
pub const RESERVED: u8 = 0;

pub type Key = Vec<u8>;
pub type Value = Vec<u8>;

/// A step of a transaction. Reads see the writes of earlier steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Read the value of a record.
    Get(Key),
    /// Set the value of a record.
    Put(Key, Value),
    /// Add to the end of a record.
    Append(Key, Value),
    /// Remove a record, if it exists.
    Delete(Key),
    /// Add to the whole number in a record, in decimal; 0 if there is no record. The sum counts as read.
    Add(Key, i64),
    /// Continue only if the record has this value (`None`: no record), otherwise undo the transaction.
    Expect(Key, Option<Value>),
    /// Read a temporal object. A reading that may be older than this, or than its validity, counts as none.
    Fresh(Key, Nanos),
    /// Set a record to the reading of a temporal object, and undo the transaction if that may be older than `max_age`.
    Save {
        object: Key,
        /// Greatest age of the reading.
        max_age: Nanos,
        record: Key,
    },
    /// Create a temporal object; its readings come from the node named as its source.
    Create(Creation),
    /// Carry out a command; its reply is read.
    Run(ClientCommand),
}

/// A client's command, and what the state machines need to know of it: how much it reads, and whether it changes
/// records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCommand {
    /// Name of the command, then its arguments.
    pub words: Vec<Value>,
    /// Estimated number of records that it reads, at least 1.
    pub items: u32,
    /// Whether it may change records.
    pub writes: bool,
    /// Version of the client's protocol for the reply.
    pub version: u8,
}

impl ClientCommand {
    /// The first key; empty if the command has none.
    fn key(&self) -> &Key {
        static NONE: Key = Key::new();
        self.words.get(1).unwrap_or(&NONE)
    }

    fn check(&self) -> Result<(), Refusal> {
        let longest = self.words.iter().map(Vec::len).max();
        match longest.unwrap_or_default() {
            len if len > VALUE_BYTES_MAX => Err(Refusal::ValueTooLong { len }),
            _ => Ok(()),
        }
    }
}

impl Operation {
    /// The key of the record concerned.
    pub fn key(&self) -> &Key {
        match self {
            Operation::Get(key)
            | Operation::Put(key, _)
            | Operation::Append(key, _)
            | Operation::Delete(key)
            | Operation::Add(key, _)
            | Operation::Expect(key, _)
            | Operation::Fresh(key, _)
            | Operation::Save { record: key, .. } => key,
            Operation::Create(creation) => &creation.spec.key,
            Operation::Run(command) => command.key(),
        }
    }

    /// Whether the operation changes records.
    pub fn writes(&self) -> bool {
        match self {
            Operation::Get(_) | Operation::Expect(..) | Operation::Fresh(..) => false,
            Operation::Run(command) => command.writes,
            _ => true,
        }
    }

    /// Bytes of the value that it carries.
    fn value_len(&self) -> usize {
        match self {
            Operation::Put(_, value) | Operation::Append(_, value) | Operation::Expect(_, Some(value)) => value.len(),
            _ => 0,
        }
    }
}

/// The work that a client requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Begin a new session.
    Open,
    /// Execute all of these operations or none.
    Transaction(Vec<Operation>),
    /// Read records from one snapshot: of any prefix of the log that is long enough for the session, or of all of it.
    Query {
        /// Keys of records and temporal objects.
        keys: Vec<Key>,
        /// Whether the query must see everything that was acknowledged before it was sent.
        latest: bool,
        /// Greatest age of the reading of a temporal object; an older one counts as none, as does one that is no longer
        /// valid.
        max_age: Nanos,
    },
    /// Carry out a command that changes nothing, on a snapshot of any prefix of the log that is long enough for the
    /// session.
    Look(ClientCommand),
    /// Remove the expired records.
    Sweep,
    /// Decide the final outcome of an earlier transaction: if it was not executed by now, it never will be.
    Outcome(RequestId),
    /// Return the reading of a temporal object from the memory of the node that gets the request, whatever its
    /// revision.
    Fresh(Key),
    /// Set a temporal object; the node that gets the request is its source from then on.
    Sample(ClientReading),
}

/// A reading that a client sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReading {
    pub key: Key,
    pub value: Value,
    /// Age of the reading when the request was sent.
    pub age: Nanos,
    /// An instant of the clock of the node that gets the request, known to the sender before ([`Report::at`]); `None`
    /// if the sender is the node itself. The transport took no longer than the time since that instant.
    pub since: Option<Time>,
}

impl Work {
    /// Whether only the master can do the work.
    pub fn for_master(&self) -> bool {
        !matches!(self, Work::Query { latest: false, .. } | Work::Look(_)) && !self.is_of_memory()
    }

    /// Whether it is a query.
    pub fn is_query(&self) -> bool {
        matches!(self, Work::Query { .. } | Work::Look(_))
    }

    /// Whether the work leaves no effect once it was executed.
    pub fn leaves_nothing(&self) -> bool {
        self.is_query() || matches!(self, Work::Fresh(_))
    }

    /// The keys that a query reads, as far as they are known before; the first one of a command.
    pub fn keys(&self) -> &[Key] {
        match self {
            Work::Query { keys, .. } => keys,
            Work::Look(command) => std::slice::from_ref(command.key()),
            _ => &[],
        }
    }

    /// Estimated number of records that a query reads, at least 1: a query of no records costs something, too.
    pub fn items(&self) -> u32 {
        match self {
            Work::Look(command) => command.items,
            work => (work.keys().len() as u32).max(1),
        }
    }

    /// Whether a node answers from its memory: readings of temporal objects, which are no part of the serial order.
    pub fn is_of_memory(&self) -> bool {
        matches!(self, Work::Fresh(_) | Work::Sample(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub id: RequestId,
    pub work: Work,
    /// Time until the deadline, from the request's arrival on: a duration travels, because instants of two machines do
    /// not compare.
    pub time_left: Nanos,
    /// The last revision that the session has seen: the answer must not lie before it.
    pub seen: Revision,
}

impl Request {
    /// Checks the bounds that every node enforces.
    ///
    /// # Errors
    /// Description of the fault; the request was not executed.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.time_left > TIME_LEFT_MAX {
            return Err(Refusal::TimeTooLong { asked: self.time_left });
        }
        match &self.work {
            Work::Open | Work::Outcome(_) | Work::Sweep => Ok(()),
            Work::Look(command) => command.check(),
            Work::Fresh(key) | Work::Sample(ClientReading { key, .. }) => check_key(key),
            Work::Query { keys, .. } => {
                check_count(keys.len())?;
                keys.iter().try_for_each(check_key)
            }
            Work::Transaction(operations) => {
                check_count(operations.len())?;
                operations.iter().try_for_each(check_operation)
            }
        }
    }
}

fn check_count(count: usize) -> Result<(), Refusal> {
    match count <= OPERATIONS_MAX {
        true => Ok(()),
        false => Err(Refusal::TooManyOperations { count }),
    }
}

/// Checks a key that a client names.
///
/// # Errors
/// Reason for which no record can have the key.
pub fn check_key(key: impl AsRef<[u8]>) -> Result<(), Refusal> {
    let key = key.as_ref();
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Refusal::KeyLength { len: key.len() });
    }
    match key[0] == RESERVED {
        true => Err(Refusal::ReservedKey),
        false => Ok(()),
    }
}

fn check_operation(operation: &Operation) -> Result<(), Refusal> {
    if let Operation::Run(command) = operation {
        return command.check();
    }
    check_key(operation.key())?;
    match operation {
        Operation::Save { object, .. } => check_key(object)?,
        Operation::Create(Creation { spec, .. }) if spec.max_len > READING_BYTES_MAX => {
            return Err(Refusal::ReadingTooLong { len: spec.max_len });
        }
        _ => {}
    }
    let len = operation.value_len();
    match len <= VALUE_BYTES_MAX {
        true => Ok(()),
        false => Err(Refusal::ValueTooLong { len }),
    }
}

/// Position in the serial order at which a request was executed: it saw all entries before `revision`, and the first
/// `index` transactions of that one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub revision: Revision,
    /// Number of the entry's transactions that come before.
    pub index: u32,
}

impl Position {
    /// The position after the whole entry at `revision`.
    pub fn after(revision: Revision) -> Position {
        Position {
            revision: revision.next(),
            index: 0,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.revision, self.index)
    }
}

/// The final outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// The transaction is in the log at this revision.
    Committed(Revision),
    /// The transaction was never executed and never will be.
    NotExecuted,
    /// The outcome is not known: the session has had later transactions, or was forgotten
    /// ([`crate::records::SESSIONS_MAX`]).
    Forgotten,
}

/// The result of an executed request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// Values of the reads of a transaction or query, in order.
    Values(Vec<Option<Value>>),
    /// Id of the new session.
    Session(SessionId),
    Fate(Fate),
    /// Upper bound of the age, and value, of a temporal object's reading; the age is [`Nanos::MAX`] if unknown. `None`
    /// if the object has no reading yet.
    Reading(Option<(Nanos, Value)>),
    /// Whether a reading was set; `false` if a younger one is there.
    Sampled(bool),
}

impl Output {
    /// Bytes of the values in the result.
    pub fn bytes(&self) -> usize {
        match self {
            Output::Values(values) => values.iter().flatten().map(Vec::len).sum(),
            Output::Reading(Some((_, value))) => value.len(),
            Output::Reading(None) | Output::Session(_) | Output::Fate(_) | Output::Sampled(_) => 0,
        }
    }
}

/// The one answer that each request gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The request was executed.
    Done {
        output: Output,
        /// Position in the serial order at which it was executed.
        position: Position,
        /// The revision that the session has seen now, which contains the request.
        revision: Revision,
    },
    /// The request was **not** executed, and will not be.
    Late {
        reason: Reason,
        /// Time to wait before the next attempt, at least.
        retry_after: Nanos,
        /// A node for the next attempt, if this node knows a better one.
        node: Option<NodeId>,
    },
    /// The log has not answered by the deadline: ask for the transaction's [`Work::Outcome`].
    Unknown,
    /// The request cannot be executed, here or anywhere.
    Refused(Refusal),
}

/// The fault of a request, which was not executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// The request has more time than `TIME_LEFT_MAX` allows.
    #[error("a request has at most {TIME_LEFT_MAX}, this one asks for {asked}: send it again as long as it matters")]
    TimeTooLong {
        /// The time that it has.
        asked: Nanos,
    },
    /// The request has more operations or keys than `OPERATIONS_MAX`.
    #[error("a request has at most {OPERATIONS_MAX} operations, this one has {count}: split it")]
    TooManyOperations { count: usize },
    /// A key that no record can have.
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {len}")]
    KeyLength {
        /// Length of the key in bytes.
        len: usize,
    },
    /// A key in the region of the federation's own records.
    #[error("keys that begin with the byte {RESERVED} belong to the federation: choose another key")]
    ReservedKey,
    /// A value that is longer than a record's may be.
    #[error("a value has at most {VALUE_BYTES_MAX} bytes, this one has {len}: split it")]
    ValueTooLong {
        /// Length of the value in bytes.
        len: usize,
    },
    /// The transaction's changes do not fit into an entry of the log.
    #[error("the transaction writes {len} bytes, more than an entry of the log holds: split it")]
    WritesTooLong {
        /// Bytes of all its changes.
        len: usize,
    },
    /// The transaction read more than one answer can hold; it was undone.
    #[error("the answer takes {len} bytes or more, at most {FOUND_BYTES_MAX} do: nothing was done, ask for less")]
    FoundTooMuch {
        /// Bytes read until it was undone.
        len: usize,
    },
    /// A record was not as expected; the transaction was undone.
    #[error("record {} is not as expected, the transaction was undone: read it and try again", key.escape_ascii())]
    Unexpected { key: Key },
    /// A record is no whole number of 64 bits, or would be none; the transaction was undone.
    #[error("record {} is no whole number of 64 bits, or would not be one: set it to one first", key.escape_ascii())]
    NoInteger { key: Key },
    /// A reading was too old; the transaction was undone.
    #[error("what {} reads may be too old, the transaction was undone: wait for its next reading", object.escape_ascii())]
    Stale { object: Key },
    /// The write concerns a temporal object, which only its source writes.
    #[error("{} is a temporal object: its readings come from its source; choose another key", key.escape_ascii())]
    Temporal { key: Key },
    /// The temporal object cannot be created.
    #[error("{} cannot be created: {why}", key.escape_ascii())]
    NotCreated {
        key: Key,
        /// Reason and remedy, for the message.
        why: String,
    },
    /// The object's readings may be longer than `READING_BYTES_MAX`.
    #[error("a reading has at most {READING_BYTES_MAX} bytes, this object asks for {len}: ask for less")]
    ReadingTooLong {
        /// Longest reading of the object in bytes.
        len: usize,
    },
    /// The age of a record was asked for that is no temporal object.
    #[error(
        "key {}: this is no temporal object here, so it has no age: set it by TSET, or use GET",
        key.escape_ascii()
    )]
    NotTemporal { key: Key },
    /// This node's store has no clock for expiry, and carries out no commands.
    #[error("this node carries out no commands: ask another one")]
    NoCommands,
    /// The reading was not set.
    #[error("{why}")]
    NotSet {
        /// Reason and remedy, for the message.
        why: String,
    },
    /// The session does not exist, or was forgotten.
    #[error("there is no session {session}: open one")]
    NoSession { session: SessionId },
    /// Records have reached their bound; the transaction was undone.
    #[error("the stores are full, the transaction was undone: delete records, or give the nodes larger stores")]
    StoreFull,
}

/// Reason for which a node has stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] punctual_logs::LogError),
    /// Another process uses this node's number.
    #[error("another process is node {node} already: give this one another number, or end the other")]
    NameTaken { node: NodeId },
    /// The store has entries that the log lacks, or has with other contents.
    #[error(
        "the store has an entry at revision {at} that the log has otherwise or has not: the federation has begun anew \
         from a backup since (`punctual cluster found --from`), or this is not its log. Correct the address of the \
         log, or move the store away and start with an empty folder: peers give the node their records"
    )]
    OtherHistory {
        /// Revision of the last entry in the store.
        at: Revision,
    },
    /// The log has trimmed the store's last entries, and one of the two does not name its history.
    #[error(
        "the log has trimmed the store's last entry, at revision {at}, and an older version made one of them, without \
         the number of its history: the store may have records that no other node has, so it is not copied over. Correct \
         the address of the log, or move the store away and start with an empty folder: peers give the node their records"
    )]
    UnknownHistory {
        /// Revision of the last entry in the store.
        at: Revision,
    },
    /// An entry of the log cannot be decoded.
    #[error("the log's entry at revision {revision} cannot be read: restore the log, or begin a new federation")]
    Corrupt {
        /// Revision of the damaged entry.
        revision: Revision,
    },
}

/// Whether a node takes requests.
///
/// ```text
///             at the log's end              an operator asks
///   Joining ───────────────────► Serving ─────────────────────► Paused, Leaving
///                                   ▲                                │
///                                   └────────────────────────────────┘ an operator asks
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Standing {
    /// The node has started, and is not at the log's end yet. It answers requests that it gets, but balancers send
    /// none.
    #[default]
    Joining,
    Serving,
    /// An operator paused the node: it finishes its requests, and takes no new ones.
    Paused,
    /// As `Paused`; the node ends once it has finished its requests.
    Leaving,
    /// The node has a part of the records, and is copying the others from a peer: it takes no requests, whatever its
    /// operator asked for.
    Copying,
}

/// The state that a node reports on each reply and heartbeat: enough for a balancer to decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Whether the node takes requests.
    pub standing: Standing,
    /// How long it has taken requests: a node that has just joined gets its load gradually.
    pub serving_for: Nanos,
    /// Transactions that it has taken and not answered.
    pub transactions: u32,
    /// Whether it is a master that the log has not answered for [`crate::liveness::SUSPECT_AFTER`].
    pub log_silent: bool,
    /// Report on its queries; the bound d_i is 0 unless it serves.
    pub report: BacklogReport,
    /// Instant of the report to a balancer, on the node's clock of ages; 0 elsewhere.
    pub at: Time,
    /// Whether it is a master whose log has no room. A field that versions before 5 do not have: last here, and last in
    /// the messages that have a report.
    pub log_full: bool,
}

impl Report {
    /// Whether the node can commit, as far as this tells.
    pub fn commits(&self) -> bool {
        !self.log_silent && !self.log_full
    }
}

/// An answer, and the state of the node that gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub id: RequestId,
    pub answer: Answer,
    /// State of the node that answers.
    pub said: Report,
}

/// The state of a node, sent to its peers and to balancers every [`crate::liveness::HEARTBEAT`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub from: Member,
    /// The latest term that the node knows of.
    pub epoch: Epoch,
    /// Whether the node is the master in that term.
    pub master: bool,
    /// Revision up to which it has applied the log.
    pub applied: Revision,
    /// Revision up to which it has the log on disk: a crash cannot take it back further.
    pub durable: Revision,
    pub said: Report,
}

impl Heartbeat {
    /// Whether the node takes requests, and may become the master.
    pub fn serves(&self) -> bool {
        matches!(self.said.standing, Standing::Joining | Standing::Serving)
    }

    /// Whether peers may leave it in office as master: as long as it serves or still has transactions, and the log
    /// answers it.
    pub fn may_reign(&self) -> bool {
        !self.said.log_silent && (self.serves() || self.said.transactions > 0)
    }
}

/// A term, its master, and the log's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reign {
    pub epoch: Epoch,
    /// The master of the term; `None` before the first term.
    pub master: Option<Member>,
    /// History of the log from which the records come.
    pub history: HistoryId,
}

/// A node's request for records of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsRequest {
    /// The records behind this key; `None`: from the first one on.
    pub after: Option<Key>,
    /// Lowest revision that the records may have.
    pub revision: Revision,
}

/// A message between nodes. Messages may be lost, repeated and overtake each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// State and sign of life of the sender.
    Heartbeat(Heartbeat),
    /// Another process uses the same number as the process with this boot.
    NameTaken(Member),
    /// The sender needs records, because the log no longer has its next entry.
    CopyWanted(RecordsRequest),
    /// Records in answer to `Message::CopyWanted`, see [`crate::copying`].
    Copied(Arc<Image>),
    /// A query that the sender cannot answer because its revision is too low: answer it for the sender.
    PassedOn(Request),
    /// The answer to a query that was passed on.
    Answered(RequestId, Answer),
}
