//! When a transaction must be done, and what the store does about a late one.

use punctual_units::{Nanos, Time};

use crate::StoreError;

/// A transaction's deadline.
///
/// It orders the queue for the write lock: earliest first. What happens afterwards is the user's choice, in the words
/// of the field: a *soft* deadline lets a late transaction run to its end, its result being worth less; a *firm* one
/// makes the store refuse it, its result being worth nothing.
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

    /// Late transactions are refused, before they wait for the write lock and at each call of theirs.
    pub const fn firm(at: Time) -> Deadline {
        Deadline { at, firm: true }
    }

    /// Late transactions run to their end.
    pub const fn soft(at: Time) -> Deadline {
        Deadline { at, firm: false }
    }

    /// The instant.
    pub const fn at(self) -> Time {
        self.at
    }

    /// Whether a late transaction is refused.
    pub const fn is_firm(self) -> bool {
        self.firm
    }

    /// Whether a transaction may go on at `now`.
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

    /// How long a transaction may wait from `now`, given the store's own bound.
    pub(crate) fn patience(self, now: Time, bound: Nanos) -> Nanos {
        if self.firm {
            bound.min(self.at.since(now))
        } else {
            bound
        }
    }
}
