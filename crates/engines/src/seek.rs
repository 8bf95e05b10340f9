//! A scan that seeks each record anew: for engines whose records cannot be borrowed between two calls.

use std::ops::Bound;

use punctual_store::Value;
use punctual_store::engine::{Cursor, EngineError, KeyRange, Record, Table};

/// Finds the record at an end of a range.
pub trait Find {
    /// The first record in `range`, or the last if `back`.
    fn first(&self, table: Table, range: KeyRange<'_>, back: bool) -> Result<Option<(Value, Value)>, EngineError>;
}

type OwnedRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Records in the order of their keys, each sought anew and copied.
#[derive(Debug)]
pub struct SeekCursor<'t, R> {
    read: &'t R,
    table: Table,
    back: bool,
    /// The range that is left to read; `None` after an error or at the end.
    rest: Option<OwnedRange>,
    found: Option<(Value, Value)>,
}

impl<'t, R: Find> SeekCursor<'t, R> {
    pub(crate) fn begin(read: &'t R, table: Table, (low, high): KeyRange<'_>, back: bool) -> Self {
        SeekCursor {
            read,
            table,
            back,
            rest: Some((low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec))),
            found: None,
        }
    }
}

impl<R: Find> Cursor for SeekCursor<'_, R> {
    fn step(&mut self) -> Result<bool, EngineError> {
        self.found = None;
        let Some((low, high)) = self.rest.take() else {
            return Ok(false);
        };
        let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let Some(found) = self.read.first(self.table, range, self.back)? else {
            return Ok(false);
        };
        let passed = Bound::Excluded(found.0.to_vec());
        self.rest = Some(if self.back { (low, passed) } else { (passed, high) });
        self.found = Some(found);
        Ok(true)
    }

    fn record(&self) -> Record<'_> {
        self.found.as_ref().map_or((&[], &[]), |(key, value)| (key, value))
    }
}
