//! The Riccati equation and the regulator: identities on random systems, and refusals.

use proptest::prelude::*;
use punctual_control::{ControlError, DMatrix, StateSpace, dare, dlqr};

use crate::truths::systems::{Uniform, free_run, matrix, refused_for, semidefinite, stable_arx};

type Problem = (DMatrix<f64>, DMatrix<f64>, DMatrix<f64>, DMatrix<f64>);

/// A (stable or not), B, Q > 0 and R > 0 of random sizes.
fn problem() -> impl Strategy<Value = Problem> {
    (1usize..=6, 1usize..=3, 0.2..1.5).prop_flat_map(|(n, m, size)| {
        let definite = |k: usize| semidefinite(k).prop_map(move |q| q + DMatrix::identity(k, k) * 0.1);
        (
            matrix(n, n).prop_map(move |a| a * size),
            matrix(n, m),
            definite(n),
            definite(m),
        )
    })
}

/// What it costs to follow u = -K x from x for `samples` samples.
fn cost((a, b, q, r): &Problem, k: &DMatrix<f64>, x: &DMatrix<f64>, samples: usize) -> f64 {
    let (mut x, mut total) = (x.clone(), 0.0);
    for _ in 0..samples {
        let u = -k * &x;
        total += (x.transpose() * q * &x)[(0, 0)] + (u.transpose() * r * &u)[(0, 0)];
        x = a * &x + b * u;
    }
    total
}

proptest! {
    #[test]
    fn the_solution_solves_the_equation(problem in problem()) {
        let (a, b, q, r) = &problem;
        let solved = match dare(a, b, q, r) {
            Err(ControlError::NotStabilisable { .. }) => return Err(TestCaseError::reject("not stabilisable")),
            solved => solved.unwrap(),
        };
        let x = &solved.x;
        // Written out once more, with an explicit inverse, independently of the crate's own residual.
        let inverse = (r + b.transpose() * x * b).try_inverse().unwrap();
        let left = a.transpose() * x * a - x - a.transpose() * x * b * inverse * b.transpose() * x * a + q;
        prop_assert!(left.norm() <= 1e-7 * x.norm(), "residual {:e} of {:e}", left.norm(), x.norm());
        prop_assert!((x - x.transpose()).amax() <= 1e-12 * x.amax());
        // X - Q is positive semidefinite, being the cost of all later samples.
        let later = x - q + DMatrix::identity(x.nrows(), x.nrows()) * (1e-9 * x.norm());
        prop_assert!(later.cholesky().is_some());
    }

    #[test]
    fn the_closed_loop_is_stable_and_x_is_its_cost(problem in problem(), seed: u64) {
        let (a, b, q, r) = &problem;
        let law = match dlqr(a, b, q, r) {
            Err(ControlError::NotStabilisable { .. }) => return Err(TestCaseError::reject("not stabilisable")),
            law => law.unwrap(),
        };
        prop_assert!(law.verdict.is_stable(), "{:?}", law.poles);
        prop_assert_eq!(law.poles.len(), a.nrows());
        let x = DMatrix::from_vec(a.nrows(), 1, Uniform::new(seed).row(a.nrows()));
        let promised = (x.transpose() * &law.x * &x)[(0, 0)];
        let spent = cost(&problem, &law.k, &x, 4000);
        prop_assert!((spent - promised).abs() <= 1e-6 * promised, "promised {promised}, spent {spent}");
    }

    #[test]
    fn no_other_gain_is_cheaper(problem in problem(), seed: u64, size in 1e-3..0.5) {
        let (a, b, q, r) = &problem;
        let Ok(law) = dlqr(a, b, q, r) else { return Err(TestCaseError::reject("no law")) };
        let mut uniform = Uniform::new(seed);
        let x = DMatrix::from_vec(a.nrows(), 1, uniform.row(a.nrows()));
        let other = law.k.map(|k| k + size * uniform.draw());
        let (best, perturbed) = (cost(&problem, &law.k, &x, 1000), cost(&problem, &other, &x, 1000));
        // An unstable loop may overflow: infinity minus infinity is dear, too.
        prop_assert!(perturbed.is_nan() || perturbed >= best * (1.0 - 1e-9), "{perturbed} < {best}");
    }

    #[test]
    fn the_companion_form_moves_as_the_model_does(model in stable_arx(1..=3, 0..=1, 1..=3), seed: u64) {
        let (ny, nu) = (model.outputs().len(), model.inputs().len());
        let mut uniform = Uniform::new(seed);
        let start: Vec<Vec<f64>> = (0..model.order()).map(|_| uniform.row(ny)).collect();
        let u: Vec<Vec<f64>> = (0..30).map(|_| uniform.row(nu)).collect();
        let y = free_run(&model, &start, &u);
        let form = StateSpace::from(&model);
        // The state at sample k0: outputs from k0 back, inputs from k0 - 1 back.
        let k0 = model.order() - 1;
        let mut state: Vec<f64> = (0..model.a().len()).flat_map(|lag| y[k0 - lag].clone()).collect();
        state.extend((1..model.b().len()).flat_map(|lag| u[k0 - lag].clone()));
        let mut state = DMatrix::from_vec(state.len(), 1, state);
        for k in k0..u.len() {
            let shown = &form.c * &state;
            for o in 0..ny {
                prop_assert!((shown[o] - y[k][o]).abs() < 1e-9, "output {} at {}", o, k);
            }
            state = &form.a * state + &form.b * DMatrix::from_vec(nu, 1, u[k].clone());
        }
    }
}

fn square(n: usize, entries: &[f64]) -> DMatrix<f64> {
    DMatrix::from_row_slice(n, n, entries)
}

#[test]
fn a_mode_that_no_input_moves_is_named() {
    let a = square(2, &[0.5, 0.0, 0.0, 1.2]);
    let b = DMatrix::from_row_slice(2, 1, &[1.0, 0.0]);
    let refused = dare(&a, &b, &DMatrix::identity(2, 2), &DMatrix::identity(1, 1)).unwrap_err();
    assert!(
        matches!(refused, ControlError::NotStabilisable { mode } if (mode.re - 1.2).abs() < 1e-9),
        "{refused}"
    );
    // The same mode, dying out by itself, may stay as it is.
    let a = square(2, &[0.5, 0.0, 0.0, 0.8]);
    assert!(dare(&a, &b, &DMatrix::identity(2, 2), &DMatrix::identity(1, 1)).is_ok());
}

#[test]
fn a_tiny_unit_is_not_taken_for_no_effect() {
    // A clock in hertz: one hertz moves hardly anything, but the knob does move the mode.
    let solved = dare(
        &square(1, &[1.1]),
        &square(1, &[1e-13]),
        &square(1, &[1.0]),
        &square(1, &[1e-26]),
    )
    .unwrap();
    let in_better_units = dare(
        &square(1, &[1.1]),
        &square(1, &[1.0]),
        &square(1, &[1.0]),
        &square(1, &[1.0]),
    )
    .unwrap();
    assert!((solved.x - in_better_units.x).amax() < 1e-9);
}

#[test]
fn an_unstable_mode_without_weight_is_named() {
    let a = square(2, &[0.5, 0.0, 0.0, -1.2]);
    let q = square(2, &[1.0, 0.0, 0.0, 0.0]);
    let solved = dare(&a, &DMatrix::identity(2, 2), &q, &DMatrix::identity(2, 2));
    refused_for("not detectable: the mode -1.2000", solved);
}

#[test]
fn no_state_weight_on_a_stable_system_means_do_nothing() {
    let law = dlqr(
        &square(1, &[0.9]),
        &square(1, &[1.0]),
        &square(1, &[0.0]),
        &square(1, &[1.0]),
    )
    .unwrap();
    assert_eq!((law.k[(0, 0)], law.residual), (0.0, 0.0));
}

#[test]
fn weights_of_the_wrong_kind_are_refused() {
    let one = DMatrix::identity(2, 2);
    let negative = square(2, &[1.0, 2.0, 2.0, 1.0]);
    let lopsided = square(2, &[1.0, 0.1, 0.0, 1.0]);
    let dare_with = |q: &DMatrix<f64>, r: &DMatrix<f64>| dare(&one, &one, q, r);
    refused_for("Q has the negative eigenvalue -", dare_with(&negative, &one));
    refused_for("R is not positive definite", dare_with(&one, &negative));
    refused_for("R is not positive definite", dare_with(&one, &DMatrix::zeros(2, 2)));
    refused_for("weight Q is not symmetric", dare_with(&lopsided, &one));
    refused_for("weight R is not symmetric", dare_with(&one, &lopsided));
}

#[test]
fn shapes_and_entries_that_do_not_fit_are_refused() {
    let (one, two) = (DMatrix::identity(1, 1), DMatrix::identity(2, 2));
    refused_for("Q is 1x1 but must be 2x2", dare(&two, &two, &one, &two));
    refused_for("B is 1x1 but must be 2x1", dare(&two, &one, &two, &one));
    refused_for("R is 1x1 but must be 2x2", dare(&two, &two, &two, &one));
    let nothing = DMatrix::zeros(0, 0);
    refused_for("A is 0x0 but must be 1x1", dare(&nothing, &nothing, &nothing, &nothing));
    let hole = square(2, &[1.0, 0.0, f64::NAN, 1.0]);
    refused_for("A holds NaN in row 1, column 0", dare(&hole, &two, &two, &two));
}
