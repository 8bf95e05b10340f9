//! One node's store: how batches and entries of the log reach it, on any engine and any operating system.

use std::sync::{Mutex, PoisonError};

use punctual_os::Os;
use punctual_store::batch::{Batch, BatchBounds, BatchTransaction, Image, WriteSet};
use punctual_store::engine::Engine;
use punctual_store::temporal::{Creation, Sample};
use punctual_store::{Deadline, Freshness, Store, StoreError};
use punctual_units::{Made, Nanos, Seq, Time};

use crate::action::Performed;
use crate::entry::Entry;
use crate::ids::Revision;
use crate::master::{BATCH_BYTES_MAX, BATCH_MAX};
use crate::message::{Key, Output, RESERVED, Refusal, Reign, Request, Value};
use crate::records::{self, Records, Undo};

/// What a change may add to a store's pages beyond its bytes: it splits a leaf, and the branch above.
const CHANGE_BYTES: u64 = 2 * 4096;

/// A store that follows the log.
pub struct Replica<E: Engine, O: Os> {
    store: Store<E, O>,
    horizon: Nanos,
    room: Mutex<Room>,
}

/// What may come to the records of a store.
struct Room {
    /// The most bytes of pages that records may take; `None` without a bound.
    bytes_max: Option<u64>,
    /// So much may surely come; at 0 it is looked up.
    left: u64,
}

/// A transaction of the store, as the federation writes to it.
struct View<'b, 's, E: Engine + 's, O: Os> {
    transaction: BatchTransaction<'b, 's, E, O>,
    horizon: Nanos,
    is_full: bool,
}

impl<E: Engine, O: Os> Records for View<'_, '_, E, O> {
    type Error = StoreError;

    fn get(&self, key: &[u8]) -> Result<Option<Value>, StoreError> {
        Ok(self.transaction.get(key)?.map(punctual_store::Value::into_owned))
    }

    fn fresh(&self, key: &[u8], max_age: Nanos) -> Result<Option<Value>, StoreError> {
        match self.transaction.get_fresh(key, max_age.min(self.horizon)) {
            Ok(Freshness::Fresh { value, .. }) => Ok(Some(value.into_owned())),
            Ok(Freshness::Stale { .. } | Freshness::NotFound) => Ok(None),
            Err(StoreError::NotTemporal { .. }) => self.get(key),
            Err(error) => Err(error),
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Undo<StoreError>> {
        // Our own records are few, and a delete writes them, too.
        if self.is_full && key.first() != Some(&RESERVED) {
            return Err(Undo::Refused(Refusal::StoreFull));
        }
        self.transaction.put(key, value).map_err(undo)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), Undo<StoreError>> {
        self.transaction.delete(key).map(drop).map_err(undo)
    }

    fn create(&mut self, creation: &Creation) -> Result<(), Undo<StoreError>> {
        if self.is_full {
            return Err(Undo::Refused(Refusal::StoreFull));
        }
        let key = &creation.spec.key;
        // Otherwise the object would hide the record.
        if let Err(StoreError::NotTemporal { .. }) = self.transaction.get_fresh(key, Nanos::ZERO)
            && self.get(key)?.is_some()
        {
            let why = "it holds an ordinary record: remove that first, or give the object another key".into();
            let key = key.clone();
            return Err(Undo::Refused(Refusal::NotCreated { key, why }));
        }
        self.transaction.create(creation.clone()).map_err(|error| match error {
            StoreError::DuplicateObject { .. } | StoreError::ReservedKey { .. } | StoreError::TooManyObjects { .. } => {
                Undo::Refused(Refusal::NotCreated {
                    key: creation.spec.key.clone(),
                    why: error.to_string(),
                })
            }
            error => Undo::Failed(error),
        })
    }
}

/// Why a transaction is undone whose write the store did not take.
fn undo(error: StoreError) -> Undo<StoreError> {
    match error {
        StoreError::Temporal { key } => Undo::Refused(Refusal::Temporal { key }),
        error => Undo::Failed(error),
    }
}

impl<E: Engine, O: Os> Replica<E, O> {
    /// A store that was opened as a replicated one. A reading older than `horizon` counts as none.
    pub fn new(store: Store<E, O>, horizon: Nanos) -> Replica<E, O> {
        let room = Mutex::new(Room {
            bytes_max: None,
            left: 0,
        });
        Replica { store, horizon, room }
    }

    /// Refuses transactions that put or create something once records take `bytes_max` bytes of pages; deletes go on.
    /// It is looked at before each batch, so the engine needs room for one batch more: what is in the log must be
    /// applied, whatever it takes.
    pub fn bounded(self, bytes_max: u64) -> Replica<E, O> {
        let room = Mutex::new(Room {
            bytes_max: Some(bytes_max),
            left: 0,
        });
        Replica { room, ..self }
    }

    fn is_full(&self) -> Result<bool, StoreError> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bytes_max) = room.bytes_max else {
            return Ok(false);
        };
        if room.left == 0 {
            room.left = bytes_max.saturating_sub(self.store.engine().space()?.data);
        }
        Ok(room.left == 0)
    }

    /// All of the log up to here is in it.
    pub fn revision(&self) -> Revision {
        self.store.revision()
    }

    /// The reign at its revision.
    ///
    /// # Errors
    /// Those of the store.
    pub fn reign(&self) -> Result<Reign, StoreError> {
        records::reign(|key| self.store.get(key))
    }

    /// Executes requests one after the other, each undone alone; nothing is to be seen of it.
    ///
    /// # Errors
    /// Those of the store.
    pub fn execute(&self, revision: Revision, requests: &[Request]) -> Result<Vec<Performed>, StoreError> {
        let (transactions, bytes) = (BATCH_MAX, BATCH_BYTES_MAX);
        let bounds = BatchBounds { transactions, bytes };
        let is_full = self.is_full()?;
        let mut batch = self.store.batch(bounds)?;
        let outcomes = requests
            .iter()
            .map(|request| execute(&mut batch, request, revision, self.horizon, is_full));
        let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
        let mut sets = batch.close().into_iter();
        let performed = outcomes.into_iter().map(|outcome| match outcome {
            Outcome::Kept(output) => Performed::Done {
                output,
                set: sets.next().unwrap_or_default(),
            },
            Outcome::Undone(performed) => performed,
        });
        Ok(performed.collect())
    }

    /// Applies an entry of the log in one commit of the engine.
    ///
    /// # Errors
    /// Those of the store.
    pub fn apply(&self, revision: Revision, entry: &Entry) -> Result<(), StoreError> {
        self.apply_sets(revision, &records::sets(entry))
    }

    /// Applies what an entry of the log says, transaction by transaction.
    ///
    /// # Errors
    /// Those of the store.
    pub fn apply_sets(&self, revision: Revision, sets: &[WriteSet]) -> Result<(), StoreError> {
        let changes = sets.iter().flat_map(|set| &set.changes);
        let bytes = changes.map(|(key, value)| CHANGE_BYTES + (key.len() + value.as_ref().map_or(0, Vec::len)) as u64);
        let bytes: u64 = bytes.sum();
        self.store.apply(revision, sets)?;
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        room.left = room.left.saturating_sub(bytes);
        Ok(())
    }

    /// Counts an entry as applied and leaves out what it says: a planted fault.
    ///
    /// # Errors
    /// Those of the store.
    pub fn skip(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.apply(revision, &[])
    }

    /// Installs a reading of an object, if that was created here.
    ///
    /// # Errors
    /// Those of the store.
    pub fn install_reading(
        &self,
        object: Made,
        seq: Seq,
        sampled_at: Option<Time>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let Some(object) = self.store.object_made(object) else {
            return Ok(false);
        };
        let sample = Sample { seq, sampled_at };
        self.store.install_from_peer(object, sample, value)?;
        Ok(true)
    }

    /// Whether an object of that name is here.
    pub fn has_object(&self, object: Made) -> bool {
        self.store.object_made(object).is_some()
    }

    /// The key of each temporal object that was created, and its present name.
    pub fn created(&self) -> Vec<(Key, Made)> {
        self.store.created()
    }

    /// Counts a start of this node, see [`Store::count_boot`].
    ///
    /// # Errors
    /// Those of the store.
    pub fn count_boot(&self, at_least: u64) -> Result<u64, StoreError> {
        self.store.count_boot(at_least)
    }

    /// What a temporal object reads here, from memory alone: its latest reading into `value`, and how old that shows.
    /// `None` where there is no such object, `Some(None)` where it has no reading yet.
    ///
    /// # Errors
    /// Those of the store.
    pub fn latest(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Option<Nanos>>, StoreError> {
        let Some(object) = self.store.object(key) else {
            return Ok(None);
        };
        let sample = self.store.read(object, value)?;
        Ok(Some(sample.map(|sample| sample.age(self.store.os().since_boot()))))
    }

    /// How old what a temporal object reads here shows; `None` where it has no reading.
    ///
    /// # Errors
    /// Those of the store.
    pub fn age(&self, key: &[u8]) -> Result<Option<Nanos>, StoreError> {
        let Some(object) = self.store.object(key) else {
            return Ok(None);
        };
        let sample = self.store.sample(object)?;
        Ok(sample.map(|sample| sample.age(self.store.os().since_boot())))
    }

    /// What a temporal object reads here.
    ///
    /// # Errors
    /// Those of the store.
    pub fn reading(&self, object: &[u8]) -> Result<Option<Value>, StoreError> {
        self.store.get(object)
    }

    /// Reads records from one snapshot, and readings that are at most so old.
    ///
    /// # Errors
    /// Those of the store.
    pub fn query(&self, keys: &[Key], max_age: Nanos) -> Result<(Revision, Vec<Option<Value>>), StoreError> {
        let transaction = self.store.read_transaction(Deadline::NONE)?;
        let read = |key: &Key| match transaction.get_fresh(key, max_age.min(self.horizon)) {
            Ok(Freshness::Fresh { value, .. }) => Ok(Some(value.into_owned())),
            Ok(Freshness::Stale { .. } | Freshness::NotFound) => Ok(None),
            Err(StoreError::NotTemporal { .. }) => Ok(transaction.get(key)?.map(punctual_store::Value::into_owned)),
            Err(error) => Err(error),
        };
        let values = keys.iter().map(read).collect::<Result<_, StoreError>>()?;
        Ok((transaction.revision()?, values))
    }

    /// Writes what was applied to the medium; all up to the revision that is returned is there.
    ///
    /// # Errors
    /// Those of the store.
    pub fn sync(&self) -> Result<Revision, StoreError> {
        let revision = self.revision();
        self.store.flush()?;
        Ok(revision)
    }

    /// All of it, from one snapshot.
    ///
    /// # Errors
    /// Those of the store.
    pub fn image(&self) -> Result<Image, StoreError> {
        self.store.image()
    }

    /// Replaces all of it.
    ///
    /// # Errors
    /// Those of the store.
    pub fn install(&self, image: &Image) -> Result<(), StoreError> {
        self.store.install_image(image)?;
        self.room.lock().unwrap_or_else(PoisonError::into_inner).left = 0;
        Ok(())
    }
}

/// What became of one request.
enum Outcome {
    /// Its write set is part of the batch.
    Kept(Output),
    Undone(Performed),
}

fn execute<E: Engine, O: Os>(
    batch: &mut Batch<'_, E, O>,
    request: &Request,
    revision: Revision,
    horizon: Nanos,
    is_full: bool,
) -> Result<Outcome, StoreError> {
    let full = |len| match len {
        0 => Outcome::Undone(Performed::NotRun),
        len => Outcome::Undone(Performed::Refused(Refusal::WritesTooLong { len })),
    };
    let first = batch.kept() == 0;
    let transaction = match batch.transaction(Deadline::NONE) {
        Ok(transaction) => transaction,
        Err(StoreError::BatchFull { .. }) => return Ok(full(0)),
        Err(error) => return Err(error),
    };
    let mut view = View {
        transaction,
        horizon,
        is_full,
    };
    match records::perform(&mut view, request.id, &request.work, revision) {
        Ok(output) => {
            view.transaction.keep()?;
            Ok(Outcome::Kept(output))
        }
        Err(Undo::Refused(refusal)) => Ok(Outcome::Undone(Performed::Refused(refusal))),
        // Alone it would not fit either, if it was the first.
        Err(Undo::Failed(StoreError::BatchFull { bytes, .. })) => Ok(full(if first { bytes } else { 0 })),
        Err(Undo::Failed(error)) => Err(error),
    }
}
