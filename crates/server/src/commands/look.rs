//! What commands read: a snapshot, or what a write transaction sees.

use std::ops::{Bound, ControlFlow};

use punctual_os::Os;
use punctual_store::engine::Engine;
use punctual_store::{Freshness, ReadTransaction, StoreError, WriteTransaction};
use punctual_units::Nanos;

use super::record::{MARK, Stored};
use super::{Refused, WRONG_TYPE, reply};

/// A consistent view of all records.
pub trait Look {
    /// Shows the bytes of `key` to `look`.
    ///
    /// # Errors
    /// Those of the store.
    fn bytes<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError>;

    /// For how long `key` will still be there.
    ///
    /// # Errors
    /// Those of the store.
    fn life_left(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError>;

    /// The value of a temporal object.
    ///
    /// # Errors
    /// Those of the store.
    fn fresh(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<Vec<u8>>, StoreError>;

    /// Calls `visit` with keys in ascending order.
    ///
    /// # Errors
    /// Those of the store.
    fn keys(&self, from: Bound<&[u8]>, visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), StoreError>;

    /// Whether `key` belongs to the store, or its time is over.
    fn is_hidden(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(key.starts_with(MARK) || self.life_left(key)? == Some(Nanos::ZERO))
    }

    /// Shows the text of `key` to `look`.
    ///
    /// # Errors
    /// [`Refused::Reply`] for a hash.
    fn text<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Refused> {
        if self.is_hidden(key)? {
            return Ok(None);
        }
        match self.bytes(key, |bytes| match Stored::of(bytes) {
            Ok(Stored::Text(text)) => Ok(look(text)),
            Ok(Stored::Hash(_)) => reply(WRONG_TYPE),
            Err(refused) => Err(refused),
        })? {
            Some(text) => text.map(Some),
            None => Ok(None),
        }
    }

    /// Shows the fields of `key` to `look`, encoded; empty where there is no such key.
    ///
    /// # Errors
    /// [`Refused::Reply`] for a string.
    fn hash<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<T, Refused> {
        if self.is_hidden(key)? {
            return Ok(look(&[]));
        }
        let mut look = Some(look);
        let found = self.bytes(key, |bytes| match Stored::of(bytes) {
            Ok(Stored::Hash(fields)) => Ok(look.take().map(|look| look(fields))),
            Ok(Stored::Text(_)) => reply(WRONG_TYPE),
            Err(refused) => Err(refused),
        })?;
        match (found.transpose()?.flatten(), look) {
            (Some(answer), _) => Ok(answer),
            (None, Some(look)) => Ok(look(&[])),
            (None, None) => reply("ERR a hash was looked at twice"),
        }
    }
}

impl<E: Engine, O: Os> Look for ReadTransaction<'_, E, O> {
    #[inline]
    fn bytes<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        self.get_with(key, look)
    }

    #[inline]
    fn life_left(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError> {
        self.life_left(key)
    }

    fn fresh(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<Vec<u8>>, StoreError> {
        Ok(owned(self.get_fresh(key, max_age)?))
    }

    fn keys(&self, from: Bound<&[u8]>, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), StoreError> {
        self.scan((from, Bound::Unbounded), |key, _| visit(key))
    }
}

impl<E: Engine, O: Os> Look for WriteTransaction<'_, E, O> {
    fn bytes<T>(&self, key: &[u8], look: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, StoreError> {
        Ok(self.get(key)?.map(|bytes| look(&bytes)))
    }

    fn life_left(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError> {
        self.life_left(key)
    }

    fn fresh(&self, key: &[u8], max_age: Nanos) -> Result<Freshness<Vec<u8>>, StoreError> {
        Ok(owned(self.get_fresh(key, max_age)?))
    }

    fn keys(&self, from: Bound<&[u8]>, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), StoreError> {
        self.scan((from, Bound::Unbounded), |key, _| visit(key))
    }
}

fn owned<B: std::ops::Deref<Target = [u8]>>(found: Freshness<B>) -> Freshness<Vec<u8>> {
    match found {
        Freshness::Fresh { value, age } => Freshness::Fresh {
            value: value.to_vec(),
            age,
        },
        Freshness::Stale { age, sampled_at } => Freshness::Stale { age, sampled_at },
        Freshness::NotFound => Freshness::NotFound,
    }
}
