//! That no other program keeps a core of this machine for itself while a test runs.

use std::time::Duration;

use punctual_custody::recovery;

use crate::waiting::poll;

/// Puts back what dead programs have left changed, and waits until no living one has a core of its own: then all cores
/// are there for a test, as on a machine at rest.
///
/// # Errors
/// Which program has which core after `at_most`.
pub fn free_cores(at_most: Duration) -> Result<(), String> {
    let folder = recovery::folder();
    let mut last = None;
    let free = poll(at_most, || {
        // A failure to restore is no reason to skip a test.
        let _ = recovery::restore(&folder);
        let holders = recovery::look(&folder).map_or_else(|_| Vec::new(), |found| found.holders);
        let holder = holders.into_iter().find(|it| it.alive && !it.exclusive.is_empty());
        last = holder.map(|holder| holder.to_string());
        last.is_none().then_some(())
    });
    free.ok_or(last.unwrap_or_default())
}
