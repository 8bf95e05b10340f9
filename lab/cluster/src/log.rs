//! The commit log of the cluster: a log in memory behind a network, which at times does not answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_federation::entry::{Body, Entry};
use punctual_federation::ids::{Member, Revision};
use punctual_logs::{AppendResult, CommitLog, FORMAT, HistoryId, Identity, LogError, LogHistory, LogState, Memory};
use punctual_units::{ObjectName, Time};
use rand::RngExt;

use super::Plant;
use super::world::{Endpoint, FEDERATION, Packet, Question, World};

/// Direction of the packets that are lost while the log does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deaf {
    /// Requests do not reach the log.
    Requests,
    /// The log executes requests, but its answers are lost.
    Answers,
}

/// The commit log and its outages.
#[derive(Debug)]
pub(super) struct LogPlace {
    log: Memory,
    /// Until when the log does not answer, and what is lost.
    pub(super) deaf: Option<(Time, Deaf)>,
    /// Begin and end of the log's absence.
    pub(super) gone: Option<(Time, Time)>,
    /// The master, by the last `Reign` record in the log.
    pub(super) reign: Option<Member>,
    /// Largest entry that the log accepts, in bytes.
    entry_bytes_max: usize,
    /// Temporal objects that entries have created.
    pub(super) created: BTreeSet<ObjectName>,
}

/// History of the log, which each node opens as it starts.
pub(super) const HISTORY: LogHistory = LogHistory {
    id: HistoryId(1),
    base: Revision::ZERO,
    parent: HistoryId(0),
};

impl LogPlace {
    /// Makes an empty log that accepts entries up to this length.
    pub(super) fn new(entry_bytes_max: usize) -> LogPlace {
        let mut log = Memory::default();
        let identity = Identity {
            federation: FEDERATION,
            format: FORMAT,
            history: HISTORY,
        };
        let _ = log.open(identity); // a new one takes any federation
        LogPlace {
            log,
            deaf: None,
            gone: None,
            reign: None,
            entry_bytes_max,
            created: BTreeSet::new(),
        }
    }

    /// State of the log for a node that opens it.
    pub(super) fn opened(&self) -> LogState {
        LogState {
            last: self.last(),
            history: HISTORY,
            ..LogState::default()
        }
    }

    /// Revision of the last entry.
    pub(super) fn last(&self) -> Revision {
        self.log.last()
    }
}

impl World {
    pub(super) fn log_arrives(&mut self, from: Endpoint, packet: Packet) {
        let Packet::Ask(boot, ticket, question) = packet else {
            return;
        };
        let deaf = self.log.deaf.filter(|(until, _)| *until > self.now).map(|(_, how)| how);
        let gone = self
            .log
            .gone
            .is_some_and(|(from, until)| (from..until).contains(&self.now));
        if gone || deaf == Some(Deaf::Requests) {
            return;
        }
        let answer = match question {
            Question::Append(last, bytes) => Packet::Appended(boot, ticket, self.append(last, &bytes)),
            Question::Read(after, max) => Packet::Read(boot, ticket, self.log.log.read_from(after, max)),
            Question::Trim(upto) => {
                let _ = self.log.log.trim(upto); // trimming cannot fail, and no node waits for it
                return;
            }
        };
        if deaf.is_none() {
            self.send(Endpoint::Log, from, answer);
        }
    }

    fn append(&mut self, last: Revision, bytes: &Arc<[u8]>) -> Result<AppendResult, LogError> {
        let len = bytes.len();
        if len > self.log.entry_bytes_max {
            return Err(LogError::EntryTooLong { len });
        }
        let twice = self.plant == Some(Plant::BatchTwice) && self.is_there(bytes);
        let last = match twice || self.plant == Some(Plant::NoFence) {
            true => self.log.last(),
            false => last,
        };
        let answer = self.log.log.append(last, bytes);
        if let Ok(AppendResult::At(revision)) = answer {
            self.appended(revision, bytes);
        }
        answer
    }

    /// Records the entry for the check, and notifies the nodes.
    fn appended(&mut self, revision: Revision, bytes: &Arc<[u8]>) {
        match Entry::decode(bytes, revision, FEDERATION) {
            Ok(entry) => {
                match &entry.body {
                    Body::Reign(_) => self.log.reign = Some(entry.id.member),
                    Body::Batch(batch) => {
                        let created = batch.iter().flat_map(|logged| &logged.set.created);
                        self.log.created.extend(created.map(|creation| creation.made));
                    }
                }
                self.history.log.push(Arc::new(entry));
                self.history.logged.push(self.now);
            }
            Err(stop) => self.broken(format!("a node wrote an entry that cannot be read: {stop}")),
        }
        for host in 0..self.hosts.len() {
            let watched = self.log.log.watch_from(Revision(revision.0 - 1), 1).unwrap_or_default();
            for record in watched {
                self.send(Endpoint::Log, Endpoint::Host(host), Packet::Watched(record));
            }
        }
    }

    /// Whether these bytes are the log's last entry.
    fn is_there(&mut self, bytes: &Arc<[u8]>) -> bool {
        let before = Revision(self.log.last().0.saturating_sub(1));
        let last = self.log.log.read_from(before, 1);
        last.is_ok_and(|last| last.records.first().is_some_and(|record| record.bytes == *bytes))
    }

    /// Stops the log from answering for a random time.
    pub(super) fn deafen(&mut self) {
        let how = match self.random.random_bool(0.5) {
            true => Deaf::Requests,
            false => Deaf::Answers,
        };
        let until = self.now + self.micros(20_000, 500_000);
        self.log.deaf = Some((until, how));
    }
}
