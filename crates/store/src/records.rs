//! The records that a transaction sees in a range: from both ends, and from any key on.
//!
//! Plain records and temporal objects have one keyspace, so they come in the one order of their keys. [`Records::lend`]
//! lends one record at a time, without a copy; as an iterator, [`Records`] copies each. The transaction may be read
//! meanwhile. If the snapshot is ended meanwhile (see [`readers`](crate::readers)), the next record is the error, once.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::{Bound, Deref, RangeBounds as _};

use punctual_os::Os;
use punctual_units::ObjectId;

use crate::engine::{Cursor, Engine, EngineError, KEY_MAX_LEN, KeyRange, OwnedRange, Read, Record, Table, owned};
use crate::expiry::TermView;
use crate::store::Store;
use crate::tables::{BEHIND_REGION, REGION};
use crate::temporal::Sample;
use crate::transaction::Meter;
use crate::{StoreError, Value};

/// The records of a transaction in a range, in ascending order of keys; from the end by
/// [`next_back`](DoubleEndedIterator::next_back) and [`rev`](Iterator::rev).
///
/// Each record is read when it is asked for, and counts as data time of the transaction. After an error the iterator
/// ends. [`lend`](Records::lend) does the same without a copy.
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
/// let mut rooms = transaction.prefix(b"room/")?;
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

    /// Lends the last record no longer: until the next step, the snapshot keeps no page for this scan, and another
    /// thread can end it. The next step goes on behind the record.
    pub fn release(&mut self) {
        self.merged.remember();
        self.merged.release(false);
        self.merged.release(true);
    }
}

impl<E: Engine, O: Os, R: Read> Records<'_, E, O, R> {
    /// The next record, lent until the next step: the snapshot keeps its page meanwhile. `None` at the end, and after
    /// an error.
    ///
    /// ```
    /// use punctual_store::{Deadline, Store, StoreOptions};
    /// # use {punctual_engines::Memory, punctual_testing::VirtualOs};
    /// let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default())?;
    /// store.put(b"room/1", b"warm")?;
    /// let transaction = store.read_transaction(Deadline::NONE)?;
    /// let mut rooms = transaction.prefix(b"room/")?;
    /// while let Some((room, state)) = rooms.lend()? {
    ///     assert_eq!((room, state), (&b"room/1"[..], &b"warm"[..]));
    /// }
    /// # Ok::<(), punctual_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`]; [`StoreError::Engine`], for example if the snapshot was ended.
    #[inline]
    pub fn lend(&mut self) -> Result<Option<Record<'_>>, StoreError> {
        self.lend_from(false)
    }

    /// As [`lend`](Records::lend), from the end.
    ///
    /// # Errors
    /// Those of [`lend`](Records::lend).
    #[inline]
    pub fn lend_back(&mut self) -> Result<Option<Record<'_>>, StoreError> {
        self.lend_from(true)
    }

    #[inline(always)]
    fn lend_from(&mut self, back: bool) -> Result<Option<Record<'_>>, StoreError> {
        let merged = &mut self.merged;
        if merged.over {
            return Ok(None);
        }
        if merged.ends[usize::from(!back)].is_some() {
            // Reads from both ends: releases the record of the other one.
            merged.remember();
            merged.release(!back);
        }
        let stepped = self.meter.step(|| merged.step(back));
        merged.over = stepped.is_err();
        if !stepped? {
            return Ok(None);
        }
        let (key, value, _) = self.merged.record();
        Ok(Some((key, value)))
    }

    /// The next record as `of` makes it; none is lent afterwards.
    pub(crate) fn next_as<T>(&mut self, back: bool, of: impl FnOnce(Record<'_>) -> T) -> Option<Result<T, StoreError>> {
        self.merged.remember();
        let lent = self.lend_from(back);
        let made = lent.map(|record| record.map(of));
        self.merged.release(back);
        made.transpose()
    }
}

fn copy((key, value): Record<'_>) -> (Value, Value) {
    (Value::of(key), Value::of(value))
}

impl<E: Engine, O: Os, R: Read> Iterator for Records<'_, E, O, R> {
    type Item = Result<(Value, Value), StoreError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.next_as(false, copy)
    }
}

impl<E: Engine, O: Os, R: Read> DoubleEndedIterator for Records<'_, E, O, R> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_as(true, copy)
    }
}

impl<E: Engine, O: Os, R: Read> std::iter::FusedIterator for Records<'_, E, O, R> {}

/// Plain records and temporal objects in the order of their keys, without accounting of time.
pub(crate) struct MergedRecords<'t, E: Engine, O: Os, R: Read + 't> {
    store: &'t Store<E, O>,
    read: &'t R,
    pub(crate) terms: TermView,
    range: OwnedRange,
    /// The part of `range` not yet returned from either end; kept up to date once it is `remembered`.
    left: OwnedRange,
    /// Whether `left` counts: from the first seek on, or once both ends are read. Before, one end reads on.
    remembered: bool,
    /// The temporal objects in `range`, in ascending order of keys; those in `first..behind` lie in `left`.
    temporal: Cow<'t, [ObjectId]>,
    first: usize,
    behind: usize,
    /// The scans from the front and from the back.
    ends: [Option<End<R::Cursor<'t>>>; 2],
    found: Position,
    /// Value of the temporal object that was found.
    value: Vec<u8>,
    /// Whether a step has failed.
    over: bool,
    /// Prefix of the engine's keys of a named table; empty without a table.
    prefix: Vec<u8>,
}

/// A scan from one end of the range towards the other.
struct End<C> {
    cursor: C,
    /// Whether the cursor's record was not returned yet.
    ahead: bool,
}

/// The record that the last step has reached.
#[derive(Clone, Copy)]
enum Position {
    Nothing,
    /// The record of this end's cursor.
    Plain(usize),
    Temporal(ObjectId, Sample),
}

impl<'t, E: Engine, O: Os, R: Read> MergedRecords<'t, E, O, R> {
    /// The records in a range of the engine's keys; those of a named table have its `prefix`.
    pub fn new(store: &'t Store<E, O>, read: &'t R, terms: TermView, range: KeyRange<'_>, prefix: &[u8]) -> Self {
        let (temporal, range) = (store.temporal_in(range), owned(range));
        MergedRecords {
            store,
            read,
            terms,
            left: range.clone(),
            range,
            remembered: false,
            first: 0,
            behind: temporal.len(),
            temporal,
            ends: [None, None],
            found: Position::Nothing,
            value: Vec::new(),
            over: false,
            prefix: prefix.to_vec(),
        }
    }

    fn seek(&mut self, key: &[u8]) {
        self.remember();
        let key = [&self.prefix, key].concat();
        let inside = !is_before(&key, &self.range.0);
        self.left.0 = if inside {
            Bound::Included(key)
        } else {
            self.range.0.clone()
        };
        (self.ends[0], self.found) = (None, Position::Nothing);
        let before = |object: &ObjectId| is_before(self.store.objects.key(*object), &self.left.0);
        self.first = self.temporal.partition_point(before);
    }

    fn seek_back(&mut self, key: &[u8]) {
        self.remember();
        let key = [&self.prefix, key].concat();
        let inside = !is_behind(&key, &self.range.1);
        self.left.1 = if inside {
            Bound::Included(key)
        } else {
            self.range.1.clone()
        };
        (self.ends[1], self.found) = (None, Position::Nothing);
        let within = |object: &ObjectId| !is_behind(self.store.objects.key(*object), &self.left.1);
        self.behind = self.temporal.partition_point(within);
    }

    /// Keeps `left` up to date from here on.
    fn remember(&mut self) {
        if !std::mem::replace(&mut self.remembered, true)
            && let Some(side) = self.ends.iter().position(Option::is_some)
        {
            let key = match (self.found, &self.ends[side]) {
                (Position::Temporal(object, _), _) => self.store.objects.key(object),
                (Position::Plain(_), Some(end)) => end.cursor.record().0,
                _ => return,
            };
            pass(&mut self.left, key, side == 1);
        }
    }

    /// Lends the found record no longer. Its key must be remembered.
    fn release(&mut self, back: bool) {
        let side = usize::from(back);
        self.found = Position::Nothing;
        match &mut self.ends[side] {
            // The record that was read ahead is sought anew.
            Some(end) if end.ahead => self.ends[side] = None,
            Some(end) => end.cursor.release(),
            None => {}
        }
    }

    fn begin(&self, back: bool) -> Result<End<R::Cursor<'t>>, EngineError> {
        // Scans to the other end of the range, beyond records returned from there: a seek may return them again.
        let (low, high) = match back {
            true => (&self.range.0, &self.left.1),
            false => (&self.left.0, &self.range.1),
        };
        let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let cursor = self.read.cursor(Table::Data, range, back)?;
        Ok(End { cursor, ahead: false })
    }

    /// Steps to the next record, from the end if `back`; false if there is none.
    #[inline(always)]
    pub fn step(&mut self, back: bool) -> Result<bool, StoreError> {
        let side = usize::from(back);
        if self.ends[side].is_none() && self.ends[1 - side].is_some() {
            self.remember();
        }
        self.found = Position::Nothing;
        loop {
            if self.ends[side].is_none() {
                self.ends[side] = Some(self.begin(back)?);
            }
            look_ahead(&mut self.ends[side])?;
            let end = self.ends[side].as_ref().filter(|end| end.ahead);
            let plain = end.map(|end| end.cursor.record().0);
            // Records that the other end has passed are not returned from this one.
            let is_left = |key: &&[u8]| !(is_before(key, &self.left.0) || is_behind(key, &self.left.1));
            let plain = plain.filter(|key| !self.remembered || is_left(key));
            if self.first < self.behind && self.object_is_next(plain, back) {
                if self.step_object(back)? {
                    return Ok(true);
                }
                continue;
            }
            let Some(key) = plain else {
                if !self.remembered {
                    self.exhaust(back);
                }
                return Ok(false);
            };
            if key.first() == Some(&0) && self.prefix.is_empty() && key.starts_with(REGION) {
                // Skips the named tables in one step.
                match back {
                    true => self.left.1 = Bound::Excluded(REGION.to_vec()),
                    false => self.left.0 = Bound::Included(BEHIND_REGION.to_vec()),
                }
                self.ends[side] = None;
                continue;
            }
            if self.remembered {
                pass(&mut self.left, key, back);
            }
            let is_due = self.store.is_due(self.terms, self.read, key)?;
            if let Some(end) = &mut self.ends[side] {
                end.ahead = false;
            }
            if !is_due {
                self.found = Position::Plain(side);
                return Ok(true);
            }
        }
    }

    /// Whether the next temporal object comes before the plain record, or hides it.
    fn object_is_next(&self, plain: Option<&[u8]>, back: bool) -> bool {
        let order = plain.map(|key| {
            let object = self.store.objects.key(self.object(back));
            object.first().cmp(&key.first()).then_with(|| object.cmp(key)) // `memcmp` only where the first bytes are equal
        });
        order.is_none_or(|order| order != if back { Ordering::Less } else { Ordering::Greater })
    }

    fn object(&self, back: bool) -> ObjectId {
        self.temporal[if back { self.behind - 1 } else { self.first }]
    }

    /// Steps to the next temporal object; false if it has no value.
    fn step_object(&mut self, back: bool) -> Result<bool, StoreError> {
        let object = self.object(back);
        let key = self.store.objects.key(object);
        // A plain record under the same key, from before the object was registered, is hidden.
        if let Some(end) = &mut self.ends[usize::from(back)] {
            end.ahead &= end.cursor.record().0 != key;
        }
        match back {
            true => self.behind -= 1,
            false => self.first += 1,
        }
        if self.remembered {
            pass(&mut self.left, key, back);
        }
        let sample = self.store.temporal_into(self.read, object, &mut self.value)?;
        self.found = sample.map_or(Position::Nothing, |sample| Position::Temporal(object, sample));
        Ok(sample.is_some())
    }

    /// Nothing is left for either end: this one has returned all.
    fn exhaust(&mut self, back: bool) {
        match back {
            true => self.left.1 = Bound::Excluded(Vec::new()),
            false => self.left.0 = Bound::Excluded(vec![u8::MAX; KEY_MAX_LEN + 1]),
        }
    }

    /// Key and value of the record that the last step has reached, and the sample of a temporal object.
    #[inline]
    pub fn record(&self) -> (&[u8], &[u8], Option<Sample>) {
        match self.found {
            Position::Plain(side) => {
                let (key, value) = self.ends[side]
                    .as_ref()
                    .map_or((&[][..], &[][..]), |end| end.cursor.record());
                (key.get(self.prefix.len()..).unwrap_or_default(), value, None)
            }
            Position::Temporal(object, sample) => (self.store.objects.key(object), &self.value, Some(sample)),
            Position::Nothing => (&[], &[], None),
        }
    }
}

/// Reads the next record of an end, unless one was read ahead.
#[inline]
fn look_ahead<C: Cursor>(end: &mut Option<End<C>>) -> Result<(), EngineError> {
    match end {
        Some(end) if !end.ahead => end.ahead = end.cursor.step()?,
        _ => {}
    }
    Ok(())
}

/// Excludes `key` and all keys before it, seen from this end, from `left`.
fn pass(left: &mut OwnedRange, key: &[u8], back: bool) {
    let bound = if back { &mut left.1 } else { &mut left.0 };
    let mut buffer = match std::mem::replace(bound, Bound::Unbounded) {
        Bound::Included(buffer) | Bound::Excluded(buffer) => buffer,
        Bound::Unbounded => Vec::new(),
    };
    buffer.clear();
    buffer.extend_from_slice(key);
    *bound = Bound::Excluded(buffer);
}

/// Whether `key` lies before the lower bound `low`.
fn is_before<K: Deref<Target = [u8]>>(key: &[u8], low: &Bound<K>) -> bool {
    !(low.as_ref().map(|low| &**low), Bound::Unbounded).contains(key)
}

/// Whether `key` lies behind the upper bound `high`.
fn is_behind<K: Deref<Target = [u8]>>(key: &[u8], high: &Bound<K>) -> bool {
    !(Bound::Unbounded, high.as_ref().map(|high| &**high)).contains(key)
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
