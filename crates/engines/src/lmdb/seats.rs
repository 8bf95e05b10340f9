//! Where snapshots are kept: several for each thread, and none that ends with its thread.
//!
//! **Problem.** LMDB finds a thread's reader slot by a thread-specific key, which makes a read transaction begin with
//! one store, without a lock (`mdb_txn_renew0` in mdb.c). So a thread has one slot, and one snapshot at a time; and the
//! slot is freed as the thread ends, by a destructor that may run while the store is being closed. With `MDB_NOTLS`
//! each beginning takes a mutex that all readers share, and that has no priority inheritance.
//!
//! **Method.** The key is LMDB's, what stands under it is ours. A snapshot has a *seat*, which any thread may take
//! while it is vacant. The seat knows the reader slot that LMDB gave it with its first snapshot. That slot stands under
//! the key while a transaction begins, and nothing does afterwards: so LMDB takes the seat's slot, finds it empty, and
//! no destructor ever has something to free.
//!
//! **Finding the key.** LMDB does not tell it. It is the one under which the first read transaction of a thread leaves
//! something ([`Key::find`]). Asking for keys that do not exist is undefined in POSIX; glibc and musl answer null for
//! each below `PTHREAD_KEYS_MAX`.

use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::transactions::Pin;
use crate::slot::{Slot, Ticket};

/// Seats that only the engine itself takes: to look at its room while all others are taken.
pub(super) const OWN: u32 = 1;

/// The seats of one store.
pub(super) struct Seats {
    key: Key,
    seats: Box<[Seat]>,
}

/// A place for one snapshot. Each is touched by one thread most of the time, hence cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Seat {
    pub slot: Slot<Pin>,
    /// The reader slot that LMDB gave it; null before its first snapshot.
    reader: AtomicPtr<c_void>,
}

thread_local! {
    /// The seat that this thread took last, of whichever store.
    static LAST: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Seats {
    /// So many, and those of the engine's own. `begin` begins a read transaction and ends it: the first of this store.
    /// Until the slot that it leaves is [given to a seat](Seats::adopt), this thread may read without seats.
    ///
    /// # Errors
    /// Those of `begin`; and where LMDB's key is not found.
    pub(super) fn new<F: From<io::Error>>(readers_max: u32, begin: impl FnOnce() -> Result<(), F>) -> Result<Self, F> {
        let key = Key::find(begin)?;
        let seats: Box<[Seat]> = (0..readers_max + OWN).map(|_| Seat::default()).collect();
        Ok(Seats { key, seats })
    }

    /// This thread's reader slot is the first seat's from now on.
    pub(super) fn adopt(&self) {
        self.seats[0].reader.store(self.key.get(), Ordering::Relaxed);
        // Taking away what stands there cannot fail: it needs no memory.
        let _ = self.key.set(null_mut());
    }

    /// Takes a vacant seat; none where all are taken. The snapshot that it gets must be
    /// [opened](Slot::open), or the seat [given back](Slot::give_back).
    #[inline]
    pub(super) fn take(&self) -> Option<(&Seat, Ticket)> {
        let first = LAST.get().unwrap_or_else(first_seat);
        match self
            .theirs()
            .get(first)
            .and_then(|seat| Some((seat, seat.slot.claim()?)))
        {
            Some(taken) => Some(taken),
            None => self.look_for(first),
        }
    }

    /// Seats of ended snapshots come last: what their readers are told stands in the seat.
    #[cold]
    fn look_for(&self, first: usize) -> Option<(&Seat, Ticket)> {
        let theirs = self.theirs();
        let (before, behind) = theirs.split_at(first % theirs.len());
        let places = || behind.iter().chain(before);
        let free = || places().find_map(|seat| Some((seat, seat.slot.claim()?)));
        let (seat, ticket) = free().or_else(|| places().find_map(|seat| Some((seat, seat.slot.claim_ended()?))))?;
        LAST.set(theirs.iter().position(|one| std::ptr::eq(one, seat)));
        Some((seat, ticket))
    }

    /// Takes the seat that is the engine's own, if it is vacant.
    pub(super) fn take_own(&self) -> Option<(&Seat, Ticket)> {
        let seat = self.seats.last()?;
        Some((seat, seat.slot.claim()?))
    }

    fn theirs(&self) -> &[Seat] {
        &self.seats[..self.seats.len() - OWN as usize]
    }

    /// Begins a read transaction with the reader slot of a seat that this thread has taken.
    #[inline]
    pub(super) fn with_reader<T>(&self, seat: &Seat, begin: impl FnOnce() -> T) -> io::Result<T> {
        self.key.set(seat.reader.load(Ordering::Relaxed))?;
        let begun = begin();
        seat.reader.store(self.key.get(), Ordering::Relaxed);
        let _ = self.key.set(null_mut()); // cannot fail, as above
        Ok(begun)
    }

    /// The slots of all seats, in the order of the seats.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot<Pin>> {
        self.seats.iter().map(|seat| &seat.slot)
    }

    /// Ends all snapshots: those are left whose owners forgot them.
    pub(super) fn end_all(&self) {
        self.slots().for_each(Slot::end_any);
    }
}

/// Threads begin at different seats, so that they seldom meet.
#[cold]
fn first_seat() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let seat = NEXT.fetch_add(1, Ordering::Relaxed);
    LAST.set(Some(seat));
    seat
}

/// The thread-specific key of LMDB's environment.
struct Key(libc::pthread_key_t);

impl Key {
    fn find<F: From<io::Error>>(begin: impl FnOnce() -> Result<(), F>) -> Result<Key, F> {
        // SAFETY: asks for a limit.
        let keys = unsafe { libc::sysconf(libc::_SC_THREAD_KEYS_MAX) };
        let keys = libc::pthread_key_t::try_from(keys).unwrap_or(128);
        let before: Vec<bool> = (0..keys).map(|key| Key(key).get().is_null()).collect();
        begin()?;
        let mut found = (0..keys)
            .zip(before)
            .filter(|(key, was_null)| *was_null && !Key(*key).get().is_null());
        match (found.next(), found.next()) {
            (Some((key, _)), None) => Ok(Key(key)),
            _ => Err(io::Error::other("LMDB's thread-specific key was not found: use glibc or musl").into()),
        }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        // SAFETY: of no consequence; null for keys that do not exist (module header).
        unsafe { libc::pthread_getspecific(self.0) }
    }

    #[inline]
    fn set(&self, reader: *mut c_void) -> io::Result<()> {
        // SAFETY: the key is LMDB's, which exists while the store is open, and what is set is null or a slot of its.
        match unsafe { libc::pthread_setspecific(self.0, reader) } {
            0 => Ok(()),
            refused => Err(io::Error::from_raw_os_error(refused)),
        }
    }
}
