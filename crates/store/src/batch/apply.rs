//! Applying batches and images: other transactions see all of one or nothing, after one commit of the engine.

use std::collections::BTreeMap;
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
use crate::watch::{ChangeKind, WakeMask};
use crate::{Deadline, StoreError};

/// Prefix of the keys that the store itself uses. They are kept in the table of temporal objects, which is never
/// scanned, because a third table would cost every transaction of the engine something.
pub(super) const RESERVED: &[u8] = b"\0punctual/";
const REVISION: &[u8] = b"\0punctual/revision";
const UPTO: &[u8] = b"\0punctual/upto";
/// Bytes that a record counts beside its own towards the bound of an image: its cost to the engine that installs it.
const RECORD_COSTS: usize = 64;

/// Records of a store at one revision in a range of keys, without the values of temporal objects. A joining node gets
/// its copy as one image, or as several, one after the other.
///
/// Held in memory as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The last entry of the log that the image includes.
    pub revision: Revision,
    /// The image begins behind this key; `None`: with the first record.
    pub after: Option<Vec<u8>>,
    /// The image ends with this key, whether a record has it or not; `None`: with the last record.
    pub upto: Option<Vec<u8>>,
    /// The records in ascending order of keys.
    #[serde(with = "super::bytes::records")]
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
    /// The created temporal objects, in order of creation; empty if the image does not begin with the first record.
    pub created: Vec<Creation>,
}

impl Image {
    /// The range of keys that the image covers.
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

/// Whether a key in the table of temporal objects is that of one of the store's own records.
pub fn is_reserved(key: &[u8]) -> bool {
    key.starts_with(RESERVED)
}

/// The revision that a snapshot records; 0 if it records none.
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

/// The store's revision, if `key` and `record`, from the table of temporal objects, hold it: for a program that
/// inspects a store without opening it.
pub fn revision_of(key: &[u8], record: &[u8]) -> Option<Revision> {
    let number = record.try_into().ok().filter(|_| key == REVISION)?;
    Some(Revision(u64::from_le_bytes(number)))
}

/// The last key up to which a snapshot has its records; `None`: it has all of them.
pub(crate) fn read_upto(read: &impl Read) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(read.get(Table::Temporal, UPTO)?.map(|key| key.to_vec()))
}

/// Whether a record under this key, in the table of temporal objects, means that records are missing because a copy of
/// another store did not end: for a program that inspects a store without opening it.
pub fn tells_of_a_part(key: &[u8]) -> bool {
    key == UPTO
}

impl<E: Engine, O: Os> Store<E, O> {
    /// The last entry of the log that was applied; 0 if none was. Transactions that begin after this call see it.
    pub fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Last key up to which its records are here, while [images](Store::install_image) of another store are installed
    /// one after the other; `None`: all records are. Records behind this key belong to no revision, and must answer no
    /// query.
    pub fn upto(&self) -> Option<Vec<u8>> {
        self.upto.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Commits the entry `revision` of the log: the transactions of a batch in their order, an empty list for an entry
    /// without writes. One commit of the engine, as durable as [`durability`](Store::durability) says. Changes behind
    /// [`upto`](Store::upto) are left out: the image that follows has them.
    ///
    /// # Errors
    /// [`StoreError::AlreadyApplied`], [`StoreError::NotNext`]; [`StoreError::Temporal`] where a write set changes the
    /// key of a temporal object here; those of [`create`](super::BatchTransaction::create);
    /// [`StoreError::NotReplicated`]; those of a [write transaction](Store::write_transaction). Nothing has changed
    /// then.
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
                    return WakeMask::default();
                }
                // The last change of a key wins.
                let kind = |value: &Option<Vec<u8>>| {
                    if value.is_some() {
                        ChangeKind::Put(0)
                    } else {
                        ChangeKind::Deleted(0)
                    }
                };
                let last: BTreeMap<_, _> = changes().map(|(key, value)| (key, kind(value))).collect();
                let notes = last.into_iter().map(|(key, kind)| self.watches.note_plain(key, kind));
                notes.fold(WakeMask::default(), WakeMask::and)
            },
        )
    }

    /// All records in one snapshot; up to [`upto`](Store::upto) if the rest is missing.
    ///
    /// # Errors
    /// [`StoreError::Engine`].
    pub fn image(&self) -> Result<Image, StoreError> {
        self.image_from(None, usize::MAX)
    }

    /// The records behind `after` in one snapshot, until they take `bytes_max` bytes together; the last one may exceed
    /// the bound. The images of one store, each from where the one before ends, need not be of one revision: see
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

    /// Replaces the records in the image's range by its records, in one commit of the engine.
    ///
    /// An image that begins with the first record may come at any time. If it does not end with the last one, the store
    /// has its records [up to](Store::upto) there from then on, and follows the log with these. The next image must
    /// begin where this one ends, and have the revision that the store has reached by then: so the store's records are
    /// always those of one revision of the log, although the images may differ in theirs.
    ///
    /// # Errors
    /// [`StoreError::AlreadyApplied`] for a first image that is not newer than this store, or a later one that is
    /// older; [`StoreError::NotNext`] for a later one of a later revision; [`StoreError::Elsewhere`] for one that does
    /// not begin where the store ends; otherwise as [`apply`](Store::apply). Nothing has changed then.
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
                // A first image that replaces a part may be of the same revision.
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

    /// Advances to `revision`, if `may_follow` agrees, by one commit of the engine. If `image` is installed, the
    /// store's records end where it does.
    fn advance(
        &self,
        revision: Revision,
        image: Option<&Image>,
        may_follow: impl FnOnce(Revision, Option<&Vec<u8>>) -> Result<(), StoreError>,
        created: &[&Creation],
        write: impl FnOnce(&mut E::Write<'_>, Option<&Vec<u8>>) -> Result<(), EngineError>,
        note: impl FnOnce() -> WakeMask,
    ) -> Result<(), StoreError> {
        self.require_replicated()?;
        // A deadline of now is most urgent: clients wait for the answer, and only group commits write beside it.
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
        permit.commits(Some(self.os.now()));
        transaction.commit()?;
        created.iter().for_each(|creation| self.add_object(creation));
        // After the commit: a transaction that begins now sees it. The write lock keeps other writers of both out.
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
