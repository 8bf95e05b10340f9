//! Audit of a run: compares the entries of the log with the answers that clients got.

use std::collections::BTreeMap;

use punctual_federation::entry::{Body, Entry};
use punctual_federation::ids::{FederationId, RequestId, Revision, SessionId};
use punctual_federation::message::Reign;
use punctual_logs::{AppendResult, CommitLog, Identity, Local, LogError, LogRecord, LogState, Stretch};

use super::super::load::Fate;

/// A log that records every append, so that trimming loses nothing for the audit.
#[derive(Debug)]
pub(super) struct AuditedLog {
    log: Local,
    federation: FederationId,
    pub audit: Audit,
}

/// Summary of a log's entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit {
    reign: Reign,
    /// Requests of sessions that are in the log.
    pub requests: Requests,
    /// Requests that are in the log more than once.
    pub twice: u64,
    pub entries: u64,
    pub reigns: u64,
    /// Entries from a node that was not the master of the term.
    pub double_masters: u64,
    /// Entries that cannot be decoded.
    pub unreadable: u64,
}

impl AuditedLog {
    pub fn new(log: Local, federation: FederationId) -> AuditedLog {
        AuditedLog {
            log,
            federation,
            audit: Audit::default(),
        }
    }

    /// Reason why the log no longer answers; `None` while it does.
    pub fn failure(&self) -> Option<&str> {
        self.log.failure()
    }
}

impl CommitLog for AuditedLog {
    fn open(&mut self, identity: Identity) -> Result<LogState, LogError> {
        self.log.open(identity)
    }

    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<AppendResult, LogError> {
        let appended = self.log.append(last, entry)?;
        if let AppendResult::At(at) = appended {
            self.audit.note(at, entry, self.federation);
        }
        Ok(appended)
    }

    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError> {
        self.log.read_from(after, max)
    }

    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<LogRecord>, LogError> {
        self.log.watch_from(after, max)
    }

    fn trim(&mut self, upto: Revision) -> Result<(), LogError> {
        self.log.trim(upto)
    }
}

impl Audit {
    pub fn note(&mut self, at: Revision, bytes: &[u8], federation: FederationId) {
        self.entries += 1;
        let Ok(Entry { id, body }) = Entry::decode(bytes, at, federation) else {
            self.unreadable += 1;
            return;
        };
        let epoch = self.reign.epoch;
        match body {
            Body::Reign(history) => {
                self.reigns += 1;
                self.double_masters += u64::from(id.epoch.0 != epoch.0 + 1);
                self.reign = Reign {
                    epoch: id.epoch,
                    master: Some(id.member),
                    history,
                };
            }
            Body::Batch(transactions) => {
                let is_masters = self.reign.master == Some(id.member) && epoch == id.epoch;
                self.double_masters += u64::from(!is_masters);
                // Requests without a session open one or raise a floor: each may occur more than once.
                for logged in transactions.iter().filter(|logged| logged.id.session != SessionId(0)) {
                    self.twice += u64::from(!self.requests.insert(logged.id));
                }
            }
        }
    }
}

/// Set of requests, a bit each: sessions number requests consecutively, so an hour of them takes a few megabytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    /// Words of 64 bits, by session and by number / 64.
    words: BTreeMap<(SessionId, u64), u64>,
}

impl Requests {
    /// Adds a request; returns whether it was new.
    pub fn insert(&mut self, id: RequestId) -> bool {
        let word = self.words.entry((id.session, id.number / 64)).or_default();
        let bit = 1 << (id.number % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Number of these requests that are in `others` (`are`), or are not.
    fn count(&self, others: &Requests, are: bool) -> u64 {
        let each = self.words.iter().map(|(place, word)| {
            let there = others.words.get(place).copied().unwrap_or(0);
            u64::from((word & if are { there } else { !there }).count_ones())
        });
        each.sum()
    }
}

/// Answers to all clients of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    /// Requests that were acknowledged, or are in the log by their outcome.
    committed: Requests,
    /// Requests that were answered as not executed.
    not_executed: Requests,
    missing: u64,
    /// Answers that differ from the client's count.
    pub wrong: u64,
}

impl Clients {
    /// Records the outcome of a request.
    pub fn take(&mut self, id: RequestId, fate: Fate) {
        match fate {
            Fate::Acknowledged { returned, right } => {
                self.wrong += u64::from(returned != right);
                self.committed.insert(id);
            }
            Fate::Committed => _ = self.committed.insert(id),
            Fate::NotExecuted | Fate::NeverExecuted => _ = self.not_executed.insert(id),
            Fate::Missing => self.missing += 1,
        }
    }
}

/// Disagreements between log and answers; all must be 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Disagreements {
    /// Acknowledged requests that are missing in the log.
    pub acknowledged_lost: u64,
    /// Log entries from a node that was not the master.
    pub double_masters: u64,
    /// Requests without an answer, whose outcome could not be determined either.
    pub answers_missing: u64,
    /// Requests that are in the log more than once.
    pub executed_twice: u64,
    /// Requests that are in the log although their clients were answered that they were not executed.
    pub executed_though_late: u64,
    /// Acknowledged requests that returned another value than the order of the log implies.
    pub wrong_answers: u64,
    /// Nodes whose records at the end differ from the answers to clients.
    pub nodes_that_differ: u64,
}

impl Disagreements {
    /// Whether there is any disagreement.
    pub fn any(&self) -> bool {
        *self != Disagreements::default()
    }
}

/// Compares the log with the answers to clients.
pub(super) fn compare(audit: &Audit, clients: &Clients) -> Disagreements {
    Disagreements {
        acknowledged_lost: clients.committed.count(&audit.requests, false),
        double_masters: audit.double_masters + audit.unreadable,
        answers_missing: clients.missing,
        executed_twice: audit.twice,
        executed_though_late: clients.not_executed.count(&audit.requests, true),
        wrong_answers: clients.wrong,
        nodes_that_differ: 0,
    }
}
