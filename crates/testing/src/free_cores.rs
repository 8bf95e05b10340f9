//! That no other program keeps a core of this machine for itself, or has real-time work there, while a test runs.

use std::time::Duration;

use punctual_custody::recovery;

use crate::waiting::poll;

/// Longest wait for programs that are no tests; a test that would have to wait longer is skipped.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Restores what dead programs have left changed, and waits until no living one has a core of its own, and none but
/// this one has announced real-time work: then all cores are there for a test, as on a machine at rest. For a test that
/// holds [`machine`](crate::machine) or [`shared_machine`](crate::shared_machine).
///
/// # Errors
/// Which program has which core after a minute.
pub fn free_cores() -> Result<(), String> {
    let folder = recovery::folder();
    let mut last = None;
    let free = poll(WAIT_MAX, || {
        // A failure to restore is no reason to skip a test.
        let _ = recovery::restore(&folder);
        let holders = recovery::look(&folder).map_or_else(|_| Vec::new(), |found| found.holders);
        let own = std::process::id() as i32;
        let holds = |it: &recovery::Holding| !it.exclusive.is_empty() || (!it.shared.is_empty() && it.process != own);
        let holder = holders.into_iter().find(|it| it.alive && holds(it));
        last = holder.map(|holder| holder.to_string());
        last.is_none().then_some(())
    });
    free.ok_or(last.unwrap_or_default())
}
