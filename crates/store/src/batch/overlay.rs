//! The view of a transaction in a batch: its own changes, above those of the batch, above a snapshot of the engine.

use std::collections::btree_map;
use std::iter::Peekable;
use std::ops::Deref;

use super::writes::{Changes, WriteSet};
use crate::engine::{DirectedRange, EngineError, KeyRange, Read, Record, Table, is_empty_range};
use crate::temporal::Creation;

/// A batch on top of a snapshot.
pub(super) struct BatchOverlay<R> {
    pub snapshot: R,
    /// The combined changes of the kept transactions.
    pub changes: Changes,
    /// The kept transactions, in order.
    pub kept: Vec<WriteSet>,
    /// Bytes of the kept write sets.
    pub bytes: usize,
}

/// A transaction on top of a batch.
pub(super) struct Overlay<'b, R> {
    pub base: &'b mut BatchOverlay<R>,
    pub own: Changes,
    pub created: Vec<Creation>,
}

/// Bytes of a record: the snapshot's, or those of a change.
pub enum Layer<'t, B> {
    /// Bytes in the snapshot of the engine.
    Below(B),
    /// Bytes in a change of the batch.
    Above(&'t [u8]),
}

impl<B: Deref<Target = [u8]>> Deref for Layer<'_, B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Layer::Below(bytes) => bytes,
            Layer::Above(bytes) => bytes,
        }
    }
}

impl<R> Overlay<'_, R> {
    /// The temporal objects that the batch creates, this transaction's included.
    pub fn creations(&self) -> impl Iterator<Item = &Creation> {
        let kept = self.base.kept.iter().flat_map(|set| &set.created);
        kept.chain(&self.created)
    }

    /// The change of `key` by the transaction itself, or else by one before it.
    fn change(&self, key: &[u8]) -> Option<&Option<Vec<u8>>> {
        self.own.get(key).or_else(|| self.base.changes.get(key))
    }
}

impl<R: Read> Read for Overlay<'_, R> {
    type Bytes<'t>
        = Layer<'t, R::Bytes<'t>>
    where
        Self: 't;
    type Scan<'t>
        = OverlayScan<'t, R::Scan<'t>>
    where
        Self: 't;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Self::Bytes<'_>>, EngineError> {
        match self.change(key) {
            Some(change) if table == Table::Data => Ok(change.as_deref().map(Layer::Above)),
            _ => Ok(self.base.snapshot.get(table, key)?.map(Layer::Below)),
        }
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<Self::Scan<'_>, EngineError> {
        Ok(self.merged(table, range, self.base.snapshot.scan(table, range)?, false))
    }

    fn scan_back(&self, table: Table, range: KeyRange<'_>) -> Result<Self::Scan<'_>, EngineError> {
        Ok(self.merged(table, range, self.base.snapshot.scan_back(table, range)?, true))
    }
}

impl<R: Read> Overlay<'_, R> {
    fn merged<'t, S: Iterator>(
        &'t self,
        table: Table,
        range: KeyRange<'_>,
        below: S,
        back: bool,
    ) -> OverlayScan<'t, S> {
        let of_table = |changes| match table {
            Table::Data => within(changes, range, back).peekable(),
            Table::Temporal => DirectedRange::Ascending(btree_map::Range::default()).peekable(),
        };
        let changes = ChangeScan {
            own: of_table(&self.own),
            batch: of_table(&self.base.changes),
            back,
        };
        OverlayScan {
            below: below.peekable(),
            changes: changes.peekable(),
            back,
        }
    }
}

type ChangesWithin<'t> = DirectedRange<btree_map::Range<'t, Vec<u8>, Option<Vec<u8>>>>;

fn within<'t>(changes: &'t Changes, range: KeyRange<'_>, back: bool) -> ChangesWithin<'t> {
    let changes = if is_empty_range(range) {
        btree_map::Range::default()
    } else {
        changes.range::<[u8], _>(range)
    };
    DirectedRange::new(changes, back)
}

/// Whether `key` comes before `other` in ascending order, or equals it; in descending order if `back`.
fn is_first(key: &[u8], other: &[u8], back: bool) -> bool {
    if back { key >= other } else { key <= other }
}

/// The changes of a batch and of a transaction on top of it in the order of keys; the transaction's change of a key
/// hides the batch's.
struct ChangeScan<'t> {
    own: Peekable<ChangesWithin<'t>>,
    batch: Peekable<ChangesWithin<'t>>,
    back: bool,
}

impl<'t> Iterator for ChangeScan<'t> {
    type Item = (&'t [u8], Option<&'t [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let batch_key = self.batch.peek().map(|(key, _)| *key);
        let own = self
            .own
            .next_if(|(key, _)| batch_key.is_none_or(|batch| is_first(key, batch, self.back)));
        let (key, value) = match own {
            Some((key, value)) => {
                self.batch.next_if(|(hidden, _)| *hidden == key);
                (key, value)
            }
            None => self.batch.next()?,
        };
        Some((key, value.as_deref()))
    }
}

/// The records of a snapshot with the changes applied, in the order of keys.
pub struct OverlayScan<'t, S: Iterator> {
    below: Peekable<S>,
    changes: Peekable<ChangeScan<'t>>,
    back: bool,
}

impl<'t, B, S> Iterator for OverlayScan<'t, S>
where
    B: Deref<Target = [u8]>,
    S: Iterator<Item = Result<Record<B>, EngineError>>,
{
    type Item = Result<Record<Layer<'t, B>>, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let below_key = match self.below.peek() {
                Some(Ok((key, _))) => Some(&**key),
                Some(Err(_)) | None => None,
            };
            let change = self
                .changes
                .next_if(|(key, _)| below_key.is_none_or(|below| is_first(key, below, self.back)));
            let Some((key, value)) = change else {
                let record = self.below.next()?;
                return Some(record.map(|(key, value)| (Layer::Below(key), Layer::Below(value))));
            };
            self.below
                .next_if(|record| record.as_ref().is_ok_and(|(hidden, _)| **hidden == *key));
            if let Some(value) = value {
                return Some(Ok((Layer::Above(key), Layer::Above(value))));
            }
        }
    }
}
