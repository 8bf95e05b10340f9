//! Assigns tasks to cores: worst-fit bin packing.
//!
//! Tasks are assigned in the order of decreasing utilisation, each to the core with the most room left. This keeps the
//! cores' loads close together (they differ by at most the largest task) and leaves each core few tasks, which keeps
//! virtual deadlines short to compute (fifth paper, section VII). The paper names worst fit but no order; decreasing is
//! the usual order.

use thiserror::Error;

/// An assignment of tasks to cores.
#[derive(Clone, Debug, PartialEq)]
pub struct Packing {
    /// The core of each task, in the order of the tasks.
    pub cores: Vec<usize>,
    /// The utilisation of each core.
    pub loads: Vec<f64>,
}

/// Reason why a task set cannot be packed.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum PackingError {
    /// There are no cores.
    #[error("no cores to put tasks on")]
    NoCores,
    /// A utilisation is not above 0 and at most 1.
    #[error("task {task} has a utilisation of {utilisation}: give a number more than 0 and at most 1")]
    Utilisation {
        /// Index of the task, from 0.
        task: usize,
        utilisation: f64,
    },
    /// A core has a utilisation over 1.
    #[error("core {core} would have a utilisation of {load}: the task set cannot be packed onto {cores} cores")]
    Overfull {
        /// The core with the highest load.
        core: usize,
        /// Utilisation of that core.
        load: f64,
        cores: usize,
    },
}

/// Packs tasks of these utilisations onto `cores` cores. Allows loads over 1, because late jobs may run on in a soft
/// real-time system; [`Packing::check`] refuses them.
///
/// # Errors
/// [`PackingError::NoCores`], and [`PackingError::Utilisation`] for a task that no core alone can run.
pub fn worst_fit(utilisations: &[f64], cores: usize) -> Result<Packing, PackingError> {
    if cores == 0 {
        return Err(PackingError::NoCores);
    }
    for (task, &utilisation) in utilisations.iter().enumerate() {
        if !(utilisation > 0.0 && utilisation <= 1.0) {
            return Err(PackingError::Utilisation { task, utilisation });
        }
    }
    let mut order: Vec<usize> = (0..utilisations.len()).collect();
    order.sort_by(|a, b| utilisations[*b].total_cmp(&utilisations[*a]));
    let mut packing = Packing {
        cores: vec![0; utilisations.len()],
        loads: vec![0.0; cores],
    };
    for task in order {
        let core = emptiest(&packing.loads);
        packing.cores[task] = core;
        packing.loads[core] += utilisations[task];
    }
    Ok(packing)
}

/// The first of the cores with the least load.
fn emptiest(loads: &[f64]) -> usize {
    let least = loads.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
    least.map_or(0, |(core, _)| core)
}

impl Packing {
    /// Checks that no core has a utilisation over 1.
    ///
    /// # Errors
    /// [`PackingError::Overfull`] names the fullest core.
    pub fn check(&self) -> Result<(), PackingError> {
        let fullest = self.loads.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        match fullest {
            Some((core, &load)) if load > 1.0 => Err(PackingError::Overfull {
                core,
                load,
                cores: self.loads.len(),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn loads_are_of_the_tasks_and_differ_by_less_than_the_largest(
            utilisations in proptest::collection::vec(0.01..=1.0, 1..40),
            cores in 1_usize..9,
        ) {
            let packing = worst_fit(&utilisations, cores).unwrap();
            let mut loads = vec![0.0; cores];
            for (task, core) in packing.cores.iter().enumerate() {
                loads[*core] += utilisations[task];
            }
            for (load, told) in loads.iter().zip(&packing.loads) {
                prop_assert!((load - told).abs() < 1e-9);
            }
            let largest = utilisations.iter().copied().fold(0.0, f64::max);
            let (most, least) =
                (loads.iter().copied().fold(0.0, f64::max), loads.iter().copied().fold(f64::MAX, f64::min));
            prop_assert!(most - least <= largest + 1e-9, "{loads:?}");
        }
    }

    #[test]
    fn what_cannot_be_packed_is_refused() {
        assert_eq!(worst_fit(&[0.5], 0), Err(PackingError::NoCores));
        assert!(matches!(
            worst_fit(&[0.5, f64::NAN], 2),
            Err(PackingError::Utilisation { task: 1, .. })
        ));
        assert!(matches!(
            worst_fit(&[1.1], 2),
            Err(PackingError::Utilisation { task: 0, .. })
        ));
        let overfull = worst_fit(&[0.6, 0.6, 0.6], 2).unwrap();
        assert!(matches!(overfull.check(), Err(PackingError::Overfull { core: 0, .. })));
        assert_eq!(worst_fit(&[0.6, 0.4], 2).unwrap().check(), Ok(()));
    }
}
