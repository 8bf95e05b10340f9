//! Notice of changes: of a key, of all keys with a prefix, of a temporal object.
//!
//! **Problem.** A program that must act on a change asks for it again and again, or learns of it too late. A store that
//! calls back, or that waits until each listener has room, makes the thread that writes pay for those that listen.
//!
//! **Method.** A [`Watch`] has queues of a fixed length, allocated when it begins. The thread that commits or installs
//! puts a note in and wakes the watching thread; it allocates nothing and waits for nothing. A note that does not fit
//! is counted; the watching thread gets the number of missed notes ([`Change::Missed`]) at the position where they are
//! missing. A note names the changed key, and carries no value: the watching thread reads the store, and sees the
//! change or a newer one. So a thread that falls behind loses notes, and never ends with an old value.
//!
//! **Order.** Notes of plain records come in the order of commits, those of temporal objects in the order of installs.
//! Between the two kinds there is no order. A transaction's changes come in its own order, each with the transaction's
//! [label](crate::WriteTransaction::label).
//!
//! **Since when.** A watch gets a note of each change that a read before its beginning may not have seen:
//! [`Store::watch`] waits for the write transaction that is open, if one is.
//!
//! ```
//! use punctual_store::watch::{Change, WatchTarget};
//! use punctual_store::{Store, StoreOptions};
//! # use {punctual_engines::Memory, punctual_testing::VirtualOs, punctual_units::Clock};
//!
//! # let os = VirtualOs::new(1);
//! let store = Store::open(Memory::default(), os, StoreOptions::default())?;
//! let mut watch = store.watch(WatchTarget::Prefix(b"room/"), 2)?;
//! for key in ["room/1", "shed", "room/2", "room/3"] {
//!     store.put(key.as_bytes(), b"warm")?;
//! }
//! assert_eq!(watch.take(), Some(Change::Put { key: b"room/1" }));
//! assert_eq!(watch.take(), Some(Change::Put { key: b"room/2" }));
//! assert_eq!(watch.take(), Some(Change::Missed { changes: 1 })); // there was room for two
//! assert_eq!(watch.wait(store.os().now()), None); // or until a change, at most until that instant
//! # Ok::<(), punctual_store::StoreError>(())
//! ```

mod ring;

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use punctual_os::{Os, Park, Wake};
use punctual_units::{ObjectId, Time};

use crate::engine::{Engine, KEY_MAX_LEN};
use crate::store::Store;
use crate::tables::REGION;
use crate::temporal::Sample;
use crate::{Deadline, StoreError};
pub(crate) use ring::ChangeKind;
use ring::ChangeRing;

/// The types that `ring.rs` needs: the model checker substitutes its own (`tests/ring.rs`).
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
}
mod slot {
    pub(crate) use crate::temporal::Sample;
}
use atomics::Ordering;

/// Most watches that may be open at a time.
pub const WATCHES_MAX: usize = 64;
/// The longest queue of a watch, in notes.
pub const CHANGES_MAX: usize = 1 << 16;

/// The keys that a watch covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchTarget<'k> {
    /// A single key: of a plain record or a temporal object.
    Key(&'k [u8]),
    /// All keys that begin with these bytes. A note takes 544 bytes, in place of 32.
    Prefix(&'k [u8]),
    /// A temporal object, by its number.
    Object(ObjectId),
}

/// A note, as the watching thread takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'w> {
    /// A plain record was set, to a new value or the same.
    Put {
        /// Key of the record.
        key: &'w [u8],
    },
    /// A plain record was removed.
    Deleted {
        /// Key of the record.
        key: &'w [u8],
    },
    /// A plain record was removed because its life had ended.
    Expired {
        /// Key of the record.
        key: &'w [u8],
    },
    /// A plain record that is there has another expiry, or none any more; behind the note of its value, if it has one.
    Expiry {
        /// Key of the record.
        key: &'w [u8],
        /// Whether the record expires from now on.
        expires: bool,
    },
    /// A temporal object has got a new value.
    Updated {
        /// Key of the object.
        key: &'w [u8],
        /// Number and sampling instant of that value.
        sample: Sample,
    },
    /// Notes did not fit into the queue: read all watched keys again.
    Missed {
        /// Number of notes that were missed.
        changes: u64,
    },
}

/// Notes of changes, from now until it is dropped. For one thread at a time.
pub struct Watch<O: Os> {
    watcher: Arc<Watcher<O>>,
    live: Arc<AtomicUsize>,
    /// Missed notes of each ring that `take` has reported.
    told: [u64; 2],
    /// The ring that the next `take` looks at first.
    turn: usize,
    key: Vec<u8>,
    /// Bytes of the engine's keys that name the watched table.
    table_len: usize,
}

impl<O: Os> std::fmt::Debug for Watch<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("watched", &self.watcher.filter)
            .finish_non_exhaustive()
    }
}

/// The part of a watch that writers share.
struct Watcher<O: Os> {
    live: AtomicBool,
    filter: Filter,
    /// The ring of plain records, whose writers hold the write lock, and that of temporal objects, whose writers hold
    /// the sensors' mutex.
    rings: [ChangeRing; 2],
    parker: O::Parker,
}

const PLAIN: usize = 0;
const TEMPORAL: usize = 1;

#[derive(Debug)]
enum Filter {
    Key(Vec<u8>),
    Prefix(Vec<u8>),
    Object(ObjectId, Vec<u8>),
}

impl Filter {
    fn wants(&self, key: &[u8], object: Option<ObjectId>) -> bool {
        match self {
            Filter::Key(watched) => key == watched,
            // A prefix within the store's own region is a table's.
            Filter::Prefix(prefix) => key.starts_with(prefix) && key.starts_with(REGION) == prefix.starts_with(REGION),
            Filter::Object(watched, _) => object == Some(*watched),
        }
    }
}

/// A slot for a watch; the watch in it may have been dropped.
type Place<O> = RwLock<Option<Arc<Watcher<O>>>>;

/// All watches of a store.
pub(crate) struct Watches<O: Os> {
    live: Arc<AtomicUsize>,
    /// Writers skip a slot whose lock is taken: it is being filled, so its watch has not begun.
    places: Box<[Place<O>]>,
    /// Held while a slot is filled.
    filling: Mutex<()>,
}

/// Bit mask of the slots whose watches got a note and must be woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct WakeMask(u64);

impl WakeMask {
    pub fn and(self, other: WakeMask) -> WakeMask {
        WakeMask(self.0 | other.0)
    }
}

impl<O: Os> Watches<O> {
    pub fn new() -> Watches<O> {
        Watches {
            live: Arc::default(),
            places: (0..WATCHES_MAX).map(|_| RwLock::new(None)).collect(),
            filling: Mutex::default(),
        }
    }

    /// Whether any watch is open. One relaxed load: the common case is none.
    #[inline]
    pub fn any(&self) -> bool {
        self.live.load(Ordering::Relaxed) > 0
    }

    fn each(&self, mut visit: impl FnMut(usize, &Watcher<O>)) {
        for (at, place) in self.places.iter().enumerate() {
            if let Ok(place) = place.try_read()
                && let Some(watcher) = &*place
                && watcher.live.load(Ordering::Relaxed)
            {
                visit(at, watcher);
            }
        }
    }

    /// Whether any watch covers the plain record `key`.
    pub fn want(&self, key: &[u8]) -> bool {
        let mut want = false;
        self.each(|_, watcher| want |= watcher.filter.wants(key, None));
        want
    }

    /// Notes a change of a plain record. Called with the write lock held, after the commit.
    pub fn note_plain(&self, key: &[u8], kind: ChangeKind) -> WakeMask {
        self.note(PLAIN, key, None, kind)
    }

    /// Notes every change of a commit, as [`note_plain`](Watches::note_plain) does.
    pub fn note_all(&self, changes: &[(Vec<u8>, ChangeKind)]) -> WakeMask {
        let notes = changes.iter().map(|(key, kind)| self.note_plain(key, *kind));
        notes.fold(WakeMask::default(), WakeMask::and)
    }

    /// Notes that a temporal object has got a value. Called with the sensors' mutex held, after the install.
    pub fn note_temporal(&self, key: &[u8], object: ObjectId, sample: Sample) -> WakeMask {
        self.note(TEMPORAL, key, Some(object), ChangeKind::Updated(sample))
    }

    fn note(&self, ring: usize, key: &[u8], object: Option<ObjectId>, kind: ChangeKind) -> WakeMask {
        let mut woken = WakeMask::default();
        self.each(|at, watcher| {
            if watcher.filter.wants(key, object) {
                watcher.rings[ring].put(kind, key);
                woken.0 |= 1 << at;
            }
        });
        woken
    }

    /// Counts one missed change on every watch: any plain record may have changed.
    pub fn note_everything(&self) -> WakeMask {
        let mut woken = WakeMask::default();
        self.each(|at, watcher| {
            watcher.rings[PLAIN].put(ChangeKind::Missed(1), &[]);
            woken.0 |= 1 << at;
        });
        woken
    }

    /// Wakes the threads whose watches got a note. Called after the locks are released.
    #[inline]
    pub fn wake(&self, woken: WakeMask) {
        if woken != WakeMask::default() {
            self.each(|at, watcher| {
                if woken.0 & 1 << at != 0 {
                    watcher.parker.unpark();
                }
            });
        }
    }

    /// Begins a watch in a free slot.
    fn begin(&self, os: &O, filter: Filter, capacity: usize) -> Result<Watch<O>, StoreError> {
        let key_max = match filter {
            Filter::Prefix(_) => KEY_MAX_LEN,
            Filter::Key(_) | Filter::Object(..) => 0,
        };
        let capacity = capacity.clamp(1, CHANGES_MAX);
        let watcher = Arc::new(Watcher {
            live: AtomicBool::new(true),
            filter,
            rings: [ChangeRing::new(capacity, key_max), ChangeRing::new(capacity, key_max)],
            parker: os.new_parker(),
        });
        let _filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = |place: &&Place<O>| {
            let place = place.read().unwrap_or_else(PoisonError::into_inner);
            place
                .as_ref()
                .is_none_or(|watcher| !watcher.live.load(Ordering::Acquire))
        };
        let Some(place) = self.places.iter().find(is_free) else {
            return Err(StoreError::TooManyWatches);
        };
        *place.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&watcher));
        self.live.fetch_add(1, Ordering::SeqCst);
        Ok(Watch {
            watcher,
            live: Arc::clone(&self.live),
            told: [0; 2],
            turn: 0,
            key: Vec::new(),
            table_len: 0,
        })
    }
}

impl<O: Os> Drop for Watch<O> {
    fn drop(&mut self) {
        self.watcher.live.store(false, Ordering::Release);
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<O: Os> Watch<O> {
    /// The next note, without waiting; `None` if there is none.
    pub fn take(&mut self) -> Option<Change<'_>> {
        let kind = self.next()?;
        Some(self.change(kind).0)
    }

    /// The next note; waits for one until `deadline` at the latest ([`Time::MAX`]: without bound).
    pub fn wait(&mut self, deadline: Time) -> Option<Change<'_>> {
        Some(self.wait_labelled(deadline)?.0)
    }

    /// As [`wait`](Watch::wait), with the [label](crate::WriteTransaction::label) of the transaction; 0 without.
    pub fn wait_labelled(&mut self, deadline: Time) -> Option<(Change<'_>, u8)> {
        let kind = loop {
            if let Some(kind) = self.next() {
                break kind;
            }
            if self.is_ended() || self.watcher.parker.park_until(deadline) == Wake::TimedOut {
                break self.next()?;
            }
        };
        Some(self.change(kind))
    }

    /// A function that ends this watch from any thread: nothing is noted any more, and waits return `None` once all
    /// notes are taken.
    pub fn ender(&self) -> impl Fn() + Send + Sync + use<O> {
        let watcher = Arc::clone(&self.watcher);
        move || {
            watcher.live.store(false, Ordering::Release);
            watcher.parker.unpark();
        }
    }

    /// Whether [`ender`](Watch::ender)'s function was called.
    pub fn is_ended(&self) -> bool {
        !self.watcher.live.load(Ordering::Acquire)
    }

    fn next(&mut self) -> Option<ChangeKind> {
        for _ in 0..2 {
            let ring = self.turn;
            self.turn = 1 - ring;
            if let Some(kind) = self.watcher.rings[ring].take(&mut self.told[ring], &mut self.key) {
                return Some(kind);
            }
        }
        None
    }

    fn change(&self, kind: ChangeKind) -> (Change<'_>, u8) {
        let key = match &self.watcher.filter {
            Filter::Key(key) | Filter::Object(_, key) => &**key,
            Filter::Prefix(_) => self.key.get(self.table_len..).unwrap_or_default(),
        };
        match kind {
            ChangeKind::Put(label) => (Change::Put { key }, label),
            ChangeKind::Deleted(label) => (Change::Deleted { key }, label),
            ChangeKind::Expired => (Change::Expired { key }, 0),
            ChangeKind::Expiry(expires, label) => (Change::Expiry { key, expires }, label),
            ChangeKind::Updated(sample) => (Change::Updated { key, sample }, 0),
            ChangeKind::Missed(changes) => (Change::Missed { changes }, 0),
        }
    }
}

impl<E: Engine, O: Os> Store<E, O> {
    /// Begins a watch. Its queues hold up to `capacity` notes that have not been taken, plain records and temporal
    /// objects apart; at least 1 and at most [`CHANGES_MAX`]. Waits for the write transaction that is open, unless it
    /// is this thread's, whose changes may not be noted.
    ///
    /// # Errors
    /// [`StoreError::TooManyWatches`] beyond [`WATCHES_MAX`]; [`StoreError::UnknownObject`];
    /// [`StoreError::LockTimeout`], [`StoreError::TooManyWaiters`] while it waits.
    pub fn watch(&self, watched: WatchTarget<'_>, capacity: usize) -> Result<Watch<O>, StoreError> {
        let filter = match watched {
            WatchTarget::Key(key) => Filter::Key(key.to_vec()),
            WatchTarget::Prefix(prefix) => Filter::Prefix(prefix.to_vec()),
            WatchTarget::Object(object) => {
                self.slot(object)?;
                Filter::Object(object, self.objects.key(object).to_vec())
            }
        };
        self.begin_watch(filter, capacity)
    }

    /// As [`watch`](Store::watch), of all keys of the table that begin with `prefix` in the engine.
    pub(crate) fn watch_prefix(&self, prefix: &[u8], capacity: usize) -> Result<Watch<O>, StoreError> {
        let mut watch = self.begin_watch(Filter::Prefix(prefix.to_vec()), capacity)?;
        watch.table_len = prefix.len();
        Ok(watch)
    }

    fn begin_watch(&self, filter: Filter, capacity: usize) -> Result<Watch<O>, StoreError> {
        let only_temporal = matches!(filter, Filter::Object(..));
        let watch = self.watches.begin(&self.os, filter, capacity)?;
        // Transactions and installs from here on see the watch; those before are over.
        if !only_temporal && !self.permits.is_mine() {
            drop(self.permit(Deadline::NONE, self.os.now())?);
        }
        self.sensors.with(|_| self.sensors.lanes.each(|_, _| ()));
        Ok(watch)
    }
}
