//! A log in etcd: replicated, and available as long as most of its members are.
//!
//! **Keys**, which all begin with the name of the [`Address`]: `federation` holds the federation's id and the log's
//! history (id, base, parent; older versions wrote none), `format` the newest format of its entries, `head` the
//! revision of the last entry, `trimmed` that of the last removed one, and `log/` with a revision of 20 digits an
//! entry. An append is one transaction: if `head` is as expected, it is raised by one and the entry written. etcd's
//! transactions are strictly serializable, so of two appends at one revision one succeeds, and revisions rise by one
//! whatever else this etcd is used for.
//!
//! **No answer.** A call asks one member after the other, each for as long as answers usually take (15 to 90 ms), and
//! ends without an answer after [`CALL_MAX`]: the caller asks again if it still needs the result.
//!
//! **Watching.** Entries come by etcd's watch, which begins at the last seen revision of etcd's history, so that no
//! entry is skipped, also after a connection broke. A watch that is silent for [`QUIET_MAX`] is opened at the next
//! member: the present one may hang.
//!
//! **Trimming** deletes entries. At most every [`COMPACT_EVERY`] it also has etcd compact its history, up to a revision
//! at least that old. That is the history of all keys, so this etcd is best used for federations alone.
//!
//! **An etcd that is full** refuses each transaction that writes, until its alarm is ended. A trim ends the alarm and
//! deletes entries; then a thread of its own, at most every [`COMPACT_EVERY`], has etcd forget its history, defragments
//! its members, and ends the alarm again.

mod address;
mod client;
mod messages;

use std::collections::VecDeque;
use std::fmt::Display;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, Status, Streaming};

pub use self::address::{Address, Tls};
pub use self::client::CALL_MAX;
use self::client::{EtcdClient, with_sources};
use self::messages::{
    Compact, Compare, CompareResult, Create, Delete, EmptyResponse, KeyRequest, KeyResponse, Operand, Put, Range,
    RequestOp, Target, Txn, TxnDone, WatchResponse,
};
use crate::socket::LogServer;
use crate::{
    AppendResult, CommitLog, ENTRY_BYTES_MAX, FederationId, HistoryId, Identity, LogError, LogHistory, LogRecord,
    LogState, Revision, Stretch,
};

/// The oldest version that is used: watches of older ones have lost events around a compaction.
pub const VERSION_MIN: (u32, u32) = (3, 6);
/// Silence of a watch after which it is opened at another member.
pub const QUIET_MAX: Duration = Duration::from_millis(300);
/// Least interval between compactions of etcd's history.
pub const COMPACT_EVERY: Duration = Duration::from_secs(10);
/// Most entries of one answer; an entry has at most 1 MiB. Halved after each answer that did not come in time, down to
/// 1.
const PAGE: usize = 64;
/// Number of entries from which the bytes of all are estimated.
const SAMPLE: u64 = 8;
/// Start of a read that only asks where the log ends.
const BEYOND: Revision = Revision(u64::MAX - 1);
/// Wait of [`CommitLog::watch_from`] for entries that are on their way.
const GLANCE: Duration = Duration::from_millis(5);
/// Wait before a refused watch is opened again.
const REOPEN_AFTER: Duration = Duration::from_millis(10);

/// Reason for which an etcd is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// No member answers, or too few members are up to have a leader.
    #[error("{address}: {what}; start etcd there, or correct the address")]
    Unreachable {
        /// The address as it was given.
        address: String,
        /// The failure of each member, as text.
        what: String,
    },
    /// Anything else that is wrong, and what to do.
    #[error("{0}")]
    Refused(String),
}

impl EtcdError {
    fn address(text: impl Display, what: impl Display) -> EtcdError {
        EtcdError::Refused(format!(
            "{text}: {what}; an address of etcd is etcd://HOST:PORT,HOST:PORT/NAME"
        ))
    }
}

/// Whether a version as etcd writes it (3.6.1, 3.7.0-rc.0) is at least [`VERSION_MIN`].
pub fn is_new_enough(version: &str) -> bool {
    let mut parts = version.split(['.', '-', '+']).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= VERSION_MIN,
        _ => false,
    }
}

/// State of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Version of the member's etcd.
    pub version: String,
    /// Whether the member is the leader.
    pub leads: bool,
    /// Whether the member knows of a leader.
    pub is_led: bool,
}

/// A log in etcd. For one thread; each thread makes one of its own.
pub struct Etcd {
    /// Single-threaded: it serves connections only while a call waits.
    runtime: Runtime,
    client: EtcdClient,
    address: Address,
    /// Whether `open` may claim an empty log for its federation.
    claims: bool,
    /// Identity of the last `open`, perhaps without an answer: then the log is opened before the next call.
    asked: Option<Identity>,
    /// Value of the key `federation` once `open` has succeeded.
    ours: Option<Bytes>,
    /// Known revision up to which the log is trimmed.
    trimmed: Revision,
    /// Entries per request, at most `PAGE`.
    page: usize,
    /// Whether the last append found no room.
    is_full: bool,
    /// Makes room, until it has ended.
    making_room: Option<JoinHandle<()>>,
    /// Instant of the last compaction, and the revision of etcd's history up to which the next one will go.
    compacted: (Instant, i64),
    watch: Following,
}

/// State of the watch.
#[derive(Default)]
struct Following {
    /// A revision of the log, and one of etcd's history that contains all entries up to it.
    place: Option<(Revision, i64)>,
    /// Entries up to `place` that no call has returned yet: those of one answer.
    waiting: VecDeque<LogRecord>,
    stream: Option<(Streaming<WatchResponse>, Instant)>,
}

impl Etcd {
    /// The log at `address`. Connects at the first call. Only with `claims` does [`open`](CommitLog::open) claim an
    /// empty log for the caller: a node does not, because a log that has become empty has lost entries that the node
    /// has.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn new(address: &Address, claims: bool) -> Result<Etcd, EtcdError> {
        Etcd::with(address, claims, None)
    }

    /// As `new` without `claims`, but waits for each answer for `wait`, however long answers usually take.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn with_wait(address: &Address, wait: Duration) -> Result<Etcd, EtcdError> {
        Etcd::with(address, false, Some(wait))
    }

    fn with(address: &Address, claims: bool, fixed: Option<Duration>) -> Result<Etcd, EtcdError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| EtcdError::Refused(format!("connections to etcd: {error}")))?;
        let client = {
            let _within = runtime.enter();
            EtcdClient::new(address, fixed)?
        };
        Ok(Etcd {
            runtime,
            client,
            address: address.clone(),
            claims,
            asked: None,
            ours: None,
            trimmed: Revision::ZERO,
            page: PAGE,
            is_full: false,
            making_room: None,
            compacted: (Instant::now(), 0),
            watch: Following::default(),
        })
    }

    /// The state of each member; an error says why a member does not answer.
    pub fn health(&mut self) -> Vec<Result<Health, String>> {
        let statuses = self.runtime.block_on(self.client.statuses());
        let health = |status: messages::Status| Health {
            leads: status.header.is_some_and(|header| header.member_id == status.leader),
            is_led: status.leader != 0,
            version: status.version,
        };
        let why = |status: Status| format!("{}: {}", status.code(), with_sources(&status));
        statuses
            .into_iter()
            .map(|status| status.map(health).map_err(why))
            .collect()
    }

    /// Checks that a member answers that knows of a leader, that no member is too old, and that a key can be written.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn check(&mut self) -> Result<(), EtcdError> {
        let health = self.health();
        for (member, health) in self.address.members.iter().zip(&health) {
            if let Ok(Health { version, .. }) = health
                && !is_new_enough(version)
            {
                return Err(EtcdError::Refused(format!(
                    "{member}: this is etcd {version}, at least {}.{} is needed: watches of older ones lose entries; \
                     update it, or build one with `.ci/etcd build`",
                    VERSION_MIN.0, VERSION_MIN.1
                )));
            }
        }
        if health.iter().flatten().any(|health| health.is_led) {
            return match self.write() {
                Err(status) if client::is_final(&status) => Err(EtcdError::Refused(format!(
                    "{}: etcd refuses to write: {}; users of etcd are not supported: have it tell programs by their \
                     certificates; where it has no space left, compact and defragment it, and disarm its alarm",
                    self.address,
                    status.message()
                ))),
                _ => Ok(()), // a call without an answer is repeated later
            };
        }
        let said = self
            .address
            .members
            .iter()
            .zip(health)
            .map(|(member, health)| match health {
                Ok(_) => format!("{member} has no leader"),
                Err(why) => format!("{member} ({why})"),
            });
        Err(EtcdError::Unreachable {
            address: self.address.to_string(),
            what: format!(
                "no member answers that has a leader: {}",
                said.collect::<Vec<_>>().join(", ")
            ),
        })
    }

    /// Writes to a key of its own; returns whether that was acknowledged. For a probe that measures how long etcd does
    /// not answer.
    pub fn beat(&mut self) -> bool {
        self.write().is_ok()
    }

    fn write(&mut self) -> Result<EmptyResponse, Status> {
        let put = Put {
            key: self.key("beat"),
            value: Bytes::new(),
        };
        self.runtime.block_on(self.client.ask(messages::PUT, &put))
    }

    /// Removes all keys of the log: another federation may use the name.
    ///
    /// # Errors
    /// [`LogError::NoAnswer`].
    pub fn remove(&mut self) -> Result<(), LogError> {
        let delete = Delete {
            key: self.key(""),
            range_end: Bytes::from(format!("{}0", self.address.name)), // '0' comes after '/'
        };
        self.ask::<_, EmptyResponse>(messages::DELETE, &delete).map(drop)
    }

    fn key(&self, name: &str) -> Bytes {
        Bytes::from(format!("{}/{name}", self.address.name))
    }

    fn entry_key(&self, revision: Revision) -> Bytes {
        self.key(&format!("log/{:020}", revision.0))
    }

    fn ask<Q, A>(&mut self, path: &'static str, question: &Q) -> Result<A, LogError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let answer = self.runtime.block_on(self.client.ask(path, question));
        answer.map_err(|_| LogError::NoAnswer)
    }

    /// A comparison that holds while the log is this federation's.
    fn is_ours(&mut self) -> Result<Compare, LogError> {
        if self.ours.is_none()
            && let Some(identity) = self.asked
        {
            self.open(identity)?;
        }
        // A log that was never opened is not known to be this federation's.
        let ours = self.ours.clone().ok_or(LogError::NoAnswer)?;
        Ok(compare(self.key("federation"), CompareResult::Equal, ours))
    }

    /// The reason for which a transaction that compares the federation failed; `Ok` if the log is this federation's.
    fn whose(&self, found: Option<&Bytes>) -> Result<(), LogError> {
        let found = found.ok_or(LogError::Gone)?;
        let (found, ours) = (Some(found), self.ours.as_ref());
        if found == ours {
            return Ok(());
        }
        let [found, expected] = [found, ours].map(|value| value.map(owner).unwrap_or_default().0);
        // Another log of this federation has taken the place of the one that was opened.
        Err(match found == expected {
            true => LogError::Gone,
            false => LogError::OtherFederation { found, expected },
        })
    }

    /// Up to `max` entries after `after`, at most a page, and the revision of etcd's history at which they were read.
    fn page(&mut self, after: Revision, max: usize) -> Result<(Stretch, i64), LogError> {
        let count = max.min(self.page);
        let mut success = vec![get(self.key("head")), get(self.key("trimmed"))];
        if count > 0 {
            let end = Revision(after.0.saturating_add(1 + count as u64));
            success.push(op(KeyRequest::Range(Range {
                key: self.entry_key(after.next()),
                range_end: self.entry_key(end),
                limit: 0,
            })));
        }
        let txn = Txn {
            compare: vec![self.is_ours()?],
            success,
            failure: vec![get(self.key("federation"))],
        };
        let done = self.ask::<_, TxnDone>(messages::TXN, &txn);
        self.page = match done {
            Ok(_) => (self.page * 2).min(PAGE),
            Err(_) => (count / 2).max(1),
        };
        let done = done?;
        if !done.succeeded {
            self.whose(value(&done, 0))?;
            return Err(LogError::NoAnswer); // the log was claimed meanwhile
        }
        let last = number(&done, 0).map(Revision).ok_or(LogError::Gone)?;
        let trimmed = number(&done, 1).map(Revision).ok_or(LogError::Gone)?;
        self.trimmed = self.trimmed.max(trimmed);
        if after < trimmed {
            return Err(LogError::Compacted { trimmed });
        }
        if after > last && after != BEYOND {
            return Err(LogError::Gone); // the caller has entries that the log lacks
        }
        let mut records = Vec::new();
        if let Some(Some(KeyResponse::Range(ranged))) = done.responses.get(2).map(|response| &response.response) {
            for kv in &ranged.kvs {
                records.extend(self.record(kv));
            }
        }
        let due = last.0.saturating_sub(after.0).min(count as u64);
        let placed = |(index, record): (usize, &LogRecord)| record.revision.0 == after.0 + 1 + index as u64;
        let in_order = records.iter().enumerate().all(placed);
        if records.len() as u64 != due || !in_order {
            return Err(LogError::Gone); // another program has removed entries
        }
        let at = done.header.map_or(0, |header| header.revision);
        Ok((Stretch { records, last }, at))
    }

    /// Bytes of the entries, if all are as long as the last ones; 0 without an answer.
    fn estimate(&mut self, trimmed: Revision, last: Revision) -> u64 {
        let sample = last.0.saturating_sub(trimmed.0).min(SAMPLE);
        let found = self.page(Revision(last.0 - sample), sample as usize);
        let records = found.map(|(stretch, _)| stretch.records).unwrap_or_default();
        let bytes: u64 = records.iter().map(|record| record.bytes.len() as u64).sum();
        bytes * (last.0 - trimmed.0.min(last.0)) / sample.max(1)
    }

    /// Deletes the entries up to `upto`; returns the revision of etcd's history.
    fn delete_upto(&mut self, upto: Revision) -> Result<i64, LogError> {
        let trimmed = self.key("trimmed");
        let delete = Delete {
            key: self.entry_key(Revision::ZERO),
            range_end: self.entry_key(upto.next()),
        };
        let txn = Txn {
            compare: vec![
                self.is_ours()?,
                compare(trimmed.clone(), CompareResult::Less, digits(upto.0)),
            ],
            success: vec![put(trimmed, digits(upto.0)), op(KeyRequest::Delete(delete))],
            failure: Vec::new(),
        };
        let done: TxnDone = self.ask(messages::TXN, &txn)?;
        self.trimmed = self.trimmed.max(upto); // if the comparison failed, another caller has trimmed further
        Ok(done.header.map_or(0, |header| header.revision))
    }

    /// Begins to make room in an etcd that is full, up to the revision `at` of its history.
    fn make_room(&mut self, at: i64) {
        let is_under_way = self.making_room.as_ref().is_some_and(|thread| !thread.is_finished());
        if is_under_way || self.compacted.0.elapsed() < COMPACT_EVERY {
            return;
        }
        self.compacted = (Instant::now(), at);
        let (address, runtime) = (self.address.clone(), Builder::new_current_thread().enable_all().build());
        let work = move || {
            let Ok(runtime) = runtime else { return };
            let made = runtime.block_on(async {
                let mut client = EtcdClient::new(&address, None).map_err(|error| error.to_string())?;
                let made = client.make_room(at).await;
                made.map_err(|status| with_sources(&status))
            });
            if let Err(why) = made {
                eprintln!("{address}: is full, and not all of its members made room: {why}");
            }
        };
        self.making_room = Some(std::thread::spawn(work));
    }

    fn record(&self, kv: &messages::KeyValue) -> Option<LogRecord> {
        let digits = kv.key.strip_prefix(&*self.key("log/"))?;
        Some(LogRecord {
            revision: Revision(std::str::from_utf8(digits).ok()?.parse().ok()?),
            bytes: kv.value.as_ref().into(),
        })
    }

    /// Takes entries from the watch, until one has come, or `until`.
    fn listen(&mut self, until: Instant) {
        let Some((upto, at)) = self.watch.place else { return };
        let now = Instant::now();
        let Some((stream, heard)) = &mut self.watch.stream else {
            let create = Create {
                key: self.key("log/"),
                range_end: self.key("log0"),
                start_revision: at + 1,
                filters: vec![1], // no events of deleted keys
                fragment: true,
            };
            match self.runtime.block_on(self.client.watch(create)) {
                Ok(stream) => self.watch.stream = Some((stream, now)),
                Err(_) => self.pass_on(),
            }
            return;
        };
        let silent_at = *heard + QUIET_MAX;
        let wait = until.min(silent_at).saturating_duration_since(now);
        let said = self
            .runtime
            .block_on(async { tokio::time::timeout(wait, stream.message()).await });
        match said {
            Ok(Ok(Some(watched))) if watched.canceled => {
                if watched.compact_revision > 0 {
                    self.watch = Following::default();
                } else {
                    self.pass_on();
                }
            }
            Ok(Ok(Some(watched))) => {
                *heard = Instant::now();
                self.take(upto, watched);
            }
            Ok(_) => self.pass_on(),
            Err(_) if Instant::now() >= silent_at => {
                self.watch.stream = None;
                self.client.turn();
            }
            Err(_) => {}
        }
    }

    /// Opens the watch at the next member, after a short wait.
    fn pass_on(&mut self) {
        self.watch.stream = None;
        self.client.turn();
        // A timer must be made within the runtime.
        self.runtime.block_on(async { tokio::time::sleep(REOPEN_AFTER).await });
    }

    /// Appends the entries of a watch that follow `upto` to the waiting ones.
    fn take(&mut self, mut upto: Revision, watched: WatchResponse) {
        for event in watched.events {
            let Some(kv) = event.kv.filter(|_| event.kind == 0) else {
                continue;
            };
            let Some(record) = self.record(&kv) else { continue };
            if record.revision > upto.next() {
                self.watch = Following::default(); // an entry is missing: the log is read again
                return;
            }
            if record.revision == upto.next() {
                upto = record.revision;
                self.watch.waiting.push_back(record);
            }
            self.watch.place = Some((upto, kv.mod_revision));
        }
    }

    /// Compacts etcd's history up to the revision noted at the last compaction, if that is `COMPACT_EVERY` ago; `at` is
    /// the present revision.
    fn compact(&mut self, at: i64) {
        let (since, upto) = self.compacted;
        if since.elapsed() < COMPACT_EVERY {
            return;
        }
        self.compacted = (Instant::now(), at);
        if upto > 0 {
            // A failure is harmless: the next compaction covers more, and another program may have been faster.
            let compact = Compact {
                revision: upto,
                physical: false,
            };
            drop(self.ask::<_, EmptyResponse>(messages::COMPACT, &compact));
        }
    }
}

/// Serves the log at `address` at a socket at `path`, for a node of this process: its event loop calls it as it calls
/// the log of another process. A file that an earlier start has left at `path` is removed.
///
/// # Errors
/// [`EtcdError`]: a wrong address or file. Does not check whether etcd answers.
pub fn bridge(address: &str, path: &Path) -> Result<LogServer, EtcdError> {
    let address: Address = address.parse()?;
    Etcd::new(&address, false)?;
    drop(std::fs::remove_file(path));
    let served = LogServer::start(path, move || Etcd::new(&address, false).ok());
    served.map_err(|error| EtcdError::Refused(format!("the socket between node and etcd: {error}")))
}

impl CommitLog for Etcd {
    fn open(&mut self, identity: Identity) -> Result<LogState, LogError> {
        let Identity {
            federation,
            format,
            history,
        } = identity;
        (self.asked, self.ours) = (Some(identity), None);
        let ours = owned_by(federation, history);
        let keys = ["federation", "format", "head", "trimmed"].map(|name| self.key(name));
        let [of, form, head, _] = &keys;
        let read = || keys.iter().cloned().map(get).collect::<Vec<_>>();
        let absent = Compare {
            result: CompareResult::Equal.into(),
            target: Target::Version.into(),
            key: of.clone(),
            operand: Some(Operand::Version(0)),
        };
        let new = [
            put(of.clone(), ours.clone()),
            put(form.clone(), digits(format.into())),
            put(head.clone(), digits(history.base.0)),
            put(self.key("trimmed"), digits(history.base.0)),
        ];
        let txn = Txn {
            compare: vec![absent],
            success: if self.claims { new.into() } else { Vec::new() },
            failure: read(),
        };
        let done: TxnDone = self.ask(messages::TXN, &txn)?;
        if done.succeeded {
            self.ours = Some(ours);
            let (last, trimmed) = (history.base, history.base);
            return match self.claims {
                true => Ok(LogState {
                    last,
                    history,
                    trimmed,
                    bytes: 0,
                }),
                false => Err(LogError::Gone),
            };
        }
        let ours = value(&done, 0).ok_or(LogError::Gone)?;
        let (federation, history) = owner(ours);
        let found = Identity {
            federation,
            format: u32::try_from(number(&done, 1).unwrap_or_default()).unwrap_or(u32::MAX),
            history,
        };
        found.admit(identity)?; // without `ours` no call is made to it
        self.ours = Some(ours.clone());
        if found.format < format {
            let raise = Txn {
                compare: vec![
                    self.is_ours()?,
                    compare(form.clone(), CompareResult::Less, digits(format.into())),
                ],
                success: vec![put(form.clone(), digits(format.into()))],
                failure: Vec::new(),
            };
            self.ask::<_, TxnDone>(messages::TXN, &raise)?;
        }
        let last = number(&done, 2).map(Revision).ok_or(LogError::Gone)?;
        let trimmed = Revision(number(&done, 3).unwrap_or_default());
        Ok(LogState {
            last,
            history,
            trimmed,
            bytes: self.estimate(trimmed, last),
        })
    }

    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<AppendResult, LogError> {
        let len = entry.len();
        if len > ENTRY_BYTES_MAX {
            return Err(LogError::EntryTooLong { len });
        }
        let at = last.next();
        let (head, of) = (self.key("head"), self.key("federation"));
        let txn = Txn {
            compare: vec![
                self.is_ours()?,
                compare(head.clone(), CompareResult::Equal, digits(last.0)),
            ],
            success: vec![
                put(head.clone(), digits(at.0)),
                put(self.entry_key(at), Bytes::copy_from_slice(entry)),
            ],
            failure: vec![get(of), get(head)],
        };
        let done = self
            .runtime
            .block_on(self.client.ask::<_, TxnDone>(messages::TXN, &txn));
        self.is_full = false;
        let done = done.map_err(|status| match status.code() {
            // This etcd has a smaller bound than etcd's default.
            Code::InvalidArgument if status.message().contains("too large") => LogError::EntryTooLong { len },
            Code::ResourceExhausted if status.message().contains("space exceeded") => {
                self.is_full = true;
                LogError::NoRoom
            }
            _ => LogError::NoAnswer,
        })?;
        if done.succeeded {
            return Ok(AppendResult::At(at));
        }
        self.whose(value(&done, 0))?;
        match number(&done, 1).map(Revision) {
            Some(end) if end > last => Ok(AppendResult::Lost { last: end }),
            Some(end) if end == last => Err(LogError::NoAnswer),
            _ => Err(LogError::Gone), // the caller has entries that the log lacks
        }
    }

    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError> {
        let (mut all, _) = self.page(after, max)?;
        let due = usize::try_from(all.last.0.saturating_sub(after.0)).map_or(max, |due| due.min(max));
        while all.records.len() < due {
            let from = Revision(after.0 + all.records.len() as u64);
            let (page, _) = self.page(from, due - all.records.len())?;
            all.records.extend(page.records);
        }
        Ok(all)
    }

    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError> {
        self.await_from(after, max, GLANCE)
    }

    fn await_from(&mut self, after: Revision, max: usize, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        let until = Instant::now() + wait;
        if max == 0 {
            return Ok(Vec::new());
        }
        loop {
            let waiting = &mut self.watch.waiting;
            while waiting.front().is_some_and(|record| record.revision <= after) {
                waiting.pop_front();
            }
            if waiting.front().is_some_and(|record| record.revision == after.next()) {
                return Ok(waiting.iter().take(max).cloned().collect());
            }
            if waiting.is_empty() && self.watch.place.is_some_and(|(upto, _)| upto <= after) {
                self.listen(until);
            } else {
                // The requested entries do not follow the watched ones.
                let (found, at) = self.page(after, max)?;
                let upto = Revision(after.0 + found.records.len() as u64).min(found.last);
                self.watch = Following {
                    place: (upto == found.last).then_some((upto, at)),
                    ..Following::default()
                };
                if !found.records.is_empty() {
                    return Ok(found.records);
                }
            }
            let is_there = self.watch.waiting.front().is_some_and(|record| record.revision > after);
            if !is_there && Instant::now() >= until {
                return Ok(Vec::new());
            }
        }
    }

    fn trim(&mut self, upto: Revision) -> Result<(), LogError> {
        if upto <= self.trimmed && !self.is_full {
            return Ok(());
        }
        // Reads the end of the log, also if all entries before it are trimmed.
        let (Stretch { last, .. }, at) = self.page(BEYOND, 0)?;
        let upto = upto.min(last);
        if self.is_full {
            // The alarm may be of an entry that was too long; a trim is short.
            drop(self.runtime.block_on(self.client.end_alarms()));
        }
        let done = match upto > self.trimmed {
            true => self.delete_upto(upto).map(|revision| revision.max(at)),
            false => Ok(at),
        };
        match self.is_full {
            true => self.make_room(done.unwrap_or(at)),
            false => self.compact(done?),
        }
        Ok(())
    }
}

/// The value of the key `federation`.
fn owned_by(federation: FederationId, LogHistory { id, base, parent }: LogHistory) -> Bytes {
    let history = format!(" {:016x} {:016x} {:016x}", id.0, base.0, parent.0);
    let is_known = id != HistoryId::default();
    Bytes::from(federation.to_string() + if is_known { &history } else { "" })
}

/// The federation and the history in the value of the key `federation`; 0 for what another program wrote.
fn owner(bytes: &Bytes) -> (FederationId, LogHistory) {
    let mut numbers = std::str::from_utf8(bytes).unwrap_or_default().split(' ');
    let mut next = || u64::from_str_radix(numbers.next()?, 16).ok();
    let mut next = || next().unwrap_or_default();
    let federation = FederationId(next());
    let (id, base, parent) = (HistoryId(next()), Revision(next()), HistoryId(next()));
    (federation, LogHistory { id, base, parent })
}

fn op(request: KeyRequest) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn get(key: Bytes) -> RequestOp {
    op(KeyRequest::Range(Range {
        key,
        ..Range::default()
    }))
}

fn put(key: Bytes, value: Bytes) -> RequestOp {
    op(KeyRequest::Put(Put { key, value }))
}

fn compare(key: Bytes, result: CompareResult, with: Bytes) -> Compare {
    Compare {
        result: result.into(),
        target: Target::Value.into(),
        key,
        operand: Some(Operand::Value(with)),
    }
}

/// Numbers have a fixed width, so that they compare as text does.
fn digits(number: u64) -> Bytes {
    Bytes::from(format!("{number:020}"))
}

/// The value read by the operation with this index.
fn value(done: &TxnDone, index: usize) -> Option<&Bytes> {
    match &done.responses.get(index)?.response {
        Some(KeyResponse::Range(ranged)) => ranged.kvs.first().map(|kv| &kv.value),
        _ => None,
    }
}

fn number(done: &TxnDone, index: usize) -> Option<u64> {
    std::str::from_utf8(value(done, index)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
