//! Entries of the log, and their encoding.

use punctual_logs::{FORMAT, FederationId, HistoryId, LogError};
use punctual_store::batch::WriteSet;
use serde::{Deserialize, Serialize};

use crate::ids::{BatchId, RequestId, Revision};
use crate::message::Stop;

/// A transaction in the log: its changes, as values, so that nodes need not execute it again; and the temporal values
/// that it read, because these are no part of the serial order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedTransaction {
    pub id: RequestId,
    /// Changes, and the temporal values read.
    pub set: WriteSet,
}

/// The effect of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// The term [`BatchId::epoch`] of the master [`BatchId::member`] begins, in a log of this history. Older programs
    /// wrote no history, and ignore it.
    Reign(HistoryId),
    /// The transactions of a batch are committed, in this order.
    Batch(Vec<LoggedTransaction>),
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The batch's name: by it, a master finds its own entry again.
    pub id: BatchId,
    pub body: Body,
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    federation: FederationId,
}

impl Entry {
    /// An upper bound of its bytes in the log, but for a few of its head.
    pub fn bytes(&self) -> u64 {
        match &self.body {
            Body::Reign(_) => 0,
            Body::Batch(transactions) => transactions.iter().map(|logged| logged.set.bytes() as u64).sum(),
        }
    }

    /// Encodes the entry for the log of `federation`: format and federation first, so that any version can tell whether
    /// it can read the rest.
    pub fn encode(&self, federation: FederationId) -> Vec<u8> {
        let header = Header {
            format: FORMAT,
            federation,
        };
        // Cannot fail: there is no map or sequence of unknown length, and a vector grows.
        let bytes = postcard::to_stdvec(&header).unwrap_or_default();
        postcard::to_extend(self, bytes).unwrap_or_default()
    }

    /// Decodes the entry at `revision` in the log of `federation`.
    ///
    /// # Errors
    /// [`Stop::Log`] for another federation or a newer format, [`Stop::Corrupt`] for bytes that are no entry.
    pub fn decode(bytes: &[u8], revision: Revision, federation: FederationId) -> Result<Entry, Stop> {
        let corrupt = |_| Stop::Corrupt { revision };
        let (header, rest) = postcard::take_from_bytes::<Header>(bytes).map_err(corrupt)?;
        if header.format > FORMAT {
            return Err(Stop::Log(LogError::NewerFormat {
                found: header.format,
                supported: FORMAT,
            }));
        }
        if header.federation != federation {
            return Err(Stop::Log(LogError::OtherFederation {
                found: header.federation,
                expected: federation,
            }));
        }
        postcard::from_bytes(rest).or_else(|error| {
            let without_history = postcard::from_bytes(&[rest, &[0]].concat()).map_err(corrupt)?;
            match without_history {
                entry @ Entry {
                    body: Body::Reign(_), ..
                } => Ok(entry),
                _ => Err(corrupt(error)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_logs::{FORMAT, FederationId, LogError};
    use punctual_store::batch::WriteSet;

    use super::{Body, Entry, Header, LoggedTransaction};
    use crate::ids::{BatchId, RequestId, Revision};
    use crate::message::Stop;

    const OURS: FederationId = FederationId(7);

    fn entry(writes: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Entry {
        let set = WriteSet {
            changes: writes.into_iter().collect(),
            ..WriteSet::default()
        };
        let id = RequestId::default();
        let logged = LoggedTransaction { id, set };
        Entry {
            id: BatchId::default(),
            body: Body::Batch(vec![logged]),
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(writes in prop::collection::vec(any::<(Vec<u8>, Option<Vec<u8>>)>(), 0..8)) {
            let entry = entry(writes);
            prop_assert_eq!(Entry::decode(&entry.encode(OURS), Revision(1), OURS), Ok(entry));
        }

        #[test]
        fn any_bytes_are_an_entry_or_refused(bytes in any::<Vec<u8>>()) {
            let _ = Entry::decode(&bytes, Revision(1), OURS); // no panic
        }
    }

    #[test]
    fn an_entry_of_another_federation_is_refused() {
        let (found, expected) = (FederationId(8), OURS);
        let answer = Entry::decode(&entry(Vec::new()).encode(found), Revision(1), expected);
        assert_eq!(answer, Err(Stop::Log(LogError::OtherFederation { found, expected })));
    }

    #[test]
    fn an_entry_of_a_newer_format_is_refused_whatever_follows() {
        let header = Header {
            format: FORMAT + 1,
            federation: OURS,
        };
        let mut bytes = postcard::to_stdvec(&header).unwrap();
        bytes.extend(b"what only the newer version can read");
        let newer = LogError::NewerFormat {
            found: FORMAT + 1,
            supported: FORMAT,
        };
        assert_eq!(Entry::decode(&bytes, Revision(1), OURS), Err(Stop::Log(newer)));
    }

    /// Older programs wrote no history.
    #[test]
    fn the_history_of_a_term_is_read_and_may_lack() {
        let id = BatchId::default();
        let history = punctual_logs::HistoryId(1 << 40);
        let of = |history| Entry {
            id,
            body: Body::Reign(history),
        };
        let bytes = of(history).encode(OURS);
        assert_eq!(Entry::decode(&bytes, Revision(1), OURS), Ok(of(history)));
        let mut bytes = of(Default::default()).encode(OURS);
        assert_eq!(bytes.pop(), Some(0));
        assert_eq!(Entry::decode(&bytes, Revision(1), OURS), Ok(of(Default::default())));
    }

    #[test]
    fn an_entry_that_breaks_off_is_refused() {
        let bytes = entry(vec![(b"key".to_vec(), Some(b"value".to_vec()))]).encode(OURS);
        let corrupt = Stop::Corrupt { revision: Revision(3) };
        assert_eq!(
            Entry::decode(&bytes[..bytes.len() - 1], Revision(3), OURS),
            Err(corrupt)
        );
    }
}
