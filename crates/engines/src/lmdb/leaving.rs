//! Threads that end, and a store that is closed meanwhile.
//!
//! **Problem.** LMDB frees the reader slot of a thread as that thread ends, after its closure has returned
//! (`mdb_env_reader_dest` in mdb.c, a destructor of thread-specific data). `std::thread::scope` waits for the closure
//! only, so that safe code could close the store, and unmap the slot, under a thread that is about to write into it.
//!
//! **Method.** A thread says when it begins to end: by a thread local, which is dropped before any thread-specific data
//! is (`__call_tls_dtors` comes first in glibc). It says when its slot is free: in the second round of destructors,
//! which comes after each value has been destroyed once (POSIX, `pthread_key_create`); LMDB's runs in the first and
//! sets no new value. Closing waits for threads in between. A thread that begins to end while the store is being closed
//! waits until it is closed; then LMDB's destructor is gone, and is not called.
//!
//! **Seats.** A thread has one snapshot at a time, so it has one [`Slot`] for all its snapshots: its seat, which it
//! gets with its first read and keeps until it ends, as it does LMDB's reader slot. A snapshot that is still in the
//! seat when the thread ends (its owner forgot it) is ended then: afterwards LMDB gives the reader slot to another
//! thread, and ending it later would take that other thread's pages.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::transactions::Pin;
use crate::slot::Slot;

/// How long closing waits for threads that are about to end. What they still do is drop their thread locals.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The threads that have read one store.
pub(super) struct Readers {
    /// Of this store only, and not 0.
    id: u64,
    ending: Arc<Ending>,
}

struct Ending {
    threads: Mutex<Threads>,
    none: Condvar,
    seats: Box<[Seat]>,
}

/// Where a thread has its snapshots.
#[derive(Default)]
struct Seat {
    taken: AtomicBool,
    slot: Slot<Pin>,
}

/// Why a thread cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoSeat {
    /// It is about to end: no thread would wait until its slot of LMDB's is free.
    AboutToEnd,
    /// As many threads as there may be have a seat.
    Full,
}

#[derive(Debug, Default)]
struct Threads {
    /// How many have begun to end and still have their slot.
    ending: usize,
    closed: bool,
}

/// The stores that this thread has read.
struct StoresRead {
    /// The last one: its id, and the seat there.
    latest: Cell<(u64, usize)>,
    stores: RefCell<Vec<StoreRead>>,
}

struct StoreRead {
    id: u64,
    seat: usize,
    ending: Weak<Ending>,
}

/// What a thread takes through its last steps: the stores, and its seat in each.
struct Last {
    round: u8,
    stores: Vec<(Arc<Ending>, usize)>,
}

thread_local! {
    static READ: StoresRead = const { StoresRead { latest: Cell::new((0, 0)), stores: RefCell::new(Vec::new()) } };
}

/// The value of this key is a thread's [`Last`].
static LAST: OnceLock<libc::pthread_key_t> = OnceLock::new();

impl Readers {
    /// No thread yet, and room for so many.
    ///
    /// # Errors
    /// If the process has no thread-specific key left.
    pub(super) fn none(threads_max: u32) -> io::Result<Readers> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        key()?;
        let ending = Ending {
            threads: Mutex::default(),
            none: Condvar::new(),
            seats: (0..threads_max).map(|_| Seat::default()).collect(),
        };
        Ok(Readers {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            ending: Arc::new(ending),
        })
    }

    /// This thread is going to read: its seat's slot.
    #[inline]
    pub(super) fn enter(&self) -> Result<&Slot<Pin>, NoSeat> {
        let seat = READ.try_with(|read| match read.latest.get() {
            (id, seat) if id == self.id => Ok(seat),
            _ => self.enter_first(read),
        });
        let seat = seat.unwrap_or(Err(NoSeat::AboutToEnd))?;
        Ok(&self.ending.seats[seat].slot)
    }

    #[cold]
    fn enter_first(&self, read: &StoresRead) -> Result<usize, NoSeat> {
        let mut stores = read.stores.borrow_mut();
        let known = stores.iter().find(|store| store.id == self.id);
        let seat = match known {
            Some(known) => known.seat,
            None => {
                stores.retain(|store| store.ending.strong_count() > 0);
                let seat = self.ending.take_seat().ok_or(NoSeat::Full)?;
                let (id, ending) = (self.id, Arc::downgrade(&self.ending));
                stores.push(StoreRead { id, seat, ending });
                seat
            }
        };
        read.latest.set((self.id, seat));
        Ok(seat)
    }

    /// The slots of all seats, in the order of the seats.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot<Pin>> {
        self.ending.seats.iter().map(|seat| &seat.slot)
    }

    /// Ends all snapshots: those are left whose owners forgot them.
    pub(super) fn end_all(&self) {
        self.slots().for_each(Slot::end_any);
    }

    /// Closes the store by `close` when no thread is about to end. If one takes longer than [`WAIT_MAX`] over it, the
    /// store is left open: false.
    pub(super) fn close(&self, close: impl FnOnce()) -> bool {
        let threads = self.ending.lock();
        let waiting = |threads: &mut Threads| threads.ending > 0;
        let waited = self.ending.none.wait_timeout_while(threads, WAIT_MAX, waiting);
        let (mut threads, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if threads.ending > 0 {
            return false;
        }
        threads.closed = true;
        close(); // while the lock is held: a thread that begins to end now waits for it
        true
    }
}

impl Ending {
    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_seat(&self) -> Option<usize> {
        let free = |seat: &Seat| !seat.taken.swap(true, Ordering::Acquire);
        self.seats.iter().position(free)
    }

    /// One more thread begins to end, unless the store is closed.
    fn begin(&self) -> bool {
        let mut threads = self.lock();
        threads.ending += usize::from(!threads.closed);
        !threads.closed
    }

    /// It has ended, and its seat is free.
    fn end(&self, seat: usize) {
        self.seats[seat].taken.store(false, Ordering::Release);
        let mut threads = self.lock();
        threads.ending -= 1;
        if threads.ending == 0 {
            self.none.notify_all();
        }
    }
}

impl Drop for StoresRead {
    fn drop(&mut self) {
        let stores = self.stores.get_mut().drain(..);
        let stores = stores.filter_map(|store| Some((store.ending.upgrade()?, store.seat)));
        let stores: Vec<_> = stores.filter(|(ending, _)| ending.begin()).collect();
        for (ending, seat) in &stores {
            ending.seats[*seat].slot.end_any();
        }
        if !stores.is_empty() {
            pass_on(Box::new(Last { round: 1, stores }));
        }
    }
}

/// Has [`ended`] called with `last` in the next round. Without memory for it the stores stay open.
fn pass_on(last: Box<Last>) {
    if let Ok(key) = key() {
        // SAFETY: the key exists for good; the box is taken back by its destructor, once.
        unsafe { libc::pthread_setspecific(key, Box::into_raw(last).cast()) };
    }
}

unsafe extern "C" fn ended(last: *mut c_void) {
    // SAFETY: only `pass_on` sets values of this key, and each is passed to this destructor once.
    let mut last = unsafe { Box::from_raw(last.cast::<Last>()) };
    if last.round == 1 {
        last.round = 2;
        pass_on(last);
    } else {
        last.stores.iter().for_each(|(store, seat)| store.end(*seat));
    }
}

fn key() -> io::Result<libc::pthread_key_t> {
    if let Some(key) = LAST.get() {
        return Ok(*key);
    }
    let mut key = 0;
    // SAFETY: the key is written to; the destructor lives as long as the program.
    match unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } {
        0 => Ok(*LAST.get_or_init(|| key)), // a second thread's key, made meanwhile, stays without values
        refused => Err(io::Error::from_raw_os_error(refused)),
    }
}
