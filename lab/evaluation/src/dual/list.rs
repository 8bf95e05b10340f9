//! Checks a list of exclusive cores.

use punctual_units::CoreId;
use thiserror::Error;

/// Error in a list of exclusive cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CoreListError {
    /// The machine has no such core.
    #[error("there is no core {core}: the machine has cores 0 to {}; name one of them", .cores.saturating_sub(1))]
    OutOfRange {
        core: CoreId,
        /// Number of cores of the machine.
        cores: u32,
    },
    /// A core is named twice.
    #[error("core {0} is named twice; name it once")]
    Twice(CoreId),
    /// The list has all cores, so none would be left for other work.
    #[error("all {0} cores would be exclusive; leave at least one to other work")]
    NoneLeft(u32),
    /// No core is named.
    #[error("no core is named; name at least one")]
    Empty,
}

/// Checks that `exclusive` can be exclusive on a machine with `cores` cores: at least one, each exists, none twice, and
/// not all.
///
/// # Errors
/// [`CoreListError`], the first one found.
///
/// ```
/// use punctual_evaluation::dual::{CoreListError, check_cores};
/// use punctual_units::CoreId;
/// assert_eq!(check_cores(&[CoreId(1)], 2), Ok(()));
/// assert_eq!(check_cores(&[CoreId(2)], 2), Err(CoreListError::OutOfRange { core: CoreId(2), cores: 2 }));
/// assert_eq!(check_cores(&[CoreId(0)], 1), Err(CoreListError::NoneLeft(1)));
/// ```
pub fn check_cores(exclusive: &[CoreId], cores: u32) -> Result<(), CoreListError> {
    if exclusive.is_empty() {
        return Err(CoreListError::Empty);
    }
    for (i, core) in exclusive.iter().enumerate() {
        if core.0 >= cores {
            return Err(CoreListError::OutOfRange { core: *core, cores });
        }
        if exclusive[..i].contains(core) {
            return Err(CoreListError::Twice(*core));
        }
    }
    if exclusive.len() as u64 >= u64::from(cores) {
        return Err(CoreListError::NoneLeft(cores));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_accepted_leaves_a_core_and_names_each_once(
            list in prop::collection::vec(0u32..6, 0..6),
            cores in 0u32..6,
        ) {
            let list: Vec<CoreId> = list.into_iter().map(CoreId).collect();
            let left = (0..cores).filter(|core| !list.contains(&CoreId(*core))).count();
            let sound = !list.is_empty() && left > 0 && left + list.len() == cores as usize;
            prop_assert_eq!(check_cores(&list, cores).is_ok(), sound);
        }
    }
}
