//! Entries of the log, and their encoding.

use std::borrow::Cow;

use punctual_logs::{ENTRY_BYTES_MAX, FORMAT, FederationId, HistoryId, LogError};
use punctual_redis::commands::events;
use punctual_store::batch::WriteSet;
use serde::{Deserialize, Serialize};

use crate::ids::{BatchId, RequestId, Revision};
use crate::message::{Key, RESERVED, Stop};

/// Bytes of an entry beside its transactions.
const HEAD_BYTES: usize = 1024;
/// Most bytes of an event beside its key.
const EVENT_OVERHEAD: usize = 8;
/// Most bytes of a request's number.
const ID_BYTES: usize = 20;

/// An event of a client's key, as subscribers get it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyEvent {
    /// Number of its [name](events::name).
    pub name: u8,
    pub key: Key,
}

/// A transaction in the log: its changes, as values, so that nodes need not execute it again; and the temporal values
/// that it read, because these are no part of the serial order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedTransaction {
    pub id: RequestId,
    /// Changes, and the temporal values read.
    pub set: WriteSet,
    /// The events of its keys in their order; none if they are `set` and `del` of its changes. An entry has them at its
    /// end, where older programs do not read.
    #[serde(skip)]
    pub events: Vec<KeyEvent>,
}

impl LoggedTransaction {
    /// An upper bound of its bytes in an entry.
    fn bytes(&self) -> usize {
        self.set.bytes() + ID_BYTES + self.event_bytes()
    }

    fn event_bytes(&self) -> usize {
        let keys = self.events.iter().map(|event| EVENT_OVERHEAD + event.key.len());
        EVENT_OVERHEAD + keys.sum::<usize>()
    }

    /// The events of its keys.
    pub fn events(&self) -> Cow<'_, [KeyEvent]> {
        match self.events.is_empty() {
            true => plain_events(&self.set).into(),
            false => (&self.events).into(),
        }
    }
}

/// `set` and `del` of the clients' keys that a transaction changes.
pub fn plain_events(set: &WriteSet) -> Vec<KeyEvent> {
    let clients = set.changes.iter().filter(|(key, _)| key.first() != Some(&RESERVED));
    let event = |(key, value): (&Key, &Option<_>)| KeyEvent {
        name: value.as_ref().map_or(events::DEL, |_| events::SET),
        key: key.clone(),
    };
    clients.map(event).collect()
}

/// Leaves out the longest events where an entry has no room for all: subscribers get `set` and `del` of those
/// transactions.
pub(crate) fn fit_events(transactions: &mut [LoggedTransaction]) {
    let mut bytes = HEAD_BYTES + transactions.iter().map(LoggedTransaction::bytes).sum::<usize>();
    while bytes > ENTRY_BYTES_MAX
        && let Some(longest) = transactions.iter_mut().max_by_key(|logged| logged.event_bytes())
        && !longest.events.is_empty()
    {
        bytes -= longest.bytes();
        longest.events.clear();
        bytes += longest.bytes();
    }
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
            Body::Batch(transactions) => transactions.iter().map(|logged| logged.bytes() as u64).sum(),
        }
    }

    /// Leaves out the events of all transactions; returns whether there were any.
    pub(crate) fn clear_events(&mut self) -> bool {
        let Body::Batch(transactions) = &mut self.body else {
            return false;
        };
        let had_any = transactions.iter().any(|logged| !logged.events.is_empty());
        transactions.iter_mut().for_each(|logged| logged.events.clear());
        had_any
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
        let bytes = postcard::to_extend(self, bytes).unwrap_or_default();
        let Body::Batch(transactions) = &self.body else {
            return bytes;
        };
        let events: Vec<_> = transactions.iter().map(|logged| &logged.events).collect();
        match events.iter().all(|events| events.is_empty()) {
            true => bytes,
            false => postcard::to_extend(&events, bytes).unwrap_or_default(),
        }
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
        let (mut entry, rest) = match postcard::take_from_bytes::<Entry>(rest) {
            Ok(whole) => whole,
            Err(error) => {
                let without_history = postcard::from_bytes(&[rest, &[0]].concat()).map_err(corrupt)?;
                match without_history {
                    entry @ Entry {
                        body: Body::Reign(_), ..
                    } => return Ok(entry),
                    _ => return Err(corrupt(error)),
                }
            }
        };
        if let Body::Batch(transactions) = &mut entry.body
            && !rest.is_empty()
        {
            let events: Vec<Vec<KeyEvent>> = postcard::from_bytes(rest).map_err(corrupt)?;
            for (logged, events) in transactions.iter_mut().zip(events) {
                logged.events = events;
            }
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_logs::{FORMAT, FederationId, LogError};
    use punctual_store::batch::WriteSet;

    use super::{
        Body, ENTRY_BYTES_MAX, Entry, HEAD_BYTES, Header, KeyEvent, LoggedTransaction, fit_events, plain_events,
    };
    use crate::ids::{BatchId, RequestId, Revision, SessionId};
    use crate::message::Stop;

    const OURS: FederationId = FederationId(7);

    fn entry(writes: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Entry {
        let set = WriteSet {
            changes: writes.into_iter().collect(),
            ..WriteSet::default()
        };
        let id = RequestId::default();
        let events = Vec::new();
        let logged = LoggedTransaction { id, set, events };
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
        fn an_entry_is_no_longer_than_its_bound(
            writes in prop::collection::vec(any::<(Vec<u8>, Option<Vec<u8>>)>(), 0..4),
            events in prop::collection::vec(any::<(u8, Vec<u8>)>(), 0..40),
            (session, number) in any::<(u64, u64)>(),
            times in 1..64_usize,
        ) {
            let mut entry = entry(writes);
            let Body::Batch(transactions) = &mut entry.body else { unreachable!() };
            let session = SessionId(session);
            transactions[0].id = RequestId { session, number };
            transactions[0].events = events.into_iter().map(|(name, key)| KeyEvent { name, key }).collect();
            *transactions = vec![transactions[0].clone(); times];
            prop_assert!(entry.encode(OURS).len() as u64 <= entry.bytes() + HEAD_BYTES as u64);
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

    /// Older programs read an entry up to its events.
    #[test]
    fn the_events_of_keys_are_read_and_may_lack() {
        let plain = entry(vec![(b"key".to_vec(), Some(b"value".to_vec()))]);
        let mut named = plain.clone();
        let Body::Batch(transactions) = &mut named.body else {
            unreachable!()
        };
        let key = b"key".to_vec();
        transactions[0].events = vec![KeyEvent { name: 3, key }];
        let bytes = named.encode(OURS);
        assert_eq!(Entry::decode(&bytes, Revision(1), OURS), Ok(named.clone()));
        let former = plain.encode(OURS);
        assert!(bytes.starts_with(&former));
        assert_eq!(Entry::decode(&former, Revision(1), OURS), Ok(plain.clone()));
        let Body::Batch(transactions) = &plain.body else {
            unreachable!()
        };
        assert_eq!(transactions[0].events(), plain_events(&transactions[0].set));
        assert_eq!(transactions[0].events()[0].name, 0);
    }

    #[test]
    fn events_without_room_are_left_out() {
        for (len, is_kept) in [(ENTRY_BYTES_MAX / 2, true), (ENTRY_BYTES_MAX - 4096, false)] {
            let Body::Batch(mut transactions) = entry(vec![(vec![1], Some(vec![1; len]))]).body else {
                unreachable!()
            };
            let key = vec![1; 500];
            transactions[0].events = vec![KeyEvent { name: 3, key }; 8];
            let mut short = transactions[0].clone();
            short.set = WriteSet::default();
            short.events.truncate(1);
            transactions.push(short);
            fit_events(&mut transactions);
            assert_eq!(!transactions[0].events.is_empty(), is_kept);
            assert!(!transactions[1].events.is_empty());
        }
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
