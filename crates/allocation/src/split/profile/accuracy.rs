//! Errors of a profile of few phases, compared with the course that it was made from.

use serde::{Deserialize, Serialize};

use super::Profile;
use super::course::Course;
use crate::table::RateTable;

/// Errors of a compiled profile, each as a share of what was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// Mean of |rate / recorded rate - 1| over progress and over shares.
    pub rate_mean: f64,
    /// `rate_mean` of the share for which it is largest.
    pub rate_mean_worst_share: f64,
    /// Largest error of any rate, under any share.
    pub rate_worst: f64,
    /// Worst error of a run's time up to some progress, as a share of the whole run's time under the same share.
    pub lag_worst: f64,
    /// |duration / recorded duration - 1|, mean over shares.
    pub duration_mean: f64,
    /// `|duration / recorded duration - 1|` of the share for which it is largest.
    pub duration_worst: f64,
    /// Most that a run is faster than the fastest that was recorded with that share or within it; 0 where none is
    /// faster. Smoothing of rates that takes the best of several runs, phase by phase, does that; no machine would.
    pub faster_than_recorded: f64,
    /// Signed error of the duration under each share, in the order of [`crate::Grid::index`].
    pub durations: Vec<f64>,
}

impl Accuracy {
    /// Errors of `profile`, which was compiled from `course`: its phases end where pieces do.
    pub(super) fn of(profile: &Profile, course: &Course) -> Accuracy {
        let shares: Vec<Errors> = course
            .grid()
            .shares()
            .enumerate()
            .map(|(number, share)| {
                let mut errors = Errors::default();
                let (mut told, mut recorded) = (0.0, 0.0);
                let mut lag: f64 = 0.0;
                let mut phase = 0;
                for piece in 0..course.len() {
                    let length = course.length(piece);
                    let seconds = course.seconds(piece)[number];
                    let of_profile = length * profile.instructions / f64::from(profile.phases[phase].rates.rate(share));
                    let error = (seconds / of_profile - 1.0).abs();
                    errors.rate_mean += error * length;
                    errors.rate_worst = errors.rate_worst.max(error);
                    told += of_profile;
                    recorded += seconds;
                    lag = lag.max((told - recorded).abs());
                    if profile.phases[phase].ends <= course.ends()[piece] {
                        phase += 1;
                    }
                }
                errors.duration = told / recorded - 1.0;
                errors.lag_worst = lag / recorded;
                errors
            })
            .collect();
        let durations: Vec<f64> = shares.iter().map(|errors| errors.duration).collect();
        let mean = |of: fn(&Errors) -> f64| shares.iter().map(of).sum::<f64>() / shares.len() as f64;
        let worst = |of: fn(&Errors) -> f64| shares.iter().map(of).fold(0.0, f64::max);
        Accuracy {
            rate_mean: mean(|errors| errors.rate_mean),
            rate_mean_worst_share: worst(|errors| errors.rate_mean),
            rate_worst: worst(|errors| errors.rate_worst),
            lag_worst: worst(|errors| errors.lag_worst),
            duration_mean: mean(|errors| errors.duration.abs()),
            duration_worst: worst(|errors| errors.duration.abs()),
            faster_than_recorded: faster(profile, course),
            durations,
        }
    }
}

/// By how much a whole run of `profile` beats every recorded run within its share.
fn faster(profile: &Profile, course: &Course) -> f64 {
    let grid = course.grid();
    // Pace (runs per second) in place of a rate: the best pace within a share is the shortest time.
    let envelope = RateTable::new(grid, |share| (1.0 / course.duration(share)) as f32).monotone();
    let gain = |share| 1.0 / profile.duration(share) / f64::from(envelope.rate(share)) - 1.0;
    // Below what single precision tells apart there is no gain.
    grid.shares().map(gain).filter(|gain| *gain > 1e-6).fold(0.0, f64::max)
}

#[derive(Default)]
struct Errors {
    rate_mean: f64,
    rate_worst: f64,
    lag_worst: f64,
    duration: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;
    use crate::profile::Phase;

    const GRID: Grid = Grid { ways: 1, partitions: 1 };

    /// Four seconds of work, of which the first half takes one.
    fn course() -> Course {
        Course::new(GRID, 40.0, vec![0.5, 1.0], vec![1.0, 3.0])
    }

    fn profile(phases: &[(f64, f32)]) -> Profile {
        let phase = |(ends, rate): &(f64, f32)| Phase {
            ends: *ends,
            rates: RateTable::new(GRID, |_| *rate),
        };
        Profile {
            name: "x".into(),
            grid: GRID,
            instructions: 40.0,
            phases: phases.iter().map(phase).collect(),
        }
    }

    #[test]
    fn phases_that_are_the_pieces_are_exact() {
        let accuracy = Accuracy::of(&profile(&[(0.5, 20.0), (1.0, 20.0 / 3.0)]), &course());
        assert!(accuracy.rate_worst < 1e-6 && accuracy.lag_worst < 1e-6 && accuracy.duration_worst < 1e-6);
        assert_eq!(accuracy.faster_than_recorded, 0.0);
    }

    #[test]
    fn one_phase_keeps_the_time_and_loses_the_rates() {
        let accuracy = Accuracy::of(&profile(&[(1.0, 10.0)]), &course());
        assert_eq!((accuracy.rate_mean, accuracy.rate_worst), (0.5, 0.5));
        assert_eq!((accuracy.lag_worst, accuracy.duration_worst), (0.25, 0.0));
        assert_eq!(accuracy.durations, [0.0]);
    }

    #[test]
    fn a_profile_that_runs_too_fast_is_told() {
        let accuracy = Accuracy::of(&profile(&[(1.0, 20.0)]), &course());
        assert_eq!(accuracy.faster_than_recorded, 1.0);
        assert_eq!(accuracy.durations, [-0.5]);
    }
}
