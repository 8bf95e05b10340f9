//! Keys that an entry of the log has changed, for clients that subscribe to changes.

use std::collections::BTreeMap;

use punctual_federation::entry::{Body, Entry};
use punctual_federation::ids::Revision;
use punctual_federation::message::{Key, RESERVED};
use punctual_server::subscribers::KeyNotice;

use crate::wire::IsSet;

/// The keys that an entry sets or removes, in order of keys; of several changes of a key, the last counts. Keys that
/// are reserved for the federation are left out.
pub fn of(entry: &Entry) -> Vec<(Key, IsSet)> {
    let Body::Batch(transactions) = &entry.body else {
        return Vec::new();
    };
    let changes = transactions.iter().flat_map(|logged| &logged.set.changes);
    let clients = changes.filter(|(key, _)| key.first() != Some(&RESERVED));
    let last: BTreeMap<&Key, IsSet> = clients.map(|(key, value)| (key, value.is_some())).collect();
    last.into_iter().map(|(key, is_set)| (key.clone(), is_set)).collect()
}

/// Converts keys into changes to report to subscribers.
pub fn told(changes: Vec<(Key, IsSet)>) -> impl Iterator<Item = KeyNotice> {
    changes.into_iter().map(|(key, is_set)| match is_set {
        true => KeyNotice::Event("set", key),
        false => KeyNotice::Event("del", key),
    })
}

/// Position of a subscriber in each node's stream of changes; prevents duplicates and counts gaps.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamPosition {
    last: Option<Revision>,
}

impl StreamPosition {
    /// Takes an entry that a node reports. Returns the number of entries missed before it; `None` for a duplicate.
    pub fn entry(&mut self, revision: Revision) -> Option<u64> {
        let missed = match self.last {
            None => 0,
            Some(last) if revision <= last => return None,
            Some(last) => revision.0 - last.0 - 1,
        };
        self.last = Some(revision);
        Some(missed)
    }

    /// Takes the entry behind which a node begins to report. Returns the number of entries missed.
    pub fn begins(&mut self, behind: Revision) -> u64 {
        let last = self.last.map_or(behind, |last| last.max(behind));
        let missed = last.0 - self.last.unwrap_or(last).0;
        self.last = Some(last);
        missed
    }
}

#[cfg(test)]
mod tests {
    use punctual_federation::entry::LoggedTransaction;
    use punctual_federation::ids::{BatchId, RequestId};
    use punctual_store::batch::WriteSet;

    use super::*;

    #[test]
    fn the_last_change_of_a_key_is_told_and_none_of_our_own() {
        let set = |changes: &[(&[u8], Option<&[u8]>)]| LoggedTransaction {
            id: RequestId::default(),
            set: WriteSet {
                changes: changes
                    .iter()
                    .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                    .collect(),
                ..WriteSet::default()
            },
        };
        let body = Body::Batch(vec![
            set(&[(b"a", Some(b"1")), (b"b", Some(b"1")), (&[RESERVED, b's'], Some(b"1"))]),
            set(&[(b"a", None), (b"c", None)]),
        ]);
        let id = BatchId::default();
        let changes = of(&Entry { id, body });
        assert_eq!(
            changes,
            [(b"a".to_vec(), false), (b"b".to_vec(), true), (b"c".to_vec(), false)]
        );
        assert!(
            of(&Entry {
                id,
                body: Body::Reign(Default::default())
            })
            .is_empty()
        );
    }

    #[test]
    fn what_was_missed_is_counted_and_nothing_told_twice() {
        let mut heard = StreamPosition::default();
        let found = [7, 8, 8, 5, 11, 10].map(|revision| heard.entry(Revision(revision)));
        assert_eq!(found, [Some(0), Some(0), None, None, Some(2), None]);
        // Another node tells, which is behind, or before.
        assert_eq!((heard.begins(Revision(10)), heard.entry(Revision(11))), (0, None));
        assert_eq!((heard.begins(Revision(14)), heard.entry(Revision(15))), (3, Some(0)));
        let mut heard = StreamPosition::default();
        assert_eq!((heard.begins(Revision(40)), heard.entry(Revision(41))), (0, Some(0)));
    }
}
