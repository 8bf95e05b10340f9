//! What a transaction did, as a value.

use std::collections::BTreeMap;

use punctual_units::{Nanos, Seq};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::temporal::Creation;

/// What a transaction leaves behind, by key: a value, or `None` for a record that it deleted.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Room for what an encoding of a created object takes beside its key: seven numbers of up to 10 bytes.
const CREATION_BYTES: usize = 70;
/// Room for what an encoding adds to the bytes of a change: two lengths of up to 5 bytes, and a tag.
const CHANGE_OVERHEAD: usize = 11;
/// The same for a temporal value: two lengths, two numbers of up to 10 bytes, and a tag.
const READ_OVERHEAD: usize = 31;
/// The same for a write set: the lengths of its three lists.
const SET_OVERHEAD: usize = 15;

/// What one transaction of a batch wrote, and which temporal values it read. Applied to another store that is at the
/// same revision, it leaves the same records there.
///
/// Temporal values are part of it because they are not part of the log's order: two nodes hold different ones at the
/// same revision, and only the write set tells on which of them the transaction decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteSet {
    /// What it leaves behind, by key: a value, or `None` for a record that it deleted.
    #[serde(with = "super::bytes::changes")]
    pub changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The temporal objects that it created, in order.
    pub created: Vec<Creation>,
    /// The temporal values that it read, in the order of its reads.
    pub read: Vec<TemporalRead>,
}

/// A temporal value as a transaction saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemporalRead {
    /// The object.
    pub key: Vec<u8>,
    /// Which update it was; 0 where there was none yet, or none since the store was opened.
    pub seq: Seq,
    /// How old the value was on the clock of the node that executed the transaction; [`Nanos::MAX`] where that was not
    /// known.
    pub age: Nanos,
    /// The value; `None` where there was none yet.
    pub value: Option<Vec<u8>>,
}

impl WriteSet {
    /// The most bytes that it takes in a log: its keys and values, and what a compact encoding adds to them.
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

/// How much one batch may hold. A log takes entries up to a size, and a batch waits in memory until the log answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchBounds {
    /// The most transactions, 256 by default: the first of them waits for the last.
    pub transactions: usize,
    /// The most bytes of all write sets together, see [`WriteSet::bytes`]; 1 MiB by default, because etcd takes
    /// requests of up to 1.5 MiB (its `--max-request-bytes`).
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
    /// Checks write sets that another node made.
    ///
    /// # Errors
    /// [`StoreError::BatchFull`]: they are more than this node takes.
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
