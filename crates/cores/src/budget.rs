//! Bound on the time of an admission test.

use std::cell::Cell;

use crate::sporadic::Unfit;

/// Budget of one call, in looks at one task (a division or two each). First fit tests each of its tasks on each core,
/// and each test may take many steps through all tasks there: bounds for each alone would multiply.
pub(crate) const LOOKS_MAX: u64 = 1 << 26;

/// Looks left for all tests of one call together.
pub(crate) struct Budget(Cell<u64>);

impl Budget {
    pub fn of(looks: u64) -> Budget {
        Budget(Cell::new(looks))
    }

    /// Deducts `looks` from the budget.
    ///
    /// # Errors
    /// [`Unfit::Undecided`] where fewer are left; every later test of the call then fails as well.
    pub fn spend(&self, looks: usize) -> Result<(), Unfit> {
        let left = self.0.get().checked_sub(looks as u64);
        self.0.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(Unfit::Undecided)
    }
}
