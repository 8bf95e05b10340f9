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

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// How long closing waits for threads that are about to end. What they still do is drop their thread locals.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The threads that have read one store.
#[derive(Debug)]
pub(super) struct Readers {
    /// Of this store only, and not 0.
    id: u64,
    ending: Arc<Ending>,
}

#[derive(Debug, Default)]
struct Ending {
    threads: Mutex<Threads>,
    none: Condvar,
}

#[derive(Debug, Default)]
struct Threads {
    /// How many have begun to end and still have their slot.
    ending: usize,
    closed: bool,
}

/// The stores that this thread has read.
struct StoresRead {
    latest: Cell<u64>,
    stores: RefCell<Vec<(u64, Weak<Ending>)>>,
}

/// What a thread takes through its last steps.
struct Last {
    round: u8,
    stores: Vec<Arc<Ending>>,
}

thread_local! {
    static READ: StoresRead = const { StoresRead { latest: Cell::new(0), stores: RefCell::new(Vec::new()) } };
}

/// The value of this key is a thread's [`Last`].
static LAST: OnceLock<libc::pthread_key_t> = OnceLock::new();

impl Readers {
    /// No thread yet.
    ///
    /// # Errors
    /// If the process has no thread-specific key left.
    pub(super) fn none() -> io::Result<Readers> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        key()?;
        Ok(Readers {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            ending: Arc::default(),
        })
    }

    /// This thread is going to read. False if it is about to end: then it must not get a slot, because no thread would
    /// wait until it is free.
    #[inline]
    pub(super) fn enter(&self) -> bool {
        READ.try_with(|read| {
            if read.latest.get() != self.id {
                self.enter_first(read);
            }
        })
        .is_ok()
    }

    #[cold]
    fn enter_first(&self, read: &StoresRead) {
        let mut stores = read.stores.borrow_mut();
        if !stores.iter().any(|(id, _)| *id == self.id) {
            stores.retain(|(_, ending)| ending.strong_count() > 0);
            stores.push((self.id, Arc::downgrade(&self.ending)));
        }
        read.latest.set(self.id);
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

    /// One more thread begins to end, unless the store is closed.
    fn begin(&self) -> bool {
        let mut threads = self.lock();
        threads.ending += usize::from(!threads.closed);
        !threads.closed
    }

    fn end(&self) {
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
        let stores: Vec<_> = stores.filter_map(|(_, ending)| ending.upgrade()).collect();
        let stores: Vec<_> = stores.into_iter().filter(|ending| ending.begin()).collect();
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
        last.stores.iter().for_each(|store| store.end());
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
