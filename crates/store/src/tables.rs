//! Tables: parts of the store with keys of their own, raw or with types.
//!
//! **Problem.** Parts of a program keep their records apart: each iterates over its own, and chooses keys without
//! regard to the others'.
//!
//! **Method.** The records of a table lie beside the others in the engine, under keys that begin with the table's name,
//! in a region that belongs to the store. So tables are made by writing to them, one transaction changes several, and
//! neither an engine nor the file's format knows of them. The *default table* has no name: its keys are the engine's,
//! temporal objects are among them, and it leaves the region out. A [`Table`] is a handle on either, by a store, whose
//! calls are transactions of their own, or by a transaction. All that a table does is done on the engine's key.
//!
//! **Types.** A table with types ([`Table::typed`]) notes their names in the store, beside the records; other types are
//! refused from then on. Raw handles read and write any bytes.
//!
//! ```
//! use punctual_store::{Store, StoreOptions};
//! # use {punctual_engines::Memory, punctual_testing::VirtualOs};
//!
//! let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default())?;
//! let visits = store.table("visits")?.typed::<str, u64>()?;
//! visits.put("kitchen", 3)?;
//! store.update(|tx| {
//!     let mut visits = tx.table("visits")?.typed::<str, u64>()?;
//!     let before = visits.get("kitchen")?.unwrap_or(0);
//!     visits.put("kitchen", before + 1)?;
//!     tx.put("last", "kitchen") // another table, in the same transaction
//! })?;
//! assert_eq!(visits.first()?, Some(("kitchen".to_owned(), 4)));
//! assert!(visits.compare_and_set("kitchen", Some(4), Some(5))?);
//! store.view(|tx| {
//!     for visit in tx.table("visits")?.typed::<str, u64>()?.range("a".."m")? {
//!         let (room, count) = visit?;
//!         println!("{room}: {count}");
//!     }
//!     Ok(())
//! })?;
//! # Ok::<(), punctual_store::StoreError>(())
//! ```

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;

use punctual_os::Os;
use punctual_units::Nanos;

use crate::StoreError;
use crate::codec::{Codec, Encode};
use crate::engine::{Engine, KEY_MAX_LEN, OwnedRange, Read, owned, prefix_range};
use crate::records::Records;
use crate::store::Store;
use crate::temporal::{ReadingBuffer, Sample};
use crate::transaction::{ReadTransaction, Transaction, TransactionState, WriteTransaction, check_key};
use crate::watch::Watch;

/// The longest name of a table, in bytes.
pub const NAME_MAX_LEN: usize = 64;
/// Records that one transaction of [`Table::delete_range`] looks at: some hundred microseconds.
pub const DELETED_TOGETHER: usize = 256;

/// Prefix of the store's own plain keys.
pub(crate) const REGION: &[u8] = b"\0punctual/";
/// The least key behind that region.
pub(crate) const BEHIND_REGION: &[u8] = b"\0punctual0";
const TABLES: &[u8] = b"\0punctual/table/";
/// The types of a table, by its name.
const TYPES: &[u8] = b"\0punctual/types/";

/// A table of a store, by the store itself or by a transaction. `K` and `V` are the types of its keys and values.
pub struct Table<A, K: ?Sized = [u8], V: ?Sized = [u8]> {
    access: A,
    /// Bytes before each key of the table in the engine: region, name, and a zero byte; empty for the default table.
    prefix: Arc<[u8]>,
    types: PhantomData<fn(&K, &V)>,
}

impl<A> Table<A> {
    /// A handle on the table `name`: 1 to [`NAME_MAX_LEN`] bytes, none of them zero.
    fn named(access: A, name: &str) -> Result<Table<A>, StoreError> {
        if !(1..=NAME_MAX_LEN).contains(&name.len()) || name.contains('\0') {
            return Err(StoreError::TableName { name: name.to_owned() });
        }
        Ok(Table::of(access, [TABLES, name.as_bytes(), b"\0"].concat().into()))
    }
}

impl<A, K: ?Sized, V: ?Sized> Table<A, K, V> {
    fn of(access: A, prefix: Arc<[u8]>) -> Self {
        let types = PhantomData;
        Table { access, prefix, types }
    }

    /// The longest key, in bytes.
    pub fn key_max(&self) -> usize {
        KEY_MAX_LEN - self.prefix.len()
    }

    /// The table's name; empty for the default table.
    pub fn name(&self) -> Cow<'_, str> {
        let name = self
            .prefix
            .strip_prefix(TABLES)
            .and_then(|name| name.strip_suffix(b"\0"));
        String::from_utf8_lossy(name.unwrap_or_default())
    }

    fn types_key(&self) -> Vec<u8> {
        [TYPES, self.name().as_bytes()].concat()
    }

    /// Compares the types that the store has noted.
    fn check_types<L: Codec + ?Sized, W: Codec + ?Sized>(&self, found: &[u8]) -> Result<(), StoreError> {
        let wanted = types_of::<L, W>();
        if found == wanted.as_bytes() {
            return Ok(());
        }
        let (table, found) = (self.name().into_owned(), String::from_utf8_lossy(found).into_owned());
        Err(StoreError::TableTypes { table, found, wanted })
    }
}

fn types_of<K: Codec + ?Sized, V: Codec + ?Sized>() -> String {
    format!("{} to {}", K::NAME, V::NAME)
}

impl<A, K: Codec + ?Sized, V: Codec + ?Sized> Table<A, K, V> {
    fn failed(&self, part: &'static str, codec: &'static str, why: String) -> StoreError {
        let table = self.name().into_owned();
        StoreError::Codec {
            table,
            part,
            codec,
            why,
        }
    }

    fn encoded_key<'k>(&self, key: &'k impl Encode<K>) -> Result<Cow<'k, [u8]>, StoreError> {
        key.encode().map_err(|why| self.failed("key", K::NAME, why))
    }

    /// The engine's key for a key or bound of any length.
    fn bound(&self, key: &impl Encode<K>) -> Result<Vec<u8>, StoreError> {
        Ok([&self.prefix, &*self.encoded_key(key)?].concat())
    }

    /// The engine's key of a record.
    fn place(&self, key: &impl Encode<K>) -> Result<Vec<u8>, StoreError> {
        let place = self.bound(key)?;
        let (len, max) = (place.len() - self.prefix.len(), self.key_max());
        if self.prefix.is_empty() {
            check_key(&place)?;
        } else if !(1..=max).contains(&len) {
            return Err(StoreError::TableKey { len, max });
        }
        Ok(place)
    }

    /// The engine's key of a record that may be changed.
    fn changed<E: Engine, O: Os>(&self, store: &Store<E, O>, key: &impl Encode<K>) -> Result<Vec<u8>, StoreError> {
        let place = self.place(key)?;
        store.refuse_temporal(&place)?;
        Ok(place)
    }

    /// An error about the engine's key, with the lengths of this table's.
    fn own_lengths(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::ExpiringKey { len, max } => StoreError::ExpiringKey {
                len: len.saturating_sub(self.prefix.len()),
                max: max - self.prefix.len(),
            },
            error => error,
        }
    }

    /// The engine's range for a range of this table's keys.
    fn place_range<Q: Encode<K>>(&self, range: &impl RangeBounds<Q>) -> Result<OwnedRange, StoreError> {
        let (low, high) = key_range(range, |key| Ok(self.encoded_key(key)?.into_owned()))?;
        let placed = |bound: Bound<Vec<u8>>| bound.map(|key| [&self.prefix, &*key].concat());
        let (mut low, mut high, mut end) = (placed(low), placed(high), Vec::new());
        let (first, behind) = prefix_range(&self.prefix, &mut end);
        if low == Bound::Unbounded {
            low = first.map(<[u8]>::to_vec);
        }
        if high == Bound::Unbounded {
            high = behind.map(<[u8]>::to_vec);
        }
        Ok((low, high))
    }

    fn encoded<'v>(&self, value: &'v impl Encode<V>) -> Result<Cow<'v, [u8]>, StoreError> {
        value.encode().map_err(|why| self.failed("value", V::NAME, why))
    }

    fn decoded(&self, value: &[u8]) -> Result<V::Owned, StoreError> {
        V::decode(value).map_err(|why| self.failed("value", V::NAME, why))
    }

    fn record(&self, (key, value): (&[u8], &[u8])) -> Result<(K::Owned, V::Owned), StoreError> {
        let key = K::decode(key).map_err(|why| self.failed("key", K::NAME, why))?;
        Ok((key, self.decoded(value)?))
    }
}

/// The bounds of a range, as keys.
pub(crate) fn key_range<Q>(
    range: &impl RangeBounds<Q>,
    key: impl Fn(&Q) -> Result<Vec<u8>, StoreError>,
) -> Result<OwnedRange, StoreError> {
    let place = |bound: Bound<&Q>| {
        Ok::<_, StoreError>(match bound {
            Bound::Included(bound) => Bound::Included(key(bound)?),
            Bound::Excluded(bound) => Bound::Excluded(key(bound)?),
            Bound::Unbounded => Bound::Unbounded,
        })
    };
    match (place(range.start_bound())?, place(range.end_bound())?) {
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) if low > high => {
            Err(StoreError::ReversedRange { low, high })
        }
        range => Ok(range),
    }
}

/// Reads, by a transaction of either kind.
#[allow(clippy::type_complexity, reason = "the parameters of a table and of its transaction")]
impl<'s, E, O, S, A, K, V> Table<A, K, V>
where
    E: Engine + 's,
    O: Os,
    S: TransactionState<'s, E, O> + 's,
    A: Deref<Target = Transaction<'s, E, O, S>>,
    K: Codec + ?Sized,
    V: Codec + ?Sized,
{
    /// The value of `key`; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::TableKey`] for a key that no record can have; [`StoreError::Codec`]; those of
    /// [`Transaction::get`].
    pub fn get(&self, key: impl Encode<K>) -> Result<Option<V::Owned>, StoreError> {
        self.get_with(key, |value| self.decoded(value))?.transpose()
    }

    /// Calls `look` with the bytes of the value of `key`, see [`Transaction::get_with`].
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn get_with<T>(&self, key: impl Encode<K>, look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        self.access.look_at(&self.place(&key)?, look)
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn contains_key(&self, key: impl Encode<K>) -> Result<bool, StoreError> {
        Ok(self.get_with(key, |_| ())?.is_some())
    }

    /// Time for which a record will still be kept, see [`Transaction::life_left`].
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn life_left(&self, key: impl Encode<K>) -> Result<Option<Nanos>, StoreError> {
        self.access.life_left_at(&self.place(&key)?)
    }

    /// The records with keys in `range`.
    ///
    /// # Errors
    /// [`StoreError::ReversedRange`]; [`StoreError::Codec`]; [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn range<'t, Q: Encode<K>>(
        &'t self,
        range: impl RangeBounds<Q>,
    ) -> Result<TableRecords<'t, A, E, O, S::Read, K, V>, StoreError>
    where
        's: 't,
    {
        self.records(self.place_range(&range)?)
    }

    /// The records whose keys begin with `prefix`, for keys that are text or bytes.
    ///
    /// # Errors
    /// Those of [`range`](Table::range).
    pub fn prefix<'t>(&'t self, prefix: impl Encode<K>) -> Result<TableRecords<'t, A, E, O, S::Read, K, V>, StoreError>
    where
        's: 't,
    {
        let (mut end, prefix) = (Vec::new(), self.bound(&prefix)?);
        self.records(owned(prefix_range(&prefix, &mut end)))
    }

    /// All records.
    ///
    /// # Errors
    /// Those of [`range`](Table::range).
    pub fn iter<'t>(&'t self) -> Result<TableRecords<'t, A, E, O, S::Read, K, V>, StoreError>
    where
        's: 't,
    {
        self.records(self.place_range::<NoKey>(&..)?)
    }

    fn records<'t>(&'t self, range: OwnedRange) -> Result<TableRecords<'t, A, E, O, S::Read, K, V>, StoreError>
    where
        's: 't,
    {
        let records = self.access.records_at(&range, &self.prefix)?;
        Ok(TableRecords { table: self, records })
    }

    /// The record with the least key.
    ///
    /// # Errors
    /// Those of [`range`](Table::range).
    pub fn first<'t>(&'t self) -> Result<Option<(K::Owned, V::Owned)>, StoreError>
    where
        's: 't,
    {
        self.iter()?.next().transpose()
    }

    /// The record with the greatest key.
    ///
    /// # Errors
    /// Those of [`range`](Table::range).
    pub fn last<'t>(&'t self) -> Result<Option<(K::Owned, V::Owned)>, StoreError>
    where
        's: 't,
    {
        self.iter()?.next_back().transpose()
    }

    /// Number of records: counts them, so it takes as long as reading all.
    ///
    /// # Errors
    /// Those of [`range`](Table::range).
    pub fn len<'t>(&'t self) -> Result<u64, StoreError>
    where
        's: 't,
    {
        let (mut records, mut count) = (self.iter()?.records, 0);
        while records.lend()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Whether there is no record.
    ///
    /// # Errors
    /// Those of [`range`](Table::range).
    pub fn is_empty<'t>(&'t self) -> Result<bool, StoreError>
    where
        's: 't,
    {
        Ok(self.iter()?.records.lend()?.is_none())
    }
}

/// A key that does not exist: for ranges without bounds.
enum NoKey {}

impl<C: ?Sized> Encode<C> for NoKey {
    fn encode(&self) -> Result<Cow<'_, [u8]>, String> {
        match *self {}
    }
}

/// The records of a table in a range, decoded; from both ends.
pub struct TableRecords<'t, A, E: Engine, O: Os, R: Read + 't, K: ?Sized, V: ?Sized> {
    table: &'t Table<A, K, V>,
    records: Records<'t, E, O, R>,
}

impl<'t, A, E: Engine, O: Os, R: Read, K: Codec + ?Sized, V: Codec + ?Sized> TableRecords<'t, A, E, O, R, K, V> {
    /// Records of the range as bytes, one lent at a time, without a copy.
    pub fn raw(self) -> Records<'t, E, O, R> {
        self.records
    }
}

impl<A, E: Engine, O: Os, R: Read, K: Codec + ?Sized, V: Codec + ?Sized> Iterator
    for TableRecords<'_, A, E, O, R, K, V>
{
    type Item = Result<(K::Owned, V::Owned), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.records.next_as(false, |record| self.table.record(record))?;
        Some(next.and_then(|decoded| decoded))
    }
}

impl<A, E: Engine, O: Os, R: Read, K: Codec + ?Sized, V: Codec + ?Sized> DoubleEndedIterator
    for TableRecords<'_, A, E, O, R, K, V>
{
    fn next_back(&mut self) -> Option<Self::Item> {
        let next = self.records.next_as(true, |record| self.table.record(record))?;
        Some(next.and_then(|decoded| decoded))
    }
}

impl<'s, E: Engine, O: Os> ReadTransaction<'s, E, O> {
    /// The table `name`, as this transaction sees it.
    ///
    /// # Errors
    /// [`StoreError::TableName`].
    pub fn table(&self, name: &str) -> Result<Table<&Self>, StoreError> {
        Table::named(self, name)
    }
}

impl<'t, 's, E: Engine, O: Os> Table<&'t ReadTransaction<'s, E, O>> {
    /// The table with types.
    ///
    /// # Errors
    /// [`StoreError::TableTypes`] if it was written with others; those of a read.
    pub fn typed<K: Codec + ?Sized, V: Codec + ?Sized>(
        self,
    ) -> Result<Table<&'t ReadTransaction<'s, E, O>, K, V>, StoreError> {
        let checked = self
            .access
            .look_at(&self.types_key(), |found| self.check_types::<K, V>(found));
        checked?.transpose()?;
        Ok(Table::of(self.access, self.prefix))
    }
}

impl<'s, E: Engine, O: Os> WriteTransaction<'s, E, O> {
    /// The table `name`, to read and write in this transaction.
    ///
    /// # Errors
    /// [`StoreError::TableName`].
    pub fn table(&mut self, name: &str) -> Result<Table<&mut Self>, StoreError> {
        Table::named(self, name)
    }
}

impl<'t, 's, E: Engine, O: Os> Table<&'t mut WriteTransaction<'s, E, O>> {
    /// The table with types, which are noted if it had none.
    ///
    /// # Errors
    /// [`StoreError::TableTypes`] if it was written with others; those of a read and a put.
    pub fn typed<K: Codec + ?Sized, V: Codec + ?Sized>(
        self,
    ) -> Result<Table<&'t mut WriteTransaction<'s, E, O>, K, V>, StoreError> {
        let key = self.types_key();
        let checked = self.access.look_at(&key, |found| self.check_types::<K, V>(found));
        if checked?.transpose()?.is_none() {
            self.access.set_at(&key, types_of::<K, V>().as_bytes(), None)?;
        }
        Ok(Table::of(self.access, self.prefix))
    }
}

impl<'s, E: Engine, O: Os, K: Codec + ?Sized, V: Codec + ?Sized> Table<&mut WriteTransaction<'s, E, O>, K, V> {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`StoreError::TableKey`], [`StoreError::Codec`], [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn put(&mut self, key: impl Encode<K>, value: impl Encode<V>) -> Result<(), StoreError> {
        let (key, value) = (self.changed(self.access.store(), &key)?, self.encoded(&value)?);
        self.access.set_at(&key, &value, None)
    }

    /// Sets `key` to `value` for the time `life`, see [`expiry`](crate::expiry).
    ///
    /// # Errors
    /// [`StoreError::ExpiringKey`], and those of [`put`](Table::put).
    pub fn put_for(&mut self, key: impl Encode<K>, value: impl Encode<V>, life: Nanos) -> Result<(), StoreError> {
        let (key, value) = (self.changed(self.access.store(), &key)?, self.encoded(&value)?);
        let set = self.access.set_at(&key, &value, Some(life));
        set.map_err(|error| self.own_lengths(error))
    }

    /// Removes `key`; true if it was there.
    ///
    /// # Errors
    /// Those of [`put`](Table::put).
    pub fn delete(&mut self, key: impl Encode<K>) -> Result<bool, StoreError> {
        self.access.delete_at(&self.changed(self.access.store(), &key)?)
    }

    /// Replaces the expiry of a record, see [`WriteTransaction::set_life`](Transaction::set_life).
    ///
    /// # Errors
    /// [`StoreError::ExpiringKey`], and those of [`put`](Table::put).
    pub fn set_life(&mut self, key: impl Encode<K>, life: Option<Nanos>) -> Result<bool, StoreError> {
        let key = self.changed(self.access.store(), &key)?;
        let set = self.access.set_life_at(&key, life);
        set.map_err(|error| self.own_lengths(error))
    }

    /// Sets `key` to `value`, or removes it where that is `None`, if its value is `expected`: `None` for no record, or
    /// one whose life has ended. Returns whether it was.
    ///
    /// # Errors
    /// Those of [`put`](Table::put).
    pub fn compare_and_set<X: Encode<V>>(
        &mut self,
        key: impl Encode<K>,
        expected: Option<X>,
        value: Option<X>,
    ) -> Result<bool, StoreError> {
        let key = self.changed(self.access.store(), &key)?;
        let expected = expected.as_ref().map(|expected| self.encoded(expected)).transpose()?;
        let same = self.access.look_at(&key, |found| expected.as_deref() == Some(found))?;
        if !same.unwrap_or(expected.is_none()) {
            return Ok(false);
        }
        match &value {
            Some(value) => {
                let value = self.encoded(value)?;
                self.access.set_at(&key, &value, None)?;
            }
            None => _ = self.access.delete_at(&key)?,
        }
        Ok(true)
    }

    /// Removes the records with keys in `range`; returns their number. Temporal objects stay.
    ///
    /// # Errors
    /// Those of [`range`](Table::range) and [`delete`](Table::delete).
    pub fn delete_range<Q: Encode<K>>(&mut self, range: impl RangeBounds<Q>) -> Result<u64, StoreError> {
        let (mut range, mut deleted) = (self.place_range(&range)?, 0);
        while self.delete_some(&mut range, &mut deleted)? {}
        Ok(deleted)
    }

    /// Looks at the first [`DELETED_TOGETHER`] records in a range of the engine's keys, due ones included, and removes
    /// them, except temporal objects. Adds the number of those that were not due to `deleted`, and lets the range begin
    /// behind them; false if it has no more.
    fn delete_some(&mut self, range: &mut OwnedRange, deleted: &mut u64) -> Result<bool, StoreError> {
        let (mut keys, mut records) = (Vec::new(), self.access.records_and_due(range, &self.prefix)?);
        while keys.len() < DELETED_TOGETHER
            && let Some((key, _)) = records.lend()?
        {
            keys.push([&self.prefix, key].concat());
        }
        drop(records);
        for key in &keys {
            if self.access.store().object(key).is_none() {
                *deleted += u64::from(self.access.delete_at(key)?);
            }
        }
        let has_more = keys.len() == DELETED_TOGETHER;
        if let Some(last) = keys.pop() {
            range.0 = Bound::Excluded(last);
        }
        Ok(has_more)
    }
}

impl<E: Engine, O: Os> Store<E, O> {
    /// The table `name`; each of its calls is a transaction of its own.
    ///
    /// # Errors
    /// [`StoreError::TableName`].
    pub fn table(&self, name: &str) -> Result<Table<&Self>, StoreError> {
        Table::named(self, name)
    }

    /// The default table, which has no name.
    pub fn default_table(&self) -> Table<&Self> {
        Table::of(self, Arc::default())
    }

    /// The value of `key`, in a transaction of its own; `None` if there is none.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, StoreError> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// Calls `look` with the value of `key`, without a copy, in a transaction of its own; see
    /// [`Transaction::get_with`].
    ///
    /// ```
    /// # use punctual_engines::Memory;
    /// # use punctual_store::{Store, StoreOptions};
    /// # use punctual_testing::VirtualOs;
    /// # let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default())?;
    /// store.put("door", "open")?;
    /// assert_eq!(store.get_with("door", |value| value == b"open")?, Some(true));
    /// assert_eq!(store.get_with("gate", |value| value == b"open")?, None);
    /// # Ok::<(), punctual_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    #[inline]
    pub fn get_with<T>(&self, key: impl AsRef<[u8]>, look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        self.begin_read()?.get_with(key, look)
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        self.begin_read()?.contains_key(key)
    }

    /// Calls `visit` with the records in `range` in ascending order, until it breaks; in a transaction of its own.
    ///
    /// # Errors
    /// Those of [`Transaction::scan`].
    pub fn scan(
        &self,
        range: crate::engine::KeyRange<'_>,
        visit: impl FnMut(&[u8], &[u8]) -> std::ops::ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.begin_read()?.scan(range, visit)
    }

    /// Sets `key` to `value`, without a deadline. Threads that wait in such calls share a commit, unless the store is
    /// volatile or the value longer than 64 KiB. If that fails, each tries alone and gets its own error; where the
    /// engine is [`Broken`](crate::engine::EngineError::Broken) from then on, one thread gets the cause. A change that
    /// another thread carries out waits for that commit, whatever
    /// [`lock_wait_max`](crate::StoreOptions::lock_wait_max), and is refused after that time if the commit fails.
    ///
    /// # Errors
    /// Those of [`WriteTransaction::put`](Transaction::put) and of [`write_transaction`](Store::write_transaction).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), StoreError> {
        self.check_plain(key.as_ref())?;
        self.change(key.as_ref(), Some(value.as_ref())).map(drop)
    }

    /// Sets `key` to `value` for the time `life`, see [`expiry`](crate::expiry).
    ///
    /// # Errors
    /// [`StoreError::ExpiringKey`], and those of [`put`](Store::put).
    pub fn put_for(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, life: Nanos) -> Result<(), StoreError> {
        self.update(|tx| tx.put_for(key, value, life))
    }

    /// Removes `key`, without a deadline; true if it was there. Shares commits as [`put`](Store::put) does.
    ///
    /// # Errors
    /// Those of [`put`](Store::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        self.check_plain(key.as_ref())?;
        self.change(key.as_ref(), None)
    }

    /// Compares and sets a record of the default table, see [`Table::compare_and_set`].
    ///
    /// # Errors
    /// Those of [`put`](Store::put).
    pub fn compare_and_set<X: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<X>,
        value: Option<X>,
    ) -> Result<bool, StoreError> {
        self.default_table().compare_and_set(key, expected, value)
    }
}

impl<'s, E: Engine, O: Os> Table<&'s Store<E, O>> {
    /// The table with types. If it has none yet, they are noted in a write transaction.
    ///
    /// # Errors
    /// [`StoreError::TableTypes`] if it was written with others; those of a read and a put.
    pub fn typed<K: Codec + ?Sized, V: Codec + ?Sized>(self) -> Result<Table<&'s Store<E, O>, K, V>, StoreError> {
        let key = self.types_key();
        let checked = self
            .access
            .view(|tx| tx.look_at(&key, |found| self.check_types::<K, V>(found))?.transpose());
        if checked?.is_none() && !self.access.replicated {
            self.update(|table| table.typed::<K, V>().map(drop))?;
        }
        Ok(Table::of(self.access, self.prefix))
    }
}

/// A call is a transaction of its own, without a deadline.
#[allow(clippy::type_complexity, reason = "an option of a record that may fail")]
impl<'s, E: Engine, O: Os, K: Codec + ?Sized, V: Codec + ?Sized> Table<&'s Store<E, O>, K, V> {
    /// Runs `body` on the table in one snapshot.
    ///
    /// # Errors
    /// The error of the store or of `body`.
    pub fn view<T>(
        &self,
        body: impl FnOnce(Table<&ReadTransaction<'s, E, O>, K, V>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        body(Table::of(&self.access.begin_read()?, self.prefix.clone()))
    }

    /// Runs `body` on the table in one write transaction, and commits it.
    ///
    /// # Errors
    /// The error of the store or of `body`; nothing has changed then.
    pub fn update<T>(
        &self,
        body: impl FnOnce(Table<&mut WriteTransaction<'s, E, O>, K, V>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut transaction = self.access.begin_write()?;
        let answer = body(Table::of(&mut transaction, self.prefix.clone()))?;
        transaction.commit()?;
        Ok(answer)
    }

    /// The value of `key`; `None` if there is none.
    ///
    /// # Errors
    /// Those of the same call of a transaction's table.
    pub fn get(&self, key: impl Encode<K>) -> Result<Option<V::Owned>, StoreError> {
        self.view(|table| table.get(key))
    }

    /// Calls `look` with the bytes of the value of `key`.
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn get_with<T>(&self, key: impl Encode<K>, look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        self.view(|table| table.get_with(key, look))
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn contains_key(&self, key: impl Encode<K>) -> Result<bool, StoreError> {
        self.view(|table| table.contains_key(key))
    }

    /// The record with the least key.
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn first(&self) -> Result<Option<(K::Owned, V::Owned)>, StoreError> {
        self.view(|table| table.first())
    }

    /// The record with the greatest key.
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn last(&self) -> Result<Option<(K::Owned, V::Owned)>, StoreError> {
        self.view(|table| table.last())
    }

    /// Number of records: counts them, so it takes as long as reading all.
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn len(&self) -> Result<u64, StoreError> {
        self.view(|table| table.len())
    }

    /// Whether there is no record.
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        self.view(|table| table.is_empty())
    }

    /// The records with keys in `range`, in ascending order, all at once. For more than fit into memory, see
    /// [`view`](Table::view).
    ///
    /// # Errors
    /// [`StoreError::ReversedRange`], and those of [`get`](Table::get).
    pub fn range<Q: Encode<K>>(&self, range: impl RangeBounds<Q>) -> Result<Vec<(K::Owned, V::Owned)>, StoreError> {
        self.view(|table| table.range(range)?.collect())
    }

    /// The records whose keys begin with `prefix`, in ascending order, all at once; for keys that are text or bytes.
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn prefix(&self, prefix: impl Encode<K>) -> Result<Vec<(K::Owned, V::Owned)>, StoreError> {
        self.view(|table| table.prefix(prefix)?.collect())
    }

    /// The records with keys in `range`, in descending order, all at once.
    ///
    /// # Errors
    /// Those of [`range`](Table::range).
    pub fn rev<Q: Encode<K>>(&self, range: impl RangeBounds<Q>) -> Result<Vec<(K::Owned, V::Owned)>, StoreError> {
        self.view(|table| table.range(range)?.rev().collect())
    }

    /// The last values of the temporal object `key`, the oldest first; see [`Store::history`].
    ///
    /// # Errors
    /// [`StoreError::NotTemporal`] for any other key, and those of [`get`](Table::get).
    pub fn history(&self, key: impl Encode<K>) -> Result<Vec<(Sample, V::Owned)>, StoreError> {
        let key = self.place(&key)?;
        let Some(object) = self.access.object(&key) else {
            return Err(StoreError::NotTemporal { key });
        };
        let mut readings = ReadingBuffer::default();
        self.access.history(object, &mut readings)?;
        let decoded = readings
            .iter()
            .map(|(sample, value)| Ok((sample, self.decoded(value)?)));
        decoded.collect()
    }

    /// All records, in ascending order of keys, all at once.
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn iter(&self) -> Result<Vec<(K::Owned, V::Owned)>, StoreError> {
        self.view(|table| table.iter()?.collect())
    }

    /// Time for which a record will still be kept, see [`Transaction::life_left`].
    ///
    /// # Errors
    /// Those of [`get`](Table::get).
    pub fn life_left(&self, key: impl Encode<K>) -> Result<Option<Nanos>, StoreError> {
        self.view(|table| table.life_left(key))
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// Those of the same call of a transaction's table.
    pub fn put(&self, key: impl Encode<K>, value: impl Encode<V>) -> Result<(), StoreError> {
        let (key, value) = (self.changed(self.access, &key)?, self.encoded(&value)?);
        self.access.change(&key, Some(&value)).map(drop)
    }

    /// Sets `key` to `value` for the time `life`, see [`expiry`](crate::expiry).
    ///
    /// # Errors
    /// [`StoreError::ExpiringKey`], and those of [`put`](Table::put).
    pub fn put_for(&self, key: impl Encode<K>, value: impl Encode<V>, life: Nanos) -> Result<(), StoreError> {
        self.update(|mut table| table.put_for(key, value, life))
    }

    /// Replaces the expiry of a record; false if there is no such record.
    ///
    /// # Errors
    /// [`StoreError::ExpiringKey`], and those of [`put`](Table::put).
    pub fn set_life(&self, key: impl Encode<K>, life: Option<Nanos>) -> Result<bool, StoreError> {
        self.update(|mut table| table.set_life(key, life))
    }

    /// Removes `key`; true if it was there.
    ///
    /// # Errors
    /// Those of [`put`](Table::put).
    pub fn delete(&self, key: impl Encode<K>) -> Result<bool, StoreError> {
        self.access.change(&self.changed(self.access, &key)?, None)
    }

    /// Sets `key` to `value`, or removes it, if its value is `expected`; returns whether it was.
    ///
    /// # Errors
    /// Those of [`put`](Table::put).
    pub fn compare_and_set<X: Encode<V>>(
        &self,
        key: impl Encode<K>,
        expected: Option<X>,
        value: Option<X>,
    ) -> Result<bool, StoreError> {
        self.update(|mut table| table.compare_and_set(key, expected, value))
    }

    /// Removes the records with keys in `range`, [`DELETED_TOGETHER`] in a transaction, so that no other writer waits
    /// for long; returns their number. Records that are put meanwhile behind those already removed go as well.
    ///
    /// # Errors
    /// Those of [`range`](Table::range) and [`delete`](Table::delete); records that were removed before stay so.
    pub fn delete_range<Q: Encode<K>>(&self, range: impl RangeBounds<Q>) -> Result<u64, StoreError> {
        let (mut range, mut deleted) = (self.place_range(&range)?, 0);
        while self.update(|mut table| table.delete_some(&mut range, &mut deleted))? {}
        Ok(deleted)
    }

    /// Removes all records, as [`delete_range`](Table::delete_range) does. Its types stay noted.
    ///
    /// # Errors
    /// Those of [`delete_range`](Table::delete_range).
    pub fn clear(&self) -> Result<u64, StoreError> {
        self.delete_range::<NoKey>(..)
    }

    /// Begins a watch of all keys of the table, see [`Store::watch`]. Its keys are bytes.
    ///
    /// # Errors
    /// Those of [`Store::watch`].
    pub fn watch(&self, capacity: usize) -> Result<Watch<O>, StoreError> {
        self.access.watch_prefix(&self.prefix, capacity)
    }
}
