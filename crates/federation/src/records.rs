//! The effects of requests on the records, and the federation's own records among them.
//!
//! **Sessions.** A request may come twice, or come late, and its client may ask for its outcome at a time when only the
//! log knows. So each session has a record of its own, which is written in the same transaction as the client's data:
//! the number of its last transaction with its revision, and a *floor*. A transaction whose number is not above the
//! floor is not executed. To answer that a transaction was not executed, the master first raises the floor to its
//! number, through the log: so that the answer stays true, whatever is still under way.
//!
//! Sessions are numbered as they begin; each new one deletes the record of the session that began [`SESSIONS_MAX`]
//! before.

use punctual_logs::HistoryId;
use punctual_store::batch::WriteSet;
use punctual_store::temporal::Creation;
use punctual_units::Nanos;

use crate::entry::{Body, Entry};
use crate::ids::{RequestId, Revision, SessionId};
use crate::message::{
    ClientCommand, ClientReading, FOUND_BYTES_MAX, Fate, Key, Operation, Output, RESERVED, Refusal, Reign, Value, Work,
};

/// Most sessions that a federation remembers: their records take a few MB on each node.
pub const SESSIONS_MAX: u64 = 65_536;

/// Time that a client should wait before it tries again, where a node has no better estimate.
pub const RETRY_AFTER: Nanos = Nanos::from_millis(20);

/// Most expired records that one transaction of the master's own removes.
pub const SWEPT_MAX: usize = 128;
/// Most expired records that a client's transaction removes, since the client waits for it.
const SWEPT_BESIDE_MAX: usize = 8;

/// The records as a transaction sees them, its own changes included. Their owner undoes the transaction as a whole.
pub trait RecordAccess {
    type Error;

    ///
    /// # Errors
    /// A failure of the store.
    fn get(&self, key: &[u8]) -> Result<Option<Value>, Self::Error>;

    /// The value of `key`. The reading of a temporal object counts only if it is at most `max_age` old, and no older
    /// than the object's validity (`ObjectSpec::avi`): the bound of its age holds for that long, see
    /// [`sampled_at`](crate::temporal::sampled_at). Values read by a transaction become part of its write set.
    ///
    /// # Errors
    /// A failure of the store.
    fn fresh(&self, key: &[u8], max_age: Nanos) -> Result<Option<Value>, Self::Error>;

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`Undo`].
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Undo<Self::Error>>;

    /// Removes `key`.
    ///
    /// # Errors
    /// [`Undo`].
    fn delete(&mut self, key: &[u8]) -> Result<(), Undo<Self::Error>>;

    /// Creates a temporal object.
    ///
    /// # Errors
    /// [`Undo`].
    fn create(&mut self, creation: &Creation) -> Result<(), Undo<Self::Error>>;

    /// Carries out a command; returns its reply. Refused without a clock for expiry.
    ///
    /// # Errors
    /// [`Undo`].
    fn run(&mut self, _command: &ClientCommand) -> Result<Value, Undo<Self::Error>> {
        Err(Undo::Refused(Refusal::NoCommands))
    }

    /// Removes expired records, at most `max`. Without a clock no record expires.
    ///
    /// # Errors
    /// [`Undo`].
    fn sweep(&mut self, _max: usize) -> Result<(), Undo<Self::Error>> {
        Ok(())
    }
}

/// Reason to undo a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo<E> {
    /// The request is faulty, or cannot be fulfilled.
    Refused(Refusal),
    Failed(E),
}

impl<E> From<E> for Undo<E> {
    fn from(error: E) -> Undo<E> {
        Undo::Failed(error)
    }
}

/// The record of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SessionRecord {
    /// No transaction up to this number will be executed any more.
    floor: u64,
    /// Number of the last executed transaction.
    number: u64,
    /// Revision of that transaction.
    revision: Revision,
}

impl SessionRecord {
    fn encode(self) -> Value {
        [self.floor, self.number, self.revision.0]
            .map(u64::to_be_bytes)
            .concat()
    }

    /// Other bytes count as the record of a new session: only this crate writes under this key.
    fn decode(value: &[u8]) -> SessionRecord {
        let at = |index: usize| number(value.get(index * 8..).unwrap_or_default());
        SessionRecord {
            floor: at(0),
            number: at(1),
            revision: Revision(at(2)),
        }
    }

    fn fate(self, number: u64) -> Fate {
        match number {
            _ if number == self.number => Fate::Committed(self.revision),
            _ if number > self.number => Fate::NotExecuted,
            _ => Fate::Forgotten,
        }
    }
}

fn number(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

const SESSIONS_BEGUN: [u8; 2] = [RESERVED, b'n'];
const REIGN: [u8; 2] = [RESERVED, b'r'];
/// Key of the log's history: the first of all keys, so that each part of a copy has it.
pub const HISTORY: [u8; 1] = [RESERVED];

fn session_key(session: SessionId) -> Key {
    [&[RESERVED, b's'][..], &session.0.to_be_bytes()].concat()
}

/// Carries out `work` of the request `id`, in a transaction that will be part of the entry at `revision`. After an
/// error the caller undoes the transaction; a success without changes need not be logged.
///
/// # Errors
/// [`Undo`].
pub fn perform<R: RecordAccess>(
    records: &mut R,
    id: RequestId,
    work: &Work,
    revision: Revision,
) -> Result<Output, Undo<R::Error>> {
    match work {
        Work::Open => Ok(Output::Session(open(records)?)),
        Work::Outcome(of) => Ok(Output::Fate(outcome(records, *of)?)),
        Work::Query { keys, max_age, .. } => {
            let values: Result<_, _> = keys.iter().map(|key| records.fresh(key, *max_age)).collect();
            Ok(Output::Values(values?))
        }
        Work::Transaction(operations) => transaction(records, id, operations, revision),
        Work::Look(command) => Ok(Output::Values(vec![Some(records.run(command)?)])),
        Work::Sweep => {
            records.sweep(SWEPT_MAX)?;
            Ok(Output::Values(Vec::new()))
        }
        // A node answers these before it calls its store.
        Work::Fresh(key) | Work::Sample(ClientReading { key, .. }) => {
            let why = format!("key {}: readings are no records", key.escape_ascii());
            Err(Undo::Refused(Refusal::NotSet { why }))
        }
    }
}

fn open<R: RecordAccess>(records: &mut R) -> Result<SessionId, Undo<R::Error>> {
    let begun = records.get(&SESSIONS_BEGUN)?;
    let session = number(&begun.unwrap_or_default()) + 1;
    records.put(&SESSIONS_BEGUN, &session.to_be_bytes())?;
    records.put(&session_key(SessionId(session)), &SessionRecord::default().encode())?;
    if let Some(forgotten) = session.checked_sub(SESSIONS_MAX) {
        records.delete(&session_key(SessionId(forgotten)))?;
    }
    Ok(SessionId(session))
}

fn outcome<R: RecordAccess>(records: &mut R, of: RequestId) -> Result<Fate, Undo<R::Error>> {
    let key = session_key(of.session);
    let Some(found) = records.get(&key)? else {
        return Ok(Fate::Forgotten);
    };
    let session = SessionRecord::decode(&found);
    if session.floor < of.number {
        let floor = of.number;
        records.put(&key, &SessionRecord { floor, ..session }.encode())?;
    }
    Ok(session.fate(of.number))
}

fn transaction<R: RecordAccess>(
    records: &mut R,
    id: RequestId,
    operations: &[Operation],
    revision: Revision,
) -> Result<Output, Undo<R::Error>> {
    let key = session_key(id.session);
    let Some(found) = records.get(&key)? else {
        return Err(Undo::Refused(Refusal::NoSession { session: id.session }));
    };
    let session = SessionRecord::decode(&found);
    if id.number <= session.floor {
        return Ok(Output::Fate(session.fate(id.number))); // a repetition, or too late
    }
    let writes = operations.iter().any(Operation::writes);
    if writes {
        records.sweep(SWEPT_BESIDE_MAX)?;
    }
    let mut values = Vec::new();
    let mut len = 0;
    for operation in operations {
        let found = operate(records, operation)?;
        len += found.iter().flatten().map(Vec::len).sum::<usize>();
        if len > FOUND_BYTES_MAX {
            return Err(Undo::Refused(Refusal::FoundTooMuch { len }));
        }
        values.extend(found);
    }
    if writes {
        let done = SessionRecord {
            floor: id.number,
            number: id.number,
            revision,
        };
        records.put(&key, &done.encode())?;
    }
    Ok(Output::Values(values))
}

/// Carries out one operation; returns the value of a read.
fn operate<R: RecordAccess>(records: &mut R, operation: &Operation) -> Result<Option<Option<Value>>, Undo<R::Error>> {
    match operation {
        Operation::Get(key) => return Ok(Some(records.get(key)?)),
        Operation::Put(key, value) => records.put(key, value)?,
        Operation::Append(key, value) => {
            let mut list = records.get(key)?.unwrap_or_default();
            list.extend(value);
            records.put(key, &list)?;
        }
        Operation::Delete(key) => records.delete(key)?,
        Operation::Add(key, by) => return add(records, key, *by).map(|sum| Some(Some(sum))),
        Operation::Expect(key, expected) => {
            if records.get(key)? != *expected {
                return Err(Undo::Refused(Refusal::Unexpected { key: key.clone() }));
            }
        }
        Operation::Fresh(object, max_age) => return Ok(Some(records.fresh(object, *max_age)?)),
        Operation::Save {
            object,
            max_age,
            record,
        } => save(records, object, *max_age, record)?,
        Operation::Create(creation) => records.create(creation)?,
        Operation::Run(command) => return Ok(Some(Some(records.run(command)?))),
    }
    Ok(None)
}

fn add<R: RecordAccess>(records: &mut R, key: &Key, by: i64) -> Result<Value, Undo<R::Error>> {
    let before = records.get(key)?;
    let text = before.as_deref().map_or(Ok("0"), std::str::from_utf8).ok();
    let sum = text.and_then(|text| text.parse::<i64>().ok()?.checked_add(by));
    let sum = sum.ok_or_else(|| Undo::Refused(Refusal::NoInteger { key: key.clone() }))?;
    let sum = sum.to_string().into_bytes();
    records.put(key, &sum)?;
    Ok(sum)
}

fn save<R: RecordAccess>(records: &mut R, object: &Key, max_age: Nanos, record: &Key) -> Result<(), Undo<R::Error>> {
    match records.fresh(object, max_age)? {
        Some(reading) => records.put(record, &reading),
        None => Err(Undo::Refused(Refusal::Stale { object: object.clone() })),
    }
}

/// The changes made by applying `entry`, transaction by transaction.
pub fn sets(entry: &Entry) -> Vec<WriteSet> {
    match &entry.body {
        Body::Reign(history) => {
            let Entry { id, .. } = entry;
            let parts = [id.epoch.0, u64::from(id.member.node.0), id.member.boot.0];
            let reign = (REIGN.to_vec(), Some(parts.map(u64::to_be_bytes).concat()));
            let is_known = *history != HistoryId::default();
            let history = is_known.then(|| (HISTORY.to_vec(), Some(history.0.to_be_bytes().to_vec())));
            vec![WriteSet {
                changes: history.into_iter().chain([reign]).collect(),
                ..WriteSet::default()
            }]
        }
        Body::Batch(transactions) => transactions.iter().map(|logged| logged.set.clone()).collect(),
    }
}

/// The term that the records name; `get` reads a record.
///
/// # Errors
/// Those of `get`.
pub fn reign<E>(get: impl Fn(&[u8]) -> Result<Option<Value>, E>) -> Result<Reign, E> {
    use crate::ids::{Boot, Epoch, Member, NodeId};
    let history = HistoryId(get(&HISTORY)?.map_or(0, |value| number(&value)));
    let Some(value) = get(&REIGN)? else {
        return Ok(Reign {
            history,
            ..Reign::default()
        });
    };
    let at = |index: usize| number(value.get(index * 8..).unwrap_or_default());
    let master = Member {
        node: NodeId(u32::try_from(at(1)).unwrap_or(u32::MAX)),
        boot: Boot(at(2)),
    };
    Ok(Reign {
        epoch: Epoch(at(0)),
        master: Some(master),
        history,
    })
}
