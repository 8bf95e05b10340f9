//! Shared commits: changes of single records by several threads, in one write transaction.
//!
//! **Problem.** A durable commit holds the write lock until the medium answers, for hundreds of microseconds. Threads
//! that each change one record would wait for each other's syncs, one after the other.
//!
//! **Method** (group commit as in DeWitt et al., "Implementation Techniques for Main Memory Database Systems", SIGMOD
//! 1984). A put or delete outside of a transaction is bytes and no code, so any thread can carry it out. Its own thread
//! notes it and waits for the write lock. The thread that gets the lock carries out its own change and those that were
//! noted before, up to [`SHARED_MAX`] and [`SHARED_LEN_MAX`] and until a thread with a deadline waits, and commits all
//! at once. When the turn of another comes, its change is committed, and it returns. So no thread waits for another's
//! code, the engine's transaction stays on one thread, and the lock is held for a bounded time longer. A thread whose
//! wait has ended is refused, unless another commits its change.
//!
//! **Undo.** If a change of another thread or the commit fails, the transaction is undone: after most errors the engine
//! has lost it. The thread that has the lock keeps it and does its own change alone, and so do the others in their
//! turns. Each gets the error of its own attempt; if the engine is [`EngineError::Broken`] by then, the thread that has
//! the lock gets the first error, which is the cause.
//!
//! A transaction with a body or a deadline of its own has a commit of its own: others would wait for its code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use punctual_os::{Lock as _, Os};
use punctual_units::Nanos;

use crate::engine::{Durability, Engine, EngineError, KEY_MAX_LEN};
use crate::permit::{Permit, WAITERS_MAX};
use crate::store::Store;
use crate::transaction::WriteTransaction;
use crate::{Deadline, StoreError};

/// Most changes of other threads that one commit carries out.
const SHARED_MAX: usize = 64;
/// Longest value of a change that another thread may carry out, and of all that one commit carries out, in bytes.
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
    fn len(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }

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

/// A change that its thread has noted; withdrawn when it is dropped.
struct ChangeNote<'s, E: Engine, O: Os> {
    store: &'s Store<E, O>,
    change: Arc<Change>,
}

impl<E: Engine, O: Os> ChangeNote<'_, E, O> {
    /// Leaves the change to its own thread; false if another thread carries it out, or it was left before.
    fn withdraw(&self) -> bool {
        let mut noted = self.store.noted.lock();
        let at = noted.iter().position(|other| Arc::ptr_eq(other, &self.change));
        at.map(|at| noted.remove(at).outcome.store(LEFT, Ordering::Release))
            .is_some()
    }
}

impl<E: Engine, O: Os> Drop for ChangeNote<'_, E, O> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Sets or removes one record, by its key of the engine's, perhaps in a commit with other threads' changes; true if
    /// a removed record was there.
    pub(crate) fn change(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, StoreError> {
        let mut noted = None;
        let begun = WriteTransaction::begin_by(self, Deadline::NONE, None, |now| {
            if let Some(permit) = self.permits.try_acquire(now) {
                return Ok(Some((permit, Nanos::ZERO)));
            }
            noted = self.note(key, value);
            let permit = self.permit(Deadline::NONE, now)?;
            let is_mine = |noted: &ChangeNote<'_, E, O>| noted.withdraw() || noted.change.committed().is_none();
            Ok(noted.as_ref().is_none_or(is_mine).then_some(permit))
        });
        let mut transaction = match (begun, noted) {
            (Ok(Some(transaction)), _) => transaction,
            (Ok(None), noted) => return Ok(noted.and_then(|noted| noted.change.committed()).unwrap_or_default()),
            (Err(refused), Some(noted)) if !noted.withdraw() => {
                while noted.change.outcome.load(Ordering::Acquire) == OPEN {
                    self.os.sleep(PAUSE);
                }
                return noted.change.committed().ok_or(refused);
            }
            (Err(refused), _) => return Err(refused),
        };
        let was_there = transaction.change_at(key, value)?;
        let shared = if self.is_shared(value) {
            self.carry_out_others(&mut transaction)
        } else {
            Ok(0)
        };
        let (first, permit) = match shared {
            Ok(0) => return transaction.commit().map(|_| was_there),
            Ok(_) => match transaction.commit_or_hold() {
                Ok(_) => return Ok(was_there),
                Err(failed) => {
                    let (refused, permit) = *failed;
                    (Some(refused), permit)
                }
            },
            Err(first) => (first, transaction.undo_and_hold()),
        };
        let permit = (permit, Nanos::ZERO);
        let alone = WriteTransaction::begin_holding(self, Deadline::NONE, Some(0), self.os.now(), permit);
        let done = alone.and_then(|mut alone| {
            let was_there = alone.change_at(key, value)?;
            alone.commit().map(|_| was_there)
        });
        match (done, first) {
            (Err(StoreError::Engine(EngineError::Broken { .. })), Some(first)) => Err(first),
            (done, _) => done,
        }
    }

    /// Whether a change to `value` may share a commit: if commits take long, and it does not.
    fn is_shared(&self, value: Option<&[u8]>) -> bool {
        self.engine.durability() != Durability::Volatile && value.is_none_or(|value| value.len() <= SHARED_LEN_MAX)
    }

    /// Notes a change for other threads; `None` if it may not be shared, or too many are noted.
    fn note(&self, key: &[u8], value: Option<&[u8]>) -> Option<ChangeNote<'_, E, O>> {
        if !self.is_shared(value) {
            return None;
        }
        let change = Arc::new(Change {
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
            outcome: AtomicU8::new(OPEN),
        });
        let mut noted = self.noted.lock();
        if noted.len() == WAITERS_MAX {
            return None;
        }
        noted.push(Arc::clone(&change));
        Some(ChangeNote { store: self, change })
    }

    /// The change that was noted first, if it has at most `len_max` bytes and no thread with a deadline waits.
    fn next_noted(&self, len_max: usize, permit: &Permit<'_, O>) -> Option<Arc<Change>> {
        let mut noted = self.noted.lock();
        let fits = noted.first().is_some_and(|change| change.len() <= len_max);
        (fits && !permit.is_urgent()).then(|| noted.remove(0))
    }

    /// Carries out changes that other threads have noted; returns their number.
    ///
    /// # Errors
    /// The error of a change, or `None` if it panicked; the engine's transaction is lost then.
    fn carry_out_others(&self, transaction: &mut WriteTransaction<'_, E, O>) -> Result<usize, Option<StoreError>> {
        let mut len_left = SHARED_LEN_MAX + KEY_MAX_LEN;
        while transaction.state.others.0.len() < SHARED_MAX
            && let Some(change) = self.next_noted(len_left, &transaction.state.permit)
        {
            len_left -= change.len();
            transaction.state.others.0.push((Arc::clone(&change), LEFT));
            // A panic over another thread's change is that thread's, which meets it again.
            let carried_out = catch_unwind(AssertUnwindSafe(|| {
                transaction.change_at(&change.key, change.value.as_deref())
            }));
            let was_there = carried_out.map_err(|_| None)?.map_err(Some)?;
            if let Some((_, answered)) = transaction.state.others.0.last_mut() {
                *answered = ABSENT + u8::from(was_there);
            }
        }
        Ok(transaction.state.others.0.len())
    }
}
