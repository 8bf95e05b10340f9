//! Handles: numbers that stand for open stores and watches.
//!
//! A pointer to the thing itself would be followed after it was closed. A number is looked up, so a closed one is
//! refused, and a call under way in another thread ends before the thing does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once, PoisonError, RwLock};

use crate::code::Failure;
use crate::code::punctual_code::{PUNCTUAL_ARGUMENT, PUNCTUAL_CLOSED, PUNCTUAL_FORKED, PUNCTUAL_LIMIT};

/// Most handles of one kind that may be open.
const HANDLES_MAX: usize = 1024;

/// The first number of this process: lower ones are of the process that it was forked from.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// Runs in each child, which has nothing else to do: locks may be held by threads that it does not have.
extern "C" fn in_child() {
    FIRST.store(NEXT.load(Ordering::Relaxed) * HANDLES_MAX, Ordering::Relaxed);
}

/// The next number. A handle is a number times [`HANDLES_MAX`] plus its place, and never used again.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// A handle, and the thing for which it stands.
type Place<T> = RwLock<Option<(usize, Arc<T>)>>;

/// All open handles of one kind.
pub(crate) struct Handles<T>([Place<T>; HANDLES_MAX]);

impl<T> Handles<T> {
    pub const fn new() -> Handles<T> {
        Handles([const { RwLock::new(None) }; HANDLES_MAX])
    }

    pub fn open(&self, thing: Arc<T>) -> Result<usize, Failure> {
        static AT_FORK: Once = Once::new();
        // SAFETY: the function touches two atomics only. Without memory for it, children are not recognized.
        AT_FORK.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
        for (at, place) in self.0.iter().enumerate() {
            // A place whose lock is taken is in use.
            if let Ok(mut place) = place.try_write()
                && place.is_none()
            {
                let bound = usize::MAX / HANDLES_MAX;
                let raised = |number| (number < bound).then_some(number + 1);
                let number = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised);
                let number = number.map_err(|_| Failure::fixed(PUNCTUAL_LIMIT, c"all handles were used: restart"))?;
                let handle = number * HANDLES_MAX + at;
                *place = Some((handle, thing));
                return Ok(handle);
            }
        }
        Err(Failure::of(
            PUNCTUAL_LIMIT,
            format!("{HANDLES_MAX} handles are open: close some"),
        ))
    }

    pub fn get<H>(&self, handle: *const H) -> Result<Arc<T>, Failure> {
        check(handle)?;
        let place = self.0[handle.addr() % HANDLES_MAX].read();
        match &*place.unwrap_or_else(PoisonError::into_inner) {
            Some((found, thing)) if *found == handle.addr() => Ok(Arc::clone(thing)),
            _ => Err(CLOSED),
        }
    }

    pub fn close<H>(&self, handle: *const H) -> Result<Arc<T>, Failure> {
        check(handle)?;
        let place = self.0[handle.addr() % HANDLES_MAX].write();
        let mut place = place.unwrap_or_else(PoisonError::into_inner);
        match place.take_if(|(found, _)| *found == handle.addr()) {
            Some((_, thing)) => Ok(thing),
            None => Err(CLOSED),
        }
    }
}

pub(crate) const CLOSED: Failure = Failure::fixed(
    PUNCTUAL_CLOSED,
    c"this handle is not open: it was closed, or is of another kind",
);

/// Refuses a handle that this process cannot have, without a look at its place.
fn check<H>(handle: *const H) -> Result<(), Failure> {
    match handle.addr() {
        0 => Err(Failure::fixed(
            PUNCTUAL_ARGUMENT,
            c"NULL in place of a handle: open a store or a watch first",
        )),
        number if number < FIRST.load(Ordering::Relaxed) => Err(Failure::fixed(
            PUNCTUAL_FORKED,
            c"this handle belongs to the process that this one was forked from: open a store here",
        )),
        _ => Ok(()),
    }
}
