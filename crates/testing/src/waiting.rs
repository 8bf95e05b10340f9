//! Bounded waits for conditions.
//!
//! A test waits for a state, never for a time: a busy machine may put a thread or a process off for seconds. One bound
//! holds for all waits. It ends tests that would hang, and states nothing about speed.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a condition; a wait on a busy machine takes seconds. Shorter than [`CHILD_MAX`], so that a failed
/// wait is reported in place of the end of a killed child.
pub const WAIT_MAX: Duration = Duration::from_secs(200);

/// Longest life of a child that a test starts.
pub const CHILD_MAX: Duration = Duration::from_secs(300);

/// Pauses between two checks: the first, and the longest. Each is twice as long as the one before, so that short waits
/// end soon and long ones take no core.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];

/// Waits until `condition` holds.
///
/// # Panics
/// With `what` if it does not hold within [`WAIT_MAX`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(|| what.to_owned(), || condition().then_some(()));
}

/// Waits until `look` returns a value, and returns it.
///
/// # Panics
/// With the text of `state` if there is none within [`WAIT_MAX`].
pub fn wait_for<T>(state: impl FnOnce() -> String, look: impl FnMut() -> Option<T>) -> T {
    let found = poll(WAIT_MAX, look);
    found.unwrap_or_else(|| panic!("not within {WAIT_MAX:?}: {}", state()))
}

/// Waits until `look` returns `Ok`; for a look whose failure describes the state.
///
/// # Panics
/// With `what` and the last failure if there is none within [`WAIT_MAX`].
pub fn wait_ok<T, E: Debug>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let mut last = None;
    let found = poll(WAIT_MAX, || look().map_err(|error| last = Some(error)).ok());
    found.unwrap_or_else(|| panic!("not within {WAIT_MAX:?}: {what}: {last:#?}"))
}

/// Sets a flag when dropped, also by the panic of a failed wait: threads of a scope that run until it is set end then.
#[derive(Debug)]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The first value of `look`; `None` if there is none after `at_most`. Looks at least once after that time, because
/// this thread may be put off for all of it.
pub(crate) fn poll<T>(at_most: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let (begin, mut pause) = (Instant::now(), PAUSES[0]);
    loop {
        let is_last = begin.elapsed() > at_most;
        match look() {
            None if !is_last => std::thread::sleep(pause),
            found => return found,
        }
        pause = (pause * 2).min(PAUSES[1]);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_first_value_ends_a_wait() {
        let looks = Cell::new(0);
        let third = || {
            looks.set(looks.get() + 1);
            (looks.get() == 3).then_some("third")
        };
        assert_eq!(wait_for(|| format!("{} looks", looks.get()), third), "third");
        assert_eq!(looks.get(), 3);
        wait_until("a sixth look", || {
            looks.set(looks.get() + 1);
            looks.get() == 6
        });
        let ninth = wait_ok("a ninth look", || {
            looks.set(looks.get() + 1);
            if looks.get() == 9 { Ok(9) } else { Err(looks.get()) }
        });
        assert_eq!((ninth, looks.get()), (9, 9));
    }

    #[test]
    fn without_a_value_a_wait_ends_at_its_bound() {
        let mut looks = 0;
        let never = poll(Duration::ZERO, || {
            looks += 1;
            None::<()>
        });
        assert_eq!(never, None);
        assert!(looks >= 1);
    }
}
