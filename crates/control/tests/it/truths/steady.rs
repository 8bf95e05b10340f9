//! Resting points, and models for another pace.

use proptest::prelude::*;
use punctual_control::{ArxModel, DMatrix, SteadyState, quasi_static};

use crate::truths::systems::{Uniform, free_run, names, refused_for, stable_arx};

fn worst(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}

/// The outputs at rest under the settings `u`, as G and the rest at the operating point say.
fn at_rest(model: &ArxModel, rests: &SteadyState, u: &[f64]) -> Vec<f64> {
    let moved = DMatrix::from_fn(u.len(), 1, |i, _| u[i] - model.u0()[i]);
    let changes = rests.gain() * moved;
    rests
        .rest()
        .iter()
        .zip(&changes)
        .map(|(rest, change)| rest + change)
        .collect()
}

proptest! {
    /// What the formula says is where a free run ends.
    #[test]
    fn a_model_comes_to_rest_there(model in stable_arx(1..=3, 0..=1, 1..=3), seed: u64) {
        let rests = SteadyState::of(&model).map_err(|e| TestCaseError::reject(e.to_string()))?;
        let mut uniform = Uniform::new(seed);
        let u = uniform.row(model.inputs().len());
        let start: Vec<Vec<f64>> = (0..model.order()).map(|_| uniform.row(model.outputs().len())).collect();
        let run = free_run(&model, &start, &vec![u.clone(); 2000]);
        prop_assert!(worst(run.last().unwrap(), &at_rest(&model, &rests, &u)) < 1e-6);
    }

    #[test]
    fn at_another_pace_the_resting_points_stay_and_the_dynamics_go(
        model in stable_arx(1..=3, 0..=1, 1..=2),
        seed: u64,
    ) {
        let quick = quasi_static(&model, 10.0).map_err(|e| TestCaseError::reject(e.to_string()))?;
        let mut uniform = Uniform::new(seed);
        let (u, y) = (uniform.row(model.inputs().len()), uniform.row(model.outputs().len()));
        let one_sample = free_run(&quick, &[y], &[u.clone(), u.clone()]);
        prop_assert!(worst(&one_sample[1], &at_rest(&model, &SteadyState::of(&model).unwrap(), &u)) < 1e-9);
        prop_assert_eq!(quick.order(), 1);
    }
}

#[test]
fn models_without_a_resting_point_say_why() {
    let of = |a: DMatrix<f64>, b: DMatrix<f64>| {
        let (ny, nu) = b.shape();
        SteadyState::of(&ArxModel::from_matrices(names("u", nu), names("y", ny), vec![a], vec![b]).unwrap())
    };
    let one = DMatrix::identity(1, 1);
    refused_for("accumulates", of(one.clone(), one.clone()));
    let half = DMatrix::identity(2, 2) * 0.5;
    let same = DMatrix::from_row_slice(2, 2, &[1.0, 2.0, 0.5, 1.0]);
    refused_for("up to a factor", of(half.clone(), same));
    refused_for("up to a factor", of(half, DMatrix::from_element(2, 1, 1.0)));
}
