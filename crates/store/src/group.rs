//! Group commit: from memory to the engine, many temporal objects in one write transaction.
//!
//! **Why.** A copy-on-write engine writes whole pages: one 100-byte update alone costs 16 KB of flash (LMDB: a leaf,
//! two branch pages, a meta page). Together, updates share these pages, and of several updates of one object between
//! two commits only the last is written.
//!
//! **Promise.** An update is acknowledged as durable, by [`Store::durable_seq`] and [`Flushed::durable`], only after
//! the commit that holds it has reached the medium: with the commit itself at durability `durable`, otherwise after
//! the next [`Store::sync`]. An update that was superseded in memory before it was written is covered by the newer
//! one.
//!
//! **What was installed together** ([`Store::install_together`]) is written together, as long as no more than
//! [`GROUP_OBJECTS_MAX`] objects are to be written: a group is what one cut has of them.
//!
//! **Urgent writers** wait for at most [`GROUP_OBJECTS_MAX`] objects: a larger group becomes several transactions.

use std::sync::atomic::{AtomicU64, Ordering};

use punctual_os::Os;
use punctual_units::{ObjectId, Seq};

use crate::engine::{Durability, Engine};
use crate::store::Store;
use crate::temporal::{Overwritten, Readings};
use crate::{Deadline, StoreError};

/// The most objects that one write transaction of a group commit writes.
pub const GROUP_OBJECTS_MAX: usize = 256;

/// Which update of each object has gone how far; 0: none of this run.
#[derive(Debug)]
pub(crate) struct Group {
    committed: Box<[AtomicU64]>,
    durable: Box<[AtomicU64]>,
}

/// What a group commit has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// How many objects were written.
    pub objects: usize,
    /// Whether all that was installed before the call is durable now.
    pub durable: bool,
}

impl Group {
    pub fn new(objects: usize) -> Group {
        let none = || (0..objects).map(|_| AtomicU64::new(0)).collect();
        Group {
            committed: none(),
            durable: none(),
        }
    }

    /// Notes a commit; its caller holds the permit, so numbers only grow.
    pub fn committed(&self, object: ObjectId, seq: Seq, durability: Durability) {
        self.committed[object.index()].store(seq.0, Ordering::Release);
        if durability == Durability::Durable {
            self.durable[object.index()].fetch_max(seq.0, Ordering::AcqRel);
        }
    }

    fn is_committed(&self, object: ObjectId, seq: Seq) -> bool {
        seq.0 <= self.committed[object.index()].load(Ordering::Acquire)
    }
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Writes all temporal objects that have changed since they were last written. For a thread that does so every
    /// [`group_interval`](crate::StoreOptions::group_interval). Nothing to do in transaction mode.
    ///
    /// # Errors
    /// [`StoreError::LockTimeout`], [`StoreError::TooManyWaiters`], [`StoreError::Engine`]. What was not written is
    /// tried again by the next call.
    pub fn commit_group(&self) -> Result<Flushed, StoreError> {
        self.look_at_readers(self.os.now());
        let dirty = self.dirty(self.objects.installs().cut());
        if (1..=GROUP_OBJECTS_MAX).contains(&dirty.len()) {
            self.commit_objects(None)?;
        } else {
            for group in dirty.chunks(GROUP_OBJECTS_MAX) {
                self.commit_objects(Some(group))?;
            }
        }
        Ok(Flushed {
            objects: dirty.len(),
            durable: self.engine.durability() == Durability::Durable,
        })
    }

    /// A [group commit](Store::commit_group), made durable.
    ///
    /// # Errors
    /// Those of [`commit_group`](Store::commit_group) and [`sync`](Store::sync); among them
    /// [`EngineError::Volatile`](crate::engine::EngineError::Volatile), after the group commit.
    pub fn flush(&self) -> Result<Flushed, StoreError> {
        let flushed = self.commit_group()?;
        if !flushed.durable {
            self.sync()?;
        }
        Ok(Flushed {
            durable: true,
            ..flushed
        })
    }

    /// Makes everything durable that was committed before the call. In memory-first mode, updates that no group commit
    /// has written yet are not part of that; [`flush`](Store::flush) is.
    ///
    /// # Errors
    /// [`StoreError::Engine`]; nothing has been promised then. A volatile store always refuses, see
    /// [`EngineError::Volatile`](crate::engine::EngineError::Volatile).
    pub fn sync(&self) -> Result<(), StoreError> {
        let load = |seq: &AtomicU64| seq.load(Ordering::Acquire);
        let before: Vec<u64> = self.group.committed.iter().map(load).collect();
        self.engine.sync()?;
        for (durable, seq) in self.group.durable.iter().zip(before) {
            durable.fetch_max(seq, Ordering::AcqRel);
        }
        Ok(())
    }

    /// The newest update of `object` that is known to be durable; 0 if none of this run is.
    ///
    /// # Errors
    /// [`StoreError::UnknownObject`].
    pub fn durable_seq(&self, object: ObjectId) -> Result<Seq, StoreError> {
        let seq = self
            .group
            .durable
            .get(object.index())
            .ok_or(StoreError::UnknownObject(object))?;
        Ok(Seq(seq.load(Ordering::Acquire)))
    }

    /// The objects whose value at `cut` no group commit has written yet. One that is overwritten right now is dirty.
    fn dirty(&self, cut: u64) -> Vec<ObjectId> {
        let is_dirty = |object: &ObjectId| {
            let sample = self.objects.slot(*object).map(|slot| slot.sample_at(cut));
            match sample {
                Some(Ok(Some(sample))) => !self.group.is_committed(*object, sample.seq),
                Some(Err(Overwritten)) => true,
                Some(Ok(None)) | None => false,
            }
        };
        self.objects.ids().filter(is_dirty).collect()
    }

    /// Writes `objects`, or else all that are dirty, in one transaction, as one cut has them.
    fn commit_objects(&self, objects: Option<&[ObjectId]>) -> Result<(), StoreError> {
        let now = self.os.now();
        let (permit, _) = self.permit(Deadline::soft(now + self.group_interval), now)?;
        let mut readings = Readings::default();
        // Maybe newer than when they were found dirty: so much the better.
        let objects = self.at_one_cut(|cut| {
            let mut objects = objects.map_or_else(|| self.dirty(cut), <[ObjectId]>::to_vec);
            objects.truncate(GROUP_OBJECTS_MAX);
            self.read_all_at(cut, &objects, &mut readings).map(|()| objects)
        });
        let values = (0..objects.len()).filter_map(|at| {
            let (sample, value) = readings.get(at)?;
            Some((objects[at], sample, value))
        });
        self.write_records(values, &permit)?;
        drop(permit);
        Ok(())
    }
}
