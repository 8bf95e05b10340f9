//! Tables with names, beside the one keyspace.
//!
//! **Problem.** Parts of a program keep their records apart: each iterates over its own, and chooses keys without
//! regard to the others'.
//!
//! **Method.** The records of a table lie beside the others in the engine, under keys that begin with the table's name,
//! in a region that belongs to the store. So tables are made by writing to them, one transaction changes several, and
//! neither an engine nor the file's format knows of them. Reads, scans and iterators without a table leave the region
//! out, and writes into it are refused.
//!
//! ```
//! use std::ops::Bound;
//! use punctual_store::tables::NamedTable;
//! use punctual_store::{Deadline, Store, StoreOptions};
//! # use {punctual_engines::Memory, punctual_testing::VirtualOs};
//!
//! let store = Store::open(Memory::default(), VirtualOs::new(1), StoreOptions::default())?;
//! let (users, rooms) = (NamedTable::new("users")?, NamedTable::new("rooms")?);
//! let mut transaction = store.write_transaction(Deadline::NONE)?;
//! transaction.put_in(&users, b"1", b"Ada")?;
//! transaction.put_in(&rooms, b"1", b"kitchen")?;
//! assert_eq!(transaction.get_in(&users, b"1")?.as_deref(), Some(&b"Ada"[..]));
//! transaction.commit()?;
//!
//! let transaction = store.read_transaction(Deadline::NONE)?;
//! let mut all = transaction.records_in(&rooms, (Bound::Unbounded, Bound::Unbounded))?;
//! assert_eq!(&*all.next().expect("there is one")?.0, b"1");
//! assert!(all.next().is_none());
//! assert_eq!(transaction.get(b"1")?, None); // not in the one keyspace
//! # Ok::<(), punctual_store::StoreError>(())
//! ```

use std::ops::Bound;

use crate::StoreError;
use crate::engine::{KEY_MAX_LEN, KeyRange};

/// The longest name of a table, in bytes.
pub const NAME_MAX_LEN: usize = 64;

/// Prefix of the store's own plain keys.
pub(crate) const REGION: &[u8] = b"\0punctual/";
/// The least key behind that region.
pub(crate) const BEHIND_REGION: &[u8] = b"\0punctual0";
const TABLES: &[u8] = b"\0punctual/table/";

/// Handle of a named table: the prefix of its keys in the engine. Made without access to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTable {
    /// Bytes before each key of the table: region, name, and a zero byte.
    prefix: Vec<u8>,
}

impl NamedTable {
    /// Handle of the table `name`: 1 to [`NAME_MAX_LEN`] bytes, none of them zero.
    ///
    /// # Errors
    /// [`StoreError::TableName`].
    pub fn new(name: &str) -> Result<NamedTable, StoreError> {
        if !(1..=NAME_MAX_LEN).contains(&name.len()) || name.contains('\0') {
            return Err(StoreError::TableName { name: name.to_owned() });
        }
        let prefix = [TABLES, name.as_bytes(), b"\0"].concat();
        Ok(NamedTable { prefix })
    }

    /// The longest key that this table allows, in bytes: the engine's limit less the prefix.
    pub fn key_max(&self) -> usize {
        KEY_MAX_LEN - self.prefix.len()
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The engine's key of the table's record `key`.
    ///
    /// # Errors
    /// [`StoreError::TableKey`] for a key that no record can have.
    pub(crate) fn key(&self, key: &[u8]) -> Result<Vec<u8>, StoreError> {
        let (len, max) = (key.len(), self.key_max());
        if !(1..=max).contains(&len) {
            return Err(StoreError::TableKey { len, max });
        }
        Ok([&self.prefix, key].concat())
    }

    /// The engine's range for a range of this table's keys.
    pub(crate) fn range(&self, (low, high): KeyRange<'_>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let place = |key: &[u8]| [&self.prefix, key].concat();
        let low = match low {
            Bound::Unbounded => Bound::Included(self.prefix.clone()),
            bound => bound.map(place),
        };
        let high = match high {
            Bound::Unbounded => {
                // The prefix ends with a zero byte, so the same bytes ending in 1 are the least key behind the table.
                let mut behind = self.prefix.clone();
                behind.pop();
                behind.push(1);
                Bound::Excluded(behind)
            }
            bound => bound.map(place),
        };
        (low, high)
    }
}
