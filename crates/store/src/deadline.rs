//! When a transaction must be done, and what the store does about a late one.

use punctual_units::{Nanos, Time};

use crate::StoreError;

/// A transaction's deadline.
///
/// The write lock is granted to the earliest deadline first. The user chooses what happens to a late transaction, in
/// the words of the field: a *soft* deadline lets it run to its end, its result being worth less; after a *firm* one
/// the store refuses it, its result being worth nothing.
///
/// ```
/// use punctual_store::Deadline;
/// use punctual_units::Time;
/// assert!(Deadline::firm(Time(5)).check(Time(5)).is_ok());
/// assert!(Deadline::firm(Time(5)).check(Time(6)).is_err());
/// assert!(Deadline::soft(Time(5)).check(Time(6)).is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    at: Time,
    firm: bool,
}

impl Deadline {
    /// No deadline: served last. Reads are not timed then, because none can be late.
    pub const NONE: Deadline = Deadline {
        at: Time::MAX,
        firm: false,
    };

    /// Firm deadline `at`: a late transaction is refused, before it waits for the write lock and at each of its calls.
    pub const fn firm(at: Time) -> Deadline {
        Deadline { at, firm: true }
    }

    /// Soft deadline `at`: a late transaction runs to its end.
    pub const fn soft(at: Time) -> Deadline {
        Deadline { at, firm: false }
    }

    /// The instant of the deadline; `Time::MAX` for `NONE`.
    pub const fn at(self) -> Time {
        self.at
    }

    /// Whether a late transaction is refused.
    pub const fn is_firm(self) -> bool {
        self.firm
    }

    /// Refuses to go on if `now` is past a firm deadline.
    ///
    /// # Errors
    /// [`StoreError::DeadlinePassed`] after a firm deadline.
    #[inline]
    pub fn check(self, now: Time) -> Result<(), StoreError> {
        if self.firm && now > self.at {
            return Err(StoreError::DeadlinePassed {
                late: now.since(self.at),
            });
        }
        Ok(())
    }

    /// The longest wait from `now`: `bound`, the store's own, or less where a firm deadline comes earlier.
    pub(crate) fn patience(self, now: Time, bound: Nanos) -> Nanos {
        if self.firm {
            bound.min(self.at.since(now))
        } else {
            bound
        }
    }
}
