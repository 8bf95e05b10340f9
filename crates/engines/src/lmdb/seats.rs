//! Storage for snapshots: several for each thread, and none that ends with its thread.
//!
//! **Problem.** LMDB finds a thread's reader slot by a thread-specific key, which makes a read transaction begin with
//! one store, without a lock (`mdb_txn_renew0` in mdb.c). So a thread has one slot, and one snapshot at a time; and the
//! slot is freed as the thread ends, by a destructor that may run while the store is being closed. With `MDB_NOTLS`
//! each begin of a read transaction takes a mutex that all readers share, and that has no priority inheritance.
//!
//! **Method.** The key is LMDB's; this module decides which pointer is stored under it. A snapshot has a *seat*, which
//! any thread may take while it is vacant. The seat keeps the reader slot that LMDB gave it with its first snapshot.
//! That slot is stored under the key while a transaction begins, and null otherwise: so LMDB uses the seat's slot,
//! finds it empty, and no destructor ever has a slot to free.
//!
//! **Finding the key.** LMDB does not expose it. It is the key under which the first read transaction of a thread
//! stores a pointer ([`Key::find`]). Reading keys that do not exist is undefined in POSIX; glibc and musl return null
//! for each below `PTHREAD_KEYS_MAX`.

use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::transactions::Pin;
use crate::slot::{SnapshotSlot, Ticket};

/// Number of seats reserved for the engine itself: it can look at its room while all others are taken.
pub(super) const OWN: u32 = 1;

/// The seats of one store.
pub(super) struct Seats {
    key: Key,
    seats: Box<[Seat]>,
}

/// Storage for one snapshot. Mostly touched by one thread, hence aligned to cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Seat {
    pub slot: SnapshotSlot<Pin>,
    /// Reader slot that LMDB gave this seat; null before its first snapshot.
    reader: AtomicPtr<c_void>,
}

thread_local! {
    /// Index of the seat that this thread took last, of any store.
    static LAST: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Seats {
    /// Makes `readers_max` seats and those of the engine. `begin` begins and ends the first read transaction of this
    /// store. Until the slot that it leaves is [given to a seat](Seats::adopt), this thread may read without seats.
    ///
    /// # Errors
    /// Those of `begin`; an error if LMDB's key is not found.
    pub(super) fn new<F: From<io::Error>>(readers_max: u32, begin: impl FnOnce() -> Result<(), F>) -> Result<Self, F> {
        let key = Key::find(begin)?;
        let seats: Box<[Seat]> = (0..readers_max + OWN).map(|_| Seat::default()).collect();
        Ok(Seats { key, seats })
    }

    /// Gives this thread's reader slot to the first seat.
    pub(super) fn adopt(&self) {
        self.seats[0].reader.store(self.key.get(), Ordering::Relaxed);
        // Storing null cannot fail: it needs no memory.
        let _ = self.key.set(null_mut());
    }

    /// Takes a vacant seat; `None` if all are taken. The caller must [open](SnapshotSlot::open) a snapshot in it, or
    /// [give it back](SnapshotSlot::give_back).
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

    /// Searches all seats. Seats of ended snapshots come last, because each holds the reason that its reader has yet to
    /// get.
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

    /// Takes the seat reserved for the engine, if it is vacant.
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
    pub(super) fn slots(&self) -> impl Iterator<Item = &SnapshotSlot<Pin>> {
        self.seats.iter().map(|seat| &seat.slot)
    }

    /// Ends all snapshots, also those that their owners forgot.
    pub(super) fn end_all(&self) {
        self.slots().for_each(SnapshotSlot::end_any);
    }
}

/// First seat to try: a different one for each thread, so that threads seldom meet.
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
        // SAFETY: has no side effect; returns null for keys that do not exist (module header).
        unsafe { libc::pthread_getspecific(self.0) }
    }

    #[inline]
    fn set(&self, reader: *mut c_void) -> io::Result<()> {
        // SAFETY: the key is LMDB's, which exists while the store is open; the value is null or one of its reader
        // slots.
        match unsafe { libc::pthread_setspecific(self.0, reader) } {
            0 => Ok(()),
            refused => Err(io::Error::from_raw_os_error(refused)),
        }
    }
}
