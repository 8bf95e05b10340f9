//! Iterators over the records that a transaction sees: from both ends, and from any key on.
//!
//! Plain records and temporal objects have one keyspace, so they come in the one order of their keys. Between two
//! records nothing of the engine's memory is held: the transaction may be read meanwhile. If the snapshot is ended
//! meanwhile (see [`readers`](crate::readers)), the next record is the error, once.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::{Bound, Deref};

use punctual_os::Os;
use punctual_units::ObjectId;

use crate::engine::{Engine, EngineError, KeyRange, Read, Record, Table};
use crate::expiry::TermView;
use crate::store::Store;
use crate::tables::{BEHIND_REGION, NamedTable, REGION};
use crate::temporal::Sample;
use crate::transaction::Meter;
use crate::{StoreError, Value};

/// The records of a transaction in a range, in ascending order of keys; from the end by
/// [`next_back`](DoubleEndedIterator::next_back) and [`rev`](Iterator::rev).
///
/// Each record is read when it is asked for, and counts as data time of the transaction. After an error the iterator
/// ends.
///
/// ```
/// use std::ops::Bound;
/// use punctual_store::{Deadline, Store, StoreOptions};
/// # use {punctual_engines::Memory, punctual_testing::VirtualOs};
///
/// let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default())?;
/// for room in ["room/1", "room/2", "room/4", "shed"] {
///     store.put(room.as_bytes(), b"warm")?;
/// }
/// let transaction = store.read_transaction(Deadline::NONE)?;
/// let mut rooms = transaction.records_with_prefix(b"room/")?;
/// let (last, value) = rooms.next_back().expect("there are rooms")?;
/// assert_eq!((&*last, &*value), (&b"room/4"[..], &b"warm"[..]));
/// rooms.seek(b"room/2");
/// for room in rooms {
///     let (room, _) = room?;
///     assert_eq!(&*room, b"room/2");
///     assert!(transaction.get(&room)?.is_some()); // the same snapshot, in the middle of the scan
/// }
/// // The last record at or before a key:
/// let mut up_to = transaction.records((Bound::Unbounded, Bound::Included(b"room/3")))?;
/// assert_eq!(&*up_to.next_back().expect("there is one")?.0, b"room/2");
/// # Ok::<(), punctual_store::StoreError>(())
/// ```
pub struct Records<'t, E: Engine, O: Os, R: Read + 't> {
    pub(crate) merged: MergedRecords<'t, E, O, R>,
    pub(crate) meter: &'t Meter<'t, O>,
}

/// Bytes of a record: in the engine's memory, or copied.
type Bytes<'t, R> = Value<<R as Read>::Bytes<'t>>;

impl<E: Engine, O: Os, R: Read> Records<'_, E, O, R> {
    /// Moves the front: the next record is the first one of the range at or behind `key`, even if it was already
    /// returned from the front. Records returned from the end stay excluded.
    pub fn seek(&mut self, key: &[u8]) {
        self.merged.seek(key);
    }

    /// Moves the end: the next record from the end is the last one of the range at or before `key`, even if it was
    /// already returned from the end. Records returned from the front stay excluded.
    pub fn seek_back(&mut self, key: &[u8]) {
        self.merged.seek_back(key);
    }
}

impl<'t, E: Engine, O: Os, R: Read> Records<'t, E, O, R> {
    fn step(&mut self, back: bool) -> Option<<Self as Iterator>::Item> {
        if self.merged.over {
            return None;
        }
        let merged = &mut self.merged;
        let stepped = self.meter.step(|| merged.step(back));
        merged.over |= stepped.is_err();
        let stepped = stepped.transpose()?;
        Some(stepped.map(|(key, value, _)| (key, value)))
    }
}

impl<'t, E: Engine, O: Os, R: Read> Iterator for Records<'t, E, O, R> {
    type Item = Result<(Bytes<'t, R>, Bytes<'t, R>), StoreError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl<E: Engine, O: Os, R: Read> DoubleEndedIterator for Records<'_, E, O, R> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl<E: Engine, O: Os, R: Read> std::iter::FusedIterator for Records<'_, E, O, R> {}

type OwnedRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Plain records and temporal objects in the order of their keys, without accounting of time.
pub(crate) struct MergedRecords<'t, E: Engine, O: Os, R: Read + 't> {
    store: &'t Store<E, O>,
    read: &'t R,
    terms: TermView,
    range: OwnedRange,
    /// The part of `range` not yet returned from either end.
    left: OwnedRange,
    /// The temporal objects in `range`, in ascending order of keys; those in `first..behind` lie in `left`.
    temporal: Cow<'t, [ObjectId]>,
    first: usize,
    behind: usize,
    front: Option<End<'t, R>>,
    back: Option<End<'t, R>>,
    over: bool,
    /// Prefix of the engine's keys of a named table; empty without a table.
    prefix: Vec<u8>,
}

/// A scan from one end of the range towards the other, with one record read ahead.
struct End<'t, R: Read + 't> {
    scan: R::Scan<'t>,
    next: Option<Record<R::Bytes<'t>>>,
}

/// Key, value, and the sample if the record is a temporal object's.
type FoundRecord<'t, R> = (Bytes<'t, R>, Bytes<'t, R>, Option<Sample>);

impl<'t, E: Engine, O: Os, R: Read> MergedRecords<'t, E, O, R> {
    pub fn new(store: &'t Store<E, O>, read: &'t R, terms: TermView, (low, high): KeyRange<'_>) -> Self {
        let range = (low.map(<[u8]>::to_vec), high.map(<[u8]>::to_vec));
        let temporal = store.temporal_in((low, high));
        MergedRecords {
            store,
            read,
            terms,
            left: range.clone(),
            range,
            first: 0,
            behind: temporal.len(),
            temporal,
            front: None,
            back: None,
            over: false,
            prefix: Vec::new(),
        }
    }

    /// The records of a named table.
    pub fn in_table(store: &'t Store<E, O>, read: &'t R, table: &NamedTable, range: KeyRange<'_>) -> Self {
        let range = table.range(range);
        MergedRecords {
            store,
            read,
            terms: TermView::All,
            left: range.clone(),
            range,
            first: 0,
            behind: 0,
            temporal: Cow::Borrowed(&[]),
            front: None,
            back: None,
            over: false,
            prefix: table.prefix().to_vec(),
        }
    }

    fn seek(&mut self, key: &[u8]) {
        let key = &*[&self.prefix, key].concat();
        let inside = !is_before(key, &self.range.0);
        self.left.0 = if inside {
            Bound::Included(key.to_vec())
        } else {
            self.range.0.clone()
        };
        self.front = None;
        let before = |object: &ObjectId| is_before(self.store.objects.key(*object), &self.left.0);
        self.first = self.temporal.partition_point(before);
    }

    fn seek_back(&mut self, key: &[u8]) {
        let key = &*[&self.prefix, key].concat();
        let inside = !is_behind(key, &self.range.1);
        self.left.1 = if inside {
            Bound::Included(key.to_vec())
        } else {
            self.range.1.clone()
        };
        self.back = None;
        let within = |object: &ObjectId| !is_behind(self.store.objects.key(*object), &self.left.1);
        self.behind = self.temporal.partition_point(within);
    }

    /// The next record, from the end if `back`.
    fn step(&mut self, back: bool) -> Result<Option<FoundRecord<'t, R>>, StoreError> {
        loop {
            let (read, left) = (self.read, &self.left);
            let end = if back { &mut self.back } else { &mut self.front };
            let end = match end {
                Some(end) => end,
                None => {
                    // Scans to the other end of the range, beyond records returned from there: a seek may return them
                    // again.
                    let (low, high) = if back {
                        (&self.range.0, &left.1)
                    } else {
                        (&left.0, &self.range.1)
                    };
                    let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
                    end.insert(End::begin(read, range, back)?)
                }
            };
            let plain_key = end.next.as_ref().map(|(key, _)| &**key);
            // Records that the other end has passed are not returned from this one.
            let plain_key = plain_key.filter(|key| !(is_before(key, &left.0) || is_behind(key, &left.1)));
            let objects = self.temporal.get(self.first..self.behind).unwrap_or_default();
            let object = if back { objects.last() } else { objects.first() };
            let object = object.copied().filter(|object| {
                let order = plain_key.map(|key| self.store.objects.key(*object).cmp(key));
                order.is_none_or(|order| order != if back { Ordering::Less } else { Ordering::Greater })
            });
            let Some(object) = object else {
                let Some(key) = plain_key else {
                    return Ok(None);
                };
                if self.prefix.is_empty() && key.starts_with(REGION) {
                    // Skips the named tables in one step.
                    if back {
                        self.left.1 = Bound::Excluded(REGION.to_vec());
                        self.back = None;
                    } else {
                        self.left.0 = Bound::Included(BEHIND_REGION.to_vec());
                        self.front = None;
                    }
                    continue;
                }
                let Some((key, value)) = end.take()? else {
                    return Ok(None);
                };
                self.pass(&key, back);
                if self.store.is_due(self.terms, read, &key)? {
                    continue;
                }
                return Ok(Some((
                    Value::of_record_after(key, self.prefix.len()),
                    Value::of_record(value),
                    None,
                )));
            };
            let key = self.store.objects.key(object);
            if plain_key == Some(key) {
                // A plain record under the same key, from before the object was registered, is hidden.
                end.take()?;
            }
            if back {
                self.behind -= 1;
            } else {
                self.first += 1;
            }
            self.pass(key, back);
            if let Some((sample, value)) = self.store.temporal(read, object)? {
                return Ok(Some((Value::of_memory(key.to_vec()), value, Some(sample))));
            }
        }
    }

    /// Excludes `key` and all keys before it, seen from this end, from `left`.
    fn pass(&mut self, key: &[u8], back: bool) {
        let bound = if back { &mut self.left.1 } else { &mut self.left.0 };
        let mut buffer = match std::mem::replace(bound, Bound::Unbounded) {
            Bound::Included(buffer) | Bound::Excluded(buffer) => buffer,
            Bound::Unbounded => Vec::new(),
        };
        buffer.clear();
        buffer.extend_from_slice(key);
        *bound = Bound::Excluded(buffer);
    }
}

impl<'t, E: Engine, O: Os, R: Read> Iterator for MergedRecords<'t, E, O, R> {
    type Item = Result<FoundRecord<'t, R>, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false).transpose()
    }
}

impl<'t, R: Read> End<'t, R> {
    fn begin(read: &'t R, range: KeyRange<'_>, back: bool) -> Result<Self, EngineError> {
        let mut scan = if back {
            read.scan_back(Table::Data, range)?
        } else {
            read.scan(Table::Data, range)?
        };
        let next = scan.next().transpose()?;
        Ok(End { scan, next })
    }

    /// The record that was read ahead; reads another one.
    fn take(&mut self) -> Result<Option<Record<R::Bytes<'t>>>, EngineError> {
        let next = self.scan.next().transpose()?;
        Ok(std::mem::replace(&mut self.next, next))
    }
}

/// Whether `key` lies before the lower bound `low`.
fn is_before<K: Deref<Target = [u8]>>(key: &[u8], low: &Bound<K>) -> bool {
    match low {
        Bound::Included(low) => key < &**low,
        Bound::Excluded(low) => key <= &**low,
        Bound::Unbounded => false,
    }
}

/// Whether `key` lies behind the upper bound `high`.
fn is_behind<K: Deref<Target = [u8]>>(key: &[u8], high: &Bound<K>) -> bool {
    match high {
        Bound::Included(high) => key > &**high,
        Bound::Excluded(high) => key >= &**high,
        Bound::Unbounded => false,
    }
}

impl<E: Engine, O: Os> Store<E, O> {
    fn temporal_in(&self, (low, high): KeyRange<'_>) -> Cow<'_, [ObjectId]> {
        self.objects.ordered(|key| {
            if is_before(key, &low) {
                Ordering::Less
            } else if is_behind(key, &high) {
                Ordering::Greater
            } else {
                Ordering::Equal
            }
        })
    }
}
