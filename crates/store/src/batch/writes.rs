//! The effects of a transaction, as a value.

use std::collections::BTreeMap;

use punctual_units::{Nanos, Seq};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::temporal::Creation;

/// The last change of each key: a value, or `None` for a deletion.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Most bytes that an encoding adds to the key of a created object: seven numbers of up to 10 bytes.
const CREATION_BYTES: usize = 70;
/// Most bytes that an encoding adds to a change: two lengths of up to 5 bytes, and a tag.
const CHANGE_OVERHEAD: usize = 11;
/// Most bytes that it adds to a temporal value: two lengths, two numbers of up to 10 bytes, and a tag.
const READ_OVERHEAD: usize = 31;
/// Most bytes that it adds to a write set: the lengths of its three lists.
const SET_OVERHEAD: usize = 15;

/// The changes of one transaction of a batch, and the temporal values that it read. Applied to another store that is at
/// the same revision, it leaves the same records there.
///
/// Temporal values are included because they are not part of the log's order: two nodes hold different ones at the same
/// revision, and only the write set says on which of them the transaction decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteSet {
    /// The last change of each key: a value, or `None` for a deletion.
    #[serde(with = "super::bytes::changes")]
    pub changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The temporal objects that the transaction created, in order.
    pub created: Vec<Creation>,
    /// The temporal values that it read, in the order of its reads.
    pub read: Vec<TemporalRead>,
}

/// A temporal value as a transaction read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemporalRead {
    /// Key of the temporal object.
    pub key: Vec<u8>,
    /// Number of the update; 0 if there was none yet, or none since the store was opened.
    pub seq: Seq,
    /// Age of the value on the clock of the node that executed the transaction; [`Nanos::MAX`] if it was unknown.
    pub age: Nanos,
    /// The value; `None` if there was none yet.
    pub value: Option<Vec<u8>>,
}

impl WriteSet {
    /// An upper bound of its bytes in a log: keys, values, and the overhead of a compact encoding.
    pub fn bytes(&self) -> usize {
        let changes: usize = self
            .changes
            .iter()
            .map(|(key, value)| change_bytes(key, value.as_deref()))
            .sum();
        let read: usize = self.read.iter().map(TemporalRead::bytes).sum();
        let created: usize = self.created.iter().map(creation_bytes).sum();
        SET_OVERHEAD + changes + created + read
    }
}

impl TemporalRead {
    pub(super) fn bytes(&self) -> usize {
        READ_OVERHEAD + self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

pub(super) fn change_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    CHANGE_OVERHEAD + key.len() + value.map_or(0, <[u8]>::len)
}

pub(super) fn creation_bytes(creation: &Creation) -> usize {
    CREATION_BYTES + creation.spec.key.len()
}

/// Bounds of one batch. A log takes entries up to a size, and a batch waits in memory until the log answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchBounds {
    /// Most transactions, 256 by default: the first of them waits for the last.
    pub transactions: usize,
    /// Most bytes of all write sets together, see [`WriteSet::bytes`]; 1 MiB by default, because etcd takes requests of
    /// up to 1.5 MiB (its `--max-request-bytes`).
    pub bytes: usize,
}

impl Default for BatchBounds {
    fn default() -> Self {
        BatchBounds {
            transactions: 256,
            bytes: 1 << 20,
        }
    }
}

impl BatchBounds {
    /// Checks write sets from another node against these bounds.
    ///
    /// # Errors
    /// [`StoreError::BatchFull`]: they exceed a bound of this node.
    pub fn check(&self, sets: &[WriteSet]) -> Result<(), StoreError> {
        self.admit(sets.len(), sets.iter().map(WriteSet::bytes).sum())
    }

    pub(super) fn admit(&self, transactions: usize, bytes: usize) -> Result<(), StoreError> {
        if transactions > self.transactions || bytes > self.bytes {
            return Err(StoreError::BatchFull {
                transactions,
                bytes,
                bounds: *self,
            });
        }
        Ok(())
    }
}
