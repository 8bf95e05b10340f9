//! Knobs with steps, alone and inside of the LQR-PI law.

use proptest::prelude::*;
use punctual_control::{Actuator, ArxModel, DMatrix, Knob, LqrPi, Weights, design, steady_gain};

use crate::truths::systems::{Plant, Uniform, names, refused_for, stable_arx};

fn weights(model: &ArxModel) -> Weights {
    let (ny, nu) = (model.outputs().len(), model.inputs().len());
    Weights {
        error: vec![1.0; ny],
        accumulated: vec![1.0; ny],
        effort: vec![1.0; nu],
    }
}

/// Uneven steps over -3..3.
fn uneven(gaps: &[f64]) -> Vec<f64> {
    let total: f64 = gaps.iter().sum();
    let mut at = -3.0;
    let ends = gaps.iter().map(|gap| {
        at += 6.0 * gap / total;
        at
    });
    std::iter::once(-3.0).chain(ends).collect()
}

fn siso(a: f64, b: f64) -> ArxModel {
    let [a, b] = [a, b].map(|v| vec![DMatrix::from_element(1, 1, v)]);
    ArxModel::from_matrices(names("u", 1), names("y", 1), a, b).unwrap()
}

proptest! {
    /// Without steps, actuators are knobs: bit by bit the same law.
    #[test]
    fn a_law_on_bare_actuators_is_the_law_on_knobs(
        model in stable_arx(1..=2, 0..=1, 1..=2),
        seed: u64,
        limit in 0.05..3.0f64,
    ) {
        let gains = design(&model, &weights(&model)).map_err(|e| TestCaseError::reject(e.to_string()))?;
        let knobs = vec![Knob::new(-limit, limit, 0.1).unwrap(); model.inputs().len()];
        let mut plain = LqrPi::new(&gains, knobs.clone()).unwrap();
        let mut same = LqrPi::on_actuators(&gains, knobs.into_iter().map(Actuator::from).collect()).unwrap();
        let mut uniform = Uniform::new(seed);
        for k in 0..100 {
            let (y, goal) = (uniform.row(model.outputs().len()), uniform.row(model.outputs().len()));
            let u = plain.step(&y, &goal).unwrap().to_vec();
            prop_assert_eq!(same.step(&y, &goal).unwrap(), u.as_slice());
            if k % 5 == 0 {
                let refused = vec![0.0; u.len()];
                plain.applied(&refused).unwrap();
                same.applied(&refused).unwrap();
            }
            prop_assert_eq!(plain.accumulated(), same.accumulated());
        }
    }

    /// Whatever is measured: on a step, within the limits.
    #[test]
    fn steps_are_kept(gaps in prop::collection::vec(0.2..1.0f64, 2..19), seed: u64) {
        let model = siso(0.3, -1.0);
        let steps = uneven(&gaps);
        let clock = Actuator::on_steps(steps.clone()).unwrap();
        let gains = design(&model, &weights(&model)).unwrap();
        let mut law = LqrPi::on_actuators(&gains, vec![clock]).unwrap();
        let mut uniform = Uniform::new(seed);
        for k in 0..300 {
            let size = if k % 7 == 0 { 100.0 } else { 1.0 };
            let u = law.step(&[size * uniform.draw()], &[uniform.draw()]).unwrap()[0];
            prop_assert!(steps.contains(&u), "{u} is no step of {steps:?}");
        }
    }

    /// A steady load: the knob alternates between two neighbours, and the mean is on the goal. Without the model inside
    /// of the law the mean is too, but the law answers its own rounding and the knob goes further.
    #[test]
    fn a_limit_cycle_is_one_step_wide(
        gaps in prop::collection::vec(0.5..1.0f64, 6..19),
        a in 0.0..0.6f64,
        goal in -1.0..1.0f64,
    ) {
        let model = siso(a, -1.0);
        let steps = uneven(&gaps);
        let gains = design(&model, &weights(&model)).unwrap();
        let bare = LqrPi::on_actuators(&gains, vec![Actuator::on_steps(steps.clone()).unwrap()]).unwrap();
        for (mut law, widest) in [(bare.clone(), steps.len()), (bare.with_model(&model, &gains).unwrap(), 1)] {
            let mut plant = Plant::new(&model);
            let (mut sum, mut visited) = (0.0, Vec::new());
            for k in 0..3000 {
                let u = law.step(&plant.y, &[goal]).unwrap().to_vec();
                plant.advance(&u);
                if k >= 1000 {
                    sum += plant.y[0];
                    visited.push(steps.iter().position(|step| *step == u[0]).unwrap());
                }
            }
            let (low, high) = (visited.iter().min().unwrap(), visited.iter().max().unwrap());
            prop_assert!(high - low <= widest, "between {low} and {high} of {steps:?}");
            prop_assert!((sum / 2000.0 - goal).abs() < 0.01, "mean {}", sum / 2000.0);
        }
    }

    /// With feed-forward and a true model, a new goal is no error: the accumulated one does not move.
    #[test]
    fn a_new_goal_is_no_error_to_a_law_that_is_fed_forward(model in stable_arx(1..=2, 0..=1, 1..=1), seed: u64) {
        let gains = design(&model, &weights(&model)).map_err(|e| TestCaseError::reject(e.to_string()))?;
        prop_assume!(gains.verdict.spectral_radius() < 0.97 && gains.ki.amax() < 100.0);
        let knobs = vec![Actuator::from(Knob::new(-1e3, 1e3, 0.0).unwrap()); model.inputs().len()];
        let law = LqrPi::on_actuators(&gains, knobs).unwrap().with_model(&model, &gains);
        let mut law = law.map_err(|e| TestCaseError::reject(e.to_string()))?;
        let (mut plant, mut uniform) = (Plant::new(&model), Uniform::new(seed));
        let (first, second) = (uniform.row(plant.y.len()), uniform.row(plant.y.len()));
        let mut run = |law: &mut LqrPi, goal: &[f64], samples: usize| {
            for _ in 0..samples {
                let u = law.step(&plant.y, goal).unwrap().to_vec();
                plant.advance(&u);
            }
            plant.y.iter().zip(goal).map(|(y, goal)| (y - goal).abs()).fold(0.0, f64::max)
        };
        prop_assert!(run(&mut law, &first, 1500) < 1e-6);
        let found = law.accumulated().to_vec();
        // The settings for a goal are a little off where the knobs differ much in effect: by the price of leaving the
        // operating point (1e-9 of the largest effect squared), so by the condition number squared.
        let effects = steady_gain(&model).unwrap().singular_values();
        let off = 1e-9 * (effects.max() / effects.min()).powi(2) * 2.0;
        let (samples, rounding) = (50, 1e-6);
        for _ in 0..samples {
            run(&mut law, &second, 1);
            for (v, found) in law.accumulated().iter().zip(&found) {
                let bound = rounding + f64::from(samples) * off;
                prop_assert!((v - found).abs() < bound, "{v} was {found}, off by more than {bound:e}");
            }
        }
        prop_assert!(run(&mut law, &second, 1500) < 1e-6);
    }
}

#[test]
fn actuators_and_goals_that_cannot_be_are_refused() {
    for steps in [
        vec![],
        vec![1.0],
        vec![1.0, 1.0],
        vec![1.0, 0.5],
        vec![0.0, f64::NAN],
        vec![0.0, f64::INFINITY],
    ] {
        refused_for("at least two settings", Actuator::on_steps(steps));
    }
    let clock = || Actuator::on_steps(vec![0.0, 0.5, 1.5]).unwrap();
    let model = siso(0.3, -1.0);
    let gains = design(&model, &weights(&model)).unwrap();
    let law = || LqrPi::on_actuators(&gains, vec![clock()]).unwrap();
    let other = siso(0.3, 1.0);
    refused_for("designed for model", law().with_model(&other, &gains));
    assert!(law().with_model(&model, &gains).is_ok());
}
