//! The view of records that commands read: a snapshot, or a write transaction.

use std::ops::{Bound, ControlFlow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_store::{
    Freshness, StoreError, Transaction, TransactionState, Value, WriteTransaction, unless_impossible,
};
use punctual_units::Nanos;

use super::record::{MARK, StoredRecord};
use super::{Failure, WRONG_TYPE, reply};

/// A value, and its remaining life: `None` without an expiry, never zero.
pub type Lasting<T> = (T, Option<Nanos>);

/// Existence of a key, and its remaining life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    /// Whether clients see a record under the key.
    pub is_there: bool,
    /// Remaining life, more than zero; `None` without an expiry or record.
    pub life: Option<Nanos>,
}

/// Time since 1970 by this machine's wall clock; zero if that stands before.
pub(super) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A consistent view of all records.
pub trait Look {
    /// Passes the bytes of `key` to `look`; `None` without such a record.
    ///
    /// # Errors
    /// Errors of the store.
    fn bytes<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError>;

    /// Remaining life of `key`: `None` without an expiry, zero once it has expired.
    ///
    /// # Errors
    /// Errors of the store.
    fn life_left(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError>;

    /// Time since 1970 by the wall clock, which EXPIREAT and its kin count by.
    fn wall(&self) -> Nanos {
        wall_clock().into()
    }

    /// Reads the value of a temporal object, if it is at most `max_age` old.
    ///
    /// # Errors
    /// Errors of the store.
    fn fresh(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<Vec<u8>>, StoreError>;

    /// Calls `visit` with keys from `from` on in ascending order, until it breaks.
    ///
    /// # Errors
    /// Errors of the store.
    fn keys(&self, from: Bound<&[u8]>, visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), StoreError>;

    /// Whether `key` belongs to the store itself, or has expired.
    fn is_hidden(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(key.starts_with(MARK) || self.life_left(key)? == Some(Nanos::ZERO))
    }

    /// Whether `key` exists, and its remaining life, both of one instant: if the life were read a moment later, a
    /// record that expires in between would be written back without an expiry.
    ///
    /// # Errors
    /// Errors of the store.
    fn found(&self, key: &[u8]) -> Result<KeyInfo, StoreError> {
        let life = self.life_left(key)?;
        let is_hidden = key.starts_with(MARK) || life == Some(Nanos::ZERO);
        let is_there = !is_hidden && self.bytes(key, |_| ())?.is_some();
        Ok(KeyInfo {
            is_there,
            life: life.filter(|_| is_there),
        })
    }

    /// Passes the string of `key` to `look`; `None` without such a record.
    ///
    /// # Errors
    /// [`Failure::Reply`] for a hash.
    fn text<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Failure> {
        Ok(self.text_and_life(key, look)?.map(|(text, _)| text))
    }

    /// As `text`, with the remaining life of the same instant.
    ///
    /// # Errors
    /// [`Failure::Reply`] for a hash.
    fn text_and_life<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<Lasting<T>>, Failure> {
        let life = self.life_left(key)?;
        if key.starts_with(MARK) || life == Some(Nanos::ZERO) {
            return Ok(None);
        }
        let text = self.bytes(key, |bytes| match StoredRecord::of(bytes) {
            Ok(StoredRecord::Text(text)) => Ok(look(text)),
            Ok(StoredRecord::Hash(_)) => reply(WRONG_TYPE),
            Err(refused) => Err(refused),
        })?;
        Ok(text.transpose()?.map(|text| (text, life)))
    }

    /// Passes the encoded fields of `key` to `look`; no bytes if there is no such key.
    ///
    /// # Errors
    /// [`Failure::Reply`] for a string.
    fn hash<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<T, Failure> {
        Ok(self.hash_and_life(key, look)?.0)
    }

    /// As `hash`, with the remaining life of the same instant.
    ///
    /// # Errors
    /// [`Failure::Reply`] for a string.
    fn hash_and_life<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Lasting<T>, Failure> {
        let life = self.life_left(key)?;
        if key.starts_with(MARK) || life == Some(Nanos::ZERO) {
            return Ok((look(&[]), None));
        }
        let mut look = Some(look);
        let found = self.bytes(key, |bytes| match StoredRecord::of(bytes) {
            Ok(StoredRecord::Hash(fields)) => Ok(look.take().map(|look| look(fields))),
            Ok(StoredRecord::Text(_)) => reply(WRONG_TYPE),
            Err(refused) => Err(refused),
        })?;
        match (found.transpose()?.flatten(), look) {
            (Some(answer), _) => Ok((answer, life)),
            (None, Some(look)) => Ok((look(&[]), None)),
            (None, None) => reply("ERR a hash was looked at twice"),
        }
    }
}

impl<'s, E: Engine, O: Os, S: TransactionState<'s, E, O>> Look for Transaction<'s, E, O, S> {
    #[inline]
    fn bytes<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        unless_impossible(self.get_with(key, look))
    }

    #[inline]
    fn life_left(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError> {
        unless_impossible(self.life_left(key))
    }

    fn fresh(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<Vec<u8>>, StoreError> {
        Ok(self.get_fresh(key, max_age)?.map(Value::into_owned))
    }

    fn keys(&self, from: Bound<&[u8]>, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), StoreError> {
        self.scan((from, Bound::Unbounded), |key, _| visit(key))
    }
}

/// A view whose records can be changed.
pub trait Edit: Look {
    /// Labels the changes from here on, for those that watch them.
    fn label(&mut self, _label: u8) {}

    /// Sets a record without an expiry.
    ///
    /// # Errors
    /// Errors of the store.
    fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), StoreError>;

    /// Sets a record that expires after `life`.
    ///
    /// # Errors
    /// Errors of the store.
    fn put_for(&mut self, key: &[u8], bytes: &[u8], life: Nanos) -> Result<(), StoreError>;

    /// Removes a record; returns whether it existed.
    ///
    /// # Errors
    /// Errors of the store.
    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError>;

    /// Sets or removes a record's expiry; returns whether the record exists.
    ///
    /// # Errors
    /// Errors of the store.
    fn set_life(&mut self, key: &[u8], life: Option<Nanos>) -> Result<bool, StoreError>;
}

impl<E: Engine, O: Os> Edit for WriteTransaction<'_, E, O> {
    fn label(&mut self, label: u8) {
        self.label(label);
    }

    fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), StoreError> {
        self.put(key, bytes)
    }

    fn put_for(&mut self, key: &[u8], bytes: &[u8], life: Nanos) -> Result<(), StoreError> {
        self.put_for(key, bytes, life)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        unless_impossible(self.delete(key))
    }

    fn set_life(&mut self, key: &[u8], life: Option<Nanos>) -> Result<bool, StoreError> {
        unless_impossible(self.set_life(key, life))
    }
}
