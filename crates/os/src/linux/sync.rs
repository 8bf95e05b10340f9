//! Waiting without priority inversion: a mutex whose holder inherits the priority of the threads that wait for it, and
//! a parking place with an absolute deadline.
//!
//! **Problem.** A high-priority thread waits for a lock; the holder, a low-priority thread, is preempted by a third
//! thread in between, for any length of time. With `PTHREAD_PRIO_INHERIT` the kernel runs the holder at the priority of
//! its highest waiter until it unlocks, so the wait is bounded by the critical section (futex(2), "Priority-inheritance
//! futexes"). `std::sync::Mutex` does not do that.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr;

pub use super::parker::Parker;
pub use crate::Wake;

/// A mutex with priority inheritance (`PTHREAD_PRIO_INHERIT`).
///
/// Like `std::sync::Mutex`, but without poisoning: a panic inside of the critical section unlocks it and leaves the
/// data as they are. Uncontended, locking and unlocking make no system call.
///
/// ```
/// use punctual_os::linux::sync::PiMutex;
/// let counter = PiMutex::new(0);
/// *counter.lock() += 1;
/// assert_eq!(counter.into_inner(), 1);
/// ```
pub struct PiMutex<T: ?Sized> {
    /// Boxed because a pthread mutex must not move while in use.
    raw: Box<UnsafeCell<libc::pthread_mutex_t>>,
    data: UnsafeCell<T>,
}

// SAFETY: the mutex passes `T` from thread to thread, one at a time; that requires `T: Send` and nothing more.
unsafe impl<T: ?Sized + Send> Send for PiMutex<T> {}
// SAFETY: as above; a shared reference gives access to `T` only under the lock.
unsafe impl<T: ?Sized + Send> Sync for PiMutex<T> {}

impl<T> PiMutex<T> {
    /// Makes an unlocked mutex around `data`.
    ///
    /// # Panics
    /// Where the C library has no priority inheritance at all; Linux C libraries always have.
    pub fn new(data: T) -> Self {
        let raw = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        // SAFETY: attributes and mutex are initialised before they are used, the mutex has its final address, and the
        // attributes are destroyed exactly once.
        let error = unsafe {
            let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
            libc::pthread_mutexattr_init(attributes.as_mut_ptr());
            libc::pthread_mutexattr_setprotocol(attributes.as_mut_ptr(), libc::PTHREAD_PRIO_INHERIT);
            // Makes locking twice an error that can be reported, instead of a thread that hangs.
            libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ERRORCHECK);
            let error = libc::pthread_mutex_init(raw.get(), attributes.as_ptr());
            libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
            error
        };
        assert_eq!(error, 0, "the C library refuses mutexes with priority inheritance");
        PiMutex {
            raw,
            data: UnsafeCell::new(data),
        }
    }

    /// Returns the data, once no thread can lock them any more.
    pub fn into_inner(self) -> T {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped or used again, so box and data are each moved out once; the mutex is
        // unlocked, because a guard would still borrow it, unless one was forgotten: then it is leaked, not destroyed.
        unsafe {
            drop(ptr::read(&this.raw));
            ptr::read(&this.data).into_inner()
        }
    }
}

impl<T: ?Sized> PiMutex<T> {
    /// Waits for the lock and takes it. While waiting, the holder runs at this thread's priority if that is higher.
    ///
    /// # Panics
    /// If the calling thread holds the lock already: that would wait forever.
    pub fn lock(&self) -> PiGuard<'_, T> {
        // SAFETY: the mutex is initialised and stays where it is.
        let error = unsafe { libc::pthread_mutex_lock(self.raw.get()) };
        assert_eq!(error, 0, "a PiMutex was locked again by the thread that holds it");
        self.guard()
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<PiGuard<'_, T>> {
        // SAFETY: the mutex is initialised and stays where it is.
        let error = unsafe { libc::pthread_mutex_trylock(self.raw.get()) };
        (error == 0).then(|| self.guard())
    }

    fn guard(&self) -> PiGuard<'_, T> {
        PiGuard {
            mutex: self,
            not_send: PhantomData,
        }
    }
}

impl<T: ?Sized> Drop for PiMutex<T> {
    fn drop(&mut self) {
        if let Some(guard) = self.try_lock() {
            drop(guard);
            // SAFETY: no thread holds the mutex and, with `&mut self`, none can take it.
            unsafe { libc::pthread_mutex_destroy(self.raw.get()) };
        } // else a guard was forgotten: destroying a held mutex is undefined, and there is nothing to free in it
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for PiMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_tuple("PiMutex").field(&&*guard).finish(),
            None => f.write_str("PiMutex(<locked>)"),
        }
    }
}

impl<T: Default> Default for PiMutex<T> {
    fn default() -> Self {
        PiMutex::new(T::default())
    }
}

/// Access to the data of a [`PiMutex`]; unlocks when dropped. Stays on its thread, as the kernel requires.
#[must_use = "dropping the guard unlocks at once"]
pub struct PiGuard<'a, T: ?Sized> {
    mutex: &'a PiMutex<T>,
    /// Prevents sending: a pthread mutex is unlocked by the thread that locked it.
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared references to `T` only.
unsafe impl<T: ?Sized + Sync> Sync for PiGuard<'_, T> {}

impl<T: ?Sized> Deref for PiGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized> DerefMut for PiGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock and is borrowed exclusively.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T: ?Sized> Drop for PiGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread holds the lock.
        unsafe { libc::pthread_mutex_unlock(self.mutex.raw.get()) };
    }
}

/// Promises of this lock alone; the conformance suite of `punctual-testing` checks the rest of the contract.
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_panic_inside_unlocks_and_keeps_the_data() {
        let mutex = PiMutex::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut guard = mutex.lock();
            *guard = 2;
            panic!("inside of the critical section");
        }));
        assert!(panicked.is_err());
        assert_eq!(*mutex.try_lock().expect("unlocked again"), 2);
    }

    #[test]
    fn a_held_lock_is_not_given_out_and_shows_itself_as_locked() {
        let mutex = PiMutex::new(1);
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        assert_eq!(format!("{mutex:?}"), "PiMutex(<locked>)");
        drop(guard);
        assert_eq!(format!("{mutex:?}"), "PiMutex(1)");
    }

    #[test]
    #[should_panic(expected = "locked again by the thread that holds it")]
    fn locking_twice_panics_instead_of_hanging() {
        let mutex = PiMutex::new(());
        let _held = mutex.lock();
        let _again = mutex.lock();
    }

    #[test]
    fn data_are_dropped_once_and_a_forgotten_guard_is_harmless() {
        let data = Arc::new(());
        drop(PiMutex::new(Arc::clone(&data)));
        assert_eq!(Arc::strong_count(&data), 1);
        let back = PiMutex::new(Arc::clone(&data)).into_inner();
        assert_eq!(Arc::strong_count(&back), 2);
        let held = PiMutex::new(());
        std::mem::forget(held.lock());
        drop(held);
    }
}
