//! The view of a transaction in a batch: its own changes, above those of the batch, above a snapshot of the engine.

use std::collections::btree_map;
use std::iter::Peekable;

use super::writes::{Changes, WriteSet};
use crate::engine::{Cursor, DirectedRange, EngineError, KeyRange, Read, Record, Table, is_empty_range};
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
    type Cursor<'t>
        = OverlayCursor<'t, R::Cursor<'t>>
    where
        Self: 't;

    fn get_with<T>(&self, table: Table, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        match self.change(key) {
            Some(change) if table == Table::Data => Ok(change.as_deref().map(look)),
            _ => self.base.snapshot.get_with(table, key, look),
        }
    }

    fn cursor(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Self::Cursor<'_>, EngineError> {
        let of_table = |changes| match table {
            Table::Data => within(changes, range, back).peekable(),
            Table::Temporal => DirectedRange::Ascending(btree_map::Range::default()).peekable(),
        };
        let changes = ChangeScan {
            own: of_table(&self.own),
            batch: of_table(&self.base.changes),
            back,
        };
        Ok(OverlayCursor {
            below: self.base.snapshot.cursor(table, range, back)?,
            ahead: false,
            changes: changes.peekable(),
            change: None,
            back,
        })
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
pub struct OverlayCursor<'t, C> {
    below: C,
    /// Whether the snapshot's record was not reached yet.
    ahead: bool,
    changes: Peekable<ChangeScan<'t>>,
    /// The record that the last step has reached, if it is a change's.
    change: Option<Record<'t>>,
    back: bool,
}

impl<C: Cursor> Cursor for OverlayCursor<'_, C> {
    fn step(&mut self) -> Result<bool, EngineError> {
        self.change = None;
        loop {
            self.ahead = self.ahead || self.below.step()?;
            let below = self.ahead.then(|| self.below.record().0);
            let change = self
                .changes
                .next_if(|(key, _)| below.is_none_or(|below| is_first(key, below, self.back)));
            let Some((key, value)) = change else {
                return Ok(std::mem::take(&mut self.ahead));
            };
            if below == Some(key) {
                self.ahead = false;
            }
            if let Some(value) = value {
                self.change = Some((key, value));
                return Ok(true);
            }
        }
    }

    fn record(&self) -> Record<'_> {
        self.change.unwrap_or_else(|| self.below.record())
    }
}
