//! Open snapshots, and the end of those that stand in the way of writers.
//!
//! **Problem.** A snapshot keeps everything that it shows from reuse, for as long as it lives. One reader that is
//! forgotten, or stuck, lets the store's file grow with every write until it is full; then even a delete fails.
//!
//! **Method.** A snapshot is ended by another thread, the engine's [`Engine::end`], when it
//!
//! 1. is past the firm deadline of its transaction: that can use it no more;
//! 2. is older than [`reader_life_max`](crate::StoreOptions::reader_life_max);
//! 3. is older than [`HELD_AFTER`] and keeps more from reuse than all data takes, and more than [`HELD_MIN`]. So a
//!    reader doubles the file at the most, however fast the store is written;
//! 4. keeps pages that a delete or a group commit needs at a full quota, whatever its age.
//!
//! A reader in another process is ended by rules 3 and 4, before a put is refused for want of the pages that it keeps,
//! and by rule 2 with [`PROCESS_LIFE_MAX`] in place of the reader's bound: a backup of a large store takes its time.
//!
//! The reader's next call fails ([`EngineError::SnapshotEnded`](crate::engine::EngineError)); values that it has copied
//! stay valid. A reader inside of a call, or whose scan [lends](crate::Records::lend) a record, gives the snapshot up
//! as it leaves the call or steps on; the end counts once, when it is asked for.
//! Rule 3 holds where a `reader_life_max` is set.
//!
//! **Which thread checks.** A writing one: only writers need the pages that readers keep. It checks before it asks for
//! the write lock, at most once every [`LOOK_INTERVAL`]; a group commit checks as well. So no thread exists for this
//! alone, and readers of a store that is not written are left alone.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use punctual_os::{Os, Tid};
use punctual_units::{Nanos, Time};

use crate::engine::{EndedBecause, Engine, EngineError, OpenSnapshot, Reader, Space};
use crate::store::Store;
use crate::{Deadline, StoreError};

/// Least time between two checks of the readers' ages.
pub const LOOK_INTERVAL: Nanos = Nanos::from_millis(10);
/// Least time between two checks of the pages that readers keep, which read the engine's free list.
const SPACE_INTERVAL: Nanos = Nanos::from_millis(50);
/// Any reader may keep this many bytes from reuse, however little data there is.
pub const HELD_MIN: u64 = 16 << 20;
/// A reader younger than this may keep any amount.
pub const HELD_AFTER: Nanos = Nanos::from_millis(50);

/// Longest life of a snapshot in another process, where a `reader_life_max` is set.
pub const PROCESS_LIFE_MAX: Nanos = Nanos::from_secs(3_600);

/// A snapshot that is open and was not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenReader {
    /// The thread that reads, if known.
    pub thread: Option<Tid>,
    /// The process that reads, if it is another one.
    pub process: Option<u32>,
    /// Time since the snapshot was taken; zero if unknown.
    pub age: Nanos,
    /// Bytes that it keeps from reuse; another reader may keep some of them as well.
    pub held: u64,
}

/// A reader whose snapshot was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedReader {
    /// The thread that read, if known.
    pub thread: Option<Tid>,
    /// The process that read, if it is another one.
    pub process: Option<u32>,
    /// Age of the snapshot when it was ended.
    pub age: Nanos,
    /// Reason for which it was ended.
    pub why: EndedBecause,
}

impl fmt::Display for EndedReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.thread, self.process) {
            (Some(thread), _) => write!(f, "the snapshot of thread {thread}")?,
            (None, Some(process)) => write!(f, "the snapshot of process {process}")?,
            (None, None) => write!(f, "a snapshot")?,
        }
        write!(f, " was ended after {}, because {}", self.age, self.why)
    }
}

/// Snapshots that were ended since the store was opened: their number, and the last of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedReaders {
    /// Number of snapshots ended so far.
    pub count: u64,
    /// The reader that was ended last.
    pub last: Option<EndedReader>,
}

/// Called with each reader that is ended.
type Alarm = dyn Fn(EndedReader) + Send + Sync;

/// Bookkeeping about a store's readers.
pub(crate) struct Readers {
    life_max: Option<Nanos>,
    /// Instants, in nanoseconds, of the last check of ages, and of the last check of space.
    looked: AtomicU64,
    surveyed: AtomicU64,
    notices: Mutex<EndNotices>,
}

/// Readers ended so far, and the callback that reports each.
#[derive(Default)]
struct EndNotices {
    ended: EndedReaders,
    alarm: Option<Arc<Alarm>>,
    /// Message of a panic in the alarm that has not been reported yet.
    panicked: Option<String>,
}

impl Readers {
    pub fn new(life_max: Option<Nanos>) -> Readers {
        Readers {
            life_max,
            looked: AtomicU64::new(0),
            surveyed: AtomicU64::new(0),
            notices: Mutex::default(),
        }
    }

    /// Whether this thread should check now: true once every [`LOOK_INTERVAL`].
    #[inline]
    fn turn(&self, now: Time) -> bool {
        take_turn(&self.looked, now, LOOK_INTERVAL)
    }

    fn note(&self, reader: EndedReader) {
        let alarm = {
            // The lock is never poisoned halfway: the assignments cannot panic.
            let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
            notices.ended.count += 1;
            notices.ended.last = Some(reader);
            notices.alarm.clone()
        };
        let Some(alarm) = alarm else { return };
        // The thread that writes is not at fault, and goes on.
        let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| alarm(reader))) else {
            return;
        };
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.panicked = Some(text.unwrap_or_else(|| "no message".to_owned()));
        if notices.alarm.as_ref().is_some_and(|now| Arc::ptr_eq(now, &alarm)) {
            notices.alarm = None;
        }
    }
}

/// True for one thread in each `interval`.
fn take_turn(last: &AtomicU64, now: Time, interval: Nanos) -> bool {
    let before = last.load(Ordering::Relaxed);
    let due = before == 0 || now.0 >= before.saturating_add(interval.0);
    due && last
        .compare_exchange(before, now.0.max(1), Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}

/// Reason to end a snapshot at `now`; `None` to keep it. `space`: the engine's, if known; `tight`: deletes may soon
/// find no room.
pub(crate) fn overdue(
    snapshot: &OpenSnapshot,
    now: Time,
    life_max: Option<Nanos>,
    space: Option<&Space>,
    tight: bool,
) -> Option<EndedBecause> {
    let Reader { firm_until, .. } = snapshot.reader;
    let age = snapshot.reader.age(now);
    if firm_until.is_some_and(|until| now > until) {
        return Some(EndedBecause::Deadline);
    }
    if tight {
        return Some(EndedBecause::Quota);
    }
    let life_max = match snapshot.reader.process {
        Some(_) => life_max?.max(PROCESS_LIFE_MAX),
        None => life_max?,
    };
    if age > life_max {
        return Some(EndedBecause::Life);
    }
    let holds_much = |space: &Space| space.held_by(snapshot.commit) > space.data.max(HELD_MIN);
    (age > HELD_AFTER && space.is_some_and(holds_much)).then_some(EndedBecause::Held)
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Takes a snapshot for a transaction of this thread with `deadline`.
    #[inline]
    pub(crate) fn snapshot(&self, deadline: Deadline) -> Result<E::Snapshot<'_>, StoreError> {
        let reader = Reader {
            thread: Some(self.os.this_thread()),
            taken_at: Some(self.os.now()),
            firm_until: deadline.is_firm().then_some(deadline.at()),
            process: None,
        };
        Ok(self.engine.snapshot_for(reader)?)
    }

    /// The open snapshots, the oldest first. Takes time in proportion to the engine's free pages.
    ///
    /// # Errors
    /// [`StoreError::Engine`].
    pub fn readers(&self) -> Result<Vec<OpenReader>, StoreError> {
        let space = self.engine.space()?;
        let now = self.os.now();
        let open = self.engine.snapshots();
        let mut readers: Vec<_> = open
            .iter()
            .map(|snapshot| OpenReader {
                thread: snapshot.reader.thread,
                process: snapshot.reader.process,
                age: snapshot.reader.age(now),
                held: space.held_by(snapshot.commit),
            })
            .collect();
        readers.sort_by_key(|reader| std::cmp::Reverse(reader.age));
        Ok(readers)
    }

    /// Number of readers that were ended since the store was opened, and the last of them.
    pub fn readers_ended(&self) -> EndedReaders {
        self.readers
            .notices
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ended
    }

    /// Sets the function that is called for each reader that is ended from now on, in place of an earlier one. A thread
    /// that is about to write calls it, before it waits for the write lock: `alarm` may read and write the store, and
    /// takes that thread's time. An alarm that panics is not called again, and the next
    /// [`look_after_readers`](Store::look_after_readers) fails with its message; the thread that called it goes on.
    pub fn set_reader_alarm(&self, alarm: impl Fn(EndedReader) + Send + Sync + 'static) {
        let mut notices = self.readers.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.alarm = Some(Arc::new(alarm));
    }

    /// Ends the readers that are overdue, see the [module](crate::readers); returns their number. Writers do so by
    /// themselves; a store that is seldom written needs this call at intervals.
    ///
    /// # Errors
    /// [`StoreError::AlarmPanicked`], after the readers were ended; [`StoreError::Engine`].
    pub fn look_after_readers(&self) -> Result<usize, StoreError> {
        let ended = self.end_overdue()?;
        let notices = &self.readers.notices;
        match notices.lock().unwrap_or_else(PoisonError::into_inner).panicked.take() {
            Some(message) => Err(StoreError::AlarmPanicked { message }),
            None => Ok(ended),
        }
    }

    fn end_overdue(&self) -> Result<usize, StoreError> {
        let now = self.os.now();
        let open = self.engine.snapshots();
        let old = |snapshot: &OpenSnapshot| snapshot.reader.age(now) > HELD_AFTER;
        let survey = self.readers.life_max.is_some()
            && open.iter().any(old)
            && take_turn(&self.readers.surveyed, now, SPACE_INTERVAL);
        let space = if survey { Some(self.engine.space()?) } else { None };
        let tight = self.engine.is_tight();
        let why = |snapshot| overdue(snapshot, now, self.readers.life_max, space.as_ref(), tight);
        let ended = open
            .iter()
            .filter(|snapshot| why(snapshot).is_some_and(|why| self.end_reader(snapshot, now, why)));
        Ok(ended.count())
    }

    /// Checks the readers, if that is due at `now`. If the engine fails to report its space, a later check tries again.
    #[inline]
    pub(crate) fn look_at_readers(&self, now: Time) {
        if self.readers.turn(now) || self.engine.is_tight() {
            let _ = self.end_overdue();
        }
    }

    /// The error of a failed change; adds the age of the snapshot that keeps the needed pages.
    #[cold]
    pub(crate) fn refused(&self, mut error: EngineError) -> StoreError {
        if let EngineError::QuotaFull { holder, .. } = &mut error {
            self.expiry.starve();
            if let Some(holder) = holder {
                holder.age = holder.reader.taken_at.map(|at| self.os.now().since(at));
            }
        }
        error.into()
    }

    /// Ends the snapshots of other processes, for which no put of this one may be refused; true if there was one.
    #[cold]
    pub(crate) fn end_processes(&self) -> bool {
        let now = self.os.now();
        let open = self.engine.snapshots();
        let others = open.iter().filter(|snapshot| snapshot.reader.process.is_some());
        others
            .filter(|other| self.end_reader(other, now, EndedBecause::Quota))
            .count()
            > 0
    }

    fn end_reader(&self, snapshot: &OpenSnapshot, now: Time, why: EndedBecause) -> bool {
        let age = snapshot.reader.age(now);
        let ended = self.engine.end(snapshot.id, age, why);
        if ended {
            let Reader { thread, process, .. } = snapshot.reader;
            self.readers.note(EndedReader {
                thread,
                process,
                age,
                why,
            });
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::SnapshotId;

    fn snapshot(reader: Reader, commit: u64) -> OpenSnapshot {
        let id = SnapshotId {
            place: 0,
            generation: 1,
        };
        OpenSnapshot { id, reader, commit }
    }

    fn reader(taken_at: u64, firm_until: Option<u64>) -> Reader {
        Reader {
            thread: None,
            taken_at: Some(Time(taken_at)),
            firm_until: firm_until.map(Time),
            process: None,
        }
    }

    proptest! {
        /// Each bound by itself, as a plain reading of the module's rules.
        #[test]
        fn a_reader_is_ended_at_its_bounds_and_not_before(
            age_ms in 0u64..400, life_ms: Option<u16>, firm_ms in prop::option::of(0u64..400),
            held in 0u64..4 * HELD_MIN, data in 0u64..3 * HELD_MIN, known: bool,
        ) {
            let ms = |ms: u64| ms * 1_000_000;
            let open = snapshot(reader(1, firm_ms.map(|firm| 1 + ms(firm))), 7);
            let space = Space { data, freed: vec![(7, 5 * HELD_MIN), (8, held)], ..Space::default() };
            let life = life_ms.map(|life| Nanos(ms(u64::from(life % 400))));
            let why = overdue(&open, Time(1 + ms(age_ms)), life, known.then_some(&space), false);
            let past_deadline = firm_ms.is_some_and(|firm| age_ms > firm);
            let past_life = life.is_some_and(|life| ms(age_ms) > life.0);
            let past_held = life.is_some() && known && ms(age_ms) > HELD_AFTER.0 && held > data && held > HELD_MIN;
            let expected = match (past_deadline, past_life, past_held) {
                (true, _, _) => Some(EndedBecause::Deadline),
                (_, true, _) => Some(EndedBecause::Life),
                (_, _, true) => Some(EndedBecause::Held),
                _ => None,
            };
            prop_assert_eq!(why, expected);
            let tight = overdue(&open, Time(1 + ms(age_ms)), life, None, true);
            prop_assert_eq!(tight, Some(if past_deadline { EndedBecause::Deadline } else { EndedBecause::Quota }));
        }
    }

    #[test]
    fn a_reader_of_which_nothing_is_known_is_left_alone() {
        let space = Space {
            freed: vec![(9, u64::MAX)],
            ..Space::default()
        };
        let open = snapshot(Reader::UNKNOWN, 1);
        assert_eq!(overdue(&open, Time::MAX, Some(Nanos(1)), Some(&space), false), None);
    }

    #[test]
    fn one_thread_looks_in_each_interval() {
        let looked = AtomicU64::new(0);
        let turns = (0..100u64).filter(|ms| take_turn(&looked, Time(ms * 1_000_000), LOOK_INTERVAL));
        assert_eq!(turns.count(), 10);
    }
}
