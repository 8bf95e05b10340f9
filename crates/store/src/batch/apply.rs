//! What other transactions see of a batch: everything, after one commit of the engine.

use std::ops::Bound;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use punctual_os::Os;
use punctual_units::Revision;
use serde::{Deserialize, Serialize};

use super::create::read_created;
use super::writes::WriteSet;
use crate::engine::{Engine, EngineError, KeyRange, Read, Table, Write};
use crate::store::Store;
use crate::temporal::Creation;
use crate::transaction::ReadTransaction;
use crate::watch::{Kind, Woken};
use crate::{Deadline, StoreError};

/// Keys that the store itself uses begin like this. They are kept beside the temporal objects, which are never scanned,
/// because a third table would cost every transaction of the engine something.
pub(super) const RESERVED: &[u8] = b"\0punctual/";
const REVISION: &[u8] = b"\0punctual/revision";
const UPTO: &[u8] = b"\0punctual/upto";
/// What a record counts beside its bytes where an image has a bound: what one costs the engine that takes it.
const RECORD_COSTS: usize = 64;

/// Records of a store at one revision, those of a range of keys, without the values of temporal objects: what a node
/// that joins is given, image by image, or all at once.
///
/// It holds them in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The last entry of the log that is part of it.
    pub revision: Revision,
    /// It begins behind this key; `None`: with the first record.
    pub after: Option<Vec<u8>>,
    /// It ends with this key, whether that has a record or not; `None`: with the last record.
    pub upto: Option<Vec<u8>>,
    /// The records in ascending order of keys.
    #[serde(with = "super::bytes::records")]
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
    /// The temporal objects that were created, in that order; none where it does not begin with the first record.
    pub created: Vec<Creation>,
}

impl Image {
    /// The keys that it is about.
    fn range(&self) -> KeyRange<'_> {
        range(self.after.as_deref(), self.upto.as_deref())
    }
}

fn range<'k>(after: Option<&'k [u8]>, upto: Option<&'k [u8]>) -> KeyRange<'k> {
    (
        after.map_or(Bound::Unbounded, Bound::Excluded),
        upto.map_or(Bound::Unbounded, Bound::Included),
    )
}

/// Whether a record beside a store's temporal objects is the store's own.
pub fn is_reserved(key: &[u8]) -> bool {
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

/// Up to which key a snapshot has its records; `None`: all of them.
pub(crate) fn read_upto(read: &impl Read) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(read.get(Table::Temporal, UPTO)?.map(|key| key.to_vec()))
}

/// Whether this record beside a store's temporal objects tells that records are missing, because a copy of another
/// store did not end: for a program that looks at a store which it does not open.
pub fn tells_of_a_part(key: &[u8]) -> bool {
    key == UPTO
}

impl<E: Engine, O: Os> Store<E, O> {
    /// The last entry of the log that was applied; 0 if none was. Transactions that begin after this call see it.
    pub fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Up to which key its records are here, while [images](Store::install_image) of another store are installed one
    /// after the other; `None`: all of them are. What is behind this key is of no revision, and no answer to any query.
    pub fn upto(&self) -> Option<Vec<u8>> {
        self.upto.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Commits the entry `revision` of the log: the transactions of a batch in their order, none for an entry that
    /// writes nothing. One commit of the engine, as durable as [`durability`](Store::durability) says. Changes behind
    /// [`upto`](Store::upto) are left out: the image that is to come from there has them.
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
            None,
            |at, _| match at.next() == revision {
                true => Ok(()),
                false if revision <= at => Err(StoreError::AlreadyApplied { at, revision }),
                false => Err(StoreError::NotNext { at, revision }),
            },
            &created,
            |transaction, upto| {
                let is_here = |key: &Vec<u8>| upto.is_none_or(|upto| key <= upto);
                for (key, value) in changes().filter(|(key, _)| is_here(key)) {
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

    /// All records, as one snapshot has them; those up to [`upto`](Store::upto) where not all are here.
    ///
    /// # Errors
    /// [`StoreError::Engine`].
    pub fn image(&self) -> Result<Image, StoreError> {
        self.image_from(None, usize::MAX)
    }

    /// The records behind `after`, as one snapshot has them: the first ones that take `bytes_max` bytes together, or a
    /// record more. The images of one store, each from where the one before ends, need not be of one revision: see
    /// [`install_image`](Store::install_image).
    ///
    /// # Errors
    /// [`StoreError::Engine`].
    pub fn image_from(&self, after: Option<&[u8]>, bytes_max: usize) -> Result<Image, StoreError> {
        let snapshot = self.snapshot(Deadline::NONE)?;
        let revision = read_revision(&snapshot, self.engine.path())?;
        let mut upto = read_upto(&snapshot)?;
        let (mut records, mut bytes) = (Vec::new(), 0_usize);
        for record in snapshot.scan(Table::Data, range(after, upto.as_deref()))? {
            let (key, value) = record?;
            if bytes >= bytes_max {
                upto = records.last().map(|(key, _): &(Vec<u8>, Vec<u8>)| key.clone());
                break;
            }
            bytes += key.len() + value.len() + RECORD_COSTS;
            records.push((key.to_vec(), value.to_vec()));
        }
        let created = match after {
            None => read_created(&snapshot, self.engine.path())?,
            Some(_) => Vec::new(),
        };
        Ok(Image {
            revision,
            after: after.map(<[u8]>::to_vec),
            upto,
            records,
            created,
        })
    }

    /// Puts an image of another store in the place of the records that it is about, in one commit of the engine.
    ///
    /// An image that begins with the first record may come at any time. Where it does not end with the last one, the
    /// store has its records [up to](Store::upto) there from then on, and follows the log with these. The next image is
    /// to begin where this one ends, and to be of the revision that the store has come to by then: so what is here is
    /// always what the log says up to one revision, although no two images need to be of the same.
    ///
    /// # Errors
    /// [`StoreError::AlreadyApplied`] for an image that is not newer than this store, or, where it goes on, older;
    /// [`StoreError::NotNext`] for one that goes on at a later revision; [`StoreError::Elsewhere`] for one that begins
    /// elsewhere; otherwise as [`apply`](Store::apply). Nothing has changed then.
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
        let revision = image.revision;
        self.advance(
            revision,
            Some(image),
            |at, upto| match &image.after {
                // One that takes the place of a part may be of the same revision.
                None if revision > at || (revision == at && upto.is_some()) => Ok(()),
                Some(after) if upto != Some(after) => Err(StoreError::Elsewhere { upto: upto.cloned() }),
                Some(_) if revision == at => Ok(()),
                Some(_) if revision > at => Err(StoreError::NotNext { at, revision }),
                _ => Err(StoreError::AlreadyApplied { at, revision }),
            },
            &created,
            |transaction, _| {
                let all = transaction.scan(Table::Data, image.range())?;
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

    /// Goes to `revision`, if that may follow the one that the store is at, by one commit of the engine. Its records
    /// end where `image` does then, if one is installed.
    fn advance(
        &self,
        revision: Revision,
        image: Option<&Image>,
        may_follow: impl FnOnce(Revision, Option<&Vec<u8>>) -> Result<(), StoreError>,
        created: &[&Creation],
        write: impl FnOnce(&mut E::Write<'_>, Option<&Vec<u8>>) -> Result<(), EngineError>,
        note: impl FnOnce() -> Woken,
    ) -> Result<(), StoreError> {
        self.require_replicated()?;
        // Most urgent: clients wait for the answer, and only group commits write beside it.
        let now = self.os.now();
        self.look_at_readers(now);
        let (permit, _) = self.permit(Deadline::soft(now), now)?;
        let upto = self.upto();
        may_follow(self.revision(), upto.as_ref())?;
        let mut transaction = self.engine.write()?;
        write(&mut transaction, upto.as_ref())?;
        self.write_created(&mut transaction, created)?;
        transaction.put(Table::Temporal, REVISION, &revision.0.to_le_bytes())?;
        match image.map(|image| &image.upto) {
            None => {}
            Some(Some(key)) => transaction.put(Table::Temporal, UPTO, key)?,
            Some(None) => _ = transaction.delete(Table::Temporal, UPTO)?,
        }
        permit.commits(self.os.now());
        transaction.commit()?;
        created.iter().for_each(|creation| self.add_object(creation));
        // After the commit: a transaction that begins now sees it. The permit keeps other writers of both out.
        self.revision.store(revision.0, Ordering::Release);
        if let Some(image) = image {
            let mut upto = self.upto.lock().unwrap_or_else(PoisonError::into_inner);
            upto.clone_from(&image.upto);
        }
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
