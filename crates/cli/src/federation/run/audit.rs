//! What the log has, entry by entry, and what clients were told: whether the two agree.

use std::collections::BTreeMap;

use punctual_federation::entry::{Body, Entry};
use punctual_federation::ids::{FederationId, RequestId, Revision, SessionId};
use punctual_federation::message::Reign;
use punctual_logs::{Appended, CommitLog, Identity, Local, LogError, Record, Stretch};
use punctual_units::Time;

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
    /// How often each request of a session is in the log, and where last.
    pub requests: BTreeMap<RequestId, (u32, Revision)>,
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
                    let (times, place) = self.requests.entry(logged.id).or_default();
                    *times += 1;
                    *place = at;
                }
            }
        }
    }
}

/// What became of one request, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Acknowledged, with what it returned, and what it should have.
    Acknowledged { returned: i64, right: i64 },
    /// Told that it was late, or refused.
    NotExecuted,
    /// Its outcome was asked for: it is in the log.
    Committed,
    /// Its outcome was asked for: it is not, and never will be.
    NeverExecuted,
    /// No answer, and none to the question for its outcome.
    Missing,
}

/// One request of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub id: RequestId,
    pub fate: Fate,
    /// When its last word came.
    pub ended: Time,
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
pub(super) fn compare(audit: &Audit, requests: &[Request]) -> Faults {
    let mut faults = Faults {
        double_masters: audit.double_masters + audit.unreadable,
        executed_twice: audit.requests.values().filter(|(times, _)| *times > 1).count() as u64,
        ..Faults::default()
    };
    for request in requests {
        let is_there = audit.requests.contains_key(&request.id);
        match request.fate {
            Fate::Acknowledged { returned, right } => {
                faults.acknowledged_lost += u64::from(!is_there);
                faults.wrong_answers += u64::from(returned != right);
            }
            Fate::Committed => faults.acknowledged_lost += u64::from(!is_there),
            Fate::NotExecuted | Fate::NeverExecuted => faults.executed_though_late += u64::from(is_there),
            Fate::Missing => faults.answers_missing += 1,
        }
    }
    faults
}
