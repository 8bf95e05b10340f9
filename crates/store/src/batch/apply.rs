//! What other transactions see of a batch: everything, after one commit of the engine.

use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::Ordering;

use punctual_os::Os;
use punctual_units::Revision;
use serde::{Deserialize, Serialize};

use super::create::read_created;
use super::writes::WriteSet;
use crate::engine::{Engine, EngineError, Read, Table, Write};
use crate::store::Store;
use crate::temporal::Creation;
use crate::transaction::ReadTransaction;
use crate::watch::{Kind, Woken};
use crate::{Deadline, StoreError};

/// Keys that the store itself uses begin like this. They are kept beside the temporal objects, which are never scanned,
/// because a third table would cost every transaction of the engine something.
pub(super) const RESERVED: &[u8] = b"\0punctual/";
const REVISION: &[u8] = b"\0punctual/revision";

/// All records of a store at one revision, without the values of temporal objects: what a node that joins begins with.
///
/// It holds all of them in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The last entry of the log that is part of it.
    pub revision: Revision,
    /// The records in ascending order of keys.
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
    /// The temporal objects that were created, in that order.
    pub created: Vec<Creation>,
}

pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(RESERVED)
}

/// The revision in a snapshot.
pub(crate) fn read_revision(read: &impl Read, path: &Path) -> Result<Revision, StoreError> {
    let Some(bytes) = read.get(Table::Temporal, REVISION)? else {
        return Ok(Revision::ZERO);
    };
    revision_of(REVISION, &bytes).ok_or_else(|| {
        StoreError::Engine(EngineError::Corrupt {
            path: path.to_path_buf(),
            reason: "its revision is not a number".to_owned(),
        })
    })
}

/// The revision of a store, where this record beside its temporal objects is the one that tells it: for a program that
/// looks at a store which it does not open.
pub fn revision_of(key: &[u8], record: &[u8]) -> Option<Revision> {
    let number = record.try_into().ok().filter(|_| key == REVISION)?;
    Some(Revision(u64::from_le_bytes(number)))
}

impl<E: Engine, O: Os> Store<E, O> {
    /// The last entry of the log that was applied; 0 if none was. Transactions that begin after this call see it.
    pub fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Commits the entry `revision` of the log: the transactions of a batch in their order, none for an entry that
    /// writes nothing. One commit of the engine, as durable as [`durability`](Store::durability) says.
    ///
    /// # Errors
    /// [`StoreError::AlreadyApplied`], [`StoreError::NotNext`]; [`StoreError::Temporal`] where a write set changes what
    /// is a temporal object here; those of [`create`](super::BatchTransaction::create); [`StoreError::NotReplicated`];
    /// those of a [write transaction](Store::write_transaction). Nothing has changed then.
    pub fn apply(&self, revision: Revision, sets: &[WriteSet]) -> Result<(), StoreError> {
        let changes = || sets.iter().flat_map(|set| &set.changes);
        let created: Vec<&Creation> = sets.iter().flat_map(|set| &set.created).collect();
        changes().try_for_each(|(key, _)| self.refuse_temporal(key))?;
        self.advance(
            revision,
            |at| at.next() == revision,
            &created,
            |transaction| {
                for (key, value) in changes() {
                    match value {
                        Some(value) => transaction.put(Table::Data, key, value)?,
                        None => transaction.delete(Table::Data, key).map(drop)?,
                    }
                }
                Ok(())
            },
            || {
                if !self.watches.any() {
                    return Woken::default();
                }
                // Of several changes of a key the last one counts.
                let kind = |value: &Option<Vec<u8>>| if value.is_some() { Kind::Put } else { Kind::Deleted };
                let last = changes().map(|(key, value)| (key.clone(), kind(value))).collect();
                self.watches.note_all(&last)
            },
        )
    }

    /// All records, as one snapshot has them.
    ///
    /// # Errors
    /// [`StoreError::Engine`].
    pub fn image(&self) -> Result<Image, StoreError> {
        let snapshot = self.snapshot(Deadline::NONE)?;
        let revision = read_revision(&snapshot, self.engine.path())?;
        let records = snapshot.scan(Table::Data, (Bound::Unbounded, Bound::Unbounded))?;
        let owned = records.map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())));
        let records = owned.collect::<Result<_, _>>()?;
        let created = read_created(&snapshot, self.engine.path())?;
        Ok(Image {
            revision,
            records,
            created,
        })
    }

    /// Puts an image of another store in the place of all records, in one commit of the engine.
    ///
    /// # Errors
    /// [`StoreError::AlreadyApplied`] for an image that is not newer than this store; otherwise as
    /// [`apply`](Store::apply).
    pub fn install_image(&self, image: &Image) -> Result<(), StoreError> {
        image
            .records
            .iter()
            .try_for_each(|(key, _)| self.refuse_temporal(key))?;
        let known = self.objects.created().all();
        let created: Vec<_> = image
            .created
            .iter()
            .filter(|creation| !known.contains(creation))
            .collect();
        self.advance(
            image.revision,
            |at| at < image.revision,
            &created,
            |transaction| {
                let all = transaction.scan(Table::Data, (Bound::Unbounded, Bound::Unbounded))?;
                let keys = all.map(|record| Ok(record?.0.to_vec()));
                for key in keys.collect::<Result<Vec<_>, EngineError>>()? {
                    transaction.delete(Table::Data, &key)?;
                }
                for (key, value) in &image.records {
                    transaction.put(Table::Data, key, value)?;
                }
                Ok(())
            },
            || self.watches.note_everything(),
        )
    }

    /// Goes to `revision`, if that may follow the one that the store is at, by one commit of the engine.
    fn advance(
        &self,
        revision: Revision,
        may_follow: impl FnOnce(Revision) -> bool,
        created: &[&Creation],
        write: impl FnOnce(&mut E::Write<'_>) -> Result<(), EngineError>,
        note: impl FnOnce() -> Woken,
    ) -> Result<(), StoreError> {
        self.require_replicated()?;
        // Most urgent: clients wait for the answer, and only group commits write beside it.
        let now = self.os.now();
        self.look_at_readers(now);
        let (permit, _) = self.permit(Deadline::soft(now), now)?;
        let at = self.revision();
        if revision <= at {
            return Err(StoreError::AlreadyApplied { at, revision });
        }
        if !may_follow(at) {
            return Err(StoreError::NotNext { at, revision });
        }
        let mut transaction = self.engine.write()?;
        write(&mut transaction)?;
        self.write_created(&mut transaction, created)?;
        transaction.put(Table::Temporal, REVISION, &revision.0.to_le_bytes())?;
        permit.commits(self.os.now());
        transaction.commit()?;
        created.iter().for_each(|creation| self.add_object(creation));
        // After the commit: a transaction that begins now sees it. The permit keeps other writers of the number out.
        self.revision.store(revision.0, Ordering::Release);
        let woken = note();
        drop(permit);
        self.watches.wake(woken);
        Ok(())
    }

    pub(crate) fn require_replicated(&self) -> Result<(), StoreError> {
        if self.replicated {
            return Ok(());
        }
        Err(StoreError::NotReplicated)
    }
}

impl<E: Engine, O: Os> ReadTransaction<'_, E, O> {
    /// The last entry of the log that this transaction sees.
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`], [`StoreError::Engine`].
    pub fn revision(&self) -> Result<Revision, StoreError> {
        self.with_snapshot(|store, snapshot| read_revision(snapshot, store.engine.path()))
    }
}
