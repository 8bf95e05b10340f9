//! Group commit: from memory to the engine, many temporal objects in one write transaction.
//!
//! **Why.** A copy-on-write engine writes whole pages: one 100-byte update alone costs 16 KB of flash (LMDB: a leaf,
//! two branch pages, a meta page). Updates in one transaction share these pages, and of several updates of one object
//! between two commits only the last is written.
//!
//! **Promise.** An update is acknowledged as durable, by [`Store::durable_seq`] and [`FlushResult::durable`], only
//! after the commit that holds it has reached the medium: with the commit itself at durability `durable`, otherwise
//! after the next [`Store::sync`]. An update that was superseded in memory before it was written is covered by the
//! newer one.
//!
//! **Values installed together** ([`Store::install_together`]) are written together, as long as no more than
//! [`GROUP_OBJECTS_MAX`] objects are to be written: a group holds the values of one cut, which orders these installs
//! only. Values that were installed one by one may be of different instants.
//!
//! **Urgent writers** wait for at most [`GROUP_OBJECTS_MAX`] objects: a larger group becomes several transactions.

use std::sync::atomic::{AtomicU64, Ordering};

use punctual_os::{MappedMedium, Os};
use punctual_units::{ObjectId, Seq};

use crate::engine::{Durability, Engine};
use crate::lanes::LaneSet;
use crate::store::Store;
use crate::temporal::{Overwritten, ReadingBuffer};
use crate::{Deadline, StoreError, UpdateMode};

/// Most objects that one write transaction of a group commit writes.
pub const GROUP_OBJECTS_MAX: usize = 256;

/// The last committed and the last durable update of each object.
#[derive(Debug)]
pub(crate) struct Group {
    /// The number plus one; 0: not even the value of an earlier run, which has number 0.
    committed: Box<[AtomicU64]>,
    /// 0: none of this run.
    durable: Box<[AtomicU64]>,
}

/// Result of a group commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushResult {
    /// Number of objects that were written.
    pub objects: usize,
    /// Whether all updates that were installed before the call are durable now.
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

    /// Records a commit, or a value of an earlier run, number 0; the caller holds the write lock, so numbers only grow.
    pub fn committed(&self, object: ObjectId, seq: Seq, durability: Durability) {
        self.committed[object.index()].store(seq.0.saturating_add(1), Ordering::Release);
        if durability == Durability::Durable {
            self.durable[object.index()].fetch_max(seq.0, Ordering::AcqRel);
        }
    }

    fn is_committed(&self, object: ObjectId, seq: Seq) -> bool {
        seq.0 < self.committed[object.index()].load(Ordering::Acquire)
    }
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Writes all temporal objects that have changed since they were last written. A thread must call it every
    /// [`group_interval`](crate::Store::group_interval). In transaction mode there is nothing to write.
    ///
    /// # Errors
    /// [`StoreError::LockTimeout`], [`StoreError::TooManyWaiters`], [`StoreError::Engine`]. The next call tries again
    /// to write the objects that were left.
    pub fn commit_group(&self) -> Result<FlushResult, StoreError> {
        self.look_at_readers(self.os.now());
        let dirty = self.dirty(self.objects.installs().cut());
        let is_one_group = dirty.len() <= GROUP_OBJECTS_MAX;
        for group in dirty.chunks(GROUP_OBJECTS_MAX) {
            self.commit_objects(group, is_one_group)?;
        }
        Ok(FlushResult {
            objects: dirty.len(),
            durable: self.engine.durability() == Durability::Durable,
        })
    }

    /// A [group commit](Store::commit_group), made durable.
    ///
    /// # Errors
    /// Those of [`commit_group`](Store::commit_group) and [`sync`](Store::sync); among them
    /// [`EngineError::Volatile`](crate::engine::EngineError::Volatile), after the group commit.
    pub fn flush(&self) -> Result<FlushResult, StoreError> {
        let flushed = self.commit_group()?;
        if !flushed.durable {
            self.sync()?;
        }
        Ok(FlushResult {
            durable: true,
            ..flushed
        })
    }

    /// Makes everything durable that was committed before the call. In memory-first mode, updates that no group commit
    /// has written yet are not part of that; [`flush`](Store::flush) is.
    ///
    /// # Errors
    /// [`StoreError::Engine`]; nothing is promised then. A volatile store always refuses, see
    /// [`EngineError::Volatile`](crate::engine::EngineError::Volatile).
    pub fn sync(&self) -> Result<(), StoreError> {
        let load = |next: &AtomicU64| next.load(Ordering::Acquire).saturating_sub(1);
        let before: Vec<u64> = self.group.committed.iter().map(load).collect();
        self.engine.sync()?;
        for (durable, seq) in self.group.durable.iter().zip(before) {
            durable.fetch_max(seq, Ordering::AcqRel);
        }
        Ok(())
    }

    /// The newest update of `object` that is known to be durable; 0 if none of this run is. On persistent memory, the
    /// latest.
    ///
    /// # Errors
    /// [`StoreError::UnknownObject`].
    pub fn durable_seq(&self, object: ObjectId) -> Result<Seq, StoreError> {
        let seq = self
            .group
            .durable
            .get(object.index())
            .ok_or(StoreError::UnknownObject(object))?;
        if self.medium() == Some(MappedMedium::PersistentMemory) {
            return Ok(self.sample(object)?.map_or(Seq(0), |sample| sample.seq));
        }
        Ok(Seq(seq.load(Ordering::Acquire)))
    }

    /// The objects whose value at `cut` was not committed yet. An object that is overwritten right now counts as dirty.
    /// None in transaction mode, in which slots hold no values, and the engine has them.
    fn dirty(&self, cut: u64) -> Vec<ObjectId> {
        if self.update_mode == UpdateMode::Transaction {
            return Vec::new();
        }
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

    /// Writes the objects of `first`, ascending and at most one group, in one transaction, with the values of one cut;
    /// with `others`, also objects that have become dirty meanwhile, as far as there is room.
    fn commit_objects(&self, first: &[ObjectId], others: bool) -> Result<(), StoreError> {
        let now = self.os.now();
        let (permit, _) = self.permit(Deadline::soft(now + self.group_interval), now)?;
        let mut readings = ReadingBuffer::default();
        // The values may be newer than those found dirty, which only helps.
        let objects = self.at_one_cut(LaneSet::MAX, |cut| {
            let mut objects = first.to_vec();
            if others {
                let dirty = self.dirty(cut).into_iter();
                objects.extend(dirty.filter(|object| first.binary_search(object).is_err()));
                objects.truncate(GROUP_OBJECTS_MAX);
            }
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
