//! The state that a client keeps, so that it never sees time go back.

use punctual_units::Nanos;

use crate::ids::{RequestId, Revision, SessionId};
use crate::message::{Answer, Output, Request, Work};

/// A client's side of a session. The session continues across nodes and masters: all that it needs is the last revision
/// that it has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSession {
    id: SessionId,
    numbers: u64,
    seen: Revision,
}

impl ClientSession {
    /// The session's id; 0 before the answer to [`Work::Open`].
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// A session that continues: `numbers` of its requests had numbers, and it has seen all up to the revision `seen`.
    pub fn resumed(id: SessionId, numbers: u64, seen: Revision) -> ClientSession {
        ClientSession { id, numbers, seen }
    }

    /// Number of the session's requests so far.
    pub fn numbers(&self) -> u64 {
        self.numbers
    }

    /// The last revision that the session has seen.
    pub fn seen(&self) -> Revision {
        self.seen
    }

    /// Makes the next request of this session. Send transactions in the order in which they were made, the next after
    /// the answer to the one before; after [`Answer::Unknown`] or no answer, ask for the [`Work::Outcome`] first.
    pub fn request(&mut self, work: Work, time_left: Nanos) -> Request {
        self.numbers = self.numbers.saturating_add(1);
        Request {
            id: RequestId {
                session: self.id,
                number: self.numbers,
            },
            work,
            time_left,
            seen: self.seen,
        }
    }

    /// Learns revision and session id from an answer.
    pub fn answered(&mut self, answer: &Answer) {
        let Answer::Done { output, revision, .. } = answer else {
            return;
        };
        self.seen = self.seen.max(*revision);
        if let Output::Session(id) = output {
            self.id = *id;
            self.numbers = 0;
        }
    }
}
