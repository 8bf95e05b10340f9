//! A scan that seeks its records anew: for engines whose records cannot be borrowed between two calls.

use std::collections::VecDeque;
use std::ops::Bound;

use punctual_store::Value;
use punctual_store::engine::{Cursor, EngineError, KeyRange, OwnedRange, Record, Table, borrowed, owned};

/// Copies of records that follow each other. A single one needs no memory but its own.
#[derive(Debug, Default)]
pub struct Chunk {
    first: Option<(Value, Value)>,
    behind: VecDeque<(Value, Value)>,
}

impl Chunk {
    pub(crate) fn push(&mut self, record: (Value, Value)) {
        match self.first {
            None => self.first = Some(record),
            Some(_) => self.behind.push_back(record),
        }
    }

    /// Takes the answer of an engine that finds one record at a time; whether more may follow.
    pub(crate) fn only(&mut self, record: Option<(Value, Value)>) -> bool {
        self.first = record;
        self.first.is_some()
    }
}

/// Finds records at an end of a range.
pub trait Find {
    /// Fills the empty `chunk` with the first records in `range`, or the last if `back`; at least one, unless there is
    /// none. Returns whether more may follow: if not, the scan ends behind them without another search.
    fn find(&self, table: Table, range: KeyRange<'_>, back: bool, chunk: &mut Chunk) -> Result<bool, EngineError>;
}

/// Records in the order of their keys, sought anew and copied.
#[derive(Debug)]
pub struct SeekCursor<'t, R> {
    read: &'t R,
    table: Table,
    back: bool,
    /// The range that is left to read; `None` after an error or if nothing is left.
    rest: Option<OwnedRange>,
    /// Records that were read; the first one is lent.
    chunk: Chunk,
}

impl<'t, R: Find> SeekCursor<'t, R> {
    pub(crate) fn begin(read: &'t R, table: Table, range: KeyRange<'_>, back: bool) -> Self {
        SeekCursor {
            read,
            table,
            back,
            rest: Some(owned(range)),
            chunk: Chunk::default(),
        }
    }
}

impl<R: Find> Cursor for SeekCursor<'_, R> {
    fn step(&mut self) -> Result<bool, EngineError> {
        self.chunk.first = self.chunk.behind.pop_front();
        if self.chunk.first.is_none()
            && let Some(rest) = self.rest.take()
        {
            let sought = self.read.find(self.table, borrowed(&rest), self.back, &mut self.chunk);
            let more = sought.inspect_err(|_| self.chunk = Chunk::default())?;
            let last = self.chunk.behind.back().or(self.chunk.first.as_ref());
            let passed = last.filter(|_| more).map(|(key, _)| Bound::Excluded(key.to_vec()));
            let (low, high) = rest;
            self.rest = passed.map(|passed| if self.back { (low, passed) } else { (passed, high) });
        }
        Ok(self.chunk.first.is_some())
    }

    fn record(&self) -> Record<'_> {
        self.chunk
            .first
            .as_ref()
            .map_or((&[], &[]), |(key, value)| (key, value))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ops::RangeBounds as _;

    use proptest::prelude::*;

    use super::*;

    /// Records of one byte each, which are found `len_max` at a time.
    struct Chunks {
        keys: Vec<[u8; 1]>,
        len_max: usize,
        searches: Cell<usize>,
    }

    impl Find for Chunks {
        fn find(&self, _: Table, range: KeyRange<'_>, back: bool, chunk: &mut Chunk) -> Result<bool, EngineError> {
            self.searches.set(self.searches.get() + 1);
            let mut keys: Vec<&[u8]> = self.keys.iter().map(|key| &key[..]).collect();
            keys.retain(|key| range.contains(*key));
            if back {
                keys.reverse();
            }
            let first = keys.iter().take(self.len_max);
            first.for_each(|key| chunk.push((Value::of(key), Value::of(key))));
            Ok(keys.len() >= self.len_max)
        }
    }

    proptest! {
        #[test]
        fn a_scan_reads_each_record_once_and_seeks_no_more_behind_the_last(
            keys in prop::collection::btree_set(any::<u8>(), 0..40),
            low in any::<u8>(),
            len_max in 1usize..10,
            back in any::<bool>(),
        ) {
            let all = Chunks { keys: keys.iter().map(|key| [*key]).collect(), len_max, searches: Cell::new(0) };
            let mut expected: Vec<u8> = keys.range(low..).copied().collect();
            if back {
                expected.reverse();
            }
            let (low, mut read) = ([low], Vec::new());
            let mut scan = SeekCursor::begin(&all, Table::Data, (Bound::Included(&low), Bound::Unbounded), back);
            while scan.step().unwrap() {
                read.push(scan.record().0[0]);
            }
            prop_assert_eq!(&read, &expected);
            // A chunk that is not full is the last one.
            prop_assert_eq!(all.searches.get(), expected.len() / len_max + 1);
            prop_assert!(!scan.step().unwrap());
            prop_assert_eq!(all.searches.get(), expected.len() / len_max + 1);
        }
    }
}
