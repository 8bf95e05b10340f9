//! That no other program keeps a core of this machine for itself while a test runs.

use std::time::{Duration, Instant};

use punctual_custody::recovery;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Puts back what dead programs have left changed, and waits until no living one has a core of its own: then all cores
/// are there for a test, as on a machine at rest.
///
/// # Errors
/// Which program has which core after `at_most`.
pub fn free_cores(at_most: Duration) -> Result<(), String> {
    let (folder, begun) = (recovery::folder(), Instant::now());
    loop {
        // What cannot be put back is no reason not to try a test.
        let _ = recovery::restore(&folder);
        let holders = recovery::look(&folder).map_or_else(|_| Vec::new(), |found| found.holders);
        let holder = holders.iter().find(|it| it.alive && !it.exclusive.is_empty());
        match holder {
            None => return Ok(()),
            Some(holder) if begun.elapsed() > at_most => return Err(holder.to_string()),
            Some(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}
