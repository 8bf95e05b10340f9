//! Events of the keys that an entry of the log has changed, for clients that subscribe to changes.

use std::collections::BTreeMap;

use punctual_federation::entry::{Body, Entry, KeyEvent, plain_events};
use punctual_federation::ids::Revision;
use punctual_federation::message::Key;
use punctual_server::commands::events;
use punctual_server::subscribers::KeyNotice;

use crate::wire::{IsSet, Packet};

/// The packet with the events of an entry, in their order. A receiver of a version without names gets the last change
/// of each key.
pub fn of(revision: Revision, entry: &Entry, has_names: bool) -> Packet {
    let transactions = match &entry.body {
        Body::Batch(transactions) => &transactions[..],
        Body::Reign(_) => &[],
    };
    if !has_names {
        let all = transactions.iter().flat_map(|logged| plain_events(&logged.set));
        let last: BTreeMap<Key, IsSet> = all.map(|event| (event.key, event.name == events::SET)).collect();
        return Packet::Changed(revision, last.into_iter().collect(), Vec::new());
    }
    let (mut keys, mut names) = (Vec::new(), Vec::new());
    for logged in transactions {
        for KeyEvent { name, key } in logged.events().into_owned() {
            let is_set = match events::name(name) {
                Some(known) => !events::removes(known),
                None => logged.set.changes.get(&key).is_some_and(Option::is_some),
            };
            keys.push((key, is_set));
            names.push(name);
        }
    }
    Packet::Changed(revision, keys, names)
}

/// Converts events into changes to report to subscribers: by `set` or `del` where a node of an older version sends no
/// name, or one of a newer version an unknown one.
pub fn told(keys: Vec<(Key, IsSet)>, names: Vec<u8>) -> impl Iterator<Item = KeyNotice> {
    let names = names.into_iter().map(Some).chain(std::iter::repeat(None));
    keys.into_iter().zip(names).map(|((key, is_set), name)| {
        let plain = if is_set { "set" } else { "del" };
        KeyNotice::Event(name.and_then(events::name).unwrap_or(plain), key)
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
    use punctual_federation::message::RESERVED;
    use punctual_store::batch::WriteSet;

    use super::*;

    #[test]
    fn events_are_in_order_and_none_of_our_own() {
        let logged = |changes: &[(&[u8], Option<&[u8]>)], events: &[(u8, &[u8])]| LoggedTransaction {
            id: RequestId::default(),
            set: WriteSet {
                changes: changes
                    .iter()
                    .map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)))
                    .collect(),
                ..WriteSet::default()
            },
            events: events
                .iter()
                .map(|(name, key)| KeyEvent {
                    name: *name,
                    key: key.to_vec(),
                })
                .collect(),
        };
        let expired = events::number("expired");
        let body = Body::Batch(vec![
            logged(
                &[(b"a", Some(b"1")), (b"b", None), (&[RESERVED, b's'], Some(b"1"))],
                &[],
            ),
            logged(&[(b"a", None)], &[(events::number("incrby"), b"a"), (expired, b"a")]),
            logged(&[(b"c", Some(b"1")), (b"d", None)], &[(200, b"c"), (200, b"d")]),
        ]);
        let id = BatchId::default();
        let entry = Entry { id, body };
        let Packet::Changed(Revision(7), keys, names) = of(Revision(7), &entry, true) else {
            panic!("another packet")
        };
        let event = |name, key: &str| KeyNotice::Event(name, key.into());
        let named = [
            event("set", "a"),
            event("del", "b"),
            event("incrby", "a"),
            event("expired", "a"),
            event("set", "c"),
            event("del", "d"),
        ];
        assert!(told(keys, names).eq(named));
        // For, and of, an older program.
        let Packet::Changed(Revision(7), keys, names) = of(Revision(7), &entry, false) else {
            panic!("another packet")
        };
        let plain = [
            event("del", "a"),
            event("del", "b"),
            event("set", "c"),
            event("del", "d"),
        ];
        assert!(names.is_empty() && told(keys, names).eq(plain));
        let reign = Entry {
            id,
            body: Body::Reign(Default::default()),
        };
        assert_eq!(
            of(Revision(8), &reign, true),
            Packet::Changed(Revision(8), Vec::new(), Vec::new())
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
