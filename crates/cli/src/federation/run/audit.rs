//! What the log has, entry by entry, and what clients were told: whether the two agree.

use std::collections::BTreeMap;

use punctual_federation::entry::{Body, Entry};
use punctual_federation::ids::{FederationId, RequestId, Revision, SessionId};
use punctual_federation::message::Reign;
use punctual_logs::{Appended, CommitLog, Identity, Local, LogError, Record, Stretch};

use super::super::load::Fate;

/// A log, and a list of what was appended to it: trimming takes nothing from the list.
#[derive(Debug)]
pub(super) struct Audited {
    log: Local,
    federation: FederationId,
    pub audit: Audit,
}

/// What the log has.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit {
    reign: Reign,
    /// The requests of sessions that are in the log.
    pub requests: Requests,
    /// Those that are in it more than once.
    pub twice: u64,
    pub entries: u64,
    pub reigns: u64,
    /// Entries that the master of their reign has not made.
    pub double_masters: u64,
    /// Entries that cannot be read.
    pub unreadable: u64,
}

impl Audited {
    pub fn new(log: Local, federation: FederationId) -> Audited {
        Audited {
            log,
            federation,
            audit: Audit::default(),
        }
    }

    /// Why the log answers no more, if it does not.
    pub fn failure(&self) -> Option<&str> {
        self.log.failure()
    }
}

impl CommitLog for Audited {
    fn open(&mut self, identity: Identity) -> Result<Revision, LogError> {
        self.log.open(identity)
    }

    fn append(&mut self, last: Revision, entry: &[u8]) -> Result<Appended, LogError> {
        let appended = self.log.append(last, entry)?;
        if let Appended::At(at) = appended {
            self.audit.note(at, entry, self.federation);
        }
        Ok(appended)
    }

    fn read_from(&mut self, after: Revision, max: usize) -> Result<Stretch, LogError> {
        self.log.read_from(after, max)
    }

    fn watch_from(&mut self, after: Revision, max: usize) -> Result<Vec<Record>, LogError> {
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
            Body::Reign => {
                self.reigns += 1;
                self.double_masters += u64::from(id.epoch.0 != epoch.0 + 1);
                self.reign = Reign {
                    epoch: id.epoch,
                    master: Some(id.member),
                };
            }
            Body::Batch(transactions) => {
                let is_masters = self.reign.master == Some(id.member) && epoch == id.epoch;
                self.double_masters += u64::from(!is_masters);
                // Those of no session open one, or raise a floor: each may be there more than once.
                for logged in transactions.iter().filter(|logged| logged.id.session != SessionId(0)) {
                    self.twice += u64::from(!self.requests.insert(logged.id));
                }
            }
        }
    }
}

/// Requests of sessions, a bit each: a session numbers them one by one, so an hour of them takes a few megabytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    /// By session, and by their numbers over 64.
    words: BTreeMap<(SessionId, u64), u64>,
}

impl Requests {
    /// Adds one; whether it was not there.
    pub fn insert(&mut self, id: RequestId) -> bool {
        let word = self.words.entry((id.session, id.number / 64)).or_default();
        let bit = 1 << (id.number % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// How many of these are not in `others`, or are.
    fn count(&self, others: &Requests, are: bool) -> u64 {
        let each = self.words.iter().map(|(place, word)| {
            let there = others.words.get(place).copied().unwrap_or(0);
            u64::from((word & if are { there } else { !there }).count_ones())
        });
        each.sum()
    }
}

/// What clients were told.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    /// Requests that were acknowledged, or whose outcome says that they are in the log.
    committed: Requests,
    /// Those that were not executed, as clients were told.
    not_executed: Requests,
    missing: u64,
    /// Answers that were not what the client has counted.
    pub wrong: u64,
}

impl Clients {
    /// Takes note of what became of a request.
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

/// What does not agree; all of it is to be 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Faults {
    /// Requests that were acknowledged, and are not in the log.
    pub acknowledged_lost: u64,
    /// Entries of the log that a node made which was not the master.
    pub double_masters: u64,
    /// Requests that got no answer, nor one to the question for their outcome.
    pub answers_missing: u64,
    /// Requests that are in the log more than once.
    pub executed_twice: u64,
    /// Requests that are in the log, and of which the client was told that they were not executed.
    pub executed_though_late: u64,
    /// Acknowledged requests that returned something else than the order of the log says.
    pub wrong_answers: u64,
    /// Nodes whose records differ at the end from what clients were told.
    pub nodes_that_differ: u64,
}

impl Faults {
    /// Whether there is one.
    pub fn any(&self) -> bool {
        *self != Faults::default()
    }
}

/// Holds what clients were told against the log.
pub(super) fn compare(audit: &Audit, clients: &Clients) -> Faults {
    Faults {
        acknowledged_lost: clients.committed.count(&audit.requests, false),
        double_masters: audit.double_masters + audit.unreadable,
        answers_missing: clients.missing,
        executed_twice: audit.twice,
        executed_though_late: clients.not_executed.count(&audit.requests, true),
        wrong_answers: clients.wrong,
        nodes_that_differ: 0,
    }
}
