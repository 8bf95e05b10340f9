//! What batches must do on every engine, checked against a model that is an ordered map.
//!
//! [`check`] drives two replicated stores. The first executes batches as a master does; what comes out of a batch goes
//! through `deliver`, and both apply it. After each entry both must have the model's records, and refuse the entry that
//! was, and the one after the next. While a batch is open, another thread must see what was before it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::{Bound, ControlFlow, RangeBounds};

use punctual_os::Os;
use punctual_store::batch::{Batch, BatchBounds, BatchTransaction, Image, WriteSet};
use punctual_store::engine::{Engine, Read, Table};
use punctual_store::{Deadline, Store, StoreError};
use punctual_units::Revision;

/// Something to do in the open transaction of the open batch, or to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Put a record.
    Put(Vec<u8>, Vec<u8>),
    /// Delete a record.
    Delete(Vec<u8>),
    /// Get a record.
    Get(Vec<u8>),
    /// Scan a range.
    Scan(Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Keep the transaction, begin the next.
    Keep,
    /// Drop the transaction, begin the next.
    Undo,
    /// Drop the transaction, close the batch and apply it; begin the next.
    Commit,
    /// Drop the transaction and the batch, begin the next.
    Abort,
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// The two stores and what they must hold.
struct Run<'s, E, F, O: Os, D> {
    master: &'s Store<E, O>,
    slave: &'s Store<F, O>,
    deliver: D,
    committed: Map,
    revision: Revision,
    step: usize,
}

/// Runs `steps` on two empty replicated stores; `deliver` is the way of the write sets from the first to the second.
///
/// # Errors
/// What differs from the model, with the number of the step.
pub fn check<E: Engine, F: Engine, O: Os>(
    master: &Store<E, O>,
    slave: &Store<F, O>,
    deliver: impl FnMut(Vec<WriteSet>) -> Vec<WriteSet>,
    steps: &[Step],
) -> Result<(), String> {
    let mut run = Run {
        master,
        slave,
        deliver,
        committed: Map::new(),
        revision: Revision::ZERO,
        step: 0,
    };
    let mut rest = steps.iter();
    while rest.len() > 0 {
        run.batch(&mut rest)?;
    }
    Ok(())
}

/// How a transaction, or a batch, goes on.
enum End {
    Keep,
    Undo,
    Commit,
    Abort,
}

impl<E: Engine, F: Engine, O: Os, D: FnMut(Vec<WriteSet>) -> Vec<WriteSet>> Run<'_, E, F, O, D> {
    /// One batch: up to the next commit or abort.
    fn batch<'s>(&mut self, steps: &mut impl Iterator<Item = &'s Step>) -> Result<(), String> {
        let master = self.master;
        let mut batch = self.sound(master.batch(BatchBounds::default()))?;
        self.same("the revision of a batch", &batch.revision(), &self.revision)?;
        let mut kept = self.committed.clone();
        loop {
            match self.transaction(&mut batch, &mut kept, steps)? {
                End::Keep | End::Undo => {}
                End::Abort => break,
                End::Commit => return self.commit(batch, kept),
            }
        }
        drop(batch);
        self.stores_hold_committed()
    }

    fn transaction<'s>(
        &mut self,
        batch: &mut Batch<'_, E, O>,
        kept: &mut Map,
        steps: &mut impl Iterator<Item = &'s Step>,
    ) -> Result<End, String> {
        let mut transaction = self.sound(batch.transaction(Deadline::NONE))?;
        let mut model = kept.clone();
        let end = loop {
            self.step += 1;
            match steps.next() {
                Some(Step::Put(key, value)) => {
                    self.sound(transaction.put(key, value))?;
                    model.insert(key.clone(), value.clone());
                }
                Some(Step::Delete(key)) => {
                    let found = self.sound(transaction.delete(key))?;
                    self.same("delete", &found, &model.remove(key).is_some())?;
                }
                Some(Step::Get(key)) => {
                    let found = self.sound(transaction.get(key))?.map(|value| value.to_vec());
                    self.same("get", &found, &model.get(key).cloned())?;
                }
                Some(Step::Scan(low, high)) => self.scan(&transaction, &model, low, high)?,
                Some(Step::Keep) => break End::Keep,
                Some(Step::Undo) => break End::Undo,
                Some(Step::Commit) => break End::Commit,
                Some(Step::Abort) | None => break End::Abort,
            }
        };
        if matches!(end, End::Keep) {
            self.sound(transaction.keep())?;
            *kept = model;
        } else {
            drop(transaction);
        }
        self.others_see_committed()?;
        Ok(end)
    }

    fn scan(
        &self,
        transaction: &BatchTransaction<'_, '_, E, O>,
        model: &Map,
        low: &Bound<Vec<u8>>,
        high: &Bound<Vec<u8>>,
    ) -> Result<(), String> {
        let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let mut found = Vec::new();
        let answer = transaction.scan(range, |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        self.sound(answer)?;
        // By filtering, because `BTreeMap::range` panics on a range that ends before it begins.
        let inside = |(key, _): &(&Vec<u8>, &Vec<u8>)| RangeBounds::<[u8]>::contains(&range, key.as_slice());
        let expected: Vec<_> = model
            .iter()
            .filter(inside)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        self.same("scan", &found, &expected)
    }

    fn commit(&mut self, batch: Batch<'_, E, O>, kept: Map) -> Result<(), String> {
        let written = batch.close();
        self.others_see_committed()?;
        self.committed = kept;
        self.revision = self.revision.next();
        let delivered = (self.deliver)(written.clone());
        let skipped = self.revision.next();
        let not_next = self.slave.apply(skipped, &delivered);
        self.same(
            "an entry is missing",
            &matches!(not_next, Err(StoreError::NotNext { .. })),
            &true,
        )?;
        self.sound(self.master.apply(self.revision, &written))?;
        self.sound(self.slave.apply(self.revision, &delivered))?;
        let again = self.slave.apply(self.revision, &delivered);
        self.same(
            "an entry comes twice",
            &matches!(again, Err(StoreError::AlreadyApplied { .. })),
            &true,
        )?;
        self.stores_hold_committed()
    }

    /// From another thread, because an engine may allow one snapshot a thread.
    fn others_see_committed(&self) -> Result<(), String> {
        let engine = self.master.engine();
        let look = || records(engine);
        let seen = std::thread::scope(|scope| scope.spawn(look).join());
        let found = seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let expected = self.committed.clone().into_iter().collect();
        self.same("what another thread sees", &self.sound(found)?, &expected)
    }

    fn stores_hold_committed(&self) -> Result<(), String> {
        let expected = Image {
            revision: self.revision,
            after: None,
            upto: None,
            records: self.committed.clone().into_iter().collect(),
            created: Vec::new(),
        };
        self.same("the master", &self.sound(self.master.image())?, &expected)?;
        self.same("the slave", &self.sound(self.slave.image())?, &expected)?;
        self.same("the slave's revision", &self.slave.revision(), &self.revision)
    }

    fn sound<T>(&self, answer: Result<T, StoreError>) -> Result<T, String> {
        answer.map_err(|error| format!("step {}: {error}", self.step))
    }

    fn same<T: PartialEq + Debug>(&self, what: &str, found: &T, expected: &T) -> Result<(), String> {
        if found == expected {
            return Ok(());
        }
        Err(format!(
            "step {}, {what}: {found:?}, the model has {expected:?}",
            self.step
        ))
    }
}

fn records(engine: &impl Engine) -> Result<Records, StoreError> {
    let snapshot = engine.snapshot()?;
    let all = snapshot.scan(Table::Data, (Bound::Unbounded, Bound::Unbounded))?;
    let owned = all.map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())));
    Ok(owned.collect::<Result<_, _>>()?)
}
