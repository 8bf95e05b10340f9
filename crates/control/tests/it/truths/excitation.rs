//! Relatively prime cycles cover every combination of levels.

use std::collections::HashSet;

use proptest::prelude::*;
use punctual_control::Excitation;

use crate::truths::systems::refused_for;

/// 1.0, 2.0, .. as many levels as asked for.
fn levels(count: usize) -> Vec<f64> {
    (1..=count).map(|level| level as f64).collect()
}

proptest! {
    #[test]
    fn a_period_from_anywhere_holds_every_combination(
        counts in prop::collection::vec(2usize..5, 1..4), hold in 1u32..3, start in 0u64..1000,
    ) {
        let plan = Excitation::covering(counts.iter().map(|&n| levels(n)).collect(), hold).unwrap();
        let seen: HashSet<Vec<u64>> = (start..start + plan.period())
            .map(|k| plan.at(k).iter().map(|&level| level as u64).collect())
            .collect();
        prop_assert_eq!(seen.len(), counts.iter().product::<usize>());
    }

    #[test]
    fn every_level_is_held_for_at_least_the_samples_asked(
        counts in prop::collection::vec(2usize..5, 1..4), hold in 1u32..5,
    ) {
        let plan = Excitation::covering(counts.iter().map(|&n| levels(n)).collect(), hold).unwrap();
        let samples: Vec<Vec<f64>> = (0..plan.period()).map(|k| plan.at(k)).collect();
        for knob in 0..counts.len() {
            // A period ends where every cycle ends, so no run is cut in two there.
            let mut run = 0;
            for k in 0..samples.len() {
                run += 1;
                if k + 1 == samples.len() || samples[k][knob] != samples[k + 1][knob] {
                    prop_assert!(run >= hold, "knob {} held {} samples at {}", knob, run, k);
                    run = 0;
                }
            }
        }
    }

    #[test]
    fn over_a_period_the_knobs_are_uncorrelated_at_every_lag(
        counts in prop::collection::vec(2usize..5, 2), lag in 0u64..50,
    ) {
        let plan = Excitation::covering(counts.iter().map(|&n| levels(n)).collect(), 1).unwrap();
        let pairs: Vec<(f64, f64)> = (0..plan.period()).map(|k| (plan.at(k)[0], plan.at(k + lag)[1])).collect();
        let n = pairs.len() as f64;
        let mean = |part: fn(&(f64, f64)) -> f64| pairs.iter().map(part).sum::<f64>() / n;
        let covariance = mean(|p| p.0 * p.1) - mean(|p| p.0) * mean(|p| p.1);
        prop_assert!(covariance.abs() < 1e-9, "covariance {covariance}");
    }
}

#[test]
fn levels_that_cannot_work_are_refused() {
    let of =
        |levels: &[&[f64]], hold| Excitation::covering(levels.iter().map(|levels| levels.to_vec()).collect(), hold);
    refused_for("no knob", of(&[], 1));
    refused_for("knob 0 has fewer than two", of(&[&[]], 1));
    refused_for("knob 1 has fewer than two", of(&[&[1.0, 2.0], &[1.0, 1.0]], 1));
    refused_for("knob 0 has the level NaN", of(&[&[1.0, f64::NAN]], 1));
    refused_for("use fewer levels", of(&[&[1.0, 2.0]], u32::MAX));
    let many = Excitation::covering(vec![levels(200); 4], 10);
    refused_for("use fewer levels", many);
}
