//! Draws task sets as the fifth paper's evaluation does (section VIII-A).
//!
//! Programs are drawn at random, utilisations uniformly from 0.1..0.4, and a task's period is its program's reference
//! WCET (with all resources) divided by its utilisation. Tasks are assigned to four cores by worst-fit packing of their
//! utilisations, the largest first. Where the paper is silent: the last task gets the utilisation that the set still
//! lacks (draws before it leave it at least the minimum), and all tasks are released first at 0. A set that overloads a
//! core by reference WCETs is drawn again, because it could not be scheduled even if every core had all resources.

use punctual_allocation::PeriodicTask;
use punctual_sim::split::RunnableProfile;
use punctual_units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::packing::worst_fit;

/// Range of the utilisation of one task.
pub const TASK_UTILISATION: (f64, f64) = (0.1, 0.4);

/// The first and the last utilisation of a task set, and the step, in tenths.
const UTILISATIONS: (u32, u32, usize) = (10, 38, 2);

/// Number of sets of each utilisation in the paper.
pub const SETS: u32 = 15;

/// Limit of draws for one set, since a drawn set may not fit on its cores.
const DRAWS_MAX: usize = 1000;

/// The utilisations of the evaluation, 1.0 to 3.8.
pub fn utilisations() -> impl Iterator<Item = f64> {
    let (first, last, step) = UTILISATIONS;
    (first..=last).step_by(step).map(|tenths| f64::from(tenths) / 10.0)
}

/// Tasks, assigned to cores.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSet {
    pub tasks: Vec<PeriodicTask>,
    /// Number of earlier draws that were rejected because they did not fit.
    pub refused: usize,
}

/// Draws set number `number` of `utilisation`; the same arguments give the same set.
///
/// # Errors
/// A message, if no drawn set fits on `cores` cores.
pub fn draw(
    programs: &[RunnableProfile],
    cores: usize,
    utilisation: f64,
    seed: u64,
    number: usize,
) -> Result<TaskSet, String> {
    let stream = (utilisation * 10.0).round() as u64 * 1000 + number as u64;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    for refused in 0..DRAWS_MAX {
        let parts = parts(utilisation, &mut random);
        let programs_of: Vec<usize> = parts.iter().map(|_| random.random_range(0..programs.len())).collect();
        let packing = worst_fit(&parts, cores).map_err(|error| error.to_string())?;
        if packing.check().is_err() {
            continue;
        }
        let task = |((part, program), core): ((&f64, usize), usize)| {
            PeriodicTask::new(
                program,
                Nanos::from_secs_f64(programs[program].reference() / part),
                core,
            )
        };
        let tasks = parts.iter().zip(programs_of).zip(packing.cores).map(task).collect();
        return Ok(TaskSet { tasks, refused });
    }
    Err(format!(
        "no task set of utilisation {utilisation} fits on {cores} cores in {DRAWS_MAX} draws; lower the utilisation"
    ))
}

/// Draws task utilisations with the sum `utilisation`.
fn parts(utilisation: f64, random: &mut ChaCha8Rng) -> Vec<f64> {
    let (least, most) = TASK_UTILISATION;
    let mut left = utilisation;
    let mut parts = Vec::new();
    while left > most {
        let part = random.random_range(least..=most.min(left - least));
        parts.push(part);
        left -= part;
    }
    parts.push(left);
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_allocation::{Grid, Phase, Profile, RateTable};

    use super::*;

    #[test]
    fn utilisations_are_the_papers() {
        let all: Vec<f64> = utilisations().collect();
        assert_eq!((all.len(), all[0], all[14]), (15, 1.0, 3.8));
    }

    #[test]
    fn what_overloads_a_core_is_drawn_again_until_given_up() {
        let phase = Phase {
            ends: 1.0,
            rates: RateTable::new(Grid::PAPER, |_| 1e9),
        };
        let profile = Profile {
            name: "even".into(),
            grid: Grid::PAPER,
            instructions: 1e9,
            phases: vec![phase],
        };
        let programs = [RunnableProfile::new(profile).unwrap()];
        let error = draw(&programs, 1, 1.2, 1, 0).unwrap_err();
        assert!(error.contains("fits on 1 cores"), "{error}");
        assert!(draw(&programs, 0, 1.2, 1, 0).unwrap_err().contains("no cores"));
        let set = draw(&programs, 2, 1.2, 1, 0).unwrap();
        assert!(set.tasks.iter().any(|task| task.core == 1), "{set:?}");
    }

    proptest! {
        #[test]
        fn parts_are_in_range_and_add_up(tenths in 10u32..=38, seed in any::<u64>()) {
            let utilisation = f64::from(tenths) / 10.0;
            let parts = parts(utilisation, &mut ChaCha8Rng::seed_from_u64(seed));
            prop_assert!((parts.iter().sum::<f64>() - utilisation).abs() < 1e-9);
            prop_assert!(parts.iter().all(|part| (0.1 - 1e-9..=0.4 + 1e-9).contains(part)), "{:?}", parts);
        }
    }
}
