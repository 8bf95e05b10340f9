//! What clients ask and nodes answer, and what nodes tell each other.

use std::fmt;
use std::sync::Arc;

use punctual_store::batch::Image;
use punctual_store::temporal::Creation;
use punctual_units::{Nanos, Time};
use serde::{Deserialize, Serialize};

pub use crate::admission::Reason;
use crate::admission::Report;
use crate::ids::{Epoch, Member, NodeId, RequestId, Revision, SessionId};

/// The longest key of a client's record in bytes. An engine takes 511; the first of them may be ours.
pub const KEY_BYTES_MAX: usize = 500;
/// The longest value in bytes: some of them fit into one entry of the log.
pub const VALUE_BYTES_MAX: usize = 128 << 10;
/// The most bytes that a transaction reads: they travel in one message between processes.
pub const FOUND_BYTES_MAX: usize = 16 << 20;
/// The most bytes that the transactions of a batch read together: the master holds them until the log has the batch.
pub const BATCH_FOUND_BYTES_MAX: usize = 2 * FOUND_BYTES_MAX;
/// The longest reading of a temporal object in bytes: each node keeps room for one of each object from the start.
pub const READING_BYTES_MAX: usize = 4096;
/// The most operations of a transaction, and keys of a query.
pub const OPERATIONS_MAX: usize = 128;
/// The longest time that a client may give a request. What waits longer is no request for an answer in time, and an
/// unlimited one would keep its place in every queue for ever.
pub const TIME_LEFT_MAX: Nanos = Nanos::from_secs(3600);

/// The first byte of keys that belong to the federation itself ([`crate::records`]).
pub const RESERVED: u8 = 0;

/// A key of a record.
pub type Key = Vec<u8>;
/// What is under a key.
pub type Value = Vec<u8>;

/// One step of a transaction. Reads see what earlier steps wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Read a record.
    Get(Key),
    /// Set a record.
    Put(Key, Value),
    /// Add to the end of a record.
    Append(Key, Value),
    /// Remove a record.
    Delete(Key),
    /// Add to the whole number that a record is, in decimal; 0 where it is not there. What it is then is read.
    Add(Key, i64),
    /// Go on only if the record is this (`None`: not there), otherwise undo the transaction.
    Expect(Key, Option<Value>),
    /// Read a temporal object. A reading that may be older than this, or than its validity, counts as none.
    Fresh(Key, Nanos),
    /// Set a record to what a temporal object reads, and undo the transaction if that may be older than this.
    Save {
        /// The temporal object.
        object: Key,
        /// How old its reading may be.
        max_age: Nanos,
        /// The record.
        record: Key,
    },
    /// Create a temporal object; readings of it come from the node that it names.
    Create(Creation),
    /// Carry out a command; its reply is read.
    Run(Command),
}

/// A command of clients. What it means is for the interpreter that each node's store has ([`crate::cells`]): this room
/// knows how much it reads, and whether it changes something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Its name and its arguments.
    pub words: Vec<Value>,
    /// About how many records it reads, at least 1.
    pub items: u32,
    /// Whether it may change something.
    pub writes: bool,
    /// The version of the protocol in which it is answered.
    pub version: u8,
}

impl Command {
    /// Its first key, if it has one.
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
    /// The record that it is about.
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

    /// Whether it leaves something behind.
    pub fn writes(&self) -> bool {
        match self {
            Operation::Get(_) | Operation::Expect(..) | Operation::Fresh(..) => false,
            Operation::Run(command) => command.writes,
            _ => true,
        }
    }

    /// The bytes that it brings along.
    fn value_len(&self) -> usize {
        match self {
            Operation::Put(_, value) | Operation::Append(_, value) | Operation::Expect(_, Some(value)) => value.len(),
            _ => 0,
        }
    }
}

/// What a client wants done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Begin a session.
    Open,
    /// All of these or none.
    Transaction(Vec<Operation>),
    /// Read records from one snapshot: of any prefix of the log that is long enough for the session, or of all of it.
    Query {
        /// The records, and temporal objects.
        keys: Vec<Key>,
        /// See everything that was acknowledged before the query was sent.
        latest: bool,
        /// How old the reading of a temporal object may be; an older one counts as none, as does one that is no longer
        /// valid.
        max_age: Nanos,
    },
    /// The same by a command that changes nothing, of any prefix of the log that is long enough for the session.
    Look(Command),
    /// Remove records whose terms have ended.
    Sweep,
    /// What became of an earlier transaction, for ever: if it was not executed by now, it never will be.
    Outcome(RequestId),
    /// What a temporal object reads, from the memory of the node that is asked, whatever the log is at.
    Fresh(Key),
    /// To set a temporal object, whose source the node that is asked is from then on.
    Sample(Sample),
}

/// A reading that a client sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The temporal object.
    pub key: Key,
    /// The value.
    pub value: Value,
    /// How old it was as the request was sent.
    pub age: Nanos,
    /// An instant of the clock of the node that is asked, which its sender had heard before ([`Said::at`]); `None`
    /// where the sender is the node itself. The way took no longer than what has passed since.
    pub since: Option<Time>,
}

impl Work {
    /// Whether only the master can do it.
    pub fn for_master(&self) -> bool {
        !matches!(self, Work::Query { latest: false, .. } | Work::Look(_)) && !self.is_of_memory()
    }

    /// Whether it is a query.
    pub fn is_query(&self) -> bool {
        matches!(self, Work::Query { .. } | Work::Look(_))
    }

    /// Whether nothing stays of it once it was executed.
    pub fn leaves_nothing(&self) -> bool {
        self.is_query() || matches!(self, Work::Fresh(_))
    }

    /// The records that a query reads, as far as they are known before; the first one where they are many.
    pub fn keys(&self) -> &[Key] {
        match self {
            Work::Query { keys, .. } => keys,
            Work::Look(command) => std::slice::from_ref(command.key()),
            _ => &[],
        }
    }

    /// About how many records a query reads, one at least: what reads nothing costs something, too.
    pub fn items(&self) -> u32 {
        match self {
            Work::Look(command) => command.items,
            work => (work.keys().len() as u32).max(1),
        }
    }

    /// Whether a node's memory has the answer: readings of temporal objects, which are no part of the serial order.
    pub fn is_of_memory(&self) -> bool {
        matches!(self, Work::Fresh(_) | Work::Sample(_))
    }
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// What to do.
    pub work: Work,
    /// Until when, from its arrival on: spans travel, instants of two machines do not compare.
    pub time_left: Nanos,
    /// The last revision that the session has seen: the answer must not lie before it.
    pub seen: Revision,
}

impl Request {
    /// Checks what no node should take.
    ///
    /// # Errors
    /// What is wrong with it; it was not executed.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.time_left > TIME_LEFT_MAX {
            return Err(Refusal::TimeTooLong { asked: self.time_left });
        }
        match &self.work {
            Work::Open | Work::Outcome(_) | Work::Sweep => Ok(()),
            Work::Look(command) => command.check(),
            Work::Fresh(key) | Work::Sample(Sample { key, .. }) => check_key(key),
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
/// Why no record can have it.
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

/// Where in the serial order a request was executed: it saw all entries before `revision`, and the first `index`
/// transactions of that one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The entry.
    pub revision: Revision,
    /// So many of its transactions come before.
    pub index: u32,
}

impl Position {
    /// After all of the entry at `revision`.
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

/// What became of a transaction, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It is in the log at this revision.
    Committed(Revision),
    /// It was never executed and never will be.
    NotExecuted,
    /// The session has gone on since, or was forgotten ([`crate::records::SESSIONS_MAX`]).
    Forgotten,
}

/// What an executed request returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// What the reads of a transaction or query found, in order.
    Values(Vec<Option<Value>>),
    /// A new session.
    Session(SessionId),
    /// What became of a transaction.
    Fate(Fate),
    /// What a temporal object reads and how old that is at most, [`Nanos::MAX`] where that is not known; `None` where
    /// it has no reading yet.
    Reading(Option<(Nanos, Value)>),
    /// A reading was set; `false` where a younger one is there.
    Sampled(bool),
}

impl Output {
    /// The bytes of the values in it.
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
    /// It was executed.
    Done {
        /// What it returns.
        output: Output,
        /// Where it was executed.
        position: Position,
        /// What the session has seen now: the revision that contains it.
        revision: Revision,
    },
    /// It was **not** executed, and will not be.
    Late {
        /// Why.
        reason: Reason,
        /// When to try again, at the earliest.
        retry_after: Nanos,
        /// Where to try again, if this node knows a better one.
        node: Option<NodeId>,
    },
    /// The log has not answered by the deadline: ask for its [`Work::Outcome`].
    Unknown,
    /// It cannot be executed, here or anywhere.
    Refused(Refusal),
}

/// What is wrong with a request. It was not executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// More time than any request may have.
    #[error("a request has at most {TIME_LEFT_MAX}, this one asks for {asked}: send it again as long as it matters")]
    TimeTooLong {
        /// What it asked for.
        asked: Nanos,
    },
    /// Too many operations or keys.
    #[error("a request has at most {OPERATIONS_MAX} operations, this one has {count}: split it")]
    TooManyOperations {
        /// How many it has.
        count: usize,
    },
    /// A key that no record can have.
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {len}")]
    KeyLength {
        /// Its length in bytes.
        len: usize,
    },
    /// A key of ours.
    #[error("keys that begin with the byte {RESERVED} belong to the federation: choose another key")]
    ReservedKey,
    /// A value that no record can have.
    #[error("a value has at most {VALUE_BYTES_MAX} bytes, this one has {len}: split it")]
    ValueTooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// What it writes in all does not fit into an entry of the log.
    #[error("the transaction writes {len} bytes, more than an entry of the log holds: split it")]
    WritesTooLong {
        /// The length in bytes of all that it writes.
        len: usize,
    },
    /// More than one answer holds; the transaction was undone.
    #[error("the answer takes {len} bytes or more, at most {FOUND_BYTES_MAX} do: nothing was done, ask for less")]
    FoundTooMuch {
        /// Its length in bytes, as far as it came.
        len: usize,
    },
    /// A record was not as expected; the transaction was undone.
    #[error("record {} is not as expected, the transaction was undone: read it and try again", key.escape_ascii())]
    Unexpected {
        /// The record.
        key: Key,
    },
    /// A record is no whole number of 64 bits, or would be none; the transaction was undone.
    #[error("record {} is no whole number of 64 bits, or would not be one: set it to one first", key.escape_ascii())]
    NoInteger {
        /// The record.
        key: Key,
    },
    /// A reading was too old; the transaction was undone.
    #[error("what {} reads may be too old, the transaction was undone: wait for its next reading", object.escape_ascii())]
    Stale {
        /// The temporal object.
        object: Key,
    },
    /// What it would write is a temporal object, which only its source writes.
    #[error("{} is a temporal object: its readings come from its source; choose another key", key.escape_ascii())]
    Temporal {
        /// The object.
        key: Key,
    },
    /// A temporal object that cannot be created.
    #[error("{} cannot be created: {why}", key.escape_ascii())]
    NotCreated {
        /// Its key.
        key: Key,
        /// Why, and what to do.
        why: String,
    },
    /// Readings that no node keeps room for.
    #[error("a reading has at most {READING_BYTES_MAX} bytes, this object asks for {len}: ask for less")]
    ReadingTooLong {
        /// Their length in bytes.
        len: usize,
    },
    /// What was asked for its age has none.
    #[error(
        "key {}: this is no temporal object here, so it has no age: set it by TSET, or use GET",
        key.escape_ascii()
    )]
    NotTemporal {
        /// Its key.
        key: Key,
    },
    /// Commands where none are known.
    #[error("this node carries out no commands: ask another one")]
    NoCommands,
    /// A reading that was not set.
    #[error("{why}")]
    NotSet {
        /// Why, and what to do.
        why: String,
    },
    /// The session does not exist, or was forgotten.
    #[error("there is no session {session}: open one")]
    NoSession {
        /// The session asked for.
        session: SessionId,
    },
    /// Records take all that they may; the transaction was undone.
    #[error("the stores are full, the transaction was undone: delete records, or give the nodes larger stores")]
    StoreFull,
}

/// Why a node has stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] punctual_logs::LogError),
    /// Another process goes by the same name.
    #[error("another process is node {node} already: give this one another number, or end the other")]
    NameTaken {
        /// The name.
        node: NodeId,
    },
    /// The store has entries that the log has not, or has otherwise.
    #[error(
        "the store has an entry at revision {at} that the log has otherwise or has not: the federation has begun anew \
         from a backup since (`punctual federation found --from`), or this is not its log. Correct the address of the \
         log, or move the store away and start with an empty folder: peers give the node their records"
    )]
    OtherHistory {
        /// The last entry in the store.
        at: Revision,
    },
    /// An entry of the log makes no sense.
    #[error("the log's entry at revision {revision} cannot be read: restore the log, or begin a new federation")]
    Corrupt {
        /// Where.
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
    /// It has started, and is not at the log's end yet. It answers what it can, and balancers send it nothing.
    #[default]
    Joining,
    /// It does.
    Serving,
    /// It was told to pause: it finishes what it has, and takes nothing new.
    Paused,
    /// The same, and it ends then.
    Leaving,
    /// It has a part of the records, and is being given the others: it takes no requests, whatever it was told.
    Copying,
}

/// What a node says of itself on each reply and heartbeat: enough for a balancer to decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// Whether it takes requests.
    pub standing: Standing,
    /// For how long it has: a node that has just joined is given its load bit by bit.
    pub serving_for: Nanos,
    /// Transactions that it has taken and not answered.
    pub transactions: u32,
    /// It is the master, and the log has not answered it for [`crate::liveness::SUSPECT_AFTER`].
    pub log_silent: bool,
    /// Its queries; the bound d_i is 0 unless it serves.
    pub report: Report,
    /// When it said so to a front, on its clock of ages; 0 elsewhere.
    pub at: Time,
}

/// An answer, and what the node says of itself with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The request.
    pub id: RequestId,
    /// Its one answer.
    pub answer: Answer,
    /// By the node that answers.
    pub said: Said,
}

/// What a node says of itself to its peers and to balancers, every [`crate::liveness::HEARTBEAT`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender.
    pub from: Member,
    /// The reign that it knows of.
    pub epoch: Epoch,
    /// Whether it is the master in that.
    pub master: bool,
    /// It has applied the log up to here.
    pub applied: Revision,
    /// A crash cannot take it back further than to here.
    pub durable: Revision,
    /// What else it says of itself.
    pub said: Said,
}

impl Heartbeat {
    /// Whether it takes requests, and may become the master.
    pub fn serves(&self) -> bool {
        matches!(self.said.standing, Standing::Joining | Standing::Serving)
    }

    /// Whether peers may leave it the reign: as long as it serves or still has transactions, and the log answers it.
    pub fn may_reign(&self) -> bool {
        !self.said.log_silent && (self.serves() || self.said.transactions > 0)
    }
}

/// Which reign it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reign {
    /// The reign.
    pub epoch: Epoch,
    /// Its master; `None` before the first reign.
    pub master: Option<Member>,
}

/// Which records a node wants of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Those behind this key; `None`: from the first one on.
    pub after: Option<Key>,
    /// As they are at this revision, or at a later one.
    pub revision: Revision,
}

/// What nodes tell each other. Messages may be lost, repeated and overtake each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// The sender lives.
    Heartbeat(Heartbeat),
    /// Another process goes by the name of the one with this boot.
    NameTaken(Member),
    /// The sender needs records, because the log no longer has what it lacks.
    CopyWanted(Wanted),
    /// Here are some: see [`crate::copying`].
    Copied(Arc<Image>),
    /// Answer this query for the sender, which is not far enough.
    PassedOn(Request),
    /// The answer to what was passed on.
    Answered(RequestId, Answer),
}
