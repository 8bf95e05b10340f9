//! Shared commits: changes of single records by several threads, in one write transaction.
//!
//! **Problem.** A durable commit holds the write lock until the medium answers, for hundreds of microseconds. Threads
//! that each change one record would wait for each other's syncs, one after the other.
//!
//! **Method** (group commit as in DeWitt et al., "Implementation Techniques for Main Memory Database Systems", SIGMOD
//! 1984). A put or delete outside of a transaction is bytes and no code, so any thread can carry it out. Its own thread
//! notes it and waits for the write lock. The thread that gets the lock carries out its own change and those that were
//! noted before, at most [`SHARED_MAX`], and commits all at once. When the turn of another comes, its change is
//! committed, and it returns. So no thread waits for another's code, the engine's transaction stays on one thread, and
//! the lock is held for a bounded time longer.
//!
//! **Undo.** A thread whose change was refused, or whose change was not committed, does it again, alone, and gets the
//! error itself. So does the thread that carried out others' changes: one of them may be the reason.
//!
//! A transaction with a body or a deadline of its own has a commit of its own: others would wait for its code.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use punctual_os::{Lock as _, Os};
use punctual_units::Nanos;

use crate::engine::{Durability, Engine};
use crate::store::Store;
use crate::transaction::WriteTransaction;
use crate::{Deadline, StoreError};

/// Most changes of other threads that one commit carries out: some hundred microseconds.
const SHARED_MAX: usize = 64;
/// Longest value of a change that another thread may carry out, in bytes.
const SHARED_LEN_MAX: usize = 64 << 10;
/// Pause between two looks at a change that another thread is carrying out.
const PAUSE: Nanos = Nanos::from_micros(100);

/// Outcomes of a change that was noted.
const OPEN: u8 = 0;
/// Not committed: its own thread does it.
const LEFT: u8 = 1;
/// Committed; the record was not there before.
const ABSENT: u8 = 2;
/// Committed; the record was there.
const PRESENT: u8 = 3;

/// A change by its key of the engine's; no value: a delete.
#[derive(Debug)]
pub(crate) struct Change {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    outcome: AtomicU8,
}

impl Change {
    /// Whether the record was there, if the change is committed.
    fn committed(&self) -> Option<bool> {
        let outcome = self.outcome.load(Ordering::Acquire);
        (outcome >= ABSENT).then_some(outcome == PRESENT)
    }
}

/// Changes of other threads that a transaction carries out, and what each answered; dropped uncommitted, they are left
/// to their threads.
#[derive(Default)]
pub(crate) struct OthersChanges(Vec<(Arc<Change>, u8)>);

impl OthersChanges {
    /// Publishes the outcomes, once they are committed and before the write lock is released.
    pub fn committed(mut self) {
        for (change, answered) in self.0.drain(..) {
            change.outcome.store(answered, Ordering::Release);
        }
    }
}

impl Drop for OthersChanges {
    fn drop(&mut self) {
        for (change, _) in &self.0 {
            change.outcome.store(LEFT, Ordering::Release);
        }
    }
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Sets or removes one record, by its key of the engine's, perhaps in a commit with other threads' changes; true if
    /// a removed record was there.
    pub(crate) fn change(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, StoreError> {
        let noted = self.note(key, value);
        let is_mine = |change: &Arc<Change>| self.withdraw(change) || change.committed().is_none();
        let begun = WriteTransaction::begin_if(self, Deadline::NONE, None, || noted.as_ref().is_none_or(is_mine));
        let mut transaction = match (begun, noted) {
            (Ok(Some(transaction)), _) => transaction,
            (Ok(None), change) => return Ok(change.and_then(|change| change.committed()).unwrap_or_default()),
            (Err(refused), Some(change)) if !self.withdraw(&change) => {
                while change.outcome.load(Ordering::Acquire) == OPEN {
                    self.os.sleep(PAUSE);
                }
                return change.committed().ok_or(refused);
            }
            (Err(refused), _) => return Err(refused),
        };
        let was_there = transaction.change_at(key, value)?;
        if self.carry_out_others(&mut transaction) == 0 {
            return transaction.commit().map(|_| was_there);
        }
        if transaction.commit().is_ok() {
            return Ok(was_there);
        }
        let mut alone = self.begin_write()?;
        let was_there = alone.change_at(key, value)?;
        alone.commit().map(|_| was_there)
    }

    /// Notes a change for other threads, where a commit takes long.
    fn note(&self, key: &[u8], value: Option<&[u8]>) -> Option<Arc<Change>> {
        if self.engine.durability() == Durability::Volatile || value.is_some_and(|value| value.len() > SHARED_LEN_MAX) {
            return None;
        }
        let change = Arc::new(Change {
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
            outcome: AtomicU8::new(OPEN),
        });
        self.noted.lock().push(Arc::clone(&change));
        Some(change)
    }

    /// Leaves a noted change to its own thread; false if another thread carries it out, or it was left before.
    fn withdraw(&self, change: &Arc<Change>) -> bool {
        let mut noted = self.noted.lock();
        let at = noted.iter().position(|other| Arc::ptr_eq(other, change));
        at.map(|at| noted.remove(at).outcome.store(LEFT, Ordering::Release))
            .is_some()
    }

    /// Carries out changes that other threads have noted; returns their number.
    fn carry_out_others(&self, transaction: &mut WriteTransaction<'_, E, O>) -> usize {
        let mut others = OthersChanges(Vec::with_capacity(SHARED_MAX));
        {
            let mut noted = self.noted.lock();
            let count = noted.len().min(SHARED_MAX);
            others.0.extend(noted.drain(..count).map(|change| (change, LEFT)));
        }
        for (change, answered) in &mut others.0 {
            *answered = match transaction.change_at(&change.key, change.value.as_deref()) {
                Ok(was_there) => ABSENT + u8::from(was_there),
                Err(_) => LEFT,
            };
        }
        let count = others.0.len();
        transaction.state.others = others;
        count
    }
}
